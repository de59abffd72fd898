"""Flags, the command lines that they make up, and their values, also from the environment."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn

from webhook.api.field import JSON, FieldError, Path, invalid, not_supported
from webhook.config.command_line import CommandLine
from webhook.config.texts import as_switch

ENVIRONMENT_PREFIX: Final = "DEVICE_TAINT_WEBHOOK_"
_OTHERS: Final = frozenset({f"{ENVIRONMENT_PREFIX}NAMESPACE"})
"""Variables that are read although they have no flag."""
_SERVICE_LINK: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)$"
)
"""What a kubelet sets in each container for each Service, unless the pod has enableServiceLinks: false."""
_SERVICE_LINK_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")


class ConfigError(Exception):
    """Invalid flags or environment variables: every fault, one a line, in the style of field errors."""

    def __init__(self, errors: Sequence[FieldError | str]) -> None:
        super().__init__("\n".join(str(error) for error in errors))


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a command. `parse` raises ValueError with what would be right."""

    name: str
    help: str
    parse: Callable[[str], Any]
    default: str | None = None
    metavar: str = ""
    short: str = ""

    @property
    def option(self) -> str:
        """As it is typed."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_")


class DaemonCommandLine(CommandLine):
    """A command line that raises its errors. The last of several values wins: overlays append flags to a Deployment."""

    last_wins = True

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError for a command line that cannot be parsed."""
        raise ConfigError([message])


def daemon_command_line(
    program: str, description: str, end: str, flags: Sequence[Flag], examples: Sequence[str]
) -> DaemonCommandLine:
    """The command line of a verb."""
    parser = DaemonCommandLine(program, description, end, examples)
    for flag in flags:
        parser.variables[flag.name] = flag.variable
        if isinstance(flag.parse, type) and issubclass(flag.parse, StrEnum):
            parser.values[flag.name] = tuple(flag.parse)
        names = [flag.short, flag.option] if flag.short else [flag.option]
        if flag.parse is as_switch:
            parser.add_argument(*names, dest=flag.name, action="store_const", const="true", help=flag.help)
        else:
            text = f"{flag.help} (default {flag.default})" if flag.default else flag.help
            parser.add_argument(*names, dest=flag.name, metavar=flag.metavar, help=text)
    return parser


def value_of(flag: Flag, given: str | None, environment: Mapping[str, str], errors: list[FieldError]) -> Any:
    """A flag's value from the command line, the environment or its default; None if there is none or it is wrong."""
    source, text = flag.option, given
    if text is None:
        source, text = flag.variable, environment.get(flag.variable)
        # --port shares its variable with the address of a Service of this product's name
        if text is not None and _SERVICE_LINK_VALUE.match(text):
            text = None
    if text is None:
        text = flag.default
    if text is None:
        return None
    try:
        return flag.parse(text)
    except ValueError as error:
        errors.append(_flag_error(source, flag, text, error))
        return None


def _flag_error(source: str, flag: Flag, text: str, error: ValueError) -> FieldError:
    if isinstance(flag.parse, type) and issubclass(flag.parse, StrEnum):
        return not_supported(flag_path(source), text, flag.parse)
    value: JSON = int(text) if text.isascii() and text.lstrip("-").isdigit() else text
    return invalid(flag_path(source), value, str(error))


def flag_path(name: str) -> Path:
    """A flag or variable as the path of a field error."""
    return Path(None, name)


def unknown_variables(environment: Mapping[str, str], flags: Iterable[Flag]) -> dict[str, str]:
    """Variables with our prefix that nothing reads, each with the one that was most likely meant, or an empty text."""
    ours = {name.removeprefix(ENVIRONMENT_PREFIX) for name in (*(flag.variable for flag in flags), *_OTHERS)}
    unknown = {}
    for name in sorted(environment):
        word = name.removeprefix(ENVIRONMENT_PREFIX)
        if word != name and word not in ours and not _SERVICE_LINK.search(name):
            meant = difflib.get_close_matches(word, ours, n=1, cutoff=0.8)
            unknown[name] = ENVIRONMENT_PREFIX + meant[0] if meant else ""
    return unknown
