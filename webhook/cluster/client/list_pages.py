"""What commands that look at a cluster once read of it: whole collections in pages, and the policy's ConfigMap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cluster.client.errors import Gone, NotFound, Unavailable
from webhook.cluster.client.rest import path_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.rest import Cluster

PAGE: Final = 500
"""Objects in one answer, as in kubectl."""


def _whole(item: dict[str, Any]) -> dict[str, Any]:
    return item


def _quiet(_: int) -> None:
    """Nobody wants to know how far it is."""


async def listed(
    cluster: Cluster,
    path: str,
    api_version: str,
    kind: str,
    keep: Callable[[dict[str, Any]], Any] = _whole,
    progress: Callable[[int], None] = _quiet,
) -> list[Any]:
    """All objects of a collection, each with what only the list says of them. Raises ClusterError.

    Of each only what `keep` makes of it stays in memory; `progress` hears how many there are, page by page.
    """
    found: list[Any] = []

    def take(items: Iterable[dict[str, Any]]) -> None:
        found.extend(keep({"apiVersion": api_version, "kind": kind, **item}) for item in items)
        progress(len(found))

    try:
        async for items in pages(cluster, path):
            take(items)
    except Gone:  # it took so long that the first page's state is forgotten; in one piece this cannot happen
        found.clear()
        take(decoded(await cluster.get(path), path).get("items") or ())
    return found


async def pages(cluster: Cluster, path: str) -> AsyncIterator[Sequence[dict[str, Any]]]:
    """The objects of a collection, without kind and version. Raises ClusterError, Gone if it took too long."""
    following = ""
    while True:
        query: dict[str, str | int] = {"limit": PAGE}
        if following:
            query["continue"] = following
        page = decoded(await cluster.get(path, query), path)
        yield page.get("items") or ()
        following = (page.get("metadata") or {}).get("continue") or ""
        if not following:
            return


async def config_map_of(cluster: Cluster, name: NamespacedName) -> dict[str, Any] | None:
    """A ConfigMap, or None if there is none. Raises ClusterError."""
    path = path_of("", "v1", "configmaps", namespace=name.namespace, name=name.name)
    try:
        return decoded(await cluster.get(path), path)
    except NotFound:
        return None


def decoded(answer: bytes, path: str) -> dict[str, Any]:
    """The object in an answer. Raises Unavailable."""
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Unavailable(f"GET {path}: not to be read: {error}") from None
