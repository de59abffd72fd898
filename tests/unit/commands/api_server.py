"""An API server that answers from tables, for commands that look at a cluster once."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import yaml

_GROUP: Final = "/apis/resource.k8s.io/v1"
_PATHS: Final = {
    "DeviceClass": f"{_GROUP}/deviceclasses",
    "DeviceTaintRule": f"{_GROUP}/devicetaintrules",
    "ResourceClaim": f"{_GROUP}/resourceclaims",
    "ResourceClaimTemplate": f"{_GROUP}/resourceclaimtemplates",
    "ResourceSlice": f"{_GROUP}/resourceslices",
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
}


class ApiServer:
    """Objects by collection, single objects by path; a number instead is a refusal. Pages hold two objects."""

    def __init__(self) -> None:
        self.collections: dict[str, list[Any]] = {}
        self.objects: dict[str, Any] = {}
        self.forgetful = False
        self.asked: list[str] = []
        self.connections = 0
        self.sent: list[tuple[str, str, Any]] = []
        """Method, target and object of everything that was to be written."""
        self.verdict: tuple[int, Any] = 200, {}
        """The answer to that."""
        self.warnings: list[str] = []
        """Warning headers of each answer."""

    def answer(self, target: str) -> tuple[int, Any]:
        self.asked.append(target)
        url = urlsplit(target)
        if url.path in self.collections:
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            return self.page(self.collections[url.path], query)
        found = self.objects.get(url.path, 404)
        return (found, {"kind": "Status"}) if isinstance(found, int) else (200, found)

    def page(self, items: list[Any], query: dict[str, str]) -> tuple[int, Any]:
        start = int(query.get("continue", "0"))
        if start and self.forgetful:
            return 410, {"kind": "Status", "reason": "Expired"}
        if "limit" not in query:
            return 200, {"metadata": {"resourceVersion": "1"}, "items": items}
        following = str(start + 2) if start + 2 < len(items) else ""
        metadata = {"resourceVersion": "1", "continue": following}
        return 200, {"metadata": metadata, "items": items[start : start + 2]}

    def write(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        self.sent.append((method, target, json.loads(body)))
        return self.verdict

    def delete(self, target: str) -> tuple[int, Any]:
        """A path whose object is a refusal stays."""
        self.sent.append(("DELETE", target, None))
        answer = self.answer(target)
        if answer[0] == 200:
            del self.objects[target]
        return answer


@contextlib.contextmanager
def serving(tables: ApiServer, folder: Path) -> Iterator[None]:
    """Serves the tables, and leaves a file `kubeconfig` in the folder, whose context is called `here`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            tables.connections += 1
            super().setup()

        def do_GET(self) -> None:
            self.reply(*tables.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(*tables.write(self.command, self.path, body))

        do_PUT = do_POST  # noqa: N815 -- its name

        def do_DELETE(self) -> None:
            with_options = int(self.headers["Content-Length"] or 0) > 0
            if with_options:
                self.do_POST()
            else:
                self.reply(*tables.delete(self.path))

        def reply(self, code: int, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            for text in tables.warnings:
                self.send_header("Warning", f'299 - "{text}"')
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- its name
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def cluster_of(*manifests: Any, empty: Iterable[str] = ()) -> ApiServer:
    """A server that has these objects, and serves their kinds; of those that are empty there are none."""
    tables = ApiServer()
    for kind in [*[each["kind"] for each in manifests], *empty]:
        tables.collections[_PATHS[kind]] = [bare(each) for each in manifests if each["kind"] == kind]
    served = [path.rpartition("/")[2] for path in tables.collections if path.startswith(_GROUP)]
    tables.objects = {_GROUP: {"resources": [{"name": name} for name in served]}}
    return tables


def bare(manifest: Any) -> Any:
    """As items of a list come."""
    return {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}}
