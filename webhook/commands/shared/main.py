"""How a verb runs: it parses its flags, runs its body and returns an exit code; what a server refuses is reported."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from webhook.config.command_line import CommandLine

USAGE: Final = 2
"""The exit code for wrong usage, unreadable input and an unreachable cluster."""
REFUSED: Final = 1
"""The exit code after a refusal, as kubectl's."""
INTERRUPTED: Final = 130
"""128 + SIGINT, as shells count."""
_UNAUTHORIZED: Final = "Unauthorized"


class WrongUsage(ValueError):  # noqa: N818 -- it says what it is
    """Flags or arguments that make no sense; the text says why."""


class ClusterUnreachable(Exception):  # noqa: N818 -- it says what the cluster is
    """The cluster cannot be read; the text says why."""


class ServerRefusal(Exception):  # noqa: N818 -- it says what it is
    """What the API server does not grant, or what cannot be done there. The text is complete."""


def main_of(verb: ModuleType, arguments: Sequence[str]) -> int:
    """Run the module of a verb; return its exit code, or 2 for wrong usage or no cluster, which stderr explains.

    After a refusal of the server it is 1, and stderr has the text.

    Its `run` gets the flags and the parser. For flags that do not fit together it raises WrongUsage, or calls `error`.
    """
    parser: CommandLine = verb.command_line()
    try:
        options = parser.parse_args(arguments)
        try:
            code: int = verb.run(options, parser)
        except WrongUsage as error:
            parser.error(str(error))
    except ClusterUnreachable as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return USAGE
    except ServerRefusal as refusal:
        sys.stderr.write(f"{refusal}\n")
        return REFUSED
    except SystemExit as end:  # argparse has said why
        return end.code if isinstance(end.code, int) else USAGE
    return code


def body_of(module: str) -> Callable[[argparse.Namespace, CommandLine], int]:
    """Return the function `run` of a module, which is imported when it is called."""

    def body(options: argparse.Namespace, parser: CommandLine) -> int:
        code: int = importlib.import_module(module).run(options, parser)
        return code

    return body


@contextlib.contextmanager
def reading_cluster() -> Iterator[None]:
    """Turn the errors of the cluster's client into ClusterUnreachable."""
    # Late: verbs that read files need no client, and importing it takes longer than most of them run.
    from webhook.cluster.client.errors import ClusterError, NoCredentials  # noqa: PLC0415

    try:
        yield
    except (ClusterError, NoCredentials) as error:
        raise ClusterUnreachable(str(error)) from None


def refusal_text(reason: str, message: str) -> str:
    """Return a refusal as kubectl shows it; `reason` is that of the Status, or empty."""
    if reason == _UNAUTHORIZED:
        return f"error: You must be logged in to the server ({reason})"
    # Late: verbs that are refused nothing start without it.
    from webhook.files.report import visible  # noqa: PLC0415

    text = "\n".join(map(visible, message.splitlines()))
    return f"Error from server ({reason}): {text}" if reason else f"Error from server: {text}"


@contextlib.contextmanager
def asking_server() -> Iterator[None]:
    """Turn the errors of the cluster's client into ServerRefusal, or ClusterUnreachable if there was no answer."""
    from webhook.cluster.client.errors import ClusterError, NoCredentials  # noqa: PLC0415

    try:
        yield
    except NoCredentials as error:
        raise ClusterUnreachable(str(error)) from None
    except ClusterError as error:
        if not error.code:
            raise ClusterUnreachable(str(error)) from None
        raise ServerRefusal(refusal_text(error.reason, error.server_message or str(error))) from None
