"""`check`: reviews manifests in files as the webhook would. Needs no cluster, unless the policy is read from one."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from webhook.admission.context import AdmissionContext
from webhook.api.field import JSON
from webhook.commands.shared import flags
from webhook.commands.shared.codes import add_codes, left_out
from webhook.commands.shared.entries import unreadable_row
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.manifest_review import DEFAULT_NAMESPACE, ObjectKey, ReviewTerms, review_manifest
from webhook.commands.shared.output import add_reports, render, write_reports
from webhook.commands.shared.policy_files import PolicyFile, policy_file, policy_in, read_policy
from webhook.config.command_line import CommandLine, program
from webhook.files import STDIN
from webhook.files.manifests import Dump, meta, text
from webhook.files.read import File, read, shown
from webhook.files.report import FORMATS, Entry, Level, Report, Result, Row
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.match import NO_NAMES, KnownNames, asks_who, authenticated
from webhook.policy.model import CLAIM_CONTROLLER, NAMESPACE_NAME_LABEL

_NOT_JUDGED: Final = "the policy could not be used"


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print what is wrong. Returns 0 for nothing, 1 for errors, 2 for wrong usage or unreadable input."""
    if not options.files and options.policy is None and options.policy_configmap is None:
        parser.error("the following arguments are required: FILE|DIR|- (or --policy)")
    flags.refuse_stdin_twice([*options.files, *options.old, options.policy, options.candidate], parser)
    refuse_two_policies(options, parser)
    if options.policy is None and options.policy_configmap is None and options.candidate is None:
        for flag in ("user", "group", "namespace_labels", "device_class"):
            # What the controller brings is not judged by documented rules, whatever the policy.
            if getattr(options, flag) and options.user != CLAIM_CONTROLLER:
                parser.error(f"--{flag.replace('_', '-')} has no effect without --policy")
    refuse_nameless(options, parser)
    report = Report(strict=options.warnings_as_errors, ignored=left_out(options.select, options.ignore))
    files, terms = terms_of(options, report)
    terms = replace(terms, skip_others=options.skip_others)
    for file in files:
        report.files += 1
        for manifest in file.manifests:
            report.add(review_manifest(manifest, terms, explicit=file.explicit))
        if (row := unreadable_row(file, skip_others=options.skip_others)) is not None:
            report.add(row)
    if options.old and report.judged and not any(row.operation == "UPDATE" for row in report.rows):
        told = Entry(Level.WARNING, "contains none of the objects, so each is checked as if it were new")
        report.add(Row(", ".join(map(shown, options.old)), local=len(options.old) == 1, entries=(told,)))
    asked = options.files and (options.policy or options.policy_configmap)
    if asked and terms.context.judge is BUILTIN_JUDGE:  # a policy that can be used has a judge of its own
        report.rows = [_without_verdict(row) for row in report.rows]
        report.notes += [f"objects were not judged: {_NOT_JUDGED}"] if report.judged else []
    allow_empty = options.allow_empty or options.skip_others or not options.files
    flags.refuse_empty(report, "check", allow_empty=allow_empty, skips_others=True)
    color = flags.use_color(options.color)
    return write_reports(
        options.output,
        lambda target: render("check", target.format, report, color=target.shown and color),
        report.exit_code,
    )


def _without_verdict(row: Row) -> Row:
    """Return the row of an object that has no errors, but was not judged either."""
    judged = row.document and not row.judges and row.result is Result.ALLOWED
    return replace(row, result=Result.SKIPPED, skipped=_NOT_JUDGED) if judged else row


def refuse_nameless(options: argparse.Namespace, parser: CommandLine) -> None:
    """Refuse groups without a user, instead of ignoring them."""
    if options.group and not options.user:
        parser.error("--group needs --user: groups belong to a user")


def refuse_two_policies(options: argparse.Namespace, parser: CommandLine) -> None:
    """Exit as argparse does if flags name two policies, or a cluster that is not used."""
    if options.policy is not None and options.policy_configmap is not None:
        parser.error("--policy and --policy-configmap may not be given together")
    for flag, _ in flags.given_cluster_flags(options) if options.policy_configmap is None else ():
        parser.error(f"{flag} must come with --policy-configmap: nothing else is read from a cluster")


def terms_of(options: argparse.Namespace, report: Report) -> tuple[Iterable[File], ReviewTerms]:
    """Return the files of a command line, and what they are reviewed against, errors of which go into the report.

    Raises ClusterUnreachable if the policy is in a cluster that cannot be read.
    """
    version = options.kubernetes_version or flags.NOT_SAID
    now = options.time or datetime.now(UTC)  # noqa: TID251 -- the shell asks
    judge, candidate = _judges(options, report, now)
    files: Iterable[File] = read(options.files)
    names = NO_NAMES
    if judge is not None or candidate is not None:
        files = list(files)  # Namespaces and DeviceClasses may be in the last one
        names = _names(files, options)
    context = AdmissionContext(
        offline=True,
        now=now,
        release=version.release,
        servers=version.facts,
        judge=judge or BUILTIN_JUDGE,
        candidate=candidate,
        names=names,
        read_policy=read_policy,
    )
    groups = authenticated(options.user, options.group).groups if options.user else ()
    namespace = options.namespace or ""
    old = _old_objects(options.old, namespace, report)
    return files, ReviewTerms(context, options.user, groups, namespace, old, options.verbose)


def _judges(options: argparse.Namespace, report: Report, now: datetime) -> tuple[Judge | None, Judge | None]:
    """Return the policy and the candidate, None where not given or unusable. Their findings go into the report."""
    policy = candidate = None
    judges = bool(options.files)  # else the policies themselves are what is checked
    if options.policy is not None or options.policy_configmap is not None:
        found = _policy_in_cluster(options, now) if options.policy is None else policy_file(options.policy, now=now)
        _, policy, candidate = found.told(report, judges=judges)
        report.files += not judges
        if policy is not None and judges and not options.user and asks_who(policy):
            told = 'rules of this policy depend on the requester; without --user that is "system:anonymous"'
            report.add(Row(found.rows[0].file, entries=(Entry(Level.WARNING, told),)))
    if options.candidate is not None:
        _, other, candidate = policy_file(options.candidate, now=now).told(report, judges=judges)
        report.files += not judges
        candidate = candidate or other
    return None if policy is None else Judge(policy), None if candidate is None else Judge(candidate)


def _policy_in_cluster(options: argparse.Namespace, now: datetime) -> PolicyFile:
    """Return the policy of the cluster that the flags name. Raises ClusterUnreachable."""
    with reading_cluster():
        from webhook.commands.shared.snapshot import policy_of_cluster  # noqa: PLC0415

        found = flags.ask_cluster(options, lambda cluster: policy_of_cluster(cluster, options.policy_configmap))
        return policy_in(found, now=now)


def _names(files: Iterable[File], options: argparse.Namespace) -> KnownNames:
    """Return what files and flags say about names; where both name a namespace or class, the file wins."""
    dump, labels = Dump(), options.namespace_labels
    used = {options.namespace or DEFAULT_NAMESPACE}
    for file in files:
        dump.add(file.manifests)
        for manifest in file.manifests:
            used.add(text(meta(manifest.value), "namespace"))
            request = manifest.value.get("request") if isinstance(manifest.value, dict) else None
            if isinstance(request, dict):  # a review
                used.add(text(request, "namespace"))
    known = {} if labels is None else {name: {**labels, NAMESPACE_NAME_LABEL: name} for name in used}
    return KnownNames({**known, **dump.namespaces}, {**dict(options.device_class), **dump.device_classes})


def _old_objects(names: Sequence[str], namespace: str, report: Report) -> dict[ObjectKey, JSON]:
    """Return the objects of the old files. Unreadable files are reported; the objects are not reviewed."""
    old: dict[ObjectKey, JSON] = {}
    for file in read(names):
        if (unreadable := unreadable_row(file)) is not None:
            report.add(unreadable)
        for manifest in file.manifests:
            identity = ObjectKey.of(manifest.value, namespace) if isinstance(manifest.value, dict) else None
            if identity is not None:
                old[identity] = manifest.value
    return old


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = CommandLine(
        program("check"),
        "Reviews manifests as the webhook would: fields, documented rules, policy, advice and unknown fields.",
        "Exit codes: 0 fine, perhaps with warnings, 1 errors, 2 wrong usage, unreadable input or nothing to check.",
        (
            "device-taint-webhook check claim.yaml rule.yaml",
            "device-taint-webhook check --policy policy.yaml --user mila --group ml-team -n research claim.yaml",
            "device-taint-webhook check --policy policy.yaml -v claim.yaml",
            "device-taint-webhook check --policy-configmap device-taint-webhook/device-taint-webhook-policy claim.yaml",
            "kubectl kustomize overlays/prod | device-taint-webhook check --policy policy.yaml -o junit -",
            "device-taint-webhook check -o github -o sarif=check.sarif --ignore DT003 manifests",
        ),
    )
    add = parser.add_argument
    files = f"YAML or JSON files; folders are searched for *.yaml, *.yml and *.json; {STDIN} is standard input"
    add("files", nargs="*", metavar="FILE|DIR|-", help=files)
    flags.add_terms(parser)
    flags.add_policy(parser, more="; without FILE the policy itself is checked")
    add("--candidate", metavar="F", help="another policy: reports where the verdict of its rules would differ")
    add_reports(parser, FORMATS)
    add_codes(parser)
    flags.add_warnings_as_errors(parser)
    flags.add_skip_others(parser, "templates in folders, and files that are not ours, also those that cannot be read,")
    flags.add_allow_empty(parser)
    more = "also show what /mutate would set, what was skipped, and why each rule of the policy matched or did not"
    add("-v", "--verbose", action="store_true", help=more)
    flags.add_color(parser)
    return parser
