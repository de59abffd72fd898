"""What fills the review state of `serve`: names, inventory and policy, from files or from the cluster.

Names and policy are read concurrently. The webhook listens for reviews once each was read once, so that no review
is decided without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from webhook.api.field import Path
from webhook.api.meta import NamespacedName
from webhook.api.names import PROGRAM
from webhook.certificates.settings import FileSettings, SelfManagedSettings
from webhook.certificates.source import CertificateSource, FileSource
from webhook.certificates.stores import StoreError
from webhook.config.namespace import own_namespace
from webhook.daemons.policy_loader import PolicyLoader, no_event, remind, watch_file
from webhook.policy.document import Loaded
from webhook.runtime import Stage
from webhook.server.listener import Listener
from webhook.server.probes import Checks, exposition, health
from webhook.server.review_state import ReviewState, RuleObserver
from webhook.server.settings import ListenerSettings
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from webhook.cluster.cache.inventory import InventoryCache
    from webhook.cluster.cache.names import ClusterCache, ConfigMap
    from webhook.cluster.certificate_objects import WebhookConfiguration
    from webhook.cluster.client.credentials import Credentials
    from webhook.cluster.client.rest import Cluster
    from webhook.cluster.events import EventRecorder
    from webhook.cluster.settings import ClusterSettings
    from webhook.config.evict import EvictSettings
    from webhook.config.patch import PatchSettings
    from webhook.config.serve import ServeSettings


Now = Callable[[], datetime]
RecordEvent = Callable[[str, str], None]


log = logging.getLogger(__name__)

_REGISTRATION_SECONDS: Final = 30.0

_EVENT_ACTIONS: Final = {
    "PolicyNotLoaded": "LoadPolicy",
    "PolicyDeleted": "LoadPolicy",
    "ExceptionEndsSoon": "RemindOfException",
}


def read_policy(text: str, at: Path, check: Callable[[str], None] = lambda _: None) -> Loaded:
    """`files.manifests.read_policy`, imported with the first document, as its imports are slow."""
    from webhook.files import manifests  # noqa: PLC0415

    return manifests.read_policy(text, at, check, own_namespace())


def review_state_stages(
    settings: ServeSettings, cluster: Cluster | None, state: ReviewState, metrics: Metrics, checks: Checks, now: Now
) -> list[Stage]:
    """The stages that fill the review state. Adds their checks to `checks`. `cluster` must be open when they start."""
    stages: list[Stage] = []
    events = _policy_events(cluster, settings, now)
    loader = PolicyLoader(state.policies, metrics.policy, read_policy, no_event if events is None else _warn_by(events))
    if cluster is not None:
        stages += _cluster_stages(cluster, settings, state, metrics, checks)
    checks.add("policy", lambda: loader.problem)
    if events is not None:
        stages.append(Stage(name="events", work=events.run))
    stages += policy_stages(cluster, settings, loader, metrics)
    stages.append(Stage(name="reminders", work=lambda: remind(loader, now)))
    return stages


def cluster_of(settings: ServeSettings) -> Cluster | None:
    """A client of the cluster that the settings name, not connected yet; None for standalone."""
    if settings.cluster is None:
        return None
    # Here and not above: standalone needs no client, and this one brings its libraries.
    from webhook.cluster.client.rest import Cluster  # noqa: PLC0415

    return Cluster(cluster_credentials(settings.cluster))


def cluster_credentials(settings: ClusterSettings) -> Credentials:
    """How a workload reaches its cluster: by its flags, in a pod by its service account, else as kubectl does."""
    from webhook.cluster.client.credentials import find_credentials  # noqa: PLC0415 -- as above

    kubeconfig = None if settings.kubeconfig is None else str(settings.kubeconfig)
    return find_credentials(kubeconfig, settings.context, environment=os.environ, pod_first=True)


def _policy_events(cluster: Cluster | None, settings: ServeSettings, now: Now) -> EventRecorder | None:
    """Events about the ConfigMap that holds the policy; None where there is no such ConfigMap."""
    config_map = settings.policy_config_map
    if cluster is None or config_map is None:
        return None
    from webhook.cluster.events import EventRecorder, EventWriter, ObjectReference  # noqa: PLC0415 -- as above

    writer = EventWriter(cluster, instance=os.environ.get("HOSTNAME", ""), now=now)
    return EventRecorder(writer, ObjectReference("v1", "ConfigMap", config_map.namespace, config_map.name))


def _warn_by(events: EventRecorder) -> RecordEvent:
    return lambda reason, note: events.warn(reason, _EVENT_ACTIONS[reason], note)


def _cluster_stages(
    cluster: Cluster, settings: ServeSettings, state: ReviewState, metrics: Metrics, checks: Checks
) -> list[Stage]:
    """What proves authors, the names and the inventory."""
    from webhook.cluster.cache.names import ClusterCache  # noqa: PLC0415 -- as above

    stages = [_author_stage(cluster, state, metrics, checks)]
    names = ClusterCache(cluster, random=random.random, metrics=metrics)  # noqa: TID251 -- the shell's
    state.names = names
    state.look_up = lambda namespaces, classes, seconds: _look_up(names, namespaces, classes, seconds)
    checks.add("names", lambda: names.problem)
    stages.append(Stage(name="names", work=names.run, start=lambda: _names_synced(names)))
    stages.append(_inventory_stage(cluster, settings, state, metrics, checks))
    if settings.watch_patches:
        stages.append(_patch_stage(cluster, settings, names, state, metrics, checks))
    state.patch_account = settings.patch_account
    if settings.eviction_lease is not None:
        stages.append(_worker_stage(cluster, settings.eviction_lease, state))
    return stages


def _author_stage(cluster: Cluster, state: ReviewState, metrics: Metrics, checks: Checks) -> Stage:
    """Whether API servers prove authors. No stage waits for it: until that is known, authors are unknown."""
    from webhook.cluster.cache.author_policy import AuthorPolicyWatch  # noqa: PLC0415 -- as above

    watch = AuthorPolicyWatch(cluster, random=random.random, metrics=metrics)  # noqa: TID251 -- the shell's
    state.authors_unproved = lambda: watch.problem
    checks.inform("authors", lambda: watch.problem or None)
    metrics.watch_authors(lambda: not watch.problem)
    return Stage(name="authors", work=watch.run)


def _patch_stage(
    cluster: Cluster,
    settings: ServeSettings,
    names: ClusterCache,
    state: ReviewState,
    metrics: Metrics,
    checks: Checks,
) -> Stage:
    """The patches. No stage waits for them.

    Until they are known, reviews that need them say so, and what they have set in slices stays.
    """
    from webhook.cluster.cache.known_patches import PatchesInForce  # noqa: PLC0415 -- for --watch-patches alone

    patches = PatchesInForce(cluster, names, random=random.random, metrics=metrics)  # noqa: TID251 -- the shell's
    state.patches = patches.known
    if settings.slice_attributes:
        state.slice_patches = patches.for_slices
    checks.inform("patches", lambda: patches.problem)
    sight = state.sight
    assert sight is not None  # the stage of the inventory comes first
    return Stage(name="patches", work=lambda: patches.run(sight))


def _worker_stage(cluster: Cluster, name: NamespacedName, state: ReviewState) -> Stage:
    """Whether an eviction worker acts. No stage waits for it: only a warning depends on it."""
    from webhook.cluster.leader import EvictionLease  # noqa: PLC0415 -- as above

    lease = EvictionLease(cluster, name, wanted=lambda: state.softens, random=random.random)  # noqa: TID251 -- the shell's
    state.worker_problem = lambda: lease.problem
    return Stage(name="eviction lease", work=lease.run)


def _inventory_stage(
    cluster: Cluster, settings: ServeSettings, state: ReviewState, metrics: Metrics, checks: Checks
) -> Stage:
    """The inventory. No stage waits for it: until it is complete, reviews that need it say so."""
    from webhook.cluster.cache.inventory import InventoryCache  # noqa: PLC0415 -- as above
    from webhook.cluster.settings import InventorySettings  # noqa: PLC0415

    inventory = InventoryCache(
        cluster,
        random=random.random,  # noqa: TID251 -- the shell's
        metrics=metrics,
        settings=InventorySettings(pods_needed=False),
        pods=settings.watch_pods,
        attributes=settings.watch_patches,
    )
    if settings.watch_pods:
        _follow_pods(inventory, state, checks)
    state.sight = inventory.sight
    state.servers = lambda: inventory.inventory.servers
    inventory.subscribe(state.recent_taints.observe)
    inventory.subscribe(RuleObserver(state, inventory.inventory).observe)
    checks.inform("inventory", lambda: inventory.problem)
    return Stage(name="inventory", work=inventory.run)


def _follow_pods(inventory: InventoryCache, state: ReviewState, checks: Checks) -> None:
    """Lets impacts name gangs while pods are current. Neither readiness nor the inventory depends on it."""
    from webhook.eviction.followed_pods import FollowedPods  # noqa: PLC0415 -- for --watch-pods alone

    followed = FollowedPods(inventory.inventory, state.names.namespace)
    inventory.subscribe(followed.observe)
    state.pods = lambda policy: followed.under(policy) if inventory.pods_current else None
    checks.inform("pods", lambda: inventory.pods_problem)


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


def policy_stages(
    cluster: Cluster | None,
    settings: ServeSettings | EvictSettings | PatchSettings,
    loader: PolicyLoader,
    metrics: Metrics,
) -> list[Stage]:
    """The stages that follow and read the policy; the last has started once the first document was read."""

    async def loaded() -> None:
        await loader.loaded.wait()

    source: Callable[[], Coroutine[Any, Any, None]] | None = None
    path, name = settings.policy_file, settings.policy_config_map
    if path is not None:

        def source() -> Coroutine[Any, Any, None]:
            return watch_file(path, loader)

    elif cluster is not None and name is not None:
        from webhook.cluster.cache.configmap import ConfigMapSource  # noqa: PLC0415 -- as above

        def changed(found: ConfigMap | None) -> None:
            if found is None:
                loader.offer(None)
            else:
                loader.offer(found.data or {}, found.binary_data or {})

        config_map = ConfigMapSource(
            cluster,
            namespace=name.namespace,
            name=name.name,
            on_change=changed,
            random=random.random,  # noqa: TID251 -- the shell's
            metrics=metrics,
        )
        source = config_map.run
        loader.why_unread = lambda: config_map.reflector.error
    else:
        loader.offer(None)
    return [
        *([] if source is None else [Stage(name="policy source", work=source)]),
        Stage(name="policy", work=loader.run, start=loaded),
    ]


def certificate_source(
    settings: FileSettings | SelfManagedSettings,
    cluster: Cluster | None,
    checks: Checks,
    *,
    now: Callable[[], datetime],
    metrics: Metrics,
) -> CertificateSource:
    """The source that the settings ask for, and its checks; the cluster is needed only if it is self-managed."""
    if isinstance(settings, FileSettings):
        files = FileSource(settings, now=now, metrics=metrics)
        checks.add("certificate", lambda: files.problem)
        checks.inform("certificate renewal", lambda: files.remark)
        return files
    # Here and not above: with files there may be no cluster, and its client brings its libraries.
    from webhook.certificates.self_managed import SelfManagedSource  # noqa: PLC0415
    from webhook.cluster.certificate_objects import SecretObject  # noqa: PLC0415

    assert cluster is not None, "flags exclude each other"
    secret = SecretObject(cluster, *settings.secret)
    source = SelfManagedSource(settings, secret, _configurations(settings, cluster), now=now, metrics=metrics)
    checks.add("certificate", lambda: source.problem)
    checks.inform("certificate renewal", lambda: source.remark)
    return source


def registration_stage(settings: FileSettings | SelfManagedSettings, cluster: Cluster, metrics: Metrics) -> Stage:
    """Whether API servers are registered to call us. No stage waits for it: only a gauge depends on it.

    What cannot be read leaves the gauge as it was, so missing rights are no alert.
    """

    async def follow() -> NoReturn:
        configurations = _configurations(settings, cluster)
        while True:
            for each in configurations:
                with contextlib.suppress(StoreError):
                    metrics.set_registered(each.resource, registered=await each.is_registered())
            await asyncio.sleep(_REGISTRATION_SECONDS)

    return Stage(name="registration", work=follow)


def _configurations(settings: FileSettings | SelfManagedSettings, cluster: Cluster) -> list[WebhookConfiguration]:
    from webhook.cluster.certificate_objects import MUTATING, VALIDATING, WebhookConfiguration  # noqa: PLC0415 -- as above

    names = (PROGRAM, PROGRAM)
    if not isinstance(settings, FileSettings):
        names = settings.validating_configuration, settings.mutating_configuration
    return [WebhookConfiguration(cluster, each, name) for each, name in zip((VALIDATING, MUTATING), names, strict=True)]


def probe_stages(
    settings: ServeSettings | EvictSettings | PatchSettings,
    listener: ListenerSettings,
    metrics: Metrics,
    checks: Checks,
) -> Iterator[Stage]:
    """The ports for probes and metrics that are configured."""
    for name, address, handler in (
        ("health", settings.health_address, health(checks)),
        ("metrics", settings.metrics_address, exposition(metrics.exposition)),
    ):
        if address is not None:
            port = Listener(name, address, handler, listener)
            yield Stage(name=name, start=port.start, stop=port.stop)
