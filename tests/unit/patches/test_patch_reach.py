"""What a patch taints beside others, and what an update of it adds, as rules."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import taint
from tests.unit.patches.patched import CREATED, DRIVER, class_of, patch_of, pools_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.patches import SOFTENED_KEYS, ResourceSlicePatch
from webhook.api.rules import EVICT, SOFTENED_FROM, DeviceSelector, RuleOrigin
from webhook.api.taints import TaintExtras
from webhook.inventory.targets import DeviceId
from webhook.patches.patch_reach import (
    KnownPatches,
    PatchReach,
    added_rules,
    does_no_more,
    judged_whole,
    nominal_rules,
    patch_reach,
)
from webhook.patches.patching import Origin

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule

POOLS = pools_of(slice_of("gpu-0", "gpu-1"), slice_of("gpu-0", pool="node-1"), slice_of("x", driver="other"))
KEY = taint().key
RATES = (10.0,)
EVERY_0 = 'device.driver == "gpu.example.com"'
EACH_0 = [(DRIVER, "node-0", "gpu-0"), (DRIVER, "node-0", "gpu-1"), (DRIVER, "node-1", "gpu-0")]


def reach(patch: ResourceSlicePatch, *others: ResourceSlicePatch, classes: Any = None) -> PatchReach:
    return patch_reach(patch, KnownPatches({each.meta.name: each for each in others}, classes or {}), POOLS)


def rules_of(patch: ResourceSlicePatch) -> list[DeviceTaintRule]:
    """What the controller has written for a patch."""
    origin = RuleOrigin(patch.meta.name, patch.meta.uid, patch=True, of_patch=patch.meta.uid)
    return [structs.replace(rule, origin=origin) for rule in reach(patch).rules]


def selectors(rules: tuple[DeviceTaintRule, ...]) -> list[tuple[str | None, str | None, str | None]]:
    found = [rule.selector for rule in rules]
    return [(each.driver, each.pool, each.device) for each in found if each is not None]


def a_patch(name: str = "patch", *taints: Any, **fields: Any) -> ResourceSlicePatch:
    return patch_of(name, taints=taints or [taint()], **{"driver": DRIVER, **fields})


def test_only_pools_in_question_are_looked_at() -> None:
    rival = a_patch("other", priority=1, driver=None, device="gpu-1")
    node_1, node_9 = DeviceSelector(DRIVER, "node-1"), DeviceSelector(DRIVER, "node-9")
    for patch in (a_patch(), a_patch(driver=None, cel=[EVERY_0])):
        for among, places in ((node_1, {"node-1"}), (node_9, set())):
            found = patch_reach(patch, KnownPatches({"other": rival}), POOLS, among=among)
            assert found.won is not None
            assert {each.pool for devices in found.won.values() for each in devices} == places


def test_patch_that_is_being_deleted_takes_nothing() -> None:
    rival = a_patch("other", priority=1)
    assert reach(a_patch(), rival).rules == ()
    assert selectors(reach(a_patch(), structs.replace(rival, deleting=True)).rules) == [(DRIVER, None, None)]


def test_taint_that_evicts_is_judged_also_where_one_wins_that_does_not() -> None:
    soft = ObjectMeta("other", uid="u", annotations={SOFTENED_KEYS: KEY})
    closing = [taint(effect="NoSchedule"), taint(key="k", effect="NoSchedule")]
    rival = structs.replace(a_patch("other", *closing, priority=1), meta=ObjectMeta("other", uid="u"))
    patch = structs.replace(a_patch("patch", *closing), meta=structs.replace(soft, name="patch"))

    def judged(patch: ResourceSlicePatch, rival: ResourceSlicePatch) -> list[str]:
        found = patch_reach(patch, KnownPatches({"other": rival}), POOLS, judged=CREATED, stored=rules_of(rival))
        return [each.taint.key for each in found.rules]

    assert judged(patch, rival) == [KEY]
    assert judged(patch, structs.replace(rival, meta=soft)) == []
    assert judged(a_patch("patch", *closing), structs.replace(rival, meta=soft)) == []
    assert reach(patch, rival).rules == ()


def test_filter_of_names_is_the_selector() -> None:
    found = reach(a_patch())
    assert selectors(found.rules) == [(DRIVER, None, None)]
    assert (found.won, found.unknown) == (None, "")
    [rule] = found.rules
    assert rule.taint == taint()
    assert rule.meta.name.startswith("patch-")
    assert reach(patch_of(taints=[taint()], anything=True)).rules[0].selector == DeviceSelector()


@pytest.mark.parametrize(
    ("other", "left"),
    [
        pytest.param(a_patch("other", priority=1), [], id="higher"),
        pytest.param(a_patch("other", priority=-1), None, id="lower"),
        pytest.param(a_patch("a"), [], id="of the same age, first by name"),
        pytest.param(a_patch("z"), None, id="of the same age, last by name"),
        pytest.param(a_patch("z", created=CREATED - timedelta(days=1)), [], id="older"),
        pytest.param(a_patch("other", priority=1, pool="node-0"), [(DRIVER, "node-1", None)], id="on a pool"),
        pytest.param(a_patch("other", priority=1, device="gpu-1"), [(DRIVER, None, "gpu-0")], id="on a device"),
        pytest.param(a_patch("other", priority=1, driver="other"), None, id="another driver"),
        pytest.param(a_patch("other", taint("NoSchedule"), priority=1), None, id="another effect"),
        pytest.param(a_patch("other", taint(key="k"), priority=1), None, id="another key"),
        pytest.param(a_patch("other", taint(value="v"), taint(key="k"), priority=1), [], id="another value"),
        pytest.param(a_patch("patch", priority=1), None, id="itself, as it was"),
        pytest.param(a_patch("other", priority=1, device_class_name="gone"), "won", id="a class that is missing"),
        pytest.param(
            a_patch("other", priority=1, unknown=(("x", "1"),)), "won", id="fields that are not known: not applied"
        ),
        pytest.param(a_patch("other", priority=1, cel=["false"]), "won", id="nothing selected"),
        pytest.param(a_patch("other", priority=1, cel=[EVERY_0]), [], id="CEL"),
    ],
)
def test_other_patches_take_devices(other: ResourceSlicePatch, left: Any) -> None:
    found = reach(a_patch(), other)
    if left is None or left == "won":
        assert selectors(found.rules) == [(DRIVER, None, None)]
        assert (found.won is None) is (left is None)
    else:
        assert selectors(found.rules) == left
        assert found.won is not None


def test_patches_for_other_names_are_not_looked_at() -> None:
    every: list[dict[str, Any]] = [{"driver": "other"}, {"pool": "node-1"}, {"device": "gpu-1"}]
    for names in every:
        rival = patch_of("other", taints=[taint()], priority=1, **names)
        assert reach(a_patch(pool="node-0", device="gpu-0"), rival).won is None
    meets = patch_of("other", taints=[taint()], priority=1, device="gpu-0")
    assert reach(a_patch(pool="node-0"), meets).won is not None


@pytest.mark.parametrize("pool", ["node-0", "gone"])
def test_device_in_use_that_no_slice_shows_has_a_rule_of_its_own_beside_another_patch(pool: str) -> None:
    rival, unpublished = a_patch("other", priority=1, device="gpu-1"), (DRIVER, pool, "gpu-9")
    found = patch_reach(a_patch(), KnownPatches({"other": rival}), POOLS, unpublished=[unpublished])
    assert selectors(found.rules) == [(DRIVER, None, "gpu-0"), unpublished]


def test_each_taint_is_won_by_itself() -> None:
    other = a_patch("other", taint("NoSchedule"), priority=1, pool="node-0")
    found = reach(a_patch("patch", taint(), taint("NoSchedule")), other)
    assert found.won == {
        Origin("taint", KEY, "NoExecute"): (
            DeviceId(DRIVER, "node-0", "gpu-0"),
            DeviceId(DRIVER, "node-0", "gpu-1"),
            DeviceId(DRIVER, "node-1", "gpu-0"),
        ),
        Origin("taint", KEY, "NoSchedule"): (DeviceId(DRIVER, "node-1", "gpu-0"),),
    }
    assert [(each.taint.effect, each.selector.pool) for each in found.rules if each.selector] == [
        ("NoExecute", None),
        ("NoSchedule", "node-1"),
    ]


def test_filters_with_a_class_or_cel_become_single_devices() -> None:
    assert selectors(reach(a_patch(cel=[EVERY_0])).rules) == EACH_0
    by_class = a_patch(device_class_name="c", pool="node-0")
    assert selectors(reach(by_class, classes=class_of("c", EVERY_0)).rules) == EACH_0[:2]
    assert reach(a_patch(cel=["false"])).rules == ()


@pytest.mark.parametrize(("devices", "widths"), [(50, {3}), (51, {1})])
def test_more_rules_than_a_patch_may_have_become_covers(devices: int, widths: set[int]) -> None:
    """They count together, of all taints; and so do those that an update adds."""
    pools = pools_of(slice_of(*[f"gpu-{at}" for at in range(devices)]))
    new, old = a_patch("patch", taint(), taint(key="k"), cel=[EVERY_0]), a_patch(cel=["false"])
    found, before = (patch_reach(each, KnownPatches(), pools) for each in (new, old))
    assert {sum(name is not None for name in each) for each in selectors(found.rules)} == widths
    added = added_rules(new, found, before, pools, RATES)
    assert len(added) == 2 * devices, "each taint adds no more than a patch may have"


def test_what_is_not_known() -> None:
    gone = reach(a_patch(device_class_name="gone"))
    assert gone == PatchReach(unknown="device class gone does not exist")
    broken = reach(a_patch(cel=["device.driver =="]))
    assert broken.unknown.startswith("selector #0 cannot be used: ")
    odd = reach(a_patch(unknown=(("x", "1"),)))
    assert odd.rules[0].selector == DeviceSelector(DRIVER, unknown=(("x", "1"),))
    slow = patch_reach(a_patch(cel=["true"]), KnownPatches(), POOLS, go_on=lambda: False)
    assert slow.unknown == "to evaluate its filter takes longer than a review may"
    rival = a_patch("other", priority=1, cel=["true"])
    assert patch_reach(a_patch(), KnownPatches({"other": rival}), POOLS, go_on=lambda: False).unknown == slow.unknown
    assert patch_reach(a_patch(), KnownPatches(), POOLS, go_on=lambda: False).unknown == ""


def softened(patch: ResourceSlicePatch, keys: str) -> ResourceSlicePatch:
    return structs.replace(patch, meta=structs.replace(patch.meta, annotations={SOFTENED_KEYS: keys}))


def test_softened_taints_evict() -> None:
    other = taint("NoSchedule", "o")
    patch = softened(a_patch("patch", taint("NoSchedule"), taint(), other), f"{KEY},x")
    found = {(rule.taint.key, rule.taint.effect): rule for rule in reach(patch).rules}
    marks = {EVICT: "true", SOFTENED_FROM: "NoExecute"}
    assert found[KEY, "NoSchedule"].meta.annotations == marks
    assert found[KEY, "NoExecute"].meta.annotations == {}
    assert found["o", "NoSchedule"].meta.annotations == {}
    assert next(rule.meta.annotations for rule in nominal_rules(patch)) == marks
    assert softened(patch, "").softened_keys == frozenset()


def fast(rate: int) -> Any:
    return structs.replace(taint(), extras=TaintExtras(evictions_per_second=rate))


@pytest.mark.parametrize(
    ("new", "old", "less"),
    [
        pytest.param(a_patch(), a_patch(), True, id="the same"),
        pytest.param(a_patch(priority=1), a_patch(), False, id="a higher priority"),
        pytest.param(a_patch(), a_patch(priority=1), True, id="a lower one"),
        pytest.param(a_patch(pool="p"), a_patch(), True, id="narrower"),
        pytest.param(a_patch(), a_patch(pool="p"), False, id="wider"),
        pytest.param(a_patch(cel=["true"]), a_patch(), False, id="CEL instead of names"),
        pytest.param(a_patch(cel=["true"]), a_patch(cel=["true"]), True, id="the same CEL"),
        pytest.param(patch_of(taints=[taint()], anything=True), patch_of(taints=[taint()]), True, id="no filter"),
        pytest.param(a_patch("patch", taint("NoSchedule")), a_patch(), True, id="a lower effect"),
        pytest.param(a_patch(), a_patch("patch", taint("NoSchedule")), False, id="a higher effect"),
        pytest.param(a_patch("patch", taint("None", "n")), a_patch(), True, id="a taint without effect"),
        pytest.param(a_patch("patch", taint(), taint(key="k")), a_patch(), False, id="a taint more"),
        pytest.param(a_patch(), a_patch("patch", taint(), taint(key="k")), True, id="a taint less"),
        pytest.param(a_patch("patch", fast(10)), a_patch(), True, id="the usual rate"),
        pytest.param(a_patch("patch", fast(11)), a_patch(), False, id="a higher rate"),
        pytest.param(a_patch(), a_patch("patch", taint(added=CREATED)), True, id="a later time"),
        pytest.param(a_patch("patch", taint(added=CREATED)), a_patch(), False, id="an earlier time"),
        pytest.param(
            softened(a_patch("patch", taint("NoSchedule")), KEY),
            a_patch("patch", taint("NoSchedule")),
            False,
            id="a mark",
        ),
        pytest.param(
            a_patch("patch", taint("NoSchedule")),
            softened(a_patch("patch", taint("NoSchedule")), KEY),
            True,
            id="no mark",
        ),
    ],
)
def test_update_that_can_only_do_less(new: Any, old: Any, *, less: bool) -> None:
    assert does_no_more(new, old, RATES) is less


def added(new: ResourceSlicePatch, old: ResourceSlicePatch) -> list[tuple[str | None, str | None, str | None]]:
    return selectors(added_rules(new, reach(new), reach(old), POOLS, RATES))


def test_wider_filter_of_names_counts_as_a_whole() -> None:
    assert added(a_patch(), a_patch(pool="node-0")) == [(DRIVER, None, None)]
    assert added(a_patch(pool="node-0"), a_patch()) == []
    assert added(a_patch(), a_patch(cel=[EVERY_0])) == [(DRIVER, None, None)], "it holds for more than those rules"
    assert added(a_patch(), a_patch(cel=[EVERY_0], pool="node-0")) == [(DRIVER, None, None)]


@pytest.mark.parametrize(
    ("new", "selector"),
    [
        pytest.param(a_patch(), (DRIVER, None, None), id="names"),
        pytest.param(patch_of(taints=[taint()], anything=True), (None, None, None), id="no filter"),
    ],
)
def test_wider_filter_of_names_counts_as_a_whole_also_beside_a_patch_that_takes_nothing(
    new: ResourceSlicePatch, selector: Any
) -> None:
    rival = a_patch("other", priority=1, cel=["false"])
    found, before = reach(new, rival), reach(a_patch(pool="node-0"), rival)
    assert found.won is not None
    assert selectors(added_rules(new, found, before, POOLS, RATES)) == [selector]


def test_each_taint_of_a_wider_filter_counts() -> None:
    both = (taint(), taint("NoSchedule", "k"))
    assert added(a_patch("patch", *both), a_patch("patch", *both, pool="node-0")) == [(DRIVER, None, None)] * 2
    assert added(a_patch("patch", *both), a_patch("patch", *both[:1])) == [(DRIVER, None, None)]


def test_of_other_filters_only_new_devices_count() -> None:
    assert added(a_patch(cel=[EVERY_0]), a_patch(cel=[EVERY_0], pool="node-0")) == EACH_0[2:]
    assert added(a_patch(cel=[EVERY_0]), a_patch(pool="node-1")) == EACH_0[:2]
    assert added(a_patch(cel=[EVERY_0]), a_patch()) == []
    assert added(a_patch(cel=[EVERY_0]), a_patch(device_class_name="gone")) == EACH_0


def test_taints_that_do_nothing_add_nothing() -> None:
    new = a_patch("patch", taint("None"), taint("NoSchedule", "k"))
    assert [rule.taint.key for rule in added_rules(new, reach(new), PatchReach(), POOLS, RATES)] == ["k"]


def test_other_value_is_another_taint() -> None:
    assert added(a_patch("patch", taint(value="v"), cel=[EVERY_0]), a_patch(cel=[EVERY_0])) == EACH_0


CLASSED = a_patch(device_class_name="gpu")


@pytest.mark.parametrize(
    ("old", "new", "whole"),
    [
        pytest.param(a_patch(pool="node-0"), a_patch(pool="node-1"), True, id="other names"),
        pytest.param(a_patch(pool="node-0"), a_patch(), True, id="wider names"),
        pytest.param(a_patch(), a_patch(pool="node-0"), False, id="narrower names"),
        pytest.param(a_patch(), a_patch(), False, id="the same"),
        pytest.param(a_patch(), a_patch(priority=1), False, id="priority"),
        pytest.param(a_patch(), a_patch("patch", taint(key="example.com/new")), True, id="another key"),
        pytest.param(a_patch(), a_patch("patch", taint(value="new")), True, id="another value"),
        pytest.param(a_patch("patch", taint("None")), a_patch(), True, id="evicts now"),
        pytest.param(a_patch(pool="node-0"), a_patch("patch", taint("NoSchedule")), False, id="evicts no longer"),
        pytest.param(a_patch(), a_patch("patch", taint(), taint(key="example.com/new")), False, id="one more taint"),
        pytest.param(CLASSED, a_patch(device_class_name="other"), False, id="another class"),
        pytest.param(CLASSED, a_patch(), False, id="names instead of a class"),
        pytest.param(a_patch(pool="node-0"), CLASSED, False, id="a class instead of names"),
        pytest.param(a_patch(), a_patch(device_class_name="gpu"), False, id="names and a class"),
        pytest.param(patch_of(taints=[taint()], anything=True), a_patch(), False, id="narrower than nothing"),
        pytest.param(a_patch(), patch_of(taints=[taint()], anything=True), True, id="everything"),
    ],
)
def test_update_was_judged_as_a_whole(old: ResourceSlicePatch, new: ResourceSlicePatch, *, whole: bool) -> None:
    """Of any other update admission judges what it adds, which may be nothing."""
    assert judged_whole(new, old, [new]) == whole


@pytest.mark.parametrize(("priority", "whole"), [(1, False), (-1, True)])
def test_where_another_patch_takes_precedence_only_added_devices_were_judged(priority: int, *, whole: bool) -> None:
    new, rival = a_patch(), a_patch("rival", pool="node-0", priority=priority)
    assert judged_whole(new, a_patch(pool="node-0"), [new, rival]) == whole


def test_softened_taint_evicts_like_the_one_that_it_was() -> None:
    soft = a_patch("patch", taint("NoSchedule"))
    marked = structs.replace(soft, meta=structs.replace(soft.meta, annotations={SOFTENED_KEYS: KEY}))
    assert not judged_whole(marked, a_patch(), [])
    assert judged_whole(marked, soft, [])
