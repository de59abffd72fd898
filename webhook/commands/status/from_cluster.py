"""What `status` reads of a cluster: each collection listed once, and the policy. Read only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.names import WORKER
from webhook.cluster.cache.discovery import read_facts
from webhook.cluster.client.errors import NotFound, Refused
from webhook.cluster.client.list_pages import decoded
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.shared import cluster_reading as reading
from webhook.commands.status.waits import StatusObjects, object_in
from webhook.eviction.modes import WorkerSays

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.field import FieldError
    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials
    from webhook.commands.shared.cluster_reading import Resource
    from webhook.commands.status.waits import StatusObject
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
"""What is read, and what is unknown without permission to read it; empty if nothing works without it."""
NOT_SERVED: Final = "the cluster does not serve DeviceTaintRules (feature gate DRADeviceTaints)"


def _ignore(_: dict[str, Any]) -> None:
    """Nothing else is kept of an object."""


class ClusterStatus(NamedTuple):
    """A cluster as it was read once. `policy`: None if there is none or it may not be read."""

    server: str
    objects: StatusObjects
    policy: Manifest | None
    missing: frozenset[str]
    """Kinds that could not be read."""
    notes: tuple[str, ...]


async def worker_of_cluster(credentials: Credentials, namespace: str) -> WorkerSays | None:
    """What the worker that leads wrote on its Lease; None if none does. Raises ClusterError or NoCredentials."""
    path = path_of("coordination.k8s.io", "v1", "leases", namespace=namespace, name=WORKER)
    async with Cluster(credentials) as cluster:
        try:
            lease = decoded(await cluster.get(path), path)
            return WorkerSays.of(lease, datetime.now(UTC))  # noqa: TID251 -- the shell asks
        except NotFound:
            return None


async def status_of_cluster(credentials: Credentials, config_map: NamespacedName | None) -> ClusterStatus:
    """Reads the cluster. Raises ClusterError or NoCredentials. The ConfigMap is not read if it is None."""
    objects, missing, notes = StatusObjects(), set(), list[str]()
    async with Cluster(credentials) as cluster:
        for collection, lacking in LACKING.items():
            try:
                found = await objects_of(cluster, collection)
            except Refused as error:
                if not lacking:
                    raise
                missing.add(collection.kind)
                notes.append(f"no permission to read {collection.name}, so {lacking}: {error}")
                continue
            if found is None and collection is reading.RULES:
                missing.add(collection.kind)
                notes.append(NOT_SERVED)
            for each in found or ():
                objects.add(each)
        objects.inventory.servers = await read_facts(cluster)
        policy = await reading.policy_or_note(cluster, config_map, notes)
        return ClusterStatus(cluster.server, objects, policy, frozenset(missing), tuple(notes))


async def objects_of(
    cluster: Cluster, collection: Resource, namespace: str = "", see: Callable[[dict[str, Any]], None] = _ignore
) -> list[StatusObject] | None:
    """All objects of a collection that `status` keeps; None where a cluster may do without it. Raises ClusterError.

    With a namespace, only those in it. `see` is called with each object as it is served.
    """

    def decode(item: dict[str, Any]) -> tuple[StatusObject | None, list[FieldError]]:
        see(item)
        return object_in(item)

    found = await reading.decoded_objects(cluster, collection, decode, namespace)
    if found is None:
        if collection in (reading.RULES, reading.POD_GROUPS):
            return None
        raise collection.not_served
    return [each for each in found if each is not None]
