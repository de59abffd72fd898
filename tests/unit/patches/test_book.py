"""Who owns which rules, also where labels were made up or edited by hand."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED, made
from webhook.api.meta import ObjectMeta
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, DeviceSelector, DeviceTaintRule
from webhook.patches.book import RuleBook
from webhook.patches.stored import RuleOwner, StoredRule

OWNER = RuleOwner("ResourceSlicePatch", "one", "u")
RULE = DeviceTaintRule(ObjectMeta("r", uid="r1"), DeviceSelector("d", "p"), CLOSED)


@pytest.mark.parametrize("other", ["u", "w"])
def test_rule_with_both_labels_belongs_to_the_owner_that_controls_it(other: str) -> None:
    """Anyone who may write rules can set them."""
    book = RuleBook()
    stored = structs.replace(made(RULE, OWNER), labels={PATCH_LABEL: "u", HARDWARE_LABEL: other})
    assert book.put_rule("r", stored) == ["u"]
    assert list(book.owned("u")) == [stored]
    assert list(book.owned("w")) == []
    assert book.put_rule("r", None) == ["u"]
    assert list(book.owned("u")) == []


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"labels": {}}, id="no label"),
        pytest.param({"labels": {PATCH_LABEL: "w"}}, id="label of another"),
        pytest.param({"labels": {HARDWARE_LABEL: "u"}}, id="label of another sort"),
        pytest.param({"controller": None, "rule": RULE}, id="no controller, and a name of its own"),
        pytest.param({"controller": None, "labels": {}}, id="no controller, and no label"),
        pytest.param({"controller": RuleOwner("ResourceSlicePatch", "one", "w")}, id="another controller"),
        pytest.param({"controller": RuleOwner("ResourceSlicePatch", "two", "u")}, id="a controller of another name"),
        pytest.param({"rule": RULE}, id="a name of its own"),
        pytest.param({"rule": structs.replace(made(RULE, OWNER).rule, selector=None)}, id="no selector"),
        pytest.param({"rule": structs.replace(made(RULE, OWNER).rule, selector=DeviceSelector("d"))}, id="wider"),
        pytest.param(
            {"rule": structs.replace(made(RULE, OWNER).rule, taint=structs.replace(CLOSED, effect="None"))},
            id="another effect",
        ),
        pytest.param(
            {"rule": structs.replace(made(RULE, OWNER).rule, taint=structs.replace(CLOSED, key="k"))}, id="another key"
        ),
    ],
)
def test_rule_that_only_claims_an_owner_has_none(fields: dict[str, object]) -> None:
    assert structs.replace(made(RULE, OWNER), **fields).owner_uids == ()


def test_rule_that_lost_its_controller_is_known_by_label_and_name() -> None:
    """The garbage collector does not know it any more."""
    assert structs.replace(made(RULE, OWNER), controller=None).owner_uids == ("u",)


@pytest.mark.parametrize(("suffix", "own"), [("", True), ("-2", True), ("-17", True), ("-", False), ("-x", False)])
def test_number_behind_the_name_is_part_of_it(suffix: str, own: bool) -> None:  # noqa: FBT001 -- a row
    stored = made(RULE, OWNER)
    meta = structs.replace(stored.meta, name=f"{stored.meta.name}{suffix}")
    other = StoredRule(structs.replace(stored.rule, meta=meta), stored.labels, stored.controller)
    assert other.owner_uids == (("u",) if own else ())
