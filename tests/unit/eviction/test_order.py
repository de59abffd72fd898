"""Whatever order events come in, the same plans: each case under all permutations, as upstream's TestController.

Source of the cases: `semantics.md` E-5 to E-26.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import permutations

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates, users
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
WIDGET = Consumer("example.com", "widgets", "first", "uid-first")
BEFORE = Consumer("", "pods", "pod", "uid-before")
GROUP = Consumer("scheduling.k8s.io", "podgroups", "group", "uid-group")


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


Come = InventoryObject | tuple[InventoryObject, InventoryObject]


def come(*objects: Come, held: tuple[str, ...] = (), mode: Mode = Mode.REPLACEMENT, **planned: float) -> Case:
    """Objects come, or come and change; these pods are due in so many seconds."""
    events: list[tuple[Change, ...]] = [
        ((None, each[0]), each) if isinstance(each, tuple) else ((None, each),) for each in objects
    ]
    return Case(tuple(events), planned, held=held, mode=mode)


def hit(*objects: Come, held: tuple[str, ...] = (), **planned: float) -> Case:
    """With a rule for all devices."""
    return come(*objects, rule(), held=held, mode=Mode.REPLACEMENT, **planned)


def spared(old: InventoryObject, new: InventoryObject | None, *before: InventoryObject) -> Case:
    """Nothing comes of the plan for the pod."""
    return Case((((old, new),),), before=before or HIT, cancelled=("pod",))


def quietly(
    old: InventoryObject | None, new: InventoryObject | None, *before: InventoryObject, **planned: float
) -> Case:
    """No word of the pod, whether it is still planned or not."""
    return Case((((old, new),),), planned, before=before or HIT)


HIT = (claim(), pod(), rule())
BY_SLICE = (slice_of(TAINTED), claim(), pod())
NEWER = slice_of({"gpu-0": ()}, name="newer", generation=2)
UNNAMED = pod(claims=(PodClaim(None, generated=True),))
NAMED = pod(claims=(PodClaim("pod-claim"),))
MEMBER = pod(pod_group="group")
OF_GROUP = claim(consumers=(GROUP,), owner="uid-group", group="group")
POD_GROUP = PodGroup(ObjectMeta("group", namespace="ml", uid="uid-group"), SINGLE)
LATER = rule("later", key="example.com/other", added=NOW + timedelta(seconds=60))
TWO_CLAIMS = pod(claims=(PodClaim("pod-claim", generated=True), PodClaim("second-claim")))
OF_BOTH = claim(consumers=users("pod", "more"))
UNKNOWN = DeviceSelector(driver=DRIVER, unknown=(("all", "true"),))
CLASS = DeviceSelector(driver=DRIVER, device_class_name="gpu")
END_OF_CALENDAR = (datetime.max.replace(tzinfo=NOW.tzinfo, microsecond=0) - NOW).total_seconds()


CASES = {
    "nothing": come(),
    "device tainted in a slice": come(*BY_SLICE, pod=0),
    "taint without NoExecute": come(slice_of({"gpu-0": (taint("NoSchedule"), taint("None"))}), claim(), pod()),  # E-7
    "device tainted by a rule": hit(CLEAN, claim(), pod(), pod=0),
    "rule for a device that nobody publishes": hit(claim(), pod(), pod=0),  # E-5
    "rule for another pool": come(claim(), pod(), rule(selector=DeviceSelector(pool="other"))),
    "rule for the very device": come(claim(), pod(), rule(selector=DeviceSelector(device="gpu-0")), pod=0),
    "rule that selects everything": come(claim(), pod(), rule(selector=DeviceSelector()), pod=0),
    "rule without selector": come(claim(), pod(), rule(selector=None)),  # E-6
    "rule whose selector has a field nobody knows": come(claim(), pod(), rule(selector=UNKNOWN)),
    "rule whose selector asks for a class": come(claim(), pod(), rule(selector=CLASS)),
    "rule with NoSchedule": come(claim(), pod(), rule(effect="NoSchedule")),
    "rule with an effect that nobody knows": come(claim(), pod(), rule(effect="NoAdmit")),
    "tolerated for ever": hit(claim("pod", tolerates()), pod()),
    "tolerated for an hour": hit(claim("pod", tolerates(HOUR)), pod(), pod=HOUR),  # E-8, E-10
    "tolerated for no time": hit(claim("pod", tolerates(-5)), pod(), pod=0),
    "two tolerations, the smaller counts": hit(claim("pod", tolerates(HOUR), tolerates(5)), pod(), pod=5),  # E-10
    "tolerated without effect, which counts for us": hit(claim("pod", tolerates(effect="")), pod()),
    "seconds past the end of the calendar": hit(claim("pod", tolerates(2**62)), pod(), pod=END_OF_CALENDAR),
    "taint without a time": come(claim(), pod(), rule(added=None)),  # E-12
    "two rules, the earliest time": hit(claim("pod", tolerates(HOUR)), pod(), LATER, pod=60),  # E-11
    "two claims, the earliest time": hit(  # E-20
        claim("pod", tolerates(HOUR)), claim("second", tolerates(60), consumers=users("pod")), TWO_CLAIMS, pod=60
    ),
    "two pods of one claim": hit(OF_BOTH, NAMED, pod("more", claims=NAMED.claims), pod=0, more=0),
    "pod without a node": hit(claim(), pod(node_name="")),  # E-15
    "pod that is scheduled late": hit(claim(), (pod(node_name=""), pod()), pod=0),
    "claim not made yet": hit(claim(), UNNAMED),  # E-16
    "claim whose name comes late": hit(claim(), (UNNAMED, pod()), pod=0),
    "claim made for another pod of the name": hit(claim(owner="uid-before"), pod()),  # E-17
    "claim named directly needs no owner": hit(claim(owner=""), NAMED, pod=0),
    "claim reserved for a namesake": hit(claim(consumers=(BEFORE,)), NAMED),  # E-18
    # E-18: other consumers neither protect a pod nor stand for it
    "claim reserved for a widget and the pod": hit(claim(consumers=(WIDGET, *users("pod"))), pod(), pod=0),
    "claim reserved for the pod and a widget": hit(claim(consumers=(*users("pod"), WIDGET)), pod(), pod=0),
    "claim reserved for some group and the pod": hit(claim(consumers=(GROUP, *users("pod"))), pod(), pod=0),
    "claim reserved for a widget": hit(claim(consumers=(WIDGET,)), pod()),
    "claim reserved for a widget and some group": hit(claim(consumers=(WIDGET, GROUP)), pod()),
    "claim reserved for a namesake and a widget": hit(claim(consumers=(BEFORE, WIDGET)), pod()),
    "claim reserved for nobody": hit(claim(consumers=()), pod()),
    "claim reserved for the pod's group": hit(OF_GROUP, MEMBER, pod=0),  # E-18
    "claim reserved for the pod's group, which exists": hit(POD_GROUP, OF_GROUP, MEMBER, held=("pod",), pod=0),
    "claim reserved for a group of that name before": hit(
        structs.replace(POD_GROUP, meta=structs.replace(POD_GROUP.meta, uid="uid-next")), OF_GROUP, MEMBER, pod=0
    ),
    "group deleted that kept a claim reserved": quietly(POD_GROUP, None, POD_GROUP, OF_GROUP, MEMBER, rule(), pod=0),
    "claim reserved for another group": hit(OF_GROUP, pod(pod_group="others")),
    "claim made for the pod's group and reserved for the pod": hit(  # E-17
        claim(owner="uid-group", group="group"), MEMBER, pod=0
    ),
    "claim made for another group and reserved for the pod": hit(claim(owner="uid-group", group="others"), MEMBER),
    "claim made for the pod and reserved for its group": hit(claim(consumers=(GROUP,)), MEMBER, pod=0),
    "claim made for something that has the group's name": hit(claim(consumers=(GROUP,), owner="uid-job"), MEMBER),
    "claim made for a group and reserved for it, and a pod of none": hit(OF_GROUP, pod()),
    "claim in another namespace": hit(claim(namespace="web"), pod()),
    "claim that is not allocated": hit(claim(devices=()), pod()),
    "claim allocated late": hit(pod(), (claim(devices=()), claim()), pod=0),
    "claim reserved late": hit(pod(), (claim(consumers=()), claim()), pod=0),
    "claim deallocated while due": spared(claim(), claim(devices=())),
    "claim deleted while due": spared(claim(), None),
    "claim replaced by one for nobody": spared(  # E-14
        claim(), structs.replace(claim(consumers=()), meta=structs.replace(claim().meta, uid="other"))
    ),
    "extended resource": hit(
        claim(extended=True), pod(claims=(), extended_claim="pod-claim"), pod=0
    ),  # E-16: we differ
    "delegated leaves NoExecute": come(*BY_SLICE, rule(), mode=Mode.DELEGATED),
    "delegated leaves rules that do not ask": come(claim(), pod(), rule(effect="NoSchedule"), mode=Mode.DELEGATED),
    "delegated leaves a rule of effect None that asks": come(
        claim(), pod(), rule(effect="None", evict=True), mode=Mode.DELEGATED
    ),
    "slice untainted": spared(slice_of(TAINTED), CLEAN, *BY_SLICE),
    "slice deleted": spared(slice_of(TAINTED), None, *BY_SLICE),
    "tainted slice hidden by a newer generation": Case(  # E-2
        (((None, NEWER),),), before=BY_SLICE, cancelled=("pod",)
    ),
    "older generation back in sight": quietly(NEWER, None, *BY_SLICE, NEWER, pod=0),  # E-2
    "slice that moves to another pool": spared(slice_of(TAINTED), slice_of(TAINTED, pool="other"), *BY_SLICE),
    "rule deleted": spared(rule(), None),
    "rule set to None": spared(rule(), rule(effect="None")),
    "rule moved elsewhere": spared(rule(), rule(selector=DeviceSelector(pool="other"))),
    "one of two rules deleted": quietly(rule("other"), None, *HIT, rule("other"), pod=0),
    "pod deleted is not told of": quietly(pod(), None),
    "pod being deleted is not planned": hit(claim(), pod(deleting=True)),  # E-19, where we differ
    "pod being deleted is not told of": quietly(pod(), pod(deleting=True)),
    "pod that has finished is not planned": hit(claim(), pod(phase="Succeeded")),
    "pod replaced by a namesake": quietly(pod(), pod(uid="uid-another")),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_plans_do_not_depend_on_order(case: Case) -> None:
    """Neither do they on who makes them: a leader that takes over has seen only what the events came to."""
    late = World(case.mode)
    late.worker.started = False
    late.add(*case.before)
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
    for old, new in [change for changes in case.events for change in changes]:
        late.change(old, new)
    late.worker.start()
    assert late.planned == case.planned
    due = sorted(name for name, seconds in case.planned.items() if seconds <= HOUR and name not in case.held)
    assert sorted(late.after(HOUR + 1)) == due, "each of them once"
