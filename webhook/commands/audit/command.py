"""`audit`: stored claims, templates and confirmations that would be refused today, or then. Changes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.admission.audit import AtRest, AuditReason, Author, audited
from webhook.admission.carried_text import fault_of_stored
from webhook.admission.config_maps import CANDIDATE_KEY, POLICY_KEY
from webhook.admission.context import AdmissionContext
from webhook.api.counts import counted
from webhook.api.field import Finding, Severity
from webhook.api.meta import GroupVersionKind, changed_at
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, DeviceTaintRule
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.commands.audit.releases import ReleaseAudit
from webhook.commands.shared.codes import add_codes, left_out
from webhook.commands.shared.entries import LEVELS, entries_of, unreadable_row
from webhook.commands.shared.flags import (
    add_allow_empty,
    add_cluster,
    add_color,
    add_kubernetes_version,
    add_policy_config_map,
    add_warnings_as_errors,
    credentials_of,
    known_names,
    refuse_cluster_beside_dump,
    refuse_empty,
    refuse_stdin_twice,
    use_color,
)
from webhook.commands.shared.main import main_of, reading_cluster
from webhook.commands.shared.manifest_review import mistaken_kind
from webhook.commands.shared.output import add_reports, renderer_of, write_reports
from webhook.commands.shared.policy_files import holds_policy, policy_file, review_policy, row_of
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_limit, as_namespace, as_time
from webhook.files.dump import CLAIMS, CONFIRMED, Dump, held_in, lacking, patching_object_in
from webhook.files.formats import FORMATS
from webhook.files.open_reports import OPEN_REPORTS, open_reports
from webhook.files.read import Manifest, read
from webhook.files.render import as_text, as_values
from webhook.files.report import UNREADABLE, Entry, Level, Report, Result, Row
from webhook.files.spots import NOWHERE, find
from webhook.files.stdin import STDIN
from webhook.files.structured import STRUCTURED, json_list
from webhook.files.tables import table
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.ports import asks_who

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from webhook.commands.shared.flags import KubernetesVersion
    from webhook.commands.shared.output import ReportTarget
    from webhook.commands.shared.policy_files import PolicyFile
    from webhook.policy.model import Policy

_NO_POLICY: Final = "no policy: only documented rules are checked; name a policy with --policy"
_UNVERIFIED: Final = " (author as claimed, unverified)"
_UNKNOWN: Final = " (requester unknown: rules on requesters counted as matching)"


class _AuditInput(NamedTuple):
    """What to audit, from files or a cluster."""

    dump: Dump
    policy: Policy | None = None
    candidate: Policy | None = None
    proved_since: datetime | None = None
    """Since when API servers have proved authors; None if that is not known."""
    judged_since: datetime | None = None
    """Since when the policy has said who may confirm; None if that is not known."""
    servers: ServerFacts = UNKNOWN


def run(arguments: Sequence[str]) -> int:
    """Prints what is refused. Returns 0 for nothing, 1 for something, 2 for wrong usage or unreadable input."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, parser: CommandLine) -> int:
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.policy, options.candidate], parser)
    now = options.time or datetime.now(UTC)  # noqa: TID251 -- the shell asks
    report = Report(strict=options.warnings_as_errors, ignored=left_out(options.select, options.ignore))
    found = _from_files(options, report, now) if options.dump else _from_cluster(options, report, now)
    if options.policy is not None:
        given = _policy_of(options.policy, report, now)
        found = found._replace(policy=given.policy, candidate=given.candidate)
    if options.candidate is not None:
        given = _policy_of(options.candidate, report, now)
        found = found._replace(candidate=given.candidate or given.policy)
    if options.namespace is not None:
        claims = [each for each in found.dump.claims if (row_of(each).namespace or "default") == options.namespace]
        found.dump.claims = claims
        if options.kubernetes_version:
            report.notes.append(f"rules and slices: only pods in namespace {options.namespace} are counted")
    _audit(found, now, report, options.namespace)
    if options.kubernetes_version:
        _add_release_changes(found, options.kubernetes_version, now, report)
    # An empty cluster is a valid answer.
    refuse_empty(report, "audit", allow_empty=options.allow_empty or not options.dump)
    code = report.exit_code
    if any(target.format == OPEN_REPORTS for target in options.output):
        if found.policy is None and found.candidate is None:
            text = as_grouped_text(report, limit=options.limit, color=False)
            sys.stderr.write(f"{text}{program()}: no reports without a policy that can be loaded: all would be empty\n")
            return 2
        code = 0 if code == 1 else code  # that there are findings is what the reports tell
    return write_reports(options.output, partial(_rendered, report, options, found.dump), code)


def _audit(found: _AuditInput, now: datetime, report: Report, namespace: str | None) -> None:
    """Adds a row for each claim and template, and for confirmations unless there is a namespace."""
    policy, candidate = found.policy, found.candidate
    if policy is None and candidate is None and not report.errors and not report.unreadable:
        report.add(Row("audit", local=False, entries=(Entry(Level.WARNING, _NO_POLICY),)))
    context = AdmissionContext(
        now=now,
        judge=BUILTIN_JUDGE if policy is None else Judge(policy),
        candidate=None if candidate is None else Judge(candidate),
        names=known_names(found.dump, (), None, {}),
    )
    asks_requester = any(asks_who(each) for each in (policy, candidate) if each is not None)
    if namespace is None:
        _add_confirmations(found, report)
    for manifest in found.dump.claims:
        entries = tuple(
            _entry(manifest, each.finding, each.reason, _about(each) if asks_requester else "")
            for each in audited(manifest.value, context, found.proved_since)
        )
        denied = any(entry.level is Level.ERROR for entry in entries)
        report.add(replace(row_of(manifest), result=Result.DENIED if denied else Result.ALLOWED, entries=entries))


def _add_confirmations(found: _AuditInput, report: Report) -> None:
    """Adds a row for each rule and patch that carries a confirmation."""
    for manifest in found.dump.others:
        if row_of(manifest).kind not in CONFIRMED:
            continue
        held, _ = held_in(manifest.value)
        judged = held or patching_object_in(manifest.value)[0]
        if (
            not isinstance(judged, DeviceTaintRule | ResourceSlicePatch)
            or CONFIRM_IMPACT not in judged.meta.annotations
        ):
            continue
        fault = fault_of_stored(judged, manifest.value["metadata"], found.judged_since)
        refused = fault is not None and fault.severity is Severity.DENY
        reason = AuditReason.REFUSED if refused else AuditReason.WARNED
        entries = () if fault is None else (_entry(manifest, fault, reason),)
        report.add(replace(row_of(manifest), result=Result.DENIED if refused else Result.ALLOWED, entries=entries))


def _add_release_changes(found: _AuditInput, version: KubernetesVersion, now: datetime, report: Report) -> None:
    """Adds a row for each object of a dump that servers of that version do not serve, or read otherwise."""
    stored = (*found.dump.claims, *found.dump.others)
    audit = ReleaseAudit(stored, found.servers, version, now)
    for manifest in stored:
        row, mistake = row_of(manifest), None
        if manifest.spot is not NOWHERE:  # a cluster answers in the version that it is asked for
            mistake = mistaken_kind(GroupVersionKind.parse(row.api_version, row.kind), version.release)
        unserved = entries_of(manifest.spot, [Finding(Severity.DENY, mistake)] if mistake else [])
        entries = (*unserved, *audit.entries(manifest))
        if entries:
            result = Result.ALLOWED if mistake is None else Result.DENIED
            counted_before = row.kind in CLAIMS
            report.add(replace(row, judges=counted_before, result=result, entries=entries))


def _about(found: AtRest) -> str:
    """What is known of the author, where the policy depends on requesters."""
    return _UNVERIFIED if found.author is Author.CLAIMED else _UNKNOWN if found.author is Author.UNKNOWN else ""


def _entry(manifest: Manifest, finding: Finding, reason: AuditReason, note: str = "") -> Entry:
    """The entry of a finding."""
    error, spot = finding.error, manifest.spot
    place = None if spot is NOWHERE else find(spot, error.path)[0].position
    return Entry(
        LEVELS[finding.severity],
        finding.body + note,
        place,
        error.field,
        reason.value,
        rule=finding.rule,
    )


# --- input ---------------------------------------------------------------------------------------


def _from_files(options: argparse.Namespace, report: Report, now: datetime) -> _AuditInput:
    """A dump, with its own policy unless another one is given."""
    dump = Dump()
    for file in read(options.dump):
        report.files += 1
        unreadable = unreadable_row(file)
        if unreadable is not None:
            report.add(unreadable)
        dump.add(file.manifests)
    report.notes += lacking(dump, releases=bool(options.kubernetes_version))
    if options.policy is not None:
        return _AuditInput(dump)
    holding = [manifest for manifest in dump.others if holds_policy(manifest.value)]
    if len(holding) > 1:
        problem = f"contains {len(holding)} policies; choose one with --policy"
        report.add(Row(holding[1].file).failed(problem))
        return _AuditInput(dump)
    policy, candidate = _policies_in(holding, report, now)
    return _AuditInput(dump, policy, candidate, judged_since=_judged_since(policy, holding))


def _from_cluster(options: argparse.Namespace, report: Report, now: datetime) -> _AuditInput:
    """The cluster's own objects and policy. Raises ClusterUnreachable."""
    # Late: see commands/shared/main.py.
    import asyncio  # noqa: PLC0415

    from webhook.commands.audit.from_cluster import dump_of_cluster  # noqa: PLC0415

    config_map = None if options.policy is not None else options.policy_configmap
    # A Report is of a namespace, so it has no place for rules, and an account that only keeps reports reads none.
    slices = bool(options.kubernetes_version)
    rules = (slices or options.namespace is None) and any(target.format != OPEN_REPORTS for target in options.output)
    with reading_cluster():
        answer = asyncio.run(
            dump_of_cluster(credentials_of(options), config_map, options.namespace, rules=rules, slices=slices)
        )
    report.files, report.source = 1, "cluster"
    report.notes += answer.notes
    dump = Dump()
    dump.add(Manifest(answer.server, number, value, NOWHERE) for number, value in enumerate(answer.objects, 1))
    if answer.policy is None:
        return _AuditInput(dump, proved_since=answer.proved_since, servers=answer.servers)
    holding = [answer.policy]
    policy, candidate = _policies_in(holding, report, now)
    return _AuditInput(dump, policy, candidate, answer.proved_since, _judged_since(policy, holding), answer.servers)


def _judged_since(policy: Policy | None, holding: Sequence[Manifest]) -> datetime | None:
    """Since when confirmations have been judged as today: as long as the policy that says who may confirm is there."""
    if policy is None or not holding or "data" not in holding[0].value:
        return None
    metadata, impact = holding[0].value.get("metadata") or {}, policy.impact
    if impact.confirmers is None and all(each.confirmable for each in impact.limits):
        metadata = {"creationTimestamp": metadata.get("creationTimestamp")}
    return changed_at(metadata, "data")


def _policies_in(holding: Sequence[Manifest], report: Report, now: datetime) -> tuple[Policy | None, Policy | None]:
    """Policy and candidate of documents or ConfigMaps; their errors and expiring exceptions go into the report."""
    policy = candidate = None
    for manifest in holding:
        judged = review_policy(manifest, row_of(manifest), now=now)
        report.add(replace(judged.row, judges=True))
        policy, candidate = (
            judged.loaded[key].policy if key in judged.loaded else None for key in (POLICY_KEY, CANDIDATE_KEY)
        )
    return policy, candidate


def _policy_of(name: str, report: Report, now: datetime) -> PolicyFile:
    found = policy_file(name, now=now)
    for row in found.rows:
        report.add(replace(row, judges=True))
    return found


# --- flags --------------------------------------------------------------------------------------


def _rendered(report: Report, options: argparse.Namespace, dump: Dump, target: ReportTarget) -> str:
    match target.format:
        case "text":
            return as_grouped_text(report, limit=options.limit, color=target.shown and use_color(options.color))
        case "json" | "yaml":
            return STRUCTURED[target.format](as_grouped_values(report))
        case "openreports":
            namespaces = dump.namespaces if options.namespace is None else (options.namespace,)
            return json_list(open_reports(report, namespaces, dump.terminating))
        case _:
            return renderer_of("audit").render(target.format, report)


def _add_policies(parser: CommandLine) -> None:
    """The policy and a candidate."""
    add = parser.add_argument
    add("--policy", metavar="F", help="the policy; default the ConfigMap in the dump or the cluster")
    add("--candidate", metavar="F", help="another policy: reports what only this one would refuse, as warnings")
    add_policy_config_map(parser)


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = CommandLine(
        program("audit"),
        "Lists stored claims, templates and confirmations that the policy would refuse if they were created now.",
        "Exit codes: 0 nothing is refused, or -o openreports tells of it; 1 something is; 2 wrong usage, unreadable "
        "input or nothing to check.",
        (
            "device-taint-webhook audit -n ml",
            "device-taint-webhook audit --kubeconfig kubeconfig.yaml --candidate next.yaml",
            "device-taint-webhook audit --dump dump.json --policy policy.yaml",
            "device-taint-webhook audit -o openreports",
            "device-taint-webhook audit --dump dump.json --policy policy.yaml --time 2026-12-31T00:00:00Z",
        ),
    )
    add = parser.add_argument
    add(
        "--dump",
        nargs="+",
        default=[],
        metavar="DIR|FILE",
        help="output of kubectl get "
        "resourceclaimtemplates,resourceclaims,devicetaintrules,namespaces,deviceclasses -A -o json, with "
        "--kubernetes-version also resourceslices; "
        "YAML works, too, but JSON is read three times as fast; "
        f"{STDIN} is standard input; without this flag the cluster is read",
    )
    add_cluster(parser)
    namespace = "only claims and templates in this namespace; default: all"
    add("-n", "--namespace", type=as_namespace, metavar="NS", help=namespace)
    _add_policies(parser)
    add("--time", type=as_time, metavar="T", help="check as of this time (RFC 3339), for exceptions; default now")
    add_kubernetes_version(parser, "also list what stored rules and slices would do on servers of this version")
    add("--limit", type=as_limit, default=LINES, metavar="N", help=f"lines of text, 0 for all; default {LINES}")
    add_warnings_as_errors(parser)
    add_allow_empty(parser)
    add_reports(parser, (*FORMATS, OPEN_REPORTS))
    add_codes(parser)
    add_color(parser)
    return parser


# --- findings, counted by rule and namespace ------------------------------------------------------


LINES: Final = 200
"""Findings in a text, unless another limit is given."""
_HEADERS: Final = ("RULE", "NAMESPACE", "ERRORS", "WARNINGS", "OBJECTS")
_NUMBERS: Final = (2, 3, 4)


def grouped(report: Report) -> list[dict[str, Any]]:
    """`rule`, `namespace`, `errors`, `warnings` and `objects` that have any, the most errors first.

    Findings that come from no rule of the policy are grouped by reason, such as `FieldValueTooMany`.
    """
    counts: Counter[tuple[str, str, Level]] = Counter()
    objects: dict[tuple[str, str], set[int]] = {}
    for number, row in enumerate(report.rows):
        for entry in row.entries:
            if entry.level is Level.INFO or entry.reason == UNREADABLE or not row.kind.startswith("ResourceClaim"):
                continue
            rule = entry.rule or entry.code or entry.reason
            counts[rule, row.namespace, entry.level] += 1
            objects.setdefault((rule, row.namespace), set()).add(number)
    found = [
        {
            "rule": rule,
            "namespace": namespace,
            "errors": counts[rule, namespace, Level.ERROR],
            "warnings": counts[rule, namespace, Level.WARNING],
            "objects": len(numbers),
        }
        for (rule, namespace), numbers in objects.items()
    ]
    return sorted(found, key=lambda each: (-each["errors"], -each["warnings"], each["rule"], each["namespace"]))


def as_grouped_text(report: Report, *, limit: int, color: bool) -> str:
    """At most `limit` findings (0 for all), a table of counts by rule and namespace, notes, and totals."""
    lines = as_text(report, color=color, named=True).splitlines()
    findings = len(lines) - len(report.notes) - 1
    counts = _table(report, limit, color=color)
    return "\n".join([*_first_lines(lines[:findings], limit), *counts, *lines[findings:]]) + "\n"


def _first_lines(lines: list[str], limit: int) -> Iterator[str]:
    if not limit or len(lines) <= limit:
        yield from lines
        return
    yield from lines[:limit]
    rest = len(lines) - limit
    yield f"and {counted(rest, 'more finding')}; --limit 0 lists all"


def _table(report: Report, limit: int, *, color: bool) -> Iterator[str]:
    """The table of counts, if there are two objects or more."""
    groups = grouped(report)
    if sum(group["objects"] for group in groups) < 2:
        return
    shown = groups[:limit] if limit else groups
    yield ""
    rows = [[str(value) for value in group.values()] for group in shown]
    yield from table(rows, headers=_HEADERS, right=_NUMBERS, color=color)
    if len(shown) < len(groups):
        yield f"and {len(groups) - len(shown)} more of these"
    yield ""


def as_grouped_values(report: Report) -> dict[str, Any]:
    """The structure of a report, and `groups`."""
    return {**as_values(report), "groups": grouped(report)}
