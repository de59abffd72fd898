"""The settings of `serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from webhook.api.meta import NamespacedName
from webhook.api.names import CA_NAME, PROGRAM, WORKER
from webhook.certificates.settings import CIPHER_SUITES, FileSettings, SelfManagedSettings, TLSVersion
from webhook.config import texts
from webhook.config.settings import (
    CLUSTER,
    ENVIRONMENT_PREFIX,
    LOG_FORMAT,
    POLICY,
    PROBES,
    DaemonCommandLine,
    DaemonSettings,
    Flag,
    Values,
    switch,
)
from webhook.server.settings import Address, ReviewSettings

_CLIENT_NAME: Final = "kube-apiserver"
"""In the certificate of an API server, unless another name is given."""
_SERVE: Final = (
    switch(
        "standalone",
        "run without a cluster: field rules, defaulting, and policy from --policy-file; listens on 127.0.0.1 unless"
        " addresses are given",
    ),
    *CLUSTER,
    switch(
        "watch-pods", "follow pods and PodGroups too, so that impacts name gangs: docs/impact.md says what it costs"
    ),
    switch(
        "watch-patches", "follow ResourceSlicePatches too, to judge what they taint: docs/impact.md says what it costs"
    ),
    Flag(
        "patch-account",
        "the patch controller: a ServiceAccount in --namespace, or a user name with a colon; implies --watch-patches",
        lambda text: text or None,
        "ACCOUNT",
    ),
    switch(
        "slice-attributes",
        "put attributes and capacity of patches into ResourceSlices: docs/patches.md; implies --watch-patches",
    ),
    *POLICY,
    Flag(
        "eviction-lease",
        f"the lease of the eviction worker, read while the policy softens rules (default {WORKER} in --namespace)",
        texts.as_namespaced,
        "NS/NAME",
    ),
    Flag("bind-address", "address to listen on; default: all interfaces", str, "A", ""),
    Flag("port", "port for reviews; 0 picks a free port and logs it", texts.as_port, "N", "9443"),
    Flag("cert-dir", "directory with tls.crt and tls.key, as in a kubernetes.io/tls Secret", texts.as_file, "D"),
    Flag("tls-cert-file", "serving certificate (PEM, leaf first); with --tls-private-key-file", texts.as_file, "F"),
    Flag("tls-private-key-file", "private key of the serving certificate (PEM, no password)", texts.as_file, "F"),
    switch("self-managed-certificates", "issue certificates from the webhook's own CA, which all replicas share"),
    Flag(
        "ca-secret",
        f"the Secret with that CA, filled if it is empty (default {CA_NAME} in --namespace)",
        texts.as_namespaced,
        "NS/NAME",
    ),
    Flag(
        "validating-webhook-configuration",
        f"configuration whose caBundle is kept up to date (default {PROGRAM})",
        texts.as_object_name,
        "NAME",
    ),
    Flag("mutating-webhook-configuration", f"the same for mutation (default {PROGRAM})", texts.as_object_name, "NAME"),
    Flag(
        "service",
        f"Service that API servers call; its DNS names go into the certificate (default {PROGRAM} in --namespace)",
        texts.as_service,
        "NS/NAME",
    ),
    Flag(
        "certificate-names",
        "more DNS names and IP addresses for the certificate, comma-separated",
        texts.as_host_names,
        "NAMES",
    ),
    Flag("ca-lifetime", "lifetime of a CA, such as 90d; renewed at two thirds (default 365d)", texts.as_lifetime, "T"),
    Flag(
        "certificate-lifetime",
        "lifetime of a serving certificate; renewed at two thirds (default 24h)",
        texts.as_lifetime,
        "T",
    ),
    Flag("client-ca-file", "require client certificates that these CAs signed", texts.as_file, "F"),
    Flag(
        "client-names",
        f"comma-separated names; a client certificate must have one, as CN or DNS name (default {_CLIENT_NAME})",
        texts.as_names,
        "NAMES",
    ),
    Flag(
        "tls-min-version",
        "minimum TLS version for reviews: VersionTLS12 or VersionTLS13",
        TLSVersion,
        "VERSION",
        TLSVersion.TLS12,
    ),
    Flag(
        "tls-cipher-suites",
        "comma-separated suites, as kube-apiserver names them; for TLS 1.2 only, since those of TLS 1.3 are fixed",
        texts.as_cipher_suites,
        "SUITES",
    ),
    *PROBES,
    Flag(
        "shutdown-delay",
        "seconds to keep serving after SIGTERM, not ready, until load balancers notice; 5 to 10 behind a Service",
        texts.as_seconds,
        "S",
        "0",
    ),
    LOG_FORMAT,
    switch("verbose", "log every review, including those without findings", "-v"),
)
_HERE: Final = "127.0.0.1"
_STANDALONE: Final = {
    "bind-address": _HERE,
    "health-probe-bind-address": f"{_HERE}:8081",
    "metrics-bind-address": f"{_HERE}:8080",
}
"""Defaults with --standalone: no one else has to reach a process on a laptop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(DaemonSettings):
    """The configuration of a `serve` process."""

    address: Address
    certificates: FileSettings | SelfManagedSettings
    shutdown_delay_seconds: float
    eviction_lease: NamespacedName | None
    """None without a cluster."""
    watch_pods: bool = False
    watch_patches: bool = False
    patch_account: str = ""
    """The user name of the patch controller; empty if there is none."""
    slice_attributes: bool = False
    client_names: tuple[str, ...] = ()
    """A client's certificate must have one of these; empty if no certificate is required."""
    tls_min_version: TLSVersion = TLSVersion.TLS12
    reviews: ReviewSettings = field(default_factory=ReviewSettings)


def serve_command_line(program: str) -> DaemonCommandLine:
    """Return the flags of `serve`."""
    return DaemonCommandLine(
        f"{program} serve",
        "Answers admission reviews over HTTPS: POST /validate and POST /mutate.",
        f"Each flag can also be set in the environment, such as {ENVIRONMENT_PREFIX}PORT for --port. On SIGTERM it"
        " becomes not ready, waits for the delay, closes the port and finishes requests in flight; a second SIGTERM"
        " cuts short what it waits for.",
        (
            "device-taint-webhook serve --standalone --cert-dir certs/dev --policy-file policy.yaml",
            "device-taint-webhook serve --self-managed-certificates --client-ca-file /etc/callers/ca.crt",
            "device-taint-webhook serve --kubeconfig kubeconfig.yaml --cert-dir certs/dev --log-format text -v",
        ),
        _SERVE,
    )


def parse_serve(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> ServeSettings:
    """Return the settings of `serve`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    line = serve_command_line(program)
    values = line.read(arguments, environment)
    standalone = values["standalone"]
    if standalone:
        values = line.read(arguments, environment, _STANDALONE)
    certificates = (_self_managed if values["self-managed-certificates"] else _certificate_files)(values)
    values.exclude("policy-configmap", "policy-file")
    values.exclude("standalone", "kubeconfig", "context", "policy-configmap", "eviction-lease")
    values.exclude("standalone", "watch-pods", "watch-patches", "patch-account", "slice-attributes")
    values.need("client-ca-file", "client-names")
    common = line.common(values)
    assert certificates is not None
    account, lease = values["patch-account"], values["eviction-lease"] or NamespacedName(values.namespace, WORKER)
    if account and ":" not in account:
        account = f"system:serviceaccount:{values.namespace}:{account}"
    return ServeSettings(
        **common | ({"cluster": None, "policy_config_map": None} if standalone else {}),
        address=Address(host=values["bind-address"].strip("[]"), port=values["port"]),
        certificates=certificates,
        shutdown_delay_seconds=values["shutdown-delay"],
        eviction_lease=None if standalone else lease,
        watch_pods=values["watch-pods"],
        watch_patches=values["watch-patches"] or values["slice-attributes"] or bool(account),
        patch_account=account or "",
        slice_attributes=values["slice-attributes"],
        client_names=(values["client-names"] or (_CLIENT_NAME,)) if values["client-ca-file"] else (),
        tls_min_version=values["tls-min-version"],
    )


def _self_managed(values: Values) -> SelfManagedSettings:
    """Return a CA in a Secret, and the webhook configurations that must trust it."""
    values.exclude("self-managed-certificates", "cert-dir", "tls-cert-file", "tls-private-key-file")
    values.exclude("standalone", "self-managed-certificates")
    ca_lifetime = values["ca-lifetime"] or timedelta(days=365)
    leaf_lifetime = values["certificate-lifetime"] or min(timedelta(hours=24), ca_lifetime / 4)
    if leaf_lifetime * 4 > ca_lifetime:
        shown = f"{leaf_lifetime.total_seconds():g}s"
        values.refuse("--certificate-lifetime", shown, "must be at most a quarter of --ca-lifetime")
    service = values["service"] or NamespacedName(values.namespace, PROGRAM)
    name = f"{service.name}.{service.namespace}"
    return SelfManagedSettings(
        secret=values["ca-secret"] or NamespacedName(values.namespace, CA_NAME),
        validating_configuration=values["validating-webhook-configuration"] or PROGRAM,
        mutating_configuration=values["mutating-webhook-configuration"] or PROGRAM,
        names=(*(f"{name}.svc", f"{name}.svc.cluster.local", name, service.name), *(values["certificate-names"] or ())),
        client_ca_file=values["client-ca-file"],
        cipher_suites=_tls12_suites(values),
        ca_lifetime=ca_lifetime,
        leaf_lifetime=leaf_lifetime,
    )


def _certificate_files(values: Values) -> FileSettings | None:
    """Return the two files, from the folder or one by one; None if one is missing."""
    own_ca = "self-managed-certificates"
    values.need(own_ca, "ca-secret", "validating-webhook-configuration", "mutating-webhook-configuration")
    values.need(own_ca, "service", "certificate-names", "ca-lifetime", "certificate-lifetime")
    folder, certificate, key = values["cert-dir"], values["tls-cert-file"], values["tls-private-key-file"]
    if certificate is None and key is None:
        if folder is None:
            values.require(
                "--cert-dir",
                "or --tls-cert-file and --tls-private-key-file, or --self-managed-certificates; see certs/README.md",
            )
            return None
        certificate, key = folder / "tls.crt", folder / "tls.key"
    elif folder is not None:
        values.refuse("--cert-dir", str(folder), "may not be given together with --tls-cert-file and its key")
    else:
        values.need("tls-cert-file", "tls-private-key-file")
        values.need("tls-private-key-file", "tls-cert-file")
    if certificate is None or key is None:
        return None
    return FileSettings(
        certificate_file=certificate,
        key_file=key,
        client_ca_file=values["client-ca-file"],
        cipher_suites=_tls12_suites(values),
    )


def _tls12_suites(values: Values) -> tuple[str, ...]:
    """Return the requested TLS 1.2 suites; those of TLS 1.3 are always enabled, so naming them changes nothing."""
    names = values["tls-cipher-suites"] or ()
    suites = tuple(name for name in names if name in CIPHER_SUITES)
    if names and not suites and values["tls-min-version"] is TLSVersion.TLS12:
        detail = "must have a suite of TLS 1.2, unless --tls-min-version=VersionTLS13"
        values.refuse("--tls-cipher-suites", ",".join(names), detail)
    return suites
