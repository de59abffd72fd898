"""Keeps OpenReports equal to what the periodic audit found: at the end of each pass, in the leader only.

Where the cluster does not have them, nothing is written and nothing is said; each pass looks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.meta import SERVED_VERSIONS
from webhook.cluster.client.errors import ClusterError, NotFound
from webhook.cluster.report_store import ReportStore
from webhook.reports.changes import changes
from webhook.reports.objects import report_objects
from webhook.reports.sources import of_policy, of_rule, of_stale, of_stored
from webhook.telemetry.repeats import LastingFault
from webhook.telemetry.reports import ReportMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from datetime import datetime
    from typing import Any

    from prometheus_client import CollectorRegistry

    from webhook.admission.audit import AtRest
    from webhook.api.meta import NamespacedName
    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.client.throttled import ThrottledCluster
    from webhook.eviction.expiry import StaleTaints
    from webhook.inventory.state import Inventory
    from webhook.policy.store import PolicyStore
    from webhook.reports.changes import ReportChanges, StoredReport
    from webhook.reports.findings import ReportFinding
    from webhook.reports.objects import ReportId, ReportObject

log = logging.getLogger(__name__)

_RESULTS_MOST: Final = 20_000
"""Some 15 MB of memory here, and as much in etcd. The metrics of the audit count the rest."""
_AT_ONCE: Final = 100
"""Rules between two turns of other tasks."""
_PAUSE_SECONDS: Final = 0.2
"""Between two writes: evictions and people come first."""


def _objects(found: Iterable[ReportFinding]) -> list[ReportObject]:
    return list(report_objects(found))


class ReportSources(NamedTuple):
    """What reports say beside the findings of the audit."""

    inventory: Inventory
    policies: PolicyStore
    config_map: NamespacedName | None
    """The policy's; None if it is in a file."""
    stale: Callable[[], StaleTaints]
    """Taints that looked forgotten when they were looked at last."""
    rules: Collection
    """DeviceTaintRules, for the version that is served."""
    leads: Callable[[], bool]
    now: Callable[[], datetime]
    """Wall-clock time in UTC."""


def report_keeper(cluster: ThrottledCluster, sources: ReportSources, registry: CollectorRegistry) -> ReportKeeper:
    """The keeper of one cluster's reports."""
    return ReportKeeper(ReportStore(cluster), sources, ReportMetrics(registry))


class ReportKeeper:
    """Collects the findings of a pass, then writes what differs from what is stored."""

    def __init__(
        self,
        store: ReportStore,
        sources: ReportSources,
        metrics: ReportMetrics,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        self._store = store
        self._sources = sources
        self._metrics = metrics
        self._pause_seconds = pause_seconds
        self._found: list[ReportFinding] = []
        self._left_out = 0
        self._found_at: dict[ReportFinding, int] = {}
        """Since when, in seconds since 1970; a restart loses that."""
        self._written: dict[ReportId, StoredReport] = {}
        self._fault = LastingFault()

    def begin(self) -> None:
        """A pass of the audit begins."""
        self._found.clear()
        self._left_out = 0

    def add(self, value: Any, found: Iterable[AtRest]) -> None:
        """What the audit found about one claim or template."""
        self._keep(of_stored(value, found))

    def _keep(self, findings: Iterable[ReportFinding]) -> None:
        for each in findings:
            if len(self._found) < _RESULTS_MOST:
                self._found.append(each)
            else:
                self._left_out += 1

    async def finish(self) -> None:
        """The pass is complete: writes reports. Errors are counted and logged; the next pass tries again."""
        try:
            served = await self._store.is_served()
            self._metrics.set_served(served=served)
            if served and self._sources.leads() and await self._write_all():
                self._fault.ended()
        except NotFound:
            self._metrics.set_served(served=False)  # announced, and not there yet or any more
        except ClusterError as error:
            self._failed(error)
        finally:
            self._found.clear()

    async def _write_all(self) -> bool:
        """Returns whether everything was written."""
        await self._add_cluster_wide()
        wanted = await asyncio.to_thread(_objects, tuple(self._found))  # 0.3 s for 20,000
        now = int(self._sources.now().timestamp())
        self._found_at = {each: self._found_at.get(each, now) for obj in wanted for each in obj.findings}
        kinds = Counter(obj.identity.kind for obj in wanted)
        self._metrics.set_wanted(kinds, len(self._found_at), self._left_out)
        return await self._write(changes(wanted, await self._store.stored(), self._written))

    async def _add_cluster_wide(self) -> None:
        sources, version = self._sources, await self._rules_version()
        rules = tuple(sources.inventory.rules.values())
        for start in range(0, len(rules), _AT_ONCE):
            for rule in rules[start : start + _AT_ONCE]:
                self._keep(of_rule(rule, version, sources.now()))
            await asyncio.sleep(0)
        self._keep(of_stale(sources.stale(), rules, tuple(sources.inventory.slices.values()), version))
        self._keep(of_policy(sources.policies.state.failure, sources.config_map))

    async def _rules_version(self) -> str:
        """The version of rules, and of slices beside them. Where none is served there are no rules either."""
        try:
            return (await self._sources.rules.path()).split("/")[3]
        except NotFound:
            return SERVED_VERSIONS[0]

    async def _write(self, due: ReportChanges) -> bool:
        """Writes one after the other, with pauses; a failed write does not keep the others from being tried.

        Returns whether all went well.
        """
        attempts: list[Callable[[], Coroutine[Any, Any, None]]] = [partial(self._apply, each) for each in due.write]
        attempts += [partial(self._delete, identity, found.uid) for identity, found in due.delete]
        fine = True
        for attempt in attempts:
            if not self._sources.leads():
                return False
            try:
                await attempt()
            except ClusterError as error:
                self._failed(error)
                fine = False
            await asyncio.sleep(self._pause_seconds)
        return fine

    async def _apply(self, obj: ReportObject) -> None:
        stored = await self._store.apply(obj.identity, obj.manifest(self._found_at))
        if stored is None:  # the namespace is gone, or will be soon
            self._written.pop(obj.identity, None)
            self._metrics.count_action("skipped")
            return
        self._written[obj.identity] = stored
        self._metrics.count_action("written")

    async def _delete(self, identity: ReportId, uid: str) -> None:
        await self._store.delete(identity, uid)
        self._written.pop(identity, None)
        self._metrics.count_action("deleted")

    def _failed(self, error: ClusterError) -> None:
        self._metrics.count_action("failed")
        if self._fault.failed(str(error)):
            log.warning("reports not written", extra={"error": str(error), **self._fault.fields})
