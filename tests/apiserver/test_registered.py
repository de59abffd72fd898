"""Generated objects on the whole way: kubectl's request, the API server, our registered webhook, the answer.

What users get is what was compared: the server's own refusal, or ours, or the object as both left it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.apiserver.comparison import request_of, send
from tests.apiserver.generator import Case, creation
from tests.controlplane.assets import Assets
from tests.controlplane.plane import ControlPlane
from tests.controlplane.registration import calls, registered
from tests.controlplane.webhook_process import WebhookProcess
from webhook.admission.chain import validate
from webhook.admission.context import AdmissionContext
from webhook.validation.releases import NEWEST

pytestmark = [pytest.mark.slow, pytest.mark.whole]

MANIFESTS = Path(__file__).parents[2] / "manifests"
OBJECTS = 300
NOW = datetime(2026, 7, 1, tzinfo=UTC)
"""No field error and no documented rule looks at the time."""
ROWS = (
    ("ResourceClaim", "v1"),
    ("ResourceClaim", "v1beta1"),
    ("ResourceClaimTemplate", "v1beta2"),
    ("ResourceSlice", "v1"),
    ("ResourceSlice", "v1beta1"),
    ("DeviceTaintRule", "v1"),
    ("DeviceTaintRule", "v1alpha3"),
)


@pytest.fixture(scope="module")
def plane_with_webhook(assets: Assets) -> Iterator[ControlPlane]:
    with (
        ControlPlane(assets, feature_gates={"DRAListTypeAttributes": True}) as plane,
        WebhookProcess() as webhook,
        registered(plane, MANIFESTS, webhook.base_url, webhook.ca_pem),
    ):
        yield plane


def test_registered_webhook_gives_users_what_was_compared(plane_with_webhook: ControlPlane) -> None:
    plane = plane_with_webhook
    by_server: list[Case] = []
    by_us: list[Case] = []
    passed: list[Case] = []
    wrong: list[str] = []

    rng = random.Random(1)
    for _ in range(OBJECTS):
        case = creation(rng, *rng.choice(ROWS), NEWEST)
        reply = send(plane.client, case)
        ours = validate(request_of(case, None), AdmissionContext(now=NOW))
        of_documents = {(each.error.field, each.error.type.value) for each in ours.findings if each.documented}
        told = {(cause.field, cause.reason) for cause in reply.causes} if reply.code == 422 else set()
        if "denied the request" in reply.message:
            by_us.append(case)
            if not of_documents or told != of_documents:
                wrong.append(f"{case}: we said {sorted(of_documents)}, the user was told {sorted(told)}")
        elif reply.ok:
            passed.append(case)
            if not ours.allowed:
                wrong.append(f"{case}: passed, though we refuse it: {ours.errors}")
        else:
            by_server.append(case)
            if ours.allowed:
                wrong.append(f"{case}: refused by the server alone: {reply.message}")
    assert wrong == []
    assert min(len(by_server), len(by_us), len(passed)) >= 10, (len(by_server), len(by_us), len(passed))
    counted = calls(plane)
    assert counted.failed.total() == 0
    assert counted.answered.total() >= len(by_us) + len(passed) / 2


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param('{"a":"\\ud800"}', id="half of a surrogate pair"),
        pytest.param('{"a":' * 1_200 + "1" + "}" * 1_200, id="1,200 levels"),
    ],
)
def test_drivers_parameters_hide_no_claim_from_us(plane_with_webhook: ControlPlane, parameters: str) -> None:
    """The server keeps them raw and passes them on; a body that we could not read would be admitted unjudged."""
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "hidden", "namespace": "default"},
        "spec": {
            "devices": {
                "config": [{"opaque": {"driver": "gpu.example.com", "parameters": "HERE"}}],
                "requests": [
                    {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "tolerations": [{"value": "v"}]}}
                ],
            }
        },
    }
    manifest = json.dumps(claim).replace('"HERE"', parameters)
    result = plane_with_webhook.kubectl("create", "--dry-run=server", "--validate=false", "-f", "-", stdin=manifest)
    assert result.code != 0
    assert "tolerations[0].operator" in result.stderr, result.stderr
