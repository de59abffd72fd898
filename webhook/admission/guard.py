"""The guard: reports what a rule or patch would hit, and refuses it if that exceeds the limits of the policy.

What a rule did before and still does is not judged again. A patch is judged as the rules that say the same, beside the
patches that there are: where it loses to one that does as much, it hits nothing. Of an update only counts what it adds.

Everything that is refused for its impact can be confirmed with a text, or waived for members of a break-glass group;
both are recorded in the audit log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import structs

from webhook.admission.confirmation import NOTHING, CarriedText, ImpactToConfirm
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import BREAK_GLASS, Assumed
from webhook.admission.impact_text import annotation_of, figures_of, summary_of
from webhook.admission.lint import CLOCK_SKEW
from webhook.admission.over_limit import (
    LimitCheck,
    PartReason,
    are_softened,
    breaks_glass,
    done_for,
    is_backdated,
    is_backdated_patch,
    selectors_beside,
    usual_rates,
)
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import allocated_classes
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.api.meta import format_time, parse_time
from webhook.api.patches import SOFTENED_KEYS, ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, EVICT, EXPIRES_AT, NOT_BEFORE, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.hardware import Siblings, written_for_hardware
from webhook.inventory.impact import Impact, Taint
from webhook.inventory.pools import Check, Evictor, in_steps
from webhook.inventory.rule_delta import EFFECT_RANK, asks_for_more, only_less, skips_a_step
from webhook.inventory.state import Inventory
from webhook.patches.patch_reach import (
    REACH_SECONDS,
    PatchReach,
    added_rules,
    does_no_more,
    nominal_rules,
    patch_reach,
    patch_skips_a_step,
    stands,
)
from webhook.policy.limits import PodFacts, ProfileMatcher
from webhook.policy.model import PolicyMode
from webhook.policy.windows import Leaving, fit_texts, has_windows
from webhook.validation.formats import METADATA
from webhook.validation.patches import DEVICES
from webhook.validation.rules import SELECTOR, TAINT

GUARD: Final = "impact"
"""The name under which the guard reports findings, like the name of a policy rule."""
CONFIRM: Final = METADATA.child("annotations").key(CONFIRM_IMPACT)
PATCH_TAINTS: Final = DEVICES.child("taints")
_EXPIRES: Final = METADATA.child("annotations").key(EXPIRES_AT)
_NOT_BEFORE: Final = METADATA.child("annotations").key(NOT_BEFORE)
_NOT_READ: Final = "delays our worker only: the in-tree controller evicts at once; use effect NoSchedule with /evict"
_SWAPPED: Final = (
    "must not evict yet: its devices, its key or its value were others before, or fewer; "
    'store it like this with effect "None", look at its status, and change only the effect then'
)
_NOTHING_NOW: Final = "taints no device now: the filter selects none, or other patches take precedence on all of them"
_COMING: Final = "a pool is published in part only, so what is in use in it and has not come yet counts"
_HIDDEN: Final = "other patches hide some of what it taints, and that counts: nothing is asked when they go"


class GuardFindings(NamedTuple):
    """The result of the guard. `assumed` is what will act if this is allowed."""

    findings: tuple[Finding, ...] = ()
    annotations: Mapping[str, str] = {}
    assumed: Assumed | None = None
    broke_glass: bool = False
    """Whether a refusal was waived."""
    siblings: Siblings | None = None
    """Parts of the same hardware that a rule that acts leaves in service; None if they were not looked for."""


SILENT: Final = GuardFindings()


# --- what is judged -------------------------------------------------------------------------------


class GuardedChange(NamedTuple):
    """What a rule or patch that is created or updated does that it did not do before."""

    judged: tuple[DeviceTaintRule, ...] = ()
    """The rules that say it; of a patch, if it is not known, one for each taint."""
    stored: tuple[DeviceTaintRule, ...] = ()
    """The rules that will come of it, and act."""
    remarks: tuple[str, ...] = ()
    """What is to be known of other patches' part in it."""
    unknown: str = ""
    """Why it is not known; empty if it is."""
    of_filter: bool = False
    """Whether that is because of the filter, or of other patches' filters."""
    backdated: bool = True
    """Whether a time of a patch that is past may be one for pods that it hits only now."""


def change_of_rule(new: DeviceTaintRule, old: DeviceTaintRule | None, context: AdmissionContext) -> GuardedChange:
    """Return all of a rule, or nothing if an update can only do less, also with what the patch controller adds.

    A rule for hardware with more siblings than may have rules has none for them; if it is narrowed, they come.
    """
    sight = context.sight
    whole = GuardedChange(
        (new,), (new,), unknown=sight.unknown if sight is not None and sight.inventory is None else ""
    )
    if old is None or asks_for_more(new, old, usual_rates(context)) or not only_less(new, old):
        return whole
    if new.selector == old.selector or sight is None or sight.inventory is None:
        return GuardedChange()
    written = written_for_hardware(old, sight.inventory.rules.values())
    beside = selectors_beside(sight.inventory, new, context)
    return GuardedChange() if all(each in written for each in beside) else whole


def change_of_patch(
    new: ResourceSlicePatch,
    old: ResourceSlicePatch | None,
    inventory: Inventory | None,
    context: AdmissionContext,
    *,
    whole: bool = False,
) -> GuardedChange:
    """Return what a patch adds to what is tainted, or all that it taints if it is to be judged as a `whole`.

    Raises OutOfTime.
    """
    rates = usual_rates(context)
    if old is not None:
        old = with_times(old, new, context.now)
    past = is_backdated_patch(new, old, context.now)
    no_more = not whole and old is not None and does_no_more(new, old, rates)
    if old is not None and no_more and does_no_more(old, new, rates):
        return GuardedChange()
    assert context.sight is not None
    unknown = context.sight.unknown if inventory is None else context.patches.unknown
    if inventory is None or unknown:
        return GuardedChange() if no_more else GuardedChange(nominal_rules(new), unknown=unknown, backdated=past)
    check = partial(context.budget.check, "impact")
    known, pools, stored = context.patches, inventory.pools, inventory.rules.values()
    reach_of = partial(patch_reach, known=known, pools=pools, check=check, go_on=context.budget.lasting(REACH_SECONDS))
    reach, before = _reaches(new, old, reach_of)
    if old is not None and (reach.unknown or before.unknown or not stands(old, before, stored)):
        old, before = None, PatchReach()  # one that needs too many rules has none
        past = is_backdated_patch(new, None, context.now)
    elif no_more:
        return GuardedChange()
    most, most_before = reach, before
    if reach.won is not None or before.won is not None:
        in_use = tuple(inventory.usage.unpublished(pools, check))
        judged, go_on = context.now - CLOCK_SKEW, context.budget.lasting(REACH_SECONDS)
        reach_of = partial(reach_of, judged=judged, go_on=go_on, stored=stored, unpublished=in_use)
        most, most_before = _reaches(new, old, reach_of)
    if most.unknown:
        return GuardedChange(nominal_rules(new), unknown=most.unknown, of_filter=True, backdated=past)
    added = most.rules
    if old is not None and not whole:
        added = added_rules(new, most, most_before, pools, rates)
        if most is not reach:  # what it begins to do may have been counted long ago, while others hid it
            added += added_rules(new, reach, before, pools, rates)
    remarks = tuple(_remarks(new, reach, most, inventory))
    return GuardedChange(added, tuple(_that_come(reach, before)), remarks, backdated=past)


def with_times(old: ResourceSlicePatch, new: ResourceSlicePatch, now: datetime) -> ResourceSlicePatch:
    """Return the stored patch with the times that an update gives it now where it has none: its rules are older."""
    identity = attrgetter("key", "value", "effect")
    recent = [each for each in new.taints if each.time_added is not None and each.time_added >= now - CLOCK_SKEW]
    times = {identity(each): each.time_added for each in recent}
    timed = [structs.replace(each, time_added=each.time_added or times.get(identity(each))) for each in old.taints]
    return structs.replace(old, taints=tuple(timed))


def _reaches(
    new: ResourceSlicePatch, old: ResourceSlicePatch | None, reach_of: Callable[[ResourceSlicePatch], PatchReach]
) -> tuple[PatchReach, PatchReach]:
    """Return what the patch taints, and what it did before."""
    reach = reach_of(new)
    return reach, PatchReach() if old is None or reach.unknown else reach_of(old)


def _that_come(reach: PatchReach, before: PatchReach) -> Iterator[DeviceTaintRule]:
    """Yield the rules that act and were not there before."""
    known = {(each.meta.name, each.taint, each.effective_effect) for each in before.rules}
    for each in reach.rules:
        if each.effective_effect in EFFECT_RANK and (each.meta.name, each.taint, each.effective_effect) not in known:
            yield each


def _remarks(new: ResourceSlicePatch, reach: PatchReach, most: PatchReach, inventory: Inventory) -> Iterator[str]:
    parts = inventory.pools.incomplete
    coming = [
        each
        for each in most.rules
        if each not in reach.rules and each.selector and (each.selector.driver, each.selector.pool) in parts
    ]
    if new.taints and not reach.rules:
        yield _NOTHING_NOW
    if coming:
        yield _COMING
    if [each for each in most.rules if each not in coming] != list(reach.rules):
        yield _HIDDEN


# --- the guard ------------------------------------------------------------------------------------


def guard(
    new: DeviceTaintRule, old: DeviceTaintRule | None, request: AdmissionRequest, context: AdmissionContext
) -> GuardFindings:
    """Return the findings on a rule that is created (`old` is None) or updated. Raises OutOfTime."""
    if context.sight is None and not context.offline and not new.meta.annotations:
        return SILENT  # without a cluster, only texts and times in annotations can be wrong
    text = CarriedText(new, old, request, context, backdated=is_backdated(new, old, context.now))
    if context.policy.mode is PolicyMode.OFF and not text.is_new:
        return SILENT
    twice = context.policy.impact.two_step and skips_a_step(new, old)
    guarding = _Guarding(_RULE, text, old, request, context, skips_a_step=twice)
    findings = [*_expired(new, old, context), *guarding.two_steps()]
    change = change_of_rule(new, old, context)
    if context.sight is None and context.offline and change.judged:
        findings += guarding.refused_anyway(new)
    if (context.sight is None or not change.judged) and new.effective_effect == NO_EXECUTE:
        outlived = text.outlived()
        findings += [warn(CONFIRM, outlived)] if outlived else ()
    return guarding.result(change, findings)


def _expired(new: DeviceTaintRule, old: DeviceTaintRule | None, context: AdmissionContext) -> Iterator[Finding]:
    """Refuse that an expired rule begins to act; one that acts already is handled by the worker."""
    text = new.meta.annotations.get(EXPIRES_AT)
    expires = parse_time(text) if text else None
    if expires is None or expires > context.now:
        return
    rank, was = (
        EFFECT_RANK[each.effective_effect] if each is not None and each.taint.effect in EFFECT_RANK else 0
        for each in (new, old)
    )
    if rank > was or (rank and old is not None and asks_for_more(new, old, usual_rates(context))):
        text = f"was at {format_time(expires)}: the rule has expired; to use it again, change or remove this annotation"
        yield deny(_EXPIRES, text)


def guard_patch(
    new: ResourceSlicePatch, old: ResourceSlicePatch | None, request: AdmissionRequest, context: AdmissionContext
) -> GuardFindings:
    """Return the findings on a patch that is created (`old` is None) or updated. Raises OutOfTime."""
    text = CarriedText(new, old, request, context)
    if context.policy.mode is PolicyMode.OFF and not text.is_new:
        return SILENT
    twice = context.policy.impact.two_step and patch_skips_a_step(new, old)
    change = GuardedChange()
    if context.sight is not None:
        context.budget.check("impact")
        change = change_of_patch(new, old, context.sight.inventory, context, whole=text.is_new)
        text = CarriedText(new, old, request, context, backdated=change.backdated)
    guarding = _Guarding(_PATCH, text, old, request, context, skips_a_step=twice)
    return guarding.result(change, list(guarding.two_steps()))


class _Wording(NamedTuple):
    """How the guard speaks of an object: its noun, what selects its devices, where its effect is, and softening."""

    noun: str
    selector: Path
    selecting: str
    effect: Path
    softened_with: str
    unanswered: str


_RULE: Final = _Wording(
    "rule", SELECTOR, "selector", TAINT.child("effect"), EVICT, "/mutate softens such rules, but did not answer"
)
_PATCH: Final = _Wording(
    "patch",
    DEVICES.child("filter"),
    "filter",
    PATCH_TAINTS,
    SOFTENED_KEYS,
    "/mutate softens such taints, but did not answer, or there is one of that key with NoSchedule",
)


class _Guarding:
    """One check of one rule or patch; `old` is what is stored of it."""

    def __init__(
        self,
        wording: _Wording,
        text: CarriedText,
        old: DeviceTaintRule | ResourceSlicePatch | None,
        request: AdmissionRequest,
        context: AdmissionContext,
        *,
        skips_a_step: bool,
    ) -> None:
        self._wording = wording
        self._text = text
        self._old = old
        self._request = request
        self._context = context
        self._skips_a_step = skips_a_step
        self._hit: ImpactToConfirm | None = None
        """What it hits, or will hit once it acts; None if that is not known."""
        self._why_unknown = ""
        """Why it is not."""
        self._siblings: Siblings | None = None

    def result(self, change: GuardedChange, findings: list[Finding]) -> GuardFindings:
        """Return these findings and those on its impact, figures for the audit log, and what later reviews count."""
        context, sight, annotations = self._context, self._context.sight, dict[str, str]()
        self._why_unknown = change.unknown
        findings += [warn(self._wording.selector, text) for text in change.remarks]
        if sight is None or not change.judged:
            if sight is not None and self._text.is_new and not change.unknown:
                self._hit = NOTHING._replace(done=done_for(self._old, context))
            return self._answer(findings, annotations)
        check = LimitCheck(change.judged, self._old, self._request, context, backdated=change.backdated)
        if change.unknown or sight.inventory is None:
            findings += self._unknown(check, change)
            annotations["impact"] = f"unknown: {change.unknown}"
            assumed = check.assumed(change.stored, Impact()) if change.stored else None
        else:
            context.budget.check("impact")
            impact = check.impact(sight.inventory)
            findings += self._measured(check, sight.inventory, impact, annotations)
            assumed = check.assumed(change.stored, impact)
        return self._answer(findings, annotations, assumed)

    def _answer(
        self, findings: list[Finding], annotations: dict[str, str], assumed: Assumed | None = None
    ) -> GuardFindings:
        """Return the result, with refusals as warnings if the policy only warns or the glass may be broken.

        A text that may not be set is refused in every mode, else it could be planted while no limit asks for it.
        """
        set_now = list(self._faults_of_new())
        mode, glass = self._context.policy.mode, breaks_glass(self._request, self._context)
        enforced = mode is PolicyMode.ENFORCE
        if mode is PolicyMode.OFF:
            findings, annotations = [], {}
        broke = glass and denied([*set_now, *(findings if enforced else ())])
        if broke:
            annotations["impact"] = f"{annotations.get('impact', '')} {BREAK_GLASS}".lstrip()
        kept = (*milder(findings, mild=glass or not enforced, turned_down=not glass), *milder(set_now, mild=glass))
        if not kept and not annotations:
            return SILENT
        stays = mode is PolicyMode.OFF or denied(kept)
        return GuardFindings(kept, annotations, None if stays else assumed, broke, self._siblings)

    def _faults_of_new(self) -> Iterator[Finding]:
        """Yield why a text that is set or changed may not be."""
        text, hit = self._text, self._hit
        if not text.is_new:
            return
        fault = text.misplaced()
        if hit is not None:
            fault = fault or text.overstated(hit)
            if fault and text.confirmable:
                fault = f"{fault}; leave the annotation out, or {self._to_confirm(hit)}"
        elif self._why_unknown and fault is None:
            fault = f"cannot be compared with the impact: {self._why_unknown}; try again in a while"
        if fault:
            yield deny(CONFIRM, fault)

    # --- what needs no inventory -----------------------------------------------------------------

    def two_steps(self) -> Iterator[Finding]:
        """Yield a refusal of what evicts at once; nothing where no cluster is known."""
        if self._skips_a_step and self._context.sight is not None:
            first = f'must not evict yet: create the {self._wording.noun} with effect "None", look at its status,'
            yield deny(self._wording.effect, f"{first} and change it then" if self._old is None else _SWAPPED)

    def refused_anyway(self, rule: DeviceTaintRule) -> Iterator[Finding]:
        """Yield what has to be confirmed of a rule in a file whatever it hits, if it carries no text."""
        check = LimitCheck((rule,), self._old, self._request, self._context)
        # What is not known in a selector is an error by itself, unless the release has it.
        reasons = [each for each in check.reasons_known() if each.reason.short != "unknown-selector"]
        if not reasons or self._text.text or self._may_soften(reasons) or self._are_excused(reasons):
            return
        why = "; ".join(each.reason.text for each in reasons)
        fix = "leave timeAdded out" if all(each.reason.softens for each in reasons) else "narrow the selector"
        fix = "write a selector" if rule.selector is None else fix
        way = f"{fix}, or set annotation {CONFIRM_IMPACT} to the text that the webhook's refusal has"
        way = way if self._text.confirmable else "no one may confirm it (confirmable: false)"
        yield deny(SELECTOR, f"{why}; {way}")

    def _unknown(self, check: LimitCheck, change: GuardedChange) -> Iterator[Finding]:
        """Report only the reasons that do not depend on the impact."""
        if not check.acts:
            return
        text = f"its impact is not known: {change.unknown}"
        reasons = check.reasons_unknown(change.unknown, of_filter=change.of_filter)
        if reasons and not self._are_excused(reasons):
            known = "".join(f"; {each.reason.text}" for each in check.reasons_known())
            yield deny(self._wording.selector, f"{text}{known}; try again in a while{self._glass_hint}")
        else:
            yield warn(self._wording.selector, text)

    def _are_excused(self, reasons: Iterable[PartReason]) -> bool:
        """Tell whether the devices may be closed all the same, by the policy's entry and the taint's form.

        A new text is judged first, since the worker takes its figures for a ceiling.
        """
        return not self._text.is_new and all(each.excused for each in reasons)

    def _may_soften(self, reasons: Iterable[PartReason]) -> bool:
        return not self._skips_a_step and are_softened(reasons)

    # --- what does -------------------------------------------------------------------------------

    def _measured(
        self, check: LimitCheck, inventory: Inventory, impact: Impact, annotations: dict[str, str]
    ) -> Iterator[Finding]:
        shown = check.shown(inventory, impact)
        self._siblings = shown.siblings if check.acts and self._wording is _RULE else None
        hit = self._hit = check.to_confirm(impact)
        reasons = check.reasons(inventory, impact, hit)
        if reasons and self._were_left(check, reasons, inventory, impact):
            reasons = ()
        driver = next((each.reason.driver for each in reasons if each.reason.driver), "")
        over = [each.reason.short for each in reasons]
        annotations["impact"] = annotation_of(shown, acts=check.acts, over=over, driver=driver)
        figures = self._figures(check, inventory, impact, shown)
        fault = self._text.fault(hit) if reasons else None
        if not reasons:
            yield from figures
        elif fault is None:
            annotations["impact"] += " confirmed"
            yield from figures
        elif self._are_excused(reasons):
            annotations["impact"] += " softened"
            waits = "; ".join(each.reason.text for each in reasons if each.reason.waits)
            yield from figures
            if waits and self._wording is _RULE:
                until = f" before {CONFIRM_IMPACT} confirms it"
                until = until if self._text.confirmable else ", as no one may confirm it (confirmable: false)"
                yield warn(SELECTOR, f"{waits}: no pod is evicted{until}")
        else:
            yield from self._refused(reasons, summary_of(shown, check.leading, self._context.servers), hit, fault)

    def _were_left(
        self, check: LimitCheck, reasons: Sequence[PartReason], inventory: Inventory, impact: Impact
    ) -> bool:
        """Return whether a rule is over the limit only by what /mutate of another replica may have left as it is."""
        enforced = self._wording is _RULE and self._context.policy.mode is PolicyMode.ENFORCE
        return enforced and not self._skips_a_step and check.left_by_mutate(reasons, inventory, impact)

    def _figures(self, check: LimitCheck, inventory: Inventory, impact: Impact, shown: Impact) -> Iterator[Finding]:
        leading, context = check.leading, self._context
        taint = check.taint_of(leading)
        texts = [*figures_of(shown, leading, context.servers, taint.not_before)]
        if check.acts:
            texts += window_figures(impact, taint, inventory, context, check.in_time)
        yield from [warn(self._wording.selector, text) for text in texts]
        if context.in_tree and leading.taint.effect == NO_EXECUTE and NOT_BEFORE in leading.meta.annotations:
            yield warn(_NOT_BEFORE, _NOT_READ)

    def _refused(
        self, reasons: Sequence[PartReason], summary: str, hit: ImpactToConfirm, fault: str
    ) -> Iterator[Finding]:
        at = self._wording.selector
        text = f"{summary}: {'; '.join(dict.fromkeys([each.reason.text for each in reasons]))}"
        if self._may_soften(reasons) and not self._text.is_new:
            if self._context.policy.mode is not PolicyMode.ENFORCE:
                yield warn(
                    at, f"{text}; with mode enforce it would become NoSchedule with {self._wording.softened_with}"
                )
                return
            text += f"; {self._wording.unanswered}"
        yield deny(at, f"{text}; {self._way_out(hit)}")
        if self._text.text and not self._text.misplaced():
            yield deny(CONFIRM, fault)

    def _way_out(self, hit: ImpactToConfirm) -> str:
        """Return what the requester of a refused rule or patch can do."""
        text, selecting = self._text, self._wording.selecting
        if not text.confirmable:
            return f"no one may confirm it (confirmable: false); narrow the {selecting}{self._glass_hint}"
        who = "to go ahead," if text.by_requester else "to go ahead, one of the policy's confirmers must"
        return f"narrow the {selecting}, or {who} {self._to_confirm(hit)}"

    def _to_confirm(self, hit: ImpactToConfirm) -> str:
        return f'set annotation {CONFIRM_IMPACT} to "{self._text.text_for(hit)}"'

    @property
    def _glass_hint(self) -> str:
        """Who may break the glass, as the end of a sentence."""
        groups = self._context.policy.impact.break_glass_groups
        return f", or as a member of group {' or '.join(groups)}" if groups else ""


def milder(findings: Iterable[Finding], *, mild: bool, turned_down: bool = False) -> Iterator[Finding]:
    """Yield the findings, with refusals as warnings if `mild`; `turned_down`: because of the policy's mode."""
    for finding in findings:
        if finding.severity is Severity.DENY and mild:
            yield Finding(Severity.WARN, finding.error, rule=finding.rule, turned_down=turned_down)
        else:
            yield finding


def denied(findings: Iterable[Finding]) -> bool:
    """Return whether any of them refuses."""
    return any(finding.severity is Severity.DENY for finding in findings)


def deny(path: Path, text: str) -> Finding:
    """Make a refusal of the guard."""
    return Finding(Severity.DENY, forbidden(path, text), rule=GUARD)


def warn(path: Path, text: str) -> Finding:
    """Make a warning of the guard."""
    return Finding(Severity.WARN, forbidden(path, text), rule=GUARD)


# --- windows of the policy ------------------------------------------------------------------------


def window_figures(
    impact: Impact, taint: Taint, inventory: Inventory, context: AdmissionContext, check: Check
) -> Iterator[str]:
    """Say which pods wait for a window; nothing if our worker does not evict them."""
    profiles = context.policy.eviction
    if taint.evictor is not Evictor.OURS or not has_windows(profiles):
        return
    matcher, counts = ProfileMatcher(profiles), dict[int | None, Counter[int]]()
    seconds = {uid: wave.seconds for wave in impact.waves for uid in wave.pods}
    for uid, (namespace, classes) in in_steps(_facts_of(seconds, impact, inventory).items(), check):
        position = matcher.profile_of(PodFacts(namespace, context.names.namespace(namespace), classes))
        counts.setdefault(position, Counter())[seconds[uid]] += 1
    pods = {position: dues for position, dues in counts.items() if position is not None}
    yield from fit_texts(profiles, Leaving(pods, context.now), check)


def _facts_of(pods: Container[str], impact: Impact, inventory: Inventory) -> Mapping[str, tuple[str, frozenset[str]]]:
    """Return namespace and known device classes of each pod that is evicted, by its uid."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for key in impact.claims:
        claim = inventory.claims[key]
        for consumer in claim.reserved_for or ():
            if consumer.uid in pods:
                _, known = found.get(consumer.uid, ("", frozenset[str]()))
                found[consumer.uid] = claim.meta.namespace, known | allocated_classes(claim)
    return found
