"""What `audit` reads of a cluster: claims, templates and names in pages, the policy's ConfigMap, the key. Read only."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.keys import KEY_FIELD, KEY_LEAST_BYTES
from webhook.api.meta import GROUP, SERVED_VERSIONS
from webhook.cluster.cache.discovery import served_version
from webhook.cluster.client.errors import NotFound, Refused
from webhook.cluster.client.list_pages import config_map_of, decoded, listed
from webhook.cluster.client.rest import Cluster, path_of

if TYPE_CHECKING:
    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials

_KINDS: Final = {
    "deviceclasses": "DeviceClass",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceclaims": "ResourceClaim",
}


class ClusterDump(NamedTuple):
    """Objects as in a dump. `key` is None if it cannot be read, `config_map` if there is none."""

    server: str
    objects: tuple[dict[str, Any], ...]
    config_map: dict[str, Any] | None
    key: bytes | None


def dump_of_cluster(
    credentials: Credentials,
    config_map: NamespacedName | None,
    key_secret: NamespacedName | None,
    namespace: str | None = None,
) -> ClusterDump:
    """Reads what is audited. Raises ClusterError or NoCredentials.

    The ConfigMap or the Secret is not read if it is None. With a namespace, only objects in it are read.
    """
    return asyncio.run(_dump(Cluster(credentials), config_map, key_secret, namespace))


async def _dump(
    cluster: Cluster,
    config_map: NamespacedName | None,
    key_secret: NamespacedName | None,
    namespace: str | None,
) -> ClusterDump:
    async with cluster:
        version = await served_version(cluster, GROUP, SERVED_VERSIONS, "resourceclaimtemplates")
        if version is None:
            raise NotFound(f"{GROUP} is not served in {', '.join(SERVED_VERSIONS)}", code=404)
        if namespace is None:
            objects = await listed(cluster, path_of("", "v1", "namespaces"), "v1", "Namespace")
        else:
            path = path_of("", "v1", "namespaces", name=namespace)
            objects = [{"apiVersion": "v1", "kind": "Namespace", **decoded(await cluster.get(path), path)}]
        for resource, kind in _KINDS.items():
            within = "" if namespace is None or resource == "deviceclasses" else namespace
            path = path_of(GROUP, version, resource, namespace=within)
            objects += await listed(cluster, path, f"{GROUP}/{version}", kind)
        found = None if config_map is None else await config_map_of(cluster, config_map)
        key = None if key_secret is None else await _key(cluster, key_secret)
        return ClusterDump(cluster.server, tuple(objects), found, key)


async def _key(cluster: Cluster, name: NamespacedName) -> bytes | None:
    """The key, or None without permission to read it: few users have that, and most of an audit does not need it."""
    path = path_of("", "v1", "secrets", namespace=name.namespace, name=name.name)
    try:
        secret = decoded(await cluster.get(path), path)
        key = base64.b64decode((secret.get("data") or {}).get(KEY_FIELD) or "", validate=True)
    except (NotFound, Refused, binascii.Error, ValueError):
        return None
    return key if len(key) >= KEY_LEAST_BYTES else None
