"""One run of `explain` on files or codes."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

from webhook.commands.check.command import refuse_nameless, refuse_two_policies, terms_of
from webhook.commands.explain.codes import CODE, WarningCode, codes
from webhook.commands.explain.explanations import NotExplained, explanation_of
from webhook.commands.explain.facts import facts_of
from webhook.commands.explain.subjects import subject_in
from webhook.commands.explain.text import as_text
from webhook.commands.shared.entries import unreadable_row
from webhook.commands.shared.flags import read_key, refuse_cluster_beside_dump, refuse_stdin_twice, use_color
from webhook.commands.shared.main import USAGE
from webhook.commands.shared.manifest_review import review_manifest
from webhook.commands.shared.output import write
from webhook.commands.shared.walks import walk_lines
from webhook.config.namespace import own_namespace, policy_config_map
from webhook.files.read import shown
from webhook.files.render import line, visible
from webhook.files.report import Level, Report, Result, Row
from webhook.files.structured import STRUCTURED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from webhook.commands.explain.subjects import ExplainSubject
    from webhook.config.command_line import CommandLine

VERSION: Final = 1
_DEFAULT_NAMESPACE: Final = "default"
_NOTHING: Final = "contains no claim, template, rule, patch or slice to explain"
_NOT_ASKED: Final = "has errors of its own, so no rule was evaluated"
_COLORS: Final = {"=> denied": "\x1b[1;31m", "=> allowed": "\x1b[32m"}
_PLAIN: Final = "\x1b[0m"


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Prints the rules evaluated for each object. Returns 0, 1 if one is refused, 2 for wrong usage or bad input."""
    try:
        subject = subject_in(options.files)
    except ValueError as error:
        parser.error(str(error))
    if subject is not None:
        return _explain_subject(subject, options, parser)
    options.namespace = options.namespace or _DEFAULT_NAMESPACE
    asked = [CODE.fullmatch(word) is not None for word in options.files]
    if all(asked):
        return _explain_codes(options, parser)
    if any(asked):
        parser.error("codes and files cannot be explained together")
    if options.dump:
        parser.error("--dump goes with one pod, claim, device or rule by name")
    if options.policy is None and options.policy_configmap is None:
        parser.error("--policy or --policy-configmap is required: there is no decision to explain without a policy")
    refuse_stdin_twice([*options.files, *options.old, options.policy], parser)
    refuse_two_policies(options, parser)
    refuse_nameless(options, parser)
    key = None if options.key_file is None else read_key(options.key_file, parser)
    return _explain_files(options, key)


# --- one object of a cluster or a dump ------------------------------------------------------------


def _explain_subject(subject: ExplainSubject, options: argparse.Namespace, parser: CommandLine) -> int:
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.policy], parser)
    if options.policy is not None and options.policy_configmap is not None:
        parser.error("--policy and --policy-configmap may not be given together")
    options.policy_configmap = options.policy_configmap or policy_config_map(own_namespace())
    # The worker's own code would log to standard error what is in the explanation.
    logging.getLogger("webhook.eviction").addHandler(logging.NullHandler())
    facts = facts_of(options, None if options.key_file is None else read_key(options.key_file, parser))
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
        return write("\n".join(map(_code_text, found)), 0)
    values = {"version": VERSION, "codes": [code._asdict() for code in found]}
    return write(STRUCTURED[options.output](values), 0)


def _code_text(code: WarningCode) -> str:
    return f"{code.code}: {code.title}\n\n{code.text}\n"


# --- objects ------------------------------------------------------------------------------------


def _explain_files(options: argparse.Namespace, key: bytes | None) -> int:
    report = Report()
    files, terms = terms_of(options, key, report)
    if any(row.count(Level.ERROR) for row in report.rows):  # a policy with errors explains nothing
        return write(_rendered(report, options), report.exit_code)
    policy_rows = len(report.rows)
    for file in files:
        unreadable = unreadable_row(file)
        if unreadable is not None:
            report.add(unreadable)
        for manifest in file.manifests:
            row = review_manifest(manifest, terms, explicit=file.explicit)
            if row.result is not Result.SKIPPED and row.operation:
                report.add(row)
    if len(report.rows) == policy_rows:
        report.add(Row(", ".join(map(shown, options.files))).failed(_NOTHING))
    return write(_rendered(report, options), report.exit_code)


def _rendered(report: Report, options: argparse.Namespace) -> str:
    if options.output == "text":
        return "\n".join(_lines(report, color=use_color(options.color))) + "\n"
    return STRUCTURED[options.output](_values(report))


def _lines(report: Report, *, color: bool) -> Iterator[str]:
    for row in report.rows:
        # Refusals by a rule are in the walk; other errors are not about the policy.
        wrong = (entry for entry in row.entries if entry.level is Level.ERROR and entry.rule is None)
        yield from (line(row, entry, color=color) for entry in wrong)
        if row.explanation is None:
            continue
        place = row.file if row.position is None else f"{row.file}:{row.position.line}:{row.position.column}"
        yield visible(f"{place}: {row.reference}: {row.explanation['who']}".removesuffix(": "))
        if not row.explanation["who"]:
            yield f"  ({_NOT_ASKED})"
        for walk_line in walk_lines(row.explanation):
            yield _colored(f"  {visible(walk_line)}", color=color)


def _colored(text: str, *, color: bool) -> str:
    for mark, paint in _COLORS.items():
        if color and text.lstrip().startswith(mark):
            return f"{paint}{text}{_PLAIN}"
    return text


def _values(report: Report) -> dict[str, Any]:
    """The structure behind JSON and YAML; fields may be added while `version` is 1."""
    return {
        "version": VERSION,
        "objects": [
            {
                "file": row.file,
                "document": row.document,
                "apiVersion": row.api_version,
                "kind": row.kind,
                "namespace": row.namespace,
                "name": row.name,
                "operation": row.operation,
                "result": row.result.value,
                **(row.explanation or {}),
            }
            for row in report.rows
            if row.explanation is not None
        ],
        "faults": [
            {"file": row.file, "message": entry.message, "field": entry.field}
            for row in report.rows
            for entry in row.entries
            if row.explanation is None and entry.level is Level.ERROR
        ],
    }
