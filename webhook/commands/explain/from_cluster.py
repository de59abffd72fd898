"""What `explain` reads of a cluster: as much as the caller may read, and what was refused. Read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.cluster.cache.discovery import read_facts
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.errors import NotFound, Refused
from webhook.cluster.client.list_pages import decoded, listed
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.shared import cluster_reading as reading
from webhook.commands.shared.entries import meta, text
from webhook.commands.status.from_cluster import LACKING, NOT_SERVED, objects_of
from webhook.commands.status.waits import StatusObjects, object_in

if TYPE_CHECKING:
    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials
    from webhook.commands.shared.cluster_reading import Resource
    from webhook.files.read import Manifest

_NAMESPACED: Final = frozenset({"Pod", "ResourceClaim", "PodDisruptionBudget", "PodGroup"})
_KEPT_RAW: Final = frozenset({"ResourceClaim", "Namespace"})


class ClusterFacts:
    """A cluster as far as the caller may see it, of which one collection after another is read."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.server = cluster.server
        self.objects = StatusObjects()
        self.raw: list[dict[str, Any]] = []
        """Claims, Namespaces and DeviceClasses as they are served."""
        self.pods: set[str] = set()
        """All pods that may be read, by `namespace/name`."""
        self.policy: Manifest | None = None
        self.policy_refused = ""
        """Why the policy could not be read; empty if it could, or is not asked for."""
        self.missing: set[str] = set()
        self.partial: set[str] = set()
        """Kinds of which only the objects of one namespace were read."""
        self.refused: list[tuple[str, str]] = []
        """Kinds, and why not all of them could be read."""

    async def read(self, collection: Resource) -> None:
        """Reads a collection as far as that is permitted."""
        try:
            await self._add(collection, "")
        except Refused as error:
            if collection.kind in _NAMESPACED and await self._add_own(collection):
                self.partial.add(collection.kind)
                why = f"only those of namespace {self._namespace} are known: {error}"
            elif collection.kind == "Namespace" and await self._add_namespace():
                self.partial.add(collection.kind)
                why = f"only namespace {self._namespace} is known: {error}"
            else:
                self.missing.add(collection.kind)
                why = f"no permission to read {collection.name}: {error}"
            self.refused.append((collection.kind, why))

    async def read_classes(self) -> None:
        """Reads the DeviceClasses."""
        place = await reading.place_of(self._cluster, reading.CLASSES)
        try:
            if place is not None:
                self.raw += await listed(self._cluster, *place, reading.CLASSES.kind)
        except Refused as error:
            self.missing.add("DeviceClass")
            self.refused.append(("DeviceClass", f"no permission to read deviceclasses: {error}"))

    async def _add(self, collection: Resource, namespace: str) -> None:
        found = await objects_of(self._cluster, collection, namespace, self._see)
        if found is None and collection is reading.RULES:
            self.missing.add(collection.kind)
            self.refused.append((collection.kind, NOT_SERVED))
        for each in found or ():
            self.objects.add(each)

    def _see(self, item: dict[str, Any]) -> None:
        """Keeps what is needed of an object as it is served."""
        if item["kind"] in _KEPT_RAW:
            self.raw.append(item)
        elif item["kind"] == "Pod":
            self.pods.add(f"{text(meta(item), 'namespace')}/{text(meta(item), 'name')}")

    async def _add_own(self, collection: Resource) -> bool:
        try:
            await self._add(collection, self._namespace)
        except Refused:
            return False
        return True

    async def _add_namespace(self) -> bool:
        path = path_of("", "v1", "namespaces", name=self._namespace)
        try:
            value = {"apiVersion": "v1", "kind": "Namespace", **decoded(await self._cluster.get(path), path)}
        except (Refused, NotFound):
            return False
        found, errors = object_in(value)
        if found is not None and not errors:
            self.raw.append(value)
            self.objects.add(found)
        return True


def namespace_of(credentials: Credentials) -> str:
    """The namespace of the kubeconfig's context; empty if there is none. Raises NoCredentials."""
    return credentials.namespace() if isinstance(credentials, KubeConfig) else ""


async def facts_of_cluster(credentials: Credentials, config_map: NamespacedName | None, namespace: str) -> ClusterFacts:
    """Reads the cluster; what may not be read of all namespaces, of this one. Raises ClusterError or NoCredentials."""
    async with Cluster(credentials) as cluster:
        found = ClusterFacts(cluster, namespace)
        for collection in LACKING:
            await found.read(collection)
        await found.read_classes()
        found.objects.inventory.servers = await read_facts(cluster)
        try:
            found.policy = await reading.policy_manifest(cluster, config_map)
        except Refused as error:
            found.policy_refused = f"no permission to read the ConfigMap {config_map}: {error}"
        return found
