"""A proxy before the API server that keeps back answers to evictions, not to dry runs: the watch is always faster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from pathlib import Path
from typing import Final, Self

import aiohttp
from aiohttp import web

from tests.controlplane.plane import ControlPlane

_HOP_BY_HOP: Final = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


class LateAnswers:
    """Forwards each request while the block lasts, tokens included; it has the API server's own certificate."""

    def __init__(self, plane: ControlPlane, seconds: float) -> None:
        """`seconds`: how long the answer to each eviction is kept back."""
        self._plane = plane
        self._seconds = seconds
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="late-answers", daemon=True)
        self._open = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._open.wait(timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()

    def kubeconfig(self, of_account: Path) -> Path:
        """A copy of a kubeconfig that leads here."""
        content = json.loads(of_account.read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self._port}"
        copy = of_account.with_suffix(".late")
        copy.write_text(json.dumps(content))
        return copy

    async def _serve(self) -> None:
        self._loop, self._closed = asyncio.get_running_loop(), asyncio.Event()
        pki = self._plane.folder / "pki"
        trusted = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        served.load_cert_chain(pki / "tls.crt", pki / "tls.key")
        async with aiohttp.ClientSession(
            self._plane.server,
            connector=aiohttp.TCPConnector(ssl=trusted, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as self._session:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self._forward)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served).start()
            self._port: int = runner.addresses[0][1]
            self._open.set()
            await self._closed.wait()
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        body = await request.read()
        async with self._session.request(request.method, request.rel_url, headers=headers, data=body or None) as answer:
            if request.path.endswith("/eviction") and b'"dryRun"' not in body:
                await asyncio.sleep(self._seconds)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=kept)
            with contextlib.suppress(ConnectionResetError):  # the client waits no longer
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            return response
