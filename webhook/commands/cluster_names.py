"""Names for completion: of contexts in a kubeconfig, and of objects in a cluster. Any error means no names."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from webhook.cluster.client.credentials import KubeConfig, kubeconfig_paths
from webhook.cluster.client.errors import ClusterError, NoCredentials
from webhook.cluster.client.kubeconfig import merged
from webhook.cluster.client.list_pages import decoded
from webhook.cluster.client.rest import Cluster
from webhook.commands.shared.flags import credentials_of
from webhook.commands.shared.snapshot import CLAIMS, NAMESPACES, NODES, PODS, RULES, SLICES, place_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_SECONDS: Final = 3.0
"""A shell waits for the answer."""
_MOST: Final = 500
_NAMES_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_COLLECTIONS: Final = {
    "rules": RULES,
    "devices": SLICES,
    "claims": CLAIMS,
    "pods": PODS,
    "namespaces": NAMESPACES,
    "nodes": NODES,
}
_NAMESPACED: Final = frozenset({"pods", "claims"})


def names_of(what: str, options: argparse.Namespace) -> list[str]:
    """Return the first names of their kind, in order. Never raises, and takes a few seconds at most."""
    try:
        if what == "contexts":
            paths = [options.kubeconfig] if options.kubeconfig else kubeconfig_paths(os.environ)
            return sorted(merged([path for path in paths if os.access(path, os.R_OK)]).entries["contexts"])
        with contextlib.suppress(TimeoutError):
            return asyncio.run(asyncio.wait_for(_read(what, options), _SECONDS))
    except (ClusterError, NoCredentials, OSError):
        pass
    return []


async def _read(what: str, options: argparse.Namespace) -> list[str]:
    credentials = credentials_of(options)
    namespace = ""
    if what in _NAMESPACED:
        own = credentials.namespace() if isinstance(credentials, KubeConfig) else ""
        namespace = options.namespace or own or "default"
    async with Cluster(credentials) as cluster:
        place = await place_of(cluster, _COLLECTIONS[what], namespace)
        if place is None:
            return []
        accept = "application/json" if what == "devices" else _NAMES_ONLY
        page = decoded(await cluster.get(place.path, {"limit": _MOST}, accept=accept), place.path)
    return sorted({name for item in page.get("items") or () for name in _names_in(what, item)})


def _names_in(what: str, item: dict[str, Any]) -> Iterator[str]:
    if what != "devices":
        yield str((item.get("metadata") or {}).get("name") or "")
        return
    spec = item.get("spec") or {}
    for device in spec.get("devices") or ():
        yield f"{spec.get('driver')}/{(spec.get('pool') or {}).get('name')}/{device.get('name')}"
