"""The rule that a device has from reactions, and why: the rule's own annotation holds all that has to outlast us.

Reactions go by the slices and by these annotations, never by what a process has seen before. So a restart changes
nothing, and one leader goes on where another one stopped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from webhook.api.meta import format_time, parse_time
from webhook.api.rules import DESCRIPTION, EVICT, REASONS, DeviceSelector, DeviceTaintRule
from webhook.api.taints import NO_SCHEDULE, DeviceTaint
from webhook.inventory.pools import Pools
from webhook.inventory.targets import DeviceId, number_of, numbered
from webhook.policy.limits import REACTION_KEY, ReactionLevel, level_of_rule, reaction_rule_name, written_by_reaction
from webhook.policy.match import TextSet
from webhook.policy.model import Reaction

REASONS_MAX: Final = 16
"""Reasons that are noted on a rule; a device rarely has two."""
RETURNS_MAX: Final = 6
"""Returns of a taint that are counted; after these no quiet time grows further."""
_DESCRIPTION_BYTES: Final = 1024  # N-10


class ReasonId(NamedTuple):
    """A reaction by its name, and the key of a taint that it goes by. The value may change."""

    reaction: str
    key: str


class ReactionReason(msgspec.Struct, frozen=True):
    """Why a device has its rule. Times are UTC, in full seconds.

    `since` is when the taint was first seen. `clear` is since when it has been gone although its pool is published in
    full; None while it is there, or while nothing is known of it. `returns` is how often it came back before it had
    been gone for long enough, at most RETURNS_MAX.
    """

    id: ReasonId
    value: str
    since: datetime
    clear: datetime | None = None
    returns: int = 0

    @property
    def text(self) -> str:
        """For people."""
        taint = f"{self.id.key}={self.value}" if self.value else self.id.key
        return taint if self.id.reaction == self.id.key else f"{self.id.reaction} ({taint})"


class ReactionRule(msgspec.Struct, frozen=True):
    """The DeviceTaintRule that a device has from reactions; it selects that device and nothing else.

    `reasons` are in the order of their ids.
    """

    address: DeviceId
    level: ReactionLevel
    reasons: tuple[ReactionReason, ...]
    number: int = 1
    """Of its name: more than 1 if rules that are being deleted held the names before."""

    @property
    def name(self) -> str:
        """The same for the same device, whatever the reasons are."""
        return numbered(reaction_rule_name(self.address), self.number)

    @property
    def selector(self) -> DeviceSelector:
        """Driver, pool and device, always all three."""
        return DeviceSelector(*self.address)

    @property
    def taint(self) -> DeviceTaint:
        """Without a time."""
        return DeviceTaint(REACTION_KEY, "", self.level.effect)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The reasons for us and for people, and what asks our worker to evict."""
        found = {REASONS: _encoded(self), DESCRIPTION: _described(self.reasons)}
        return found | ({EVICT: "true"} if self.level is ReactionLevel.EMPTY else {})

    def is_stored_as(self, rule: DeviceTaintRule) -> bool:
        """Return whether the stored rule of this name needs no write.

        A rule that `/mutate` softened is what it should be: written again it would be softened again.
        """
        annotations, wanted = rule.meta.annotations, self.annotations
        softened = self._is_softened_in(rule)
        taint = DeviceTaint(REACTION_KEY, "", NO_SCHEDULE) if softened else self.taint
        return (
            rule.selector == self.selector
            and structs.replace(rule.taint, time_added=None, extras=None) == taint
            and annotations.get(EVICT) == ("true" if softened else wanted.get(EVICT))
            and all(annotations.get(name) == wanted[name] for name in (REASONS, DESCRIPTION))
        )

    def has_surplus_in(self, rule: DeviceTaintRule) -> bool:
        """Return whether the stored rule of this name has what it should not have, and what others may have added.

        Server-side apply would leave that alone.
        """
        selector = rule.selector or DeviceSelector()
        names = DeviceSelector(selector.driver, selector.pool, selector.device)
        evicts = EVICT in rule.meta.annotations and not self._is_softened_in(rule)
        return selector != names or bool(rule.taint.value) or (evicts and EVICT not in self.annotations)

    def _is_softened_in(self, rule: DeviceTaintRule) -> bool:
        return self.level is ReactionLevel.EXECUTE and rule.softened


def noted_on(rule: DeviceTaintRule) -> ReactionRule | None:
    """Read a rule of a reaction with what it says of itself; None for rules that no reaction would have written.

    What it does is read from the rule. Where the annotation cannot be read, or is about another device, the rule counts
    as one without reasons.
    """
    written, text = written_by_reaction(rule), rule.meta.annotations.get(REASONS)
    if written is None or text is None:
        return None
    address, number = written
    about, reasons = _decoded(text)
    level = ReactionLevel.EXECUTE if rule.softened else level_of_rule(rule)
    return ReactionRule(address, level, reasons if about == address else (), number)


def is_named_for(rule: DeviceTaintRule) -> bool:
    """Return whether a rule has the name that goes with its reasons: one of a reaction, as it is or edited by hand."""
    about, _ = _decoded(rule.meta.annotations.get(REASONS, ""))
    return about is not None and number_of(rule.meta.name, reaction_rule_name(about)) > 0


# --- as text --------------------------------------------------------------------------------------


class _WrittenReason(msgspec.Struct, omit_defaults=True):
    reaction: str
    key: str
    since: str
    value: str = ""
    clear: str = ""
    returns: int = 0


class _WrittenRule(msgspec.Struct, omit_defaults=True):
    """The annotation. A device's name has no slash, nor has a driver's; a pool's may."""

    device: str
    effect: str
    reasons: list[_WrittenReason]
    evict: bool = False


def _encoded(rule: ReactionRule) -> str:
    reasons = [
        _WrittenReason(
            *(each.id.reaction, each.id.key, format_time(each.since), each.value),
            "" if each.clear is None else format_time(each.clear),
            each.returns,
        )
        for each in _bounded(rule.reasons)
    ]
    written = _WrittenRule(str(rule.address), rule.level.effect, reasons, rule.level is ReactionLevel.EMPTY)
    return msgspec.json.encode(written).decode()


def _bounded(reasons: Iterable[ReactionReason]) -> list[ReactionReason]:
    """Return the reasons in the order of their ids; of too many, those that are still there, and then the oldest."""
    kept = sorted(reasons, key=lambda each: (each.clear is not None, each.since, each.id))[:REASONS_MAX]
    return sorted(kept, key=lambda each: each.id)


def _described(reasons: Iterable[ReactionReason]) -> str:
    text = "Degraded: " + ", ".join(each.text for each in _bounded(reasons))
    return text.encode()[:_DESCRIPTION_BYTES].decode(errors="ignore")


def _decoded(text: str) -> tuple[DeviceId | None, tuple[ReactionReason, ...]]:
    """Decode the device that the annotation is about, and the reasons; None and no reason if it cannot be read."""
    try:
        written = msgspec.json.decode(text, type=_WrittenRule)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # half surrogates are no UTF-8
        return None, ()
    driver, _, rest = written.device.partition("/")
    pool, _, device = rest.rpartition("/")
    reasons = [_read(each) for each in written.reasons]
    if not (driver and pool and device) or None in reasons:
        return None, ()
    return DeviceId(driver, pool, device), tuple([each for each in reasons if each is not None])


def _read(written: _WrittenReason) -> ReactionReason | None:
    since, clear = parse_time(written.since), parse_time(written.clear)
    if since is None or (clear is None and written.clear):
        return None
    returns = min(max(written.returns, 0), RETURNS_MAX)
    return ReactionReason(ReasonId(written.reaction, written.key), written.value, since, clear, returns)


# --- signals --------------------------------------------------------------------------------------


class Signal(NamedTuple):
    """A taint that is there now. `since` is when this process first saw it, UTC: its timeAdded may say anything.

    `lasted` are seconds since then, by a clock that no one sets.
    """

    since: datetime
    value: str
    lasted: float

    @property
    def second(self) -> datetime:
        """The full second in which that was."""
        return self.since.replace(microsecond=0)


Signals: TypeAlias = Mapping[DeviceId, Mapping[ReasonId, Signal]]


class _Taint(NamedTuple):
    """What makes a taint the same one: its timeAdded does not."""

    key: str
    value: str
    effect: str


class SignalMatcher:
    """The taints that one reaction goes by, on devices of its driver."""

    def __init__(self, reaction: Reaction) -> None:
        self.name = reaction.name
        self._effect = reaction.signal_effect
        self._keys = TextSet((reaction.key,))
        self._values = TextSet(("*",) if reaction.value is None else (reaction.value,))

    def goes_by(self, key: str, value: str) -> bool:
        """Return whether it looks for taints of this key and value."""
        return self._keys.holds(key) and self._values.holds(value)

    def matches(self, taint: DeviceTaint) -> bool:
        """Return whether it looks for this taint. An effect that is not known acts as None but is not taken for it."""
        return taint.effect == self._effect and self.goes_by(taint.key, taint.value)


class FirstSights:
    """When each taint that a reaction goes by was first seen; kept while slices show it with that value and effect."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """Ask `seconds`, which only go forward, how long taints have lasted."""
        self._seconds = seconds
        self._known: dict[DeviceId, Mapping[_Taint, tuple[datetime, float]]] = {}

    def signals_in(self, pools: Pools, reactions: Iterable[Reaction], now: datetime) -> Signals:
        """Return the taints on published devices that the reactions go by. A new one begins now.

        Of several taints of one key on a device the one that was seen first counts. A device that only slices of an
        older generation show is not forgotten: its pool is being published again.
        """
        found, seconds = _taints_in(pools, reactions), self._seconds()
        away = [
            device
            for device in self._known.keys() - found.keys()
            if (pool := pools.get((device.driver, device.pool))) is not None and device.device not in pool.devices
        ]
        known = {device: self._known[device] for device in shown_in(pools, away)}
        for device, signals in found.items():
            before = self._known.get(device, {})
            known[device] = {
                taint: before.get(taint, (now, seconds)) for taints in signals.values() for taint in taints
            }
        self._known = known
        return {
            device: {
                id_: _signal_of(min(taints, key=lambda each: (seen[each][1], each.value)), seen, seconds)
                for id_, taints in signals.items()
            }
            for device, signals in found.items()
            for seen in [known[device]]
        }


def _signal_of(taint: _Taint, seen: Mapping[_Taint, tuple[datetime, float]], seconds: float) -> Signal:
    since, first = seen[taint]
    return Signal(since, taint.value, seconds - first)


def shown_in(pools: Pools, devices: Iterable[DeviceId]) -> set[DeviceId]:
    """Return those that slices of their pools list, also slices of a generation that is being replaced."""
    asked = set(devices)
    found: set[DeviceId] = set()
    for driver, name in {(each.driver, each.pool) for each in asked}:
        pool = pools.get((driver, name))
        for value in () if pool is None else pool.own:
            found.update([DeviceId(driver, name, device.name) for device in value.devices])
    return found & asked


def _taints_in(pools: Pools, reactions: Iterable[Reaction]) -> Mapping[DeviceId, Mapping[ReasonId, Sequence[_Taint]]]:
    """Return what the reactions go by. A taint for an unlisted device is for none, and never for its pool."""
    matchers: dict[str, list[SignalMatcher]] = defaultdict(list)
    for reaction in reactions:
        matchers[reaction.driver].append(SignalMatcher(reaction))
    found: dict[DeviceId, Mapping[ReasonId, Sequence[_Taint]]] = {}
    for driver, mine in matchers.items():
        for (_, name), pool in pools.selected(driver, None):
            if not pool.tainted:
                continue
            for device, taints in pool.devices.items():
                signals = _signals_of(taints, mine) if taints else {}
                if signals and device and name:
                    found[DeviceId(driver, name, device)] = signals
    return found


def _signals_of(
    taints: Iterable[DeviceTaint], matchers: Iterable[SignalMatcher]
) -> Mapping[ReasonId, Sequence[_Taint]]:
    signals: dict[ReasonId, list[_Taint]] = defaultdict(list)
    for matcher in matchers:
        for taint in taints:
            if matcher.matches(taint):
                signals[ReasonId(matcher.name, taint.key)].append(_Taint(taint.key, taint.value, taint.effect))
    return signals
