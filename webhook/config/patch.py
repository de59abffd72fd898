"""The settings of `patch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from webhook.api.field import FieldError, invalid, required
from webhook.api.meta import NamespacedName
from webhook.api.names import PATCHER
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
from webhook.config.texts import as_count, as_namespaced, as_rate, as_switch
from webhook.inventory.expansion import RULES_MAX
from webhook.server.settings import ListenerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path as FilePath

    from webhook.server.settings import Address
    from webhook.telemetry.logs import LogFormat

_PATCH_FLAGS: Final = (
    Flag(
        "rules-per-patch",
        "DeviceTaintRules that one patch, or one rule with /scope: hardware, may have; with more it gets none",
        as_count,
        str(RULES_MAX),
        "N",
    ),
    Flag(
        "slice-attributes",
        "have slices written again where attributes and capacity of patches are missing: docs/patches.md",
        as_switch,
        "false",
    ),
    Flag("leader-elect", "act only while holding the lease", as_switch, "false"),
    Flag("leader-elect-lease", f"the lease (default {PATCHER} in --namespace)", as_namespaced, None, "NS/NAME"),
    *CLUSTER,
    NAMESPACE,
    Flag("kube-api-qps", "requests per second to the API server; 0 for no limit", as_rate, "50", "N"),
    Flag("kube-api-burst", "burst size for requests to the API server", as_count, "100", "N"),
    *POLICY,
    *PROBES,
    LOG_FORMAT,
    Flag("verbose", "log at level debug", as_switch, "false", short="-v"),
)
_PATCH_TEXT: Final = (
    "Turns ResourceSlicePatches into DeviceTaintRules, adds rules for the siblings of rules with /scope: hardware, and"
    " carries out the reactions of the policy."
)
_PATCH_END: Final = (
    f"Each flag can also be set in the environment, such as {ENVIRONMENT_PREFIX}RULES_PER_PATCH for --rules-per-patch."
    " On SIGTERM it writes nothing further and releases the lease; the rules stay."
)
_EXAMPLES: Final = (
    "device-taint-webhook patch --kubeconfig kubeconfig.yaml --log-format text",
    "device-taint-webhook patch --leader-elect --rules-per-patch 200",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSettings:
    """The configuration of a `patch` process."""

    rules_per_patch: int
    cluster: ClusterSettings
    requests_per_second: float
    """To the API server; zero or less is no limit."""
    request_burst: int
    lease: NamespacedName | None
    """None: this is the only process, and it leads."""
    policy_file: FilePath | None
    policy_config_map: NamespacedName | None
    health_address: Address | None
    metrics_address: Address | None
    log_format: LogFormat
    verbose: bool
    slice_attributes: bool = False
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    unknown_variables: Mapping[str, str] = field(default_factory=dict)
    """As for `serve`."""


def command_line(program: str) -> DaemonCommandLine:
    """The flags of `patch`."""
    return daemon_command_line(f"{program} patch", _PATCH_TEXT, _PATCH_END, _PATCH_FLAGS, _EXAMPLES)


def parse_patch(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> PatchSettings:
    """The settings of `patch`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    given = vars(command_line(program).parse_args(arguments))
    errors: list[FieldError] = []
    values = {flag.name: value_of(flag, given[flag.name], environment, errors) for flag in _PATCH_FLAGS}
    if values["leader-elect-lease"] is not None and not values["leader-elect"]:
        errors.append(required(flag_path("--leader-elect"), "must come with --leader-elect-lease"))
    if values["rules-per-patch"] == 0:
        errors.append(invalid(flag_path("--rules-per-patch"), "0", "must be at least 1"))
    either_of("policy-file", "policy-configmap", values, errors)
    if errors:
        raise ConfigError(errors)
    namespace = namespace_of(values, environment)
    lease = values["leader-elect-lease"] or NamespacedName(namespace, PATCHER)
    return PatchSettings(
        rules_per_patch=values["rules-per-patch"],
        cluster=ClusterSettings(kubeconfig=values["kubeconfig"], context=values["context"]),
        requests_per_second=values["kube-api-qps"],
        request_burst=values["kube-api-burst"],
        lease=lease if values["leader-elect"] else None,
        policy_file=values["policy-file"],
        policy_config_map=followed_config_map(values, namespace),
        health_address=values["health-probe-bind-address"],
        metrics_address=values["metrics-bind-address"],
        log_format=values["log-format"],
        verbose=values["verbose"],
        slice_attributes=values["slice-attributes"],
        unknown_variables=unknown_variables(environment, _PATCH_FLAGS),
    )
