"""Places that pods take in a limit: pods of one unit take one place together. No I/O, no clock."""

from __future__ import annotations


class Places:
    """Pods, by uid, and the place that each takes; several pods may share one."""

    __slots__ = ("_alone", "_place_of", "_shared")

    def __init__(self) -> None:
        self._place_of: dict[str, str] = {}
        self._alone = 0
        """How many pods have a place of their own, which is their uid."""
        self._shared: dict[str, int] = {}
        """How many pods share each of the other places."""

    def __len__(self) -> int:
        """Number of places taken."""
        return self._alone + len(self._shared)

    @property
    def pods(self) -> int:
        """Number of pods that take them."""
        return len(self._place_of)

    def __contains__(self, uid: object) -> bool:
        return uid in self._place_of

    def __bool__(self) -> bool:
        return bool(self._place_of)

    def place_of(self, uid: str) -> str:
        """The place of a pod that takes one."""
        return self._place_of[uid]

    def has(self, place: str) -> bool:
        """Whether any pod takes this place."""
        return place in self._shared or self._place_of.get(place) == place

    def add(self, uid: str, place: str) -> bool:
        """A pod takes a place; returns false, and changes nothing, if it has one already."""
        if uid in self._place_of:
            return False
        self._place_of[uid] = place
        if place == uid:
            self._alone += 1
        else:
            self._shared[place] = self._shared.get(place, 0) + 1
        return True

    def move(self, uid: str, place: str) -> str:
        """A pod that takes a place takes this one; returns the place that it took before."""
        before = self._place_of[uid]
        if before != place:
            self.discard(uid)
            self.add(uid, place)
        return before

    def discard(self, uid: str) -> bool:
        """A pod takes no place any longer; returns whether it had one."""
        place = self._place_of.pop(uid, None)
        if place is None:
            return False
        if place == uid:
            self._alone -= 1
            return True
        self._shared[place] -= 1
        if not self._shared[place]:
            del self._shared[place]
        return True
