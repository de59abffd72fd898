"""Condition Released on a real API server: random histories side by side, and one story step by step.

Nothing runs but the API server and the worker. The test plays schedulers, some of which have not heard of the latest
taints, controllers that are late, and claims that tolerate. The audit log is the witness.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.apiserver.evicting import GENTLE, RULES, EvictProcess, stays
from tests.apiserver.eviction.released_record import RECORDED, RELEASED, Record
from tests.apiserver.eviction.witness import AUDIT_POLICY
from tests.apiserver.planes import own_plane
from tests.controlplane import versions
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.whole]

Json = dict[str, Any]

HISTORIES: Final = 20
SECONDS: Final = 45.0
LATE_SECONDS: Final = 3.0
"""How late schedulers may hear of a taint; the worker counts on 5 s."""
NOTICED_SECONDS: Final = 8.0
"""How long a new allocation may go unnoticed here, where the worker is also held for a while."""
HELD_SECONDS: Final = 2.0
VERSION: Final = f"{versions.GROUP}/v1"
SLICES: Final = path(VERSION, "resourceslices")
FINALIZER: Final = "example.com/stays"
DEVICES: Final = ("gpu-0", "gpu-1", "gpu-2")
TOLERATES: Final = {"key": "example.com/broken", "operator": "Exists", "effect": "NoSchedule"}
ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with own_plane(request, since=37, audit_policy={**AUDIT_POLICY, "rules": RECORDED}) as plane:
        yield plane


@pytest.fixture(scope="module")
def worker(recorded: ControlPlane) -> Iterator[EvictProcess]:
    with EvictProcess(recorded, "delegated", "--in-tree=absent", policy=GENTLE) as process:
        yield process.wait_working()


class Cell:
    """A namespace with a driver and a pool of its own."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.driver = f"{name}.example.com"
        self.claims = path(VERSION, "resourceclaims", namespace=name)
        labels = {ADMIN_LABEL: "true"}
        _ = client.create(path("v1", "namespaces"), {"metadata": {"name": name, "labels": labels}}).object

    def publish(self) -> None:
        pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": device} for device in DEVICES]
        spec = {"driver": self.driver, "allNodes": True, "pool": pool, "devices": devices}
        self.client.create(SLICES, {"metadata": {"name": self.name}, "spec": spec})

    def allocate(self, name: str, device: str, *tolerations: Json, admin: bool = False) -> None:
        """A claim that no pod uses yet."""
        exactly = {"deviceClassName": self.driver, "tolerations": list(tolerations), "adminAccess": admin}
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
        _ = self.client.create(self.claims, claim).object
        result = {"request": "gpu", "driver": self.driver, "pool": "pool", "device": device, "adminAccess": admin}
        results = [{**result, "tolerations": list(tolerations)}]
        self.set_status(name, allocation={"devices": {"results": results}})

    def set_status(self, name: str, **status: Any) -> None:
        _ = self.client.patch(f"{self.claims}/{name}/status", {"status": status}).object

    def remove(self, name: str) -> None:
        _ = self.client.request("DELETE", f"{self.claims}/{name}").object

    def taint(self, rule: str, device: str = "", effect: str = "NoSchedule", **metadata: Any) -> None:
        """Creates the rule, or changes it."""
        selector: Json = {"driver": self.driver, "pool": "pool"} | ({"device": device} if device else {})
        spec: Json = {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}}
        name = self.rule(rule)
        created = self.client.create(RULES, {"metadata": {"name": name, **metadata}, "spec": spec})
        if not created.ok:
            spec["deviceSelector"] |= {} if device else {"device": None}
            _ = self.client.patch(f"{RULES}/{name}", {"spec": spec}).object

    def rule(self, rule: str) -> str:
        return f"{self.name}-{rule}"

    def condition(self, rule: str, kind: str = RELEASED) -> Json:
        """Of its generation; empty while it has none."""
        found = self.client.get(f"{RULES}/{self.rule(rule)}").object
        conditions: list[Json] = found.get("status", {}).get("conditions", [])
        current = [each for each in conditions if each["observedGeneration"] == found["metadata"]["generation"]]
        return next((each for each in current if each["type"] == kind), {})

    def wait(self, rule: str, status: str, message: str = "", seconds: float = 240.0) -> float:
        """Returns once the condition has that status and message: after how many seconds."""
        began = time.monotonic()

        def said() -> bool:
            known = self.condition(rule)
            return known.get("status") == status and message in known["message"]

        wait_until(said, f"{self.rule(rule)}: {status} {message}", seconds=seconds, every=0.05)
        return time.monotonic() - began


# --- random histories -----------------------------------------------------------------------------


class History:
    """What happens to the devices of one cell; the choices follow from the seed."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self.cell = cell
        self.chance = random.Random(seed)
        self.closed: dict[str, tuple[str, str, float]] = {}
        """Device, effect and time of each rule as it is."""
        self.claims: list[str] = []
        self.count = 0

    def play(self) -> float:
        """Returns how long it took in the end until the last rule said that its devices are released."""
        self.cell.publish()
        steps: list[Callable[[], None]] = [
            *([self.taint] * 2 + [self.untaint] + [self.allocate_late] * 3 + [self.allocate_tolerating] * 2),
            *([self.release] * 4 + [self.unreserve]),
        ]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.chance.choice(steps)()
            time.sleep(self.chance.choice((0.0, 0.2, 0.5, 2.0, 5.0)))
        while self.claims:
            self.release()
        self.closed.clear()
        self.cell.taint("last")
        return self.cell.wait("last", "True")

    def taint(self) -> None:
        rule, device = self.chance.choice("ab"), self.chance.choice((*DEVICES, ""))
        effect = self.chance.choice(("NoSchedule", "NoExecute", "NoSchedule", "None"))
        before = time.monotonic()  # of a change that stands already, the time is that of the first
        if self.closed.get(rule, ("", "", 0.0))[:2] != (device, effect):
            self.cell.taint(rule, device, effect)
            self.closed[rule] = device, effect, before

    def untaint(self) -> None:
        rule = self.chance.choice("ab")
        if self.closed.pop(rule, None) is not None:
            _ = self.cell.client.delete(f"{RULES}/{self.cell.rule(rule)}").object

    def allocate_late(self) -> None:
        """By a scheduler that heeds taints, once it has heard of them."""
        device, now = self.chance.choice(DEVICES), time.monotonic()
        closed = [since for at, effect, since in self.closed.values() if effect != "None" and at in ("", device)]
        if all(now - since < LATE_SECONDS for since in closed):
            self.allocate(device)

    def allocate_tolerating(self) -> None:
        admin = self.chance.random() < 0.5
        self.allocate(self.chance.choice(DEVICES), {**TOLERATES, "effect": ""}, admin=admin)

    def allocate(self, device: str, *tolerations: Json, admin: bool = False) -> None:
        self.count += 1
        self.cell.allocate(f"c{self.count}", device, *tolerations, admin=admin)
        self.claims.append(f"c{self.count}")

    def release(self) -> None:
        """A claim is deleted, with a finalizer or without one, or deallocated."""
        if not self.claims:
            return
        name = self.claims.pop(self.chance.randrange(len(self.claims)))
        claim = f"{self.cell.claims}/{name}"
        match self.chance.randrange(3):
            case 0:
                self.cell.set_status(name, allocation=None, reservedFor=None)
            case 1:
                _ = self.cell.client.patch(claim, {"metadata": {"finalizers": [FINALIZER]}}).object
                self.cell.remove(name)
                time.sleep(self.chance.random())
                _ = self.cell.client.patch(claim, {"metadata": {"finalizers": None}}).object
            case _:
                self.cell.remove(name)

    def unreserve(self) -> None:
        """Reserved for a pod that is gone, or for none any more."""
        if self.claims:
            consumer = {"resource": "pods", "name": "gone", "uid": "gone"}
            self.cell.set_status(self.chance.choice(self.claims), reservedFor=[consumer])


def test_devices_are_never_called_released_while_the_audit_log_has_an_allocation(
    recorded: ControlPlane, worker: EvictProcess
) -> None:
    """Not once by schedulers that heed taints; what tolerates the taint and comes later unsets it soon."""
    histories = [History(Cell(recorded.client, f"history-{number}"), number) for number in range(HISTORIES)]
    with ThreadPoolExecutor(HISTORIES) as pool:
        playing = [pool.submit(each.play) for each in histories]
        for _ in range(3):
            time.sleep(SECONDS / 4)
            os.kill(worker.process.pid, signal.SIGSTOP)
            time.sleep(HELD_SECONDS)
            os.kill(worker.process.pid, signal.SIGCONT)
        waits = [each.result() for each in playing]
    record = Record(recorded)
    true, held, overlaps = record.true_periods(), record.held_periods(), record.overlaps()
    sneaked = [each for each in overlaps if each.held.tolerates and each.sneaked]
    noticed = [each.seconds for each in sneaked] or [0.0]
    print(f"{len(true)} times released, {len(held)} allocations, {len(sneaked)} of which came in between and tolerate")
    print(f"noticed after {statistics.median(noticed):.2f} s, at most {max(noticed):.2f} s")
    print(f"released {statistics.median(waits):.1f} s after the last rule was made, at most {max(waits):.1f} s")
    assert len(true) > HISTORIES
    assert len(held) > 3 * HISTORIES
    # A claim that tolerates may be allocated while the condition is on its way: then it sneaked in as well.
    assert [each for each in overlaps if not each.held.tolerates] == []
    assert [each for each in overlaps if each.seconds > NOTICED_SECONDS] == []


# --- a story --------------------------------------------------------------------------------------


def test_eviction_is_complete_before_the_devices_are_released(recorded: ControlPlane, worker: EvictProcess) -> None:
    """M5: an admin's claim, one that tolerates, and one from a template; finalizers, late controllers, a newcomer."""
    assert worker.process.code is None
    client = recorded.client
    cell = Cell(client, "story")
    cell.publish()
    for number, name in enumerate(("admin", "tolerating")):
        cell.allocate(name, DEVICES[number], {**TOLERATES, "effect": ""}, admin=name == "admin")
    template = Pod(cell, "template", DEVICES[2])
    cell.taint("r", annotations={"devicetaint.io/evict": "true"})
    wait_until(template.is_gone, "evicted")
    wait_until(lambda: cell.condition("r", "devicetaint.io/Eviction").get("reason") == "Completed", "it is done")
    said = "3 claims hold devices: story/admin (no pod), story/template (pod template), story/tolerating (no pod)"
    cell.wait("r", "False", said)  # its reservation is late
    cell.set_status("template", reservedFor=None, allocation=None)
    cell.wait("r", "False", "2 claims hold devices: story/admin (no pod), story/tolerating (no pod)")
    cell.remove("admin")
    _ = client.patch(f"{cell.claims}/tolerating", {"metadata": {"finalizers": [FINALIZER]}}).object
    cell.remove("tolerating")
    cell.wait("r", "False", "1 claim holds devices: story/tolerating (no pod)")
    assert stays((cell.condition("r")["status"] == "False" for _ in iter(int, 1)), 2.0)
    _ = client.patch(f"{cell.claims}/tolerating", {"metadata": {"finalizers": None}}).object
    freed = cell.wait("r", "True", "no allocation holds a selected device")
    cell.allocate("newcomer", DEVICES[0], {**TOLERATES, "effect": ""})
    unset = cell.wait("r", "False", "1 claim holds devices: story/newcomer (no pod)")
    cell.remove("newcomer")
    again = cell.wait("r", "True")
    print(f"released after {freed:.2f} s, unset after {unset:.2f} s, and released again after {again:.2f} s")
    waited = recorded.kubectl(
        *("wait", f"--for=condition={RELEASED}", f"devicetaintrule/{cell.rule('r')}", "--timeout=120s")
    )
    assert waited.code == 0, waited


class Pod:
    """A running pod whose claim was made from a template."""

    def __init__(self, cell: Cell, name: str, device: str) -> None:
        self._client = cell.client
        self._path = path("v1", "pods", namespace=cell.name, name=name)
        cell.allocate(name, device)
        container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
        spec = {
            "nodeName": "nowhere",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        }
        pods = path("v1", "pods", namespace=cell.name)
        uid = cell.client.create(pods, {"metadata": {"name": name}, "spec": spec}).object["metadata"]["uid"]
        _ = cell.client.patch(f"{self._path}/status", {"status": {"phase": "Running"}}).object
        cell.set_status(name, reservedFor=[{"resource": "pods", "name": name, "uid": uid}])

    def is_gone(self) -> bool:
        return self._client.get(self._path).code == 404
