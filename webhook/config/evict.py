"""The settings of `evict`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from webhook.api.field import FieldError, invalid, not_supported, required
from webhook.api.meta import NamespacedName
from webhook.api.names import WORKER
from webhook.cluster.settings import ClusterSettings
from webhook.config.flags import (
    ENVIRONMENT_PREFIX,
    ConfigError,
    DaemonCommandLine,
    Flag,
    daemon_command_line,
    flag_path,
    unknown_variables,
    value_of,
)
from webhook.config.shared import (
    CLUSTER,
    LOG_FORMAT,
    NAMESPACE,
    POLICY,
    PROBES,
    either_of,
    followed_config_map,
    namespace_of,
)
from webhook.config.texts import (
    as_count,
    as_interval,
    as_namespaced,
    as_rate,
    as_switch,
)
from webhook.eviction.modes import InTree, Mode
from webhook.eviction.settings import WorkerSettings
from webhook.server.settings import ListenerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path as FilePath

    from webhook.server.settings import Address
    from webhook.telemetry.logs import LogFormat

_EVICT_FLAGS: Final = (
    Flag(
        "mode",
        "observe: plan and report; delegated: act for rules with /evict; replacement: for every NoExecute taint",
        Mode,
        Mode.OBSERVE.value,
        "MODE",
    ),
    Flag(
        "in-tree",
        "active or absent: whether the in-tree eviction controller runs; default: detected",
        InTree,
        None,
        "WHICH",
    ),
    Flag(
        "delete-expired",
        "delete rules past their /expires-at instead of setting their effect to None",
        as_switch,
        "false",
    ),
    Flag("leader-elect", "act only while holding the lease", as_switch, "false"),
    Flag(
        "leader-elect-lease",
        f"the lease (default {WORKER} in --namespace)",
        as_namespaced,
        None,
        "NS/NAME",
    ),
    *CLUSTER,
    NAMESPACE,
    Flag("kube-api-qps", "requests per second to the API server; 0 for no limit", as_rate, "100", "N"),
    Flag("kube-api-burst", "burst size for requests to the API server", as_count, "200", "N"),
    Flag("concurrent-evictions", "eviction requests in flight at the same time", as_count, "32", "N"),
    *POLICY,
    Flag(
        "audit-interval",
        "how often stored templates and claims are checked against the policy, for metrics; 0 for never",
        as_interval,
        "10m",
        "T",
    ),
    *PROBES,
    LOG_FORMAT,
    Flag("verbose", "log at level debug", as_switch, "false", short="-v"),
)
_EVICT_TEXT: Final = "Empties tainted devices: evicts the pods that use them, within limits on rate and number."
_EVICT_END: Final = (
    f"Each flag can also be set in the environment, such as {ENVIRONMENT_PREFIX}MODE for --mode. On SIGTERM it"
    " starts no further evictions, finishes those in flight, writes conditions and releases the lease."
)
_EXAMPLES: Final = (
    "device-taint-webhook evict --mode observe --kubeconfig kubeconfig.yaml --log-format text",
    "device-taint-webhook evict --mode delegated --leader-elect",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictSettings:
    """The configuration of an `evict` process."""

    worker: WorkerSettings
    cluster: ClusterSettings
    requests_per_second: float
    """To the API server; zero or less is no limit."""
    request_burst: int
    lease: NamespacedName | None
    """None: this is the only process, and it leads."""
    policy_file: FilePath | None
    policy_config_map: NamespacedName | None
    audit_interval: timedelta | None
    """None: never."""
    """Needs an audit."""
    health_address: Address | None
    metrics_address: Address | None
    log_format: LogFormat
    verbose: bool
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    unknown_variables: Mapping[str, str] = field(default_factory=dict)
    """As for `serve`."""


def command_line(program: str) -> DaemonCommandLine:
    """The flags of `evict`."""
    parser = daemon_command_line(f"{program} evict", _EVICT_TEXT, _EVICT_END, _EVICT_FLAGS, _EXAMPLES)
    parser.values["in-tree"] = (InTree.ACTIVE.value, InTree.ABSENT.value)  # the third is only the default
    return parser


def parse_evict(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> EvictSettings:
    """The settings of `evict`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    given = vars(command_line(program).parse_args(arguments))
    errors: list[FieldError] = []
    values = {flag.name: value_of(flag, given[flag.name], environment, errors) for flag in _EVICT_FLAGS}
    _check(values, errors)
    if errors:
        raise ConfigError(errors)
    namespace = namespace_of(values, environment)
    lease = values["leader-elect-lease"] or NamespacedName(namespace, WORKER)
    return EvictSettings(
        worker=WorkerSettings(
            mode=values["mode"],
            in_tree=values["in-tree"],
            delete_expired=values["delete-expired"],
            workers=values["concurrent-evictions"],
        ),
        cluster=ClusterSettings(kubeconfig=values["kubeconfig"], context=values["context"]),
        requests_per_second=values["kube-api-qps"],
        request_burst=values["kube-api-burst"],
        lease=lease if values["leader-elect"] else None,
        policy_file=values["policy-file"],
        policy_config_map=followed_config_map(values, namespace),
        audit_interval=values["audit-interval"],
        health_address=values["health-probe-bind-address"],
        metrics_address=values["metrics-bind-address"],
        log_format=values["log-format"],
        verbose=values["verbose"],
        unknown_variables=unknown_variables(environment, _EVICT_FLAGS),
    )


def _check(values: Mapping[str, Any], errors: list[FieldError]) -> None:
    """Adds what is wrong with flags that do not fit together."""
    either_of("policy-file", "policy-configmap", values, errors)
    if values["in-tree"] is InTree.UNKNOWN:
        errors.append(not_supported(flag_path("--in-tree"), InTree.UNKNOWN.value, [InTree.ACTIVE, InTree.ABSENT]))
    if values["mode"] is Mode.REPLACEMENT and values["in-tree"] is InTree.ACTIVE:
        errors.append(
            invalid(flag_path("--mode"), Mode.REPLACEMENT.value, "may not be given together with --in-tree=active")
        )
    if values["leader-elect-lease"] is not None and not values["leader-elect"]:
        errors.append(required(flag_path("--leader-elect"), "must come with --leader-elect-lease"))
