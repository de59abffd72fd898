"""`check`: reviews manifests in files as the webhook would. Needs no cluster, unless the policy is read from one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from webhook.admission.context import AdmissionContext
from webhook.commands.shared.codes import add_codes, left_out
from webhook.commands.shared.entries import meta, text, unreadable_row
from webhook.commands.shared.flags import (
    NOT_SAID,
    add_allow_empty,
    add_color,
    add_policy,
    add_skip_others,
    add_terms,
    add_warnings_as_errors,
    credentials_of,
    given_cluster_flags,
    known_names,
    refuse_empty,
    refuse_stdin_twice,
    use_color,
)
from webhook.commands.shared.main import main_of, reading_cluster
from webhook.commands.shared.manifest_review import DEFAULT_NAMESPACE, ObjectKey, ReviewTerms, review_manifest
from webhook.commands.shared.output import add_reports, renderer_of, write_reports
from webhook.commands.shared.policy_files import PolicyFile, policy_file, policy_in, read_policy
from webhook.config.command_line import CommandLine, program
from webhook.files.dump import Dump
from webhook.files.formats import FORMATS
from webhook.files.read import read, shown
from webhook.files.report import Entry, Level, Report, Row
from webhook.files.stdin import STDIN
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.model import CLAIM_CONTROLLER
from webhook.policy.ports import NO_NAMES, asks_who, authenticated

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.api.field import JSON
    from webhook.commands.shared.output import ReportTarget
    from webhook.files.read import File
    from webhook.policy.ports import KnownNames

_NO_OLD: Final = "contains none of the objects, so each is checked as if it were new"
_NO_USER: Final = 'rules of this policy depend on the requester; without --user that is "system:anonymous"'


def run(arguments: Sequence[str]) -> int:
    """Prints what is wrong. Returns 0 for nothing, 1 for errors, 2 for wrong usage or unreadable input."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, parser: CommandLine) -> int:
    if not options.files and options.policy is None and options.policy_configmap is None:
        parser.error("the following arguments are required: FILE|DIR|- (or --policy)")
    refuse_stdin_twice([*options.files, *options.old, options.policy, options.candidate], parser)
    refuse_two_policies(options, parser)
    if options.policy is None and options.policy_configmap is None and options.candidate is None:
        _refuse_idle(options, parser)
    refuse_nameless(options, parser)
    report = Report(strict=options.warnings_as_errors, ignored=left_out(options.select, options.ignore))
    files, terms = terms_of(options, report)
    terms = replace(terms, skip_others=options.skip_others)
    for file in files:
        _check(file, terms, report)
    if options.old and report.judged and not any(row.operation == "UPDATE" for row in report.rows):
        names = ", ".join(map(shown, options.old))
        report.add(Row(names, local=len(options.old) == 1, entries=(Entry(Level.WARNING, _NO_OLD),)))
    allow_empty = options.allow_empty or options.skip_others or not options.files
    refuse_empty(report, "check", allow_empty=allow_empty, skips_others=True)
    renderer, color = renderer_of("check"), use_color(options.color)

    def rendered(target: ReportTarget) -> str:
        return renderer.render(target.format, report, color=target.shown and color)

    return write_reports(options.output, rendered, report.exit_code)


def _refuse_idle(options: argparse.Namespace, parser: CommandLine) -> None:
    """Refuses flags that only matter with a policy, instead of ignoring them."""
    for flag in ("user", "group", "namespace_labels", "device_class"):
        # What the controller brings is not judged by documented rules, whatever the policy.
        if getattr(options, flag) and options.user != CLAIM_CONTROLLER:
            parser.error(f"--{flag.replace('_', '-')} has no effect without --policy")


def refuse_nameless(options: argparse.Namespace, parser: CommandLine) -> None:
    """Refuses groups without a user, instead of ignoring them."""
    if options.group and not options.user:
        parser.error("--group needs --user: groups belong to a user")


def terms_of(options: argparse.Namespace, report: Report) -> tuple[Iterable[File], ReviewTerms]:
    """The files of a command line, and what they are reviewed against, errors of which go into the report.

    Raises ClusterUnreachable if the policy is in a cluster that cannot be read.
    """
    version = options.kubernetes_version or NOT_SAID
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
    return files, ReviewTerms(
        context,
        options.user,
        authenticated(options.user, options.group).groups if options.user else (),
        options.namespace or "",
        _old_objects(options.old, report),
        options.verbose,
    )


def _check(file: File, terms: ReviewTerms, report: Report) -> None:
    report.files += 1
    for manifest in file.manifests:
        report.add(review_manifest(manifest, terms, explicit=file.explicit))
    row = unreadable_row(file, skip_others=terms.skip_others)
    if row is not None:
        report.add(row)


def _judges(options: argparse.Namespace, report: Report, now: datetime) -> tuple[Judge | None, Judge | None]:
    """The policy and the candidate, None where not given or unusable. Their findings go into the report."""
    policy = candidate = None
    if options.policy is not None or options.policy_configmap is not None:
        found = _policy_in_cluster(options, now) if options.policy is None else policy_file(options.policy, now=now)
        _add_policy(found, report, judges=bool(options.files))
        policy, candidate = found.policy, found.candidate
        if policy is not None and options.files and not options.user and asks_who(policy):
            report.add(Row(found.rows[0].file, entries=(Entry(Level.WARNING, _NO_USER),)))
    if options.candidate is not None:
        found = policy_file(options.candidate, now=now)
        _add_policy(found, report, judges=bool(options.files))
        candidate = found.candidate or found.policy
    return None if policy is None else Judge(policy), None if candidate is None else Judge(candidate)


def refuse_two_policies(options: argparse.Namespace, parser: CommandLine) -> None:
    """Exits as argparse does if flags name two policies, or a cluster that is not used."""
    if options.policy is not None and options.policy_configmap is not None:
        parser.error("--policy and --policy-configmap may not be given together")
    for flag, _ in given_cluster_flags(options) if options.policy_configmap is None else ():
        parser.error(f"{flag} must come with --policy-configmap: nothing else is read from a cluster")


def _policy_in_cluster(options: argparse.Namespace, now: datetime) -> PolicyFile:
    """The policy of the cluster that the flags name. Raises ClusterUnreachable."""
    with reading_cluster():
        # Late: see commands/shared/main.py.
        import asyncio  # noqa: PLC0415

        from webhook.commands.shared.cluster_reading import policy_of_cluster  # noqa: PLC0415

        found = asyncio.run(policy_of_cluster(credentials_of(options), options.policy_configmap))
        return policy_in(found, now=now)


def _add_policy(found: PolicyFile, report: Report, *, judges: bool) -> None:
    """Adds its rows to the report. `judges`: it is applied to files; otherwise the policy itself is what is checked."""
    report.files += not judges
    for row in found.rows:
        report.add(replace(row, judges=judges))


def _names(files: Iterable[File], options: argparse.Namespace) -> KnownNames:
    dump = Dump()
    used = {options.namespace or DEFAULT_NAMESPACE}
    for file in files:
        dump.add(file.manifests)
        for manifest in file.manifests:
            used.update(_namespaces_in(manifest.value))
    return known_names(dump, used, options.namespace_labels, dict(options.device_class))


def _namespaces_in(value: JSON) -> Iterator[str]:
    """The namespace of an object, or of a review's request."""
    yield text(meta(value), "namespace")
    request = value.get("request") if isinstance(value, dict) else None
    if isinstance(request, dict):
        yield text(request, "namespace")


def _old_objects(names: Sequence[str], report: Report) -> dict[ObjectKey, JSON]:
    """The objects of the old files by identity. Unreadable files are reported; the objects are not reviewed."""
    old: dict[ObjectKey, JSON] = {}
    for file in read(names):
        unreadable = unreadable_row(file)
        if unreadable is not None:
            report.add(unreadable)
        for manifest in file.manifests:
            identity = ObjectKey.of(manifest.value) if isinstance(manifest.value, dict) else None
            if identity is not None:
                old[identity] = manifest.value
    return old


def command_line() -> CommandLine:
    """The flags of the verb."""
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
    add(
        "files",
        nargs="*",
        metavar="FILE|DIR|-",
        help=f"YAML or JSON files; folders are searched for *.yaml, *.yml and *.json; {STDIN} is standard input",
    )
    add_terms(parser)
    add_policy(parser, more="; without FILE the policy itself is checked")
    add("--candidate", metavar="F", help="another policy: reports where its verdict would differ")
    add_reports(parser, FORMATS)
    add_codes(parser)
    add_warnings_as_errors(parser)
    add_skip_others(parser, "templates in folders, and files that are not ours, also those that cannot be read,")
    add_allow_empty(parser)
    add(
        "-v",
        "--verbose",
        action="store_true",
        help="also show what /mutate would set, what was skipped, and why each rule of the policy matched or did not",
    )
    add_color(parser)
    return parser
