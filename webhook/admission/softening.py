"""What `/mutate` makes of a NoExecute rule or patch that the policy softens: NoSchedule, with `/evict` for our worker.

A health operator that is refused does not try again, and the bad device stays in service. Softened, its rule closes the
devices at once, and the worker empties them by its limits. The guard accepts such a rule by the same entry of the
policy and for the same reasons (`LimitCheck`); no annotation that a rule carries makes the guard milder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.admission.confirmation import CarriedText
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Assumed
from webhook.admission.defaulting import BACKDATED, Edit, edits_for, rule_time
from webhook.admission.guard import PATCH_TAINTS, GuardedChange, change_of_patch, change_of_rule
from webhook.admission.impact_text import annotation_of
from webhook.admission.over_limit import (
    LimitCheck,
    TaintCheck,
    breaks_glass,
    is_backdated,
    is_backdated_patch,
    usual_rates,
)
from webhook.admission.review import AdmissionRequest
from webhook.api.field import JSON, Finding, Path, Severity, forbidden
from webhook.api.meta import format_time
from webhook.api.patches import SOFTENED_KEYS, ResourceSlicePatch
from webhook.api.rules import EVICT, SOFTENED_FROM, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint
from webhook.inventory.impact import with_gangs
from webhook.inventory.rule_delta import asks_for_more, begins_to_evict, only_less, skips_a_step
from webhook.patches.patch_reach import does_no_more, patch_skips_a_step
from webhook.patches.patching import taints_of_patch
from webhook.policy.model import PolicyMode, Softening
from webhook.validation.patches import PATCH_TAINTS_MAX
from webhook.validation.rules import TAINT

SOFTENED: Final = "DT121"
EVERY_ONE: Final = "the policy softens every such rule"
AS_BEFORE: Final = "as before"


class SofteningResult(NamedTuple):
    """What comes of a rule or patch: edits that soften it, or `left`, what stays as it is and has to be remembered."""

    edits: tuple[Edit, ...] = ()
    remarks: tuple[Finding, ...] = ()
    impact: str = ""
    """The figures, as the audit log has them."""
    repeated: bool = False
    """Whether it was softened before and nothing is new, as when its author applies the same manifest again."""
    left: Assumed | None = None


UNTOUCHED: Final = SofteningResult()


class _Verdict(NamedTuple):
    """The taints that become NoSchedule, why, and the figures; or `left`, as in `SofteningResult`."""

    chosen: Sequence[TaintCheck] = ()
    why: str = ""
    figures: str = ""
    left: Assumed | None = None


def _verdict(
    check: LimitCheck,
    parts: Sequence[TaintCheck],
    change: GuardedChange,
    text: CarriedText | None,
    context: AdmissionContext,
    *,
    siblings: bool,
) -> _Verdict:
    """Say which of these taints become NoSchedule; none if `text` confirms what is hit.

    `siblings`: whether the figures have other parts of the same hardware.
    """
    assert context.sight is not None
    inventory, impact = context.sight.inventory, None
    always = [part for part in parts if part.limits.soften is Softening.ALWAYS and part.is_literal]
    if change.unknown or inventory is None:
        reasons = check.reasons_unknown(change.unknown, of_filter=change.of_filter)
    else:
        context.budget.check("impact")
        impact = check.impact(inventory)
        hit = check.to_confirm(impact)
        reasons = check.reasons(inventory, impact, hit)
        if not reasons and not always:
            # The next of a thousand rules must know of it.
            return _Verdict(left=check.assumed(change.stored, impact))
        if text is not None and text.fault(hit) is None:
            return _Verdict()
    chosen = parts if reasons else always
    if not chosen or not all(each.may_soften for each in reasons):
        return _Verdict()
    figures = ""
    if inventory is not None and impact is not None:
        over = [each.reason.short for each in reasons]
        shown = (
            check.shown(inventory, impact) if siblings else with_gangs(inventory, impact, context.pods, check.in_time)
        )
        figures = annotation_of(shown, acts=True, over=over)
    return _Verdict(chosen, "; ".join(dict.fromkeys([each.reason.text for each in reasons])) or EVERY_ONE, figures)


def _remark(path: Path, what: str, why: str, context: AdmissionContext) -> Finding:
    # What nothing evicts comes first: a long warning is cut at its end.
    text = "; ".join(filter(None, [what, context.worker_problem, why]))
    return Finding(Severity.WARN, forbidden(path, text), code=SOFTENED)


def _is_later(given: datetime | None, stored: datetime, now: datetime) -> bool:
    """Tell whether the author of a taint that is softened again gave it a later time than the stored one.

    An earlier one was replaced when it was softened. The present time is what a server writes where a manifest has none
    (D-1).
    """
    return given is not None and given > stored and abs(now - given) > BACKDATED


# --- rules ----------------------------------------------------------------------------------------


def softening_of(
    new: DeviceTaintRule, old: DeviceTaintRule | None, request: AdmissionRequest, context: AdmissionContext
) -> SofteningResult:
    """Decide whether a rule that is created (`old` is None) or updated becomes NoSchedule. Raises OutOfTime."""
    mode = context.policy.mode
    if not _may_become(new) or context.sight is None or mode is PolicyMode.OFF:
        return UNTOUCHED
    check = LimitCheck((new,), old, request, context)
    text = CarriedText(new, old, request, context, backdated=is_backdated(new, old, context.now))
    # A new text allows the rule as it is, or the guard refuses it.
    if not check.parts[0].limits.softens or breaks_glass(request, context) or text.is_new:
        return UNTOUCHED
    again = None if old is None else _again(new, old, context.now)
    if old and again and only_less(again, old) and not asks_for_more(again, old, usual_rates(context)):
        return _result(new, again, AS_BEFORE, context)._replace(repeated=True)
    twice = context.policy.impact.two_step and skips_a_step(new, old)
    change = change_of_rule(new, old, context)
    if mode is not PolicyMode.ENFORCE or twice or not change.judged:
        return UNTOUCHED
    found = _verdict(check, check.parts, change, text if again is None else None, context, siblings=False)
    if not found.chosen:
        return SofteningResult(left=found.left)
    now = context.now
    time = rule_time(_soft(new, new.taint.time_added), old, now)
    soft = _soft(new, time)
    if now - time > BACKDATED and begins_to_evict(soft, old):
        soft = _soft(new, now.replace(microsecond=0))
    return _result(new, soft, found.why, context)._replace(impact=found.figures)


def _again(new: DeviceTaintRule, old: DeviceTaintRule, now: datetime) -> DeviceTaintRule | None:
    """Return a rule that was softened before as it is stored if it is softened again; None for any other."""
    if not old.softened:
        return None
    given, stored = new.taint.time_added, old.taint.time_added
    return _soft(new, given if stored is None or _is_later(given, stored, now) else stored)


def _may_become(rule: DeviceTaintRule) -> bool:
    """Tell whether softening would change the rule: it has NoExecute, or asks our worker to evict without our mark."""
    asks = rule.taint.effect == NO_SCHEDULE and rule.effective_effect == NO_EXECUTE
    return rule.taint.effect == NO_EXECUTE or (asks and not rule.softened)


def _soft(rule: DeviceTaintRule, time: datetime | None) -> DeviceTaintRule:
    """Return the rule as it is stored once it is softened."""
    annotations = {**rule.meta.annotations, EVICT: "true", SOFTENED_FROM: NO_EXECUTE}
    return structs.replace(
        rule,
        meta=structs.replace(rule.meta, annotations=annotations),
        taint=structs.replace(rule.taint, effect=NO_SCHEDULE, time_added=time),
    )


def _result(new: DeviceTaintRule, soft: DeviceTaintRule, why: str, context: AdmissionContext) -> SofteningResult:
    literal = new.taint.effect == NO_EXECUTE
    what = f"NoExecute became NoSchedule with annotation {EVICT}" if literal else f"was marked with {SOFTENED_FROM}"
    return SofteningResult(tuple(_edits(new, soft)), (_remark(TAINT.child("effect"), what, why, context),))


def _edits(new: DeviceTaintRule, soft: DeviceTaintRule) -> Iterator[Edit]:
    if new.taint.effect != NO_SCHEDULE:
        yield ("spec", "taint", "effect"), NO_SCHEDULE
    if soft.taint.time_added is not None and soft.taint.time_added != new.taint.time_added:
        yield ("spec", "taint", "timeAdded"), format_time(soft.taint.time_added)
    for name in (EVICT, SOFTENED_FROM):
        if new.meta.annotations.get(name) != soft.meta.annotations[name]:
            yield ("metadata", "annotations", name), soft.meta.annotations[name]


_encoder: Final = msgspec.json.Encoder(order="deterministic")


def owners_as_stored(request: AdmissionRequest) -> Iterator[Edit]:
    """Yield the stored managedFields, if those of the request differ only in their times and so in their order.

    Server-side apply sees NoExecute where NoSchedule is stored, and writes a new time for its author. The API server
    takes that back where nothing else has changed, but not if entries of others lie between the two times.
    """
    new, old = (_managed_fields(value) for value in (request.object, request.old_object))
    if new != old and _without_times(new) == _without_times(old):
        yield ("metadata", "managedFields"), old


def _managed_fields(value: JSON) -> list[Any]:
    meta = value.get("metadata") if isinstance(value, dict) else None
    fields = meta.get("managedFields") if isinstance(meta, dict) else None
    return fields if isinstance(fields, list) else []


def _without_times(entries: list[Any]) -> list[bytes]:
    kept = [{**each, "time": None} if isinstance(each, dict) else each for each in entries]
    return sorted(map(_encoder.encode, kept))


# --- patches --------------------------------------------------------------------------------------


def softening_of_patch(
    new: ResourceSlicePatch, old: ResourceSlicePatch | None, request: AdmissionRequest, context: AdmissionContext
) -> SofteningResult:
    """Return whether taints of a patch that is created (`old` is None) or updated become NoSchedule. Raises OutOfTime.

    As with rules, the guard accepts what comes of it by the same entry of the policy, and annotation `softened-keys`
    makes it no milder. The rules of such taints have `/evict`.
    """
    literal = frozenset([taint.key for taint in new.taints if taint.effect == NO_EXECUTE])
    mode, sight = context.policy.mode, context.sight
    if sight is None or mode is PolicyMode.OFF or not literal or len(new.taints) > PATCH_TAINTS_MAX:
        return UNTOUCHED
    text = CarriedText(new, old, request, context)
    # A new text allows the patch as it is, or the guard refuses it.
    if text.is_new or breaks_glass(request, context) or _would_clash(new, literal):
        return UNTOUCHED
    rates = usual_rates(context)
    if old is not None and literal <= old.softened_keys:
        again = _soft_patch(new, old, literal, context.now)
        if does_no_more(again, old, rates):
            return _result_of_patch(new, old, again, AS_BEFORE, context)._replace(repeated=True)
    twice = context.policy.impact.two_step and patch_skips_a_step(new, old)
    if mode is not PolicyMode.ENFORCE or twice:
        return UNTOUCHED
    context.budget.check("impact")
    change = change_of_patch(new, old, sight.inventory, context)
    check = LimitCheck(change.judged, old, request, context, backdated=change.backdated)
    parts = [part for part in check.parts if part.limits.softens and part.is_literal]
    fresh = old is None or literal.isdisjoint(old.softened_keys)
    confirmed = CarriedText(new, old, request, context, backdated=change.backdated) if fresh else None
    found = _verdict(check, parts, change, confirmed, context, siblings=True) if parts else _Verdict()
    if not found.chosen:
        return SofteningResult(left=found.left)
    keys = [part.rule.taint.key for part in found.chosen]
    soft = _soft_patch(new, old, keys, context.now)
    if is_backdated_patch(soft, old, context.now):
        soft = _soft_patch(new, None, keys, context.now)
    return _result_of_patch(new, old, soft, found.why, context)._replace(impact=found.figures)


def _would_clash(patch: ResourceSlicePatch, keys: Iterable[str]) -> bool:
    """Tell whether a softened taint would take the place of another one: of the same key and effect only one counts."""
    return not {taint.key for taint in patch.taints if taint.effect == NO_SCHEDULE}.isdisjoint(keys)


def _soft_patch(
    patch: ResourceSlicePatch, old: ResourceSlicePatch | None, keys: Iterable[str], now: datetime
) -> ResourceSlicePatch:
    """Return the patch as it is stored once its NoExecute taints with these keys are softened."""
    chosen = frozenset(keys)
    taints = tuple(
        [
            structs.replace(taint, effect=NO_SCHEDULE, time_added=_time_of_taint(taint, old, now))
            if taint.effect == NO_EXECUTE and taint.key in chosen
            else taint
            for taint in patch.taints
        ]
    )
    known = patch.softened_keys & {taint.key for taint in patch.taints if taint.effect == NO_SCHEDULE}
    annotations = {**patch.meta.annotations, SOFTENED_KEYS: ",".join(sorted(chosen | known))}
    return structs.replace(patch, meta=structs.replace(patch.meta, annotations=annotations), taints=taints)


def _time_of_taint(taint: DeviceTaint, old: ResourceSlicePatch | None, now: datetime) -> datetime:
    """Return when a taint that is softened was added: as it is stored, unless its author gave a later time.

    The present time stands for an earlier one: grace periods must not be over when it is softened.
    """
    given, now = taint.time_added, now.replace(microsecond=0)
    for each in taints_of_patch(old).values() if old is not None else ():
        if old is not None and old.is_softened(each) and (each.key, each.value) == (taint.key, taint.value):
            stored = each.time_added or now
            return given if given is not None and _is_later(given, stored, now) else stored
    return now if given is None or now - given > BACKDATED else given


def _result_of_patch(
    new: ResourceSlicePatch,
    old: ResourceSlicePatch | None,
    soft: ResourceSlicePatch,
    why: str,
    context: AdmissionContext,
) -> SofteningResult:
    first = next(
        at for at, (one, other) in enumerate(zip(new.taints, soft.taints, strict=True)) if one.effect != other.effect
    )
    what = f"NoExecute became NoSchedule with annotation {SOFTENED_KEYS}"
    remark = _remark(PATCH_TAINTS.index(first).child("effect"), what, why, context)
    return SofteningResult(tuple(_edits_of_patch(new, old, soft, context)), (remark,))


def _edits_of_patch(
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
