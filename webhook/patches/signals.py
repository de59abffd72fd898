"""Taints in slices that reactions of the policy go by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from webhook.inventory.published import DeviceId
from webhook.inventory.steps import in_steps, unchecked
from webhook.patches.reasons import ReasonId
from webhook.policy.patterns import TextSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from webhook.api.taints import DeviceTaint
    from webhook.inventory.pools import Pools
    from webhook.inventory.steps import Check
    from webhook.policy.model import Reaction

_POOLS_BETWEEN_CHECKS: Final = 10
"""Of a hundred devices each: as many as other loops look at."""


class Signal(NamedTuple):
    """A taint that is there now. `since` is when this process first saw it, UTC: its timeAdded may say anything."""

    since: datetime
    value: str

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
        """Whether it looks for taints of this key and value."""
        return self._keys.holds(key) and self._values.holds(value)

    def matches(self, taint: DeviceTaint) -> bool:
        """Whether it looks for this taint. An effect that is not known acts as None but is not taken for it."""
        return taint.effect == self._effect and self.goes_by(taint.key, taint.value)


class FirstSights:
    """When each taint that a reaction goes by was first seen; kept while slices show it with that value and effect."""

    def __init__(self) -> None:
        self._known: dict[DeviceId, Mapping[_Taint, datetime]] = {}

    def signals_in(
        self, pools: Pools, reactions: Iterable[Reaction], now: datetime, check: Check = unchecked
    ) -> Signals:
        """The taints that the reactions go by, on published devices. One that was not there the last time begins now.

        Of several taints of one key on a device the one that was seen first counts. A device that only slices of an
        older generation show is not forgotten: its pool is being published again. `check` is called now and then, and
        may raise.
        """
        found = _taints_in(pools, reactions, check)
        away = [
            device
            for device in self._known.keys() - found.keys()
            if (pool := pools.get((device.driver, device.pool))) is not None and device.device not in pool.devices
        ]
        known = {device: self._known[device] for device in shown_in(pools, away, check)}
        for device, signals in in_steps(found.items(), check):
            before = self._known.get(device, {})
            known[device] = {taint: before.get(taint, now) for taints in signals.values() for taint in taints}
        self._known = known
        return {
            device: {
                id_: min(Signal(known[device][taint], taint.value) for taint in taints)
                for id_, taints in signals.items()
            }
            for device, signals in found.items()
        }


def shown_in(pools: Pools, devices: Iterable[DeviceId], check: Check = unchecked) -> set[DeviceId]:
    """Those that slices of their pools list, also slices of a generation that is being replaced."""
    asked = set(devices)
    found: set[DeviceId] = set()
    for driver, name in {(each.driver, each.pool) for each in asked}:
        pool = pools.get((driver, name))
        for value in in_steps(() if pool is None else pool.own, check):
            found.update([DeviceId(driver, name, device.name) for device in value.devices])
    return found & asked


def _taints_in(
    pools: Pools, reactions: Iterable[Reaction], check: Check
) -> Mapping[DeviceId, Mapping[ReasonId, Sequence[_Taint]]]:
    """What the reactions go by. A taint for a device that no slice lists is for no device, and never for its pool."""
    matchers: dict[str, list[SignalMatcher]] = defaultdict(list)
    for reaction in reactions:
        matchers[reaction.driver].append(SignalMatcher(reaction))
    found: dict[DeviceId, Mapping[ReasonId, Sequence[_Taint]]] = {}
    for driver, mine in matchers.items():
        for (_, name), pool in in_steps(pools.selected(driver, None), check, _POOLS_BETWEEN_CHECKS):
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
