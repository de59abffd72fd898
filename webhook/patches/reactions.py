"""Which devices have rules from the policy's reactions: slices, rules and the time in, the rules that should be out.

One pass looks at everything, so events may come in any order and any process may do the next pass. What has to outlast
a process is noted on the rules themselves (`reasons`); when taints were first seen is known to the process alone.

- A rule begins when a taint has been seen for as long as the policy says, whatever its timeAdded.
- A reason ends when its taint has been gone for its quiet time while the pool was published in full. A pool that is
  not says nothing: its rules stay, and the quiet time begins again when it is. A device that no slice shows has none.
- A taint that returns within the quiet time doubles the next one.
- Above `maxDevices` a reaction neither adds a rule nor tightens one. What it did before stays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.api.rules import ACTING_ANNOTATIONS, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Pools, ShareUse
from webhook.inventory.targets import DeviceId
from webhook.patches.reasons import (
    RETURNS_MAX,
    FirstSights,
    ReactionReason,
    ReactionRule,
    ReasonId,
    Signal,
    SignalMatcher,
    Signals,
    is_named_for,
    noted_on,
    shown_in,
)
from webhook.policy.limits import ReactionLevel, level_of, limit_on_devices
from webhook.policy.model import Reaction, Share

NAMED_MAX: Final = 10
"""Devices that a text names; of more it says how many."""
ABOVE_MAX_DEVICES: Final = "AboveMaxDevices"
WITHIN_MAX_DEVICES: Final = "WithinMaxDevices"


class ReactionOutcome(msgspec.Struct, frozen=True):
    """One reaction after a pass. Counts are of reasons; a device usually has one.

    `active`: rules whose taint is there; `quiet`: whose taint is gone, but not for long enough; `unpublished`: whose
    pool is not published in full, so that nothing is known; `waiting`: taints that have not lasted long enough;
    `held_back`: what `maxDevices` prevents. `devices` are those of the driver that have rules of any reaction, and
    `limit` is `maxDevices` as a number; None is no limit.
    """

    name: str
    driver: str
    active: int
    quiet: int
    unpublished: int
    waiting: int
    held_back: int
    devices: int
    limit: int | None
    message: str

    @property
    def reason(self) -> str:
        """Whether `maxDevices` holds anything back, in one word: of a condition or an Event."""
        return ABOVE_MAX_DEVICES if self.held_back else WITHIN_MAX_DEVICES


class OutcomeCounts:
    """The figures of one reaction while a pass runs."""

    def __init__(self) -> None:
        self.active = 0
        self.quiet = 0
        self.unpublished = 0
        self.waiting = 0
        self.held_back: set[DeviceId] = set()
        """Devices that the limit keeps from getting a rule, or a stricter one."""

    def outcome(self, reaction: Reaction, devices: int, limit: int | None) -> ReactionOutcome:
        """Return the figures, with a sentence about them."""
        return ReactionOutcome(
            *(reaction.name, reaction.driver, self.active, self.quiet, self.unpublished, self.waiting),
            *(len(self.held_back), devices, limit, self._message(reaction, devices, limit)),
        )

    def _message(self, reaction: Reaction, devices: int, limit: int | None) -> str:
        text = (
            f"{self.active} active, {self.quiet} quiet, {self.waiting} waiting, {self.unpublished} not published; "
            f"{devices} devices of {reaction.driver} have rules of reactions"
        )
        if not self.held_back:
            return text
        named = sorted(self.held_back)[:NAMED_MAX]
        more = len(self.held_back) - len(named)
        names = ", ".join(f"{address.pool}/{address.device}" for address in named)
        given = reaction.max_devices
        share = f"{given.percent:g}%, which is {limit}" if isinstance(given, Share) else str(limit)
        return (
            f"{text}; maxDevices is {share}, so nothing is done for {len(self.held_back)}: {names}"
            f"{f' and {more} more' if more else ''}"
        )


LEAST_QUIET_SECONDS: Final = 60.0
"""A taint is gone for at least that long before it is over, whatever the policy says about its beginning."""
MOST_QUIET_SECONDS: Final = 3600.0
"""Returns make no quiet time longer than this; only a longer `for` does."""
_KNOWN_FOR: Final = timedelta(minutes=10)
"""Devices in slices that are younger do not count for shares: the guard's window, unless the policy has another one."""
_SECOND: Final = timedelta(seconds=1)


class ReactionWrite(NamedTuple):
    """A rule to create or to change.

    `taint` is that of the rule, with the time that it has already, or now. `surplus`: the stored rule has something
    that server-side apply would leave alone; a patch that sets the rest to null takes it away. So it does where the
    rule is `foreign`, of another author: `retired` annotations, finalizers and owners go as well.
    """

    rule: ReactionRule
    taint: DeviceTaint
    creates: bool
    surplus: bool = False
    foreign: bool = False
    retired: tuple[str, ...] = ()


class ReactionPass(msgspec.Struct, frozen=True):
    """What came of one pass.

    `rules` are all rules that should be there, by name; `write` what has to be written for that, what creates first.
    `delete` are names. Rules of pools that are not complete may be in none of them: they stay as they are. `outcomes`
    are in the order of the policy. After `next_seconds` another pass may come to another result without any event;
    None: it will not.
    """

    rules: tuple[ReactionRule, ...]
    write: tuple[ReactionWrite, ...]
    delete: tuple[str, ...]
    outcomes: tuple[ReactionOutcome, ...]
    next_seconds: float | None


def react(
    pools: Pools,
    rules: Iterable[DeviceTaintRule],
    reactions: Sequence[Reaction],
    now: datetime,
    sights: FirstSights,
) -> ReactionPass:
    """Return the rules of reactions as they should be at this time; bring `sights` up to it.

    `rules` may be all rules of the cluster. They have to include what the caller has written and its watch has not
    shown yet; otherwise more than `maxDevices` may come of several passes.
    """
    named = {rule.meta.name: rule for rule in rules}
    noted = [each for rule in named.values() if (each := noted_on(rule)) is not None]
    # One that stays comes first, and a rule for a device that no slice shows neither counts nor is kept.
    noted.sort(key=lambda each: (each.address, named[each.name].deleting, each.number))
    shown = shown_in(pools, [each.address for each in noted])
    known = {each.address: each for each in reversed(noted) if each.address in shown}
    passing = _Pass(pools, reactions, sights.signals_in(pools, reactions, now), now, known)
    for each in reversed(known.values()):
        passing.go_on(each)
    passing.begin()
    wanted = [_placed(rule, named) for rule in passing.rules.values()]
    kept = {*[rule.name for rule in wanted], *[each.name for each in passing.left_alone]}
    claimed = {each.name for each in noted}
    claimed |= {name for name, rule in named.items() if name not in claimed and is_named_for(rule)}
    return ReactionPass(
        tuple(sorted(wanted, key=lambda rule: rule.name)),
        tuple(sorted(_writes(wanted, named, now), key=lambda each: (not each.creates, each.rule.name))),
        tuple(sorted([name for name in claimed - kept if not named[name].deleting])),
        tuple([passing.outcome_of(reaction) for reaction in reactions]),
        passing.next_seconds,
    )


def _placed(rule: ReactionRule, named: Mapping[str, DeviceTaintRule]) -> ReactionRule:
    """Return the rule under a name that no rule holds which is being deleted: that may last for ever."""
    while rule.name in named and named[rule.name].deleting:
        rule = structs.replace(rule, number=rule.number + 1)
    return rule


def _writes(
    wanted: Iterable[ReactionRule], named: Mapping[str, DeviceTaintRule], now: datetime
) -> Iterator[ReactionWrite]:
    """Yield what has to be written. Nothing that changes what it does stays of another author's rule of that name."""
    for rule in wanted:
        stored = named.get(rule.name)
        if stored is None:
            yield ReactionWrite(rule, _timed(rule, None, now), creates=True)
        elif noted_on(stored) is None:
            retired = tuple([name for name in ACTING_ANNOTATIONS if name in stored.meta.annotations])
            taint, surplus = _timed(rule, None, now), rule.has_surplus_in(stored)
            yield ReactionWrite(rule, taint, creates=False, surplus=surplus, foreign=True, retired=retired)
        elif not rule.is_stored_as(stored):
            taint = _timed(rule, stored.taint.time_added, now)
            yield ReactionWrite(rule, taint, creates=False, surplus=rule.has_surplus_in(stored))


def _timed(rule: ReactionRule, added: datetime | None, now: datetime) -> DeviceTaint:
    return structs.replace(rule.taint, time_added=added or now.replace(microsecond=0))


def quiet_seconds(reaction: Reaction, returns: int) -> float:
    """Return how long a taint has to be gone until it is over, if it came back that often before.

    As long as it had to last, but at least a minute; doubled with each return, but not beyond an hour unless it is
    longer than that to begin with.
    """
    least = max(reaction.for_seconds, LEAST_QUIET_SECONDS)
    return min(least * float(2**returns), max(least, MOST_QUIET_SECONDS))


class _Pass:
    """One pass while it runs: first the devices that have rules, then those that are to get one."""

    def __init__(
        self,
        pools: Pools,
        reactions: Sequence[Reaction],
        signals: Signals,
        now: datetime,
        noted: Mapping[DeviceId, ReactionRule],
    ) -> None:
        self._pools = pools
        self._reactions = {reaction.name: reaction for reaction in reactions}
        self._matchers = {reaction.name: SignalMatcher(reaction) for reaction in reactions}
        self._signals = signals
        self._now = now
        self._noted = noted
        self._devices: dict[str, int] = Counter([address.driver for address in self._noted])
        """Devices with rules of reactions by driver: those that were there, whatever becomes of them, and new ones."""
        self._uses = {
            driver: ShareUse(pools, driver, [each.pool for each in noted if each.driver == driver])
            for driver in {reaction.driver for reaction in reactions}
        }
        self._limits = {
            each.name: limit_on_devices(each.max_devices, pools.counted_devices(each.driver, now - _KNOWN_FOR))
            for each in reactions
        }
        self._counts: dict[str, OutcomeCounts] = defaultdict(OutcomeCounts)
        self.rules: dict[DeviceId, ReactionRule] = {}
        self.left_alone: list[ReactionRule] = []
        """Rules without a reason that can be read, while nothing is known of their devices."""
        self.next_seconds: float | None = None

    def go_on(self, noted: ReactionRule) -> None:
        """Judge a rule that is there: what is left of its reasons, and what has been added to them."""
        address = noted.address
        signals = self._signals.get(address, {})
        pool = self._pools.get((address.driver, address.pool))
        alive = pool is not None and pool.complete
        kept = [each for reason in noted.reasons if (each := self._kept(reason, address, signals, alive=alive))]
        due = self._due(signals, {reason.id for reason in kept})
        levels = [self._kept_level(reason, noted, signals.get(reason.id)) for reason in kept]
        rule = self._settled(address, kept, max(levels, default=None), due)
        if rule is not None:
            self.rules[address] = structs.replace(rule, number=noted.number)
        elif not noted.reasons and not alive:
            self.left_alone.append(noted)

    def _kept_level(self, reason: ReactionReason, noted: ReactionRule, signal: Signal | None) -> ReactionLevel:
        """Return what a noted reason asks for: no more than the rule does, unless its taint is there and lasted.

        What the policy now wants, and its limit forbids, leaves the rule as it is.
        """
        wanted = self._level(reason, noted.address, noted.level) or noted.level
        if wanted <= noted.level or signal is None:
            return min(wanted, noted.level)
        overdue = self._overdue(reason.id, signal)
        if overdue < 0:
            self._again_in(-overdue)
        return wanted if overdue >= 0 else noted.level

    def begin(self) -> None:
        """Make rules for devices that have none, those whose taints have lasted longest first."""
        fresh = [
            (max(self._overdue(reason.id, signals[reason.id]) for reason in due), address, due)
            for address, signals in self._signals.items()
            if address not in self._noted and (due := self._due(signals, set()))
        ]
        for _, address, due in sorted(fresh, key=lambda each: (-each[0], each[1])):
            rule = self._settled(address, [], None, due)
            if rule is not None:
                self._devices[address.driver] += 1
                self._uses[address.driver].add(address.pool)
                self.rules[address] = rule

    def outcome_of(self, reaction: Reaction) -> ReactionOutcome:
        """Return what one reaction has come to."""
        devices = self._devices.get(reaction.driver, 0)
        return self._counts[reaction.name].outcome(reaction, devices, self._limits[reaction.name])

    # --- reasons ----------------------------------------------------------------------------------

    def _kept(
        self, reason: ReactionReason, address: DeviceId, signals: Mapping[ReasonId, Signal], *, alive: bool
    ) -> ReactionReason | None:
        """Return the reason as it is now; None if it is over."""
        reaction = self._reactions.get(reason.id.reaction)
        if (
            reaction is None
            or reaction.driver != address.driver
            or not self._matchers[reaction.name].goes_by(reason.id.key, reason.value)
        ):
            return None  # the policy no longer says so
        quiet = quiet_seconds(reaction, reason.returns)
        signal = signals.get(reason.id)
        counts = self._counts[reaction.name]
        if signal is not None:
            counts.active += 1
            came_back = reason.clear is not None
            if not came_back and signal.value == reason.value:
                return reason
            returns = min(reason.returns + came_back, RETURNS_MAX)
            return ReactionReason(reason.id, signal.value, signal.second, None, returns)
        if not alive:
            counts.unpublished += 1
            return structs.replace(reason, clear=None)
        this_second = self._now.replace(microsecond=0)
        begun = this_second if this_second == self._now else this_second + _SECOND
        clear = begun if reason.clear is None else min(reason.clear, begun)
        left = quiet - (self._now - clear).total_seconds()
        if left <= 0:
            return None
        self._again_in(left)
        counts.quiet += 1
        return structs.replace(reason, clear=clear)

    def _due(self, signals: Mapping[ReasonId, Signal], known: set[ReasonId]) -> list[ReactionReason]:
        """Return new reasons: taints that have lasted long enough."""
        due = []
        for id_, signal in signals.items():
            if id_ in known:
                continue
            overdue = self._overdue(id_, signal)
            if overdue < 0:
                self._counts[id_.reaction].waiting += 1
                self._again_in(-overdue)
            else:
                due.append(ReactionReason(id_, signal.value, signal.second))
        return due

    def _overdue(self, id_: ReasonId, signal: Signal) -> float:
        """Return seconds since the taint has lasted long enough; below zero before."""
        return signal.lasted - self._reactions[id_.reaction].for_seconds

    def _again_in(self, seconds: float) -> None:
        self.next_seconds = seconds if self.next_seconds is None else min(self.next_seconds, seconds)

    # --- limits -----------------------------------------------------------------------------------

    def _settled(
        self, address: DeviceId, kept: list[ReactionReason], level: ReactionLevel | None, due: list[ReactionReason]
    ) -> ReactionRule | None:
        """Return the device's rule; None without reasons. `level` is what the reasons that it had come to.

        A new reason that would need more than its reaction may do is left out.
        """
        allowed = [(reason, each) for reason in due if (each := self._level(reason, address, level)) is not None]
        for reason, _ in allowed:
            self._counts[reason.id.reaction].active += 1
        levels = [each for _, each in allowed] + ([] if level is None else [level])
        reasons = sorted([*kept, *[reason for reason, _ in allowed]], key=lambda each: each.id)
        return ReactionRule(address, max(levels), tuple(reasons)) if levels else None

    def _level(self, reason: ReactionReason, address: DeviceId, reached: ReactionLevel | None) -> ReactionLevel | None:
        """Return what the reason's reaction does to the device; None if its limit forbids it.

        What the device's rule does already, `reached`, needs no room within the limit.
        """
        reaction = self._reactions[reason.id.reaction]
        wanted, limit = level_of(reaction), self._limits[reaction.name]
        fresh, use = address not in self._noted, self._uses[reaction.driver]
        devices = self._devices.get(reaction.driver, 0) + fresh
        if isinstance(reaction.max_devices, Share):
            devices = use.devices + (fresh and use.takes(address.pool))
        if limit is None or devices <= limit or (reached is not None and wanted <= reached):
            return wanted
        self._counts[reaction.name].held_back.add(address)
        return None
