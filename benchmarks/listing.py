"""What each way of listing a large cluster costs the API server: `python -m benchmarks.listing`.

The same objects as in `benchmarks.cluster` are read from the same kind of API server, and thrown away: as the beginning
of a watch, in pages and in one piece; as JSON, CBOR and protobuf; packed and as they are. Exit codes: 0 measured, 2 the
figures cannot be had.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import re
import statistics
import sys
import time
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from benchmarks.cluster import CLAIMS, SLICES, Usage, fill
from benchmarks.gobinaries import BenchmarkError
from benchmarks.progress import say
from benchmarks.tables import table
from tests.controlplane import assets
from tests.controlplane.client import path
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError
from webhook.cluster.client.credentials import KubeConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from webhook.cluster.client.credentials import Access

JSON: Final = "application/json"
CBOR: Final = "application/cbor"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
PROTOBUF_STREAM: Final = f"{PROTOBUF};stream=watch"
NAMES: Final = {
    JSON: "JSON",
    CBOR: "CBOR",
    PROTOBUF: "protobuf",
    PROTOBUF_STREAM: "protobuf",
}
RESOURCES: Final = ("resourceslices", "resourceclaims")
_STREAM: Final = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "watch": "true",
    "allowWatchBookmarks": "true",
    "timeoutSeconds": "300",
}
_LAST: Final = b"k8s.io/initial-events-end"
"""In the bookmark that ends the list in a watch, whatever the encoding."""
_NEXT: Final = re.compile(rb'"continue":"([^"]+)"')
"""Of a list in JSON; it begins with its metadata."""
_HEAD: Final = 4096
_OF_EACH: Final = b"creationTimestamp"
_MIB: Final = 1024 * 1024
_CHUNK: Final = 256 * 1024
_ROUNDS: Final = 3
_SECONDS: Final = 300.0


class Way(NamedTuple):
    """How the objects are requested."""

    title: str
    accept: str
    page: int = 0
    """Objects in one answer; 0 for all."""
    stream: bool = False
    """Whether they are the beginning of a watch."""
    packed: bool = False
    """Whether gzip is accepted."""


WAYS: Final = tuple(
    Way(f"{how}, {NAMES[accept]}{', gzip' if packed else ''}", accept, page, stream, packed)
    for how, page, stream, encodings in (
        ("watch that begins with the list", 0, True, (JSON, CBOR, PROTOBUF_STREAM)),
        ("pages of 500", 500, False, (JSON,)),
        ("pages of 5,000", 5000, False, (JSON,)),
        ("one piece", 0, False, (JSON, CBOR, PROTOBUF)),
    )
    for accept in encodings
    for packed in (False, True)
)


class Cost(NamedTuple):
    """Of one reading of everything."""

    seconds: float
    cpu_seconds: float
    """Of the API server."""
    received: int
    """Bytes of bodies."""
    objects: int
    """Of lists; those of watches are not counted."""


class NotServedError(Exception):
    """The API server has no such encoding."""


class Reader:
    """Reads collections from one API server, on one connection, and keeps nothing."""

    def __init__(self, access: Access) -> None:
        address = urlsplit(access.server)
        assert address.hostname is not None
        self._connection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=_SECONDS, context=access.tls
        )
        self._headers = {"Authorization": access.authorization} if access.authorization else {}

    def read(self, way: Way) -> tuple[int, int]:
        """All objects of all resources: bytes received, and the objects of lists.

        Raises: NotServedError
        """
        received = objects = 0
        for resource in RESOURCES:
            target = path("resource.k8s.io/v1", resource)
            for size, count in self._stream(way, target) if way.stream else self._pages(way, target):
                received += size
                objects += count
        return received, objects

    def _stream(self, way: Way, target: str) -> Iterator[tuple[int, int]]:
        response = self._get(way, target, _STREAM)
        unpacked = _unpacker(response)
        received, tail = 0, b""
        while chunk := response.read1(_CHUNK):
            received += len(chunk)
            tail = tail[-len(_LAST) :] + unpacked(chunk)
            if _LAST in tail:
                self._connection.close()  # it is opened again for the next request
                yield received, 0
                return
        raise BenchmarkError(f"{way.title}: the watch ended before the list did")

    def _pages(self, way: Way, target: str) -> Iterator[tuple[int, int]]:
        following = ""
        while True:
            query = {"limit": str(way.page)} if way.page else {"resourceVersion": "0"}
            if following:
                query["continue"] = following
            response = self._get(way, target, query)
            body = response.read()
            unpacked = _unpacker(response)(body)
            yield len(body), unpacked.count(_OF_EACH)
            more = _NEXT.search(unpacked, 0, _HEAD) if way.page else None
            if more is None:
                return
            following = more[1].decode()

    def _get(self, way: Way, target: str, query: dict[str, str]) -> http.client.HTTPResponse:
        headers = {"Accept": way.accept, "Accept-Encoding": "gzip" if way.packed else "identity", **self._headers}
        self._connection.request("GET", f"{target}?{urlencode(query)}", headers=headers)
        response = self._connection.getresponse()
        if response.status == http.client.OK and _is_as_requested(way, response):
            return response
        text = b"" if response.status == http.client.OK else response.read()
        self._connection.close()
        if response.status in (http.client.OK, http.client.NOT_ACCEPTABLE, http.client.UNSUPPORTED_MEDIA_TYPE):
            raise NotServedError
        raise BenchmarkError(f"{way.title}: {response.status} {text[:200]!r}")


def _is_as_requested(way: Way, response: http.client.HTTPResponse) -> bool:
    """A server that lacks an encoding answers in JSON; one that finds an answer too small does not pack it."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].removesuffix("-seq")
    packed = response.headers.get("Content-Encoding") == "gzip"
    return kind == way.accept.partition(";")[0] and (packed or not way.packed)


def _unpacker(response: http.client.HTTPResponse) -> Callable[[bytes], bytes]:
    return bytes if response.headers.get("Content-Encoding") != "gzip" else _Gzip()


class _Gzip:
    """A stream of any number of members."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def __call__(self, data: bytes) -> bytes:
        pieces = []
        while data:
            pieces.append(self._member.decompress(data))
            data = self._member.unused_data
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
        return b"".join(pieces)


def main() -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listing", description=__doc__.partition("\n")[0])
    parser.add_argument("--claims", type=int, default=CLAIMS, help="fewer, to try it out")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"default {_ROUNDS}")
    options = parser.parse_args()
    try:
        _run(options.claims, options.rounds)
    except (BenchmarkError, NotReadyError, AssetsUnavailableError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _run(count: int, rounds: int) -> None:
    say("starting etcd and kube-apiserver")
    # CBOR is alpha; a client that asks for it where it is not served is answered in JSON.
    with ControlPlane(
        assets.find(progress=say),
        feature_gates={"CBORServingAndStorage": True},
        api_server_arguments=["--storage-media-type=application/json"],
    ) as plane:
        fill(plane, count)
        reader = Reader(asyncio.run(KubeConfig(str(plane.kubeconfig)).load()))
        server = plane.processes["kube-apiserver"].pid
        costs: dict[Way, list[Cost]] = {way: [] for way in WAYS}
        for number in range(rounds):
            for way in WAYS:
                cost = _measured(reader, way, server)
                if cost is None:
                    continue
                costs[way].append(cost)
                say(f"round {number + 1}, {way.title}: {cost.cpu_seconds:.2f} s of CPU, {cost.seconds:.1f} s")
    print(f"\n{SLICES:,} slices and {count:,} claims, medians of {rounds} rounds\n")
    heads = ["way", "API server: CPU s", "sent MiB", "read after s", "objects"]
    print(table(heads, [_row(way, each) for way, each in costs.items()], right=range(1, len(heads))))


def _measured(reader: Reader, way: Way, server: int) -> Cost | None:
    """What one reading costs; None if it is not served in this way."""
    before, started = Usage.of(server), time.monotonic()
    try:
        received, objects = reader.read(way)
    except NotServedError:
        return None
    seconds = time.monotonic() - started
    return Cost(seconds, Usage.of(server).cpu_seconds - before.cpu_seconds, received, objects)


def _row(way: Way, costs: Sequence[Cost]) -> list[str]:
    if not costs:
        return [way.title, "not served", "", "", ""]
    middle = sorted(costs, key=lambda each: each.cpu_seconds)[len(costs) // 2]
    objects = f"{middle.objects:,}" if middle.objects else ""
    return [
        way.title,
        f"{middle.cpu_seconds:.2f}",
        f"{middle.received / _MIB:.0f}",
        f"{statistics.median(each.seconds for each in costs):.1f}",
        objects,
    ]


if __name__ == "__main__":
    sys.exit(main())
