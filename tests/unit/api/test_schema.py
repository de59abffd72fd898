"""Whether fields.json is what a server has is asked in tests/apiserver/test_served_fields.py."""

from __future__ import annotations

import pytest

from webhook.api.meta import GroupVersionKind
from webhook.api.schema import Reference, base_name, fields_of, served, type_of
from webhook.validation.kinds import BY_KIND


@pytest.mark.parametrize("kind", BY_KIND, ids=str)
def test_every_kind_that_is_judged_has_its_fields(kind: GroupVersionKind) -> None:
    name = type_of(kind)
    assert name is not None
    assert {"apiVersion", "kind", "metadata", "spec"} <= fields_of(name).keys()


@pytest.mark.parametrize("kind", BY_KIND, ids=str)
def test_every_type_that_a_field_refers_to_is_there(kind: GroupVersionKind) -> None:
    waiting = [type_of(kind)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        assert name is not None
        if name in seen:
            continue
        seen.add(name)
        waiting.extend(held.type for text in fields_of(name).values() if (held := Reference.parse(text)))
    assert len(seen) > 5


def test_kinds_of_others_have_none() -> None:
    assert type_of(GroupVersionKind("apps", "v1", "Deployment")) is None
    assert type_of(GroupVersionKind("resource.k8s.io", "v1beta1", "DeviceTaintRule")) is None


def test_the_release_of_the_fields_is_told() -> None:
    assert served().kubernetes == "1.37.0"


@pytest.mark.parametrize(
    ("text", "reference"),
    [("", None), ("v1.T", Reference("v1.T")), ("[v1.T]", Reference("v1.T", "[")), ("{v1.T}", Reference("v1.T", "{"))],
)
def test_references_say_what_holds_a_type(text: str, reference: Reference | None) -> None:
    assert Reference.parse(text) == reference


def test_the_base_name_is_without_version() -> None:
    assert base_name("v1beta1.DeviceTaint") == base_name("v1.DeviceTaint") == "DeviceTaint"
