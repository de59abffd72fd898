"""A cluster of 100,000 devices and claims, followed by `serve` and by informers of client-go.

    python -m benchmarks.cluster


A real API server holds the objects; they are written to its etcd, since a hundred thousand creates would take longer
than all the rest. Then 2,000 changes of claims a second come from a scripted server while reviews are timed.

Exit codes:
0 measured, 1 a floor was missed (with --check), 2 the figures cannot be had.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks import bodies, gobinaries
from benchmarks.bulk import EtcdWriter, claims, slices
from benchmarks.gobinaries import BenchmarkError
from benchmarks.progress import say
from benchmarks.scripted import ScriptedServer
from benchmarks.tables import table
from tests.controlplane import assets
from tests.controlplane.client import Client, path
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError, wait_until
from tests.controlplane.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

SLICES: Final = 2000
CLAIMS: Final = 100_000
EVENTS_PER_SECOND: Final = 2000
SYNC_FLOOR_SECONDS: Final = 10.0
MEMORY_FLOOR_MIB: Final = 300.0
LATENCY_FLOOR: Final = 3.0
_REPLICAS: Final = 3
_ROUNDS: Final = 3
_REVIEWS: Final = 1000
SYNCED: Final = re.compile(r"^device_taint_webhook_inventory_synced 1(?:\.0)?$", re.MULTILINE)
_MIB: Final = 1024 * 1024
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """What a process has used so far: CPU seconds, bytes resident now and at most, bytes written."""

    cpu_seconds: float
    resident: int
    peak: int
    written: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Of a running process, from /proc."""
        root = Path(f"/proc/{pid}")
        fields = (root / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines() if ":" in line)
        written = re.search(r"^wchar: (\d+)$", (root / "io").read_text(), re.MULTILINE)
        assert written is not None
        resident, peak = [int(status[field].split()[0]) * 1024 for field in ("VmRSS", "VmHWM")]
        return cls(ticks / _TICKS, resident, peak, int(written[1]))


class Followed(NamedTuple):
    """How one or more followers came to know everything."""

    who: str
    seconds: float
    resident: int
    """Of one of them, in bytes."""
    server: Usage
    """What the API server used for it; its resident memory is the whole."""


def main() -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if a floor was missed")
    parser.add_argument("--claims", type=int, default=CLAIMS, help="fewer, to try it out")
    options = parser.parse_args()
    try:
        missed = _run(options.claims)
    except (BenchmarkError, NotReadyError, AssetsUnavailableError) as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if options.check and missed else 0


def _run(count: int) -> list[str]:
    say("building client-go's informers")
    gobinaries.build(say)
    followed = _follow(count)
    heads = ["who", "synced after s", "resident MiB", "API server: CPU s", "sent MiB", "resident MiB"]
    rows = [
        [
            each.who,
            f"{each.seconds:.1f}",
            f"{each.resident / _MIB:.0f}",
            f"{each.server.cpu_seconds:.1f}",
            f"{each.server.written / _MIB:.0f}",
            f"{each.server.resident / _MIB:.0f}",
        ]
        for each in followed
    ]
    print(f"\n{SLICES * 50:,} devices in {SLICES:,} slices, {count:,} claims in a real API server\n")
    print(table(heads, rows, right=range(1, len(heads))))
    idle, busy, events = asyncio.run(_latencies())
    ratio = _p99(busy) / _p99(idle)
    print(f"\n{events:,.0f} changes of claims a second from a scripted server, and a review every 10 ms\n")
    rows = [
        [name, f"{statistics.median(s) * 1e3:.2f}", f"{_p99(s) * 1e3:.2f}"]
        for name, s in (("idle", idle), ("busy", busy))
    ]
    print(table(["/validate", "p50 ms", "p99 ms"], rows, right=(1, 2)))
    print(f"\np99 under these changes is {ratio:.2f} of the idle one")
    ours = followed[0]
    return [
        text
        for text, bad in (
            (f"synced after {ours.seconds:.1f} s", ours.seconds > SYNC_FLOOR_SECONDS),
            (f"{ours.resident / _MIB:.0f} MiB", ours.resident > MEMORY_FLOOR_MIB * _MIB),
            (f"p99 {ratio:.2f} times", ratio > LATENCY_FLOOR),
            (f"{events:.0f} changes a second", events < EVENTS_PER_SECOND * 0.95),
        )
        if bad
    ]


# --- the first list -------------------------------------------------------------------------------


def _follow(count: int) -> list[Followed]:
    say("starting etcd and kube-apiserver")
    with ControlPlane(
        assets.find(progress=say), api_server_arguments=["--storage-media-type=application/json"]
    ) as plane:
        fill(plane, count)
        rounds = [(_webhook(plane, 1, "serve"), _informer(plane)) for _ in range(_ROUNDS)]
        return [
            *[_median(of_one) for of_one in zip(*rounds, strict=True)],
            _webhook(plane, _REPLICAS, f"serve, {_REPLICAS} replicas at once"),
        ]


def fill(plane: ControlPlane, count: int) -> None:
    """The objects, with that number of claims, as soon as the API server has read them from etcd itself.

    The first to ask would wait for that.
    """
    say(f"writing {SLICES:,} slices and {count:,} claims to etcd")
    with EtcdWriter(plane.folder) as etcd:
        etcd.write(slices(SLICES))
        etcd.write(claims(count, SLICES))
    claim_list = path("resource.k8s.io/v1", "resourceclaims")
    say("waiting for the API server to have read all of it")

    def read() -> bool:
        return len(plane.client.get(f"{claim_list}?resourceVersion=0").items) == count

    wait_until(read, "the API server's own cache", seconds=300)


def _median(rounds: Sequence[Followed]) -> Followed:
    """The round in the middle, by seconds."""
    return sorted(rounds, key=lambda each: each.seconds)[len(rounds) // 2]


def _webhook(plane: ControlPlane, replicas: int, who: str) -> Followed:
    say(f"{who}: starting")
    server = plane.processes["kube-apiserver"].pid
    before, started = Usage.of(server), time.monotonic()
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(WebhookProcess(f"--kubeconfig={plane.kubeconfig}", standalone=False))
            for _ in range(replicas)
        ]
        wait_until(lambda: all(SYNCED.search(each.metrics()) for each in running), f"{who} synced", seconds=300)
        seconds = time.monotonic() - started
        after = Usage.of(server)
        resident = max(Usage.of(each.process.pid).resident for each in running)
    return Followed(who, seconds, resident, _difference(before, after))


def _informer(plane: ControlPlane) -> Followed:
    say("client-go's informers: starting")
    server = plane.processes["kube-apiserver"].pid
    before = Usage.of(server)
    command = [str(gobinaries.cache_folder() / "informer"), f"--kubeconfig={plane.kubeconfig}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            after = Usage.of(server)
        finally:
            process.terminate()
    return Followed("client-go's informers", said["seconds"], said["residentBytes"], _difference(before, after))


def _difference(before: Usage, after: Usage) -> Usage:
    return after._replace(cpu_seconds=after.cpu_seconds - before.cpu_seconds, written=after.written - before.written)


# --- events ---------------------------------------------------------------------------------------


async def _latencies() -> tuple[list[float], list[float], float]:
    """Seconds of each review without and with changes coming in, and how many changes came a second."""
    with tempfile.TemporaryDirectory() as folder:
        async with ScriptedServer(Path(folder)) as server:
            loop = asyncio.get_running_loop()
            webhook = WebhookProcess(f"--kubeconfig={server.kubeconfig}", standalone=False)
            await loop.run_in_executor(None, webhook.__enter__)
            try:
                say("timing reviews without changes")
                idle = await loop.run_in_executor(None, _time_reviews, webhook)
                say(f"timing reviews with {EVENTS_PER_SECOND:,} changes of claims a second")
                async with server.changing(EVENTS_PER_SECOND):
                    sent, started = server.sent, time.monotonic()
                    busy = await loop.run_in_executor(None, _time_reviews, webhook)
                    rate = (server.sent - sent) / (time.monotonic() - started)
            finally:
                await loop.run_in_executor(None, webhook.__exit__, None, None, None)
    return idle, busy, rate


def _time_reviews(webhook: WebhookProcess) -> list[float]:
    import ssl  # noqa: PLC0415 -- only this part needs it

    client = Client(webhook.base_url, ssl.create_default_context(cadata=webhook.ca_pem.decode()))
    reviews = [json.loads(body) for body in bodies.claims()]
    seconds = []
    try:
        for number in range(_REVIEWS + 50):
            started = time.perf_counter()
            answer = client.request("POST", "/validate", reviews[number % len(reviews)])
            if number >= 50:
                seconds.append(time.perf_counter() - started)
            assert answer.ok, answer
            time.sleep(0.01)
    finally:
        client.close()
    return seconds


def _p99(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


if __name__ == "__main__":
    sys.exit(main())
