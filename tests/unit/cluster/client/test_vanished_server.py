"""A server behind a network that begins to drop all packets: no answer, no reset, nothing but silence."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from webhook.cluster.client.connections import Connections

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
"""It waits for half a minute, and is idle meanwhile."""

_NETWORK: Final = f"198.18.{os.getpid() % 250}"
"""Of the range for tests between networks (RFC 2544)."""
_HERE, _THERE = f"{_NETWORK}.1", f"{_NETWORK}.2"
_PORT: Final = 7443
_SERVER: Final = f"""
import socket
listening = socket.create_server(("{_THERE}", {_PORT}))
print("listening", flush=True)
connection, _ = listening.accept()
connection.sendall(b"first")
connection.recv(1)
"""


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no network namespaces here: {done.stderr.strip()}")


@contextmanager
def _other_host() -> Iterator[str]:
    """A network namespace with an address of its own, and its name."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and ip (Debian: iproute2)")
    name, near, far = (f"{kind}{os.getpid()}" for kind in ("dtns", "dtn", "dtf"))
    _ip("netns", "add", name)
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _ip("addr", "add", f"{_HERE}/30", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", name, "addr", "add", f"{_THERE}/30", "dev", far)
        _ip("-n", name, "link", "set", far, "up")
        # Its address on the wire stays known, so that the kernel here does not learn that it is gone.
        shown = subprocess.run(
            ["ip", "-n", name, "-o", "link", "show", far], capture_output=True, text=True, check=True
        )
        wire = shown.stdout.partition("link/ether ")[2].split()[0]
        _ip("neigh", "replace", _THERE, "lladdr", wire, "dev", near, "nud", "permanent")
        yield name
    finally:
        # The namespace lives on for as long as the kernel keeps the server's connection.
        subprocess.run(["ip", "link", "del", near], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def test_connection_to_a_server_that_vanished_ends() -> None:
    """L8: what a watch has shown is acted on for as long as its connection seems to be there."""

    async def read() -> float:
        loop = asyncio.get_running_loop()
        connections = Connections()
        family = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (_THERE, _PORT))
        made = connections.socket(family)
        made.setblocking(False)  # noqa: FBT003 -- its name in the library
        await loop.sock_connect(made, (_THERE, _PORT))
        reader, writer = await asyncio.open_connection(sock=made)
        assert await reader.readexactly(5) == b"first"
        _ip("-n", name, "addr", "flush", "dev", name.replace("dtns", "dtf"))
        silent_since = time.monotonic()
        with pytest.raises(OSError, match="timed out"):
            await asyncio.wait_for(reader.read(1), 120)
        writer.close()
        return time.monotonic() - silent_since

    with _other_host() as name:
        command = ["ip", "netns", "exec", name, sys.executable, "-c", _SERVER]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
            try:
                assert asyncio.run(read()) < 45  # what client-go takes
            finally:
                server.kill()
