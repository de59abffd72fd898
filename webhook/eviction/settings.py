"""Settings of this room."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.eviction.modes import InTree, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How the worker works; what may change while it runs stands in the policy."""

    mode: Mode = Mode.OBSERVE
    in_tree: InTree | None = None
    """Whether the in-tree controller is at work; None: find out."""
    delete_expired: bool = False
    """Rules past their /expires-at are deleted rather than set to None."""
    workers: int = 32
    """Requests to evict at the same time; what they may do is for rates and limits to say."""
    planners: int = 4
    """Items of the queue looked at at the same time; only those wait that ask for budgets or write conditions."""
    condition_seconds: float = 10.0
    """Between two writes of a rule's conditions, as in the in-tree controller (E-37)."""
    settle_seconds: float = 5.0
    """How long after a rule's generation was first seen "nothing to do" may be said: by then whatever was being
    allocated meanwhile is known (the KEP has 5 to 10 s)."""
    blocked_seconds: float = 1.0
    """The least wait after a disruption budget said no."""
    replacement_seconds: float = 5.0
    """How long the place of an evicted pod counts as empty while no other pod of its owner has come."""
    announce_after_seconds: float = 5.0
    """Who is due sooner gets no Event of its own that it is planned: the next one tells that it went."""
    events_most: int = 1000
    """Events that wait to be written; more are dropped."""
    flush_seconds: float = 10.0
    """How long those that wait at the end are still written: a Pod has 30 s to end, and evictions come first."""
    report_seconds: float = 3600.0
    """Between two reports of what looks forgotten."""
