"""Who may set which taint: `taintRules` on DeviceTaintRules, on patches, and on slices if the policy says so.

What an update leaves as it was is not judged again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from webhook.admission.claim_view import requester_variable
from webhook.admission.rulings import Ruling
from webhook.api.field import Path
from webhook.api.meta import format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import EVICT, RULE_ANNOTATIONS, DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.policy.conditions import Placement
from webhook.policy.evaluation import Evaluation
from webhook.policy.ports import Requester

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest
    from webhook.api.field import JSON
    from webhook.api.meta import ObjectMeta
    from webhook.api.taints import DeviceTaint
    from webhook.policy.decide import Judge

_SPEC = Path.root().child("spec")


def taint_rulings(
    new: Any, old: Any, request: AdmissionRequest, judge: Judge, context: AdmissionContext
) -> Iterator[Ruling]:
    """The rulings on every taint that is new."""
    requester = Requester(request.username, request.groups)
    for path, place, taint, meta in taints_set_by(new, old, judge):
        context.budget.check("policy")
        variables = partial(taint_variables, requester, place, taint, meta)
        hits = judge.on_taint(requester, place, taint, context.now, variables)
        if hits:
            yield Ruling(Evaluation.of(hits), partial(Path.child, path), partial(taint_text, place, taint))


def taint_text(place: Placement, taint: DeviceTaint) -> str:
    """The taint in words."""
    text = f"taint {taint.key}:{taint.effect}"
    return f"{text} with {EVICT}" if place.evict else text


def taints_set_by(new: Any, old: Any, judge: Judge) -> Iterator[tuple[Path, Placement, DeviceTaint, ObjectMeta]]:
    """Each taint that a request sets, where it stands and whose devices it is for."""
    match new:
        case DeviceTaintRule():
            if not isinstance(old, DeviceTaintRule) or _changed(new, old):
                evict = new.meta.annotations.get(EVICT) == "true"
                yield _SPEC.child("taint"), Placement.of(new.selector, evict=evict), new.taint, new.meta
        case ResourceSlicePatch():
            same = isinstance(old, ResourceSlicePatch) and old.filter == new.filter
            before = {_identity(taint) for taint in old.taints} if same else set()
            place = Placement.of(new.filter, evict=False)
            for position, taint in enumerate(new.taints):
                if _identity(taint) not in before:
                    yield _SPEC.child("devices", "taints").index(position), place, taint, new.meta
        case ResourceSlice() if judge.policy.taint_rules_on_slices:
            yield from _on_slice(new, old if isinstance(old, ResourceSlice) else None)
        case _:
            pass


def _on_slice(
    new: ResourceSlice, old: ResourceSlice | None
) -> Iterator[tuple[Path, Placement, DeviceTaint, ObjectMeta]]:
    before = {device.name: {_identity(taint) for taint in device.taints} for device in old.devices} if old else {}
    place = Placement(new.driver, new.pool)
    for position, device in enumerate(new.devices):
        known = before.get(device.name, set())
        at = _SPEC.child("devices").index(position)
        at = at.only_written("basic") if device.basic else at
        for index, taint in enumerate(device.taints):
            if _identity(taint) not in known:
                yield at.child("taints").index(index), place, taint, new.meta
    stored = {(entry.device, _identity(entry.taint)) for entry in old.slice_taints} if old else set()
    for position, entry in enumerate(new.slice_taints):
        if (entry.device, _identity(entry.taint)) not in stored:
            yield _SPEC.child("taints").index(position).child("taint"), place, entry.taint, new.meta


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect


def _changed(new: DeviceTaintRule, old: DeviceTaintRule) -> bool:
    """Whether an update changes what the rule does; our annotations on it count (`/evict` above all)."""
    return (
        new.selector != old.selector
        or new.taint != old.taint
        or any(new.meta.annotations.get(name) != old.meta.annotations.get(name) for name in RULE_ANNOTATIONS)
    )


def taint_variables(requester: Requester, place: Placement, taint: DeviceTaint, meta: ObjectMeta) -> Mapping[str, JSON]:
    """The variables of `when`. What is not known is left out."""
    taint_variable: dict[str, JSON] = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    if taint.time_added is not None:
        taint_variable["timeAdded"] = format_time(taint.time_added)
    rule: dict[str, JSON] = {"name": meta.name, "annotations": dict(meta.annotations), "evict": place.evict}
    if place.driver is not None:
        rule["driver"] = place.driver
    if place.pool is not None:
        rule["pool"] = place.pool
    if place.device is not None:
        rule["device"] = place.device
    return {"requester": requester_variable(requester), "taint": taint_variable, "rule": rule}
