"""Reactions in a cluster: taints that a driver publishes become rules, and these go with what they are for."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from tests.apiserver.patches.closing import RULES, VERSION
from tests.apiserver.patching import PatchProcess
from tests.builders import make_slice
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.unit.cluster.acting import now

Json = dict[str, Any]
SLICES: Final = path(VERSION, "resourceslices")
CONFIG_MAPS: Final = path("v1", "configmaps", namespace="default")
EVENTS: Final = path("events.k8s.io/v1", "events", namespace="default")
DRIVER: Final = "reacting.example.com"
SICK: Final = f"{DRIVER}/sick"
HEAD: Final = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
FLAG: Final = "--policy-configmap=default/reactions"
QUIET_SECONDS: Final = 60


def reaction(limit: int | None = None) -> str:
    """A policy with one reaction."""
    bound = "" if limit is None else f"  maxDevices: {limit}\n"
    return (
        f"{HEAD}reactions:\n- name: sick\n  when: {{driver: {DRIVER}, key: {SICK}, for: 2s}}\n"
        f"  then: {{effect: NoSchedule}}\n{bound}"
    )


class ReactingDriver:
    """Pools of one driver, and the ConfigMap with the policy."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.client = plane.client
        self._generations: dict[str, int] = {}

    def publish(self, pool: str, *, since: str | None = None, **sick: bool) -> None:
        """Devices by name, each with the taint or without; `since` is what the driver says of its age."""
        generation = self._generations[pool] = self._generations.get(pool, 0) + 1
        taint = {"key": SICK, "effect": "None"} | ({} if since is None else {"timeAdded": since})
        devices = [
            {"name": name.replace("_", "-"), **({"taints": [taint]} if ill else {})} for name, ill in sick.items()
        ]
        obj = make_slice(devices, driver=DRIVER, pool=pool, node_name=pool, meta={"name": f"reacting-{pool}"})
        obj["spec"]["pool"]["generation"] = generation
        reply = self.client.apply(f"{SLICES}/reacting-{pool}", obj, field_manager="driver")
        assert reply.ok, reply

    def withdraw(self, pool: str) -> None:
        """The driver says nothing of a pool any more."""
        self.client.delete(f"{SLICES}/reacting-{pool}")

    def policy(self, text: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "reactions"},
            "data": {"policy.yaml": text},
        }
        reply = self.client.apply(f"{CONFIG_MAPS}/reactions", body, field_manager="admin")
        assert reply.ok, reply

    def clear(self) -> None:
        for pool in self._generations:
            self.withdraw(pool)
        for each in self.rules().values():
            self.client.delete(f"{RULES}/{each['metadata']['name']}")
        self.client.delete(f"{CONFIG_MAPS}/reactions")

    def rules(self) -> dict[str, Json]:
        """The rules of reactions, by pool and device."""
        found = {}
        for each in self.client.get(RULES).items:
            if each["metadata"].get("labels", {}).get("devicetaint.io/reaction") == "true":
                selector = each["spec"]["deviceSelector"]
                assert selector["driver"] == DRIVER
                found[f"{selector['pool']}/{selector['device']}"] = each
        return found

    def wait_closed(self, *devices: str, seconds: float = 120) -> None:
        wait_until(lambda: self.rules().keys() == set(devices), f"closed are {devices}", seconds=seconds)

    def notes(self, reason: str) -> list[str]:
        """What Events about the ConfigMap say."""
        found = [each for each in self.client.get(EVENTS).items if each["reason"] == reason]
        assert {(each["regarding"]["kind"], each["regarding"]["name"]) for each in found} <= {
            ("ConfigMap", "reactions")
        }
        return [each["note"] for each in found]


@pytest.fixture
def driver(defined: ControlPlane) -> Iterator[ReactingDriver]:
    found = ReactingDriver(defined)
    yield found
    found.clear()


@pytest.mark.whole
def test_taint_that_lasts_closes_its_device_until_it_has_been_gone_for_long_enough(driver: ReactingDriver) -> None:
    """Whatever age the driver claims. A rule for a device that no slice shows is not kept."""
    driver.policy(reaction())
    driver.publish("a", gpu_0=True, gpu_1=False)
    driver.publish("b", gpu_0=True, since="2020-01-01T00:00:00Z")
    began_at = now()
    with PatchProcess(driver.plane, FLAG) as process:
        process.wait_for("working")
        driver.wait_closed("a/gpu-0", "b/gpu-0")
        rules = driver.rules()
        rule = rules["a/gpu-0"]
        made = [datetime.fromisoformat(each["metadata"]["creationTimestamp"]) for each in rules.values()]
        assert min(made) >= began_at.replace(microsecond=0) + timedelta(seconds=2)
        taint = {name: text for name, text in rule["spec"]["taint"].items() if name != "timeAdded"}
        assert taint == {"key": "devicetaint.io/degraded", "effect": "NoSchedule"}
        assert rule["metadata"]["annotations"]["devicetaint.io/description"] == f"Degraded: sick ({SICK})"
        assert "ownerReferences" not in rule["metadata"]
        began = time.monotonic()
        driver.publish("a", gpu_0=False, gpu_1=False)
        driver.withdraw("b")
        driver.wait_closed("a/gpu-0")
        driver.wait_closed(seconds=4 * QUIET_SECONDS)
        assert time.monotonic() - began >= QUIET_SECONDS - 1


@pytest.mark.whole
def test_what_was_changed_by_hand_is_put_back_and_a_restart_writes_nothing(driver: ReactingDriver) -> None:
    driver.policy(reaction())
    driver.publish("a", gpu_0=True)
    with PatchProcess(driver.plane, FLAG) as process:
        process.wait_for("working")
        driver.wait_closed("a/gpu-0")
        before = driver.rules()["a/gpu-0"]
        name = before["metadata"]["name"]
        edits: list[Any] = [
            {"spec": {"taint": {"effect": "None", "value": "x"}}},
            {"metadata": {"annotations": {"devicetaint.io/evict": "true"}}},
            {"metadata": {"annotations": {"devicetaint.io/description": "x"}}},
        ]
        for edit in edits:
            changed = driver.client.patch(f"{RULES}/{name}", edit).object
            assert _essence(changed) != _essence(before), edit
            wait_until(lambda: _essence(driver.rules()["a/gpu-0"]) == _essence(before), f"put back: {edit}")
        assert driver.client.delete(f"{RULES}/{name}").ok
        wait_until(lambda: [*map(_essence, driver.rules().values())] == [_essence(before)], "made again")
    before = driver.rules()["a/gpu-0"]
    with PatchProcess(driver.plane, FLAG) as process:
        process.wait_for("policy in use")
        process.wait_for("working")
        driver.publish("b", gpu_0=True)
        driver.wait_closed("a/gpu-0", "b/gpu-0")
        assert driver.rules()["a/gpu-0"] == before


def _essence(rule: Json) -> Any:
    metadata, spec = rule["metadata"], rule["spec"]
    taint = {name: value for name, value in spec["taint"].items() if name != "timeAdded"}
    return metadata.get("labels"), metadata.get("annotations"), spec["deviceSelector"], taint


def test_above_max_devices_nothing_more_is_made_and_an_event_says_so(driver: ReactingDriver) -> None:
    driver.policy(reaction(limit=1))
    driver.publish("a", gpu_0=True, gpu_1=True)
    with PatchProcess(driver.plane, FLAG) as process:
        process.wait_for("working")
        wait_until(lambda: bool(driver.notes("AboveMaxDevices")), "an Event says so")
        [note] = driver.notes("AboveMaxDevices")
        assert note.endswith("maxDevices is 1, so nothing is done for 1: a/gpu-1")
        driver.wait_closed("a/gpu-0")
        driver.policy(reaction(limit=2))
        driver.wait_closed("a/gpu-0", "a/gpu-1")
        wait_until(lambda: bool(driver.notes("WithinMaxDevices")), "an Event says that it is over")
        active = 'reaction_reasons{reaction="sick",state="active"} 2.0'
        wait_until(lambda: active in _page(f"http://{process.metrics}/metrics"), "so do the metrics")


@pytest.mark.whole
def test_without_a_policy_that_can_be_loaded_it_is_not_ready_and_rules_stay(driver: ReactingDriver) -> None:
    driver.policy(reaction())
    driver.publish("a", gpu_0=True)
    with PatchProcess(driver.plane, FLAG) as process:
        process.wait_for("working")
        driver.wait_closed("a/gpu-0")
    driver.policy(f"{HEAD}reactions: 3\n")
    with PatchProcess(driver.plane, FLAG) as process:
        process.wait_for("working")
        wait_until(lambda: "no policy could be loaded" in _page(f"http://{process.health}/readyz"), "it is not ready")
        driver.publish("a", gpu_0=True, gpu_1=True)
        time.sleep(4)
        assert driver.rules().keys() == {"a/gpu-0"}
        driver.policy(reaction())
        driver.wait_closed("a/gpu-0", "a/gpu-1")
        wait_until(lambda: _page(f"http://{process.health}/readyz").startswith("ok"), "it is ready")


def _page(address: str) -> str:
    """What is answered, also with an error."""
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
