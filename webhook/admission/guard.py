"""The guard: reports what a rule would hit, and refuses it if that exceeds the limits of the policy.

What a rule did before and still does is not judged again. Everything that is refused for its impact can be confirmed
with a text, or waived for members of a break-glass group; both are recorded in the audit log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import structs

from webhook.admission.carried_text import CarriedText
from webhook.admission.confirmation import ImpactToConfirm
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import BREAK_GLASS, Assumed
from webhook.admission.impact_text import annotation_of, figures_of, summary_of
from webhook.admission.over_limit import LimitCheck, LimitReason, all_soften, breaks_glass, usual_rates
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import allocated_classes
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.api.meta import format_time, parse_time
from webhook.api.rules import CONFIRM_IMPACT, EVICT, EXPIRES_AT, NOT_BEFORE, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.hardware import NO_SIBLINGS, Siblings, siblings_of_rule, written_for_hardware
from webhook.inventory.impact import Impact, Taint
from webhook.inventory.pools import Check, Evictor, in_steps
from webhook.inventory.rule_delta import EFFECT_RANK, asks_for_more, only_less, skips_a_step
from webhook.inventory.state import Inventory
from webhook.policy.model import ImpactSettings, PolicyMode
from webhook.policy.profile_matcher import PodFacts, ProfileMatcher
from webhook.policy.window_fit import Leaving, fit_texts, has_windows
from webhook.validation.meta import METADATA
from webhook.validation.rules import SELECTOR, TAINT

GUARD: Final = "impact"
"""The name under which the guard reports findings, like the name of a policy rule."""
CONFIRM: Final = METADATA.child("annotations").key(CONFIRM_IMPACT)
_EXPIRES: Final = METADATA.child("annotations").key(EXPIRES_AT)
_NOT_BEFORE: Final = METADATA.child("annotations").key(NOT_BEFORE)
_NOT_READ: Final = "delays our worker only: the in-tree controller evicts at once; use effect NoSchedule with /evict"
SWAPPED: Final = (
    "must not evict yet: its devices, its key or its value were others before, or fewer; "
    'store it like this with effect "None", look at its status, and change only the effect then'
)


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


def guard(
    new: DeviceTaintRule, old: DeviceTaintRule | None, request: AdmissionRequest, context: AdmissionContext
) -> GuardFindings:
    """The guard's findings on a rule that is created (`old` is None) or updated. Raises OutOfTime."""
    if context.sight is None and not context.offline and not new.meta.annotations:
        return SILENT  # without a cluster, only texts and times in annotations can be wrong
    return _Guarding(new, old, request, context).result()


class _Guarding:
    """One check of one rule."""

    def __init__(
        self,
        new: DeviceTaintRule,
        old: DeviceTaintRule | None,
        request: AdmissionRequest,
        context: AdmissionContext,
    ) -> None:
        self._new = new
        self._old = old
        self._request = request
        self._context = context
        self._settings: ImpactSettings = context.policy.impact
        self._check = LimitCheck(new, old, request, context)
        self._was = "" if old is None else old.effective_effect
        self._asks_for_more = old is not None and asks_for_more(new, old, usual_rates(context))
        self._text = CarriedText(new, old, request, context, backdated=self._check.backdated)
        self._hit: ImpactToConfirm | None = None
        """What the rule hits, or will hit once it acts; None if that is not known."""
        self._siblings: Siblings | None = None

    def result(self) -> GuardFindings:
        """Findings, the figures for the audit log, and the rule itself if later reviews must count it."""
        if self._context.policy.mode is PolicyMode.OFF and not self._text.is_new:
            return SILENT
        findings = list(self._expired())
        sight = self._context.sight
        if sight is not None:
            findings += self._two_steps()
        only_less = self._only_less()
        if sight is None and self._context.offline and not only_less:
            findings += self._refused_anyway()
        if sight is None or only_less:
            outlived = self._text.outlived() if self._check.evicts else None
            return self._answer([*findings, warn(CONFIRM, outlived)] if outlived else findings, {})
        annotations: dict[str, str] = {}
        impact = Impact()
        if sight.inventory is None:
            findings += self._unknown(sight.unknown)
            annotations["impact"] = f"unknown: {sight.unknown}"
        else:
            self._context.budget.check("impact")
            impact = self._check.impact(sight.inventory)
            findings += self._measured(sight.inventory, impact, annotations)
        return self._answer(findings, annotations, impact)

    def _only_less(self) -> bool:
        """Whether the update can only do less, also with the rules that the patch controller writes for it.

        A rule for hardware with more siblings than may have rules has none for them; if it is narrowed, they come.
        """
        new, old, sight = self._new, self._old, self._context.sight
        if old is None or self._asks_for_more or not only_less(new, old):
            return False
        if new.selector == old.selector or sight is None or sight.inventory is None:
            return True
        written = written_for_hardware(old, sight.inventory.rules.values())
        return all(each in written for each in self._check.beside(sight.inventory))

    def _answer(
        self, findings: list[Finding], annotations: dict[str, str], impact: Impact | None = None
    ) -> GuardFindings:
        """The result as `answer` gives it, with the rule if it acts."""
        set_now = list(faults_of_new(self._text, self._hit, self._context))
        found = answer(findings, set_now, annotations, self._request, self._context)
        if found is SILENT:
            return SILENT
        off = self._context.policy.mode is PolicyMode.OFF
        acts = impact is not None and self._check.acts and not off and not denied(found.findings)
        return found._replace(
            assumed=self._check.assumed(impact) if impact is not None and acts else None, siblings=self._siblings
        )

    # --- what needs no inventory -----------------------------------------------------------------

    def _expired(self) -> Iterator[Finding]:
        """An expired rule must not begin to act; one that acts already is handled by the worker."""
        text = self._new.meta.annotations.get(EXPIRES_AT)
        expires = parse_time(text) if text else None
        raised = EFFECT_RANK.get(self._check.effect, 0) > EFFECT_RANK.get(self._was, 0)
        raised = raised or (self._check.acts and self._asks_for_more)
        if expires is None or expires > self._context.now or not raised:
            return
        detail = (
            f"was at {format_time(expires)}: the rule has expired; to use it again, change or remove this annotation"
        )
        yield deny(_EXPIRES, detail)

    def _refused_anyway(self) -> Iterator[Finding]:
        """Of a file: what has to be confirmed whatever it hits, and carries no text that might do so."""
        known = self._check.reasons_known() if self._check.acts and not self._text.text else ()
        # What is not known in a selector is an error by itself, unless the release has it.
        reasons = tuple([each for each in known if each.short != "unknown-selector"])
        if not reasons or self._check.may_soften(reasons) or self._is_softened(reasons):
            return
        why = "; ".join(each.text for each in reasons)
        fix = "leave timeAdded out" if all_soften(reasons) else "narrow the selector"
        fix = "write a selector" if self._new.selector is None else fix
        way = f"{fix}, or set annotation {CONFIRM_IMPACT} to the text that the webhook's refusal has"
        yield deny(
            SELECTOR, f"{why}; {way if self._text.confirmable else 'no one may confirm it (confirmable: false)'}"
        )

    def _two_steps(self) -> Iterator[Finding]:
        if self._settings.two_step and skips_a_step(self._new, self._old):
            detail = 'must not evict yet: create the rule with effect "None", look at its status, and change it then'
            yield deny(TAINT.child("effect"), detail if self._old is None else SWAPPED)

    def _unknown(self, why: str) -> Iterator[Finding]:
        """The impact is not known, so only the reasons that do not depend on it can be reported."""
        if not self._check.acts:
            return
        text = f"its impact is not known: {why}"
        reasons = tuple(self._check.reasons_unknown(why))
        known = "".join(f"; {each.text}" for each in self._check.reasons_known())
        if reasons and not self._is_softened(reasons):
            yield deny(SELECTOR, f"{text}{known}; try again in a while{glass_hint(self._settings)}")
        else:
            yield warn(SELECTOR, text)

    def _is_softened(self, reasons: Iterable[LimitReason]) -> bool:
        """Whether the devices may be closed all the same: by the entry of the policy, and by the form of the rule.

        A new text is judged first, since the worker takes its figures for a ceiling.
        """
        return self._check.softens and self._new.softened and not self._text.is_new and all_soften(reasons)

    # --- what does -------------------------------------------------------------------------------

    def _measured(self, inventory: Inventory, impact: Impact, annotations: dict[str, str]) -> Iterator[Finding]:
        check, new = self._check, self._new
        shown = impact
        if not check.acts:  # the rule does nothing yet, so show what it would do
            shown = check.impact(inventory, check.taint.as_if_evicting(in_tree=check.in_tree))
        shown = check.with_gangs(inventory, shown)
        siblings = NO_SIBLINGS
        if not check.beside(inventory):
            siblings = siblings_of_rule(inventory, new, "" if check.acts else NO_EXECUTE, check.in_time)
        self._siblings = siblings if check.acts else None
        shown = structs.replace(shown, siblings=siblings)
        hit = check.to_confirm(impact)
        self._hit = hit if check.acts else check.to_confirm(shown)
        reasons = self._reasons(inventory, impact, hit) if check.acts else []
        driver = next((each.driver for each in reasons if each.driver), "")
        over = [each.short for each in reasons]
        annotations["impact"] = annotation_of(shown, acts=check.acts, over=over, driver=driver)
        figures = [
            warn(SELECTOR, text) for text in figures_of(shown, new, self._context.servers, in_tree=check.in_tree)
        ]
        if check.acts:
            windows = window_figures(impact, check.taint, inventory, self._context, check.in_time)
            figures += [warn(SELECTOR, text) for text in windows]
        if check.evicts and check.in_tree and new.taint.effect == NO_EXECUTE and NOT_BEFORE in new.meta.annotations:
            figures.append(warn(_NOT_BEFORE, _NOT_READ))
        fault = self._text.fault(hit)
        if not reasons:
            yield from figures
        elif fault is None:
            annotations["impact"] += " confirmed"
            yield from figures
        elif self._is_softened(reasons):
            annotations["impact"] += " softened"
            waits = "; ".join(each.text for each in reasons if each.waits)
            yield from figures
            if waits:
                yield warn(SELECTOR, f"{waits}: no pod is evicted before {CONFIRM_IMPACT} confirms it")
        else:
            yield from self._refused(reasons, shown, hit, fault)

    def _reasons(self, inventory: Inventory, impact: Impact, hit: ImpactToConfirm) -> list[LimitReason]:
        """Why the rule is over the limit. Not for what /mutate of another replica may have left as it is."""
        check, reasons = self._check, list(self._check.reasons(inventory, impact, hit))
        enforced = self._context.policy.mode is PolicyMode.ENFORCE
        if enforced and reasons and check.may_be_left(reasons) and check.left_at_once(inventory, impact):
            return []
        return reasons

    def _refused(
        self, reasons: list[LimitReason], impact: Impact, hit: ImpactToConfirm, fault: str
    ) -> Iterator[Finding]:
        text = f"{summary_of(impact, self._new, self._context.servers)}: {'; '.join(each.text for each in reasons)}"
        if self._check.may_soften(reasons) and not self._text.is_new:
            if self._context.policy.mode is not PolicyMode.ENFORCE:
                yield warn(SELECTOR, f"{text}; with mode enforce it would become NoSchedule with {EVICT}")
                return
            text += "; /mutate softens such rules, but did not answer"
        yield deny(SELECTOR, f"{text}; {way_out(self._text, hit, self._settings)}")
        if self._text.text and not self._text.misplaced():
            yield deny(CONFIRM, fault)


def way_out(text: CarriedText, hit: ImpactToConfirm, settings: ImpactSettings, what: str = "selector") -> str:
    """Return what the requester of a refused rule or patch can do; `what` selects its devices."""
    if not text.confirmable:
        return f"no one may confirm it (confirmable: false); narrow the {what}{glass_hint(settings)}"
    who = "to go ahead," if text.by_requester else "to go ahead, one of the policy's confirmers must"
    return f'narrow the {what}, or {who} set annotation {CONFIRM_IMPACT} to "{text.text_for(hit)}"'


def answer(
    findings: list[Finding],
    set_now: list[Finding],
    annotations: dict[str, str],
    request: AdmissionRequest,
    context: AdmissionContext,
) -> GuardFindings:
    """Return findings with refusals turned into warnings if the policy only warns or the glass may be broken.

    `set_now`: a text that may not be set is refused in every mode, else it could be planted while no limit asks for it.
    """
    mode, glass = context.policy.mode, breaks_glass(request, context)
    enforced = mode is PolicyMode.ENFORCE
    if mode is PolicyMode.OFF:
        findings, annotations = [], {}
    broke = glass and denied([*set_now, *(findings if enforced else ())])
    if broke:
        annotations["impact"] = f"{annotations.get('impact', '')} {BREAK_GLASS}".lstrip()
    kept = (*milder(findings, mild=glass or not enforced, turned_down=not glass), *milder(set_now, mild=glass))
    return GuardFindings(kept, annotations, broke_glass=broke) if kept or annotations else SILENT


def faults_of_new(text: CarriedText, hit: ImpactToConfirm | None, context: AdmissionContext) -> Iterator[Finding]:
    """Yield why a text that is set or changed may not be; `hit`: what the object will hit, None if it is not known."""
    if not text.is_new:
        return
    fault = text.misplaced()
    if hit is not None:
        fault = fault or text.overstated(hit)
        if fault and text.confirmable:
            fault = f'{fault}; leave the annotation out, or set annotation {CONFIRM_IMPACT} to "{text.text_for(hit)}"'
    elif context.sight is not None and fault is None:
        fault = f"cannot be compared with the impact: {context.sight.unknown}; try again in a while"
    if fault:
        yield deny(CONFIRM, fault)


def glass_hint(settings: ImpactSettings) -> str:
    """Who may break the glass, as the end of a sentence."""
    groups = settings.break_glass_groups
    return f", or as a member of group {' or '.join(groups)}" if groups else ""


def milder(findings: Iterable[Finding], *, mild: bool, turned_down: bool = False) -> Iterator[Finding]:
    """The findings, with refusals as warnings if `mild`; `turned_down`: because of the policy's mode."""
    for finding in findings:
        if finding.severity is Severity.DENY and mild:
            yield Finding(Severity.WARN, finding.error, rule=finding.rule, turned_down=turned_down)
        else:
            yield finding


def denied(findings: Iterable[Finding]) -> bool:
    """Whether any of them refuses."""
    return any(finding.severity is Severity.DENY for finding in findings)


def deny(path: Path, text: str) -> Finding:
    """A refusal of the guard."""
    return Finding(Severity.DENY, forbidden(path, text), rule=GUARD)


def warn(path: Path, text: str) -> Finding:
    """A warning of the guard."""
    return Finding(Severity.WARN, forbidden(path, text), rule=GUARD)


# --- windows of the policy ------------------------------------------------------------------------


def window_figures(
    impact: Impact, taint: Taint, inventory: Inventory, context: AdmissionContext, check: Check
) -> Iterator[str]:
    """Which pods wait for a window; nothing if our worker does not evict them."""
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
    """Namespace and known device classes of each pod that is evicted, by its uid."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for key in impact.claims:
        claim = inventory.claims[key]
        for consumer in claim.reserved_for or ():
            if consumer.uid in pods:
                _, known = found.get(consumer.uid, ("", frozenset[str]()))
                found[consumer.uid] = claim.meta.namespace, known | allocated_classes(claim)
    return found
