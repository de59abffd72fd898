"""`serve`: answers admission reviews. The composition root of the webhook: everything is built here, and only here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from webhook import __version__, runtime
from webhook.admission.config_maps import CONFIG_MAPS
from webhook.certificates.contexts import listening_context
from webhook.certificates.handshakes import HandshakeFailures
from webhook.certificates.settings import FileSettings
from webhook.cluster.client.errors import NoCredentials
from webhook.config.serve import ServeSettings, parse_serve
from webhook.daemons.process import USAGE, folder_faults, policy_faults_of, read_settings, run_stages
from webhook.daemons.wiring import (
    certificate_source,
    cluster_of,
    probe_stages,
    read_policy,
    registration_stage,
    review_state_stages,
)
from webhook.flowcontrol.clock import Clock
from webhook.runtime import Stage, Stages
from webhook.server.http import Reviews
from webhook.server.listener import NOT_LISTENING, Listener
from webhook.server.probes import Checks
from webhook.server.review_state import ReviewState
from webhook.telemetry.metrics import Metrics
from webhook.validation.kinds import KINDS

log = logging.getLogger(__name__)


def run(arguments: Sequence[str]) -> int:
    """Serves until a signal. Returns 2 for unusable flags and files, and for addresses that cannot be bound."""
    settings = read_settings("serve", arguments, parse_serve, _faults)
    if settings is None:
        return USAGE
    return run_stages(lambda: build(settings), log, error_text=_error_text)


def _faults(settings: ServeSettings) -> list[str]:
    """What is wrong with the files that the flags name."""
    certificates = settings.certificates
    folder = []
    if isinstance(certificates, FileSettings):
        folder = folder_faults(certificates.certificate_file)
    return folder + policy_faults_of(settings)


def _error_text(cause: BaseException) -> str:
    if isinstance(cause, NoCredentials):
        return f"{cause}; or run without a cluster: --standalone"
    return str(cause)


def build(settings: ServeSettings) -> Stages:
    """Every part, in the order in which they start: metrics, review state, listener, readiness."""
    metrics = Metrics(version=__version__, resources={row.resource for row in KINDS} | {CONFIG_MAPS.resource})
    state = ReviewState(read_policy=read_policy)
    cluster, now = cluster_of(settings), Clock().now
    checks = Checks()
    source = certificate_source(settings.certificates, cluster, checks, now=now, metrics=metrics)
    tls = listening_context(
        lambda: source.context,
        client_certificates=bool(settings.client_names),
        oldest_version=settings.tls_min_version,
        tell_failure=HandshakeFailures(metrics).tell,
        handshake_seconds=settings.listener.handshake_seconds,
    )
    reviews = Listener(
        "reviews",
        settings.address,
        Reviews(settings.reviews, metrics, state, settings.client_names),
        settings.listener,
        tls=tls,
        count_bad_request=metrics.count_bad_request,
    )
    decided_by = review_state_stages(settings, cluster, state, metrics, checks, now)
    checks.add("listener", lambda: _not_listening(reviews, checks))
    metrics.watch_readiness(checks.problems)
    metrics.watch_requesters(state.assumed_rules.not_counted)
    # Connections of probes may be closed at any time, so these ports do not wait for a last request.
    probing = replace(settings.listener, drain_idle_seconds=0.0)
    stages = [
        runtime.lag_stage(metrics.event_loop_lag.observe),
        *probe_stages(settings, probing, metrics, checks),
    ]
    if cluster is not None:
        stages.append(Stage(name="cluster", start=cluster.open, stop=cluster.close))
        stages.append(registration_stage(settings.certificates, cluster, metrics))
    stages += [
        *runtime.side_by_side([*decided_by, Stage(name="certificate", work=source.run, start=source.loaded)]),
        Stage(name="reviews", start=reviews.start, stop=reviews.stop),
        _readiness(reviews, settings.shutdown_delay_seconds),
    ]
    return Stages(stages)


def _not_listening(reviews: Listener, checks: Checks) -> str | None:
    """Why no connection is accepted, or None. The listener starts last, so at first it waits for all others."""
    problem = reviews.problem
    missing = checks.missing(besides="listener") if problem == NOT_LISTENING else []
    return f"{problem}: waits for {', '.join(missing)}" if missing else problem


def _readiness(reviews: Listener, delay_seconds: float) -> Stage:
    """The last stage, stopped first: it makes clients go elsewhere while this process still answers."""

    async def start() -> None:
        runtime.settle_memory()
        log.info("ready", extra={"version": __version__})

    async def stop() -> None:
        reviews.drain()
        await asyncio.sleep(delay_seconds)

    return Stage(name="readiness", start=start, stop=stop)
