"""What `status` and `explain` read of a cluster: each collection listed once, and the policy. Read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.api.names import WORKER
from webhook.cluster.cache.discovery import read_facts
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.errors import NotFound, Refused
from webhook.cluster.client.list_pages import decoded
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.shared import cluster_reading as reading
from webhook.commands.status.objects import StatusObjects, object_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.field import FieldError
    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials
    from webhook.commands.shared.cluster_reading import Resource
    from webhook.commands.status.objects import StatusObject
    from webhook.files.read import Manifest


LACKING: Final = {
    reading.RULES: "",
    reading.SLICES: "published devices and taints on them are unknown",
    reading.CLAIMS: "it is unknown which pods use a device",
    reading.PODS: "no pod is counted",
    reading.NAMESPACES: "holds of namespaces are unknown, and profiles match no labels of them",
    reading.BUDGETS: "pods are shown as due that a disruption budget blocks",
    reading.POD_GROUPS: "it is unknown which pods go together and which are held by a PodGroup",
}
"""What is read, and what `status` does not know without permission to read it."""
_MAY_BE_ABSENT: Final = frozenset({reading.RULES, reading.POD_GROUPS, reading.CLASSES})
"""What a cluster need not serve."""
_NAMESPACED: Final = frozenset({"Pod", "ResourceClaim", "PodDisruptionBudget", "PodGroup"})


class ClusterFacts:
    """What the caller may read of a cluster, one collection after another."""

    def __init__(self, cluster: Cluster, namespace: str, see: Callable[[dict[str, Any]], None]) -> None:
        """`see` is called with each object as it is served.

        What may not be read of all namespaces is read of `namespace`; if that is empty, rules must be readable.
        """
        self._cluster = cluster
        self._see = see
        self.namespace = namespace
        self.server = cluster.server
        self.objects = StatusObjects()
        self.missing: set[str] = set()
        """Kinds that could not be read."""
        self.partial: set[str] = set()
        """Kinds that were read in `namespace` only."""
        self.refused: dict[Resource, str] = {}
        """Why not all of a collection could be read."""
        self.rules_served = True
        self.policy: Manifest | None = None
        self.policy_refused = ""
        """Why the policy could not be read; empty if it could, or is not asked for."""
        self.lease: dict[str, Any] | None = None
        """That of the worker; None if there is none, or it could not be read."""
        self.lease_refused = ""

    async def read(self, collection: Resource) -> None:
        """Reads a collection, or what the caller may read of it."""
        try:
            await self._add(collection, "")
        except Refused as error:
            if not self.namespace and collection is reading.RULES:
                raise
            known = await self._add_own(collection) if self.namespace else False
            (self.partial if known else self.missing).add(collection.kind)
            self.refused[collection] = str(error)

    async def _add(self, collection: Resource, namespace: str) -> None:
        def decode(item: dict[str, Any]) -> tuple[StatusObject | None, list[FieldError]]:
            self._see(item)
            return object_in(item)

        found = await reading.decoded_objects(self._cluster, collection, decode, namespace)
        if found is None and collection not in _MAY_BE_ABSENT:
            raise collection.not_served
        if found is None and collection is reading.RULES:
            self.missing.add(collection.kind)
            self.rules_served = False
        for each in found or ():
            if each is not None:
                self.objects.add(each)

    async def _add_own(self, collection: Resource) -> bool:
        """Whether at least what the namespace has of it could be read."""
        try:
            if collection.kind in _NAMESPACED:
                await self._add(collection, self.namespace)
                return True
            if collection is not reading.NAMESPACES:
                return False
            path = path_of("", "v1", "namespaces", name=self.namespace)
            value = {"apiVersion": "v1", "kind": "Namespace", **decoded(await self._cluster.get(path), path)}
        except (Refused, NotFound):
            return False
        found, errors = object_in(value)
        if found is not None and not errors:
            self._see(value)
            self.objects.add(found)
        return True


async def facts_of_cluster(
    credentials: Credentials,
    config_map: NamespacedName,
    *,
    with_policy: bool,
    within: str | None,
    see: Callable[[dict[str, Any]], None],
) -> ClusterFacts:
    """Reads the cluster. Raises ClusterError or NoCredentials.

    `config_map` has the policy, which is not read without `with_policy`; the worker's Lease is in the same namespace.
    `within`: the namespace for what may not be read of all, empty for that of the kubeconfig's context; DeviceClasses
    are read, too. None: rules must be readable.
    """
    namespace = ""
    if within is not None:
        context = credentials.namespace() if isinstance(credentials, KubeConfig) else ""
        namespace = within or context or "default"
    async with Cluster(credentials) as cluster:
        found = ClusterFacts(cluster, namespace, see)
        for collection in (*LACKING, *((reading.CLASSES,) if namespace else ())):
            await found.read(collection)
        found.objects.inventory.servers = await read_facts(cluster)
        try:
            found.policy = await reading.policy_manifest(cluster, config_map if with_policy else None)
        except Refused as error:
            found.policy_refused = str(error)
        path = path_of("coordination.k8s.io", "v1", "leases", namespace=config_map.namespace, name=WORKER)
        try:
            found.lease = decoded(await cluster.get(path), path)
        except NotFound:
            return found
        except Refused as error:
            found.lease_refused = str(error)
        return found
