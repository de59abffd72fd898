"""Throughput: the load generator against all servers in turns, in rounds."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.gobinaries import BenchmarkError
from benchmarks.servers import on_core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.gobinaries import Progress
    from benchmarks.servers import Certificates, Cores, Server

CONNECTIONS = 16
# Above this share of its core the load generator, not the server, may be what limits.
_LOAD_LIMIT = 0.95
# Below this share of its core the server did not get all the work or all the time it could have had.
_SERVER_BUSY = 0.9
# Calm rounds that may stand for all.
_ENOUGH = 3
NARROW = 0.05
"""A median is known well enough if its interval is narrower than this share of it."""
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of the load generator."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """CPU time of the server per request."""
    server_busy: float
    """Share of its core."""
    load_busy: float
    """Share of its core that the load generator used."""
    cipher: str

    @property
    def disturbed(self) -> bool:
        """Something else was at work on the server's core, or the load did not suffice."""
        return self.server_busy < _SERVER_BUSY


@dataclass(frozen=True, slots=True)
class Workload:
    """The bodies of one kind of review, as files, and for how long they are sent."""

    name: str
    title: str
    files: Sequence[Path]
    size: int
    """Of one body, in bytes."""
    seconds: float
    rounds: int
    """At least."""
    most_rounds: int
    """Where the medians of fewer are not known well enough."""


@dataclass(frozen=True, slots=True)
class Result:
    """The samples of one workload that count, by server, a round each."""

    workload: Workload
    samples: dict[str, list[Sample]]
    rounds: int
    """As many there were, with those that do not count."""

    def median(self, server: str, figure: Callable[[Sample], float]) -> float:
        """Over the rounds."""
        return statistics.median(figure(sample) for sample in self.samples[server])

    def ratios(self, server: str, other: str) -> list[float]:
        """Requests per second of the server to those of the other, one for each round."""
        pairs = zip(self.samples[server], self.samples[other], strict=True)
        return [mine.per_second / theirs.per_second for mine, theirs in pairs]

    def interval(self, server: str, other: str) -> tuple[float, float] | None:
        """Where the median of those ratios lies with a confidence of 95 %; None if there are too few rounds to say."""
        return median_interval(self.ratios(server, other))

    def known(self, server: str, other: str) -> bool:
        """Whether that interval is narrow."""
        interval = self.interval(server, other)
        return interval is not None and interval[1] - interval[0] < NARROW * statistics.median(
            self.ratios(server, other)
        )

    @property
    def remarks(self) -> list[str]:
        """What makes a figure doubtful."""
        crowded = [name for name, some in self.samples.items() if max(each.load_busy for each in some) > _LOAD_LIMIT]
        idle = [name for name, some in self.samples.items() if any(sample.disturbed for sample in some)]
        remarks = {
            "the load generator was at its limit": crowded,
            f"used less than {_SERVER_BUSY:.0%} of a core in too many rounds": idle,
        }
        return [f"{self.workload.title}: {text} ({'; '.join(names)})" for text, names in remarks.items() if names]


class LoadGenerator:
    """Runs the Go program on its core."""

    def __init__(self, executable: Path, certificates: Certificates, cores: Cores) -> None:
        self._executable = executable
        self._certificates = certificates
        self._core = cores.load

    def samples(self, servers: Sequence[Server], files: Sequence[Path], seconds: float) -> dict[str, Sample]:
        """Loads each server for as long, by name. They take turns of a tenth of a second.

        Raises: BenchmarkError if any answer was not what it should be.
        """
        command: list[object] = ["-ca-file", self._certificates.ca_file, "-connections", CONNECTIONS]
        for server in servers:
            command += ["-url", server.url]
        command += ["-duration", f"{seconds}s", *files]
        with on_core(self._core):
            process = subprocess.Popen(
                [str(part) for part in (self._executable, *command)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "GOMAXPROCS": "1"},
            )
        try:
            connected = process.stdout is not None and process.stdout.readline()
            before = [server.cpu_seconds for server in servers]
            stdout, stderr = process.communicate(timeout=seconds * len(servers) + 60)
        except BaseException:
            process.kill()
            process.wait()
            raise
        used = [server.cpu_seconds - first for server, first in zip(servers, before, strict=True)]
        if process.returncode or not connected:
            raise BenchmarkError(f"load generator: {stderr.decode().strip()}")
        reports = zip(servers, json.loads(stdout), used, strict=True)
        return {server.name: _sample(server, report, seconds_used) for server, report, seconds_used in reports}


def _sample(server: Server, report: dict[str, Any], seconds_used: float) -> Sample:
    if report["errors"] or report["notOK"] or report["wrongUID"] or not report["requests"]:
        raise BenchmarkError(f"{server.name} did not answer every review: {json.dumps(report)}")
    return Sample(
        per_second=report["perSecond"],
        p50_ms=report["p50Microseconds"] / 1e3,
        p99_ms=report["p99Microseconds"] / 1e3,
        cpu_us=seconds_used / report["requests"] * 1e6,
        server_busy=seconds_used / report["seconds"],
        load_busy=report["loadCPU"],
        cipher=report["cipher"],
    )


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Where the median of what the values are a sample of lies with a confidence of 95 %, whatever its distribution.

    The number of values below it is binomial, so two of the sorted values are the bounds. None for fewer than 6 values.
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0.0, -1
    while below + 1 < count // 2:
        outside += 2 * math.comb(count, below + 1) / 2**count
        if outside > 1 - _CONFIDENCE:
            break
        below += 1
    return None if below < 0 else (ordered[below], ordered[count - 1 - below])


def run(
    generator: LoadGenerator, workload: Workload, servers: Sequence[Server], base: str, progress: Progress
) -> Result:
    """All rounds of a workload, in each of which the servers take turns: A B, B A, A B.

    So whatever else the machine does slows all of them down. There are more rounds until each server's ratio to the one
    named `base` is known well enough. Disturbed ones are made up for, up to twice as many as would do; if hardly any is
    calm, all count, with a remark.
    """
    generator.samples(servers, workload.files, min(1.0, workload.seconds))  # warm-up, not counted
    rounds: list[dict[str, Sample]] = []
    calm: list[dict[str, Sample]] = []
    while len(rounds) < 2 * workload.most_rounds and not _enough(workload, calm, base):
        this = generator.samples(servers, workload.files, workload.seconds)
        rounds.append(this)
        if not any(sample.disturbed for sample in this.values()):
            calm.append(this)
        figures = ", ".join(f"{server.name} {this[server.name].per_second:,.0f}" for server in servers)
        state = "" if calm and calm[-1] is this else " (disturbed)"
        progress(f"{workload.title}, round {len(rounds)}, requests a second: {figures}{state}")
    kept = calm if len(calm) >= min(_ENOUGH, workload.rounds) else rounds
    return _result(workload, kept, len(rounds))


def _enough(workload: Workload, calm: Sequence[dict[str, Sample]], base: str) -> bool:
    if len(calm) >= workload.most_rounds:
        return True
    if len(calm) < workload.rounds:
        return False
    so_far = _result(workload, calm, len(calm))
    return all(so_far.known(server, base) for server in so_far.samples if server != base)


def _result(workload: Workload, kept: Sequence[dict[str, Sample]], rounds: int) -> Result:
    return Result(workload, {server: [this[server] for this in kept] for server in kept[0]}, rounds)
