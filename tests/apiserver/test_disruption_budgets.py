"""What a real API server answers to an eviction that a disruption budget refuses."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.apiserver.looping import run
from tests.controlplane.client import path
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.errors import Unavailable, is_disruption_budget
from webhook.cluster.client.rest import Cluster

if TYPE_CHECKING:
    from tests.controlplane.plane import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("processed", [False, True], ids=["still being processed", "processed"])
def test_eviction_that_a_budget_refuses_names_the_cause(plane: ControlPlane, processed: bool) -> None:  # noqa: FBT001
    """policy/v1 DisruptionBudgetCause: it stands in `details.causes`, whatever the messages say."""
    name = f"guarded-{uuid.uuid4().hex[:8]}"
    pods = path("v1", "pods", namespace="default")
    budgets = path("policy/v1", "poddisruptionbudgets", namespace="default")
    labels = {"guarded": name}
    spec = {"nodeName": "nowhere", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "none"}]}
    _ = plane.client.create(pods, {"metadata": {"name": name, "labels": labels}, "spec": spec}).object
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    _ = plane.client.patch(f"{pods}/{name}/status", {"status": running}).object
    budget = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
    generation = plane.client.create(budgets, budget).object["metadata"]["generation"]
    if processed:
        status = {"observedGeneration": generation, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
        _ = plane.client.patch(f"{budgets}/{name}/status", {"status": {**status, "expectedPods": 1}}).object

    async def test() -> None:
        async with Cluster(KubeConfig(str(plane.kubeconfig))) as cluster:
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            with pytest.raises(Unavailable) as refused:
                await cluster.create(f"{pods}/{name}/eviction", eviction)
            error = refused.value
            assert (error.code, [cause.reason for cause in error.causes]) == (429, ["DisruptionBudget"])
            assert is_disruption_budget(error)

    try:
        run(test())
    finally:
        plane.client.delete(f"{budgets}/{name}")
        plane.client.delete(f"{pods}/{name}")
