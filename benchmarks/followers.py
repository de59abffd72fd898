"""How `serve` and `evict` come to know clusters of 100,000 and 300,000 pods, claims and devices:
`python -m benchmarks.followers`.

Lists come from a scripted server, which has them ready, so that the growth is that of the program: an API server with
600,000 objects and its etcd would need 20 GiB. Each runs until it knows everything. Exit codes: 0 measured, 2 the
figures cannot be had.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from benchmarks.bulk import DEVICES, claim, pod, slice_of
from benchmarks.cluster import SYNCED, Usage
from benchmarks.progress import say
from benchmarks.scripted import ScriptedServer
from benchmarks.tables import table
from tests.controlplane.pki import Authority
from tests.controlplane.processes import NotReadyError, Process, free_port
from tests.controlplane.webhook_process import our_environment

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES: Final = (100_000, 300_000)
"""Pods; each has a claim, and each claim a device."""
_ROUNDS: Final = 3
_HOST: Final = "127.0.0.1"
_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 0.1
_MIB: Final = 1024 * 1024
_LAG: Final = re.compile(r'^device_taint_webhook_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
_LAG_SUM: Final = re.compile(r"^device_taint_webhook_event_loop_lag_seconds_sum (\S+)$", re.MULTILINE)
_POLICY: Final = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"


class Cost(NamedTuple):
    """Of coming to know one cluster."""

    seconds: float
    cpu_seconds: float
    peak: float
    """Bytes resident, at most."""
    lag_mean: float
    """By how many seconds the event loop was late, on average of four looks a second."""
    lag_most: float
    """At most so many seconds, as the buckets of the histogram have it."""


def main() -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.followers", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="pods, claims and devices")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"default {_ROUNDS}")
    options = parser.parse_args()
    try:
        rows = [row for size in options.sizes for row in asyncio.run(_measured(size, options.rounds))]
    except NotReadyError as error:
        print(error, file=sys.stderr)
        return 2
    heads = ["pods, claims, devices", "who", "synced after s", "CPU s", "peak MiB", "loop late, mean ms", "at most ms"]
    print(f"\nmedians of {options.rounds} rounds\n")
    print(table(heads, rows, right=range(2, len(heads))))
    return 0


async def _measured(size: int, rounds: int) -> list[list[str]]:
    nodes = size // DEVICES
    say(f"making {nodes:,} slices, {size:,} claims and {size:,} pods")
    objects = {
        "resourceslices": _Made(slice_of, nodes),
        "resourceclaims": _Made(partial(claim, nodes=nodes), size),
        "pods": _Made(partial(pod, nodes=nodes), size),
    }
    loop = asyncio.get_running_loop()
    costs: dict[str, list[Cost]] = {"serve": [], "evict": []}
    with tempfile.TemporaryDirectory() as folder:
        async with ScriptedServer(Path(folder), objects) as server:
            for number in range(rounds + 1):  # pages are made in the first one
                for who, found in costs.items():
                    cost = await loop.run_in_executor(None, _cost, Path(folder), server.kubeconfig, who)
                    say(f"{size:,}, round {number}: {who} synced after {cost.seconds:.1f} s")
                    if number:
                        found.append(cost)
    return [[f"{size:,}", who, *_row(found)] for who, found in costs.items()]


class _Made(Sequence[Mapping[str, Any]]):
    """Objects that are made when they are asked for; all of them would need gigabytes."""

    def __init__(self, make: Callable[[int], Mapping[str, Any]], count: int) -> None:
        self._make = make
        self._numbers = range(count)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | list[Mapping[str, Any]]:
        if isinstance(index, slice):
            return [self._make(number) for number in self._numbers[index]]
        return self._make(self._numbers[index])


def _cost(folder: Path, kubeconfig: Path, who: str) -> Cost:
    metrics = f"{_HOST}:{free_port()}"
    started = time.monotonic()
    process = _start(folder, kubeconfig, who, metrics)
    try:
        process.wait_ready(lambda: SYNCED.search(_scraped(metrics)) is not None, seconds=_SECONDS)
        seconds = time.monotonic() - started
        text = _scraped(metrics)
        used = Usage.of(process.pid)
    finally:
        process.stop()
    return Cost(seconds, used.cpu_seconds, used.peak, *_lag(text))


def _start(folder: Path, kubeconfig: Path, who: str, metrics: str) -> Process:
    (folder / "policy.yaml").write_text(_POLICY)
    command = [
        *(sys.executable, "-m", "webhook", who),
        f"--kubeconfig={kubeconfig}",
        f"--policy-file={folder / 'policy.yaml'}",
        f"--health-probe-bind-address={_HOST}:{free_port()}",
        f"--metrics-bind-address={metrics}",
    ]
    if who == "serve":
        Authority("benchmark").server(_HOST).write(folder)
        command += [f"--bind-address={_HOST}", f"--port={free_port()}", f"--cert-dir={folder}"]
    else:
        command += ["--mode=replacement", "--in-tree=absent"]
    return Process(who, command, folder / f"{who}.log", environment=our_environment())


def _scraped(metrics: str) -> str:
    """The metrics; empty while they cannot be had."""
    time.sleep(_LOOK_SECONDS)
    connection = http.client.HTTPConnection(metrics, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def _lag(text: str) -> tuple[float, float]:
    buckets = [(bound, float(count)) for bound, count in _LAG.findall(text)]
    total = _LAG_SUM.search(text)
    assert total is not None
    looks = buckets[-1][1]
    most = next(bound for bound, count in buckets if count == looks)
    return float(total[1]) / max(looks, 1.0), float(most)


def _row(costs: Sequence[Cost]) -> list[str]:
    middle = Cost(*map(statistics.median, zip(*costs, strict=True)))
    return [
        f"{middle.seconds:.1f}",
        f"{middle.cpu_seconds:.1f}",
        f"{middle.peak / _MIB:.0f}",
        f"{middle.lag_mean * 1e3:.1f}",
        f"{middle.lag_most * 1e3:g}",
    ]


if __name__ == "__main__":
    sys.exit(main())
