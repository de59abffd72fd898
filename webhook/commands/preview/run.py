"""One run of `preview`: what rules, slices and patches in files would do in a cluster, or a dump.

Where our worker carries a taint out, it is asked for its plan: some pods stay, and others go with those that go. The
in-tree controller looks at each pod by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import structs

from webhook.admission.cluster_lint import cluster_lint
from webhook.admission.confirmation import CarriedText
from webhook.admission.context import AdmissionContext
from webhook.admission.defaulting import edits_for
from webhook.admission.lint import lint
from webhook.admission.over_limit import LimitCheck
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import ResourceClaim
from webhook.api.field import FieldError, Finding, Path, Severity, not_supported
from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind, GroupVersionResource, parse_time
from webhook.api.names import PATCH_ACCOUNT
from webhook.api.patches import ResourceSlicePatch
from webhook.api.pods import Pod
from webhook.api.rules import DeviceTaintRule, condition_of
from webhook.api.schema import api_versions_of
from webhook.api.slices import ResourceSlice
from webhook.commands.preview.report import (
    DryRunAnswer,
    DryRunResult,
    PatchResult,
    PreviewedObject,
    PreviewReport,
    PreviewSource,
    as_values,
)
from webhook.commands.preview.text import TextPage, as_text, notes_of, patch_notes, window_notes
from webhook.commands.shared.entries import duplicate_entries, entries_of, unreadable_row
from webhook.commands.shared.flags import (
    NOT_SAID,
    KubernetesVersion,
    credentials_of,
    refuse_cluster_beside_dump,
    refuse_stdin_twice,
    use_color,
)
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.objects import objects_in
from webhook.commands.shared.output import ReportTarget, write_reports
from webhook.commands.shared.policy_files import holds_policy, policy_of, row_of
from webhook.config.command_line import CommandLine
from webhook.eviction.conditions import EVICTION, ConditionReason
from webhook.eviction.followed_pods import EXEMPTIONS, ProfiledPods
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import StepReason
from webhook.files.manifests import Stock, held_in, kind_of, patching_object_in
from webhook.files.read import Manifest, read, shown
from webhook.files.report import STRUCTURED, UNREADABLE, Level, Result, Row
from webhook.inventory.evictions import NOTHING, Eviction, EvictionReason, Evictions, Without, later
from webhook.inventory.gangs import Gang, broken_gangs, count_gangs, is_held, keeps_all
from webhook.inventory.placement import Seeker, freed_claims, placements
from webhook.inventory.pools import Evictor
from webhook.inventory.preview import (
    Cause,
    GroupRow,
    OutcomeReason,
    PodOutcome,
    PodRow,
    Preview,
    row_order,
    rule_preview,
    slice_preview,
)
from webhook.inventory.state import Inventory, Sight, key_of
from webhook.inventory.supply import Supply
from webhook.inventory.targets import EvictionScope
from webhook.patches.expansion import expansion
from webhook.patches.filters import DeviceSelectors
from webhook.patches.patch_preview import patch_changes, patch_preview
from webhook.patches.patching import EffectiveDevices, effective_devices
from webhook.policy.decide import Judge
from webhook.policy.model import BUILTIN, InTreeEvictor, Policy
from webhook.validation.kinds import BY_KIND, KINDS
from webhook.validation.releases import RELEASES, Release
from webhook.validation.strict import strict_findings

_PATCH: Final = "ResourceSlicePatch"
_KINDS: Final = {GROUP: frozenset({"DeviceTaintRule", "ResourceSlice", _PATCH}), OWN_GROUP: frozenset({_PATCH})}
_NO_SUBJECT: Final = "contains no DeviceTaintRule, no ResourceSlice and no ResourceSlicePatch"
_FROM_DUMP: Final = "a dump does not tell who would write the rule, and so not whether it must be confirmed"
_NOTHING_KNOWN: Final = "contains no ResourceSlices and no ResourceClaims, so it is unknown what would be hit"
_Tainting = TypeVar("_Tainting", DeviceTaintRule, ResourceSlicePatch)
_Row = TypeVar("_Row", PodRow, GroupRow)


class _Subject(NamedTuple):
    """A rule, slice or patch of a file."""

    manifest: Manifest
    row: Row
    value: DeviceTaintRule | ResourceSlice | ResourceSlicePatch


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print what would be hit. Return 0, 1 for a rule refused even if confirmed, 2 for bad input or no cluster."""
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.files, *options.dump, options.policy], parser)
    now = (options.time or datetime.now(UTC)).replace(microsecond=0)  # noqa: TID251 -- the shell asks
    version: KubernetesVersion = options.kubernetes_version or NOT_SAID
    # A cluster says itself which versions it serves.
    minors = (version.release.minor,) if options.dump or options.kubernetes_version else tuple(RELEASES)
    rows: list[Row] = []
    subjects = list(_subjects(options.files, minors, rows))
    source = _from_files(options, rows) if options.dump else _from_cluster(options, subjects)
    if options.kubernetes_version:
        source.inventory.servers = version.facts
    judged = policy_of(options.policy, source.policy)
    policy = judged.policy or BUILTIN
    broken = [row for row in judged.rows if row.count(Level.ERROR)]
    rows += broken
    if not source.knows("ResourceClaim") and not source.knows("ResourceSlice") and not rows:
        rows.append(Row(", ".join(map(shown, options.dump))).failed(_NOTHING_KNOWN))
    previews = _Previews(source, policy, version.release, now, subjects)
    report = PreviewReport(source, now, list(map(previews.of, subjects)), rows)

    def rendered(target: ReportTarget) -> str:
        if target.format in STRUCTURED:
            return STRUCTURED[target.format](as_values(report))
        width = shutil.get_terminal_size().columns if target.shown and sys.stdout.isatty() else None
        return as_text(report, TextPage(options.limit, width, target.shown and use_color(options.color)))

    return write_reports(options.output, rendered, 2 if broken else _exit_code(report))


def _exit_code(report: PreviewReport) -> int:
    """Return 0 if all is fine, 1 if something would be refused even if confirmed, 2 if something could not be read."""
    entries = [entry for row in (*report.rows, *[item.row for item in report.objects]) for entry in row.entries]
    answers = {item.confirmation.answer for item in report.objects if item.confirmation is not None}
    if DryRunAnswer.FAILED in answers or any(entry.reason == UNREADABLE for entry in entries):
        return 2
    return int(DryRunAnswer.REFUSED in answers or any(entry.level is Level.ERROR for entry in entries))


# --- files and the cluster ----------------------------------------------------------------------


def _subjects(names: Sequence[str], minors: tuple[int, ...], rows: list[Row]) -> Iterator[_Subject]:
    """Yield the rules, slices and patches in files; what cannot be read becomes a row. Other kinds are ignored."""
    for name in names:
        told = False
        for file in read([name]):
            unreadable = unreadable_row(file)
            if unreadable is not None:
                rows.append(unreadable)
            concerning = [
                manifest
                for manifest in file.manifests
                if (kind := kind_of(manifest.value)).kind in _KINDS.get(kind.group, ())
            ]
            told = told or bool(concerning) or unreadable is not None
            for manifest in concerning:
                subject = _subject(manifest, minors)
                if isinstance(subject, Row):
                    rows.append(subject)
                else:
                    yield subject
        if not told:
            rows.append(Row(shown(name)).failed(_NO_SUBJECT))


def _subject(manifest: Manifest, minors: tuple[int, ...]) -> _Subject | Row:
    """Return the subject, or a row with the reason why it is not usable."""
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


def _from_files(options: argparse.Namespace, rows: list[Row]) -> PreviewSource:
    """Return a dump, with its own policy unless another one is given."""
    stock = Stock(whole=True)
    holding: list[Manifest] = []
    for manifest in objects_in(options.dump, rows):
        stock.add([manifest])
        if options.policy is None and holds_policy(manifest.value):
            holding.append(manifest)
    for manifest, error in stock.malformed:
        rows.append(row_of(manifest).failed(f"{row_of(manifest).reference}: left out: {error}"))
    if len(holding) > 1:
        rows.append(Row(holding[1].file).failed(f"contains {len(holding)} policies; choose one with --policy"))
    return PreviewSource(stock, next(iter(holding), None))


def _from_cluster(options: argparse.Namespace, subjects: Sequence[_Subject]) -> PreviewSource:
    """Return the cluster's objects, and its answers to the rules. Raises ClusterUnreachable."""
    from webhook.commands.preview.from_cluster import sight_of_cluster  # noqa: PLC0415

    rules = [subject.manifest.value for subject in subjects if isinstance(subject.value, DeviceTaintRule)]
    patched = any(isinstance(subject.value, ResourceSlicePatch) for subject in subjects)
    config_map = None if options.policy is not None else options.policy_configmap
    with reading_cluster():
        return asyncio.run(sight_of_cluster(credentials_of(options), config_map, rules, patched=patched))


# --- previews -----------------------------------------------------------------------------------


class _Previews:
    """Previews under one policy. Patches of files and those of the source are taken together."""

    def __init__(
        self, source: PreviewSource, policy: Policy, release: Release, now: datetime, subjects: Iterable[_Subject]
    ) -> None:
        """Patches of files replace those of the same name."""
        self._source, self._inventory = source, source.inventory
        self._policy, self._release, self._now = policy, release, now
        self._in_tree = policy.in_tree_evictor is InTreeEvictor.ACTIVE
        self._pods = ProfiledPods(source.inventory, policy.eviction, source.facts_of)
        self._answers = iter(source.confirmations)
        self._patches = {**source.stock.patches}
        for _, _, value in subjects:
            if isinstance(value, ResourceSlicePatch):
                self._patches[value.meta.name] = _as_stored(value, source.stock.patches.get(value.meta.name), now)

    def of(self, subject: _Subject) -> PreviewedObject:
        """Return the preview of a subject. They are asked for in their order, as the cluster's answers to rules are."""
        value = subject.value
        if isinstance(value, ResourceSlicePatch):
            return self._patch(subject, value)
        return self._rule_or_slice(subject, value)

    @cached_property
    def _effective(self) -> EffectiveDevices:
        """What all patches do together."""
        classes = self._source.stock.classes
        return effective_devices(self._inventory.pools, self._patches.values(), classes, DeviceSelectors())

    def _patch(self, subject: _Subject, given: ResourceSlicePatch) -> PreviewedObject:
        name, effective = given.meta.name, self._effective
        patch = self._patches[name]
        made = expansion(self._inventory.pools, patch, effective)
        devices = effective.selected[name]
        preview = patch_preview(self._inventory, devices, made.rules, in_tree=self._in_tree, now=self._now)
        faults = [fault for fault in effective.faults if fault.patch == name]
        changes = list(patch_changes(effective, patch))
        result = PatchResult(changes, made, faults, effective.inapplicable.get(name, ""))
        errors = self._errors(subject, given, self._source.stock.patches.get(name))
        row = _with_findings(subject, errors, list(lint(patch, None, self._now)), self._release)
        preview = self._with_places(preview)
        notes = [*patch_notes(result), *notes_of(patch, preview, self._source)]
        return PreviewedObject(row, patch, preview, notes, patch=result)

    def _with_places(self, preview: Preview, rule: str = "") -> Preview:
        """Add where the pods that are evicted would go; `rule` is the name of the one that is previewed."""
        pods = [each for each in preview.pods if each.outcome is PodOutcome.EVICTED]
        taints = [(names, taint.scheduling or taint.taint) for names, taint in preview.taints]
        source, reserved = self._source, defaultdict[str, list[ResourceClaim]](list)
        for claim in self._inventory.claims.values() if any(each.pod is None for each in pods) else ():
            for user in claim.reserved_for:
                reserved[user.uid].append(claim)
        seekers = [
            Seeker(each.namespace, each.name, tuple(reserved[each.uid]))
            if each.pod is None
            else Seeker.of(each.pod, self._inventory.claims_of(each.pod))
            for each in pods
        ]
        supply = Supply(
            self._inventory,
            classes=source.stock.classes or None,
            nodes=source.stock.nodes if source.knows("Node") else None,
            freed=freed_claims(seekers, {each.uid for each in pods}),
            taints=taints,
            without=rule,
        )
        places = placements(self._inventory, seekers, supply)
        return structs.replace(preview, impact=structs.replace(preview.impact, places=places))

    def _rule_or_slice(self, subject: _Subject, value: DeviceTaintRule | ResourceSlice) -> PreviewedObject:
        source, inventory, now = self._source, self._inventory, self._now
        countable = source.knows("ResourceSlice") and source.knows("ResourceClaim")
        advice, answer = list[Finding](), None
        if isinstance(value, DeviceTaintRule):
            old = inventory.rules.get(value.meta.name)
            value = _as_stored(value, old, now)
            preview = rule_preview(inventory, value, in_tree=self._in_tree, now=now)
            answer = next(self._answers, DryRunResult(DryRunAnswer.NOT_ASKED, message=_FROM_DUMP))
            if countable and not answer.text and _may_need_text(answer, old):
                answer = answer._replace(text=self._confirmation_of(value, old) or None)
            siblings = None if preview.simulated else preview.impact.siblings
            context = AdmissionContext(now=now, sight=Sight(inventory))
            advice = [*lint(value, None, now, inventory.servers), *cluster_lint(value, None, context, siblings)]
            if not countable:  # nor is it known that the selector matches nothing
                advice = [each for each in advice if each.code != "DT201"]
            checked = value
            if old is not None:  # as kubectl applies it: on top of what is there
                version = old.meta.resource_version or "1"
                checked = structs.replace(value, meta=structs.replace(value.meta, resource_version=version))
            errors = self._errors(subject, checked, old)
        else:
            preview = slice_preview(inventory, value, in_tree=self._in_tree, now=now)
            errors = self._errors(subject, value, inventory.slices.get(value.meta.name))
        preview = as_our_worker(inventory, preview, self._pods, now)
        preview = self._with_places(preview, value.meta.name if isinstance(value, DeviceTaintRule) else "")
        row = _with_findings(subject, errors, advice, self._release)
        notes = [*notes_of(value, preview, source), *window_notes(preview, source, self._policy, now)]
        evicted = [each.pod for each in preview.pods if each.outcome is PodOutcome.EVICTED and each.pod is not None]
        lost = count_gangs(evicted, self._pods.gang_of)
        broken = broken_gangs(lost, self._gangs) if lost else ()
        return PreviewedObject(row, value, preview, notes, broken, answer)

    @cached_property
    def _gangs(self) -> Counter[Gang]:
        return count_gangs(self._inventory.pods.values(), self._pods.gang_of)

    def _errors(self, subject: _Subject, value: Any, old: Any) -> Iterator[FieldError]:
        """Return what an API server would refuse it for."""
        rules = KINDS[BY_KIND[GroupVersionKind.parse(subject.row.api_version, subject.row.kind)]]
        yield from rules.errors(value, old, self._release)
        if rules.documented is not None:
            yield from rules.documented(value, old)

    def _confirmation_of(self, rule: DeviceTaintRule, old: DeviceTaintRule | None) -> str:
        """Return the text that confirms what a rule hits now, or would once its effect is raised."""
        # With an account, the rest of its hardware counts too, as where the patch controller runs.
        context = AdmissionContext(
            now=self._now,
            servers=self._inventory.servers,
            judge=Judge(self._policy),
            sight=Sight(self._inventory),
            patch_account=PATCH_ACCOUNT,
        )
        resource = GroupVersionResource(GROUP, "v1", "devicetaintrules")
        request = AdmissionRequest(uid="", operation="CREATE", resource=resource)
        check = LimitCheck((rule,), old, request, context)
        hit = check.to_confirm(check.impact(self._inventory))
        return CarriedText(rule, old, request, context).text_for(hit)


def _with_findings(subject: _Subject, errors: Iterable[FieldError], advice: Sequence[Finding], release: Release) -> Row:
    manifest, kind = subject.manifest, GroupVersionKind.parse(subject.row.api_version, subject.row.kind)
    advised = {each.error.path.written for each in advice}  # of what later releases may select by
    strict = [each for each in strict_findings(manifest.value, kind, release) if each.error.path.written not in advised]
    entries = entries_of(manifest.spot, strict, at_keys=True), entries_of(manifest.spot, [*_denials(errors), *advice])
    return replace(subject.row, entries=tuple(chain(*entries)))


def _may_need_text(answer: DryRunResult, stored: DeviceTaintRule | None) -> bool:
    """Tell whether a rule may have to be confirmed that was not refused, as when the worker has stopped it."""
    if answer.answer in (DryRunAnswer.NOT_ASKED, DryRunAnswer.SOFTENED):
        return True
    said = None if stored is None else condition_of(stored.conditions, EVICTION)
    return answer.answer is DryRunAnswer.GRANTED and said is not None and said.reason == ConditionReason.STOPPED


def _as_stored(value: _Tainting, old: _Tainting | None, now: datetime) -> _Tainting:
    """Return a rule or patch with its times as stored; a patch stays as old as the one that it replaces (P-11)."""
    edits = [(at, parse_time(str(time))) for at, time in edits_for(value, old, AdmissionContext(now=now))]
    if isinstance(value, DeviceTaintRule):
        return structs.replace(value, taint=structs.replace(value.taint, time_added=edits[-1][1])) if edits else value
    taints = list(value.taints)
    for at, time in edits:
        taints[int(at[3])] = structs.replace(taints[int(at[3])], time_added=time)
    return structs.replace(value, taints=tuple(taints), created=old.created if old else value.created)


# --- as our worker carries it out ---------------------------------------------------------------


class _Previewed(Evictions):
    """Evictions by the taints of a preview alone, whatever else is on the devices."""

    def __init__(self, inventory: Inventory, rows: Mapping[str, PodRow]) -> None:
        super().__init__(inventory, EvictionScope(), lambda _: None)
        self._rows = rows
        self._claims = {key for row in rows.values() for key in row.claims}

    def holding_group(self, pod: Pod, without: Without = NOTHING) -> str:  # noqa: ARG002 -- nothing is left out
        """Return the PodGroup that keeps all claims reserved that make the pod go; else an empty text."""
        row = self._rows.get(key_of(pod.meta))
        claims = [] if row is None else [self._inventory.claims[key] for key in row.claims]
        return pod.pod_group if claims and keeps_all(self._inventory, pod, claims) else ""

    def evicts_users_of(self, key: str, without: Without = NOTHING) -> bool:  # noqa: ARG002
        """Tell whether a claim makes its pods go."""
        return key in self._claims


def as_our_worker(inventory: Inventory, preview: Preview, pods: ProfiledPods, now: datetime) -> Preview:
    """Change the preview where our worker would do otherwise than the taint alone."""
    if all(taint.evictor is not Evictor.OURS for _, taint in preview.taints):
        return preview
    evicted = {
        f"{row.namespace}/{row.name}": row
        for row in preview.pods
        if row.outcome is PodOutcome.EVICTED and row.pod is not None
    }
    hit = {
        key: Eviction(later(now, row.seconds or 0), (EvictionReason(row.cause.taint),)) for key, row in evicted.items()
    }
    seconds = {id(eviction): evicted[key].seconds for key, eviction in hit.items()}
    view = View(
        inventory=inventory,
        evictions=_Previewed(inventory, evicted),
        hit=hit,
        profile_of=pods.profile_of,
        hold_of=lambda _: None,
        group_of=str,
        exceeded=lambda *_: "",
    )
    made = plan(view, Ledger(), None, Moment(now, 0.0))
    rows = {row.uid: row for row in preview.pods}
    for row in evicted.values():
        wait = made.waits.get(row.uid)
        if wait is not None and row.uid not in made.going:
            held = wait.reason is StepReason.GROUP
            rows[row.uid] = _left_alone(row, OutcomeReason.HELD_BY_POD_GROUP if held else EXEMPTIONS[wait.reason])
    for each in made.going.values():
        if each.along and not is_held(inventory, each.pod, preview.impact.claims):
            known, meta = rows.get(each.uid), each.pod.meta
            cause = Cause(OutcomeReason.WITH_POD_GROUP, each.eviction.reasons[0].taint)
            devices, due = () if known is None else known.devices, seconds[id(each.eviction)]
            rows[each.uid] = PodRow(
                meta.namespace, meta.name, each.uid, PodOutcome.EVICTED, due, cause, devices, (), each.pod
            )
    groups = [_group_row(inventory, row, pods) for row in preview.pod_groups]
    return structs.replace(
        preview,
        pods=tuple(sorted(rows.values(), key=row_order)),
        pod_groups=tuple(sorted(groups, key=row_order)),
    )


def _left_alone(row: _Row, reason: OutcomeReason) -> _Row:
    cause = Cause(reason, row.cause.taint)
    return structs.replace(row, outcome=PodOutcome.LEFT_ALONE, seconds=None, cause=cause)


def _group_row(inventory: Inventory, row: GroupRow, pods: ProfiledPods) -> GroupRow:
    """Return a PodGroup: while it exists it keeps its claims; else only the reservation is left."""
    group = inventory.pod_groups.get(f"{row.namespace}/{row.name}")
    if row.outcome is not PodOutcome.EVICTED:
        return row
    if group is None or group.meta.uid != row.uid:
        left = [key for key in row.pods if pods.exemption_of(inventory.pods[key]) is None]
        return structs.replace(row, pods=tuple(left))
    return _left_alone(row, OutcomeReason.HELD_BY_POD_GROUP)
