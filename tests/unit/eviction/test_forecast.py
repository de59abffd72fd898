"""What a rule of effect None says that NoExecute would evict: the in-tree controller's count (E-40, E-43)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import BLUNT, FREE, World, evicting
from webhook.api.claims import Consumer
from webhook.api.pods import PodClaim
from webhook.api.rules import DeviceSelector
from webhook.eviction.conditions import IN_TREE
from webhook.eviction.modes import Mode
from webhook.inventory.state import InventoryObject

NONE: Final = rule(effect="None")
WIDGET: Final = Consumer("example.com", "widgets", "first", "uid-first")
GROUP: Final = Consumer("scheduling.k8s.io", "podgroups", "group", "uid-group")
OTHERS: Final = Consumer("scheduling.k8s.io", "podgroups", "others", "uid-others")
ITSELF: Final = Consumer("", "pods", "pod", "uid-pod")
COMMON: Final = (PodClaim("common-claim"),)


def forecast(world: World, name: str = "rule") -> tuple[str, ...]:
    """Published and allocated devices, pods and namespaces, each as the condition has it."""
    status, reason, message = world.condition(name, IN_TREE)
    assert (status, reason) == ("False", "NoEffect")
    published, allocated, pods, _ = message.split(". ", 3)
    pods, namespaces = pods.split(" if ")[0].split(" would be evicted in ")
    return (published.removesuffix(" selected"), allocated.removesuffix(" selected"), pods, namespaces)


COUNTED: dict[str, tuple[int, int, Sequence[InventoryObject]]] = {
    "running": (1, 1, (claim(), pod())),
    "terminating": (0, 0, (claim(), pod(deleting=True))),
    "without a node": (0, 0, (claim(), pod(node_name=""))),
    "gone, its claim still reserved": (0, 0, (claim(),)),
    "claim not reserved": (0, 0, (claim(consumers=()), pod())),
    "claim of another pod": (0, 0, (claim(owner="x"), pod())),
    "tolerates it": (0, 0, (claim("pod", tolerates()), pod())),
    "tolerates it for a minute": (1, 1, (claim("pod", tolerates(60)), pod())),
    "not running yet": (1, 1, (claim(), pod(phase="Pending"))),
    # differences: what our worker would not evict, or would
    "succeeded": (0, 0, (claim(), pod(phase="Succeeded"))),
    "failed": (0, 0, (claim(), pod(phase="Failed"))),
    "mirror pod": (0, 0, (claim(), pod(mirror=True))),
    "tolerates every effect": (0, 0, (claim("pod", tolerates(effect="")), pod())),
    "extended resource": (1, 1, (claim(extended=True), pod(claims=(), extended_claim="pod-claim"))),
    # who a claim is reserved for
    "behind a widget": (1, 1, (claim(consumers=(WIDGET, ITSELF)), pod())),
    "behind another group": (1, 1, (claim(consumers=(OTHERS, ITSELF)), pod())),
    "a widget's": (0, 0, (claim(consumers=(WIDGET,)), pod())),
    "the members of a group": (
        *(2, 1),
        [
            claim("common", consumers=(GROUP,)),
            *[pod(name, claims=COMMON, pod_group="group") for name in ("one", "two")],
            *(pod("other", claims=COMMON, pod_group="others"), pod("none", claims=COMMON)),
        ],
    ),
    "two namespaces": (2, 2, (claim(), claim("pod2", namespace="web"), pod(), pod("pod2", namespace="web"))),
    "terminating in another namespace": (
        *(1, 1),
        (claim(), claim("gone", namespace="web"), pod(), pod("gone", namespace="web", deleting=True)),
    ),
    "two claims": (1, 1, (claim(), claim("more"), pod(claims=(PodClaim("pod-claim"), PodClaim("more-claim"))))),
    "terminating on a device that a slice has tainted": (
        *(0, 0),
        (claim("pod", devices=("gpu-1",)), slice_of({"gpu-1": (taint(),)}), pod(deleting=True)),
    ),
}


@pytest.mark.parametrize(("pods", "namespaces", "objects"), COUNTED.values(), ids=COUNTED)
def test_pods_that_effect_none_counts(pods: int, namespaces: int, objects: Sequence[InventoryObject]) -> None:
    world = evicting(*objects, NONE)
    world.settle()
    different = "namespace" if namespaces == 1 else "different namespaces"
    assert forecast(world)[2:] == (f"{pods} pod{'s' * (pods != 1)}", f"{namespaces} {different}")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, ("0 published devices", "0 allocated devices", "0 pods")),
        (DeviceSelector(), ("3 published devices", "2 allocated devices", "2 pods")),
        (DeviceSelector(pool="node-0"), ("2 published devices", "1 allocated device", "1 pod")),
        (DeviceSelector(device="gpu-0"), ("1 published device", "1 allocated device", "1 pod")),
        (DeviceSelector(driver="other.example.com"), ("0 published devices", "0 allocated devices", "0 pods")),
        (DeviceSelector(pool="node-1", device="gpu-0"), ("0 published devices", "0 allocated devices", "0 pods")),
    ],
)
def test_selectors_of_effect_none(selector: DeviceSelector | None, expected: tuple[str, ...]) -> None:
    """A rule without a selector selects nothing (E-6), also where it is counted."""
    world = evicting()
    world.add(
        slice_of({"gpu-0": (), "gpu-1": ()}),
        slice_of({"gpu-9": ()}, name="other", pool="node-1"),
        claim(),
        pod(),
        claim("b", devices=("gpu-9",), pool="node-1"),
        pod("b"),
        rule(effect="None", selector=selector),
    )
    world.settle()
    assert forecast(world)[:3] == expected


@pytest.mark.parametrize(
    ("selector", "pods"),
    [
        (DeviceSelector(device="gpu-0"), "0 pods"),
        (DeviceSelector(pool="node-0"), "0 pods"),
        (DeviceSelector(driver=DRIVER), "0 pods"),
        (DeviceSelector(device="gpu-1"), "1 pod"),
        (DeviceSelector(pool="node-1"), "1 pod"),
        (DeviceSelector(driver="other.example.com"), "1 pod"),
        (DeviceSelector(), "1 pod"),
    ],
)
def test_only_the_selected_devices_of_a_pod_count(selector: DeviceSelector, pods: str) -> None:
    """It tolerates the taint on one of its two devices and not on the other, which is elsewhere in every respect."""
    both = claim("pod", tolerates())
    assert both.allocation
    [tolerant] = both.allocation
    intolerant = structs.replace(tolerant, driver="other.example.com", pool="node-1", device="gpu-1", tolerations=())
    world = evicting()
    world.add(structs.replace(both, allocation=(tolerant, intolerant)), pod(), rule(effect="None", selector=selector))
    world.settle()
    assert forecast(world)[2] == pods


def test_daemon_sets_count_as_the_profile_evicts_them() -> None:
    for profile, pods in ((FREE, "0 pods"), (BLUNT, "1 pod")):
        world = evicting(claim(), owned("pod", kind="DaemonSet"), NONE, base=profile)
        world.settle()
        assert forecast(world)[2] == pods


def test_pod_that_was_evicted_a_moment_ago_does_not_count_before_the_watch_shows_it() -> None:
    world = evicting(claim(), pod(), rule("first"), base=BLUNT)
    running = world.pod("pod")
    world.cluster.lingering = True
    assert world.settled() == ["pod"]
    world.inventory.apply(world.pod("pod"), running)  # the watch is behind
    world.add(NONE)
    world.settle()
    assert forecast(world)[2] == "0 pods"


def test_effect_none_after_evictions_says_how_many_there_were() -> None:
    """E-42."""
    world = evicting(claim(), pod(), rule(), base=BLUNT, lingering=True)
    world.advance(15)
    known = world.inventory.rules["rule"]
    world.change(known, rule(effect="None", generation=known.generation + 1, conditions=known.conditions))
    world.settle()
    assert forecast(world)[2:] == ("0 pods", "0 different namespaces")
    assert world.condition("rule", IN_TREE)[2].endswith(
        " trigger an update. 1 pod evicted since starting the controller."
    )


def test_count_from_an_inventory_that_may_be_out_of_date_is_not_kept() -> None:
    world = World(Mode.REPLACEMENT, BLUNT)
    world.trusted = False
    world.add(claim(), pod(), NONE)
    world.settle()
    assert world.inventory.rules["rule"].conditions == ()
    world.remove(world.pod("pod"))
    world.trusted = True
    world.advance(2)
    assert forecast(world)[2] == "0 pods"


def test_rule_on_a_terminating_pod_has_nothing_to_evict() -> None:
    """The in-tree controller says Completed and counts it (E-29); we count what we have evicted."""
    world = evicting(claim(), pod(deleting=True), rule(), base=BLUNT)
    world.advance(30)
    assert world.condition("rule", IN_TREE) == ("False", "NotStarted", "")
    assert world.cluster.requests == []


def test_count_stays_as_it_was_when_the_condition_is_restored() -> None:
    """It says so itself: this information will not be updated again."""
    world = evicting(claim(), pod(), NONE, base=BLUNT)
    world.advance(15)
    world.add(claim("more"), pod("more"))
    known = world.inventory.rules["rule"]
    world.change(known, NONE)  # another writer removes all conditions
    world.advance(15)
    assert forecast(world)[2] == "1 pod"
