"""What becomes of a ResourceSlice that is written: its driver's values, and the overrides of patches on top.

`arrived` finds out what the driver means, `overridden` what is to be stored. Both are functions of what is written,
what is stored, and an annotation (see `originals`): the driver may keep what it is answered, and send it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from webhook.api.field import JSON
from webhook.api.slices import ResourceSlice
from webhook.patches.patching import Origin, PatchedDevice
from webhook.patches.published import (
    ATTRIBUTES,
    CAPACITY,
    ORIGINALS,
    Kept,
    Overridden,
    Setting,
    Settings,
    annotation_of,
    kept_in,
    published_settings,
    put,
    qualified_name,
    rewrites_in,
    same,
    settings_of,
    with_settings,
    written_devices,
)

ORIGINALS_MAX_BYTES: Final = 64 * 1024
"""Of originals of values that are overridden now. What drivers still have of others comes on top, up to as much."""
_ORIGINS: Final = {ATTRIBUTES: "attribute", CAPACITY: "capacity"}
_KINDS: Final = {origin: kind for kind, origin in _ORIGINS.items()}
_ENTRY_BYTES: Final = 64
"""Of the annotation, for what stands around the values of an entry."""
_encoder: Final = msgspec.json.Encoder()


class Override(NamedTuple):
    """What the patch that wins sets: an attribute's JSON, None to remove it, or a capacity's quantity."""

    value: JSON
    patch: str


DeviceOverrides = Mapping[Origin, Override]
Faults = Callable[[dict[str, JSON]], Collection[str]]
"""What an API server would refuse in a device as it is written in the slice."""


class Refusal(NamedTuple):
    """A patch that is not carried out: on one device, or on the whole slice."""

    patch: str
    device: str | None
    reason: str


class Arrived(msgspec.Struct, frozen=True):
    """A slice as it was sent, and what its driver publishes, by device.

    `touched`: its driver did not send it, so it says nothing of what the driver has adopted.
    """

    value: ResourceSlice
    touched: bool
    published: Mapping[str, Settings]
    kept: Mapping[str, Kept]
    rewrites: int
    """How often the slice was rewritten so far."""

    @property
    def devices(self) -> tuple[dict[str, JSON], ...]:
        """Each device as its driver publishes it."""
        return tuple([with_settings(raw, self.published[name]) for name, raw in written_devices(self.value)])

    @property
    def unchanged(self) -> dict[str, dict[Origin, Override]]:
        """The overrides that are in force, as long as those of today are not known."""
        driver = self.value.driver
        return {
            device: {
                Origin(_ORIGINS[kind], qualified_name(driver, name)): Override(_set_by(kind, value.now), "")
                for (kind, name), value in kept.items()
                if not isinstance(value.now, UnsetType)
            }
            for device, kept in self.kept.items()
        }


class Rewritten(NamedTuple):
    """What to store: the settings of each device, the annotation (empty: none), and what is not carried out."""

    devices: Mapping[str, Settings]
    annotation: str
    refused: tuple[Refusal, ...]


def overrides_of(device: PatchedDevice) -> dict[Origin, Override]:
    """Return what patches set on a device."""
    found: dict[Origin, Override] = {}
    for origin, patch in device.origins.items():
        if origin.kind == "attribute":
            found[origin] = Override(device.attributes.get(origin.name), patch)
        elif origin.kind == "capacity":
            found[origin] = Override(device.capacity[origin.name]["value"], patch)
    return found


def arrived(new: ResourceSlice, stored: ResourceSlice | None, *, same_spec: bool = False) -> Arrived:
    """Return what is sent, and what the driver means by it. `same_spec`: the specification is what is stored.

    A driver never sends what is stored already, unless a look earlier in the same request has put that back and dropped
    the annotation. The annotation comes with what is sent, as drivers change what they have read; one without is that
    of what is stored. If it differs from that, this slice was rewritten before: in the
    same request, for another entry of ours or by another webhook's doing, or before it was copied. So that it differs,
    each rewriting is counted in it.
    """
    mine, theirs = new.meta.annotations.get(ORIGINALS), stored.meta.annotations.get(ORIGINALS) if stored else None
    known = kept_in(mine)
    if known:
        touched = same_spec or mine != theirs
    else:
        known = kept_in(theirs)
        touched = same_spec and not known
    published: dict[str, Settings] = {}
    kept: dict[str, Kept] = {}
    for name, raw in written_devices(new):
        sent = settings_of(raw)
        of_device = known.get(name, {})
        published[name] = published_settings(sent, of_device)
        kept[name] = {
            setting: Overridden(published[name].get(setting), value.now, value.sent if touched else UNSET)
            for setting, value in of_device.items()
        }
    return Arrived(new, touched, published, kept, rewrites_in(mine) or rewrites_in(theirs))


def overridden(
    found: Arrived,
    overrides: Mapping[str, DeviceOverrides],
    ranking: Sequence[str],
    faults: Faults = lambda _: (),
    limit_bytes: int = ORIGINALS_MAX_BYTES,
) -> Rewritten:
    """Return what to store of a slice with overrides of its devices. `ranking`: names of patches, the first wins.

    Where the overrides would make a device invalid, or where the originals would take too much room, patches are
    refused, the last ones first. Another patch that sets the same does not take their place.
    """
    rewriting = _Rewriting(found)
    raw = dict(written_devices(found.value))
    wanted: dict[str, dict[Setting, Override]] = {}
    refused: list[Refusal] = []
    for device, published in found.published.items():
        by_name = _by_written_name(found.value.driver, published, overrides.get(device, {}))
        wanted[device], reasons = _valid(raw[device], published, by_name, ranking, faults)
        refused += [Refusal(patch, device, reason) for patch, reason in reasons.items()]
    for patch in _beyond(wanted, found, ranking, limit_bytes):
        refused.append(Refusal(patch, None, f"the originals would take more than {limit_bytes} bytes"))
        for settings in wanted.values():
            for setting in [each for each, override in settings.items() if override.patch == patch]:
                del settings[setting]
    devices = {device: rewriting.device(device, settings) for device, settings in wanted.items()}
    kept = rewriting.kept(2 * limit_bytes)
    result = Rewritten(devices, annotation_of(kept, found.rewrites), tuple(refused))
    given = found.value.meta.annotations.get(ORIGINALS, "")
    if result.annotation == given and next(changed_settings(found.value, result), None) is None:
        return result
    return result._replace(annotation=annotation_of(kept, found.rewrites + 1))


def changed_settings(new: ResourceSlice, result: Rewritten) -> Iterator[tuple[int, Setting, JSON]]:
    """Yield what is to be changed in a slice as it was sent: the device's position, a setting, and its value.

    A quantity that is only written in another way is not changed.
    """
    for position, (name, raw) in enumerate(written_devices(new)):
        given, wanted = settings_of(raw), result.devices[name]
        for setting in given:
            if setting not in wanted:
                yield position, setting, None
        for setting, value in wanted.items():
            if not same(setting.kind, given.get(setting), value):
                yield position, setting, value


def _set_by(kind: str, value: JSON) -> JSON:
    """Return what a patch set so that this came of it."""
    return value["value"] if kind == CAPACITY and value is not None else value


def _by_written_name(driver: str, published: Settings, overrides: DeviceOverrides) -> dict[Setting, Override]:
    """Return what overrides make of the settings that have their names, with or without the driver's domain.

    A setting that the driver does not have gets its full name, unless it would be removed.
    """
    written: dict[Origin, list[Setting]] = defaultdict(list)
    for setting in published:
        written[Origin(_ORIGINS[setting.kind], qualified_name(driver, setting.name))].append(setting)
    found: dict[Setting, Override] = {}
    for origin, override in overrides.items():
        kind = _KINDS[origin.kind]
        for setting in written.get(origin, [Setting(kind, origin.name)]):
            value = override.value
            if kind == CAPACITY:  # what else the driver says about it, such as its request policy, stays
                value = {**(published.get(setting) or {}), "value": value}
            found[setting] = Override(value, override.patch)
    return found


def _valid(
    raw: dict[str, JSON],
    published: Settings,
    wanted: dict[Setting, Override],
    ranking: Sequence[str],
    faults: Faults,
) -> tuple[dict[Setting, Override], dict[str, str]]:
    """Return the overrides that leave the device valid, and why the others are refused, by patch."""
    if not wanted or not faults(with_settings(raw, _with(published, wanted))):
        return dict(wanted), {}
    known = set(faults(with_settings(raw, published)))

    def fault(settings: Mapping[Setting, Override]) -> str:
        return min(set(faults(with_settings(raw, _with(published, settings)))) - known, default="")

    refused: dict[str, str] = {}
    left = dict(wanted)
    for patch in reversed(ranking):
        new = fault(left)
        if not new:
            break
        remaining = {setting: override for setting, override in left.items() if override.patch != patch}
        if len(remaining) < len(left):
            left, refused[patch] = remaining, new
    for patch in [each for each in ranking if each in refused]:
        # It may have gone for the fault of another one.
        more = left | {setting: override for setting, override in wanted.items() if override.patch == patch}
        refused[patch] = fault(more)
        if not refused[patch]:
            left = more
            del refused[patch]
    return left, refused


def _with(published: Settings, wanted: Mapping[Setting, Override]) -> dict[Setting, JSON]:
    settings = dict(published)
    for setting, override in wanted.items():
        put(settings, setting, override.value)
    return settings


def _beyond(
    wanted: Mapping[str, Mapping[Setting, Override]], found: Arrived, ranking: Sequence[str], limit_bytes: int
) -> list[str]:
    """Return the patches whose originals do not fit, by what they take at most, so regardless of what is kept."""
    taken: dict[str, int] = defaultdict(int)
    for device, settings in wanted.items():
        for setting, override in settings.items():
            was = found.published[device].get(setting)
            if not same(setting.kind, was, override.value):
                values = len(_encoder.encode(was)) + 2 * len(_encoder.encode(override.value))
                taken[override.patch] += values + len(device) + len(setting.name) + _ENTRY_BYTES
    total, beyond = sum(taken.values()), []
    for patch in reversed(ranking):
        if total > limit_bytes and patch in taken:
            total -= taken[patch]
            beyond.append(patch)
    return beyond


class _Rewriting:
    """Puts overrides into a slice, and keeps what is needed to take them out again."""

    def __init__(self, found: Arrived) -> None:
        self._found = found
        self._kept: dict[str, dict[Setting, Overridden]] = {}

    def device(self, device: str, wanted: Mapping[Setting, Override]) -> Settings:
        """Return the settings of a device."""
        published, known = self._found.published[device], self._found.kept[device]
        settings = dict(published)
        kept = self._kept[device] = {}
        for setting in [*known, *[each for each in wanted if each not in known]]:
            override = wanted.get(setting)
            value = self._next(setting, known.get(setting, Overridden(published.get(setting))), override)
            if value is not None:
                kept[setting] = value
            if override is not None:
                put(settings, setting, override.value)
        return settings

    def _next(self, setting: Setting, value: Overridden, override: Override | None) -> Overridden | None:
        """Return what is known of a value once this is stored; None if nothing need be."""
        now = UNSET if override is None else override.value
        own = now is UNSET or same(setting.kind, now, value.was)
        sent = value.sent if self._found.touched else UNSET if own else now
        return None if own and sent is UNSET else Overridden(value.was, now, sent)

    def kept(self, limit_bytes: int) -> Mapping[str, Kept]:
        """Return all that is known if there is room; else the values that are overridden now, which always fit."""
        if len(annotation_of(self._kept).encode()) <= limit_bytes:
            return self._kept
        return {
            device: {setting: value for setting, value in kept.items() if value.now is not UNSET}
            for device, kept in self._kept.items()
        }
