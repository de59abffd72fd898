"""`patch`: the controller of ResourceSlicePatches. Everything of this process is built here, and only here."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar

from webhook import __version__, runtime
from webhook.api.names import PATCHER
from webhook.cluster.cache.known_patches import PatchCache, StoredClass
from webhook.cluster.client.rest import Cluster, clients_of_leader
from webhook.cluster.events import EventWriter
from webhook.cluster.leader import LeaderSettings, Leadership, LeadershipLost
from webhook.cluster.patch_writer import PatchWriter, ReactionWriter, SliceToucher
from webhook.config.patch import PatchSettings, parse_patch
from webhook.daemons.patch_controller import ControllerParts, PatchController
from webhook.daemons.policy_loader import PolicyLoader
from webhook.daemons.process import USAGE, lease_stages, policy_faults_of, read_settings, run_stages
from webhook.daemons.reaction_keeper import ReactionKeeper, ReactionParts, ReactionPolicy
from webhook.daemons.slice_keeper import KeeperParts, SliceKeeper
from webhook.daemons.wiring import cluster_credentials, policy_stages, probe_stages, read_policy
from webhook.flowcontrol.clock import Clock
from webhook.flowcontrol.throttle import Throttle
from webhook.patches.reasons import FirstSights
from webhook.patches.status import REASONS, AppliedAttributes
from webhook.patches.stored import StoredPatch, StoredRule
from webhook.policy.store import PolicyStore
from webhook.runtime import Stage, Stages
from webhook.server.probes import Checks
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.workers import PatchMetrics, ReactionMetrics

log = logging.getLogger(__name__)
T = TypeVar("T", "StoredClass", "StoredPatch", "StoredRule")


def run(arguments: Sequence[str]) -> int:
    """Runs until a signal. Returns 2 for unusable flags and files, and no cluster."""
    settings = read_settings("patch", arguments, parse_patch, policy_faults_of)
    if settings is None:
        return USAGE
    return run_stages(lambda: Patcher(settings).stages(), log, known=(LeadershipLost,))


def _by_name(observe: Callable[[str, T | None], None]) -> Callable[[T | None, T | None], None]:
    """What a reflector calls with the old and the new object, for one that is called with the name and the new."""

    def on_change(old: T | None, new: T | None) -> None:
        either = new or old
        assert either is not None
        observe(either.meta.name, new)

    return on_change


class Patcher:
    """All parts of one process."""

    def __init__(self, settings: PatchSettings) -> None:
        self._settings = settings
        self._clock = Clock()
        self._metrics = Metrics(version=__version__, resources=(), serves=False)
        self._patch_metrics = PatchMetrics(self._metrics.registry, REASONS)
        credentials = cluster_credentials(settings.cluster)
        throttle = Throttle(settings.requests_per_second, settings.request_burst)
        self._cluster, self._acting = clients_of_leader(credentials, throttle, self._leads, user_agent=PATCHER)
        self._lease_cluster = Cluster(credentials, user_agent=PATCHER)
        self._leader: Leadership | None = None
        chance = random.random  # noqa: TID251 -- the shell's
        self._cache = PatchCache(self._cluster, random=chance, metrics=self._metrics)
        self._identity = f"{os.environ.get('HOSTNAME', 'unknown')}_{secrets.token_hex(4)}"
        events = EventWriter(self._cluster, instance=self._identity, now=self._clock.now)
        writer = PatchWriter(self._acting, self._cache.known_rules, events)
        self._keeper = self._new_keeper() if settings.slice_attributes else None
        self._controller = PatchController(
            ControllerParts(
                writer=writer,
                metrics=self._patch_metrics,
                ceiling=settings.rules_per_patch,
                leads=self._leads,
                current=lambda: self._cache.problem is None,
                patches_served=lambda: self._cache.patches_served,
                rules_version=lambda: self._cache.rules.version,
                now=self._clock.now,
                seconds=self._clock.seconds,
                random=chance,
                applied=(lambda _: AppliedAttributes()) if self._keeper is None else self._keeper.applied,
            )
        )
        self._subscribe(self._controller)
        self._cache.rules.subscribe(_by_name(self._controller.observe_rule))
        policies = PolicyStore()
        self._policy_loader = PolicyLoader(policies, self._metrics.policy, read_policy)
        self._reactions = self._new_reactions(ReactionWriter(writer, events, settings.policy_config_map), chance)
        self._policy = ReactionPolicy(policies, self._reactions.observe_policy)
        if self._keeper is not None:
            keeper = self._keeper
            self._patch_metrics.watch_slices(lambda: keeper.pending)
            self._subscribe(keeper)
        self._checks = Checks()
        self._started = asyncio.Event()

    def stages(self) -> Stages:
        """All stages in start order; only the leader starts the last one."""
        self._checks.add("caches", lambda: self._cache.problem)
        self._checks.add("policy", lambda: self._policy_loader.problem or self._policy.problem)
        self._metrics.watch_readiness(self._checks.problems)
        probes = probe_stages(self._settings, self._settings.listener, self._metrics, self._checks)
        stages = [runtime.lag_stage(self._metrics.event_loop_lag.observe), *probes]
        clusters = (self._cluster, self._acting)
        stages += [Stage(name="cluster", start=cluster.open, stop=cluster.close) for cluster in clusters]
        # Patches do not wait for the policy: only reactions need it.
        policy = policy_stages(self._cluster, self._settings, self._policy_loader, self._metrics)
        stages += [Stage(name=each.name, work=each.work) for each in policy]
        # Before the lease, so that a standby has its caches and begins at once.
        stages.append(Stage(name="caches", work=self._cache.run, start=self._synced))
        lease = self._settings.lease
        if lease is not None:
            self._leader = Leadership(
                self._lease_cluster,
                LeaderSettings(namespace=lease.namespace, name=lease.name),
                identity=self._identity,
                now=self._clock.now,
                random=random.random,  # noqa: TID251 -- the shell's
            )
            stages += lease_stages(self._lease_cluster, self._leader)
        stages.append(Stage(name="controller", work=self._work, start=self._begin, stop=self._end))
        return Stages(stages)

    async def _synced(self) -> None:
        await self._cache.synced()
        log.info("ready", extra={"version": __version__})

    async def _begin(self) -> None:
        self._patch_metrics.set_leader(leads=True)
        runtime.settle_memory()
        self._started.set()
        log.info("working", extra={"rulesPerPatch": self._settings.rules_per_patch})

    async def _work(self) -> None:
        # The work of a stage begins before its start.
        await self._started.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(self._reactions.run())
            if self._keeper is not None:
                group.create_task(self._keeper.run())

    async def _end(self) -> None:
        self._patch_metrics.set_leader(leads=False)

    def _leads(self) -> bool:
        """Whether this process may write: it has the lease, or needs none."""
        return self._leader is None or self._leader.holds

    def _new_reactions(self, writer: ReactionWriter, chance: Callable[[], float]) -> ReactionKeeper:
        """Hears of slices and rules after the controller."""
        parts = ReactionParts(
            writer=writer,
            metrics=ReactionMetrics(self._metrics.registry),
            writes=self._patch_metrics,
            reactions=lambda: self._policy.reactions,
            leads=self._leads,
            current=lambda: self._cache.problem is None,
            now=self._clock.now,
            seconds=self._clock.seconds,
            random=chance,
        )
        keeper = ReactionKeeper(parts, self._controller, FirstSights())
        self._cache.slices.subscribe(lambda _old, _new: keeper.wake())
        self._cache.rules.subscribe(keeper.observe_rule)
        return keeper

    def _subscribe(self, to: PatchController | SliceKeeper) -> None:
        """Lets one of the two know of changes of slices, classes and patches."""

        def on_class(name: str, new: StoredClass | None) -> None:
            to.observe_class(name, new.selectors if new else None)

        self._cache.slices.subscribe(to.observe_slice)
        self._cache.classes.subscribe(_by_name(on_class))
        self._cache.patches.subscribe(_by_name(to.observe_patch))

    # --- attributes and capacity in slices -------------------------------------------------------

    def _new_keeper(self) -> SliceKeeper:
        cache, chance = self._cache, random.random  # noqa: TID251 -- the shell's
        return SliceKeeper(
            KeeperParts(
                toucher=SliceToucher(self._acting, cache.slice_collection, random=chance, clock=self._clock.seconds),
                # A server that is starting may not have the kind yet: its patches are not gone.
                current=lambda: cache.problem is None and cache.patches_served and self._leads(),
                report=lambda patches: self._controller.look_at_patches(patches),  # noqa: PLW0108 -- it is built later
            )
        )
