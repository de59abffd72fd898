"""The checks of `doctor`: each function turns facts about a cluster into a Check. No I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.admission.claim_view import REQUESTED_BY
from webhook.api.counts import counted
from webhook.api.names import WORKER
from webhook.eviction.modes import LAST_POLICY_ANNOTATION, InTree
from webhook.policy.model import BUILTIN, InTreeEvictor, PolicyMode
from webhook.policy.vap.author_policy import AUTHOR_POLICY
from webhook.policy.vap.drift import FallbackState, compare
from webhook.policy.vap.export import Coverage, export
from webhook.policy.vap.objects import PolicyTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from webhook.api.meta import NamespacedName
    from webhook.eviction.modes import WorkerSays
    from webhook.policy.document import Loaded
    from webhook.policy.model import Policy
    from webhook.policy.vap.drift import AdmissionObjectKey, StoredObject

PROBE_CODE: Final = "DT005"
"""The warning that every probe object gets, whatever the policy says: its key is in a reserved domain."""
AHEAD_CODE: Final = "DT007"
"""The warning about a time more than 60 s ahead of the webhook's clock."""
_SKEW_SECONDS: Final = 10.0
_SKEW_WORST_SECONDS: Final = 60.0
_SOON_SECONDS: Final = 3600.0
_DENIED: Final = "denied the request"
FAILED_CALL: Final = "failed calling webhook"
_ENDED: Final = ("EOF", "connection reset by peer", "broken pipe")
"""How a caller sees that the webhook ended the handshake: it depends on how far it had come itself."""
_SOFTENING_ADVICE: Final = "run evict in mode delegated or replacement, with --leader-elect: docs/eviction.md"
_NAMED_MOST: Final = 5


class Status(StrEnum):
    """The result of a check, from best to worst."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """One line of the report; `advice` says how to fix what is not ok."""

    name: str
    status: Status
    message: str
    advice: str = ""


def worst(checks: Iterable[Check]) -> Status:
    """The status of the worst check; OK if there is none."""
    return max((check.status for check in checks), key=list(Status).index, default=Status.OK)


def exit_code(checks: Iterable[Check], *, allow_warnings: bool = False) -> int:
    """0 if all checks pass, 1 if one warns or fails; with `allow_warnings` only if one fails."""
    found = worst(checks)
    return int(found is Status.FAIL or (found is Status.WARN and not allow_warnings))


def passed(name: str, message: str) -> Check:
    """A check that passed."""
    return Check(name, Status.OK, message)


# --- probes -------------------------------------------------------------------------------------


class ProbeResult(NamedTuple):
    """An API server's answer to an object that the webhook reviews. `entry` is the webhook entry that reviews it."""

    entry: str
    fails_open: bool
    code: int
    message: str
    warnings: tuple[str, ...]

    @property
    def answered(self) -> bool:
        """Whether the webhook answered: with its advice, or with a refusal."""
        refused = f'admission webhook "{self.entry}" {_DENIED}' in self.message
        return refused or (self.code < 300 and any(f"[{PROBE_CODE}]" in text for text in self.warnings))


def probe_check(probed: ProbeResult, namespace: str) -> Check:
    """Whether the API server gets an answer from this entry; our pods are in `namespace`."""
    name = f"probe {probed.entry}"
    if probed.answered:
        return passed(name, "answered through the API server")
    if FAILED_CALL in probed.message:
        return Check(name, Status.FAIL, probed.message, _advice_on_failure(probed.message, namespace))
    if probed.code < 300:
        text = "not called, or no answer: what it should review is admitted without a review"
        advice = "check that the pods are ready and the API server reaches the Service; its log says why calls fail"
        return Check(name, Status.FAIL, text, advice)
    if probed.code == 409 and probed.fails_open:
        text = "not called, or no answer: a policy with errors was not refused by the webhook"
        return Check(name, Status.FAIL, text, "check that the pods are ready; the API server's log says why calls fail")
    text = f"unknown: something else refused the probe: {probed.message}"
    return Check(name, Status.WARN, text, "run doctor as a user who may create such objects")


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


# --- authors ------------------------------------------------------------------------------------


def author_policy_check(problem: str) -> Check:
    """Whether API servers prove the authors of templates, by the policy as shipped; `problem` is why they do not."""
    name = "author policy"
    if not problem:
        return passed(name, "API servers refuse templates that name another author")
    advice = "apply the manifests again; it has manifests/base/author-policy.yaml"
    return Check(name, Status.WARN, f"{problem}: template authors are unknown", advice)


def forgery_check(forged: str, code: int, message: str, answer: Mapping[str, Any]) -> Check:
    """Whether an API server refuses a template whose author is `forged`. `answer` is what a dry run would create."""
    name = "probe author policy"
    if code == 403 and f"'{AUTHOR_POLICY}'" in message:
        return passed(name, "the API server refused a forged author")
    meta = (answer.get("spec") or {}).get("metadata") or {}
    if code < 300 and (meta.get("annotations") or {}).get(REQUESTED_BY) == forged:
        text = "the API server accepted a forged author, so anyone can write templates in the name of others"
        return Check(name, Status.FAIL, text, f"check ValidatingAdmissionPolicy {AUTHOR_POLICY} and its binding")
    text = "not checked: the forged author was replaced before the policy saw it"
    if code >= 300:
        text = f"not checked{', permission denied' if code == 403 else ''}: {message}"
    return Check(name, Status.WARN, text, "run doctor as a user with this permission")


# --- registration and certificates --------------------------------------------------------------


class WebhookEntry(NamedTuple):
    """One entry of a webhook configuration. `address` is host, port and the name in the certificate."""

    name: str
    kind: str
    fails_open: bool
    bundle: bytes
    address: tuple[str, int, str]
    rules: tuple[tuple[str, str, frozenset[str]], ...]
    """Group, resource and versions."""


def registration_check(kind: str, name: str, entries: Sequence[WebhookEntry] | None, expected: Iterable[str]) -> Check:
    """Whether a webhook configuration exists, is complete, and has a caBundle in each entry."""
    where = f"{kind}WebhookConfiguration {name}"
    if entries is None:
        return Check(
            "registration", Status.FAIL, f"no {where}: API servers do not call the webhook", "apply the manifests"
        )
    bare = [entry.name for entry in entries if not entry.bundle.strip()]
    if bare:
        advice = "wait for cert-manager's cainjector or a replica to fill it in; see certs/README.md"
        return Check("registration", Status.FAIL, f"{where}: no caBundle, so calls fail: {', '.join(bare)}", advice)
    missing = sorted(set(expected) - {entry.name for entry in entries})
    if missing:
        text = f"{where}: entries missing, so their objects are not reviewed: {', '.join(missing)}"
        return Check("registration", Status.WARN, text, "apply the manifests again, unless left out on purpose")
    return passed("registration", f"{where}: {len(entries)} entries")


class Handshake(NamedTuple):
    """The result of a TLS handshake that trusts the caBundle: when the certificate expires, or why it failed."""

    entry: str
    ends: datetime | None = None
    untrusted: str = ""
    unreachable: str = ""


def certificate_check(shake: Handshake, now: datetime) -> Check:
    """Whether the caBundle verifies the served certificate, as far as this machine can reach it."""
    if shake.untrusted:
        text = f"the caBundle of {shake.entry} does not match the served certificate: {shake.untrusted}"
        return Check("certificate", Status.FAIL, text, "both must come from the same CA: see certs/README.md")
    if shake.ends is None:
        text = f"not reachable from here ({shake.unreachable}); the probes show whether the API server trusts it"
        return passed("certificate", text)
    left = (shake.ends - now).total_seconds()
    text = f"matches the caBundle; expires {shake.ends:%Y-%m-%dT%H:%M:%SZ}"
    if left < _SOON_SECONDS:
        advice = "it should have been renewed by now: see the log of cert-manager, or of the replicas if they issue it"
        return Check("certificate", Status.WARN, f"{text}, in {max(left, 0) / 60:.0f} min", advice)
    return passed("certificate", text)


def versions_check(served: Mapping[tuple[str, str], frozenset[str]], entries: Iterable[WebhookEntry]) -> list[Check]:
    """Whether each resource is registered in a version that is served; others are converted to it."""
    checks = []
    wanted: dict[tuple[str, str], frozenset[str]] = {}
    for entry in entries:
        for group, resource, versions in entry.rules:
            wanted[group, resource] = wanted.get((group, resource), frozenset()) | versions
    for (group, resource), versions in sorted(wanted.items()):
        there = served.get((group, resource), frozenset())
        full = f"{resource}.{group}" if group else resource
        if not there:
            text = f"{full} is not served, so there is nothing to review"
            advice = "enable the API if you want it (DeviceTaintRules: feature gate DRADeviceTaintRules)"
            checks.append(Check("versions", Status.WARN, text, advice))
        elif not there & versions and "*" not in versions:
            text = f"{full} is served in {_listed(there)}, but registered for {_listed(versions)}: it is not reviewed"
            checks.append(
                Check("versions", Status.FAIL, text, "upgrade the webhook to a version that knows this release")
            )
    registered = ", ".join(sorted(resource for _, resource in wanted))
    if not registered:
        return [passed("versions", "not checked: no registered entry is known")]
    return checks or [passed("versions", f"registered in a served version: {registered}")]


# --- clocks -------------------------------------------------------------------------------------


def clock_check(server: datetime | None, here: datetime) -> Check:
    """Compares this machine's clock with the API server's, which is known in full seconds."""
    if server is None:
        return Check(
            "clock",
            Status.WARN,
            "the API server sends no Date header, so clocks cannot be compared",
            "check the proxy in front of it",
        )
    seconds = (here - server).total_seconds()
    text = f"this machine is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the API server"
    if abs(seconds) <= _SKEW_SECONDS:
        return passed("clock", "this machine and the API server agree")
    status = Status.FAIL if abs(seconds) > _SKEW_WORST_SECONDS else Status.WARN
    return Check("clock", status, text, "synchronize clocks by NTP: certificates and evictions depend on them")


def webhook_clock_check(sooner: Sequence[str], later: Sequence[str]) -> Check:
    """Compares the webhook's clock with the API server's, by its warnings about times 50 s and 70 s ahead of that.

    It warns of those more than 60 s ahead of its own.
    """
    early = any(f"[{AHEAD_CODE}]" in text for text in sooner)
    late = any(f"[{AHEAD_CODE}]" in text for text in later)
    if late and not early:
        return passed("clock", "the webhook and the API server agree")
    way = "behind" if early else "ahead of"
    text = f"the webhook is more than {_SKEW_SECONDS:g} s {way} the API server"
    return Check(
        "clock",
        Status.FAIL,
        text,
        "synchronize the clocks of its nodes by NTP: exceptions and evictions depend on them",
    )


# --- what runs ----------------------------------------------------------------------------------


def deployment_check(name: str, deployment: Mapping[str, Any] | None, namespace: str, *, needed: bool) -> Check | None:
    """Whether a Deployment in `namespace` has its replicas; None where there is none and none is needed."""
    if deployment is None:
        if not needed:
            return None
        advice = "apply the manifests, or name its namespace with -n; outside of the cluster it needs none"
        return Check("deployment", Status.WARN, f"no Deployment {name} in namespace {namespace}", advice)
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    status = deployment.get("status") or {}
    ready, updated = status.get("readyReplicas", 0), status.get("updatedReplicas", 0)
    text = f"{name}: {ready} of {wanted} replicas ready"
    advice = f"kubectl -n {namespace} describe deployment {name}"
    if not ready and wanted:
        return Check("deployment", Status.FAIL, text, advice)
    if not wanted:
        return Check(
            "deployment",
            Status.FAIL,
            f"{name} is scaled to 0, so it does nothing",
            f"kubectl -n {namespace} scale deployment {name} --replicas N",
        )
    if ready < wanted or updated < wanted:
        return Check("deployment", Status.WARN, f"{text}, {updated} up to date", advice)
    return passed("deployment", text)


class MissingRight(NamedTuple):
    """A right that a service account needs and does not have."""

    account: str
    what: str


def access_check(denied: Sequence[MissingRight], asked: int) -> Check:
    """Whether the service accounts have all the rights they need."""
    if not denied:
        return passed("access", f"service accounts have all {asked} rights that they need")
    text = "; ".join(f"{each.account} may not {each.what}" for each in denied)
    return Check("access", Status.FAIL, text, "roles or bindings are missing or changed: apply the manifests again")


# --- policy and evictor -------------------------------------------------------------------------


class PolicyUse(NamedTuple):
    """What is known of the policy beside its ConfigMap; texts are empty where nothing is."""

    used: str = ""
    """The hash of the one that is in use."""
    lost: str = ""
    """The hash of the last one that was in use before there was none."""


def policy_check(loaded: Loaded | None, config_map: NamespacedName, use: PolicyUse) -> Check:
    """`loaded` is the policy in the ConfigMap; None if there is none."""
    builtin = "the built-in policy applies: all tolerations are allowed"
    if loaded is None:
        if not use.lost:
            return passed("policy", f"none is set, so {builtin}")
        advice = (
            f"create ConfigMap {config_map} again; if it was deleted on purpose, remove annotation "
            f"{LAST_POLICY_ANNOTATION} from Lease {WORKER}; without a worker the warning ends in an hour"
        )
        return Check("policy", Status.WARN, f"policy {use.lost} is gone, so {builtin}", advice)
    if loaded.policy is None:
        text = f"cannot be loaded: {'; '.join(str(error) for error in loaded.errors[:3])}"
        text += f"; {_policy(use.used)} stays in use" if use.used else ""
        advice = f"correct ConfigMap {config_map}; until then replicas keep the last good policy"
        return Check("policy", Status.FAIL, text, advice)
    policy = loaded.policy
    text = f"{policy.hash}: {counted(len(policy.rules), 'rule')}, {counted(len(policy.taint_rules), 'taint rule')}"
    if use.used and use.used != policy.hash:
        advice = f"if this lasts for more than seconds, restart it: kubectl rollout restart deployment {WORKER}"
        return Check("policy", Status.WARN, f"{text}; the eviction worker uses {_policy(use.used)} instead", advice)
    if policy.mode is not PolicyMode.ENFORCE:
        return Check(
            "policy",
            Status.WARN,
            f"{text}, mode {policy.mode}: nothing is refused",
            "set mode: enforce in the policy, if it should refuse",
        )
    return passed("policy", text)


def _policy(hashed: str) -> str:
    return "the built-in policy" if hashed == BUILTIN.hash else f"policy {hashed}"


def evictor_check(found: InTree, policy: Policy | None) -> Check:
    """Whether the in-tree evictor runs, and whether the policy knows."""
    if found is InTree.UNKNOWN:
        text = (
            "cannot detect whether the in-tree evictor runs: DeviceTaintRules are not served, have no status, or "
            "admission refuses the canary rule"
        )
        return Check(
            "evictor",
            Status.WARN,
            text,
            "set inTreeEvictor in the policy to what the controller manager is configured for",
        )
    said = (policy.in_tree_evictor if policy is not None else InTreeEvictor.ACTIVE).value
    text = f"the in-tree evictor is {found}"
    if said != found.value:
        advice = f"set inTreeEvictor: {found} in the policy: the impact guard depends on it"
        return Check("evictor", Status.WARN, f"{text}, but the policy says {said}", advice)
    return passed("evictor", f"{text}, as the policy says")


def worker_check(worker: WorkerSays) -> Check:
    """What the eviction worker that led last says of itself."""
    mode = "unknown mode" if worker.mode is None else f"mode {worker.mode}"
    return passed("worker", f"{mode}, version {worker.version or 'unknown'}")


def _listed(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions))


def softens(policy: Policy | None) -> bool:
    """Whether the policy in use softens rules."""
    return policy is not None and policy.impact.softens


def softening_check(problem: str) -> Check:
    """Whether an eviction worker acts on softened rules; `problem` is why none does, or empty."""
    if problem:
        return Check("softening", Status.WARN, f"the policy softens rules, but {problem}", _SOFTENING_ADVICE)
    return passed("softening", "the policy softens rules, and an eviction worker acts on them")


def fallback_check(
    policy: Policy | None, stored: Mapping[AdmissionObjectKey, StoredObject], namespace: str
) -> Check | None:
    """Compare the objects in a cluster with what the policy exports; None where there are none.

    `policy` is None if it cannot be loaded.
    """
    ours = [each for each in stored.values() if each.ours]
    if not ours:
        return None
    if policy is None:
        return passed("fallback", "not compared, as the policy cannot be loaded: the last good one stays in place")
    protects = any(each.key.name.endswith(f"-{PolicyTopic.LABELS}") for each in ours)
    exported = export(policy, protect_labels=protects, namespace=namespace)
    found = compare(exported.objects, stored)
    amiss = [str(each) for each in found if each.state is not FallbackState.IN_SYNC]
    if amiss:
        more = f", and {len(amiss) - _NAMED_MOST} more" if len(amiss) > _NAMED_MOST else ""
        text = f"admission policies differ from the policy: {'; '.join(amiss[:_NAMED_MOST])}{more}"
        return Check("fallback", Status.WARN, text, "export and apply them again: docs/integrations.md")
    parts = (*exported.rules, *exported.beyond)
    full = sum(each.coverage is Coverage.FULL for each in parts)
    return passed(
        "fallback",
        f"{len(found)} admission policies and bindings as in the policy; {full} of {len(parts)} parts in full",
    )
