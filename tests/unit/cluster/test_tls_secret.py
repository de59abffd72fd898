"""What self-managed certificates read and write: one Secret, and caBundle of two configurations."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.peer import Answer, Drop, Peer, cluster_of, run, status
from webhook.certificates.settings import StoredBundles, StoredSecret, StoreError
from webhook.cluster.installation import MUTATING, VALIDATING, SecretObject, WebhookConfiguration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from webhook.cluster.client.rest import Cluster

SECRET = "/api/v1/namespaces/ns/secrets/ca"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/ours"


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def make_secret(data: dict[str, bytes] | None) -> dict[str, Any]:
    metadata = {"name": "ca", "namespace": "ns", "resourceVersion": "7", "labels": {"a": "b"}}
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
    return secret if data is None else {**secret, "data": {name: text(value) for name, value in data.items()}}


def make_configuration(*bundles: bytes | None) -> dict[str, Any]:
    def webhook(number: int, bundle: bytes | None) -> dict[str, Any]:
        service: dict[str, Any] = {"namespace": "ns", "name": "svc", "path": "/validate"}
        config = {"service": service} if bundle is None else {"service": service, "caBundle": text(bundle)}
        return {"name": f"w{number}.example.com", "clientConfig": config, "failurePolicy": "Fail"}

    webhooks = [webhook(number, bundle) for number, bundle in enumerate(bundles)]
    return {"kind": "ValidatingWebhookConfiguration", "metadata": {"resourceVersion": "9"}, "webhooks": webhooks}


def asked(script: list[Answer | Drop], ask: Callable[[Cluster], Awaitable[object]]) -> tuple[list[object], Peer]:
    """What came out, and the peer that was asked. A GET on a connection that broke is tried once more."""
    peer, found = Peer(), []

    async def test() -> None:
        async with peer, cluster_of(peer) as cluster:
            peer.answers.extend(script)
            found.append(await ask(cluster))

    run(test())
    return found, peer


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": b"\x00bytes", "tls.key": b""}])
def test_secret_is_read_with_its_version(data: dict[str, bytes] | None) -> None:
    found, peer = asked([Answer(make_secret(data))], lambda cluster: SecretObject(cluster, "ns", "ca").read())
    assert found == [StoredSecret(data or {}, "7")]
    assert [(request.method, request.path) for request in peer.requests] == [("GET", SECRET)]


async def read_and_write_secret(cluster: Cluster) -> bool:
    secret = SecretObject(cluster, "ns", "ca")
    read = await secret.read()
    return await secret.write({"ca.crt": b"new"}, read.version)


def test_secret_is_replaced_with_all_that_is_not_data() -> None:
    before = make_secret({"old": b"1"})
    found, peer = asked([Answer(before), Answer(before)], read_and_write_secret)
    assert found == [True]
    assert (peer.requests[1].method, peer.requests[1].path) == ("PUT", SECRET)
    assert peer.requests[1].json == {**before, "data": {"ca.crt": text(b"new")}}


def test_secret_that_changed_meanwhile_is_left_alone() -> None:
    found, _ = asked([Answer(make_secret({})), Answer(status(409, "modified"), 409)], read_and_write_secret)
    assert found == [False]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(status(404, "not found"), 404), "404: not found"),
        (Answer(status(403, "forbidden"), 403), "403: forbidden"),
        (Answer(b"<html>"), "the secret cannot be read: "),
        (Answer({"metadata": {"resourceVersion": "1"}, "data": {"tls.crt": "no base64!"}}), "cannot be read: "),
        (Answer({"data": {}}), "cannot be read: "),
        (Drop(), ""),
    ],
)
def test_secret_that_cannot_be_read_is_a_store_error_that_says_why(answer: Answer | Drop, why: str) -> None:
    with pytest.raises(StoreError, match=f"^GET /api/v1/namespaces/ns/secrets/ca: .*{why}"):
        asked([answer, answer], lambda cluster: SecretObject(cluster, "ns", "ca").read())


def test_bundles_are_read_one_for_each_webhook() -> None:
    script: list[Answer | Drop] = [Answer(make_configuration(b"pem", None, b""))]
    found, peer = asked(script, lambda cluster: WebhookConfiguration(cluster, VALIDATING, "ours").read())
    assert found == [StoredBundles((b"pem", b"", b""), "9")]
    assert [(request.method, request.path) for request in peer.requests] == [("GET", CONFIGURATION)]


def test_configuration_that_does_not_exist_is_none() -> None:
    script: list[Answer | Drop] = [Answer(status(404, "not found"), 404)]
    found, peer = asked(script, lambda cluster: WebhookConfiguration(cluster, MUTATING, "ours").read())
    assert found == [None]
    assert peer.requests[0].path == CONFIGURATION.replace("validating", "mutating")


@pytest.mark.parametrize("answer", [Answer(b"<html>"), Answer({"webhooks": []}), Drop()])
def test_configuration_that_cannot_be_read_is_a_store_error_that_says_why(answer: Answer | Drop) -> None:
    with pytest.raises(StoreError, match=f"^GET {CONFIGURATION}: "):
        asked([answer, answer], lambda cluster: WebhookConfiguration(cluster, VALIDATING, "ours").read())


async def read_and_write_bundles(cluster: Cluster) -> bool:
    configuration = WebhookConfiguration(cluster, VALIDATING, "ours")
    read = await configuration.read()
    assert read is not None
    return await configuration.write(b"new", read.version)


def test_bundle_is_written_to_every_webhook_and_nothing_else() -> None:
    found, peer = asked([Answer(make_configuration(b"old", None)), Answer({})], read_and_write_bundles)
    assert found == [True]
    patch = peer.requests[1]
    assert (patch.method, patch.path) == ("PATCH", CONFIGURATION)
    assert patch.headers["content-type"] == "application/strategic-merge-patch+json"
    assert patch.json == {
        "metadata": {"resourceVersion": "9"},
        "webhooks": [
            {"name": f"w{number}.example.com", "clientConfig": {"caBundle": text(b"new")}} for number in range(2)
        ],
    }


@pytest.mark.parametrize("code", [404, 409])
def test_configuration_that_changed_meanwhile_is_left_alone(code: int) -> None:
    script: list[Answer | Drop] = [Answer(make_configuration(b"old")), Answer(status(code, "gone"), code)]
    assert asked(script, read_and_write_bundles)[0] == [False]


def test_refused_patch_is_a_store_error_that_says_why() -> None:
    with pytest.raises(StoreError, match=f"^PATCH {CONFIGURATION}: 403: no"):
        asked([Answer(make_configuration(b"old")), Answer(status(403, "no"), 403)], read_and_write_bundles)
