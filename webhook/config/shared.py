"""Flags and settings that verbs have in common, and where they find the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final

from webhook.api.field import FieldError, invalid, required
from webhook.api.meta import NamespacedName
from webhook.api.names import OWN_NAMESPACE, POLICY_NAME
from webhook.cluster.settings import ClusterSettings
from webhook.config.flags import Flag, flag_path, unknown_variables
from webhook.config.namespace import own_namespace, policy_config_map
from webhook.config.texts import as_address, as_count, as_file, as_namespace, as_namespaced, as_rate, as_switch, as_text
from webhook.server.settings import Address, ListenerSettings
from webhook.telemetry.logs import LogFormat

CLUSTER: Final = (
    Flag(
        "kubeconfig",
        "kubeconfig of the cluster; default: the pod's service account, else $KUBECONFIG or ~/.kube/config",
        as_file,
        None,
        "F",
    ),
    Flag("context", "context of the kubeconfig; default: its current context", as_text, None, "C"),
)
NAMESPACE: Final = Flag(
    "namespace",
    f"namespace of the webhook's own objects; default: the pod's namespace, else {OWN_NAMESPACE}",
    as_namespace,
    None,
    "NS",
)
POLICY: Final = (
    Flag("policy-file", "policy file, reloaded when it changes; instead of the ConfigMap", as_file, None, "F"),
    Flag(
        "policy-configmap",
        f"the ConfigMap with policy.yaml (default {POLICY_NAME} in --namespace)",
        as_namespaced,
        None,
        "NS/NAME",
    ),
)
PROBES: Final = (
    Flag("health-probe-bind-address", "address of /livez and /readyz; 0 disables them", as_address, ":8081", "A"),
    Flag("metrics-bind-address", "address of /metrics; 0 disables it", as_address, ":8080", "A"),
)
LOG_FORMAT: Final = Flag("log-format", "json or text", LogFormat, LogFormat.JSON.value, "FORMAT")


def check_policy(values: Mapping[str, Any], errors: list[FieldError]) -> None:
    """A file and an object of the cluster may not be given both."""
    if values["policy-file"] is not None and values["policy-configmap"] is not None:
        file, words = str(values["policy-file"]), "may not be given together with --policy-configmap"
        errors.append(invalid(flag_path("--policy-file"), file, words))


def namespace_of(values: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """The namespace that defaults of other flags are in."""
    return values["namespace"] or own_namespace(environment)


def followed_config_map(values: Mapping[str, Any], namespace: str) -> NamespacedName | None:
    """The ConfigMap to follow, by default in `namespace`; None where the policy is in a file."""
    return None if values["policy-file"] else values["policy-configmap"] or policy_config_map(namespace)


# --- controllers --------------------------------------------------------------------------------

VERBOSE: Final = Flag("verbose", "log at level debug", as_switch, "false", short="-v")


def controller_flags(lease: str, per_second: str, burst: str) -> tuple[Flag, ...]:
    """Flags of `evict` and `patch`: the lease with its usual name, the cluster, and how fast that is asked."""
    return (
        Flag("leader-elect", "act only while holding the lease", as_switch, "false"),
        Flag("leader-elect-lease", f"the lease (default {lease} in --namespace)", as_namespaced, None, "NS/NAME"),
        *CLUSTER,
        NAMESPACE,
        Flag("kube-api-qps", "requests per second to the API server; 0 for no limit", as_rate, per_second, "N"),
        Flag("kube-api-burst", "burst size for requests to the API server", as_count, burst, "N"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """What the configurations of `evict` and `patch` have in common."""

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
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    unknown_variables: Mapping[str, str] = field(default_factory=dict)
    """As for `serve`."""


def controller_values(
    values: Mapping[str, Any], environment: Mapping[str, str], flags: Sequence[Flag], lease: str
) -> dict[str, Any]:
    """The fields of ControllerSettings; `lease` is the usual name of the lease."""
    namespace = namespace_of(values, environment)
    found = values["leader-elect-lease"] or NamespacedName(namespace, lease)
    return {
        "cluster": ClusterSettings(kubeconfig=values["kubeconfig"], context=values["context"]),
        "requests_per_second": values["kube-api-qps"],
        "request_burst": values["kube-api-burst"],
        "lease": found if values["leader-elect"] else None,
        "policy_file": values["policy-file"],
        "policy_config_map": followed_config_map(values, namespace),
        "health_address": values["health-probe-bind-address"],
        "metrics_address": values["metrics-bind-address"],
        "log_format": values["log-format"],
        "verbose": values["verbose"],
        "unknown_variables": unknown_variables(environment, flags),
    }


def check_lease(values: Mapping[str, Any], errors: list[FieldError]) -> None:
    """A lease without leader election is a mistake."""
    if values["leader-elect-lease"] is not None and not values["leader-elect"]:
        errors.append(required(flag_path("--leader-elect"), "must come with --leader-elect-lease"))
