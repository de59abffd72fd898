"""What a Service is to replicas: each connection goes to the next of them."""

from __future__ import annotations

import itertools
import socket
import socketserver
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self
from urllib.parse import urlsplit

_CHUNK_BYTES: Final = 65536


class Balancer:
    """Listens on a port of its own while the block lasts; TLS passes through unread."""

    def __init__(self, urls: Sequence[str]) -> None:
        """`urls` of the replicas, as `https://host:port`."""
        targets = itertools.cycle([urlsplit(url) for url in urls])

        self._open = set[socket.socket]()
        opened = self._open

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                opened.add(self.request)
                try:
                    self._pass_on()
                finally:
                    opened.discard(self.request)

            def _pass_on(self) -> None:
                with _lock:
                    target = next(targets)
                with socket.create_connection((target.hostname or "", target.port or 0)) as replica:
                    back = threading.Thread(target=_pump, args=(replica, self.request), daemon=True)
                    back.start()
                    _pump(self.request, replica)
                    back.join()

        _lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def cut(self) -> None:
        """Ends all connections, so that the next call goes to the next replica."""
        for each in tuple(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256


def _pump(source: socket.socket, target: socket.socket) -> None:
    """From one to the other until either ends."""
    with suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            target.sendall(chunk)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
