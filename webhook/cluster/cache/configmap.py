"""The ConfigMap that holds the policy: its data, each time that it changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NoReturn

from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.names import ConfigMap
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.rest import Cluster
from webhook.cluster.settings import ReflectorSettings
from webhook.telemetry.metrics import Metrics


class ConfigMapSource:
    """One ConfigMap by name, watched through the API: a mounted file would change up to two minutes later."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        on_change: Callable[[ConfigMap | None], None],
        random: Callable[[], float],
        metrics: Metrics | None = None,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 -- frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` gets the ConfigMap; None if there is none, which is not the same as one without data.

        It is called once at the start, and then at each change. What it raises ends `run`.
        """
        self.reflector = Reflector(
            cluster,
            FixedCollection("", "v1", "configmaps", namespace=namespace),
            ConfigMap,
            field_selector=f"metadata.name={name}",
            random=random,
            settings=settings,
            metrics=metrics,
            clock=clock,
        )
        self.reflector.subscribe(self._changed)
        self._on_change = on_change

    async def run(self) -> NoReturn:
        """Follows it; returns only when cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run())
            await self.reflector.synced.wait()
            if not self.reflector.items:
                self._on_change(None)
        raise AssertionError("the reflector does not return")

    def _changed(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        self._on_change(new)
