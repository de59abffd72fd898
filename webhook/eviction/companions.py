"""Pods that are evicted because of others: a PodGroup of mode `all` is disrupted as a whole. No I/O, no clock.

`inventory.pod_groups` says which groups these are.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from webhook.inventory.pod_groups import goes_with_all, group_key, is_leaving, may_go_along

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from webhook.api.pods import Pod
    from webhook.inventory.evictions import Eviction
    from webhook.inventory.state import Inventory


_STALE_MOST: Final = 4
"""How many entries a heap may have for each pod."""


class _Causes:
    """The pods of one group, by uid, that a taint evicts itself, and which of them is due first."""

    __slots__ = ("_by_due", "_count", "_left", "evictions", "known")

    def __init__(self) -> None:
        self.evictions: dict[str, Eviction] = {}
        self._by_due: list[tuple[datetime, int, str, Eviction]] = []
        """A heap; it keeps an eviction that has changed until that is first of all."""
        self._count = 0
        self.known: tuple[Eviction | None, bool] = None, False
        """The first, and whether any was left, when others were last planned for it."""
        self._left: dict[str, str] = {}
        """Pods that were not on their way out when last looked at; their `namespace/name` by uid."""

    @property
    def first(self) -> Eviction | None:
        """The eviction that is due first."""
        while self._by_due:
            _, _, uid, eviction = self._by_due[0]
            if self.evictions.get(uid) is eviction:
                return eviction
            heappop(self._by_due)
        return None

    def set(self, pod: Pod, eviction: Eviction) -> None:
        """A taint evicts the pod."""
        uid = pod.meta.uid
        if self.evictions.get(uid) == eviction:
            return
        self._left[uid] = f"{pod.meta.namespace}/{pod.meta.name}"
        self.evictions[uid] = eviction
        self._count += 1
        heappush(self._by_due, (eviction.due, self._count, uid, eviction))
        if len(self._by_due) > _STALE_MOST * len(self.evictions):
            self._by_due = sorted([each for each in self._by_due if self.evictions.get(each[2]) is each[3]])

    def discard(self, uid: str) -> None:
        """No taint evicts the pod, or it no longer exists."""
        if self.evictions.pop(uid, None) is not None:
            self._left.pop(uid, None)

    def any_left(self, pods: Mapping[str, Pod]) -> bool:
        """Whether one of them is still to be evicted. Those on their way out stay so, and are not looked at again."""
        while self._left:
            uid, key = next(iter(self._left.items()))
            pod = pods.get(key)
            if pod is not None and pod.meta.uid == uid and not is_leaving(pod):
                return True
            del self._left[uid]
        return False


class Companions:
    """The pods of such groups that a taint evicts, and what follows for the others."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._causes: dict[str, _Causes] = {}
        """By `namespace/name` of the group."""
        self.changed: set[str] = set()
        """Groups, by `namespace/name`, whose other pods are to be planned again, because of a pod that was planned."""

    def goes_with_all(self, pod: Pod) -> bool:
        """Whether the pod is disrupted only together with all others of its group."""
        return goes_with_all(self._inventory, pod)

    def eviction_of(self, pod: Pod, own: Eviction | None, *, stays: bool, begun: bool) -> Eviction | None:
        """When and why a pod goes; `own`: because of its own claims.

        `stays`: it is left alone all the same, so it takes no other pod along. `begun`: another one of those that it
        goes together with was evicted.
        """
        if not pod.pod_group:
            return own
        group = group_key(pod)
        if not self.goes_with_all(pod):
            self._set(group, pod, None)
            return own
        self._set(group, pod, None if stays else own)
        causes = self._causes.get(group)
        if causes is None or (own is not None and not own.waits) or not may_go_along(pod):
            return own
        return causes.first if begun or causes.any_left(self._inventory.pods) else own

    def forget(self, pod: Pod) -> None:
        """The pod no longer exists."""
        if pod.pod_group:
            self._set(group_key(pod), pod, None)

    def others_of(self, groups: Iterable[str]) -> list[str]:
        """The pods, by `namespace/name`, of these groups that may go along: those that no taint evicts itself."""
        pods, found = self._inventory.pods, list[str]()
        for group in groups:
            causes = self._causes.get(group)
            themselves = causes.evictions if causes is not None else {}
            found += [key for key in self._inventory.members_of(group) if pods[key].meta.uid not in themselves]
        return found

    def _set(self, group: str, pod: Pod, own: Eviction | None) -> None:
        uid, causes = pod.meta.uid, self._causes.get(group)
        if causes is None:
            if own is None:
                return
            causes = self._causes[group] = _Causes()
        if own is None:
            causes.discard(uid)
        else:
            causes.set(pod, own)
        if not causes.evictions:
            del self._causes[group]
        known, causes.known = causes.known, (causes.first, causes.any_left(self._inventory.pods))
        if causes.known != known:
            self.changed.add(group)
