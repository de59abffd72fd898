"""What follows once a limit has room again, or may have: pods that wait for it are unparked, or looked at later."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from webhook.eviction.core import ItemKind, WorkItem
from webhook.eviction.ports import (
    EvictionFound,
    NamespaceLimit,
    OverallLimit,
    OwnerFreed,
    OwnerLimit,
    PodFreed,
    PodTerminating,
    ReplacementPending,
)
from webhook.eviction.rate_limiter import MINUTE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.eviction.core import Core
    from webhook.eviction.ports import BreakerLimit, BudgetLimit, Freed


class Room:
    """Unparks pods, and sets timers for limits that time will free. `wake` has the ready queue polled again."""

    def __init__(self, core: Core, wake: Callable[[], None]) -> None:
        self._core = core
        self._deps = core.deps
        self._wake = wake

    def follow(self) -> None:
        """Acts on all that the plans have freed."""
        freed = self._core.plans.freed
        while freed:
            self._follow(freed.pop())
        self._wake()

    def retry_budget(self, budget: BudgetLimit) -> None:
        """Unparks the next single pod and the next unit of each size that wait for a budget, or checks again later."""
        gate, now = self._core.gate, self._deps.clock.seconds()
        for limit in gate.limits_like(budget):
            self.retry_after(limit, gate.wait_seconds(limit, now))

    def retry_after(self, limit: BudgetLimit | BreakerLimit, seconds: float) -> None:
        """Unparks a pod that waits for this limit now, or checks again later."""
        if seconds > 0:
            self._core.queue.add_after(limit, seconds)
            return
        self._core.ready.unpark(limit)
        self._wake()

    def _follow(self, freed: Freed) -> None:
        profiles = range(len(self._deps.profiles().all))
        match freed:
            case PodFreed(namespace):
                for position in profiles:
                    self._core.ready.unpark(OverallLimit(position))
                    self._core.ready.unpark(NamespaceLimit(namespace, position))
            case OwnerFreed(owner):
                for position in profiles:
                    self._core.ready.unpark(OwnerLimit(owner, position))
            case ReplacementPending(uid, of_gang):
                settings = self._deps.settings
                seconds = settings.gang_replacement_seconds if of_gang else settings.replacement_seconds
                self._core.queue.add_after(WorkItem(ItemKind.REPLACEMENT, uid), seconds)
            case PodTerminating(key, uid):
                self._await_end(key, uid)
            case EvictionFound(key):
                self._count_foreign(key)
            case other:
                assert_never(other)

    def _await_end(self, key: str, uid: str) -> None:
        """A pod counts as stuck once its grace period and `stuckAfter` are over."""
        pod = self._deps.inventory.pods.get(key)
        if pod is None:
            return
        grace = 0.0 if pod.gone_by is None else (pod.gone_by - self._deps.clock.now()).total_seconds()
        seconds = grace + self._deps.profile_of(pod).settings.stuck_after_seconds
        self._core.queue.add_after(WorkItem(ItemKind.TERMINATING, f"{key}/{uid}"), seconds)

    def _count_foreign(self, key: str) -> None:
        """Counts an eviction of the last leader toward `maxPerMinute`, unless it is older than a minute for certain."""
        pod, now = self._deps.inventory.pods.get(key), self._deps.clock.now()
        if pod is None or (pod.gone_by is not None and (now - pod.gone_by).total_seconds() >= MINUTE_SECONDS):
            return
        self._core.limiter.count_foreign(self._deps.profile_of(pod), self._deps.clock.seconds())
