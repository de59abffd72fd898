"""One run of `preview`: what rules, slices and patches in files would do in a cluster, or a dump."""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from webhook.admission.carried_text import CarriedText
from webhook.admission.cluster_lint import cluster_lint
from webhook.admission.config_maps import POLICY_KEY
from webhook.admission.context import AdmissionContext
from webhook.admission.defaulting import edits_for
from webhook.admission.lint import lint
from webhook.admission.over_limit import LimitCheck
from webhook.admission.review import AdmissionRequest
from webhook.api.field import Finding, Path, Severity, not_supported
from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind, GroupVersionResource, parse_time
from webhook.api.names import PATCH_ACCOUNT
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DeviceTaintRule, condition_of
from webhook.api.schema import api_versions_of
from webhook.api.slices import ResourceSlice
from webhook.commands.preview.carried_out import as_our_worker
from webhook.commands.preview.notes import PreviewSource, notes_of, window_notes
from webhook.commands.preview.patches import PatchWorld, patch_notes
from webhook.commands.preview.report import DryRunAnswer, DryRunResult, ObjectPreview, PreviewReport, as_values
from webhook.commands.preview.text import as_text
from webhook.commands.shared.entries import duplicate_entries, entries_of, text, unreadable_row
from webhook.commands.shared.flags import (
    NOT_SAID,
    KubernetesVersion,
    credentials_of,
    refuse_cluster_beside_dump,
    refuse_stdin_twice,
    use_color,
)
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.output import write_reports
from webhook.commands.shared.policy_files import holds_policy, policy_file, review_policy, row_of
from webhook.eviction.conditions import EVICTION, ConditionReason
from webhook.eviction.followed_pods import ProfiledPods
from webhook.files.dump import Stock, held_in, patching_object_in
from webhook.files.read import Manifest, read, shown
from webhook.files.report import UNREADABLE, Level, Result, Row
from webhook.files.structured import STRUCTURED
from webhook.inventory.device_selectors import DeviceSelectors
from webhook.inventory.gangs import broken_gangs, count_gangs
from webhook.inventory.preview import PodOutcome, rule_preview, slice_preview
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.model import BUILTIN, InTreeEvictor
from webhook.validation.kinds import BY_KIND, KINDS
from webhook.validation.releases import NEWEST, RELEASES, Release

if TYPE_CHECKING:
    import argparse
    from collections import Counter
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.api.field import FieldError
    from webhook.commands.shared.output import ReportTarget
    from webhook.config.command_line import CommandLine
    from webhook.inventory.gangs import BrokenGang, Gang
    from webhook.inventory.preview import Preview
    from webhook.inventory.state import Inventory
    from webhook.policy.model import EvictionProfile, Policy

_PATCH: Final = "ResourceSlicePatch"
_KINDS: Final = {GROUP: frozenset({"DeviceTaintRule", "ResourceSlice", _PATCH}), OWN_GROUP: frozenset({_PATCH})}
_NO_SUBJECT: Final = "contains no DeviceTaintRule, no ResourceSlice and no ResourceSlicePatch"
_FROM_DUMP: Final = "a dump does not tell who would write the rule, and so not whether it must be confirmed"
_NOTHING_KNOWN: Final = "contains no ResourceSlices and no ResourceClaims, so it is unknown what would be hit"
_SOME_VERSION: Final = "1"


class _Subject(NamedTuple):
    """A rule, slice or patch of a file."""

    manifest: Manifest
    row: Row
    value: DeviceTaintRule | ResourceSlice | ResourceSlicePatch


class _PreviewInput(NamedTuple):
    """The inventory and policy, from files or a cluster. `confirmations` are those of the rules, in order."""

    source: PreviewSource
    policy: Policy
    confirmations: tuple[DryRunResult, ...] = ()
    release: Release = NEWEST


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Prints what would be hit. Returns 0, 1 for a rule refused even if confirmed, 2 for bad input or no cluster."""
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.files, *options.dump, options.policy], parser)
    now = (options.time or datetime.now(UTC)).replace(microsecond=0)  # noqa: TID251 -- the shell asks
    report = PreviewReport("dump" if options.dump else "cluster", now)
    version: KubernetesVersion = options.kubernetes_version or NOT_SAID
    # A cluster says itself which versions it serves.
    minors = (version.release.minor,) if options.dump or options.kubernetes_version else tuple(RELEASES)
    subjects = list(_subjects(options.files, minors, report))
    found = _from_files(options, report) if options.dump else _from_cluster(options, subjects, report)
    found = found._replace(release=version.release)
    if options.kubernetes_version:
        found.source.inventory.servers = version.facts
    if options.policy is not None:
        given = policy_file(options.policy)
        _add_errors(given.rows, report)
        found = found._replace(policy=given.policy or found.policy)
    report.servers = found.source.inventory.servers
    report.pods_known = found.source.pods_known
    report.claims_known, report.slices_known = found.source.knows("ResourceClaim"), found.source.knows("ResourceSlice")
    if not report.claims_known and not report.slices_known and not report.rows:
        report.rows.append(Row(", ".join(map(shown, options.dump))).failed(_NOTHING_KNOWN))
    world = _patch_world(subjects, found.source, now)
    answers, gangs = iter(found.confirmations), Gangs(found.source.inventory, found.policy.eviction)
    for subject in subjects:
        if isinstance(subject.value, ResourceSlicePatch):
            report.objects.append(_patch_preview_of(subject, subject.value, world, found))
            continue
        answer = next(answers, None) if isinstance(subject.value, DeviceTaintRule) else None
        report.objects.append(_preview_of(subject, answer, found, gangs, now))
    return write_reports(options.output, partial(_rendered, report, options), report.exit_code)


# --- rules, slices and patches ------------------------------------------------------------------


def _subjects(names: Sequence[str], minors: tuple[int, ...], report: PreviewReport) -> Iterator[_Subject]:
    """The rules, slices and patches in files. What cannot be read goes into the report; other kinds are ignored."""
    for file in read(names):
        unreadable = unreadable_row(file)
        if unreadable is not None:
            report.rows.append(unreadable)
        concerning = [manifest for manifest in file.manifests if _is_subject(manifest.value)]
        if not concerning and unreadable is None and file.explicit:
            report.rows.append(Row(file.name).failed(_NO_SUBJECT))
        for manifest in concerning:
            subject = _subject(manifest, minors)
            if isinstance(subject, Row):
                report.rows.append(subject)
            else:
                yield subject


def _is_subject(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = GroupVersionKind.parse(text(value, "apiVersion"), text(value, "kind"))
    return kind.kind in _KINDS.get(kind.group, ())


def _subject(manifest: Manifest, minors: tuple[int, ...]) -> _Subject | Row:
    """The subject, or a row with the reason why it is not usable."""
    row = row_of(manifest)
    kind = GroupVersionKind.parse(row.api_version, row.kind)
    value, errors = patching_object_in(manifest.value) if kind.kind == _PATCH else held_in(manifest.value)
    versions = api_versions_of(kind.kind, minors)
    if kind.api_version not in versions:
        errors = [not_supported(Path.root().child("apiVersion"), kind.api_version, versions)]
    duplicates = tuple(duplicate_entries(manifest))
    if errors or duplicates or not isinstance(value, DeviceTaintRule | ResourceSlice | ResourceSlicePatch):
        entries = (*duplicates, *entries_of(manifest.spot, _denials(errors)))
        return replace(row, result=Result.DENIED, entries=tuple(replace(each, reason=UNREADABLE) for each in entries))
    return _Subject(manifest, row, value)


def _denials(errors: Iterable[FieldError]) -> Iterator[Finding]:
    return (Finding(Severity.DENY, error) for error in errors)


# --- inventory --------------------------------------------------------------------------------


def _from_files(options: argparse.Namespace, report: PreviewReport) -> _PreviewInput:
    """A dump, with its own policy unless another one is given."""
    stock, policy = Stock(), BUILTIN
    holding: list[Manifest] = []
    for file in read(options.dump):
        unreadable = unreadable_row(file)
        if unreadable is not None:
            report.rows.append(unreadable)
        stock.add(file.manifests)
        holding += [manifest for manifest in file.manifests if holds_policy(manifest.value)]
    for manifest, error in stock.malformed:
        report.rows.append(row_of(manifest).failed(f"{row_of(manifest).reference}: left out: {error}"))
    if options.policy is None and holding:
        if len(holding) > 1:
            problem = f"contains {len(holding)} policies; choose one with --policy"
            report.rows.append(Row(holding[1].file).failed(problem))
        policy = _policy_in(holding[0], report) or policy
    pods_known = bool(stock.kinds["Pod"])
    source = PreviewSource(stock.inventory, pods_known, stock.kinds, patches=stock.patches, classes=stock.classes)
    return _PreviewInput(source, policy)


def _from_cluster(options: argparse.Namespace, subjects: Sequence[_Subject], report: PreviewReport) -> _PreviewInput:
    """The cluster's objects, and its answers to the rules. Raises ClusterUnreachable."""
    # Late: see commands/shared/main.py.
    from webhook.commands.preview.from_cluster import sight_of_cluster  # noqa: PLC0415

    rules = [subject.manifest.value for subject in subjects if isinstance(subject.value, DeviceTaintRule)]
    config_map = None if options.policy is not None else options.policy_configmap
    with reading_cluster():
        patched = any(isinstance(subject.value, ResourceSlicePatch) for subject in subjects)
        sight = asyncio.run(sight_of_cluster(credentials_of(options), config_map, rules, patched=patched))
    report.server = sight.server
    policy = (_policy_in(sight.policy, report) if sight.policy is not None else None) or BUILTIN
    return _PreviewInput(sight.source, policy, sight.confirmations)


def _policy_in(manifest: Manifest, report: PreviewReport) -> Policy | None:
    """The policy of a document or ConfigMap; only errors that make it unusable are reported."""
    judged = review_policy(manifest, row_of(manifest))
    _add_errors([judged.row], report)
    loaded = judged.loaded.get(POLICY_KEY)
    return None if loaded is None else loaded.policy


def _add_errors(rows: Iterable[Row], report: PreviewReport) -> None:
    """Reports the errors of a policy: without it the effect on the cluster is unknown."""
    broken = [row for row in rows if row.count(Level.ERROR)]
    report.rows += broken
    report.failed = report.failed or bool(broken)


# --- one preview --------------------------------------------------------------------------------


def _patch_world(subjects: Sequence[_Subject], source: PreviewSource, now: datetime) -> PatchWorld:
    """The patches of files and of the source together, worked out if there are any in files."""
    asked = [subject.value for subject in subjects if isinstance(subject.value, ResourceSlicePatch)]
    world = PatchWorld(source.inventory, source.patches, asked, source.classes, now)
    if asked:
        world.work_out(DeviceSelectors())
    return world


def _patch_preview_of(
    subject: _Subject, given: ResourceSlicePatch, world: PatchWorld, found: _PreviewInput
) -> ObjectPreview:
    source = found.source
    in_tree = found.policy.in_tree_evictor is InTreeEvictor.ACTIVE
    patch, outcome, preview = world.of(given.meta.name, in_tree=in_tree)
    errors = KINDS[BY_KIND[GroupVersionKind.parse(subject.row.api_version, subject.row.kind)]].errors
    findings = [
        *_denials(errors(given, source.patches.get(given.meta.name), found.release)),
        *lint(patch, None, world.now),
    ]
    row = replace(subject.row, entries=tuple(entries_of(subject.manifest.spot, findings)))
    notes = (*patch_notes(outcome), *notes_of(patch, preview, source))
    return ObjectPreview(row, patch, preview, notes, outcome=outcome)


def _preview_of(
    subject: _Subject, answer: DryRunResult | None, found: _PreviewInput, gangs: Gangs, now: datetime
) -> ObjectPreview:
    source, inventory, value = found.source, found.source.inventory, subject.value
    assert not isinstance(value, ResourceSlicePatch)
    in_tree = found.policy.in_tree_evictor is InTreeEvictor.ACTIVE
    countable = source.knows("ResourceSlice") and source.knows("ResourceClaim")
    if isinstance(value, DeviceTaintRule):
        value = as_stored(value, inventory.rules.get(value.meta.name), now)
        preview = rule_preview(inventory, value, in_tree=in_tree, now=now)
        answer = answer or DryRunResult(DryRunAnswer.NOT_ASKED, message=_FROM_DUMP)
        if countable and not answer.text and _may_need_text(answer, inventory.rules.get(value.meta.name)):
            answer = answer._replace(text=confirmation_of(value, inventory, found.policy, now))
    else:
        preview = slice_preview(inventory, value, in_tree=in_tree, now=now)
    preview = gangs.as_carried_out(preview, now)
    advice = _advice(value, preview, inventory, now)
    if not countable:  # nor is it known that the selector matches nothing
        advice = (each for each in advice if each.code != "DT201")
    findings = [*_denials(_errors(value, subject.row, inventory, found.release)), *advice]
    row = replace(subject.row, entries=tuple(entries_of(subject.manifest.spot, findings)))
    notes = *notes_of(value, preview, source), *window_notes(preview, inventory, found.policy, now)
    return ObjectPreview(row, value, preview, notes, answer, gangs.broken_by(preview))


def _may_need_text(answer: DryRunResult, stored: DeviceTaintRule | None) -> bool:
    """Whether a rule may have to be confirmed that the cluster did not refuse, as when the worker has stopped it."""
    if answer.answer in (DryRunAnswer.NOT_ASKED, DryRunAnswer.SOFTENED):
        return True
    said = None if stored is None else condition_of(stored.conditions, EVICTION)
    return answer.answer is DryRunAnswer.GRANTED and said is not None and said.reason == ConditionReason.STOPPED


def confirmation_of(rule: DeviceTaintRule, inventory: Inventory, policy: Policy, now: datetime) -> str:
    """Return the text that confirms what a rule hits now, or would once its effect is raised."""
    old = inventory.rules.get(rule.meta.name)
    # With an account, the rest of its hardware counts too, as where the patch controller runs.
    context = AdmissionContext(
        now=now,
        servers=inventory.servers,
        judge=Judge(policy),
        sight=Sight(inventory),
        patch_account=PATCH_ACCOUNT,
    )
    resource = GroupVersionResource(GROUP, "v1", "devicetaintrules")
    request = AdmissionRequest(uid="", operation="CREATE", resource=resource)
    check = LimitCheck(rule, old, request, context)
    taint = check.taint if check.acts else check.taint.as_if_evicting(in_tree=check.in_tree)
    hit = check.to_confirm(check.impact(inventory, taint))
    return CarriedText(rule, old, request, context).text_for(hit)


def as_stored(rule: DeviceTaintRule, old: DeviceTaintRule | None, now: datetime) -> DeviceTaintRule:
    """The rule with the timeAdded that it would be stored with."""
    for _, time in edits_for(rule, old, AdmissionContext(now=now)):
        rule = structs.replace(rule, taint=structs.replace(rule.taint, time_added=parse_time(str(time))))
    return rule


def _errors(
    value: DeviceTaintRule | ResourceSlice, row: Row, inventory: Inventory, release: Release
) -> Iterator[FieldError]:
    """What an API server would refuse it for."""
    errors = KINDS[BY_KIND[GroupVersionKind.parse(row.api_version, row.kind)]].errors
    if isinstance(value, ResourceSlice):
        return errors(value, inventory.slices.get(value.meta.name), release)
    old = inventory.rules.get(value.meta.name)
    if old is not None:  # as kubectl applies it: on top of what is there
        version = old.meta.resource_version or _SOME_VERSION
        value = structs.replace(value, meta=structs.replace(value.meta, resource_version=version))
    return errors(value, old, release)


def _advice(
    value: DeviceTaintRule | ResourceSlice, preview: Preview, inventory: Inventory, now: datetime
) -> Iterator[Finding]:
    """Advice on a rule, by itself and in view of the cluster's objects."""
    if isinstance(value, DeviceTaintRule):
        siblings = None if preview.simulated else preview.impact.siblings
        yield from lint(value, None, now, inventory.servers)
        yield from cluster_lint(value, None, AdmissionContext(now=now, sight=Sight(inventory)), siblings)


# --- flags --------------------------------------------------------------------------------------


def _rendered(report: PreviewReport, options: argparse.Namespace, target: ReportTarget) -> str:
    if target.format in STRUCTURED:
        return STRUCTURED[target.format](as_values(report))
    width = shutil.get_terminal_size().columns if target.shown and sys.stdout.isatty() else None
    return as_text(report, limit=options.limit, width=width, color=target.shown and use_color(options.color))


class Gangs:
    """The gangs of an inventory, as the profiles of a policy define them; labels of namespaces are not read here."""

    def __init__(self, inventory: Inventory, profiles: Iterable[EvictionProfile]) -> None:
        self._inventory = inventory
        self._pods = ProfiledPods(inventory, profiles)

    def as_carried_out(self, preview: Preview, now: datetime) -> Preview:
        """The preview with what our worker leaves alone, and evicts besides, if it is the one that evicts."""
        return as_our_worker(self._inventory, preview, self._pods, now)

    def broken_by(self, preview: Preview) -> tuple[BrokenGang, ...]:
        """The gangs of evicted pods that have several pods, those that lose most first."""
        evicted = [row.pod for row in preview.pods if row.outcome is PodOutcome.EVICTED and row.pod is not None]
        lost = count_gangs(evicted, self._pods.gang_of)
        return broken_gangs(lost, self._sizes) if lost else ()

    @cached_property
    def _sizes(self) -> Counter[Gang]:
        return count_gangs(self._inventory.pods.values(), self._pods.gang_of)
