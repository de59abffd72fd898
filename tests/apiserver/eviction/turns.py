"""Scenarios that are played side by side on one control plane, across restarts of the evictor."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from tests.apiserver.evicting import EvictProcess
from tests.apiserver.eviction.bench import now
from tests.apiserver.eviction.ground import NODE, Ground
from tests.apiserver.eviction.play import OUR_USER
from tests.apiserver.eviction.witness import AUDIT_POLICY, Witness
from tests.conftest import FAKE_NODES
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.plane import ControlPlane

Scenario: TypeAlias = "Callable[[Stage], Iterator[None] | None]"
"""It says `yield`, if at all, where the worker ends, and where the next one works."""
WAITER: Final = "waiter"
"""The user who waits with kubectl."""
THREADS: Final = 64
"""Above the number of scenarios, and of all that they wait for at the same time."""


class _Patient(EvictProcess):
    """It has a minute for what it writes as it ends, where others have 5 s: a busy machine may need them."""

    def _program(self) -> list[str]:
        program, *_ = super()._program()
        code = (
            "import sys; from webhook.cli import main; from webhook.eviction.ports import WorkerSettings; "
            "defaults = WorkerSettings.__init__.__kwdefaults__; "
            "longer = {'last_conditions_seconds': 60.0, 'flush_seconds': 60.0}; "
            "assert longer.keys() <= defaults.keys(), defaults; "
            "defaults.update(longer); "
            "sys.exit(main())"
        )
        return [program, "-c", code]


class Stage:
    """What scenarios are played on."""

    process: EvictProcess
    """The last worker that was made."""

    def __init__(self, plane: ControlPlane, pool: ThreadPoolExecutor) -> None:
        self._plane = plane
        self._pool = pool
        self._witness = Witness(plane.folder / "audit.log", OUR_USER)
        self._waiter = plane.kubeconfig_of(WAITER, ["system:masters"])

    def ground(self, name: str) -> Ground:
        return Ground(self._plane, self._witness, name)

    def worker(self, policy: str) -> EvictProcess:
        kubeconfig = self._plane.kubeconfig_of(OUR_USER, ["system:masters"])
        flags = ("replacement", "--in-tree=absent")
        self.process = _Patient(self._plane, *flags, policy=policy, kubeconfig=kubeconfig)
        return self.process

    def kubectl_wait(self, ground: Ground) -> Future[datetime]:
        """When `kubectl wait` for the end of the ground's eviction has returned; fails if it did for another reason."""
        condition = "--for=condition=devicetaint.io/Eviction=False"
        arguments = (f"--kubeconfig={self._waiter}", "wait", condition, f"devicetaintrule/{ground.rule()}")

        def run() -> datetime:
            done = self._plane.kubectl(*arguments, "--timeout=900s", timeout_seconds=960)
            returned = now()
            assert (done.code, done.stderr) == (0, "")
            return returned

        return self._pool.submit(run)

    def waits(self, ground: Ground) -> bool:
        """Whether that `kubectl wait` follows the rule by now."""
        events = self._plane.audit_events()
        waiting = [each["requestURI"] for each in events if each["user"]["username"] == WAITER]
        return any("watch=true" in uri and ground.rule() in uri for uri in waiting)


class Turns:
    """Scenarios that go on side by side; one that has failed goes no further."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._begun: dict[str, Iterator[None]] = {}
        self.errors: dict[str, Exception] = {}

    def go_on(self, *scenarios: Scenario) -> None:
        """All that were begun, and these as well."""
        with ThreadPoolExecutor(THREADS) as pool:
            for name in self._begun:
                pool.submit(self.carry_on, name)
            for each in scenarios:
                pool.submit(self._begin, each)

    def _begin(self, scenario: Scenario) -> None:
        name = scenario.__name__
        try:
            parts = scenario(self._stage)
        except Exception as e:  # noqa: BLE001 -- it is the scenario's result, and raised where that is looked at
            self.errors[name] = e
            return
        if parts is not None:
            self._begun[name] = parts
            self.carry_on(name)

    def carry_on(self, name: str) -> None:
        """Only this one."""
        if name in self.errors:
            return
        try:
            next(self._begun[name], None)
        except Exception as e:  # noqa: BLE001 -- likewise
            self.errors[name] = e

    def all_of(self, policy: str, scenarios: Sequence[Scenario]) -> None:
        """All of them side by side with one worker, in three parts: the last is for those that have to be alone."""
        with self._stage.worker(policy) as worker:
            worker.wait_working()
            self.go_on(*scenarios)
            self.go_on()
            self.go_on()
            if self.errors:
                print(worker.process.tail(200))


@contextlib.contextmanager
def staged(
    assets: Assets, folder: Path, *, audited: Sequence[Mapping[str, object]] = (), **more: Any
) -> Iterator[ControlPlane]:
    """A control plane with all controllers but the in-tree one, scheduler, kwok, nodes, and an audit log.

    `audited`: rules of the audit policy before the usual ones. `more`: arguments of ControlPlane. Skips the test where
    rules have no status.
    """
    if versions.minor(assets.version) < 37:
        pytest.skip("rules have another version, or no status")
    file = folder / "audit-policy.yaml"
    file.write_text(json.dumps({**AUDIT_POLICY, "rules": [*audited, *AUDIT_POLICY["rules"]]}))  # JSON is YAML
    began = time.monotonic()
    with ControlPlane(
        assets,
        controllers=["-device-taint-eviction-controller"],
        scheduler=True,
        kwok=True,
        audit=True,
        api_server_arguments=[f"--audit-policy-file={file}"],
        **more,
    ) as plane:
        for node in (*FAKE_NODES, NODE):
            plane.add_node(node)
        yield plane
        print(f"played in {time.monotonic() - began:.0f} s")


def played(plane: ControlPlane, play_on: Callable[[Stage], Turns]) -> Mapping[str, Exception]:
    """What went wrong, by scenario; the logs are kept if anything did."""
    with ThreadPoolExecutor(THREADS) as pool:
        turns = play_on(Stage(plane, pool))
    plane.keep_logs = bool(turns.errors)
    return turns.errors


def all_played(plane: ControlPlane, policy: str, scenarios: Sequence[Scenario]) -> Mapping[str, Exception]:
    """Likewise, of scenarios that are all played with one worker."""

    def play_on(stage: Stage) -> Turns:
        turns = Turns(stage)
        turns.all_of(policy, scenarios)
        return turns

    return played(plane, play_on)


def play(stage: Stage, policy: str, across: Sequence[Scenario], last: Scenario, within: Sequence[Scenario]) -> Turns:
    """Two workers, one after the other, and everything that happens with each and in between.

    `across` goes on with each of them and in between; of `last` the second part is played right before the first ends;
    `within` is played with the second.
    """
    turns = Turns(stage)
    with stage.worker(policy) as worker:
        worker.wait_working()
        turns.go_on(*across, last)
        turns.carry_on(last.__name__)
    turns.go_on()
    with stage.worker(policy) as worker:
        worker.wait_working()
        turns.go_on(*within)
        if turns.errors:
            print(worker.process.tail(200))
    return turns
