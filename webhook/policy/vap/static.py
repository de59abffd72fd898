"""Exported objects as files for an API server's `staticManifestsDir`, which reads them without etcd (KEP-5793)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.api.names import PROGRAM
from webhook.policy.vap.drift import MUTATING, VALIDATING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Json = dict[str, Any]

STATIC_SUFFIX: Final = ".static.k8s.io"
"""Of each name there; the API creates none with it (k8s.io/apiserver pkg/admission/plugin/manifest)."""
STATIC_FOLDERS: Final[Mapping[str, str]] = {VALIDATING: "validating", MUTATING: "mutating"}
"""By the kind of policies, which is the name of the admission plugin: each one has a folder of its own."""
STATIC_FILE: Final = f"{PROGRAM}.yaml"


def static_manifests(objects: Iterable[Json]) -> dict[str, list[Json]]:
    """The objects by folder, with the names that they have to have there; every folder is there."""
    found: dict[str, list[Json]] = {folder: [] for folder in STATIC_FOLDERS.values()}
    for obj in objects:
        folder = STATIC_FOLDERS[obj["kind"].removesuffix("Binding")]
        metadata, spec = obj["metadata"], obj["spec"]
        if "policyName" in spec:
            spec = {**spec, "policyName": spec["policyName"] + STATIC_SUFFIX}
        found[folder].append({**obj, "metadata": {**metadata, "name": metadata["name"] + STATIC_SUFFIX}, "spec": spec})
    return found
