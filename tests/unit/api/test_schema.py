"""Whether the files are what a server has is asked in tests/apiserver/test_served_fields.py."""

from __future__ import annotations

import pytest

from webhook.api.meta import GroupVersionKind
from webhook.api.schema import RELEASES, Reference, base_name, fields_of, release_with, served, type_of
from webhook.validation.kinds import BY_KIND
from webhook.validation.releases import RELEASES as JUDGED


@pytest.mark.parametrize("kind", BY_KIND, ids=str)
def test_every_kind_that_is_judged_has_its_fields(kind: GroupVersionKind) -> None:
    name = type_of(kind)
    assert name is not None
    assert {"apiVersion", "kind", "metadata", "spec"} <= fields_of(name).keys()


@pytest.mark.parametrize("minor", RELEASES)
@pytest.mark.parametrize("kind", BY_KIND, ids=str)
def test_every_type_that_a_field_refers_to_is_there(kind: GroupVersionKind, minor: int) -> None:
    waiting = [type_of(kind, minor)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        assert name is not None
        if name in seen:
            continue
        seen.add(name)
        held = [reference for text in fields_of(name, minor).values() if (reference := Reference.parse(text))]
        waiting.extend(reference.type for reference in held if reference.has_fields)
    assert len(seen) > 5


def test_there_is_a_file_for_every_release_that_is_judged() -> None:
    assert set(RELEASES) == set(JUDGED)
    assert [served(minor).kubernetes.split(".")[1] for minor in RELEASES] == [str(minor) for minor in RELEASES]


def test_a_field_that_came_later_is_known_by_its_release() -> None:
    found = [release_with("v1.DeviceAttribute", "strings", minor) for minor in (34, 35, 36, 37)]
    assert found == [36, 36, 37, 38], "the first one after it"
    assert release_with("v1.DeviceAttribute", "strings", 38) is None
    assert release_with("v1.DeviceAttribute", "text", 34) is None


def test_kinds_of_others_have_none() -> None:
    assert type_of(GroupVersionKind("apps", "v1", "Deployment")) is None
    assert type_of(GroupVersionKind("resource.k8s.io", "v1beta1", "DeviceTaintRule")) is None


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("", None),
        ("v1.T", Reference("v1.T")),
        ("[v1.T]", Reference("v1.T", "[")),
        ("{quantity}", Reference("quantity", "{")),
    ],
)
def test_references_say_what_holds_a_type(text: str, reference: Reference | None) -> None:
    assert Reference.parse(text) == reference


def test_the_base_name_is_without_version() -> None:
    assert base_name("v1beta1.DeviceTaint") == base_name("v1.DeviceTaint") == "DeviceTaint"


def test_last_release_is_asked_unless_another_one_is_named() -> None:
    kind = GroupVersionKind("resource.k8s.io", "v1beta1", "ResourceClaim")
    assert served() == served(RELEASES[-1]) != served(RELEASES[0])
    assert "capacity" in fields_of("v1beta1.DeviceRequest")
    assert "capacity" not in fields_of("v1beta1.DeviceRequest", RELEASES[0])
    assert type_of(kind) == type_of(kind, RELEASES[0]) == "v1beta1.ResourceClaim"


def test_release_outside_of_those_that_are_known_is_the_nearest_of_them() -> None:
    assert served(RELEASES[0] - 1) == served(RELEASES[0])
    assert served(RELEASES[-1] + 1) == served(RELEASES[-1])


def test_type_that_a_release_does_not_have_is_that_of_the_last_one() -> None:
    assert fields_of("v1.DeviceTaint", RELEASES[0]) == fields_of("v1.DeviceTaint")
    assert type_of(GroupVersionKind("resource.k8s.io", "v1", "ResourceClaim"), RELEASES[0]) == "v1.ResourceClaim"


def test_kind_that_is_gone_has_the_type_of_the_last_release_with_it() -> None:
    gone = GroupVersionKind("resource.k8s.io", "v1alpha3", "ResourceClaim")
    assert type_of(gone) == type_of(gone, RELEASES[0]) == "v1alpha3.ResourceClaim"
    assert fields_of("v1beta1.DeviceRequest") == fields_of("v1beta1.DeviceRequest", 37)
