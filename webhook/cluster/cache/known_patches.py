"""ResourceSlicePatches, followed for the guard of patches and of their rules, and for what they set in slices.

The eviction worker follows them for the texts that confirm them (`PatchWatch`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn

from webhook.api.meta import GROUP, OWN_GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.api.patches import ResourceSlicePatch, decode_patch
from webhook.api.rules import decode_conditions, decode_rule
from webhook.api.slices import ResourceSlice
from webhook.cluster.cache.decoders import DeviceClassWire, StoredClass, WholeSliceWire
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.cache.listwatch import WholeWire
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.errors import NotFound
from webhook.cluster.client.rest import Cluster
from webhook.cluster.settings import InventorySettings
from webhook.flowcontrol.loop import together
from webhook.flowcontrol.workqueue import REVIEW_SECONDS, TimeSlice
from webhook.inventory.state import Sight
from webhook.patches.filter_memo import FilterMemo
from webhook.patches.patch_reach import KnownPatches
from webhook.patches.slice_patches import SlicePatches
from webhook.patches.stored import PATCH_VERSION, PatchStatus, RuleOwner, StoredPatch, StoredRule, own_labels
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from webhook.cluster.cache.names import ClusterCache


PATCHES: Final = "resourceslicepatches"
_IDLE_SECONDS: Final = 0.2
"""How often it is looked whether a review left something to do."""


class PatchWire(WholeWire, frozen=True):
    """A ResourceSlicePatch."""

    def to_value(self) -> StoredPatch:
        """As `api.patches.decode_patch` returns it, with its status."""
        reader = self.reader
        metadata, status = reader.child_or_empty("metadata"), reader.child_or_empty("status")
        return StoredPatch(
            decode_patch(reader),
            metadata.integer("generation") or 0,
            PatchStatus(
                status.integer("observedGeneration") or 0,
                status.integer("selectedDevices") or 0,
                status.integer("taintedDevices") or 0,
                status.integer("rules") or 0,
                decode_conditions(reader),
                status.integer("patchedDevices") or 0,
            ),
        )


class OwnedRuleWire(WholeWire, frozen=True):
    """A DeviceTaintRule of any version, with what says to which patch or rule it belongs."""

    def to_value(self) -> StoredRule:
        """As `api.rules.decode_rule` returns it, with its labels and its owner."""
        reader = self.reader
        metadata = reader.child_or_empty("metadata")
        labels = {name: value for name, value in metadata.map("labels").items() if isinstance(value, str)}
        controllers = [each for each in metadata.each("ownerReferences") if each.boolean("controller")]
        owners = [RuleOwner(each.text("kind"), each.text("name"), each.text("uid")) for each in controllers]
        return StoredRule(decode_rule(reader), own_labels(labels), owners[0] if owners else None)


class KnownRules:
    """Where rules are written, once it is known which there are.

    A server that serves them again has those from before: to write them as if they were new would set their times.
    """

    def __init__(self, collection: ServedCollection, rules: Reflector[StoredRule]) -> None:
        self.resource: Final = collection.resource
        self._collection = collection
        self._rules = rules

    async def path(self) -> str:
        """As `ServedCollection.path`."""
        path = await self._collection.path()
        if self._rules.unserved:
            raise NotFound(f"{self.resource} were not served, and have not been read since", code=404)
        return path

    def forget(self) -> None:
        """As `ServedCollection.forget`."""
        self._collection.forget()


class PatchCache:
    """Four watches. Where rules or patches are not served there are none, until they are."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        random: Callable[[], float],
        metrics: Metrics | None = None,
        settings: InventorySettings = InventorySettings(),  # noqa: B008 -- frozen
    ) -> None:
        """`random` returns numbers in [0, 1)."""
        self._stale_seconds = settings.stale_seconds
        common = settings.reflector

        def follow(collection: Any, wire: Any, **options: Any) -> Reflector[Any]:
            options = {"settings": common, **options}
            return Reflector(cluster, collection, wire, random=random, metrics=metrics, **options)

        small = replace(common, page_size=settings.slice_page_size)
        self.rule_collection = ServedCollection(cluster, GROUP, RULE_VERSIONS, "devicetaintrules")
        self.slice_collection = ServedCollection(cluster, GROUP, SERVED_VERSIONS, "resourceslices")
        self.slices: Reflector[ResourceSlice] = follow(self.slice_collection, WholeSliceWire, settings=small)
        self.classes: Reflector[StoredClass] = follow(
            ServedCollection(cluster, GROUP, SERVED_VERSIONS, "deviceclasses"), DeviceClassWire
        )
        self.patches: Reflector[StoredPatch] = follow(
            ServedCollection(cluster, OWN_GROUP, (PATCH_VERSION,), PATCHES), PatchWire, optional=True
        )
        self.rules: Reflector[StoredRule] = follow(self.rule_collection, OwnedRuleWire, optional=True)
        self.known_rules = KnownRules(self.rule_collection, self.rules)
        self._all: tuple[Reflector[Any], ...] = (self.slices, self.classes, self.patches, self.rules)

    @property
    def patches_served(self) -> bool:
        """Whether the server has the kind, so that a patch that is not known is gone."""
        return self.patches.synced.is_set() and not self.patches.unserved

    @property
    def problem(self) -> str | None:
        """Why what is known is not current, or None. Rules and patches that are not served are not waited for.

        Slices and classes are: without them rules would be deleted, for which they are there on another API server.
        """
        optional = (self.patches, self.rules)
        waited = [each for each in self._all if each.unread or not (each.unserved and each in optional)]
        return "; ".join(filter(None, [each.problem(self._stale_seconds) for each in waited])) or None

    async def synced(self) -> None:
        """Returns once each was read in full, or found not to be served; waits for ever if they never are."""
        for each in self._all:
            await each.synced.wait()

    async def run(self) -> NoReturn:
        """Follow all of them until it is cancelled."""
        await together(*[each.run() for each in self._all])


class BarePatchWire(WholeWire, frozen=True):
    """A ResourceSlicePatch, whole: there are few, and a filter with unknown fields must be recognized as one."""

    def to_value(self) -> ResourceSlicePatch:
        """As `api.patches.decode_patch` returns it."""
        return decode_patch(self.reader)


class PatchesInForce:
    """A watch of patches, beside the one of device classes that `names` has.

    Where the kind is not served there are no patches, and discovery is repeated every few seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        names: ClusterCache,
        *,
        random: Callable[[], float],
        metrics: Metrics | None = None,
        settings: InventorySettings = InventorySettings(),  # noqa: B008 -- frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`random` returns numbers in [0, 1), `clock` seconds that only go forward."""
        self._names = names
        self._memo = FilterMemo()
        self._stale_seconds = settings.stale_seconds
        self.reflector = Reflector(
            cluster,
            ServedCollection(cluster, OWN_GROUP, (PATCH_VERSION,), PATCHES),
            BarePatchWire,
            random=random,
            optional=True,
            settings=settings.reflector,
            metrics=metrics,
            clock=clock,
        )
        self._for_slices: tuple[object, SlicePatches] | None = None
        self._era = object()
        """Another one after each change."""
        self.reflector.subscribe(self._changed)
        self._classes = names.class_reflector
        self._classes.subscribe(self._changed)

    def known(self) -> KnownPatches:
        """The patches and classes, or why they are not known. Cheap enough for each review."""
        unknown = self._doubt()
        return KnownPatches(self.reflector.items, self._names.selectors, unknown, self._memo)

    def for_slices(self) -> SlicePatches:
        """Those that change slices; not `known` while `known` says why. Cheap as well, and for any thread."""
        if self._doubt():
            return SlicePatches(known=False)
        known, era = self._for_slices, self._era
        if known is None or known[0] is not era:
            patches, classes = tuple(self.reflector.items.values()), dict(self._names.selectors)
            known = self._for_slices = era, SlicePatches.of(patches, classes)
        return known[1]

    @property
    def problem(self) -> str | None:
        """Why patches are not current, with the server's error, or None."""
        return self.reflector.problem(self._stale_seconds) or self._classes.problem(self._stale_seconds) or None

    async def run(self, sight: Callable[[], Sight]) -> NoReturn:
        """Follow them, and go on with filters that took a review too long, until it is cancelled."""
        await together(self.reflector.run(), self._match(sight))

    async def _match(self, sight: Callable[[], Sight]) -> NoReturn:
        timeslice = TimeSlice(REVIEW_SECONDS)
        while True:
            inventory = sight().inventory
            if inventory is not None and self._memo.step(inventory.pools):
                await timeslice.pause()
            else:
                await asyncio.sleep(_IDLE_SECONDS)

    def _changed(self, _old: object, _new: object) -> None:
        self._era = object()

    def _doubt(self) -> str:
        return self.reflector.doubt(self._stale_seconds) or self._classes.doubt(self._stale_seconds)


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
            ServedCollection(cluster, OWN_GROUP, (PATCH_VERSION,), PATCHES),
            BarePatchWire,
            random=random,
            optional=True,
            settings=replace(settings.reflector, absent_most_seconds=settings.pod_groups_seconds),
        )
        self.reflector.subscribe(on_change)

    def patches(self) -> Mapping[str, ResourceSlicePatch]:
        """Those that are known, by name."""
        return self.reflector.items

    @property
    def problem(self) -> str | None:
        """Why patches are not known, with the server's error, or None."""
        return self.reflector.problem(inf) or None

    async def looked(self) -> None:
        """Returns once patches were read, or found not to be served; or after some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_seconds):
                await self.reflector.synced.wait()
