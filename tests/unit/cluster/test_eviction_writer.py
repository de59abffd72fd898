"""What is asked of the API server in an eviction, and what its answers are taken for."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.builders import NOW, NOW_TEXT
from tests.unit.cluster.acting import (
    DISRUPTION,
    OTHER_VERSION,
    PATH,
    POD,
    RULES_PATH,
    TERMINATING,
    acting_cluster,
    marked,
    writer,
)
from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, status
from tests.unit.eviction.objects import rule
from webhook.api.meta import ObjectMeta
from webhook.api.pods import PodGroup
from webhook.api.rules import EVICT, SOFTENED_FROM, Condition
from webhook.eviction.ports import EvictionEvent, EvictionOutcome, EvictionResult

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
ANOTHER = (
    'Operation cannot be fulfilled on pods "pod": Precondition failed: UID in precondition: u1, UID in object meta: u2'
)
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


async def test_eviction_names_the_very_pod() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([Answer(SUCCESS, 201), Answer(SUCCESS, 201)])
        assert await writer(cluster).evict(POD, None) == EvictionOutcome(EvictionResult.EVICTED)
        assert await writer(cluster).evict(POD, 7) == EvictionOutcome(EvictionResult.EVICTED)
        first, second = peer.requests
        assert (first.method, first.path) == ("POST", f"{PATH}/eviction")
        assert first.json == {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": "ml", "name": "pod"},
            "deleteOptions": {"preconditions": {"uid": "u1"}},
        }
        assert second.json["deleteOptions"] == {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 7}


REFUSAL = 'admission webhook "x.example.com" denied the request: '
RECREATED = (
    'Operation cannot be fulfilled on Pod "pod": the UID in the precondition (u1) does not match the UID in record '
    "(u2). The object might have been deleted and then recreated"
)
ABOUT_BUDGET = 'Operation cannot be fulfilled on poddisruptionbudgets.policy "web": StorageError: '
UNUSABLE = 'poddisruptionbudget.policy "web" is forbidden: pdb disruptions allowed is negative'
TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def said(code: int, text: str, cause: str = "") -> Answer:
    more = {"details": {"causes": [{"reason": cause}]}} if cause else {}
    return Answer(status(code, text, **more), code)


TAKEN_FOR: Final[dict[str, tuple[Reply, EvictionResult]]] = {
    "gone": (said(404, "not found"), EvictionResult.GONE),
    "gone, says a webhook": (said(404, f"{REFUSAL}not found"), EvictionResult.FAILED),
    "the budget is gone": (said(404, 'poddisruptionbudgets.policy "web" not found'), EvictionResult.FAILED),
    "namesake, says a webhook": (said(409, f"{REFUSAL}{ANOTHER}"), EvictionResult.FAILED),
    "namesake": (said(409, ANOTHER), EvictionResult.GONE),
    "namesake, says the Eviction API": (said(409, RECREATED), EvictionResult.GONE),
    "namesake, says a webhook in the words of the Eviction API": (
        said(409, f"{REFUSAL}{RECREATED}"),
        EvictionResult.FAILED,
    ),
    "another budget of the same name": (said(409, f"{ABOUT_BUDGET}{ANOTHER}"), EvictionResult.FAILED),
    "another conflict": (said(409, "the object has been modified"), EvictionResult.FAILED),
    "another resource version": (said(409, OTHER_VERSION), EvictionResult.FAILED),
    "words of a conflict in another error": (said(403, ANOTHER), EvictionResult.FAILED),
    "budget without a cause": (said(429, BUDGET), EvictionResult.BLOCKED),
    "budget in other words": (said(429, "no", "DisruptionBudget"), EvictionResult.BLOCKED),
    "words of a budget and another cause": (said(429, BUDGET, "Quota"), EvictionResult.FAILED),
    "cause of a budget in another error": (said(500, "no", "DisruptionBudget"), EvictionResult.FAILED),
    "busy": (said(429, "too many requests"), EvictionResult.FAILED),
    "forbidden": (said(403, "no"), EvictionResult.FAILED),
    "budget that cannot be used": (said(403, "no", "DisruptionBudget"), EvictionResult.BLOCKED),
    "likewise without a cause": (said(403, UNUSABLE), EvictionResult.BLOCKED),
    "likewise, says a webhook": (said(403, f"{REFUSAL}{UNUSABLE}"), EvictionResult.FAILED),
    "likewise with another cause": (said(403, UNUSABLE, "Quota"), EvictionResult.FAILED),
    "two budgets": (said(500, TWO_BUDGETS), EvictionResult.BLOCKED),
    "words about two budgets in another error": (said(503, TWO_BUDGETS), EvictionResult.FAILED),
    "two budgets, says a webhook": (said(500, f"{REFUSAL}{TWO_BUDGETS}"), EvictionResult.FAILED),
    "error": (said(500, "more than one PodDisruptionBudget"), EvictionResult.FAILED),
    "no answer": (Drop(), EvictionResult.FAILED),
}


@pytest.mark.parametrize(("reply", "expected"), TAKEN_FOR.values(), ids=TAKEN_FOR)
async def test_answers_are_taken_for(reply: Reply, expected: EvictionResult) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(reply)
        outcome = await writer(cluster).evict(POD, None)
        assert outcome.result is expected


@pytest.mark.parametrize(
    ("cause", "pending"),
    [
        ("The disruption budget web is still being processed by the server.", True),
        ("The disruption budget web needs 3 healthy pods and has 2 currently", False),
    ],
)
async def test_budget_that_is_not_processed_yet_is_told_from_one_that_refuses(cause: str, *, pending: bool) -> None:
    """Only the cause's message differs: createTooManyRequestsError and checkAndDecrement."""
    details = {"retryAfterSeconds": 10, "causes": [{"reason": "DisruptionBudget", "message": cause}]}
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(Answer(status(429, BUDGET, details=details), 429))
        expected = EvictionOutcome(EvictionResult.BLOCKED, BUDGET, 10.0, budget_pending=pending)
        assert await writer(cluster).evict(POD, None) == expected


@pytest.mark.parametrize("code", [404, 409, 200, 201])
@pytest.mark.parametrize(
    "body",
    [b"<html>one moment</html>", b"", {}, {"status": "Success"}, {"kind": "Status", "status": "Failure"}],
    ids=["page", "nothing", "no kind", "another JSON", "failure"],
)
async def test_only_the_api_server_says_that_a_pod_is_gone_or_evicted(body: object, code: int) -> None:
    """Else it is read before it is evicted again: a load balancer answers while API servers restart."""
    failure = isinstance(body, dict) and body.get("status") == "Failure"
    async with Peer() as peer, acting_cluster(peer) as cluster:
        for ask in (writer(cluster).evict(POD, None), writer(cluster).delete(POD, None, DISRUPTION)):
            peer.answers.extend([Answer(body, code)] * 2)
            outcome = await ask
            peer.answers.clear()
            if failure and code == 404:
                assert outcome.result is EvictionResult.GONE
            else:
                assert (outcome.result, outcome.unsure) == (EvictionResult.FAILED, code != 409)


async def test_eviction_and_deletion_take_a_success_and_the_pod_itself() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        for body in (SUCCESS, TERMINATING):
            peer.answers.extend([Answer(body), marked(), Answer(body)])
            assert (await writer(cluster).evict(POD, None)).result is EvictionResult.EVICTED
            assert (await writer(cluster).delete(POD, None, DISRUPTION)).result is EvictionResult.EVICTED


@pytest.mark.parametrize(
    ("reply", "unsure"),
    [(Drop(), True), (Answer(b"", 502), True), (Answer(status(504, "timeout"), 504), True)]
    + [(Answer(status(code, "no"), code), False) for code in (403, 409, 429)]
    + [(Answer(status(500, f"{REFUSAL}not now"), 500), False)],
)
async def test_who_got_no_answer_cannot_be_sure(reply: Reply, *, unsure: bool) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        for ask in (writer(cluster).evict(POD, None), writer(cluster).delete(POD, None, DISRUPTION)):
            peer.answers.append(reply)
            outcome = await ask
            assert (outcome.result, outcome.unsure) == (EvictionResult.FAILED, unsure)


def found(**metadata: str) -> Answer:
    return Answer({"metadata": {"name": "pod", "uid": "u1", **metadata}})


@pytest.mark.parametrize(
    ("reply", "needed"),
    [
        (found(), True),
        (found(deletionTimestamp=NOW_TEXT), False),
        (found(uid="u2"), False),
        (Answer(status(404, "gone"), 404), False),
        (Answer(status(500, "no"), 500), True),
        (Answer(b"<html>", 404), True),
    ],
    ids=["there", "on its way out", "namesake", "gone", "it cannot be told", "says a load balancer"],
)
async def test_pod_that_may_have_been_evicted_is_looked_at_before_it_is_again(reply: Reply, *, needed: bool) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(reply)
        assert await writer(cluster).prepare(POD, delete=False, unsure=True) is needed
        [request] = peer.requests
        assert (request.method, request.path) == ("GET", PATH)
        assert "PartialObjectMetadata" in request.headers["accept"]
        assert await writer(cluster).prepare(POD, delete=False, unsure=False)
        assert len(peer.requests) == 1


async def test_reserved_requests_are_made_at_once() -> None:
    """Also while the throttle is paused: what was decided right before is not out of date when it is done."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = lambda request: marked() if request.method == "PATCH" else Answer(TERMINATING)
        await writer(cluster).prepare(POD, delete=True, unsure=False)
        cluster._throttle.pause(30)
        async with asyncio.timeout(20):  # less than the pause
            assert (await writer(cluster).delete(POD, None, DISRUPTION)).result is EvictionResult.EVICTED
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await cluster.get("/x")
        assert [request.method for request in peer.requests] == ["PATCH", "DELETE"]


async def test_reservation_counts_as_that_many_requests() -> None:
    async with Peer() as peer, acting_cluster(peer, per_second=1, burst=3, clock=lambda: 50.0) as cluster:
        await cluster.reserve(2)
        await cluster.reserve(1)
        assert cluster._throttle.delay_seconds() == pytest.approx(1.0)


async def test_conditions_are_applied_to_the_very_rule() -> None:
    """E-38."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(Answer({}))
        condition = Condition("devicetaint.io/Eviction", "True", "Evicting", "m", 3, NOW)
        assert await writer(cluster).set_conditions(rule(), [condition]) is None
        [request] = peer.requests
        assert (request.method, request.path) == ("PATCH", f"{RULES_PATH}/rule/status")
        assert request.query == {"fieldManager": "device-taint-webhook", "force": "true"}
        assert request.headers["content-type"] == "application/apply-patch+yaml"
        assert request.json == {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "rule", "uid": "uid-rule"},
            "status": {
                "conditions": [
                    {
                        "type": "devicetaint.io/Eviction",
                        "status": "True",
                        "reason": "Evicting",
                        "message": "m",
                        "observedGeneration": 3,
                        "lastTransitionTime": NOW_TEXT,
                    }
                ]
            },
        }


async def test_conditions_of_a_rule_that_is_gone_or_another_are_no_fault() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        replies = [(404, "gone"), (409, ANOTHER), (403, "no")]
        peer.answers.extend([Answer(status(code, text), code) for code, text in replies])
        failures = [await writer(cluster).set_conditions(rule(), []) for _ in range(3)]
        assert [failure is not None for failure in failures] == [False, False, True]


async def test_expired_rule_is_changed_only_as_it_was_seen() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([Answer({}), Answer({}), Answer(status(409, "changed"), 409)])
        assert await writer(cluster).downgrade(rule()) is None
        assert await writer(cluster).delete_rule(rule()) is None
        failure = await writer(cluster).downgrade(rule())
        assert failure is not None
        assert "changed" in failure.message
        patch, delete, _ = peer.requests
        identity = {"uid": "uid-rule", "resourceVersion": ""}
        gone = {EVICT: None, SOFTENED_FROM: None}
        assert patch.json == {
            "metadata": {**identity, "annotations": gone},
            "spec": {"taint": {"effect": "None"}},
        }
        assert delete.json["preconditions"] == identity


async def test_events_are_about_pods_rules_and_pod_groups() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([Answer({}, 201), Answer({}, 201), Answer({}, 201)])
        await writer(cluster).write_event(EvictionEvent(POD, "Evicted", "Evict", "why"))
        await writer(cluster).write_event(EvictionEvent(rule(), "EvictionStopped", "Evict", "why", warning=True))
        ring = PodGroup(ObjectMeta("ring", namespace="ml", uid="u2"))
        await writer(cluster).write_event(EvictionEvent(ring, "EvictionHeldByPodGroup", "Evict", "why"))
        pod, about, group = (request.json for request in peer.requests)
        assert (pod["regarding"]["kind"], pod["regarding"]["uid"], pod["type"]) == ("Pod", "u1", "Normal")
        assert (about["regarding"]["kind"], about["metadata"]["namespace"]) == ("DeviceTaintRule", "default")
        assert about["type"] == "Warning"
        assert group["regarding"] == {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "namespace": "ml",
            "name": "ring",
            "uid": "u2",
        }
        assert group["metadata"]["namespace"] == "ml"
