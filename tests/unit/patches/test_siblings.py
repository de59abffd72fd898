"""Which rules ask for their siblings, the rules that these get, and who owns which rules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED, made
from tests.unit.patches.indexed import index_of
from tests.unit.patches.patched import DRIVER, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import (
    DATA,
    DESCRIPTION,
    EVICT,
    EVICTIONS_PER_SECOND,
    HARDWARE_LABEL,
    NOT_BEFORE,
    PATCH_LABEL,
    SCOPE,
    CELSelector,
    DeviceSelector,
    DeviceTaintRule,
)
from webhook.api.taints import DeviceTaint, TaintExtras
from webhook.inventory.pools import names_pool
from webhook.patches.book import RuleBook, has_hardware_scope, sibling_rules
from webhook.patches.stored import RuleOwner, StoredRule

ADDED: Final = datetime(2026, 1, 1, tzinfo=UTC)
SELECTOR: Final = DeviceSelector(DRIVER, "p", "full")
TAINT: Final = DeviceTaint("k", "v", "NoSchedule", ADDED)


def part(name: str, *sets: str) -> dict[str, Any]:
    return {"name": name, "consumesCounters": [{"counterSet": each, "counters": {}} for each in sets]}


def rule(selector: DeviceSelector | None = SELECTOR, taint: DeviceTaint = TAINT, **fields: Any) -> StoredRule:
    annotations = fields.pop("annotations", {SCOPE: "hardware"})
    meta = ObjectMeta("faulty", uid="u", annotations=annotations)
    return StoredRule(DeviceTaintRule(meta, selector, taint, deleting=fields.pop("deleting", False)), **fields)


def selected(stored: StoredRule, ceiling: int = 100) -> list[tuple[str | None, str | None]]:
    index = index_of([
        slice_of(part("full", "a"), part("half", "a"), part("both", "a", "b"), part("far", "b"), "alone", pool="p"),
        slice_of(part("full", "a"), part("half", "a"), pool="q"),
        slice_of(part("full", "a"), part("half", "a"), pool="p", driver="b.example"),
    ])  # fmt: skip
    return [(each.selector.pool, each.selector.device) for each in sibling_rules(stored, index, ceiling).rules]


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(rule(annotations={}), id="no scope"),
        pytest.param(rule(annotations={SCOPE: "pool"}), id="another scope"),
        pytest.param(made(rule().rule, RuleOwner("DeviceTaintRule", "r", "x")), id="made by the controller"),
        pytest.param(rule(deleting=True), id="being deleted"),
        pytest.param(rule(None), id="no selector"),
        pytest.param(rule(DeviceSelector(DRIVER, "p")), id="a whole pool"),
        pytest.param(rule(structs.replace(SELECTOR, device_class_name="c")), id="a class"),
        pytest.param(rule(structs.replace(SELECTOR, selectors=(CELSelector("true"),))), id="CEL"),
        pytest.param(rule(structs.replace(SELECTOR, unknown=(("x", "1"),))), id="unknown"),
        pytest.param(rule(taint=structs.replace(TAINT, effect="None")), id="effect None"),
    ],
)
def test_rule_has_no_siblings(stored: StoredRule) -> None:
    assert not has_hardware_scope(stored)
    assert selected(stored) == []


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_devices_on_a_common_counter_set_are_siblings(effect: str) -> None:
    stored = rule(taint=structs.replace(TAINT, effect=effect))
    assert has_hardware_scope(stored)
    assert selected(stored) == [("p", "both"), ("p", "half")]
    assert selected(rule(DeviceSelector(DRIVER, "p", "both"))) == [("p", "far"), ("p", "full"), ("p", "half")]
    assert selected(rule(DeviceSelector(DRIVER, "p", "alone"))) == []
    assert selected(rule(DeviceSelector(DRIVER, "p", "gone"))) == []


def test_every_pool_that_the_selector_reaches_has_its_own() -> None:
    found = selected(rule(DeviceSelector(DRIVER, device="full")))
    assert found == [("p", "both"), ("p", "half"), ("q", "half")]
    everywhere = selected(rule(DeviceSelector(device="full")))
    assert everywhere == [("p", "half"), *found]


@pytest.mark.parametrize(("ceiling", "rules"), [(2, 2), (1, 0)])
def test_ceiling(ceiling: int, rules: int) -> None:
    assert len(selected(rule(), ceiling)) == rules


def test_taint_is_the_same_and_what_goes_with_it() -> None:
    extras = {DATA: "{}", DESCRIPTION: "d", EVICTIONS_PER_SECOND: "3"}
    stored = rule(
        taint=structs.replace(TAINT, extras=TaintExtras("x")),
        annotations={SCOPE: "hardware", EVICT: "true", "other": "x", **extras},
    )
    index = index_of([slice_of(part("full", "a"), part("half", "a"), pool="p")])
    [found] = sibling_rules(stored, index, 1).rules
    assert (found.selector, found.taint, found.annotations) == (DeviceSelector(DRIVER, "p", "half"), TAINT, extras)
    assert found.name.startswith("faulty-")
    [other] = sibling_rules(rule(taint=structs.replace(TAINT, effect="NoExecute")), index, 1).rules
    assert other.name != found.name


@pytest.mark.parametrize(
    ("selector", "looks"),
    [
        pytest.param(SELECTOR, True, id="its pool"),
        pytest.param(DeviceSelector(DRIVER, device="full"), True, id="any pool of the driver"),
        pytest.param(DeviceSelector(pool="p", device="full"), True, id="any driver"),
        pytest.param(DeviceSelector(DRIVER, "q", "full"), False, id="another pool"),
        pytest.param(DeviceSelector("b.example", "p", "full"), False, id="another driver"),
        pytest.param(None, False, id="no selector"),
    ],
)
def test_rule_looks_at_pools_that_it_selects(selector: DeviceSelector | None, *, looks: bool) -> None:
    assert names_pool(rule(selector).rule.selector, (DRIVER, "p")) == looks


def test_book_knows_owners_by_uid() -> None:
    book = RuleBook()
    assert book.put_rule("faulty", rule()) == ["u"]
    assert book.owner("u") == rule()
    plain = structs.replace(rule().rule, meta=ObjectMeta(uid="m"))
    sibling = made(plain, RuleOwner("DeviceTaintRule", "faulty", "u"))
    assert book.put_rule("made", sibling) == ["u"]
    assert list(book.owned("u")) == [sibling]
    assert book.owner("m") is None, "it is an owner of nothing"
    moved = made(plain, RuleOwner("DeviceTaintRule", "faulty", "w"))
    assert book.put_rule("made", moved) == ["u", "w"]
    assert (list(book.owned("u")), list(book.owned("w"))) == ([], [moved])
    assert list(book.scoped_in([(DRIVER, "p")])) == ["u"]
    assert list(book.scoped_in([(DRIVER, "q")])) == []
    assert book.put_rule("faulty", rule(annotations={})) == ["u"]
    assert book.owner("u") is None
    assert list(book.scoped_in([(DRIVER, "p")])) == []
    assert book.put_rule("faulty", None) == []
    assert book.put_rule("made", None) == ["w"]
    assert not book.rules


@pytest.mark.parametrize(("effect", "copied"), [("NoExecute", True), ("NoSchedule", False)])
def test_siblings_evict_when_their_rule_does(effect: str, *, copied: bool) -> None:
    stored = rule(
        taint=structs.replace(TAINT, effect=effect), annotations={SCOPE: "hardware", NOT_BEFORE: "2026-07-01T22:00:00Z"}
    )
    index = index_of([slice_of(part("full", "a"), part("half", "a"), pool="p")])
    [found] = sibling_rules(stored, index, 1).rules
    assert found.annotations == ({NOT_BEFORE: "2026-07-01T22:00:00Z"} if copied else {})


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
def test_number_behind_the_name_is_part_of_it(suffix: str, *, own: bool) -> None:
    stored = made(RULE, OWNER)
    meta = structs.replace(stored.meta, name=f"{stored.meta.name}{suffix}")
    other = StoredRule(structs.replace(stored.rule, meta=meta), stored.labels, stored.controller)
    assert other.owner_uids == (("u",) if own else ())
