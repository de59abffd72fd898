"""Previews as text: a summary, what is unknown, and a table of pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.admission.impact_text import duration, on_extended_resources, siblings_text
from webhook.api.counts import counted
from webhook.api.names import PROGRAM
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, EVICT, DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.commands.preview.patches import change_lines, patch_title
from webhook.commands.preview.report import DryRunAnswer
from webhook.eviction.pod_plan import StepReason
from webhook.files.render import line, visible
from webhook.files.tables import table
from webhook.inventory.gangs import root_owner
from webhook.inventory.matching import Evictor
from webhook.inventory.preview import OutcomeReason, PodOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.api.rules import DeviceSelector
    from webhook.api.taints import DeviceTaint, DeviceToleration
    from webhook.commands.preview.report import DryRunResult, ObjectPreview, PreviewReport
    from webhook.inventory.gangs import BrokenGang
    from webhook.inventory.preview import GroupRow, PodRow, Preview
    from webhook.inventory.published import DeviceId

_WAVES_SHOWN: Final = 6
_GANGS_SHOWN: Final = 5
_NAMES_SHOWN: Final = 5
_DEVICES_SHOWN: Final = 4
_PRIORITY: Final = 2
"""The index of the column with numbers."""
_NO_SLICES: Final = "unknown: the dump has no ResourceSlices"
_OURS: Final = f"{PROGRAM} evict"
_WORDS: Final = {
    PodOutcome.LEFT_ALONE: "left alone",
    PodOutcome.NO_NODE: "on no node",
    PodOutcome.TOLERATES: "tolerates",
    PodOutcome.KEPT: "stays",
}

_PLAIN_REASONS: Final = {
    OutcomeReason.NOT_TOLERATED: "no toleration",
    OutcomeReason.EXTENDED_RESOURCE: "uses it through an extended resource",
    OutcomeReason.TERMINATING: "already leaving",
    OutcomeReason.FINISHED: "already leaving",
    OutcomeReason.MIRROR_POD: StepReason.MIRROR.value,
    OutcomeReason.DAEMON_SET: StepReason.DAEMON.value,
    OutcomeReason.ACTION_SKIP: StepReason.SKIPPED.value,
}


def as_text(report: PreviewReport, *, limit: int, width: int | None = None, color: bool = False) -> str:
    """The whole report. Tables have at most `limit` rows, 0 for all; lines fit the width, if one is given."""
    lines = [line(row, entry, color=color) for row in report.rows for entry in row.entries]
    for item in report.objects:
        if lines:
            lines.append("")
        lines += _preview_lines(item, report, limit=limit, width=width, color=color)
    return "\n".join(lines) + "\n" if lines else ""


def _preview_lines(
    item: ObjectPreview, report: PreviewReport, *, limit: int, width: int | None, color: bool
) -> Iterator[str]:
    row, preview = item.row, item.preview
    where = row.file if row.position is None else f"{row.file}:{row.position.line}:{row.position.column}"
    yield visible(f"{where}: {row.reference}: {_title(item)}")
    yield from (line(row, entry, color=color) for entry in row.entries)
    if preview.simulated:
        yield f"  {_simulation_text(item)}"
    for each in table(_summary(item, report), width=width and width - 2, color=color):
        yield f"  {each}"
    for note in item.notes:
        yield visible(f"  note: {note}")
    if item.outcome is not None and item.outcome.changes:
        yield ""
        yield from change_lines(row.name, item.outcome.changes, limit=limit, width=width, color=color)
    if preview.pods:
        yield ""
        yield from _pods(preview, report, limit=limit, width=width, color=color)
    if item.confirmation is not None:
        yield ""
        yield from (visible(each) for each in _confirmation(item.confirmation))


# --- titles -------------------------------------------------------------------------------------


def _title(item: ObjectPreview) -> str:
    match item.value:
        case DeviceTaintRule() as rule:
            return _rule_title(rule)
        case ResourceSlicePatch() as patch:
            return patch_title(patch)
        case value:
            return _slice_title(value, item.preview)


def _rule_title(rule: DeviceTaintRule) -> str:
    selector = _selector_text(rule.selector)
    return f"{taint_text(rule.taint)} on {selector}" if selector else f"{taint_text(rule.taint)} without selector"


def _slice_title(value: ResourceSlice, preview: Preview) -> str:
    taints = sorted({taint_text(taint.taint) for _, taint in preview.taints})
    devices = len({names.device for names, _ in preview.taints})
    pool = f"{value.driver}/{value.pool}"
    return f"{', '.join(taints)} new on {counted(devices, 'device')} of pool {pool}" if taints else f"pool {pool}"


def _selector_text(selector: DeviceSelector | None) -> str:
    if selector is None:
        return ""
    given = {"driver": selector.driver, "pool": selector.pool, "device": selector.device}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None) or "every device"


def _simulation_text(item: ObjectPreview) -> str:
    """Says that the figures below are hypothetical."""
    rule = item.value
    if isinstance(rule, DeviceTaintRule) and rule.taint.effect != "None":
        return f'effect "{visible(rule.taint.effect)}" acts as None, which does nothing; if it were NoExecute:'
    return "effect None does nothing; if it were NoExecute:"


def taint_text(taint: DeviceTaint) -> str:
    """`key=value:effect`, as kubectl shows taints of nodes."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def toleration_text(toleration: DeviceToleration) -> str:
    """`key=value:effect op=Exists for 300s`, as kubectl shows tolerations of pods."""
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    exists = "op=Exists" if toleration.operator == "Exists" else ""
    seconds = "" if toleration.toleration_seconds is None else f"for {toleration.toleration_seconds}s"
    return " ".join(filter(None, (f"{toleration.key}{value}{effect}", exists, seconds)))


# --- summary ------------------------------------------------------------------------------------


def _summary(item: ObjectPreview, report: PreviewReport) -> Iterator[tuple[str, str]]:
    preview = item.preview
    impact = preview.impact
    pools = f"{counted(impact.pools, 'pool')} of {counted(impact.drivers, 'driver')}"
    uncounted = not report.slices_known and not isinstance(item.value, ResourceSlice)
    devices = _NO_SLICES if uncounted else f"{impact.devices} in {pools}"
    yield "devices", f"{devices}; {impact.allocated} allocated" if report.claims_known else devices
    pods = preview.count(PodOutcome.EVICTED)
    if preview.claims:
        yield "evicted", counted(pods, "pod")
        yield from _wave_lines(list(preview.waves.items()))
        yield from _gang_lines(item.gangs)
        if preview.extended:
            through = counted(preview.extended, "pod")
            yield "extended", f"{through} of these with extended resources: {on_extended_resources(report.servers)}"
        if preview.companions:
            yield "along", f"{counted(preview.companions, 'pod')} of these only with the rest of their PodGroup"
        where = f"{counted(len(preview.namespaces), 'namespace')}: {first_names(preview.namespaces)}"
        yield "claims", f"{len(preview.claims)} in {where}"
    else:  # a patch selects among what is published
        none = _NO_SLICES if uncounted and item.outcome is not None else "no pods"
        yield "evicted", none if report.claims_known else "unknown: the dump has no ResourceClaims"
    for name, outcome, text in (
        ("left alone", PodOutcome.LEFT_ALONE, "{} by our worker"),
        ("not yet", PodOutcome.NO_NODE, "{} on no node; evicted once it is on one"),
        ("tolerate", PodOutcome.TOLERATES, "{}"),
        ("stay", PodOutcome.KEPT, "{}; the taint only blocks new allocations"),
        ("leaving", PodOutcome.LEAVING, "{}, terminating or finished, and not counted"),
    ):
        number = preview.count(outcome)
        if number:
            yield name, text.format(counted(number, "pod"))
    for group in preview.pod_groups:
        yield "PodGroup", _group_text(group, report)
    if item.outcome is not None and item.outcome.expansion.rules:
        yield "rules", counted(len(item.outcome.expansion.rules), "DeviceTaintRule")
    if impact.siblings:
        yield "hardware", siblings_text(impact.siblings)
    evictor = _evictor(item)
    if evictor:
        yield "evictor", evictor


def _wave_lines(waves: Sequence[tuple[int, int]]) -> Iterator[tuple[str, str]]:
    shown = waves if len(waves) <= _WAVES_SHOWN else waves[: _WAVES_SHOWN - 1]
    for seconds, pods in shown:
        yield f"  {_when(seconds)}", counted(pods, "pod")
    rest = waves[len(shown) :]
    if rest:
        yield f"  until {duration(rest[-1][0])}", counted(sum(pods for _, pods in rest), "pod")


def _gang_lines(gangs: Sequence[BrokenGang]) -> Iterator[tuple[str, str]]:
    """Each gang, as far as there are few; then how many more."""
    shown = gangs if len(gangs) <= _GANGS_SHOWN else gangs[: _GANGS_SHOWN - 1]
    for broken in shown:
        yield "gang", f"{broken.evicted} of {counted(broken.pods, 'pod')} of {broken.gang}"
    rest = gangs[len(shown) :]
    if rest:
        evicted, pods = sum(broken.evicted for broken in rest), sum(broken.pods for broken in rest)
        yield "gangs", f"{evicted} of {counted(pods, 'pod')} of {len(rest)} more"


def _group_text(group: GroupRow, report: PreviewReport) -> str:
    fate = _WORDS.get(group.outcome) or f"evicted {_when(group.seconds or 0)}"
    if group.outcome is PodOutcome.LEFT_ALONE:
        fate += ", as its claims stay reserved until it is deleted"
    known = f"{counted(len(group.pods), 'pod')} known" if report.pods_known else "its pods are unknown"
    return f"{group.namespace}/{group.name}: {fate}; {known}, not counted above"


def _evictor(item: ObjectPreview) -> str:
    if not item.preview.pods and not item.preview.pod_groups:
        return ""
    evictors = {taint.evictor for _, taint in item.preview.taints}
    if Evictor.IN_TREE in evictors:
        return "the in-tree controller"
    if Evictor.OURS not in evictors:
        return ""
    rule = item.value
    asked = isinstance(rule, DeviceTaintRule) and rule.meta.annotations.get(EVICT) == "true"
    return (
        f"{_OURS}, because of annotation {EVICT}" if asked else f"{_OURS}, because the policy has inTreeEvictor: absent"
    )


def first_names(names: Sequence[str]) -> str:
    """The first five names, in their order, and how many more there are."""
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


# --- pods ---------------------------------------------------------------------------------------


def _pods(preview: Preview, report: PreviewReport, *, limit: int, width: int | None, color: bool) -> Iterator[str]:
    shown = preview.pods[:limit] if limit else preview.pods
    several = len({driver for row in preview.pods for driver, _, _ in row.devices}) > 1
    taints = len({taint.taint for _, taint in preview.taints}) > 1
    headers = ["POD", "DEVICES", "WHEN", "WHY"]
    rows = [
        [
            f"{row.namespace}/{row.name}",
            _devices(row.devices, drivers=several),
            _fate(row),
            _why(row, named=taints),
        ]
        for row in shown
    ]
    if report.pods_known:
        headers[1:1] = ["OWNER", "PRIORITY"]
        for cells, row in zip(rows, shown, strict=True):
            cells[1:1] = _standing(row)
    right = (_PRIORITY,) if report.pods_known else ()
    yield from table(rows, headers=headers, right=right, width=width, color=color)
    rest = len(preview.pods) - len(shown)
    if rest:
        yield f"and {rest} more; --limit 0 shows all"


def _standing(row: PodRow) -> list[str]:
    """Owner and priority."""
    if row.pod is None:
        return ["?", "?"]
    return [str(root_owner(row.pod) or "-"), str(row.pod.priority)]


def _devices(devices: Sequence[DeviceId], *, drivers: bool) -> str:
    """`pool/device,device`, pool by pool; with drivers if they differ."""
    pools: dict[str, list[str]] = {}
    for driver, pool, device in devices[:_DEVICES_SHOWN]:
        pools.setdefault(f"{driver}/{pool}" if drivers else pool, []).append(device)
    text = " ".join(f"{pool}/{','.join(names)}" for pool, names in pools.items())
    rest = len(devices) - _DEVICES_SHOWN
    return f"{text} +{rest}" if rest > 0 else text


def _fate(row: PodRow) -> str:
    if row.outcome is PodOutcome.LEAVING:
        return "terminating" if row.cause.reason is OutcomeReason.TERMINATING else "finished"
    return _WORDS.get(row.outcome) or _when(row.seconds or 0)


def _why(row: PodRow, *, named: bool) -> str:
    """The reason in words, with the taint where there are several."""
    cause = row.cause
    toleration = "" if cause.toleration is None else toleration_text(cause.toleration) or "a toleration of everything"
    text = _PLAIN_REASONS.get(cause.reason, "")
    match cause.reason:
        case OutcomeReason.EFFECT_NOT_NAMED:
            text = f"{toleration}: sets no effect, but the in-tree controller requires NoExecute"
        case OutcomeReason.TOLERATED_FOR_SECONDS:
            over = not row.seconds and (cause.toleration is not None and (cause.toleration.toleration_seconds or 0) > 0)
            text = f"{toleration}, already elapsed" if over else toleration
        case OutcomeReason.TOLERATED:
            text = toleration
        case OutcomeReason.TOLERATES_SCHEDULING:
            text = f"{toleration}: a replacement would land on the same device"
        case OutcomeReason.ALLOCATION_ONLY:
            text = f"{cause.taint.effect} evicts no pods"
        case OutcomeReason.WITH_POD_GROUP:
            text = f"with PodGroup {_group_name(row)}"
        case OutcomeReason.HELD_BY_POD_GROUP:
            text = f"PodGroup {_group_name(row)} keeps its claims reserved"
        case _:
            pass  # as above
    if row.pod is not None and row.pod.hold is not None and row.outcome is PodOutcome.EVICTED:
        text += f"; on hold: {row.pod.hold}" if row.pod.hold else "; on hold"
    return f"{taint_text(cause.taint)}: {text}" if named else text


def _group_name(row: PodRow) -> str:
    return "" if row.pod is None else row.pod.pod_group


# --- confirmation -------------------------------------------------------------------------------


def _confirmation(given: DryRunResult) -> Iterator[str]:
    match given.answer:
        case DryRunAnswer.GRANTED:
            yield "dry run: accepted as it is"
        case DryRunAnswer.CONFIRM | DryRunAnswer.REFUSED:
            yield f"dry run: refused: {given.message}"
        case DryRunAnswer.SOFTENED:
            yield f"dry run: accepted as NoSchedule with annotation {EVICT}, by the policy"
        case DryRunAnswer.FAILED:
            yield f"dry run: no answer: {given.message}"
        case DryRunAnswer.NOT_ASKED:
            yield f"no dry run: {given.message}"
    if given.text:
        yield "to confirm this impact, add this annotation:"
        yield f'  {CONFIRM_IMPACT}: "{given.text}"'


def _when(seconds: int) -> str:
    return f"after {duration(seconds)}" if seconds else "now"
