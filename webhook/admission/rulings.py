"""Rules that match become findings: claims and templates by `rules`, taints by `taintRules`.

What an update leaves unchanged is not judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from webhook.admission.claim_view import REQUESTED_BY, ClaimView, requester_variable
from webhook.admission.context import AdmissionContext
from webhook.admission.excess import LIST_MAX, OBJECT_MAX, Excess
from webhook.admission.guard import with_times
from webhook.admission.review import AdmissionRequest
from webhook.api.field import JSON, Finding, Path, Severity, forbidden
from webhook.api.meta import ObjectMeta, format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import EVICT, RULE_ANNOTATIONS, DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.api.taints import EXISTS, NO_SCHEDULE, NONE, DeviceTaint, DeviceToleration
from webhook.policy.decide import Judge
from webhook.policy.evaluation import Evaluation, Once, RuleHit
from webhook.policy.match import Placement, Requester, Scope, Target
from webhook.policy.model import DEFAULT_RULE, Action, PolicyMode, Subject, UnknownAuthor
from webhook.validation.documented import TOLERATIONS_MAX

UNKNOWN_AUTHOR: Final = "unknownAuthor"
"""The name under which claims of unknown authors are refused or warned about."""
NOT_JUDGED: Final = "notJudged"
"""The name under which objects that are too large to be judged whole are refused or warned about."""
EXPIRY_WARNING: Final = timedelta(days=7)
"""How long before its end an exception is announced with a warning."""
_SEVERITIES: Final = {Action.DENY: Severity.DENY, Action.WARN: Severity.WARN, Action.AUDIT: Severity.AUDIT}


class Ruling(NamedTuple):
    """The evaluation of one toleration, request or taint. Its path and text are built on demand."""

    evaluation: Evaluation
    place: Callable[[], Path]
    text: Callable[[], str]

    @property
    def path(self) -> Path:
        """Its path in the object."""
        return self.place()

    @property
    def what(self) -> str:
        """What the rules matched, in words."""
        return self.text()

    @property
    def hits(self) -> tuple[RuleHit, ...]:
        """The rules that matched, in order."""
        return self.evaluation.hits

    @property
    def denied_by(self) -> RuleHit | None:
        """The rule that refuses it, if one does."""
        last = self.hits[-1] if self.hits else None
        return last if last is not None and last.action is Action.DENY else None


class Rulings(NamedTuple):
    """The rulings on a claim: those to report (or all), and the names of all rules that matched."""

    shown: tuple[Ruling, ...] = ()
    names: tuple[tuple[str, Action], ...] = ()


def claim_rulings(
    claiming: ClaimView, judge: Judge, scope: Scope, context: AdmissionContext, *, everything: bool
) -> Rulings:
    """Rule on every request, alternative and toleration; return all if `everything`, else those not silent."""
    check = context.budget.check
    scoped = judge.scoped(scope, context.now, partial(check, "policy"))
    known = None if everything else claiming.known
    settled = None if known is None else known.settled(scoped, claiming.drivers(known))
    if settled is not None:
        return Rulings((), settled)
    asks_requests = scoped.asks_requests
    shown: list[Ruling] = []
    names: list[tuple[str, Action]] = []
    drivers: list[frozenset[str] | None] = []
    """As they were when the rules were evaluated: others may be known a moment later."""
    lasting = True
    """Whether no expression took part, so that the next claim with the same spec will get the same rulings."""
    for asked, target in claiming.asks():
        drivers.append(target.drivers)
        if asks_requests:
            check("policy")
            lasting = lasting and scoped.remembered(target, None) is not None
            variables = Once(partial(claiming.variables, asked, target, scope, None), check)
            evaluation = scoped.evaluate(target, None, variables)
            names += evaluation.names
            if evaluation.hits and (everything or not evaluation.silent):
                shown.append(Ruling(evaluation, partial(getattr, asked, "path"), partial(request_text, target)))
        for position, toleration in enumerate(asked.exact.tolerations):
            check("policy")
            # Most evaluations are cached and allowed; for those nothing else is built.
            remembered = scoped.remembered(target, toleration)
            lasting = lasting and remembered is not None
            evaluation = remembered or scoped.evaluate(
                target, toleration, Once(partial(claiming.variables, asked, target, scope, toleration), check)
            )
            names += evaluation.names
            if everything or not evaluation.silent:
                shown.append(
                    Ruling(evaluation, partial(asked.toleration, position), partial(toleration_text, toleration))
                )
    if known is not None and lasting and not shown:
        known.settle(scoped, tuple(drivers), tuple(names))
    return Rulings(tuple(shown), tuple(names))


def at_most(findings: list[Finding], maximum: int) -> list[Finding]:
    """Return at most `maximum` findings; refusals before all others, since they decide."""
    if len(findings) <= maximum:
        return findings
    return sorted(findings, key=lambda finding: finding.severity is not Severity.DENY)[:maximum]


def unknown_author(judge: Judge, unproved: str, *, updating: bool) -> Finding:
    """Make the finding on a generated claim with tolerations without a known author; `unproved` is why."""
    policy = judge.policy
    refused = policy.unknown_author is UnknownAuthor.DENY and not updating
    path = Path.root().child("metadata", "annotations").key(REQUESTED_BY)
    text = "does not prove who wrote the claim's template"
    error = forbidden(path, f"{text}: {unproved}" if unproved else f"{text}; create the template again")
    if refused:
        return Finding.refusal(error, enforced=policy.mode is PolicyMode.ENFORCE, rule=UNKNOWN_AUTHOR)
    return Finding(Severity.WARN, error, rule=UNKNOWN_AUTHOR)


def not_judged(
    excess: Excess, judge: Judge, scope: Scope, mode: PolicyMode, now: datetime, *, by_mode: bool
) -> Iterator[Finding]:
    """Yield the finding on the part of an object that was cut off, as `excess` describes it.

    It is refused if any rule could refuse anything in this scope. Otherwise forbidden tolerations could hide behind
    the part that is judged.
    """
    if not (excess.unjudged or excess.requests_unjudged) or excess.first_unjudged is None:
        return
    scoped = judge.scoped(scope, now)
    refusing = scoped.refusing(Subject.TOLERATION)
    if refusing is None and excess.requests_unjudged:
        refusing = scoped.refusing(Subject.REQUEST)
    if refusing is None and not judge.judges_claims:
        return
    what = f"{excess.unjudged} of {excess.tolerations} tolerations"
    if excess.requests_unjudged:
        what += f" and {excess.requests_unjudged} requests or alternatives"
    text = f"not judged, like all that follows ({what}): of lists longer than {TOLERATIONS_MAX} at most {LIST_MAX} are"
    text += f", and {OBJECT_MAX} in all"
    if refusing is None:
        yield Finding(Severity.WARN, forbidden(excess.first_unjudged, text), rule=NOT_JUDGED)
        return
    severity = Severity.DENY if mode is PolicyMode.ENFORCE else Severity.WARN
    text += f"; rule {refusing} may refuse them; ask for fewer"
    turned_down = severity is Severity.WARN and by_mode
    yield Finding(severity, forbidden(excess.first_unjudged, text), rule=NOT_JUDGED, turned_down=turned_down)


def findings_of(
    rulings: Iterable[Ruling],
    who: str,
    mode: PolicyMode,
    now: datetime,
    *,
    by_mode: bool = False,
    most: int | None = None,
) -> Iterator[Finding]:
    """Yield what there is to say, of what `who` asked for. In mode `warn` refusals become warnings.

    `by_mode` says that they do so because of the policy's own mode, and not because the object is what it is. `most`
    is how many of those that refuse nothing are wanted, since each has a text that has to be put together.
    """
    harmless = 0
    for ruling in rulings:
        if ruling.evaluation.silent:
            continue
        enforced = mode is PolicyMode.ENFORCE and Action.DENY not in {hit.action for hit in ruling.hits}
        ending: set[str] = set()
        for hit in ruling.hits:
            exception = hit.exception
            if exception is None:
                if hit.action is not Action.ALLOW:
                    severity, turned_down = _SEVERITIES[hit.action], False
                    if severity is Severity.DENY and mode is not PolicyMode.ENFORCE:
                        severity, turned_down = Severity.WARN, by_mode
                    if severity is not Severity.DENY:
                        harmless += 1
                        if most is not None and harmless > most:
                            continue
                    error = forbidden(ruling.path, _text(ruling, hit, who))
                    yield Finding(severity, error, rule=hit.rule.name, turned_down=turned_down)
            elif (
                enforced
                and hit.rule.action is Action.DENY
                and exception.expires_at - now <= EXPIRY_WARNING
                and exception.name not in ending
            ):
                # It is reported once though it lifts several rules, and only if something relies on it.
                ending.add(exception.name)
                text = f"allowed by an exception until {format_time(exception.expires_at)} only"
                yield Finding(
                    Severity.WARN,
                    forbidden(ruling.path, f"{text}; rule {hit.rule.name} will refuse it then"),
                    rule=exception.name,
                )


def _text(ruling: Ruling, hit: RuleHit, who: str) -> str:
    """Say what is refused or reported, why, and what to do about it."""
    rule = hit.rule
    if rule.name == DEFAULT_RULE:
        text = f"no rule allows {who} {ruling.what}; ask for less, or your cluster's admins for a rule"
    elif rule.message:
        text = f"{ruling.what}: {rule.message}" if hit.action is Action.DENY else rule.message
    elif hit.action is Action.DENY:
        text = f"{who} may not use {ruling.what}; ask for less, or your cluster's admins for an exception"
    else:
        text = f"{who} asks for {ruling.what}"
    return f"{text} (its condition could not be evaluated: {hit.problem})" if hit.problem else text


def who_asks(claiming: ClaimView, scope: Scope) -> str:
    """Name the author or requester of a claim and its namespace, in words."""
    requester = scope.requester
    name = "an unknown author" if requester is None else f'"{requester.username}"'
    return f'{name} in namespace "{claiming.namespace}"' if claiming.namespace else name


def request_text(target: Target) -> str:
    """Say what a request asks for, in words."""
    text = f'devices of class "{target.device_class}"'
    return f"{text} with admin access" if target.admin_access else text


def toleration_text(toleration: DeviceToleration) -> str:
    """Put a toleration in words. A missing field means everything, easily overlooked, so it is spelled out."""
    key = f'key "{toleration.key}"' if toleration.key else "every key"
    if toleration.operator != EXISTS and toleration.value:
        key = f'{key} with value "{toleration.value}"'
    effect = toleration.effect or "every effect"
    if toleration.effect in {NO_SCHEDULE, NONE}:
        return f"a toleration of {key}, {effect}"
    seconds = toleration.toleration_seconds
    return f"a toleration of {key}, {effect}, {'for ever' if seconds is None else f'for {seconds} s'}"


# --- taints --------------------------------------------------------------------------------------

_SPEC = Path.root().child("spec")


def taint_rulings(
    new: Any, old: Any, request: AdmissionRequest, judge: Judge, context: AdmissionContext
) -> Iterator[Ruling]:
    """Rule on every taint that is new."""
    requester = Requester(request.username, request.groups)
    for path, place, taint, meta in taints_set_by(new, old, judge, context.now):
        context.budget.check("policy")
        check = partial(context.budget.check, "policy")
        variables = Once(partial(taint_variables, requester, place, taint, meta), context.budget.check)
        hits = judge.on_taint(requester, place, taint, context.now, variables, check)
        if hits:
            yield Ruling(Evaluation.of(hits), partial(Path.child, path), partial(taint_text, place, taint))


def taint_text(place: Placement, taint: DeviceTaint) -> str:
    """Put a taint in words."""
    text = f"taint {taint.key}:{taint.effect}"
    return f"{text} with {EVICT}" if place.evict else text


def taints_set_by(
    new: Any, old: Any, judge: Judge, now: datetime
) -> Iterator[tuple[Path, Placement, DeviceTaint, ObjectMeta]]:
    """Yield each taint that a request sets, where it stands and whose devices it is for."""
    match new:
        case DeviceTaintRule():
            if not isinstance(old, DeviceTaintRule) or _changed(new, old):
                evict = new.meta.annotations.get(EVICT) == "true"
                yield _SPEC.child("taint"), Placement.of(new.selector, evict=evict), new.taint, new.meta
        case ResourceSlicePatch():
            same = isinstance(old, ResourceSlicePatch) and old.filter == new.filter and old.priority >= new.priority
            stored = with_times(old, new, now).taints if same and not _annotated(new.meta, old.meta) else ()
            before = [(taint, old.is_softened(taint)) for taint in stored]
            for position, taint in enumerate(new.taints):
                softened = new.is_softened(taint)
                if (taint, softened) not in before:
                    place = Placement.of(new.filter, evict=softened)
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
    """Tell whether an update changes what the rule does; our annotations on it count (`/evict` above all)."""
    return new.selector != old.selector or new.taint != old.taint or _annotated(new.meta, old.meta)


def _annotated(new: ObjectMeta, old: ObjectMeta) -> bool:
    return any(new.annotations.get(name) != old.annotations.get(name) for name in RULE_ANNOTATIONS)


def taint_variables(requester: Requester, place: Placement, taint: DeviceTaint, meta: ObjectMeta) -> Mapping[str, JSON]:
    """Return the variables of `when`. What is not known is left out."""
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
