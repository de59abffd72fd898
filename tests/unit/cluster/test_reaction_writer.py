"""What reactions send: rules that belong to no other object, and Events about the policy's ConfigMap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import NOW, NOW_TEXT
from tests.unit.cluster.acting import RULES, RULES_PATH, acting_cluster
from tests.unit.cluster.peer import Answer, Peer, Reply, run, status
from tests.unit.patches.reacting import GPU
from webhook.api.meta import NamespacedName, ObjectMeta
from webhook.api.rules import DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.cluster.events import EventWriter
from webhook.cluster.patch_writer import PatchWriter, ReactionWriter
from webhook.patches.reactions import ReactionWrite
from webhook.patches.reasons import ReactionReason, ReactionRule, ReasonId
from webhook.patches.stored import StoredRule
from webhook.policy.limits import REACTION_KEY, ReactionLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.cluster.peer import Request

POLICY: Final = NamespacedName("taints", "device-taint-webhook-policy")
TAINT: Final = DeviceTaint(REACTION_KEY, "", "NoSchedule", NOW)


def rule_of(level: ReactionLevel = ReactionLevel.CLOSE) -> ReactionRule:
    return ReactionRule(GPU, level, (ReactionReason(ReasonId("xid", "gpu.example.com/xid"), "48", NOW),))


def asked(
    act: Callable[[ReactionWriter], Awaitable[Any]], *replies: Reply, config_map: NamespacedName | None = POLICY
) -> tuple[Any, list[Request]]:
    """What the writer says, and what it sent."""
    found: list[Any] = []

    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.extend(replies)
            events = EventWriter(cluster, instance="patch-0", now=lambda: NOW)
            found.append(await act(ReactionWriter(PatchWriter(cluster, RULES, events), events, config_map)))
            found.append(peer.requests)

    run(test())
    return found[0], found[1]


def test_rule_is_applied_without_an_owner_and_read_back() -> None:
    rule = rule_of()
    body = {"metadata": {"name": rule.name, "uid": "r1", "annotations": dict(rule.annotations)}}
    write = ReactionWrite(rule, TAINT, creates=True)
    answer, [request] = asked(lambda writer: writer.write_reaction(write), Answer(body))
    assert (request.method, request.path) == ("PATCH", f"{RULES_PATH}/{rule.name}")
    assert request.query == {"fieldManager": "device-taint-webhook-patch", "force": "true"}
    assert request.headers["content-type"] == "application/apply-patch+yaml"
    assert request.json == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": rule.name,
            "labels": {"devicetaint.io/reaction": "true"},
            "annotations": dict(rule.annotations),
        },
        "spec": {
            "deviceSelector": {"driver": GPU.driver, "pool": GPU.pool, "device": GPU.device},
            "taint": {"key": "devicetaint.io/degraded", "effect": "NoSchedule", "timeAdded": NOW_TEXT},
        },
    }
    assert answer.stored.meta.uid == "r1"
    assert answer.stored.labels == {}


@pytest.mark.parametrize("taken", ["surplus", "foreign"])
def test_what_apply_would_leave_is_taken_away_by_a_merge_patch(taken: str) -> None:
    def sent(level: ReactionLevel) -> Any:
        surplus = taken == "surplus"
        write = ReactionWrite(rule_of(level), TAINT, creates=False, surplus=surplus, foreign=not surplus)
        _, [request] = asked(lambda writer: writer.write_reaction(write), Answer({}))
        assert request.headers["content-type"] == "application/merge-patch+json"
        assert request.query == {"fieldManager": "device-taint-webhook-patch"}
        return request.json

    body = sent(ReactionLevel.CLOSE)
    assert body["metadata"].keys() == {"labels", "annotations", "finalizers", "ownerReferences"}
    assert (body["metadata"]["finalizers"], body["metadata"]["ownerReferences"]) == (None, None)
    assert body["metadata"]["annotations"] == {**rule_of().annotations, "devicetaint.io/evict": None}
    names = {"driver": GPU.driver, "pool": GPU.pool, "device": GPU.device}
    assert body["spec"] == {
        "deviceSelector": {**names, "deviceClassName": None, "selectors": None},
        "taint": {"key": "devicetaint.io/degraded", "value": None, "effect": "NoSchedule", "timeAdded": NOW_TEXT},
    }
    assert sent(ReactionLevel.EMPTY)["metadata"]["annotations"]["devicetaint.io/evict"] == "true"


def test_deletion_is_of_the_rule_that_was_read() -> None:
    stored = StoredRule(DeviceTaintRule(ObjectMeta("reaction-x", uid="r1"), None, TAINT))
    _, [request] = asked(lambda writer: writer.delete_rule(stored), Answer(status(200, "")))
    assert (request.method, request.path) == ("DELETE", f"{RULES_PATH}/reaction-x")
    assert request.json["preconditions"] == {"uid": "r1"}


def test_event_is_about_the_config_map_of_the_policy() -> None:
    def sent(*, warns: bool) -> Any:
        _, [request] = asked(lambda writer: writer.report("AboveMaxDevices", "why", warns=warns), Answer({}, 201))
        assert request.path.endswith("/namespaces/taints/events")
        return request.json

    event = sent(warns=True)
    assert (event["type"], event["reason"], event["action"], event["note"]) == (
        "Warning", "AboveMaxDevices", "React", "why",
    )  # fmt: skip
    assert event["regarding"] == {
        "apiVersion": "v1", "kind": "ConfigMap", "namespace": "taints", "name": "device-taint-webhook-policy",
    }  # fmt: skip
    assert sent(warns=False)["type"] == "Normal"


def test_policy_in_a_file_has_no_events() -> None:
    _, requests = asked(lambda writer: writer.report("AboveMaxDevices", "why", warns=True), config_map=None)
    assert requests == []
