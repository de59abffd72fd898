"""The worker and an API server that is killed and comes back without its past, and a wall clock that is set.

As in `test_faults`, the accounts come from the audit log: no pod is lost, evicted twice or
wrongly, and no gang is evicted in parts.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from tests.apiserver.evicting import stays
from tests.apiserver.eviction.ledger import Deceived, Stage, Told, Ward, clean
from tests.apiserver.eviction.refusing import Refusal
from tests.controlplane import arguments
from tests.controlplane.assets import Assets
from tests.controlplane.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.whole]

Json = dict[str, Any]

AN_HOUR: Final = 3600.0
TOLERATES_AN_HOUR: Final = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": int(AN_HOUR)}
A_BIT: Final = 6
TOLERATES_A_BIT: Final = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": A_BIT}
MANY: Final = 120
"""Of each of three namespaces."""
RATE: Final = 8.0
"""Pods a second of each of them."""
SLOW: Final = 4.0
"""Likewise, where pods have to be left while the wall clock is set more than once."""
FEW: Final = 10
CLOCK: Final = "clock set while pods go"
CLOCK_SHORT: Final = "clock set while pods tolerate 6 s"
CLOCK_LONG: Final = "clock set while pods tolerate an hour"
KILLED: Final = "API server killed twice"
UNSEEN: Final = "API server restarted unseen"
CHANGES: Final[Mapping[str, Callable[[Ward, str], None]]] = {
    "taint removed": lambda ward, rule: ward.spare(rule),
    "claim deallocated": lambda ward, _: ward.deallocate(),
    "pod replaced": lambda ward, _: ward.replace(),
}


Played = tuple[Told, list[Json]]


class One(Stage):
    """One process, without a lease: it lives through everything."""

    @property
    def process(self) -> Deceived:
        [process] = self.processes
        return process

    # --- the wall clock --------------------------------------------------------------------------

    def clock(self, fault: str) -> None:
        """It is an hour behind, then right, half an hour ahead, an hour behind again, and right."""
        wards = self.wards_of(fault, MANY)
        short = self.wards_of(CLOCK_SHORT, FEW, TOLERATES_A_BIT)
        long = self.wards_of(CLOCK_LONG, FEW, TOLERATES_AN_HOUR)
        steps = [self.set_clock(-AN_HOUR)]
        for ward in wards:
            ward.empty(rate=SLOW)
        for ward in short:
            ward.empty(after_seconds=A_BIT)
        for ward in long:
            ward.empty(after_seconds=AN_HOUR)
        self.wait_still(wards)
        steps.append(self.set_clock(0.0))
        for ward in short:
            ward.wait_empty()  # for by a clock that is ahead they would be due sooner
        steps.append(self.set_clock(AN_HOUR / 2))
        wards[0].wait_evicted(wards[0].evicted() + MANY // 8)
        steps.append(self.set_clock(-AN_HOUR))
        self.wait_still(wards)
        steps.append(self.set_clock(0.0))
        for ward in wards:
            ward.wait_empty()
        for first, *_ in (wards, short, long):
            first.faults = len(steps)

    def set_clock(self, seconds: float) -> float:
        """Returns once it has seen that: it looks once a second, and a clock that is set back before was not set."""

        def noticed() -> int:
            return len(self.process.lines("wall clock changed"))

        before = noticed()
        self.process.shift(seconds)
        wait_until(lambda: noticed() > before, "noticed")
        return seconds

    @staticmethod
    def wait_still(wards: list[Ward]) -> None:
        """Returns once nobody goes, while somebody has to; what was asked for just before may still be answered."""

        def still() -> bool:
            known = [ward.evicted() for ward in wards]
            assert all(gone < MANY for gone in known)
            return stays(([ward.evicted() for ward in wards] == known for _ in iter(int, 1)), 2.0)

        wait_until(still, "no pod is evicted")

    # --- the API server --------------------------------------------------------------------------

    def killed(self, fault: str) -> None:
        """Twice in the middle of it; the second time it comes back compacted."""
        wards = self.wards_of(fault, MANY)
        for ward in wards:
            ward.empty(rate=RATE)
        for part in (1, 2):
            wards[0].wait_evicted(MANY * part // 4)
            self.kill()
            if part > 1:
                self.compact()
            self.plane.start_api_server()
        for ward in wards:
            ward.wait_empty()
        wards[0].faults = 2

    def unseen(self, fault: str) -> None:
        """Crowds are due and refused; while the worker is held and the server is away, something lets them stay."""
        wards = {change: self.wards_of(f"{fault}, {change}", FEW) for change in CHANGES}
        every = [(ward, change) for change, each in wards.items() for ward in each]
        for ward, _ in every:
            self.webhook.refuse(ward.name, Refusal(500))
        rules = [ward.empty() for ward, _ in every]
        wait_until(lambda: all(ward.refusals() >= ward.units for ward, _ in every), "refused")
        os.kill(self.process.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: not self.open_watches(), "all watches ended in order", every=0.3)
            self.kill()
            self.plane.start_api_server()
            for (ward, change), rule in zip(every, rules, strict=True):
                CHANGES[change](ward, rule)
                ward.faults = FEW
                self.webhook.relent(ward.name)
            self.compact()
        finally:
            os.kill(self.process.process.pid, signal.SIGCONT)

    def open_watches(self) -> set[str]:
        """Those that the server has begun to answer, and has not ended."""
        watches = [(each["stage"], each["auditID"]) for each in self.plane.audit_events() if each["verb"] == "watch"]
        begun = {number for stage, number in watches if stage == "ResponseStarted"}
        assert begun
        return begun - {number for stage, number in watches if stage == "ResponseComplete"}

    def kill(self) -> None:
        """The API server, without a warning."""
        server = self.plane.processes.pop("kube-apiserver")
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: server.code is not None, "killed")

    def compact(self) -> None:
        """Makes etcd forget everything but the present, as the API server makes it do every few minutes."""
        answer = self._ask_etcd("range", {"key": "AA==", "limit": "1"})
        self._ask_etcd("compaction", {"revision": answer["header"]["revision"], "physical": True})

    def _ask_etcd(self, method: str, question: Json) -> Json:
        body = json.dumps(question).encode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.plane.folder / arguments.ETCD_SOCKET))
            connection.sendall(f"POST /v3/kv/{method} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            head, _, answer = b"".join(iter(lambda: connection.recv(4096), b"")).partition(b"\r\n\r\n")
        assert b" 200 OK" in head.splitlines()[0], head
        answered: Json = json.loads(answer)
        return answered


@pytest.fixture(scope="module")
def played(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What came of each fault, and why lists were read anew."""
    with One(assets, tmp_path_factory.mktemp("lost-server")) as stage:
        stage.start()
        stage.process.wait_working()
        stage.play({CLOCK: stage.clock})
        stage.play({UNSEEN: stage.unseen})
        stage.play({KILLED: stage.killed})
        return stage.told(), stage.process.lines("list or watch failed")


@pytest.mark.parametrize(
    "fault", [CLOCK, CLOCK_SHORT, CLOCK_LONG, KILLED, *(f"{UNSEEN}, {change}" for change in CHANGES)]
)
def test_nobody_is_lost_evicted_twice_or_wrongly(played: Played, fault: str) -> None:
    told, _ = played
    clean(
        told.ledgers[fault], splits_most=2 if fault == KILLED else 0
    )  # it strikes twice, and requests may be under way


def test_rules_are_done_when_the_last_pod_is_and_not_before(played: Played) -> None:
    told, _ = played
    assert told.too_soon == []


def test_watches_could_not_go_on_from_where_they_were(played: Played) -> None:
    """Else it would not have been shown that this costs nothing: 410, too old resource version."""
    _, reasons = played
    # Not of each resource: one whose watch could not be resumed for five times in a row is listed for that reason.
    gone = {each["resource"] for each in reasons if ": 410: " in each["error"]}
    assert len(gone & {"devicetaintrules", "resourceclaims", "resourceslices", "pods"}) >= 2
