"""A mirror of the package index on this machine, with a certificate of its own CA: what an air gap has.

It serves the locked wheels for every architecture of the image, from a cache that is filled once.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import ssl
import sys
import tempfile
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

from release.bases import ARCHITECTURES, cache_root, run
from release.contents import platforms, tools
from release.images import Mirror
from tests.controlplane.pki import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
_LOCK: Final = ROOT / "requirements.lock"
_GLIBC_MINOR: Final = 41  # Debian 13's


@contextmanager
def mirror(folder: Path) -> Iterator[tuple[Mirror, list[str]]]:
    """The mirror, while it serves, and the paths that were asked for. The folder is for its key."""
    authority = Authority("mirror-ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server("localhost").write(folder))
    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Index, asked, wheels())) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Mirror(f"https://localhost:{server.server_port}/simple", authority.pem.decode()), asked
        server.shutdown()
        thread.join()


def wheels() -> Path:
    """The folder of all wheels that a build installs, downloaded now (seconds) if it is not in the cache."""
    backend = "".join(tools((ROOT / "requirements-dev.lock").read_text()))
    digest = hashlib.sha256(backend.encode() + _LOCK.read_bytes()).hexdigest()[:16]
    folder = cache_root() / "bases" / f"wheels-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            staging = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
            needed = staging / "requirements-build.lock"
            needed.write_text(backend)
            _download(needed, staging, "--python-version=3.13")
            for architecture in ARCHITECTURES:
                _download(_LOCK, staging, "--python-version=3.13", *platforms(architecture, _GLIBC_MINOR))
            staging.rename(folder)
    return folder


def _download(lock: Path, folder: Path, *options: str) -> None:
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "--only-binary=:all:", "--no-deps", *options, "-d", str(folder), "-r", str(lock))


class _Index(SimpleHTTPRequestHandler):
    """The simple index: a page of links for each package, and the files."""

    def __init__(self, asked: list[str], folder: Path, *args: object) -> None:
        self._asked = asked
        self._folder = folder
        super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]  # what the server gives

    def do_GET(self) -> None:
        self._asked.append(self.path)
        package = re.fullmatch(r"/simple/([a-z0-9-]+)/", self.path)
        if package is None:
            super().do_GET()
            return
        names = [path.name for path in sorted(self._folder.glob("*.whl")) if _package(path) == package[1]]
        page = "".join(f'<a href="/{name}">{name}</a>\n' for name in names).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        pass


def _package(wheel: Path) -> str:
    return re.sub(r"[-_.]+", "-", wheel.name.partition("-")[0]).lower()
