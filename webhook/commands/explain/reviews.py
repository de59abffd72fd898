"""Files explained: why a policy allows or refuses the objects in them, rule by rule."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

from webhook.commands.check import refuse_nameless, refuse_two_policies, terms_of
from webhook.commands.shared.entries import unreadable_row
from webhook.commands.shared.flags import refuse_stdin_twice, use_color
from webhook.commands.shared.manifest_review import review_manifest
from webhook.commands.shared.output import write
from webhook.commands.shared.walks import walk_lines
from webhook.config.command_line import CommandLine
from webhook.files.read import shown
from webhook.files.report import STRUCTURED, Level, Report, Result, Row, line, painted, visible

_NOTHING: Final = "contains no claim, template, rule, patch or slice to explain"
_NOT_ASKED: Final = "has errors of its own, so no rule was evaluated"
_COLORS: Final = {"=> denied": "\x1b[1;31m", "=> allowed": "\x1b[32m"}


def explain_files(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print the rules evaluated for each object. Returns 0, 1 if one is refused, 2 for wrong usage or bad input."""
    if options.policy is None and options.policy_configmap is None:
        parser.error("--policy or --policy-configmap is required: there is no decision to explain without a policy")
    refuse_stdin_twice([*options.files, *options.old, options.policy], parser)
    refuse_two_policies(options, parser)
    refuse_nameless(options, parser)
    report = Report()
    files, terms = terms_of(options, report)
    if any(row.count(Level.ERROR) for row in report.rows):  # a policy with errors explains nothing
        return write(_rendered(report, options), report.exit_code)
    policy_rows = len(report.rows)
    for file in files:
        unreadable = unreadable_row(file)
        if unreadable is not None:
            report.add(unreadable)
        for manifest in file.manifests:
            row = review_manifest(manifest, terms, explicit=file.explicit)
            if row.result is Result.DENIED or (row.operation and row.result is not Result.SKIPPED):
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
            return painted(text, paint)
    return text


def _values(report: Report) -> dict[str, Any]:
    """Return the structure behind JSON and YAML; fields may be added while `version` is 1."""
    return {
        "version": 1,
        "objects": [
            {
                **row.identity,
                "operation": row.operation,
                "result": row.result.value,
                **row.explanation,
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
