"""What a real API server does with evictions of pods that a disruption budget selects."""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.apiserver.looping import run
from tests.controlplane.client import path
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.errors import Unavailable, is_disruption_budget
from webhook.cluster.client.rest import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.client import Client
    from tests.controlplane.plane import ControlPlane

pytestmark = pytest.mark.apiserver

Json = dict[str, Any]

PODS: Final = path("v1", "pods", namespace="default")
BUDGETS: Final = path("policy/v1", "poddisruptionbudgets", namespace="default")


GRACE_SECONDS: Final = 300
"""Of pods that stay while they terminate, because no kubelet knows of their node."""


class Guarded(NamedTuple):
    """A pod that is ready, and the one disruption budget that selects it."""

    client: Client
    name: str

    @property
    def pod(self) -> str:
        return f"{PODS}/{self.name}"

    @property
    def budget(self) -> str:
        return f"{BUDGETS}/{self.name}"

    @property
    def eviction(self) -> Json:
        return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.name}}

    def process(self, *, allowed: int) -> None:
        """What the disruption controller writes, which does not run here."""
        generation = self.client.get(self.budget).object["metadata"]["generation"]
        status = {"observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": 1}
        status |= {"desiredHealthy": 1 - allowed, "expectedPods": 1}
        _ = self.client.patch(f"{self.budget}/status", {"status": status}).object


@pytest.fixture
def guarded(plane: ControlPlane) -> Iterator[Guarded]:
    it = Guarded(plane.client, f"guarded-{uuid.uuid4().hex[:8]}")
    labels = {"guarded": it.name}
    spec = {
        "nodeName": "nowhere",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [{"name": "c", "image": "none"}],
    }
    _ = it.client.create(PODS, {"metadata": {"name": it.name, "labels": labels}, "spec": spec}).object
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    _ = it.client.patch(f"{it.pod}/status", {"status": running}).object
    budget = {"metadata": {"name": it.name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
    _ = it.client.create(BUDGETS, budget).object
    try:
        yield it
    finally:
        it.client.delete(it.budget)
        it.client.request("DELETE", it.pod, {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("processed", [False, True], ids=["still being processed", "processed"])
def test_eviction_that_a_budget_refuses_names_the_cause(
    plane: ControlPlane,
    guarded: Guarded,
    processed: bool,  # noqa: FBT001
) -> None:
    """policy/v1 DisruptionBudgetCause: it stands in `details.causes`, whatever the messages say."""
    if processed:
        guarded.process(allowed=0)

    async def test() -> None:
        async with Cluster(KubeConfig(str(plane.kubeconfig))) as cluster:
            with pytest.raises(Unavailable) as refused:
                await cluster.create(f"{guarded.pod}/eviction", guarded.eviction)
            error = refused.value
            assert (error.code, [cause.reason for cause in error.causes]) == (429, ["DisruptionBudget"])
            assert is_disruption_budget(error)

    run(test())


def test_second_eviction_of_a_pod_takes_nothing_from_its_budget_and_changes_nothing(guarded: Guarded) -> None:
    """A process that was frozen between its last check and the request may send one."""
    guarded.process(allowed=1)
    before = guarded.client.get(guarded.pod).object["metadata"]
    evicted = guarded.client.create(f"{guarded.pod}/eviction", guarded.eviction)
    once = guarded.client.get(guarded.pod).object, guarded.client.get(guarded.budget).object["status"]
    assert evicted.code == HTTPStatus.CREATED
    assert "deletionTimestamp" in once[0]["metadata"]
    assert once[1]["disruptionsAllowed"] == 0
    again = guarded.client.create(f"{guarded.pod}/eviction", guarded.eviction)
    twice = guarded.client.get(guarded.pod).object, guarded.client.get(guarded.budget).object["status"]
    assert again.code == HTTPStatus.CREATED
    assert _without_version(twice[0]) == _without_version(once[0])
    assert twice[1] == once[1]
    # --- a DELETE that names the version from before
    stale = {"preconditions": {"uid": before["uid"], "resourceVersion": before["resourceVersion"]}}
    assert guarded.client.request("DELETE", guarded.pod, stale).code == HTTPStatus.CONFLICT


def _without_version(pod: Json) -> Json:
    """The pod without what each write to it changes."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in {"resourceVersion", "managedFields"}}
    return {**pod, "metadata": metadata}
