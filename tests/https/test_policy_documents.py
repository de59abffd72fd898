"""Policy documents as large and as mean as they come, sent to a server that has claims to answer meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders import encoded, make_claim, make_review
from tests.controlplane.webhook_process import WebhookProcess
from tests.https.serving import post
from tests.https.test_process import connect, processor_seconds

HEAD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
CLAIM = encoded(make_review(make_claim()))
LONGEST_SECONDS = 30
"""The API's maximum for timeoutSeconds: how long a loaded machine may take for what needs a second of a processor."""
PROCESSOR_SECONDS = 8
"""What a document may cost: 80 % of the 10 s that an API server waits by default."""
LARGE = f"{HEAD}rules:\n" + "".join(
    f"- {{name: r{n}, action: deny, match: {{namespaces: {{names: [ns-{n}]}}, drivers: ['d{n}.example.com']}}}}\n"
    for n in range(2000)
)
HOSTILE = {
    "more rules than there may be": f"{HEAD}rules:\n"
    + "".join(f"- {{name: r{n}, action: deny}}\n" for n in range(9999)),
    "a mebibyte": f"{HEAD}# {'x' * 1024 * 1024}\n",
    "patterns full of stars": f"{HEAD}rules: [{{name: a, action: deny, match: {{drivers: ['{'*a' * 60}']}}}}]\n",
    "an expression within expressions": f"{HEAD}rules: [{{name: a, action: deny, match: {{when: '"
    "drivers.all(a, drivers.all(b, drivers.all(c, a == b && b == c)))'}}]\n",
    "anchors upon anchors": HEAD
    + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9) if n else 'y'}]\n" for n in range(12)),
    "a thousand brackets": f"{HEAD}rules: {'[' * 1000}\n",
}


@pytest.fixture(scope="module")
def webhook() -> Iterator[WebhookProcess]:
    with WebhookProcess() as process:
        yield process


def config_map(policy: str) -> bytes:
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    meta = {"name": "device-taint-webhook-policy", "namespace": "device-taint-webhook"}
    request = {
        "uid": "u",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        **meta,
        "operation": "CREATE",
        "userInfo": {"username": "admin"},
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"policy.yaml": policy}},
    }
    return encoded({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def asked(webhook: WebhookProcess, body: bytes) -> dict[str, Any]:
    with connect(webhook) as client:
        client.socket.settimeout(LONGEST_SECONDS)
        client.send(post(body, f"/validate?timeout={LONGEST_SECONDS}s"))
        response: dict[str, Any] = json.loads(client.answer().partition(b"\r\n\r\n")[2])["response"]
    return response


@pytest.mark.parametrize("policy", HOSTILE.values(), ids=HOSTILE)
def test_hostile_document_is_refused_at_its_path_before_the_deadline(webhook: WebhookProcess, policy: str) -> None:
    before = processor_seconds(webhook)
    response = asked(webhook, config_map(policy))
    assert processor_seconds(webhook) - before < PROCESSOR_SECONDS
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert all(cause["field"].startswith("data[policy.yaml]") for cause in response["status"]["details"]["causes"])


def answered_beside(webhook: WebhookProcess, policy: str) -> int:
    """How many claims are answered, one after the other, while a policy is read."""
    answers: list[dict[str, Any]] = []
    reading = threading.Thread(target=lambda: answers.append(asked(webhook, config_map(policy))))
    claims = 0
    with connect(webhook) as client:
        client.send(post(CLAIM))
        client.answer()
        reading.start()
        while reading.is_alive():
            client.send(post(CLAIM))
            assert b'"allowed":true' in client.answer()
            claims += 1
    reading.join()
    assert answers[0]["allowed"], answers
    return claims


def test_claims_are_answered_while_a_large_policy_is_read(webhook: WebhookProcess) -> None:
    # Were the document read in the loop, there would be the one before it and perhaps one after. Tried again, as this
    # process may not have its turn while the other one reads.
    assert any(answered_beside(webhook, f"{LARGE}# {attempt}\n") >= 5 for attempt in range(10))
