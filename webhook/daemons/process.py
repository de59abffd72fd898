"""What the long-running processes have in common: how they start, their front, their policy, and the lease.

While a process runs, a file that becomes unusable leaves the last good one in use. At the start there is none: going
on would mean running without the requested policy, or waiting for a directory that does not exist.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Final, NoReturn, TypeVar

from webhook import __version__, runtime
from webhook.api.field import Path
from webhook.cluster.cache.names import ConfigMap, ConfigMapSource
from webhook.cluster.client.credentials import Credentials, find_credentials
from webhook.cluster.client.errors import ClusterError, NoCredentials
from webhook.cluster.client.rest import Cluster, ThrottledCluster, clients_of_leader
from webhook.cluster.leader import LeaderSettings, Leadership, LeadershipLost
from webhook.cluster.settings import ClusterSettings
from webhook.config.command_line import program
from webhook.config.settings import ConfigError, DaemonSettings
from webhook.config.texts import own_namespace
from webhook.config.workers import ControllerSettings
from webhook.daemons.policy_loader import PolicyLoader, watch_file
from webhook.files import text_of
from webhook.flowcontrol.loop import Throttle, together
from webhook.flowcontrol.rates import Clock
from webhook.policy.decide import BUILTIN_JUDGE, PolicyStore
from webhook.policy.document import Loaded
from webhook.policy.model import Policy
from webhook.runtime import Stage, Stages
from webhook.server.listener import Listener
from webhook.server.probes import Checks, exposition, health
from webhook.server.settings import ListenerSettings
from webhook.telemetry import logs
from webhook.telemetry.metrics import Metrics

USAGE: Final = 2
"""The exit code for unusable flags and files."""
_SHOWN: Final = 16
S = TypeVar("S", bound=DaemonSettings)
chance: Final = random.random  # noqa: TID251 -- the shell's


def read_settings(
    verb: str,
    arguments: Sequence[str],
    parse: Callable[[str, Sequence[str], Mapping[str, str]], S],
    faults_of: Callable[[S], list[str]] = lambda _: [],
) -> S | None:
    """Read the flags of a process and set up its log; return None after printing their faults.

    `faults_of` looks at the files that the flags name, besides that of the policy.
    """
    try:
        settings = parse(program(), arguments, os.environ)
        faults = faults_of(settings) + list(_policy_faults(settings.policy_file))
    except ConfigError as error:
        faults = str(error).splitlines()
    if faults:
        sys.stderr.write("".join(f"{program(verb)}: {line}\n" for line in faults))
        return None
    logs.configure(settings.log_format, verbose=settings.verbose)
    logs.warn_of_variables(settings.unknown_variables)
    return settings


def run_stages(
    build: Callable[[], Stages],
    log: logging.Logger,
    *,
    usage: tuple[type[BaseException], ...] = (),
    error_text: Callable[[BaseException], str] = str,
) -> int:
    """Run a process until a signal; return 2 for addresses that cannot be bound, no cluster, and errors of `usage`.

    These errors, those of the API server and a lost lease are logged without a traceback.
    """
    usage = (OSError, NoCredentials, *usage)
    try:
        runtime.run(build())
    except BaseExceptionGroup as group:
        causes = runtime.causes(group)
        for cause in causes:
            trace = None if isinstance(cause, (*usage, ClusterError, LeadershipLost)) else cause
            log.error("stopped by an error", extra={"error": error_text(cause)}, exc_info=trace)  # noqa: TRY400 -- an address in use needs no traceback
        return USAGE if all(isinstance(cause, usage) for cause in causes) else 1
    return 0


def _policy_faults(path: FilePath | None) -> Iterator[str]:
    """Yield one line for each fault of the policy file, with the flag and the file."""
    if path is None:
        return
    at = f"--policy-file: {path}"
    try:
        text = text_of(path)
    except OSError as error:
        yield f"{at}: cannot be read: {error.strerror or error}"
    except ValueError:
        yield f"{at}: not UTF-8"
    else:
        errors = read_policy(text, Path.root()).errors
        yield from (f"{at}: {error}" for error in errors[:_SHOWN])
        if len(errors) > _SHOWN:
            yield f"{at}: and {len(errors) - _SHOWN} more; `check --policy {path}` shows all"


def read_policy(text: str, at: Path, check: Callable[[str], None] = lambda _: None) -> Loaded:
    """Call `files.manifests.read_policy`, imported with the first document, as its imports are slow."""
    from webhook.files import manifests  # noqa: PLC0415

    return manifests.read_policy(text, at, check, own_namespace())


def cluster_credentials(settings: ClusterSettings) -> Credentials:
    """Return how a process reaches its cluster: by flags, in a pod by its service account, else as kubectl does."""
    kubeconfig = None if settings.kubeconfig is None else str(settings.kubeconfig)
    return find_credentials(kubeconfig, settings.context, environment=os.environ, pod_first=True)


class Process:
    """A clock, metrics, readiness checks, and a policy to follow."""

    _settings: DaemonSettings
    _cluster: Cluster | None
    _policy_loader: PolicyLoader

    def __init__(self, *, resources: Iterable[str] = (), serves: bool = False) -> None:
        """`resources` and `serves` are those of `Metrics`."""
        self._clock = Clock()
        self._metrics = Metrics(version=__version__, resources=resources, serves=serves)
        self._checks = Checks()

    def _front(self, listener: ListenerSettings) -> list[Stage]:
        """Return what starts first: the measurement of the loop's lag, and the ports for probes and metrics."""
        self._metrics.watch_readiness(self._checks.problems)
        stages = [runtime.lag_stage(self._metrics.event_loop_lag_seconds.observe)]
        for name, address, handler in (
            ("health", self._settings.health_address, health(self._checks)),
            ("metrics", self._settings.metrics_address, exposition(self._metrics.exposition)),
        ):
            if address is not None:
                port = Listener(name, address, handler, listener)
                stages.append(Stage(name=name, start=port.start, stop=port.stop))
        return stages

    def _policy_stages(self) -> list[Stage]:
        """Return what follows and reads the policy; the last has started once the first document was read."""
        cluster, loader, stages = self._cluster, self._policy_loader, []
        path, name = self._settings.policy_file, self._settings.policy_config_map
        if path is not None:
            stages.append(Stage(name="policy source", work=lambda: watch_file(path, loader)))
        elif cluster is not None and name is not None:

            def changed(found: ConfigMap | None) -> None:
                if found is None:
                    loader.offer(None)
                else:
                    loader.offer(found.data or {}, found.binary_data or {})

            source = ConfigMapSource(
                cluster,
                namespace=name.namespace,
                name=name.name,
                on_change=changed,
                random=chance,
                metrics=self._metrics,
            )
            loader.why_unread = lambda: source.reflector.error
            stages.append(Stage(name="policy source", work=source.run))
        else:
            loader.offer(None)
        return [*stages, Stage(name="policy", work=loader.run, start=loader.loaded.wait)]


class Leading(Process):
    """A process of which there may be several; only the leader, or the only one, acts."""

    _settings: ControllerSettings
    _cluster: ThrottledCluster

    def __init__(self, settings: ControllerSettings, user_agent: str, *, without_policy: str) -> None:
        """`without_policy` says what happens where no policy could be loaded."""
        super().__init__()
        self._settings = settings
        credentials = cluster_credentials(settings.cluster)
        throttle = Throttle(settings.requests_per_second, settings.request_burst)
        self._cluster, self._acting = clients_of_leader(credentials, throttle, self._leads, user_agent=user_agent)
        self._lease_cluster = Cluster(credentials, user_agent=user_agent)
        """The lease is renewed even while other requests are throttled."""
        self._identity = f"{os.environ.get('HOSTNAME', 'unknown')}_{secrets.token_hex(4)}"
        self._leader: Leadership | None = None
        self._policies = PolicyStore()
        self._policy_loader = PolicyLoader(self._policies, self._metrics.policy, read_policy)
        self._without_policy = without_policy
        self._begun = asyncio.Event()
        self._loops: list[Callable[[], Coroutine[Any, Any, NoReturn]]] = []
        """Run side by side by the leader."""

    @property
    def _policy(self) -> Policy:
        return self._policies.active.policy

    @property
    def _policy_problem(self) -> str | None:
        """Why this process must not act by the policy in use, or None.

        The built-in policy has no limits and no reactions, so it applies only where a cluster has no policy at all. If
        a policy cannot be read, its limits and reactions are not known.
        """
        state = self._policies.state
        if not state.loaded:
            return "the policy has not been read yet"
        if state.failure and state.active is BUILTIN_JUDGE:
            return f"no policy could be loaded, so {self._without_policy}: {state.failure}"
        return None

    def _check_policy(self) -> str | None:
        return self._policy_loader.problem or self._policy_problem

    def _leads(self) -> bool:
        """Return whether this process may act: it has the lease, or needs none."""
        return self._leader is None or self._leader.holds

    def _front(self, listener: ListenerSettings) -> list[Stage]:
        clusters = (self._cluster, self._acting)
        return super()._front(listener) + [Stage(name="cluster", start=each.open, stop=each.close) for each in clusters]

    def _lease_stages(self, annotations: Mapping[str, str]) -> list[Stage]:
        """Return what takes the lease and keeps it; the stages after it start once this process leads."""
        lease = self._settings.lease
        if lease is None:
            return []
        self._leader = Leadership(
            self._lease_cluster,
            LeaderSettings(namespace=lease.namespace, name=lease.name, annotations=annotations),
            identity=self._identity,
            now=self._clock.now,
            random=chance,
        )
        return [
            Stage(name="lease", start=self._lease_cluster.open, stop=self._lease_cluster.close),
            Stage(name="leader", work=self._leader.run, start=self._leader.acquired.wait, stop=self._leader.release),
        ]

    async def _work(self) -> None:
        # The work of a stage begins before its start.
        await self._begun.wait()
        await together(*[run() for run in self._loops])
