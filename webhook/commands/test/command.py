"""`test`: runs test suites of policies. Needs no cluster."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime
from functools import partial

from webhook.api.field import Finding, Path, Severity
from webhook.commands.shared.entries import duplicate_entries, entries_of, unreadable_row
from webhook.commands.shared.flags import add_allow_empty, add_color, add_skip_others, use_color
from webhook.commands.shared.output import ReportTarget, add_reports, render, write_reports
from webhook.commands.shared.policy_files import policy_file
from webhook.commands.test.results import Results, as_report, as_text, as_values
from webhook.commands.test.runner import BadCase, Runner, beside, cluster_of
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_pattern, own_namespace
from webhook.files import STDIN
from webhook.files.manifests import text
from webhook.files.read import Manifest, read, shown
from webhook.files.report import FORMATS, STRUCTURED, Entry, Level, Result
from webhook.files.spots import find
from webhook.policy.document import load
from webhook.policy.model import Policy
from webhook.policy.suites import KIND, Suite, read_suite


def run(options: argparse.Namespace, _: CommandLine) -> int:
    """Print the result of each case. Return 0 if all passed, 1 if not, 2 if something could not be run or read."""
    results = Results(fail_uncovered=options.fail_uncovered, partial=options.run is not None)
    now = datetime.now(UTC)  # noqa: TID251 -- the shell asks
    skipped = [_run_all(name, results, options, now) for name in options.suites]
    if not results.exit_code and not results.tested and not (options.allow_empty or all(skipped)):
        why = "no case was run" if options.run is None else f"no case matches --run {options.run.pattern}"
        results.nothing_run = f"{why}; pass --allow-empty if that is expected"
        sys.stderr.write(f"{program('test')}: {results.nothing_run}\n")
    return write_reports(options.output, partial(_rendered, results, options), results.exit_code)


def _rendered(results: Results, options: argparse.Namespace, target: ReportTarget) -> str:
    if target.format == "text":
        return as_text(results, color=target.shown and use_color(options.color), verbose=options.verbose)
    if target.format in STRUCTURED:
        return STRUCTURED[target.format](as_values(results))
    return render("test", target.format, as_report(results, messages=target.format == "junit"))


def _run_all(name: str, results: Results, options: argparse.Namespace, now: datetime) -> bool:
    """Run the suites of a file or folder. In a folder, files without a suite are ignored; a named file must have one.

    Return whether it was skipped for having none.
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
            _run_suite(manifest, results, options.run, now)
    if not found and not skip:
        missing = f"contains no {KIND}; --skip-others skips such files"
        results.add_fault(shown(name), [Entry(Level.ERROR, missing)])
    return skip and not found


def _run_suite(manifest: Manifest, results: Results, pattern: re.Pattern[str] | None, now: datetime) -> None:
    suite, errors = read_suite(manifest.value)
    denials = (Finding(Severity.DENY, error) for error in errors)
    entries = [*duplicate_entries(manifest), *entries_of(manifest.spot, denials)]
    if suite is None or entries:
        results.add_fault(manifest.file, entries)
        return
    policy = _policy_of(suite, manifest, results)
    if policy is None:
        return
    at = beside(manifest.file, suite.policy) if isinstance(suite.policy, str) else f"{manifest.file} (policy)"
    results.add_suite(policy, at)
    cluster = None
    if suite.inventory is not None:
        cluster = cluster_of(suite.inventory, manifest, results)
        if cluster is None:
            return
    runner = Runner(suite, policy, manifest, cluster, now=now)
    for case in suite.cases:
        if pattern is not None and not pattern.search(f"{suite.name or manifest.file}/{case.name}"):
            continue
        try:
            results.add(runner.outcome_of(case), policy)
        except BadCase as error:
            path = error.path or case.path
            position = find(manifest.spot, path)[0].position
            results.add_fault(manifest.file, [Entry(Level.ERROR, str(error), position, str(path))])


def _policy_of(suite: Suite, manifest: Manifest, results: Results) -> Policy | None:
    """Return the suite's policy, or None; errors go into the results."""
    if isinstance(suite.policy, str):
        found = policy_file(beside(manifest.file, suite.policy))
        results.faults += [row for row in found.rows if row.count(Level.ERROR)]
        return found.policy if found.usable else None
    loaded = load(suite.policy, Path.root().child("policy"), namespace=own_namespace())
    if loaded.policy is None:
        denials = (Finding(Severity.DENY, error) for error in loaded.errors)
        results.add_fault(manifest.file, entries_of(manifest.spot, denials))
    return loaded.policy


def command_line() -> CommandLine:
    """Return the flags of the verb."""
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
    help_text = f"files; folders are searched for *.yaml, *.yml and *.json; {STDIN} is standard input"
    add("suites", nargs="+", metavar="SUITE|DIR", help=help_text)
    add("--run", type=as_pattern, metavar="REGEX", help="only cases whose SUITE/NAME matches it anywhere")
    add_allow_empty(parser)
    add("--fail-uncovered", action="store_true", help="fail if a rule of the policy is hit by no case")
    add_reports(parser, FORMATS)
    add_skip_others(parser, f"files without a {KIND}")
    add("-v", "--verbose", action="store_true", help="also show which rules matched, and all messages")
    add_color(parser)
    return parser
