"""What `audit` reads of a cluster: claims, templates and names in pages, the policy's ConfigMap, the key. Read only."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.api.meta import GROUP
from webhook.cluster.client import Cluster, path_of
from webhook.cluster.credentials import KubeConfig
from webhook.cluster.discovery import served_version
from webhook.cluster.errors import Gone, NotFound, Refused, Unavailable

if TYPE_CHECKING:
    from webhook.config import NamespacedName

_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_KINDS: Final = {
    "deviceclasses": "DeviceClass",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceclaims": "ResourceClaim",
}
_PAGE: Final = 500
"""Objects in one answer, as in kubectl."""
_KEY_LEAST_BYTES: Final = 16


class ClusterDump(NamedTuple):
    """Objects as they would stand in a dump. `key` is None if it cannot be read, and `config_map` if there is none."""

    server: str
    objects: tuple[dict[str, Any], ...]
    config_map: dict[str, Any] | None
    key: bytes | None


def dump_of_cluster(
    kubeconfig: str, context: str | None, config_map: NamespacedName | None, key_secret: NamespacedName | None
) -> ClusterDump:
    """What there is to audit. Raises ClusterError or NoCredentials.

    With None for the ConfigMap or the Secret it is not asked for.
    """
    return asyncio.run(_dump(Cluster(KubeConfig(kubeconfig, context)), config_map, key_secret))


async def _dump(cluster: Cluster, config_map: NamespacedName | None, key_secret: NamespacedName | None) -> ClusterDump:
    async with cluster:
        version = await served_version(cluster, GROUP, _VERSIONS, "resourceclaimtemplates")
        if version is None:
            raise NotFound(f"{GROUP} is not served in {', '.join(_VERSIONS)}", code=404)
        objects = await _listed(cluster, path_of("", "v1", "namespaces"), "v1", "Namespace")
        for resource, kind in _KINDS.items():
            objects += await _listed(cluster, path_of(GROUP, version, resource), f"{GROUP}/{version}", kind)
        found = None if config_map is None else await _config_map(cluster, config_map)
        key = None if key_secret is None else await _key(cluster, key_secret)
        return ClusterDump(cluster.server, tuple(objects), found, key)


async def _listed(cluster: Cluster, path: str, api_version: str, kind: str) -> list[dict[str, Any]]:
    """All objects of a collection, each with what only the list says of them."""
    found: list[dict[str, Any]] = []
    following = ""
    while True:
        query: dict[str, str | int] = {"limit": _PAGE}
        if following:
            query["continue"] = following
        try:
            page = _decoded(await cluster.get(path, query), path)
        except Gone:  # it took so long that the first page's state is forgotten; in one piece this cannot happen
            page = _decoded(await cluster.get(path), path)
            found = []
        found += ({"apiVersion": api_version, "kind": kind, **item} for item in page.get("items") or ())
        following = (page.get("metadata") or {}).get("continue") or ""
        if not following:
            return found


async def _config_map(cluster: Cluster, name: NamespacedName) -> dict[str, Any] | None:
    path = path_of("", "v1", "configmaps", namespace=name.namespace, name=name.name)
    try:
        return _decoded(await cluster.get(path), path)
    except NotFound:
        return None


async def _key(cluster: Cluster, name: NamespacedName) -> bytes | None:
    """The key, if we may read it: few people may, and for most of what an audit says it is not needed."""
    path = path_of("", "v1", "secrets", namespace=name.namespace, name=name.name)
    try:
        secret = _decoded(await cluster.get(path), path)
        key = base64.b64decode((secret.get("data") or {}).get("key") or "", validate=True)
    except (NotFound, Refused, binascii.Error, ValueError):
        return None
    return key if len(key) >= _KEY_LEAST_BYTES else None


def _decoded(answer: bytes, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Unavailable(f"GET {path}: not to be read: {error}") from None
