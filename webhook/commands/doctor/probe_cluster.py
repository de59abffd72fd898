"""What `doctor` reads of a cluster. Probes are dry runs; only the canary, which has a flag, changes anything."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.admission.config_maps import POLICY_KEY, missing_policy
from webhook.api.decode import Reader
from webhook.api.meta import GROUP, RULE_VERSIONS, SERVED_VERSIONS, NamespacedName, format_time
from webhook.api.names import CA_NAME, PATCH_ACCOUNT, PATCHER, PROGRAM, WORKER
from webhook.cluster.cache.author_policy import read_admission_policies, read_author_policy
from webhook.cluster.cache.discovery import ServedCollection, served_version
from webhook.cluster.certificate_objects import ENTRIES, MUTATING, VALIDATING
from webhook.cluster.client.errors import ClusterError, NotFound, Refused
from webhook.cluster.client.list_pages import config_map_of, decoded
from webhook.cluster.client.rest import Cluster, ThrottledCluster, path_of
from webhook.cluster.in_tree_probe import find_in_tree
from webhook.cluster.leader import EvictionLease
from webhook.commands.doctor import probes
from webhook.commands.doctor.checks import (
    FAILED_CALL,
    Check,
    MissingRight,
    PolicyUse,
    ProbeResult,
    Status,
    WebhookEntry,
    access_check,
    author_policy_check,
    certificate_check,
    clock_check,
    deployment_check,
    evictor_check,
    fallback_check,
    forgery_check,
    policy_check,
    probe_check,
    registration_check,
    softening_check,
    softens,
    versions_check,
    webhook_clock_check,
    worker_check,
)
from webhook.commands.doctor.probes import RIGHTS, Right, handshake_with, webhook_entry_of
from webhook.commands.shared.cluster_reading import TEMPLATES
from webhook.commands.shared.policy_files import read_policy
from webhook.eviction.modes import LAST_POLICY_ANNOTATION, POLICY_ANNOTATION, InTree, WorkerSays
from webhook.flowcontrol.throttle import Throttle
from webhook.policy.document import Loaded
from webhook.policy.model import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from webhook.cluster.client.credentials import Credentials
    from webhook.cluster.client.raw import RawResponse
    from webhook.policy.model import Policy

_CONFIGURATIONS: Final = {"Validating": VALIDATING, "Mutating": MUTATING}
_EXPECTED: Final = {
    "Validating": [f"{name}.validate.devicetaint.io" for name in ENTRIES[VALIDATING]],
    "Mutating": [f"{name}.mutate.devicetaint.io" for name in ENTRIES[MUTATING]],
}
_PATCHES: Final = {"Validating": "patches.validate.devicetaint.io", "Mutating": "patches.mutate.devicetaint.io"}
_POLL_SECONDS: Final = 1.0
_HASHES: Final = {
    "PolicyDeleted": re.compile(r"policy (\S+) was deleted:"),
    "PolicyNotLoaded": re.compile(r"policy not loaded, (\S+) stays in use:"),
}
"""The policy that Events with these reasons are about, as `daemons.policy_loader` writes them."""


class DoctorOptions(NamedTuple):
    """The flags of `doctor`."""

    namespace: str
    """Where the installation is."""
    probe_namespace: str
    policy: NamespacedName
    canary: bool


class Doctor:
    """Examines one installation."""

    def __init__(self, credentials: Credentials, options: DoctorOptions, now: Callable[[], datetime]) -> None:
        self._cluster = Cluster(credentials, user_agent=f"{PROGRAM}-doctor")
        self._credentials = credentials
        self._options = options
        self._now = now
        self._entries: list[WebhookEntry] = []
        self._policy: Policy | None = None
        self._effective: Policy | None = BUILTIN
        """The one in use as far as that can be read: None if the document is broken."""

    async def examine(self) -> list[Check]:
        """All checks, causes before their consequences. Raises ClusterError."""
        async with self._cluster:
            checks = [await self._clock()]
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
                checks += await _run_check(name, look)
            return checks

    async def unanswered(self) -> str:
        """Why a validating entry does not answer through the API server, or none is registered; empty if all do."""
        async with self._cluster:
            self._entries = []
            await self._registrations()
            checks = await self._probes()
            failed = [each for each in checks if each.status is not Status.OK]
            if failed:
                return f"{failed[0].name}: {failed[0].message}"
            return "" if checks else "no validating webhook is registered"

    # --- installation ----------------------------------------------------------------------------

    async def _clock(self) -> Check:
        answer = await self._cluster.send("GET", "/version")
        return clock_check(answer.date, self._now())

    async def _registrations(self) -> list[Check]:
        registered: dict[str, list[WebhookEntry] | None] = {}
        for kind, resource in _CONFIGURATIONS.items():
            found = await self._get_or_none(path_of("admissionregistration.k8s.io", "v1", resource, name=PROGRAM))
            entries = None if found is None else [webhook_entry_of(kind, each) for each in found.get("webhooks") or ()]
            self._entries += entries or []
            registered[kind] = entries
        expected = {kind: [*names, *[_PATCHES[kind]] * self._patched] for kind, names in _EXPECTED.items()}
        return [registration_check(kind, PROGRAM, entries, expected[kind]) for kind, entries in registered.items()]

    @property
    def _patched(self) -> bool:
        """Whether patches are reviewed here: they are an option."""
        return any(entry.name in _PATCHES.values() for entry in self._entries)

    async def _deployments(self) -> list[Check]:
        checks = []
        for name, needed in ((PROGRAM, True), (WORKER, False), (PATCHER, False)):
            found = await self._get_or_none(
                path_of("apps", "v1", "deployments", namespace=self._options.namespace, name=name)
            )
            check = deployment_check(name, found, self._options.namespace, needed=needed)
            checks += [] if check is None else [check]
        return checks

    async def _author_policy(self) -> list[Check]:
        problem, _ = await read_author_policy(self._cluster)
        return [author_policy_check(problem)]

    async def _certificate(self) -> list[Check]:
        """One handshake for each address and caBundle."""
        distinct = {(entry.address, entry.bundle): entry for entry in self._entries if entry.bundle}
        return [certificate_check(await handshake_with(entry), self._now()) for entry in distinct.values()]

    async def _versions(self) -> list[Check]:
        served: dict[tuple[str, str], frozenset[str]] = {}
        for group in sorted({group for entry in self._entries for group, _, _ in entry.rules} - {""}):
            for version in await self._group_versions(group):
                listed = decoded(await self._cluster.get(path_of(group, version, "")), group)
                for each in listed.get("resources") or ():
                    key = (group, each["name"])
                    served[key] = served.get(key, frozenset()) | {version}
        served["", "configmaps"] = frozenset({"v1"})
        return versions_check(served, self._entries)

    async def _group_versions(self, group: str) -> list[str]:
        try:
            found = decoded(await self._cluster.get(f"/apis/{group}"), group)
        except NotFound:
            return []
        return [each["version"] for each in found.get("versions") or ()]

    async def _access(self) -> list[Check]:
        denied, asked = [], 0
        there = {PROGRAM: True, "": True, probes.PATCH_ENTRIES: self._patched}
        there[probes.SELF_MANAGED] = await self._exists("secrets", CA_NAME)
        for account, deployment in ((WORKER, WORKER), (PATCH_ACCOUNT, PATCHER)):
            there[account] = await self._exists("deployments", deployment, group="apps")
        for right in RIGHTS:
            if not (there[right.only_with] and there[right.account]):
                continue
            asked += 1
            if not await self._may(right):
                denied.append(MissingRight(right.account, str(right)))
        return [access_check(denied, asked)]

    async def _may(self, right: Right) -> bool:
        namespace = self._options.namespace
        spec = {
            "user": f"system:serviceaccount:{namespace}:{right.account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": right.attributes(namespace),
        }
        path = path_of("authorization.k8s.io", "v1", "subjectaccessreviews")
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = decoded(await self._cluster.create(path, review), path)
        return bool(answer["status"]["allowed"])

    async def _exists(self, resource: str, name: str, *, group: str = "") -> bool:
        path = path_of(group, "v1", resource, namespace=self._options.namespace, name=name)
        return await self._get_or_none(path) is not None

    async def _policies(self) -> list[Check]:
        found = await config_map_of(self._cluster, self._options.policy)
        loaded = None if found is None else policy_in_config_map(found, self._options.namespace)
        self._policy = None if loaded is None else loaded.policy
        self._effective = BUILTIN if loaded is None else loaded.policy
        return [policy_check(loaded, self._options.policy, await self._policy_use(loaded))]

    async def _policy_use(self, loaded: Loaded | None) -> PolicyUse:
        """What the Lease of the worker says, or else the last Event of `serve`, which is kept for an hour."""
        use = PolicyUse()
        with contextlib.suppress(Refused):
            lease = await self._worker_lease() or {}
            said = Reader.of(lease, []).meta().annotations
            used = said.get(POLICY_ANNOTATION, "") if WorkerSays.of(lease, self._now()) else ""
            use = PolicyUse(used, said.get(LAST_POLICY_ANNOTATION, ""))
            if loaded is None and not use.lost:
                return use._replace(lost=await self._hash_in_event("PolicyDeleted"))
            if loaded is not None and loaded.policy is None and not use.used:
                return use._replace(used=await self._hash_in_event("PolicyNotLoaded"))
        return use

    async def _hash_in_event(self, reason: str) -> str:
        about = self._options.policy
        only = {"fieldSelector": f"involvedObject.kind=ConfigMap,involvedObject.name={about.name},reason={reason}"}
        path = path_of("", "v1", "events", namespace=about.namespace)
        events = decoded(await self._cluster.get(path, only), path).get("items") or ()
        said = (
            (each["metadata"]["creationTimestamp"], hashed[1])
            for each in events
            if (hashed := _HASHES[reason].match(each.get("message") or ""))
        )
        return max(said, default=("", ""))[1]

    async def _worker_lease(self) -> dict[str, Any] | None:
        name = path_of("coordination.k8s.io", "v1", "leases", namespace=self._options.namespace, name=WORKER)
        return await self._get_or_none(name)

    async def _softening(self) -> list[Check]:
        """Empty if the policy softens nothing."""
        if not softens(self._policy):
            return []
        lease = EvictionLease(self._cluster, NamespacedName(self._options.namespace, WORKER))
        await lease.read()
        return [softening_check(lease.problem)]

    async def _fallback(self) -> list[Check]:
        """Empty if there are no such objects."""
        stored = await read_admission_policies(self._cluster)
        check = fallback_check(self._effective, stored, self._options.namespace)
        return [] if check is None else [check]

    # --- probes ----------------------------------------------------------------------------------

    async def _probes(self) -> list[Check]:
        """The answers to one probe for each validating entry whose resource is served."""
        checks = []
        for entry in self._entries:
            obj = None
            if entry.kind == "Validating":
                obj = await self._probe_of(entry.name.partition(".")[0])
            if obj is not None:
                answer = await self._dry_run(obj)
                probed = ProbeResult(entry.name, entry.fails_open, answer.code, answer.message, answer.warnings)
                checks.append(probe_check(probed, self._options.namespace))
        return checks

    async def _forgery(self) -> list[Check]:
        """Empty if no templates are served. The webhook is not asked about its own namespace."""
        version = await served_version(self._cluster, GROUP, SERVED_VERSIONS, TEMPLATES.name)
        if version is None:
            return []
        answer = await self._dry_run(probes.forged_template(version, self._options.namespace))
        return [forgery_check(probes.FORGED_AUTHOR, answer.code, answer.message, answer.body)]

    async def _probe_of(self, sort: str) -> probes.Probe | None:
        if sort == "policy":
            return probes.policy_probe(self._options.policy)
        if sort not in probes.COLLECTIONS:
            return None
        group, versions, resource, _ = probes.COLLECTIONS[sort]
        version = await served_version(self._cluster, group, versions, resource)
        return None if version is None else probes.probe(sort, version, self._options.probe_namespace)

    async def _dry_run(self, probe: probes.Probe) -> RawResponse:
        return await self._cluster.send("POST", probe.collection, probe.obj, {"dryRun": "All"})

    async def _webhook_clock(self) -> list[Check]:
        """Empty if no entry for rules is registered."""
        if not any(entry.name == _EXPECTED["Validating"][0] for entry in self._entries):
            return []
        first = await self._probe_of("rules")
        if first is None:
            return []
        warnings = []
        for seconds in (50, 70):
            date = (await self._cluster.send("GET", "/version")).date
            if date is None:
                return []
            answer = await self._dry_run(probes.with_time(first, format_time(date + timedelta(seconds=seconds))))
            if not answer.granted:
                return []
            warnings.append(answer.warnings)
        if not any("[DT005]" in text for text in warnings[0]):
            return []
        return [webhook_clock_check(*warnings)]

    async def _evictor(self) -> list[Check]:
        """What the worker says on its Lease; what a canary shows instead, if one may be created."""
        lease = await self._worker_lease()
        worker = None if lease is None else WorkerSays.of(lease, self._now())
        checks = [] if worker is None else [worker_check(worker)]
        if self._options.canary:
            return [*checks, evictor_check(await self._find_in_tree(), self._policy)]
        if worker is not None and worker.in_tree is not InTree.UNKNOWN:
            checks.append(evictor_check(worker.in_tree, self._policy))
        return checks

    async def _find_in_tree(self) -> InTree:
        async with ThrottledCluster(self._credentials, Throttle(0, 1), user_agent=f"{PROGRAM}-doctor") as cluster:
            rules = ServedCollection(cluster, GROUP, RULE_VERSIONS, "devicetaintrules")
            return await find_in_tree(cluster, rules, secrets.token_hex(4))

    async def _get_or_none(self, path: str) -> dict[str, Any] | None:
        """An object, or None if there is none. Raises ClusterError."""
        try:
            return decoded(await self._cluster.get(path), path)
        except NotFound:
            return None


async def _run_check(name: str, look: Callable[[], Awaitable[Sequence[Check]]]) -> Sequence[Check]:
    try:
        return await look()
    except Refused as error:
        return [
            Check(
                name,
                Status.WARN,
                f"not checked, permission denied: {error}",
                "run doctor as a user with this permission",
            )
        ]
    except ClusterError as error:
        ours = "our webhook must judge that object and does not answer: see its probes"
        advice = ours if FAILED_CALL in str(error) else "check the health of the API server"
        return [Check(name, Status.FAIL, str(error), advice)]


def policy_in_config_map(config_map: Mapping[str, Any], namespace: str) -> Loaded:
    """The policy as the replicas read it: a ConfigMap without one is broken. `namespace` is the installation's."""
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    text = data.get(POLICY_KEY)
    if text is None:
        return Loaded(None, (missing_policy(data, binary),))
    return read_policy(text, namespace=namespace)


async def wait_answered(
    doctor: Doctor, seconds: float, clock: Callable[[], float], tell: Callable[[str], object]
) -> bool:
    """Whether probes are answered within `seconds`; returns once they are. `tell` gets each new reason why not."""
    until, last = clock() + seconds, ""
    while True:
        try:
            why = await doctor.unanswered()
        except ClusterError as error:
            why = str(error)  # the API server may still be starting, too
        if not why:
            return True
        if why != last:
            tell(f"waiting: {why}")
            last = why
        if clock() + _POLL_SECONDS > until:
            return False
        await asyncio.sleep(_POLL_SECONDS)


def utc_now() -> datetime:
    """The shell's clock."""
    return datetime.now(UTC)  # noqa: TID251 -- a shell asks
