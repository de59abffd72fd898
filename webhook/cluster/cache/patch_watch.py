"""ResourceSlicePatches, followed for the texts that confirm them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from webhook.api.meta import OWN_GROUP
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.cache.known_patches import PATCH_VERSIONS, BarePatchWire
from webhook.cluster.cache.reflector import Reflector, doubt
from webhook.cluster.settings import InventorySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.api.patches import ResourceSlicePatch
    from webhook.cluster.client.rest import Cluster


class PatchWatch:
    """A watch of patches. Nothing waits for it for long: most clusters do not have them, and others may not allow it.

    Where the kind is not served there are no patches, and it is looked for ever more rarely.
    """

    def __init__(
        self,
        cluster: Cluster,
        on_change: Callable[[ResourceSlicePatch | None, ResourceSlicePatch | None], None],
        *,
        random: Callable[[], float],
        settings: InventorySettings = InventorySettings(),  # noqa: B008 -- frozen
        patience_seconds: float = 5.0,
    ) -> None:
        """`random` returns numbers in [0, 1). `patience_seconds`: how long `looked` waits for the first list."""
        self._patience_seconds = patience_seconds
        self.reflector: Reflector[ResourceSlicePatch] = Reflector(
            cluster,
            ServedCollection(cluster, OWN_GROUP, PATCH_VERSIONS, "resourceslicepatches"),
            BarePatchWire,
            random=random,
            optional=True,
            settings=replace(settings.reflector, absent_most_seconds=settings.pod_groups_seconds),
        )
        self.reflector.subscribe(on_change)

    def patches(self) -> Mapping[str, ResourceSlicePatch]:
        """By name, as far as they are known."""
        return self.reflector.items

    @property
    def problem(self) -> str | None:
        """Why patches are not known, with the server's error, or None."""
        unknown, error = doubt(self.reflector, inf, optional=True), self.reflector.error
        return (f"{unknown} ({error})" if error else unknown) if unknown else None

    async def looked(self) -> None:
        """Returns once patches were read, or found not to be served; or after some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_seconds):
                await self.reflector.synced.wait()
