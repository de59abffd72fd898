"""Counts what `audit` would list, at intervals and only in the leader: metrics, and a log line.

So the effect of a new rule, or of an exception that ends, is known in advance. Authors of templates are as they claim:
the worker may not read the policy that proves them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple, NoReturn

from webhook.admission.audit import AtRest, audited
from webhook.admission.context import AdmissionContext
from webhook.api.meta import GROUP, SERVED_VERSIONS
from webhook.cluster.cache.discovery import Collection, ServedCollection
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.list_pages import listed, pages
from webhook.cluster.client.rest import Cluster
from webhook.expressions.drivers import drivers_in_manifest
from webhook.flowcontrol.loop import Again, Loop
from webhook.policy.decide import PolicyState, PolicyStore
from webhook.policy.match import NamespaceFacts
from webhook.telemetry.workers import AuditMetrics

log = logging.getLogger(__name__)

_KINDS: Final = {"resourceclaimtemplates": "ResourceClaimTemplate", "resourceclaims": "ResourceClaim"}
_AT_ONCE: Final = 20
"""Objects between two checks of the clock."""
_SHARE: Final = 0.2
"""Share of one core's time; evictions come first."""
_NAMED_MOST: Final = 20


class AuditSources(NamedTuple):
    """What a pass needs, besides what it reads from the cluster."""

    policies: PolicyStore
    namespace: Callable[[str], NamespaceFacts | None]
    """Labels of a namespace; None if it is not known."""
    now: Callable[[], datetime]
    """Wall-clock time in UTC."""
    exempt: tuple[str, ...] = ()
    """Namespaces whose objects the webhook is not asked about."""


class _Names(NamedTuple):
    """Namespaces from the worker's cache, and the device classes that existed when the pass began."""

    namespace: Callable[[str], NamespaceFacts | None]
    drivers: Callable[[str], frozenset[str] | None]


class PeriodicAudit:
    """A pass over templates and claims at each interval, and when the policy has changed."""

    def __init__(self, cluster: Cluster, sources: AuditSources, metrics: AuditMetrics, seconds: float) -> None:
        self._cluster = cluster
        self._collections: dict[str, Collection] = {
            resource: ServedCollection(cluster, GROUP, SERVED_VERSIONS, resource)
            for resource in ("deviceclasses", *_KINDS)
        }
        self._sources = sources
        self._metrics = metrics
        self._seconds = seconds
        self._loop = Loop(self._look)
        sources.policies.subscribe(self._changed)

    async def run(self) -> NoReturn:
        """Make passes until it is cancelled. A failed pass is counted and logged; the next one comes at its time."""
        await self._loop.run()

    async def _look(self) -> Again:
        try:
            await self.look()
        except ClusterError as error:
            self._metrics.audit_failures.inc()
            for collection in self._collections.values():
                collection.forget()
            log.warning("audit failed", extra={"error": str(error)})
        return Again(self._seconds)

    def _changed(self, old: PolicyState, new: PolicyState) -> None:
        if (new.active, new.candidate) != (old.active, old.candidate):
            self._loop.wake()

    async def look(self) -> None:
        """Make one pass. Raises ClusterError."""
        policies = self._sources.policies.state
        names = _Names(self._sources.namespace, (await self._drivers()).get)
        context = AdmissionContext(
            now=self._sources.now(), judge=policies.active, candidate=policies.candidate, names=names
        )
        counts, looked, named = Counter[tuple[str, str, str]](), Counter[str](), list[str]()
        for resource, kind in _KINDS.items():
            path = await self._collections[resource].path()
            head = {"apiVersion": f"{GROUP}/{path.split('/')[3]}", "kind": kind}
            async for items in pages(self._cluster, path):
                for start in range(0, len(items), _AT_ONCE):
                    began = time.monotonic()
                    for item in items[start : start + _AT_ONCE]:
                        meta = item["metadata"]
                        if meta.get("namespace") in self._sources.exempt:
                            continue
                        looked[resource] += 1
                        found = audited({**head, **item}, context)
                        if _counted(found, counts) and len(named) < _NAMED_MOST:
                            named.append(f"{resource}/{meta.get('namespace')}/{meta.get('name')}")
                    await asyncio.sleep((time.monotonic() - began) * (1 / _SHARE - 1))
        self._metrics.set_found(counts, looked, self._sources.now().timestamp())
        if named:
            log.info("stored objects violate the policy", extra={"objects": named, "found": sum(counts.values())})

    async def _drivers(self) -> dict[str, frozenset[str] | None]:
        path = await self._collections["deviceclasses"].path()
        classes = await listed(self._cluster, path, f"{GROUP}/{path.split('/')[3]}", "DeviceClass", _named_drivers)
        return dict(classes)


def _named_drivers(item: dict[str, Any]) -> tuple[str, frozenset[str] | None]:
    return item["metadata"]["name"], drivers_in_manifest(item)


def _counted(found: Iterable[AtRest], counts: Counter[tuple[str, str, str]]) -> bool:
    """Add an object's findings, each kind once; return whether there were any."""
    sorts = {(each.resource, each.reason.value, each.finding.rule or "") for each in found}
    counts.update(sorts)
    return bool(sorts)
