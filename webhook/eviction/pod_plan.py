"""What a plan says of pods and rules: who goes with whom and when, why not now, and what exempts a pod. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from webhook.api.pods import DAEMON_SET, Pod
from webhook.eviction.ports import Limit, PodRef
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import LAST, Eviction, RuleRef, Without, later
from webhook.policy.model import EvictionProfile
from webhook.policy.windows import local_text, state_of

_BY_ORDER = attrgetter("order")


def stuck_at(pod: Pod, settings: EvictionProfile) -> datetime | None:
    """Return when a terminating pod counts as stuck: its grace period and `stuckAfter` are over; None for others."""
    return later(pod.grace_ends, settings.stuck_after_seconds) if pod.deleting and pod.grace_ends is not None else None


def is_stuck(pod: Pod, settings: EvictionProfile, now: datetime) -> bool:
    """Tell whether no limit counts a pod any more, because it is terminating for too long."""
    at = stuck_at(pod, settings)
    return at is not None and at <= now


class StepReason(StrEnum):
    """Why the pod is not evicted now."""

    TAKEN = "its eviction is under way"
    DAEMON = "pods of DaemonSets are skipped"
    MIRROR = "mirror pods cannot be evicted"
    EARLY = "it is not due yet"
    HELD = "it is held"
    COMPLETING = "it is left to complete"
    WINDOW = "no window is open"
    SKIPPED = "its profile has action: skip"
    FAILED = "its eviction is retried after an error"
    GANG = "others that it goes together with cannot go yet"
    GROUP = "its PodGroup keeps its claims reserved"
    REPUBLISHED = "the pool of its device is not published in full"
    RETURNS = "pods of its claim come back to the same device"
    STOPPED = "its rules hit more than they may"
    BREAKER = "too many devices of the driver were tainted just now"
    PAUSED = "evictions are paused"
    LIMITED = "a limit is reached"


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Why a pod does not go now. `until`: when that ends by itself, None if nothing says when.

    `other`: the pod of its unit that it waits for, and `cause` what that one waits for. `because`: the text of the hold
    on either, the driver whose breaker tripped, why rules are stopped, or the PodGroup or claim because of which it
    stays.
    """

    reason: StepReason
    until: datetime | None = None
    other: str = ""
    cause: StepReason | None = None
    because: str = ""
    limit: Limit | None = None
    """The limit that is reached; `Room.until` sets it."""


class Going(msgspec.Struct, frozen=True, gc=False):
    """A pod that goes, now or later. `due` includes the grace of its profile."""

    key: str
    pod: Pod
    eviction: Eviction
    profile: Profile
    due: datetime
    gang: str = ""
    along: bool = False
    """Whether no taint evicts it itself."""

    @property
    def uid(self) -> str:
        """Identifies it."""
        return self.pod.meta.uid

    @property
    def ref(self) -> PodRef:
        """Identifies it in requests."""
        return PodRef(self.pod.meta.namespace, self.pod.meta.name, self.uid)


class Unit(msgspec.Struct, frozen=True, gc=False):
    """Pods that go together, or not at all, by name. `due`: when the last of them is.

    `key`: its gang, else one of its claims, else the uid of its only pod.
    """

    members: tuple[Going, ...]
    key: str
    due: datetime
    order: tuple[bool, int, int, datetime, str]


class RuleFigures(NamedTuple):
    """What a rule hits: pods, and their namespaces, without those that a PodGroup holds. `stopped`: why none goes."""

    pods: int
    namespaces: int
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """The result of a pass. Every pod of the view's `hit` that does not leave is in `going` or in `waits`, or both."""

    chunks: list[tuple[Unit, ...]] = field(default_factory=list)
    """Units that may go now, in sorted pieces; the line has them from then on."""
    units: dict[str, Unit] = field(default_factory=dict)
    """The unit of each pod that goes, now or later, by uid; without those that go alone."""
    waits: dict[str, Wait] = field(default_factory=dict)
    """What pods wait for, by uid."""
    going: dict[str, Going] = field(default_factory=dict)
    """All pods that go, now or later, and that were not taken yet, by uid."""
    terminating: tuple[Going, ...] = ()
    """Pods that a taint evicts and that are terminating."""
    hit: dict[str, Eviction] = field(default_factory=dict)
    """Why each pod is in the plan, by `namespace/name`; also by reasons that were taken out."""
    rules: dict[str, RuleFigures] = field(default_factory=dict)
    wake_at: datetime | None = None
    """When the plan changes by itself."""

    def rules_of(self, key: str, uid: str) -> set[RuleRef]:
        """Return the rules that a pod counts for, also as one that goes along; none if it leaves."""
        going, hit = self.going.get(uid), self.hit.get(key)
        if hit is None or (going is None and uid not in self.waits):
            return set()
        return {*hit.rules, *(going.eviction.rules if going is not None else ())}

    def members_of(self, each: Going) -> tuple[Going, ...]:
        """Return the pods of the unit of a pod."""
        unit = self.units.get(each.uid)
        return (each,) if unit is None else unit.members

    def due_of(self, each: Going) -> datetime:
        """Return when the last pod of its unit is due."""
        unit = self.units.get(each.uid)
        return each.due if unit is None else unit.due

    @property
    def eligible(self) -> Iterator[Unit]:
        """Yields the units that may go now, the first first."""
        return heapq.merge(*self.chunks, key=_BY_ORDER)


def wait_without(eviction: Eviction, without: Without, rules: Mapping[str, RuleFigures]) -> Wait | None:
    """Say why reasons of an eviction are taken out, None if none is: a breaker, before a rule that is stopped."""
    tripped = [each.driver for each in eviction.reasons if not each.rule and each.driver in without.drivers]
    if tripped:
        return Wait(StepReason.BREAKER, because=tripped[0])
    stopped = [each.rule_uid for each in eviction.reasons if each.rule_uid in without.rules]
    return Wait(StepReason.STOPPED, because=rules[stopped[0]].stopped) if stopped else None


def wait_of_others(waits: Sequence[tuple[Wait, str]]) -> Wait:
    """Return what a pod waits for that could go by itself: all of these, by the longest; closed windows first."""
    closed = [each for each in waits if each[0].reason is StepReason.WINDOW]
    wait, other = max(closed or waits, key=lambda each: each[0].until or LAST)
    ends = [each.until for each, _ in waits]
    until = None if None in ends else max([end for end in ends if end is not None])
    because = wait.because if wait.reason is StepReason.HELD else ""
    return Wait(StepReason.WINDOW if closed else StepReason.GANG, until, other, wait.reason, because)


def waves_of(members: Iterable[Going]) -> Iterator[list[Going]]:
    """Yield the members of a gang by what waits for each other, by the window of the first that is due."""
    wave: list[Going] = []
    for each in sorted(members, key=lambda each: (each.due, each.key)):
        if wave and each.due - wave[0].due > timedelta(seconds=wave[0].profile.settings.gang_window_seconds):
            yield wave
            wave = []
        wave.append(each)
    if wave:
        yield wave


def exemption(pod: Pod, profile: EvictionProfile) -> StepReason | None:
    """Say why a pod of this kind is never evicted, or None."""
    if pod.mirror:
        return StepReason.MIRROR
    if pod.owner is not None and pod.owner.kind == DAEMON_SET and not profile.evict_daemon_sets:
        return StepReason.DAEMON
    return StepReason.SKIPPED if profile.skips else None


_WORDS: Final = {
    StepReason.EARLY: "not due yet",
    StepReason.HELD: "on hold",
    StepReason.COMPLETING: "left to complete",
    StepReason.FAILED: "retried after an error",
}


def state_text(cause: StepReason) -> str:
    """Return the state of a pod that another one waits for, as in `ml/train-0, which is on hold`."""
    return _WORDS[cause]


def together_with(pod: str) -> str:
    """Return the other pod, by `namespace/name`, as the subject of a sentence about it."""
    return f"{pod}, which it goes together with"


def opening_text(members: Iterable[Going], now: datetime) -> str:
    """Say when the windows of a unit's profiles that are closed are open next; of several, the last to open.

    As local time, with the zone; empty if all are open.
    """
    profiles = {each.profile.position: each.profile.settings for each in members}
    states = [state_of(profile.windows, now) for profile in profiles.values()]
    last = max([(state.until, state.zone) for state in states if not state.open and state.until], default=None)
    return "" if last is None else f"{local_text(*last)} ({last[1]})"
