"""Pods, as far as evicting them is concerned. Source: `semantics.md` E-15 to E-21."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.meta import OWN_GROUP, ObjectMeta, parse_time
from webhook.api.owners import Owner, decode_owner

if TYPE_CHECKING:
    from webhook.api.decode import Reader

HOLD: Final = f"{OWN_GROUP}/hold"
"""Annotation on a pod or namespace: why it must not be evicted by us."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of mirror pods (core/v1.MirrorPodAnnotationKey)."""
DAEMON_SET: Final = "DaemonSet"
READY: Final = "Ready"
"""Type of the condition (core/v1.PodReady)."""
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class PodClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim that a pod names. `claim` is None while a generated one is not there, or not needed (E-16)."""

    claim: str | None
    generated: bool = False


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod. `extended_claim` is the claim that the scheduler made for its extended resources; empty if none.

    `hold` is the annotation's text, None if it has none. `deleting`: it has a deletionTimestamp, and `gone_by` is that
    time, at which its grace period ends. `ready`: its condition Ready is True.
    """

    meta: ObjectMeta
    node_name: str = ""
    claims: tuple[PodClaim, ...] = ()
    extended_claim: str = ""
    pod_group: str = ""
    phase: str = ""
    deleting: bool = False
    priority: int = 0
    owner: Owner | None = None
    mirror: bool = False
    hold: str | None = None
    ready: bool = False
    gone_by: datetime | None = None

    @property
    def finished(self) -> bool:
        """Whether it has run to its end."""
        return self.phase in _FINISHED

    @property
    def uses_claims(self) -> bool:
        """Whether a taint of a device can ever concern it."""
        return bool(self.claims or self.extended_claim)


def decode_pod(reader: Reader) -> Pod:
    """A v1 Pod."""
    spec, status = reader.child_or_empty("spec"), reader.child_or_empty("status")
    meta = reader.meta()
    generated: dict[str, str | None] = {
        each.text("name"): each.optional_text("resourceClaimName") for each in status.each("resourceClaimStatuses")
    }
    return Pod(
        meta,
        spec.text("nodeName"),
        tuple([_decode_claim(each, generated) for each in spec.each("resourceClaims")]),
        status.child_or_empty("extendedResourceClaimStatus").text("resourceClaimName"),
        spec.child_or_empty("schedulingGroup").text("podGroupName"),
        status.text("phase"),
        reader.child_or_empty("metadata").has("deletionTimestamp"),
        spec.integer("priority") or 0,
        decode_owner(reader),
        MIRROR in meta.annotations,
        meta.annotations.get(HOLD),
        any(each.text("type") == READY and each.text("status") == "True" for each in status.each("conditions")),
        parse_time(reader.child_or_empty("metadata").text("deletionTimestamp") or ""),
    )


def _decode_claim(reader: Reader, generated: dict[str, str | None]) -> PodClaim:
    direct = reader.optional_text("resourceClaimName")
    if direct is not None:
        return PodClaim(direct)
    return PodClaim(generated.get(reader.text("name")), generated=True)
