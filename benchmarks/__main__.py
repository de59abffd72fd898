"""Runs this project's server and a Go webhook with the same checks side by side, and prints what they do.

Each server in turn gets one core, the load generator another. Exit codes: 0 measured, 1 a floor was missed (with
--check), 2 the figures cannot be had, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import (
    api_server,
    bodies,
    expressions,
    gobinaries,
    interpreters,
    load,
    policies,
    servers,
    tables,
    verdicts,
)
from benchmarks.gobinaries import BenchmarkError
from benchmarks.load import LoadGenerator, Workload
from benchmarks.report import Figures
from benchmarks.servers import MANY_RULES, OURS, PEER, POLICY, Certificates, Command, Cores, Server
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.processes import NotReadyError

if TYPE_CHECKING:
    from collections.abc import Iterable

DOCUMENT = interpreters.ROOT / "docs" / "development" / "performance.md"


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure."""

    rounds: int
    """At least, of each kind of review."""
    most_rounds: int
    """Where the medians of fewer are not known well enough."""
    seconds: float
    starts: int
    creates: int
    """Through the API server, per kind and webhook; 0 for none."""


FULL = Plan(rounds=20, most_rounds=80, seconds=0.6, starts=7, creates=api_server.CREATES)
QUICK = Plan(rounds=3, most_rounds=3, seconds=0.6, starts=3, creates=0)


class Benchmark:
    """One run; everything it starts has ended when `run` returns."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._started = time.monotonic()
        self._cores = Cores.here()
        self._certificates = Certificates(folder)
        self._python = interpreters.HERE

    def run(self) -> Figures:
        """Measures.

        Raises: BenchmarkError, NotReadyError or AssetsUnavailableError if the figures cannot be had.
        """
        executable, generator = gobinaries.build(self._progress)
        self._python, missing = interpreters.of_image()
        figures = Figures(
            python_version=self._python.version,
            peer_version=gobinaries.peer_version(),
            go_version=gobinaries.go_version(),
            load_average=os.getloadavg()[0],
        )
        if missing:
            figures.remarks.append(missing)
        self._measure_starts(figures, executable)
        with contextlib.ExitStack() as stack:
            running = {
                command.name: stack.enter_context(Server(command, self._cores.server, self._folder))
                for command in self._contenders(executable)
            }
            idle = {name: server.memory for name, server in running.items()}
            figures.verdicts = verdicts.compare(bodies.verdict_cases(), list(running.values()), self._certificates)
            self._progress(f"the servers agree on {figures.verdicts} reviews")
            self._measure_load(figures, running, generator)
            figures.memory = {name: (idle[name], server.memory) for name, server in running.items()}
        self._progress("expressions, in this process")
        figures.expressions = expressions.measure()
        if self._plan.creates:
            self._measure_api_server(figures, executable)
        return figures

    def _contenders(self, executable: Path) -> list[Command]:
        pair = [*self._pair(executable), *self._on_this_python()]
        for name, rules in ((POLICY, policies.RULES), (MANY_RULES, policies.MANY_RULES)):
            policy = policies.write(self._folder, rules)
            pair.append(servers.ours(self._certificates, name, f"--policy-file={policy}", python=self._python))
        return pair

    def _pair(self, executable: Path) -> list[Command]:
        ours = servers.ours(self._certificates, OURS, python=self._python)
        return [ours, servers.peer(self._certificates, PEER, executable)]

    def _on_this_python(self) -> list[Command]:
        """Ours on the Python that runs the benchmark, where that is not the image's."""
        here = interpreters.HERE
        return [] if self._python is here else [servers.ours(self._certificates, f"{OURS}, Python {here.version}")]

    def _measure_starts(self, figures: Figures, executable: Path) -> None:
        self._progress(f"starting each server {self._plan.starts} times")
        for _ in range(self._plan.starts):
            for command in (*self._pair(executable), *self._on_this_python()):
                seconds = servers.seconds_to_ready(command, self._cores.server)
                figures.ready_seconds.setdefault(command.name, []).append(seconds)

    def _measure_load(self, figures: Figures, running: dict[str, Server], generator: Path) -> None:
        load_generator = LoadGenerator(generator, self._certificates, self._cores)
        without_policy = [server for name, server in running.items() if name not in (POLICY, MANY_RULES)]
        for name, title, made in (
            ("claims", "ResourceClaim", bodies.claims()),
            ("strangers", f"ResourceClaim, {bodies.STRANGERS} requesters", bodies.strangers()),
            ("new specs", f"ResourceClaim, {bodies.NEW_SPECS:,} specs", bodies.new_specs()),
            ("slices", "ResourceSlice, 64 devices with 4 taints each", bodies.slices()),
            ("bare slices", "ResourceSlice, 128 devices without taints", bodies.bare_slices()),
            ("slice updates", "ResourceSlice, one of 64 devices changes", bodies.slice_updates()),
            ("templates", "ResourceClaimTemplate", bodies.templates()),
            ("rules", "DeviceTaintRule", bodies.rules()),
        ):
            workload = Workload(
                name=name,
                title=title,
                files=self._write(name, made),
                size=len(made[0]),
                seconds=self._plan.seconds,
                rounds=self._plan.rounds,
                most_rounds=self._plan.most_rounds,
            )
            contenders = list(running.values()) if name in ("claims", "strangers") else without_policy
            figures.results.append(load.run(load_generator, workload, contenders, PEER, self._progress))

    def _measure_api_server(self, figures: Figures, executable: Path) -> None:
        missing = api_server.missing()
        if missing:
            figures.remarks.append(f"creates through an API server not measured: {missing}")
            return
        with contextlib.ExitStack() as stack:
            pair = [stack.enter_context(Server(command, None, self._folder)) for command in self._pair(executable)]
            figures.latencies = api_server.measure(pair, self._certificates, self._plan.creates, self._progress)

    def _write(self, name: str, made: Iterable[bytes]) -> list[Path]:
        paths = []
        for number, body in enumerate(made):
            path = self._folder / f"{name}-{number}.json"
            path.write_bytes(body)
            paths.append(path)
        return paths

    def _progress(self, line: str) -> None:
        print(f"[{time.monotonic() - self._started:4.0f} s] {line}", file=sys.stderr, flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute, rougher, without an API server")
    parser.add_argument(
        "--write", action="store_true", help=f"put the ratios into {DOCUMENT.relative_to(interpreters.ROOT)} as well"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a floor was missed")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            figures = Benchmark(QUICK if arguments.quick else FULL, Path(folder)).run()
        print(figures.markdown())
        if arguments.write:
            tables.write(DOCUMENT, figures.ratios())
    except (BenchmarkError, NotReadyError, AssetsUnavailableError, ValueError) as e:
        print(f"benchmarks: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130  # as a shell reports it
    missed = figures.missed()
    for line in missed:
        print(f"floor missed: {line}", file=sys.stderr)
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
