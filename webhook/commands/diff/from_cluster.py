"""What `diff` reads of a cluster: claims, templates, rules, patches, slices and what names mean. Read only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import GROUP, OWN_GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.cluster.cache.discovery import served_version
from webhook.cluster.client.errors import Refused
from webhook.cluster.client.list_pages import config_map_of, listed
from webhook.cluster.client.rest import Cluster, path_of
from webhook.files.dump import CLAIMS

if TYPE_CHECKING:
    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials


class _Collection(NamedTuple):
    """A collection. `lacking`: what comes of it if it may not be read."""

    group: str
    versions: tuple[str, ...]
    name: str
    kind: str
    lacking: str


_COLLECTIONS: Final = (
    _Collection("", ("v1",), "namespaces", "Namespace", "labels of namespaces are unknown"),
    _Collection(GROUP, SERVED_VERSIONS, "deviceclasses", "DeviceClass", "the drivers behind classes are unknown"),
    _Collection(GROUP, SERVED_VERSIONS, "resourceclaims", "ResourceClaim", "no claim is compared, and limits see none"),
    _Collection(GROUP, SERVED_VERSIONS, "resourceclaimtemplates", "ResourceClaimTemplate", "no template is compared"),
    _Collection(GROUP, SERVED_VERSIONS, "resourceslices", "ResourceSlice", "no slice is compared, and limits see none"),
    _Collection(GROUP, RULE_VERSIONS, "devicetaintrules", "DeviceTaintRule", "no rule is compared"),
    _Collection(OWN_GROUP, ("v1alpha1",), "resourceslicepatches", "ResourceSlicePatch", "no patch is compared"),
)


class ClusterObjects(NamedTuple):
    """Objects as they are served. `config_map` is the policy's; None if there is none, or it was not asked for."""

    server: str
    objects: list[dict[str, Any]]
    config_map: dict[str, Any] | None
    notes: tuple[str, ...]


def objects_of_cluster(
    credentials: Credentials, config_map: NamespacedName | None, namespace: str | None
) -> ClusterObjects:
    """Reads what is compared. Raises ClusterError or NoCredentials.

    Without permission to read the claims of all namespaces, those of `namespace` are read.
    """
    return asyncio.run(_read(Cluster(credentials), config_map, namespace))


async def _read(cluster: Cluster, config_map: NamespacedName | None, namespace: str | None) -> ClusterObjects:
    objects: list[dict[str, Any]] = []
    notes: list[str] = []
    async with cluster:
        for each in _COLLECTIONS:
            try:
                objects += await _objects(cluster, each)
            except Refused as error:
                own = await _own(cluster, each, namespace)
                objects += own or []
                if own is None:
                    notes.append(f"no permission to read {each.name}, so {each.lacking}: {error}")
        policy = None if config_map is None else await config_map_of(cluster, config_map)
        return ClusterObjects(cluster.server, objects, policy, tuple(notes))


async def _objects(cluster: Cluster, each: _Collection, namespace: str = "") -> list[dict[str, Any]]:
    version: str | None = each.versions[0]
    if each.group:
        version = await served_version(cluster, each.group, each.versions, each.name)
    if version is None:
        return []
    path = path_of(each.group, version, each.name, namespace=namespace)
    return await listed(cluster, path, f"{each.group}/{version}" if each.group else version, each.kind)


async def _own(cluster: Cluster, each: _Collection, namespace: str | None) -> list[dict[str, Any]] | None:
    """The objects of the namespace; None if they may not be read either."""
    if namespace is None or each.kind not in CLAIMS:
        return None
    try:
        return await _objects(cluster, each, namespace)
    except Refused:
        return None
