"""Whether the files are what a server has is asked in tests/apiserver/test_served_fields.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from webhook.api.meta import GroupVersionKind
from webhook.api.schema import RELEASES, Reference, base_name, fields_of, release_with, served, type_of
from webhook.api.servers import _HOLDS_FROM, UNKNOWN, ServerFacts, facts_of, parse_version
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


# --- what servers do, by their versions -----------------------------------------------------------


NONE = ServerFacts(**dict.fromkeys(ServerFacts.__struct_fields__, False))
FROM_1_36 = replace(NONE, taints_by_default=True)
FROM_1_37 = replace(FROM_1_36, rules_by_default=True)
FROM_1_37_1 = replace(FROM_1_37, missing_selects_nothing=True)
FROM_1_37_2 = replace(FROM_1_37_1, extended_evicted=True)
ALL = ServerFacts(**dict.fromkeys(ServerFacts.__struct_fields__, True))
NOT_KNOWN = dict.fromkeys(("empty_effect_protects", "warns_of_empty", "judges_as_1_38"), None)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["v1.33.0"], NONE),
        (["v1.35.4"], NONE),
        (["v1.36.9"], FROM_1_36),
        (["v1.37.0"], FROM_1_37),
        (["v1.37.1"], FROM_1_37_1),
        (["v1.37.2-rc.0.12+0123456789abcd"], FROM_1_37_1),
        (["v1.37.2"], FROM_1_37_2),
        (["1.37.2"], FROM_1_37_2),
        (["v1.37.2-gke.1000"], FROM_1_37_2),
        (["v1.37.2-eks-5e0fdde"], FROM_1_37_2),
        (["v1.37.2+k3s1"], FROM_1_37_2),
        (["v1.37.10"], FROM_1_37_2),
        (["v1.38.0-alpha.3"], FROM_1_37_2),
        (["v1.38.0-beta.0"], ALL),
        (["v1.38.0-rc.1"], ALL),
        (["v1.38.0"], ALL),
        (["v1.39.0-alpha.1"], ALL),
        (["v1.100.2"], ALL),
        (["1.36"], FROM_1_36),
        (["1.38"], ALL),
        (["1.37"], replace(FROM_1_37, extended_evicted=None, missing_selects_nothing=None)),
        (["v1.37.1", "v1.37.2"], replace(FROM_1_37_2, extended_evicted=None)),
        (["v1.37.0", "v1.37.1"], replace(FROM_1_37, missing_selects_nothing=None)),
        (["v1.37.2", "v1.38.0"], replace(FROM_1_37_2, **NOT_KNOWN)),
        (["v1.37.2", "v1.37.2"], FROM_1_37_2),
        ([], UNKNOWN),
        ([""], UNKNOWN),
        (["v1.37.2", "tomorrow's"], UNKNOWN),
    ],
    ids=str,
)
def test_facts_of_a_control_plane(versions: list[str], expected: ServerFacts) -> None:
    assert facts_of(versions) == expected


@pytest.mark.parametrize(
    "text", ["", "v", "1", "2.37.0", "v1.", "v1.x", "one", "v1.३७.2", "1" * 5000, "v1.37." + "9" * 400]
)
def test_what_is_no_version_is_not_guessed(text: str) -> None:
    assert parse_version(text) is None


def test_page_lists_the_version_of_each_fact() -> None:
    page = (Path(__file__).parents[3] / "docs" / "compatibility.md").read_text()
    table = page.partition("| fact | from | before |\n|---|---|---|\n")[2].partition("\n\n")[0]
    listed = sorted(line.split(" | ")[1] for line in table.splitlines())
    assert listed == sorted(f"1.{since.minor}.{since.patch}" for since in _HOLDS_FROM.values())
