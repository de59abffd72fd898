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
    HARDWARE_LABEL,
    NOT_BEFORE,
    PATCH_LABEL,
    SOFTENED_FROM,
    CELSelector,
    DeviceSelector,
    DeviceTaintRule,
)
from webhook.api.taints import DeviceTaint
from webhook.inventory.expansion import ExpandedRule
from webhook.patches.stored import RuleOwner, StoredRule, own_labels
from webhook.patches.writes import RuleWrites, kept_over_ceiling, writes_for

NOW: Final = datetime(2026, 7, 1, 12, 0, 0, 999_999, tzinfo=UTC)
WHOLE: Final = NOW.replace(microsecond=0)
OWNER: Final = RuleOwner("ResourceSlicePatch", "patch", "u")
SELECTOR: Final = DeviceSelector("d", "p")
TAINT: Final = DeviceTaint("k", "v", "NoSchedule")


def wanted(name: str = "r", *, taint: DeviceTaint = TAINT, **fields: Any) -> ExpandedRule:
    return ExpandedRule(name, fields.get("selector", SELECTOR), taint, fields.get("annotations", {}))


def stored(name: str = "r", *, added: datetime = WHOLE, **fields: Any) -> StoredRule:
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
    assert (write.name, write.creates, write.surplus, write.owner) == ("r", True, False, OWNER)
    assert write.taint == structs.replace(TAINT, time_added=WHOLE)


def test_rule_that_is_being_deleted_is_waited_for_and_not_deleted_twice() -> None:
    found = writes([wanted()], stored(deleting=True))
    assert found == RuleWrites((), (), ("r",))
    assert not found
    assert writes([], stored(deleting=True)) == RuleWrites((), ())


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
    "another owner": ({"controller": RuleOwner("ResourceSlicePatch", "patch", "w")}, False),
    "data": ({"annotations": {DATA: "{}"}}, True),
}


@pytest.mark.parametrize(("fields", "surplus"), CHANGES.values(), ids=list(CHANGES))
def test_rule_that_differs_is_changed(fields: dict[str, Any], surplus: bool) -> None:  # noqa: FBT001 -- a row
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
    other = stored("s", added=WHOLE - 2 * hour, selector=DeviceSelector("d", "q"))
    newer = stored("t", added=WHOLE - hour, selector=DeviceSelector("d", "x"))
    another = stored("z", taint=structs.replace(TAINT, value="w", time_added=WHOLE - 9 * hour))
    found = writes([wanted()], newer, other, another)
    assert found.applies[0].taint.time_added == WHOLE - 2 * hour
    assert [each.meta.name for each in found.deletes] == ["s", "t", "z"]
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
    assert [each.meta.name for each in writes([], stored("b"), stored("x", labels={PATCH_LABEL: "w"})).deletes] == ["b"]


def test_over_the_ceiling_those_stay_whose_taint_is_still_set() -> None:
    same, other_value = stored("a"), stored("b", taint=structs.replace(TAINT, value="w"))
    other_key, other_effect = (
        stored("c", taint=structs.replace(TAINT, key="l")),
        stored("d", taint=structs.replace(TAINT, effect="None")),
    )
    assert kept_over_ceiling([same, other_value, other_key, other_effect], [TAINT]) == (same,)
    assert kept_over_ceiling([same], []) == ()


def test_labels_of_others_are_none_of_ours() -> None:
    assert own_labels(None) == {}
    assert own_labels({PATCH_LABEL: "u", HARDWARE_LABEL: "w", "x": "y"}) == {PATCH_LABEL: "u", HARDWARE_LABEL: "w"}


def test_beginning_of_evictions_is_as_the_owner_says_for_siblings_alone() -> None:
    """A rule of a patch may be postponed by hand: the patch says nothing about it."""
    early, late = {NOT_BEFORE: "2026-07-01T22:00:00Z"}, {NOT_BEFORE: "2026-07-02T22:00:00Z"}
    assert not writes([wanted()], stored(annotations=early))
    owner = RuleOwner("DeviceTaintRule", "rule", "u")

    def sibling_writes(annotations: Any, known: Any) -> list[tuple[bool, bool]]:
        known = stored(annotations=known, labels={HARDWARE_LABEL: "u"}, controller=owner)
        found = writes_for(owner, [wanted(annotations=annotations)], {"r": known}, [known], NOW)
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
    owner = RuleOwner("DeviceTaintRule", "rule", "u")
    known = stored(annotations=SOFT, labels={HARDWARE_LABEL: "u"}, controller=owner)
    assert not writes_for(owner, [wanted()], {"r": known}, [known], NOW)
