"""`explain`: why a policy allows or refuses objects in files, rule by rule; and what a warning code means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.commands.shared.flags import add_color, add_output, add_policy, add_terms
from webhook.commands.shared.main import body_of, main_of
from webhook.commands.status.command import add_evictors
from webhook.config.command_line import CommandLine, program
from webhook.files.stdin import STDIN

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Prints the rules evaluated for each object. Returns 0, 1 if one is refused, 2 for wrong usage or bad input."""
    return main_of(command_line(), arguments, body_of("webhook.commands.explain.run"))


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = CommandLine(
        program("explain"),
        "Explains, rule by rule, why a policy allows or refuses the objects in files; or what a warning code means; or "
        "what device taints mean for a pod, a claim, a device or a DeviceTaintRule of a cluster or a dump.",
        "Exit codes: 0 fine, 1 something is refused, 2 wrong usage, unreadable input or nothing to explain.",
        (
            "device-taint-webhook explain claim.yaml --policy policy.yaml --user mila --group ml-team",
            "device-taint-webhook explain rule.yaml --policy policy.yaml --user system:serviceaccount:health:operator",
            "device-taint-webhook explain pod trainer-0 -n ml",
            "device-taint-webhook explain claim trainer-0-gpu -n ml -o json",
            "device-taint-webhook explain device gpu.example.com/node-1/gpu-0 --dump dump.json",
            "device-taint-webhook explain rule firmware",
            "device-taint-webhook explain DT001",
        ),
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE|DIR|-|CODE|KIND NAME",
        help=f"claims, templates, rules, patches or slices ({STDIN} is standard input), or codes such as DT001; or one "
        "pod or claim (NAME or NAMESPACE/NAME), device (DRIVER/POOL/DEVICE) or rule by name",
    )
    add_policy(parser)
    add_terms(parser)
    parser.add_argument(
        "--dump",
        action="append",
        default=[],
        metavar="DIR|FILE",
        help="for KIND NAME: output of kubectl get devicetaintrules,resourceslices,resourceclaims,deviceclasses,pods,"
        "namespaces,poddisruptionbudgets,leases -A -o json; repeatable; without this flag the cluster is read",
    )
    add_evictors(parser)
    add_output(parser, ("json", "text", "yaml"))
    add_color(parser)
    parser.set_defaults(candidate=None, verbose=True)
    return parser
