"""Settings of daemons: flags that the environment can give as well, their values, and those that all daemons have."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import EnumType
from pathlib import Path as FilePath
from typing import Any, Final, NoReturn

from webhook.api.field import JSON, FieldError, Path, invalid, not_supported, required
from webhook.api.meta import NamespacedName
from webhook.api.names import OWN_NAMESPACE, POLICY_NAME
from webhook.cluster.settings import ClusterSettings
from webhook.config import texts
from webhook.config.command_line import CommandLine
from webhook.server.settings import Address, ListenerSettings
from webhook.telemetry.logs import LogFormat

ENVIRONMENT_PREFIX: Final = "DEVICE_TAINT_WEBHOOK_"
_SERVICE_LINK: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)$"
)
"""What a kubelet sets in each container for each Service, unless the pod has enableServiceLinks: false."""
_SERVICE_LINK_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")


class ConfigError(Exception):
    """Invalid flags or environment variables: every fault, one a line, in the style of field errors."""

    def __init__(self, errors: Sequence[FieldError | str]) -> None:
        super().__init__("\n".join(map(str, errors)))


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag, which a variable can stand in for. `parse` raises ValueError with what would be right."""

    name: str
    help: str
    parse: Callable[[str], Any]
    metavar: str = ""
    default: str | None = None
    short: str = ""
    but: str = ""
    """Of an enumeration, the value that cannot be given."""

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_")

    @property
    def choices(self) -> tuple[str, ...]:
        """All values, if they are those of an enumeration."""
        values: tuple[str, ...] = tuple(self.parse) if isinstance(self.parse, EnumType) else ()
        return tuple(each for each in values if each != self.but)


def switch(name: str, text: str, short: str = "") -> Flag:
    """Return a flag without a value, which is on or off."""
    return Flag(name, text, texts.as_switch, default="false", short=short)


CLUSTER: Final = (
    Flag(
        "kubeconfig",
        "kubeconfig of the cluster; default: the pod's service account, else $KUBECONFIG or ~/.kube/config",
        texts.as_file,
        "F",
    ),
    Flag("context", "context of the kubeconfig; default: its current context", str, "C"),
    Flag(
        "namespace",
        f"namespace of the webhook's own objects; default: the pod's namespace, else {OWN_NAMESPACE}",
        texts.as_namespace,
        "NS",
    ),
)
POLICY: Final = (
    Flag("policy-file", "policy file, reloaded when it changes; instead of the ConfigMap", texts.as_file, "F"),
    Flag(
        "policy-configmap",
        f"the ConfigMap with policy.yaml (default {POLICY_NAME} in --namespace)",
        texts.as_namespaced,
        "NS/NAME",
    ),
)
PROBES: Final = (
    Flag("health-probe-bind-address", "address of /livez and /readyz; 0 disables them", texts.as_address, "A", ":8081"),
    Flag("metrics-bind-address", "address of /metrics; 0 disables it", texts.as_address, "A", ":8080"),
)
LOG_FORMAT: Final = Flag("log-format", "json or text", LogFormat, "FORMAT", LogFormat.JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """Settings that all daemons have."""

    cluster: ClusterSettings | None
    """None without a cluster."""
    policy_file: FilePath | None
    policy_config_map: NamespacedName | None
    """None if the policy is in a file, or nowhere."""
    health_address: Address | None
    """None disables the port; the same for metrics."""
    metrics_address: Address | None
    log_format: LogFormat
    verbose: bool
    listener: ListenerSettings = field(default_factory=ListenerSettings)
    unknown_variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with our prefix that nothing reads, each with the most similar known one, or empty."""


class Values(dict[str, Any]):
    """Values of flags by name, None for those without one, and all that is wrong with them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__()
        self.environment = environment
        self.errors: list[FieldError] = []

    @property
    def namespace(self) -> str:
        """The namespace that defaults of other flags are in."""
        return self["namespace"] or texts.own_namespace(self.environment)

    def parse(self, flag: Flag, given: str | None, default: str | None) -> None:
        """Add the value from the command line, the environment or by default, and what is wrong with it."""
        source, text, self[flag.name] = f"--{flag.name}", given, None
        if text is None:
            source, text = flag.variable, self.environment.get(flag.variable)
            # --port shares its variable with the address of a Service of this product's name
            if text is None or _SERVICE_LINK_VALUE.match(text):
                text = default
        try:
            if text is not None:
                self[flag.name] = flag.parse("" if flag.but == text else text)
        except ValueError as error:
            if flag.choices:
                self.errors.append(not_supported(Path(None, source), text, flag.choices))
            else:
                number = re.fullmatch(r"-?[0-9]{1,99}", text or "")  # Python reads no number of 5,000 digits
                self.refuse(source, int(number[0]) if number else text, str(error))

    def refuse(self, source: str, value: JSON, detail: str) -> None:
        """Add an error for the value of a flag, or of a variable."""
        self.errors.append(invalid(Path(None, source), value, detail))

    def require(self, flag: str, detail: str) -> None:
        """Add an error for a flag that is missing."""
        self.errors.append(required(Path(None, flag), detail))

    def has(self, name: str) -> bool:
        """Return whether a flag has a value, and is not a switch that is off."""
        return self[name] is not None and self[name] is not False

    def exclude(self, name: str, *others: str) -> None:
        """Refuse all others if a flag has a value."""
        for other in filter(self.has, others if self.has(name) else ()):
            value = self[other] if self[other] is True else str(self[other])
            self.refuse(f"--{other}", value, f"may not be given together with --{name}")

    def need(self, name: str, *others: str) -> None:
        """Require a flag if one of the others has a value."""
        for other in filter(self.has, () if self.has(name) else others):
            self.require(f"--{name}", f"must come with --{other}")


class DaemonCommandLine(CommandLine):
    """A command line that raises its errors. The last of several values wins: overlays append flags to a Deployment."""

    last_wins = True

    def __init__(
        self, program: str, description: str, end: str, examples: Sequence[str], flags: Sequence[Flag]
    ) -> None:
        super().__init__(program, description, end, examples)
        self._flags = flags
        for each in flags:
            self.variables[each.name] = each.variable
            self.values[each.name] = each.choices
            names = [each.short, f"--{each.name}"] if each.short else [f"--{each.name}"]
            if each.parse is texts.as_switch:
                self.add_argument(*names, dest=each.name, action="store_const", const="true", help=each.help)
            else:
                text = f"{each.help} (default {each.default})" if each.default else each.help
                self.add_argument(*names, dest=each.name, metavar=each.metavar, help=text)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError for a command line that cannot be parsed."""
        raise ConfigError([message])

    def read(
        self, arguments: Sequence[str], environment: Mapping[str, str], defaults: Mapping[str, str] | None = None
    ) -> Values:
        """Return the values of the flags, some of which may have other defaults. `--help` raises SystemExit."""
        given, values = vars(self.parse_args(arguments)), Values(environment)
        for each in self._flags:
            values.parse(each, given[each.name], (defaults or {}).get(each.name, each.default))
        return values

    def common(self, values: Values) -> dict[str, Any]:
        """Return the fields of DaemonSettings. Raises ConfigError if anything is wrong with the values."""
        if values.errors:
            raise ConfigError(values.errors)
        config_map = values["policy-configmap"] or texts.policy_config_map(values.namespace)
        return {
            "cluster": ClusterSettings(kubeconfig=values["kubeconfig"], context=values["context"]),
            "policy_file": values["policy-file"],
            "policy_config_map": None if values["policy-file"] else config_map,
            "health_address": values["health-probe-bind-address"],
            "metrics_address": values["metrics-bind-address"],
            "log_format": values["log-format"],
            "verbose": values["verbose"],
            "unknown_variables": self._unknown(values.environment),
        }

    def _unknown(self, environment: Mapping[str, str]) -> dict[str, str]:
        ours = {name.removeprefix(ENVIRONMENT_PREFIX) for name in self.variables.values()}
        unknown = {}
        for name in sorted(environment):
            word = name.removeprefix(ENVIRONMENT_PREFIX)
            if word != name and word not in ours and not _SERVICE_LINK.search(name):
                meant = difflib.get_close_matches(word, ours, n=1, cutoff=0.8)
                unknown[name] = ENVIRONMENT_PREFIX + meant[0] if meant else ""
        return unknown
