"""The gangs that evictions break: how many of their pods go, of how many."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from webhook.api.pods import Pod
from webhook.inventory.gangs import Gang, gang_of
from webhook.inventory.pod_groups import is_leaving
from webhook.inventory.steps import in_steps, unchecked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from webhook.inventory.state import Inventory, InventoryObject
    from webhook.inventory.steps import Check

    GangOf = Callable[[Pod], Gang | None]


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
