"""Why a review came out as it did: every rule that was evaluated, and the fields that did not match."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from webhook.admission.claim_view import ClaimView
from webhook.admission.context import AdmissionContext
from webhook.admission.excess import Excess
from webhook.admission.policy_check import claims_matter
from webhook.admission.review import AdmissionRequest
from webhook.admission.rulings import (
    request_text,
    taint_text,
    taint_variables,
    taints_set_by,
    toleration_text,
    who_asks,
)
from webhook.api.claims import CLAIMING
from webhook.api.field import Path
from webhook.policy.evaluation import RuleHit
from webhook.policy.explain import ClaimQuestion, Considered, TaintQuestion, considered
from webhook.policy.match import Scope
from webhook.policy.model import Action, PolicyMode, Subject, UnknownAuthor
from webhook.policy.ports import Requester


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
    """The explanation of an object without field errors; of one that was cut, of what is left. Raises OutOfTime."""
    if isinstance(new, CLAIMING):
        claiming = ClaimView(new, request, context, excess)
        return explanation_of_claim(claiming, claiming.scope(), old, context)
    return _of_taints(new, old, request, context)


def explanation_of_claim(claiming: ClaimView, scope: Scope, old: Any, context: AdmissionContext) -> Explanation:
    """The explanation of a claim or template that the requester in `scope` asks for. Raises OutOfTime."""
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
    if mode is PolicyMode.OFF:
        return Explanation(who, (*notes, "the policy's mode or generatedClaims is off: no rule is asked"))
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
    for path, place, taint, meta in taints_set_by(new, old, judge):
        context.budget.check("policy")
        variables = partial(taint_variables, requester, place, taint, meta)
        found = considered(judge, TaintQuestion(requester, place, taint), context.now, variables)
        walks.append(Walk(path, taint_text(place, taint), found))
    if not walks:
        return Explanation(who, (NO_TAINTS,))
    warned = context.policy.mode is PolicyMode.WARN
    return Explanation(who, ("the policy's mode is warn: refusals are warnings",) if warned else (), tuple(walks))
