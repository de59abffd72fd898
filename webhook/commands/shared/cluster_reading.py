"""What verbs read of a cluster, in versions that it serves: collections and the policy; and rules, also written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import GROUP, OWN_GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.api.owners import POD_GROUPS as POD_GROUP_RESOURCE
from webhook.api.pod_groups import POD_GROUP_VERSIONS
from webhook.cluster.cache.discovery import served_version
from webhook.cluster.client.errors import NotFound, Unavailable
from webhook.cluster.client.list_pages import config_map_of, decoded, listed
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.shared.entries import meta, text
from webhook.commands.shared.main import ServerRefusal
from webhook.commands.shared.words import MANAGER, StoredTaintRule
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.api.field import FieldError
    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials
    from webhook.cluster.client.raw import RawResponse

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
POD_GROUPS: Final = Resource(POD_GROUP_RESOURCE[0], POD_GROUP_VERSIONS, POD_GROUP_RESOURCE[1], "PodGroup")


class Place(NamedTuple):
    """Where a cluster has a collection."""

    path: str
    api_version: str


async def place_of(cluster: Cluster, collection: Resource, namespace: str = "") -> Place | None:
    """The place in the newest version that is served, within a namespace if one is given; None if none is served.

    Raises ClusterError.
    """
    group, versions, name, _ = collection
    version = versions[0] if versions == _STABLE else await served_version(cluster, group, versions, name)
    if version is None:
        return None
    return Place(path_of(group, version, name, namespace=namespace), f"{group}/{version}".lstrip("/"))


async def objects_as_served(cluster: Cluster, collection: Resource, namespace: str = "") -> list[dict[str, Any]] | None:
    """All objects of a collection; None if it is not served. Raises ClusterError."""
    place = await place_of(cluster, collection, namespace)
    return None if place is None else await listed(cluster, *place, collection.kind)


async def decoded_objects(
    cluster: Cluster,
    collection: Resource,
    decode: Callable[[dict[str, Any]], tuple[Any, list[FieldError]]],
    namespace: str = "",
    progress: Callable[[str], None] | None = None,
) -> list[Any] | None:
    """What `decode` makes of each object; None if the collection is not served. Raises ClusterError.

    `progress` is called with how much was read so far.
    """
    place = await place_of(cluster, collection, namespace)
    if place is None:
        return None

    def kept(item: dict[str, Any]) -> Any:
        value, errors = decode(item)
        if errors:
            name = "/".join(filter(None, (text(meta(item), "namespace"), text(meta(item), "name"))))
            raise Unavailable(f"GET {place.path}: {name} cannot be read: {errors[0]}")
        return value

    def tell(count: int) -> None:
        if progress is not None:
            progress(f"{count} {collection.name}")

    return await listed(cluster, *place, collection.kind, kept, tell)


# --- the policy ---------------------------------------------------------------------------------


async def policy_manifest(cluster: Cluster, name: NamespacedName | None) -> Manifest | None:
    """The ConfigMap with the policy, as a manifest whose file name is the server's address. Raises ClusterError.

    None if there is none, or it is not asked for.
    """
    found = None if name is None else await config_map_of(cluster, name)
    if found is None:
        return None
    return Manifest(cluster.server, 1, {"apiVersion": "v1", "kind": "ConfigMap", **found}, NOWHERE)


async def policy_of_cluster(credentials: Credentials, name: NamespacedName) -> Manifest:
    """The ConfigMap with the policy. Raises ClusterError, also if there is none, or NoCredentials."""
    async with Cluster(credentials) as cluster:
        found = await policy_manifest(cluster, name)
        if found is None:
            raise NotFound(f"{cluster.server}: there is no ConfigMap {name}", code=404)
        return found


# --- rules, which verbs write as well -------------------------------------------------------------


_NOT_SERVED: Final = f'error: the server doesn\'t have a resource type "{RULES.name}" (feature gate DRADeviceTaints)'


class RuleStore:
    """Rules in the newest version that the cluster serves."""

    def __init__(self, cluster: Cluster, version: str) -> None:
        self.version = version
        self._cluster = cluster
        self._collection = path_of(GROUP, version, RULES.name)

    @classmethod
    async def of(cls, cluster: Cluster) -> RuleStore:
        """Asks for the version. Raises ClusterError, and ServerRefusal if rules are not served."""
        version = await served_version(cluster, GROUP, RULE_VERSIONS, RULES.name)
        if version is None:
            raise ServerRefusal(_NOT_SERVED)
        return cls(cluster, version)

    async def all(self) -> list[StoredTaintRule]:
        """All rules, by name. Raises ClusterError."""
        found = await listed(self._cluster, self._collection, f"{GROUP}/{self.version}", RULES.kind)
        return sorted(map(StoredTaintRule.of, found), key=lambda each: each.rule.meta.name)

    async def get(self, name: str) -> StoredTaintRule | None:
        """One rule; None if it is gone. Raises ClusterError."""
        try:
            return StoredTaintRule.of(decoded(await self._cluster.get(self._path(name)), self._collection))
        except NotFound:
            return None

    async def create(self, manifest: Mapping[str, Any], *, dry_run: bool) -> RawResponse:
        """A new rule. Raises Unavailable."""
        return await self._cluster.send("POST", self._collection, manifest, _query(dry_run=dry_run))

    async def replace(self, manifest: Mapping[str, Any], *, dry_run: bool) -> RawResponse:
        """A rule that is there, if it has not changed since it was read. Raises Unavailable."""
        path = self._path(manifest["metadata"]["name"])
        return await self._cluster.send("PUT", path, manifest, _query(dry_run=dry_run))

    async def delete(self, stored: StoredTaintRule, *, dry_run: bool) -> RawResponse:
        """The very rule that was read, if it has not changed since. Raises Unavailable."""
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
