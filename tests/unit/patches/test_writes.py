"""What has to be written for the rules of one owner, given those that are stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from msgspec import structs

from webhook.api.meta import ObjectMeta
from webhook.api.rules import (
    DATA,
    EVICT,
    EXPIRES_AT,
    HARDWARE_LABEL,
    NOT_BEFORE,
    PATCH_LABEL,
    SCOPE,
    SOFTENED_FROM,
    CELSelector,
    DeviceSelector,
    DeviceTaintRule,
)
from webhook.api.taints import DeviceTaint
from webhook.inventory.targets import rule_name
from webhook.patches.book import limited
from webhook.patches.expansion import ExpandedRule
from webhook.patches.stored import RuleOwner, RuleWrites, StoredRule, own_labels, writes_for

NOW: Final = datetime(2026, 7, 1, 12, 0, 0, 999_999, tzinfo=UTC)
WHOLE: Final = NOW.replace(microsecond=0)
OWNER: Final = RuleOwner("ResourceSlicePatch", "patch", "u")
SELECTOR: Final = DeviceSelector("d", "p")
TAINT: Final = DeviceTaint("k", "v", "NoSchedule")
NAME: Final = rule_name("patch", TAINT, SELECTOR)


def wanted(name: str = NAME, *, taint: DeviceTaint = TAINT, **fields: Any) -> ExpandedRule:
    return ExpandedRule(name, fields.get("selector", SELECTOR), taint, fields.get("annotations", {}))


def stored(name: str = NAME, *, added: datetime | None = WHOLE, **fields: Any) -> StoredRule:
    """A rule of the owner; without a name, one that has that of its taint and selector."""
    selector, taint = fields.get("selector", SELECTOR), fields.get("taint", TAINT)
    name = name or rule_name("patch", taint, selector)
    rule = DeviceTaintRule(
        ObjectMeta(name, uid=f"u-{name}", annotations=fields.pop("annotations", {})),
        fields.pop("selector", SELECTOR),
        fields.pop("taint", structs.replace(TAINT, time_added=added)),
        deleting=fields.pop("deleting", False),
    )
    return StoredRule(rule, fields.pop("labels", {PATCH_LABEL: "u"}), fields.pop("controller", OWNER))


def writes(desired: list[ExpandedRule], *known: StoredRule) -> RuleWrites:
    owned = [each for each in known if "u" in each.owner_uids]
    return writes_for(OWNER, desired, {each.meta.name: each for each in known}, owned, NOW)


def test_rule_that_is_as_it_should_be_is_left_alone() -> None:
    assert not writes([wanted()], stored())
    assert not writes([wanted(annotations={DATA: "{}"})], stored(annotations={DATA: "{}", EVICT: "true", "x": "y"}))
    assert not writes([wanted(taint=structs.replace(TAINT, time_added=WHOLE))], stored())


def test_either_sort_of_writes_is_something_to_write() -> None:
    assert bool(writes([wanted()]))
    assert bool(writes([], stored()))
    assert not RuleWrites((), ())


def test_missing_rule_is_created_with_the_time_of_now_in_full_seconds() -> None:
    [write] = writes([wanted()]).applies
    assert (write.name, write.creates, write.surplus, write.owner) == (NAME, True, False, OWNER)
    assert write.taint == structs.replace(TAINT, time_added=WHOLE)


def test_rule_that_is_being_deleted_is_not_deleted_twice() -> None:
    assert writes([], stored(deleting=True)) == RuleWrites((), ())


@pytest.mark.parametrize("fields", [{}, {"labels": {}, "controller": None, "selector": None}], ids=["own", "squatter"])
def test_name_that_is_held_by_a_rule_that_is_being_deleted_is_worked_around(fields: dict[str, Any]) -> None:
    """A finalizer may keep it for ever, whoever wrote it."""
    held = [stored(deleting=True, **fields)]
    for number in range(2, 5):
        [write] = writes([wanted()], *held).applies
        assert (write.name, write.creates) == (f"{NAME}-{number}", True)
        found = writes([wanted()], *held, stored(write.name))
        assert not found, "that is the rule now"
        held.append(stored(write.name, deleting=True, **fields))
    [write] = writes([wanted()], *held[1:]).applies
    assert write.name == NAME, "it is free again"


def test_rule_goes_back_to_its_name_without_a_gap() -> None:
    found = writes([wanted()], stored(f"{NAME}-2", added=WHOLE - timedelta(hours=1)))
    assert [(each.name, each.creates) for each in found.applies] == [(NAME, True)]
    assert [each.meta.name for each in found.deletes] == [f"{NAME}-2"]
    assert found.applies[0].taint.time_added == WHOLE - timedelta(hours=1)


ACTING: Final = {NOT_BEFORE: "2099-01-01T00:00:00Z", EXPIRES_AT: "2026-01-01T00:00:00Z", SCOPE: "hardware"}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"taint": structs.replace(TAINT, effect="None", time_added=WHOLE)}, id="another effect"),
        pytest.param({"labels": {}, "controller": None}, id="no marks"),
        pytest.param({"controller": RuleOwner("ConfigMap", "patch", "w")}, id="another controller"),
    ],
)
def test_rule_of_somebody_else_under_the_name_keeps_nothing_that_changes_what_it_does(fields: dict[str, Any]) -> None:
    squatter = stored(annotations={**ACTING, "example.com/note": "n"}, **fields)
    [write] = writes([wanted()], squatter).applies
    assert (write.creates, write.surplus) == (False, True)
    assert set(ACTING) <= set(write.retired)
    assert "example.com/note" not in write.retired


@pytest.mark.parametrize(
    ("fields", "foreign"),
    [
        ({"labels": {}, "controller": None}, True),
        ({"labels": {PATCH_LABEL: "w"}}, True),
        ({"taint": structs.replace(TAINT, effect="None", time_added=WHOLE)}, True),
        ({"controller": None}, False),
        ({"annotations": {DATA: "{}"}}, False),
    ],
    ids=str,
)
def test_rule_of_somebody_else_is_foreign_even_without_a_surplus(fields: dict[str, Any], *, foreign: bool) -> None:
    """Its finalizers and owners are not known here, so the writer takes them away whatever else it has."""
    [write] = writes([wanted()], stored(**fields)).applies
    assert (write.creates, write.foreign) == (False, foreign)


def test_annotations_of_users_stay_on_a_rule_of_the_owner() -> None:
    assert not writes([wanted()], stored(annotations=ACTING))


CHANGES: Final[dict[str, tuple[dict[str, Any], bool]]] = {
    "other pool": ({"selector": DeviceSelector("d", "q")}, False),
    "wider": ({"selector": DeviceSelector("d")}, False),
    "no selector": ({"selector": None}, False),
    "narrower": ({"selector": DeviceSelector("d", "p", "x")}, True),
    "class": ({"selector": structs.replace(SELECTOR, device_class_name="c")}, True),
    "CEL": ({"selector": structs.replace(SELECTOR, selectors=(CELSelector("true"),))}, True),
    "unknown field": ({"selector": structs.replace(SELECTOR, unknown=(("x", "1"),))}, True),
    "other value": ({"taint": structs.replace(TAINT, value="w", time_added=WHOLE)}, False),
    "other effect": ({"taint": structs.replace(TAINT, effect="None", time_added=WHOLE)}, False),
    "other key": ({"taint": structs.replace(TAINT, key="l", time_added=WHOLE)}, False),
    "no label": ({"labels": {}}, False),
    "another label": ({"labels": {PATCH_LABEL: "u", HARDWARE_LABEL: "x"}}, True),
    "another patch": ({"labels": {PATCH_LABEL: "x"}}, False),
    "no owner": ({"controller": None}, False),
    "another owner": ({"controller": RuleOwner("ResourceSlicePatch", "patch", "w")}, True),
    "data": ({"annotations": {DATA: "{}"}}, True),
}


@pytest.mark.parametrize(("fields", "surplus"), CHANGES.values(), ids=list(CHANGES))
def test_rule_that_differs_is_changed(fields: dict[str, Any], *, surplus: bool) -> None:
    """What apply cannot take away is told apart: fields that another manager added stay in server-side apply."""
    [write] = writes([wanted()], stored(**fields)).applies
    assert (write.creates, write.surplus) == (False, surplus)
    assert write.selector == SELECTOR


def test_annotation_of_another_value_is_changed_without_surplus() -> None:
    [write] = writes([wanted(annotations={DATA: "{}"})], stored(annotations={DATA: "[]"})).applies
    assert not write.surplus


def test_value_that_should_not_be_there_is_surplus() -> None:
    [write] = writes([wanted(taint=structs.replace(TAINT, value=""))], stored()).applies
    assert write.surplus


def test_owners_time_wins_and_otherwise_the_oldest_of_the_same_taint() -> None:
    hour = timedelta(hours=1)
    other = stored("", added=WHOLE - 2 * hour, selector=DeviceSelector("d", "q"))
    newer = stored("", added=WHOLE - hour, selector=DeviceSelector("d", "x"))
    another = stored("", taint=structs.replace(TAINT, key="l", time_added=WHOLE - 9 * hour))
    forged = stored("z", added=WHOLE - 9 * hour)
    undated = stored("", added=None, selector=DeviceSelector("d", "y"))
    found = writes([wanted()], newer, other, another, forged, undated)
    assert found.applies[0].taint.time_added == WHOLE - 2 * hour
    assert {each.meta.name for each in found.deletes} == {each.meta.name for each in (newer, other, another, undated)}
    own = structs.replace(TAINT, time_added=WHOLE - 3 * hour)
    assert writes([wanted(taint=own)], other).applies[0].taint.time_added == WHOLE - 3 * hour
    [moved] = writes([wanted(taint=own)], stored()).applies
    assert not moved.creates
    assert moved.taint.time_added == WHOLE - 3 * hour


def test_what_creates_comes_first_each_by_name() -> None:
    desired = [wanted("c"), wanted("b", selector=DeviceSelector("d", "q")), wanted("a"), wanted("d")]
    found = writes(desired, stored("b"), stored("c", labels={}))
    assert [(each.name, each.creates) for each in found.applies] == [
        ("a", True),
        ("d", True),
        ("b", False),
        ("c", False),
    ]


def test_only_rules_of_the_owner_are_deleted() -> None:
    others = [stored("b"), stored(f"{NAME}-2", labels={PATCH_LABEL: "w"}), stored(f"{NAME}-3", controller=None)]
    assert [each.meta.name for each in writes([], stored(), *others).deletes] == [NAME]


def test_over_the_ceiling_those_stay_whose_taint_is_still_set() -> None:
    same, other_value = stored("a"), stored("b", taint=structs.replace(TAINT, value="w"))
    other_key, other_effect = (
        stored("c", taint=structs.replace(TAINT, key="l")),
        stored("d", taint=structs.replace(TAINT, effect="None")),
    )
    writes = RuleWrites((), (same, other_value, other_key, other_effect))
    assert limited(writes, [TAINT], 3, ceiling=2).deletes == (other_value, other_key, other_effect)
    assert limited(writes, [], 3, ceiling=2) == limited(writes, [TAINT], 2, ceiling=2) == writes


def test_labels_of_others_are_none_of_ours() -> None:
    assert own_labels(None) == {}
    assert own_labels({PATCH_LABEL: "u", HARDWARE_LABEL: "w", "x": "y"}) == {PATCH_LABEL: "u", HARDWARE_LABEL: "w"}


def test_beginning_of_evictions_is_as_the_owner_says_for_siblings_alone() -> None:
    """A rule of a patch may be postponed by hand: the patch says nothing about it."""
    early, late = {NOT_BEFORE: "2026-07-01T22:00:00Z"}, {NOT_BEFORE: "2026-07-02T22:00:00Z"}
    assert not writes([wanted()], stored(annotations=early))
    owner, name = RuleOwner("DeviceTaintRule", "rule", "u"), rule_name("rule", TAINT, SELECTOR)

    def sibling_writes(annotations: Any, known: Any) -> list[tuple[bool, bool]]:
        known = stored(name, annotations=known, labels={HARDWARE_LABEL: "u"}, controller=owner)
        found = writes_for(owner, [wanted(name, annotations=annotations)], {name: known}, [known], NOW)
        return [(each.creates, each.surplus) for each in found.applies]

    assert sibling_writes(early, early) == []
    assert sibling_writes(early, late) == [(False, False)]
    assert sibling_writes({}, late) == [(False, True)]


SOFT: Final = {EVICT: "true", SOFTENED_FROM: "NoExecute"}


@pytest.mark.parametrize(
    ("wants", "has", "written"),
    [
        pytest.param(SOFT, {}, (False, ()), id="it is softened"),
        pytest.param({}, SOFT, (True, (EVICT, SOFTENED_FROM)), id="it is softened no longer"),
        pytest.param(SOFT, {EVICT: "true"}, (False, ()), id="the mark was removed"),
        pytest.param(SOFT, {SOFTENED_FROM: "NoExecute"}, (False, ()), id="the eviction was removed"),
        pytest.param({}, {SOFTENED_FROM: "NoExecute"}, (True, (EVICT, SOFTENED_FROM)), id="a mark alone"),
        pytest.param(SOFT, SOFT, None, id="as it should be"),
        pytest.param({}, {EVICT: "true"}, None, id="a user has its devices emptied"),
    ],
)
def test_rules_follow_the_softening_of_their_patch(wants: Any, has: Any, written: Any) -> None:
    found = writes([wanted(annotations=wants)], stored(annotations=has)).applies
    assert [(each.surplus, tuple(n for n in each.retired if n in SOFT)) for each in found] == (
        [] if written is None else [written]
    )


def test_siblings_may_be_drained_by_hand() -> None:
    owner, name = RuleOwner("DeviceTaintRule", "rule", "u"), rule_name("rule", TAINT, SELECTOR)
    known = stored(name, annotations=SOFT, labels={HARDWARE_LABEL: "u"}, controller=owner)
    assert not writes_for(owner, [wanted(name)], {name: known}, [known], NOW)
