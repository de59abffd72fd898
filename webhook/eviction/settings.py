"""Settings of this room."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.eviction.modes import InTree, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of the worker that are fixed while it runs; those that may change are in the policy."""

    mode: Mode = Mode.OBSERVE
    in_tree: InTree | None = None
    """Whether the in-tree controller is running; None: detect it."""
    delete_expired: bool = False
    """Rules past their /expires-at are deleted rather than set to None."""
    workers: int = 32
    """Concurrent requests to evict. Rates and limits decide how often they are made."""
    planners: int = 4
    """Work-queue items handled concurrently; only writes of conditions take time."""
    condition_seconds: float = 10.0
    """Minimum time between two writes of a rule's conditions, as in the in-tree controller (E-37)."""
    settle_seconds: float = 5.0
    """How long after a rule's generation was first observed the condition may become False: by then every allocation
    that was being made meanwhile is known (the KEP has 5 to 10 s)."""
    replacement_seconds: float = 5.0
    """How long an evicted pod counts as unavailable while its owner has not created a replacement."""
    gang_replacement_seconds: float = 60.0
    """Likewise for a pod of a gang: its controller may wait until all of its pods are gone, and a Job controller waits
    10 s after the first failure."""
    undeleted_seconds: float = 60.0
    """How long after its eviction a pod without a deletionTimestamp is evicted again: the answer was not true."""
    sweep_seconds: float = 30.0
    """How often limits are checked for room that went unnoticed."""
    announce_after_seconds: float = 5.0
    """A pod that is due sooner gets no Event EvictionScheduled; its first Event is that it was evicted."""
    events_most: int = 1000
    """Events that may be queued; further ones are dropped."""
    stop_seconds: float = 10.0
    """How long evictions in flight may still take at shutdown: for as long as one request may take."""
    last_conditions_seconds: float = 5.0
    """How long the last conditions are written after that; then the lease is released."""
    flush_seconds: float = 5.0
    """How long queued Events are still written after that: a Pod has 30 s to stop, 5 s of which are the lease's."""
    report_seconds: float = 3600.0
    """Time between two log lines about taints that look forgotten."""
