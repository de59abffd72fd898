"""The gangs that a taint would break: how many of their pods it evicts, of how many."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from webhook.eviction.profiles import Profiles, classes_of
from webhook.inventory.gangs import gang_in
from webhook.inventory.preview import PodOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.pods import Pod
    from webhook.inventory.gangs import Gang
    from webhook.inventory.preview import Preview
    from webhook.inventory.state import Inventory
    from webhook.policy.model import EvictionProfile


class BrokenGang(NamedTuple):
    """A gang of which pods are evicted. `pods`: all of its pods that run, evicted or not."""

    gang: Gang
    evicted: int
    pods: int


class Gangs:
    """The gangs of an inventory, as the profiles of a policy define them."""

    def __init__(self, inventory: Inventory, profiles: Iterable[EvictionProfile]) -> None:
        self._inventory = inventory
        self._profiles = Profiles(tuple(profiles))
        self._sizes: Counter[Gang] | None = None

    def broken_by(self, preview: Preview) -> tuple[BrokenGang, ...]:
        """The gangs of evicted pods that have several pods, those that lose most first."""
        evicted = [row.pod for row in preview.pods if row.outcome is PodOutcome.EVICTED and row.pod is not None]
        lost = self._count(evicted)
        if not lost:
            return ()
        found = [BrokenGang(gang, count, max(self._size_of(gang), count)) for gang, count in lost.items()]
        return tuple(sorted([each for each in found if each.pods > 1], key=lambda each: (-each.evicted, each.gang)))

    def _size_of(self, gang: Gang) -> int:
        if self._sizes is None:
            pods = [pod for pod in self._inventory.pods.values() if not (pod.deleting or pod.finished)]
            self._sizes = self._count(pods)
        return self._sizes[gang]

    def _count(self, pods: Iterable[Pod]) -> Counter[Gang]:
        return Counter([gang for gang in map(self._gang_of, pods) if gang is not None])

    def _gang_of(self, pod: Pod) -> Gang | None:
        """By the first profile that matches; the labels of namespaces are not read here, so none matches by them."""
        classes = classes_of(self._inventory, pod) if self._profiles.ask_for_classes else ()
        settings = self._profiles.of(pod, None, classes).settings
        return gang_in(self._inventory, pod, settings.gang_labels, by_owner=settings.gang_by_owner)
