"""`serve`: answers admission reviews. The composition root of the webhook: everything is built here, and only here.

What fills the review state is read concurrently: names and inventory from the cluster, the policy from there or from a
file. The webhook listens for reviews once names and policy were read once, so that no review is decided without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NoReturn

from webhook import __version__, runtime
from webhook.admission.config_maps import CONFIG_MAPS
from webhook.api.names import PROGRAM
from webhook.certificates.contexts import HandshakeFailures, listening_context
from webhook.certificates.settings import FileSettings, StoreError
from webhook.certificates.source import CertificateSource, FileSource, SelfManagedSource
from webhook.cluster.cache.inventory import InventoryCache
from webhook.cluster.cache.known_patches import PatchesInForce
from webhook.cluster.cache.names import ClusterCache
from webhook.cluster.client.errors import NoCredentials
from webhook.cluster.client.rest import Cluster
from webhook.cluster.events import EventRecorder, EventWriter, ObjectReference
from webhook.cluster.installation import MUTATING, VALIDATING, AuthorPolicyWatch, SecretObject, WebhookConfiguration
from webhook.cluster.leader import EvictionLease
from webhook.cluster.settings import InventorySettings
from webhook.config.serve import ServeSettings, parse_serve
from webhook.daemons.policy_loader import PolicyLoader, remind
from webhook.daemons.process import (
    USAGE,
    Process,
    chance,
    cluster_credentials,
    read_policy,
    read_settings,
    run_stages,
)
from webhook.eviction.followed_pods import FollowedPods
from webhook.runtime import Stage, Stages
from webhook.server.http import Reviews
from webhook.server.listener import NOT_LISTENING, Listener
from webhook.server.state import ReviewState, RuleObserver
from webhook.validation.kinds import KINDS

log = logging.getLogger(__name__)
_REGISTRATION_SECONDS: Final = 30.0


def run(arguments: Sequence[str]) -> int:
    """Serve until a signal; return 2 for unusable flags and files, and for addresses that cannot be bound."""
    settings = read_settings("serve", arguments, parse_serve, _folder_faults)
    if settings is None:
        return USAGE
    return run_stages(lambda: Webhook(settings).stages(), log, error_text=_error_text)


def _folder_faults(settings: ServeSettings) -> list[str]:
    """Return the faults of the certificates' directory; its files may still be missing, and be written later."""
    if not isinstance(settings.certificates, FileSettings):
        return []
    folder = settings.certificates.certificate_file.parent
    try:
        if folder.is_dir():
            return []
        why = "not a directory" if folder.exists() else "no such directory"
    except OSError as error:
        why = error.strerror or str(error)
    return [f"--cert-dir or --tls-cert-file: {folder}: {why}"]


def _error_text(cause: BaseException) -> str:
    if isinstance(cause, NoCredentials):
        return f"{cause}; or run without a cluster: --standalone"
    return str(cause)


class Webhook(Process):
    """All parts of one process."""

    _settings: ServeSettings

    def __init__(self, settings: ServeSettings) -> None:
        super().__init__(resources={row.resource for row in KINDS} | {CONFIG_MAPS.resource}, serves=True)
        self._settings = settings
        self._state = ReviewState(read_policy=read_policy)
        self._cluster = None if settings.cluster is None else Cluster(cluster_credentials(settings.cluster))

    def stages(self) -> Stages:
        """Return all stages in start order: metrics, review state, listener, readiness."""
        settings, metrics, state, cluster = self._settings, self._metrics, self._state, self._cluster
        source = self._certificate_source()
        tls = listening_context(
            lambda: source.context,
            client_certificates=bool(settings.client_names),
            oldest_version=settings.tls_min_version,
            tell_failure=HandshakeFailures(metrics).tell,
            handshake_seconds=settings.listener.handshake_seconds,
            most_handshakes=settings.listener.handshakes,
        )
        reviews = self._reviews = Listener(
            "reviews",
            settings.address,
            Reviews(settings.reviews, metrics, state, settings.client_names),
            settings.listener,
            tls=tls,
            count_bad_request=metrics.count_bad_request,
        )
        decided_by = self._review_state_stages()
        self._checks.add("listener", self._not_listening)
        # Connections of probes may be closed at any time, so these ports do not wait for a last request.
        stages = self._front(replace(settings.listener, drain_idle_seconds=0.0))
        metrics.watch_requesters(state.assumed_rules.not_counted)
        if cluster is not None:
            stages.append(Stage(name="cluster", start=cluster.open, stop=cluster.close))
            stages.append(Stage(name="registration", work=lambda: self._follow_registration(cluster)))
        stages += [
            *runtime.side_by_side([*decided_by, Stage(name="certificate", work=source.run, start=source.loaded)]),
            Stage(name="reviews", start=reviews.start, stop=reviews.stop),
            # Last, so stopped first.
            Stage(name="readiness", start=self._ready, stop=self._drain),
        ]
        return Stages(stages)

    def _not_listening(self) -> str | None:
        """Say why no connection is accepted. The listener starts last, so at first it waits for all others."""
        problem = self._reviews.problem
        missing = self._checks.missing(besides="listener") if problem == NOT_LISTENING else []
        return f"{problem}: waits for {', '.join(missing)}" if missing else problem

    async def _ready(self) -> None:
        runtime.settle_memory()
        log.info("ready", extra={"version": __version__})

    async def _drain(self) -> None:
        """Make clients go elsewhere while this process still answers."""
        self._reviews.drain()
        await asyncio.sleep(self._settings.shutdown_delay_seconds)

    # --- the certificate -------------------------------------------------------------------------

    def _certificate_source(self) -> CertificateSource:
        settings, now, metrics = self._settings.certificates, self._clock.now, self._metrics
        source: CertificateSource
        if isinstance(settings, FileSettings):
            source = FileSource(settings, now=now, metrics=metrics)
        else:
            assert self._cluster is not None, "flags exclude each other"
            secret, configurations = SecretObject(self._cluster, *settings.secret), self._configurations(self._cluster)
            source = SelfManagedSource(settings, secret, configurations, now=now, metrics=metrics)
        self._checks.add("certificate", lambda: source.problem)
        self._checks.inform("certificate renewal", lambda: source.remark)
        return source

    def _configurations(self, cluster: Cluster) -> list[WebhookConfiguration]:
        settings, names = self._settings.certificates, (PROGRAM, PROGRAM)
        if not isinstance(settings, FileSettings):
            names = settings.validating_configuration, settings.mutating_configuration
        kinds = (VALIDATING, MUTATING)
        return [WebhookConfiguration(cluster, kind, name) for kind, name in zip(kinds, names, strict=True)]

    async def _follow_registration(self, cluster: Cluster) -> NoReturn:
        """Look whether API servers are registered to call us. No stage waits for it: only a gauge depends on it.

        What cannot be read leaves the gauge as it was, so missing rights are no alert.
        """
        configurations, more = self._configurations(cluster), ["patches"] * self._settings.watch_patches
        while True:
            for each in configurations:
                with contextlib.suppress(StoreError):
                    is_registered = await each.is_registered(*more)  # first: `labels` makes a sample
                    self._metrics.registered.labels(each.resource).set(is_registered)
            await asyncio.sleep(_REGISTRATION_SECONDS)

    # --- the review state ------------------------------------------------------------------------

    def _review_state_stages(self) -> list[Stage]:
        """Return the stages that fill the review state, and add their checks. The cluster must be open by then."""
        cluster, config_map = self._cluster, self._settings.policy_config_map
        stages = [] if cluster is None else self._cluster_stages(cluster)
        loader = self._policy_loader = PolicyLoader(self._state.policies, self._metrics.policy, read_policy)
        if cluster is not None and config_map is not None:
            writer = EventWriter(cluster, instance=os.environ.get("HOSTNAME", ""), now=self._clock.now)
            events = EventRecorder(writer, ObjectReference("v1", "ConfigMap", config_map.namespace, config_map.name))
            loader.record = events.warn
            stages.append(Stage(name="events", work=events.run))
        self._checks.add("policy", lambda: loader.problem)
        return [
            *stages,
            *self._policy_stages(),
            Stage(name="reminders", work=lambda: remind(loader, self._clock.now)),
        ]

    def _cluster_stages(self, cluster: Cluster) -> list[Stage]:
        """Return what proves authors, the names, the inventory and what else is asked for. Only names are waited for.

        Until the others are known, reviews that need them say so.
        """
        settings, state, metrics, checks = self._settings, self._state, self._metrics, self._checks
        authors = AuthorPolicyWatch(cluster, random=chance, metrics=metrics)
        state.authors_unproved = lambda: authors.problem
        checks.inform("authors", lambda: authors.problem or None)
        metrics.watch_authors(lambda: not authors.problem)

        names = ClusterCache(cluster, random=chance, metrics=metrics)
        state.names = names
        state.look_up = lambda namespaces, classes, seconds: _look_up(names, namespaces, classes, seconds)
        checks.add("names", lambda: names.problem)

        inventory = self._inventory(cluster)
        stages = [
            Stage(name="authors", work=authors.run),
            Stage(name="names", work=names.run, start=lambda: _names_synced(names)),
            Stage(name="inventory", work=inventory.run),
        ]
        if settings.watch_patches:
            patches = PatchesInForce(cluster, names, random=chance, metrics=metrics)
            state.patches = patches.known
            if settings.slice_attributes:
                state.slice_patches = patches.for_slices  # until they are known, what they have set in slices stays
            checks.inform("patches", lambda: patches.problem)
            stages.append(Stage(name="patches", work=lambda: patches.run(inventory.sight)))
        state.patch_account = settings.patch_account
        if settings.eviction_lease is not None:
            lease = EvictionLease(cluster, settings.eviction_lease, wanted=lambda: state.softens, random=chance)
            state.worker_problem = lambda: lease.problem
            stages.append(Stage(name="eviction lease", work=lease.run))
        return stages

    def _inventory(self, cluster: Cluster) -> InventoryCache:
        settings, state, checks = self._settings, self._state, self._checks
        cache = InventoryCache(
            cluster,
            random=chance,
            metrics=self._metrics,
            settings=InventorySettings(pods_needed=False),
            pods=settings.watch_pods,
            attributes=settings.watch_patches,
        )
        if settings.watch_pods:
            # So that impacts name gangs while pods are current. Neither readiness nor the inventory depends on it.
            followed = FollowedPods(cache.inventory, state.names.namespace)
            cache.subscribe(followed.observe)
            state.pods = lambda policy: followed.under(policy) if cache.pods_current else None
            checks.inform("pods", lambda: cache.pods_problem)
        state.sight = cache.sight
        state.servers = lambda: cache.inventory.servers
        cache.subscribe(state.recent_taints.observe)
        cache.subscribe(RuleObserver(state, cache.inventory).observe)
        checks.inform("inventory", lambda: cache.problem)
        return cache


async def _names_synced(names: ClusterCache) -> None:
    await names.synced()
    unreadable = names.unreadable_classes()
    if unreadable:
        text = "drivers of device classes unknown: deny rules on any driver match these classes"
        log.warning(text, extra={"deviceClasses": unreadable})


async def _look_up(names: ClusterCache, namespaces: frozenset[str], classes: frozenset[str], seconds: float) -> bool:
    await names.fetch(namespaces, classes, seconds)
    found = any(names.namespace(name) is not None for name in namespaces)
    return found or any(names.drivers(name) is not None for name in classes)
