"""What `/mutate` sets: timeAdded, the time of an effect that changed, the operator of a toleration.

An API server does most of this itself while it decodes; these rules exist for files, for our own kind and for the
cases where we mean to differ. A second pass within a minute changes nothing that the first one set.
`semantics.md` D-1 to D-7; `seeds.md` N-8, P-21; KEP-5055.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from webhook.admission.context import AdmissionContext
from webhook.api.claims import DeviceRequest, ResourceClaim, ResourceClaimTemplate
from webhook.api.field import JSON
from webhook.api.meta import format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import EVICT, DeviceTaintRule
from webhook.api.slices import Device, ResourceSlice
from webhook.api.taints import EQUAL, NO_EXECUTE, DeviceTaint, DeviceToleration
from webhook.inventory.rule_delta import is_for_hardware

if TYPE_CHECKING:
    from webhook.admission.decision import Pointer

Edit = tuple["Pointer", "JSON"]
BACKDATED: Final = timedelta(seconds=60)
"""A timeAdded older than this was not set by the request that carries it."""
_STORED_MAX: Final = 64
"""Stored taints of a device that are compared; no server accepts more."""


def edits_for(new: object, old: object | None, context: AdmissionContext) -> Iterator[Edit]:
    """Yield what to set in an object that is created (`old` is None) or updated."""
    match new:
        case DeviceTaintRule():
            time = rule_time(new, old if isinstance(old, DeviceTaintRule) else None, context.now)
            if time != new.taint.time_added:
                yield ("spec", "taint", "timeAdded"), format_time(time)
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
            yield from _patch_edits(new, old if isinstance(old, ResourceSlicePatch) else None, context.now)
        case _:
            pass


def rule_time(new: DeviceTaintRule, old: DeviceTaintRule | None, now: datetime) -> datetime:
    """Return when the rule's taint, with its present effect, was added."""
    now = now.replace(microsecond=0)
    time = new.taint.time_added
    if time is None:
        time = (_times((old.taint,)).get(_identity(new.taint)) if old else None) or now
    elif old is not None and time == old.taint.time_added and new.taint.effect != old.taint.effect:
        return now  # D-4, D-5
    asked_for_now = _evict(new) and not (old is not None and _evict(old))
    if old is not None and new.effective_effect == NO_EXECUTE and is_for_hardware(new) and not is_for_hardware(old):
        asked_for_now = True
    # An eviction that is asked for today must not find its tolerations already used up. `now` is the time of the
    # decision; the minute is for a second pass, which must leave alone what the first one set.
    if asked_for_now and (now - time > BACKDATED or (old is not None and time == old.taint.time_added)):
        return now
    return time


def _evict(rule: DeviceTaintRule) -> bool:
    return rule.meta.annotations.get(EVICT) == "true"


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    """Return what makes a taint of one device the same one as before (D-2)."""
    return taint.key, taint.value, taint.effect


def _times(stored: Sequence[DeviceTaint]) -> dict[tuple[str, str, str], datetime | None]:
    """Return the time of each stored taint; of several that are the same, the first counts."""
    return {_identity(entry): entry.time_added for entry in reversed(stored)}


def _missing_time_edits(
    at: Pointer, taints: Sequence[DeviceTaint], stored: Sequence[DeviceTaint], now: datetime
) -> Iterator[Edit]:
    known: dict[tuple[str, str, str], datetime | None] | None = None
    for position, taint in enumerate(taints):
        if taint.time_added is None:
            if known is None:
                known = _times(stored)
            time = known.get(_identity(taint)) or now
            yield (*at, position, "timeAdded"), format_time(time)


def _patch_edits(new: ResourceSlicePatch, old: ResourceSlicePatch | None, now: datetime) -> Iterator[Edit]:
    """Yield a patch's times; the first revision of KEP-5055 has a default for NoExecute only (P-21)."""
    stored, taints = old.taints if old else (), ("spec", "devices", "taints")
    timed = [not new.first_revision or taint.effect == NO_EXECUTE for taint in new.taints]
    for at, time in _missing_time_edits(taints, new.taints, stored, now):
        if timed[int(at[-2])]:  # the position of the taint
            yield at, time
    yield from _bumped_time_edits(taints, new.taints, stored, now)


def _slice_edits(new: ResourceSlice, old: ResourceSlice | None, context: AdmissionContext) -> Iterator[Edit]:
    before: dict[str, Device] | None = None
    for position, device in enumerate(new.devices):
        if not device.taints:
            continue
        if before is None:
            before = {stored.name: stored for stored in reversed(old.devices)} if old else {}
        known = before.get(device.name)
        stored = known.taints[:_STORED_MAX] if known else ()
        at: Pointer = ("spec", "devices", position, *(("basic",) if device.basic else ()), "taints")
        yield from _missing_time_edits(at, device.taints, stored, context.now)
        if context.policy.bump_slice_time_added and stored:
            yield from _bumped_time_edits(at, device.taints, stored, context.now)
    if new.slice_taints:
        yield from _beside_edits(new, old, context.now)


def _beside_edits(new: ResourceSlice, old: ResourceSlice | None, now: datetime) -> Iterator[Edit]:
    """Yield the times of taints beside the devices (N-8), where the device is part of what makes one the same."""
    stored = reversed(old.slice_taints) if old else ()
    times = {(entry.device, _identity(entry.taint)): entry.taint.time_added for entry in stored}
    for position, entry in enumerate(new.slice_taints):
        if entry.taint.time_added is None:
            time = times.get((entry.device, _identity(entry.taint))) or now
            yield ("spec", "taints", position, "taint", "timeAdded"), format_time(time)


def _bumped_time_edits(
    at: Pointer, taints: Sequence[DeviceTaint], stored: Sequence[DeviceTaint], now: datetime
) -> Iterator[Edit]:
    """Yield D-4 for lists, which no API server does, where the entry is the only one with that key and value."""
    known: dict[tuple[str, str], DeviceTaint | None] = {}
    for entry in stored:
        name = entry.key, entry.value
        known[name] = None if name in known else entry
    for position, taint in enumerate(taints):
        before = known.get((taint.key, taint.value))
        if (
            before is not None
            and before.effect != taint.effect
            and taint.time_added is not None
            and before.time_added == taint.time_added != now.replace(microsecond=0)
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
