"""A server that plays enough of an API server for `serve` and `evict`: lists, and a watch on which claims change."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import web

from benchmarks.bulk import claim

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

_GROUP: Final = "/apis/resource.k8s.io/v1"
_RESOURCES: Final = ("resourceslices", "resourceclaims", "devicetaintrules", "deviceclasses")
_OTHERS: Final = ("namespaces", "configmaps", "pods", "poddisruptionbudgets")
_CLAIMS: Final = 5000
"""Different claims that change in turn."""
_TICK_SECONDS: Final = 0.01
_FIRST_VERSION: Final = 1000


class ScriptedServer:
    """Listens on entry, on a free port of loopback, without TLS."""

    def __init__(self, folder: Path, objects: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> None:
        """The folder gets a kubeconfig. `objects`: what is listed, by resource; nothing else is."""
        self._objects = objects or {}
        self._pages: dict[tuple[str, int, int], bytes] = {}
        """Packed, by resource, size and number of the first object; made when they are first requested."""
        self.kubeconfig = folder / "kubeconfig"
        self.sent = 0
        """Changes so far, on each watch of claims."""
        self._rate = 0.0
        self._version = _FIRST_VERSION

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        cluster = {"name": "scripted", "cluster": {"server": f"http://{host}:{port}"}}
        context = {"name": "scripted", "context": {"cluster": "scripted", "user": "nobody"}}
        config = {"clusters": [cluster], "contexts": [context], "users": [{"name": "nobody", "user": {}}]}
        self.kubeconfig.write_text(
            json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "scripted", **config})
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @contextlib.asynccontextmanager
    async def changing(self, per_second: float) -> AsyncIterator[None]:
        """So many changes of claims a second, for the length of a block."""
        self._rate = per_second
        try:
            yield
        finally:
            self._rate = 0.0

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == _GROUP:
            resources = [{"name": name, "namespaced": name == "resourceclaims"} for name in _RESOURCES]
            return web.json_response({"kind": "APIResourceList", "resources": resources})
        resource = request.path.rpartition("/")[2]
        if request.method != "GET" or resource not in (*_RESOURCES, *_OTHERS):
            return web.json_response({"kind": "Status", "code": 404}, status=HTTPStatus.NOT_FOUND)
        if "watch" in request.query:
            return await self._watch(request, changing=resource == "resourceclaims")
        size, first = int(request.query.get("limit", 0)), int(request.query.get("continue", 0))
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=self._page(resource, size, first), headers=headers)

    def _page(self, resource: str, size: int, first: int) -> bytes:
        page = self._pages.get((resource, size, first))
        if page is None:
            objects = self._objects.get(resource, ())
            end = first + size if size else len(objects)
            meta = {"resourceVersion": str(_FIRST_VERSION), "continue": str(end) if end < len(objects) else ""}
            text = json.dumps({"metadata": meta, "items": objects[first:end]}).encode()
            page = self._pages[resource, size, first] = gzip.compress(text, 1)
        return page

    async def _watch(self, request: web.Request, *, changing: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        due, last = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            due += (now - last) * (self._rate if changing else 0.0)
            last = now
            if due >= 1:
                await response.write(b"".join(self._change() for _ in range(int(due))))
                due -= int(due)

    def _change(self) -> bytes:
        number = self.sent % _CLAIMS
        known = self.sent >= _CLAIMS
        self.sent += 1
        self._version += 1
        obj = claim(number, _CLAIMS)
        obj["metadata"]["resourceVersion"] = str(self._version)
        return _line("MODIFIED" if known else "ADDED", obj)


def _line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"
