"""Lists in pages, for reflectors and for commands that read a collection once; and single objects as JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from webhook.api.meta import NamespacedName
from webhook.cluster.client.answers import decode_large, objects, read_answer, unreadable
from webhook.cluster.client.errors import Gone, NotFound
from webhook.cluster.client.rest import JSON, Cluster, path_of

PAGE: Final = 500
"""Objects in one answer, as in kubectl."""


class ListMeta(msgspec.Struct, frozen=True):
    """Of one page of a list, which always has a version: what has none is another object."""

    resource_version: Annotated[str, msgspec.Meta(min_length=1)] = msgspec.field(name="resourceVersion")
    next_page: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, frozen=True):
    """One answer to a list. Items are left to be decoded one by one, so that a large page does not block the loop."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None


_PAGE: Final = msgspec.json.Decoder(Page)
_NO_SELECTOR: Final[Mapping[str, str]] = {}


async def list_pages(
    cluster: Cluster, path: str, size: int = PAGE, *, selector: Mapping[str, str] = _NO_SELECTOR, accept: str = JSON
) -> AsyncGenerator[Page, None]:
    """The pages of a collection. Raises ClusterError; Gone if reading took so long that the first page's state expired.

    `size`: objects in a page; 0 asks for all in one. `selector`: query parameters such as fieldSelector.
    """
    query: dict[str, str | int] = {**selector, "limit": size} if size else {**selector}
    while True:
        page = await _page(path, await cluster.get_page(path, query, accept=accept))
        yield page
        if not page.metadata.next_page:
            return
        query["continue"] = page.metadata.next_page


async def collection_version(cluster: Cluster, path: str, *, selector: Mapping[str, str], accept: str) -> str:
    """The version of a collection as it is now. Raises ClusterError.

    It comes with a list of one object, which is given no more time than any other request.
    """
    page = await _page(path, await cluster.get(path, {**selector, "limit": 1}, accept=accept))
    return page.metadata.resource_version


async def _page(path: str, answer: bytes) -> Page:
    try:
        return await decode_large(_PAGE, answer)
    except msgspec.DecodeError as error:
        raise unreadable(path, error) from None


async def listed(
    cluster: Cluster,
    path: str,
    api_version: str,
    kind: str,
    keep: Callable[[dict[str, Any]], Any] = lambda item: item,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Any]:
    """All objects of a collection, each with the kind and version of the list. Raises ClusterError.

    Only what `keep` returns stays in memory; `progress` is called with the number read, after each page.
    """
    found: list[Any] = []

    def take(items: Iterable[dict[str, Any]]) -> None:
        found.extend(keep({"apiVersion": api_version, "kind": kind, **item}) for item in items)
        progress(len(found))

    try:
        async for items in pages(cluster, path):
            take(items)
    except Gone:  # expired halfway; in one piece this cannot happen
        found.clear()
        async for items in pages(cluster, path, 0):
            take(items)
    return found


async def pages(cluster: Cluster, path: str, size: int = PAGE) -> AsyncGenerator[list[dict[str, Any]], None]:
    """The objects of each page, without kind and version. Raises as `list_pages` does."""
    async for page in list_pages(cluster, path, size):
        yield [decoded(item, path) for item in page.items or ()]


async def config_map_of(cluster: Cluster, name: NamespacedName) -> dict[str, Any] | None:
    """A ConfigMap, or None if there is none. Raises ClusterError."""
    return await find(cluster, path_of("", "v1", "configmaps", namespace=name.namespace, name=name.name))


async def find(cluster: Cluster, path: str) -> dict[str, Any] | None:
    """The object at that path, or None if there is none. Raises ClusterError."""
    try:
        return decoded(await cluster.get(path), path)
    except NotFound:
        return None


def decoded(answer: bytes | msgspec.Raw, path: str) -> dict[str, Any]:
    """The object in an answer. Raises Unavailable."""
    return read_answer(objects, path, answer)
