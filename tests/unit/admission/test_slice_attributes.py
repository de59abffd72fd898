"""What `/mutate` puts into slices for patches. `semantics.md` P-8 to P-10, P-18."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_admission_request,
    make_basic_device,
    make_context,
    make_device,
    make_patch,
    make_slice,
    make_taint,
)
from webhook.admission import slice_guard as slice_attributes
from webhook.admission.chain import mutate
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.decision import apply_patch
from webhook.api.decode import Reader
from webhook.api.patches import decode_patch
from webhook.patches.published import ORIGINALS
from webhook.patches.slice_patches import SlicePatches

if TYPE_CHECKING:
    from webhook.admission.context import AdmissionContext

MODEL = {"model": {"string": "a"}}
HEALTHY = f"{DRIVER}/healthy"


def patches_of(*manifests: Any) -> SlicePatches:
    return SlicePatches.of([decode_patch(Reader.of(each, [])) for each in manifests], {})


def context_of(*manifests: Any) -> AdmissionContext:
    return structs.replace(make_context(), slice_patches=patches_of(*manifests))


REMOVES = make_patch(attributes={f"{DRIVER}/model": {"null": {}}, HEALTHY: {"bool": False}})


def mutated(manifest: Any, old: Any = None, context: AdmissionContext | None = None) -> Any:
    """What is stored; a second mutation in the same review, and the controller's touch, find nothing to do."""
    context = context or context_of(REMOVES)
    decision = mutate(make_admission_request(manifest, old), context)
    assert decision.allowed
    patched = apply_patch(manifest, decision.patch)
    assert mutate(make_admission_request(patched, old), context).patch == ()
    assert mutate(make_admission_request(patched, patched), context).patch == ()
    return patched


def annotation(manifest: Any) -> Any:
    return json.loads(manifest["metadata"]["annotations"][ORIGINALS])


def test_nothing_is_changed_unless_it_was_asked_for() -> None:
    manifest = make_slice([make_device(attributes=MODEL)])
    assert mutate(make_admission_request(manifest), make_context()).patch == ()


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_driver_s_slice_gets_what_patches_set(version: str) -> None:
    make = make_basic_device if version == "v1beta1" else make_device
    manifest = make_slice([make("gpu-0", attributes=MODEL), make("gpu-1")], version=version)
    stored = mutated(manifest)
    healthy = {HEALTHY: {"bool": False}}
    assert stored["spec"]["devices"] == [make("gpu-0", attributes=healthy), make("gpu-1", attributes=healthy)]
    unset = {HEALTHY: {"now": {"bool": False}, "sent": {"bool": False}}}
    model = {"model": {"was": {"string": "a"}, "now": None, "sent": None}}
    assert annotation(stored)["devices"] == {
        "gpu-0": {"attributes": {**unset, **model}},
        "gpu-1": {"attributes": unset},
    }


def test_audit_annotation_says_that_something_was_set() -> None:
    decision = mutate(make_admission_request(make_slice()), context_of(REMOVES))
    assert decision.annotations == {"decision": "defaulted"}


def test_echo_changes_nothing_and_removal_brings_everything_back() -> None:
    stored = mutated(make_slice([make_device(attributes=MODEL)]))
    assert mutated(stored, stored) == stored
    bumped = {**stored, "spec": {**stored["spec"], "pool": {"name": "node-0", "generation": 2}}}
    assert mutated(bumped, stored) == bumped
    restored = mutated(stored, stored, context_of())
    assert restored["spec"]["devices"] == [make_device(attributes=MODEL)]
    assert "sent" in restored["metadata"]["annotations"][ORIGINALS]
    echo = {**restored, "spec": stored["spec"]}
    answered = mutated(echo, restored, context_of())
    assert answered["spec"] == restored["spec"]
    fresh = make_slice([make_device(attributes={"model": {"string": "b"}})])
    final = mutated({**answered, "spec": fresh["spec"]}, answered, context_of())
    assert final["spec"] == fresh["spec"]
    assert final["metadata"]["annotations"] == {}


def test_annotation_that_a_driver_leaves_out_is_put_back() -> None:
    stored = mutated(make_slice([make_device(attributes=MODEL)]))
    bare = make_slice(stored["spec"]["devices"])
    assert annotation(mutated(bare, stored)) == {**annotation(stored), "rewrites": 2}
    assert mutated(bare, stored, context_of())["spec"]["devices"] == [make_device(attributes=MODEL)]


def test_capacity_and_times_of_taints_are_set_together() -> None:
    patch = make_patch(capacity={f"{DRIVER}/memory": {"value": "0"}})
    device = make_device(taints=[make_taint(time_added=None)], capacity={"memory": {"value": "4Gi"}})
    stored = mutated(make_slice([device]), context=context_of(patch))
    assert stored["spec"]["devices"] == [
        make_device(taints=[make_taint(time_added=NOW_TEXT)], capacity={"memory": {"value": "0"}})
    ]


def test_quantity_that_is_the_same_is_left_as_it_is_written() -> None:
    patch = make_patch(capacity={f"{DRIVER}/memory": {"value": "4096Mi"}})
    manifest = make_slice([make_device(capacity={"memory": {"value": "4Gi"}})])
    assert mutated(manifest, context=context_of(patch)) == manifest


def test_filter_with_cel() -> None:
    expression = f'device.attributes["{DRIVER}"].model == "a"'
    patch = make_patch(filter_={"selectors": [{"cel": {"expression": expression}}]}, attributes={HEALTHY: {"int": 1}})
    manifest = make_slice([make_device("gpu-0", attributes=MODEL), make_device("gpu-1")])
    first, second = mutated(manifest, context=context_of(patch))["spec"]["devices"]
    assert (HEALTHY in first["attributes"], second) == (True, make_device("gpu-1"))


def test_patch_that_would_make_a_device_invalid_is_left_out() -> None:
    """A driver whose slice is refused loses its devices."""
    full = make_device("gpu-0", attributes={f"a{number}": {"int": 1} for number in range(32)})
    patch = make_patch(attributes={HEALTHY: {"bool": False}})
    stored = mutated(make_slice([full, make_device("gpu-1")]), context=context_of(patch))
    assert stored["spec"]["devices"] == [full, make_device("gpu-1", attributes={HEALTHY: {"bool": False}})]


def test_patches_that_are_not_known_yet_change_nothing() -> None:
    context = structs.replace(make_context(), slice_patches=SlicePatches(known=False))
    manifest = make_slice([make_device(attributes=MODEL)])
    assert mutated(manifest, context=context) == manifest
    stored = mutated(manifest)
    assert mutated(stored, stored, context) == stored
    sent = {**stored, "spec": manifest["spec"]}
    assert mutated(sent, stored, context)["spec"] == stored["spec"]


def test_without_patches_no_slice_is_looked_at() -> None:
    calls = []

    class Asked(SlicePatches, frozen=True):
        def overrides(self, *_: Any) -> Any:
            calls.append(1)
            return {}

    context = structs.replace(make_context(), slice_patches=Asked())
    manifest = make_slice()
    mutate(make_admission_request(manifest, manifest), context)
    assert calls == []
    annotated = make_slice(meta={"name": "s", "annotations": {ORIGINALS: "x"}})
    assert mutate(make_admission_request(annotated), context).patch == (
        {"op": "remove", "path": "/metadata/annotations/devicetaint.io~1originals"},
    )
    assert mutate(make_admission_request(manifest, annotated), context).patch == ()
    assert len(calls) == 2


def test_time_that_runs_out_ends_the_look() -> None:
    seconds = iter([0.0, 0.5, 2.0])
    budget = Budget(1.0, lambda: next(seconds, 2.0))
    many = [make_patch(meta={"name": f"p{number}"}, attributes={HEALTHY: {"bool": False}}) for number in range(200)]
    context = structs.replace(context_of(*many), budget=budget)
    manifest = make_slice([make_device(f"gpu-{number}") for number in range(128)])
    with pytest.raises(OutOfTime):
        mutate(make_admission_request(manifest), context)


def test_time_that_runs_out_ends_the_look_at_what_a_server_would_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many patches that make devices invalid each device is looked at for each of them."""
    looks: list[Any] = []
    monkeypatch.setattr(slice_attributes, "device_faults", lambda _: lambda device: looks.append(device) or ())  # type: ignore[func-returns-value,redundant-expr]
    context = structs.replace(context_of(REMOVES), budget=Budget(1.0, lambda: float(len(looks))))
    with pytest.raises(OutOfTime):
        mutate(make_admission_request(make_slice([make_device(f"gpu-{number}") for number in range(9)])), context)
    assert len(looks) == 2


def test_malformed_slices_are_left_to_the_server() -> None:
    request = make_admission_request(make_slice([make_device(attributes=MODEL)]))
    for devices in ([1], [None], "x"):
        manifest = {**request.object, "spec": {**request.object["spec"], "devices": devices}}
        assert mutate(structs.replace(request, object=manifest), context_of(REMOVES)).allowed
