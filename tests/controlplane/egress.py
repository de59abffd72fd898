"""What lies between an API server and a Service, where no node has a network: every connection leads to one port.

API servers can be told to connect to the cluster through a proxy (EgressSelectorConfiguration). So Services, webhook
configurations and certificates stay as they are shipped, and the process at the other end is on this machine.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from pathlib import Path
from typing import Final, Self

_END: Final = b"\r\n\r\n"


class EgressProxy:
    """Answers CONNECT on a Unix socket while the block lasts, whatever the address; refuses while no port is set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        """Where connections lead, on 127.0.0.1; 0 for nowhere, as if no pod were ready."""

    @property
    def argument(self) -> str:
        """The flag of the API server."""
        configuration = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [
                {
                    "name": "cluster",
                    "connection": {
                        "proxyProtocol": "HTTPConnect",
                        "transport": {"uds": {"udsName": str(self.folder / "egress.sock")}},
                    },
                }
            ],
        }
        file = self.folder / "egress.json"
        file.write_text(json.dumps(configuration))
        return f"--egress-selector-config-file={file}"

    def __enter__(self) -> Self:
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                proxy.connect(self.request)

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self._server = Server(str(self.folder / "egress.sock"), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def connect(self, client: socket.socket) -> None:
        """Reads one CONNECT, and carries bytes both ways until either side ends."""
        request = b""
        while not request.endswith(_END):
            received = client.recv(1)  # nothing behind the end may be taken
            if not received:
                return
            request += received
        try:
            target = socket.create_connection(("127.0.0.1", self.port), timeout=10) if self.port else None
        except OSError:
            target = None
        if target is None:
            client.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
            return
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        target.settimeout(None)
        with target:
            back = threading.Thread(target=_carry, args=(target, client), daemon=True)
            back.start()
            _carry(client, target)
            back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
