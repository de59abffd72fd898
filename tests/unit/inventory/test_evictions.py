"""Who has to go and why, and whose fate a change may change. Orders of events: tests/unit/eviction/test_order.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import POOL, claim, pod, rule, slice_of, taint, tolerates
from tests.unit.inventory.watched import LATER, OURS, Watched, announced
from webhook.api.claims import AllocationResult, Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import PodClaim, PodGroup
from webhook.api.rules import NOT_BEFORE, DeviceSelector, DeviceTaintRule
from webhook.inventory.evictions import Eviction, EvictionReason, Evictions
from webhook.inventory.impact import Taint
from webhook.inventory.pools import Evictor
from webhook.inventory.targets import ANYWHERE, DeviceNames, EvictionScope, can_judge, is_ours, tolerating_scheduling

HARD = Taint(taint(), Evictor.OURS)


def not_announced(_: DeviceTaintRule) -> datetime | None:
    return None


def test_reasons_are_rules_by_name_then_slices_by_device_and_position() -> None:
    """E-11."""
    both = (taint(key="example.com/a"), taint(key="example.com/b"))
    watched = Watched(
        slice_of({"gpu-1": both, "gpu-0": (taint("NoSchedule"), *both[:1])}),
        claim(devices=("gpu-1", "gpu-0")),
        pod(),
        rule("z", selector=DeviceSelector()),
        rule("a", selector=DeviceSelector(device="gpu-1")),
    )
    found = watched.of()
    assert found is not None
    assert found.due == NOW
    assert [str(reason) for reason in found.reasons] == [
        "DeviceTaintRule a",
        "DeviceTaintRule z",
        f"taint example.com/a of device {DRIVER}/{POOL}/gpu-0",
        f"taint example.com/a of device {DRIVER}/{POOL}/gpu-1",
        f"taint example.com/b of device {DRIVER}/{POOL}/gpu-1",
    ]


def test_pod_on_one_device_is_evicted_by_its_slice_by_rules_and_by_both() -> None:
    tainted = slice_of({"gpu-0": (taint(),), "gpu-1": ()})
    by_rule, by_slice = "DeviceTaintRule rule", f"taint {taint().key} of device {DRIVER}/{POOL}/gpu-0"
    for device, objects, expected in (
        ("gpu-0", [tainted], [by_slice]),
        ("gpu-1", [tainted], None),
        ("gpu-0", [rule("rule")], [by_rule]),
        ("gpu-0", [tainted, rule("rule")], [by_rule, by_slice]),
        ("gpu-1", [tainted, rule("rule")], [by_rule]),
    ):
        found = Watched(claim(devices=(device,)), pod(), *objects).of()
        assert (None if found is None else [str(reason) for reason in found.reasons]) == expected


def test_taint_of_a_slice_that_is_tolerated_hides_no_other() -> None:
    both = (taint(), taint(key="example.com/hard"))
    for tainted in (both, both[::-1]):
        found = Watched(slice_of({"gpu-0": tainted}), claim("pod", tolerates(None)), pod()).of()
        assert found is not None
        assert [reason.taint.key for reason in found.reasons] == ["example.com/hard"]


def test_taint_that_evicts_the_users_of_a_claim_later_evicts_them() -> None:
    watched = Watched(
        slice_of({"gpu-0": (taint(),), "gpu-1": (taint("NoSchedule"),)}),
        claim("now"),
        claim("later", tolerates(60)),
        claim("never", tolerates(None)),
        claim("elsewhere", devices=("gpu-1",)),
    )
    names = ("now", "later", "never", "elsewhere", "unknown")
    evicting = [name for name in names if watched.evictions.evicts_users_of(f"ml/{name}-claim")]
    assert evicting == ["now", "later"]


def test_reasons_are_all_that_are_not_tolerated_also_the_later_ones() -> None:
    """E-11."""
    held = claim("pod", tolerates(60), tolerates(key="example.com/fine"))
    rules = (rule("first"), rule("fine", key="example.com/fine"), rule("hard", key="example.com/hard", added=LATER))
    found = Watched(held, pod(), *rules).of()
    assert found == Eviction(
        NOW + timedelta(seconds=60),
        (EvictionReason(rules[0].taint, "first", "uid-first"), EvictionReason(rules[2].taint, "hard", "uid-hard")),
    )


def test_claims_that_fare_alike_share_one_value() -> None:
    watched = Watched(claim("a"), pod("a"), claim("b"), pod("b"), rule())
    assert watched.of("a") is watched.of("b")


def test_eviction_that_is_asked_for_is_due_when_it_was_announced() -> None:
    asked = rule(effect="NoSchedule", evict=True)
    watched = Watched(claim(), pod(), asked)
    found = watched.of()
    assert found is not None
    assert found.due == LATER
    assert found.reasons[0].taint.effect == "NoExecute"
    silent = Evictions(watched.inventory, OURS, not_announced)
    assert silent.everything() == {"ml/pod"}
    assert silent.eviction_of(watched.inventory.pods["ml/pod"]) is None


def test_pod_that_tolerates_the_taint_as_it_stands_stays_and_is_named() -> None:
    stays = claim("stays", tolerates(effect="NoSchedule"))
    watched = Watched(stays, pod("stays"), claim(), pod(), rule(effect="NoSchedule", evict=True))
    assert watched.of("stays") is None
    assert tolerating_scheduling(watched.inventory, watched.inventory.rules["rule"]) == {"uid-stays"}
    assert tolerating_scheduling(watched.inventory, rule(effect="NoSchedule")) == frozenset()


@pytest.mark.parametrize(
    ("tolerated", "evictor", "due"),
    [
        ((tolerates(effect=""),), Evictor.OURS, None),
        ((tolerates(effect=""),), Evictor.IN_TREE, 0),
        ((tolerates(9223372037),), Evictor.IN_TREE, 0),
        ((tolerates(9223372036),), Evictor.IN_TREE, 9223372036),
    ],
    ids=["no effect, ours", "no effect, in-tree", "overflow, in-tree", "just no overflow, in-tree"],
)
def test_evictors_read_tolerations_differently(tolerated: tuple, evictor: Evictor, due: int | None) -> None:  # type: ignore[type-arg]
    found = Watched(claim("pod", *tolerated), pod(), rule(), scope=EvictionScope(evictor)).of()
    assert (found is None) is (due is None)
    if found is not None and due is not None:
        assert found.due == NOW + timedelta(seconds=due)


@pytest.mark.parametrize("seconds", [10**12, 10**18], ids=["beyond the calendar", "beyond what a duration holds"])
def test_eviction_after_the_end_of_the_calendar_is_due_at_its_end(seconds: int) -> None:
    found = Watched(claim("pod", tolerates(seconds)), pod(), rule()).of()
    assert found is not None
    assert found.due == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(("seconds", "due"), [(0, 0), (-5, 0), (1, 1)])
def test_eviction_is_due_after_as_many_seconds_as_are_tolerated(seconds: int, due: int) -> None:
    found = Watched(claim("pod", tolerates(seconds)), pod(), rule()).of()
    assert found is not None
    assert found.due == NOW + timedelta(seconds=due)


@pytest.mark.parametrize(("owner", "goes"), [("uid-pod", True), ("uid-of-another", False)])
def test_claim_for_extended_resources_counts_only_for_the_pod_it_was_made_for(owner: str, *, goes: bool) -> None:
    made = claim("pod", owner=owner, extended=True)
    found = Watched(made, pod(claims=(), extended_claim="pod-claim"), rule()).of()
    assert (found is not None) is goes


def test_taint_without_a_time_evicts_no_pod() -> None:
    assert Watched(claim(), pod(), rule(added=None)).of() is None


@pytest.mark.parametrize("evictor", Evictor)
def test_pod_with_extended_resources_goes_whoever_evicts(evictor: Evictor) -> None:
    """E-16: the in-tree controller evicts it from 1.37.2 on, and it counts on every release."""
    held = (claim(extended=True), pod(claims=(), extended_claim="pod-claim"), rule())
    assert Watched(*held, scope=EvictionScope(evictor)).of() is not None


@pytest.mark.parametrize("generated", [True, False], ids=["from a template", "named"])
def test_claim_that_a_pod_names_evicts_it_whatever_the_claim_says_of_itself(*, generated: bool) -> None:
    """E-16: the in-tree controller goes by the pod; so the annotation neither protects a pod nor gives it to us."""
    forged = (claim(extended=True), pod(claims=(PodClaim("pod-claim", generated=generated),)), rule())
    assert Watched(*forged, scope=EvictionScope(Evictor.IN_TREE)).of() is not None
    assert Watched(*forged, scope=EvictionScope(Evictor.OURS)).of() is not None


def test_claim_without_its_annotation_is_still_for_an_extended_resource_of_its_pod() -> None:
    held = (claim(extended=False), pod(claims=(), extended_claim="pod-claim"), rule())
    assert Watched(*held, scope=EvictionScope(Evictor.IN_TREE)).of() is not None


def test_rule_touches_users_of_what_it_selected_and_selects() -> None:
    watched = Watched(
        claim("a", devices=("gpu-0",)),
        pod("a"),
        claim("b", devices=("gpu-1",)),
        pod("b"),
        claim("c", pool="other"),
        pod("c"),
    )
    one = rule(selector=DeviceSelector(device="gpu-0", pool=POOL))
    other = rule(selector=DeviceSelector(device="gpu-1"))
    assert watched.change(None, one) == {"ml/a"}
    assert watched.change(one, other) == {"ml/a", "ml/b"}
    assert watched.change(other, None) == {"ml/b"}


@pytest.mark.parametrize(("used", "others", "touched"), [(2, 2, 2), (3, 2, 5)])
def test_rule_for_a_driver_with_more_than_half_of_all_claims_touches_them_all(
    used: int, others: int, touched: int
) -> None:
    """To gather them would cost more than to look at the rest."""
    names = [f"pod-{number}" for number in range(used + others)]
    watched = Watched(*[claim(name, devices=(name,)) for name in names], *[pod(name) for name in names])
    for name in names[used:]:
        elsewhere = structs.replace(claim(name), allocation=(AllocationResult("nic", "nic.example.com", POOL, name),))
        watched.change(claim(name, devices=(name,)), elsewhere)
    assert len(watched.change(None, rule())) == touched


def test_status_and_annotations_of_a_rule_touch_nobody() -> None:
    watched = Watched(claim(), pod(), rule())
    annotated = rule(annotations={"devicetaint.io/owner": "me"})
    assert watched.change(rule(), annotated) == set()


def test_slice_touches_users_of_devices_whose_taints_changed() -> None:
    watched = Watched(claim("a"), pod("a"), claim("b", devices=("gpu-1",)), pod("b"))
    clean = slice_of({"gpu-0": (), "gpu-1": ()})
    assert watched.change(None, clean) == set()
    tainted = slice_of({"gpu-0": (taint(),), "gpu-1": (taint("NoSchedule"),)})
    assert watched.change(clean, tainted) == {"ml/a"}
    assert watched.change(tainted, tainted) == set()
    assert watched.change(tainted, None) == {"ml/a"}


def test_slices_touch_nobody_where_their_taints_are_not_ours() -> None:
    watched = Watched(claim(), pod(), scope=EvictionScope(None, asked=True))
    assert watched.change(None, slice_of({"gpu-0": (taint(),)})) == set()


def test_claim_touches_the_pods_that_name_it() -> None:
    watched = Watched(pod(), pod("more", claims=(PodClaim("pod-claim"),)), pod("other"))
    assert watched.change(None, claim()) == {"ml/pod", "ml/more"}


@pytest.mark.parametrize(
    ("effect", "evict", "expected"),
    [
        ("NoExecute", False, {"no_execute"}),
        ("NoExecute", True, {"no_execute"}),
        ("NoSchedule", True, {"asked"}),
        ("NoSchedule", False, set()),
        ("None", True, set()),
        ("None", False, set()),
    ],
)
def test_rules_that_are_ours(effect: str, expected: set[str], *, evict: bool) -> None:
    scopes = {"no_execute": EvictionScope(Evictor.OURS), "asked": EvictionScope(None, asked=True)}
    assert {name for name, scope in scopes.items() if is_ours(rule(effect=effect, evict=evict), scope)} == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (DeviceSelector(), True),
        (DeviceSelector("d", "p", "x"), True),
        (None, False),
        (DeviceSelector(device_class_name="gpu"), False),
        (DeviceSelector(unknown=(("all", "true"),)), False),
    ],
)
def test_selectors_that_can_be_judged(selector: DeviceSelector | None, *, expected: bool) -> None:
    assert can_judge(selector) is expected


def would(watched: Watched, *, taint: Taint = HARD, names: DeviceNames = ANYWHERE) -> bool:
    return watched.evictions.would_evict(watched.inventory.pods["ml/pod"], taint, names)


@pytest.mark.parametrize(
    ("names", "hit"),
    [
        (ANYWHERE, True),
        (DeviceNames(DRIVER, POOL, "gpu-1"), True),
        (DeviceNames(DRIVER, POOL, "gpu-2"), False),
        (DeviceNames(DRIVER, "node-1"), False),
        (DeviceNames("other.example.com"), False),
    ],
    ids=str,
)
def test_taint_would_evict_the_users_of_its_devices(names: DeviceNames, *, hit: bool) -> None:
    assert would(Watched(claim(devices=("gpu-0", "gpu-1")), pod()), names=names) is hit
    assert not would(Watched(claim(devices=("gpu-0", "gpu-1")), pod(node_name="")), names=names)
    assert not would(Watched(claim(devices=()), pod()), names=names)


@pytest.mark.parametrize(
    ("tolerations", "extended", "evictor", "hit"),
    [
        ((tolerates(60),), False, Evictor.OURS, True),
        ((tolerates(None),), False, Evictor.OURS, False),
        ((), True, Evictor.OURS, True),
        ((), True, Evictor.IN_TREE, True),
    ],
    ids=["later", "never", "extended resources", "extended resources, in-tree"],
)
def test_taint_would_evict_those_who_do_not_tolerate_it_for_ever(
    tolerations: tuple[Any, ...], evictor: Evictor, *, extended: bool, hit: bool
) -> None:
    asking = pod(claims=(), extended_claim="pod-claim") if extended else pod()
    assert would(Watched(claim("pod", *tolerations), asking), taint=Taint(taint(), evictor)) is hit


def test_taint_would_evict_no_pod_of_which_a_group_keeps_all_that_is_hit() -> None:
    ring = Consumer("scheduling.k8s.io", "podgroups", "ring", "uid-ring")
    kept, own = claim(consumers=(ring,), owner="", group="ring"), claim("own", devices=("gpu-1",))
    own = structs.replace(own, reserved_for=claim().reserved_for, controller_uid="uid-pod")
    member = pod(pod_group="ring", claims=(PodClaim("pod-claim"), PodClaim("own-claim")))
    group = PodGroup(ObjectMeta("ring", namespace="ml", uid="uid-ring"))
    watched = Watched(kept, own, member, group)
    first, second = DeviceNames(device="gpu-0"), DeviceNames(device="gpu-1")
    assert [would(watched, names=each) for each in (first, second, ANYWHERE)] == [False, True, True]
    watched.change(group, None)
    assert would(watched, names=first)


def test_after_a_new_start_rules_evict_as_before() -> None:
    watched = Watched(claim(), pod(), rule("a"), rule("b"), rule("c", effect="NoSchedule"))
    evictions = Evictions(watched.inventory, OURS, announced)
    for _ in range(2):
        assert evictions.everything() == {"ml/pod"}
        found = evictions.eviction_of(watched.inventory.pods["ml/pod"])
        assert found is not None
        assert found == watched.of()
        assert found.rules == (("uid-a", "a"), ("uid-b", "b"))


@pytest.mark.parametrize(
    "passive",
    [
        rule(selector=DeviceSelector(device_class_name="gpu")),
        rule(selector=DeviceSelector(unknown=(("all", "true"),))),
        rule(selector=None),
        rule(effect="NoSchedule"),
        rule(effect="None"),
        rule(effect="NoSchedule", evict=True, deleting=True),
        rule(annotations={NOT_BEFORE: "some day"}),
    ],
    ids=["a class", "an unknown field", "no selector", "NoSchedule", "None", "asked and deleted", "at no time"],
)
def test_rule_that_is_not_ours_or_cannot_be_judged_evicts_no_pod(passive: DeviceTaintRule) -> None:
    watched = Watched(claim(), pod(), passive)
    assert watched.of() is None
    active = rule("other")
    assert watched.change(None, active) == {"ml/pod"}
    assert watched.of() == Eviction(NOW, (EvictionReason(active.taint, "other", "uid-other"),))
