"""The patches that change slices, and device classes with their selectors: kept current by two watches."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from webhook.api.decode import Reader
from webhook.api.device_classes import DeviceClassSelectors, decode_device_class
from webhook.api.meta import GROUP, OWN_GROUP, SERVED_VERSIONS, ObjectMeta
from webhook.api.patches import ResourceSlicePatch, decode_patch
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.settings import ReflectorSettings
from webhook.inventory.slice_patches import SlicePatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.client.rest import Cluster
    from webhook.telemetry.metrics import Metrics

PATCH_VERSIONS = ("v1alpha1",)


class PatchWire(msgspec.Struct, frozen=True):
    """A ResourceSlicePatch as the definition lets it through."""

    metadata: dict[str, Any]
    spec: dict[str, Any] | None = None

    def to_value(self) -> ResourceSlicePatch:
        """As `api.patches.decode_patch` returns it."""
        return decode_patch(Reader({"metadata": self.metadata, "spec": self.spec}, []))


class StoredClass(msgspec.Struct, frozen=True):
    """A device class and its selectors."""

    meta: ObjectMeta
    selectors: DeviceClassSelectors


class ClassSelectorWire(msgspec.Struct, frozen=True):
    """A DeviceClass of any version."""

    metadata: dict[str, Any]
    spec: dict[str, Any] | None = None

    def to_value(self) -> StoredClass:
        """With what `api.device_classes.decode_device_class` returns."""
        reader = Reader({"metadata": self.metadata, "spec": self.spec}, [])
        return StoredClass(reader.meta(), decode_device_class(reader))


class SlicePatchCache:
    """What `/mutate` needs for slices. Where patches are not served, there are none."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        random: Callable[[], float],
        metrics: Metrics | None = None,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 -- frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`random` returns numbers in [0, 1), `clock` seconds that only go forward."""
        patches = ServedCollection(cluster, OWN_GROUP, PATCH_VERSIONS, "resourceslicepatches")
        classes = ServedCollection(cluster, GROUP, SERVED_VERSIONS, "deviceclasses")
        self._patches: Reflector[ResourceSlicePatch] = Reflector(
            cluster, patches, PatchWire, random=random, optional=True, settings=settings, metrics=metrics, clock=clock
        )
        # Its lists are counted where the names of classes are kept.
        self._classes: Reflector[StoredClass] = Reflector(
            cluster, classes, ClassSelectorWire, random=random, settings=settings, clock=clock
        )
        self._current: SlicePatches | None = None
        for reflector in (self._patches, self._classes):
            reflector.subscribe(self._changed)

    @property
    def current(self) -> SlicePatches:
        """What is known now; not `known` until both were read, and while they are read again."""
        if not all(each.synced.is_set() and each.settled for each in (self._patches, self._classes)):
            return SlicePatches(known=False)
        if self._patches.unserved and self._patches.items:
            return SlicePatches(known=False)  # a server that is being replaced may say so
        if self._current is None:
            classes = {name: each.selectors for name, each in self._classes.items.items()}
            self._current = SlicePatches.of(self._patches.items.values(), classes)
        return self._current

    @property
    def problem(self) -> str | None:
        """Why slices are not changed for new patches, or None."""
        missing = [each for each in (self._patches, self._classes) if not each.synced.is_set()]
        listed = (f"{each.resource} ({each.error})" if each.error else each.resource for each in missing)
        return f"not read yet: {', '.join(listed)}" if missing else None

    async def run(self) -> NoReturn:
        """Follows both; returns only when cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._patches.run())
            group.create_task(self._classes.run())
        raise AssertionError("reflectors do not return")

    def _changed(self, _old: object, _new: object) -> None:
        self._current = None
