"""The settings of `serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Final

from webhook.api.field import FieldError, invalid, required
from webhook.api.meta import NamespacedName
from webhook.api.names import CA_NAME, PROGRAM, WORKER
from webhook.certificates.settings import FileSettings, SelfManagedSettings, TLSVersion
from webhook.cluster.settings import ClusterSettings
from webhook.config.certificates import CONFIGURATIONS, certificates_of
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
    check_policy,
    followed_config_map,
    namespace_of,
)
from webhook.config.texts import (
    as_cipher_suites,
    as_file,
    as_host_names,
    as_lifetime,
    as_names,
    as_namespaced,
    as_object_name,
    as_port,
    as_seconds,
    as_service,
    as_switch,
    as_text,
)
from webhook.server.settings import Address, ListenerSettings, ReviewSettings
from webhook.telemetry.logs import LogFormat

CLIENT_NAME: Final = "kube-apiserver"
"""In the certificate of an API server, unless another name is given."""
_SERVE_FLAGS: Final = (
    Flag(
        "standalone",
        "run without a cluster: field rules, defaulting, and policy from --policy-file; listens on 127.0.0.1 unless "
        "addresses are given",
        as_switch,
        "false",
    ),
    *CLUSTER,
    NAMESPACE,
    Flag(
        "watch-pods",
        "follow pods and PodGroups too, so that impacts name gangs: docs/impact.md says what it costs",
        as_switch,
        "false",
    ),
    Flag(
        "watch-patches",
        "follow ResourceSlicePatches too, to judge what they taint: docs/impact.md says what it costs",
        as_switch,
        "false",
    ),
    Flag(
        "patch-account",
        "the patch controller: a ServiceAccount in --namespace, or a user name with a colon; implies --watch-patches",
        as_text,
        "",
        "ACCOUNT",
    ),
    Flag(
        "slice-attributes",
        "put attributes and capacity of patches into ResourceSlices: docs/patches.md; implies --watch-patches",
        as_switch,
        "false",
    ),
    *POLICY,
    Flag(
        "eviction-lease",
        f"the lease of the eviction worker, read while the policy softens rules (default {WORKER} in --namespace)",
        as_namespaced,
        None,
        "NS/NAME",
    ),
    Flag("bind-address", "address to listen on; default: all interfaces", as_text, "", "A"),
    Flag("port", "port for reviews; 0 picks a free port and logs it", as_port, "9443", "N"),
    Flag("cert-dir", "directory with tls.crt and tls.key, as in a kubernetes.io/tls Secret", as_file, None, "D"),
    Flag("tls-cert-file", "serving certificate (PEM, leaf first); with --tls-private-key-file", as_file, None, "F"),
    Flag("tls-private-key-file", "private key of the serving certificate (PEM, no password)", as_file, None, "F"),
    Flag(
        "self-managed-certificates",
        "issue certificates from the webhook's own CA, which all replicas share",
        as_switch,
        "false",
    ),
    Flag(
        "ca-secret",
        f"the Secret with that CA, filled if it is empty (default {CA_NAME} in --namespace)",
        as_namespaced,
        None,
        "NS/NAME",
    ),
    Flag(
        "validating-webhook-configuration",
        f"configuration whose caBundle is kept up to date (default {CONFIGURATIONS})",
        as_object_name,
        None,
        "NAME",
    ),
    Flag(
        "mutating-webhook-configuration",
        f"the same for mutation (default {CONFIGURATIONS})",
        as_object_name,
        None,
        "NAME",
    ),
    Flag(
        "service",
        f"Service that API servers call; its DNS names go into the certificate (default {PROGRAM} in --namespace)",
        as_service,
        None,
        "NS/NAME",
    ),
    Flag(
        "certificate-names",
        "more DNS names and IP addresses for the certificate, comma-separated",
        as_host_names,
        None,
        "NAMES",
    ),
    Flag("ca-lifetime", "lifetime of a CA, such as 90d; renewed at two thirds (default 365d)", as_lifetime, None, "T"),
    Flag(
        "certificate-lifetime",
        "lifetime of a serving certificate; renewed at two thirds (default 24h)",
        as_lifetime,
        None,
        "T",
    ),
    Flag("client-ca-file", "require client certificates that these CAs signed", as_file, None, "F"),
    Flag(
        "client-names",
        f"comma-separated names; a client certificate must have one, as CN or DNS name (default {CLIENT_NAME})",
        as_names,
        None,
        "NAMES",
    ),
    Flag(
        "tls-min-version",
        "minimum TLS version for reviews: VersionTLS12 or VersionTLS13",
        TLSVersion,
        TLSVersion.TLS12.value,
        "VERSION",
    ),
    Flag(
        "tls-cipher-suites",
        "comma-separated suites, as kube-apiserver names them; for TLS 1.2 only, since those of TLS 1.3 are fixed",
        as_cipher_suites,
        None,
        "SUITES",
    ),
    *PROBES,
    Flag(
        "shutdown-delay",
        "seconds to keep serving after SIGTERM, not ready, until load balancers notice; 5 to 10 behind a Service",
        as_seconds,
        "0",
        "S",
    ),
    LOG_FORMAT,
    Flag("verbose", "log every review, including those without findings", as_switch, "false", short="-v"),
)
_HERE: Final = "127.0.0.1"
_STANDALONE: Final = {
    "bind-address": _HERE,
    "health-probe-bind-address": f"{_HERE}:8081",
    "metrics-bind-address": f"{_HERE}:8080",
}
"""Defaults with --standalone, the first of the flags: no one else has to reach a process on a laptop."""
_SERVE_TEXT: Final = "Answers admission reviews over HTTPS: POST /validate and POST /mutate."
_SERVE_END: Final = (
    f"Each flag can also be set in the environment, such as {ENVIRONMENT_PREFIX}PORT for --port. On SIGTERM it"
    " becomes not ready, waits for the delay, closes the port and finishes requests in flight; a second SIGTERM"
    " stops it at once."
)
_EXAMPLES: Final = (
    "device-taint-webhook serve --standalone --cert-dir certs/dev --policy-file policy.yaml",
    "device-taint-webhook serve --self-managed-certificates --client-ca-file /etc/callers/ca.crt",
    "device-taint-webhook serve --kubeconfig kubeconfig.yaml --cert-dir certs/dev --log-format text -v",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The configuration of a `serve` process."""

    address: Address
    certificates: FileSettings | SelfManagedSettings
    health_address: Address | None
    """None disables the port; the same for metrics."""
    metrics_address: Address | None
    shutdown_delay_seconds: float
    cluster: ClusterSettings | None
    """None without a cluster."""
    policy_file: FilePath | None
    policy_config_map: NamespacedName | None
    eviction_lease: NamespacedName | None
    """None without a cluster."""
    log_format: LogFormat
    verbose: bool
    watch_pods: bool = False
    watch_patches: bool = False
    patch_account: str = ""
    """The user name of the patch controller; empty if there is none."""
    slice_attributes: bool = False
    client_names: tuple[str, ...] = ()
    """A client's certificate must have one of these; empty if no certificate is required."""
    tls_min_version: TLSVersion = TLSVersion.TLS12
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    reviews: ReviewSettings = field(default_factory=ReviewSettings)
    unknown_variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with our prefix that nothing reads, each with the most similar known one, or empty."""


def command_line(program: str) -> DaemonCommandLine:
    """The flags of `serve`."""
    return daemon_command_line(f"{program} serve", _SERVE_TEXT, _SERVE_END, _SERVE_FLAGS, _EXAMPLES)


def parse_serve(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> ServeSettings:
    """The settings of `serve`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    given = vars(command_line(program).parse_args(arguments))
    errors: list[FieldError] = []
    flags = list(_SERVE_FLAGS)
    if value_of(flags[0], given[flags[0].name], environment, []):
        flags = [replace(flag, default=_STANDALONE.get(flag.name, flag.default)) for flag in flags]
    values = {flag.name: value_of(flag, given[flag.name], environment, errors) for flag in flags}
    namespace = namespace_of(values, environment)
    certificates = certificates_of(values, namespace, errors)
    sources = _sources(values, namespace, errors)
    client_names = _client_names(values, errors)
    if errors or certificates is None:
        raise ConfigError(errors)
    return ServeSettings(
        address=Address(host=values["bind-address"].strip("[]"), port=values["port"]),
        certificates=certificates,
        health_address=values["health-probe-bind-address"],
        metrics_address=values["metrics-bind-address"],
        shutdown_delay_seconds=values["shutdown-delay"],
        **sources,
        log_format=values["log-format"],
        verbose=values["verbose"],
        watch_pods=values["watch-pods"],
        watch_patches=values["watch-patches"] or values["slice-attributes"] or bool(values["patch-account"]),
        patch_account=_user_name(values["patch-account"], namespace),
        slice_attributes=values["slice-attributes"],
        client_names=client_names,
        tls_min_version=values["tls-min-version"],
        unknown_variables=unknown_variables(environment, _SERVE_FLAGS),
    )


def _user_name(account: str, namespace: str) -> str:
    """The user name of an account, which is one already if it has a colon; empty for none."""
    return f"system:serviceaccount:{namespace}:{account}" if account and ":" not in account else account


def _client_names(values: Mapping[str, Any], errors: list[FieldError]) -> tuple[str, ...]:
    """Which client certificates are accepted: names without a CA would prove nothing."""
    names = values["client-names"]
    if values["client-ca-file"] is None:
        if names is not None:
            errors.append(required(flag_path("--client-ca-file"), "must come with --client-names"))
        return ()
    return names or (CLIENT_NAME,)


def _sources(values: Mapping[str, Any], namespace: str, errors: list[FieldError]) -> dict[str, Any]:
    """Where the policy comes from: a file, or an object of the cluster."""
    standalone = values["standalone"]
    check_policy(values, errors)
    if standalone:
        errors.extend(
            invalid(flag_path(f"--{name}"), str(values[name]), "may not be given together with --standalone")
            for name in ("kubeconfig", "context", "policy-configmap", "eviction-lease")
            if values[name] is not None
        )
        errors.extend(
            invalid(flag_path(f"--{name}"), values[name], "may not be given together with --standalone")
            for name in ("watch-pods", "watch-patches", "patch-account", "slice-attributes")
            if values[name]
        )
    in_cluster = not standalone
    return {
        "cluster": ClusterSettings(kubeconfig=values["kubeconfig"], context=values["context"]) if in_cluster else None,
        "policy_file": values["policy-file"],
        "policy_config_map": followed_config_map(values, namespace) if in_cluster else None,
        "eviction_lease": values["eviction-lease"] or (NamespacedName(namespace, WORKER) if in_cluster else None),
    }
