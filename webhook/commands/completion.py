"""Completion in a shell: scripts that ask this program for suggestions, and the suggestions, by the protocol of cobra.

kubectl speaks it with plugins, too: it calls `kubectl_complete-dtaint` with the words after the plugin's name; the last
is what has been typed so far. The answer has a suggestion a line, with its description after a tab, and in the last
line a directive.
Source: k8s.io/kubectl/pkg/cmd/plugin/plugin_completion.go, github.com/spf13/cobra/completions.go (`__complete`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.api.names import PROGRAM
from webhook.commands.shared.output import write
from webhook.commands.verbs import ANYWHERE, CLUSTER_FLAGS, VERBS, command_line_of, verb_first
from webhook.config.command_line import CommandLine, program

_PLUGIN: Final = "kubectl-dtaint"
_BASH: Final = f"""\
# bash completion for {PROGRAM} and {_PLUGIN}: source <({PROGRAM} completion bash)
_device_taint_webhook() {{
    local line word flag="" words=()
    # bash splits --flag=value at the equals sign
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD}}"; do
        if [ "$word" = "=" ]; then flag="${{words[${{#words[@]}}-1]}}="; words[${{#words[@]}}-1]="$flag"
        elif [ -n "$flag" ]; then words[${{#words[@]}}-1]="$flag$word"; flag=""
        else words[${{#words[@]}}]="$word"; fi
    done
    word="${{words[${{#words[@]}}-1]}}"
    case "$word" in --*=*) flag="${{word%%=*}}=" ;; *) flag="" ;; esac
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            :*) ;;
            *) line="${{line%%$'\\t'*}}"; COMPREPLY[${{#COMPREPLY[@]}}]="${{line#"$flag"}}" ;;
        esac
    done < <("${{COMP_WORDS[0]}}" __complete "${{words[@]}}" 2>/dev/null)
}}
complete -o default -F _device_taint_webhook {PROGRAM} {_PLUGIN}
"""
_ZSH: Final = f"""\
#compdef {PROGRAM} {_PLUGIN}
# zsh completion for {PROGRAM}: source <({PROGRAM} completion zsh)
_device_taint_webhook() {{
    local line files=0
    local -a found
    while IFS= read -r line; do
        case "$line" in
            :0) files=1 ;;
            :*) ;;
            *$'\\t'*) found+=("${{${{line%%$'\\t'*}}//:/\\\\:}}:${{line#*$'\\t'}}") ;;
            *) found+=("${{line//:/\\\\:}}") ;;
        esac
    done < <("${{words[1]}}" __complete "${{(@)words[2,CURRENT]}}" 2>/dev/null)
    _describe value found
    (( files )) && _files
}}
compdef _device_taint_webhook {PROGRAM} {_PLUGIN}
"""
_FISH: Final = f"""\
# fish completion for {PROGRAM} and {_PLUGIN}: {PROGRAM} completion fish | source
function __device_taint_webhook
    set -l words (commandline -opc)
    for line in ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
        switch $line
            case ':0'
                __fish_complete_path (commandline -ct)
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c {PROGRAM} -f -a '(__device_taint_webhook)'
complete -c {_PLUGIN} -f -a '(__device_taint_webhook)'
"""
_SHELLS: Final = {"bash": _BASH, "fish": _FISH, "zsh": _ZSH}
_PATHS: Final = frozenset({"F", "D", "FILE", "DIR|FILE", "FILE|DIR|-"})
"""Words in the help for values that are files or folders."""
FILES: Final = 0
"""The directive that lets the shell complete files, where nothing is suggested."""
NO_FILES: Final = 4
_NAMES_OF_CLUSTER: Final = {
    "status": "rules",
    "list": "devices",
    "taint": "devices",
    "untaint": "devices",
    "drain": "nodes",
}
"""The names that verbs take, where the cluster has them."""
_EXPLAINED: Final = {"pod": "pods", "claim": "claims", "device": "devices", "rule": "rules"}
_NAMED: Final = {"--context": "contexts", "--namespace": "namespaces", "-n": "namespaces", "--node": "nodes"}
_WORDS: Final = {"completion": tuple(_SHELLS), "schema": ("policy", "suite"), "diff": ("live",)}


def run(options: argparse.Namespace, _: CommandLine) -> int:
    """Print the script. Returns 0, or 2 for wrong usage."""
    return write(_SHELLS[options.shell], 0)


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = CommandLine(
        program("completion"),
        "Prints a shell completion script for verbs, flags and their values.",
        "Exit codes: 0 fine, 2 wrong usage.",
        (
            "device-taint-webhook completion bash > /etc/bash_completion.d/device-taint-webhook",
            "device-taint-webhook completion zsh > ~/.zsh/completions/_device-taint-webhook",
            "device-taint-webhook completion fish > ~/.config/fish/completions/device-taint-webhook.fish",
        ),
    )
    parser.add_argument("shell", choices=sorted(_SHELLS), metavar="bash|fish|zsh", help="the shell")
    return parser


class Suggestions(NamedTuple):
    """Words with their descriptions, and what the shell may do beside them."""

    words: tuple[tuple[str, str], ...] = ()
    directive: int = NO_FILES

    def __str__(self) -> str:
        lines = [f"{word}\t{text}" if text else word for word, text in self.words if word.isprintable()]
        return "\n".join([*lines, f":{self.directive}"]) + "\n"


def suggestions_for(words: Sequence[str]) -> Suggestions:
    """Return what may stand for the last word."""
    *before, current = words or ("",)
    verb, *rest = verb_first(before) or ["-"]
    if verb.startswith("-"):
        return _verbs(current, before)
    if verb not in VERBS:
        return Suggestions()
    parser = command_line_of(verb)
    actions = parser._actions  # noqa: SLF001 -- argparse has no other way to list them
    options = {name: action for action in actions for name in action.option_strings}
    flag, equals, value = current.partition("=")
    if current.startswith("--") and equals:
        found = _values(parser, options.get(flag), value, before)
        return found._replace(words=tuple((f"{flag}={word}", text) for word, text in found.words))
    waiting = options.get(rest[-1]) if rest else None
    if waiting is not None and waiting.nargs != 0:
        return _values(parser, waiting, current, before)
    if current.startswith("-"):
        return _starting(current, ((name, action.help or "") for name, action in options.items()))
    arguments = _arguments(verb, _positions(rest, options), current, before)
    takes_none = all(action.option_strings for action in actions)
    return Suggestions(directive=NO_FILES if takes_none else FILES) if arguments is None else arguments


def _starting(current: str, words: Iterable[tuple[str, str]]) -> Suggestions:
    """Suggest the words, with descriptions, that begin with what has been typed."""
    return Suggestions(tuple((word, " ".join(text.split())) for word, text in words if word.startswith(current)))


def _plain(current: str, words: Iterable[str], directive: int = NO_FILES) -> Suggestions:
    return _starting(current, ((word, "") for word in words))._replace(directive=directive)


def _verbs(current: str, before: Sequence[str]) -> Suggestions:
    if before and before[-1] in ANYWHERE:
        return _cluster_flag(before[-1], current, before)
    if current.startswith("-"):
        return _plain(current, [*[each for each in ANYWHERE if each.startswith("--")], "--help", "--version"])
    return _starting(current, VERBS.items())


def _values(parser: CommandLine, action: argparse.Action | None, current: str, before: Sequence[str]) -> Suggestions:
    """Suggest values of a flag: its choices, names in the cluster, or files."""
    if action is None:
        return Suggestions()
    choices = parser.values.get(action.dest, ()) or tuple(map(str, action.choices or ()))
    if choices:
        return _plain(current, choices)
    if action.metavar in _PATHS:
        return Suggestions(directive=FILES)
    return _cluster_flag(action.option_strings[-1], current, before)


def _cluster_flag(flag: str, current: str, before: Sequence[str]) -> Suggestions:
    if flag == "--kubeconfig":
        return Suggestions(directive=FILES)
    return _plain(current, _names(_NAMED[flag], before)) if flag in _NAMED else Suggestions()


def _names(what: str, before: Sequence[str]) -> list[str]:
    """Return names in the cluster that the flags choose; none on any error."""
    from webhook.commands import cluster_names  # noqa: PLC0415 -- the client takes longest to import

    return cluster_names.names_of(what, cluster_flags(before))


def cluster_flags(words: Sequence[str]) -> argparse.Namespace:
    """Read the flags for cluster, user and namespace in a command line that is not complete; None where not given."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-n", "--namespace", nargs="?")
    for name, flag in CLUSTER_FLAGS.items():
        parser.add_argument(flag, dest=name, nargs="?", action="append" if name == "as_group" else "store")
    try:
        found, _ = parser.parse_known_args(list(words))
    except (argparse.ArgumentError, SystemExit):
        found, _ = parser.parse_known_args([])
    return found


def _positions(words: Sequence[str], options: Mapping[str, argparse.Action]) -> list[str]:
    """Return the arguments among words: neither flags nor their values."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in options and options[word].nargs != 0
        else:
            found.append(word)
    return found


def _arguments(verb: str, given: Sequence[str], current: str, before: Sequence[str]) -> Suggestions | None:
    """Suggest arguments of a verb; None for verbs that take files, or nothing."""
    if verb == "explain":
        if len(given) == 1 and given[0] in _EXPLAINED:
            return _plain(current, _names(_EXPLAINED[given[0]], before))
        return _plain(current, () if given else _EXPLAINED, FILES)
    if verb in _NAMES_OF_CLUSTER:
        return _plain(current, [name for name in _names(_NAMES_OF_CLUSTER[verb], before) if name not in given])
    if verb in _WORDS:
        return _plain(current, _WORDS[verb], FILES if verb == "diff" else NO_FILES)
    return None
