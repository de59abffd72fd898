"""`audit`: stored claims, templates and confirmations that would be refused today, or then. Changes nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from msgspec import structs

from webhook.admission.audit import AuditReason, Author, audited
from webhook.admission.confirmation import fault_of_stored
from webhook.admission.context import AdmissionContext
from webhook.admission.impact_text import first_names
from webhook.api.field import Finding, Path, Severity
from webhook.api.messages import counted
from webhook.api.meta import GroupVersionKind, changed_at
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, DeviceTaintRule
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.api.taints import NO_EXECUTE, NONE
from webhook.commands.shared import flags
from webhook.commands.shared.codes import add_codes, left_out
from webhook.commands.shared.entries import LEVELS, entries_of, unreadable_row, with_entries
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.manifest_review import DEFAULT_NAMESPACE, mistaken_kind
from webhook.commands.shared.output import ReportTarget, add_reports, render, write_reports
from webhook.commands.shared.policy_files import holds_policy, policy_file, policy_of, row_of
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_limit_or_all, as_namespace, as_time
from webhook.files import STDIN
from webhook.files.ci_formats import OPEN_REPORTS, open_reports
from webhook.files.manifests import CLAIMS, CONFIRMED, Dump, Stock, held_in, lacking, meta, patching_object_in
from webhook.files.read import Manifest, read
from webhook.files.report import (
    FORMATS,
    STRUCTURED,
    UNREADABLE,
    Entry,
    Level,
    Report,
    Result,
    Row,
    as_text,
    as_values,
    json_list,
    table,
)
from webhook.files.spots import NOWHERE, find
from webhook.inventory.impact import Taint, impact_of, impact_on_devices
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.match import KnownNames, asks_who
from webhook.policy.model import Policy
from webhook.validation.rules import SELECTOR, TAINT

_NO_POLICY: Final = "no policy: only documented rules are checked; name a policy with --policy"
_ABOUT: Final = {
    Author.CLAIMED: " (author as claimed, unverified)",
    Author.UNKNOWN: " (requester unknown: rules on requesters count as matching if they refuse)",
}
_HEADERS: Final = ("RULE", "NAMESPACE", "ERRORS", "WARNINGS", "OBJECTS")
_DEVICES: Final = Path.root().child("spec", "devices")
_MILD: Final = {
    "extended_evicted": False,
    "empty_effect_protects": True,
    "taints_by_default": False,
    "rules_by_default": False,
}


class _AuditInput(NamedTuple):
    """Objects to audit and the policies for them, from files or a cluster."""

    dump: Dump
    held: Manifest | None = None
    """The policy that was read with them, None if there is none or another one is given."""
    policy: Policy | None = None
    candidate: Policy | None = None
    proved_since: datetime | None = None
    """Since when API servers have proved authors; None if that is not known."""
    judged_since: datetime | None = None
    """Since when the policy has said who may confirm; None if that is not known."""
    servers: ServerFacts = UNKNOWN


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print what is refused. Returns 0 for nothing, 1 for something, 2 for wrong usage or unreadable input."""
    flags.refuse_cluster_beside_dump(options, parser)
    flags.refuse_stdin_twice([*options.dump, options.policy, options.candidate], parser)
    now = options.time or datetime.now(UTC)  # noqa: TID251 -- the shell asks
    report = Report(strict=options.warnings_as_errors, ignored=left_out(options.select, options.ignore))
    found = _from_files(options, report) if options.dump else _from_cluster(options, report)
    found = _with_policies(found, options, report, now)
    faulty = report.errors > 0  # of policies: the objects come below
    if options.namespace is not None:
        claims = found.dump.claims
        found.dump.claims = [e for e in claims if (row_of(e).namespace or DEFAULT_NAMESPACE) == options.namespace]
        if options.kubernetes_version:
            report.notes.append(f"rules and slices: only pods in namespace {options.namespace} are counted")
    if found.policy is None and found.candidate is None and not report.errors and not report.unreadable:
        report.add(Row("audit", local=False, entries=(Entry(Level.WARNING, _NO_POLICY),)))
    if options.namespace is None:
        _add_confirmations(found, report)
    _add_claims(found, now, report, options.exempt_namespaces)
    if options.kubernetes_version:
        _add_release_changes(found, options.kubernetes_version, now, report)
    # An empty cluster is a valid answer.
    flags.refuse_empty(report, "audit", allow_empty=options.allow_empty or not options.dump)
    code = report.exit_code
    if any(target.format == OPEN_REPORTS for target in options.output):
        if code == 2 or faulty or (found.policy is None and found.candidate is None):
            text = "\n".join(_lines(report, options.limit, color=False))
            said = f"{program()}: no reports unless all is read, with no faulty policy: they would take back findings"
            sys.stderr.write(f"{text}\n{said}\n")
            return 2
        code = 0 if code == 1 else code  # that there are findings is what the reports tell
    return write_reports(options.output, lambda target: _rendered(report, options, found.dump, target), code)


def _add_confirmations(found: _AuditInput, report: Report) -> None:
    """Add a row for each rule and patch that carries a confirmation."""
    for manifest in found.dump.others:
        if row_of(manifest).kind not in CONFIRMED:
            continue
        judged = held_in(manifest.value)[0] or patching_object_in(manifest.value)[0]
        if isinstance(judged, DeviceTaintRule | ResourceSlicePatch) and CONFIRM_IMPACT in judged.meta.annotations:
            fault = fault_of_stored(judged, manifest.value["metadata"], found.judged_since)
            refused = fault is not None and fault.severity is Severity.DENY
            reason = AuditReason.REFUSED if refused else AuditReason.WARNED
            report.add(with_entries(row_of(manifest), [_entry(manifest, fault, reason)] if fault else []))


def _add_claims(found: _AuditInput, now: datetime, report: Report, exempt: Container[str]) -> None:
    """Add a row for each claim and template that the webhook is asked about."""
    policy, candidate = found.policy, found.candidate
    context = AdmissionContext(
        now=now,
        judge=BUILTIN_JUDGE if policy is None else Judge(policy),
        candidate=None if candidate is None else Judge(candidate),
        names=KnownNames(found.dump.namespaces, found.dump.device_classes),
    )
    about = _ABOUT if any(asks_who(each) for each in (policy, candidate) if each is not None) else {}
    judged = [each for each in found.dump.claims if row_of(each).namespace not in exempt]
    if unasked := len(found.dump.claims) - len(judged):
        report.notes.append(f"claims and templates in exempt namespaces are left out: {unasked}")
    for manifest in judged:
        entries = [
            _entry(manifest, each.finding, each.reason, about.get(each.author, ""))
            for each in audited(manifest.value, context, found.proved_since)
        ]
        report.add(with_entries(row_of(manifest), entries))


def _entry(manifest: Manifest, finding: Finding, reason: AuditReason, note: str = "") -> Entry:
    error, spot = finding.error, manifest.spot
    place = None if spot is NOWHERE else find(spot, error.path)[0].position
    message = finding.body + note
    return Entry(LEVELS[finding.severity], message, place, error.field, reason.value, rule=finding.rule)


# --- input ---------------------------------------------------------------------------------------


def _from_files(options: argparse.Namespace, report: Report) -> _AuditInput:
    """Read a dump, with its own policy unless another one is given."""
    dump = Dump()
    for file in read(options.dump):
        report.files += 1
        if (unreadable := unreadable_row(file)) is not None:
            report.add(unreadable)
        dump.add(file.manifests)
    report.notes += lacking(dump, releases=bool(options.kubernetes_version))
    holding = [] if options.policy is not None else [each for each in dump.others if holds_policy(each.value)]
    if len(holding) > 1:
        report.add(Row(holding[1].file).failed(f"contains {len(holding)} policies; choose one with --policy"))
        return _AuditInput(dump)
    return _AuditInput(dump, holding[0] if holding else None)


def _from_cluster(options: argparse.Namespace, report: Report) -> _AuditInput:
    """Read the cluster's own objects and policy. Raises ClusterUnreachable."""
    import asyncio  # noqa: PLC0415

    from webhook.commands.shared.snapshot import dump_of_cluster  # noqa: PLC0415

    config_map = None if options.policy is not None else options.policy_configmap
    # A Report is of a namespace, so it has no place for rules, and an account that only keeps reports reads none.
    slices = bool(options.kubernetes_version)
    rules = (slices or options.namespace is None) and any(target.format != OPEN_REPORTS for target in options.output)
    with reading_cluster():
        answer = asyncio.run(
            dump_of_cluster(flags.credentials_of(options), config_map, options.namespace, rules=rules, slices=slices)
        )
    report.files, report.source = 1, "cluster"
    report.notes += answer.notes
    dump = Dump()
    dump.add(Manifest(answer.server, number, value, NOWHERE) for number, value in enumerate(answer.objects, 1))
    return _AuditInput(dump, answer.policy, proved_since=answer.proved_since, servers=answer.servers)


def _with_policies(found: _AuditInput, options: argparse.Namespace, report: Report, now: datetime) -> _AuditInput:
    """Add policy and candidate of files, or of what was read; their errors and expiring exceptions are reported."""
    held, since = found.held, None
    _, policy, candidate = policy_of(options.policy, held, now=now).told(report)
    if options.candidate is not None:
        _, other, of_other = policy_file(options.candidate, now=now).told(report)
        candidate = of_other or other
    if policy is not None and held is not None and "data" in held.value:
        # Confirmations have been judged as today as long as the policy that says who may confirm is there.
        metadata, impact = meta(held.value), policy.impact
        if impact.confirmers is None and all(each.confirmable for each in impact.limits):
            metadata = {"creationTimestamp": metadata.get("creationTimestamp")}
        since = changed_at(metadata, "data")
    return found._replace(policy=policy, candidate=candidate, judged_since=since)


# --- other releases ------------------------------------------------------------------------------


def _add_release_changes(found: _AuditInput, version: flags.KubernetesVersion, now: datetime, report: Report) -> None:
    """Add a row for each object of a dump that servers of that version do not serve, or read otherwise."""
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
            report.add(replace(row, judges=row.kind in CLAIMS, result=result, entries=entries))  # claims count already


class ReleaseAudit:
    """Stored objects, as servers of two versions read them. What is not known of today's is reported as a change."""

    def __init__(
        self, manifests: Iterable[Manifest], today: ServerFacts, then: flags.KubernetesVersion, now: datetime
    ) -> None:
        mild = {name: value for name, value in _MILD.items() if getattr(today, name) is None}
        if today.missing_selects_nothing is None:
            mild["missing_selects_nothing"] = not then.facts.missing_selects_nothing
        self._today, self._then = structs.replace(today, **mild), then
        self._now = now
        stock = Stock()
        stock.add(manifests)
        self._inventory = stock.inventory
        claims = stock.inventory.claims.values()
        self._names = {user.uid: f"{each.meta.namespace}/{user.name}" for each in claims for user in each.reserved_for}

    def entries(self, manifest: Manifest) -> Iterator[Entry]:
        """Yield what changes for a rule or a slice: errors for what that release does not take, else warnings."""
        value, errors = held_in(manifest.value)
        if errors or not isinstance(value, DeviceTaintRule | ResourceSlice):
            return
        if isinstance(value, DeviceTaintRule):
            path, default, effects = TAINT, "rules_by_default", {value.taint.effect}
        else:
            path, default, effects = _DEVICES, "taints_by_default", {each.effect for each in value.distinct_taints}
        if NONE in effects - self._then.release.effects:
            text = "has a taint with effect None, which that release does not know: remove it before you go there"
            yield Entry(Level.ERROR, text, field=str(path), reason="release")
        (evicted_today, closed_today), (evicted, closed) = (
            self._done_by(value, servers) for servers in (self._today, self._then.facts)
        )
        if more := evicted - evicted_today:
            text = f"evicts {counted(len(more), 'pod')} there that it leaves alone today: "
            yield _change(path, text + first_names(sorted(self._names[uid] for uid in more)))
        if closed != closed_today:
            does = f"closes {counted(closed, 'device')} for it" if closed else "selects nothing for it"
            yield _change(SELECTOR, f"is missing: that release {does}")
        if NO_EXECUTE in effects and getattr(self._today, default) is False and getattr(self._then.facts, default):
            pods = counted(len(evicted), "pod")
            yield _change(path, f"acts there without a feature gate, and evicts {pods} unless it acts today")

    def _done_by(self, value: DeviceTaintRule | ResourceSlice, servers: ServerFacts) -> tuple[frozenset[str], int]:
        """Return what a rule, or the taints of a slice, do: uids of evicted pods, and how many devices are closed."""
        inventory = self._inventory
        inventory.servers = servers
        closes = False
        if isinstance(value, DeviceTaintRule):
            impact = impact_of(inventory, value.selector, Taint.of_rule(value, in_tree=True), self._now)
            closes = value.selector is None and value.effective_effect in EFFECT_RANK
        else:
            taints = {each.name: [Taint.of_slice(one, in_tree=True) for one in each.taints] for each in value.devices}
            impact = impact_on_devices(inventory, (value.driver, value.pool), taints, self._now)
        spared = impact.extended if servers.extended_evicted is False else frozenset()
        return impact.pods - spared, impact.devices if closes else 0


def _change(path: Path, text: str) -> Entry:
    return Entry(Level.WARNING, text, field=str(path), reason="release")


# --- findings, counted by rule and namespace ------------------------------------------------------


def _rendered(report: Report, options: argparse.Namespace, dump: Dump, target: ReportTarget) -> str:
    match target.format:
        case "text":
            return (
                "\n".join(_lines(report, options.limit, color=target.shown and flags.use_color(options.color))) + "\n"
            )
        case "json" | "yaml":
            return STRUCTURED[target.format]({**as_values(report), "groups": _grouped(report)})
        case "openreports":
            only = options.namespace
            reports = open_reports(report, dump.namespaces if only is None else (only,), dump.terminating)
            # Of the policy's namespace only a warning of the policy is known then.
            return json_list([each for each in reports if only in (None, each["metadata"]["namespace"])])
        case _:
            return render("audit", target.format, report)


def _grouped(report: Report) -> list[dict[str, Any]]:
    """Return `rule`, `namespace`, `errors`, `warnings` and `objects` that have any, the most errors first.

    Findings that come from no rule of the policy are grouped by reason, such as `FieldValueTooMany`.
    """
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for row in report.rows:
        rules = set[str]()
        for entry in row.entries if row.kind.startswith("ResourceClaim") else ():
            if entry.level is not Level.INFO and entry.reason != UNREADABLE:
                rule = entry.rule or entry.code or entry.reason
                none = {"rule": rule, "namespace": row.namespace, "errors": 0, "warnings": 0, "objects": 0}
                group = groups.setdefault((rule, row.namespace), none)
                group["errors" if entry.level is Level.ERROR else "warnings"] += 1
                group["objects"] += int(rule not in rules)
                rules.add(rule)
    found = groups.values()
    return sorted(found, key=lambda each: (-each["errors"], -each["warnings"], each["rule"], each["namespace"]))


def _lines(report: Report, limit: int, *, color: bool) -> Iterator[str]:
    """Yield at most `limit` findings (0 for all), counts by rule and namespace of two objects, notes, and totals."""
    lines = as_text(report, color=color, named=True).splitlines()
    findings = len(lines) - len(report.notes) - 1
    most = limit or len(lines)
    yield from lines[: min(findings, most)]
    if findings > most:
        yield f"and {counted(findings - most, 'more finding')}; --limit 0 lists all"
    groups = _grouped(report)
    if sum(group["objects"] for group in groups) > 1:
        yield ""
        rows = [list(map(str, group.values())) for group in groups[:most]]
        yield from table(rows, headers=_HEADERS, right=(2, 3, 4), color=color)
        if len(groups) > most:
            yield f"and {len(groups) - most} more of these"
        yield ""
    yield from lines[findings:]


# --- flags --------------------------------------------------------------------------------------


def command_line() -> CommandLine:
    """Return the flags of the verb."""
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
    dump = (
        "output of kubectl get resourceclaimtemplates,resourceclaims,devicetaintrules,namespaces,deviceclasses "
        "-A -o json, with --kubernetes-version also resourceslices; YAML works, too, but JSON is read three times as "
        f"fast; {STDIN} is standard input; without this flag the cluster is read"
    )
    add("--dump", nargs="+", default=[], metavar="DIR|FILE", help=dump)
    flags.add_cluster(parser)
    namespace = "only claims and templates in this namespace; default: all"
    add("-n", "--namespace", type=as_namespace, metavar="NS", help=namespace)
    add("--policy", metavar="F", help="the policy; default the ConfigMap in the dump or the cluster")
    add("--candidate", metavar="F", help="another policy: reports what only its rules would refuse, as warnings")
    flags.add_policy_config_map(parser)
    flags.add_exempt_namespaces(parser)
    add("--time", type=as_time, metavar="T", help="check as of this time (RFC 3339), for exceptions; default now")
    flags.add_kubernetes_version(parser, "also list what stored rules and slices would do on servers of this version")
    add("--limit", type=as_limit_or_all, default=200, metavar="N", help="lines of text, 0 for all; default 200")
    flags.add_warnings_as_errors(parser)
    flags.add_allow_empty(parser)
    add_reports(parser, (*FORMATS, OPEN_REPORTS))
    add_codes(parser)
    flags.add_color(parser)
    return parser
