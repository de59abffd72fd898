"""PodGroups, for the eviction of their pods. Source: Kubernetes 1.37, scheduling.k8s.io PodGroupSpec."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.owners import Owner, decode_owner

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
    """A PodGroup of any version."""
    return PodGroup(reader.meta(), _disruption_mode(reader.child_or_empty("spec")), decode_owner(reader))


def _disruption_mode(spec: Reader) -> str:
    if isinstance(spec.raw.get(_MODE), str):
        return _V1ALPHA2.get(spec.text(_MODE), "")
    union = spec.child_or_empty(_MODE)
    return next((mode for mode in (ALL, SINGLE) if union.child(mode) is not None), "")
