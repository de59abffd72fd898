"""Constant `defaultTolerations` as MutatingAdmissionPolicies: what is added even when none of our pods runs.

They add exactly what `/mutate` would, and leave out what only the webhook can decide: an API server asks them first,
so one entry too many would be one that the webhook has no word on. Being evaluated twice is being evaluated once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.api.meta import GROUP, OWN_GROUP, SERVED_VERSIONS
from webhook.api.names import OWN_NAMESPACE, PROGRAM
from webhook.api.taints import EXISTS
from webhook.policy.defaults import TOLERATIONS_MAX, overlap, rendered
from webhook.policy.match import TolerationMatcher
from webhook.policy.model import DEFAULT_RULE, Action, Match, Rule, Subject, UnknownAuthor
from webhook.policy.vap.cel import FALSE, all_of, any_of, listed, literal, not_, toleration_condition
from webhook.policy.vap.export import Coverage, Exported
from webhook.policy.vap.objects import (
    ADMISSION_GROUP,
    ALTERNATIVES_MOST,
    CALL_MOST,
    NOT_EXTENDED,
    POLICY_MOST,
    TOLERATIONS_MOST,
    cost_of,
    fallback_metadata,
    judged_namespaces,
    policy_variables,
    resource_rule,
    used_variables,
)
from webhook.policy.vap.put_back import (
    KEPT_CONDITIONS,
    KEPT_MUTATION,
    KEPT_VARIABLES,
    SECONDS_MOST,
    noting,
    requests_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.api.taints import DeviceToleration
    from webhook.policy.model import DefaultTolerations, Policy
    from webhook.policy.vap.cel import CelMatch

REQUESTED_BY: Final = f"{OWN_GROUP}/requested-by"
"""The annotation of `admission.author`."""
DEFAULTS_NAME: Final = f"{PROGRAM}-defaults"
KEPT_NAME: Final = f"{DEFAULTS_NAME}-kept"
_KIND: Final = "MutatingAdmissionPolicy"
_VERSION: Final = "v1"
_CONTROLLERS: Final = "variables.generated"


class DefaultsExport(NamedTuple):
    """Policies and bindings, each policy before its binding; and how much of each entry they cover."""

    objects: tuple[dict[str, Any], ...] = ()
    entries: tuple[Exported, ...] = ()


class _Addition(NamedTuple):
    """A toleration that is added, and where: in CEL, about `asked`."""

    toleration: DeviceToleration
    condition: str


def export_defaults(policy: Policy, *, namespace: str = OWN_NAMESPACE, version: str = _VERSION) -> DefaultsExport:
    """What can be said of `defaultTolerations` without us.

    `namespace` is our own; `version` is that of admissionregistration.k8s.io to write.
    """
    made = _Entries(policy)
    for entry in policy.default_tolerations:
        made.add(entry)
    if not made.additions:
        return DefaultsExport((), tuple(made.entries))
    maker = _MutatingMaker(policy, namespace, version)
    objects = [*maker.adding(made), *maker.keeping()]
    return DefaultsExport(tuple(objects), tuple(made.entries))


class _Entries:
    """The entries of a policy in order: what of them can be exported, and why not the rest."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rules = [rule for rule in policy.rules if rule.subject is Subject.TOLERATION]
        self._rules.append(Rule(DEFAULT_RULE, policy.default))
        self._withheld: list[DeviceToleration] = []
        self._cost = 0
        self.additions: list[_Addition] = []
        self.entries: list[Exported] = []

    def add(self, entry: DefaultTolerations) -> None:
        """The next entry."""
        condition = _scoped(entry.match, allowing=True)
        why: dict[str, None] = {}
        before = len(self.additions)
        for toleration in entry.tolerations:
            where, limits = self._where(toleration, condition)
            if limits:
                why.update(dict.fromkeys(limits))
                self._withheld.append(toleration)
            if where != FALSE:
                self.additions.append(_Addition(toleration, where))
        some = len(self.additions) > before
        coverage = Coverage.FULL if not why else Coverage.PARTIAL if some else Coverage.NONE
        self.entries.append(Exported(f"defaultTolerations {entry.name}", coverage, tuple(why)))

    def _where(self, toleration: DeviceToleration, condition: CelMatch) -> tuple[str, list[str]]:
        """Which requests get it, FALSE if that cannot be said; and why there may be fewer than the webhook has."""
        if condition.lacks:
            return FALSE, [f"only the webhook can judge its {' and '.join(condition.lacks)}"]
        if abs(toleration.toleration_seconds or 0) > SECONDS_MOST:
            return FALSE, ["tolerationSeconds is too large for CEL"]
        if any(overlap(toleration, other) for other in self._withheld):
            return FALSE, ["one before it, for the same taints, is left to the webhook"]
        refused, why = self._refused(toleration)
        where = all_of([condition.scope, condition.ask, not_(refused)])
        if where == FALSE:
            return FALSE, why
        cost = ALTERNATIVES_MOST * cost_of(where) + TOLERATIONS_MOST * cost_of(_overlaps(toleration))
        self._cost += 2 * cost
        if cost > CALL_MOST or self._cost > POLICY_MOST:
            return FALSE, ["CEL would cost too much"]
        return where, why

    def _refused(self, toleration: DeviceToleration) -> tuple[str, list[str]]:
        """Where the policy itself may refuse it, in CEL; and where that is only a guess."""
        refusals: list[str] = []
        allowed: list[str] = []
        why: list[str] = []
        for rule in self._rules:
            if rule.action in (Action.WARN, Action.AUDIT) or not _concerns(rule, toleration):
                continue
            condition = _scoped(rule.match, allowing=rule.action is Action.ALLOW)
            vague = f'only the webhook can judge {" and ".join(condition.lacks)} of rule "{rule.name}"'
            why += [vague] if condition.lacks else []
            if rule.action is Action.DENY:
                refusals.append(all_of([condition.scope, condition.ask, *map(not_, allowed)]))
                excusing = [each.name for each in self._policy.exceptions if rule.name in each.rules]
                why += [f'only the webhook knows when exception "{name}" holds' for name in excusing]
            elif not condition.lacks:
                allowed.append(all_of([condition.scope, condition.ask]))
        return any_of(refusals), why


def _scoped(match: Match, *, allowing: bool) -> CelMatch:
    """A match without its tolerations; claims made from templates have no author here, as one without a signature.

    What allows does not allow them then, and what refuses does.
    """
    plain = msgspec.structs.replace(match, tolerations=None, requesters=None)
    condition = toleration_condition(plain, allowing=allowing, with_generated=False)
    asking = match.requesters
    if asking is None or not (asking.users or asking.groups or asking.service_accounts):
        return condition
    who = toleration_condition(Match(requesters=asking), allowing=allowing, with_generated=False).scope
    who = all_of([not_(_CONTROLLERS), who]) if allowing else any_of([_CONTROLLERS, who])
    return condition._replace(scope=all_of([condition.scope, who]))


def _concerns(rule: Rule, toleration: DeviceToleration) -> bool:
    """Whether the rule's tolerations match this one."""
    if rule.match.tolerations is None:
        return True
    matcher = TolerationMatcher(rule.match.tolerations)
    return matcher.contains(toleration) if rule.action is Action.ALLOW else matcher.intersects(toleration)


def _overlaps(toleration: DeviceToleration) -> str:
    """`overlap` with a toleration `t`."""
    parts = []
    if toleration.key:
        parts.append(f'!has(t.key) || t.key == "" || t.key == {literal(toleration.key)}')
    if toleration.effect:
        parts.append(f'!has(t.effect) || t.effect == "" || t.effect == {literal(toleration.effect)}')
    if toleration.operator != EXISTS:
        value = f'(has(t.value) ? t.value : "") == {literal(toleration.value)}'
        parts.append(f"has(t.operator) && t.operator == {literal(EXISTS)} || {value}")
    return all_of(parts)


# --- the objects --------------------------------------------------------------------------------

_NONE_YET: Final = "variables.choices.map(choice, choice.map(asked, [0].filter(number, false)))"
_MUTATION: Final = noting("""\
!variables.added.exists(choice, choice.exists(numbers, size(numbers) > 0)) ? [] :
variables.added.transformList(i, choice, choice.transformList(k, numbers, size(numbers) > 0,
  has(variables.choices[i][k].tolerations) && size(variables.choices[i][k].tolerations) > 0
  ? numbers.map(number, JSONPatch{op: "add", path: variables.root + string(i)
      + variables.places[i][k] + "/tolerations/-", value: variables.defaults[number]})
  : [JSONPatch{op: "add", path: variables.root + string(i) + variables.places[i][k] + "/tolerations",
      value: numbers.map(number, variables.defaults[number])}])).flatten().flatten()
+ [has(object.metadata.annotations)
  ? JSONPatch{op: "add", path: NOTE_POINTER, value: variables.note}
  : JSONPatch{op: "add", path: "/metadata/annotations", value: {NOTE_KEY: variables.note}}]""")
_NOTE: Final = """\
"{" + variables.added.transformList(i, choice, choice.transformList(k, numbers, size(numbers) > 0,
  "\\"" + (request.resource.resource == "resourceclaimtemplates" ? "spec.spec" : "spec") + ".devices.requests["
  + string(i) + "]." + (variables.places[i][k].contains("first") ? "firstAvailable[" + string(k) + "]" : "exactly")
  + "\\":[" + numbers.map(number, variables.texts[number]).join(",") + "]")).flatten().sort().join(",") + "}\""""


class _MutatingMaker:
    """Makes the objects."""

    def __init__(self, policy: Policy, namespace: str, version: str) -> None:
        self._policy = policy
        self._namespace = namespace
        self._version = version

    def adding(self, made: _Entries) -> Iterator[dict[str, Any]]:
        """For what is created."""
        generated = policy_variables(self._policy)["generated"]
        annotations = "object.metadata.annotations"
        signed = f"has({annotations}) && {literal(REQUESTED_BY)} in {annotations}"
        conditions = {
            "not-for-an-extended-resource": NOT_EXTENDED,
            # what is added to the claim would make the signature one of another request
            "not-of-a-signed-author": not_(all_of([generated, signed])),
        }
        if self._policy.unknown_author is UnknownAuthor.DENY:  # it would be refused as soon as it tolerates anything
            some = "[object.spec.devices].exists(devices, has(devices.requests) && devices.requests.exists(r, "
            some += "(has(r.exactly) ? [r.exactly] : has(r.firstAvailable) ? r.firstAvailable : [r])"
            some += ".exists(asked, has(asked.tolerations) && size(asked.tolerations) > 0)))"
            conditions["not-of-an-unknown-author"] = any_of([not_(generated), some])
        variables = {**policy_variables(self._policy), **_variables_for(made.additions)}
        yield from self._pair(DEFAULTS_NAME, "CREATE", conditions, variables, _MUTATION)

    def keeping(self) -> Iterator[dict[str, Any]]:
        """For what is updated: specs are immutable, so what was added has to be put back."""
        conditions = {"not-for-an-extended-resource": NOT_EXTENDED, **KEPT_CONDITIONS}
        yield from self._pair(KEPT_NAME, "UPDATE", conditions, KEPT_VARIABLES, KEPT_MUTATION)

    def _pair(
        self, name: str, operation: str, conditions: dict[str, str], variables: dict[str, str], mutation: str
    ) -> Iterator[dict[str, Any]]:
        # Each version by name: what an API server has to convert first, 1.37 cannot convert back.
        resources = ("resourceclaims", "resourceclaimtemplates")
        rule = resource_rule(GROUP, SERVED_VERSIONS, [operation], resources, "Namespaced")
        head = {"apiVersion": f"{ADMISSION_GROUP}/{self._version}"}
        yield {
            **head,
            "kind": _KIND,
            "metadata": fallback_metadata(name, self._policy),
            "spec": {
                # As for the webhook's entry: a claim without its defaults is better than none.
                "failurePolicy": "Ignore",
                "reinvocationPolicy": "IfNeeded",
                "matchConstraints": {
                    "matchPolicy": "Equivalent",
                    "namespaceSelector": judged_namespaces(self._namespace),
                    "objectSelector": {},
                    "resourceRules": [rule],
                },
                "matchConditions": [{"name": name, "expression": text} for name, text in conditions.items()],
                "variables": used_variables([mutation], variables),
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": mutation}}],
            },
        }
        yield {
            **head,
            "kind": f"{_KIND}Binding",
            "metadata": fallback_metadata(name, self._policy),
            "spec": {"policyName": name},
        }


def _variables_for(additions: Sequence[_Addition]) -> dict[str, str]:
    """Variables from the requests to the numbers of the tolerations that each of them gets."""
    variables = {**requests_in("object"), "added0": _NONE_YET}
    for number, addition in enumerate(additions):
        before = f"variables.added{number}"
        present = "has(asked.tolerations) ? asked.tolerations : []"
        meets = _overlaps(addition.toleration)
        earlier = [
            str(at) for at, each in enumerate(additions[:number]) if overlap(each.toleration, addition.toleration)
        ]
        parts = [
            addition.condition,
            f"!({present}).exists(t, {meets})",
            f"size({present}) + size({before}[i][k]) < {TOLERATIONS_MAX}",
        ]
        if earlier:
            parts.append(f"!{before}[i][k].exists(other, other in [{', '.join(earlier)}])")
        variables[f"added{number + 1}"] = (
            "variables.choices.transformList(i, choice, choice.transformList(k, asked,\n"
            f"  {before}[i][k] + ({all_of(parts)}\n  ? [{number}] : [])))"
        )
    values = [rendered(each.toleration) for each in additions]
    return {
        **variables,
        "added": f"variables.added{len(additions)}",
        "defaults": f"[{', '.join(map(_dynamic, values))}]",
        "texts": listed(
            json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False) for value in values
        ),
        "note": _NOTE,
    }


def _dynamic(fields: dict[str, str | int]) -> str:
    """A toleration as CEL; its maps have values of one type, and dyn() is any."""
    parts = [
        f"{literal(name)}: dyn({literal(value) if isinstance(value, str) else value})" for name, value in fields.items()
    ]
    return f"{{{', '.join(parts)}}}"
