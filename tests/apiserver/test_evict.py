"""The worker on a real API server, without any other evictor: each mode once, ceilings, and who leads."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from tests.apiserver.evicting import GENTLE, RULES, EvictProcess, Ward, stays
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.plane import ControlPlane

pytestmark = pytest.mark.apiserver

TOLERATES_SCHEDULING = {"key": "example.com/broken", "operator": "Exists", "effect": "NoSchedule"}
TOLERATES_AN_HOUR = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}


@pytest.fixture
def ward(plane: ControlPlane) -> Iterator[Ward]:
    if versions.minor(plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    with Ward(plane.client) as ward:
        yield ward


def test_replacement_deletes_as_the_in_tree_controller_does(plane: ControlPlane, ward: Ward) -> None:
    for name in ("one", "two"):
        ward.admit(name)
    ward.admit("later", TOLERATES_AN_HOUR)
    with EvictProcess(plane, "replacement") as process:
        process.wait_working()
        rule = ward.taint()
        wait_until(lambda: ward.present() == {"later"}, "two pods evicted")
        wait_until(lambda: len(process.lines("pod evicted")) == 2, "told")
        wait_until(lambda: ward.condition(rule, "EvictionInProgress").get("message", "").count("evicted since"), "told")
        pending = "1 pod needs to be evicted in 1 namespace. 2 pods evicted since starting the controller."
        assert ward.condition(rule, "EvictionInProgress")["message"] == pending
        assert ward.condition(rule)["reason"] == "Waiting"
        assert process.metric("device_taint_eviction_controller_pod_deletions_total") == {"": 2.0}
        _ = plane.client.delete(path("resource.k8s.io/v1", "devicetaintrules", name=rule)).object
        cancelled = ("later", "DeviceTaintManagerEviction", "Cancelling deletion")
        wait_until(lambda: cancelled in ward.events(), "told that nothing comes of the third")
    told = [event for event in sorted(ward.events()) if event[1] == "DeviceTaintManagerEviction"]
    marked = [(pod, "DeviceTaintManagerEviction", "Marking for deletion") for pod in ("one", "two")]
    assert told == [cancelled, *marked]
    assert ward.present() == {"later"}
    assert process.process.code == 0


def test_observe_plans_and_touches_nothing(plane: ControlPlane, ward: Ward) -> None:
    ward.admit("one")
    with EvictProcess(plane, "observe") as process:
        process.wait_working()
        rule = ward.taint()
        wait_until(lambda: ward.condition(rule).get("reason") == "ObserveOnly", "what would be")
        condition = ward.condition(rule)
        assert condition["status"] == "False"
        assert condition["message"] == "0 pods evicted; 1 pod would be evicted in 1 namespace"
        assert stays((ward.present() == {"one"} for _ in iter(int, 1)), 2.0)
        assert process.metric("device_taint_webhook_eviction_requests_total").values()
        assert not any(process.metric("device_taint_webhook_eviction_requests_total").values())


def test_delegated_empties_devices_of_rules_that_ask(plane: ControlPlane, ward: Ward) -> None:
    ward.admit("one")
    ward.admit("returning", TOLERATES_SCHEDULING)
    with EvictProcess(plane, "delegated", policy=GENTLE) as process:
        process.wait_working()
        plain = ward.taint("NoSchedule")
        hard = ward.taint("NoExecute")
        assert stays((ward.present() == {"one", "returning"} for _ in iter(int, 1)), 2.0)
        assert ward.condition(plain) == {}
        assert ward.condition(hard) == {}
        rule = ward.taint("NoSchedule", annotations={"devicetaint.io/evict": "true"})
        wait_until(lambda: ward.present() == {"returning"}, "one pod evicted")
        wait_until(lambda: ward.condition(rule).get("reason") == "Completed", "it is done", seconds=40)
        told = "1 pod evicted; 1 left alone (ToleratesScheduling)"
        assert ward.condition(rule)["message"] == told
        assert ("one", "Evicted", f"evicted because of DeviceTaintRule {rule}") in ward.events()


def test_standby_takes_over_at_once_when_the_lease_is_given_back(plane: ControlPlane, ward: Ward) -> None:
    ward.admit("one")
    lease = f"--leader-elect-lease={ward.name}/evict"
    with EvictProcess(plane, "replacement", "--leader-elect", lease) as first:
        first.wait_working()
        with EvictProcess(plane, "replacement", "--leader-elect", lease) as second:
            wait_until(lambda: bool(second.lines("ready")), "the other one is ready")
            assert stays((not second.lines("working") for _ in iter(int, 1)), 3.0)
            assert first.process.stop() == 0
            wait_until(lambda: bool(second.lines("working")), "the other one leads", seconds=14)
            ward.taint()
            wait_until(lambda: not ward.present(), "evicted")
    holder = plane.client.get(path("coordination.k8s.io/v1", "leases", namespace=ward.name, name="evict")).object
    assert holder["spec"].get("holderIdentity", "") == ""


def test_replacement_refuses_to_work_beside_the_in_tree_controller(full_plane: ControlPlane) -> None:
    if versions.minor(full_plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    with EvictProcess(full_plane, "replacement") as process:
        wait_until(lambda: process.process.code is not None, "it ends", seconds=40)
        assert process.process.code == 2
        [stopped] = process.lines("stopped by an error")
        assert "the in-tree device-taint-eviction-controller is at work" in stopped["error"]
        assert process.lines("working") == []
        [canary] = process.lines("canary")
    wait_until(lambda: full_plane.client.get(f"{RULES}/{canary['rule']}").code == HTTPStatus.NOT_FOUND, "it is gone")


def test_rule_that_hits_more_than_it_may_stops_until_that_is_confirmed(plane: ControlPlane, ward: Ward) -> None:
    for name in ("one", "two"):
        ward.admit(name)
    limited = f"{GENTLE}\nimpact: {{limits: [{{pods: 1}}]}}\n"
    with EvictProcess(plane, "replacement", policy=limited) as process:
        process.wait_working()
        rule = ward.taint()
        wait_until(lambda: ward.condition(rule).get("reason") == "Stopped", "it stops")
        told = "hits 2 pods, the limit is 1 and nothing confirmed; 0 pods evicted"
        assert ward.condition(rule)["message"] == told
        assert stays((ward.present() == {"one", "two"} for _ in iter(int, 1)), 2.0)
        seal = "A" * 30  # nobody proves it here: it is admission that lets no other pass
        code = f"v1.1900000000.2.2.2.1.{seal}"
        patch = {"metadata": {"annotations": {"devicetaint.io/confirm-impact": code}}}
        _ = plane.client.patch(f"{RULES}/{rule}", patch).object
        wait_until(lambda: not ward.present(), "both go")
        wait_until(lambda: ward.condition(rule).get("reason") == "Completed", "it is done", seconds=40)
        assert ward.condition(rule)["message"] == "2 pods evicted"
