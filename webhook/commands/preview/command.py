"""`preview`: what rules, slices and patches in files would do in a cluster, or a dump. Changes nothing."""

from __future__ import annotations

from typing import Final

from webhook.commands.shared.flags import add_cluster, add_color, add_kubernetes_version, add_policy_config_map
from webhook.commands.shared.main import body_of
from webhook.commands.shared.output import add_reports
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_limit_or_all, as_time
from webhook.files import STDIN
from webhook.validation.releases import NEWEST

_ROWS: Final = 200
"""The default number of table rows: more are hard to read."""


run: Final = body_of("webhook.commands.preview.run")


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = CommandLine(
        program("preview"),
        "Shows which pods DeviceTaintRules, ResourceSlices and ResourceSlicePatches would evict, when and why, and "
        "devices before and after patches. Changes nothing.",
        "Exit codes: 0 fine, 1 a rule is refused even if confirmed, 2 wrong usage, unreadable input or no cluster.",
        (
            "device-taint-webhook preview rule.yaml",
            "device-taint-webhook preview rule.yaml --kubeconfig kubeconfig.yaml --limit 0",
            "device-taint-webhook preview rule.yaml --dump dump.json",
            "kubectl get devicetaintrule firmware -o yaml | device-taint-webhook preview - --dump dump.json -o json",
        ),
    )
    add = parser.add_argument
    text = f"YAML or JSON with rules, slices or patches; {STDIN}: standard input"
    add("files", nargs="+", metavar="FILE|-", help=text)
    text = (
        "output of kubectl get resourceslices,devicetaintrules,resourceclaims,pods,deviceclasses,nodes,namespaces -A "
        "-o json, for patches also resourceslicepatches; repeatable; "
        "YAML works, too, but JSON is read three times as fast; "
        "without this flag the cluster is read, which answers as it will answer the rule"
    )
    add("--dump", action="append", default=[], metavar="DIR|FILE", help=text)
    add_cluster(parser)
    add("--policy", metavar="F", help="the policy; default the ConfigMap in the dump or the cluster")
    add_policy_config_map(parser)
    add("--time", type=as_time, metavar="T", help="when the taint is set (RFC 3339); default now")
    add_kubernetes_version(parser, f"the version of the servers; default the cluster's, with --dump 1.{NEWEST.minor}")
    text = f"rows of a table, 0 for all; default {_ROWS}"
    add("--limit", type=as_limit_or_all, default=_ROWS, metavar="N", help=text)
    add_reports(parser, ("json", "text", "yaml"))
    add_color(parser)
    return parser
