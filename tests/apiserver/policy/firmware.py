"""A rule that refuses one sort of toleration, and a claim with it."""

from __future__ import annotations

from typing import Final

from tests.apiserver.objects import claim_of
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
    return claim_of("gpu.example.com", toleration, name=unused_name(), namespace="lab")
