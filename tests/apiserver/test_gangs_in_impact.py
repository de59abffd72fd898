"""Gangs in the answer to a rule, where `serve` follows pods, with what component watch-pods grants."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.evicting import DRIVER, Ward
from tests.apiserver.eviction.ranks import ALL, GATES, SERVED
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import Stage, make_policy
from tests.apiserver.registration.samples import MANIFESTS
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

RANKS: Final = 8
HIT: Final = 2
WATCH_PODS: Final = "device-taint-webhook-watch-pods"
JOB_SET: Final = {"jobset.sigs.k8s.io/jobset-name": "train"}


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with own_stage(request, since=37, feature_gates=GATES, runtime_config=SERVED) as stage:
        done = stage.plane.kubectl("apply", "-f", MANIFESTS / "components" / "watch-pods" / "access.yaml")
        assert done.code == 0, done
        stage.webhook = stage.new_webhook("--watch-pods").__enter__()
        stage.use(make_policy(impact={"limits": [{"pods": RANKS - 1, "namespaces": 10}]}))
        stage.register()
        yield stage
        stage.stop_webhook()


@pytest.fixture(scope="module")
def job_set(stage: Stage) -> Iterator[Ward]:
    """Ranks of a JobSet, the first few on the devices that get the taint."""
    with Ward(stage.client) as ward:
        for number in range(RANKS):
            ward.admit(f"rank-{number}", pool=_pool(ward, number), labels=JOB_SET)
        wait_until(lambda: f"gangPods={HIT} gangSize={RANKS} " in _impact(stage, _rule(ward)), "all ranks are known")
        yield ward


@pytest.fixture(scope="module")
def pod_group(stage: Stage) -> Iterator[Ward]:
    """The same in a PodGroup that is disrupted as a whole."""
    with Ward(stage.client) as ward:
        url = path("scheduling.k8s.io/v1beta1", "podgroups", namespace=ward.name)
        spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": ALL}
        _ = stage.client.create(url, {"metadata": {"name": "ring"}, "spec": spec}).object
        for number in range(RANKS):
            group = {"schedulingGroup": {"podGroupName": "ring"}}
            ward.admit(f"rank-{number}", pool=_pool(ward, number), spec=group)
        wait_until(lambda: f"gangPods={HIT} gangSize={RANKS} " in _impact(stage, _rule(ward)), "all ranks are known")
        yield ward


def _pool(ward: Ward, number: int) -> str:
    return ward.name if number < HIT else f"{ward.name}-beside"


def _rule(ward: Ward, effect: str = "NoExecute", *, evict: bool = False) -> Json:
    metadata = {"name": ward.name, "annotations": {"devicetaint.io/evict": "true"} if evict else {}}
    selector = {"driver": DRIVER, "pool": ward.name}
    spec = {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}}
    return {"apiVersion": f"{GROUP}/v1", "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec}


def _impact(stage: Stage, rule: Json) -> str:
    return str(stage.ask(rule).get("auditAnnotations", {}).get("impact", ""))


def _tried(stage: Stage, rule: Json) -> Any:
    return stage.client.create(f"{path(f'{GROUP}/v1', 'devicetaintrules')}?dryRun=All", rule)


@pytest.mark.whole
def test_warning_names_the_gang(stage: Stage, job_set: Ward) -> None:
    reply = _tried(stage, _rule(job_set))
    assert reply.ok, reply
    expected = f"evicts {HIT} pods of 1 gang of {RANKS} (JobSet {job_set.name}/train)"
    assert [each for each in reply.warnings if expected in each], reply.warnings
    assert f"gangs=1 gangPods={HIT} gangSize={RANKS} companions=0" in _impact(stage, _rule(job_set))


def test_companions_count_where_our_worker_evicts(stage: Stage, pod_group: Ward) -> None:
    """For the in-tree controller the rule is within the limit, and for our worker it is not."""
    in_tree = _tried(stage, _rule(pod_group))
    name = f"PodGroup {pod_group.name}/ring"
    assert in_tree.ok, in_tree
    assert [each for each in in_tree.warnings if f"{HIT} pods of 1 gang of {RANKS} ({name})" in each]
    ours = _tried(stage, _rule(pod_group, "NoSchedule", evict=True))
    assert not ours.ok
    text = f"{RANKS} pods in 1 namespace, {RANKS} pods of 1 gang of {RANKS} ({name}), {RANKS - HIT} of them only with"
    assert text in ours.message


@pytest.mark.whole
def test_preview_lists_the_companions(stage: Stage, pod_group: Ward, tmp_path: Path) -> None:
    file = tmp_path / "rule.json"
    file.write_text(json.dumps(_rule(pod_group, "NoSchedule", evict=True)))
    command = [sys.executable, "-m", "webhook", "preview", str(file), f"--kubeconfig={stage.plane.kubeconfig}"]
    values = json.loads(subprocess.run([*command, "-o", "json"], check=False, capture_output=True, text=True).stdout)
    (found,) = values["previews"]
    assert (found["summary"]["evicted"], found["summary"]["companions"]) == (RANKS, RANKS - HIT)
    along = {each["name"] for each in found["pods"] if each["reason"] == "WithPodGroup"}
    assert along == {f"rank-{number}" for number in range(HIT, RANKS)}


@pytest.mark.whole
def test_gangs_are_left_out_while_pods_may_not_be_read(stage: Stage, job_set: Ward) -> None:
    """Nothing else changes, and the replica is ready."""
    _ = stage.client.delete(path("rbac.authorization.k8s.io/v1", "clusterrolebindings") + f"/{WATCH_PODS}")
    other = stage.new_webhook("--watch-pods")
    try:
        before = stage.webhook
        with other:
            stage.webhook = other
            wait_until(lambda: f"pods={HIT} " in _impact(stage, _rule(job_set)), "the inventory")
            assert "gang" not in _impact(stage, _rule(job_set))
        stage.webhook = before
    finally:
        stage.plane.kubectl("apply", "-f", MANIFESTS / "components" / "watch-pods" / "access.yaml")
