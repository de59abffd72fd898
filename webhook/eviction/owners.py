"""The unavailable pods of each owner, which `perOwnerUnavailable` limits. No I/O, no clock; all by uid or key.

Pods of one gang take one place together, and so do pods that are evicted as one unit: an owner of two gangs of eight
misses one of two as soon as one pod is missing, until all of that gang are back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.eviction.places import Places
from webhook.eviction.ports import OwnerFreed, ReplacementPending

if TYPE_CHECKING:
    from webhook.eviction.ports import Freed


class _Evicted(NamedTuple):
    """An evicted pod that is gone and not replaced."""

    owner: str
    gang: str


class Owners:
    """Counts pods by their owner. Evicted pods count as unavailable until they are replaced."""

    def __init__(self, freed: set[Freed]) -> None:
        """`freed` receives the owners that may have room again, and the replacements to wait for."""
        self._freed = freed
        self._pods: dict[str, Places] = {}
        """Pods that exist, and evicted ones that are not replaced."""
        self._unavailable: dict[str, Places] = {}
        self._replacements: dict[_Evicted, dict[str, None]] = {}
        """Evicted pods that are gone, in the order in which they went."""
        self._replaced_for: dict[str, _Evicted] = {}
        """What each of them was."""

    # --- queries ---------------------------------------------------------------------------------

    def unavailable(self, owner: str) -> int:
        """Places of an owner with a pod that is unavailable: not ready, being deleted, or evicted and not replaced."""
        return len(self._unavailable.get(owner, ()))

    def is_unavailable(self, owner: str, place: str) -> bool:
        """Whether a place counts as unavailable already, so that evicting from it does not raise the count."""
        known = self._unavailable.get(owner)
        return known is not None and known.has(place)

    def is_missing(self, owner: str, uid: str) -> bool:
        """Whether a pod is unavailable."""
        return uid in self._unavailable.get(owner, ())

    def place_count(self, owner: str) -> int:
        """Places of an owner: gangs and single pods that use devices, and evicted ones that are not replaced yet."""
        return len(self._pods.get(owner, ()))

    # --- changes ---------------------------------------------------------------------------------

    def observe(self, owner: str, uid: str, gang: str, *, missing: bool) -> None:
        """A pod of the owner exists; `missing`: it is not ready, or on its way out.

        `gang` identifies its gang, and is empty for a pod without one.
        """
        pods = self._pods.get(owner)
        if pods is None:
            pods = self._pods[owner] = Places()
        place = gang or uid
        if not pods.add(uid, place):
            self._move(owner, uid, place)
        else:
            pending = self._replacements.get(_Evicted(owner, gang))
            if pending:
                self.expire_replacement(next(iter(pending)))
            elif self._unavailable.get(owner):
                self._freed.add(OwnerFreed(owner))  # a share of more pods may be more
        (self.mark_unavailable(owner, uid, place) if missing else self.mark_available(owner, uid))

    def _move(self, owner: str, uid: str, place: str) -> None:
        """A pod belongs to another gang than before, or to none: its labels or the policy have changed."""
        before = self._pods[owner].move(uid, place)
        if before == place:
            return
        unavailable = self._unavailable.get(owner)
        if unavailable is not None and uid in unavailable and unavailable.place_of(uid) == before:
            unavailable.move(uid, place)
        self._freed.add(OwnerFreed(owner))

    def remove(self, owner: str, uid: str) -> None:
        """The pod no longer exists, or has another owner."""
        pods = self._pods.get(owner)
        if pods is not None and pods.discard(uid) and not pods:
            del self._pods[owner]

    def await_replacement(self, owner: str, uid: str, gang: str) -> None:
        """A pod is gone that was evicted by us: it counts as unavailable until a new pod appears, or the wait is over.

        A gang's pod is replaced by one of the same gang. Call it instead of `remove`.
        """
        evicted = _Evicted(owner, gang)
        self._replacements.setdefault(evicted, {})[uid] = None
        self._replaced_for[uid] = evicted
        self._freed.add(ReplacementPending(uid, of_gang=bool(gang)))

    def expire_replacement(self, uid: str) -> None:
        """The wait for the replacement of this pod is over."""
        evicted = self._replaced_for.pop(uid, None)
        if evicted is None:
            return
        pending = self._replacements[evicted]
        del pending[uid]
        if not pending:
            del self._replacements[evicted]
        self.remove(evicted.owner, uid)
        self.mark_available(evicted.owner, uid)

    def mark_unavailable(self, owner: str, uid: str, place: str) -> None:
        """The pod is missing from here on, in this place of its owner."""
        missing = self._unavailable.get(owner)
        if missing is None:
            missing = self._unavailable[owner] = Places()
        missing.add(uid, place)

    def mark_available(self, owner: str, uid: str) -> None:
        """The pod is missing no longer."""
        missing = self._unavailable.get(owner)
        if missing is not None and missing.discard(uid):
            if not missing:
                del self._unavailable[owner]
            self._freed.add(OwnerFreed(owner))
