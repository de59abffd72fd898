"""Which taints a toleration covers, for allocation and for eviction, and which devices a selector selects.

Source: `semantics.md` M-1 to M-5, E-6, E-9, E-10, K-4, K-5; KEP-5055, DeviceToleration.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from webhook.api.rules import DeviceSelector
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.taints import EQUAL, EXISTS, NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration

_NANOSECONDS: Final = 1_000_000_000
_HALF: Final = 1 << 63
_WHOLE: Final = 1 << 64
FOR_EVER: Final = -1
"""Instead of seconds: the taint is tolerated without end."""
LONG_AGO: Final = -_HALF
"""Instead of seconds: they end before timeAdded, whenever that is (E-10)."""


class Evictor(StrEnum):
    """Who carries out an eviction; the two read tolerations differently."""

    IN_TREE = "device-taint-eviction-controller"
    OURS = "device-taint-webhook"


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether the toleration covers the taint, seconds aside (M-1 to M-3).

    An empty effect or key covers all; an empty key with `Equal` means any key with that value.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator
    if operator in ("", EQUAL):
        return toleration.value == taint.value
    return operator == EXISTS


def acts(effect: str) -> bool:
    """Whether a taint with that effect does anything; unknown ones act as None (T-11)."""
    return effect in (NO_SCHEDULE, NO_EXECUTE)


def counts(toleration: DeviceToleration, evictor: Evictor, servers: ServerFacts) -> bool:
    """Whether the evictor looks at the toleration at all: older in-tree ones want it to name NoExecute (E-9)."""
    return toleration.effect == NO_EXECUTE or evictor is Evictor.OURS or bool(servers.empty_effect_protects)


def grace_seconds(
    tolerations: Iterable[DeviceToleration], taint: DeviceTaint, evictor: Evictor, servers: ServerFacts = UNKNOWN
) -> int:
    """How long after timeAdded a NoExecute taint lets a pod stay: whole seconds, FOR_EVER, LONG_AGO.

    Several tolerations that match: one without seconds wins, else the smallest; negative seconds are none. The
    in-tree controller counts nanoseconds in 64 bits (E-10).
    """
    smallest: int | None = None
    for toleration in tolerations:
        if not counts(toleration, evictor, servers):
            continue
        if not tolerates(toleration, taint):
            continue
        seconds = toleration.toleration_seconds
        if seconds is None:
            return FOR_EVER
        smallest = seconds if smallest is None else min(smallest, seconds)
    if smallest is None or smallest <= 0:
        return 0
    return _as_a_duration(smallest) if evictor is Evictor.IN_TREE else smallest


def _as_a_duration(seconds: int) -> int:
    """The duration as Go computes it: nanoseconds that wrap around at 64 bits, and may then be in the past."""
    nanoseconds = (seconds * _NANOSECONDS + _HALF) % _WHOLE - _HALF
    return nanoseconds // _NANOSECONDS if nanoseconds >= 0 else LONG_AGO


def selects(selector: DeviceSelector | None, driver: str, pool: str, device: str) -> bool:
    """Whether the names match, as eviction reads the selector: a missing one matches nothing (E-6).

    Class and CEL, which only narrow a selector down, are passed over. What an unknown field does is not known, so with
    one it is every device. So the answer may be too wide and is never too narrow.
    """
    if selector is None:
        return False
    if selector.unknown:
        return True
    return selector.driver in (None, driver) and selector.pool in (None, pool) and selector.device in (None, device)
