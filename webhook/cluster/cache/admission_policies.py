"""Admission policies and their bindings, read once: all of the cluster's, as others may have taken our names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cluster.cache.discovery import served_version
from webhook.cluster.cache.wire import Meta, WireValue
from webhook.cluster.client.list_pages import listed
from webhook.cluster.client.rest import path_of
from webhook.policy.vap.drift import AdmissionObjectKey, StoredObject
from webhook.policy.vap.objects import ADMISSION_GROUP, ADMISSION_RESOURCES

if TYPE_CHECKING:
    from webhook.cluster.client.rest import Cluster

_VERSIONS: Final = ("v1",)


class _AdmissionPolicyWire(WireValue, frozen=True):
    """A policy or a binding."""

    metadata: Meta
    spec: dict[str, Any] = {}  # noqa: RUF012 -- msgspec copies it


async def read_admission_policies(cluster: Cluster) -> dict[AdmissionObjectKey, StoredObject]:
    """Return all ValidatingAdmissionPolicies and bindings; none where they are not served. Raises ClusterError."""
    found = {}
    for kind, plural in ADMISSION_RESOURCES.items():
        version = await served_version(cluster, ADMISSION_GROUP, _VERSIONS, plural)
        if version is None:
            continue
        items = await listed(cluster, path_of(ADMISSION_GROUP, version, plural), f"{ADMISSION_GROUP}/{version}", kind)
        for item in items:
            wire = msgspec.convert(item, _AdmissionPolicyWire)
            key = AdmissionObjectKey(kind, wire.metadata.name)
            found[key] = StoredObject(key, wire.metadata.labels or {}, wire.spec)
    return found
