"""Whatever order events come in, the same plans: each case under all permutations, as upstream's TestController.

Source of the cases: `semantics.md` E-5 to E-26.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import World
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import SINGLE, PodClaim, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.inventory.state import InventoryObject

Change = tuple["InventoryObject | None", "InventoryObject | None"]

HOUR = 3600
TAINTED = {"gpu-0": (taint(),)}
CLEAN = slice_of({"gpu-0": ()})
GROUP = Consumer("scheduling.k8s.io", "podgroups", "group", "uid-group")


def add(obj: InventoryObject) -> Change:
    return (None, obj)


def remove(obj: InventoryObject) -> Change:
    return (obj, None)


@dataclass(frozen=True)
class Case:
    """`events` come in any order; an event of several changes keeps them in order."""

    events: tuple[tuple[Change, ...], ...]
    planned: dict[str, float] = field(default_factory=dict)
    """Seconds until pods are due, by name."""
    before: tuple[InventoryObject, ...] = ()
    cancelled: tuple[str, ...] = ()
    """Pods of which is told that nothing comes of their plan, if `before` planned them."""
    held: tuple[str, ...] = ()
    """Planned pods that are not evicted, because their PodGroup keeps their claims reserved."""
    mode: Mode = Mode.REPLACEMENT


def each(*objects: InventoryObject) -> tuple[tuple[Change, ...], ...]:
    return tuple((add(obj),) for obj in objects)


CASES = {
    "nothing": Case(()),
    "device tainted in a slice": Case(each(slice_of(TAINTED), claim(), pod()), {"pod": 0}),
    "taint without NoExecute": Case(
        each(slice_of({"gpu-0": (taint("NoSchedule"), taint("None"))}), claim(), pod())
    ),  # E-7
    "device tainted by a rule": Case(each(CLEAN, claim(), pod(), rule()), {"pod": 0}),
    "rule for a device that nobody publishes": Case(each(claim(), pod(), rule()), {"pod": 0}),  # E-5
    "rule for another pool": Case(each(claim(), pod(), rule(selector=DeviceSelector(pool="other")))),
    "rule for the very device": Case(each(claim(), pod(), rule(selector=DeviceSelector(device="gpu-0"))), {"pod": 0}),
    "rule that selects everything": Case(each(claim(), pod(), rule(selector=DeviceSelector())), {"pod": 0}),
    "rule without selector": Case(each(claim(), pod(), rule(selector=None))),  # E-6
    "rule whose selector has a field nobody knows": Case(
        each(claim(), pod(), rule(selector=DeviceSelector(driver=DRIVER, unknown=(("all", "true"),))))
    ),
    "rule whose selector asks for a class": Case(
        each(claim(), pod(), rule(selector=DeviceSelector(driver=DRIVER, device_class_name="gpu")))
    ),
    "rule with NoSchedule": Case(each(claim(), pod(), rule(effect="NoSchedule"))),
    "rule with an effect that nobody knows": Case(each(claim(), pod(), rule(effect="NoAdmit"))),
    "tolerated for ever": Case(each(claim("pod", tolerates()), pod(), rule())),
    "tolerated for an hour": Case(each(claim("pod", tolerates(HOUR)), pod(), rule()), {"pod": HOUR}),  # E-8, E-10
    "tolerated for no time": Case(each(claim("pod", tolerates(-5)), pod(), rule()), {"pod": 0}),
    "two tolerations, the smaller counts": Case(  # E-10
        each(claim("pod", tolerates(HOUR), tolerates(5)), pod(), rule()), {"pod": 5}
    ),
    "tolerated without effect, which counts for us": Case(each(claim("pod", tolerates(effect="")), pod(), rule())),
    "seconds past the end of the calendar": Case(
        each(claim("pod", tolerates(2**62)), pod(), rule()),
        {"pod": (World().deps.clock.now().max.replace(tzinfo=NOW.tzinfo, microsecond=0) - NOW).total_seconds()},
    ),
    "taint without a time": Case(each(claim(), pod(), rule(added=None))),  # E-12
    "two rules, the earliest time": Case(  # E-11
        each(
            claim("pod", tolerates(HOUR)),
            pod(),
            rule(),
            rule("later", key="example.com/other", added=NOW + timedelta(seconds=60)),
        ),
        {"pod": 60},
    ),
    "two claims, the earliest time": Case(  # E-20
        each(
            claim("pod", tolerates(HOUR)),
            claim("second", tolerates(60), consumers=(Consumer("", "pods", "pod", "uid-pod"),)),
            pod(claims=(PodClaim("pod-claim", generated=True), PodClaim("second-claim"))),
            rule(),
        ),
        {"pod": 60},
    ),
    "two pods of one claim": Case(
        each(
            claim("pod", consumers=(Consumer("", "pods", "pod", "uid-pod"), Consumer("", "pods", "more", "uid-more"))),
            pod(claims=(PodClaim("pod-claim"),)),
            pod("more", claims=(PodClaim("pod-claim"),)),
            rule(),
        ),
        {"pod": 0, "more": 0},
    ),
    "pod without a node": Case(each(claim(), pod(node_name=""), rule())),  # E-15
    "pod that is scheduled late": Case(
        (*each(claim(), rule()), (add(pod(node_name="")), (pod(node_name=""), pod()))), {"pod": 0}
    ),
    "claim not made yet": Case(each(claim(), pod(claims=(PodClaim(None, generated=True),)), rule())),  # E-16
    "claim whose name comes late": Case(
        (
            *each(claim(), rule()),
            (
                add(pod(claims=(PodClaim(None, generated=True),))),
                (pod(claims=(PodClaim(None, generated=True),)), pod()),
            ),
        ),
        {"pod": 0},
    ),
    "claim made for another pod of the name": Case(each(claim(owner="uid-before"), pod(), rule())),  # E-17
    "claim named directly needs no owner": Case(
        each(claim(owner=""), pod(claims=(PodClaim("pod-claim"),)), rule()), {"pod": 0}
    ),
    "claim reserved for a namesake": Case(  # E-18
        each(
            claim(consumers=(Consumer("", "pods", "pod", "uid-before"),)), pod(claims=(PodClaim("pod-claim"),)), rule()
        )
    ),
    "claim reserved for nobody": Case(each(claim(consumers=()), pod(), rule())),
    "claim reserved for the pod's group": Case(  # E-18
        each(claim(consumers=(GROUP,), owner="uid-group", group="group"), pod(pod_group="group"), rule()), {"pod": 0}
    ),
    "claim reserved for the pod's group, which exists": Case(
        each(
            PodGroup(ObjectMeta("group", namespace="ml", uid="uid-group"), SINGLE),
            claim(consumers=(GROUP,), owner="uid-group", group="group"),
            pod(pod_group="group"),
            rule(),
        ),
        {"pod": 0},
        held=("pod",),
    ),
    "claim reserved for a group of that name before": Case(
        each(
            PodGroup(ObjectMeta("group", namespace="ml", uid="uid-next"), SINGLE),
            claim(consumers=(GROUP,), owner="uid-group", group="group"),
            pod(pod_group="group"),
            rule(),
        ),
        {"pod": 0},
    ),
    "group deleted that kept a claim reserved": Case(
        ((remove(PodGroup(ObjectMeta("group", namespace="ml", uid="uid-group"), SINGLE)),),),
        {"pod": 0},
        before=(
            PodGroup(ObjectMeta("group", namespace="ml", uid="uid-group"), SINGLE),
            claim(consumers=(GROUP,), owner="uid-group", group="group"),
            pod(pod_group="group"),
            rule(),
        ),
    ),
    "claim reserved for another group": Case(
        each(claim(consumers=(GROUP,), owner="uid-group", group="group"), pod(pod_group="others"), rule())
    ),
    "claim made for the pod's group and reserved for the pod": Case(  # E-17
        each(claim(owner="uid-group", group="group"), pod(pod_group="group"), rule()), {"pod": 0}
    ),
    "claim made for another group and reserved for the pod": Case(
        each(claim(owner="uid-group", group="others"), pod(pod_group="group"), rule())
    ),
    "claim made for the pod and reserved for its group": Case(
        each(claim(consumers=(GROUP,)), pod(pod_group="group"), rule()), {"pod": 0}
    ),
    "claim made for something that has the group's name": Case(
        each(claim(consumers=(GROUP,), owner="uid-job"), pod(pod_group="group"), rule())
    ),
    "claim made for a group and reserved for it, and a pod of none": Case(
        each(claim(consumers=(GROUP,), owner="uid-group", group="group"), pod(), rule())
    ),
    "claim in another namespace": Case(each(claim(namespace="web"), pod(), rule())),
    "claim that is not allocated": Case(each(claim(devices=()), pod(), rule())),
    "claim allocated late": Case(
        (*each(pod(), rule()), (add(claim(devices=())), (claim(devices=()), claim()))), {"pod": 0}
    ),
    "claim reserved late": Case(
        (*each(pod(), rule()), (add(claim(consumers=())), (claim(consumers=()), claim()))), {"pod": 0}
    ),
    "claim deallocated while due": Case(
        (((claim(), claim(devices=())),),), before=(claim(), pod(), rule()), cancelled=("pod",)
    ),
    "claim deleted while due": Case(((remove(claim()),),), before=(claim(), pod(), rule()), cancelled=("pod",)),
    "claim replaced by one for nobody": Case(  # E-14
        (((claim(), structs.replace(claim(consumers=()), meta=structs.replace(claim().meta, uid="other"))),),),
        before=(claim(), pod(), rule()),
        cancelled=("pod",),
    ),
    "extended resource": Case(  # E-16, where we differ
        each(claim(extended=True), pod(claims=(), extended_claim="pod-claim"), rule()), {"pod": 0}
    ),
    "delegated leaves NoExecute": Case(each(slice_of(TAINTED), claim(), pod(), rule()), mode=Mode.DELEGATED),
    "delegated leaves rules that do not ask": Case(
        each(claim(), pod(), rule(effect="NoSchedule")), mode=Mode.DELEGATED
    ),
    "delegated leaves a rule of effect None that asks": Case(
        each(claim(), pod(), rule(effect="None", evict=True)), mode=Mode.DELEGATED
    ),
    "slice untainted": Case(
        (((slice_of(TAINTED), CLEAN),),), before=(slice_of(TAINTED), claim(), pod()), cancelled=("pod",)
    ),
    "slice deleted": Case(
        ((remove(slice_of(TAINTED)),),), before=(slice_of(TAINTED), claim(), pod()), cancelled=("pod",)
    ),
    "tainted slice hidden by a newer generation": Case(  # E-2
        each(slice_of({"gpu-0": ()}, name="newer", generation=2)),
        before=(slice_of(TAINTED), claim(), pod()),
        cancelled=("pod",),
    ),
    "older generation back in sight": Case(  # E-2
        ((remove(slice_of({"gpu-0": ()}, name="newer", generation=2)),),),
        {"pod": 0},
        before=(slice_of(TAINTED), slice_of({"gpu-0": ()}, name="newer", generation=2), claim(), pod()),
    ),
    "slice that moves to another pool": Case(
        (((slice_of(TAINTED), slice_of(TAINTED, pool="other")),),),
        before=(slice_of(TAINTED), claim(), pod()),
        cancelled=("pod",),
    ),
    "rule deleted": Case(((remove(rule()),),), before=(claim(), pod(), rule()), cancelled=("pod",)),
    "rule set to None": Case((((rule(), rule(effect="None")),),), before=(claim(), pod(), rule()), cancelled=("pod",)),
    "rule moved elsewhere": Case(
        (((rule(), rule(selector=DeviceSelector(pool="other"))),),), before=(claim(), pod(), rule()), cancelled=("pod",)
    ),
    "one of two rules deleted": Case(
        ((remove(rule("other")),),), {"pod": 0}, before=(claim(), pod(), rule(), rule("other"))
    ),
    "pod deleted is not told of": Case(((remove(pod()),),), before=(claim(), pod(), rule())),
    "pod being deleted is not planned": Case(each(claim(), pod(deleting=True), rule())),  # E-19, where we differ
    "pod being deleted is not told of": Case((((pod(), pod(deleting=True)),),), before=(claim(), pod(), rule())),
    "pod that has finished is not planned": Case(each(claim(), pod(phase="Succeeded"), rule())),
    "pod replaced by a namesake": Case((((pod(), pod(uid="uid-another")),),), before=(claim(), pod(), rule())),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_plans_do_not_depend_on_order(case: Case) -> None:
    for events in permutations(case.events):
        world = World(case.mode)
        world.add(*case.before)
        world.catch_up()
        for changes in events:
            for old, new in changes:
                world.change(old, new)
            world.catch_up()
        assert world.planned == case.planned
        cancelled = [note for note in world.worker._core.recorder._buffer.waiting if note.text == "Cancelling deletion"]
        assert [note.about.name for note in cancelled] == list(case.cancelled)  # type: ignore[union-attr]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_whoever_begins_later_plans_the_same(case: Case) -> None:
    """A leader that takes over has seen none of the events, only what they came to."""
    world = World(case.mode)
    world.worker.started = False
    world.add(*case.before)
    for changes in case.events:
        for old, new in changes:
            world.change(old, new)
    world.worker.start()
    assert world.planned == case.planned


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_exactly_the_planned_are_evicted_once(case: Case) -> None:
    world = World(case.mode)
    world.add(*case.before)
    for changes in case.events:
        for old, new in changes:
            world.change(old, new)
    due = sorted(name for name, seconds in case.planned.items() if seconds <= HOUR and name not in case.held)
    assert sorted(world.after(HOUR + 1)) == due
