"""Gangs whose pods the real managers of JobSet and LeaderWorkerSet make, and make again; in `make test-matrix` only.

Everything else is as in test_together.py, which has the same gangs by their labels alone. A manager that sees one
member leave may remove others by itself before our eviction of them arrives, so when pods left is taken from a watch,
and from the audit log only what we did. Run with `-s` to see the figures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from tests.apiserver.eviction.bench import SOON_SECONDS
from tests.apiserver.eviction.gang_manager import JOB_SETS, LEADER_WORKER_SETS, GangManager, Made
from tests.apiserver.eviction.ground import Ground, pod_spec_of
from tests.apiserver.eviction.readiness import ReadyWatch
from tests.apiserver.eviction.turns import Scenario, Stage, all_played, staged
from tests.apiserver.policy.stage import make_policy
from tests.conftest import _assets
from tests.controlplane import assets as programs
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("EVICTION_SCALE") != "all",
        reason="EVICTION_SCALE is not all: `make test-matrix` builds the managers of JobSet and LeaderWorkerSet for it",
    ),
]

Json = dict[str, Any]

RANKS: Final = 8
JOBS: Final = 2
GROUPS: Final = 2
SIZE: Final = 4
TOGETHER: Final = timedelta(seconds=1)
"""Between the first and the last rank of a gang."""
FAST: Final = {"rate": 1000, "burst": 1000}
"""Beside it the default manners."""
POLICY: Final = make_policy(
    inTreeEvictor="absent",
    impact={"limits": [{"pods": None, "claims": None, "devices": None, "namespaces": None}]},
    eviction=[{"namespaces": {"names": ["one-place"]}, "overall": 1, **FAST}, FAST],
)


def _job_set(template: str) -> Json:
    """Of two Indexed Jobs. What is evicted counts as failed; with a limit for each index none waits for others."""
    pod = {"spec": pod_spec_of({"resourceClaimTemplateName": template}) | {"restartPolicy": "Never"}}
    each = RANKS // JOBS
    job = {"completionMode": "Indexed", "completions": each, "parallelism": each, "backoffLimitPerIndex": 100}
    jobs = [{"name": "workers", "replicas": JOBS, "template": {"spec": {**job, "template": pod}}}]
    typed = {"apiVersion": JOB_SETS.api_version, "kind": "JobSet"}
    return {**typed, "metadata": {"name": "training"}, "spec": {"replicatedJobs": jobs}}


def _leader_worker_set(template: str, restart: str = "RecreateGroupOnPodRestart") -> Json:
    pod = {"spec": pod_spec_of({"resourceClaimTemplateName": template})}
    spec = {"size": SIZE, "restartPolicy": restart, "workerTemplate": pod}
    typed = {"apiVersion": LEADER_WORKER_SETS.api_version, "kind": "LeaderWorkerSet"}
    return {**typed, "metadata": {"name": "serving"}, "spec": {"replicas": GROUPS, "leaderWorkerTemplate": spec}}


def ranks_of_a_job_set_leave_at_once(stage: Stage) -> Iterator[None]:
    ground = stage.ground("job-set")
    pods = _made(ground, JOB_SETS, _job_set(ground.name))
    assert {pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for pod in pods} == {"training"}
    assert len({owner["name"] for pod in pods for owner in pod["metadata"]["ownerReferences"]}) == JOBS
    yield
    with ReadyWatch(ground) as watch:
        ground.taint(pool="old")
        evictions = ground.wait_gone(RANKS)
        _wait_whole(watch)
    took = _spread([each.at for each in evictions])
    print(f"{ground.name}: {RANKS} ranks left within {took.total_seconds():.3f} s, {watch.breaks} breaks")
    assert took <= TOGETHER
    assert _spread(list(watch.left_at.values())) <= TOGETHER
    assert len(watch.left_at) == RANKS
    assert watch.breaks == 1
    assert len(ground.granted()) == RANKS
    ground.wait_message("Completed", f"{RANKS} pods evicted")


def groups_of_a_leader_worker_set_leave_one_after_the_other(stage: Stage) -> Iterator[None]:
    """Its manager makes a whole group again when one pod of it leaves."""
    yield from _leave_one_after_the_other(stage.ground("one-place"), "RecreateGroupOnPodRestart")


def groups_that_are_not_made_again_as_a_whole_leave_likewise(stage: Stage) -> Iterator[None]:
    """What they have in common is the limit of their owner, of which they take a place each."""
    yield from _leave_one_after_the_other(stage.ground("one-owner"), "None")


def _leave_one_after_the_other(ground: Ground, restart: str) -> Iterator[None]:
    pods = _made(ground, LEADER_WORKER_SETS, _leader_worker_set(ground.name, restart))
    assert len({pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-key"] for pod in pods}) == GROUPS
    yield
    with ReadyWatch(ground, "serving-0") as zero, ReadyWatch(ground, "serving-1") as one:
        ground.taint(pool="old")
        for watch in (zero, one):
            _wait_whole(watch, seconds=180)
        done = "Completed"
        wait_until(lambda: ground.condition().get("reason") == done, done, seconds=SOON_SECONDS, every=0.5)
    asked = ground.asked()
    print(f"{ground.name}: {', '.join(f'{each.pod[1]} {each.code}' for each in asked)}")
    first, second = sorted((zero, one), key=lambda watch: min(watch.left_at.values()))
    for watch in (first, second):
        took, gone = _spread(list(watch.left_at.values())), len(watch.left_at)
        print(f"{ground.name}: {gone} ranks left within {took.total_seconds():.3f} s, {watch.breaks} breaks")
    for watch, prefix in ((zero, "serving-0"), (one, "serving-1")):
        assert len(watch.left_at) == SIZE
        assert _spread(list(watch.left_at.values())) <= TOGETHER
        assert _spread([each.at for each in asked if each.pod[1].startswith(prefix)]) <= TOGETHER
        assert watch.breaks == 1
    assert first.whole_at is not None
    began = min(second.left_at.values())
    print(f"{ground.name}: the second group began {(began - first.whole_at).total_seconds():.2f} s after that")
    assert began >= first.whole_at
    _devices_are_new(ground)


def _made(ground: Ground, made: Made, obj: Json) -> list[Json]:
    """The pods that come of an object, all ready on devices of pool `old`; then there is room for as many in `new`."""
    ground.publish("old", [f"device-{number}" for number in range(RANKS)])
    ground.make_template()
    _ = ground.client.create(path(made.api_version, made.plural, namespace=ground.name), obj).object

    def ready() -> bool:
        return sum(map(_ready, ground.client.get(ground.pods).items)) == RANKS

    wait_until(ready, f"{RANKS} ranks are ready", seconds=180, every=0.5)
    ground.publish("new", [f"device-{number}" for number in range(RANKS)])
    return ground.client.get(ground.pods).items


def _ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _spread(times: list[datetime]) -> timedelta:
    return max(times) - min(times)


def _wait_whole(watch: ReadyWatch, *, seconds: float = SOON_SECONDS) -> None:
    wait_until(lambda: watch.whole_at is not None, "all are ready again", seconds=seconds, every=0.2)


def _devices_are_new(ground: Ground) -> None:
    claims = ground.client.get(path(f"{versions.GROUP}/v1", "resourceclaims", namespace=ground.name)).items
    results = [each for claim in claims for each in claim["status"]["allocation"]["devices"]["results"]]
    assert [each["pool"] for each in results] == ["new"] * RANKS


SCENARIOS: Final[tuple[Scenario, ...]] = (
    ranks_of_a_job_set_leave_at_once,
    groups_of_a_leader_worker_set_leave_one_after_the_other,
    groups_that_are_not_made_again_as_a_whole_leave_likewise,
)


@pytest.fixture(scope="module")
def errors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Exception]]:
    """What went wrong, by scenario."""
    gang_managers = (programs.JOB_SET, programs.LEADER_WORKER_SET)
    assets = _assets(request, "kube-controller-manager", "kube-scheduler", "kwok", *gang_managers)
    with ExitStack() as stack:
        plane = stack.enter_context(staged(assets, tmp_path_factory.mktemp("managers")))
        stack.enter_context(GangManager(plane, JOB_SETS, _job_set("none")))
        stack.enter_context(GangManager(plane, LEADER_WORKER_SETS, _leader_worker_set("none")))
        yield all_played(plane, json.dumps(POLICY), SCENARIOS)


@pytest.mark.parametrize("name", [each.__name__ for each in SCENARIOS])
def test_with_their_managers(errors: Mapping[str, Exception], name: str) -> None:
    if name in errors:
        raise errors[name]
