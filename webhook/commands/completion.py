"""`completion`: scripts that have bash, fish and zsh ask this program for suggestions, by the protocol of kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.names import PROGRAM
from webhook.commands.shared.main import main_of
from webhook.commands.shared.output import write
from webhook.config.command_line import CommandLine, program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

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


def run(arguments: Sequence[str]) -> int:
    """Prints the script. Returns 0, or 2 for wrong usage."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, _: CommandLine) -> int:
    return write(_SHELLS[options.shell], 0)


def command_line() -> CommandLine:
    """The flags of the verb."""
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
