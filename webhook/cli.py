"""The command line: imports and runs the requested verb, and returns its exit code."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import sys
from typing import TYPE_CHECKING, Final

from webhook import __version__
from webhook.commands.shared.main import INTERRUPTED, USAGE, main_of
from webhook.commands.shared.output import flushed, steady, without_output, write
from webhook.commands.verbs import DAEMONS, GROUPS, VERBS, command_line_of, module_of, verb_first
from webhook.config.command_line import did_you_mean, program, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMPLETE: Final = "__complete"
"""What cobra calls the verb that suggests words; not a verb for people."""
_HELP: Final = frozenset({"-h", "--help"})
_WIDTH: Final = max(map(len, VERBS))
_OBJECTS: Final = 50_000
"""New objects between two searches for garbage. With the default of 700 they take a tenth of the time to start, and a
program that ends after one answer leaves little garbage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Returns 0 for fine, 1 for findings, 2 for wrong usage, unreadable input or no cluster."""
    if sys.stderr is not None:  # messages quote files and servers
        write_raw = sys.stderr.write
        sys.stderr.write = lambda text: write_raw(steady(text))  # type: ignore[method-assign]
    verb, *words = verb_first(sys.argv[1:] if arguments is None else arguments) or [""]
    if arguments is None and verb not in DAEMONS:
        gc.set_threshold(_OBJECTS)
    if without_output():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 -- for as long as we run
        code = _main(verb, words)
        if verb not in DAEMONS:  # which write nothing there
            sys.stderr.write(f"{program()}: standard output is closed\n")
            return USAGE
        return code
    return flushed(_main(verb, words))


def _main(verb: str, words: Sequence[str]) -> int:
    if verb in {*_HELP, "help"}:
        return write(_help(), 0)
    if verb in {"--version", "version"}:
        return write(f"{program()} {__version__}\n", 0)
    if verb == _COMPLETE:
        return complete(words)
    if verb not in VERBS:
        sys.stderr.write(_unknown(verb) if verb else _help())
        return USAGE
    return _run(verb, words)


def complete(arguments: Sequence[str] | None = None) -> int:
    """Suggest words of a command line, by kubectl's protocol for plugins (`kubectl_complete-dtaint`)."""
    # Late, as every verb: nothing else needs them.
    from webhook.commands.completion import suggestions_for  # noqa: PLC0415

    return write(str(suggestions_for(sys.argv[1:] if arguments is None else arguments)), 0)


def _run(verb: str, words: Sequence[str]) -> int:
    if verb in DAEMONS and not _HELP.isdisjoint(words):  # without importing what they run
        return write(command_line_of(verb, program()).format_help(), 0)
    try:
        module = importlib.import_module(module_of(verb))
        code: int = module.run(words) if verb in DAEMONS else main_of(module, words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:  # argparse, for --help
        return end.code if isinstance(end.code, int) else USAGE
    return code


def _help() -> str:
    name, width = program(), shutil.get_terminal_size().columns - 2
    lines = ["Makes Kubernetes device taints safe.", "", f"Usage: {name} VERB [FLAGS]", ""]
    for group, verbs in GROUPS.items():
        lines.append(f"{group}:")
        for verb, what in verbs.items():
            lines += wrapped(what, width, f"  {verb:<{_WIDTH}} ", " " * (_WIDTH + 3))
        lines.append("")
    lines += wrapped(f"`{name} VERB --help` lists the flags of a verb; `{name} --version` prints the version.", width)
    lines += wrapped("Exit codes: 0 fine, 1 findings, 2 wrong usage, unreadable input or no cluster.", width)
    return "".join(f"{line}\n" for line in lines)


def _unknown(verb: str) -> str:
    hint = did_you_mean(verb, VERBS) or f"; verbs are {', '.join(VERBS)}"
    return f"{program()}: unknown verb {verb!r}{hint}\n"
