"""`evict`: empties tainted devices. The composition root of the worker: everything is built here, and only here."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Concatenate, Final, ParamSpec

from webhook import __version__, runtime
from webhook.admission.confirmation import Numbers, confirms, read_text
from webhook.admission.recent_impact import totals
from webhook.api.meta import GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.api.names import WORKER
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, DeviceTaintRule
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.cache.inventory import ClaimsHorizon, InventoryCache
from webhook.cluster.cache.known_patches import PatchWatch
from webhook.cluster.cache.names import NamespaceCache
from webhook.cluster.cache.pods import DisruptionBudgetCache
from webhook.cluster.client.errors import Unavailable
from webhook.cluster.events import EventWriter
from webhook.cluster.eviction_writer import EvictionWriter
from webhook.cluster.in_tree_probe import InTreeWrites, find_in_tree
from webhook.cluster.settings import InventorySettings
from webhook.config.workers import EvictSettings, parse_evict
from webhook.daemons.periodic_audit import AuditSources, PeriodicAudit
from webhook.daemons.process import USAGE, Leading, chance, read_settings, run_stages
from webhook.eviction.ceilings import NOT_CONFIRMED, Confirmed, ceiling_of
from webhook.eviction.controller import Controller
from webhook.eviction.expiry import ForgottenReporter
from webhook.eviction.followed_pods import ProfiledPods
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
from webhook.eviction.ports import Ceiling, Dependencies
from webhook.flowcontrol.rates import Backoff
from webhook.policy.decide import BUILTIN_JUDGE, PolicyState
from webhook.policy.limits import protected_among
from webhook.policy.model import InTreeEvictor
from webhook.runtime import LoopMonitor, Stage, Stages
from webhook.telemetry.workers import AuditMetrics, EvictionMetrics

log = logging.getLogger(__name__)
P = ParamSpec("P")
_TOTALS_SECONDS: Final = 60.0
_IN_TREE_RETRY_SECONDS: Final = 15.0
_NO_PATCH: Final = "the patch is not known"
_FOR_ANOTHER: Final = "it was printed for another object, or for this one before it was changed"


class Unsafe(Exception):  # noqa: N818 -- it says what it would be
    """The worker must not run here; the text says why, and what to do."""


def run(arguments: Sequence[str]) -> int:
    """Run until a signal; return 2 for unusable flags and files, no cluster, and modes that must not run here."""
    settings = read_settings("evict", arguments, parse_evict)
    return USAGE if settings is None else run_stages(lambda: Worker(settings).stages(), log, usage=(Unsafe,))


class Worker(Leading):
    """All parts of one process."""

    _settings: EvictSettings

    def __init__(self, settings: EvictSettings) -> None:
        super().__init__(settings, WORKER, without_policy="nothing is evicted")
        mode, cluster = settings.worker.mode, self._cluster
        self._eviction_metrics = EvictionMetrics(self._metrics.registry, in_tree_names=mode is Mode.REPLACEMENT)
        self._eviction_metrics.eviction_mode.labels(mode.value).set(1)
        self._controller: Controller | None = None
        self._loop_monitor = LoopMonitor(self._clock.seconds)
        self._rules = ServedCollection(cluster, GROUP, RULE_VERSIONS, "devicetaintrules")
        self._cache = InventoryCache(
            cluster, random=chance, metrics=self._metrics, settings=InventorySettings(stale_seconds=0.0), pods=True
        )
        self._cache.on_servers = self._then(Controller.replan_all)
        self._claims_horizon = ClaimsHorizon(
            cluster,
            ServedCollection(cluster, GROUP, SERVED_VERSIONS, "resourceclaims"),
            lambda: self._cache.claims_version,
            clock=self._clock.seconds,
            random=chance,
        )
        on_budgets, on_budget = self._then(Controller.observe_budgets), self._then(Controller.observe_budget)
        self._budgets = DisruptionBudgetCache(cluster, on_budgets, on_budget, random=chance)
        on_namespace = self._then(Controller.requeue_waiting)
        self._namespaces = NamespaceCache(cluster, random=chance, on_change=on_namespace)
        self._in_tree_writes = InTreeWrites(cluster, self._rules, random=chance)
        self._patches = PatchWatch(cluster, self._then(Controller.observe_patch), random=chance)
        self._pods = ProfiledPods(self._cache.inventory, self._policy.eviction, self._namespaces.facts_of)
        self._usable = asyncio.Event()
        """Set while a policy is loaded, so that evictions may run."""
        self._logged_problem = ""
        """The problem of the policy that the log names; empty if there is none."""
        self._policies.subscribe(self._policy_changed)
        self._audit = self._new_audit()
        self._in_tree = InTree.UNKNOWN
        self._said_otherwise = asyncio.Event()
        self._in_tree_problem: str | None = None
        self._known_totals: Numbers | None = None
        self._totals_at = 0.0
        self._on_lease = {MODE_ANNOTATION: mode.value, VERSION_ANNOTATION: __version__}
        """The annotations of the Lease, complete before it is taken."""
        if settings.policy_config_map is None:
            self._on_lease |= {POLICY_ANNOTATION: "", LAST_POLICY_ANNOTATION: ""}  # an earlier process may have had one
        else:
            self._policies.subscribe(self._annotate_policy)

    def stages(self) -> Stages:
        """Return all stages in start order; only the leader starts those after the lease."""
        self._checks.add("policy", self._check_policy)
        self._checks.add("inventory", lambda: self._cache.problem)
        self._checks.add("namespaces", lambda: self._namespaces.reflector.problem(0.0) or None)
        self._checks.add("budgets", lambda: self._budgets.reflector.problem(0.0) or None)
        self._checks.add("in-tree", lambda: self._in_tree_problem)
        self._checks.inform("patches", lambda: self._patches.problem)
        caches = (("namespaces", self._namespaces), ("budgets", self._budgets), ("rules", self._in_tree_writes))
        return Stages(
            [
                *self._front(self._settings.listener),
                *self._policy_stages(),
                Stage(name="profiles", start=self._usable.wait),
                *(Stage(name=name, work=cache.reflector.run) for name, cache in caches),
                Stage(name="patches", work=self._patches.reflector.run, start=self._patches.looked),
                Stage(name="pulse", work=self._loop_monitor.run),
                Stage(name="inventory", work=self._cache.run, start=self._synced),
                # Before the lease, so that a standby has its caches and begins at once.
                Stage(name="in-tree", work=self._watch_in_tree, start=self._find_in_tree),
                # Stopped after the lease was released, so Events come last.
                Stage(name="events", stop=self._flush_events),
                *self._lease_stages(self._on_lease),
                Stage(name="worker", work=self._work, start=self._begin, stop=self._end),
            ]
        )

    # --- the worker ------------------------------------------------------------------------------

    async def _synced(self) -> None:
        """Wait until all that plans depend on is known."""
        await self._cache.synced()
        await self._namespaces.reflector.synced.wait()
        await self._budgets.reflector.synced.wait()
        await self._in_tree_writes.reflector.synced.wait()
        log.info("ready", extra={"version": __version__, "mode": self._settings.worker.mode.value})

    async def _find_in_tree(self) -> None:
        """Detect the in-tree controller. Raises Unsafe if the mode must not run beside it."""
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
        if mode is Mode.REPLACEMENT and self._policy.in_tree_evictor is not InTreeEvictor.ABSENT:
            log.warning(
                "policy says inTreeEvictor: active, so admission counts on the in-tree controller",
                extra={"mode": mode.value},
            )

    async def _watch_in_tree(self) -> None:
        """End the process in mode replacement if the in-tree controller is running after all.

        In mode observe, end it once the policy says otherwise: all plans and statuses go by what it said at the start.
        """
        if not self._settings.worker.mode.acts:
            await self._said_otherwise.wait()
            raise Unsafe("inTreeEvictor in the policy has changed: mode observe has to start again")
        await self._in_tree_writes.seen.wait()
        unsafe_because = refusal(self._settings.worker.mode, InTree.ACTIVE)
        if unsafe_because is not None:
            raise Unsafe(unsafe_because)
        await asyncio.Event().wait()

    async def _begin(self) -> None:
        deps, in_tree, mode = self._dependencies(), self._in_tree, self._settings.worker.mode
        controller = self._controller = Controller(deps, in_tree)
        self._loops = [controller.run, ForgottenReporter(deps).run, self._claims_horizon.run]
        if self._audit is not None:
            self._loops.append(self._audit.run)
        self._cache.subscribe(controller.observe)
        controller.watch_metrics()
        self._eviction_metrics.leader.set(True)
        runtime.settle_memory()
        controller.start()
        self._begun.set()
        log.info("working", extra={"mode": mode.value, "inTree": in_tree.value})

    async def _end(self) -> None:
        if self._controller is not None:
            await self._controller.stop()
        self._eviction_metrics.leader.set(False)

    async def _flush_events(self) -> None:
        if self._controller is not None:
            await self._controller.flush_events()

    async def _detect_in_tree(self) -> InTree:
        """Find out whether the in-tree controller runs. Mode observe creates no canary; it believes the policy.

        While the API server cannot accept the canary, as when a webhook does not answer, mode delegated starts without
        knowing, and mode replacement, which must know, tries again.
        """
        worker = self._settings.worker
        if worker.in_tree is not None or not worker.mode.acts:
            return self._said_in_tree()
        backoff = Backoff(1.0, _IN_TREE_RETRY_SECONDS, chance)
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

    def _said_in_tree(self) -> InTree:
        """Return what the flag says, else the policy."""
        absent = self._policy.in_tree_evictor is InTreeEvictor.ABSENT
        return self._settings.worker.in_tree or (InTree.ABSENT if absent else InTree.ACTIVE)

    def _dependencies(self) -> Dependencies:
        events = EventWriter(self._cluster, instance=self._identity, now=self._clock.now)
        return Dependencies(
            inventory=self._cache.inventory,
            writer=EvictionWriter(self._acting, self._rules, events, self._clock.now),
            budgets=self._budgets,
            hold_of=self._namespaces.hold_of,
            clock=self._clock,
            metrics=self._eviction_metrics,
            profiles=lambda: self._pods.profiles,
            profile_of=lambda pod: self._pods.profile_of(pod),  # noqa: PLW0108 -- a new policy replaces it
            random=chance,
            leads=self._leads,
            trusted=self._trusted,
            claims_known=self._claims_horizon.reached,
            ceiling_of=self._ceiling_of,
            patch_ceiling_of=self._patch_ceiling_of,
            patches=self._patches.patches,
            breaker=lambda: self._policy.breaker,
            pause=lambda: self._policy.pause,
            settings=self._settings.worker,
        )

    def _new_audit(self) -> PeriodicAudit | None:
        interval = self._settings.audit_interval
        if interval is None:
            return None
        metrics = AuditMetrics(self._metrics.registry)
        metrics.audit_interval_seconds.set(interval.total_seconds())
        exempt = self._settings.exempt_namespaces
        sources = AuditSources(self._policies, self._namespaces.facts_of, self._clock.now, exempt)
        return PeriodicAudit(self._acting, sources, metrics, interval.total_seconds())

    def _trusted(self) -> bool:
        """Return whether the caches are up to date, and this process still leads."""
        return (
            self._leads()
            and self._policy_problem is None
            and self._loop_monitor.steady
            and self._cache.sight().inventory is not None
            and not self._namespaces.reflector.lost_seconds  # a hold or other labels may have been missed
            and not self._budgets.reflector.lost_seconds  # pods without a budget have another limit
        )

    def _totals(self) -> tuple[int, int]:
        """Return totals for limits given as shares, at most a minute old: counting is slow, and they hardly change."""
        now = self._clock.seconds()
        if self._known_totals is None or now - self._totals_at > _TOTALS_SECONDS:
            self._known_totals, self._totals_at = totals(self._cache.inventory), now
        return self._known_totals.pods, self._known_totals.namespaces

    def _ceiling_of(self, rule: DeviceTaintRule) -> Ceiling | None:
        return self._ceiling_by(rule, self._confirmed_by(rule))

    def _patch_ceiling_of(self, rule: DeviceTaintRule, patch: ResourceSlicePatch | None) -> Ceiling | None:
        """Return the ceiling of a patch by its confirmation, or by the limits for the taint of one of its rules."""
        if patch is not None:
            return self._ceiling_by(rule, self._confirmed_by(patch))
        problem = self._patches.problem
        unknown = f"{_NO_PATCH}: {problem}" if problem else _NO_PATCH
        return self._ceiling_by(rule, Confirmed(problem=unknown))

    def _confirmed_by(self, judged: DeviceTaintRule | ResourceSlicePatch) -> Confirmed:
        """Return what the text on a rule or patch allows; its writer is believed, as admission has judged it."""
        text = judged.meta.annotations.get(CONFIRM_IMPACT, "")
        said = read_text(text)
        if said is None:
            return Confirmed(problem="it cannot be read") if text else NOT_CONFIRMED
        if not confirms(said.of, judged):
            return Confirmed(problem=_FOR_ANOTHER)
        most = said.hit.numbers.grown(self._policy.impact.tolerance_percent)
        return Confirmed(said.hit.done + most.pods, most.namespaces)

    def _ceiling_by(self, rule: DeviceTaintRule, confirmed: Confirmed) -> Ceiling | None:
        return ceiling_of(rule, self._policy, self._totals, confirmed, self._protected)

    def _protected(self, namespaces: Collection[str]) -> frozenset[str]:
        """Return the namespaces that the policy protects. One that is not known counts as protected."""
        return protected_among(self._policy.impact.protected_namespaces, namespaces, self._namespaces.facts_of)

    # --- changes ---------------------------------------------------------------------------------

    def _then(self, change: Callable[Concatenate[Controller, P], None]) -> Callable[P, None]:
        """Return what passes a change on to the controller; until this process leads there is none."""

        def pass_on(*args: P.args, **kwargs: P.kwargs) -> None:
            if self._controller is not None:
                change(self._controller, *args, **kwargs)

        return pass_on

    def _policy_changed(self, old: PolicyState, new: PolicyState) -> None:
        problem = self._policy_problem or ""
        if problem:
            self._usable.clear()
            if problem != self._logged_problem:
                log.error("waiting for a policy that can be loaded", extra={"error": problem})
        else:
            self._usable.set()
            if self._logged_problem:
                log.info("policy loaded: evictions may resume", extra={"policyHash": new.active.policy.hash})
        self._logged_problem = problem
        if new.active is not old.active:
            self._pods = ProfiledPods(self._cache.inventory, self._policy.eviction, self._namespaces.facts_of)
            if new.active is not BUILTIN_JUDGE and self._in_tree not in {InTree.UNKNOWN, self._said_in_tree()}:
                self._said_otherwise.set()
            if self._controller is not None:
                self._controller.replan_all()

    def _annotate_policy(self, _: PolicyState, new: PolicyState) -> None:
        """Write the policy in use to the Lease, and while it is the built-in one, keep the last other one there."""
        used = self._on_lease[POLICY_ANNOTATION] = new.active.policy.hash
        self._on_lease.pop(LAST_POLICY_ANNOTATION, None)
        if used != BUILTIN_JUDGE.policy.hash:
            self._on_lease[LAST_POLICY_ANNOTATION] = used
