"""Pods, for their eviction. Source: `semantics.md` E-15 to E-21."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from sys import intern
from typing import Final, TypeAlias

import msgspec

from webhook.api.decode import Reader
from webhook.api.meta import OWN_GROUP, ObjectMeta, parse_time
from webhook.api.owners import Owner, decode_owner

HOLD: Final = f"{OWN_GROUP}/hold"
"""Annotation on a pod or namespace: why it must not be evicted by us."""
GANG: Final = f"{OWN_GROUP}/gang"
"""Annotation on a pod: the name of the gang that it belongs to, in its namespace."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of mirror pods (core/v1.MirrorPodAnnotationKey)."""
DAEMON_SET: Final = "DaemonSet"
_JOB: Final = "Job"
_RUN_TO_END: Final = frozenset({"Never", "OnFailure"})
READY: Final = "Ready"
"""Type of the condition (core/v1.PodReady)."""
Labels: TypeAlias = tuple[tuple[str, str], ...]
"""All labels of an object, by key. Equal labels may be one value, which a mapping would not be."""
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class PodClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim that a pod names. `claim` is None while a generated one is not there, or not needed (E-16)."""

    claim: str | None
    generated: bool = False


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod. `extended_claim` is the claim that the scheduler made for its extended resources; empty if none.

    `hold` is the annotation's text, None if it has none. `deleting`: it has a deletionTimestamp, and `gone_by` is that
    time, at which its grace period ends. `ready`: its condition Ready is True. `labels` are in order of their keys.
    `gang` is the text of annotation `/gang`, empty if it has none. `completes`: as `will_complete` says.
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
    labels: Labels = ()
    gang: str = ""
    completes: bool = False

    def label(self, key: str) -> str | None:
        """The value of one of its labels, or None."""
        for known, value in self.labels:
            if known == key:
                return value
        return None

    @property
    def finished(self) -> bool:
        """Whether it has run to its end."""
        return self.phase in _FINISHED

    @property
    def uses_claims(self) -> bool:
        """Whether a taint of a device can ever concern it."""
        return bool(self.claims or self.extended_claim)

    @property
    def is_held(self) -> bool:
        """Whether an inventory holds it: a member of a PodGroup may have to go with one that uses claims."""
        return self.uses_claims or bool(self.pod_group)


def will_complete(restart_policy: str, owner: Owner | None) -> bool:
    """Whether a pod runs to its end by itself: its containers are not always restarted. Those of Jobs never are."""
    return restart_policy in _RUN_TO_END or (owner is not None and owner.kind == _JOB)


def to_labels(labels: Mapping[str, str]) -> Labels:
    """Labels in the order of their keys; many objects have the same ones."""
    return tuple(sorted([(intern(key), intern(value)) for key, value in labels.items()]))


def decode_pod(reader: Reader) -> Pod:
    """A v1 Pod."""
    spec, status, metadata = [reader.child_or_empty(part) for part in ("spec", "status", "metadata")]
    meta = reader.meta()
    generated: dict[str, str | None] = {
        each.text("name"): each.optional_text("resourceClaimName") for each in status.each("resourceClaimStatuses")
    }
    owner = decode_owner(reader)
    return Pod(
        meta,
        spec.text("nodeName"),
        tuple([_decode_claim(each, generated) for each in spec.each("resourceClaims")]),
        status.child_or_empty("extendedResourceClaimStatus").text("resourceClaimName"),
        spec.child_or_empty("schedulingGroup").text("podGroupName"),
        status.text("phase"),
        metadata.has("deletionTimestamp"),
        spec.integer("priority") or 0,
        owner,
        MIRROR in meta.annotations,
        meta.annotations.get(HOLD),
        any(each.text("type") == READY and each.text("status") == "True" for each in status.each("conditions")),
        parse_time(metadata.text("deletionTimestamp")),
        to_labels(metadata.text_map("labels")),
        meta.annotations.get(GANG, ""),
        will_complete(spec.text("restartPolicy"), owner),
    )


def _decode_claim(reader: Reader, generated: dict[str, str | None]) -> PodClaim:
    direct = reader.optional_text("resourceClaimName")
    if direct is not None:
        return PodClaim(direct)
    return PodClaim(generated.get(reader.text("name")), generated=True)
