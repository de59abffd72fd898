"""`status`: what is being evicted from tainted devices, and what each pod waits for. Changes nothing."""

from __future__ import annotations

from typing import Final

from webhook.commands.shared.flags import (
    add_cluster,
    add_color,
    add_interval,
    add_output,
    add_policy_config_map,
)
from webhook.commands.shared.main import body_of
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_limit_or_all, as_time
from webhook.eviction.modes import InTree, Mode

run: Final = body_of("webhook.commands.status.run")


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = CommandLine(
        program("status"),
        "Shows what is being evicted from tainted devices, and what each pod waits for. Changes nothing.",
        "Exit codes: 0 fine, 2 wrong usage, an unknown rule, unreadable input or no cluster.",
        (
            "device-taint-webhook status",
            "device-taint-webhook status firmware --watch",
            "device-taint-webhook status --pods --limit 0",
            "device-taint-webhook status --watch --interval 10 -o json",
            "device-taint-webhook status firmware --dump dump",
        ),
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="RULE", help="DeviceTaintRules, or drivers, to show with their pods; default all")
    add("--pods", action="store_true", help="also show each pod and what it waits for, as with a RULE")
    add("-w", "--watch", action="store_true", help="show it again and again, until interrupted")
    add_interval(parser, " of --watch")
    add_evictors(parser)
    text = (
        "output of kubectl get devicetaintrules,resourceslices,resourceclaims,pods,namespaces,"
        "poddisruptionbudgets,leases -A -o json; repeatable; without this flag the cluster is read"
    )
    add("--dump", action="append", default=[], metavar="DIR|FILE", help=text)
    add_cluster(parser)
    add("--policy", metavar="F", help="the policy; default the ConfigMap in the dump or the cluster")
    add_policy_config_map(parser)
    add("--time", type=as_time, metavar="T", help="the time of the dump (RFC 3339); default now")
    text = "rows of the table of pods, 0 for all; default 200"
    add("--limit", type=as_limit_or_all, default=200, metavar="N", help=text)
    add_output(parser, ("json", "text", "yaml"))
    add_color(parser)
    return parser


def add_evictors(parser: CommandLine) -> None:
    """Add `--mode` and `--in-tree`: who evicts in the cluster."""
    add = parser.add_argument
    text = "the mode of the worker; default what its Lease says, or else its conditions"
    add("--mode", choices=[mode.value for mode in Mode], metavar="M", help=text)
    text = "whether the in-tree eviction controller runs; default what the worker found, or else the policy says"
    add("--in-tree", choices=[InTree.ACTIVE.value, InTree.ABSENT.value], metavar="S", help=text)
