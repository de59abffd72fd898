"""Flags and environment to frozen settings. Each room has its own settings class; this composes them.

Every flag can also be given as `DEVICE_TAINT_WEBHOOK_<FLAG>`; the command line wins. Nothing reads the environment
after this.
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from webhook.api.field import JSON, FieldError, Path, invalid, not_supported, required
from webhook.certificates.settings import FileSettings
from webhook.cluster.settings import ClusterSettings
from webhook.server.settings import Address, ListenerSettings, ReviewSettings
from webhook.telemetry.logs import LogFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ENVIRONMENT_PREFIX: Final = "DEVICE_TAINT_WEBHOOK_"
_HIGHEST_PORT: Final = 65535
_LONGEST_DELAY_SECONDS: Final = 3600.0
_NAMESPACE: Final = "device-taint-webhook"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})


class NamespacedName(NamedTuple):
    """The name of an object in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ConfigError(Exception):
    """Flags or environment that make no sense: every fault, one a line, in the style of field errors."""

    def __init__(self, errors: Sequence[FieldError | str]) -> None:
        super().__init__("\n".join(str(error) for error in errors))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Everything that `serve` is told when it starts."""

    address: Address
    certificates: FileSettings
    health_address: Address | None
    """None switches the port off; likewise for metrics."""
    metrics_address: Address | None
    shutdown_delay_seconds: float
    cluster: ClusterSettings | None
    """None without a cluster."""
    policy_file: FilePath | None
    policy_config_map: NamespacedName | None
    key_file: FilePath | None
    key_secret: NamespacedName | None
    log_format: LogFormat
    verbose: bool
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    reviews: ReviewSettings = field(default_factory=ReviewSettings)


@dataclass(frozen=True, slots=True)
class _Flag:
    """One flag of `serve`. `parse` raises ValueError with what would be right."""

    name: str
    help: str
    parse: Callable[[str], Any]
    default: str | None = None
    metavar: str = ""
    short: str = ""

    @property
    def option(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_")


def _text(text: str) -> str:
    return text


def _file(text: str) -> FilePath:
    if not text:
        raise ValueError("must be a path")
    return FilePath(text)


def _switch(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("must be true or false")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _HIGHEST_PORT:
        raise ValueError(f"must be between 0 and {_HIGHEST_PORT}")
    return int(text)


def _address(text: str) -> Address | None:
    """`host:port`, `:port` for every interface, `[::1]:port`; `0` for none, as in controller-runtime."""
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port or (":" in host and not bracketed):
        raise ValueError('must be "host:port", ":port", "[address]:port", or "0" for none')
    return Address(host=host[1:-1] if bracketed else host, port=_port(port))


def _namespaced(text: str) -> NamespacedName:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ValueError('must be "namespace/name"')
    return NamespacedName(namespace, name)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_DELAY_SECONDS:
        raise ValueError(f"must be a number of seconds between 0 and {_LONGEST_DELAY_SECONDS:g}")
    return seconds


_SERVE_FLAGS: Final = (
    _Flag(
        "standalone",
        "answer without a cluster: field rules, defaulting, and policy from --policy-file",
        _switch,
        "false",
    ),
    _Flag("kubeconfig", "how to reach the cluster; the pod's service account unless given", _file, None, "F"),
    _Flag("policy-file", "the policy, read again when it changes; instead of the ConfigMap", _file, None, "F"),
    _Flag(
        "policy-configmap",
        f"the ConfigMap with policy.yaml (default {_NAMESPACE}/device-taint-webhook-policy)",
        _namespaced,
        None,
        "NS/NAME",
    ),
    _Flag("key-file", "the key that signs the authors of templates; instead of the Secret", _file, None, "F"),
    _Flag(
        "key-secret",
        f"the Secret with that key, filled if it is empty (default {_NAMESPACE}/device-taint-webhook-key)",
        _namespaced,
        None,
        "NS/NAME",
    ),
    _Flag("bind-address", "address to listen on; every interface unless given", _text, "", "A"),
    _Flag("port", "port for reviews; 0 picks a free one and logs it", _port, "9443", "N"),
    _Flag("cert-dir", "folder with tls.crt and tls.key, in the shape of a kubernetes.io/tls Secret", _file, None, "D"),
    _Flag("tls-cert-file", "serving certificate (PEM, leaf first); with --tls-private-key-file", _file, None, "F"),
    _Flag("tls-private-key-file", "its private key (PEM, no password)", _file, None, "F"),
    _Flag("client-ca-file", "ask clients for a certificate, and take only those signed by these CAs", _file, None, "F"),
    _Flag("health-probe-bind-address", "where /livez and /readyz are served; 0 for nowhere", _address, ":8081", "A"),
    _Flag("metrics-bind-address", "where /metrics is served; 0 for nowhere", _address, ":8080", "A"),
    _Flag(
        "shutdown-delay",
        "seconds to go on serving after SIGTERM, not ready, while load balancers take notice; 5 to 10 behind a Service",
        _seconds,
        "0",
        "S",
    ),
    _Flag("log-format", "json or text", LogFormat, LogFormat.JSON.value, "FORMAT"),
    _Flag("verbose", "log every review, also those that simply pass", _switch, "false", short="-v"),
)


class _Parser(argparse.ArgumentParser):
    """argparse, with its complaints raised rather than printed."""

    def error(self, message: str) -> NoReturn:
        """A command line that argparse cannot read."""
        raise ConfigError([message])


def parse_serve(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> ServeSettings:
    """The settings of `serve`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    given = vars(_serve_parser(program).parse_args(arguments))
    errors: list[FieldError] = []
    values = {flag.name: _value(flag, given[flag.name], environment, errors) for flag in _SERVE_FLAGS}
    certificates = _certificates(values, errors)
    sources = _sources(values, errors)
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
    )


def _serve_parser(program: str) -> _Parser:
    parser = _Parser(
        prog=f"{program} serve",
        description="Answers admission reviews over HTTPS: POST /validate and POST /mutate.",
        epilog=textwrap.fill(
            f"Each flag can also be given in the environment, as {ENVIRONMENT_PREFIX}PORT for --port. SIGTERM stops"
            " in order: not ready, the delay, no new connections, requests in flight finish; a second one at once.",
            width=100,
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for flag in _SERVE_FLAGS:
        names = [flag.short, flag.option] if flag.short else [flag.option]
        if flag.parse is _switch:
            parser.add_argument(*names, dest=flag.name, action="store_const", const="true", help=flag.help)
        else:
            told = f"{flag.help} (default {flag.default})" if flag.default else flag.help
            parser.add_argument(*names, dest=flag.name, metavar=flag.metavar, help=told)
    return parser


def _value(flag: _Flag, given: str | None, environment: Mapping[str, str], errors: list[FieldError]) -> Any:
    """A flag's value from the command line, the environment or its default; None if there is none or it is wrong."""
    source, text = flag.option, given
    if text is None:
        source, text = flag.variable, environment.get(flag.variable)
    if text is None:
        text = flag.default
    if text is None:
        return None
    try:
        return flag.parse(text)
    except ValueError as error:
        errors.append(_wrong(source, flag, text, error))
        return None


def _wrong(source: str, flag: _Flag, text: str, error: ValueError) -> FieldError:
    if flag.parse is LogFormat:
        return not_supported(_at(source), text, LogFormat)
    value: JSON = int(text) if text.isascii() and text.lstrip("-").isdigit() else text
    return invalid(_at(source), value, str(error))


def _sources(values: Mapping[str, Any], errors: list[FieldError]) -> dict[str, Any]:
    """Where the policy and the key come from: a file, or an object of the cluster."""
    standalone = values["standalone"]
    for one, other in (("policy-file", "policy-configmap"), ("key-file", "key-secret")):
        if values[one] is not None and values[other] is not None:
            errors.append(invalid(_at(f"--{one}"), str(values[one]), f"may not be given together with --{other}"))
    if standalone:
        errors.extend(
            invalid(_at(f"--{name}"), str(values[name]), "may not be given together with --standalone")
            for name in ("kubeconfig", "policy-configmap", "key-secret")
            if values[name] is not None
        )
    in_cluster = not standalone
    config_map = NamespacedName(_NAMESPACE, "device-taint-webhook-policy") if in_cluster else None
    secret = NamespacedName(_NAMESPACE, "device-taint-webhook-key") if in_cluster else None
    return {
        "cluster": ClusterSettings(kubeconfig=values["kubeconfig"]) if in_cluster else None,
        "policy_file": values["policy-file"],
        "policy_config_map": None if values["policy-file"] else values["policy-configmap"] or config_map,
        "key_file": values["key-file"],
        "key_secret": None if values["key-file"] else values["key-secret"] or secret,
    }


def _certificates(values: Mapping[str, Any], errors: list[FieldError]) -> FileSettings | None:
    """The two files, from the folder or one by one."""
    folder, certificate, key = values["cert-dir"], values["tls-cert-file"], values["tls-private-key-file"]
    if folder is not None and (certificate is not None or key is not None):
        errors.append(
            invalid(_at("--cert-dir"), str(folder), "may not be given together with --tls-cert-file and its key")
        )
    elif folder is not None:
        certificate, key = folder / "tls.crt", folder / "tls.key"
    elif certificate is None and key is None:
        errors.append(required(_at("--cert-dir"), "or --tls-cert-file and --tls-private-key-file; see certs/README.md"))
    elif certificate is None:
        errors.append(required(_at("--tls-cert-file"), "must come with --tls-private-key-file"))
    elif key is None:
        errors.append(required(_at("--tls-private-key-file"), "must come with --tls-cert-file"))
    if certificate is None or key is None:
        return None
    return FileSettings(certificate_file=certificate, key_file=key, client_ca_file=values["client-ca-file"])


def _at(name: str) -> Path:
    return Path(None, name)
