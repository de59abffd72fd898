"""`explain`: why a policy allows or refuses objects in files, what taints do to an object, and what a code means."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from webhook.commands.shared.codes import CODE, codes
from webhook.commands.shared.flags import (
    add_color,
    add_output,
    add_policy,
    add_terms,
    refuse_cluster_beside_dump,
    refuse_stdin_twice,
)
from webhook.commands.shared.main import USAGE
from webhook.commands.shared.output import write
from webhook.commands.status.command import add_evictors
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import own_namespace, policy_config_map
from webhook.files import STDIN
from webhook.files.report import STRUCTURED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.commands.explain.values import ExplainSubject

_OF_FILES: Final = ("old", "user", "group", "namespace_labels", "device_class")
_OF_NAMES: Final = ("dump", "mode", "in_tree")
_OF_BOTH: Final = ("policy", "policy_configmap", "namespace", "time", "kubernetes_version")
"""Flags by what they say something about: files, and objects by name."""


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print the rules evaluated for each object. Returns 0, 1 if one is refused, 2 for wrong usage or bad input."""
    asked = [CODE.fullmatch(word) is not None for word in options.files]
    if all(asked):
        return _explain_codes(options, parser)
    from webhook.commands.explain.values import subject_in  # noqa: PLC0415

    try:
        subject = subject_in(options.files)
    except ValueError as error:
        parser.error(str(error))
    if subject is not None:
        return _explain_subject(subject, options, parser)
    if any(asked):
        parser.error("codes and files cannot be explained together")
    _refuse(_OF_NAMES, "goes with one pod, claim, device or rule by name", options, parser)
    # Late: reviews need most of the product, and the other questions little of it.
    from webhook.commands.explain.reviews import explain_files  # noqa: PLC0415

    return explain_files(options, parser)


def _refuse(flags: Iterable[str], why: str, options: argparse.Namespace, parser: CommandLine) -> None:
    """End with an error if one of the flags is given, which would do nothing."""
    for flag in flags:
        if getattr(options, flag) != parser.get_default(flag):
            parser.error(f"--{flag.replace('_', '-')} {why}")


def _explain_codes(options: argparse.Namespace, parser: CommandLine) -> int:
    _refuse([*_OF_FILES, *_OF_NAMES, *_OF_BOTH], "does not go with codes", options, parser)
    words = [word.upper() for word in options.files]
    unknown = [word for word in words if word not in codes()]
    if unknown:
        parser.error(f"unknown code {unknown[0]}; codes are {', '.join(codes())}")
    found = [codes()[word] for word in words]
    if options.output == "text":
        return write("\n".join(f"{code.code}: {code.title}\n\n{code.text}\n" for code in found), 0)
    values = {"version": 1, "codes": [code._asdict() for code in found]}
    return write(STRUCTURED[options.output](values), 0)


def _explain_subject(subject: ExplainSubject, options: argparse.Namespace, parser: CommandLine) -> int:
    if subject.namespace and options.namespace not in (None, subject.namespace):
        parser.error(f"-n {options.namespace} does not match the namespace of {subject.namespace}/{subject.name}")
    _refuse(_OF_FILES, "goes with files", options, parser)
    options.namespace = subject.namespace or options.namespace
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.policy], parser)
    if options.policy is not None and options.policy_configmap is not None:
        parser.error("--policy and --policy-configmap may not be given together")
    options.policy_configmap = options.policy_configmap or policy_config_map(own_namespace())
    from webhook.commands.explain.text import as_text  # noqa: PLC0415
    from webhook.commands.explain.values import NotExplained, explanation_of, facts_of  # noqa: PLC0415
    from webhook.files.report import visible  # noqa: PLC0415

    facts = facts_of(options)
    try:
        values = explanation_of(facts, subject)
    except NotExplained as error:
        sys.stderr.write(f"{parser.prog}: {visible(str(error))}\n")
        return USAGE
    text = as_text(values) if options.output == "text" else STRUCTURED[options.output](values)
    return write(text, USAGE if facts.found.rows else 0)


def command_line() -> CommandLine:
    """Return the flags of the verb."""
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
    text = (
        f"claims, templates, rules, patches or slices ({STDIN} is standard input), or codes such as DT001; or one "
        "pod or claim (NAME or NAMESPACE/NAME), device (DRIVER/POOL/DEVICE) or rule by name"
    )
    parser.add_argument("files", nargs="+", metavar="FILE|DIR|-|CODE|KIND NAME", help=text)
    add_policy(parser)
    add_terms(parser)
    text = (
        "for KIND NAME: output of kubectl get devicetaintrules,resourceslices,resourceclaims,deviceclasses,pods,"
        "namespaces,poddisruptionbudgets,leases -A -o json; repeatable; without this flag the cluster is read"
    )
    parser.add_argument("--dump", action="append", default=[], metavar="DIR|FILE", help=text)
    add_evictors(parser)
    add_output(parser, ("json", "text", "yaml"))
    add_color(parser)
    parser.set_defaults(candidate=None, verbose=True)
    return parser
