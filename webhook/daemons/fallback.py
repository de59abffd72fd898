"""The fallback beside the evictions of a leader: a client, watches and a keeper that nothing else depends on."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.api.names import WORKER
from webhook.cluster.admission_policy_writer import AdmissionPolicyWriter
from webhook.cluster.cache.admission_policies import AdmissionPolicyCache
from webhook.cluster.client.throttled import ThrottledCluster
from webhook.cluster.events import EventType, EventWriter, ObjectReference
from webhook.cluster.settings import SyncMode
from webhook.daemons.fallback_keeper import FallbackKeeper, FallbackParts
from webhook.flowcontrol.throttle import Throttle
from webhook.telemetry.fallback import FallbackMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials
    from webhook.config.evict import EvictSettings
    from webhook.policy.store import PolicyStore

log = logging.getLogger(__name__)

_REQUESTS_PER_SECOND: Final = 20.0
_BURST: Final = 60
"""All objects of a large policy at once."""
_AGAIN_SECONDS: Final = 30.0


class FallbackSync:
    """All parts of it; `run` never fails."""

    def __init__(
        self,
        credentials: Credentials,
        settings: EvictSettings,
        policies: PolicyStore,
        registry: CollectorRegistry,
        leads: Callable[[], bool],
    ) -> None:
        """`leads` says whether this process may write."""
        self._cluster = ThrottledCluster(
            credentials, Throttle(_REQUESTS_PER_SECOND, _BURST), user_agent=f"{WORKER}-fallback", permitted=leads
        )
        chance = random.random  # noqa: TID251 -- the shell's
        self._config_map = settings.policy_config_map
        self._events = EventWriter(self._cluster, instance=os.environ.get("HOSTNAME", ""), now=_utc_now)
        self._cache = AdmissionPolicyCache(self._cluster, random=chance)
        self._keeper = FallbackKeeper(
            FallbackParts(
                policies=policies,
                settings=settings.fallback,
                cache=self._cache,
                writer=AdmissionPolicyWriter(self._cluster, self._cache.collections),
                metrics=FallbackMetrics(registry),
                tell=self._tell,
                leads=leads,
                random=chance,
            )
        )
        self._cache.subscribe(self._keeper.wake)

    async def run(self) -> NoReturn:
        """Works until it is cancelled; a failure is logged, and what else this process does goes on."""
        while True:
            try:
                async with self._cluster:
                    await self._work()
            except Exception:
                log.exception("admission policies not in sync because of an internal error")
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _work(self) -> None:
        """Until one of the tasks fails. No task group: one that fails as it is cancelled raises the failure alone."""
        tasks = [asyncio.create_task(self._cache.run()), asyncio.create_task(self._keeper.run())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, reason: str, note: str) -> None:
        """An Event of type Warning about the policy's ConfigMap, if it is in one."""
        name: NamespacedName | None = self._config_map
        if name is not None:
            about = ObjectReference("v1", "ConfigMap", name.namespace, name.name)
            await self._events.write(about, EventType.WARNING, reason=reason, action="SyncAdmissionPolicies", note=note)


def _utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 -- the shell's clock


def fallback_sync(
    credentials: Credentials,
    settings: EvictSettings,
    policies: PolicyStore,
    registry: CollectorRegistry,
    leads: Callable[[], bool],
) -> FallbackSync | None:
    """None unless the flags ask for it."""
    if settings.fallback.mode is SyncMode.OFF:
        return None
    return FallbackSync(credentials, settings, policies, registry, leads)
