"""`evict`: empties tainted devices. The composition root of the worker: everything is built here, and only here."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Final

from webhook import __version__, runtime
from webhook.admission.confirmation import Numbers, confirms, read_text
from webhook.admission.recent_impact import totals
from webhook.api.meta import GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.api.names import WORKER
from webhook.api.patches import ResourceSlicePatch
from webhook.api.pods import Pod
from webhook.api.rules import CONFIRM_IMPACT, DeviceTaintRule
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.cache.inventory import ClaimsHorizon, InventoryCache
from webhook.cluster.cache.known_patches import PatchWatch
from webhook.cluster.cache.names import NamespaceCache
from webhook.cluster.cache.pods import DisruptionBudgetCache
from webhook.cluster.client.errors import Unavailable
from webhook.cluster.client.rest import Cluster, clients_of_leader
from webhook.cluster.events import EventWriter
from webhook.cluster.eviction_writer import EvictionWriter
from webhook.cluster.in_tree_probe import InTreeWrites, find_in_tree
from webhook.cluster.leader import LeaderSettings, Leadership, LeadershipLost
from webhook.cluster.settings import InventorySettings
from webhook.config.evict import EvictSettings, parse_evict
from webhook.daemons.periodic_audit import AuditSources, PeriodicAudit, periodic_audit
from webhook.daemons.policy_loader import PolicyLoader
from webhook.daemons.process import USAGE, lease_stages, policy_faults_of, read_settings, run_stages
from webhook.daemons.wiring import cluster_credentials, policy_stages, probe_stages, read_policy
from webhook.eviction.ceilings import NOT_CONFIRMED, Confirmed, ceiling_of
from webhook.eviction.controller import Controller
from webhook.eviction.dependencies import Dependencies
from webhook.eviction.expiry import StaleReporter
from webhook.eviction.loop_monitor import LoopMonitor
from webhook.eviction.modes import (
    IN_TREE_ANNOTATION,
    LAST_POLICY_ANNOTATION,
    MODE_ANNOTATION,
    POLICY_ANNOTATION,
    VERSION_ANNOTATION,
    InTree,
    Mode,
    advice,
    refusal,
)
from webhook.eviction.ports import Ceiling
from webhook.eviction.profiles import Profile, Profiles, classes_of
from webhook.flowcontrol.backoff import Backoff
from webhook.flowcontrol.clock import Clock
from webhook.flowcontrol.throttle import Throttle
from webhook.policy.decide import BUILTIN_JUDGE
from webhook.policy.impact_limits import protected_among
from webhook.policy.model import InTreeEvictor, Policy
from webhook.policy.store import PolicyState, PolicyStore
from webhook.runtime import Stage, Stages
from webhook.server.probes import Checks
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.workers import AuditMetrics, EvictionMetrics

log = logging.getLogger(__name__)
_TOTALS_SECONDS: Final = 60.0
_IN_TREE_RETRY_SECONDS: Final = 15.0
_NO_PATCH: Final = "the patch is not known"
_FOR_ANOTHER: Final = "it was printed for another object, or for this one before it was changed"


class EvictionPolicy:
    """Follows the policy store; profiles are compiled once for each policy."""

    def __init__(self, policies: PolicyStore, on_change: Callable[[], None]) -> None:
        """`on_change` is called after another policy has become the active one."""
        self._policies = policies
        self._on_change = on_change
        self._logged = ""
        """The problem that the log names; empty if there is none."""
        self.usable = asyncio.Event()
        """Set while a policy is loaded, so that evictions may run."""
        self.profiles = Profiles(policies.active.policy.eviction)
        """The profiles of the policy in use."""
        policies.subscribe(self._changed)

    @property
    def policy(self) -> Policy:
        """The policy in use."""
        return self._policies.active.policy

    @property
    def problem(self) -> str | None:
        """Why nothing is evicted, or None.

        The built-in policy has no limits of its own, so it applies only where a cluster has no policy at all.
        """
        state = self._policies.state
        if not state.loaded:
            return "the policy has not been read yet"
        if state.failure and state.active is BUILTIN_JUDGE:
            return f"no policy could be loaded, so nothing is evicted: {state.failure}"
        return None

    async def acquired(self) -> None:
        """Returns once a policy is loaded, so that evictions may run."""
        await self.usable.wait()

    def _changed(self, old: PolicyState, new: PolicyState) -> None:
        problem = self.problem or ""
        if problem:
            self.usable.clear()
            if problem != self._logged:
                log.error("waiting for a policy that can be loaded", extra={"error": problem})
        else:
            self.usable.set()
            if self._logged:
                log.info("policy loaded: evictions may resume", extra={"policyHash": new.active.policy.hash})
        self._logged = problem
        if new.active is not old.active:
            self.profiles = Profiles(new.active.policy.eviction)
            self._on_change()


class Unsafe(Exception):  # noqa: N818 -- it says what it would be
    """The worker must not run here; the text says why, and what to do."""


def run(arguments: Sequence[str]) -> int:
    """Runs until a signal. Returns 2 for unusable flags and files, no cluster, and modes that must not run here."""
    settings = read_settings("evict", arguments, parse_evict, policy_faults_of)
    if settings is None:
        return USAGE
    return run_stages(lambda: Worker(settings).stages(), log, usage=(Unsafe,), known=(LeadershipLost,))


class Worker:
    """All parts of one process."""

    def __init__(self, settings: EvictSettings) -> None:
        self._settings = settings
        self._clock = Clock()
        self._metrics = Metrics(version=__version__, resources=(), serves=False)
        self._eviction_metrics = EvictionMetrics(
            self._metrics.registry, in_tree_names=settings.worker.mode is Mode.REPLACEMENT
        )
        self._eviction_metrics.set_mode(settings.worker.mode.value)
        credentials = cluster_credentials(settings.cluster)
        throttle = Throttle(settings.requests_per_second, settings.request_burst)
        self._cluster, self._acting = clients_of_leader(credentials, throttle, self._leads)
        self._lease_cluster = Cluster(credentials, user_agent=WORKER)
        self._leader: Leadership | None = None
        self._loop_monitor = LoopMonitor(self._clock.seconds)
        chance = random.random  # noqa: TID251 -- the shell's
        self._rules = ServedCollection(self._cluster, GROUP, RULE_VERSIONS, "devicetaintrules")
        self._cache = InventoryCache(
            self._cluster,
            random=chance,
            metrics=self._metrics,
            settings=InventorySettings(stale_seconds=0.0),
            pods=True,
        )
        self._cache.on_servers = self._replan_all
        self._claims_horizon = self._horizon()
        self._budgets = DisruptionBudgetCache(self._cluster, self._on_budgets, self._on_budget, random=chance)
        self._namespaces = NamespaceCache(self._cluster, random=chance, on_change=self._on_namespace)
        self._in_tree_writes = InTreeWrites(self._cluster, self._rules, random=chance)
        self._patches = PatchWatch(self._cluster, self._on_patch, random=chance)
        self._policies = PolicyStore()
        self._policy_loader = PolicyLoader(self._policies, self._metrics.policy, read_policy)
        self._policy = EvictionPolicy(self._policies, on_change=self._replan_all)
        self._audit = self._periodic_audit()
        self._identity = f"{os.environ.get('HOSTNAME', 'unknown')}_{secrets.token_hex(4)}"
        self._checks, self._in_tree, self._totals_at = Checks(), InTree.UNKNOWN, 0.0
        self._in_tree_problem: str | None = None
        self._on_lease = {MODE_ANNOTATION: settings.worker.mode.value, VERSION_ANNOTATION: __version__}
        """The annotations of the Lease, complete before it is taken."""
        if settings.policy_config_map is None:
            self._on_lease |= {POLICY_ANNOTATION: "", LAST_POLICY_ANNOTATION: ""}  # an earlier process may have had one
        else:
            self._policies.subscribe(self._annotate_policy)
        self._known_totals: Numbers | None = None
        self._controller: Controller | None = None
        self._stale_reporter: StaleReporter | None = None
        self._controller_ready = asyncio.Event()
        """Set once the controller and the stale reporter are built."""

    def stages(self) -> Stages:
        """All stages in start order; only the leader starts those after the lease."""
        self._checks.add("policy", lambda: self._policy_loader.problem or self._policy.problem)
        self._checks.add("inventory", lambda: self._cache.problem)
        self._checks.add("in-tree", lambda: self._in_tree_problem)
        self._checks.inform("patches", lambda: self._patches.problem)
        self._metrics.watch_readiness(self._checks.problems)
        probes = probe_stages(self._settings, self._settings.listener, self._metrics, self._checks)
        stages = [runtime.lag_stage(self._metrics.event_loop_lag.observe), *probes]
        clusters = (self._cluster, self._acting)
        stages += [Stage(name="cluster", start=cluster.open, stop=cluster.close) for cluster in clusters]
        stages += policy_stages(self._cluster, self._settings, self._policy_loader, self._metrics)
        stages.append(Stage(name="profiles", start=self._policy.acquired))
        caches = (("namespaces", self._namespaces), ("budgets", self._budgets), ("rules", self._in_tree_writes))
        stages += [Stage(name=name, work=cache.reflector.run) for name, cache in caches]
        stages.append(Stage(name="patches", work=self._patches.reflector.run, start=self._patches.looked))
        stages.append(Stage(name="pulse", work=self._loop_monitor.run))
        stages.append(Stage(name="inventory", work=self._cache.run, start=self._synced))
        # Before the lease, so that a standby has its caches and begins at once; stopped after it, so Events come last.
        stages.append(Stage(name="in-tree", work=self._watch_in_tree, start=self._find_in_tree))
        stages.append(Stage(name="events", stop=self._flush_events))
        lease = self._settings.lease
        if lease is not None:
            self._leader = Leadership(
                self._lease_cluster,
                LeaderSettings(namespace=lease.namespace, name=lease.name, annotations=self._on_lease),
                identity=self._identity,
                now=self._clock.now,
                random=random.random,  # noqa: TID251 -- the shell's
            )
            stages += lease_stages(self._lease_cluster, self._leader)
        stages.append(Stage(name="worker", work=self._work, start=self._begin, stop=self._end))
        return Stages(stages)

    # --- the worker ------------------------------------------------------------------------------

    async def _synced(self) -> None:
        """Returns once everything that plans depend on is known, except budgets: without them the worker is gentler."""
        await self._cache.synced()
        await self._namespaces.reflector.synced.wait()
        await self._in_tree_writes.reflector.synced.wait()
        log.info("ready", extra={"version": __version__, "mode": self._settings.worker.mode.value})

    async def _find_in_tree(self) -> None:
        """Detects the in-tree controller. Raises Unsafe if the mode must not run beside it."""
        in_tree = self._in_tree = await self._detect_in_tree()
        mode = self._settings.worker.mode
        if mode.acts and self._settings.worker.in_tree is None:  # else it was not found, but said
            self._on_lease[IN_TREE_ANNOTATION] = in_tree.value
        unsafe_because = refusal(mode, in_tree)
        if unsafe_because is not None:
            raise Unsafe(unsafe_because)
        hint = advice(mode, in_tree)
        if hint is not None:
            log.warning("eviction mode does not fit this cluster", extra={"mode": mode.value, "error": hint})
        policy = self._policy.policy
        if mode is Mode.REPLACEMENT and policy.in_tree_evictor is not InTreeEvictor.ABSENT:
            log.warning(
                "policy says inTreeEvictor: active, so admission counts on the in-tree controller",
                extra={"mode": mode.value},
            )

    async def _watch_in_tree(self) -> None:
        """Ends the process in mode replacement if the in-tree controller is running after all."""
        await self._in_tree_writes.seen.wait()
        unsafe_because = refusal(self._settings.worker.mode, InTree.ACTIVE)
        if unsafe_because is not None:
            raise Unsafe(unsafe_because)
        await asyncio.Event().wait()

    async def _begin(self) -> None:
        deps, in_tree, mode = self._dependencies(), self._in_tree, self._settings.worker.mode
        controller = self._controller = Controller(deps, in_tree)
        self._stale_reporter = StaleReporter(deps)
        self._cache.subscribe(controller.observe)
        controller.watch_metrics()
        self._eviction_metrics.set_leader(leads=True)
        runtime.settle_memory()
        controller.start()
        self._controller_ready.set()
        log.info("working", extra={"mode": mode.value, "inTree": in_tree.value})

    async def _work(self) -> None:
        # The work of a stage begins before its start.
        await self._controller_ready.wait()
        assert self._controller is not None
        assert self._stale_reporter is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(self._stale_reporter.run())
            group.create_task(self._claims_horizon.run())
            if self._audit is not None:
                group.create_task(self._audit.run())

    async def _end(self) -> None:
        if self._controller is not None:
            await self._controller.stop()
        self._eviction_metrics.set_leader(leads=False)

    async def _flush_events(self) -> None:
        if self._controller is not None:
            await self._controller.flush_events()

    async def _detect_in_tree(self) -> InTree:
        """Whether the in-tree controller runs. Mode observe creates no canary; it believes the policy.

        While the API server cannot accept the canary, as when a webhook does not answer, mode delegated starts without
        knowing, and mode replacement, which must know, tries again.
        """
        worker = self._settings.worker
        if worker.in_tree is not None:
            return worker.in_tree
        if not worker.mode.acts:
            absent = self._policy.policy.in_tree_evictor is InTreeEvictor.ABSENT
            return InTree.ABSENT if absent else InTree.ACTIVE
        backoff = Backoff(1.0, _IN_TREE_RETRY_SECONDS, random.random)  # noqa: TID251 -- the shell's
        while True:
            try:
                found = await find_in_tree(self._cluster, self._rules, secrets.token_hex(4))
            except Unavailable as error:
                log.warning("canary rule not created", extra={"mode": worker.mode.value, "error": str(error)})
                if worker.mode is Mode.DELEGATED:
                    return InTree.UNKNOWN
                self._in_tree_problem = f"cannot tell whether the in-tree controller runs: {error}"
                await asyncio.sleep(backoff.next_seconds())
            else:
                self._in_tree_problem = None
                return found

    def _dependencies(self) -> Dependencies:
        events = EventWriter(self._cluster, instance=self._identity, now=self._clock.now)
        return Dependencies(
            inventory=self._cache.inventory,
            writer=EvictionWriter(self._acting, self._rules, events, self._clock.now),
            budgets=self._budgets,
            namespaces=self._namespaces,
            clock=self._clock,
            metrics=self._eviction_metrics,
            profiles=lambda: self._policy.profiles,
            profile_of=self._profile_of,
            random=random.random,  # noqa: TID251 -- the shell's
            leads=self._leads,
            trusted=self._trusted,
            claims_known=self._claims_horizon.reached,
            ceiling_of=self._ceiling_of,
            patch_ceiling_of=self._patch_ceiling_of,
            patches=self._patches.patches,
            breaker=lambda: self._policy.policy.breaker,
            pause=lambda: self._policy.policy.pause,
            settings=self._settings.worker,
        )

    def _horizon(self) -> ClaimsHorizon:
        return ClaimsHorizon(
            self._cluster,
            ServedCollection(self._cluster, GROUP, SERVED_VERSIONS, "resourceclaims"),
            lambda: self._cache.claims_version,
            clock=self._clock.seconds,
            random=random.random,  # noqa: TID251 -- the shell's
        )

    def _periodic_audit(self) -> PeriodicAudit | None:
        interval = self._settings.audit_interval
        if interval is None:
            return None
        metrics = AuditMetrics(self._metrics.registry)
        metrics.set_interval(interval.total_seconds())
        sources = AuditSources(self._policies, self._namespaces.facts_of, self._clock.now)
        return periodic_audit(self._acting, sources, metrics, interval.total_seconds())

    def _leads(self) -> bool:
        """Whether this process may act: it has the lease, or needs none."""
        return self._leader is None or self._leader.holds

    def _trusted(self) -> bool:
        """Whether the caches are up to date, and this process still leads."""
        return (
            self._leads()
            and self._policy.problem is None
            and self._loop_monitor.steady
            and self._cache.sight().inventory is not None
            and not self._namespaces.reflector.lost_seconds  # a hold or other labels may have been missed
        )

    def _totals(self) -> Numbers:
        """The totals for limits given as shares, at most a minute old: counting is slow, and they hardly change."""
        now = self._clock.seconds()
        if self._known_totals is None or now - self._totals_at > _TOTALS_SECONDS:
            self._known_totals, self._totals_at = totals(self._cache.inventory), now
        return self._known_totals

    def _ceiling_of(self, rule: DeviceTaintRule) -> Ceiling | None:
        return self._ceiling_by(rule, self._confirmed_by(rule))

    def _patch_ceiling_of(self, rule: DeviceTaintRule, patch: ResourceSlicePatch | None) -> Ceiling | None:
        """The ceiling of a patch by its confirmation, or by the limits for the taint of one of its rules."""
        if patch is not None:
            return self._ceiling_by(rule, self._confirmed_by(patch))
        problem = self._patches.problem
        unknown = f"{_NO_PATCH}: {problem}" if problem else _NO_PATCH
        return self._ceiling_by(rule, Confirmed(problem=unknown))

    def _confirmed_by(self, judged: DeviceTaintRule | ResourceSlicePatch) -> Confirmed:
        """What the text on a rule or patch allows; its writer is believed, as admission has judged it."""
        text = judged.meta.annotations.get(CONFIRM_IMPACT, "")
        said = read_text(text)
        if said is None:
            return Confirmed(problem="it cannot be read") if text else NOT_CONFIRMED
        if not confirms(said.of, judged):
            return Confirmed(problem=_FOR_ANOTHER)
        most = said.hit.numbers.grown(self._policy.policy.impact.tolerance_percent)
        return Confirmed(said.hit.done + most.pods, most.namespaces)

    def _ceiling_by(self, rule: DeviceTaintRule, confirmed: Confirmed) -> Ceiling | None:
        return ceiling_of(rule, self._policy.policy, self._totals, confirmed, self._protected)

    def _protected(self, namespaces: Collection[str]) -> frozenset[str]:
        """The namespaces that the policy protects. One that is not known counts as protected."""
        return protected_among(self._policy.policy.impact.protected_namespaces, namespaces, self._namespaces.facts_of)

    def _profile_of(self, pod: Pod) -> Profile:
        profiles = self._policy.profiles
        classes = classes_of(self._cache.inventory, pod) if profiles.ask_for_classes else ()
        return profiles.of(pod, self._namespaces.facts_of(pod.meta.namespace), classes)

    # --- changes ---------------------------------------------------------------------------------

    def _replan_all(self) -> None:
        if self._controller is not None:
            self._controller.replan_all()

    def _annotate_policy(self, _: PolicyState, new: PolicyState) -> None:
        """With the built-in policy, the Lease keeps the annotation about the last other one."""
        used = self._on_lease[POLICY_ANNOTATION] = new.active.policy.hash
        self._on_lease.pop(LAST_POLICY_ANNOTATION, None)
        if used != BUILTIN_JUDGE.policy.hash:
            self._on_lease[LAST_POLICY_ANNOTATION] = used

    def _on_patch(self, old: ResourceSlicePatch | None, new: ResourceSlicePatch | None) -> None:
        if self._controller is not None:
            self._controller.observe_patch(old, new)

    def _on_namespace(self, namespace: str) -> None:
        if self._controller is not None:
            self._controller.requeue_waiting(namespace)

    def _on_budgets(self, namespace: str, freeing: str) -> None:
        if self._controller is not None:
            self._controller.observe_budgets(namespace, freeing)

    def _on_budget(self, namespace: str, name: str) -> None:
        if self._controller is not None:
            self._controller.observe_budget(namespace, name)
