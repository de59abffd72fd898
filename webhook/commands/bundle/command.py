"""`bundle`: an archive of what it takes to help with an installation, without secrets. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.commands.shared.flags import add_cluster, add_namespace_of_installation, add_policy_config_map
from webhook.commands.shared.main import body_of, main_of
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_count

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG_LINES: Final = 2000


def run(arguments: Sequence[str]) -> int:
    """Writes the archive. Returns 0, 1 if something could not be read, 2 for wrong usage or no cluster."""
    return main_of(command_line(), arguments, body_of("webhook.commands.bundle.run"))


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = CommandLine(
        program("bundle"),
        "Writes an archive for a support case: versions, configuration, policy, workloads, events, logs, metrics, the "
        "output of doctor, and tainted devices with their claims. It has no secrets; read it before you send it.",
        "Exit codes: 0 complete, 1 something could not be read (errors.txt in the archive says what), 2 wrong usage or "
        "no cluster.",
        (
            "device-taint-webhook bundle",
            "device-taint-webhook bundle -o case-4711.tar.gz --redact --context staging",
        ),
    )
    add = parser.add_argument
    add(
        "-o",
        "--output-file",
        metavar="FILE",
        help="where to write it; default device-taint-webhook-bundle-TIME.tar.gz in the current folder",
    )
    add("--redact", action="store_true", help="replace names of namespaces, pods, claims, nodes, pools and users")
    add(
        "--log-lines",
        type=as_count,
        default=_LOG_LINES,
        metavar="N",
        help=f"the last N lines of the log of each container; default {_LOG_LINES}",
    )
    add("--no-doctor", action="store_true", help="do not run doctor, which sends dry-run requests as probes")
    add_cluster(parser)
    add_namespace_of_installation(parser, "where the webhook is installed")
    add_policy_config_map(parser)
    parser.set_defaults(policy_configmap=None)  # that of --namespace
    return parser
