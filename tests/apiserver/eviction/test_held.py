"""A leader that is stopped right before it sends an eviction, and goes on after another process has taken the lease.

It sends this request no more: no pod is evicted twice, and none is lost.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.apiserver.eviction.bench import now
from tests.apiserver.eviction.ledger import Deceived, Stage
from tests.controlplane.assets import Assets
from tests.controlplane.processes import wait_until

pytestmark = pytest.mark.slow

PODS: Final = 40
"""Of each of three namespaces."""
NUMBER: Final = 7
"""Before which eviction the leader stops."""
LEASE: Final = ("--leader-elect", "--leader-elect-lease=default/evict")


class Stopping(Deceived):
    """Stops itself; see `stopping`."""

    def _program(self) -> list[str]:
        program, *_ = super()._program()
        return [program, "-m", "tests.apiserver.eviction.stopping", str(NUMBER)]

    @property
    def stopped(self) -> bool:
        """Whether it has done so."""
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"


@pytest.mark.whole
def test_leader_that_is_stopped_before_an_eviction_does_not_send_it_late(assets: Assets, tmp_path: Path) -> None:
    with Stage(assets, tmp_path) as stage, Stopping(stage.plane, *LEASE) as first:
        wait_until(lambda: bool(first.lines("working")), "it leads")
        stage.start(*LEASE)
        [second] = stage.processes
        wait_until(lambda: bool(second.lines("ready")), "the next one is ready")
        wards = stage.wards_of("stopped", PODS)
        for ward in wards:
            ward.empty()
        wait_until(lambda: first.stopped, "it has stopped")
        try:
            wait_until(lambda: bool(second.lines("working")), "the next one leads")
            for ward in wards:
                ward.wait_empty()
        finally:
            for ward in wards:
                ward.resumed = now()
            os.kill(first.process.pid, signal.SIGCONT)
        wait_until(lambda: first.process.code is not None, "it has lost the lease")
        ledgers = [ward.ledger() for ward in wards]
        print(*ledgers, sep="\n")
        assert [(each.lost, each.doubled, each.wrong) for each in ledgers] == [(0, 0, 0)] * len(wards)
