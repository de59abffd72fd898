"""The controller of patches ends, begins again, or another one goes on."""

from __future__ import annotations

import os
import signal

import pytest

from tests.apiserver.patches.closing import RULES, ClosingFleet, large
from tests.apiserver.patching import PatchProcess
from tests.conftest import FAKE_NODES
from tests.controlplane.processes import wait_until

pytestmark = pytest.mark.whole


def test_patch_that_was_deleted_while_nothing_ran_leaves_no_rules(fleet: ClosingFleet) -> None:
    """Rules that the garbage collector does not know, as they lost their owner, go as well; a restart changes none."""
    with PatchProcess(fleet.plane) as process:
        process.wait_for("working")
        stays = fleet.patch("stays", driver=fleet.driver, pool=FAKE_NODES[0])
        goes = fleet.patch("goes", driver=fleet.driver, pool=FAKE_NODES[1])
        fleet.wait_expanded(stays)
        fleet.wait_expanded(goes)
    [rule] = fleet.rules(goes["metadata"]["uid"])
    [kept] = fleet.rules(stays["metadata"]["uid"])
    name = rule["metadata"]["name"]
    _ = fleet.client.patch(f"{RULES}/{name}", {"metadata": {"ownerReferences": None}}).object
    fleet.drop("goes")
    with PatchProcess(fleet.plane) as process:
        process.wait_for("working")
        wait_until(lambda: not fleet.rules(goes["metadata"]["uid"]), "its rule is gone")
        again = fleet.patch("later", driver=fleet.driver, pool=FAKE_NODES[1])
        fleet.wait_expanded(again)
        assert [each["rule"] for each in process.lines("rule written") if each["verb"] != "create"] == [name]
    assert fleet.rules(stays["metadata"]["uid"]) == [kept]


def test_another_replica_goes_on(fleet: ClosingFleet) -> None:
    """Only the holder of the lease writes; the other one has its caches, and takes over."""
    elect = ("--leader-elect", "--leader-elect-lease=default/patching")
    with PatchProcess(fleet.plane, *elect) as first, PatchProcess(fleet.plane, *elect) as second:
        first.process.wait_ready(lambda: bool(first.lines("working") or second.lines("working")))
        leader, standby = (first, second) if first.lines("working") else (second, first)
        standby.wait_for("ready")
        stored = fleet.patch("handed-over", deviceClassName=fleet.name, selectors=large(fleet))
        fleet.wait_expanded(stored)
        before = fleet.rules(stored["metadata"]["uid"])
        assert not standby.lines("rule written")
        os.kill(leader.process.pid, signal.SIGKILL)
        standby.wait_for("working")
        fleet.publish(FAKE_NODES[0], 2, **{"gpu-0": 80, "gpu-9": 80})
        wait_until(lambda: (FAKE_NODES[0], "gpu-9") in fleet.closed(stored["metadata"]["uid"]), "the standby goes on")
        after = {each["metadata"]["name"]: each for each in fleet.rules(stored["metadata"]["uid"])}
        assert after
        times = {each["spec"]["taint"]["timeAdded"] for each in (*before, *after.values())}
        assert len(times) == 1
