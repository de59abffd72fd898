"""`test`: runs test suites of policies. Needs no cluster."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.api.field import Finding, Path, Severity
from webhook.commands.shared.entries import duplicate_entries, entries_of, text, unreadable_row
from webhook.commands.shared.flags import add_allow_empty, add_color, add_skip_others, use_color
from webhook.commands.shared.main import main_of
from webhook.commands.shared.output import add_reports, renderer_of, write_reports
from webhook.commands.shared.policy_files import policy_file
from webhook.commands.test.results import Results, Tested, as_report, as_text, as_values
from webhook.commands.test.runner import BadCase, Runner, cluster_of
from webhook.config.command_line import CommandLine, program
from webhook.config.namespace import own_namespace
from webhook.config.texts import as_pattern
from webhook.files.formats import FORMATS
from webhook.files.read import read, shown
from webhook.files.report import UNREADABLE, Entry, Level, Result, Row
from webhook.files.spots import find
from webhook.files.stdin import STDIN
from webhook.files.structured import STRUCTURED
from webhook.policy.document import load
from webhook.policy.suites import KIND, read_suite

if TYPE_CHECKING:
    import argparse
    import re
    from collections.abc import Sequence

    from webhook.commands.shared.output import ReportTarget
    from webhook.files.read import File, Manifest
    from webhook.policy.model import Policy
    from webhook.policy.suites import Suite

_POLICY: Final = Path.root().child("policy")


def run(arguments: Sequence[str]) -> int:
    """Prints the result of each case. Returns 0 if all passed, 1 if not, 2 if something could not be run or read."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, _: CommandLine) -> int:
    results = Results(fail_uncovered=options.fail_uncovered, partial=options.run is not None)
    now = datetime.now(UTC)  # noqa: TID251 -- the shell asks
    skipped = [_run_all(name, results, options, now) for name in options.suites]
    code = results.exit_code
    if not code and not results.tested and not (options.allow_empty or all(skipped)):
        why = "no case was run" if options.run is None else f"no case matches --run {options.run.pattern}"
        sys.stderr.write(f"{program('test')}: {why}; pass --allow-empty if that is expected\n")
        code = 2
    return write_reports(options.output, partial(_rendered, results, options), code)


def _rendered(results: Results, options: argparse.Namespace, target: ReportTarget) -> str:
    match target.format:
        case "text":
            return as_text(results, color=target.shown and use_color(options.color), verbose=options.verbose)
        case "json" | "yaml":
            return STRUCTURED[target.format](as_values(results))
        case _:
            report = as_report(results, messages=target.format == "junit")
            return renderer_of("test").render(target.format, report)


def _run_all(name: str, results: Results, options: argparse.Namespace, now: datetime) -> bool:
    """Runs the suites of a file or folder. In a folder, files without a suite are ignored; a named file must have one.

    Whether it was skipped for having none.
    """
    found = False
    skip: bool = options.skip_others
    for file in read([name]):
        objects = [manifest for manifest in file.manifests if isinstance(manifest.value, dict)]
        suites = [manifest for manifest in objects if text(manifest.value, "kind") == KIND]
        found = found or bool(suites)
        unreadable = unreadable_row(file, skip_others=skip)
        if unreadable is not None and unreadable.result is not Result.SKIPPED and (file.explicit or suites):
            results.faults.append(unreadable)
            found = True
        for manifest in suites:
            _run_suite(file, manifest, results, options.run, now)
    if not found and not skip:
        results.faults.append(Row(shown(name)).failed(f"contains no {KIND}; --skip-others skips such files"))
    return skip and not found


def _run_suite(
    file: File, manifest: Manifest, results: Results, pattern: re.Pattern[str] | None, now: datetime
) -> None:
    suite, errors = read_suite(manifest.value)
    entries = [
        *duplicate_entries(manifest),
        *entries_of(manifest.spot, (Finding(Severity.DENY, error) for error in errors)),
    ]
    if suite is None or entries:
        results.faults.append(_unusable(manifest, entries))
        return
    folder = os.path.dirname("" if file.name.startswith("<") else file.name)  # noqa: PTH120 -- shown as it is put together
    policy = _policy_of(suite, manifest, folder, results)
    if policy is None:
        return
    results.add_suite(
        policy, _beside(folder, suite.policy) if isinstance(suite.policy, str) else f"{file.name} (policy)"
    )
    name = suite.name or file.name
    cluster = None
    if suite.inventory is not None:
        cluster = cluster_of(suite.inventory, manifest, folder)
        results.faults += cluster.faults
        if cluster.faults:
            return
    runner = Runner(suite, policy, folder, cluster, now=now)
    for case in suite.cases:
        if pattern is not None and not pattern.search(f"{name}/{case.name}"):
            continue
        position = find(manifest.spot, case.path)[0].position
        try:
            results.add(Tested(file.name, name, position, runner.outcome_of(case)), policy)
        except BadCase as error:
            path = error.path or case.path
            position = find(manifest.spot, path)[0].position
            entry = Entry(Level.ERROR, str(error), position, str(path), UNREADABLE)
            results.faults.append(Row(file.name, result=Result.DENIED, entries=(entry,)))


def _policy_of(suite: Suite, manifest: Manifest, folder: str, results: Results) -> Policy | None:
    """The suite's policy, or None; errors go into the results."""
    if isinstance(suite.policy, str):
        found = policy_file(_beside(folder, suite.policy))
        results.faults.extend(row for row in found.rows if row.count(Level.ERROR))
        return found.policy if found.usable else None
    loaded = load(suite.policy, _POLICY, namespace=own_namespace())
    errors = (Finding(Severity.DENY, error) for error in loaded.errors)
    if loaded.policy is None:
        results.faults.append(_unusable(manifest, list(entries_of(manifest.spot, errors))))
    return loaded.policy


def _beside(folder: str, name: str) -> str:
    return os.path.join(folder, name)  # noqa: PTH118 -- as above


def _unusable(manifest: Manifest, entries: Sequence[Entry]) -> Row:
    """Errors in a suite or its policy: nothing was tested, which is worse than a failed case."""
    return Row(
        manifest.file,
        manifest.document,
        manifest.spot.position,
        kind=KIND,
        result=Result.DENIED,
        entries=tuple(entries),
    )


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = CommandLine(
        program("test"),
        f"Runs test suites of policies: documents of kind {KIND}.",
        "Exit codes: 0 all passed, 1 a case failed, 2 wrong usage, or something could not be run.",
        (
            "device-taint-webhook test policy_test.yaml",
            "device-taint-webhook test manifests/policies --fail-uncovered",
            "device-taint-webhook test tests --run 'lab/.*expired' -v",
        ),
    )
    add = parser.add_argument
    add(
        "suites",
        nargs="+",
        metavar="SUITE|DIR",
        help=f"files; folders are searched for *.yaml, *.yml and *.json; {STDIN} is standard input",
    )
    add("--run", type=as_pattern, metavar="REGEX", help="only cases whose SUITE/NAME matches it anywhere")
    add_allow_empty(parser)
    add("--fail-uncovered", action="store_true", help="fail if a rule of the policy is hit by no case")
    add_reports(parser, FORMATS)
    add_skip_others(parser, f"files without a {KIND}")
    add("-v", "--verbose", action="store_true", help="also show which rules matched, and all messages")
    add_color(parser)
    return parser
