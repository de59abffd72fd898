"""Writes docs/cli.md from the command lines: `python -m tests.architecture.cli_reference`, or `make docs`."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from webhook.api.names import OWN_NAMESPACE, PROGRAM
from webhook.commands.verbs import VERBS, command_line_of
from webhook.config.texts import VARIABLES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from webhook.config.command_line import CommandLine

ROOT: Final = Path(__file__).parents[2]
REFERENCE: Final = ROOT / "docs" / "cli.md"
_INTRODUCTION: Final = f"""\
# Command line

Made from the command lines themselves by `make docs`. `kubectl dtaint VERB` is the same as
`{PROGRAM} VERB` where `kubectl-dtaint` is on the path.

| verb | what it does |
|---|---|
"""
_GENERAL: Final = f"""\
## For all verbs

- `{PROGRAM} --help` lists the verbs, `{PROGRAM} VERB --help` the flags of one,
  with examples. `{PROGRAM} --version` prints the version.
- Exit codes: 0 fine, 1 findings, 2 wrong usage, unreadable input, nothing to judge or no cluster; 130 after an
  interrupt.
- Verbs that ask a cluster find it as kubectl does: `--kubeconfig`, else `KUBECONFIG` (several paths are merged), else
  `~/.kube/config`, else the pod's service account; `serve`, `evict` and `patch` use the service account first.
  With `--as`, `--as-group` and `--as-uid` they act as another user, as they do where the kubeconfig's user has `as`.
  All of these and `-n` may stand before the verb.
- Our own objects are in the namespace that `--namespace` of `doctor`, `export-vap`, `serve`, `evict` and `patch` names,
  else in that of `{VARIABLES[0]}` or `{VARIABLES[1]}`, else in the pod's own, else in
  `{OWN_NAMESPACE}`. Defaults below are those of the last.
- Each flag has one value unless it is called repeatable: given twice it is an error. Of `serve`, `evict` and
  `patch` the last one holds, so that an overlay can add to the flags of a Deployment. Flags are not abbreviated.
- Colors: text on a terminal has them. `NO_COLOR` (with any value but an empty one) turns them off, `FORCE_COLOR` on,
  also where standard output is a file or a pipe, as in the log of a CI job; `NO_COLOR` wins. `--color always` and
  `--color never` win over both.
- `source <({PROGRAM} completion bash)` makes bash complete verbs, flags and values, for
  `kubectl-dtaint` as well, and names in the cluster.
- kubectl completes `kubectl dtaint` by itself where `kubectl_complete-dtaint` is on the path, as pip and pipx put it
  there; the archive of a release has it, too. It suggests verbs, flags, values, and names of rules, devices, nodes,
  pods, claims, namespaces and contexts; without a cluster or rights it suggests no names.
- The flags of `serve`, `evict` and `patch` can be given in the environment. A flag on the command line wins."""


def reference() -> str:
    """The page."""
    with mock.patch.dict(os.environ, {VARIABLES[0]: OWN_NAMESPACE}):  # wherever this runs, in a pod as well
        return _reference()


def _reference() -> str:
    rows = "\n".join(f"| [`{verb}`](#{verb}) | {what} |" for verb, what in VERBS.items())
    sections = [f"{_INTRODUCTION}{rows}", _GENERAL]
    for verb in VERBS:
        sections += _section(verb, command_line_of(verb))
    return "\n\n".join(sections) + "\n"


def _section(verb: str, parser: CommandLine) -> Iterator[str]:
    yield f"## {verb}"
    yield _cell(parser.description or "")
    examples = "\n".join(parser.examples)
    yield f"```\n{examples}\n```"
    if parser.variables:
        yield "\n".join(["| flag | environment | meaning |", "|---|---|---|", *_rows(parser)])
    else:
        yield "\n".join(["| flag | meaning |", "|---|---|", *_rows(parser)])
    yield textwrap.fill(_cell(parser.end), width=120)


def _rows(parser: CommandLine) -> Iterator[str]:
    for action in parser._actions:
        if action.dest == "help":
            continue
        cells = [_shown(action)]
        if parser.variables:
            cells.append(f"`{parser.variables[action.dest]}`")
        cells.append(_meaning(action, parser))
        yield f"| {' | '.join(cells)} |"


def _shown(action: argparse.Action) -> str:
    value: Any = action.metavar
    if not action.option_strings:
        return f"`{_cell(value)}`"
    names = [f"`{name}`" for name in action.option_strings]
    if action.nargs == 0:
        return ", ".join(names)
    shown = value or "|".join(map(str, action.choices or ()))
    shown = f"[={shown}]" if action.nargs == "?" else f" {shown}"
    return ", ".join([*names[:-1], f"`{_cell(action.option_strings[-1] + shown)}`"])


def _meaning(action: argparse.Action, parser: CommandLine) -> str:
    # those that argparse knows stand beside the flag, unless it has a word for them
    choices = tuple(map(str, action.choices or ())) if action.metavar and action.option_strings else ()
    values = parser.values.get(action.dest, ()) or choices
    listed = f" ({', '.join(f'`{value}`' for value in values)})" if values else ""
    required = "; required" if action.required and action.option_strings else ""
    return f"{_cell(action.help or '')}{listed}{required}"


def _cell(text: str) -> str:
    """On one line, without what would end a cell or look like a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("%%", "%")


def main() -> None:
    """Write the page."""
    REFERENCE.write_text(reference())


if __name__ == "__main__":
    main()
