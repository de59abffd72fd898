"""No object gets past the policy because it cannot be read: claims fail open when we do not answer."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.apiserver.policy.pods import unused_name
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.client import path
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

CLAIMS: Final = path(f"{GROUP}/v1", "resourceclaims", namespace="lab")
POLICY: Final = make_policy(
    rules=[{"name": "no-tolerations", "action": "deny", "match": {"requesters": {"users": ["dana"]}}}]
)
TOLERATION: Final = {"key": "some.example.com/key", "operator": "Exists", "effect": "NoExecute"}


SELECTORS_MOST: Final = 32
"""In one request, and requests in one claim."""


def _claim(parameters: Any = None, selectors: int = 0) -> Json:
    """A claim with a toleration, and with as many selectors of 10 KiB that a review holds as 60 KiB."""
    selector = {"cel": {"expression": f'"{"<" * 10_000}" != ""'}}
    chunks = [min(SELECTORS_MOST, selectors - first) for first in range(0, selectors, SELECTORS_MOST)] or [0]
    exactly = {"deviceClassName": "gpu.example.com", "tolerations": [TOLERATION]}
    requests = [
        {"name": f"r{number}", "exactly": {**exactly, "selectors": [selector] * many}}
        for number, many in enumerate(chunks)
    ]
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": parameters}}] if parameters is not None else []
    spec = {"devices": {"requests": requests, "config": config}}
    metadata = {"name": unused_name(), "namespace": "lab"}
    return {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def _refused(stage: Stage, body: Any) -> None:
    stage.use(POLICY)
    reply = stage.client.acting_as("dana").create(CLAIMS, body)
    assert (reply.code, "(rule no-tolerations)" in reply.message) == (403, True), reply


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param(b'{"a":1}', id="nothing odd"),
        pytest.param(b'{"a":' + b"[" * 4_000 + b"]" * 4_000 + b"}", id="4,000 levels"),
        pytest.param(b'{"a":"\\ud800"}', id="half of a surrogate pair"),
    ],
)
def test_parameters_of_a_driver_never_hide_a_toleration(stage: Stage, parameters: bytes) -> None:
    _refused(stage, json.dumps(_claim("PARAMETERS")).encode().replace(b'"PARAMETERS"', parameters))


@pytest.mark.parametrize("selectors", [100, 139, 155])
def test_no_claim_that_fits_into_etcd_is_too_large_for_us(stage: Stage, selectors: int) -> None:
    """Its size grows sixfold on the way to us: the largest is 1.5 MiB, and 9 MiB in the review."""
    _refused(stage, _claim(selectors=selectors))
