"""What a real API server does with evictions of pods that a disruption budget selects."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import pytest

from tests.apiserver.looping import run
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from webhook.api.decode import Reader
from webhook.api.pods import DisruptionBudget, decode_budget, decode_pod, needs_disruption
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.errors import Unavailable, is_disruption_budget
from webhook.cluster.client.rest import Cluster

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


# --- which pods need a disruption ----------------------------------------------------------------

PHASES: Final = ("Pending", "Running", "Unknown", "Succeeded", "Failed")
ENDING: Final = "ending"
"""A pod that runs, and is being deleted."""
READY: Final = ("True", "False", "Unknown", None)
"""Status of the condition; None: there is no such condition."""
HEALTH: Final = {"below": (1, 2), "at": (2, 2), "above": (3, 2), "nothing desired": (1, 0), "nothing at all": (0, 0)}
"""currentHealthy and desiredHealthy."""
ALLOWED: Final = (0, 1)


class Crowd(NamedTuple):
    """A namespace with a pod in each state."""

    client: Client
    name: str

    @property
    def pods(self) -> str:
        return path("v1", "pods", namespace=self.name)

    @property
    def budgets(self) -> str:
        return path("policy/v1", "poddisruptionbudgets", namespace=self.name)

    def admit(self, state: tuple[str, str | None]) -> None:
        (phase, ready), name = state, "-".join(map(str, state)).lower()
        spec = {"nodeName": "nowhere", "terminationGracePeriodSeconds": GRACE_SECONDS}
        spec["containers"] = [{"name": "c", "image": "none"}]
        _ = self.client.create(self.pods, {"metadata": {"name": name, "labels": {"app": "all"}}, "spec": spec}).object
        conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
        status = {"phase": "Running" if phase == ENDING else phase, "conditions": conditions}
        _ = self.client.patch(f"{self.pods}/{name}/status", {"status": status}).object
        if phase == ENDING:
            _ = self.client.delete(f"{self.pods}/{name}").object

    def process(self, budget: str, *, allowed: int, health: str, late: bool) -> None:
        """As the disruption controller writes it, or wrote it of the generation before."""
        healthy, desired = HEALTH[health]
        generation = self.client.get(f"{self.budgets}/{budget}").object["metadata"]["generation"]
        status = {"observedGeneration": generation - late, "disruptionsAllowed": allowed}
        status |= {"currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": healthy}
        _ = self.client.patch(f"{self.budgets}/{budget}/status", {"status": status}).object

    def differences(self) -> list[str]:
        """Pods of which the Eviction API and we say different things."""
        budgets = [decode_budget(Reader.of(each, [])) for each in self.client.get(self.budgets).items]
        listed = self.client.get(self.pods).items
        return [text for each in self.client.each(lambda pod: self._difference(pod, budgets), listed) for text in each]

    def _difference(self, obj: Json, budgets: list[DisruptionBudget]) -> Iterable[str]:
        pod, name = decode_pod(Reader.of(obj, [])), obj["metadata"]["name"]
        found = [each for each in budgets if each.selector is not None and each.selector.matches(dict(pod.labels))]
        goes = not needs_disruption(pod, found) or (len(found) == 1 and (found[0].allowed or 0) > 0)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        reply = self.client.create(f"{self.pods}/{name}/eviction", eviction, dry_run=True)
        if goes is not (reply.ok and reply.object.get("status") == "Success"):
            yield f"{name}: {reply.code} {reply.body}, {'goes' if goes else 'stays'} by our own count"


@pytest.fixture(scope="module")
def crowd(plane: ControlPlane) -> Iterator[Crowd]:
    it = Crowd(plane.client, f"crowd-{uuid.uuid4().hex[:8]}")
    _ = it.client.create(path("v1", "namespaces"), {"metadata": {"name": it.name}}).object
    it.client.each(it.admit, itertools.product((*PHASES, ENDING), READY))
    yield it
    it.client.request("DELETE", it.pods, {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("policy", [None, pytest.param("IfHealthyBudget", marks=pytest.mark.whole), "AlwaysAllow"])
def test_eviction_api_and_we_agree_which_pods_need_a_disruption(crowd: Crowd, policy: str | None) -> None:
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "all"}}}
    spec |= {"unhealthyPodEvictionPolicy": policy} if policy else {}
    _ = crowd.client.create(crowd.budgets, {"metadata": {"name": "keep"}, "spec": spec}).object
    try:
        found = {"not processed": crowd.differences()}
        for allowed, health, late in itertools.product(ALLOWED, HEALTH, (False, True)):
            crowd.process("keep", allowed=allowed, health=health, late=late)
            found[f"allows {allowed}, {health}, {late=}"] = crowd.differences()
        assert {state: texts for state, texts in found.items() if texts} == {}
    finally:
        crowd.client.delete(f"{crowd.budgets}/keep")


@pytest.mark.parametrize("allowed", [0, 1])
@pytest.mark.parametrize(
    "selectors",
    [[{}], [None], [{}, None], [{}, {}], [{}, {"matchLabels": {"app": "other"}}]],
    ids=["empty", "none", "empty and none", "two", "one of two"],
)
def test_eviction_api_and_we_agree_on_budgets_that_select_all_or_none_or_are_several(
    crowd: Crowd, selectors: list[Json | None], allowed: int
) -> None:
    names = [f"budget-{number}" for number in range(len(selectors))]
    try:
        for name, selector in zip(names, selectors, strict=True):
            spec = {"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
            spec |= {} if selector is None else {"selector": selector}
            _ = crowd.client.create(crowd.budgets, {"metadata": {"name": name}, "spec": spec}).object
            crowd.process(name, allowed=allowed, health="at", late=False)
        assert crowd.differences() == []
    finally:
        for name in names:
            crowd.client.delete(f"{crowd.budgets}/{name}")
