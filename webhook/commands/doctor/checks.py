"""The checks of `doctor`: each function turns facts about a cluster into a Check. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from webhook.admission.claim_view import REQUESTED_BY
from webhook.api.messages import counted
from webhook.api.meta import NamespacedName
from webhook.api.names import EXEMPT_NAMESPACES, WORKER
from webhook.cluster.client.answers import RawResponse
from webhook.cluster.client.connections import NoHandshake, Untrusted
from webhook.eviction.modes import LAST_POLICY_ANNOTATION, InTree
from webhook.files.report import json_text, painted, visible
from webhook.policy.document import Loaded
from webhook.policy.model import BUILTIN, InTreeEvictor, Policy, PolicyMode
from webhook.policy.vap.drift import AUTHOR_POLICY, AdmissionObjectKey, FallbackState, StoredObject, compare
from webhook.policy.vap.export import Coverage, export
from webhook.policy.vap.objects import PolicyTopic

PROBE_CODE: Final = "DT005"
"""The warning that every probe object gets, whatever the policy says: its key is in a reserved domain."""
AHEAD_CODE: Final = "DT007"
"""The warning about a time more than 60 s ahead of the webhook's clock."""
_SKEW_SECONDS: Final = 10.0
_SKEW_WORST_SECONDS: Final = 60.0
_SOON_SECONDS: Final = 3600.0
FAILED_CALL: Final = "failed calling webhook"
NOT_PROBED: Final = "not probed"
_ENDED: Final = ("EOF", "connection reset by peer", "broken pipe")
"""How a caller sees that the webhook ended the handshake: it depends on how far it had come itself."""
_NAMED_MOST: Final = 5
WITH_PERMISSION: Final = "run doctor as a user with this permission"
_COLORS: Final = {"ok": "\x1b[32m", "warn": "\x1b[1;33m", "fail": "\x1b[1;31m"}


class Status(StrEnum):
    """The result of a check, from best to worst."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """One line of the report; `advice` says how to fix what is not ok."""

    name: str
    status: Status
    message: str
    advice: str = ""


def passed(name: str, message: str) -> Check:
    """Return a check that passed."""
    return Check(name, Status.OK, message)


def warned(name: str, message: str, advice: str) -> Check:
    """Return a check that warns."""
    return Check(name, Status.WARN, message, advice)


def failed(name: str, message: str, advice: str) -> Check:
    """Return a check that failed."""
    return Check(name, Status.FAIL, message, advice)


def worst(checks: Iterable[Check]) -> Status:
    """Return the status of the worst check; OK if there is none."""
    return max((check.status for check in checks), key=list(Status).index, default=Status.OK)


def exit_code(checks: Iterable[Check], *, allow_warnings: bool = False) -> int:
    """Return 0 if all checks pass, 1 if one warns or fails; with `allow_warnings` only if one fails."""
    found = worst(checks)
    return int(found is Status.FAIL or (found is Status.WARN and not allow_warnings))


def as_text(checks: Sequence[Check], *, color: bool = False) -> str:
    """Return `ok    probe rules...: message` of each check, with the fix on the next line."""
    text = ""
    for check in checks:
        status = f"{check.status:<4}"
        status = painted(status, _COLORS[check.status]) if color else status
        text += f"{status}  {check.name}: {visible(check.message)}\n"
        text += f"      {visible(check.advice)}\n" if check.advice else ""
    return text


def as_json(checks: Sequence[Check]) -> str:
    """Return the same for programs; while `version` is 1, fields may be added but not removed."""
    return json_text(msgspec.to_builtins({"version": 1, "status": worst(checks), "checks": checks}))


# --- registration and probes --------------------------------------------------------------------


class WebhookEntry(NamedTuple):
    """One entry of a webhook configuration. `address` is host, port and the name in the certificate."""

    name: str
    kind: str
    fails_open: bool
    bundle: bytes
    address: tuple[str, int, str]
    rules: tuple[tuple[str, str, frozenset[str]], ...]
    """Group, resource and versions."""
    exempt: tuple[str, ...] = ()
    """Namespaces, by name, about whose objects it is not asked."""


def registration_check(kind: str, name: str, entries: Sequence[WebhookEntry] | None, expected: Iterable[str]) -> Check:
    """Check that a webhook configuration exists, is complete, and has a caBundle in each entry."""
    where = f"{kind}WebhookConfiguration {name}"
    if entries is None:
        return failed("registration", f"no {where}: API servers do not call the webhook", "apply the manifests")
    bare = [entry.name for entry in entries if not entry.bundle.strip()]
    if bare:
        advice = "wait for cert-manager's cainjector or a replica to fill it in; see certs/README.md"
        return failed("registration", f"{where}: no caBundle, so calls fail: {', '.join(bare)}", advice)
    missing = sorted(set(expected) - {entry.name for entry in entries})
    if missing:
        text = f"{where}: entries missing, so their objects are not reviewed: {', '.join(missing)}"
        return warned("registration", text, "apply the manifests again, unless left out on purpose")
    return passed("registration", f"{where}: {len(entries)} entries")


def probe_check(entry: WebhookEntry, answer: RawResponse, namespace: str) -> Check:
    """Check that the API server gets an answer from this entry: its advice, or a refusal. Our pods are in `namespace`.

    `answer` is the API server's, to an object that this entry reviews.
    """
    name = f"probe {entry.name}"
    said = answer.message
    refused = f'admission webhook "{entry.name}" denied the request' in said
    if refused or (answer.granted and any(f"[{PROBE_CODE}]" in text for text in answer.warnings)):
        return passed(name, "answered through the API server")
    if FAILED_CALL in said:
        return failed(name, said, _advice_on_failure(said, namespace))
    if answer.granted:
        text = "not called, or no answer: what it should review is admitted without a review"
        advice = "check that the pods are ready and the API server reaches the Service; its log says why calls fail"
        return failed(name, text, advice)
    if answer.code == 409 and entry.fails_open:
        text = "not called, or no answer: a policy with errors was not refused by the webhook"
        return failed(name, text, "check that the pods are ready; the API server's log says why calls fail")
    text = f"unknown: something else refused the probe: {said}"
    return warned(name, text, "run doctor as a user who may create such objects")


def exempt_check(entry: WebhookEntry, namespaces: Sequence[str]) -> Check:
    """Say that an entry is not probed, as it leaves out the namespaces that it would be probed in."""
    text = f"{NOT_PROBED}: it leaves out namespace {', '.join(namespaces)}"
    return warned(f"probe {entry.name}", text, "name another with --probe-namespace")


def _advice_on_failure(message: str, namespace: str) -> str:
    if "client certificate" in message or "certificate required" in message or message.endswith(_ENDED):
        return "the API server has no accepted client certificate: give it one, see certs/README.md"
    if "x509" in message or "certificate" in message:
        return "the caBundle does not match the certificate: both must come from the same CA, see certs/README.md"
    if "no endpoints" in message or "connection refused" in message:
        return f"no pod answers: kubectl -n {namespace} get pods"
    if "not found" in message and "service" in message:
        return "the Service is missing: apply the manifests again"
    return "the API server cannot reach the pods: check networks and firewalls, see docs/install.md"


def certificate_check(entry: str, found: datetime | NoHandshake | Untrusted, now: datetime) -> Check:
    """Check that the caBundle verifies the served certificate, as far as this machine can reach it.

    `found` is when that certificate expires, or why the handshake failed.
    """
    if isinstance(found, Untrusted):
        text = f"the caBundle of {entry} does not match the served certificate: {found}"
        return failed("certificate", text, "both must come from the same CA: see certs/README.md")
    if isinstance(found, NoHandshake):
        text = f"not reachable from here ({found}); the probes show whether the API server trusts it"
        return passed("certificate", text)
    left = (found - now).total_seconds()
    text = f"matches the caBundle; expires {found:%Y-%m-%dT%H:%M:%SZ}"
    if left < _SOON_SECONDS:
        advice = "it should have been renewed by now: see the log of cert-manager, or of the replicas if they issue it"
        return warned("certificate", f"{text}, in {max(left, 0) / 60:.0f} min", advice)
    return passed("certificate", text)


def versions_check(served: Mapping[tuple[str, str], frozenset[str]], entries: Iterable[WebhookEntry]) -> list[Check]:
    """Check that each resource is registered in a version that is served; others are converted to it."""
    checks = []
    wanted: dict[tuple[str, str], frozenset[str]] = {}
    for group, resource, versions in (rule for entry in entries for rule in entry.rules):
        wanted[group, resource] = wanted.get((group, resource), frozenset()) | versions
    for (group, resource), versions in sorted(wanted.items()):
        there = served.get((group, resource), frozenset())
        full = f"{resource}.{group}" if group else resource
        if not there:
            text = f"{full} is not served, so there is nothing to review"
            advice = "enable the API if you want it (DeviceTaintRules: feature gate DRADeviceTaintRules)"
            checks.append(warned("versions", text, advice))
        elif not there & versions and "*" not in versions:
            text = f"{full} is served in {', '.join(sorted(there))}, but registered for {', '.join(sorted(versions))}"
            advice = "upgrade the webhook to a version that knows this release"
            checks.append(failed("versions", f"{text}: it is not reviewed", advice))
    if not wanted:
        return [passed("versions", "not checked: no registered entry is known")]
    registered = ", ".join(sorted(resource for _, resource in wanted))
    return checks or [passed("versions", f"registered in a served version: {registered}")]


# --- authors ------------------------------------------------------------------------------------


def author_policy_check(problem: str) -> Check:
    """Check that API servers prove the authors of templates, by the policy as shipped; `problem` is why not."""
    if not problem:
        return passed("author policy", "API servers refuse templates that name another author")
    advice = "apply the manifests again; it has manifests/base/author-policy.yaml"
    return warned("author policy", f"{problem}: template authors are unknown", advice)


def forgery_check(forged: str, answer: RawResponse) -> Check:
    """Check that an API server refuses a template whose author is `forged`; `answer` is its to a dry run."""
    name = "probe author policy"
    denied = answer.code == 403
    if denied and f"'{AUTHOR_POLICY}'" in answer.message:
        return passed(name, "the API server refused a forged author")
    meta = (answer.body.get("spec") or {}).get("metadata") or {}
    if answer.granted and (meta.get("annotations") or {}).get(REQUESTED_BY) == forged:
        text = "the API server accepted a forged author, so anyone can write templates in the name of others"
        return failed(name, text, f"check ValidatingAdmissionPolicy {AUTHOR_POLICY} and its binding")
    text = f"not checked{', permission denied' * denied}: {answer.message}"
    if answer.granted:
        text = "not checked: the forged author was replaced before the policy saw it"
    return warned(name, text, WITH_PERMISSION)


# --- clocks -------------------------------------------------------------------------------------


def clock_check(server: datetime | None, here: datetime) -> Check:
    """Compare this machine's clock with the API server's, which is known in full seconds."""
    if server is None:
        text = "the API server sends no Date header, so clocks cannot be compared"
        return warned("clock", text, "check the proxy in front of it")
    seconds = (here - server).total_seconds()
    if abs(seconds) <= _SKEW_SECONDS:
        return passed("clock", "this machine and the API server agree")
    text = f"this machine is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the API server"
    status = Status.FAIL if abs(seconds) > _SKEW_WORST_SECONDS else Status.WARN
    return Check("clock", status, text, "synchronize clocks by NTP: certificates and evictions depend on them")


def webhook_clock_check(sooner: Sequence[str], later: Sequence[str]) -> Check:
    """Compare the webhook's clock with the API server's, by its warnings about times 50 s and 70 s ahead of that.

    It warns of those more than 60 s ahead of its own.
    """
    early, late = (any(f"[{AHEAD_CODE}]" in text for text in warnings) for warnings in (sooner, later))
    if late and not early:
        return passed("clock", "the webhook and the API server agree")
    text = f"the webhook is more than {_SKEW_SECONDS:g} s {'behind' if early else 'ahead of'} the API server"
    advice = "synchronize the clocks of its nodes by NTP: exceptions and evictions depend on them"
    return failed("clock", text, advice)


# --- what runs ----------------------------------------------------------------------------------


def deployment_check(name: str, deployment: Mapping[str, Any] | None, namespace: str) -> Check:
    """Check that a Deployment in `namespace` has its replicas."""
    if deployment is None:
        advice = "apply the manifests, or name its namespace with -n; outside of the cluster it needs none"
        return warned("deployment", f"no Deployment {name} in namespace {namespace}", advice)
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    status = deployment.get("status") or {}
    ready, updated = status.get("readyReplicas", 0), status.get("updatedReplicas", 0)
    if not wanted:
        advice = f"kubectl -n {namespace} scale deployment {name} --replicas N"
        return failed("deployment", f"{name} is scaled to 0, so it does nothing", advice)
    text = f"{name}: {ready} of {wanted} replicas ready"
    advice = f"kubectl -n {namespace} describe deployment {name}"
    if not ready:
        return failed("deployment", text, advice)
    if ready < wanted or updated < wanted:
        return warned("deployment", f"{text}, {updated} up to date", advice)
    return passed("deployment", text)


def access_check(denied: Sequence[str], asked: int) -> Check:
    """Check that the service accounts have all the rights they need; `denied` says who may not do what."""
    if not denied:
        return passed("access", f"service accounts have all {asked} rights that they need")
    return failed("access", "; ".join(denied), "roles or bindings are missing or changed: apply the manifests again")


# --- policy and evictor -------------------------------------------------------------------------


def policy_check(loaded: Loaded | None, config_map: NamespacedName, used: str, lost: str) -> Check:
    """Check the policy in the ConfigMap; None if there is none.

    `used` is the hash of the one in use, `lost` of the last one before there was none; empty where that is not known.
    """
    builtin = "the built-in policy applies: all tolerations are allowed"
    using = "the built-in policy" if used == BUILTIN.hash else f"policy {used}"
    if loaded is None:
        if not lost:
            return passed("policy", f"none is set, so {builtin}")
        advice = (
            f"create ConfigMap {config_map} again; if it was deleted on purpose, remove annotation "
            f"{LAST_POLICY_ANNOTATION} from Lease {WORKER}; without a worker the warning ends in an hour"
        )
        return warned("policy", f"policy {lost} is gone, so {builtin}", advice)
    policy = loaded.policy
    if policy is None:
        text = f"cannot be loaded: {'; '.join(str(error) for error in loaded.errors[:3])}"
        text += f"; {using} stays in use" if used else ""
        return failed("policy", text, f"correct ConfigMap {config_map}; until then replicas keep the last good policy")
    text = f"{policy.hash}: {counted(len(policy.rules), 'rule')}, {counted(len(policy.taint_rules), 'taint rule')}"
    if used and used != policy.hash:
        restart = f"kubectl rollout restart deployment {WORKER} -n {config_map.namespace}"
        advice = f"if this lasts for more than seconds, restart it: {restart}"
        return warned("policy", f"{text}; the eviction worker uses {using} instead", advice)
    if policy.mode is not PolicyMode.ENFORCE:
        advice = "set mode: enforce in the policy, if it should refuse"
        return warned("policy", f"{text}, mode {policy.mode}: nothing is refused", advice)
    return passed("policy", text)


def softening_check(problem: str) -> Check:
    """Check that an eviction worker acts on softened rules; `problem` is why none does, or empty."""
    if not problem:
        return passed("softening", "the policy softens rules, and an eviction worker acts on them")
    advice = "run evict in mode delegated or replacement, with --leader-elect: docs/eviction.md"
    return warned("softening", f"the policy softens rules, but {problem}", advice)


def fallback_check(
    policy: Policy | None,
    stored: Mapping[AdmissionObjectKey, StoredObject],
    namespace: str,
    exempt: Iterable[str] = EXEMPT_NAMESPACES,
) -> Check | None:
    """Compare the objects in a cluster with what the policy exports; None where there are none.

    `policy` is None if it cannot be loaded. Claims in `namespace` and in `exempt` ones are left out.
    """
    ours = [each for each in stored.values() if each.ours]
    if not ours:
        return None
    if policy is None:
        return passed("fallback", "not compared, as the policy cannot be loaded: the last good one stays in place")
    protects = any(each.key.name.endswith(f"-{PolicyTopic.LABELS}") for each in ours)
    exported = export(policy, protect_labels=protects, namespace=namespace, exempt=exempt)
    found = compare(exported.objects, stored)
    amiss = [str(each) for each in found if each.state is not FallbackState.IN_SYNC]
    if amiss:
        more = f", and {len(amiss) - _NAMED_MOST} more" if len(amiss) > _NAMED_MOST else ""
        text = f"admission policies differ from the policy: {'; '.join(amiss[:_NAMED_MOST])}{more}"
        return warned("fallback", text, "export and apply them again: docs/integrations.md")
    parts = (*exported.rules, *exported.beyond)
    full = f"{sum(each.coverage is Coverage.FULL for each in parts)} of {len(parts)} parts in full"
    return passed("fallback", f"{len(found)} admission policies and bindings as in the policy; {full}")


def evictor_check(found: InTree, policy: Policy | None) -> Check:
    """Check that the policy knows whether the in-tree evictor runs."""
    if found is InTree.UNKNOWN:
        text = (
            "cannot detect whether the in-tree evictor runs: DeviceTaintRules are not served, have no status, or "
            "admission refuses the canary rule"
        )
        advice = "set inTreeEvictor in the policy to what the controller manager is configured for"
        return warned("evictor", text, advice)
    said = (policy.in_tree_evictor if policy is not None else InTreeEvictor.ACTIVE).value
    text = f"the in-tree evictor is {found}"
    if said != found.value:
        advice = f"set inTreeEvictor: {found} in the policy: the impact guard depends on it"
        return warned("evictor", f"{text}, but the policy says {said}", advice)
    return passed("evictor", f"{text}, as the policy says")
