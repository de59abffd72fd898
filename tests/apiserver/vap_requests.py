"""Policies and requests in few words, so that they meet all the time: claims, templates and DeviceTaintRules."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import structs

from tests.apiserver.policy.rows import CLUSTER
from tests.builders import NOW
from tests.controlplane.client import path
from tests.properties.policies import (
    USERS,
    effect_lists,
    key_patterns,
    manifest_of,
    policies,
    requester_matches,
    tolerations,
    value_patterns,
)
from webhook.admission.claim_view import REQUESTED_BY, annotation_of
from webhook.policy.match import KnownNames, Requester
from webhook.policy.model import (
    CLAIM_CONTROLLER,
    NAMESPACE_NAME_LABEL,
    Action,
    ImpactSettings,
    Match,
    Policy,
    PolicyException,
    PolicyMode,
    Rule,
    TaintMatch,
    UnknownAuthor,
)

Json = dict[str, Any]

_ADMIN: Final = {"resource.kubernetes.io/admin-access": "true"}
"""Without that label nobody may ask for adminAccess."""
NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {
    "train-a": {**_ADMIN, **CLUSTER["namespaces"]["train-a"], "team": "ml"},
    "train-prod": {**_ADMIN, **CLUSTER["namespaces"]["train-prod"], "team": "ml"},
    "infer": _ADMIN,
}
KNOWN: Final = KnownNames(
    {name: {NAMESPACE_NAME_LABEL: name, **labels} for name, labels in NAMESPACES.items()},
    {"gpu": frozenset({"gpu.example.com"}), "nic": None},
)
_GROUP: Final = "resource.k8s.io"
_REQUESTERS: Final = st.builds(
    Requester, st.sampled_from([*USERS, CLAIM_CONTROLLER]), st.sampled_from([(), ("ml-a",), ("ops",), ("dev", "ops")])
)


# --- claims and templates -----------------------------------------------------------------------


class ClaimRequest(NamedTuple):
    """A claim or template that somebody creates; `author` is named by an annotation of a claim, if there is one."""

    requester: Requester
    namespace: str
    version: str
    template: bool
    asked: tuple[tuple[str, tuple[Json, ...]], ...]
    """For each request its shape and alternatives."""
    author: Requester | None

    @property
    def collection(self) -> str:
        plural = "resourceclaimtemplates" if self.template else "resourceclaims"
        return path(f"{_GROUP}/{self.version}", plural, namespace=self.namespace)

    @property
    def asked_about(self) -> bool:
        """Whether the shipped registration has the webhook asked: of claims, about those with tolerations."""
        return self.template or any(
            "tolerations" in each
            for shape, alternatives in self.asked
            for each in (alternatives if shape == "firstAvailable" else alternatives[:1])
        )

    @property
    def manifest(self) -> Json:
        spec = {"devices": {"requests": [self._request(number, *each) for number, each in enumerate(self.asked)]}}
        manifest: Json = {
            "apiVersion": f"{_GROUP}/{self.version}",
            "kind": "ResourceClaimTemplate" if self.template else "ResourceClaim",
            "metadata": {"name": "generated", "namespace": self.namespace},
            "spec": {"spec": spec} if self.template else spec,
        }
        if self.author is not None and not self.template:
            manifest["metadata"]["annotations"] = {REQUESTED_BY: annotation_of(self.author)}
        return manifest

    def _request(self, number: int, shape: str, alternatives: tuple[Json, ...]) -> Json:
        request: Json = {"name": f"r{number}"}
        if shape == "firstAvailable":
            without = [{name: value for name, value in each.items() if name != "adminAccess"} for each in alternatives]
            return request | {"firstAvailable": [{"name": f"a{n}", **each} for n, each in enumerate(without)]}
        exact = alternatives[0]
        return request | (exact if self.version == "v1beta1" else {"exactly": exact})


@st.composite
def _exact(draw: st.DrawFn) -> Json:
    exact: Json = {"deviceClassName": draw(st.sampled_from(["gpu", "nic"]))}
    wanted = [manifest_of(each) for each in draw(st.lists(tolerations, max_size=2))]
    if wanted:
        exact["tolerations"] = wanted
    admin = draw(st.sampled_from([None, None, False, True]))
    return exact if admin is None else {**exact, "adminAccess": admin}


claim_requests: SearchStrategy[ClaimRequest] = st.builds(
    ClaimRequest,
    _REQUESTERS,
    st.sampled_from(list(NAMESPACES)),
    st.sampled_from(["v1", "v1beta2", "v1beta1"]),
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(["exactly", "firstAvailable"]), st.lists(_exact(), min_size=1, max_size=3).map(tuple)
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
    st.one_of(st.none(), _REQUESTERS),
)


def _of_today(policy: Policy) -> Policy:
    """Exceptions begin and end around NOW; half an hour apart from it, so that none does during a test."""
    by = datetime.now(UTC) - NOW + timedelta(minutes=30)  # noqa: TID251 -- an API server has a clock of its own
    return structs.replace(policy, exceptions=tuple(_moved(each, by) for each in policy.exceptions))


def _moved(exception: PolicyException, by: timedelta) -> PolicyException:
    start = exception.not_before
    return structs.replace(
        exception, expires_at=exception.expires_at + by, not_before=None if start is None else start + by
    )


@st.composite
def _claim_policies(draw: st.DrawFn) -> Policy:
    policy = draw(policies)
    if draw(st.integers(0, 3)):  # what is known to the webhook alone leaves little to compare
        rules = tuple(structs.replace(each, match=structs.replace(each.match, drivers=())) for each in policy.rules)
        exceptions = [
            structs.replace(each, match=structs.replace(each.match, drivers=())) for each in policy.exceptions
        ]
        policy = structs.replace(policy, rules=rules, exceptions=tuple(exceptions))
    return structs.replace(
        _of_today(policy),
        generated_claims=draw(st.sampled_from(PolicyMode)),
        unknown_author=draw(st.sampled_from(UnknownAuthor)),
        documented_rules=draw(st.sampled_from([PolicyMode.ENFORCE, PolicyMode.ENFORCE, PolicyMode.WARN])),
        mode=draw(st.sampled_from([PolicyMode.ENFORCE, PolicyMode.ENFORCE, PolicyMode.ENFORCE, PolicyMode.WARN])),
    )


claim_policies: SearchStrategy[Policy] = _claim_policies()


# --- DeviceTaintRules ---------------------------------------------------------------------------

_EVICT: Final = "devicetaint.io/evict"
_SELECTORS: Final[tuple[Json | None, ...]] = (
    None,
    {},
    {"driver": "gpu.example.com"},
    {"driver": "nic.example.com", "pool": "node-1"},
    {"pool": "node-2"},
    {"device": "gpu-0"},
)
_ANNOTATIONS: Final[tuple[Json | None, ...]] = (
    None,
    None,
    {_EVICT: "true"},
    {_EVICT: "false"},
    {"devicetaint.io/confirm-impact": "v1.made-up"},
    {"devicetaint.io/owner": "me"},
    {"other": "thing"},
)
_VERSIONS: Final = ("v1", "v1beta2", "v1alpha3")


class RuleRequest(NamedTuple):
    """A rule that somebody creates, or an update of the stored one of that name."""

    requester: Requester
    version: str
    stored: str
    selector: Json | None
    taint: Json
    annotations: Json | None
    kept: frozenset[str]
    """Of an update, what stays as it was."""

    def old_of(self, stored: Mapping[str, Json]) -> Json:
        """The stored rule, as the API server shows it in this version."""
        return {**copy.deepcopy(stored[self.stored]), "apiVersion": f"{_GROUP}/{self.version}", "kind": _KIND}

    def manifest(self, old: Json | None) -> Json:
        spec: Json = {"taint": dict(self.taint)}
        if self.selector is not None:
            spec["deviceSelector"] = dict(self.selector)
        metadata: Json = {"name": "generated"}
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        made = {"apiVersion": f"{_GROUP}/{self.version}", "kind": _KIND, "metadata": metadata, "spec": spec}
        return made if old is None else self._update(made, copy.deepcopy(old))

    def _update(self, made: Json, old: Json) -> Json:
        for name in ("taint", "deviceSelector"):
            if name not in self.kept:
                old["spec"].pop(name, None)
                old["spec"] |= {name: made["spec"][name]} if name in made["spec"] else {}
        if "taint" not in self.kept:  # else the server takes the change for one of now
            old["spec"]["taint"]["timeAdded"] = "2026-01-01T00:00:00Z"
        if "annotations" not in self.kept:
            old["metadata"].pop("annotations", None)
            old["metadata"] |= {"annotations": self.annotations} if self.annotations else {}
        return old


_KIND: Final = "DeviceTaintRule"


@st.composite
def _taints(draw: st.DrawFn) -> Json:
    taint = {"key": draw(st.sampled_from(["a/x", "a/y", "b/x"])), "effect": draw(st.sampled_from(_EFFECTS))}
    value = draw(st.sampled_from(["", "v", "w"]))
    return {**taint, "value": value} if value else taint


_EFFECTS: Final = ("NoSchedule", "NoExecute", "None")


def stored_rules() -> list[Json]:
    """Rules to change: each selector with an effect and annotations of its own."""
    rules = []
    for number, selector in enumerate(_SELECTORS):
        taint = {"key": "a/x", "effect": _EFFECTS[number % 3], "timeAdded": "2026-01-01T00:00:00Z"}
        spec = {"taint": taint, **({} if selector is None else {"deviceSelector": selector})}
        annotations = _ANNOTATIONS[number]
        metadata = {"name": f"stored-{number}", **({"annotations": annotations} if annotations else {})}
        rules.append({"apiVersion": f"{_GROUP}/v1", "kind": _KIND, "metadata": metadata, "spec": spec})
    return rules


rule_requests: SearchStrategy[RuleRequest] = st.builds(
    RuleRequest,
    _REQUESTERS,
    st.sampled_from(_VERSIONS),
    st.sampled_from(["", "", *(f"stored-{number}" for number in range(len(_SELECTORS)))]),
    st.sampled_from(_SELECTORS),
    _taints(),
    st.sampled_from(_ANNOTATIONS),
    st.frozensets(st.sampled_from(["taint", "deviceSelector", "annotations"])),
)


@st.composite
def _rule_policies(draw: st.DrawFn) -> Policy:
    policy = draw(policies)
    rules = []
    for position in range(draw(st.integers(0, 4))):
        match = st.builds(
            Match,
            requesters=st.one_of(st.none(), requester_matches),
            drivers=st.sampled_from([(), ("gpu.*",), ("nic.example.com", "x")]),
            pools=st.sampled_from([(), ("node-*",), ("node-2",)]),
            taints=st.one_of(st.none(), st.builds(TaintMatch, key_patterns, value_patterns, effect_lists)),
            evict=st.sampled_from([None, None, True, False]),
        )
        rules.append(Rule(f"taints-{position}", draw(st.sampled_from(Action)), draw(match)))
    names = [rule.name for rule in rules if rule.action is not Action.ALLOW]
    exceptions = tuple(
        structs.replace(each, rules=tuple(names), match=structs.replace(draw(match)))
        for each in policy.exceptions
        if names
    )
    impact = ImpactSettings(two_step=draw(st.booleans()), break_glass_groups=draw(st.sampled_from([(), ("ops",)])))
    return _of_today(Policy(taint_rules=tuple(rules), exceptions=exceptions, impact=impact))


rule_policies: SearchStrategy[Policy] = _rule_policies()
