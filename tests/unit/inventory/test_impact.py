"""What a taint would do: every fate, waves, shared claims, several claims a pod, PodGroups, and what is selected."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.unit.inventory.values import (
    DRIVER,
    EMPTY,
    NOW,
    POOL,
    claim,
    impact,
    in_tree,
    inventory_of,
    lets_stay,
    on,
    ours,
    pool_slice,
    rule,
    taint,
)
from webhook.api.rules import CELSelector, DeviceSelector
from webhook.api.servers import facts_of
from webhook.inventory.impact import Impact, Taint, Wave, impact_of, impact_on_devices, joint_impact, union
from webhook.inventory.pools import Evictor

if TYPE_CHECKING:
    from webhook.api.taints import DeviceToleration


SLICE = pool_slice("gpu-0", "gpu-1")
EXTENDED = claim("ext", on("gpu-0"), users=["x"], extended=True)


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_each_fate_is_told_apart() -> None:
    answer = impact(
        pool_slice("gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"),
        claim("at-once", on("gpu-0"), users=["p"]),
        claim("later", on("gpu-1", lets_stay(300)), users=["q"], namespace="web"),
        claim("stays", on("gpu-2", lets_stay()), users=["r"], namespace="safe"),
        claim("ext", on("gpu-3"), users=["x"], namespace="blind", extended=True),
        claim("idle", on("gpu-4")),
        claim("waiting", users=["w"]),
    )
    assert answer == Impact(
        devices=5,
        pools=1,
        drivers=1,
        allocated=5,
        waves=(Wave(0, some("p", "x"), some("ml/at-once", "blind/ext")), Wave(300, some("q"), some("web/later"))),
        tolerating=some("r"),
        extended=some("x"),
        namespaces=some("ml", "web", "blind"),
    )
    assert (answer.pods, answer.now, answer.later) == (some("p", "q", "x"), some("p", "x"), some("q"))
    assert answer.claims == some("ml/at-once", "web/later", "blind/ext")


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_who_evicts_decides_which_tolerations_count(effect: str) -> None:
    covers_all = claim("a", on("gpu-0", lets_stay(effect="")), users=["p"])
    told = Taint.of_rule(rule(effect=effect, evict=True), in_tree=True)
    answer = impact(SLICE, covers_all, acting=told)
    # Both read the same toleration: the in-tree controller not at all, our worker as the scheduler does.
    assert (answer.pods, answer.tolerating) == ((some("p"), some()) if effect == "NoExecute" else (some(), some("p")))


@pytest.mark.parametrize("selector", [EMPTY, DeviceSelector(pool=POOL)], ids=["by groups", "by claims"])
def test_pods_with_extended_resources_count_and_are_told_apart_where_the_release_decides(
    selector: DeviceSelector,
) -> None:
    theirs, mine = (impact(SLICE, EXTENDED, acting=each, selector=selector) for each in (in_tree(), ours()))
    assert (theirs.now, theirs.extended) == (some("x"), some("x"))
    assert (mine.now, mine.extended) == (some("x"), some())


@pytest.mark.parametrize(("effect", "kept"), [("NoSchedule", some("p", "x")), ("None", some()), ("Later", some())])
def test_taint_that_evicts_nobody_keeps_at_most_from_allocation(effect: str, kept: frozenset[str]) -> None:
    answer = impact(SLICE, claim("a", on("gpu-0"), users=["p"]), EXTENDED, acting=in_tree(effect))
    assert answer == Impact(devices=2, pools=1, drivers=1, allocated=2, kept=kept)


def test_effect_none_can_be_judged_as_if_it_evicted() -> None:
    users = claim("a", on("gpu-0", lets_stay(5)), users=["p"])
    acting = in_tree("None").as_if_evicting(in_tree=True)
    assert impact(SLICE, users, acting=acting) == impact(SLICE, users, acting=in_tree())


@pytest.mark.parametrize(
    ("version", "evicted", "closed"),
    [("v1.37.0", some("p"), 2), ("v1.37.1", some("p"), 0), ("v1.38.0", some(), 0), ("tomorrow", some("p"), 2)],
)
def test_server_decides_on_empty_effects_and_missing_selectors(
    version: str, evicted: frozenset[str], closed: int
) -> None:
    """E-9, K-5: what is not known is what hits more."""
    inventory = inventory_of(SLICE, claim("a", on("gpu-0", lets_stay(effect="")), users=["p"]))
    inventory.servers = facts_of([version])
    answer = impact_of(inventory, EMPTY, in_tree(), NOW)
    assert (answer.pods, answer.tolerating) == (evicted, some("p") - evicted)
    missing = impact_of(inventory, None, in_tree(), NOW)
    assert (missing.devices, missing.pods) == (closed, some())


@pytest.mark.parametrize(
    ("effect", "evict", "in_tree_evictor", "acting"),
    [
        pytest.param("NoExecute", False, Evictor.OURS, Evictor.IN_TREE, id="NoExecute"),
        pytest.param("NoExecute", True, Evictor.OURS, Evictor.IN_TREE, id="NoExecute that asks us as well"),
        pytest.param("NoSchedule", True, Evictor.OURS, Evictor.OURS, id="NoSchedule that asks us"),
        pytest.param("None", True, Evictor.OURS, Evictor.OURS, id="None that asks us"),
        pytest.param("NoSchedule", False, None, None, id="NoSchedule"),
        pytest.param("None", False, None, None, id="None"),
        pytest.param("Later", False, None, None, id="an effect that nobody knows yet"),
    ],
)
def test_evictor_of_a_rule(
    effect: str, in_tree_evictor: Evictor | None, acting: Evictor | None, *, evict: bool
) -> None:
    """Without the in-tree controller it is us or nobody."""
    asked = rule(effect=effect, evict=evict)
    assert Taint.of_rule(asked, in_tree=True).evictor == acting
    assert Taint.of_rule(asked, in_tree=False).evictor == in_tree_evictor


@pytest.mark.parametrize(
    ("effect", "toleration", "stays"),
    [
        pytest.param("NoSchedule", lets_stay(effect="NoSchedule"), True, id="it would come back: NoSchedule"),
        pytest.param("NoSchedule", lets_stay(0, effect=""), True, id="it would come back, whatever its seconds"),
        pytest.param("NoSchedule", lets_stay(effect="NoExecute"), True, id="it tolerates eviction"),
        pytest.param("NoSchedule", lets_stay(60, effect="NoExecute"), False, id="it tolerates eviction for a time"),
        pytest.param("NoSchedule", lets_stay(key="other", effect=""), False, id="it tolerates something else"),
        pytest.param("None", lets_stay(0, effect=""), False, id="None keeps nobody from coming back"),
    ],
)
def test_rule_with_evict_leaves_alone_who_tolerates_scheduling(
    effect: str, toleration: DeviceToleration, *, stays: bool
) -> None:
    acting = Taint.of_rule(rule(effect=effect, evict=True), in_tree=True)
    answer = impact(SLICE, claim("a", on("gpu-0", toleration), users=["p"]), acting=acting)
    assert (answer.tolerating if stays else answer.pods) == some("p")
    assert (answer.pods if stays else answer.tolerating) == some()


@pytest.mark.parametrize(
    ("grace", "added", "passed", "seconds"),
    [
        pytest.param(60, NOW, timedelta(0), 60, id="set now"),
        pytest.param(60, NOW, timedelta(seconds=20), 40, id="set a while ago"),
        pytest.param(60, NOW, timedelta(seconds=20, milliseconds=900), 40, id="a part of a second has not passed"),
        pytest.param(60, NOW, timedelta(seconds=60), 0, id="just over"),
        pytest.param(60, NOW, timedelta(days=400), 0, id="long over"),
        pytest.param(60, NOW, timedelta(seconds=-30), 90, id="set ahead of time"),
        pytest.param(60, NOW, timedelta(milliseconds=-500), 61, id="set half a second ahead"),
        pytest.param(60, None, timedelta(days=1), 60, id="without time: from now"),
        *[pytest.param(seconds, NOW, timedelta(0), seconds, id=f"{seconds} s") for seconds in range(4)],
    ],
)
def test_grace_runs_from_when_the_taint_was_added(
    grace: int, added: datetime | None, passed: timedelta, seconds: int
) -> None:
    users = claim("a", on("gpu-0", lets_stay(grace)), users=["p"])
    answer = impact(SLICE, users, acting=in_tree(added=added), now=NOW + passed)
    assert answer.waves == (Wave(seconds, some("p"), some("ml/a")),)


def test_pods_are_due_at_once_when_grace_and_beginning_are_both_over() -> None:
    acting = Taint(taint(), Evictor.OURS, not_before=NOW + timedelta(seconds=30))
    assert acting.due_seconds(60, NOW + timedelta(seconds=90)) == 0


CLUSTER = (
    pool_slice("gpu-0", "gpu-1"),
    pool_slice("gpu-0", name="slice-1", pool="node-1"),
    pool_slice("nic-0", name="nics", driver="nic.example.com"),
    claim("a", on("gpu-0"), users=["p"]),
    claim("b", on("gpu-0", pool="node-1"), users=["q"]),
    claim("n", on("nic-0", driver="nic.example.com"), users=["r"]),
)


@pytest.mark.parametrize(
    ("selector", "devices", "pools", "drivers", "pods"),
    [
        pytest.param(DeviceSelector(), 4, 3, 2, some("p", "q", "r"), id="all"),
        pytest.param(DeviceSelector(DRIVER, "node-1", "gpu-0"), 1, 1, 1, some("q"), id="a device"),
        pytest.param(DeviceSelector("none"), 0, 0, 0, some(), id="a driver that is not there"),
        pytest.param(DeviceSelector(DRIVER, device_class_name="c"), 3, 2, 1, some("p", "q"), id="a class: too wide"),
        pytest.param(DeviceSelector(selectors=(CELSelector("no"),)), 4, 3, 2, some("p", "q", "r"), id="CEL: too wide"),
        pytest.param(
            DeviceSelector(unknown=(("labels", "true"),)), 4, 3, 2, some("p", "q", "r"), id="unknown fields: too wide"
        ),
        pytest.param(
            DeviceSelector("none", unknown=(("or", "1"),)), 4, 3, 2, some("p", "q", "r"), id="R8: beside a name as well"
        ),
    ],
)
def test_selected(selector: DeviceSelector, devices: int, pools: int, drivers: int, pods: frozenset[str]) -> None:
    answer = impact(*CLUSTER, selector=selector)
    assert (answer.devices, answer.pools, answer.drivers, answer.pods) == (devices, pools, drivers, pods)


def test_missing_selector_evicts_nobody() -> None:
    assert impact(*CLUSTER, selector=None) == Impact(devices=4, pools=3, drivers=2)


def test_claim_without_namespace_is_counted() -> None:
    """A file need not say it."""
    alone = claim("a", on("gpu-0"), users=["p"], namespace="")
    for selector in (EMPTY, DeviceSelector(pool=POOL)):
        assert impact(alone, selector=selector).claims == some("a")


def test_nothing_together_is_nothing() -> None:
    assert union([]) == Impact()


def test_union_takes_the_worst_of_each_pod() -> None:
    one = Impact(
        devices=2,
        pools=1,
        drivers=1,
        allocated=3,
        waves=(Wave(0, some("p"), some("ml/p")), Wave(60, some("q"), some("ml/q"))),
        tolerating=some("r", "s"),
        extended=some("p", "q"),
        namespaces=some("ml"),
        incomplete_pools=((DRIVER, "b"),),
    )
    other = Impact(
        devices=1,
        pools=1,
        drivers=1,
        allocated=1,
        waves=(Wave(30, some("q", "p"), some("ml/q")), Wave(60, some("t"), some("web/t"))),
        tolerating=some("p", "u"),
        extended=some("q"),
        kept=some("u", "v", "q"),
        namespaces=some("web"),
        pod_groups=some("g"),
        incomplete_pools=((DRIVER, "a"), (DRIVER, "b")),
    )
    whole = Impact(
        devices=3,
        pools=2,
        drivers=2,
        allocated=4,
        waves=(Wave(0, some("p"), some("ml/p")), Wave(30, some("q"), some("ml/q")), Wave(60, some("t"), some("web/t"))),
        tolerating=some("r", "s", "u"),
        extended=some("q"),
        kept=some("v"),
        namespaces=some("ml", "web"),
        pod_groups=some("g"),
        incomplete_pools=((DRIVER, "a"), (DRIVER, "b")),
    )
    assert union([one, other]) == union(each for each in (other, one)) == whole
    assert union([one]) == one


def test_taints_in_a_slice_hit_device_by_device() -> None:
    inventory = inventory_of(
        pool_slice("gpu-0", "gpu-1", "gpu-2"),
        claim("a", on("gpu-0", lets_stay(60)), users=["p"]),
        claim("b", on("gpu-1", lets_stay()), on("gpu-1", lets_stay()), users=["q"]),
        claim("c", on("gpu-2"), users=["r"]),
    )
    other = Taint.of_slice(taint(key="other"), in_tree=True)
    added = {"gpu-0": [in_tree(), in_tree("NoSchedule")], "gpu-1": [in_tree(), other]}
    assert impact_on_devices(inventory, (DRIVER, POOL), added, NOW) == Impact(
        devices=2,
        pools=1,
        drivers=1,
        allocated=3,
        waves=(Wave(0, some("q"), some("ml/b")), Wave(60, some("p"), some("ml/a"))),
        namespaces=some("ml"),
    )


def test_device_that_gets_no_taint_is_counted_and_hits_no_pod() -> None:
    inventory = inventory_of(SLICE, claim("a", on("gpu-0"), users=["p"]))
    assert impact_on_devices(inventory, (DRIVER, POOL), {"gpu-0": []}, NOW) == Impact(devices=1, pools=1, drivers=1)


@pytest.mark.parametrize("selector", [EMPTY, DeviceSelector(pool=POOL)])
def test_clock_is_looked_at_between_a_thousand_and_the_next(selector: DeviceSelector) -> None:
    """However many claims there are, and however many sorts of tolerations."""
    inventory = inventory_of(*[claim(f"c-{n}", on("gpu-0", lets_stay(n)), users=[f"u-{n}"]) for n in range(2001)])
    looks: list[None] = []
    impact_of(inventory, selector, in_tree(), NOW, lambda: looks.append(None))
    assert 3 <= len(looks) <= 5  # for claims by thousands, and for the pools that they are in

    def out_of_time() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        impact_of(inventory, selector, in_tree(), NOW, out_of_time)


TWO_NODES = inventory_of(
    pool_slice("gpu-0", "gpu-1", name="s-0", pool="node-0"),
    pool_slice("gpu-0", "gpu-1", name="s-1", pool="node-1"),
    pool_slice("x", name="s-2", pool="node-1", driver="other.example.com"),
    claim("c-0", on(pool="node-0"), users=["u-0"]),
    claim("c-1", on("gpu-0", lets_stay(60), pool="node-1"), on("gpu-1", pool="node-1"), users=["u-1"], namespace="b"),
)
NODE_0, NODE_1 = (DeviceSelector(DRIVER, f"node-{number}") for number in range(2))
FIRST = DeviceSelector(DRIVER, device="gpu-0")


def test_nothing_is_hit_by_no_taint() -> None:
    assert joint_impact(TWO_NODES, [], NOW) == Impact()


def test_one_taint_is_what_it_is_alone() -> None:
    for selector in (NODE_0, NODE_1, FIRST, DeviceSelector(), DeviceSelector(DRIVER, unknown=(("a", "1"),))):
        for each in (in_tree(), in_tree("NoSchedule"), ours()):
            assert joint_impact(TWO_NODES, [(selector, each)], NOW) == impact_of(TWO_NODES, selector, each, NOW)


def test_devices_pods_and_results_count_once() -> None:
    both = joint_impact(TWO_NODES, [(NODE_1, in_tree()), (FIRST, in_tree())], NOW)
    assert (both.devices, both.pools, both.drivers, both.allocated) == (3, 2, 1, 3)
    assert both.pods == {"u-0", "u-1"}
    assert both.namespaces == {"ml", "b"}
    twice = joint_impact(TWO_NODES, [(NODE_0, in_tree()), (NODE_0, in_tree("NoSchedule"))], NOW)
    assert (twice.devices, twice.pools, twice.allocated) == (2, 1, 1)
    assert twice.pods == {"u-0"}
    assert not twice.kept


def test_drivers_are_counted_by_name() -> None:
    other = DeviceSelector("other.example.com")
    both = joint_impact(TWO_NODES, [(NODE_1, in_tree()), (other, in_tree())], NOW)
    assert (both.devices, both.pools, both.drivers) == (3, 2, 2)
    nothing = joint_impact(TWO_NODES, [(DeviceSelector("gone.example.com"), in_tree()), (NODE_1, in_tree())], NOW)
    assert (nothing.devices, nothing.pools, nothing.drivers) == (2, 1, 1)
    absent = joint_impact(TWO_NODES, [(DeviceSelector(DRIVER, "node-0", "gpu-9"), in_tree()), (NODE_1, in_tree())], NOW)
    assert (absent.devices, absent.pools) == (2, 1)


def test_pools_that_are_not_published_in_full_are_named() -> None:
    cluster = inventory_of(
        pool_slice("gpu-0", name="a", pool="node-0", count=2), pool_slice("gpu-0", name="b", pool="node-1", count=2)
    )
    found = joint_impact(cluster, [(NODE_1, in_tree()), (NODE_0, in_tree())], NOW)
    assert found.incomplete_pools == ((DRIVER, "node-0"), (DRIVER, "node-1"))
    assert joint_impact(cluster, [(NODE_1, in_tree()), (NODE_1, ours())], NOW).incomplete_pools == ((DRIVER, "node-1"),)
