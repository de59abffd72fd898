"""Random small inventories, in which every feature of eviction occurs often."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Final

from msgspec import structs

from tests.builders import DRIVER, KEY, NOW
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from webhook.api.claims import AllocationResult, Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Owner, Pod, PodClaim, PodGroup, to_labels
from webhook.api.rules import EVICTIONS_PER_SECOND, NOT_BEFORE, DeviceSelector, DeviceTaintRule, RuleOrigin
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceTaint, DeviceToleration, TaintExtras
from webhook.inventory.state import Inventory

NIC: Final = "nic.example.com"
OTHER_KEY: Final = "example.com/broken"
PATCH: Final = "uid-patch"
"""The group of rules that a patch was expanded into."""
POOLS: Final = ((DRIVER, "node-0"), (DRIVER, "node-1"), (NIC, "node-0"))
DEVICES: Final = ("gpu-0", "gpu-1")
NAMESPACES: Final = ("ml", "qa", "web")
GROUPS: Final = ("ring", "star")
OWNERS: Final = (
    Owner("ReplicaSet", "web-abc", "uid-web"),
    Owner("Job", "train", "uid-job"),
    Owner("StatefulSet", "db", "uid-db"),
)
FOCUSES: Final = (*4 * ("budget", "rate"), *3 * ("owner", "namespace", "minute"), *2 * ("overall", ""))
_DAEMONS: Final = Owner("DaemonSet", "agent", "uid-agent")
_AGES: Final[tuple[int, ...]] = (0, 20, 50, 100, 200, 3600, 3600, 3600, 7200, 7200)
"""How long ago taints were added, in seconds."""


class Dice(Random):
    """Random choices that follow from a seed."""

    def often(self, share: float) -> bool:
        """Whether something occurs that does so this often."""
        return self.random() < share

    def some(self, *values: float) -> float:
        """One of the values."""
        return self.choice(values)


class Mood:
    """How often something occurs in one world."""

    def __init__(self, dice: Dice) -> None:
        self.focus = focus = dice.choice(FOCUSES)
        """The only limit of this world that closes often; empty for all."""
        self.taints = dice.some(0.2, 0.6, 0.9)
        self.rules = dice.choice((0, 1, 2, 3, 3, 3))
        self.shared = dice.some(0.2, 0.5) if focus == "owner" else dice.some(0.0, 0.2, 0.6)
        self.gangs = 0.4 if focus == "budget" else dice.some(0.0, 0.3, 0.8)
        self.grouped = dice.some(0.0, 0.3, 0.8)
        self.held = dice.some(0.0, 0.0, 0.1, 0.3)
        self.leaving = dice.some(0.0, 0.03, 0.15)
        self.exempt = dice.some(0.0, 0.0, 0.3)
        self.calm = dice.some(0.3, 0.9, 1.0)
        self.ages = dice.choice((_AGES, (20, 50, 80, 110, 140, 170)))
        self.ready = 0.6 if focus == "owner" else 0.9
        self.templates = dice.some(0.0, 0.3)
        self.owners: tuple[Owner | None, ...] = dice.choice(((*OWNERS, *OWNERS, None), (OWNERS[0],)))
        self.tolerating = dice.some(0.0, 0.15, 0.4)


def random_inventory(dice: Dice, mood: Mood) -> Inventory:
    """The objects of a world; pods come last, as claims and groups are made with them."""
    inventory = Inventory()
    for driver, pool in POOLS:
        inventory.apply(None, _slice(dice, mood, driver, pool))
    for number in range(mood.rules):
        inventory.apply(None, _rule(dice, mood, f"rule-{number}"))
    for namespace in NAMESPACES:
        for name in GROUPS:
            if dice.often(0.85):
                mode = dice.choice((ALL, ALL, ALL, ALL, SINGLE, ""))
                meta = ObjectMeta(name=name, namespace=namespace, uid=f"uid-{namespace}-{name}")
                inventory.apply(None, PodGroup(meta, mode))
    pods = [_pod(dice, mood, number) for number in range(dice.choice((5, 8, 9, 10, 10, 11)))]
    for each in pods:
        inventory.apply(None, each)
        if each.claims and each.claims[0].generated:
            inventory.apply(None, _own_claim(dice, mood, each))
    for namespace in NAMESPACES:
        for name in ("data", "disk"):
            inventory.apply(None, _shared_claim(dice, mood, namespace, name, pods))
    return inventory


def _taint(dice: Dice, mood: Mood) -> DeviceTaint:
    added = NOW - timedelta(seconds=dice.choice(mood.ages))
    effect = "NoExecute" if dice.often(0.85) else "NoSchedule"
    made = taint(effect, dice.choice((KEY, OTHER_KEY)), added=added)
    return structs.replace(made, extras=TaintExtras(evictions_per_second=5)) if dice.often(0.15) else made


def _slice(dice: Dice, mood: Mood, driver: str, pool: str) -> ResourceSlice:
    devices = {}
    for device in DEVICES:
        number = dice.choice((1, 1, 2)) if dice.often(mood.taints) else 0
        devices[device] = tuple([_taint(dice, mood) for _ in range(number)])
    made = slice_of(devices, name=f"{driver}-{pool}", pool=pool)
    return structs.replace(made, driver=driver, slice_count=2 if dice.often(0.2) else 1)


def _rule(dice: Dice, mood: Mood, name: str) -> DeviceTaintRule:
    driver, pool = dice.choice(POOLS)
    selector = dice.choice(
        (
            DeviceSelector(driver=driver),
            DeviceSelector(driver=driver, pool=pool),
            DeviceSelector(driver=driver, pool=pool, device=dice.choice(DEVICES)),
        )
    )
    annotations = {}
    if dice.often(0.2):
        annotations[EVICTIONS_PER_SECOND] = dice.choice(("1", "7"))
    if dice.often(0.1):
        annotations[NOT_BEFORE] = (NOW + timedelta(seconds=dice.choice((-30, 40)))).isoformat()
    evict = dice.often(0.5)
    made = rule(
        name,
        "NoSchedule" if evict else "NoExecute",
        selector=selector,
        evict=evict,
        added=NOW - timedelta(seconds=dice.choice(mood.ages)),
        key=dice.choice((KEY, OTHER_KEY)),
        annotations=annotations,
    )
    origin = dice.choice((RuleOrigin(), RuleOrigin("patch", PATCH, patch=True, of_patch=PATCH)))
    return structs.replace(made, origin=origin)


def _tolerations(dice: Dice, mood: Mood) -> tuple[DeviceToleration, ...]:
    if not dice.often(mood.tolerating):
        return ()
    key = dice.choice((KEY, OTHER_KEY, ""))
    return (tolerates(dice.choice((10, 60, 130, 600, None, None)), key=key),)


def _results(dice: Dice, mood: Mood) -> tuple[AllocationResult, ...]:
    results = []
    for _ in range(dice.choice((1, 1, 1, 2))):
        driver, pool = dice.choice(POOLS)
        results.append(AllocationResult("gpu", driver, pool, dice.choice(DEVICES), _tolerations(dice, mood)))
    return tuple(results)


def _for_group(namespace: str, name: str) -> Consumer:
    return Consumer("scheduling.k8s.io", "podgroups", name, f"uid-{namespace}-{name}")


def _own_claim(dice: Dice, mood: Mood, user: Pod) -> ResourceClaim:
    made = claim(user.meta.name, namespace=user.meta.namespace)
    made = structs.replace(made, allocation=_results(dice, mood) if dice.often(0.97) else None)
    if user.pod_group and dice.often(0.3):
        made = structs.replace(made, reserved_for=(_for_group(user.meta.namespace, user.pod_group),))
    return made


def _shared_claim(dice: Dice, mood: Mood, namespace: str, name: str, pods: list[Pod]) -> ResourceClaim:
    users = [each for each in pods if each.meta.namespace == namespace and PodClaim(f"{name}-claim") in each.claims]
    reserved = [Consumer("", "pods", each.meta.name, each.meta.uid) for each in users if dice.often(0.9)]
    groups = sorted({each.pod_group for each in users if each.pod_group})
    if groups and dice.often(0.3):
        reserved = [_for_group(namespace, dice.choice(groups)), *(reserved if dice.often(0.3) else [])]
    made = claim(name, namespace=namespace, consumers=tuple(reserved))
    return structs.replace(made, allocation=_results(dice, mood) if dice.often(0.9) else None)


def _pod(dice: Dice, mood: Mood, number: int) -> Pod:
    name, namespace = (
        f"pod-{dice.choice('abc')}{number}",
        dice.choice(("ml", "ml", "ml", "ml", "ml", "qa", "qa", "web")),
    )
    claims = [PodClaim(f"{name}-claim", generated=True)] if dice.often(0.7) else []
    claims += [PodClaim(f"{shared}-claim") for shared in ("data", "disk") if dice.often(mood.shared)]
    if dice.often(0.2):
        claims.reverse()
    if len(claims) > 1 and not claims[0].generated:
        claims.sort(key=lambda each: not each.generated) if dice.often(0.5) else None
    labels = {}
    if dice.often(0.05):
        labels["jobset.sigs.k8s.io/jobset-name"] = "set"
    if dice.often(mood.templates):
        labels["pod-template-hash"] = "abc"
    owner = dice.choice(mood.owners)
    phase = "Running"
    if dice.often(mood.leaving):
        phase = dice.choice(("Succeeded", "Failed", "Pending"))
    deleting = dice.often(mood.leaving)
    gone = NOW + timedelta(seconds=dice.choice((-1000, -300, -100, -20, 20)))
    exempt = dice.often(mood.exempt)
    return pod(
        name,
        namespace=namespace,
        uid=f"uid-{name}",
        node_name="" if dice.often(0.05) else "node-0",
        claims=tuple(claims),
        pod_group=dice.choice(GROUPS) if dice.often(mood.grouped) else "",
        phase=phase,
        ready=phase == "Running" and dice.often(mood.ready),
        deleting=deleting,
        grace_ends=gone if deleting and dice.often(0.9) else None,
        priority=dice.choice((0, 0, 0, 0, 10, -5)),
        owner=_DAEMONS if exempt and dice.often(0.7) else owner,
        mirror=exempt and dice.often(0.3),
        hold=dice.choice(("debugging", "")) if dice.often(mood.held) else None,
        labels=to_labels(labels),
        gang=dice.choice(("x", "x", "y")) if dice.often(mood.gangs) else "",
        completes=dice.often(0.4),
        meta=ObjectMeta(
            name=name, namespace=namespace, uid=f"uid-{name}", resource_version=dice.choice(("1", "2", ""))
        ),
    )
