"""A rule that refuses one sort of toleration, and a claim with it."""

from __future__ import annotations

from typing import Final

from tests.apiserver.policy.pods import unused_name
from tests.apiserver.policy.rows import make_toleration
from tests.apiserver.policy.stage import Json
from tests.controlplane.client import path
from tests.controlplane.versions import GROUP

CLAIMS: Final = path(f"{GROUP}/v1", "resourceclaims", namespace="lab")
RULE: Final = {"name": "no-firmware", "action": "deny", "match": {"tolerations": {"keys": ["firmware.example.com/*"]}}}


def make_firmware_claim() -> Json:
    """A claim of a new name, which RULE refuses."""
    toleration = make_toleration("firmware.example.com/update:NoExecute")
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "tolerations": [toleration]}}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": unused_name(), "namespace": "lab"},
        "spec": {"devices": {"requests": [request]}},
    }
