"""Requests without findings are remembered if they are small, and few enough of them to bound the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.taints import EXISTS, DeviceToleration
from webhook.validation.claims import SPEC, QuietRequests, _fine, request_errors
from webhook.validation.releases import NEWEST, RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable

Requests = tuple[DeviceRequest, ...]


def are_remembered(requests: Requests) -> bool:
    memory = QuietRequests()
    memory.add(requests)
    return requests in memory.known


def exact(*tolerations: DeviceToleration, name: str = "", device_class: str = "") -> ExactRequest:
    return ExactRequest(name, device_class, tolerations=tolerations)


@pytest.mark.parametrize(
    "requests_of",
    [
        pytest.param(lambda text: (DeviceRequest(text[32:]),), id="name"),
        pytest.param(lambda text: (DeviceRequest("r" * 28), DeviceRequest(text[92:])), id="two requests"),
        pytest.param(lambda text: (DeviceRequest("", exact(device_class=text[64:])),), id="class"),
        pytest.param(
            lambda text: (DeviceRequest("", None, (exact(name="a" * 36), exact(name=text[132:]))),), id="alternatives"
        ),
        pytest.param(lambda text: (DeviceRequest("", exact(DeviceToleration(text[96:]))),), id="key"),
        pytest.param(lambda text: (DeviceRequest("", exact(DeviceToleration("", text[96:]))),), id="operator"),
        pytest.param(lambda text: (DeviceRequest("", exact(DeviceToleration("", "", text[96:]))),), id="value"),
        pytest.param(lambda text: (DeviceRequest("", exact(DeviceToleration("", "", "", text[96:]))),), id="effect"),
        pytest.param(
            lambda text: (
                DeviceRequest("", exact(DeviceToleration("k" * 30, "o" * 10), DeviceToleration(text[168:]))),
            ),
            id="two tolerations",
        ),
        pytest.param(
            lambda text: (
                DeviceRequest("", exact(DeviceToleration(text[160:-10]))),
                DeviceRequest("r" * 10, exact()),
            ),
            id="a request after tolerations",
        ),
    ],
)
def test_requests_of_2048_characters_are_remembered_and_of_more_are_not(requests_of: Callable[[str], Requests]) -> None:
    """Each request, alternative and toleration counts 32 besides its texts."""
    assert are_remembered(requests_of("x" * 2048))
    assert not are_remembered(requests_of("x" * 2049))


def test_exactly_full_list_of_tolerations_does_not_hide_what_follows() -> None:
    full = DeviceRequest("", exact(DeviceToleration("k" * (2048 - 96))))
    assert are_remembered((full,))
    assert not are_remembered((full, DeviceRequest("")))


def test_memory_holds_1024_entries_and_then_starts_again() -> None:
    memory = QuietRequests()
    for number in range(1024):
        memory.add((DeviceRequest(str(number)),))
    assert len(memory.known) == 1024
    memory.add((DeviceRequest("one more"),))
    assert memory.known == {(DeviceRequest("one more"),)}


def test_requests_are_remembered_only_if_the_newest_release_finds_them_right() -> None:
    right = (DeviceRequest("right", exact(DeviceToleration("k", EXISTS))),)
    wrong = (DeviceRequest("wrong", exact(DeviceToleration("k", "Like"))),)
    older = (DeviceRequest("older", exact(DeviceToleration("k", EXISTS))),)
    for _ in range(2):
        assert list(request_errors(SPEC, right, NEWEST)) == []
        assert list(request_errors(SPEC, wrong, NEWEST)) != []
        assert list(request_errors(SPEC, older, RELEASES[36])) == []
    assert [each in _fine.known for each in (right, wrong, older)] == [True, False, False]
