"""What limits count a pod under: its gang, and the owner at the top. No I/O, no clock."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING

from webhook.inventory.gangs import gang_in, root_owner

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.pods import Pod
    from webhook.eviction.profiles import Profile
    from webhook.inventory.state import Inventory


class Grouping:
    """Gangs and owners as text, which identifies them."""

    def __init__(self, inventory: Inventory, profile_of: Callable[[Pod], Profile]) -> None:
        self._inventory = inventory
        self._profile_of = profile_of

    def gang_of(self, pod: Pod, profile: Profile | None = None) -> str:
        """The gang of a pod, by its profile, which the caller may know already; empty if it has none."""
        settings = (profile or self._profile_of(pod)).settings
        if not (pod.pod_group or pod.gang or pod.labels or settings.gang_by_owner):
            return ""  # as for most pods
        gang = gang_in(self._inventory, pod, settings.gang_labels, by_owner=settings.gang_by_owner)
        return "" if gang is None else intern(f"{gang.kind} {gang.namespace}/{gang.name} {gang.key}")


def owner_of(pod: Pod) -> str:
    """The owner at the top, by uid or by name; empty for a pod without one."""
    if pod.owner is not None and not pod.labels:
        return intern(f"{pod.meta.namespace}/{pod.owner.uid}")  # as for most pods
    root = root_owner(pod)
    return "" if root is None else root.key
