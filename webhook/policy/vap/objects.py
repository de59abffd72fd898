"""The objects of an export: policies with their bindings, split so that each stays within CEL's cost limit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from webhook.api.claims import EXTENDED_RESOURCE
from webhook.api.meta import GROUP, OWN_GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.api.names import EXEMPT_NAMESPACES, OWN_NAMESPACE, PATCH_ACCOUNT, PROGRAM
from webhook.api.rules import EVICT, RULE_ANNOTATIONS
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.policy.model import NAMESPACE_NAME_LABEL, TOLERATIONS_MAX, Policy, PolicyMode
from webhook.policy.vap.cel import all_of, listed, not_

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
ADMISSION_RESOURCES: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
_API: Final = f"{ADMISSION_GROUP}/v1"
POLICY_HASH: Final = "devicetaint.io/policy-hash"
EXPORT_LABELS: Final = {"app.kubernetes.io/name": PROGRAM, "app.kubernetes.io/component": "fallback"}
"""Of each object of an export."""
_SCHEDULER: Final = "system:kube-scheduler"
ALTERNATIVES_MOST: Final = 32 * 8
"""In one claim: 32 requests with 8 alternatives each (k8s.io/api/resource/v1)."""
TOLERATIONS_MOST: Final = TOLERATIONS_MAX * ALTERNATIVES_MOST
CALL_MOST: Final = 900_000
POLICY_MOST: Final = 8_000_000
"""What one expression, and all of a policy, may cost, less a tenth and a fifth for what is not counted here: loops
around tolerations and variables (k8s.io/apiserver/pkg/apis/cel/config.go)."""
_SHARES: Final = (1, 2, 4, 8, 16, 32)
"""Into how many expressions one may be taken apart, each for some of the requests."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|&&|\|\||[!=<>]=|\S')
_MATCHES: Final = re.compile(r'\.matches\("((?:[^"\\]|\\.)*)"')
_TEXT_MOST: Final = 320
"""Characters of a key, the longest text that is looked at for each toleration."""
_VARIABLE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\bvariables\.(\w+)')
"""A variable, or a text in which none is meant; its group is empty then."""


class PolicyTopic(StrEnum):
    """What a policy is about."""

    TOLERATIONS = "tolerations"
    REQUESTS = "requests"
    TAINTS = "taints"
    GUARD = "guard"
    DOCUMENTED = "documented"
    LABELS = "labels"


class Validation(NamedTuple):
    """One validation; `rule` is the rule it enforces, and `times` how often its most expensive part runs at most."""

    rule: str
    expression: str
    message: str
    times: int = 1


class Made(NamedTuple):
    """Policies, each before its binding, and the rules that are not asked about very large claims."""

    objects: list[dict[str, Any]]
    unbounded: frozenset[str]


# --- variables ----------------------------------------------------------------------------------

_USER: Final = "request.userInfo.username"
_ANNOTATIONS: Final = "metadata.annotations"


def _asks_to_evict(value: str) -> str:
    place = f"{value}.{_ANNOTATIONS}"
    return f'has({place}) && "{EVICT}" in {place} && {place}["{EVICT}"] == "true"'


def _rank(evict: str, value: str) -> str:
    effect = f"{value}.spec.taint.effect"
    return f'{evict} || {effect} == "{NO_EXECUTE}" ? 2 : {effect} == "{NO_SCHEDULE}" ? 1 : 0'


def _wide(selector: str) -> str:
    return f"!has({selector}.driver) && !has({selector}.pool) && !has({selector}.device)"


def policy_variables(policy: Policy) -> dict[str, str]:
    """All that expressions may use, each after those that it uses itself."""
    old_evict = _asks_to_evict("oldObject")
    changed = [
        f"has({each}.{_ANNOTATIONS}) && name in {each}.{_ANNOTATIONS} ? [{each}.{_ANNOTATIONS}[name]] : []"
        for each in ("object", "oldObject")
    ]
    return {
        "account": (
            f'{_USER}.startsWith("system:serviceaccount:") && {_USER}.substring(22).contains(":")\n'
            f'? {_USER}.substring(22).replace(":", "/", 1) : ""'
        ),
        "labels": "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}",
        "generated": (
            f'request.resource.resource == "resourceclaims" && {_USER} in {listed(policy.trusted_controllers)}'
        ),
        # dyn: fields of one version are not there in the others
        "devices": (
            'request.resource.resource == "resourceclaimtemplates"\n'
            "? dyn(object).spec.spec.devices : dyn(object).spec.devices"
        ),
        "asked": (
            "has(variables.devices.requests) && variables.devices.requests != null\n"
            "? variables.devices.requests.map(r, has(r.exactly) ? [r.exactly]\n"
            "  : has(r.firstAvailable) && size(r.firstAvailable) > 0 ? r.firstAvailable : [r]) : []"
        ),
        "changed": (  # taint, selector, or an annotation of ours
            "oldObject == null || object.spec != oldObject.spec\n"
            f"|| {listed(sorted(RULE_ANNOTATIONS))}.exists(name,\n  ({changed[0]})\n  != ({changed[1]}))"
        ),
        "selector": "has(object.spec.deviceSelector) ? dyn(object.spec.deviceSelector) : dyn({})",
        "evict": _asks_to_evict("object"),
        "rank": _rank("variables.evict", "object"),
        "wide": _wide("variables.selector"),
        "oldSelector": (
            "oldObject != null && has(oldObject.spec.deviceSelector) ? dyn(oldObject.spec.deviceSelector) : dyn({})"
        ),
        "oldRank": f"oldObject == null ? 0 : {_rank(f'({old_evict})', 'oldObject')}",
        "oldWide": f"oldObject != null && {_wide('variables.oldSelector')}",
    }


def used_variables(expressions: Iterable[str], variables: Mapping[str, str]) -> list[dict[str, str]]:
    """The variables that expressions use, also by others, in their order."""
    needed: set[str] = set()
    new = {name for text in expressions for name in _VARIABLE.findall(text)} - {""}
    while new:
        needed |= new
        new = {other for name in new for other in _VARIABLE.findall(variables[name])} - {"", *needed}
    return [{"name": name, "expression": text} for name, text in variables.items() if name in needed]


_PLACE: Final = "object.metadata.annotations"
_EXTENDED: Final = f'has({_PLACE}) && "{EXTENDED_RESOURCE}" in {_PLACE} && {_PLACE}["{EXTENDED_RESOURCE}"] == "true"'
NOT_EXTENDED: Final = not_(all_of([f'{_USER} == "{_SCHEDULER}"', _EXTENDED]))
"""That the scheduler did not make it for an extended resource."""


# --- what is matched ----------------------------------------------------------------------------

_HAS_TOLERATIONS: Final = """\
request.resource.resource != "resourceclaims"
|| (has(object.spec.devices.requests) && object.spec.devices.requests != null
  && dyn(object).spec.devices.requests.exists(r,
    (has(r.tolerations) && size(r.tolerations) > 0)
    || (has(r.exactly) && has(r.exactly.tolerations) && size(r.exactly.tolerations) > 0)
    || (has(r.firstAvailable) && r.firstAvailable.exists(alternative,
      has(alternative.tolerations) && size(alternative.tolerations) > 0))))"""
# Like the matchCondition of this name in the webhook's own registration: a rule that is kept by a finalizer still acts,
# so what it is and what our annotations make of it must not change unseen.
_NOT_ONLY_CLEAN_UP: Final = f"""\
oldObject == null || !has(oldObject.metadata.deletionTimestamp) || object.spec != oldObject.spec
|| [[object, oldObject], [oldObject, object]].exists(pair,
  has(pair[0].metadata.annotations)
  && !(has(pair[1].metadata.annotations) && pair[0].metadata.annotations == pair[1].metadata.annotations)
  && pair[0].metadata.annotations.exists(name, name.startsWith("{OWN_GROUP}/")
    && !(has(pair[1].metadata.annotations) && name in pair[1].metadata.annotations
      && pair[0].metadata.annotations[name] == pair[1].metadata.annotations[name])))"""

_OWNED: Final = f"""\
has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(owner,
  has(owner.controller) && owner.controller
  && ((owner.kind == "ResourceSlicePatch" && owner.apiVersion.startsWith("{OWN_GROUP}/"))
    || (owner.kind == "DeviceTaintRule" && owner.apiVersion.startsWith("{GROUP}/"))))"""


def _conditions(
    kind: PolicyTopic, policy: Policy, namespace: str, *, with_generated: bool
) -> Iterator[tuple[str, str]]:
    """Match conditions, by name: what the webhook is not asked about, or has no word on."""
    if kind in (PolicyTopic.TAINTS, PolicyTopic.GUARD):
        yield "not-only-clean-up", _NOT_ONLY_CLEAN_UP
        # Such a rule was judged with its patch, or the rule whose hardware it closes.
        account = f'{_USER} == "system:serviceaccount:{namespace}:{PATCH_ACCOUNT}"'
        yield "not-by-the-patch-controller", not_(all_of([account, _OWNED]))
        return
    if kind is PolicyTopic.LABELS:
        return
    yield "has-tolerations", _HAS_TOLERATIONS
    yield "not-for-an-extended-resource", NOT_EXTENDED
    if kind is PolicyTopic.DOCUMENTED or not with_generated:  # by the documented rules its template was judged
        yield "not-made-from-a-template", not_(policy_variables(policy)["generated"])


def _constraints(kind: PolicyTopic, exempt: Iterable[str]) -> dict[str, Any]:
    """Claims in namespaces that are exempt are left out, as the registration does."""
    names: dict[str, Any] = {}
    if kind in (PolicyTopic.TAINTS, PolicyTopic.GUARD):
        rule = resource_rule(GROUP, RULE_VERSIONS, ("CREATE", "UPDATE"), ("devicetaintrules",), "Cluster")
    elif kind is PolicyTopic.LABELS:  # labels can be changed through each of them
        ways = ("namespaces", "namespaces/finalize", "namespaces/status")
        rule = resource_rule("", ("v1",), ("CREATE", "UPDATE"), ways, "Cluster")
    else:
        resources = ("resourceclaims", "resourceclaimtemplates")
        rule = resource_rule(GROUP, SERVED_VERSIONS, ("CREATE",), resources, "Namespaced")
        out = {"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": list(exempt)}
        names = {"matchExpressions": [out]}
    return {"matchPolicy": "Equivalent", "namespaceSelector": names, "objectSelector": {}, "resourceRules": [rule]}


def resource_rule(
    group: str, versions: Sequence[str], operations: Sequence[str], resources: Sequence[str], scope: str
) -> dict[str, Any]:
    """An entry of resourceRules."""
    return {
        "apiGroups": [group],
        "apiVersions": list(versions),
        "operations": list(operations),
        "resources": list(resources),
        "scope": scope,
    }


# --- policies -----------------------------------------------------------------------------------


class Maker:
    """Makes the objects of one policy document."""

    def __init__(
        self,
        policy: Policy,
        scopes: Mapping[str, str],
        *,
        with_generated: bool,
        namespace: str = OWN_NAMESPACE,
        exempt: Iterable[str] = EXEMPT_NAMESPACES,
    ) -> None:
        """`scopes` are variables beside those that are always there; `namespace` is our own, and exempt as well."""
        self._policy = policy
        self._namespace = namespace
        self._exempt = (namespace, *sorted({*exempt} - {namespace}))
        self._variables = {**policy_variables(policy), **scopes}
        self._with_generated = with_generated
        self._bounded = policy.documented_rules.at_most(policy.mode) is PolicyMode.ENFORCE
        """Whether lists of tolerations are held to their length."""

    def made(self, kind: PolicyTopic, validations: Sequence[Validation], mode: PolicyMode) -> Made:
        """As many policies as it takes; those that may cost too much for the largest claims are ignored then."""
        groups: list[list[Validation]] = []
        dear: list[Validation] = []
        room = 0
        for validation in validations:
            unbounded = not self._bounded and validation.times == TOLERATIONS_MOST
            cost = validation.times * cost_of(validation.expression)
            shares = next((number for number in _SHARES if cost <= number * CALL_MOST), 0)
            if unbounded or not shares:
                dear.append(validation)
                continue
            for share in range(shares):
                if cost // shares > room:
                    groups.append([])
                    room = POLICY_MOST
                groups[-1].append(self._share(validation, share, shares))
                room -= cost // shares
        objects: list[dict[str, Any]] = []
        for number, group in enumerate(groups):
            name = f"{PROGRAM}-{kind}" + (f"-{number + 1}" if number else "")
            objects += self._pair(name, kind, group, mode, "Fail")
        if dear:
            objects += self._pair(f"{PROGRAM}-{kind}-unbounded", kind, dear, mode, "Ignore")
        return Made(objects, frozenset(each.rule for each in dear))

    def _share(self, validation: Validation, share: int, shares: int) -> Validation:
        """The validation for one share of the requests."""
        if shares == 1:
            return validation
        name = f"asked{share + 1}of{shares}"
        self._variables[name] = f"variables.asked.transformList(i, options, i % {shares} == {share}, options)"
        return validation._replace(expression=validation.expression.replace("variables.asked", f"variables.{name}"))

    def _pair(
        self, name: str, kind: PolicyTopic, validations: Sequence[Validation], mode: PolicyMode, failure_policy: str
    ) -> Iterator[dict[str, Any]]:
        conditions = _conditions(kind, self._policy, self._namespace, with_generated=self._with_generated)
        spec = {
            "failurePolicy": failure_policy,
            "matchConstraints": _constraints(kind, self._exempt),
            "matchConditions": [{"name": name, "expression": text} for name, text in conditions],
            "variables": used_variables((each.expression for each in validations), self._variables),
            "validations": [
                {"expression": each.expression, "message": each.message, "reason": "Forbidden"} for each in validations
            ],
        }
        yield {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": fallback_metadata(name, self._policy),
            # An API server drops empty lists, so a diff against the cluster would show them.
            "spec": {name: value for name, value in spec.items() if value},
        }
        yield {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": fallback_metadata(name, self._policy),
            "spec": {"policyName": name, "validationActions": ["Deny" if mode is PolicyMode.ENFORCE else "Warn"]},
        }


def fallback_metadata(name: str, policy: Policy) -> dict[str, Any]:
    """Of each object of an export."""
    return {"name": name, "labels": dict(EXPORT_LABELS), "annotations": {POLICY_HASH: policy.hash}}


# --- files --------------------------------------------------------------------------------------

STATIC_SUFFIX: Final = ".static.k8s.io"
"""Of each name there; the API creates none with it (k8s.io/apiserver pkg/admission/plugin/manifest)."""
STATIC_FOLDER: Final = "validating"
"""Of the admission plugin: each one has a folder of its own."""
STATIC_FILE: Final = f"{PROGRAM}.yaml"


def static_manifests(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects with the names that they have to have there."""
    found = []
    for obj in objects:
        metadata, spec = obj["metadata"], obj["spec"]
        if "policyName" in spec:
            spec = {**spec, "policyName": spec["policyName"] + STATIC_SUFFIX}
        found.append({**obj, "metadata": {**metadata, "name": metadata["name"] + STATIC_SUFFIX}, "spec": spec})
    return found


def cost_of(expression: str) -> int:
    """What asking an expression once costs at most: a little for each word, more for what looks at letters."""
    words = _TOKEN.findall(expression)
    patterns = sum(_TEXT_MOST // 10 * (len(each) // 4 + 1) for each in _MATCHES.findall(expression))
    texts = sum(words.count(word) for word in ("startsWith", "endsWith", "contains", "size"))
    return len([word for word in words if word not in "()[].,"]) + patterns + 6 * texts + 10 * words.count("[")
