"""What verbs read of a cluster: collections in versions that it serves, the policy, and why something is not known.

Rules they also write (`RuleStore`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar

from webhook.api.field import FieldError
from webhook.api.meta import GROUP, OWN_GROUP, RULE_VERSIONS, SERVED_VERSIONS, NamespacedName
from webhook.api.names import WORKER
from webhook.api.pods import POD_GROUP_VERSIONS
from webhook.api.rules import NEVER
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.slices import DeviceClassSelectors
from webhook.cluster.cache.discovery import read_facts, served_version
from webhook.cluster.client.answers import RawResponse
from webhook.cluster.client.credentials import Credentials, KubeConfig
from webhook.cluster.client.errors import NotFound, Refused, Unavailable
from webhook.cluster.client.list_pages import config_map_of, decoded, find, list_pages, listed
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.shared.main import ServerRefusal
from webhook.commands.shared.node_devices import NodeDevices, NodePlacement
from webhook.commands.shared.objects import StatusObject, StatusObjects, object_in
from webhook.commands.shared.words import MANAGER, StoredTaintRule
from webhook.files.manifests import PatchingObject, Stock, labels_of, meta, text
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE
from webhook.inventory.state import Inventory, InventoryObject

T = TypeVar("T")
_STABLE: Final = ("v1",)
"""The versions of what every server has served for years, for which none is asked."""


class Resource(NamedTuple):
    """A kind of objects that a cluster has. `versions`: those that we can read, the newest first."""

    group: str
    versions: tuple[str, ...]
    name: str
    kind: str

    @property
    def not_served(self) -> NotFound:
        """The error where a cluster does not serve what is needed."""
        return NotFound(f"{self.name}.{self.group} is not served in {', '.join(self.versions)}", code=404)


NAMESPACES: Final = Resource("", _STABLE, "namespaces", "Namespace")
PODS: Final = Resource("", _STABLE, "pods", "Pod")
NODES: Final = Resource("", _STABLE, "nodes", "Node")
BUDGETS: Final = Resource("policy", _STABLE, "poddisruptionbudgets", "PodDisruptionBudget")
RULES: Final = Resource(GROUP, RULE_VERSIONS, "devicetaintrules", "DeviceTaintRule")
SLICES: Final = Resource(GROUP, SERVED_VERSIONS, "resourceslices", "ResourceSlice")
CLAIMS: Final = Resource(GROUP, SERVED_VERSIONS, "resourceclaims", "ResourceClaim")
TEMPLATES: Final = Resource(GROUP, SERVED_VERSIONS, "resourceclaimtemplates", "ResourceClaimTemplate")
CLASSES: Final = Resource(GROUP, SERVED_VERSIONS, "deviceclasses", "DeviceClass")
PATCHES: Final = Resource(OWN_GROUP, ("v1alpha1",), "resourceslicepatches", "ResourceSlicePatch")
POD_GROUPS: Final = Resource("scheduling.k8s.io", POD_GROUP_VERSIONS, "podgroups", "PodGroup")
_NAMESPACED: Final = frozenset({PODS, BUDGETS, CLAIMS, TEMPLATES, POD_GROUPS})


class Place(NamedTuple):
    """Where a cluster has a collection."""

    path: str
    api_version: str


async def place_of(
    cluster: Cluster, resource: Resource, namespace: str = "", version: str | None = None
) -> Place | None:
    """Return the place, within a namespace if one is given, in that version or the newest that is served.

    None if none is served. Raises ClusterError.
    """
    group, versions, name, _ = resource
    if version is None:
        version = versions[0] if versions == _STABLE else await served_version(cluster, group, versions, name)
    if version is None:
        return None
    return Place(path_of(group, version, name, namespace=namespace), f"{group}/{version}".lstrip("/"))


Keep = Callable[[dict[str, Any]], tuple[Any, list[FieldError]]]
"""What is kept of an object as it is served, None if nothing, and the wrong types in it."""


class Snapshot(Generic[T]):
    """What was read of a cluster, one collection after another, and why the rest is not known."""

    def __init__(
        self,
        cluster: Cluster,
        objects: T,
        add: Callable[[Any], object],
        keep: Keep = lambda item: (item, []),
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`add` puts what `keep` makes of an object into `objects`; `progress` is called with how much was read."""
        self.server = cluster.server
        self.objects = objects
        self.missing: set[str] = set()
        """Kinds that could not be read."""
        self.partial: set[str] = set()
        """Kinds of which only the objects of a namespace could be read."""
        self.refused: dict[Resource, str] = {}
        """Why not all of a collection could be read."""
        self.policy: Manifest | None = None
        """None if there is none, it could not be read, or it was not asked for."""
        self.policy_refused = ""
        """Why the policy could not be read; empty if it could, or is not asked for."""
        self.notes: list[str] = []
        self._cluster = cluster
        self._add = add
        self._keep = keep
        self._progress = progress

    async def read(self, resource: Resource, namespace: str = "", version: str | None = None) -> bool:
        """Read a collection, or a namespace's part of it; return whether it is served. Raises ClusterError."""
        place = await place_of(self._cluster, resource, namespace, version)
        if place is None:
            return False

        def keep(item: dict[str, Any]) -> Any:
            value, errors = self._keep(item)
            if errors:
                name = "/".join(filter(None, (text(meta(item), "namespace"), text(meta(item), "name"))))
                raise Unavailable(f"GET {place.path}: {name} cannot be read: {errors[0]}")
            return value

        def tell(count: int) -> None:
            self._progress(f"{count} {resource.name}")

        for each in await listed(self._cluster, *place, resource.kind, keep, tell):
            if each is not None:
                self._add(each)
        return True

    async def read_namespace(self, name: str) -> None:
        """Read this one, unless it has a field of a wrong type. Raises ClusterError."""
        path = path_of("", "v1", NAMESPACES.name, name=name)
        item = decoded(await self._cluster.get(path), path)
        value, errors = self._keep({"apiVersion": "v1", "kind": NAMESPACES.kind, **item})
        if value is not None and not errors:
            self._add(value)

    async def read_permitted(self, resource: Resource, namespace: str = "") -> bool:
        """Read what the caller may of a collection, at least of the namespace; return whether it is served.

        Raises ClusterError, but not Refused.
        """
        try:
            return await self.read(resource)
        except Refused as error:
            self.refused[resource] = str(error)
        known = bool(namespace) and (resource is NAMESPACES or resource in _NAMESPACED)
        try:
            if known and resource is NAMESPACES:
                await self.read_namespace(namespace)
            elif known:
                await self.read(resource, namespace)
        except (Refused, NotFound):
            known = False
        (self.partial if known else self.missing).add(resource.kind)
        return True

    async def read_policy(self, name: NamespacedName | None) -> None:
        """Read the ConfigMap with the policy, if it is asked for and the caller may. Raises ClusterError."""
        try:
            self.policy = await policy_manifest(self._cluster, name)
        except Refused as error:
            self.policy_refused = str(error)

    def note_lacking(self, resource: Resource, what: str) -> None:
        """Note what is not known where a collection could not be read."""
        if resource.kind in self.missing:
            self.notes.append(f"no permission to read {resource.name}, so {what}: {self.refused[resource]}")


# --- the policy ---------------------------------------------------------------------------------


async def policy_manifest(cluster: Cluster, name: NamespacedName | None) -> Manifest | None:
    """Return the ConfigMap with the policy, as a manifest whose file name is the server's address.

    None if there is none, or it is not asked for. Raises ClusterError.
    """
    found = None if name is None else await config_map_of(cluster, name)
    if found is None:
        return None
    return Manifest(cluster.server, 1, {"apiVersion": "v1", "kind": "ConfigMap", **found}, NOWHERE)


async def policy_of_cluster(cluster: Cluster, name: NamespacedName) -> Manifest:
    """Return the ConfigMap with the policy. Raises ClusterError, also if there is none."""
    found = await policy_manifest(cluster, name)
    if found is None:
        raise NotFound(f"{cluster.server}: there is no ConfigMap {name}", code=404)
    return found


# --- devices and their nodes ----------------------------------------------------------------------


_OF_DEVICES: Final = {
    RULES: "only taints in slices are known",
    CLAIMS: "it is unknown which pods use a device",
    PODS: "it is unknown which nodes some devices are used on",
    CLASSES: "it is unknown where pods find other devices",
    NODES: "it is unknown which nodes take pods",
}
"""What is unknown of devices without a collection that is not needed."""
PLACES: Final = (RULES, CLASSES, NODES)
"""What is read, beside slices, claims and pods, to know where pods find other devices."""


class ReadInventory(NamedTuple):
    """What was read; `notes` say what could not be, why, and what is unknown for it."""

    inventory: Inventory
    devices: NodeDevices
    notes: tuple[str, ...] = ()
    classes: Mapping[str, DeviceClassSelectors] | None = None
    nodes: Mapping[str, Mapping[str, str]] | None = None


async def read_inventory(
    cluster: Cluster, needed: Sequence[Resource], wished: Sequence[Resource] = (), *, by_node: bool = False
) -> ReadInventory:
    """Return all objects of these collections. Raises ClusterError, unless one is wished only.

    `by_node`: it will be asked what belongs to a node, for which the labels of nodes may have to be read. Only with
    `PLACES` wished are claims kept with what they ask for; then `classes` or `nodes` None: these could not be read.
    """
    stock, placement = Stock(whole=wished == PLACES), NodePlacement()

    def keep(item: dict[str, Any]) -> tuple[InventoryObject | PatchingObject | None, list[FieldError]]:
        value, errors = stock.kept(item)
        if not errors:
            placement.add(item)
        return value, errors

    found = Snapshot(cluster, stock, stock.put, keep)
    for resource in (*needed, *wished):
        try:
            if not await found.read(resource):
                raise resource.not_served
        except (Refused, NotFound) as error:
            if resource in needed:
                raise
            found.missing.add(resource.kind)
            why = f"no permission to read {resource.name}, so {_OF_DEVICES[resource]}: {error}"
            found.notes.append(why if isinstance(error, Refused) else f"{error}, so {_OF_DEVICES[resource]}")
    stock.inventory.servers = await read_facts(cluster)
    if by_node and placement.needs_labels:
        placement.labels = await labels_of_nodes(cluster)
    classes = None if CLASSES.kind in found.missing else stock.classes
    nodes = None if NODES.kind in found.missing else stock.nodes
    return ReadInventory(stock.inventory, NodeDevices(stock.inventory, placement), tuple(found.notes), classes, nodes)


async def labels_of_nodes(cluster: Cluster, selector: str = "") -> dict[str, dict[str, str]]:
    """Return the labels of all nodes, or of those that a label selector selects; the server reads it.

    Raises ClusterError.
    """
    path = path_of("", "v1", "nodes")
    found: dict[str, dict[str, str]] = {}
    async for page in list_pages(cluster, path, selector={"labelSelector": selector} if selector else {}):
        nodes = [decoded(item, path) for item in page.items or ()]
        found |= {each["metadata"]["name"]: labels_of(each) for each in nodes}
    return found


# --- rules that are written -----------------------------------------------------------------------


_NOT_SERVED: Final = f'error: the server doesn\'t have a resource type "{RULES.name}" (feature gate DRADeviceTaints)'


class RuleStore:
    """Rules in the newest version that the cluster serves."""

    def __init__(self, cluster: Cluster, version: str) -> None:
        self.version = version
        self._cluster = cluster
        self._collection = path_of(GROUP, version, RULES.name)

    @classmethod
    async def of(cls, cluster: Cluster) -> RuleStore:
        """Ask for the version. Raises ClusterError, and ServerRefusal if rules are not served."""
        version = await served_version(cluster, GROUP, RULE_VERSIONS, RULES.name)
        if version is None:
            raise ServerRefusal(_NOT_SERVED)
        return cls(cluster, version)

    async def all(self) -> list[StoredTaintRule]:
        """Return all rules, by name. Raises ClusterError."""
        found = await listed(self._cluster, self._collection, f"{GROUP}/{self.version}", RULES.kind)
        return sorted(map(StoredTaintRule.of, found), key=lambda each: each.rule.meta.name)

    async def get(self, name: str) -> StoredTaintRule | None:
        """Return one rule; None if it is gone. Raises ClusterError."""
        try:
            return StoredTaintRule.of(decoded(await self._cluster.get(self._path(name)), self._collection))
        except NotFound:
            return None

    async def create(self, manifest: Mapping[str, Any], *, dry_run: bool) -> RawResponse:
        """Create a rule. Raises Unavailable."""
        return await self._cluster.send("POST", self._collection, manifest, _query(dry_run=dry_run))

    async def replace(self, manifest: Mapping[str, Any], *, dry_run: bool) -> RawResponse:
        """Replace a rule, if it has not changed since it was read. Raises Unavailable."""
        path = self._path(manifest["metadata"]["name"])
        return await self._cluster.send("PUT", path, manifest, _query(dry_run=dry_run))

    async def delete(self, stored: StoredTaintRule, *, dry_run: bool) -> RawResponse:
        """Delete the very rule that was read, if it has not changed since. Raises Unavailable."""
        meta = stored.rule.meta
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            **({"dryRun": ["All"]} if dry_run else {}),
        }
        return await self._cluster.send("DELETE", self._path(meta.name), body)

    def _path(self, name: str) -> str:
        return path_of(GROUP, self.version, RULES.name, name=name)


def _query(*, dry_run: bool) -> dict[str, str | int]:
    return {"fieldManager": MANAGER, **({"dryRun": "All"} if dry_run else {})}


# --- what is reviewed -----------------------------------------------------------------------------


_LOADED: Final = timedelta(seconds=60)
"""After that time every API server applies a policy that was created."""
_COMPARED: Final = {
    NAMESPACES: "labels of namespaces are unknown",
    CLASSES: "the drivers behind classes are unknown",
    CLAIMS: "no claim is compared, and limits see none",
    TEMPLATES: "no template is compared",
    SLICES: "no slice is compared, and limits see none",
    RULES: "no rule is compared",
    PATCHES: "no patch is compared",
}
"""What `diff` reads, and what comes of it if that may not be read."""


class ClusterDump(Snapshot[list[dict[str, Any]]]):
    """Objects as they are served."""

    servers: ServerFacts = UNKNOWN
    proved_since: datetime | None = None
    """Since when API servers have proved authors: None if that may not be read."""

    def __init__(self, cluster: Cluster) -> None:
        found: list[dict[str, Any]] = []
        super().__init__(cluster, found, found.append)


async def dump_of_cluster(
    credentials: Credentials, config_map: NamespacedName | None, namespace: str | None, *, rules: bool, slices: bool
) -> ClusterDump:
    """Read what is audited. Raises ClusterError or NoCredentials.

    The ConfigMap is not read if it is None. With a namespace, only objects in it are read. `rules`: with
    DeviceTaintRules and ResourceSlicePatches; `slices`: with ResourceSlices.
    """
    # Late: it loads metrics, which no other verb needs.
    from webhook.cluster.installation import read_author_policy  # noqa: PLC0415

    async with Cluster(credentials) as cluster:
        version = await served_version(cluster, GROUP, SERVED_VERSIONS, TEMPLATES.name)
        if version is None:
            raise NotFound(f"{GROUP} is not served in {', '.join(SERVED_VERSIONS)}", code=404)
        found = ClusterDump(cluster)
        if namespace is None:
            await found.read(NAMESPACES)
        else:
            await found.read_namespace(namespace)
        for each in (CLASSES, TEMPLATES, CLAIMS, *((SLICES,) if slices else ())):
            await found.read(each, namespace or "" if each in _NAMESPACED else "", version)
        found.policy = await policy_manifest(cluster, config_map)
        for each in (RULES, PATCHES) if rules else ():
            await found.read_permitted(each)
            found.note_lacking(each, "they were not checked")
        with contextlib.suppress(Refused):
            problem, since = await read_author_policy(cluster)
            found.proved_since = NEVER if problem else since + _LOADED
        found.servers = await read_facts(cluster)
        return found


async def objects_of_cluster(
    credentials: Credentials, config_map: NamespacedName | None, namespace: str | None
) -> ClusterDump:
    """Read what is compared. Raises ClusterError or NoCredentials.

    Without permission to read the claims of all namespaces, those of `namespace` are read.
    """
    async with Cluster(credentials) as cluster:
        found = ClusterDump(cluster)
        for each, lacking in _COMPARED.items():
            await found.read_permitted(each, namespace or "" if each in _NAMESPACED else "")
            found.note_lacking(each, lacking)
        found.policy = await policy_manifest(cluster, config_map)
        return found


# --- what is being evicted ------------------------------------------------------------------------


LACKING: Final = {
    RULES: "",
    SLICES: "published devices and taints on them are unknown",
    CLAIMS: "it is unknown which pods use a device",
    PODS: "no pod is counted",
    NAMESPACES: "holds of namespaces are unknown, and profiles match no labels of them",
    BUDGETS: "pods are shown as due that a disruption budget blocks",
    POD_GROUPS: "it is unknown which pods go together and which are held by a PodGroup",
}
"""What is read, and what `status` does not know without permission to read it."""
_MAY_BE_ABSENT: Final = frozenset({RULES, POD_GROUPS, CLASSES})
"""What a cluster need not serve."""


class ClusterFacts(Snapshot[StatusObjects]):
    """What the caller may read of a cluster."""

    namespace: str = ""
    """That of which was read what may not be read of all."""
    rules_served: bool = True
    lease: dict[str, Any] | None = None
    """That of the worker; None if there is none, or it could not be read."""
    lease_refused: str = ""


async def facts_of_cluster(
    credentials: Credentials,
    config_map: NamespacedName,
    *,
    with_policy: bool,
    within: str | None,
    see: Callable[[dict[str, Any]], None],
) -> ClusterFacts:
    """Read the cluster. Raises ClusterError or NoCredentials. `see` is called with each object that can be read.

    `config_map` has the policy, which is not read without `with_policy`; the worker's Lease is in the same namespace.
    `within`: the namespace for what may not be read of all, empty for that of the kubeconfig's context; DeviceClasses
    are read, too. None: rules must be readable.
    """

    def keep(item: dict[str, Any]) -> tuple[StatusObject | None, list[FieldError]]:
        value, errors = object_in(item)
        if not errors:
            see(item)
        return value, errors

    async with Cluster(credentials) as cluster:
        found = ClusterFacts(cluster, objects := StatusObjects(), objects.add, keep)
        if within is not None:
            context = credentials.namespace() if isinstance(credentials, KubeConfig) else ""
            found.namespace = within or context or "default"
        for each in (*LACKING, *((CLASSES,) if found.namespace else ())):
            if each is RULES and not found.namespace:
                served = await found.read(each)
            else:
                served = await found.read_permitted(each, found.namespace)
            if not served and each not in _MAY_BE_ABSENT:
                raise each.not_served
            if not served and each is RULES:
                found.missing.add(each.kind)
                found.rules_served = False
        objects.inventory.servers = await read_facts(cluster)
        await found.read_policy(config_map if with_policy else None)
        path = path_of("coordination.k8s.io", "v1", "leases", namespace=config_map.namespace, name=WORKER)
        try:
            found.lease = await find(cluster, path)
        except Refused as error:
            found.lease_refused = str(error)
        return found
