"""Who controls an object."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.api.decode import Reader

POD_GROUPS: Final = ("scheduling.k8s.io", "podgroups")
"""API group and resource of PodGroups."""
_BUILT_IN: Final = {"DaemonSet": "apps/v1", "Job": "batch/v1", "Pod": "v1", "ReplicaSet": "apps/v1"}
"""Kinds that mean something here, with the apiVersion that their controllers write into references."""


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller of an object; `kind` as `kind_of` says it."""

    kind: str
    name: str
    uid: str


def decode_owner(reader: Reader) -> Owner | None:
    """The controller among an object's ownerReferences."""
    reference = _controller(reader)
    if reference is None:
        return None
    return Owner(
        kind_of(reference.text("apiVersion"), reference.text("kind")), reference.text("name"), reference.text("uid")
    )


def kind_of(api_version: str, kind: str) -> str:
    """The kind of an owner; `Kind.group` if it only has the name of a built-in one. Files may leave the version out.

    The version counts: the garbage collector never deletes the pods of an owner in a version that is not served.
    """
    if api_version in ("", _BUILT_IN.get(kind, api_version)):
        return kind
    group, _, version = api_version.rpartition("/")
    return f"{kind}.{group or version}"


def decode_owning_pod_group(reader: Reader) -> str:
    """The name of the PodGroup that controls an object; empty if none does."""
    reference = _controller(reader)
    if reference is None:
        return ""
    return pod_group_of(reference.text("apiVersion"), reference.text("kind"), reference.text("name"))


def pod_group_of(api_version: str, kind: str, name: str) -> str:
    """The name, if it is a PodGroup's, of whatever version; else empty (resourceclaim.isForPodGroupByPod)."""
    return name if kind == "PodGroup" and api_version.startswith(f"{POD_GROUPS[0]}/") else ""


def _controller(reader: Reader) -> Reader | None:
    references = reader.child_or_empty("metadata").each("ownerReferences")
    return next((each for each in references if each.boolean("controller")), None)
