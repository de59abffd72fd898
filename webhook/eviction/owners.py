"""The unavailable pods of each owner, which `perOwnerUnavailable` limits. No I/O, no clock; all by uid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.eviction.freed import OwnerFreed, ReplacementPending

if TYPE_CHECKING:
    from webhook.eviction.freed import Freed


class Owners:
    """Counts pods by their owner. Evicted pods count as unavailable until they are replaced."""

    def __init__(self, freed: set[Freed]) -> None:
        """`freed` receives the owners that may have room again, and the replacements to wait for."""
        self._freed = freed
        self._pods: dict[str, set[str]] = {}
        self._unavailable: dict[str, set[str]] = {}
        self._replacements: dict[str, dict[str, None]] = {}
        """Evicted pods that are gone, in the order in which they went."""
        self._replaced_for: dict[str, str] = {}
        """The owner of each of them."""

    # --- queries ---------------------------------------------------------------------------------

    def unavailable(self, owner: str) -> int:
        """Number of unavailable pods of an owner: not ready, being deleted, or evicted and not replaced yet."""
        return len(self._unavailable.get(owner, ()))

    def is_unavailable(self, owner: str, uid: str) -> bool:
        """Whether a pod counts as unavailable already, so that its eviction does not raise the count."""
        return uid in self._unavailable.get(owner, ())

    def pod_count(self, owner: str) -> int:
        """Number of pods of an owner that use devices, plus evicted ones that are not replaced yet."""
        return len(self._pods.get(owner, ())) + len(self._replacements.get(owner, ()))

    # --- changes ---------------------------------------------------------------------------------

    def observe(self, owner: str, uid: str, *, missing: bool) -> bool:
        """A pod of the owner exists; `missing`: it is not ready, or on its way out. Returns whether it is news."""
        pods = self._pods.get(owner)
        if pods is None:
            pods = self._pods[owner] = set()
        if uid not in pods:
            pods.add(uid)
            pending = self._replacements.get(owner)
            if pending:
                self.expire_replacement(next(iter(pending)))
            elif self._unavailable.get(owner):
                self._freed.add(OwnerFreed(owner))  # a share of more pods may be more
        if not missing:
            if owner in self._unavailable:
                self.mark_available(owner, uid)
            return False
        if self.is_unavailable(owner, uid):
            return False
        self.mark_unavailable(owner, uid)
        return True

    def remove(self, owner: str, uid: str) -> None:
        """The pod no longer exists, or has another owner."""
        pods = self._pods.get(owner)
        if pods is not None:
            pods.discard(uid)
            if not pods:
                del self._pods[owner]

    def await_replacement(self, owner: str, uid: str) -> None:
        """A removed pod was evicted by us: it counts as unavailable until a new pod appears, or the wait is over."""
        self._replacements.setdefault(owner, {})[uid] = None
        self._replaced_for[uid] = owner
        self._freed.add(ReplacementPending(uid))

    def expire_replacement(self, uid: str) -> None:
        """The wait for the replacement of this pod is over."""
        owner = self._replaced_for.pop(uid, None)
        if owner is None:
            return
        pending = self._replacements[owner]
        del pending[uid]
        if not pending:
            del self._replacements[owner]
        self.mark_available(owner, uid)

    def mark_unavailable(self, owner: str, uid: str) -> None:
        """The pod is missing from here on."""
        self._unavailable.setdefault(owner, set()).add(uid)

    def mark_available(self, owner: str, uid: str) -> None:
        """The pod is missing no longer."""
        missing = self._unavailable.get(owner)
        if missing is not None and uid in missing:
            missing.discard(uid)
            if not missing:
                del self._unavailable[owner]
            self._freed.add(OwnerFreed(owner))
