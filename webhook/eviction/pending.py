"""What has changed and is not planned yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.eviction.pod_plan import PodPlan
    from webhook.flowcontrol.timeslice import TimeSlice


class PendingSet:
    """Keys of claims or pods, each once; the key added last is taken first.

    Keys that are added together often refer to objects that are close in memory, so taking them together is faster.
    """

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[str]) -> None:
        """Adds keys; a key that is in the set already keeps its place."""
        self._keys.update(dict.fromkeys(keys))

    def take(self, most: int) -> list[str]:
        """Removes at most `most` keys and returns them."""
        return [self._keys.popitem()[0] for _ in range(min(most, len(self._keys)))]


class Backlog:
    """Everything that waits to be planned. The planner fills and empties it; others ask only whether it is empty."""

    def __init__(self, timeslice: TimeSlice) -> None:
        self.timeslice = timeslice
        """Shared by planning and the tasks that handle the work queue, so that both together take one slice."""
        self.claims = PendingSet()
        """Claims, by `namespace/name`, whose pods are to be planned again."""
        self.pods = PendingSet()
        """Pods, by `namespace/name`, that are to be planned again."""
        self.groups = PendingSet()
        """PodGroups, by `namespace/name`, of which pods go because of others: planned once all of those are."""
        self.to_enqueue = PendingSet()
        """Planned pods, by uid, that are to be put into a queue."""
        self.due: dict[str, PodPlan] = {}
        """Pods for the ready queue, by uid. Pushed once all are planned, so the first popped is the first of all."""
        self.unchecked: dict[str, None] = {}
        """Names of rules whose ceiling is to be checked."""

    @property
    def pod_count(self) -> int:
        """Roughly the number of pods left to plan; a pending claim or PodGroup counts as one."""
        return len(self.claims) + len(self.pods) + len(self.groups) + len(self.due) + len(self.to_enqueue)

    @property
    def open(self) -> bool:
        """Whether anything is left to plan."""
        return bool(self.claims or self.pods or self.groups or self.due or self.to_enqueue or self.unchecked)

    @property
    def behind(self) -> bool:
        """Whether a known change is not planned yet; until it is, no pod is evicted and no condition is written."""
        return self.open or self.timeslice.paused
