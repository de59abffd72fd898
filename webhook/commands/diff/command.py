"""`diff`: which objects of a cluster or a dump two policies judge differently. Changes nothing."""

from __future__ import annotations

from typing import Final

from webhook.commands.shared.flags import add_cluster, add_exempt_namespaces, add_output, add_policy_config_map
from webhook.commands.shared.main import body_of
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_group, as_limit_or_all, as_namespace, as_time

LIVE: Final = "live"
"""Instead of a file: the policy of the cluster, or of the dump."""


run: Final = body_of("webhook.commands.diff.run")


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = CommandLine(
        program("diff"),
        "Shows which claims, templates, rules, patches and slices two policies judge differently, as if each were "
        "created now. Changes nothing.",
        "Exit codes: 0 no difference, 1 differences, 2 wrong usage, unreadable input or no cluster.",
        (
            "device-taint-webhook diff live next.yaml",
            "device-taint-webhook diff live next.yaml -n ml -o json",
            "device-taint-webhook diff policy.yaml next.yaml --dump dump.json",
            "device-taint-webhook diff policy.yaml next.yaml --dump manifests --user mila --group ml-team",
        ),
    )
    add = parser.add_argument
    policy = f"a DeviceTaintPolicy, or the ConfigMap that holds it; {LIVE}: the one in the cluster or the dump"
    add("old", metavar="OLD", help=policy)
    add("new", metavar="NEW", help="the policy to compare it with, in the same forms")
    text = (
        "output of kubectl get resourceclaimtemplates,resourceclaims,devicetaintrules,resourceslices,"
        "deviceclasses,namespaces -A -o json, or other manifests; repeatable; without this flag the cluster is read"
    )
    add("--dump", action="append", default=[], metavar="DIR|FILE", help=text)
    add_cluster(parser)
    add_policy_config_map(parser)
    add_exempt_namespaces(parser)
    add("-n", "--namespace", type=as_namespace, metavar="NS", help="only claims and templates in this namespace")
    add("--user", default="", metavar="U", help="who writes rules, patches and slices; without it that is unknown")
    add("--group", type=as_group, action="append", default=[], metavar="G", help="a group of the user; repeatable")
    add("--time", type=as_time, metavar="T", help="judge as of this time (RFC 3339), for exceptions; default now")
    add("--limit", type=as_limit_or_all, default=200, metavar="N", help="lines of text, 0 for all; default 200")
    add_output(parser, ("json", "text", "yaml"))
    return parser
