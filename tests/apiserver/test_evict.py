"""The worker on a real API server, without any other evictor: each mode once, ceilings, and who leads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import pytest

from tests.apiserver.evicting import DRIVER, GENTLE, RULES, EvictProcess, Ward, stays
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.admission.confirmation import ImpactToConfirm, Numbers, digest_of, text_of
from webhook.api.decode import Reader
from webhook.api.rules import decode_rule

LOOKS = 3
"""It waits 5 s for the in-tree controller to answer its canary; a busy machine may take longer once, not every time."""
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
        # Written in turn, and perhaps first of one of the two.
        pending = "1 pod needs to be evicted in 1 namespace. 2 pods evicted since starting the controller."
        wait_until(lambda: ward.condition(rule, "EvictionInProgress").get("message") == pending, pending)
        wait_until(lambda: ward.condition(rule).get("reason") == "Waiting", "it waits for the third")
        deleted = "device_taint_eviction_controller_pod_deletions_total"
        wait_until(lambda: process.metric(deleted) == {"": 2.0}, "two counted")
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
        told = "0 pods evicted; 1 pod would be evicted in 1 namespace"
        wait_until(lambda: ward.condition(rule)["message"] == told, told)
        assert ward.condition(rule)["status"] == "False"
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
        # A pod may be gone before its eviction is answered, and is counted then.
        told = "1 pod evicted; 1 left alone (ToleratesScheduling)"
        wait_until(lambda: ward.condition(rule).get("message") == told, told)
        assert ward.condition(rule)["reason"] == "Completed"
        evicted = ("one", "Evicted", f"evicted because of DeviceTaintRule {rule}")
        wait_until(lambda: evicted in ward.events(), "told by an Event")


def test_standby_takes_over_at_once_when_the_lease_is_given_back(plane: ControlPlane, ward: Ward) -> None:
    ward.admit("one")
    lease = f"--leader-elect-lease={ward.name}/evict"
    with EvictProcess(plane, "replacement", "--leader-elect", lease) as first:
        first.wait_working()
        with EvictProcess(plane, "replacement", "--leader-elect", lease) as second:
            wait_until(lambda: bool(second.lines("ready")), "the other one is ready")
            assert stays((not second.lines("working") for _ in iter(int, 1)), 3.0)
            leader = _holder(plane, ward)
            assert first.process.stop() == 0
            # A lease that is left to run out lasts 15 s; what the other one does before it works is not part of that.
            wait_until(lambda: _holder(plane, ward) not in ("", leader), "the other one has the lease", seconds=14)
            wait_until(lambda: bool(second.lines("working")), "the other one leads")
            ward.taint()
            wait_until(lambda: not ward.present(), "evicted")
    assert _holder(plane, ward) == ""


def _holder(plane: ControlPlane, ward: Ward) -> str:
    """Who has the lease; empty if nobody does."""
    lease = plane.client.get(path("coordination.k8s.io/v1", "leases", namespace=ward.name, name="evict")).object
    return str(lease["spec"].get("holderIdentity", ""))


@pytest.mark.whole
def test_replacement_refuses_to_work_beside_the_in_tree_controller(full_plane: ControlPlane) -> None:
    if versions.minor(full_plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    for _ in range(LOOKS):
        with EvictProcess(full_plane, "replacement") as process:
            wait_until(lambda: process.process.code is not None or bool(process.lines("working")), "it ends or works")
            if process.process.code is None:
                continue
            _assert_refused(full_plane, process)
            return
    pytest.fail(f"it has begun to work {LOOKS} times")


def _assert_refused(full_plane: ControlPlane, process: EvictProcess) -> None:
    assert process.process.code == 2
    [stopped] = process.lines("stopped by an error")
    assert "the in-tree device-taint-eviction-controller is running" in stopped["error"]
    assert process.lines("working") == []
    [canary] = process.lines("canary")
    wait_until(lambda: full_plane.client.get(f"{RULES}/{canary['rule']}").code == HTTPStatus.NOT_FOUND, "it is gone")


def test_rule_that_hits_more_than_it_may_stops_until_that_is_confirmed(plane: ControlPlane, ward: Ward) -> None:
    """And the next pods stop it again: no text restarts the count."""
    for name in ("one", "two"):
        ward.admit(name)
    limited = f"{GENTLE}\nimpact: {{limits: [{{pods: 1}}], tolerance: 0%}}\n"
    with EvictProcess(plane, "replacement", policy=limited) as process:
        process.wait_working()
        rule = ward.taint()
        wait_until(lambda: ward.condition(rule).get("reason") == "Stopped", "it stops")
        told = "hits 2 pods, the limit is 1 and nothing was confirmed; 0 pods evicted"
        assert ward.condition(rule)["message"] == told
        _confirm(plane, rule, "v1 devices=2 claims=2 pods=2 namespaces=1 of=aaaaaaaaaaaaaaaa")
        other = "the limit is 1 and its confirmation does not count: it was printed for another object"
        wait_until(lambda: other in ward.condition(rule)["message"], "that is of another rule")
        assert stays((ward.present() == {"one", "two"} for _ in iter(int, 1)), 2.0)
        _confirm(plane, rule, _text_for(plane, rule, 2))
        wait_until(lambda: not ward.present(), "both go", seconds=60)
        # A pod may be gone before its eviction is answered, and is counted then.
        wait_until(lambda: ward.condition(rule).get("message") == "2 pods evicted", "both are counted")
        assert ward.condition(rule)["reason"] == "Completed"
        ward.admit("three")
        again = "hits 3 pods, at most 2 were confirmed; 2 pods evicted"
        wait_until(lambda: ward.condition(rule).get("message") == again, "it stops once more")
        _confirm(plane, rule, _text_for(plane, rule, 1, done=2))
        wait_until(lambda: not ward.present(), "the third goes", seconds=60)


def _text_for(plane: ControlPlane, rule: str, pods: int, done: int = 0) -> str:
    """As admission prints it."""
    value = decode_rule(Reader(plane.client.get(f"{RULES}/{rule}").object, []))
    hit = ImpactToConfirm(Numbers(pods, pods, pods, 1), done=done)
    return text_of(hit, digest_of(value, rule, None))


def _confirm(plane: ControlPlane, rule: str, text: str) -> None:
    patch = {"metadata": {"annotations": {"devicetaint.io/confirm-impact": text}}}
    _ = plane.client.patch(f"{RULES}/{rule}", patch).object


# --- rules that are being deleted -----------------------------------------------------------------


@contextmanager
def _being_deleted(plane: ControlPlane, ward: Ward, effect: str) -> Iterator[str]:
    """A rule for no device, held by a finalizer until the end."""
    rule = ward.taint(effect, device="none", finalizers=["example.com/keep"])
    _ = plane.client.delete(f"{RULES}/{rule}").object
    assert "deletionTimestamp" in plane.client.get(f"{RULES}/{rule}").object["metadata"]
    try:
        yield rule
    finally:
        _ = plane.client.patch(f"{RULES}/{rule}", {"metadata": {"finalizers": None}}).object


def _aim(plane: ControlPlane, ward: Ward, rule: str, **metadata: Any) -> None:
    """At all of the ward's devices."""
    selector = {"driver": DRIVER, "pool": ward.name, "device": None}
    _ = plane.client.patch(f"{RULES}/{rule}", {"metadata": metadata, "spec": {"deviceSelector": selector}}).object


@pytest.mark.whole
def test_request_to_evict_on_a_rule_that_is_being_deleted_is_not_followed(plane: ControlPlane, ward: Ward) -> None:
    """R1."""
    ward.admit("one")
    with EvictProcess(plane, "delegated", policy=GENTLE) as process, _being_deleted(plane, ward, "NoSchedule") as rule:
        process.wait_working()
        _aim(plane, ward, rule, annotations={"devicetaint.io/evict": "true"})
        wait_until(lambda: ward.condition(rule).get("reason") == "NothingToDo", "it says so")
        assert "being deleted" in ward.condition(rule)["message"]
        assert stays((ward.present() == {"one"} for _ in iter(int, 1)), 3.0)


@pytest.mark.whole
def test_no_execute_acts_until_its_rule_is_gone(plane: ControlPlane, ward: Ward) -> None:
    """R1: in mode replacement as in tree."""
    ward.admit("one")
    with EvictProcess(plane, "replacement") as process, _being_deleted(plane, ward, "NoExecute") as rule:
        process.wait_working()
        _aim(plane, ward, rule)
        wait_until(lambda: not ward.present(), "evicted")


def test_in_tree_controller_acts_on_rules_that_are_being_deleted(full_plane: ControlPlane) -> None:
    """What mode replacement goes by."""
    if versions.minor(full_plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    with Ward(full_plane.client) as ward:
        ward.admit("one")
        with _being_deleted(full_plane, ward, "NoExecute") as rule:
            _aim(full_plane, ward, rule)
            wait_until(lambda: not ward.present(), "evicted")
