"""Flags that `serve` and `evict` have in common, and where both find the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.api.field import FieldError, invalid
from webhook.api.names import OWN_NAMESPACE, POLICY_NAME
from webhook.config.flags import Flag, flag_path
from webhook.config.namespace import own_namespace, policy_config_map
from webhook.config.texts import (
    as_address,
    as_file,
    as_namespace,
    as_namespaced,
    as_text,
)
from webhook.telemetry.logs import LogFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.api.meta import NamespacedName

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


def either_of(one: str, other: str, values: Mapping[str, Any], errors: list[FieldError]) -> None:
    """A file and an object of the cluster may not be given both."""
    if values[one] is not None and values[other] is not None:
        errors.append(invalid(flag_path(f"--{one}"), str(values[one]), f"may not be given together with --{other}"))


def namespace_of(values: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """The namespace that defaults of other flags are in."""
    return values["namespace"] or own_namespace(environment)


def followed_config_map(values: Mapping[str, Any], namespace: str) -> NamespacedName | None:
    """The ConfigMap to follow, by default in `namespace`; None where the policy is in a file."""
    return None if values["policy-file"] else values["policy-configmap"] or policy_config_map(namespace)
