"""Whether API servers prove the authors of templates: by the policy that we ship, and its binding."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NoReturn

import msgspec

from webhook.api.rules import NEVER
from webhook.cluster.cache.discovery import FixedCollection, served_version
from webhook.cluster.cache.listwatch import Meta, WireValue
from webhook.cluster.cache.reflector import Reflector, doubt
from webhook.cluster.client.errors import NotFound
from webhook.cluster.client.list_pages import decoded, listed
from webhook.cluster.client.rest import Cluster, path_of
from webhook.policy.vap.drift import AUTHOR_POLICY, AdmissionObjectKey, StoredObject, unproved
from webhook.policy.vap.objects import ADMISSION_GROUP, ADMISSION_RESOURCES
from webhook.telemetry.metrics import Metrics

_VERSIONS: Final = ("v1",)


class _Metadata(Meta, frozen=True, gc=False):
    creation_timestamp: datetime = NEVER
    deletion_timestamp: datetime | None = None


class _PolicyWire(WireValue, frozen=True):
    """A policy or a binding."""

    metadata: _Metadata
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
            wire = msgspec.convert(item, _PolicyWire)
            key = AdmissionObjectKey(kind, wire.metadata.name)
            found[key] = StoredObject(key, wire.metadata.labels or {}, wire.spec)
    return found


_STALE_SECONDS: Final = 60.0
"""For how long a watch may be lost, as while an API server restarts."""


def _problem_of(found: Mapping[str, _PolicyWire]) -> str:
    return unproved({kind: each.spec for kind, each in found.items() if each.metadata.deletion_timestamp is None})


async def read_author_policy(cluster: Cluster) -> tuple[str, datetime]:
    """Why API servers do not prove authors, empty if they do; and when the younger object was created.

    Raises ClusterError.
    """
    found = {}
    for kind, plural in ADMISSION_RESOURCES.items():
        path = path_of(ADMISSION_GROUP, "v1", plural, name=AUTHOR_POLICY)
        with contextlib.suppress(NotFound):
            found[kind] = msgspec.convert(decoded(await cluster.get(path), path), _PolicyWire)
    return _problem_of(found), max((each.metadata.creation_timestamp for each in found.values()), default=NEVER)


class AuthorPolicyWatch:
    """Policy and binding, each watched by name."""

    def __init__(self, cluster: Cluster, *, random: Callable[[], float], metrics: Metrics | None = None) -> None:
        """`random` returns numbers in [0, 1)."""
        self._problem: str | None = None
        """None until both were read."""
        self._reflectors = {
            kind: Reflector(
                cluster,
                FixedCollection(ADMISSION_GROUP, "v1", plural),
                _PolicyWire,
                field_selector=f"metadata.name={AUTHOR_POLICY}",
                random=random,
                metrics=metrics,
            )
            for kind, plural in ADMISSION_RESOURCES.items()
        }
        for reflector in self._reflectors.values():
            reflector.subscribe(self._changed)

    @property
    def problem(self) -> str:
        """Why API servers do not prove authors now; empty if they do."""
        why = "the policy that proves authors was not read yet"
        if self._problem is not None:
            why = next(filter(None, (doubt(each, _STALE_SECONDS) for each in self._reflectors.values())), "")
            if not why:
                return self._problem
        errors = [each.error for each in self._reflectors.values() if each.error]
        return ": ".join([why, *errors[:1]])

    async def run(self) -> NoReturn:
        """Follows them; returns only when cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())
            for reflector in self._reflectors.values():
                await reflector.synced.wait()
            self._changed()
        raise AssertionError("the reflectors do not return")

    def _changed(self, *_: object) -> None:
        if all(reflector.synced.is_set() for reflector in self._reflectors.values()):
            self._problem = _problem_of(
                {kind: each for kind, r in self._reflectors.items() for each in r.items.values()}
            )
