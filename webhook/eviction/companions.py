"""Pods that are evicted because of others: a PodGroup of mode `all` is disrupted as a whole. No I/O, no clock.

`inventory.pod_groups` says which groups these are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.inventory.pod_groups import goes_with_all, group_key, is_leaving, may_go_along

if TYPE_CHECKING:
    from webhook.api.pods import Pod
    from webhook.inventory.evictions import Eviction
    from webhook.inventory.state import Inventory


class _Cause(NamedTuple):
    """A pod, `namespace/name`, that a taint evicts itself."""

    pod: str
    eviction: Eviction


class Companions:
    """The pods of such groups that a taint evicts, and what follows for the others."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._causes: dict[str, dict[str, _Cause]] = {}
        """Pods, by uid, that a taint evicts itself; by `namespace/name` of the group."""
        self._along: dict[str, set[str]] = {}
        """Pods, by uid, that go because of those; likewise."""
        self.to_replan: set[str] = set()
        """Pods, by `namespace/name`, for which something has changed because of another pod."""

    def goes_with_all(self, pod: Pod) -> bool:
        """Whether the pod is disrupted only together with all others of its group."""
        return goes_with_all(self._inventory, pod)

    def eviction_of(self, pod: Pod, own: Eviction | None, *, held: bool) -> Eviction | None:
        """When and why a pod goes; `own`: because of its own claims.

        `held`: its own eviction would free no device, so it takes no other pod along.
        """
        if not pod.pod_group:
            return own
        group = group_key(pod)
        if not self.goes_with_all(pod):
            self._set(group, pod, None)
            return own
        self._set(group, pod, None if held else own)
        return own if own is not None or not may_go_along(pod) else self._along_with_others(group, pod.meta.uid)

    def forget(self, pod: Pod) -> None:
        """The pod no longer exists."""
        if pod.pod_group:
            self._along.get(group_key(pod), set()).discard(pod.meta.uid)
            self._set(group_key(pod), pod, None)

    def _along_with_others(self, group: str, uid: str) -> Eviction | None:
        """Pods on their way out take along those that went because of them already, but not their replacements."""
        first, along = self._first(group), self._along.get(group, set())
        if first is None or (uid not in along and not self._is_any_left(group)):
            return None
        self._along.setdefault(group, along).add(uid)
        return first

    def _is_any_left(self, group: str) -> bool:
        """Whether a pod that a taint evicts itself is still to be evicted."""
        return any(self._is_left(uid, cause) for uid, cause in self._causes.get(group, {}).items())

    def _is_left(self, uid: str, cause: _Cause) -> bool:
        pod = self._inventory.pods.get(cause.pod)
        return pod is not None and pod.meta.uid == uid and not is_leaving(pod)

    def _set(self, group: str, pod: Pod, own: Eviction | None) -> None:
        uid, before = pod.meta.uid, self._first(group)
        causes = self._causes.setdefault(group, {})
        begins = own is not None and uid not in causes and not self._is_any_left(group)
        if own is None:
            causes.pop(uid, None)
        else:
            causes[uid] = _Cause(f"{pod.meta.namespace}/{pod.meta.name}", own)
        if not causes:
            del self._causes[group]
            self._along.pop(group, None)
        if begins or self._first(group) != before:
            self.to_replan.update(self._inventory.members_of(group))

    def _first(self, group: str) -> Eviction | None:
        """The eviction of the pod of a group that is due first."""
        evictions = [cause.eviction for cause in self._causes.get(group, {}).values()]
        return min(evictions, key=lambda eviction: eviction.due, default=None)
