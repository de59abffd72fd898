"""Where a claim or template asks for devices, and where its lists of tolerations stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.taints import DeviceToleration
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, everything_asked, toleration_lists

if TYPE_CHECKING:
    from webhook.api.field import Path

TOLERATION = DeviceToleration("k", "Exists")
BARE, LISTED = ExactRequest(), ExactRequest(tolerations=(TOLERATION, TOLERATION))
REQUESTS = (
    DeviceRequest("both", LISTED, (BARE, LISTED)),
    DeviceRequest("nothing"),
    DeviceRequest("flat", LISTED, flat=True),
    DeviceRequest("bare", BARE),
)


@pytest.mark.parametrize(("spec", "at"), [(SPEC, "spec"), (TEMPLATE_SPEC, "spec.spec")])
def test_each_request_and_alternative_is_found_where_it_stands(spec: Path, at: str) -> None:
    found = list(everything_asked(spec, REQUESTS))
    first = f"{at}.devices.requests"
    assert [(str(each.path), each.exact, each.position, each.alternative) for each in found] == [
        (f"{first}[0].exactly", LISTED, 0, None),
        (f"{first}[0].firstAvailable[0]", BARE, 0, 0),
        (f"{first}[0].firstAvailable[1]", LISTED, 0, 1),
        (f"{first}[2].exactly", LISTED, 2, None),
        (f"{first}[3].exactly", BARE, 3, None),
    ]
    assert [each.path.written for each in found][3] == f"{first}[2]"
    assert str(found[2].tolerations) == f"{first}[0].firstAvailable[1].tolerations"
    assert str(found[2].toleration(1)) == f"{first}[0].firstAvailable[1].tolerations[1]"


@pytest.mark.parametrize(("spec", "at"), [(SPEC, "spec"), (TEMPLATE_SPEC, "spec.spec")])
def test_each_list_of_tolerations_that_is_not_empty_is_found(spec: Path, at: str) -> None:
    found = list(toleration_lists(spec, REQUESTS))
    assert [str(each) for each, _ in found] == [
        f"{at}.devices.requests[0].exactly.tolerations",
        f"{at}.devices.requests[0].firstAvailable[1].tolerations",
        f"{at}.devices.requests[2].exactly.tolerations",
    ]
    assert found[2][0].written == f"{at}.devices.requests[2].tolerations"
    assert {tolerations for _, tolerations in found} == {LISTED.tolerations}
