"""The worker under faults, side by side on one real API server: no pod lost, none evicted twice or wrongly.

No gang is evicted in parts, either. Each fault has namespaces of its own, and its account comes from the audit log: run
with `-s` to see them all. At the end, with three processes that share a lease, the leader is killed, and its successor
held for longer than the lease lasts and let go again; meanwhile the wall clock of those who wait is set.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

import pytest

from tests.apiserver.evicting import stays
from tests.apiserver.eviction.bench import now
from tests.apiserver.eviction.ledger import Deceived, Stage, Told, Ward, clean
from tests.apiserver.eviction.refusing import Refusal
from tests.controlplane.assets import Assets
from tests.controlplane.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.whole]

LASTS_SECONDS: Final = 60.0 if os.environ.get("EVICTION_SCALE") == "all" else 12.0
"""How long evictions are refused."""
TAKEN_OVER_SECONDS: Final = 20.0 + 20.0
"""What docs/eviction.md promises, of which 15 s are the lease's; and what a busy machine may take beside it."""
SETTLED_SECONDS: Final = 1.0
"""For requests that were under way when the worker heard of a change."""
GRACE_SECONDS: Final = 20
NEARLY_SECONDS: Final = 10
"""So long before the end of that a taint changes: who hears of it only after the end has done nothing wrong."""
TOLERATES: Final = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": GRACE_SECONDS}
PODS: Final = 10
MANY: Final = 250
"""Of each of three namespaces."""
RATE: Final = 10.0
"""Pods a second of each of them: who is killed in the middle of it is killed in the middle of it."""
AN_HOUR: Final = 3600.0
REFUSALS: Final = {
    "403": Refusal(403),
    "404": Refusal(404),
    "409": Refusal(409),
    "429": Refusal(429),
    "429 with Retry-After": Refusal(429, retry_after_seconds=30),
    "500": Refusal(500),
    "500 of the webhook": Refusal(500, broken=True),
}


class Three(Stage):
    """Processes that share a lease."""

    def leader(self) -> Deceived:
        [found] = self.working()
        return found

    def working(self) -> list[Deceived]:
        """Who works, or is held and would."""
        return [each for each in self.processes if each.process.code is None and each.lines("working")]

    # --- faults that are played side by side -------------------------------------------------------

    def refuse(self, fault: str) -> None:
        """Evictions are refused for a while, and tried again until they are not."""
        wards = self.wards_of(fault, PODS)
        for ward in wards:
            self.webhook.refuse(ward.name, REFUSALS[fault])
            ward.empty()
        wait_until(lambda: all(ward.refusals() for ward in wards), "refused")
        assert stays((not any(ward.evicted() for ward in wards) for _ in iter(int, 1)), LASTS_SECONDS)
        for ward in wards:
            self.webhook.relent(ward.name)
        for ward in wards:
            ward.wait_empty()
            ward.faults = ward.refusals()

    def _refuse_and_then(self, fault: str, change: Callable[[Ward, str], None]) -> None:
        """While everybody is due and refused something happens that lets them stay."""
        wards = self.wards_of(fault, PODS)
        for ward in wards:
            self.webhook.refuse(ward.name, Refusal(429, retry_after_seconds=3))
        rules = [ward.empty() for ward in wards]
        wait_until(lambda: all(ward.refusals() >= ward.units for ward in wards), "refused")
        for ward, rule in zip(wards, rules, strict=True):
            change(ward, rule)
            ward.faults = PODS
        self._wait_known(wards[0].name)
        time.sleep(SETTLED_SECONDS)
        for ward in wards:
            self.webhook.relent(ward.name)

    def _wait_known(self, name: str) -> None:
        """Returns once the worker has evicted one more pod, of which all its watches told it after what was done."""
        with Ward(self.plane.client, self.witness, f"known-{name}") as last:
            last.fill(1)
            last.empty()
            last.wait_empty()

    def taint_removed(self, fault: str) -> None:
        self._refuse_and_then(fault, lambda ward, rule: ward.spare(rule))

    def deallocated(self, fault: str) -> None:
        self._refuse_and_then(fault, lambda ward, _: ward.deallocate())

    def replaced(self, fault: str) -> None:
        self._refuse_and_then(fault, lambda ward, _: ward.replace())

    def taint_again(self, fault: str) -> None:
        """Removed in the last moment, and added again: nobody goes before a whole new time has passed."""
        wards = self.wards_of(fault, PODS, TOLERATES)
        for ward in wards:
            rule = ward.empty(after_seconds=GRACE_SECONDS)
            wait_until(partial(_nearly, ward), "nearly due")
            ward.spare(rule)
            ward.empty(after_seconds=GRACE_SECONDS)
            ward.faults = 1
        for ward in wards:
            ward.wait_empty()

    def effect_again(self, fault: str) -> None:
        """Its effect is None for a moment."""
        wards = self.wards_of(fault, PODS, TOLERATES)
        for ward in wards:
            rule = ward.empty(after_seconds=GRACE_SECONDS)
            wait_until(partial(_nearly, ward), "nearly due")
            ward.soften(rule)
            ward.harden(rule, after_seconds=GRACE_SECONDS)
            ward.faults = 1
        for ward in wards:
            ward.wait_empty()

    # --- faults of those who act -------------------------------------------------------------------

    def leader_killed(self, fault: str) -> None:
        """In the middle of it; whoever waits has its clock set before and after."""
        wards = self.wards_of(fault, MANY)
        first = self.leader()
        others = [each for each in self.processes if each is not first]
        for other in others:
            other.shift(AN_HOUR)
        for ward in wards:
            ward.empty(rate=RATE)
        wards[0].wait_evicted(MANY // 3)
        assert self.leader() is first, "the lease was taken for the clock's sake"
        os.kill(first.process.pid, signal.SIGKILL)
        killed = now()
        for other in others:
            other.shift(0.0)
        wait_until(lambda: first.process.code is not None, "killed")
        self._wait_taken_over(wards, killed, first)
        # --- its successor is held until somebody else leads, and goes on as if nothing had been
        second = self.leader()
        wait_until(lambda: wards[0].evicted() >= MANY // 2, "further on", every=0.02)
        os.kill(second.process.pid, signal.SIGSTOP)
        held = now()
        try:
            self._wait_taken_over(wards, held, second)
        finally:
            for ward in wards:
                ward.resumed = now()
            os.kill(second.process.pid, signal.SIGCONT)
        wait_until(lambda: second.process.code is not None, "it has lost the lease")
        for ward in wards:
            ward.wait_empty()
        wards[0].faults = 2

    def _wait_taken_over(self, wards: list[Ward], at: datetime, old: Deceived) -> None:
        names = {ward.name for ward in wards}
        wait_until(lambda: any(each is not old for each in self.working()), "another process works")

        def after() -> list[float]:
            delays = [(each.at - at).total_seconds() for each in self.witness.deletions() if each.pod[0] in names]
            # What the old one asked for may come a moment later.
            return [delay for delay in delays if delay > 1]

        wait_until(lambda: bool(after()), "taken over", every=0.05)
        took = min(after())
        print(f"the next one acts after {took:.1f} s")
        assert took <= TAKEN_OVER_SECONDS


def _nearly(ward: Ward) -> bool:
    due = max(due for due in ward.due.values() if due is not None)
    return (due - now()).total_seconds() < NEARLY_SECONDS


SIDE_BY_SIDE: Final[Mapping[str, Callable[[Three, str], None]]] = {
    **dict.fromkeys(REFUSALS, Three.refuse),
    "taint removed while refused": Three.taint_removed,
    "claim deallocated while due": Three.deallocated,
    "pod replaced by a namesake while due": Three.replaced,
    "taint removed and added again": Three.taint_again,
    "effect None for a moment": Three.effect_again,
}
KILLED: Final = "leader killed, the next one held"


@pytest.fixture(scope="module")
def told(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Everything is played once."""
    with Three(assets, tmp_path_factory.mktemp("faults")) as stage:
        for _ in range(3):
            stage.start("--leader-elect", "--leader-elect-lease=default/evict")
        wait_until(lambda: all(each.lines("ready") for each in stage.processes), "ready")
        wait_until(lambda: any(each.lines("working") for each in stage.processes), "a leader")
        stage.play({fault: partial(play, stage) for fault, play in SIDE_BY_SIDE.items()})
        stage.play({KILLED: stage.leader_killed})
        return stage.told()


@pytest.mark.parametrize("fault", [*SIDE_BY_SIDE, KILLED])
def test_nobody_is_lost_evicted_twice_or_wrongly(told: Told, fault: str) -> None:
    clean(
        told.ledgers[fault], splits_most=2 if fault == KILLED else 0
    )  # it strikes twice, and requests may be under way


def test_rules_are_done_when_the_last_pod_is_and_not_before(told: Told) -> None:
    assert told.too_soon == []
