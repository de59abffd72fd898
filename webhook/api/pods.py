"""Pods, for their eviction: who controls them, the PodGroups that they are in, and the budgets that guard them.

Source: `semantics.md` E-15 to E-21; scheduling.k8s.io PodGroupSpec of Kubernetes 1.37; policy/v1 PodDisruptionBudget,
pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from sys import intern
from typing import Final, TypeAlias

import msgspec

from webhook.api.decode import Reader
from webhook.api.meta import OWN_GROUP, LabelRequirement, LabelSelector, ObjectMeta, parse_time

# --- owners ---------------------------------------------------------------------------------------

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


# --- pods -----------------------------------------------------------------------------------------

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

    `hold` is the annotation's text, None if it has none. `deleting`: it has a deletionTimestamp, `grace_ends`, when its
    grace period ends. `ready`: its condition Ready is True. `labels` are in order of their keys.
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
    grace_ends: datetime | None = None
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


# --- PodGroups ------------------------------------------------------------------------------------

POD_GROUP_VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""Versions of scheduling.k8s.io in which Kubernetes 1.36 to 1.38 serve PodGroups; newest first."""
ALL: Final = "all"
"""Disruption mode: its pods may only be disrupted together."""
SINGLE: Final = "single"
"""Disruption mode: its pods may be disrupted one by one. The API server's default."""
_MODE: Final = "disruptionMode"
_V1ALPHA2: Final = {"PodGroup": ALL, "Pod": SINGLE}
"""There it was an enumeration; since v1alpha3 it is a union with one empty object."""


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup. `disruption_mode` is "all", "single", or empty where it says neither."""

    meta: ObjectMeta
    disruption_mode: str = ""
    owner: Owner | None = None


def decode_pod_group(reader: Reader) -> PodGroup:
    """Decode a PodGroup of any version."""
    meta, spec = reader.meta(), reader.child_or_empty("spec")
    if isinstance(spec.raw.get(_MODE), str):
        mode = _V1ALPHA2.get(spec.text(_MODE), "")
    else:
        union = spec.child_or_empty(_MODE)
        mode = next((each for each in (ALL, SINGLE) if union.child(each) is not None), "")
    return PodGroup(meta, mode, decode_owner(reader))


# --- PodDisruptionBudgets -------------------------------------------------------------------------

_DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
"""Type of the condition (policy/v1.DisruptionAllowedCondition)."""
_ALWAYS_ALLOW: Final = "AlwaysAllow"
_UNGUARDED: Final = frozenset({"Pending", "Succeeded", "Failed"})
"""Phases in which no budget counts (canIgnorePDB)."""


class DisruptionBudget(msgspec.Struct, frozen=True, gc=False):
    """A budget with its status. A missing selector selects nothing, an empty one every pod of the namespace.

    `allowed`: how many pods may be evicted now; None while the status is not of the newest generation, as the Eviction
    API has it. `since`: when it last began or ceased to allow any. `healthy` and `desired` are numbers of pods, of any
    generation. `always`: its unhealthyPodEvictionPolicy lets pods go that are not ready.
    """

    meta: ObjectMeta
    selector: LabelSelector | None = None
    allowed: int | None = None
    healthy: int = 0
    desired: int = 0
    since: datetime | None = None
    always: bool = False

    @property
    def frees_unready(self) -> bool:
        """Whether pods that are not ready may go, whatever `allowed` says."""
        return self.always or self.healthy >= self.desired > 0


def needs_disruption(pod: Pod, budgets: Sequence[DisruptionBudget]) -> bool:
    """Tell whether the Eviction API evicts a pod only if a budget among these, which select it, allows a disruption.

    A pod that several budgets select needs what no status allows: the API refuses it while it runs, ready or not.
    """
    if not budgets or pod.deleting or pod.phase in _UNGUARDED:
        return False
    return pod.ready or len(budgets) > 1 or not budgets[0].frees_unready


def decode_budget(reader: Reader) -> DisruptionBudget:
    """A policy/v1 PodDisruptionBudget."""
    metadata, status = reader.child_or_empty("metadata"), reader.child_or_empty("status")
    spec = reader.child_or_empty("spec")
    selector = spec.child("selector")
    current = (status.integer("observedGeneration") or 0) >= (metadata.integer("generation") or 0)
    times = [
        each.time("lastTransitionTime")
        for each in status.each("conditions")
        if each.text("type") == _DISRUPTION_ALLOWED
    ]
    return DisruptionBudget(
        reader.meta(),
        None if selector is None else _decode_selector(selector),
        status.integer("disruptionsAllowed") if current else None,
        status.integer("currentHealthy") or 0,
        status.integer("desiredHealthy") or 0,
        times[0] if times else None,
        spec.text("unhealthyPodEvictionPolicy") == _ALWAYS_ALLOW,
    )


def _decode_selector(reader: Reader) -> LabelSelector:
    exact = [LabelRequirement(key, "In", (value,)) for key, value in reader.text_map("matchLabels").items()]
    others = [
        LabelRequirement(each.text("key"), each.text("operator"), each.texts("values"))
        for each in reader.each("matchExpressions")
    ]
    return LabelSelector((*exact, *others))
