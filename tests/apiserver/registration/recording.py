"""A webhook that allows everything and remembers what it was asked: who is called is the result, not what is said."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.controlplane.pki import Authority

_HOST = "127.0.0.1"
_STALLED_SECONDS = 60.0
"""Longer than an API server waits for any call, and than a test needs."""


class Call(NamedTuple):
    """One review, as far as a registration decides about it."""

    path: str
    """/validate or /mutate, without the query."""
    operation: str
    resource: str
    version: str
    """Of the object in the review."""
    requested_version: str
    """Of the object that the user sent."""
    subresource: str
    name: str


class RecordingWebhook:
    """Listens on loopback from entry to exit; threads of the API server's calls are its own affair."""

    def __init__(self, folder: Path) -> None:
        """folder takes the certificate, because ssl reads files only."""
        self._folder = folder
        self._authority = Authority("recording-webhook-ca")
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        self._answering = threading.Event()
        self._answering.set()

    base_url: str
    """https://127.0.0.1:<port>"""

    @property
    def ca_pem(self) -> bytes:
        """What a client has to trust."""
        return self._authority.pem

    def take(self) -> list[Call]:
        """The calls since the last take; those made for a request are there once it is answered."""
        with self._lock:
            taken, self._calls = self._calls, []
        return taken

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Connections are accepted and reviews read, but none is answered before the block ends."""
        self._answering.clear()
        try:
            yield
        finally:
            self._answering.set()

    def answer(self, url_path: str, review: dict[str, Any]) -> dict[str, Any]:
        """Remembers a review and allows it, unless told to hang: then it waits."""
        request = review["request"]
        call = Call(
            url_path.partition("?")[0],
            request["operation"],
            request["resource"]["resource"],
            request["resource"]["version"],
            request["requestResource"]["version"],
            request.get("subResource", ""),
            request.get("name", ""),
        )
        with self._lock:
            self._calls.append(call)
        self._answering.wait(_STALLED_SECONDS)
        response = {"uid": request["uid"], "allowed": True}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}

    def __enter__(self) -> Self:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._authority.server(_HOST).write(self._folder))
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = json.dumps(webhook.answer(self.path, json.loads(body))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """The record is what take gives."""

        self._server = _Server((_HOST, 0), Handler)
        # The handshake is the connection's thread's, or one caller that stalls would keep all others out.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.base_url = f"https://{_HOST}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Nobody listens any more: connections are refused from now on. Fine to call again."""
        self._answering.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True  # no thread outlives the test

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """A caller that has given up is expected here (TLS: it may not say goodbye); anything else is a bug."""
        with contextlib.suppress(OSError, ssl.SSLError):
            raise  # noqa: PLE0704 - called while the error is handled
