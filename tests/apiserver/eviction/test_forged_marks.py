"""Rules that name another as their owner, as anyone may write them: the worker's ceilings go by what was judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.apiserver.evicting import DRIVER, GENTLE, RULES, EvictProcess, Ward
from tests.apiserver.objects import rule_for
from tests.apiserver.planes import own_plane
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, REACTION, REASONS, DeviceSelector
from webhook.api.taints import DeviceTaint
from webhook.cluster.in_tree_probe import IN_TREE_MANAGER
from webhook.inventory.targets import rule_name

pytestmark = pytest.mark.whole

Json = dict[str, Any]

LIMIT: Final = 4
POLICY: Final = f"{GENTLE}impact: {{limits: [{{pods: {LIMIT}}}], window: 0s}}\n"


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver; nothing of ours is registered, so whatever is forged is stored."""
    with own_plane(request, since=37) as found:
        yield found


@pytest.fixture(scope="module")
def worker(plane: ControlPlane) -> Iterator[EvictProcess]:
    with EvictProcess(plane, "replacement", "--in-tree=absent", policy=POLICY) as process:
        yield process.wait_working()


def _owned(kind: str, name: str, uid: str) -> list[Json]:
    version = "devicetaint.io/v1alpha1" if kind == "ResourceSlicePatch" else f"{GROUP}/v1"
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def _forged(name: str, uid: str) -> dict[str, Json]:
    """Marks on a rule that make it one of a drain, by what they are."""
    hardware = {"labels": {HARDWARE_LABEL: uid}, "ownerReferences": _owned("DeviceTaintRule", name, uid)}
    patch = {"labels": {PATCH_LABEL: uid}, "ownerReferences": _owned("ResourceSlicePatch", name, uid)}
    return {
        "nothing": {},
        "hardware of the drain": hardware,
        "a patch with the uid of the drain": patch,
        "both labels": hardware | {"labels": {HARDWARE_LABEL: uid, PATCH_LABEL: uid}},
        "notes of a reaction": {"labels": {REACTION: "true"}, "annotations": {REASONS: "[]"}},
    }


@pytest.mark.parametrize("mark", _forged("", ""))
@pytest.mark.parametrize(
    "named",
    [pytest.param(False, id="any name"), pytest.param(True, id="a name that was computed")],
)
def test_rule_that_names_a_drain_as_its_owner_neither_stops_it_nor_takes_its_room(
    plane: ControlPlane, worker: EvictProcess, mark: str, *, named: bool
) -> None:
    """Each hits no more than the limit; together they would hit more."""
    with Ward(plane.client) as ward, Ward(plane.client) as other:
        for number in range(LIMIT):
            ward.admit(f"pod-{number}")
            other.admit(f"pod-{number}")
        drain = ward.taint("None")
        uid = plane.client.get(f"{RULES}/{drain}").object["metadata"]["uid"]
        taint = DeviceTaint("example.com/broken", "", "NoExecute")
        name = rule_name(drain, taint, DeviceSelector(DRIVER, other.name)) if named else f"{drain}-mallory"
        broken = {"key": "example.com/broken", "effect": "NoExecute"}
        rule = rule_for({"driver": DRIVER, "pool": other.name}, broken, name, **_forged(drain, uid)[mark])
        _ = plane.client.create(RULES, rule).object
        _ = plane.client.patch(f"{RULES}/{drain}", {"spec": {"taint": {"effect": "NoExecute"}}}).object
        wait_until(lambda: not ward.present() | other.present(), "all pods are evicted")
        rules = (drain, name)
        wait_until(lambda: {ward.condition(each).get("reason") for each in rules} == {"Completed"}, "they say so")
        assert not worker.lines("eviction stopped")
        assert plane.client.delete(f"{RULES}/{name}").ok


def test_who_may_only_write_rules_does_not_pass_for_the_in_tree_controller(
    plane: ControlPlane, worker: EvictProcess
) -> None:
    """Neither by a field manager nor by managedFields: beside that controller the worker would end."""
    with Ward(plane.client) as ward:
        ward.admit("pod")
        url = f"{RULES}/{ward.name}-mallory"
        taint = {"key": "example.com/x", "effect": "None"}
        rule = rule_for({"driver": "nobody.example.com"}, taint, f"{ward.name}-mallory")
        assert plane.client.apply(url, rule, field_manager=IN_TREE_MANAGER).ok
        [applied] = [each for each in _managed(plane, url) if each["manager"] == IN_TREE_MANAGER]
        status = {**applied, "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}
        assert plane.client.patch(url, {"metadata": {"managedFields": [applied, status]}}).ok
        assert (IN_TREE_MANAGER, "status") in [
            (each["manager"], each.get("subresource")) for each in _managed(plane, url)
        ]
        rules = ward.taint()
        wait_until(lambda: not ward.present(), "the pod is evicted")
        wait_until(lambda: ward.condition(rules).get("reason") == "Completed", "it says so")
        assert worker.process.code is None
        assert plane.client.delete(url).ok


def _managed(plane: ControlPlane, url: str) -> list[Json]:
    found: list[Json] = plane.client.get(url).object["metadata"]["managedFields"]
    return found
