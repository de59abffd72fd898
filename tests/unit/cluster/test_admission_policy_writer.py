"""What is sent for admission policies, and what is made of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.peer import Answer, Peer, run, status
from webhook.cluster.admission_policy_writer import AdmissionPolicyWriter
from webhook.cluster.cache.admission_policies import plural_of, versions_of
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.client.errors import ClusterError
from webhook.policy.vap.drift import KINDS, AdmissionObjectKey, FallbackWrite, StoredObject
from webhook.policy.vap.objects import EXPORT_LABELS

if TYPE_CHECKING:
    from tests.unit.cluster.peer import Reply, Request

KEY: Final = AdmissionObjectKey("ValidatingAdmissionPolicy", "mine")
OBJ: Final[dict[str, Any]] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": KEY.kind,
    "metadata": {"name": KEY.name, "labels": dict(EXPORT_LABELS), "annotations": {"a": "b"}},
    "spec": {"failurePolicy": "Fail"},
}
STORED: Final = StoredObject(KEY, {}, {}, "u1", 3, "7")
PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/mine"


def answer(**spec: Any) -> Answer:
    meta = {**OBJ["metadata"], "uid": "u1", "generation": 4, "resourceVersion": "8"}
    return Answer({**OBJ, "metadata": meta, "spec": {**OBJ["spec"], **spec}})


def sent(write: FallbackWrite, *replies: Reply) -> tuple[StoredObject | ClusterError | None, list[Request]]:
    found: list[StoredObject | ClusterError | None] = []
    asked: list[Request] = []

    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.extend(replies)
            collections = {
                kind: FixedCollection("admissionregistration.k8s.io", "v1", plural_of(kind)) for kind in KINDS
            }
            try:
                found.append(await AdmissionPolicyWriter(cluster, collections).carry_out(write))
            except ClusterError as error:
                found.append(error)
            asked.extend(peer.requests)

    run(test())
    return found[0], asked


def test_objects_are_applied_with_our_label_and_field_manager() -> None:
    stored, (request,) = sent(FallbackWrite(KEY, OBJ), answer())
    assert isinstance(stored, StoredObject)
    assert (stored.uid, stored.generation, stored.resource_version, stored.spec) == ("u1", 4, "8", OBJ["spec"])
    assert (request.method, request.path) == ("PATCH", PATH)
    assert request.query == {"fieldManager": "device-taint-webhook-fallback", "force": "true"}
    body = request.json
    assert body["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "device-taint-webhook"
    assert body["spec"] == OBJ["spec"]


def test_what_apply_leaves_of_others_is_replaced() -> None:
    stored, (_, request) = sent(FallbackWrite(KEY, OBJ), answer(matchConditions=[{"name": "never"}]), answer())
    assert isinstance(stored, StoredObject)
    assert stored.spec == OBJ["spec"]
    assert (request.method, request.path) == ("PUT", PATH)
    body = request.json
    assert body["spec"] == OBJ["spec"]
    assert body["metadata"]["resourceVersion"] == "8"
    assert body["metadata"]["annotations"] == {"a": "b"}


def test_the_very_object_that_was_compared_is_deleted() -> None:
    stored, (request,) = sent(FallbackWrite(KEY, None, STORED), Answer({}))
    assert stored is None
    assert (request.method, request.path) == ("DELETE", PATH)
    assert request.json["preconditions"] == {"uid": "u1", "resourceVersion": "7"}


def test_what_is_gone_need_not_be_deleted() -> None:
    assert sent(FallbackWrite(KEY, None, STORED), Answer(status(404, "gone"), 404))[0] is None


@pytest.mark.parametrize("write", [FallbackWrite(KEY, OBJ), FallbackWrite(KEY, None, STORED)])
def test_refusal_is_an_error(write: FallbackWrite) -> None:
    error, _ = sent(write, Answer(status(403, "may not"), 403))
    assert isinstance(error, ClusterError)
    assert "may not" in str(error)


def test_kinds_have_their_plurals_and_versions() -> None:
    assert [plural_of(kind) for kind in KINDS] == [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ]
    assert [versions_of(kind) for kind in KINDS[::2]] == [("v1",), ("v1", "v1beta1", "v1alpha1")]
