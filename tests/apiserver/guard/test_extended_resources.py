"""Sixty pods whose devices came through an extended resource, whom the in-tree controller evicts from 1.37.2 on.

The scheduler makes their claims, and the webhook is registered as it is shipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from tests.apiserver.guard.replicas import called
from tests.apiserver.impact.witness import AUDIT_POLICY, Witness, condition
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import Stage
from tests.controlplane.client import Reply, path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import FACTS, GROUP
from webhook.admission.impact_text import on_extended_resources
from webhook.api.rules import CONFIRM_IMPACT

pytestmark = pytest.mark.whole

COUNT: Final = 60
DRIVER: Final = "extended.example.com"
RESOURCE: Final = "extended.example.com/gpu"
NAMESPACE: Final = "default"
NODE: Final = "node-0"
PODS: Final = path("v1", "pods", namespace=NAMESPACE)
CLAIMS: Final = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
RULES: Final = path(f"{GROUP}/v1", "devicetaintrules")
EXTENDED: Final = f"of these {COUNT} pods with extended resources: {on_extended_resources(FACTS)}"


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """All pods have their devices, the built-in policy is in use, and the webhook knows of them."""
    with own_stage(request, "kube-controller-manager", "kube-scheduler", audit_policy=AUDIT_POLICY) as stage:
        _fill(stage)
        with called(stage):
            yield stage


def _fill(stage: Stage) -> None:
    stage.plane.add_node(NODE)
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    spec: dict[str, Any] = {"selectors": selectors, "extendedResourceName": RESOURCE}
    stage.create(f"{GROUP}/v1", "DeviceClass", DRIVER, spec=spec)
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(COUNT)]
    stage.create(
        f"{GROUP}/v1",
        "ResourceSlice",
        DRIVER,
        spec={"driver": DRIVER, "pool": pool, "nodeName": NODE, "devices": devices},
    )
    stage.client.each(partial(_create_pod, stage), range(COUNT), threads=4)
    wait_until(lambda: len(_reserved(stage)) == COUNT, "every pod has its device", seconds=240)


def _create_pod(stage: Stage, number: int) -> None:
    resources = {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}
    containers = [{"name": "c", "image": "none", "resources": resources}]
    spec = {"terminationGracePeriodSeconds": 0, "containers": containers}
    _ = stage.client.create(PODS, {"metadata": {"name": f"train-{number}"}, "spec": spec}).object


def _reserved(stage: Stage) -> set[str]:
    """The pods for which a claim with a device is reserved, by uid."""
    claims = [each.get("status", {}) for each in stage.client.get(CLAIMS).items]
    return {user["uid"] for status in claims if "allocation" in status for user in status.get("reservedFor", ())}


def _rule() -> dict[str, Any]:
    taint = {"key": "health.example.com/broken", "effect": "NoExecute"}
    return {"metadata": {"name": "broken"}, "spec": {"deviceSelector": {"driver": DRIVER}, "taint": taint}}


def _text(reply: Reply) -> str:
    """The confirmation that a refusal prints."""
    return reply.message.partition(f'{CONFIRM_IMPACT} to "')[2].partition('"')[0]


def test_as_many_pods_are_deleted_by_the_in_tree_controller_as_were_confirmed(filled: Stage) -> None:
    """Above the limit of the built-in policy, so the rule is refused first. Before 1.37.2 no pod is evicted."""
    witness = Witness(filled.plane.folder / "audit.log")
    reserved = _reserved(filled)
    refused = filled.client.create(RULES, _rule())
    assert (refused.code, refused.reason) == (403, "Forbidden"), refused
    figures = f"hits {COUNT} devices, {COUNT} pods in 1 namespace ({EXTENDED}): the limit is 50 pods"
    assert figures in refused.message
    assert f" pods={COUNT} " in _text(refused)
    rule = _rule()
    rule["metadata"]["annotations"] = {CONFIRM_IMPACT: _text(refused)}
    reply = filled.client.create(RULES, rule)
    assert reply.ok, reply
    assert any(f"evicts {COUNT} pods in 1 namespace, all at once" in each for each in reply.warnings), reply.warnings
    assert any(EXTENDED in each for each in reply.warnings), reply.warnings
    if not FACTS.extended_evicted:
        said = partial(condition, filled.client, f"{RULES}/broken")
        wait_until(lambda: said().get("reason") == "NotStarted", "the in-tree controller finds no pod")
        assert witness.evictions() == []
        return
    wait_until(lambda: not filled.client.get(PODS).items, "every pod is gone", seconds=240)
    # Others see that a pod is gone before the audit log has who made it go.
    wait_until(lambda: len(witness.evictions()) >= COUNT, "all evictions are on record")
    assert sorted(each.uid for each in witness.evictions()) == sorted(reserved)


def test_missing_selector_acts_as_the_refusal_says(filled: Stage) -> None:
    """K-5: from 1.37.1 on it closes no device, so a pod gets one; on an earlier release the pod waits."""
    _ = filled.client.delete(f"{RULES}/broken")
    _ = filled.client.delete(PODS).object
    wait_until(lambda: not _reserved(filled), "every device is free", seconds=240)
    taint = {"key": "health.example.com/shut", "effect": "NoSchedule"}
    rule = {"metadata": {"name": "shut"}, "spec": {"taint": taint}}
    refused = filled.client.create(RULES, rule)
    text = "hits no device: a rule without selector selects nothing here"
    if not FACTS.missing_selects_nothing:
        text = f"keeps {COUNT} devices from being allocated: a rule without selector evicts no pod"
    assert text in refused.message
    annotations = {CONFIRM_IMPACT: _text(refused)}
    created = filled.client.create(RULES, {**rule, "metadata": {"name": "shut", "annotations": annotations}})
    assert created.ok, created
    _create_pod(filled, COUNT)
    if FACTS.missing_selects_nothing:
        wait_until(lambda: len(_reserved(filled)) == 1, "the pod has a device")
    else:
        time.sleep(10)
        assert not _reserved(filled)
