"""What `status` reads of a cluster: each collection listed once, and the policy. Read only."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.api.names import WORKER
from webhook.api.owners import POD_GROUPS
from webhook.api.pod_groups import POD_GROUP_VERSIONS
from webhook.cluster.cache.discovery import read_facts, served_version
from webhook.cluster.client.errors import NotFound, Refused, Unavailable
from webhook.cluster.client.list_pages import config_map_of, decoded, listed
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.shared.entries import meta, text
from webhook.commands.status.objects import StatusObjects, object_in
from webhook.eviction.modes import WorkerSays

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials
    from webhook.commands.status.objects import StatusObject


class StatusResource(NamedTuple):
    """A collection. `lacking`: what is unknown without permission to read it; empty if nothing works without it."""

    group: str
    versions: tuple[str, ...]
    name: str
    kind: str
    lacking: str = ""
    optional: bool = False
    """Whether a cluster may do without it: then there are none."""


RULES: Final = StatusResource(GROUP, RULE_VERSIONS, "devicetaintrules", "DeviceTaintRule")
RESOURCES: Final = (
    RULES,
    StatusResource(
        GROUP, SERVED_VERSIONS, "resourceslices", "ResourceSlice", "published devices and taints on them are unknown"
    ),
    StatusResource(GROUP, SERVED_VERSIONS, "resourceclaims", "ResourceClaim", "it is unknown which pods use a device"),
    StatusResource("", ("v1",), "pods", "Pod", "no pod is counted"),
    StatusResource(
        "", ("v1",), "namespaces", "Namespace", "holds of namespaces are unknown, and profiles match no labels of them"
    ),
    StatusResource(
        "policy",
        ("v1",),
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "pods are shown as due that a disruption budget blocks",
    ),
    StatusResource(
        POD_GROUPS[0],
        POD_GROUP_VERSIONS,
        POD_GROUPS[1],
        "PodGroup",
        "it is unknown which pods go together and which are held by a PodGroup",
        optional=True,
    ),
)
NOT_SERVED: Final = "the cluster does not serve DeviceTaintRules (feature gate DRADeviceTaints)"


def _ignore(_: dict[str, Any]) -> None:
    """Nothing else is kept of an object."""


class ClusterStatus(NamedTuple):
    """A cluster as it was read once. `config_map` is the policy's; None if there is none or it may not be read."""

    server: str
    objects: StatusObjects
    config_map: dict[str, Any] | None
    missing: frozenset[str]
    """Kinds that could not be read."""
    notes: tuple[str, ...]


def status_of_cluster(credentials: Credentials, config_map: NamespacedName | None) -> ClusterStatus:
    """Reads the cluster. Raises ClusterError or NoCredentials. The ConfigMap is not read if it is None."""
    return asyncio.run(_read(Cluster(credentials), config_map))


async def worker_of_cluster(credentials: Credentials, namespace: str) -> WorkerSays | None:
    """What the worker that leads wrote on its Lease; None if none does. Raises ClusterError or NoCredentials."""
    path = path_of("coordination.k8s.io", "v1", "leases", namespace=namespace, name=WORKER)
    async with Cluster(credentials) as cluster:
        try:
            lease = decoded(await cluster.get(path), path)
            return WorkerSays.of(lease, datetime.now(UTC))  # noqa: TID251 -- the shell asks
        except NotFound:
            return None


async def _read(cluster: Cluster, config_map: NamespacedName | None) -> ClusterStatus:
    objects, missing, notes = StatusObjects(), set(), []
    async with cluster:
        for resource in RESOURCES:
            try:
                found = await objects_of(cluster, resource)
            except Refused as error:
                if not resource.lacking:
                    raise
                missing.add(resource.kind)
                notes.append(f"no permission to read {resource.name}, so {resource.lacking}: {error}")
                continue
            if found is None:
                if not resource.optional:
                    missing.add(resource.kind)
                    notes.append(NOT_SERVED)
                continue
            for each in found:
                objects.add(each)
        objects.inventory.servers = await read_facts(cluster)
        policy = None
        if config_map is not None:
            try:
                policy = await config_map_of(cluster, config_map)
            except Refused as error:
                notes.append(f"no permission to read the policy, so the built-in one is used: {error}")
        return ClusterStatus(cluster.server, objects, policy, frozenset(missing), tuple(notes))


async def objects_of(
    cluster: Cluster, resource: StatusResource, namespace: str = "", see: Callable[[dict[str, Any]], None] = _ignore
) -> list[StatusObject] | None:
    """All objects of a collection that `status` keeps; None if it is not served. Raises ClusterError.

    With a namespace, only those in it. `see` is called with each object as it is served.
    """
    version: str | None = resource.versions[0]
    if resource.group == GROUP or resource.optional:
        version = await served_version(cluster, resource.group, resource.versions, resource.name)
    if version is None:
        if resource is RULES or resource.optional:
            return None
        raise NotFound(f"{resource.name}.{GROUP} is not served in {', '.join(resource.versions)}", code=404)
    path = path_of(resource.group, version, resource.name, namespace=namespace)

    def kept(item: dict[str, Any]) -> StatusObject | None:
        see(item)
        value, errors = object_in(item)
        if errors:
            name = "/".join(filter(None, (text(meta(item), "namespace"), text(meta(item), "name"))))
            raise Unavailable(f"GET {path}: {name} cannot be read: {errors[0]}")
        return value

    api_version = f"{resource.group}/{version}" if resource.group else version
    found = await listed(cluster, path, api_version, resource.kind, kept)
    return [each for each in found if each is not None]
