"""What `/mutate` makes of the NoExecute taints of a patch that the policy softens: NoSchedule, evicted by our worker.

As with rules (`softening`), the guard accepts what comes of it by the same entry of the policy, and annotation
`softened-keys` makes it no milder. The rules of such taints have `/evict`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from webhook.admission.carried_text import CarriedText
from webhook.admission.decision import Assumed
from webhook.admission.defaulting import BACKDATED, edits_for
from webhook.admission.impact_text import annotation_of
from webhook.admission.over_limit import breaks_glass, usual_rates
from webhook.admission.patch_guard import PATCH_TAINTS, PatchAddition
from webhook.admission.patch_limits import PatchCheck, all_may_soften
from webhook.admission.softening import AS_BEFORE, EVERY_ONE, SOFTENED, UNTOUCHED, SofteningResult
from webhook.api.field import Finding, Severity, forbidden
from webhook.api.meta import format_time
from webhook.api.patches import SOFTENED_KEYS
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.inventory.patch_reach import does_no_more, patch_skips_a_step
from webhook.inventory.patching import taints_of_patch
from webhook.policy.model import PolicyMode, Softening
from webhook.validation.patches import PATCH_TAINTS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from webhook.admission.context import AdmissionContext
    from webhook.admission.defaulting import Edit
    from webhook.admission.review import AdmissionRequest
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.taints import DeviceTaint


def softening_of_patch(
    new: ResourceSlicePatch, old: ResourceSlicePatch | None, request: AdmissionRequest, context: AdmissionContext
) -> SofteningResult:
    """Whether taints of a patch that is created (`old` is None) or updated become NoSchedule. Raises OutOfTime."""
    literal = frozenset([taint.key for taint in new.taints if taint.effect == NO_EXECUTE])
    off = context.sight is None or context.policy.mode is PolicyMode.OFF
    if off or not literal or len(new.taints) > PATCH_TAINTS_MAX:
        return UNTOUCHED
    text = CarriedText(new, old, request, context)
    # A new text allows the patch as it is, or the guard refuses it.
    if text.is_new or breaks_glass(request, context) or _would_clash(new, literal):
        return UNTOUCHED
    rates = usual_rates(context)
    if old is not None and literal <= old.softened_keys:
        again = _soft(new, old, literal, context.now)
        if does_no_more(again, old, rates):
            return _result(new, old, again, AS_BEFORE, context)._replace(repeated=True)
    twice = context.policy.impact.two_step and patch_skips_a_step(new, old)
    if context.policy.mode is not PolicyMode.ENFORCE or twice:
        return UNTOUCHED
    return _decided(new, old, text, request, context)


def _decided(
    new: ResourceSlicePatch,
    old: ResourceSlicePatch | None,
    text: CarriedText,
    request: AdmissionRequest,
    context: AdmissionContext,
) -> SofteningResult:
    """Softened, or as it is."""
    assert context.sight is not None
    inventory = context.sight.inventory
    context.budget.check("impact")
    addition = PatchAddition(new, old, inventory, context)
    check = PatchCheck(addition.judged, request, context)
    parts = [part for part in check.parts if part.softens and part.is_literal]
    if not parts:
        return UNTOUCHED
    figures = ""
    if addition.unknown or inventory is None:
        reasons = check.reasons_unknown(addition.unknown, of_filter=addition.of_filter)
    else:
        impact = check.impact(inventory)
        reasons = check.reasons(inventory, impact)
        over = [each.reason.short for each in reasons]
        figures = annotation_of(check.shown(inventory, impact), acts=True, over=over)
        if reasons and text.fault(check.to_confirm(impact, old)) is None:
            return UNTOUCHED
    chosen = parts if reasons else [part for part in parts if part.limits.soften is Softening.ALWAYS]
    if not all_may_soften(reasons):
        return UNTOUCHED
    if not chosen:
        if addition.unknown or inventory is None:
            return UNTOUCHED
        # The next patch must know of it.
        return SofteningResult(left=Assumed(addition.stored, check.names, impact))
    soft = _soft(new, old, [part.key for part in chosen], context.now)
    why = "; ".join(dict.fromkeys([each.reason.text for each in reasons])) or EVERY_ONE
    return _result(new, old, soft, why, context)._replace(impact=figures)


def _would_clash(patch: ResourceSlicePatch, keys: Iterable[str]) -> bool:
    """Whether a softened taint would take the place of another one: of the same key and effect only one counts."""
    return not {taint.key for taint in taints_of_patch(patch) if taint.effect == NO_SCHEDULE}.isdisjoint(keys)


def _soft(
    patch: ResourceSlicePatch, old: ResourceSlicePatch | None, keys: Iterable[str], now: datetime
) -> ResourceSlicePatch:
    """The patch as it is stored once its NoExecute taints with these keys are softened."""
    chosen = frozenset(keys)
    taints = tuple(
        [
            structs.replace(taint, effect=NO_SCHEDULE, time_added=_time(taint, old, now))
            if taint.effect == NO_EXECUTE and taint.key in chosen
            else taint
            for taint in patch.taints
        ]
    )
    known = patch.softened_keys & {taint.key for taint in patch.taints if taint.effect == NO_SCHEDULE}
    annotations = {**patch.meta.annotations, SOFTENED_KEYS: ",".join(sorted(chosen | known))}
    return structs.replace(patch, meta=structs.replace(patch.meta, annotations=annotations), taints=taints)


def _time(taint: DeviceTaint, old: ResourceSlicePatch | None, now: datetime) -> datetime:
    """When a taint that is softened was added: as it is stored, unless its author gave a later time.

    The present time stands for an earlier one: grace periods must not be over when it is softened.
    """
    given, now = taint.time_added, now.replace(microsecond=0)
    for each in taints_of_patch(old) if old is not None else ():
        if old is not None and old.is_softened(each) and (each.key, each.value) == (taint.key, taint.value):
            stored = each.time_added or now
            later = given is not None and given > stored and abs(now - given) > BACKDATED
            return given if later and given is not None else stored
    return now if given is None or now - given > BACKDATED else given


def _result(
    new: ResourceSlicePatch,
    old: ResourceSlicePatch | None,
    soft: ResourceSlicePatch,
    why: str,
    context: AdmissionContext,
) -> SofteningResult:
    first = next(
        at for at, (one, other) in enumerate(zip(new.taints, soft.taints, strict=True)) if one.effect != other.effect
    )
    # What nothing evicts comes first: a long warning is cut at its end.
    parts = [f"NoExecute became NoSchedule with annotation {SOFTENED_KEYS}", context.worker_problem, why]
    error = forbidden(PATCH_TAINTS.index(first).child("effect"), "; ".join(filter(None, parts)))
    return SofteningResult(tuple(_edits(new, old, soft, context)), (Finding(Severity.WARN, error, code=SOFTENED),))


def _edits(
    new: ResourceSlicePatch, old: ResourceSlicePatch | None, soft: ResourceSlicePatch, context: AdmissionContext
) -> Iterator[Edit]:
    at = ("spec", "devices", "taints")
    softened = set[int]()
    for position, (before, after) in enumerate(zip(new.taints, soft.taints, strict=True)):
        if before.effect != after.effect:
            softened.add(position)
            yield (*at, position, "effect"), after.effect
            if after.time_added is not None and after.time_added != before.time_added:
                yield (*at, position, "timeAdded"), format_time(after.time_added)
    for pointer, value in edits_for(new, old, context):
        if pointer[3] not in softened:
            yield pointer, value
    if new.meta.annotations.get(SOFTENED_KEYS) != soft.meta.annotations[SOFTENED_KEYS]:
        yield ("metadata", "annotations", SOFTENED_KEYS), soft.meta.annotations[SOFTENED_KEYS]
