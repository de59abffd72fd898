"""Exported objects as files for an API server's `staticManifestsDir`, which reads them without etcd (KEP-5793)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.api.names import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterable

    Json = dict[str, Any]

STATIC_SUFFIX: Final = ".static.k8s.io"
"""Of each name there; the API creates none with it (k8s.io/apiserver pkg/admission/plugin/manifest)."""
STATIC_FOLDER: Final = "validating"
"""Of the admission plugin: each one has a folder of its own."""
STATIC_FILE: Final = f"{PROGRAM}.yaml"


def static_manifests(objects: Iterable[Json]) -> list[Json]:
    """Return the objects with the names that they have to have there."""
    found = []
    for obj in objects:
        metadata, spec = obj["metadata"], obj["spec"]
        if "policyName" in spec:
            spec = {**spec, "policyName": spec["policyName"] + STATIC_SUFFIX}
        found.append({**obj, "metadata": {**metadata, "name": metadata["name"] + STATIC_SUFFIX}, "spec": spec})
    return found
