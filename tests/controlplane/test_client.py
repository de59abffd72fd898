"""The client and kubectl, against a real API server."""

from __future__ import annotations

import json

import pytest

from tests.builders import make_claim, make_meta, make_toleration
from tests.controlplane.client import JSON_PATCH, path
from tests.controlplane.plane import ControlPlane

pytestmark = pytest.mark.apiserver

CLAIMS = path("resource.k8s.io/v1", "resourceclaims", namespace="default")
CLAIM = make_claim(meta=make_meta("claim"))


def test_kubectl_works_for_the_admin_and_for_others(plane: ControlPlane) -> None:
    assert plane.kubectl("auth", "can-i", "*", "*").code == 0
    alice = plane.kubectl("auth", "whoami", "-o", "json", user="alice", groups=["dev"])
    assert json.loads(alice.stdout)["status"]["userInfo"]["username"] == "alice"
    assert "dev" in json.loads(alice.stdout)["status"]["userInfo"]["groups"]
    refused = plane.kubectl("get", "pods", user="alice")
    assert refused.code == 1
    assert "forbidden" in refused.stderr.lower()


def test_kubectl_reads_stdin(plane: ControlPlane) -> None:
    done = plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(CLAIM))
    assert (done.code, done.stderr) == (0, "")


def test_a_user_with_a_kubeconfig_is_that_user(plane: ControlPlane) -> None:
    kubeconfig = plane.kubeconfig_of("system:serviceaccount:ml:runner", ["ml-team"])
    who = plane.kubectl(f"--kubeconfig={kubeconfig}", "auth", "whoami", "-o", "json")
    user = json.loads(who.stdout)["status"]["userInfo"]
    assert (user["username"], "ml-team" in user["groups"]) == ("system:serviceaccount:ml:runner", True)


def test_a_refusal_has_its_causes(plane: ControlPlane) -> None:
    reply = plane.client.create(
        CLAIMS, make_claim([make_toleration(operator="Near")], meta=make_meta("claim")), dry_run=True
    )
    assert (reply.code, reply.reason) == (422, "Invalid")
    (cause,) = reply.causes
    assert cause.reason == "FieldValueNotSupported"
    assert cause.field.endswith("tolerations[0].operator")


def test_warnings_are_unescaped(plane: ControlPlane) -> None:
    unknown = CLAIM | {"unknown": 1}
    reply = plane.client.create(CLAIMS, unknown, dry_run=True, field_validation="Warn")
    assert (reply.code, reply.warnings) == (201, ('unknown field "unknown"',))


def test_a_body_that_is_not_json_gets_an_answer_and_the_connection_lives_on(plane: ControlPlane) -> None:
    assert plane.client.create(CLAIMS, b"{", dry_run=True).code == 400
    assert plane.client.create(CLAIMS, CLAIM, dry_run=True).ok


def test_an_object_goes_through_its_life(plane: ControlPlane) -> None:
    secrets = path("v1", "secrets", namespace="default")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "life"}, "stringData": {"a": "1"}}
    assert plane.client.create(secrets, secret).code == 201
    assert plane.client.create(secrets, secret).reason == "AlreadyExists"
    secret["stringData"] = {"b": "2"}
    assert plane.client.replace(f"{secrets}/life", secret).object["data"] == {"b": "Mg=="}
    patched = plane.client.patch(f"{secrets}/life", {"data": {"b": None}})
    assert "data" not in patched.object
    added = [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]
    assert plane.client.patch(f"{secrets}/life", added, JSON_PATCH).object["metadata"]["labels"] == {"x": "y"}
    assert "life" in [s["metadata"]["name"] for s in plane.client.get(secrets, limit="100").items]
    assert plane.client.delete(f"{secrets}/life").ok
    assert plane.client.get(f"{secrets}/life").code == 404


def test_threads_share_a_client_and_results_keep_their_order(plane: ControlPlane) -> None:
    def create(number: int) -> str:
        return str(
            plane.client.create(CLAIMS, make_claim(meta=make_meta(f"claim-{number}")), dry_run=True).object["metadata"][
                "name"
            ]
        )

    assert plane.client.each(create, range(50)) == [f"claim-{number}" for number in range(50)]


def test_impersonation_is_of_one_client_only(plane: ControlPlane) -> None:
    bob = plane.client.acting_as("bob", ["a", "b"])
    reviews = path("authentication.k8s.io/v1", "selfsubjectreviews")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    assert bob.create(reviews, body).object["status"]["userInfo"]["groups"][:2] == ["a", "b"]
    assert plane.client.create(reviews, body).object["status"]["userInfo"]["username"] == "test-admin"
