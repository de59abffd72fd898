"""Previews in view of what belongs together: what our worker would evict or leave, and the gangs that are broken."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from webhook.eviction.followed_pods import ProfiledPods
from webhook.inventory.gangs import broken_gangs, count_gangs
from webhook.inventory.preview import PodOutcome
from webhook.inventory.worker_preview import as_our_worker

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from webhook.inventory.gangs import BrokenGang, Gang
    from webhook.inventory.preview import Preview
    from webhook.inventory.state import Inventory
    from webhook.policy.model import EvictionProfile


class Gangs:
    """The gangs of an inventory, as the profiles of a policy define them; labels of namespaces are not read here."""

    def __init__(self, inventory: Inventory, profiles: Iterable[EvictionProfile]) -> None:
        self._inventory = inventory
        self._pods = ProfiledPods(inventory, profiles)

    def as_carried_out(self, preview: Preview) -> Preview:
        """The preview with what our worker leaves alone, and evicts besides, if it is the one that evicts."""
        return as_our_worker(self._inventory, preview, self._pods.exemption_of)

    def broken_by(self, preview: Preview) -> tuple[BrokenGang, ...]:
        """The gangs of evicted pods that have several pods, those that lose most first."""
        evicted = [row.pod for row in preview.pods if row.outcome is PodOutcome.EVICTED and row.pod is not None]
        lost = count_gangs(evicted, self._pods.gang_of)
        return broken_gangs(lost, self._sizes) if lost else ()

    @cached_property
    def _sizes(self) -> Counter[Gang]:
        return count_gangs(self._inventory.pods.values(), self._pods.gang_of)
