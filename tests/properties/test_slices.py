"""Slices that are read by short cuts, or in part, are judged like those that a reader reads whole."""

from __future__ import annotations

import copy
import sys
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import encoded, make_context, make_review
from tests.properties.strategies import NEARLY_RIGHT, RIGHT, mutated_bodies
from webhook.admission.chain import validate
from webhook.admission.review import BadReview, decode_review, decode_slice_review
from webhook.api import slices, taints
from webhook.api.decode import Reader
from webhook.api.slices import ResourceSlice, decode_slice
from webhook.api.taints import NO_EXECUTE
from webhook.policy.decide import Judge
from webhook.policy.model import Action, Match, Policy, Rule, TaintMatch
from webhook.validation.releases import NEWEST, RELEASES
from webhook.validation.slices import max_devices

if TYPE_CHECKING:
    from webhook.admission.decision import Decision
    from webhook.admission.review import AdmissionRequest
    from webhook.api.field import FieldError
    from webhook.api.taints import DeviceTaint
    from webhook.validation.releases import Release

_SHAPES = st.one_of(RIGHT["slice"], *[made for name, made in NEARLY_RIGHT.items() if name.startswith("ResourceSlice ")])


_JUDGE = Judge(Policy(taint_rules=(Rule("no-eviction", Action.DENY, Match(taints=TaintMatch(effects=(NO_EXECUTE,)))),)))


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
    """The same value and the same errors, with the short cuts and without, whatever was read before.

    Without the bound on taints that are read: it is on those that take time, and the short cuts take none.
    """
    with patch.object(slices, "_TAINTS_MAX", sys.maxsize):
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
def test_limit_of_devices_is_lower_if_any_device_is_large(manifest: Any, release: Release) -> None:
    new = decode_slice(Reader.of(crowded(manifest), []))
    devices = new.devices
    large = any(
        device.taints
        or (device.counter_sets and release.counters_apart)
        or (device.list_attributes and release.as_since_1_36)
        for device in devices
    )
    few = len(devices) <= release.devices_with_taints
    assert max_devices(new, release) == (release.devices_with_taints if large and not few else 128)


def judged(request: AdmissionRequest, release: Release) -> Decision:
    return validate(request, make_context(release=release, judge=_JUDGE))


@given(st.data(), st.sampled_from(tuple(RELEASES.values())))
def test_review_that_is_read_in_part_is_judged_like_one_that_is_read_whole(data: Any, release: Release) -> None:
    new = crowded(data.draw(_SHAPES)) if data.draw(st.booleans()) else data.draw(_SHAPES)
    old = data.draw(st.one_of(st.none(), st.just(new), _SHAPES.filter(lambda each: each["kind"] == new["kind"])))
    if old is not None:
        old = old | {"apiVersion": new["apiVersion"]}
    body = encoded(make_review(new, old))
    in_part = decode_slice_review(body)
    if in_part is not None:
        assert judged(in_part, release) == judged(decode_review(body), release)


@given(st.one_of(RIGHT["slice"], RIGHT["slice"].map(crowded)))
def test_right_slice_is_read_in_part(manifest: Any) -> None:
    assert decode_slice_review(encoded(make_review(manifest, manifest))) is not None


# No shrinking: a smaller seed is no simpler body.
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(RIGHT["slice"], st.integers(0, 2**32))
def test_spoilt_review_that_is_read_in_part_is_judged_like_one_that_is_read_whole(manifest: Any, seed: int) -> None:
    for body in mutated_bodies(make_review(manifest, manifest), Random(seed))[:60]:
        in_part = decode_slice_review(body)
        if in_part is not None:
            assert judged(in_part, NEWEST) == judged(decode_review(body), NEWEST)


# A number that no server can write, text that is no UTF-8, and what is read with more memory than others.
_SPOILT = st.sampled_from(
    (b"1e999", b"9" * 5000, b'"\xff"', b'"\\ud800"', b"[" * 500 + b"]" * 500, b"[]", b"{}", b"null")
)
_PLACES = st.sampled_from(("taints", "data", "value", "attributes", "capacity", "name", "other"))


@given(RIGHT["slice"].map(crowded), _SPOILT, _PLACES, st.integers(0, 65))
def test_slice_with_a_strange_value_is_judged_like_one_that_is_read_whole(
    manifest: Any, strange: bytes, place: str, at: int
) -> None:
    devices = [dict(device) for device in manifest["spec"]["devices"]]
    if devices:
        device = devices[at % len(devices)]
        if place in ("data", "value"):
            device["taints"] = [{"key": "a", "effect": "None", place: "?strange?"}]
        else:
            device[place] = "?strange?"
    changed = manifest | {"spec": manifest["spec"] | {"devices": devices}}
    body = encoded(make_review(changed)).replace(b'"?strange?"', strange)
    in_part = decode_slice_review(body)
    if in_part is not None:
        assert judged(in_part, NEWEST) == judged(decode_review(body), NEWEST)
