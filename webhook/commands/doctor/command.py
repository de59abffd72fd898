"""`doctor`: checks whether an installation is healthy, with the caller's own rights, and prints what to fix."""

from __future__ import annotations

from typing import Final

from webhook.commands.shared import flags
from webhook.commands.shared.main import body_of
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_wait

_WAIT_SECONDS: Final = 120.0


run: Final = body_of("webhook.commands.doctor.probe")


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = CommandLine(
        program("doctor"),
        "Checks whether the webhook is installed correctly in a cluster, and whether it answers.",
        "Exit codes: 0 all checks passed, 1 a check warns or fails, 2 wrong usage or no cluster.",
        ("device-taint-webhook doctor", "device-taint-webhook doctor --context staging -n taints --wait 60 -o json"),
    )
    add = parser.add_argument
    flags.add_cluster(parser)
    flags.add_namespace_of_installation(parser, "where the webhook is installed")
    text = f"first wait for answers to probes through the API server, at most SECONDS (default {_WAIT_SECONDS:g})"
    add("--wait", nargs="?", type=as_wait, const=_WAIT_SECONDS, metavar="SECONDS", help=text)
    text = "detect whether the in-tree evictor runs, by a rule that is created and deleted at once"
    add("--canary", action="store_true", help=text)
    add("--allow-warnings", action="store_true", help="exit with 0 if no check fails, even if some warn")
    text = "namespace of the claims that are probed, as dry runs; default: default, or kube-public if that is exempt"
    add("--probe-namespace", metavar="NS", help=text)
    flags.add_policy_config_map(parser)
    parser.set_defaults(policy_configmap=None)  # that of --namespace
    flags.add_output(parser, ("json", "text"))
    flags.add_color(parser)
    return parser
