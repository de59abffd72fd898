"""The namespace's Pod Security labels."""

from __future__ import annotations

from pathlib import Path

import yaml

from webhook.validation.releases import RELEASES

ROOT = Path(__file__).parents[2]
_PREFIX = "pod-security.kubernetes.io/"


def test_namespace_enforces_a_pinned_reading_and_tells_of_the_latest() -> None:
    """L9: without a version an upgrade of the cluster could keep our pods out."""
    namespace = yaml.safe_load((ROOT / "manifests" / "base" / "namespace.yaml").read_text())
    labels = {
        name.removeprefix(_PREFIX): value
        for name, value in namespace["metadata"]["labels"].items()
        if name.startswith(_PREFIX)
    }
    assert labels == {
        "enforce": "restricted",
        "enforce-version": f"v1.{min(RELEASES)}",
        "audit": "restricted",
        "audit-version": "latest",
        "warn": "restricted",
        "warn-version": "latest",
    }
