"""Policy in a review: claims and templates by what they tolerate, rules, patches and slices by the taints they set.

`explanation` says why a review came out as it did: every rule that was evaluated, and the fields that did not match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from webhook.admission.claim_view import REQUESTED_BY, UNNAMEABLE, ClaimView, texts_of
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Change, Difference
from webhook.admission.excess import Excess
from webhook.admission.review import AdmissionRequest
from webhook.admission.rulings import (
    Ruling,
    Rulings,
    at_most,
    claim_rulings,
    findings_of,
    not_judged,
    request_text,
    taint_rulings,
    taint_text,
    taint_variables,
    taints_set_by,
    toleration_text,
    unknown_author,
    who_asks,
)
from webhook.api.claims import CLAIMING, ResourceClaim, ResourceClaimTemplate
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.policy.decide import Judge
from webhook.policy.evaluation import RuleHit
from webhook.policy.explain import ClaimQuestion, Considered, TaintQuestion, considered
from webhook.policy.match import Requester, Scope
from webhook.policy.model import DEFAULT_RULE, Action, PolicyMode, Subject, UnknownAuthor

MAX_FINDINGS: Final = 1000
"""Findings of the policy on one object that are reported."""
_NO_RULINGS: Final = Rulings()
_TEMPLATE_AUTHOR: Final = Path.root().child("spec", "metadata", "annotations").key(REQUESTED_BY)
AUTHOR_RULE: Final = "requestedBy"
"""The name under which a template that names another author is refused."""


class PolicyFindings(NamedTuple):
    """The result of the policy: findings, the rules that matched, and where the candidate differs."""

    findings: tuple[Finding, ...] = ()
    hits: tuple[tuple[str, Action], ...] = ()
    differences: tuple[Difference, ...] = ()

    @property
    def spoke(self) -> bool:
        """Whether a rule other than the default matched."""
        return any([name != DEFAULT_RULE for name, _ in self.hits])  # noqa: C419 -- a list of few is quicker


SILENT: Final = PolicyFindings()


def policy_findings(
    new: Any, old: Any, request: AdmissionRequest, context: AdmissionContext, excess: Excess | None = None
) -> PolicyFindings:
    """Return the policy's findings on an object that is created (`old` is None) or updated. Raises OutOfTime.

    `excess` describes what was cut off the object: that is not judged, and counts against it.
    """
    if isinstance(new, CLAIMING):
        if isinstance(new, ResourceClaim) and context.candidate is None and not claims_matter(context.judge):
            return SILENT
        claiming = ClaimView(new, request, context, excess)
        if claiming.for_extended_resource:
            return SILENT
        return _on_claim(claiming, old, request, context)
    return _on_taint(new, old, request, context)


def claims_matter(judge: Judge) -> bool:
    """Return whether the policy judges what claims ask for, so that their author matters."""
    return judge.judges_claims or judge.policy.unknown_author is UnknownAuthor.DENY


def _on_claim(claiming: ClaimView, old: Any, request: AdmissionRequest, context: AdmissionContext) -> PolicyFindings:
    updating = old is not None
    candidate = context.candidate
    findings: list[Finding] = []
    if isinstance(claiming.new, ResourceClaimTemplate) and not updating:
        findings += _authorship(claiming.new, request, context)
    said, active = _findings_and_rulings(claiming, context.judge, context, updating=updating)
    findings += said
    others: tuple[Difference, ...] = ()
    if candidate is not None:
        _, tried = _findings_and_rulings(claiming, candidate, context, updating=updating)
        others = tuple(differences(active.shown, tried.shown))
    if not findings and not others and not active.names:
        return SILENT
    return PolicyFindings(tuple(at_most(findings, MAX_FINDINGS)), active.names, others)


def _findings_and_rulings(
    claiming: ClaimView, judge: Judge, context: AdmissionContext, *, updating: bool
) -> tuple[list[Finding], Rulings]:
    """Return the findings of one policy, and the rulings behind them."""
    mode = judge.claim_mode(generated=claiming.generated, updating=updating)
    if mode is PolicyMode.OFF or not claims_matter(judge):
        return [], _NO_RULINGS
    scope = claiming.scope()
    findings: list[Finding] = []
    if scope.requester is None:
        # A template that was cut gets no author: that must not be a way around rules on authors.
        if judge.policy.unknown_author is UnknownAuthor.ALLOW and not claiming.cut:
            return [], _NO_RULINGS
        if claiming.tolerates:
            findings.append(unknown_author(judge, context.authors_unproved, updating=updating))
    by_mode = judge.mode_turns_down(generated=claiming.generated, updating=updating)
    if claiming.excess is not None:
        findings += not_judged(claiming.excess, judge, scope, mode, context.now, by_mode=by_mode)
    # A comparison needs all of them, also those that are silent.
    rulings = claim_rulings(claiming, judge, scope, context, everything=context.candidate is not None)
    if rulings.shown:
        shown = _in_time(rulings.shown, context)
        who = who_asks(claiming, scope)
        findings += findings_of(shown, who, mode, context.now, by_mode=by_mode, most=MAX_FINDINGS)
    return findings, rulings


def _in_time(rulings: tuple[Ruling, ...], context: AdmissionContext) -> Iterator[Ruling]:
    """Yield each ruling, while there is time: what is said about thousands of them takes as long as to make them."""
    for ruling in rulings:
        context.budget.check("policy")
        yield ruling


def _authorship(new: ResourceClaimTemplate, request: AdmissionRequest, context: AdmissionContext) -> Iterator[Finding]:
    """Return whether a new template names its sender as the author, as /mutate makes it do. A file is not sent yet."""
    if context.offline or context.policy.mode is PolicyMode.OFF:
        return
    annotation = new.claim_meta.annotations.get(REQUESTED_BY)
    texts = texts_of(Requester(request.username, request.groups))
    if annotation is not None and annotation not in texts:
        text = "names another author than the requester; leave it out, the webhook writes it"
        error = forbidden(_TEMPLATE_AUTHOR, text if texts else f"must be left out: {UNNAMEABLE}")
        yield Finding.refusal(error, enforced=context.policy.mode is PolicyMode.ENFORCE, rule=AUTHOR_RULE)
    elif annotation is None and claims_matter(context.judge):
        text = "is missing" if texts else f"is missing, because {UNNAMEABLE}"
        error = forbidden(_TEMPLATE_AUTHOR, f"{text}; claims made from the template will have an unknown author")
        yield Finding(Severity.WARN, error, rule=AUTHOR_RULE)


def _on_taint(new: Any, old: Any, request: AdmissionRequest, context: AdmissionContext) -> PolicyFindings:
    judge, candidate = context.judge, context.candidate
    mode = context.policy.mode
    active: tuple[Ruling, ...] = ()
    if mode is not PolicyMode.OFF and judge.judges_taints:
        active = tuple(taint_rulings(new, old, request, judge, context))
    others: tuple[Difference, ...] = ()
    if candidate is not None and (candidate.judges_taints or active):
        off = candidate.policy.mode is PolicyMode.OFF
        others = tuple(differences(active, () if off else taint_rulings(new, old, request, candidate, context)))
    if not active and not others:
        return SILENT
    findings = list(findings_of(active, f'"{request.username}"', mode, context.now, by_mode=mode is PolicyMode.WARN))
    names = [name for ruling in active for name in ruling.evaluation.names]
    return PolicyFindings(tuple(at_most(findings, MAX_FINDINGS)), tuple(names), others)


# --- the candidate -------------------------------------------------------------------------------


def differences(active: Iterable[Ruling], candidate: Iterable[Ruling]) -> Iterator[Difference]:
    """Yield where two policies differ on the same object; refusals count as such in every mode."""
    before = {(str(ruling.path), ruling.what): ruling for ruling in active}
    after = {(str(ruling.path), ruling.what): ruling for ruling in candidate}
    for key in sorted(before.keys() | after.keys()):
        old_word, old_rule = _word(before.get(key))
        new_word, new_rule = _word(after.get(key))
        if old_word is new_word:
            continue
        path, what = key
        if new_word is Action.DENY:
            yield Difference(path, what, new_rule, Change.DENIED)
        elif old_word is Action.DENY:
            yield Difference(path, what, old_rule, Change.ALLOWED)
        elif new_word is Action.WARN:
            yield Difference(path, what, new_rule, Change.WARNED)
        elif old_word is Action.WARN:
            yield Difference(path, what, old_rule, Change.SILENT)


def _word(ruling: Ruling | None) -> tuple[Action, str]:
    """Return the strongest action that the requester sees, and its rule. Audit is not shown to the requester."""
    if ruling is None:
        return Action.ALLOW, DEFAULT_RULE
    refusal = ruling.denied_by
    if refusal is not None:
        return Action.DENY, refusal.rule.name
    for hit in ruling.hits:
        if hit.action is Action.WARN:
            return Action.WARN, hit.rule.name
    return Action.ALLOW, ruling.hits[-1].rule.name


# --- why ------------------------------------------------------------------------------------------


class Walk(NamedTuple):
    """The rules that one toleration, request or taint was judged by; `what` is that in words."""

    path: Path
    what: str
    considered: tuple[Considered, ...]

    @property
    def hits(self) -> tuple[RuleHit, ...]:
        """The rules that match, in order."""
        return tuple(each.hit for each in self.considered if each.hit is not None)

    @property
    def action(self) -> Action:
        """The rules' verdict."""
        hits = self.hits
        return Action.DENY if hits and hits[-1].action is Action.DENY else Action.ALLOW


class Explanation(NamedTuple):
    """All evaluations of a review. `who` asks; `notes` say why rules were not evaluated, or why they do not refuse."""

    who: str = ""
    notes: tuple[str, ...] = ()
    walks: tuple[Walk, ...] = ()


NO_TOLERATIONS: Final = "no tolerations, and no rule with subject request: no rule is asked"
NO_TAINTS: Final = "no taint is set that a rule could be about: no rule is asked"

NOTHING: Explanation = Explanation()
"""For objects that no rule is evaluated on."""


def explanation(
    new: Any, old: Any, request: AdmissionRequest, context: AdmissionContext, excess: Excess | None = None
) -> Explanation:
    """Explain an object without field errors; of one that was cut, what is left. Raises OutOfTime."""
    if isinstance(new, CLAIMING):
        claiming = ClaimView(new, request, context, excess)
        return explanation_of_claim(claiming, claiming.scope(), old, context)
    return _of_taints(new, old, request, context)


def explanation_of_claim(claiming: ClaimView, scope: Scope, old: Any, context: AdmissionContext) -> Explanation:
    """Explain a claim or template that the requester in `scope` asks for. Raises OutOfTime."""
    judge = context.judge
    who = who_asks(claiming, scope)
    if claiming.for_extended_resource:
        return Explanation(who, ("the scheduler made this claim for an extended resource: no rule is asked",))
    if not claims_matter(judge):
        return Explanation(who, ("no rule of the policy is about claims, and its default is allow",))
    if context.policy.mode is PolicyMode.OFF:
        return Explanation(who, ("the policy's mode is off: no rule is asked",))
    mode = judge.claim_mode(generated=claiming.generated, updating=old is not None)
    notes = []
    if claiming.generated:
        notes.append("made from a template: judged as the template's author")
    no_author = claiming.generated and scope.requester is None
    unknown_author = no_author and judge.policy.unknown_author is UnknownAuthor.ALLOW
    if unknown_author and not claiming.cut:
        return Explanation(who, (*notes, "its author is not known, and unknownAuthor is allow: no rule is asked"))
    if mode is PolicyMode.WARN:
        notes.append(_why_warn(claiming, old, context))
    walks = tuple(_claim_walks(claiming, scope, context))
    return Explanation(who, tuple(notes) if walks else (NO_TOLERATIONS,), walks)


def _why_warn(claiming: ClaimView, old: Any, context: AdmissionContext) -> str:
    if old is not None:
        return "an update changes no toleration: refusals are warnings"
    if claiming.generated and context.policy.mode is PolicyMode.ENFORCE:
        return "generatedClaims is warn: refusals are warnings"
    return "the policy's mode is warn: refusals are warnings"


def _claim_walks(claiming: ClaimView, scope: Scope, context: AdmissionContext) -> Iterator[Walk]:
    judge = context.judge
    asks_requests = bool(judge.rules_on(Subject.REQUEST))
    for asked, target in claiming.asks():
        if asks_requests:
            context.budget.check("policy")
            variables = partial(claiming.variables, asked, target, scope, None)
            question = ClaimQuestion(scope, target, None)
            yield Walk(asked.path, request_text(target), considered(judge, question, context.now, variables))
        for position, toleration in enumerate(asked.exact.tolerations):
            context.budget.check("policy")
            variables = partial(claiming.variables, asked, target, scope, toleration)
            question = ClaimQuestion(scope, target, toleration)
            found = considered(judge, question, context.now, variables)
            yield Walk(asked.toleration(position), toleration_text(toleration), found)


def _of_taints(new: Any, old: Any, request: AdmissionRequest, context: AdmissionContext) -> Explanation:
    judge = context.judge
    requester = Requester(request.username, request.groups)
    who = f'"{request.username}"'
    if context.policy.mode is PolicyMode.OFF:
        return Explanation(who, ("the policy's mode is off: no rule is asked",))
    walks = []
    for path, place, taint, meta in taints_set_by(new, old, judge, context.now):
        context.budget.check("policy")
        variables = partial(taint_variables, requester, place, taint, meta)
        found = considered(judge, TaintQuestion(requester, place, taint), context.now, variables)
        walks.append(Walk(path, taint_text(place, taint), found))
    if not walks:
        return Explanation(who, (NO_TAINTS,))
    warned = context.policy.mode is PolicyMode.WARN
    return Explanation(who, ("the policy's mode is warn: refusals are warnings",) if warned else (), tuple(walks))
