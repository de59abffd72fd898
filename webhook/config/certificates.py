"""Where the serving certificate comes from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from webhook.api.field import FieldError, invalid, required
from webhook.api.meta import NamespacedName
from webhook.api.names import CA_NAME, PROGRAM
from webhook.certificates.settings import CIPHER_SUITES, FileSettings, SelfManagedSettings, TLSVersion
from webhook.config.flags import flag_path

CONFIGURATIONS: Final = PROGRAM
"""The name of both webhook configurations."""
_SELF_MANAGED_FLAGS: Final = (
    "ca-secret",
    "validating-webhook-configuration",
    "mutating-webhook-configuration",
    "service",
    "certificate-names",
    "ca-lifetime",
    "certificate-lifetime",
)


def certificates_of(
    values: Mapping[str, Any], namespace: str, errors: list[FieldError]
) -> FileSettings | SelfManagedSettings | None:
    """Files, or a CA of our own, whose Secret and Service are in `namespace` unless flags say otherwise."""
    if values["self-managed-certificates"]:
        return _self_managed(values, namespace, errors)
    errors.extend(
        required(flag_path("--self-managed-certificates"), f"must come with --{name}")
        for name in _SELF_MANAGED_FLAGS
        if values[name] is not None
    )
    return _certificate_files(values, errors)


def _self_managed(values: Mapping[str, Any], namespace: str, errors: list[FieldError]) -> SelfManagedSettings:
    """A CA in a Secret, and the webhook configurations that must trust it."""
    own = "--self-managed-certificates"
    errors.extend(
        invalid(flag_path(f"--{name}"), str(values[name]), f"may not be given together with {own}")
        for name in ("cert-dir", "tls-cert-file", "tls-private-key-file")
        if values[name] is not None
    )
    if values["standalone"]:
        errors.append(invalid(flag_path(own), True, "may not be given together with --standalone"))  # noqa: FBT003 -- a value
    ca_lifetime = values["ca-lifetime"] or timedelta(days=365)
    leaf_lifetime = values["certificate-lifetime"] or min(timedelta(hours=24), ca_lifetime / 4)
    if leaf_lifetime * 4 > ca_lifetime:
        detail = "must be at most a quarter of --ca-lifetime"
        errors.append(invalid(flag_path("--certificate-lifetime"), f"{leaf_lifetime.total_seconds():g}s", detail))
    service = values["service"] or NamespacedName(namespace, PROGRAM)
    name = f"{service.name}.{service.namespace}"
    return SelfManagedSettings(
        secret=values["ca-secret"] or NamespacedName(namespace, CA_NAME),
        validating_configuration=values["validating-webhook-configuration"] or CONFIGURATIONS,
        mutating_configuration=values["mutating-webhook-configuration"] or CONFIGURATIONS,
        names=(*(f"{name}.svc", f"{name}.svc.cluster.local", name, service.name), *(values["certificate-names"] or ())),
        client_ca_file=values["client-ca-file"],
        cipher_suites=_tls12_suites(values, errors),
        ca_lifetime=ca_lifetime,
        leaf_lifetime=leaf_lifetime,
    )


def _certificate_files(values: Mapping[str, Any], errors: list[FieldError]) -> FileSettings | None:
    """The two files, from the folder or one by one."""
    folder, certificate, key = values["cert-dir"], values["tls-cert-file"], values["tls-private-key-file"]
    if folder is not None and (certificate is not None or key is not None):
        errors.append(
            invalid(flag_path("--cert-dir"), str(folder), "may not be given together with --tls-cert-file and its key")
        )
    elif folder is not None:
        certificate, key = folder / "tls.crt", folder / "tls.key"
    elif certificate is None and key is None:
        errors.append(
            required(
                flag_path("--cert-dir"),
                "or --tls-cert-file and --tls-private-key-file, or --self-managed-certificates; see certs/README.md",
            )
        )
    elif certificate is None:
        errors.append(required(flag_path("--tls-cert-file"), "must come with --tls-private-key-file"))
    elif key is None:
        errors.append(required(flag_path("--tls-private-key-file"), "must come with --tls-cert-file"))
    if certificate is None or key is None:
        return None
    return FileSettings(
        certificate_file=certificate,
        key_file=key,
        client_ca_file=values["client-ca-file"],
        cipher_suites=_tls12_suites(values, errors),
    )


def _tls12_suites(values: Mapping[str, Any], errors: list[FieldError]) -> tuple[str, ...]:
    """The requested TLS 1.2 suites; those of TLS 1.3 are always enabled, so naming them changes nothing."""
    names = values["tls-cipher-suites"] or ()
    suites = tuple(name for name in names if name in CIPHER_SUITES)
    if names and not suites and values["tls-min-version"] is TLSVersion.TLS12:
        detail = "must have a suite of TLS 1.2, unless --tls-min-version=VersionTLS13"
        errors.append(invalid(flag_path("--tls-cipher-suites"), ",".join(names), detail))
    return suites
