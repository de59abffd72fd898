"""The questions of `doctor`: probes that the webhook comments on whatever the policy says, TLS handshakes, rights.

Probes are refused, or created as dry runs; only the canary, which has a flag, changes anything. The rights are those of
the roles in the manifests, right by right. A test compares the two.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import contextlib
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, product
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from webhook.admission.claim_view import REQUESTED_BY
from webhook.admission.config_maps import POLICY_KEY, missing_policy
from webhook.api.decode import Reader
from webhook.api.meta import GROUP, OWN_GROUP, RULE_VERSIONS, SERVED_VERSIONS, NamespacedName, format_time
from webhook.api.names import CA_NAME, EXEMPT_NAMESPACES, PATCH_ACCOUNT, PATCHER, POLICY_NAME, PROGRAM, WORKER
from webhook.api.pods import POD_GROUPS
from webhook.cluster.cache.discovery import ServedCollection, served_version
from webhook.cluster.client.answers import RawResponse
from webhook.cluster.client.connections import NoHandshake, Untrusted, certificate_end
from webhook.cluster.client.credentials import Credentials
from webhook.cluster.client.errors import ClusterError, NotFound, Refused
from webhook.cluster.client.list_pages import config_map_of, decoded, find
from webhook.cluster.client.rest import Cluster, ThrottledCluster, path_of
from webhook.cluster.in_tree_probe import find_in_tree
from webhook.cluster.installation import ENTRIES, MUTATING, VALIDATING, read_admission_policies, read_author_policy
from webhook.cluster.leader import EvictionLease
from webhook.commands.doctor import checks
from webhook.commands.doctor.checks import PROBE_CODE, Check, Status, WebhookEntry, failed, passed, warned
from webhook.commands.shared.flags import credentials_of, use_color
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.output import write
from webhook.commands.shared.policy_files import read_policy
from webhook.commands.shared.snapshot import CLAIMS, PATCHES, RULES, SLICES, TEMPLATES
from webhook.config.command_line import CommandLine
from webhook.config.texts import policy_config_map
from webhook.eviction.modes import LAST_POLICY_ANNOTATION, POLICY_ANNOTATION, InTree, WorkerSays
from webhook.files.report import visible
from webhook.flowcontrol.loop import Throttle
from webhook.policy.document import Loaded
from webhook.policy.model import BUILTIN, NAMESPACE_NAME_LABEL, Policy
from webhook.policy.vap.drift import AUTHOR_POLICY
from webhook.policy.vap.objects import ADMISSION_GROUP, ADMISSION_RESOURCES

COLLECTIONS: Final = {"rules": RULES, "claims": CLAIMS, "templates": TEMPLATES, "slices": SLICES, "patches": PATCHES}
_CONFIGURATIONS: Final = {"Validating": (VALIDATING, "validate"), "Mutating": (MUTATING, "mutate")}
_RULES_ENTRY: Final = "rules.validate.devicetaint.io"
_CLAIMS_ENTRY: Final = "claims.validate.devicetaint.io"
_DRIVER: Final = "doctor.devicetaint.io"
_KEY: Final = "devicetaint.k8s.io/doctor"
"""In a domain reserved for Kubernetes, which gets a warning (DT005) in every object."""
_PROBED: Final = ("default", "kube-public", "kube-node-lease")
"""Namespaces that every cluster has; the first of them that is not exempt is probed."""
_HTTPS: Final = 443
FORGED_AUTHOR: Final = '{"username":"device-taint-webhook-doctor-forged"}'
"""No user of a cluster."""
_HANDSHAKE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 1.0
_HASHES: Final = {
    "PolicyDeleted": re.compile(r"policy (\S+) was deleted:"),
    "PolicyNotLoaded": re.compile(r"policy not loaded, (\S+) stays in use:"),
}
"""The policy that Events with these reasons are about, as `daemons.policy_loader` writes them."""


def run(options: argparse.Namespace, _: CommandLine) -> int:
    """Print a line for each check; with --wait, after probes are answered or the time is up."""
    with reading_cluster():
        found = asyncio.run(_examination(Doctor(credentials_of(options), options), options.wait))
    code = checks.exit_code(found, allow_warnings=options.allow_warnings)
    if options.output == "text":
        return write(checks.as_text(found, color=use_color(options.color)), code)
    return write(checks.as_json(found), code)


async def _examination(doctor: Doctor, wait_seconds: float | None) -> list[Check]:
    if wait_seconds is not None:
        await wait_answered(doctor, wait_seconds)
    return await doctor.examine()


async def wait_answered(doctor: Doctor, seconds: float) -> None:
    """Wait until probes are answered, or the time is up; on stderr is each new reason why they are not."""
    until, told = time.monotonic() + seconds, ""
    while True:
        try:
            why = await doctor.unanswered()
        except ClusterError as error:
            why = str(error)  # the API server may still be starting, too
        if why and why != told:
            sys.stderr.write(f"waiting: {visible(why)}\n")
            told = why
        if not why or time.monotonic() + _POLL_SECONDS > until:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 -- a shell asks


class Doctor:
    """Examines one installation, as the flags of `doctor` say."""

    def __init__(self, credentials: Credentials, options: argparse.Namespace) -> None:
        self._cluster = Cluster(credentials, user_agent=f"{PROGRAM}-doctor")
        self._credentials = credentials
        self._namespace: str = options.namespace
        self._probe_namespaces: tuple[str, ...] = (options.probe_namespace,) if options.probe_namespace else _PROBED
        self._canary: bool = options.canary
        self._config_map: NamespacedName = options.policy_configmap or policy_config_map(options.namespace)
        self._entries: list[WebhookEntry] = []
        self._policy: Policy | None = BUILTIN
        """The policy in use, as far as it can be read; None if the document is broken."""

    async def examine(self) -> list[Check]:
        """Return all checks, causes before their consequences. Raises ClusterError."""
        async with self._cluster:
            found = [checks.clock_check((await self._cluster.send("GET", "/version")).date, _now())]
            for name, look in (
                ("registration", self._registrations),
                ("author policy", self._author_policy),
                ("deployment", self._deployments),
                ("certificate", self._certificate),
                ("versions", self._versions),
                ("access", self._access),
                ("policy", self._policies),
                ("softening", self._softening),
                ("fallback", self._fallback),
                ("probe", self._probes),
                ("probe author policy", self._forgery),
                ("clock", self._webhook_clock),
                ("evictor", self._evictor),
            ):
                try:
                    found += [check async for check in look()]
                except Refused as error:
                    text = f"not checked, permission denied: {error}"
                    found.append(warned(name, text, checks.WITH_PERMISSION))
                except ClusterError as error:
                    ours = checks.FAILED_CALL in str(error)
                    advice = "our webhook must judge that object and does not answer: see its probes"
                    found.append(failed(name, str(error), advice if ours else "check the health of the API server"))
            return found

    async def unanswered(self) -> str:
        """Return why a validating entry does not answer through the API server; empty if all do."""
        async with self._cluster:
            _ = [check async for check in self._registrations()]
            found = [check async for check in self._probes()]
        amiss = [each for each in found if each.status is not Status.OK and checks.NOT_PROBED not in each.message]
        why = "" if found else "no validating webhook is registered"
        return next((f"{each.name}: {each.message}" for each in amiss), why)

    async def _get(self, group: str, resource: str, name: str, *, namespaced: bool = True) -> dict[str, Any] | None:
        """Return an object of our namespace or of the cluster, or None if there is none. Raises ClusterError."""
        path = path_of(group, "v1", resource, namespace=self._namespace if namespaced else "", name=name)
        return await find(self._cluster, path)

    # --- installation ----------------------------------------------------------------------------

    async def _registrations(self) -> AsyncIterator[Check]:
        self._entries = []
        registered: dict[str, list[WebhookEntry] | None] = {}
        for kind, (resource, _) in _CONFIGURATIONS.items():
            found = await self._get(ADMISSION_GROUP, resource, PROGRAM, namespaced=False)
            entries = None if found is None else [webhook_entry_of(kind, each) for each in found.get("webhooks") or ()]
            self._entries += entries or []
            registered[kind] = entries
        for kind, (resource, suffix) in _CONFIGURATIONS.items():
            sorts = [*ENTRIES[resource], *["patches"] * self._patched]
            expected = [f"{sort}.{suffix}.devicetaint.io" for sort in sorts]
            yield checks.registration_check(kind, PROGRAM, registered[kind], expected)

    @property
    def _patched(self) -> bool:
        """Tell whether patches are reviewed here: they are an option."""
        return any(re.fullmatch(r"patches\.(validate|mutate)\.devicetaint\.io", each.name) for each in self._entries)

    async def _author_policy(self) -> AsyncIterator[Check]:
        problem, _ = await read_author_policy(self._cluster)
        yield checks.author_policy_check(problem)

    async def _deployments(self) -> AsyncIterator[Check]:
        for name in (PROGRAM, WORKER, PATCHER):
            found = await self._get("apps", "deployments", name)
            if found is not None or name == PROGRAM:
                yield checks.deployment_check(name, found, self._namespace)

    async def _certificate(self) -> AsyncIterator[Check]:
        """Yield one check for each address and caBundle."""
        distinct = {(entry.address, entry.bundle): entry for entry in self._entries if entry.bundle}
        for entry in distinct.values():
            found: datetime | Untrusted | NoHandshake
            try:
                found = await certificate_end(*entry.address, entry.bundle, _HANDSHAKE_SECONDS)
            except (Untrusted, NoHandshake) as error:
                found = error
            yield checks.certificate_check(entry.name, found, _now())

    async def _versions(self) -> AsyncIterator[Check]:
        served = {("", "configmaps"): frozenset({"v1"})}
        for group in sorted({group for entry in self._entries for group, _, _ in entry.rules} - {""}):
            try:
                found = decoded(await self._cluster.get(f"/apis/{group}"), group)
            except NotFound:
                continue
            for version in [each["version"] for each in found.get("versions") or ()]:
                listed = decoded(await self._cluster.get(path_of(group, version, "")), group)
                for each in listed.get("resources") or ():
                    key = (group, each["name"])
                    served[key] = served.get(key, frozenset()) | {version}
        for check in checks.versions_check(served, self._entries):
            yield check

    async def _access(self) -> AsyncIterator[Check]:
        there = {PROGRAM: True, "": True, PATCH_ENTRIES: self._patched}
        there[SELF_MANAGED] = await self._get("", "secrets", CA_NAME) is not None
        for account, deployment in ((WORKER, WORKER), (PATCH_ACCOUNT, PATCHER)):
            there[account] = await self._get("apps", "deployments", deployment) is not None
        needed = [right for right in RIGHTS if there[right.only_with] and there[right.account]]
        denied = [f"{right.account} may not {right}" for right in needed if not await self._may(right)]
        yield checks.access_check(denied, len(needed))

    async def _may(self, right: Right) -> bool:
        spec = {
            "user": f"system:serviceaccount:{self._namespace}:{right.account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{self._namespace}", "system:authenticated"],
            "resourceAttributes": right.attributes(self._namespace),
        }
        path = path_of("authorization.k8s.io", "v1", "subjectaccessreviews")
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool(decoded(await self._cluster.create(path, review), path)["status"]["allowed"])

    async def _policies(self) -> AsyncIterator[Check]:
        found = await config_map_of(self._cluster, self._config_map)
        loaded = None if found is None else policy_in_config_map(found, self._namespace)
        self._policy = BUILTIN if loaded is None else loaded.policy
        yield checks.policy_check(loaded, self._config_map, *await self._policy_use(loaded))

    async def _policy_use(self, loaded: Loaded | None) -> tuple[str, str]:
        """Return the hashes of the policy in use and of one that is lost, as far as the worker's Lease says.

        Where it says nothing, the last Event of `serve` counts, which is kept for an hour.
        """
        used = lost = ""
        with contextlib.suppress(Refused):
            lease = await self._get("coordination.k8s.io", "leases", WORKER) or {}
            said = Reader.of(lease, []).meta().annotations
            used = said.get(POLICY_ANNOTATION, "") if WorkerSays.of(lease, _now()) else ""
            lost = said.get(LAST_POLICY_ANNOTATION, "")
            if loaded is None and not lost:
                lost = await self._hash_in_event("PolicyDeleted")
            elif loaded is not None and loaded.policy is None and not used:
                used = await self._hash_in_event("PolicyNotLoaded")
        return used, lost

    async def _hash_in_event(self, reason: str) -> str:
        about = self._config_map
        only = {"fieldSelector": f"involvedObject.kind=ConfigMap,involvedObject.name={about.name},reason={reason}"}
        path = path_of("", "v1", "events", namespace=about.namespace)
        said = (
            (each["metadata"]["creationTimestamp"], hashed[1])
            for each in decoded(await self._cluster.get(path, only), path).get("items") or ()
            if (hashed := _HASHES[reason].match(each.get("message") or ""))
        )
        return max(said, default=("", ""))[1]

    async def _softening(self) -> AsyncIterator[Check]:
        if self._policy is not None and self._policy.impact.softens:
            lease = EvictionLease(self._cluster, NamespacedName(self._namespace, WORKER))
            await lease.read()
            yield checks.softening_check(lease.problem)

    async def _fallback(self) -> AsyncIterator[Check]:
        stored = await read_admission_policies(self._cluster)
        registered = [each.exempt for each in self._entries if each.name == _CLAIMS_ENTRY]
        exported = (_exempt_in(each.spec.get("matchConstraints") or {}) for each in stored.values() if each.ours)
        # With nothing registered, as while it is lifted, what was exported knows best.
        exempt = next(chain(registered, filter(None, exported)), EXEMPT_NAMESPACES)
        check = checks.fallback_check(self._policy, stored, self._namespace, exempt)
        if check is not None:
            yield check

    # --- probes ----------------------------------------------------------------------------------

    async def _probes(self) -> AsyncIterator[Check]:
        """Yield what comes of one probe for each validating entry whose resource is served."""
        for entry in self._entries:
            namespace = next((name for name in self._probe_namespaces if name not in entry.exempt), "")
            sort = entry.name.partition(".")[0]
            made = await self._probe_of(sort, namespace) if entry.kind == "Validating" else None
            if made is not None and not namespace:
                yield checks.exempt_check(entry, self._probe_namespaces)
            elif made is not None:
                yield checks.probe_check(entry, await self._dry_run(made), self._namespace)

    async def _forgery(self) -> AsyncIterator[Check]:
        """Yield nothing if no templates are served. The webhook is not asked about its own namespace."""
        version = await served_version(self._cluster, GROUP, SERVED_VERSIONS, TEMPLATES.name)
        if version is not None:
            answer = await self._dry_run(forged_template(version, self._namespace))
            yield checks.forgery_check(FORGED_AUTHOR, answer)

    async def _probe_of(self, sort: str, namespace: str = "") -> Probe | None:
        if sort == "policy":
            return policy_probe(self._config_map)
        if sort not in COLLECTIONS:
            return None
        group, versions, resource, _ = COLLECTIONS[sort]
        version = await served_version(self._cluster, group, versions, resource)
        return None if version is None else probe(sort, version, namespace)

    async def _dry_run(self, made: Probe) -> RawResponse:
        return await self._cluster.send("POST", made.collection, made.obj, {"dryRun": "All"})

    async def _webhook_clock(self) -> AsyncIterator[Check]:
        """Yield nothing if no entry for rules is registered, or the webhook or the API server does not answer."""
        registered = any(entry.name == _RULES_ENTRY for entry in self._entries)
        made = await self._probe_of("rules") if registered else None
        if made is None:
            return
        warnings = []
        for seconds in (50, 70):
            date = (await self._cluster.send("GET", "/version")).date
            if date is None:
                return
            made.obj["spec"]["taint"]["timeAdded"] = format_time(date + timedelta(seconds=seconds))
            answer = await self._dry_run(made)
            if not answer.granted:
                return
            warnings.append(answer.warnings)
        if any(f"[{PROBE_CODE}]" in text for text in warnings[0]):
            yield checks.webhook_clock_check(*warnings)

    async def _evictor(self) -> AsyncIterator[Check]:
        """Yield what the worker says on its Lease, or what a canary shows instead, if one may be created."""
        lease = await self._get("coordination.k8s.io", "leases", WORKER)
        worker = None if lease is None else WorkerSays.of(lease, _now())
        if worker is not None:
            mode = "unknown mode" if worker.mode is None else f"mode {worker.mode}"
            yield passed("worker", f"{mode}, version {worker.version or 'unknown'}")
        if self._canary:
            agent = f"{PROGRAM}-doctor"
            async with ThrottledCluster(self._credentials, Throttle(0, 1), user_agent=agent) as cluster:
                rules = ServedCollection(cluster, GROUP, RULE_VERSIONS, "devicetaintrules")
                found = await find_in_tree(cluster, rules, secrets.token_hex(4))
            yield checks.evictor_check(found, self._policy)
        elif worker is not None and worker.in_tree is not InTree.UNKNOWN:
            yield checks.evictor_check(worker.in_tree, self._policy)


def policy_in_config_map(config_map: Mapping[str, Any], namespace: str) -> Loaded:
    """Return the policy as the replicas read it: a ConfigMap without one is broken. `namespace` is theirs."""
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    text = data.get(POLICY_KEY)
    if text is None:
        return Loaded(None, (missing_policy(data, binary),))
    return read_policy(text, namespace=namespace)


# --- objects to probe with ------------------------------------------------------------------------


class Probe(NamedTuple):
    """An object to create, and where."""

    collection: str
    obj: dict[str, Any]


def probe(sort: str, version: str, namespace: str) -> Probe:
    """Make a valid object of this sort. It selects no device, and no pod uses it."""
    group, _, resource, kind = COLLECTIONS[sort]
    within = {"namespace": namespace} if sort in ("claims", "templates") else {}
    obj = {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": {"generateName": f"{PROGRAM}-doctor-", **within},
        "spec": _spec(sort, version),
    }
    return Probe(path_of(group, version, resource, **within), obj)


def _spec(sort: str, version: str) -> dict[str, Any]:
    flat = version == "v1beta1"
    taint = {"key": _KEY, "effect": "NoSchedule"}  # not None, which releases before 1.35 do not know
    if sort == "rules":
        return {"deviceSelector": {"driver": _DRIVER}, "taint": taint}
    if sort == "patches":
        return {"devices": {"filter": {"driver": _DRIVER}, "taints": [taint]}}
    if sort == "slices":
        content = {"taints": [taint]}
        device = {"name": "probe", **({"basic": content} if flat else content)}
        pool = {"name": "doctor", "generation": 1, "resourceSliceCount": 1}
        return {"driver": _DRIVER, "pool": pool, "allNodes": True, "devices": [device]}
    toleration = {"key": _KEY, "operator": "Exists", "effect": "NoSchedule"}
    exact = {"deviceClassName": _DRIVER, "tolerations": [toleration]}
    spec = {"devices": {"requests": [{"name": "probe", **(exact if flat else {"exactly": exact})}]}}
    return {"spec": spec} if sort == "templates" else spec


def forged_template(version: str, namespace: str) -> Probe:
    """Make a template whose author does not exist; without tolerations, which other policies may refuse."""
    made = probe("templates", version, namespace)
    made.obj["spec"] = {"metadata": {"annotations": {REQUESTED_BY: FORGED_AUTHOR}}, "spec": {}}
    return made


def policy_probe(name: NamespacedName) -> Probe:
    """Make a policy with errors, which the webhook refuses before the API server notices that the name is taken."""
    metadata = {"name": name.name, "namespace": name.namespace}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {POLICY_KEY: "kind: Doctor\n"}}
    return Probe(path_of("", "v1", "configmaps", namespace=name.namespace), obj)


def webhook_entry_of(kind: str, webhook: dict[str, Any]) -> WebhookEntry:
    """Decode an entry of a webhook configuration of this kind."""
    config = webhook.get("clientConfig") or {}
    service, url = config.get("service"), urlsplit(config.get("url", ""))
    host = f"{service['name']}.{service['namespace']}.svc" if service else url.hostname or ""
    port = service.get("port", _HTTPS) if service else url.port or _HTTPS
    rules = tuple(
        (group, resource, frozenset(rule.get("apiVersions") or ()))
        for rule in webhook.get("rules") or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
    )
    try:
        bundle = base64.b64decode(config.get("caBundle") or "")
    except binascii.Error:
        bundle = b""
    exempt, fails_open = _exempt_in(webhook), webhook.get("failurePolicy") == "Ignore"
    return WebhookEntry(webhook["name"], kind, fails_open, bundle, (host, port, host), rules, exempt)


def _exempt_in(selecting: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the namespaces that a webhook, or the constraints of an admission policy, leave out by name."""
    return tuple(
        name
        for each in (selecting.get("namespaceSelector") or {}).get("matchExpressions") or ()
        if (each["key"], each["operator"]) == (NAMESPACE_NAME_LABEL, "NotIn")
        for name in each["values"]
    )


# --- rights of our service accounts ---------------------------------------------------------------

SELF_MANAGED: Final = "certificates that the webhook issues itself"
PATCH_ENTRIES: Final = "entries for ResourceSlicePatches"


class Right(NamedTuple):
    """One verb on one resource, or on one object of it."""

    account: str
    verb: str
    group: str
    resource: str
    name: str = ""
    namespaced: bool = False
    """In our namespace only."""
    only_with: str = ""
    """What has to be installed for it to be needed: nothing, or one of the two above."""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource} {self.name}".rstrip()

    def attributes(self, namespace: str) -> dict[str, str]:
        """Return it as a SubjectAccessReview has it."""
        resource, _, part = self.resource.partition("/")
        fields = {"verb": self.verb, "group": self.group, "resource": resource, "subresource": part, "name": self.name}
        fields["namespace"] = namespace if self.namespaced else ""
        return {field: text for field, text in fields.items() if text}


_READ: Final = "list watch"
_HOOKS: Final = f"{MUTATING} {VALIDATING}"
_ROWS: Final = (
    Right(PROGRAM, "get list watch", "", "namespaces"),
    Right(PROGRAM, "get list watch", GROUP, "deviceclasses"),
    Right(PROGRAM, _READ, GROUP, "resourceslices devicetaintrules resourceclaims"),
    Right(PROGRAM, "get list watch", ADMISSION_GROUP, " ".join(ADMISSION_RESOURCES.values()), name=AUTHOR_POLICY),
    Right(PROGRAM, "get", ADMISSION_GROUP, _HOOKS, name=PROGRAM),
    Right(PROGRAM, _READ, "", "configmaps", name=POLICY_NAME, namespaced=True),
    Right(PROGRAM, "create", "events.k8s.io", "events", namespaced=True),
    Right(PROGRAM, "get", "coordination.k8s.io", "leases", name=WORKER, namespaced=True),
    Right(PROGRAM, "get update", "", "secrets", name=CA_NAME, namespaced=True, only_with=SELF_MANAGED),
    Right(PROGRAM, "patch", ADMISSION_GROUP, _HOOKS, name=PROGRAM, only_with=SELF_MANAGED),
    Right(PROGRAM, _READ, OWN_GROUP, "resourceslicepatches", only_with=PATCH_ENTRIES),
    Right(WORKER, _READ, "", "namespaces pods"),
    Right(WORKER, _READ, "policy", "poddisruptionbudgets"),
    Right(WORKER, _READ, GROUP, "resourceclaims resourceslices devicetaintrules"),
    Right(WORKER, _READ, POD_GROUPS[0], POD_GROUPS[1]),
    Right(WORKER, _READ, OWN_GROUP, "resourceslicepatches"),
    Right(WORKER, "list", GROUP, "resourceclaimtemplates deviceclasses"),
    Right(WORKER, "patch", GROUP, "devicetaintrules/status"),
    Right(WORKER, "create", "events.k8s.io", "events"),
    Right(WORKER, _READ, "", "configmaps", name=POLICY_NAME, namespaced=True),
    Right(WORKER, "create", "coordination.k8s.io", "leases", namespaced=True),
    Right(WORKER, "get update", "coordination.k8s.io", "leases", name=WORKER, namespaced=True),
    Right(PATCH_ACCOUNT, _READ, GROUP, "resourceslices deviceclasses devicetaintrules"),
    Right(PATCH_ACCOUNT, _READ, OWN_GROUP, "resourceslicepatches"),
    Right(PATCH_ACCOUNT, "create patch delete", GROUP, "devicetaintrules"),
    Right(PATCH_ACCOUNT, "patch", OWN_GROUP, "resourceslicepatches/status"),
    Right(PATCH_ACCOUNT, "create", "events.k8s.io", "events"),
    Right(PATCH_ACCOUNT, _READ, "", "configmaps", name=POLICY_NAME, namespaced=True),
    Right(PATCH_ACCOUNT, "create", "coordination.k8s.io", "leases", namespaced=True),
    Right(PATCH_ACCOUNT, "get update", "coordination.k8s.io", "leases", name=PATCHER, namespaced=True),
)
"""A row may have several verbs and resources, with a space between them. For the worker, only what every mode needs;
the modes that act check the rest when they start."""
RIGHTS: Final = tuple(
    row._replace(verb=verb, resource=resource)
    for row in _ROWS
    for resource, verb in product(row.resource.split(), row.verb.split())
)
