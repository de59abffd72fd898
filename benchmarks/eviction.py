"""How fast a rule empties devices, beside the in-tree controller: both on a real control plane, at equal client limits.

    python -m benchmarks.eviction


Ours has all manners set not to bind; the in-tree controller runs alone in kube-controller-manager. They take turns,
each time on a control plane of its own, and start on an empty cluster. Then come the pods, and then one rule for all.

Exit codes: 0 measured, 1 ours was behind (with --check), 2 the figures cannot be had.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.cluster import Usage
from benchmarks.crowd import Crowd
from benchmarks.eviction_log import AUDIT_POLICY, Seen, seen
from benchmarks.evictors import IN_TREE, OURS, Limits, Memory, Watched, start
from benchmarks.gobinaries import BenchmarkError
from benchmarks.progress import say
from benchmarks.tables import table
from tests.controlplane import assets
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.controlplane.assets import Assets

ROUNDS: Final = 3
GROWTH_MOST: Final = 0.5
"""Of what the in-tree controller grows by."""
_SETTLE_SECONDS: Final = 3.0
"""After a start, before memory is looked at; and how long nobody asks for anything once all is told."""
_GONE_SECONDS: Final = 600.0
_MIB: Final = 1024 * 1024


class Setting(NamedTuple):
    """So many pods, and what both clients may ask for."""

    pods: int
    limits: Limits

    def __str__(self) -> str:
        return f"{self.pods:,} pods, {self.limits}"


FAST: Final = Limits(1000, 2000)
DEFAULT: Final = Limits(20, 30)
"""Of kube-controller-manager."""
SETTINGS: Final = (Setting(1000, FAST), Setting(10_000, FAST), Setting(1000, DEFAULT))


class Run(NamedTuple):
    """One evictor, once."""

    seen: Seen
    start: Memory
    """On an empty cluster."""
    peak: Memory
    cpu_seconds: float
    """Of the evictor, from the rule until all was told."""


class Result:
    """All runs of one evictor at one setting, as medians."""

    def __init__(self, setting: Setting, runs: Sequence[Run]) -> None:
        self.setting = setting
        self.runs = runs

    def of(self, figure: Callable[[Run], float]) -> float:
        """The median of a figure."""
        return statistics.median(map(figure, self.runs))

    @property
    def per_second(self) -> float:
        """Pods, from the creation of the rule to the last deletion."""
        return self.of(lambda run: self.setting.pods / run.seen.all_seconds)

    @property
    def calls_a_pod(self) -> float:
        """Requests of every sort, Events too."""
        return self.of(lambda run: run.seen.calls_a_pod(self.setting.pods))

    @property
    def growth(self) -> float:
        """Resident bytes, from an empty cluster to the peak."""
        return self.of(lambda run: run.peak.resident - run.start.resident)


def main() -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eviction", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one run of each with 1,000 pods: a minute")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each (%(default)s)")
    parser.add_argument("--check", action="store_true", help="exit 1 if ours was behind")
    options = parser.parse_args()
    settings, rounds = (SETTINGS[:1], 1) if options.quick else (SETTINGS, options.rounds)
    try:
        found = assets.find(progress=say)
        results = {setting: _side_by_side(found, setting, rounds) for setting in settings}
    except (BenchmarkError, NotReadyError, AssetsUnavailableError) as error:
        print(error, file=sys.stderr)
        return 2
    print(markdown(results, rounds))
    behind = [f"{setting}: {text}" for setting, pair in results.items() for text in behind_in(pair)]
    for line in behind:
        print(f"behind: {line}", file=sys.stderr)
    return 1 if options.check and behind else 0


def _side_by_side(found: Assets, setting: Setting, rounds: int) -> Mapping[str, Result]:
    runs: dict[str, list[Run]] = {OURS: [], IN_TREE: []}
    for _ in range(rounds):
        for name, made in runs.items():  # in turn, so that what else the machine does hits both
            made.append(_run(found, name, setting))
    return {name: Result(setting, made) for name, made in runs.items()}


def _run(found: Assets, name: str, setting: Setting) -> Run:
    with tempfile.NamedTemporaryFile("w", prefix="audit-policy-", suffix=".yaml") as policy:
        json.dump(AUDIT_POLICY, policy)  # JSON is YAML
        policy.flush()
        with ControlPlane(found, audit=True, api_server_arguments=[f"--audit-policy-file={policy.name}"]) as plane:
            return _measure(plane, name, setting)


def _measure(plane: ControlPlane, name: str, setting: Setting) -> Run:
    with start(name, plane, setting.limits) as process, Watched(process.pid) as watched:
        time.sleep(_SETTLE_SECONDS)
        before = Memory.of(process.pid)
        crowd = Crowd(plane.client, setting.pods)
        say(f"{name}, {setting}: gathering")
        crowd.gather()
        cpu = Usage.of(process.pid).cpu_seconds
        crowd.taint()
        wait_until(lambda: not crowd.left(), "all evicted", seconds=_GONE_SECONDS, every=0.5)
        log = plane.folder / "audit.log"
        _wait_quiet(log)
        cpu = Usage.of(process.pid).cpu_seconds - cpu
    run = Run(seen(log, name, setting.pods), before, watched.peak, cpu)
    say(f"{name}, {setting}: {setting.pods / run.seen.all_seconds:.0f} a second; requests: {dict(run.seen.requests)}")
    return run


def _wait_quiet(log: Path) -> None:
    """Returns once nothing was asked for a while: what was done is told by then."""
    known, since = -1, time.monotonic()

    def quiet() -> bool:
        nonlocal known, since
        size = log.stat().st_size
        if size != known:
            known, since = size, time.monotonic()
        return time.monotonic() - since > _SETTLE_SECONDS

    wait_until(quiet, "all told", seconds=_GONE_SECONDS, every=0.2)


def markdown(results: Mapping[Setting, Mapping[str, Result]], rounds: int) -> str:
    """The tables."""
    heads = ["pods", "qps/burst", "evictor", "first after s", "pods/s", "single runs"]
    heads += ["calls a pod", "of these Events", "CPU ms a pod"]
    rows, memory = [], []
    for (pods, limits), pair in results.items():
        for name, result in pair.items():
            rates = sorted(pods / run.seen.all_seconds for run in result.runs)
            rows.append(
                [
                    f"{pods:,}",
                    str(limits),
                    name,
                    f"{result.of(lambda run: run.seen.first_seconds):.2f}",
                    f"{result.per_second:.1f}",
                    f"{rates[0]:.1f} to {rates[-1]:.1f}",
                    f"{result.calls_a_pod:.2f}",
                    f"{result.of(lambda run: run.seen.requests.get('create events', 0)) / pods:.2f}",
                    f"{result.of(lambda run: run.cpu_seconds) * 1e3 / pods:.2f}",
                ]
            )
            sizes = [
                result.of(lambda run: run.start.resident),
                result.of(lambda run: run.peak.resident),
                result.growth,
                result.of(lambda run: run.start.proportional),
                result.of(lambda run: run.peak.proportional),
            ]
            memory.append([f"{pods:,}", str(limits), name, *[f"{size / _MIB:.0f}" for size in sizes]])
    grown = [
        "pods",
        "qps/burst",
        "evictor",
        "at start MiB",
        "peak MiB",
        "growth MiB",
        "PSS at start MiB",
        "PSS peak MiB",
    ]
    load = f"Medians of {rounds} runs each; load average at the end: {os.getloadavg()[0]:.1f}."
    return "\n\n".join(
        [
            load,
            table(heads, rows, right=(0, *range(3, len(heads)))),
            table(grown, memory, right=(0, *range(3, len(grown)))),
        ]
    )


def behind_in(pair: Mapping[str, Result]) -> list[str]:
    """In what ours is behind."""
    ours, in_tree = pair[OURS], pair[IN_TREE]
    return [
        text
        for text, bad in (
            (f"{ours.per_second:.1f} pods a second of {in_tree.per_second:.1f}", ours.per_second < in_tree.per_second),
            (
                f"{ours.calls_a_pod:.2f} calls a pod of {in_tree.calls_a_pod:.2f}",
                ours.calls_a_pod >= in_tree.calls_a_pod,
            ),
            (
                f"grows by {ours.growth / _MIB:.0f} MiB of {in_tree.growth / _MIB:.0f}",
                ours.growth > GROWTH_MOST * in_tree.growth,
            ),
        )
        if bad
    ]


if __name__ == "__main__":
    sys.exit(main())
