"""Devices and taints that are read by a short cut are what a reader makes of them."""

from __future__ import annotations

import copy
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.properties.strategies import NEARLY_RIGHT, RIGHT, mutated_bodies
from webhook.admission.review import BadReview, decode_review
from webhook.api import slices, taints
from webhook.api.decode import Reader
from webhook.api.slices import ResourceSlice, decode_slice
from webhook.validation.releases import RELEASES
from webhook.validation.slices import max_devices

if TYPE_CHECKING:
    from webhook.api.field import FieldError
    from webhook.api.taints import DeviceTaint

_SHAPES = st.one_of(RIGHT["slice"], *[made for name, made in NEARLY_RIGHT.items() if name.startswith("ResourceSlice ")])


def read(manifest: Any) -> tuple[ResourceSlice, list[DeviceTaint], list[FieldError]]:
    """A slice, its taints each once, and what is wrong with it."""
    errors: list[FieldError] = []
    value = decode_slice(Reader.of(manifest, errors))
    distinct: list[DeviceTaint] = []
    for taint in value.distinct_taints:
        if taint not in distinct:
            distinct.append(taint)
    return structs.replace(value, distinct_taints=()), distinct, errors


def check(manifest: Any) -> None:
    """The same value and the same errors, with the short cuts and without, whatever was read before."""
    with (
        patch.object(slices, "_usual_device", lambda _raw, *, crowded: None),  # noqa: ARG005 -- its signature
        patch.object(slices, "decode_taints", _one_by_one),
    ):
        expected = read(manifest)
    assert read(manifest) == expected
    assert read(copy.deepcopy(manifest)) == expected


def _one_by_one(reader: Reader) -> tuple[DeviceTaint, ...]:
    return tuple([taints._decode_taint_entry(reader, at) for at in range(len(reader.list("taints")))])


def crowded(manifest: Any) -> Any:
    """With the devices repeated until there are more than 64, if there are any."""
    spec = manifest.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    if not isinstance(devices, list) or not devices:
        return manifest
    return manifest | {"spec": spec | {"devices": (devices * 65)[:66]}}


@given(_SHAPES)
def test_short_cuts_read_what_a_reader_reads(manifest: Any) -> None:
    check(manifest)
    check(crowded(manifest))


# No shrinking: a smaller seed is no simpler body.
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(RIGHT["slice"], st.integers(0, 2**32))
def test_short_cuts_read_what_a_reader_reads_of_spoilt_slices(manifest: Any, seed: int) -> None:
    for body in mutated_bodies({"request": {"uid": "u", "object": manifest}}, Random(seed))[:40]:
        try:
            found = decode_review(body).object
        except BadReview:
            continue
        if isinstance(found, dict):
            check(found)
            check(crowded(found))


@given(_SHAPES, st.sampled_from(tuple(RELEASES.values())))
def test_limit_of_devices_is_lower_if_any_device_is_large(manifest: Any, release: Any) -> None:
    devices = read(crowded(manifest))[0].devices
    large = any(
        device.taints
        or (device.consumes_counters and release.counters_halve_devices)
        or (device.list_attributes and release.list_attributes_halve_devices)
        for device in devices
    )
    few = len(devices) <= release.devices_with_taints
    assert max_devices(devices, release) == (release.devices_with_taints if large and not few else 128)
