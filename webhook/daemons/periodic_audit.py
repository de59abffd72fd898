"""What `audit` would list, counted from time to time by the worker that leads: metrics, and a line of the log.

A rule that is to come, or an exception that ends, is known before it bites. Authors of templates are believed: the
worker may not read the key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import msgspec

from webhook.admission.audit import AtRest, audited
from webhook.admission.context import AdmissionContext
from webhook.api.meta import GROUP, SERVED_VERSIONS
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.cache.projections import DeviceClass, class_drivers
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.list_pages import listed, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.client.rest import Cluster
    from webhook.policy.decide import Judge
    from webhook.policy.ports import NamespaceFacts
    from webhook.telemetry.audit import AuditMetrics

log = logging.getLogger(__name__)

_KINDS: Final = {"resourceclaimtemplates": "ResourceClaimTemplate", "resourceclaims": "ResourceClaim"}
_AT_ONCE: Final = 20
"""Objects between two looks at the clock."""
_SHARE: Final = 0.2
"""Of one core's time; evictions go first."""
_LOOK_SECONDS: Final = 2.0
"""How soon a changed policy begins a pass of its own."""
_NAMED_MOST: Final = 20


class Judges(NamedTuple):
    """Of the policy that holds, and of the candidate, if there is one."""

    active: Judge
    candidate: Judge | None


def periodic_audit(cluster: Cluster, around: Around, metrics: AuditMetrics, seconds: float) -> PeriodicAudit:
    """Of everything in the cluster, in the versions that it serves."""
    collections = {
        resource: ServedCollection(cluster, GROUP, SERVED_VERSIONS, resource) for resource in ("deviceclasses", *_KINDS)
    }
    return PeriodicAudit(cluster, collections, around, metrics, seconds)


class Around(NamedTuple):
    """What a pass asks whoever built it."""

    judges: Callable[[], Judges]
    namespace: Callable[[str], NamespaceFacts | None]
    now: Callable[[], datetime]


class _Names:
    """Namespaces as the worker knows them, and the classes that were there when the pass began."""

    def __init__(
        self, namespace: Callable[[str], NamespaceFacts | None], drivers: Mapping[str, frozenset[str] | None]
    ) -> None:
        self.namespace = namespace
        self._drivers = drivers

    def drivers(self, device_class: str) -> frozenset[str] | None:
        return self._drivers.get(device_class)


class PeriodicAudit:
    """One pass over templates and claims at each interval, and when the policy has changed."""

    def __init__(
        self,
        cluster: Cluster,
        collections: Mapping[str, Collection],
        around: Around,
        metrics: AuditMetrics,
        seconds: float,
    ) -> None:
        """`collections` by resource: deviceclasses, resourceclaimtemplates, resourceclaims."""
        self._cluster = cluster
        self._collections = collections
        self._around = around
        self._metrics = metrics
        self._seconds = seconds

    async def run(self) -> NoReturn:
        """Until it is cancelled. A pass that fails is counted and told, and the next one comes in its time."""
        while True:
            judges = self._around.judges()
            try:
                await self.look(judges)
            except ClusterError as error:
                self._metrics.count_failure()
                for collection in self._collections.values():
                    collection.forget()
                log.warning("audit not finished", extra={"error": str(error)})
            end = time.monotonic() + self._seconds
            while time.monotonic() < end and self._same(judges):  # noqa: ASYNC110 -- nobody tells of a new candidate
                await asyncio.sleep(_LOOK_SECONDS)

    def _same(self, judges: Judges) -> bool:
        return all(one is other for one, other in zip(judges, self._around.judges(), strict=True))

    async def look(self, judges: Judges) -> None:
        """One pass. Raises ClusterError."""
        names = _Names(self._around.namespace, await self._drivers())
        context = AdmissionContext(now=self._around.now(), judge=judges.active, candidate=judges.candidate, names=names)
        counts, looked, named = Counter[tuple[str, str, str]](), Counter[str](), list[str]()
        for resource, kind in _KINDS.items():
            path = await self._collections[resource].path()
            head = {"apiVersion": f"{GROUP}/{path.split('/')[3]}", "kind": kind}
            async for items in pages(self._cluster, path):
                for start in range(0, len(items), _AT_ONCE):
                    began = time.monotonic()
                    for item in items[start : start + _AT_ONCE]:
                        looked[resource] += 1
                        if _counted(audited({**head, **item}, context), counts) and len(named) < _NAMED_MOST:
                            meta = item["metadata"]
                            named.append(f"{resource}/{meta.get('namespace')}/{meta.get('name')}")
                    await asyncio.sleep((time.monotonic() - began) * (1 / _SHARE - 1))
        self._metrics.set_found(counts, looked, self._around.now().timestamp())
        if named:
            log.info("at rest, and not as the policy wants it", extra={"objects": named, "found": sum(counts.values())})

    async def _drivers(self) -> dict[str, frozenset[str] | None]:
        path = await self._collections["deviceclasses"].path()
        classes = await listed(self._cluster, path, f"{GROUP}/{path.split('/')[3]}", "DeviceClass", _named_drivers)
        return dict(classes)


def _named_drivers(item: dict[str, Any]) -> tuple[str, frozenset[str] | None]:
    try:
        return item["metadata"]["name"], class_drivers(msgspec.convert(item, DeviceClass))
    except msgspec.ValidationError:
        return item["metadata"]["name"], None


def _counted(found: Iterable[AtRest], counts: Counter[tuple[str, str, str]]) -> bool:
    """Adds an object's findings, of one sort once; says whether there were any."""
    sorts = {(each.resource, each.reason.value, each.finding.rule or "") for each in found}
    counts.update(sorts)
    return bool(sorts)
