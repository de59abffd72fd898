"""The impact of a taint in processes that follow pods: who goes along, and which gangs it breaks.

Pods of an impact are the consumers that claims are reserved for; here their pods are looked up.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.api.pods import Pod
from webhook.inventory.gangs import Gang, gang_of
from webhook.inventory.matching import Evictor
from webhook.inventory.pod_groups import companions_in, goes_as_a_whole, group_key, is_leaving
from webhook.inventory.steps import in_steps, unchecked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from webhook.inventory.impact import Impact
    from webhook.inventory.preview import OutcomeReason
    from webhook.inventory.state import Inventory, InventoryObject
    from webhook.inventory.steps import Check

    GangOf = Callable[[Pod], Gang | None]

PODS_MOST: Final = 2000
"""If more pods are evicted, no gangs are looked for: that takes some 10 microseconds for each, on the event loop."""


class KnownPods(NamedTuple):
    """What a process that follows pods can say of them: `sizes` of all gangs, and by pod its gang.

    `exemption_of`: why our worker never evicts a pod, or None.
    """

    gang_of: Callable[[Pod], Gang | None]
    exemption_of: Callable[[Pod], OutcomeReason | None]
    sizes: Mapping[Gang, int]


def with_companions(
    inventory: Inventory, impact: Impact, evictor: Evictor | None, pods: KnownPods | None, check: Check = unchecked
) -> Impact:
    """The impact with the pods that our worker evicts along with others of their PodGroup, each when the first goes.

    The in-tree controller takes no pod along. Without `pods` the impact is left as it is. `check` may raise to stop.
    """
    if pods is None or evictor is not Evictor.OURS:
        return impact
    hit, waves, along = impact.pods, list(impact.waves), set[str]()
    for key, group in in_steps(inventory.pod_groups.items(), check):
        if not goes_as_a_whole(group) or group.meta.namespace not in impact.namespaces:
            continue
        going = {
            pod.meta.uid for pod in in_steps(companions_in(inventory, key), check) if pods.exemption_of(pod) is None
        }
        causes = going & hit
        if causes:
            first = next(number for number, wave in enumerate(waves) if not causes.isdisjoint(wave.pods))
            waves[first] = structs.replace(waves[first], pods=waves[first].pods | (going - hit))
            along |= going - hit
    if not along:
        return impact
    return structs.replace(
        impact,
        waves=tuple(waves),
        companions=frozenset(along),
        tolerating=impact.tolerating - along,
        kept=impact.kept - along,
    )


def with_gangs(inventory: Inventory, impact: Impact, pods: KnownPods | None, check: Check = unchecked) -> Impact:
    """The impact with the gangs that it breaks; as it is without `pods`. `check` may raise to stop."""
    evicted = impact.pods
    if pods is None or len(evicted) > PODS_MOST:
        return impact
    keys = set(inventory.pods_using(impact.claims))
    if impact.companions:
        for group in {group_key(inventory.pods[key]) for key in keys}:
            keys.update(inventory.members_of(group))
    going = [pod for pod in map(inventory.pods.__getitem__, keys) if pod.meta.uid in evicted]
    lost = count_gangs(going, pods.gang_of, check)
    return structs.replace(impact, gangs=broken_gangs(lost, pods.sizes))


class BrokenGang(NamedTuple):
    """A gang of which pods are evicted. `pods`: all of its pods that run, evicted or not."""

    gang: Gang
    evicted: int
    pods: int


def count_gangs(pods: Iterable[Pod], gang_of_pod: GangOf, check: Check = unchecked) -> Counter[Gang]:
    """How many of the pods that are not terminating or finished each gang has. `check` may raise to stop."""
    gangs = [gang_of_pod(pod) for pod in in_steps(pods, check) if not is_leaving(pod)]
    return Counter([gang for gang in gangs if gang is not None])


def broken_gangs(lost: Mapping[Gang, int], sizes: Mapping[Gang, int]) -> tuple[BrokenGang, ...]:
    """The gangs that have several pods, those that lose most first. `lost`: how many pods each loses."""
    found = [BrokenGang(gang, evicted, sizes[gang]) for gang, evicted in lost.items()]
    return tuple(sorted([each for each in found if each.pods > 1], key=lambda each: (-each.evicted, each.gang)))


class GangSizes:
    """How many pods each gang has, kept up to date, so that an answer about a few pods does not look at all of them.

    Which labels make gangs, and whether owners do, is up to profiles, so a pod counts for each gang that it may have.
    """

    def __init__(self, inventory: Inventory) -> None:
        """Changes must be reported to `observe` from the first on, once the inventory has applied them."""
        self._inventory = inventory
        self._labels: tuple[str, ...] = ()
        self._sizes = Counter[Gang]()

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """One object has changed."""
        for each, step in ((old, -1), (new, 1)):
            if isinstance(each, Pod):
                self._count(each, step)

    def by_labels(self, labels: Iterable[str]) -> Mapping[Gang, int]:
        """The sizes, if these labels make gangs too. Other labels than before are counted in all pods."""
        wanted = tuple(sorted(set(labels)))
        if wanted != self._labels:
            self._labels = wanted
            self._sizes.clear()
            for pod in self._inventory.pods.values():
                self._count(pod, 1)
        return self._sizes

    def _count(self, pod: Pod, step: int) -> None:
        if not pod.is_held or is_leaving(pod):
            return
        for gang in self._candidates(pod):
            self._sizes[gang] += step
            if not self._sizes[gang]:
                del self._sizes[gang]

    def _candidates(self, pod: Pod) -> Iterator[Gang]:
        own = gang_of(pod)
        if own is not None:
            yield own
            return
        for label in self._labels:
            gang = gang_of(pod, (label,))
            if gang is not None:
                yield gang
        if pod.owner is not None:
            yield Gang(pod.owner.kind, pod.meta.namespace, pod.owner.name, pod.owner.uid)
