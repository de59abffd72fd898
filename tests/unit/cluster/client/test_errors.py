"""What is read from an answer that is no 2xx."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cluster.peer import status
from webhook.cluster.client.errors import ClusterError, error_of, is_admission_refusal, is_budget_pending

PENDING = "The disruption budget web is still being processed by the server."


def error(code: int, body: Any) -> ClusterError:
    return error_of("GET /x", json.dumps(body).encode(), code=code)


@pytest.mark.parametrize(
    ("body", "has_status"),
    [
        (json.dumps(status(404, "no")).encode(), True),
        (b'{"kind": "Status"}', True),
        (b'{"kind": "Pod"}', False),
        (b'{"message": "no such page", "code": 404}', False),
        (b"404 page not found", False),
        (b"", False),
    ],
)
def test_page_of_a_proxy_is_told_from_a_status(body: bytes, *, has_status: bool) -> None:
    assert error_of("GET /x", body, code=404).has_status is has_status
    assert not ClusterError("GET /x: no answer").has_status


@pytest.mark.parametrize(
    ("code", "causes", "pending"),
    [
        (429, [{"reason": "DisruptionBudget", "message": PENDING}], True),
        (429, [{"reason": "Other", "message": "x"}, {"reason": "DisruptionBudget", "message": PENDING}], True),
        (429, [{"reason": "DisruptionBudget", "message": "needs 3 healthy pods and has 2 currently"}], False),
        (429, [{"reason": "Other", "message": PENDING}], False),
        (429, [], False),
        (500, [{"reason": "DisruptionBudget", "message": PENDING}], False),
    ],
)
def test_budget_that_is_not_processed_yet(code: int, causes: list[dict[str, str]], *, pending: bool) -> None:
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    assert is_budget_pending(error(code, status(code, text, details={"causes": causes}))) is pending


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('admission webhook "x.example.com" denied the request: no', True),
        ("rules \"x\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no", True),
        ('rules is forbidden: User "x" cannot create resource "devicetaintrules" at the cluster scope', False),
        ("the word ValidatingAdmissionPolicy in another text", False),
    ],
)
def test_admission_is_told_from_permissions(text: str, *, refused: bool) -> None:
    assert is_admission_refusal(error(403, status(403, text))) is refused
