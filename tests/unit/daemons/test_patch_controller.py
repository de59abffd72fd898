"""The controller of patches: what it writes, in which order, and what it makes of what others do to its rules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED, NOW, START, FakeCluster, gpu, made, part, play, scoped
from tests.unit.patches.patched import DRIVER, class_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.patches import SOFTENED_KEYS
from webhook.api.rules import DATA, EVICT, HARDWARE_LABEL, PATCH_LABEL, Condition, DeviceSelector, DeviceTaintRule
from webhook.api.taints import TaintExtras
from webhook.inventory.targets import rule_name
from webhook.patches.slice_patches import AppliedAttributes
from webhook.patches.stored import RuleOwner

BIG: Final = 'device.attributes["gpu.example.com"].memory > 40'


def two_pools(ceiling: int = 3) -> FakeCluster:
    cluster = FakeCluster(ceiling)
    cluster.slices(slice_of(gpu("a"), gpu("b", 20), pool="p"), slice_of(gpu("a"), gpu("b", 20), gpu("c"), pool="q"))
    return cluster


def test_filter_of_names_is_one_rule_with_these_names() -> None:
    cluster = two_pools()
    taint = structs.replace(CLOSED, extras=TaintExtras({"at": 1}, "why", 5))
    cluster.patch("one", driver=DRIVER, pool="p", taints=[taint])
    play(cluster)
    [stored] = cluster.rules.values()
    assert stored.rule.selector == DeviceSelector(DRIVER, "p")
    assert stored.rule.taint == structs.replace(CLOSED, time_added=START)
    assert stored.labels == {PATCH_LABEL: "uid-one"}
    assert stored.controller == RuleOwner("ResourceSlicePatch", "one", "uid-one")
    assert stored.meta.annotations[DATA] == '{"at":1}'
    status = cluster.patches["one"].status
    assert (status.observed_generation, status.selected_devices, status.tainted_devices, status.rules) == (1, 2, 2, 1)
    assert cluster.conditions("one") == {
        "Expanded": ("True", "Expanded", "the patch is 1 DeviceTaintRule"),
        "Evaluated": ("True", "Evaluated", "the filter could be evaluated on every device"),
    }
    assert cluster.log == [f"create {stored.meta.name}", "status one"]


def test_rules_follow_slices_and_classes() -> None:
    cluster = two_pools()
    cluster.classes(class_of("big", BIG))
    cluster.patch("one", device_class_name="big", taints=[CLOSED])
    play(
        cluster,
        lambda: _expect(cluster, ("p", "a"), ("q", "a"), ("q", "c")),
        lambda: cluster.slices(slice_of(gpu("a", 20), gpu("b", 20), pool="p", generation=2, name=f"{DRIVER}-p-1")),
        lambda: _expect(cluster, ("q", "a"), ("q", "c")),
        lambda: cluster.classes(class_of("big", "false")),
        lambda: _expect(cluster),
        lambda: cluster.classes(class_of("big", "true")),
        lambda: _expect(cluster, (None, None)),
    )


def _expect(cluster: FakeCluster, *places: tuple[str | None, str | None]) -> None:
    assert cluster.selectors() == {(DRIVER, pool, device, "") for pool, device in places}


def test_new_shape_comes_before_the_old_one_goes_and_keeps_the_time() -> None:
    """Devices move from wide rules to narrow ones; they are never without the taint, nor since a later time."""
    cluster = two_pools(2)
    cluster.patch("one", cel=[BIG], taints=[CLOSED])

    def later() -> None:
        cluster.log.clear()
        cluster.now = NOW + timedelta(hours=1)
        cluster.slices(slice_of(gpu("a", 20), gpu("b", 20), pool="p", generation=2, name=f"{DRIVER}-p-1"))

    play(cluster, later)
    assert [line.split()[0] for line in cluster.log] == ["create", "create", "delete", "delete", "status"]
    assert {each.rule.taint.time_added for each in cluster.rules.values()} == {START}


def test_rule_that_was_edited_is_put_back() -> None:
    cluster = two_pools()
    cluster.patch("one", driver=DRIVER, pool="p", taints=[CLOSED])

    def edit() -> None:
        cluster.log.clear()
        taint = structs.replace(CLOSED, value="x", time_added=START)
        cluster.edit(next(iter(cluster.rules)), selector=DeviceSelector(), taint=taint)

    play(cluster, edit)
    assert cluster.selectors() == {(DRIVER, "p", None, "")}
    assert cluster.log == [f"change {name}" for name in cluster.rules]


@pytest.mark.parametrize("marks", [{}, {"labels": {PATCH_LABEL: "uid-one"}}], ids=["no marks", "marks"])
def test_patch_acts_although_a_rule_that_never_goes_has_the_name_of_its_rule(marks: dict[str, Any]) -> None:
    """Names can be computed by anyone, and a finalizer keeps a rule that is being deleted for ever."""
    cluster = two_pools()
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    name = rule_name("one", CLOSED, DeviceSelector(DRIVER))
    none = DeviceTaintRule(ObjectMeta(name), None, structs.replace(CLOSED, effect="None"), deleting=True)
    cluster.rule(name, none, **marks)
    play(cluster)
    assert set(cluster.rules) == {name, f"{name}-2"}
    assert cluster.rules[f"{name}-2"].rule.selector == DeviceSelector(DRIVER)
    assert cluster.conditions("one")["Expanded"] == ("True", "Expanded", "the patch is 1 DeviceTaintRule")
    cluster.log.clear()
    cluster.restart()
    play(cluster)
    assert cluster.log == []


@pytest.mark.parametrize("label", [PATCH_LABEL, HARDWARE_LABEL])
@pytest.mark.parametrize("kind", ["ResourceSlicePatch", "DeviceTaintRule"])
def test_labels_that_somebody_puts_on_a_rule_do_not_make_the_controller_delete_it(label: str, kind: str) -> None:
    """Nor do they take its siblings from it."""
    cluster = FakeCluster()
    cluster.slices(slice_of(part("full"), part("half"), pool="p"))
    cluster.rule("drain", scoped(), labels={label: "uid-gone"}, controller=RuleOwner(kind, "drain", "uid-gone"))
    play(cluster)
    assert len(cluster.rules) == 2
    assert "drain" in cluster.rules


def test_rule_that_was_deleted_comes_back() -> None:
    cluster = two_pools()
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    play(cluster, lambda: cluster.drop_rule(next(iter(cluster.rules))))
    assert len(cluster.rules) == 1


def test_rules_go_with_their_patch() -> None:
    cluster = two_pools()
    cluster.patch("one", cel=[BIG], taints=[CLOSED])
    play(cluster, lambda: cluster.drop_patch("one"))
    assert not cluster.rules


def test_patch_that_is_being_deleted_sets_nothing() -> None:
    cluster = two_pools()
    stored = cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    deleted = structs.replace(stored, patch=structs.replace(stored.patch, deleting=True))
    play(cluster, lambda: cluster.controller.observe_patch("one", deleted))
    assert not cluster.rules


def test_patch_that_went_while_the_controller_was_down_leaves_no_rules() -> None:
    cluster = two_pools()
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    cluster.patch("other", driver=DRIVER, pool="p", taints=[structs.replace(CLOSED, key="example.com/other")])
    play(cluster)
    assert len(cluster.rules) == 2
    cluster.drop_patch("one", tell=False)
    cluster.restart()
    cluster.log.clear()
    play(cluster)
    assert [each.labels for each in cluster.rules.values()] == [{PATCH_LABEL: "uid-other"}]
    assert len(cluster.log) == 1


def test_rules_stay_while_patches_are_not_served_and_go_afterwards() -> None:
    """An API server that is starting knows the kind a few seconds later."""
    cluster = two_pools()
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    sibling = made(scoped(), RuleOwner("DeviceTaintRule", "gone", "uid-gone"))
    cluster.rule(sibling.meta.name, sibling.rule, labels=sibling.labels, controller=sibling.controller)
    play(cluster)
    cluster.drop_patch("one", tell=False)
    cluster.patches_served = False
    cluster.restart()

    def served() -> None:
        assert len(cluster.rules) == 1, "a rule is no patch"
        cluster.patches_served = True

    play(cluster, served, 61.0)
    assert not cluster.rules, "it is looked at again"


def test_restart_writes_nothing() -> None:
    cluster = two_pools()
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    play(cluster)
    cluster.restart()
    cluster.log.clear()
    cluster.now += timedelta(hours=1)
    play(cluster)
    assert cluster.log == []


def test_nothing_is_written_twice_while_the_watch_lags_behind() -> None:
    cluster = two_pools()
    cluster.lags = True
    cluster.patch("one", cel=[BIG], taints=[CLOSED])
    play(cluster, lambda: cluster.patch("one", cel=[BIG], taints=[CLOSED], priority=1), cluster.catch_up)
    assert [line for line in cluster.log if line.startswith("create")] == list(dict.fromkeys(cluster.log))[:3]
    assert len([line for line in cluster.log if not line.startswith("status")]) == 3


def test_watch_may_be_faster_than_the_answer_to_a_write() -> None:
    """Another controller writes the status of a rule as soon as it is there; what was read last counts."""
    cluster = two_pools()
    cluster.after_apply = lambda name: cluster.edit(name, generation=7)
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    play(cluster, lambda: cluster.drop_patch("one"))
    assert not cluster.rules


def test_rule_that_is_deleted_before_its_write_is_answered_is_made_again() -> None:
    """The watch shows the write and the deletion; the answer, which comes after both, says that there is a rule."""
    cluster = two_pools()
    deleted: list[str] = []

    def delete(name: str) -> None:
        if not deleted:
            deleted.append(name)
            cluster.drop_rule(name)

    cluster.after_apply = delete
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    play(cluster)
    assert [*cluster.rules] == deleted


def test_status_of_a_rule_is_no_reason_to_look_at_its_patch() -> None:
    cluster = two_pools()
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    play(cluster)
    [name] = cluster.rules
    cluster.edit(name, conditions=(Condition("x", "True", "x"),))
    assert cluster.registry.get_sample_value("device_taint_webhook_patch_pending") == 0
    cluster.edit(name, generation=5)
    assert cluster.registry.get_sample_value("device_taint_webhook_patch_pending") == 1
    assert cluster.registry.get_sample_value("device_taint_webhook_patches", {"reason": "Expanded"}) == 1


@pytest.mark.parametrize("why", ["leads", "current"])
def test_process_that_may_not_write_writes_nothing(why: str) -> None:
    cluster = two_pools()
    setattr(cluster, why, False)
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    play(cluster)
    assert cluster.log == []


def test_rules_stay_when_a_patch_grows_past_the_ceiling_and_follow_when_it_fits_again() -> None:
    """Deleting them would open devices because others were published."""
    cluster = FakeCluster(ceiling=2)
    cluster.slices(*[slice_of(gpu("a"), gpu("b", 20), pool=f"p{at}") for at in range(2)])
    cluster.slices(slice_of(gpu("a", 20), pool="q"))
    cluster.patch("one", cel=[BIG], taints=[CLOSED])
    more = slice_of(gpu("a"), gpu("b", 20), pool="r")

    def grown() -> None:
        assert len(cluster.rules) == 2
        cluster.slices(more)

    def over() -> None:
        assert cluster.selectors() == {(DRIVER, "p0", "a", ""), (DRIVER, "p1", "a", "")}
        assert cluster.conditions("one")["Expanded"][2].endswith("; the 2 that exist stay as they are")
        cluster.patch("one", cel=[BIG], taints=[structs.replace(CLOSED, key="example.com/other")])

    def other_taint() -> None:
        assert not cluster.rules, "its taint is not the patch's any more"
        cluster.controller.observe_slice(more, None)

    play(cluster, grown, over, other_taint)
    assert len(cluster.rules) == 2


def test_class_that_is_missing_makes_the_patch_select_nothing() -> None:
    cluster = two_pools()
    cluster.patch("one", device_class_name="big", taints=[CLOSED])
    play(cluster)
    assert not cluster.rules
    why = ("False", "FilterNotUsable", "device class big does not exist")
    assert cluster.conditions("one") == {"Expanded": why, "Evaluated": why}


def test_cel_faults_are_one_event_a_selector_until_they_change() -> None:
    """K-9, P-16."""
    cluster = FakeCluster()
    cluster.slices(*[slice_of(gpu("a", None), gpu("b"), pool=f"p{at}") for at in range(4)])
    cluster.patch("one", cel=[BIG], taints=[CLOSED])
    play(
        cluster,
        lambda: cluster.patch("one", cel=[BIG], taints=[CLOSED], priority=3),
        lambda: cluster.slices(slice_of(gpu("a", None), pool="p9")),
    )
    [(name, reason, first), (_, _, second)] = cluster.events
    assert (name, reason) == ("one", "SelectorFailed Evaluate")
    assert first.startswith(f"selector #0 fails on 4 devices: {DRIVER}/p0/a (no such key: memory), {DRIVER}/p1/a (")
    assert first.endswith("and 1 more")
    assert second.startswith("selector #0 fails on 5 devices: ")
    assert cluster.conditions("one")["Evaluated"] == ("False", "SelectorFailed", second)
    assert cluster.conditions("one")["Expanded"][0] == "True"


def test_deletions_stop_when_something_changes_and_are_looked_at_again() -> None:
    """Of three rules that are too much two are wanted again before their turn comes."""
    cluster = two_pools()
    cluster.patch("one", cel=[BIG], taints=[CLOSED])

    def none_left() -> None:
        assert len(cluster.rules) == 3
        cluster.log.clear()
        cluster.after_delete = lambda _: cluster.patch("one", cel=[BIG], taints=[CLOSED], priority=1)
        cluster.patch("one", cel=["false"], taints=[CLOSED])

    play(cluster, none_left)
    assert len(cluster.rules) == 3
    verbs = [line.split()[0] for line in cluster.log if not line.startswith("status")]
    assert verbs == ["delete", "create"]


def test_nothing_more_is_written_once_the_lease_is_lost() -> None:
    cluster = FakeCluster(ceiling=100)
    cluster.slices(*[slice_of(gpu("a"), gpu(f"b{at}", 20), pool=f"p{at}") for at in range(30)], slice_of("a", pool="q"))
    cluster.patch("one", cel=[BIG], taints=[CLOSED])

    def lose(_: str) -> None:
        cluster.leads = False

    cluster.after_apply = lose
    play(cluster)
    assert 0 < len(cluster.log) <= 8


def test_what_has_become_of_attributes_is_in_the_status_when_it_is_reported() -> None:
    cluster = two_pools()
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])

    def applied() -> None:
        assert "AttributesApplied" not in cluster.conditions("one")
        condition = Condition("AttributesApplied", "False", "DeviceInvalid", "full")
        cluster.applied = lambda stored: AppliedAttributes(4, condition if stored.meta.name == "one" else None)
        cluster.log.clear()
        cluster.controller.look_at_patches(["one", "gone"])

    play(cluster, applied)
    assert cluster.conditions("one")["AttributesApplied"] == ("False", "DeviceInvalid", "full")
    assert cluster.patches["one"].status.patched_devices == 4
    assert cluster.log == ["status one"]


def partitioned() -> FakeCluster:
    cluster = FakeCluster()
    cluster.slices(slice_of(part("full"), part("half-0"), part("half-1"), gpu("other"), pool="p"))
    return cluster


def test_hardware_scope_adds_rules_for_the_siblings() -> None:
    cluster = partitioned()
    cluster.rule("faulty", scoped(**{DATA: "{}"}))
    play(cluster)
    added = [each for name, each in cluster.rules.items() if name != "faulty"]
    assert sorted(str(each.rule.selector and each.rule.selector.device) for each in added) == ["half-0", "half-1"]
    for each in added:
        assert each.rule.taint == scoped().taint
        assert each.labels == {HARDWARE_LABEL: "uid-faulty"}
        assert each.controller == RuleOwner("DeviceTaintRule", "faulty", "uid-faulty")
        assert dict(each.meta.annotations) == {DATA: "{}"}


ENDS: Final[dict[str, Callable[[FakeCluster], object]]] = {
    "annotation": lambda cluster: cluster.edit(
        "faulty", meta=structs.replace(cluster.rules["faulty"].meta, annotations={})
    ),
    "rule": lambda cluster: cluster.drop_rule("faulty"),
    "device": lambda cluster: cluster.slices(
        slice_of(part("full"), gpu("other"), pool="p", generation=2, name=f"{DRIVER}-p-1")
    ),
    "effect": lambda cluster: cluster.edit("faulty", taint=structs.replace(scoped().taint, effect="None")),
    "deleting": lambda cluster: cluster.edit("faulty", deleting=True),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_they_go_with_what_they_are_for(end: Callable[[FakeCluster], object]) -> None:
    cluster = partitioned()
    cluster.rule("faulty", scoped())
    before: list[int] = []
    play(cluster, lambda: before.append(len(cluster.rules)), lambda: end(cluster))
    assert (before, set(cluster.rules) <= {"faulty"}) == ([3], True)


def test_more_siblings_than_the_ceiling_are_an_event_and_the_rules_that_exist_stay() -> None:
    cluster = FakeCluster(ceiling=2)
    parts = [part(name) for name in ("full", "half-0", "half-1")]
    cluster.slices(slice_of(*parts, pool="p"))
    cluster.rule("faulty", scoped())
    more = slice_of(*parts, part("half-2"), pool="p", generation=2, name=f"{DRIVER}-p-1")
    play(cluster, lambda: cluster.slices(more), lambda: cluster.edit("faulty", generation=2))
    assert len(cluster.rules) == 3
    [(name, reason, text)] = cluster.events
    assert (name, reason) == ("faulty", "TooManyRules Expand")
    assert text == "/scope: hardware needs 3 DeviceTaintRules, more than the 2 allowed"


def test_rules_follow_the_softening_of_their_patch() -> None:
    """Its taint is the same before and after."""
    cluster = FakeCluster()
    cluster.slices(slice_of(gpu("a"), pool="p"))
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    seen: list[bool] = []

    def soften(keys: str) -> None:
        stored = cluster.patches["one"]
        annotations = {SOFTENED_KEYS: keys} if keys else {}
        meta = structs.replace(stored.meta, resource_version="90", annotations=annotations)
        patch = structs.replace(stored.patch, meta=meta)
        cluster.controller.observe_patch("one", structs.replace(stored, patch=patch))

    def look() -> None:
        seen.append(all(each.meta.annotations.get(EVICT) == "true" for each in cluster.rules.values()))

    play(cluster, look, lambda: soften(CLOSED.key), look, lambda: soften(""), look)
    assert seen == [False, True, False]
