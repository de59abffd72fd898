"""The guard: reports what a rule would hit, and refuses it if that exceeds the limits of the policy.

What a rule did before and still does is not judged again. Everything that is refused for its impact can be confirmed
with a code, or waived for members of a break-glass group; both are recorded in the audit log.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.admission.closed_devices import closed_alone, closed_with_recent
from webhook.admission.confirmation import NOTHING, CarriedCode, ImpactToConfirm, Numbers, about_of, make_code
from webhook.admission.decision import BREAK_GLASS, AssumedRule
from webhook.admission.impact_text import annotation_of, count, figures_of, first_names, summary_of
from webhook.admission.lint import CLOCK_SKEW
from webhook.admission.recent_impact import hit_with_recent, limits_in_numbers
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.api.meta import format_time, parse_time
from webhook.api.rules import CONFIRM_IMPACT, EXPIRES_AT, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.hardware import siblings_of_rule
from webhook.inventory.impact import Impact, Taint, impact_of
from webhook.inventory.rule_delta import EFFECT_RANK, asks_for_more, begins_to_evict, is_wide, only_less
from webhook.policy.impact_limits import limits_for, protected_among
from webhook.policy.model import Action, InTreeEvictor, PolicyMode
from webhook.policy.ports import Requester
from webhook.validation.meta import METADATA
from webhook.validation.rules import SELECTOR, TAINT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.admission.closed_devices import ClosedDevices
    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest
    from webhook.inventory.state import Inventory
    from webhook.policy.model import ImpactLimits, ImpactSettings

GUARD: Final = "impact"
"""The name under which the guard reports findings, like the name of a policy rule."""
_CONFIRM: Final = METADATA.child("annotations").key(CONFIRM_IMPACT)
_EXPIRES: Final = METADATA.child("annotations").key(EXPIRES_AT)
_UNPROVED: Final = "API servers do not prove to the webhook who they are (docs/callers.md)"


class GuardFindings(NamedTuple):
    """The result of the guard. `assumed` is what will act if this is allowed."""

    findings: tuple[Finding, ...] = ()
    annotations: Mapping[str, str] = {}
    assumed: AssumedRule | None = None
    broke_glass: bool = False
    """Whether a refusal was waived."""


SILENT: Final = GuardFindings()


def guard(
    new: DeviceTaintRule, old: DeviceTaintRule | None, request: AdmissionRequest, context: AdmissionContext
) -> GuardFindings:
    """The guard's findings on a rule that is created (`old` is None) or updated. Raises OutOfTime."""
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
        self._in_tree = context.policy.in_tree_evictor is InTreeEvictor.ACTIVE
        self._effect = new.effective_effect
        self._acts = self._effect in EFFECT_RANK
        self._evicts = self._effect == NO_EXECUTE
        self._was = "" if old is None else old.effective_effect
        self._taint = Taint.of_rule(new, in_tree=self._in_tree)
        self._asks_for_more = old is not None and asks_for_more(new, old, _usual_rates(context))
        self._about = about_of(new, backdated=self._backdated())
        self._code = CarriedCode(new, old, self._about, request, context)

    def result(self) -> GuardFindings:
        """Findings, the figures for the audit log, and the rule itself if later reviews must count it."""
        if self._context.policy.mode is PolicyMode.OFF:
            return self._answer([], {})
        findings = list(self._expired())
        sight = self._context.sight
        if sight is not None:
            findings += self._two_steps()
        if sight is None or self._only_less():
            outlived = self._code.outlived()
            return self._answer([*findings, _warn(_CONFIRM, outlived)] if outlived else findings, {})
        annotations: dict[str, str] = {}
        impact = Impact()
        if sight.inventory is None:
            findings += self._unknown(sight.unknown)
            annotations["impact"] = f"unknown: {sight.unknown}"
        else:
            self._context.budget.check("impact")
            impact = self._impact_of(sight.inventory, self._taint)
            findings += self._measured(sight.inventory, impact, annotations)
        return self._answer(findings, annotations, impact)

    def _only_less(self) -> bool:
        return self._old is not None and not self._asks_for_more and only_less(self._new, self._old)

    def _answer(
        self, findings: list[Finding], annotations: dict[str, str], impact: Impact | None = None
    ) -> GuardFindings:
        """The result, with refusals turned into warnings if the policy only warns or the glass may be broken.

        A code that is not known to be ours is refused in every mode: mode warn says what would be refused, not whose
        numbers may be stored.
        """
        glass, enforced = self._breaks_glass(), self._context.policy.mode is PolicyMode.ENFORCE
        forged = list(self._forged())
        broke = glass and _denied([*forged, *(findings if enforced else ())])
        if broke:
            annotations["impact"] = f"{annotations.get('impact', '')} {BREAK_GLASS}".lstrip()
        kept = (*_softened(findings, mild=glass or not enforced, turned_down=not glass), *_softened(forged, mild=glass))
        if not kept and not annotations:
            return SILENT
        if impact is None or not self._acts or not self._context.caller_trusted or _denied(kept):
            # An untrusted caller could otherwise fill the window with rules that do not exist.
            return GuardFindings(kept, annotations, broke_glass=broke)
        return GuardFindings(kept, annotations, AssumedRule(self._new, impact), broke)

    def _breaks_glass(self) -> bool:
        return not frozenset(self._settings.break_glass_groups).isdisjoint(self._request.groups)

    # --- what needs no inventory -----------------------------------------------------------------

    def _expired(self) -> Iterator[Finding]:
        """An expired rule must not begin to act; one that acts already is handled by the worker."""
        text = self._new.meta.annotations.get(EXPIRES_AT)
        expires = parse_time(text) if text else None
        raised = EFFECT_RANK.get(self._effect, 0) > EFFECT_RANK.get(self._was, 0)
        raised = raised or (self._acts and self._asks_for_more)
        if expires is None or expires > self._context.now or not raised:
            return
        detail = (
            f"was at {format_time(expires)}: the rule has expired; to use it again, change or remove this annotation"
        )
        yield _deny(_EXPIRES, detail)

    def _two_steps(self) -> Iterator[Finding]:
        if self._settings.two_step and self._evicts and self._old is None:
            detail = 'must not evict yet: create the rule with effect "None", look at its status, and change it then'
            yield _deny(TAINT.child("effect"), detail)

    def _forged(self) -> Iterator[Finding]:
        if self._code.forgery and not (self._code.unchecked and self._context.offline):
            yield (_warn if self._code.unchecked else _deny)(_CONFIRM, self._code.forgery)

    def _unknown(self, why: str) -> Iterator[Finding]:
        """The impact is not known, so only the reasons that do not depend on it can be reported."""
        if not self._acts:
            return
        misfit = self._code.misfit(NOTHING)
        if misfit:
            yield _deny(_CONFIRM, misfit)
        text = f"what it hits is not known: {why}"
        known = "".join(f"; {each.text}" for each in self._reasons_known())
        if known or (self._evicts and self._settings.unknown_impact is Action.DENY):
            yield _deny(SELECTOR, f"{text}{known}; try again in a while{self._glass_hint()}")
        else:
            yield _warn(SELECTOR, text)

    def _glass_hint(self) -> str:
        groups = self._settings.break_glass_groups
        return f", or as a member of group {' or '.join(groups)}" if groups else ""

    # --- what does -------------------------------------------------------------------------------

    def _measured(self, inventory: Inventory, impact: Impact, annotations: dict[str, str]) -> Iterator[Finding]:
        _context, new = self._context, self._new
        shown = impact
        if not self._acts:  # the rule does nothing yet, so show what it would do
            shown = self._impact_of(inventory, self._taint.as_if_evicting(in_tree=self._in_tree))
        check = partial(_context.budget.check, "impact")
        effect = "" if self._acts else NO_EXECUTE
        shown = structs.replace(shown, siblings=siblings_of_rule(inventory, new, effect, check))
        hit = self._hit(impact)
        reasons = list(self._reasons(inventory, impact, hit)) if self._acts else []
        driver = next((each.driver for each in reasons if each.driver), "")
        over = [each.short for each in reasons]
        annotations["impact"] = annotation_of(shown, acts=self._acts, over=over, driver=driver)
        if not reasons:
            yield from [_warn(SELECTOR, text) for text in figures_of(shown, new, in_tree=self._in_tree)]
            misfit = self._code.misfit(hit)
            if misfit:
                yield _deny(_CONFIRM, f"{misfit}; the rule needs no code, so leave the annotation out")
            return
        fault = self._code.fault(hit)
        if fault is None:
            annotations["impact"] += " confirmed"
            yield from [_warn(SELECTOR, text) for text in figures_of(shown, new, in_tree=self._in_tree)]
            return
        reason = "; ".join(each.text for each in reasons)
        yield _deny(SELECTOR, f"{summary_of(impact, new)}: {reason}; {self._way_out(hit)}")
        if self._code.text and not self._code.forgery:
            yield _deny(_CONFIRM, fault)

    def _impact_of(self, inventory: Inventory, taint: Taint) -> Impact:
        context = self._context
        return impact_of(inventory, self._new.selector, taint, context.now, partial(context.budget.check, "impact"))

    def _hit(self, impact: Impact) -> ImpactToConfirm:
        numbers = Numbers(impact.devices, len(impact.claims), len(impact.pods), len(impact.namespaces))
        context, check = self._context, partial(self._context.budget.check, "impact")
        protected = protected_among(self._settings.protected_namespaces, impact.namespaces, context.names, check)
        return ImpactToConfirm(numbers, impact.namespaces, protected)

    def _way_out(self, hit: ImpactToConfirm) -> str:
        key = self._context.key
        if key is None:
            return f"it cannot be confirmed while the webhook has no key; narrow the selector{self._glass_hint()}"
        if not self._context.caller_trusted:
            return f"it cannot be confirmed, because {_UNPROVED}; narrow the selector{self._glass_hint()}"
        expires = self._context.now + timedelta(seconds=self._settings.confirm_for_seconds)
        code = make_code(self._about, hit, self._request.username, expires, key)
        who = "to go ahead, another user must" if self._settings.second_person else "to go ahead,"
        return f'narrow the selector, or {who} set annotation {CONFIRM_IMPACT} to "{code}"'

    def _backdated(self) -> bool:
        """Whether a grace period may be over before anyone can react: timeAdded is past for pods that are newly hit."""
        added = self._new.taint.time_added
        past = added is not None and added < self._context.now - CLOCK_SKEW
        return past and begins_to_evict(self._new, self._old)

    def _reasons_known(self) -> Iterator[_Reason]:
        """Why the rule is over the limit, whatever it hits."""
        selector = self._new.selector
        if selector is None:
            text = "a rule without selector evicts no pod, but schedulers of 1.33 to 1.37 "
            text += "allocate no device while it exists"
            yield _Reason("no-selector", text)
        elif selector.empty:
            yield _Reason("empty-selector", "an empty selector is every device of every driver")
        elif selector.unknown:
            text = "the selector has fields that are not known here, so it counts as every device"
            yield _Reason("unknown-selector", text)
        elif is_wide(selector):
            yield _Reason("unknown-selector", "nothing in the selector can be judged, so it counts as every device")
        if self._backdated():
            assert self._new.taint.time_added is not None
            text = f"timeAdded {format_time(self._new.taint.time_added)} is past, so tolerationSeconds may be over"
            yield _Reason("backdated", text)

    def _reasons(self, inventory: Inventory, impact: Impact, hit: ImpactToConfirm) -> Iterator[_Reason]:
        """Why the rule is over the limit."""
        yield from self._reasons_known()
        requester = Requester(self._request.username, self._request.groups)
        check = partial(self._context.budget.check, "impact")
        limits = limits_for(self._settings, requester, self._new.taint, self._effect, check)
        ceiling = limits_in_numbers(limits, inventory, check)
        alone = closed_alone(limits.devices, self._new, inventory, check)
        over = _over(hit.numbers, ceiling, alone)
        if over:
            text = f"the limit is {_limits_text(over)}"
            if alone is not None and alone.over and alone.driver is not None and impact.drivers > 1:
                text += f"; it hits {count(alone.devices, 'device')} of that driver"
            yield _Reason(f"limit:{','.join(over)}", text, _driver_in(over))
        elif self._settings.window_seconds:
            yield from self._in_window(inventory, impact, limits, ceiling)
        if hit.protected:
            subject, verb = ("namespaces", "are") if len(hit.protected) > 1 else ("namespace", "is")
            yield _Reason("protected", f"{subject} {first_names(hit.protected)} {verb} protected")
        if self._evicts and self._settings.unknown_impact is Action.DENY:
            yield from _not_counted(impact)

    def _in_window(
        self, inventory: Inventory, impact: Impact, limits: ImpactLimits, ceiling: Mapping[str, int | None]
    ) -> Iterator[_Reason]:
        """Many small rules are one large one."""
        together = Numbers(0, 0, 0, 0)
        if impact.pods or impact.pod_groups:
            together = hit_with_recent(impact, inventory, self._context, in_tree=self._in_tree)
        closed = closed_with_recent(limits.devices, self._new, inventory, self._context) if impact.devices else None
        over = _over(together, ceiling, closed)
        if over:
            minutes = self._settings.window_seconds / 60
            hits = " and ".join(each.hit for each in over.values())
            text = f"with all other taints of the last {minutes:g} min it hits {hits}, and the limit is"
            yield _Reason(f"window:{','.join(over)}", f"{text} {_limits_text(over)}", _driver_in(over))


class _Reason(NamedTuple):
    """Why an impact is over the limit: a short form for the audit log, a sentence, and the driver that it is about."""

    short: str
    text: str
    driver: str = ""


class _Over(NamedTuple):
    """What is hit and what the limit is, in words; `driver` is the one whose devices these are, for a share."""

    hit: str
    limit: str
    driver: str = ""


def _not_counted(impact: Impact) -> Iterator[_Reason]:
    if impact.pod_groups:
        groups = count(len(impact.pod_groups), "PodGroup")
        verb = "uses" if len(impact.pod_groups) == 1 else "use"
        yield _Reason("pod-groups", f"{groups} of unknown size {verb} such devices")
    if impact.incomplete_pools:
        driver, pool = impact.incomplete_pools[0]
        yield _Reason("incomplete", f"pool {driver}/{pool} is being published, so devices are not all counted")


def _over(numbers: Numbers, ceiling: Mapping[str, int | None], closed: ClosedDevices | None) -> dict[str, _Over]:
    """The limits that are exceeded, by name."""
    found = {}
    if closed is not None and closed.over:
        of = "" if closed.driver is None else f" of driver {closed.driver}"
        hit, most = count(closed.devices, "device"), count(closed.limit, "device")
        found["devices"] = _Over(f"{hit}{of}", f"{most}{of}", closed.driver or "")
    for name, limit in ceiling.items():
        number = getattr(numbers, name)
        if limit is not None and number > limit:
            noun = name.removesuffix("s")
            found[name] = _Over(count(number, noun), count(limit, noun))
    return found


def _limits_text(over: Mapping[str, _Over]) -> str:
    return " and ".join(each.limit for each in over.values())


def _driver_in(over: Mapping[str, _Over]) -> str:
    return next((each.driver for each in over.values() if each.driver), "")


def _usual_rates(context: AdmissionContext) -> list[float]:
    """Evictions per second that the policy gives to rules without a rate of their own."""
    return [profile.rate for profile in context.policy.eviction]


def _softened(findings: Iterable[Finding], *, mild: bool, turned_down: bool = False) -> Iterator[Finding]:
    """The findings, with refusals as warnings if `mild`; `turned_down`: because of the policy's mode."""
    for finding in findings:
        if finding.severity is Severity.DENY and mild:
            yield Finding(Severity.WARN, finding.error, rule=finding.rule, turned_down=turned_down)
        else:
            yield finding


def _denied(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.DENY for finding in findings)


def _deny(path: Path, text: str) -> Finding:
    return Finding(Severity.DENY, forbidden(path, text), rule=GUARD)


def _warn(path: Path, text: str) -> Finding:
    return Finding(Severity.WARN, forbidden(path, text), rule=GUARD)
