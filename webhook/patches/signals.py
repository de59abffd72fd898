"""Taints in slices that reactions of the policy go by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from webhook.inventory.published import DeviceId
from webhook.inventory.steps import in_steps, unchecked
from webhook.patches.reasons import ReasonId
from webhook.policy.patterns import TextSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.taints import DeviceTaint
    from webhook.inventory.pools import Pools
    from webhook.inventory.steps import Check
    from webhook.policy.model import Reaction

_LAST: Final = datetime.max.replace(tzinfo=UTC)
_POOLS_BETWEEN_CHECKS: Final = 10
"""Of a hundred devices each: as many as other loops look at."""


class Signal(NamedTuple):
    """A taint that is there now. `since` is its timeAdded, UTC; None if the slice does not say."""

    since: datetime | None
    value: str


Signals: TypeAlias = Mapping[DeviceId, Mapping[ReasonId, Signal]]


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


def signals_in(pools: Pools, reactions: Iterable[Reaction], check: Check = unchecked) -> Signals:
    """The taints that the reactions go by, on published devices.

    A taint for a device that no slice lists is for no device at all, and never for its pool. Of several taints of one
    key on a device the one that was added first counts; one without a time comes last. `check` is called now and then,
    and may raise.
    """
    matchers: dict[str, list[SignalMatcher]] = defaultdict(list)
    for reaction in reactions:
        matchers[reaction.driver].append(SignalMatcher(reaction))
    found: dict[DeviceId, dict[ReasonId, Signal]] = {}
    for driver, mine in matchers.items():
        for (_, name), pool in in_steps(pools.selected(driver, None), check, _POOLS_BETWEEN_CHECKS):
            if not pool.tainted:
                continue
            for device, taints in pool.devices.items():
                signals = _signals_of(taints, mine) if taints else {}
                if signals and device and name:
                    found[DeviceId(driver, name, device)] = signals
    return found


def _signals_of(taints: Iterable[DeviceTaint], matchers: Iterable[SignalMatcher]) -> dict[ReasonId, Signal]:
    signals: dict[ReasonId, Signal] = {}
    for matcher in matchers:
        for taint in taints:
            if matcher.matches(taint):
                id_, signal = ReasonId(matcher.name, taint.key), Signal(taint.time_added, taint.value)
                signals[id_] = min(signals.get(id_, signal), signal, key=_earlier)
    return signals


def _earlier(signal: Signal) -> tuple[datetime, str]:
    return signal.since or _LAST, signal.value
