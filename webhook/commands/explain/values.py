"""What `explain` may be asked about besides files and codes, what is known of a cluster, and the answer as values.

A subject is a pod, a claim, a device or a rule: who uses what, and when pods are evicted and why.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from webhook.admission.audit import explained_at_rest
from webhook.admission.context import AdmissionContext
from webhook.admission.impact_text import on_extended_resources
from webhook.admission.rulings import toleration_text
from webhook.api.claims import AllocationResult, ResourceClaim
from webhook.api.meta import NamespacedName, format_time, time_text
from webhook.api.pods import Pod
from webhook.api.rules import (
    CONFIRM_IMPACT,
    DATA,
    DESCRIPTION,
    EXPIRES_AT,
    NOT_BEFORE,
    OWNER,
    SOFTENED_FROM,
    TICKET,
    DeviceTaintRule,
)
from webhook.api.taints import NO_EXECUTE, DeviceToleration
from webhook.commands.preview.report import not_judged, selector_values, toleration_values
from webhook.commands.shared.walks import values_of
from webhook.commands.shared.words import DEVICES, RULES, type_in
from webhook.commands.status.report import conditions_of, encoded, lines_of, worker_values
from webhook.commands.status.run import NOT_SERVED, ClusterReading, read_once
from webhook.commands.status.views import current, views_of
from webhook.config.command_line import did_you_mean, program
from webhook.eviction.conditions import ConditionReason
from webhook.eviction.expiry import Expiry, expiry_of
from webhook.eviction.modes import InTree
from webhook.files.manifests import Dump, meta, text
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE
from webhook.inventory.hardware import siblings_in
from webhook.inventory.impact import Taint
from webhook.inventory.pools import acts
from webhook.inventory.preview import OutcomeReason, PodOutcome, outcome_of, rule_preview
from webhook.inventory.state import claim_keys, key_of
from webhook.inventory.targets import DeviceId, DeviceNames
from webhook.patches.expansion import annotations_of
from webhook.policy.decide import Judge
from webhook.policy.match import KnownNames

_PARTS: Final = 3
_NAMED_MOST: Final = 3
_NOTES: Final = {
    "description": DESCRIPTION,
    "owner": OWNER,
    "ticket": TICKET,
    "notBefore": NOT_BEFORE,
    "expiresAt": EXPIRES_AT,
    "softenedFrom": SOFTENED_FROM,
}
"""Annotations by the names of their values."""


# --- what may be asked about --------------------------------------------------------------------


class SubjectKind(StrEnum):
    """The kinds; the values are those of the JSON."""

    POD = "Pod"
    CLAIM = "ResourceClaim"
    DEVICE = "Device"
    RULE = "DeviceTaintRule"


_KINDS: Final = {
    **dict.fromkeys(("pod", "pods", "po"), SubjectKind.POD),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), SubjectKind.CLAIM),
    **dict.fromkeys(DEVICES, SubjectKind.DEVICE),
    **dict.fromkeys(RULES, SubjectKind.RULE),
}
"""By the words for them, as kubectl has them for resources."""


class ExplainSubject(NamedTuple):
    """What is asked about. `name` of a device is `driver/pool/device`; `namespace` is empty unless it is given."""

    kind: SubjectKind
    name: str
    namespace: str = ""


def subject_in(words: Sequence[str]) -> ExplainSubject | None:
    """Return what words name, as `pod NAME`, `pod/NAME` or `pod/NAMESPACE/NAME`; None if they are files or codes.

    A file of the name of a kind is named with its folder: `./pod`. Raises ValueError for a subject that is incomplete.
    """
    kind = _KINDS.get(type_in(words[0]))
    name = "/".join(words[1:])
    if kind is None and len(words) == 1:
        word, _, name = words[0].partition("/")
        kind = _KINDS.get(type_in(word)) if name else None
    if kind is None:
        return None
    if not name or len(words) > 2:
        raise ValueError(f"explains one {words[0]} at a time; name it after that word")
    if kind is SubjectKind.DEVICE and (name.count("/") < _PARTS - 1 or not all(name.split("/"))):
        raise ValueError("a device is named as DRIVER/POOL/DEVICE, as `list` shows it")
    if kind in (SubjectKind.POD, SubjectKind.CLAIM) and "/" in name:
        namespace, _, name = name.partition("/")
        if not namespace or not name or "/" in name:
            raise ValueError(f"a {kind} is named as NAME or NAMESPACE/NAME")
        return ExplainSubject(kind, name, namespace)
    return ExplainSubject(kind, name)


# --- what is known ------------------------------------------------------------------------------

_CONSEQUENCES: Final = {
    "DeviceTaintRule": "taints by DeviceTaintRules, and so whether a pod is evicted for one",
    "ResourceSlice": "which devices are published, taints in slices, and shared hardware",
    "ResourceClaim": "which pod uses which device, and what its claim tolerates",
    "Pod": "the state of pods",
    "Namespace": "labels and holds of namespaces",
    "PodDisruptionBudget": "whether a disruption budget blocks an eviction",
    "PodGroup": "which pods go together",
    "DeviceClass": "the drivers behind device classes, which rules of the policy may ask for",
}
"""What is unknown without a kind."""


@dataclass(slots=True)
class ExplainFacts:
    """The facts of one moment. `unknown` names in words what is not known, and why."""

    found: ClusterReading
    namespace: str
    claims: Mapping[str, dict[str, Any]]
    """As they are served, by `namespace/name`."""
    pods: set[str]
    """All pods, by `namespace/name`; the inventory holds those that use claims."""
    context: AdmissionContext | None
    """What claims are judged in; None where the policy is not known."""
    unknown: list[str]


def facts_of(options: argparse.Namespace) -> ExplainFacts:
    """Read everything once. Raises ClusterUnreachable."""
    claims: dict[str, dict[str, Any]] = {}
    pods: set[str] = set()
    beside = Dump()

    def see(value: Any) -> None:
        kind, about = text(value, "kind") if isinstance(value, dict) else "", meta(value)
        key = f"{text(about, 'namespace')}/{text(about, 'name')}"
        if kind == "ResourceClaim":
            claims[key] = value
        elif kind == "Pod":
            pods.add(key)
        elif kind in {"DeviceClass", "Namespace"}:
            beside.add([Manifest("", 1, value, NOWHERE)])

    found = read_once(options, see, options.namespace or "")
    if options.kubernetes_version:
        found.objects.inventory.servers = options.kubernetes_version.facts
    cluster = found.cluster
    unknown = [*_unknown(found, options.policy_configmap), *found.notes]
    if found.rows:
        unknown.append("everything that depends on what could not be read: see the errors")
    context = None
    if cluster is None or not cluster.policy_refused or options.policy is not None:
        names = KnownNames(beside.namespaces, beside.device_classes)
        context = AdmissionContext(now=found.settings.now, judge=Judge(found.settings.policy), names=names)
    namespace = (options.namespace or "default") if cluster is None else cluster.namespace
    return ExplainFacts(found, namespace, claims, pods, context, unknown)


def _unknown(found: ClusterReading, config_map: NamespacedName) -> Iterator[str]:
    """Yield what is unknown without the kinds that a dump lacks, or that could not be read."""
    cluster = found.cluster
    if cluster is None:
        for kind, consequence in _CONSEQUENCES.items():
            if kind in found.missing:
                yield f"{consequence}: the dump has no {kind}"
        return
    if not cluster.rules_served:
        yield f"{_CONSEQUENCES['DeviceTaintRule']}: {NOT_SERVED}"
    for each, error in cluster.refused.items():
        why = f"no permission to read {each.name}"
        if each.kind in cluster.partial:
            only = "namespace {} is" if each.kind == "Namespace" else "those of namespace {} are"
            why = f"only {only.format(cluster.namespace)} known"
        yield f"{_CONSEQUENCES[each.kind]}: {why}: {error}"
    if cluster.policy_refused:
        why = f"no permission to read the ConfigMap {config_map}: {cluster.policy_refused}"
        yield f"what the policy says, and its limits, for which the built-in ones are shown: {why}"


class NotExplained(Exception):  # noqa: N818 -- it says what came of it
    """There is no such object, or it may not be read; the text says which."""


def explanation_of(facts: ExplainFacts, subject: ExplainSubject) -> dict[str, Any]:
    """Return the values behind JSON, YAML and text; fields may be added while `version` is 1. Raises NotExplained."""
    cluster = facts.found.cluster
    return {
        "version": 1,
        "source": "dump" if cluster is None else "cluster",
        "server": None if cluster is None else cluster.server,
        "time": format_time(facts.found.settings.now),
        "kind": subject.kind.value,
        "worker": worker_values(facts.found.settings),
        **_values(facts, subject),
        "unknown": facts.unknown,
        "findings": [finding for row in facts.found.rows for finding in row.findings],
    }


def _values(facts: ExplainFacts, subject: ExplainSubject) -> dict[str, Any]:
    inventory, name = facts.found.objects.inventory, subject.name
    key = f"{facts.namespace}/{name}"
    match subject.kind:
        case SubjectKind.POD if key in inventory.pods:
            return _pod(facts, inventory.pods[key])
        case SubjectKind.POD if key in facts.pods:
            return {"namespace": facts.namespace, "name": name, "claims": [], "evictions": [], "reported": []}
        case SubjectKind.CLAIM if key in inventory.claims:
            claim = _claim(facts, key)
            return {**claim, "reported": _reported(facts, [claim])}
        case SubjectKind.DEVICE if name in set(_known_devices(facts)):
            driver, _, rest = name.partition("/")
            pool, _, device = rest.rpartition("/")  # only the pool may have slashes
            return _device(facts, DeviceId(driver, pool, device))
        case SubjectKind.RULE if name in inventory.rules:
            return _rule(facts, inventory.rules[name])
        case _:
            raise NotExplained(_why_not(facts, subject))


def _why_not(facts: ExplainFacts, subject: ExplainSubject) -> str:
    """Say why a subject is not explained: it is not there, or nothing of its kind is known."""
    kind = "ResourceSlice" if subject.kind is SubjectKind.DEVICE else subject.kind.value
    if kind in facts.found.missing:
        reasons = [each for each in facts.unknown if kind in each or f"{kind.lower()}s" in each]
        why = f": {reasons[0].partition(': ')[2]}" if reasons else ""
        return f"it is not known whether there is a {subject.kind.value} {subject.name!r}{why}"
    if subject.kind in (SubjectKind.DEVICE, SubjectKind.RULE):
        known = _known_devices(facts) if subject.kind is SubjectKind.DEVICE else facts.found.objects.inventory.rules
        return f"there is no {subject.kind.value} {subject.name!r}{did_you_mean(subject.name, known)}"
    keys = facts.pods if subject.kind is SubjectKind.POD else set(facts.found.objects.inventory.claims)
    own = [key.partition("/")[2] for key in keys if key.startswith(f"{facts.namespace}/")]
    elsewhere = sorted(key.partition("/")[0] for key in keys if key.partition("/")[2] == subject.name)
    text = f"there is no {subject.kind.value} {subject.name!r} in namespace {facts.namespace}"
    if elsewhere:
        return f"{text}, but there is one in {', '.join(elsewhere[:_NAMED_MOST])} (-n)"
    return f"{text}{did_you_mean(subject.name, own)}"


# --- pods and claims ----------------------------------------------------------------------------


def _pod(facts: ExplainFacts, pod: Pod) -> dict[str, Any]:
    inventory, names = facts.found.objects.inventory, claim_keys(pod)
    known = [name for name in names if name in inventory.claims]
    claims = [_claim(facts, key) for key in known]
    own = {key_of(claim.meta) for claim in inventory.claims_of(pod)}
    statuses = [status for view in views_of(facts.found.objects, facts.found.settings) for status in view.statuses]
    return {
        "namespace": pod.meta.namespace,
        "name": pod.meta.name,
        "node": pod.node_name,
        "phase": pod.phase,
        "terminating": pod.deleting,
        "hold": pod.hold if pod.hold is not None else facts.found.objects.hold_of(pod.meta.namespace),
        "claims": claims,
        "claimsNotFound": [name for name in names if name not in inventory.claims],
        "claimsNotReserved": [key for key in known if key not in own],
        "evictions": [encoded(status) for status in statuses if status.uid == pod.meta.uid],
        "reported": _reported(facts, claims),
    }


def _reported(facts: ExplainFacts, claims: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is in the status of the rules that taint what these claims hold."""
    taints = [taint for claim in claims for device in claim["devices"] for taint in device["taints"]]
    return _conditions(facts, {taint["rule"] for taint in taints if taint["rule"]})


def _conditions(facts: ExplainFacts, rules: Iterable[str]) -> list[dict[str, Any]]:
    known = facts.found.objects.inventory.rules
    return [{"rule": name, **each} for name in sorted(rules) for each in conditions_of(known[name])]


def _claim(facts: ExplainFacts, key: str) -> dict[str, Any]:
    claim = facts.found.objects.inventory.claims[key]
    policy = _policy(facts, key)
    return {
        "namespace": claim.meta.namespace,
        "name": claim.meta.name,
        "deleting": "deletionTimestamp" in meta(facts.claims.get(key)),
        "allocated": claim.allocation is not None,
        "forExtendedResource": claim.extended_resource,
        "reservedFor": _users(claim),
        "devices": [_claim_device(facts, claim, result, policy) for result in claim.allocation or ()],
        "policy": policy,
    }


def _claim_device(
    facts: ExplainFacts, claim: ResourceClaim, result: AllocationResult, policy: dict[str, Any] | None
) -> dict[str, Any]:
    device = DeviceId(result.driver, result.pool, result.device)
    taints = []
    for placed in _taints_on(facts, device):
        judged = _judged(facts, placed, claim, result)
        taints.append({**judged, "policy": _ruling(policy, result, judged["toleration"])})
    return {
        "request": result.request,
        **device._asdict(),
        "published": _published(facts, device),
        "taints": taints,
    }


def _published(facts: ExplainFacts, device: DeviceId) -> bool | None:
    """Tell whether the newest generation of its pool has the device."""
    pool = facts.found.objects.inventory.pools.get((device.driver, device.pool))
    return None if "ResourceSlice" in facts.found.missing else pool is not None and device.device in pool.devices


def _users(claim: ResourceClaim) -> list[str]:
    return [f"{each.resource}/{each.name}" for each in claim.reserved_for]


def _policy(facts: ExplainFacts, key: str) -> dict[str, Any] | None:
    value = facts.claims.get(key)
    found = None if value is None or facts.context is None else explained_at_rest(value, facts.context)
    if found is None:
        return None
    author, explanation = found
    values = values_of(explanation, NOWHERE)
    for walk in values["walks"]:
        del walk["line"], walk["column"]
        deciding = [rule["rule"] for rule in walk["rules"] if rule["result"] in {"allows", "refuses"}]
        walk["decidedBy"] = deciding[0] if deciding else None
    return {"author": author.value, **values}


def _ruling(
    policy: dict[str, Any] | None, result: AllocationResult, toleration: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return the ruling on a toleration of an allocation; a refusal, if several of the claim are alike."""
    if policy is None or toleration is None:
        return None
    alike = [walk for walk in policy["walks"] if walk["what"] == toleration["text"]]
    if not alike:
        return None
    walk = min(alike, key=lambda each: each["decision"] != "denied")
    return {"decision": walk["decision"], "rule": walk["decidedBy"], "path": walk["path"], "request": result.request}


# --- devices and their taints -------------------------------------------------------------------


def _device(facts: ExplainFacts, device: DeviceId) -> dict[str, Any]:
    inventory = facts.found.objects.inventory
    pool = inventory.pools.get((device.driver, device.pool))
    taints = list(_taints_on(facts, device))
    claims = [inventory.claims[key] for key in sorted(inventory.usage.claims_on(*device))]
    beside = {} if pool is None else siblings_in(pool.newest, {device.device: 1})
    return {
        **device._asdict(),
        "published": _published(facts, device),
        "poolComplete": None if pool is None else pool.complete,
        "taints": [_taint(placed) for placed in taints],
        "claims": [
            {
                "namespace": claim.meta.namespace,
                "name": claim.meta.name,
                "request": result.request,
                "reservedFor": _users(claim),
                "taints": [_judged(facts, each, claim, result) for each in taints],
            }
            for claim in claims
            for result in claim.allocation or ()
            if (result.driver, result.pool, result.device) == device
        ],
        "siblings": [_sibling(facts, device._replace(device=name)) for name in sorted(beside) if name != device.device],
        "reported": _conditions(facts, {placed.rule.meta.name for placed in taints if placed.rule is not None}),
    }


def _sibling(facts: ExplainFacts, sibling: DeviceId) -> dict[str, Any]:
    inventory = facts.found.objects.inventory
    claims = sorted(inventory.usage.claims_on(*sibling))
    users = [user for key in claims for user in _users(inventory.claims[key])]
    taints = [_taint(placed) for placed in _taints_on(facts, sibling)]
    return {"device": sibling.device, "taints": taints, "claims": claims, "reservedFor": users}


def _known_devices(facts: ExplainFacts) -> Iterator[str]:
    """Yield the names of all devices that are published or allocated, as `driver/pool/device`."""
    inventory = facts.found.objects.inventory
    for (driver, pool), found in inventory.pools.items():
        for device in found.devices:
            yield str(DeviceId(driver, pool, device))
    for claim in inventory.claims.values():
        for result in claim.allocation or ():
            yield str(DeviceId(result.driver, result.pool, result.device))


class PlacedTaint(NamedTuple):
    """A taint on a device, and the rule that puts it there; None for one in a slice."""

    taint: Taint
    rule: DeviceTaintRule | None


def _taints_on(facts: ExplainFacts, device: DeviceId) -> Iterator[PlacedTaint]:
    """Yield those of slices first, then those of rules by name."""
    inventory, in_tree = facts.found.objects.inventory, facts.found.settings.in_tree is InTree.ACTIVE
    pool = inventory.pools.get((device.driver, device.pool))
    for each in pool.taints_of(device.device) if pool is not None else ():
        yield PlacedTaint(Taint.of_slice(each, in_tree=in_tree), None)
    for _, rule in sorted(inventory.rules.items()):
        if DeviceNames.of(rule.selector, inventory.servers).includes(device):
            taint = Taint.of_rule(rule, in_tree=in_tree)
            # A missing selector evicts from no device (E-6); `/evict` wants an effect that acts.
            evicts = rule.selector is not None and acts(rule.taint.effect)
            yield PlacedTaint(taint if evicts else taint._replace(evictor=None), rule)


def _taint(placed: PlacedTaint) -> dict[str, Any]:
    rule = placed.rule
    taint = placed.taint.taint if rule is None else rule.taint
    return {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": time_text(taint.time_added),
        "data": {**annotations_of(taint), **({} if rule is None else rule.meta.annotations)}.get(DATA),
        "source": "ResourceSlice" if rule is None else "DeviceTaintRule",
        "rule": None if rule is None else rule.meta.name,
        "evict": rule is not None and rule.taint.effect != rule.effective_effect,
        "evictor": None if placed.taint.evictor is None else placed.taint.evictor.value,
        "notBefore": time_text(placed.taint.not_before),
        "notJudged": [] if rule is None or rule.selector is None else sorted(not_judged(rule.selector)),
    }


def _judged(facts: ExplainFacts, placed: PlacedTaint, claim: ResourceClaim, result: AllocationResult) -> dict[str, Any]:
    servers, extended, now = facts.found.objects.inventory.servers, claim.extended_resource, facts.found.settings.now
    outcome, _, cause = outcome_of(placed.taint, result.tolerations, now, servers, extended=extended)
    added, toleration, until = placed.taint.taint.time_added, cause.toleration, None
    timed = outcome is PodOutcome.EVICTED and cause.reason is OutcomeReason.TOLERATED_FOR_SECONDS
    if timed and added is not None and toleration is not None and toleration.toleration_seconds is not None:
        with contextlib.suppress(OverflowError):
            until = format_time(added + timedelta(seconds=max(toleration.toleration_seconds, 0)))
    return {
        **_taint(placed),
        "outcome": outcome.value,
        "reason": cause.reason.value,
        "byRelease": on_extended_resources(servers) if extended else None,
        "toleration": _toleration(toleration),
        "until": until,
    }


def _toleration(found: DeviceToleration | None) -> dict[str, Any] | None:
    return None if found is None else {**toleration_values(found), "text": toleration_text(found)}


# --- rules --------------------------------------------------------------------------------------


def _rule(facts: ExplainFacts, rule: DeviceTaintRule) -> dict[str, Any]:
    in_tree = facts.found.settings.in_tree is InTree.ACTIVE
    lines, _ = lines_of(facts.found.objects, facts.found.settings, facts.found.missing)
    row = next(each for each in lines if each.rule is rule)
    preview = rule_preview(facts.found.objects.inventory, rule, in_tree=in_tree, now=facts.found.settings.now)
    return {
        "name": rule.meta.name,
        "taint": _taint(PlacedTaint(Taint.of_rule(rule, in_tree=in_tree), rule)),
        "selector": selector_values(rule.selector),
        **{name: rule.meta.annotations.get(annotation) for name, annotation in _NOTES.items()},
        "writtenFor": rule.origin.name or None,
        "deleting": rule.deleting,
        "computed": encoded(row.computed),
        "incompletePools": [f"{driver}/{pool}" for driver, pool in preview.impact.incomplete_pools],
        "siblings": [f"{each.driver}/{each.pool}/{each.device}" for each in preview.impact.siblings.devices],
        "pods": encoded(row.pods),
        "staying": [
            {
                "namespace": each.namespace,
                "name": each.name,
                "outcome": each.outcome.value,
                "reason": each.cause.reason.value,
                "toleration": _toleration(each.cause.toleration),
            }
            for each in preview.pods
            if each.outcome not in (PodOutcome.EVICTED, PodOutcome.LEAVING) and not preview.simulated
        ],
        "confirmation": _confirmation(rule, facts.found.settings.now),
        "reported": _conditions(facts, [rule.meta.name]),
        "evicted": row.evicted,
    }


def _confirmation(rule: DeviceTaintRule, now: datetime) -> dict[str, Any]:
    """Return whether the eviction waits for a confirmation; `needed` is None while the worker has said nothing."""
    said = current(rule)
    needed: bool | None = None
    why = "the worker has not written its condition for the rule as it is now"
    if rule.effective_effect != NO_EXECUTE:
        needed, why = False, "the rule evicts no pod"
    elif said is not None:
        needed = said.reason == ConditionReason.STOPPED and expiry_of(rule, now)[0] is not Expiry.TAKE_BACK
        since = "" if said.last_transition_time is None else f" since {format_time(said.last_transition_time)}"
        why = f"{said.reason}{since}: {said.message}"
    command = f"kubectl get devicetaintrule {rule.meta.name} -o yaml | {program('preview')} -" if needed else None
    return {"given": CONFIRM_IMPACT in rule.meta.annotations, "needed": needed, "why": why, "command": command}
