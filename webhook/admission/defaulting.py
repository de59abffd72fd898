"""What `/mutate` sets: timeAdded, the time of an effect that changed, the operator of a toleration.

An API server does most of this itself while it decodes; these rules exist for files, for our own kind and for the
cases where we mean to differ. Doing it twice is doing it once. `semantics.md` D-1 to D-7; KEP-5055.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from webhook.api.claims import ResourceClaim, ResourceClaimTemplate
from webhook.api.meta import format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import EVICT, DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.api.taints import EQUAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from webhook.admission.context import AdmissionContext
    from webhook.admission.jsonpatch import Pointer
    from webhook.api.claims import DeviceRequest
    from webhook.api.field import JSON
    from webhook.api.slices import Device
    from webhook.api.taints import DeviceTaint, DeviceToleration

Edit = tuple["Pointer", "JSON"]
BACKDATED: Final = timedelta(seconds=60)
"""A timeAdded older than this was not set by the request that carries it."""


def edits_for(new: object, old: object | None, context: AdmissionContext) -> Iterator[Edit]:
    """What to set in an object that is created (`old` is None) or updated."""
    match new:
        case DeviceTaintRule():
            yield from _rule_edits(new, old if isinstance(old, DeviceTaintRule) else None, context.now)
        case ResourceSlice():
            yield from _slice_edits(new, old if isinstance(old, ResourceSlice) else None, context)
        case ResourceClaim():
            yield from _request_edits(("spec",), new.requests)
            for position, result in enumerate(new.allocation or ()):
                at: Pointer = ("status", "allocation", "devices", "results", position)
                yield from _toleration_edits(at, result.tolerations)
        case ResourceClaimTemplate():
            yield from _request_edits(("spec", "spec"), new.requests)
        case ResourceSlicePatch():
            stored = old.taints if isinstance(old, ResourceSlicePatch) else ()
            yield from _missing_times(("spec", "devices", "taints"), new.taints, stored, context.now)
        case _:
            pass


def _rule_edits(new: DeviceTaintRule, old: DeviceTaintRule | None, now: datetime) -> Iterator[Edit]:
    time = _rule_time(new, old, now)
    if time != new.taint.time_added:
        yield ("spec", "taint", "timeAdded"), format_time(time)


def _rule_time(new: DeviceTaintRule, old: DeviceTaintRule | None, now: datetime) -> datetime:
    """When the rule's taint, with its present effect, was added."""
    now = now.replace(microsecond=0)
    time = new.taint.time_added
    if old is None:
        if time is None:
            return now
        # An eviction that is asked for today must not find its tolerations already used up.
        return now if _evict(new) and now - time > BACKDATED else time
    if time is None:
        return _carried_time(new.taint, (old.taint,)) or now
    if time == old.taint.time_added:
        if new.taint.effect != old.taint.effect:
            return now  # D-4, D-5
        if _evict(new) and not _evict(old):
            return now
    return time


def _evict(rule: DeviceTaintRule) -> bool:
    return rule.meta.annotations.get(EVICT) == "true"


def _carried_time(taint: DeviceTaint, stored: Sequence[DeviceTaint]) -> datetime | None:
    """The time of the stored entry with the same key, value and effect (what drivers' helpers do, D-2)."""
    for entry in stored:
        if (entry.key, entry.value, entry.effect) == (taint.key, taint.value, taint.effect):
            return entry.time_added
    return None


def _missing_times(
    at: Pointer, taints: Sequence[DeviceTaint], stored: Sequence[DeviceTaint], now: datetime
) -> Iterator[Edit]:
    for position, taint in enumerate(taints):
        if taint.time_added is None:
            time = _carried_time(taint, stored) or now
            yield (*at, position, "timeAdded"), format_time(time)


def _slice_edits(new: ResourceSlice, old: ResourceSlice | None, context: AdmissionContext) -> Iterator[Edit]:
    before: dict[str, Device] | None = None
    for position, device in enumerate(new.devices):
        if not device.taints:
            continue
        if before is None:
            before = {stored.name: stored for stored in reversed(old.devices)} if old else {}
        known = before.get(device.name)
        stored = known.taints if known else ()
        at: Pointer = ("spec", "devices", position, *(("basic",) if device.basic else ()), "taints")
        yield from _missing_times(at, device.taints, stored, context.now)
        if context.bump_slice_time_added and stored:
            yield from _bumped_times(at, device.taints, stored, context.now)
    stored_beside = old.slice_taints if old else ()
    for position, entry in enumerate(new.slice_taints):
        same = tuple(other.taint for other in stored_beside if other.device == entry.device)
        if entry.taint.time_added is None:
            time = _carried_time(entry.taint, same) or context.now
            yield ("spec", "taints", position, "taint", "timeAdded"), format_time(time)


def _bumped_times(
    at: Pointer, taints: Sequence[DeviceTaint], stored: Sequence[DeviceTaint], now: datetime
) -> Iterator[Edit]:
    """D-4 for slices, which no API server does: the entry is the one with the same key and value."""
    for position, taint in enumerate(taints):
        same = [entry for entry in stored if (entry.key, entry.value) == (taint.key, taint.value)]
        if (
            len(same) == 1
            and same[0].effect != taint.effect
            and taint.time_added is not None
            and same[0].time_added == taint.time_added != now.replace(microsecond=0)
        ):
            yield (*at, position, "timeAdded"), format_time(now)


def _request_edits(spec: Pointer, requests: Sequence[DeviceRequest]) -> Iterator[Edit]:
    for position, request in enumerate(requests):
        at: Pointer = (*spec, "devices", "requests", position)
        if request.exactly is not None and request.exactly.tolerations:
            yield from _toleration_edits(at if request.flat else (*at, "exactly"), request.exactly.tolerations)
        for index, alternative in enumerate(request.first_available):
            if alternative.tolerations:
                yield from _toleration_edits((*at, "firstAvailable", index), alternative.tolerations)


def _toleration_edits(at: Pointer, tolerations: Sequence[DeviceToleration]) -> Iterator[Edit]:
    for position, toleration in enumerate(tolerations):
        if not toleration.operator:
            yield (*at, "tolerations", position, "operator"), EQUAL  # D-6
