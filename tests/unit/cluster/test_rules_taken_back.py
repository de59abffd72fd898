"""What the worker writes to a rule that has expired, as the webhooks see it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.builders import NOW, decoded
from tests.tables import table
from tests.unit.admission.guarding import ask, tainting
from tests.unit.admission.softened import MARKS
from tests.unit.cluster.acting import acting_cluster, writer
from tests.unit.cluster.peer import Answer, Peer
from tests.unit.policy.documents import policy_of
from webhook.api.meta import format_time
from webhook.api.rules import EVICT, EXPIRES_AT
from webhook.policy.decide import Judge

WORKER = "system:serviceaccount:device-taint-webhook:device-taint-webhook-evict"
ALLOWED = {
    "name": "sre",
    "action": "allow",
    "match": {"requesters": {"groups": ["sre"]}, "evict": True},
}
NO_ONE_ELSE = {"name": "no-one-else-evicts", "action": "deny", "match": {"evict": True}}


async def taken_back(stored: dict[str, Any]) -> dict[str, Any]:
    """The rule after the merge patch that the worker sends."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(Answer({}))
        await writer(cluster).downgrade(decoded(stored)[0])
        sent = peer.requests[0].json
    given = {**stored["metadata"]["annotations"], **sent["metadata"].get("annotations", {})}
    annotations = {name: text for name, text in given.items() if text is not None}
    spec = {**stored["spec"], "taint": {**stored["spec"]["taint"], **sent["spec"]["taint"]}}
    return {**stored, "metadata": {**stored["metadata"], "annotations": annotations}, "spec": spec}


@table("marks", {"asked for": {EVICT: "true"}, "softened": MARKS, "only closed": {}})
async def test_worker_may_take_rules_back_under_a_policy_that_lets_few_ask_for_eviction(marks: dict[str, str]) -> None:
    expired = {**marks, EXPIRES_AT: format_time(NOW - timedelta(minutes=1))}
    stored = tainting(effect="NoSchedule", annotations=expired, added=NOW - timedelta(hours=2))
    judge = Judge(policy_of(taintRules=[ALLOWED, NO_ONE_ELSE], impact={"limits": [{"pods": 0}]}))
    assert ask(await taken_back(stored), stored, user=WORKER, judge=judge).errors == ()


async def test_rule_that_was_taken_back_keeps_its_other_annotations() -> None:
    expired = {EXPIRES_AT: format_time(NOW - timedelta(minutes=1))}
    left = await taken_back(tainting(effect="NoSchedule", annotations={**MARKS, **expired}))
    assert left["metadata"]["annotations"] == expired
    assert left["spec"]["taint"]["effect"] == "None"
