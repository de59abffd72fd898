"""What the controller of patches and reactions send, and what they make of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.builders import NOW, NOW_TEXT
from tests.unit.cluster.acting import RULES, RULES_PATH, acting_cluster
from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, run, status
from tests.unit.patches.reacting import GPU
from webhook.api.meta import NamespacedName, ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DATA, Condition, DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.cluster.events import EventWriter
from webhook.cluster.patch_writer import PatchWriter, WriteAnswer
from webhook.patches.reactions import ReactionWrite
from webhook.patches.reasons import ReactionReason, ReactionRule, ReasonId
from webhook.patches.stored import PatchStatus, RuleApply, RuleOwner, StoredPatch, StoredRule
from webhook.policy.limits import REACTION_KEY, ReactionLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.cluster.peer import Request


PATCH: Final = RuleOwner("ResourceSlicePatch", "firmware", "u1")
TAINT: Final = DeviceTaint("k", "", "NoSchedule", NOW)
WRITE: Final = RuleApply(PATCH, "firmware-1", DeviceSelector("d", "p"), TAINT, {DATA: "{}"}, creates=True)
CONFIG_MAP: Final = NamespacedName("taints", "device-taint-webhook-policy")
REFERENCE: Final = {
    "apiVersion": "devicetaint.io/v1alpha1",
    "kind": "ResourceSlicePatch",
    "name": "firmware",
    "uid": "u1",
    "controller": True,
    "blockOwnerDeletion": False,
}
STORED: Final[dict[str, Any]] = {
    "metadata": {
        "name": "firmware-1",
        "uid": "r1",
        "resourceVersion": "7",
        "labels": {"devicetaint.io/patch": "u1", "other": "x"},
        "annotations": {DATA: "{}"},
        "ownerReferences": [{**REFERENCE, "controller": False, "name": "x"}, REFERENCE],
    },
    "spec": {
        "deviceSelector": {"driver": "d", "pool": "p"},
        "taint": {"key": "k", "effect": "NoSchedule", "timeAdded": NOW_TEXT},
    },
}


def asked(
    act: Callable[[PatchWriter], Awaitable[Any]], *replies: Reply, config_map: NamespacedName | None = CONFIG_MAP
) -> tuple[Any, list[Request]]:
    """What a writer says, and what it sent."""
    found: list[Any] = []

    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.extend(replies)
            events = EventWriter(cluster, instance="patch-0", now=lambda: NOW)
            found.append(await act(PatchWriter(cluster, RULES, events, config_map)))
            found.append(peer.requests)

    run(test())
    return found[0], found[1]


def test_rule_is_applied_with_its_owner_and_read_back() -> None:
    answer, [request] = asked(lambda writer: writer.apply_rule(WRITE), Answer(STORED))
    assert request.method == "PATCH"
    assert request.path == f"{RULES_PATH}/firmware-1"
    assert request.query == {"fieldManager": "device-taint-webhook-patch", "force": "true"}
    assert request.headers["content-type"] == "application/apply-patch+yaml"
    assert request.json == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": "firmware-1",
            "labels": {"devicetaint.io/patch": "u1"},
            "annotations": {DATA: "{}"},
            "ownerReferences": [REFERENCE],
        },
        "spec": {
            "deviceSelector": {"driver": "d", "pool": "p"},
            "taint": {"key": "k", "effect": "NoSchedule", "timeAdded": NOW_TEXT},
        },
    }
    stored = answer.stored
    assert (stored.meta.uid, stored.meta.resource_version) == ("r1", "7")
    assert stored.labels == {"devicetaint.io/patch": "u1"}
    assert stored.controller == PATCH
    assert (stored.rule.selector, stored.rule.taint) == (WRITE.selector, TAINT)


def test_rule_for_a_sibling_is_owned_by_a_rule_in_the_version_that_is_served() -> None:
    owner = RuleOwner("DeviceTaintRule", "faulty", "u2")
    write = WRITE._replace(owner=owner, taint=structs.replace(TAINT, value="v"), selector=DeviceSelector())
    _, [request] = asked(lambda writer: writer.apply_rule(write), Answer(STORED))
    assert request.json["metadata"]["labels"] == {"devicetaint.io/hardware-of": "u2"}
    assert request.json["metadata"]["ownerReferences"][0] == {
        **REFERENCE, "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "name": "faulty", "uid": "u2",
    }  # fmt: skip
    assert request.json["spec"]["deviceSelector"] == {}, "every device, and not none"
    assert request.json["spec"]["taint"]["value"] == "v"


@pytest.mark.parametrize("taken", ["surplus", "foreign"])
def test_what_apply_would_leave_is_taken_away_by_a_merge_patch(taken: str) -> None:
    write = WRITE._replace(surplus=taken == "surplus", foreign=taken == "foreign")
    _, [request] = asked(lambda writer: writer.apply_rule(write), Answer(STORED))
    assert (request.path, request.query) == (
        f"{RULES_PATH}/firmware-1", {"fieldManager": "device-taint-webhook-patch"},
    )  # fmt: skip
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert request.json == {
        "metadata": {
            "labels": {"devicetaint.io/patch": "u1", "devicetaint.io/hardware-of": None},
            "annotations": {
                DATA: "{}",
                "devicetaint.io/description": None,
                "devicetaint.io/evictions-per-second": None,
            },
            "finalizers": None,
            "ownerReferences": [REFERENCE],
        },
        "spec": {
            "deviceSelector": {"driver": "d", "pool": "p", "device": None, "deviceClassName": None, "selectors": None},
            "taint": {"key": "k", "value": None, "effect": "NoSchedule", "timeAdded": NOW_TEXT},
        },
    }


def test_annotations_that_are_retired_are_removed() -> None:
    write = WRITE._replace(surplus=True, retired=("devicetaint.io/evict",))
    _, [request] = asked(lambda writer: writer.apply_rule(write), Answer(STORED))
    assert request.json["metadata"]["annotations"]["devicetaint.io/evict"] is None


WEBHOOK: Final = 'admission webhook "rules.validate.devicetaint.io" denied the request: too much'
POLICY: Final = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"


@pytest.mark.parametrize(
    ("reply", "refused", "failed"),
    [
        pytest.param(Answer(status(403, "may not"), 403), "may not", "", id="forbidden"),
        pytest.param(Answer(status(422, "wrong"), 422), "wrong", "", id="invalid"),
        pytest.param(Answer(status(500, WEBHOOK), 500), WEBHOOK, "", id="webhook"),
        pytest.param(Answer(status(409, POLICY), 409), POLICY, "", id="policy"),
        pytest.param(Answer(status(409, "changed"), 409), "", "409: changed", id="conflict"),
        pytest.param(Answer(status(404, "no such kind"), 404), "", "404: no such kind", id="not served"),
        pytest.param(Answer(status(500, "failed calling webhook"), 500), "", "failed calling webhook", id="down"),
        pytest.param(Drop(), "", "PATCH", id="no answer"),
        pytest.param(Answer({"metadata": []}), "", "cannot be read", id="no rule"),
    ],
)
def test_refusals_and_failures_are_told_apart(reply: Reply, refused: str, failed: str) -> None:
    answer, _ = asked(lambda writer: writer.apply_rule(WRITE), reply)
    assert answer.stored is None
    assert answer.refused == refused
    assert bool(answer.failed) == bool(failed)
    assert failed in answer.failed


def test_deletion_is_of_the_rule_that_was_read() -> None:
    stored, _ = asked(lambda writer: writer.apply_rule(WRITE), Answer(STORED))
    answer, [request] = asked(lambda writer: writer.delete_rule(stored.stored), Answer(status(200, "")))
    assert answer == WriteAnswer()
    assert (request.method, request.path) == ("DELETE", f"{RULES_PATH}/firmware-1")
    assert request.json["preconditions"] == {"uid": "r1"}
    left = {**STORED, "metadata": {**STORED["metadata"], "deletionTimestamp": "2026-07-01T12:00:00Z"}}
    answer, _ = asked(lambda writer: writer.delete_rule(stored.stored), Answer(left))
    assert answer.stored is not None
    assert (answer.stored.rule.deleting, answer.stored.meta.uid) == (True, "r1"), "it has finalizers"
    answer, _ = asked(lambda writer: writer.delete_rule(stored.stored), Answer(b"{"))
    assert answer == WriteAnswer()
    for reply, failed in ((Answer(status(404, "gone"), 404), False), (Answer(status(409, "changed"), 409), True)):
        answer, _ = asked(lambda writer: writer.delete_rule(stored.stored), reply)
        assert bool(answer.failed) == failed


def test_status_is_applied_to_the_very_patch() -> None:
    patch = StoredPatch(ResourceSlicePatch(ObjectMeta("firmware", uid="u1"), None), 3)
    condition = Condition("Expanded", "True", "Expanded", "fine", 3, NOW)
    wanted = PatchStatus(3, 5, 4, 2, (condition,), 1)
    answer, [request] = asked(lambda writer: writer.write_status(patch, wanted), Answer({}))
    assert answer == WriteAnswer()
    assert request.path == "/apis/devicetaint.io/v1alpha1/resourceslicepatches/firmware/status"
    assert request.query == {"fieldManager": "device-taint-webhook-patch", "force": "true"}
    assert request.json["metadata"] == {"name": "firmware", "uid": "u1"}
    assert request.json["status"] == {
        "observedGeneration": 3,
        "selectedDevices": 5,
        "patchedDevices": 1,
        "taintedDevices": 4,
        "rules": 2,
        "conditions": [
            {
                "type": "Expanded",
                "status": "True",
                "reason": "Expanded",
                "message": "fine",
                "observedGeneration": 3,
                "lastTransitionTime": NOW_TEXT,
            }
        ],
    }
    for code, failed in ((404, False), (409, False), (503, True)):
        answer, _ = asked(lambda writer: writer.write_status(patch, wanted), Answer(status(code, "x"), code))
        assert bool(answer.failed) == failed
    refused, _ = asked(lambda writer: writer.write_status(patch, wanted), Answer(status(403, "x"), 403))
    assert refused.refused == "x"


def test_warning_is_about_the_owner() -> None:
    def warn(owner: RuleOwner) -> Any:
        _, [request] = asked(lambda writer: writer.warn(owner, "SelectorFailed", "Evaluate", "text"), Answer({}, 201))
        return request.json

    event = warn(PATCH)
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "SelectorFailed", "text")
    regarding = {"apiVersion": "devicetaint.io/v1alpha1", "kind": "ResourceSlicePatch", "name": "firmware", "uid": "u1"}
    assert event["regarding"] == regarding
    assert warn(RuleOwner("DeviceTaintRule", "faulty", "u2"))["regarding"]["apiVersion"] == "resource.k8s.io/v1"


def test_beginning_of_evictions_is_taken_away_from_siblings_alone() -> None:
    owner = RuleOwner("DeviceTaintRule", "faulty", "u2")
    for write, there in ((WRITE._replace(owner=owner, surplus=True), True), (WRITE._replace(surplus=True), False)):
        _, [request] = asked(lambda writer, write=write: writer.apply_rule(write), Answer(STORED))  # type: ignore[misc]
        assert ("devicetaint.io/not-before" in request.json["metadata"]["annotations"]) == there


DEGRADED: Final = DeviceTaint(REACTION_KEY, "", "NoSchedule", NOW)


def rule_of(level: ReactionLevel = ReactionLevel.CLOSE) -> ReactionRule:
    return ReactionRule(GPU, level, (ReactionReason(ReasonId("xid", "gpu.example.com/xid"), "48", NOW),))


def test_rule_is_applied_without_an_owner_and_read_back() -> None:
    rule = rule_of()
    body = {"metadata": {"name": rule.name, "uid": "r1", "annotations": dict(rule.annotations)}}
    write = ReactionWrite(rule, DEGRADED, creates=True)
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
def test_what_apply_would_leave_on_a_rule_of_a_reaction_is_taken_away_by_a_merge_patch(taken: str) -> None:
    def sent(level: ReactionLevel) -> Any:
        surplus = taken == "surplus"
        write = ReactionWrite(rule_of(level), DEGRADED, creates=False, surplus=surplus, foreign=not surplus)
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


def test_deletion_is_of_the_rule_of_a_reaction_that_was_read() -> None:
    stored = StoredRule(DeviceTaintRule(ObjectMeta("reaction-x", uid="r1"), None, DEGRADED))
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
