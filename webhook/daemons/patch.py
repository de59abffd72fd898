"""`patch`: the controller of ResourceSlicePatches. Everything of this process is built here, and only here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from webhook import __version__, runtime
from webhook.api.names import PATCHER
from webhook.cluster.cache.decoders import StoredClass
from webhook.cluster.cache.known_patches import PatchCache
from webhook.cluster.events import EventWriter
from webhook.cluster.patch_writer import PatchWriter, SliceToucher
from webhook.config.workers import PatchSettings, parse_patch
from webhook.daemons.patch_controller import ControllerParts, PatchController
from webhook.daemons.process import USAGE, Leading, chance, read_settings, run_stages
from webhook.daemons.reaction_keeper import ReactionKeeper, ReactionParts
from webhook.daemons.slice_keeper import KeeperParts, SliceKeeper
from webhook.patches.reasons import FirstSights
from webhook.patches.slice_patches import AppliedAttributes
from webhook.patches.status import REASONS
from webhook.patches.stored import StoredPatch, StoredRule
from webhook.runtime import Stage, Stages
from webhook.telemetry.workers import PatchMetrics, ReactionMetrics

log = logging.getLogger(__name__)
T = TypeVar("T", "StoredClass", "StoredPatch", "StoredRule")


def run(arguments: Sequence[str]) -> int:
    """Run until a signal; return 2 for unusable flags and files, and no cluster."""
    settings = read_settings("patch", arguments, parse_patch)
    return USAGE if settings is None else run_stages(lambda: Patcher(settings).stages(), log)


def _by_name(observe: Callable[[str, T | None], None]) -> Callable[[T | None, T | None], None]:
    """Return what a reflector calls with the old and the new object, for one that takes the name and the new."""

    def on_change(old: T | None, new: T | None) -> None:
        either = new or old
        assert either is not None
        observe(either.meta.name, new)

    return on_change


class Patcher(Leading):
    """All parts of one process."""

    _settings: PatchSettings

    def __init__(self, settings: PatchSettings) -> None:
        super().__init__(settings, PATCHER, without_policy="reactions wait")
        self._patch_metrics = PatchMetrics(self._metrics.registry, REASONS)
        cache = self._cache = PatchCache(self._cluster, random=chance, metrics=self._metrics)
        events = EventWriter(self._cluster, instance=self._identity, now=self._clock.now)
        writer = PatchWriter(self._acting, cache.known_rules, events, settings.policy_config_map)
        self._keeper = self._new_keeper() if settings.slice_attributes else None
        self._controller = PatchController(
            ControllerParts(
                writer=writer,
                metrics=self._patch_metrics,
                ceiling=settings.rules_per_patch,
                leads=self._leads,
                current=lambda: cache.problem is None,
                patches_served=lambda: cache.patches_served,
                rules_version=lambda: cache.rules.version,
                now=self._clock.now,
                seconds=self._clock.seconds,
                random=chance,
                applied=(lambda _: AppliedAttributes()) if self._keeper is None else self._keeper.applied,
            )
        )
        self._subscribe(self._controller)
        cache.rules.subscribe(_by_name(self._controller.observe_rule))
        self._reactions = self._new_reactions(writer)
        self._policies.subscribe(lambda _old, _new: self._reactions.observe_policy())
        self._loops = [self._controller.run, self._reactions.run]
        if self._keeper is not None:
            keeper = self._keeper
            self._patch_metrics.watch_slices(lambda: keeper.pending)
            self._subscribe(keeper)
            self._loops.append(keeper.run)

    def stages(self) -> Stages:
        """Return all stages in start order; only the leader starts the last one."""
        self._checks.add("caches", lambda: self._cache.problem)
        self._checks.add("policy", self._check_policy)
        return Stages(
            [
                *self._front(self._settings.listener),
                # Patches do not wait for the policy: only reactions need it.
                *(Stage(name=each.name, work=each.work) for each in self._policy_stages()),
                # Before the lease, so that a standby has its caches and begins at once.
                Stage(name="caches", work=self._cache.run, start=self._synced),
                *self._lease_stages({}),
                Stage(name="controller", work=self._work, start=self._begin, stop=self._end),
            ]
        )

    async def _synced(self) -> None:
        await self._cache.synced()
        log.info("ready", extra={"version": __version__})

    async def _begin(self) -> None:
        self._patch_metrics.patch_leader.set(True)
        runtime.settle_memory()
        self._begun.set()
        log.info("working", extra={"rulesPerPatch": self._settings.rules_per_patch})

    async def _end(self) -> None:
        self._patch_metrics.patch_leader.set(False)

    def _new_reactions(self, writer: PatchWriter) -> ReactionKeeper:
        """Build what hears of slices and rules after the controller."""
        parts = ReactionParts(
            writer=writer,
            metrics=ReactionMetrics(self._metrics.registry),
            writes=self._patch_metrics,
            reactions=lambda: None if self._policy_problem else self._policy.reactions,
            leads=self._leads,
            current=lambda: self._cache.problem is None,
            now=self._clock.now,
            seconds=self._clock.seconds,
            random=chance,
        )
        keeper = ReactionKeeper(parts, self._controller, FirstSights(parts.seconds))
        self._cache.slices.subscribe(lambda _old, _new: keeper.wake())
        self._cache.rules.subscribe(keeper.observe_rule)
        return keeper

    def _subscribe(self, to: PatchController | SliceKeeper) -> None:
        """Let one of the two know of changes of slices, classes and patches."""

        def on_class(name: str, new: StoredClass | None) -> None:
            to.observe_class(name, new.selectors if new else None)

        self._cache.slices.subscribe(to.observe_slice)
        self._cache.classes.subscribe(_by_name(on_class))
        self._cache.patches.subscribe(_by_name(to.observe_patch))

    # --- attributes and capacity in slices -------------------------------------------------------

    def _new_keeper(self) -> SliceKeeper:
        cache = self._cache
        return SliceKeeper(
            KeeperParts(
                toucher=SliceToucher(self._acting, cache.slice_collection, random=chance, clock=self._clock.seconds),
                # A server that is starting may not have the kind yet: its patches are not gone.
                current=lambda: cache.problem is None and cache.patches_served and self._leads(),
                report=lambda patches: self._controller.look_at_patches(patches),  # noqa: PLW0108 -- it is built later
            )
        )
