"""One run of `explain` on files or codes."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from webhook.commands.explain.facts import facts_of
from webhook.commands.explain.subjects import NotExplained, explanation_of, subject_in
from webhook.commands.explain.text import as_text
from webhook.commands.shared.codes import CODE, codes
from webhook.commands.shared.flags import refuse_cluster_beside_dump, refuse_stdin_twice
from webhook.commands.shared.main import USAGE
from webhook.commands.shared.output import write
from webhook.config.namespace import own_namespace, policy_config_map
from webhook.files.render import visible
from webhook.files.structured import STRUCTURED

if TYPE_CHECKING:
    import argparse

    from webhook.commands.explain.subjects import ExplainSubject
    from webhook.config.command_line import CommandLine

VERSION: Final = 1


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Prints the rules evaluated for each object. Returns 0, 1 if one is refused, 2 for wrong usage or bad input."""
    try:
        subject = subject_in(options.files)
    except ValueError as error:
        parser.error(str(error))
    if subject is not None:
        return _explain_subject(subject, options, parser)
    asked = [CODE.fullmatch(word) is not None for word in options.files]
    if all(asked):
        return _explain_codes(options, parser)
    if any(asked):
        parser.error("codes and files cannot be explained together")
    if options.dump:
        parser.error("--dump goes with one pod, claim, device or rule by name")
    # Late: reviews need most of the product, and the other questions little of it.
    from webhook.commands.explain.reviews import explain_files  # noqa: PLC0415

    return explain_files(options, parser)


# --- one object of a cluster or a dump ------------------------------------------------------------


def _explain_subject(subject: ExplainSubject, options: argparse.Namespace, parser: CommandLine) -> int:
    if subject.namespace and options.namespace not in (None, subject.namespace):
        parser.error(f"-n {options.namespace} does not match the namespace of {subject.namespace}/{subject.name}")
    options.namespace = subject.namespace or options.namespace
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.policy], parser)
    if options.policy is not None and options.policy_configmap is not None:
        parser.error("--policy and --policy-configmap may not be given together")
    options.policy_configmap = options.policy_configmap or policy_config_map(own_namespace())
    # The worker's own code would log to standard error what is in the explanation.
    logging.getLogger("webhook.eviction").addHandler(logging.NullHandler())
    facts = facts_of(options)
    try:
        values = explanation_of(facts, subject)
    except NotExplained as error:
        sys.stderr.write(f"{parser.prog}: {visible(str(error))}\n")
        return USAGE
    text = as_text(values) if options.output == "text" else STRUCTURED[options.output](values)
    return write(text, USAGE if facts.failed else 0)


# --- codes --------------------------------------------------------------------------------------


def _explain_codes(options: argparse.Namespace, parser: CommandLine) -> int:
    words = [word.upper() for word in options.files]
    unknown = [word for word in words if word not in codes()]
    if unknown:
        parser.error(f"unknown code {unknown[0]}; codes are {', '.join(codes())}")
    found = [codes()[word] for word in words]
    if options.output == "text":
        return write("\n".join(f"{code.code}: {code.title}\n\n{code.text}\n" for code in found), 0)
    values = {"version": VERSION, "codes": [code._asdict() for code in found]}
    return write(STRUCTURED[options.output](values), 0)
