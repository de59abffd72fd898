"""All scenarios on one control plane with one evictor, side by side; what came of each is looked at afterwards."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from tests.apiserver.evicting import BLUNT, EvictProcess
from tests.apiserver.eviction.bench import SOON_SECONDS, Bench, now
from tests.apiserver.eviction.scenario import Due, Pod, Scenario
from tests.apiserver.eviction.steps import Marked, Publish, Taint
from tests.apiserver.eviction.witness import Deletion, Mark, Witness
from tests.apiserver.policy.stage import RestartablePlane, answers
from tests.controlplane import versions
from tests.controlplane.assets import evictor_of_1_38
from tests.controlplane.client import path
from tests.controlplane.gobuild import built
from tests.controlplane.processes import Process, wait_until

IN_TREE: Final = "device-taint-eviction-controller"
IN_TREE_USER: Final = f"system:serviceaccount:kube-system:{IN_TREE}"
OUR_USER: Final = "evictor"
OFF: Final = ("-resourceclaim-controller", "-garbage-collector-controller")
"""Scenarios write what the first would, with states in between, and the second would look for owners that are names."""
EVENT_REASON: Final = "DeviceTaintManagerEviction"
MANAGER: Final = "kube-controller-manager"
NO_CEILING: Final = """
impact:
  limits:
  - {pods: null, claims: null, devices: null, namespaces: null}
breaker: {devices: null}
"""
"""For the policy: the in-tree controller knows no rule that hits too many, and no driver that taints too many."""
_TAIL_LINES: Final = 100


class Evictor(Protocol):
    user: str
    """Its name in the audit log."""
    minor: int
    """The release 1.N of an in-tree controller; 0 is ours."""

    def start(self) -> None:
        """Returns once it works."""
        ...

    def stop(self) -> None:
        """Returns once it does not."""
        ...


class InTree:
    """The real one, in kube-controller-manager."""

    user = IN_TREE_USER
    minor = versions.minor(versions.RELEASE)

    def __init__(self, plane: RestartablePlane) -> None:
        self._plane = plane

    def start(self) -> None:
        if MANAGER not in self._plane.processes:
            process = self._plane._run(MANAGER, self._plane._commands[MANAGER])
            process.wait_ready(functools.partial(answers, self._plane._clients[MANAGER], "/healthz"))

    def stop(self) -> None:
        if MANAGER in self._plane.processes:
            self._plane.processes.pop(MANAGER).stop()


class InTreeOf138:
    """That of 1.38 as a process of its own, with the rights of the one in kube-controller-manager, which is off."""

    user = IN_TREE_USER
    minor = 38

    def __init__(self, plane: RestartablePlane) -> None:
        account = {"metadata": {"name": IN_TREE}}
        _ = plane.client.create(path("v1", "serviceaccounts", namespace="kube-system"), account).object
        self._log = plane.folder / "evictor138.log"
        self._command: list[str | Path] = [
            built(evictor_of_1_38(), lambda line: print(line, file=sys.stderr)) / "evictor138",
            f"--kubeconfig={plane.kubeconfig_of_account('kube-system', IN_TREE)}",
            *(each for each in plane._commands[MANAGER] if each.startswith(("--kube-api-", "--feature-gates="))),
            "-v=3",
        ]

    def start(self) -> None:
        began = self._log.stat().st_size if self._log.exists() else 0
        self._process = Process("evictor138", self._command, self._log)
        self._process.wait_ready(lambda: b"Underlying informers have synced" in self._log.read_bytes()[began:])

    def stop(self) -> None:
        self._process.stop()


class Ours:
    """`evict --mode replacement`, as a user of its own."""

    user = OUR_USER
    minor = 0

    def __init__(self, plane: RestartablePlane) -> None:
        self._plane = plane
        self._kubeconfig = plane.kubeconfig_of(OUR_USER, ["system:masters"])
        self._process: EvictProcess | None = None
        self.log: list[str] = []
        """How each of its processes ended, for whoever wants to know why a scenario failed."""

    def start(self) -> None:
        policy = f"{BLUNT}{NO_CEILING}"
        self._process = EvictProcess(self._plane, "replacement", f"--kubeconfig={self._kubeconfig}", policy=policy)
        self._process.__enter__().wait_working()

    def stop(self) -> None:
        if self._process is not None:
            self.log.append(self._process.process.tail(_TAIL_LINES))
            self._process.__exit__(None, None, None)
            self._process = None


@dataclass
class Outcome:
    """What came of a scenario, and with which controller."""

    scenario: Scenario
    minor: int
    error: Exception | None = None
    evicted: dict[str, Deletion] = field(default_factory=dict)
    due: dict[str, datetime] = field(default_factory=dict)
    """Of those who had to go."""
    acted_at: datetime | None = None
    deletions: list[Deletion] = field(default_factory=list)
    marks: dict[str, list[Mark]] = field(default_factory=dict)
    told: set[tuple[str, str, str]] = field(default_factory=set)
    """Pod, type and text of the Events."""
    conditions: dict[str, str] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)


class Play:
    """One evictor's turn."""

    def __init__(self, plane: RestartablePlane, evictor: Evictor) -> None:
        self._plane = plane
        self._evictor = evictor
        self._witness = Witness(plane.folder / "audit.log", evictor.user)
        self._outcomes: dict[str, Outcome] = {}
        self._benches: dict[str, Bench] = {}
        self.seconds = 0.0

    def run(self, scenarios: Iterable[Scenario]) -> Mapping[str, Outcome]:
        """All of them; those with a restart share it, and those that touch others come at the end."""
        before = time.monotonic()
        scenarios = tuple(scenarios)
        for number, scenario in enumerate(scenarios):
            self._outcomes[scenario.name] = Outcome(scenario, self._evictor.minor)
            self._benches[scenario.name] = Bench(self._plane.client, self._witness, f"scenario-{number}")
        try:
            self._evictor.start()
            together = [each for each in scenarios if not each.alone]
            self._all(self._admit, together)
            self._wait_seen("arrived")
            self._all(self._whole, [each for each in together if not each.restarts])
            self._restart([each for each in together if each.restarts])
            self._wait_seen("done")
            for scenario in scenarios:
                if not scenario.alone:
                    self._collect(scenario)
            for scenario in scenarios:
                if scenario.alone:
                    self._all(self._admit, [scenario])
                    self._wait_seen(f"arrived-{self._benches[scenario.name].name}")
                    self._all(self._whole, [scenario])
                    self._collect(scenario)
        finally:
            self._evictor.stop()
        self.seconds = time.monotonic() - before
        return self._outcomes

    def _restart(self, scenarios: list[Scenario]) -> None:
        self._all(self._begin, scenarios)
        self._evictor.stop()
        self._all(self._meanwhile, scenarios)
        self._evictor.start()
        for scenario in scenarios:
            self._benches[scenario.name].acted_at = now()
        self._all(self._finish, scenarios)

    def _all(self, what: Callable[[Scenario], None], scenarios: list[Scenario]) -> None:
        """At the same time: each waits most of its time."""

        def one(scenario: Scenario) -> None:
            outcome = self._outcomes[scenario.name]
            if outcome.error is None:
                try:
                    what(scenario)
                except Exception as e:  # noqa: BLE001 -- it is the scenario's result, and raised where that is looked at
                    outcome.error = e

        with ThreadPoolExecutor(max(len(scenarios), 1)) as pool:
            list(pool.map(one, scenarios))

    def _whole(self, scenario: Scenario) -> None:
        self._begin(scenario)
        self._finish(scenario)

    def _admit(self, scenario: Scenario) -> None:
        for pod in scenario.pods:
            self._benches[scenario.name].admit(pod)

    def _begin(self, scenario: Scenario) -> None:
        for step in scenario.steps:
            step.do(self._benches[scenario.name])

    def _meanwhile(self, scenario: Scenario) -> None:
        for step in scenario.while_down:
            step.do(self._benches[scenario.name])

    def _finish(self, scenario: Scenario) -> None:
        """Waits for what has to come, one thing after the other; what comes beside it is seen later."""
        bench, outcome = self._benches[scenario.name], self._outcomes[scenario.name]
        for step in scenario.after:
            step.do(bench)
        evicted, conditions = expected(scenario, self._evictor.minor)
        outcome.due = {pod: bench.due_at(due) for pod, due in evicted.items()}
        outcome.acted_at = bench.acted_at
        left = (max([*outcome.due.values(), now()]) - now()).total_seconds()
        bench.wait_evicted(*evicted, seconds=left + SOON_SECONDS)
        for rule, text in conditions.items():
            bench.wait_condition(rule, text)
            outcome.conditions[rule] = text
        wanted = events(scenario, evicted)
        wait_until(lambda: self._told(bench) >= wanted, f"told: {wanted}", seconds=SOON_SECONDS, every=0.5)

    def _wait_seen(self, name: str) -> None:
        """Until the evictor has seen all that was done to pods and claims: two more pods, which it evicts, came later.

        Each kind is watched by itself, so the news of a taint may pass the news of a pod that is to stay.
        """
        bench = Bench(self._plane.client, self._witness, name)
        for pod in ("by-rule", "by-slice"):
            bench.admit(Pod(pod))
        Publish({"by-slice-0": (Marked("s"),), "by-rule-0": ()}).do(bench)
        Taint(selects={"driver": "", "device": "by-rule-0"}).do(bench)
        bench.wait_evicted("by-rule", "by-slice")

    def _collect(self, scenario: Scenario) -> None:
        bench, outcome = self._benches[scenario.name], self._outcomes[scenario.name]
        outcome.evicted = bench.evicted()
        outcome.deletions = bench.deletions()
        outcome.uids = dict(bench.uids)
        outcome.marks = {pod: self._witness.marks(uid) for pod, uid in bench.uids.items()}
        outcome.told = self._told(bench)

    def _told(self, bench: Bench) -> set[tuple[str, str, str]]:
        labels = {uid: label for label, uid in bench.uids.items()}
        return {
            (labels[each.uid], each.type, each.text)
            for each in self._witness.told()
            if each.uid in labels and each.reason == EVENT_REASON
        }


def expected(scenario: Scenario, minor: int) -> tuple[Mapping[str, Due], Mapping[str, str]]:
    """Who has to go with the in-tree controller of 1.N, or with ours (0), and what rules have to say."""
    if not minor:
        return scenario.evicted, scenario.conditions
    if minor >= 38 and scenario.since_1_38 is not None:
        return scenario.evicted, scenario.since_1_38
    evicted = scenario.evicted if scenario.in_tree is None else scenario.in_tree
    conditions = scenario.conditions if scenario.in_tree_conditions is None else scenario.in_tree_conditions
    return evicted, conditions


def events(scenario: Scenario, evicted: Iterable[str]) -> set[tuple[str, str, str]]:
    """What has to be told: pod, type and text (E-34)."""
    marked = {(pod, "Normal", "Marking for deletion") for pod in evicted}
    return marked | {(pod, "Normal", "Cancelling deletion") for pod in scenario.cancelled}
