"""What `bundle` reads of a cluster, with the caller's own rights. It never asks for a Secret."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook import __version__
from webhook.api.meta import GROUP, OWN_GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.api.names import PROGRAM
from webhook.cluster.cache.discovery import served_version
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.list_pages import decoded, listed
from webhook.cluster.client.rest import path_of
from webhook.commands.bundle.redaction import clean, clean_text
from webhook.commands.shared.entries import meta, text
from webhook.config.namespace import policy_config_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.rest import Cluster
    from webhook.commands.bundle.archive import Archive

_ANY: Final = "*/*"
_LOG_MOST_BYTES: Final = 2 * 1024 * 1024
_METRICS_PORT: Final = "8080"
_EVENTS_MOST: Final = 2000
_WORKLOADS: Final = (
    ("apps", "v1", "deployments", "Deployment"),
    ("", "v1", "pods", "Pod"),
    ("", "v1", "services", "Service"),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
)
_CONFIGURATIONS: Final = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
_OURS: Final = f".{OWN_GROUP}"


class Selection(NamedTuple):
    """What is wanted: the namespace of the installation, the policy's ConfigMap, and lines of each log."""

    namespace: str
    policy: NamespacedName | None
    log_lines: int


class BundleCollection:
    """Reads into an archive. `names`: kinds and names that were met, for pseudonyms; `known`: the caller's secrets."""

    def __init__(self, cluster: Cluster, archive: Archive, selection: Selection, known: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._archive = archive
        self._selection = selection
        self._known = known
        self.names: set[tuple[str, str]] = set()

    async def collect(self) -> None:
        """Reads everything; what cannot be read becomes a note."""
        await self._versions()
        await self._policy()
        for resource in _CONFIGURATIONS:
            await self._configurations(resource)
        pods: list[dict[str, Any]] = []
        for group, version, resource, kind in _WORKLOADS:
            found = await self._list(resource, group, version, kind, self._selection.namespace)
            self._add_objects(f"workloads/{resource}.json", found)
            pods = found if kind == "Pod" else pods
        for pod in sorted(pods, key=_name):
            await self._logs(pod)
            await self._metrics(pod)
        await self._events()
        await self._devices()

    # --- parts -----------------------------------------------------------------------------------

    async def _versions(self) -> None:
        server = await self._object("/version", "the version of the API server")
        self._archive.add_json(
            "versions.json",
            clean(
                {
                    PROGRAM: __version__,
                    "python": platform.python_version(),
                    "apiServer": server or None,
                },
                self._known,
            ),
        )

    async def _policy(self) -> None:
        name = self._selection.policy or policy_config_map(self._selection.namespace)
        path = path_of("", "v1", "configmaps", namespace=name.namespace, name=name.name)
        found = await self._object(path, f"the policy in ConfigMap {name}")
        if found is not None:
            self._archive.add_json("policy.json", clean(found, self._known))

    async def _configurations(self, resource: str) -> None:
        found = await self._list(resource, "admissionregistration.k8s.io", "v1", "", "")
        ours = [each for each in found if any(name.endswith(_OURS) for name in _entries(each))]
        self._add_objects(f"webhooks/{resource}.json", ours)

    async def _logs(self, pod: dict[str, Any]) -> None:
        name = _name(pod)
        for container in sorted(_containers(pod)):
            path = f"{path_of('', 'v1', 'pods', namespace=self._selection.namespace, name=name)}/log"
            query: dict[str, str | int] = {
                "container": container,
                "tailLines": self._selection.log_lines,
                "limitBytes": _LOG_MOST_BYTES,
                "timestamps": "true",
            }
            content = await self._bytes(path, f"the log of {name}/{container}", query)
            if content is not None:
                self._archive.add(f"logs/{name}/{container}.log", self._clean_log(content))

    def _clean_log(self, content: bytes) -> str:
        return clean_text(content.decode(errors="replace"), self._known)

    async def _metrics(self, pod: dict[str, Any]) -> None:
        name, port = _name(pod), _metrics_port(pod)
        if port is None:
            return
        path = path_of("", "v1", "pods", namespace=self._selection.namespace, name=f"{name}:{port}")
        content = await self._bytes(f"{path}/proxy/metrics", f"the metrics of {name}")
        if content is not None:
            self._archive.add(f"metrics/{name}.txt", self._clean_log(content))

    async def _events(self) -> None:
        own = await self._list("events", "", "v1", "Event", self._selection.namespace)
        rules = await self._list("events", "", "v1", "Event", "default")
        about = [each for each in rules if (each.get("involvedObject") or {}).get("kind") == "DeviceTaintRule"]
        found = sorted([*own, *about], key=lambda each: (text(each, "lastTimestamp"), _name(each)))
        self._add_objects("events.json", found[-_EVENTS_MOST:])

    async def _devices(self) -> None:
        rules = await self._served("devicetaintrules", GROUP, RULE_VERSIONS, "DeviceTaintRule")
        patches = await self._served("resourceslicepatches", OWN_GROUP, ("v1alpha1",), "ResourceSlicePatch")
        slices = await self._served("resourceslices", GROUP, SERVED_VERSIONS, "ResourceSlice")
        claims = await self._served("resourceclaims", GROUP, SERVED_VERSIONS, "ResourceClaim")
        tainted = [each for each in slices if '"taints"' in json.dumps(each)]
        places = list(_selections(rules)) + list(_tainted_devices(tainted))
        for name, found in (
            ("devicetaintrules", rules),
            ("resourceslicepatches", patches),
            ("resourceslices", tainted),
            ("resourceclaims", [each for each in claims if _is_on(each, places)]),
        ):
            self._add_objects(f"devices/{name}.json", found)

    # --- requests --------------------------------------------------------------------------------

    async def _served(self, resource: str, group: str, versions: tuple[str, ...], kind: str) -> list[dict[str, Any]]:
        try:
            version = await served_version(self._cluster, group, versions, resource)
        except ClusterError as error:
            self._note(f"{resource}: {error}")
            return []
        return [] if version is None else await self._list(resource, group, version, kind, "")

    async def _list(self, resource: str, group: str, version: str, kind: str, namespace: str) -> list[dict[str, Any]]:
        path = path_of(group, version, resource, namespace=namespace)
        try:
            return await listed(self._cluster, path, f"{group}/{version}" if group else version, kind)
        except ClusterError as error:
            self._note(f"{resource}{f' in namespace {namespace}' if namespace else ''}: {error}")
            return []

    async def _object(self, path: str, what: str) -> dict[str, Any] | None:
        try:
            return decoded(await self._cluster.get(path), path)
        except ClusterError as error:
            self._note(f"{what}: {error}")
            return None

    async def _bytes(self, path: str, what: str, query: dict[str, str | int] | None = None) -> bytes | None:
        try:
            return await self._cluster.get(path, query, accept=_ANY)
        except ClusterError as error:
            self._note(f"{what}: {error}")
            return None

    def _note(self, note: str) -> None:
        self._archive.notes.append(clean_text(note, self._known))

    def _add_objects(self, name: str, found: list[dict[str, Any]]) -> None:
        self.names.update(pair for each in found for pair in _names_in(each))
        cleaned = [clean(each, self._known) for each in sorted(found, key=_key)]
        self._archive.add_json(name, {"items": cleaned})


def _name(value: dict[str, Any]) -> str:
    return text(meta(value), "name")


def _key(value: dict[str, Any]) -> tuple[str, str]:
    return text(meta(value), "namespace"), _name(value)


def _entries(configuration: dict[str, Any]) -> Iterator[str]:
    """The names of the entries of a webhook configuration."""
    for each in configuration.get("webhooks") or ():
        yield text(each, "name")


def _containers(pod: dict[str, Any]) -> Iterator[str]:
    for each in (pod.get("spec") or {}).get("containers") or ():
        yield text(each, "name")


def _metrics_port(pod: dict[str, Any]) -> str | None:
    """The port called metrics; None for a pod that has none."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == "metrics":
                return str(port.get("containerPort") or _METRICS_PORT)
    return None


_Place = tuple[str | None, str | None, str | None]


def _selections(rules: Iterable[dict[str, Any]]) -> Iterator[_Place]:
    """Driver, pool and device that rules select; None is any."""
    for rule in rules:
        selector = (rule.get("spec") or {}).get("deviceSelector") or {}
        yield selector.get("driver"), selector.get("pool"), selector.get("device")


def _tainted_devices(slices: Iterable[dict[str, Any]]) -> Iterator[_Place]:
    for each in slices:
        spec = each.get("spec") or {}
        pool = (spec.get("pool") or {}).get("name")
        for device in spec.get("devices") or ():
            if (device.get("basic") or device).get("taints"):
                yield spec.get("driver"), pool, device.get("name")


def _is_on(claim: dict[str, Any], places: Iterable[_Place]) -> bool:
    """Whether a claim holds one of the devices."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        names = result.get("driver"), result.get("pool"), result.get("device")
        for place in places:
            if all(wanted in (None, given) for wanted, given in zip(place, names, strict=True)):
                return True
    return False


def _names_in(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names that `--redact` replaces, with a word for what they are."""
    about, spec = meta(value), value.get("spec") or {}
    yield "namespace", text(about, "namespace")
    words = {"Pod": "pod", "ResourceClaim": "claim"}
    if value.get("kind") in words:
        yield words[str(value["kind"])], text(about, "name")
    for owner in about.get("ownerReferences") or ():
        if isinstance(owner, dict) and value.get("kind") == "ResourceClaim":
            yield "owner", text(owner, "name")
    for field in ("nodeName", "host"):
        yield "node", text(spec, field)
    selector = spec.get("deviceSelector") or {}
    yield "pool", str(selector.get("pool") or "")
    yield "pool", str((spec.get("pool") or {}).get("name") or "") if isinstance(spec.get("pool"), dict) else ""
    for consumer in (value.get("status") or {}).get("reservedFor") or ():
        yield "pod", text(consumer, "name")
    regarding = value.get("involvedObject") or {}
    yield "namespace", text(regarding, "namespace")
    if regarding.get("kind") == "Pod":
        yield "pod", text(regarding, "name")
