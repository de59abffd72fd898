"""Who controls an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from webhook.api.decode import Reader


POD_GROUPS: Final = ("scheduling.k8s.io", "podgroups")
"""API group and resource of PodGroups."""


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller of an object."""

    kind: str
    name: str
    uid: str


def decode_owner(reader: Reader) -> Owner | None:
    """The controller among an object's ownerReferences."""
    reference = _controller(reader)
    if reference is None:
        return None
    return Owner(reference.text("kind"), reference.text("name"), reference.text("uid"))


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
