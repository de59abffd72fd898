"""Suggestions for a command line that is being typed, by the protocol of cobra, which kubectl speaks with plugins.

kubectl calls `kubectl_complete-dtaint` with the words after the plugin's name, of which the last is what has been typed
so far. The answer has a suggestion a line, with its description after a tab, and in the last line a directive.
Source: k8s.io/kubectl/pkg/cmd/plugin/plugin_completion.go, github.com/spf13/cobra/completions.go (`__complete`).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.commands.verbs import CLUSTER_FLAGS, VERBS, command_line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from webhook.config.command_line import CommandLine

    NamesOf = Callable[[str, argparse.Namespace], Sequence[str]]
    """Names in a cluster by what they name (rules, pods, nodes, ...), given the flags that say which cluster."""

_PATHS: Final = frozenset({"F", "D", "FILE", "DIR|FILE", "FILE|DIR|-"})
"""Words in the help for values that are files or folders."""
FILES: Final = 0
"""The directive that lets the shell complete files, where nothing is suggested."""
NO_FILES: Final = 4
_NAMES_OF_CLUSTER: Final[Mapping[str, str]] = {
    "status": "rules",
    "taint": "devices",
    "untaint": "devices",
    "drain": "nodes",
}
"""What verbs take, if they are there."""
_EXPLAINED: Final[Mapping[str, str]] = {"pod": "pods", "claim": "claims", "device": "devices", "rule": "rules"}
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "completion": ("bash", "fish", "zsh"),
    "schema": ("policy", "suite"),
    "diff": ("live",),
}
_GLOBAL: Final = (*sorted(CLUSTER_FLAGS.values()), "--namespace")


class _FlagOption(NamedTuple):
    """A flag: its names, the values to choose from, and whether it takes a value or a path."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    takes_value: bool
    takes_path: bool
    help: str


def _options_of(parser: CommandLine) -> Iterator[_FlagOption]:
    for action in parser._actions:  # noqa: SLF001 -- argparse has no other way to list them
        if action.option_strings:
            choices = parser.values.get(action.dest, ()) or tuple(map(str, action.choices or ()))
            metavar = action.metavar if isinstance(action.metavar, str) else ""
            names = tuple(action.option_strings)
            yield _FlagOption(names, choices, action.nargs != 0, metavar in _PATHS, action.help or "")


class Suggestions(NamedTuple):
    """Words with their descriptions, and what the shell may do beside them."""

    words: tuple[tuple[str, str], ...] = ()
    directive: int = NO_FILES

    def __str__(self) -> str:
        lines = [f"{word}\t{text}" if text else word for word, text in self.words if word.isprintable()]
        return "\n".join([*lines, f":{self.directive}"]) + "\n"


def suggestions_for(words: Sequence[str], names_of: NamesOf) -> Suggestions:
    """What may stand for the last word. `names_of` is asked for names in the cluster, and returns none on any error."""
    *before, current = words or ("",)
    verb, rest = _verb_in(before)
    if verb is None:
        return _verbs(current, before, names_of)
    if verb not in VERBS:
        return Suggestions()
    options = tuple(_options_of(command_line_of(verb)))
    flag, equals, value = current.partition("=")
    if current.startswith("--") and equals:
        found = _values(_option(options, flag), value, before, names_of)
        return found._replace(words=tuple((f"{flag}={word}", text) for word, text in found.words))
    waiting = _option(options, rest[-1]) if rest else None
    if waiting is not None and waiting.takes_value:
        return _values(waiting, current, before, names_of)
    if current.startswith("-"):
        return _starting(current, ((name, option.help) for option in options for name in option.names))
    return _positional(verb, _positions(rest, options), current, before, names_of)


def _starting(current: str, words: Iterable[tuple[str, str]]) -> Suggestions:
    """Words with descriptions, of which those count that begin with what has been typed."""
    return Suggestions(tuple((word, " ".join(text.split())) for word, text in words if word.startswith(current)))


def _plain(current: str, words: Iterable[str], directive: int = NO_FILES) -> Suggestions:
    return _starting(current, ((word, "") for word in words))._replace(directive=directive)


def _verb_in(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The verb, if there is one already, and what follows it; kubectl's global flags may stand before it."""
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-"):
            return word, list(words[at + 1 :])
        at += 1 if "=" in word else 2
    return None, []


def _verbs(current: str, before: Sequence[str], names_of: NamesOf) -> Suggestions:
    if before and before[-1] in (*_GLOBAL, "-n"):
        return _cluster_flag(before[-1], current, before, names_of)
    if current.startswith("-"):
        return _plain(current, [*_GLOBAL, "--help", "--version"])
    return _starting(current, VERBS.items())


# --- values of flags ----------------------------------------------------------------------------


def _option(options: Sequence[_FlagOption], name: str) -> _FlagOption | None:
    return next((each for each in options if name in each.names), None)


def _values(option: _FlagOption | None, current: str, before: Sequence[str], names_of: NamesOf) -> Suggestions:
    """The values of a flag: its choices, names in the cluster, or files."""
    if option is None:
        return Suggestions()
    if option.choices:
        return _plain(current, option.choices)
    if option.takes_path:
        return Suggestions(directive=FILES)
    return _cluster_flag(option.names[-1], current, before, names_of)


def _cluster_flag(flag: str, current: str, before: Sequence[str], names_of: NamesOf) -> Suggestions:
    kinds = {"--context": "contexts", "--namespace": "namespaces", "-n": "namespaces"}
    if flag == "--kubeconfig":
        return Suggestions(directive=FILES)
    return _plain(current, names_of(kinds[flag], cluster_flags(before))) if flag in kinds else Suggestions()


def cluster_flags(words: Sequence[str]) -> argparse.Namespace:
    """The flags for cluster, user and namespace in a command line that is not complete; None where not given."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-n", "--namespace", nargs="?")
    for name, flag in CLUSTER_FLAGS.items():
        parser.add_argument(flag, dest=name, nargs="?", action="append" if name == "as_group" else "store")
    try:
        found, _ = parser.parse_known_args(list(words))
    except (argparse.ArgumentError, SystemExit):
        found, _ = parser.parse_known_args([])
    return found


# --- arguments ----------------------------------------------------------------------------------


def _positions(words: Sequence[str], options: Sequence[_FlagOption]) -> list[str]:
    """The arguments among words: neither flags nor their values."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            option = _option(options, word)
            skip = option is not None and option.takes_value
        else:
            found.append(word)
    return found


def _positional(verb: str, given: Sequence[str], current: str, before: Sequence[str], names_of: NamesOf) -> Suggestions:
    """What an argument of a verb may be."""
    if verb == "explain":
        kind = _EXPLAINED.get(given[0]) if len(given) == 1 else None
        if kind is not None:
            return _plain(current, names_of(kind, cluster_flags(before)))
        return _plain(current, () if given else _EXPLAINED, FILES)
    if verb in _NAMES_OF_CLUSTER:
        known = [name for name in names_of(_NAMES_OF_CLUSTER[verb], cluster_flags(before)) if name not in given]
        return _plain(current, known)
    if verb in _WORDS:
        return _plain(current, _WORDS[verb], FILES if verb == "diff" else NO_FILES)
    takes_arguments = any(not action.option_strings for action in command_line_of(verb)._actions)  # noqa: SLF001 -- no other way
    return Suggestions(directive=FILES if takes_arguments else NO_FILES)
