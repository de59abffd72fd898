"""`completion`: shell completion scripts for verbs, flags and their values, generated from the command lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.names import PROGRAM
from webhook.commands.shared.main import main_of
from webhook.commands.shared.output import write
from webhook.commands.verbs import VERBS, command_line_of
from webhook.config.command_line import CommandLine, program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

_PLUGIN: Final = "kubectl-dtaint"
_PATHS: Final = frozenset({"F", "D", "FILE", "DIR|FILE", "FILE|DIR|-"})
"""Words in the help for values that are files or folders."""
_NAMES: Final = frozenset({"drain", "explain", "status", "taint", "untaint"})
"""Verbs that take names of objects in the cluster."""
_ASK: Final = (
    '"${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | sed -e "/^:[0-9]*\\$/d" -e "s/\\t.*//"'
)
"""Asks this program itself for them."""


class FlagOption(NamedTuple):
    """A flag: its names, the values to choose from, and whether it takes a value or a path."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    takes_value: bool
    takes_path: bool
    help: str


def run(arguments: Sequence[str]) -> int:
    """Prints the script. Returns 0, or 2 for wrong usage."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, _: CommandLine) -> int:
    verbs = {verb: tuple(options_of(command_line_of(verb))) for verb in VERBS}
    return write("\n".join(_SHELLS[options.shell](verbs)) + "\n", 0)


def options_of(parser: CommandLine) -> Iterator[FlagOption]:
    """The flags of a command line."""
    for action in parser._actions:  # noqa: SLF001 -- argparse has no other way to list them
        if action.option_strings:
            choices = parser.values.get(action.dest, ()) or tuple(map(str, action.choices or ()))
            metavar = action.metavar if isinstance(action.metavar, str) else ""
            text = "" if action.help is None else action.help
            names = tuple(action.option_strings)
            yield FlagOption(names, choices, action.nargs != 0, metavar in _PATHS, text)


def _words(verbs: Mapping[str, Sequence[FlagOption]], verb: str) -> str:
    return " ".join(name for option in verbs[verb] for name in option.names)


# --- shells -------------------------------------------------------------------------------------


def _bash(verbs: Mapping[str, Sequence[FlagOption]]) -> Iterator[str]:
    yield f"# bash completion for {PROGRAM} and {_PLUGIN}: source <({PROGRAM} completion bash)"
    yield "_device_taint_webhook() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" verb="${COMP_WORDS[1]}"'
    yield "    COMPREPLY=()"
    # bash splits --flag=value at the equals sign
    yield '    if [ "$current" = "=" ]; then current=""'
    yield '    elif [ "$before" = "=" ]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi'
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(verbs)} --help --version" -- "$current"))'
    yield "        return"
    yield "    fi"
    yield '    case "$verb $before" in'
    for verb, options in verbs.items():
        for option in options:
            pattern = " | ".join(f'"{verb} {name}"' for name in option.names)
            if option.choices:
                words = " ".join(option.choices)
                yield f'        {pattern}) COMPREPLY=($(compgen -W "{words}" -- "$current")); return ;;'
            elif option.takes_value:
                # no suggestions of ours: bash completes file names
                yield f"        {pattern}) return ;;"
    yield "    esac"
    yield '    case "$verb $current" in'
    for verb in verbs:
        yield f'        "{verb} "-*) COMPREPLY=($(compgen -W "{_words(verbs, verb)}" -- "$current")) ;;'
    yield f'        "completion "*) COMPREPLY=($(compgen -W "{" ".join(_SHELLS)}" -- "$current")) ;;'
    yield '        "schema "*) COMPREPLY=($(compgen -W "policy suite" -- "$current")) ;;'
    names = " | ".join(f'"{verb} "*' for verb in verbs if verb in _NAMES)
    yield f'        {names}) COMPREPLY=($(compgen -W "$({_ASK})" -- "$current")) ;;'
    yield "    esac"
    yield "}"
    yield f"complete -o default -F _device_taint_webhook {PROGRAM} {_PLUGIN}"


def _zsh(verbs: Mapping[str, Sequence[FlagOption]]) -> Iterator[str]:
    yield f"#compdef {PROGRAM} {_PLUGIN}"
    yield f"# zsh completion for {PROGRAM}: source <({PROGRAM} completion zsh)"
    yield "_device_taint_webhook() {"
    yield "    local -a verbs"
    yield "    verbs=("
    yield from (f"        '{verb}:{_quoted(VERBS[verb])}'" for verb in verbs)
    yield "    )"
    yield "    if (( CURRENT == 2 )); then"
    yield "        _describe verb verbs"
    yield "        return"
    yield "    fi"
    yield '    case "${words[2]}" in'
    for verb, options in verbs.items():
        yield f"        {verb})"
        yield "            shift words; (( CURRENT-- ))"
        specs = [spec for option in options for spec in _zsh_specs(option)]
        rest = {"completion": f"'1:shell:({' '.join(_SHELLS)})'", "schema": "'1:what:(policy suite)'"}
        yield "            _arguments \\"
        yield from (f"                {spec} \\" for spec in specs)
        yield f"                {rest.get(verb, _ZSH_FILES)}"
        yield "            ;;"
    yield "    esac"
    yield "}"
    yield f"compdef _device_taint_webhook {PROGRAM} {_PLUGIN}"


_ZSH_FILES: Final = "'*:file:_files'"


def _zsh_specs(option: FlagOption) -> Iterator[str]:
    text = _quoted(option.help).replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    if option.choices:
        value = f":value:({' '.join(option.choices)})"
    elif option.takes_path:
        value = ":file:_files"
    else:
        value = ":value:" if option.takes_value else ""
    for name in option.names:
        yield f"'*{name}[{text}]{value}'"


def _fish(verbs: Mapping[str, Sequence[FlagOption]]) -> Iterator[str]:
    yield f"# fish completion for {PROGRAM} and {_PLUGIN}: {PROGRAM} completion fish | source"
    for name in (PROGRAM, _PLUGIN):
        for verb in verbs:
            yield f"complete -c {name} -f -n __fish_use_subcommand -a {verb} -d '{_quoted(VERBS[verb], chr(92))}'"
        for verb, options in verbs.items():
            seen = f"complete -c {name} -n '__fish_seen_subcommand_from {verb}'"
            for option in options:
                names = " ".join(
                    f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
                )
                value = " -r" if option.takes_value else ""
                if option.choices:
                    value += f" -f -a '{' '.join(option.choices)}'"
                yield f"{seen} {names}{value} -d '{_quoted(option.help, chr(92))}'"
        yield f"complete -c {name} -f -n '__fish_seen_subcommand_from completion' -a '{' '.join(_SHELLS)}'"
        yield f"complete -c {name} -f -n '__fish_seen_subcommand_from schema' -a 'policy suite'"


def _quoted(text: str, escape: str = "") -> str:
    """The text for use in single quotes: on one line, with quotes escaped or, without `escape`, removed."""
    return " ".join(text.split()).replace("'", f"{escape}'" if escape else "")


_SHELLS: Final = {"bash": _bash, "fish": _fish, "zsh": _zsh}


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = CommandLine(
        program("completion"),
        "Prints a shell completion script for verbs, flags and their values.",
        "Exit codes: 0 fine, 2 wrong usage.",
        (
            "device-taint-webhook completion bash > ~/.local/share/bash-completion/completions/device-taint-webhook",
            "device-taint-webhook completion zsh > ~/.zsh/completions/_device-taint-webhook",
            "device-taint-webhook completion fish > ~/.config/fish/completions/device-taint-webhook.fish",
        ),
    )
    parser.add_argument("shell", choices=sorted(_SHELLS), metavar="bash|fish|zsh", help="the shell")
    return parser
