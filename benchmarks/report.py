"""The figures as Markdown: all of them on the terminal and, between two markers in a document, the ratios."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load import NARROW
from benchmarks.servers import MANY_RULES, NONE, OURS, PEER, POLICY
from benchmarks.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.api_server import Latency
    from benchmarks.expressions import Evaluation
    from benchmarks.load import Result
    from benchmarks.servers import Memory


@dataclass(frozen=True, slots=True)
class Target:
    """What a ratio of requests per second, ours to the peer's, is to be."""

    floor: float | None = None
    goal: float | None = None


# By (workload, server).
TARGETS = {
    ("claims", OURS): Target(1.2, 1.7),
    ("claims", POLICY): Target(1.0, 1.4),
    ("claims", MANY_RULES): Target(goal=1.0),
    ("strangers", POLICY): Target(1.0, 1.2),
    ("strangers", MANY_RULES): Target(goal=1.0),
    ("slices", OURS): Target(4.0, 8.0),
    ("bare slices", OURS): Target(4.0, 10.0),
    ("templates", OURS): Target(goal=1.4),
    ("rules", OURS): Target(goal=1.4),
}

MANY_REPEATED = 0.1
"""Of the rounds: from there on it is said that the machine was not quiet."""
OWN_FLOOR = 0.5
"""Of our own throughput without a policy, with a thousand rules."""


@dataclass(slots=True)
class Figures:
    """All that one run measured."""

    python_version: str
    """Of the Python that `ours` runs on."""
    peer_version: str
    go_version: str
    load_average: float
    """Of the machine, over the minute before."""
    verdicts: int = 0
    results: list[Result] = field(default_factory=list)
    memory: dict[str, tuple[Memory, Memory]] = field(default_factory=dict)
    """By server: idle, and after all load."""
    ready_seconds: dict[str, list[float]] = field(default_factory=dict)
    latencies: list[Latency] = field(default_factory=list)
    expressions: list[Evaluation] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def missed(self) -> list[str]:
        """Floors that were not reached."""
        return [
            f"{result.workload.title}, {server}: {ratio:.2f} of the peer's requests per second, floor {target.floor:g}"
            for result, server, ratio, _, target in self._ratios()
            if target is not None and target.floor is not None and ratio < target.floor
        ] + [
            f"{result.workload.title}, {server}: {ratio:.2f} of ours without a policy, floor {OWN_FLOOR:g}"
            for result, server, ratio in self._costs()
            if server == MANY_RULES and ratio < OWN_FLOOR
        ]

    def markdown(self) -> str:
        """Tables with a heading each."""
        parts = [self._setting(), self._throughput(), self._comparison(), self._policy(), self._processes()]
        if self.latencies:
            parts.append(self._through_api_server())
        remarks = [*self.remarks, *(remark for result in self.results for remark in _doubts(result))]
        if remarks:
            parts.append("\n".join(["Remarks on this run:", "", *(f"- {remark}" for remark in remarks)]))
        return "\n\n".join(parts) + "\n"

    def ratios(self) -> str:
        """What a reader of the documents wants to know."""
        servers = list(dict.fromkeys(server for _, server, *_ in self._ratios()))
        found: dict[str, dict[str, str]] = {}
        floors: dict[str, str] = {}
        for result, server, ratio, _, target in self._ratios():
            found.setdefault(result.workload.title, {})[server] = f"{ratio:.2f}"
            if server == OURS:
                floors[result.workload.title] = f"{target.floor:g}" if target and target.floor else ""
        rows = [[title, *(of.get(server, "") for server in servers), floors[title]] for title, of in found.items()]
        heads = ["reviews a second, as a multiple", *servers, f"floor of {OURS}"]
        begin = (
            f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}: {_processor()}, Python {self.python_version},"
            f" {self.go_version}, controller-runtime {self.peer_version}."
        )
        return (
            "\n\n".join([begin, table(heads, rows, right=range(1, len(heads))), "\n".join(self._beside_the_peer())])
            + "\n"
        )

    def _beside_the_peer(self) -> Iterable[str]:
        """Memory, start and what a create waits for, a line each."""
        if OURS in self.memory and PEER in self.memory:
            ours, peer = (self.memory[server][1].resident for server in (OURS, PEER))
            yield f"- memory after load: {_mib(ours)} MiB, peer {_mib(peer)} MiB ({ours / peer:.1f} times)"
        if OURS in self.ready_seconds and PEER in self.ready_seconds:
            ours_ms, peer_ms = (statistics.median(self.ready_seconds[server]) * 1e3 for server in (OURS, PEER))
            yield f"- ready after {ours_ms:.0f} ms, peer {peer_ms:.0f} ms"
        p50 = {(latency.kind, latency.server): latency.p50_ms for latency in self.latencies}
        for kind in dict.fromkeys(latency.kind for latency in self.latencies):
            added = {server: p50[kind, server] - p50[kind, NONE] for server in (OURS, PEER)}
            yield f"- added to a create of a {kind} (p50): {added[OURS]:.2f} ms, peer {added[PEER]:.2f} ms"

    def _setting(self) -> str:
        return (
            f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}: {_processor()}, Python"
            f" {self.python_version}, {self.go_version}, controller-runtime {self.peer_version}. Load average"
            f" before: {self.load_average:.2f}. All servers gave the same verdict (allowed or not, fields, reasons) on"
            f" {self.verdicts} reviews, valid and broken. Ciphers: {self._ciphers}."
        )

    @property
    def _ciphers(self) -> str:
        """What each server chose; it is part of what a request costs."""
        chosen = {server: samples[0].cipher for result in self.results for server, samples in result.samples.items()}
        return ", ".join(f"{server} {cipher}" for server, cipher in sorted(chosen.items()))

    def _throughput(self) -> str:
        rows = [
            [
                result.workload.title,
                f"{result.workload.size / 1e3:.1f} KB",
                server,
                f"{result.median(server, lambda s: s.per_second):,.0f}",
                f"{result.median(server, lambda s: s.p50_ms):.2f}",
                f"{result.median(server, lambda s: s.p99_ms):.2f}",
                f"{result.median(server, lambda s: s.cpu_us):,.0f}",
                f"{result.median(server, lambda s: s.server_busy):.0%}",
                f"{result.median(server, lambda s: s.load_busy):.0%}",
            ]
            for result in self.results
            for server in result.samples
        ]
        heads = [
            "review",
            "size",
            "server",
            "requests/s",
            "p50 ms",
            "p99 ms",
            "CPU µs each",
            "server core",
            "load core",
        ]
        return "### Reviews a second\n\n" + table(heads, rows, right=range(3, 9))

    def _comparison(self) -> str:
        rows = []
        for result, server, ratio, ratios, target in self._ratios():
            floor = f"{target.floor:g}" if target and target.floor else ""
            goal = f"{target.goal:g}" if target and target.goal else ""
            interval = result.interval(server, PEER)
            spread = "unknown" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
            by_cpu = result.median(PEER, lambda s: s.cpu_us) / result.median(server, lambda s: s.cpu_us)
            title = result.workload.title
            rows.append(
                [
                    title,
                    server,
                    f"{ratio:.2f}",
                    spread,
                    f"{len(ratios)} of {result.rounds}",
                    f"{by_cpu:.2f}",
                    floor,
                    goal,
                ]
            )
        heads = ["review", "server", "requests/s", "median, 95 % sure", "rounds", "per CPU second", "floor", "goal"]
        return "### Ours as a multiple of the peer\n\n" + table(heads, rows, right=range(2, 8))

    def _ratios(self) -> Iterable[tuple[Result, str, float, list[float], Target | None]]:
        for result in self.results:
            for server in result.samples:
                if server != PEER:
                    ratios = sorted(result.ratios(server, PEER))
                    middle = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2
                    yield result, server, middle, ratios, TARGETS.get((result.workload.name, server))

    def _costs(self) -> Iterable[tuple[Result, str, float]]:
        """Requests per second with a policy, to those of ours without one."""
        for result in self.results:
            for server in (POLICY, MANY_RULES):
                if server in result.samples:
                    yield result, server, statistics.median(result.ratios(server, OURS))

    def _policy(self) -> str:
        rows = [
            [result.workload.title, server, f"{ratio:.2f}", f"{OWN_FLOOR:g}" if server == MANY_RULES else ""]
            for result, server, ratio in self._costs()
        ]
        throughput = table(["review", "server", "of ours without", "floor"], rows, right=range(2, 4))
        cel = [[f"`{each.source}`", f"{each.compile_ms:.1f}", f"{each.evaluate_us:.0f}"] for each in self.expressions]
        evaluated = table(["expression (`when`)", "compiled once, ms", "each evaluation, µs"], cel, right=range(1, 3))
        return f"### What a policy costs\n\n{throughput}\n\n{evaluated}"

    def _processes(self) -> str:
        rows = []
        for server, (idle, loaded) in self.memory.items():
            seconds = sorted(self.ready_seconds.get(server, []))
            ms = [f"{value * 1e3:.0f}" for value in seconds]
            ready = f"{ms[len(ms) // 2]} ({ms[0]} to {ms[-1]})" if ms else ""
            rows.append([server, _mib(idle.resident), _mib(loaded.resident), _mib(loaded.peak), ready])
        heads = ["server", "idle MiB", "after load MiB", "peak MiB", "ready after ms"]
        return "### Memory and start\n\n" + table(heads, rows, right=range(1, 5))

    def _through_api_server(self) -> str:
        without = {latency.kind: latency for latency in self.latencies if latency.server == NONE}
        rows = []
        for latency in self.latencies:
            base = without[latency.kind]
            added = [f"{latency.p50_ms - base.p50_ms:+.2f}", f"{latency.p99_ms - base.p99_ms:+.2f}"]
            figures = [f"{latency.p50_ms:.2f}", f"{latency.p99_ms:.2f}"]
            rows.append([latency.kind, latency.server, *figures, *(["", ""] if latency is base else added)])
        heads = ["create of", "webhook", "p50 ms", "p99 ms", "added p50 ms", "added p99 ms"]
        return "### A create through an API server\n\n" + table(heads, rows, right=range(2, 6))


def _doubts(result: Result) -> Iterable[str]:
    """What makes figures of a workload doubtful."""
    yield from result.remarks
    repeated = result.rounds - len(result.samples[PEER])
    if repeated > MANY_REPEATED * result.rounds:
        yield f"{result.workload.title}: {repeated} of {result.rounds} rounds were disturbed by other programs"
    wide = [server for server in result.samples if server != PEER and not result.known(server, PEER)]
    if wide:
        text = f"the interval of the median is wider than {NARROW:.0%} of it"
        yield f"{result.workload.title}: {text} ({'; '.join(wide)})"


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f}"


def _processor() -> str:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return f"{os.cpu_count()} cores of {model}"
