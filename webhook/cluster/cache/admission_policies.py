"""Admission policies and their bindings, followed: all of the cluster's, as others may have taken our names."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from webhook.cluster.cache.discovery import ServedCollection, served_version
from webhook.cluster.cache.freshness import doubt
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.cache.wire import Meta, WireValue
from webhook.cluster.client.list_pages import listed
from webhook.cluster.client.rest import path_of
from webhook.policy.vap.drift import KINDS, MUTATING, AdmissionObjectKey, StoredObject
from webhook.policy.vap.objects import ADMISSION_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.client.rest import Cluster

VALIDATING_VERSIONS: Final = ("v1",)
MUTATING_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
"""Since 1.36, 1.34 and 1.32."""


class _Meta(Meta, frozen=True, gc=False):
    generation: int = 0


class AdmissionPolicyWire(WireValue, frozen=True):
    """A policy or a binding, of any of the four kinds."""

    metadata: _Meta
    spec: dict[str, Any] = {}  # noqa: RUF012 -- msgspec copies it

    def stored(self, kind: str) -> StoredObject:
        """What is compared."""
        meta = self.metadata
        key = AdmissionObjectKey(kind, meta.name)
        return StoredObject(key, meta.labels or {}, self.spec, meta.uid, meta.generation, meta.resource_version)


def plural_of(kind: str) -> str:
    """The resource of a kind."""
    return f"{kind.removesuffix('y').lower()}ies" if kind.endswith("y") else f"{kind.lower()}s"


class AdmissionPolicyCache:
    """Watches the four kinds; MutatingAdmissionPolicies only where they are served."""

    def __init__(self, cluster: Cluster, *, random: Callable[[], float]) -> None:
        """`random` returns numbers in [0, 1)."""
        self.collections = {
            kind: ServedCollection(cluster, ADMISSION_GROUP, versions_of(kind), plural_of(kind)) for kind in KINDS
        }
        self._reflectors: dict[str, Reflector[AdmissionPolicyWire]] = {
            kind: Reflector(
                cluster, self.collections[kind], AdmissionPolicyWire, random=random, optional=_optional(kind)
            )
            for kind in KINDS
        }
        self._on_change: Callable[[], None] = lambda: None

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Calls it at each change, and once everything was read."""
        self._on_change = on_change
        for each in self._reflectors.values():
            each.subscribe(lambda _old, _new: on_change())

    async def run(self) -> NoReturn:
        """Follows them; returns only when cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._reflectors.values():
                group.create_task(each.run())
            for each in self._reflectors.values():
                await each.synced.wait()
            self._on_change()
        raise AssertionError("reflectors do not return")

    @property
    def problem(self) -> str | None:
        """Why the objects are not known as they are now, or None."""
        for kind, each in self._reflectors.items():
            unknown = doubt(each, inf, optional=_optional(kind))
            if unknown:
                return f"{unknown} ({each.error})" if each.error else unknown
        return None

    async def mutating_version(self) -> str | None:
        """The version in which MutatingAdmissionPolicies are served, None if they are not. Raises ClusterError."""
        if self._reflectors[MUTATING].unserved:
            return None
        return (await self.collections[MUTATING].path()).split("/")[3]

    def stored(self) -> dict[AdmissionObjectKey, StoredObject]:
        """All of them."""
        found = (each.stored(kind) for kind, known in self._reflectors.items() for each in known.items.values())
        return {each.key: each for each in found}


async def read_admission_policies(cluster: Cluster) -> dict[AdmissionObjectKey, StoredObject]:
    """All objects of the four kinds, read once. Raises ClusterError."""
    found = []
    for kind in KINDS:
        version = await served_version(cluster, ADMISSION_GROUP, versions_of(kind), plural_of(kind))
        if version is not None:
            path = path_of(ADMISSION_GROUP, version, plural_of(kind))
            items = await listed(cluster, path, f"{ADMISSION_GROUP}/{version}", kind)
            found += [msgspec.convert(each, AdmissionPolicyWire).stored(kind) for each in items]
    return {each.key: each for each in found}


def versions_of(kind: str) -> tuple[str, ...]:
    """The versions of a kind that this program writes, the best first."""
    return MUTATING_VERSIONS if _optional(kind) else VALIDATING_VERSIONS


def _optional(kind: str) -> bool:
    return kind.startswith(MUTATING)
