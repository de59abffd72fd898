"""Pods that are evicted because of others: a PodGroup of mode `all` is disrupted as a whole. No I/O, no clock.

Source: scheduling.k8s.io/v1beta1 DisruptionMode, "all children can only be disrupted together".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.api.pod_groups import ALL

if TYPE_CHECKING:
    from webhook.api.pods import Pod
    from webhook.inventory.evictions import Eviction
    from webhook.inventory.state import Inventory


class Companions:
    """The pods of such groups that a taint evicts, and what follows for the others."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._own: dict[str, dict[str, Eviction]] = {}
        """Evictions of pods, by uid, that a taint evicts itself; by `namespace/name` of the group."""
        self.to_replan: set[str] = set()
        """Pods, by `namespace/name`, for which something has changed because of another pod."""

    def goes_with_all(self, pod: Pod) -> bool:
        """Whether the pod is disrupted only together with all others of its group."""
        group = self._inventory.pod_groups.get(_group_of(pod)) if pod.pod_group else None
        return group is not None and group.disruption_mode == ALL

    def eviction_of(self, pod: Pod, own: Eviction | None) -> Eviction | None:
        """When and why a pod goes; `own`: because of its own claims. A pod without a node does not go for others."""
        if not pod.pod_group:
            return own
        group = _group_of(pod)
        if not self.goes_with_all(pod):
            self._set(group, pod.meta.uid, None)
            return own
        self._set(group, pod.meta.uid, own)
        return own if own is not None or not pod.node_name else self._first(group)

    def forget(self, pod: Pod) -> None:
        """The pod no longer exists."""
        if pod.pod_group:
            self._set(_group_of(pod), pod.meta.uid, None)

    def _set(self, group: str, uid: str, own: Eviction | None) -> None:
        before = self._first(group)
        known = self._own.setdefault(group, {})
        if own is None:
            known.pop(uid, None)
        else:
            known[uid] = own
        if not known:
            del self._own[group]
        if self._first(group) != before:
            self.to_replan.update(self._inventory.members_of(group))

    def _first(self, group: str) -> Eviction | None:
        """The eviction of the pod of a group that is due first."""
        return min(self._own.get(group, {}).values(), key=lambda eviction: eviction.due, default=None)


def _group_of(pod: Pod) -> str:
    return f"{pod.meta.namespace}/{pod.pod_group}"
