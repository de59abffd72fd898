"""How a verb runs: it parses its flags, runs its body and returns an exit code."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from webhook.config.command_line import CommandLine

USAGE = 2
"""The exit code for wrong usage, unreadable input and an unreachable cluster."""


class ClusterUnreachable(Exception):  # noqa: N818 -- it says what the cluster is
    """The cluster cannot be read; the text says why."""


def main_of(
    parser: CommandLine, arguments: Sequence[str], body: Callable[[argparse.Namespace, CommandLine], int]
) -> int:
    """The exit code of a verb: its body's, or 2 for wrong usage and an unreachable cluster, which stderr explains.

    The body gets the flags, and the parser, whose `error` it calls for flags that do not fit together.
    """
    try:
        return body(parser.parse_args(arguments), parser)
    except ClusterUnreachable as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return USAGE
    except SystemExit as end:  # argparse has said why
        return end.code if isinstance(end.code, int) else USAGE


def body_of(module: str) -> Callable[[argparse.Namespace, CommandLine], int]:
    """The function `run` of a module, which is imported when it is called.

    Help, and complaints about flags, need nothing of what a verb works with, and importing that takes most of the time.
    """

    def body(options: argparse.Namespace, parser: CommandLine) -> int:
        code: int = importlib.import_module(module).run(options, parser)
        return code

    return body


@contextlib.contextmanager
def reading_cluster() -> Iterator[None]:
    """Turns the errors of the cluster's client into ClusterUnreachable."""
    # Late: verbs that read files need no client, and importing it takes longer than most of them run.
    from webhook.cluster.client.errors import ClusterError, NoCredentials  # noqa: PLC0415

    try:
        yield
    except (ClusterError, NoCredentials) as error:
        raise ClusterUnreachable(str(error)) from None
