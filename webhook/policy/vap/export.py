"""The static part of a policy as ValidatingAdmissionPolicies: what is enforced even when none of our pods runs.

Whatever they refuse, the webhook refuses too. What they cannot express is reported, and left to the webhook.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from webhook.api.names import EXEMPT_NAMESPACES, OWN_NAMESPACE
from webhook.api.rules import CONFIRM_IMPACT
from webhook.policy.coverage import apart
from webhook.policy.model import (
    DEFAULT_RULE,
    NAMESPACE_NAME_LABEL,
    TOLERATIONS_MAX,
    Action,
    Match,
    Policy,
    PolicyException,
    PolicyMode,
    Rule,
    Subject,
    UnknownAuthor,
)
from webhook.policy.vap.cel import (
    FALSE,
    TRUE,
    CelMatch,
    all_of,
    grouped,
    listed,
    no_request,
    not_,
    taint_condition,
    time_condition,
    toleration_condition,
)
from webhook.policy.vap.objects import ALTERNATIVES_MOST, TOLERATIONS_MOST, Maker, PolicyTopic, Validation


class Coverage(StrEnum):
    """How much of a rule is exported."""

    FULL = "full"
    """Refused is exactly what the webhook refuses by this rule."""
    PARTIAL = "partial"
    """Refused is less."""
    NONE = "none"


class Exported(NamedTuple):
    """How much of a rule is exported, and why not more."""

    name: str
    coverage: Coverage
    why: tuple[str, ...] = ()


class Export(NamedTuple):
    """Policies and bindings, each policy before its binding."""

    objects: tuple[dict[str, Any], ...]
    rules: tuple[Exported, ...]
    """Those that decide; rules that warn or audit refuse nothing."""
    beyond: tuple[Exported, ...]
    """Parts of the policy that are no rules: the documented rules, the guard, authors."""

    @property
    def complete(self) -> bool:
        """Whether every rule is exported in full."""
        return all(each.coverage is Coverage.FULL for each in self.rules)


class _Step(NamedTuple):
    """A rule of a walk in CEL."""

    rule: Rule
    condition: CelMatch


class _Compile(Protocol):
    """Makes CEL of the match of what is so named."""

    def __call__(self, match: Match, name: str, *, allowing: bool) -> CelMatch: ...


class _Made(NamedTuple):
    """What a walk came to."""

    validations: list[Validation]
    rules: list[Exported]


def export(
    policy: Policy,
    *,
    protect_labels: bool = False,
    namespace: str = OWN_NAMESPACE,
    exempt: Iterable[str] = EXEMPT_NAMESPACES,
) -> Export:
    """What can be said of the policy without us; `protect_labels` adds a guard of trustedNamespaceLabels.

    Claims and templates in `namespace`, which is our own, and in `exempt` ones are left out, as the webhook does.
    """
    walks = _Walks(policy)
    walked: list[tuple[PolicyTopic, _Made]] = []
    if policy.mode is not PolicyMode.OFF:
        walked = [
            (PolicyTopic.REQUESTS, walks.of_claims(Subject.REQUEST)),
            (PolicyTopic.TOLERATIONS, walks.of_claims(Subject.TOLERATION)),
        ]
        walked.append((PolicyTopic.TAINTS, walks.of_taints()))
    maker = Maker(policy, walks.scopes, with_generated=walks.with_generated, namespace=namespace, exempt=exempt)
    objects: list[dict[str, Any]] = []
    rules: list[Exported] = []
    for kind, made in walked:
        policies = maker.made(kind, made.validations, policy.mode)
        objects += policies.objects
        rules += [_bounded(each) if each.name in policies.unbounded else each for each in made.rules]
    documented = policy.documented_rules.at_most(policy.mode)
    if documented is not PolicyMode.OFF:
        objects += maker.made(PolicyTopic.DOCUMENTED, list(documented_validations()), documented).objects
    if policy.mode is not PolicyMode.OFF:
        objects += maker.made(PolicyTopic.GUARD, list(guard_validations(policy)), policy.mode).objects
    labels = labels_validation(policy) if protect_labels else None
    if labels is not None:
        objects += maker.made(PolicyTopic.LABELS, [labels], PolicyMode.ENFORCE).objects
    return Export(tuple(objects), tuple(rules), tuple(beyond(policy, documented)))


def _bounded(rule: Exported) -> Exported:
    text = "CEL may cost too much for claims with thousands of tolerations, which are left to the webhook then"
    return rule._replace(coverage=Coverage.PARTIAL, why=(*rule.why, text))


class _Walks:
    """The rules of a policy, walked as `walk` does, in advance: what an earlier rule allows, no later one refuses."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        judged_again = policy.mode.at_most(policy.generated_claims) is PolicyMode.ENFORCE
        self._blind = judged_again and policy.unknown_author is UnknownAuthor.ALLOW
        """Whether the webhook refuses claims made from templates only if it knows their author."""
        self.with_generated = judged_again and not self._blind
        """Whether claims made from templates are judged here, with an unknown author."""
        self.scopes: dict[str, str] = {}
        """Variables that say whom and where a rule that allows is for: asked once, not for each toleration."""

    def of_claims(self, subject: Subject) -> _Made:
        """Rules on tolerations, or on requests."""
        rules = [rule for rule in self._policy.rules if rule.subject is subject]
        if subject is Subject.TOLERATION:
            rules.append(Rule(DEFAULT_RULE, self._policy.default))
        extra = ("claims made from templates depend on an author whom only the webhook knows",) if self._blind else ()

        def condition(match: Match, name: str, *, allowing: bool) -> CelMatch:
            made = toleration_condition(match, allowing=allowing, with_generated=self.with_generated)
            if subject is Subject.REQUEST:
                made = made._replace(taints=TRUE)
            return made._replace(scope=self._variable(name, made.scope)) if allowing else made

        def refusal(refusing: CelMatch, excused: Sequence[str]) -> Validation:
            if subject is Subject.REQUEST:
                asked = all_of([refusing.ask, *map(not_, excused)])
                return Validation("", no_request(refusing.scope, asked), "", ALTERNATIVES_MOST)
            return Validation("", _no_toleration(refusing, excused), "", TOLERATIONS_MOST)

        return self._made(rules, condition, refusal, extra)

    def _variable(self, name: str, scope: str) -> str:
        """A variable for a scope, named for its rule."""
        if scope in (TRUE, FALSE):
            return scope
        known = next((variable for variable, text in self.scopes.items() if text == scope), None)
        if known is None:
            known = re.sub(r"\W", "_", f"for_{name}", flags=re.ASCII)
            while known in self.scopes:  # a rule may be called exception-x, and an exception x
                known += "_"
            self.scopes[known] = scope
        return f"variables.{known}"

    def of_taints(self) -> _Made:
        """`taintRules`, on DeviceTaintRules."""
        extra = ("taints in ResourceSlices are left to the webhook",) if self._policy.taint_rules_on_slices else ()

        def condition(match: Match, name: str, *, allowing: bool) -> CelMatch:
            del name  # nothing is asked more than once
            return taint_condition(match, allowing=allowing)

        def refusal(refusing: CelMatch, excused: Sequence[str]) -> Validation:
            parts = ["variables.changed", refusing.whole, *map(not_, excused)]
            return Validation("", not_(all_of(parts)), "")

        return self._made(self._policy.taint_rules, condition, refusal, extra, timeless=True)

    def _made(
        self,
        rules: Iterable[Rule],
        condition: _Compile,
        refusal: Callable[[CelMatch, Sequence[str]], Validation],
        extra: tuple[str, ...],
        *,
        timeless: bool = False,
    ) -> _Made:
        """`timeless`: these rules are also about updates, at which no clock is to be seen."""
        made = _Made([], [])
        allowing: list[_Step] = []
        for rule in rules:
            if rule.action in (Action.WARN, Action.AUDIT):
                continue
            allows = rule.action is Action.ALLOW
            step = _Step(rule, condition(rule.match, rule.name, allowing=allows))
            why: list[str] = []
            if allows:
                allowing.append(step)
            elif not step.condition.lacks:
                excused, why = self._excuses(rule, allowing, condition, timeless=timeless)
                if self.with_generated and step.condition.of_requester:
                    why.append("it is not asked about claims made from templates, whose author is not to be seen")
                why += extra
                if FALSE not in step.condition and TRUE not in excused:
                    validation = refusal(step.condition, excused)
                    made.validations.append(validation._replace(rule=rule.name, message=_message(rule)))
            if not (rule.name == DEFAULT_RULE and allows):
                made.rules.append(_reported(rule, step.condition.lacks, why))
        return made

    def _excuses(
        self, rule: Rule, allowing: Iterable[_Step], condition: _Compile, *, timeless: bool
    ) -> tuple[list[str], list[str]]:
        """What the rule does not refuse though it matches, and why that may be more than it should."""
        excused, why = [], []
        for step in allowing:
            if apart(step.rule.match, rule.match):
                continue
            excused.append(step.condition.whole)
            if step.condition.lacks:
                fields = " and ".join(step.condition.lacks)
                why.append(
                    f'rule "{step.rule.name}" before it allows more here: only the webhook can judge its {fields}'
                )
            elif self.with_generated and step.condition.of_requester:
                why.append(f'rule "{step.rule.name}" before it looks at authors, which are not to be seen')
        for exception in self._policy.exceptions:
            if rule.name not in exception.rules or apart(exception.match, rule.match):
                continue
            found = condition(exception.match, f"exception_{exception.name}", allowing=True)
            time = time_condition(exception)
            excused.append(all_of([found.whole, f'request.operation == "UPDATE" || {time}' if timeless else time]))
            why += _of_exception(exception, found, timeless=timeless)
            if self.with_generated and found.of_requester:
                why.append(f'exception "{exception.name}" looks at authors, which are not to be seen')
        return excused, why


def _of_exception(exception: PolicyException, condition: CelMatch, *, timeless: bool) -> Iterator[str]:
    if condition.lacks:
        fields = " and ".join(condition.lacks)
        yield f'exception "{exception.name}" excuses more here: only the webhook can judge its {fields}'
    if timeless:
        yield f'exception "{exception.name}" counts as being in force for updates: no clock is to be seen there'


def _reported(rule: Rule, lacks: Sequence[str], why: Sequence[str]) -> Exported:
    if lacks:
        fields = " and ".join(lacks)
        text = f"only the webhook can judge its {fields}"
        coverage = Coverage.PARTIAL if rule.action is Action.ALLOW else Coverage.NONE
        return Exported(rule.name, coverage, (text,))
    return Exported(rule.name, Coverage.PARTIAL if why else Coverage.FULL, tuple(why))


def _message(rule: Rule) -> str:
    """As the webhook says it: why, and by which rule."""
    if rule.name == DEFAULT_RULE:
        text = "no rule allows one of these tolerations; ask for less, or your cluster's admins for a rule"
    else:
        text = rule.message or "not allowed; ask for less, or your cluster's admins for an exception"
    return f"{' '.join(text.split())} (rule {rule.name})"


# --- expressions --------------------------------------------------------------------------------


def _no_toleration(refusing: CelMatch, excused: Sequence[str]) -> str:
    """That no toleration is refused."""
    parts = [part for part in (refusing.taints, *map(not_, excused)) if part != TRUE]
    each = "\n      && ".join(grouped(part, "||", "?") if len(parts) > 1 else part for part in parts)
    some = f"asked.tolerations.exists(t,\n      {each})" if each else "size(asked.tolerations) > 0"
    return no_request(refusing.scope, f"{all_of([refusing.ask, 'has(asked.tolerations)'])}\n    && {some}")


# --- beside the rules ----------------------------------------------------------------------------

_LABELS_GROUP, _LABELS_RESOURCE, _LABELS_VERB = "policy.devicetaint.io", "trustednamespacelabels", "set"
"""What RBAC grants to those who may set trusted labels; there is no such resource, and none is needed."""
_GUARD: Final = "impact"
_DOCUMENTED: Final = "documentedRules"


def documented_validations() -> Iterator[Validation]:
    """The documented rules on tolerations."""
    counted = f"has(asked.tolerations) && size(asked.tolerations) > {TOLERATIONS_MAX}"
    text = f"must have at most {TOLERATIONS_MAX} tolerations in a list"
    yield Validation(_DOCUMENTED, no_request(TRUE, counted), f"{text} ({_DOCUMENTED})", ALTERNATIVES_MOST)
    keyless = (
        "has(asked.tolerations) && asked.tolerations.exists(t,\n"
        '      (!has(t.key) || t.key == "") && !(has(t.operator) && t.operator == "Exists"))'
    )
    text = 'the operator of a toleration must be "Exists" when key is empty, which means all keys and all values'
    yield Validation(_DOCUMENTED, no_request(TRUE, keyless), f"{text} ({_DOCUMENTED})", TOLERATIONS_MOST)


def guard_validations(policy: Policy) -> Iterator[Validation]:
    """What the guard refuses whatever it hits, unless it is confirmed; whether that holds, only the webhook knows."""
    groups = policy.impact.break_glass_groups
    glass = f"has(request.userInfo.groups) && request.userInfo.groups.exists(group, group in {listed(groups)})"
    excused = [glass] if groups else []
    confirmed = (
        f'has(object.metadata.annotations) && "{CONFIRM_IMPACT}" in object.metadata.annotations '
        f'&& object.metadata.annotations["{CONFIRM_IMPACT}"] != ""'
    )
    newly = "variables.rank > variables.oldRank || !variables.oldWide"
    wide = ["variables.rank > 0", "variables.wide", newly]
    text = "a selector that names no driver, pool or device is every device of every driver; narrow the selector"
    yield Validation(_GUARD, not_(all_of([*wide, not_(confirmed), *map(not_, excused)])), f"{text} (rule {_GUARD})")
    if policy.impact.two_step:
        first = ['request.operation == "CREATE"', "variables.rank == 2", *map(not_, excused)]
        text = 'must not evict yet: create the rule with effect "None", look at its status, and change it then'
        yield Validation(_GUARD, not_(all_of(first)), f"{text} (rule {_GUARD})")


def beyond(policy: Policy, documented: PolicyMode) -> Iterator[Exported]:
    """How much is exported of what is not a rule; `documented` is the mode of the documented rules."""
    if documented is not PolicyMode.OFF:
        why = "annotations of DeviceTaintRules are left to the webhook"
        yield Exported(_DOCUMENTED, Coverage.PARTIAL, (why,))
    if policy.mode is not PolicyMode.OFF:
        why = "only the webhook knows what a taint hits; exported is the check of unconfirmed rules without a selector"
        yield Exported(_GUARD, Coverage.PARTIAL, (why,))
    if policy.mode is not PolicyMode.OFF and policy.unknown_author is UnknownAuthor.DENY:
        yield Exported("unknownAuthor", Coverage.NONE, ("only the webhook knows whether authors are proved",))


def labels_validation(policy: Policy) -> Validation | None:
    """That only who may do so sets, changes or removes trusted labels; None if the API server guards all there are."""
    keys = [key for key in policy.trusted_namespace_labels if key != NAMESPACE_NAME_LABEL]
    if not keys:
        return None
    places = ("object.metadata.labels", "oldObject.metadata.labels")
    there = [f"has({place}) && key in {place}" for place in places]
    same = f"({there[0]} ? [{places[0]}[key]] : [])\n    == (oldObject != null && {there[1]} ? [{places[1]}[key]] : [])"
    allowed = f'authorizer.group("{_LABELS_GROUP}").resource("{_LABELS_RESOURCE}").check("{_LABELS_VERB}").allowed()'
    text = f"only who may {_LABELS_VERB} {_LABELS_RESOURCE}.{_LABELS_GROUP} may change labels {', '.join(keys)}"
    return Validation("trustedNamespaceLabels", f"{listed(keys)}.all(key,\n    {same})\n|| {allowed}", text)
