"""Patches in a cluster where everything runs: scheduler, controllers, and our controller of patches."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.apiserver.patches.closing import KEY, LARGE, RULES, ClosingFleet, large
from tests.conftest import FAKE_NODES
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

pytestmark = pytest.mark.usefixtures("controller")

FRAGILE: Final = 'device.attributes["{driver}"].memory > 40'
EVENTS: Final = path("events.k8s.io/v1", "events", namespace="default")


def test_class_with_cel_is_tainted_as_the_scheduler_allocates_it(fleet: ClosingFleet) -> None:
    """P-2, P-20, P-23: exactly the devices of the class; the scheduler avoids them; who tolerates gets one."""
    fleet.set_class(f'device.driver == "{fleet.driver}"', LARGE.format(driver=fleet.driver))
    given = set().union(*[fleet.wait_for_devices(fleet.pod(node, every=True)) for node in FAKE_NODES])
    assert given == {(node, f"gpu-{at}") for node in FAKE_NODES for at in (0, 2)}
    fleet.clear()
    fleet.wait_known(len(given))
    stored = fleet.patch("closed", deviceClassName=fleet.name)
    fleet.wait_expanded(stored)
    assert fleet.closed(stored["metadata"]["uid"]) == given
    status = fleet.status("closed")
    assert (status["selectedDevices"], status["taintedDevices"], status["rules"]) == (4, 4, 4)
    waiting = fleet.pod_without_device(FAKE_NODES[0])
    assert fleet.wait_for_devices(fleet.pod(FAKE_NODES[0], tolerates=True)) <= given
    fleet.drop("closed")
    assert fleet.wait_for_devices(waiting) <= given


def test_rules_follow_devices_and_classes(fleet: ClosingFleet) -> None:
    """P-15, and the time of the taint stays."""
    fleet.wait_known(8)
    stored = fleet.patch("follows", deviceClassName=fleet.name, selectors=large(fleet))
    fleet.wait_expanded(stored)
    uid, node = stored["metadata"]["uid"], FAKE_NODES[0]
    times = {each["spec"]["taint"]["timeAdded"] for each in fleet.rules(uid)}
    fleet.publish(node, 2, **{"gpu-0": 80, "gpu-7": 80})
    other = {(FAKE_NODES[1], "gpu-0"), (FAKE_NODES[1], "gpu-2")}
    wait_until(lambda: fleet.closed(uid) == {(node, "gpu-0"), (node, "gpu-7"), *other}, "the new device is closed")
    assert {each["spec"]["taint"]["timeAdded"] for each in fleet.rules(uid)} == times
    fleet.set_class("false")
    wait_until(lambda: not fleet.rules(uid), "the class has no devices")
    fleet.set_class(f'device.driver == "{fleet.driver}"')
    wait_until(lambda: len(fleet.closed(uid)) == 4, "it has them again")


def test_what_is_changed_by_hand_is_put_back(fleet: ClosingFleet) -> None:
    """R-8: nothing in a rule is immutable. Fields that others add are taken away as well."""
    taints = [{"key": KEY, "effect": "NoSchedule", "data": {"a": 1}, "evictionsPerSecond": 3}]
    stored = fleet.patch("kept", taints, driver=fleet.driver)
    fleet.wait_expanded(stored)
    uid = stored["metadata"]["uid"]
    [rule] = fleet.rules(uid)
    name = rule["metadata"]["name"]
    edits: list[Any] = [
        {"spec": {"deviceSelector": {"device": "gpu-0"}}},
        {"spec": {"deviceSelector": None}},
        {"spec": {"taint": {"effect": "None", "value": "x"}}},
        {"metadata": {"labels": {"devicetaint.io/patch": None}}},
        {"metadata": {"labels": {"devicetaint.io/hardware-of": "x"}}},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"annotations": {"devicetaint.io/data": None, "devicetaint.io/description": "x"}}},
    ]
    for edit in edits:
        changed = fleet.client.patch(f"{RULES}/{name}", edit).object
        assert _essence(changed) != _essence(rule), edit
        wait_until(lambda: [_essence(each) for each in fleet.rules(uid)] == [_essence(rule)], f"put back: {edit}")
    assert fleet.client.delete(f"{RULES}/{name}").ok
    wait_until(lambda: [_essence(each) for each in fleet.rules(uid)] == [_essence(rule)], "made again")


def _essence(rule: Any) -> Any:
    """All that the controller answers for, except the time of a rule that was made again."""
    metadata, spec = rule["metadata"], rule["spec"]
    taint = {name: value for name, value in spec["taint"].items() if name != "timeAdded"}
    kept = {name: metadata.get(name) for name in ("labels", "annotations", "ownerReferences")}
    return kept | {"selector": spec.get("deviceSelector"), "taint": taint}


def test_cel_fault_is_an_event_and_a_condition(fleet: ClosingFleet) -> None:
    """K-9, P-16: the device is left out, the others are not."""
    fleet.wait_known(8)
    selectors = [{"cel": {"expression": FRAGILE.format(driver=fleet.driver)}}]
    stored = fleet.patch("fragile", driver=fleet.driver, selectors=selectors)
    fleet.wait_expanded(stored)
    uid = stored["metadata"]["uid"]
    assert len(fleet.closed(uid)) == 4
    status, reason, message = fleet.condition("fragile", "Evaluated")
    assert (status, reason) == ("False", "SelectorFailed")
    assert message.startswith(f"selector #0 fails on 2 devices: {fleet.driver}/{FAKE_NODES[0]}/gpu-3 (no such key")

    def events() -> list[str]:
        found = [each for each in fleet.client.get(EVENTS).items if each["regarding"].get("uid") == uid]
        return [each["note"] for each in found if each["reason"] == "SelectorFailed"]

    wait_until(lambda: events() == [message], "one event says so")


def test_refused_rule_is_a_condition_with_the_words_of_the_refusal(fleet: ClosingFleet) -> None:
    api = "admissionregistration.k8s.io/v1"
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
                 "resources": ["devicetaintrules"]}
            ]
        },
        "validations": [{"expression": 'object.spec.taint.key != "closed.example.com/no"', "message": "not this key"}],
    }  # fmt: skip
    policies, bindings = path(api, "validatingadmissionpolicies"), path(api, "validatingadmissionpolicybindings")
    _ = fleet.client.create(policies, {"metadata": {"name": "no"}, "spec": spec}).object
    binding = {"metadata": {"name": "no"}, "spec": {"policyName": "no", "validationActions": ["Deny"]}}
    _ = fleet.client.create(bindings, binding).object
    try:
        probe = {"deviceSelector": {"driver": "x"}, "taint": {"key": "closed.example.com/no", "effect": "NoSchedule"}}
        rule = {"metadata": {"name": "probe"}, "spec": probe}
        wait_until(lambda: not fleet.client.create(RULES, rule, dry_run=True).ok, "the policy is in force")
        fleet.patch("refused", [{"key": "closed.example.com/no", "effect": "NoSchedule"}], driver=fleet.driver)
        wait_until(lambda: fleet.condition("refused", "Expanded")[1] == "RuleRefused", "it is refused")
        assert "not this key" in fleet.condition("refused", "Expanded")[2]
        assert fleet.status("refused")["taintedDevices"] == 0
    finally:
        fleet.client.delete(f"{bindings}/no")
        fleet.client.delete(f"{policies}/no")
