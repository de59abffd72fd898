"""`unregister`: deletes the webhook configurations, so that API servers stop calling the webhook."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Final

from webhook.api.names import PROGRAM
from webhook.commands.shared.flags import add_cluster, credentials_of
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.output import write
from webhook.config.command_line import CommandLine, program

if TYPE_CHECKING:
    from webhook.cluster.client.credentials import Credentials

_RESOURCES: Final = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
_UNCONFIRMED: Final = 1


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print what it deleted. Return 0, 1 without --yes if there is something to delete, 2 without a cluster."""
    import asyncio  # noqa: PLC0415 -- help needs none of it

    with reading_cluster():
        found = asyncio.run(_send(credentials_of(options), "DELETE" if options.yes else "GET"))
    if not found:
        return write("nothing to delete: API servers do not call the webhook\n", 0)
    if options.yes:
        return write(f"deleted, so API servers stop calling the webhook:\n{found}", 0)
    effect = "would be deleted, and nothing be refused any more that only the webhook refuses"
    return write(f"{effect}:\n{found}to delete them: {parser.prog} --yes\n", _UNCONFIRMED)


async def _send(credentials: Credentials, method: str) -> str:
    """Send one request for each configuration. Return a line for each that was there. Raises ClusterError."""
    from webhook.cluster.client.errors import NotFound  # noqa: PLC0415 -- as all that needs a cluster
    from webhook.cluster.client.rest import Cluster, path_of  # noqa: PLC0415 -- the same

    found = ""
    async with Cluster(credentials, user_agent=f"{PROGRAM}-unregister") as cluster:
        for resource in _RESOURCES:
            with contextlib.suppress(NotFound):
                await cluster.request(method, path_of("admissionregistration.k8s.io", "v1", resource, name=PROGRAM))
                found += f"  {resource}/{PROGRAM}\n"
    return found


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = CommandLine(
        program("unregister"),
        "Deletes both webhook configurations: API servers stop calling the webhook. The chart runs it before it is "
        "uninstalled.",
        "Exit codes: 0 they are gone, 1 they are there and --yes is missing, 2 wrong usage or no cluster.",
        ("device-taint-webhook unregister", "device-taint-webhook unregister --context staging --yes"),
    )
    add_cluster(parser)
    parser.add_argument("--yes", action="store_true", help="delete them; without it, only print what would be deleted")
    return parser
