"""What the worker needs of the cluster, in this room's words; the room `cluster` fills it. Answers, never errors."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from webhook.api.pods import Pod
    from webhook.api.rules import Condition, DeviceTaintRule


class PodRef(NamedTuple):
    """One pod, and none of its namesakes."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Disruption(NamedTuple):
    """Pod condition DisruptionTarget, as it is set right before a DELETE of ours."""

    reason: str
    message: str


class EvictionResult(StrEnum):
    """What became of a request to evict."""

    EVICTED = "evicted"
    GONE = "gone"
    """It was not there any more, or another pod of its name is."""
    BLOCKED = "blocked"
    """By a disruption budget."""
    FAILED = "failed"
    """Refused, or not answered."""


class EvictionOutcome(NamedTuple):
    """The result, what the server said, and how long it wants to be left alone."""

    result: EvictionResult
    text: str = ""
    retry_after_seconds: float = 0.0
    unsure: bool = False
    """Nobody knows whether it was done all the same."""


class WriteFailure(NamedTuple):
    """A write to a rule that was not carried out."""

    message: str
    """What the server or the client said."""


class EvictionEvent(NamedTuple):
    """An Event: about a pod, or a rule (by name and uid)."""

    about: PodRef | DeviceTaintRule
    reason: str
    action: str
    text: str
    warning: bool = False


class ClusterWriter(Protocol):
    """Everything that the worker does to the cluster."""

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:
        """Returns once the pod may be asked for at once: what is decided then is not out of date when it is done.

        No if it need not be any more: what was done before, `unsure` whether it was, has been done.
        """
        ...

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        """Asks the Eviction API for this very pod."""
        ...

    async def delete(self, pod: PodRef, grace_period_seconds: int | None, disruption: Disruption) -> EvictionOutcome:
        """Deletes this very pod, after saying so in its conditions."""
        ...

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        """Makes these all of our conditions on this very rule; None if that went well, or if the rule is gone."""
        ...

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:
        """Sets the effect to None, unless the rule has changed meanwhile; None if that went well."""
        ...

    async def delete_rule(self, rule: DeviceTaintRule) -> WriteFailure | None:
        """Deletes it, likewise."""
        ...

    async def write_event(self, event: EvictionEvent) -> None:
        """Writes an Event, if it can."""
        ...


class PodBudgets(Protocol):
    """Which pods have a disruption budget."""

    def known(self, pod: Pod) -> bool | None:
        """Whether one selects the pod; None if `covers` has to ask for that."""
        ...

    async def covers(self, pod: Pod) -> bool:
        """Whether one selects the pod; no, where that cannot be told."""
        ...


class NamespaceHolds(Protocol):
    """What annotations of namespaces say."""

    def hold_of(self, namespace: str) -> str | None:
        """The text of `/hold`, if it has one."""
        ...


class Ceiling(NamedTuple):
    """The most that a rule may hit: what somebody confirmed, or what the policy lets pass. None is no limit."""

    pods: int | None = None
    namespaces: int | None = None
    confirmed: bool = True
    code_problem: str = ""
    """Why the code that the rule carries does not count, if it carries one."""

    def exceeded_by(self, pods: int, namespaces: int) -> str:
        """What is above it, in words; empty if nothing is."""
        if self.pods is not None and pods > self.pods:
            return f"hits {pods} pods, {self._most(self.pods)}"
        if self.namespaces is not None and namespaces > self.namespaces:
            return f"hits pods in {namespaces} namespaces, {self._most(self.namespaces)}"
        return ""

    def _most(self, number: int) -> str:
        if self.confirmed:
            return f"at most {number} were confirmed"
        why = f"its code does not count: {self.code_problem}" if self.code_problem else "nothing confirmed"
        return f"the limit is {number} and {why}"


class Clock(Protocol):
    """Both sorts of time."""

    def now(self) -> datetime:
        """Wall-clock time in UTC, for what the API says."""
        ...

    def seconds(self) -> float:
        """Seconds that only go forward, for waits and rates."""
        ...
