"""Previews in words: notes on what is unknown or easily overlooked, and the whole report for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from webhook.admission.impact_text import duration, on_extended_resources, places_figures, siblings_text
from webhook.api.field import JSON
from webhook.api.messages import counted
from webhook.api.names import PROGRAM
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, EVICT, DeviceSelector, DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.commands.preview.report import (
    DryRunAnswer,
    PatchResult,
    PreviewedObject,
    PreviewReport,
    PreviewSource,
    not_judged,
)
from webhook.eviction.pod_plan import StepReason
from webhook.eviction.profiles import classes_of
from webhook.files.report import line, table, visible
from webhook.inventory.gangs import BrokenGang, root_owner
from webhook.inventory.hardware import unused_claims
from webhook.inventory.pools import Evictor, acts
from webhook.inventory.preview import GroupRow, OutcomeReason, PodOutcome, PodRow, Preview, outdated
from webhook.inventory.targets import DeviceId, DeviceNames, can_judge
from webhook.patches.covering import RULES_MAX
from webhook.patches.patch_preview import PatchChange
from webhook.policy.limits import PodFacts, ProfileMatcher
from webhook.policy.model import Policy
from webhook.policy.windows import Leaving, fit_texts, has_windows, windows_text

_T = TypeVar("_T")
_FAULTS_SHOWN: Final = 3
_WAVES_SHOWN: Final = 6
_GANGS_SHOWN: Final = 5
_NAMES_SHOWN: Final = 5
_DEVICES_SHOWN: Final = 4
_NEEDED: Final = {
    "ResourceSlice": "ResourceSlices, so published devices are unknown",
    "ResourceClaim": "ResourceClaims, so it is unknown which pods use a device",
    "Pod": "Pods, so it is unknown who owns them, their priorities, and which are terminating or finished",
}
_NO_SLICES: Final = "unknown: the dump has no ResourceSlices"
_WORDS: Final = {
    PodOutcome.LEFT_ALONE: "left alone",
    PodOutcome.NO_NODE: "on no node",
    PodOutcome.TOLERATES: "tolerates",
    PodOutcome.KEPT: "stays",
}
_REASONS: Final = {
    OutcomeReason.NOT_TOLERATED: "no toleration",
    OutcomeReason.EXTENDED_RESOURCE: "uses it through an extended resource",
    OutcomeReason.TERMINATING: "already leaving",
    OutcomeReason.FINISHED: "already leaving",
    OutcomeReason.MIRROR_POD: StepReason.MIRROR.value,
    OutcomeReason.DAEMON_SET: StepReason.DAEMON.value,
    OutcomeReason.ACTION_SKIP: StepReason.SKIPPED.value,
    OutcomeReason.EFFECT_NOT_NAMED: "{toleration}: sets no effect, but the in-tree controller requires NoExecute",
    OutcomeReason.TOLERATED: "{toleration}",
    OutcomeReason.TOLERATED_FOR_SECONDS: "{toleration}",
    OutcomeReason.TOLERATES_SCHEDULING: "{toleration}: a replacement would land on the same device",
    OutcomeReason.ALLOCATION_ONLY: "{effect} evicts no pods",
    OutcomeReason.WITH_POD_GROUP: "with PodGroup {group}",
    OutcomeReason.HELD_BY_POD_GROUP: "PodGroup {group} keeps its claims reserved",
}
_OTHERS: Final = (
    ("left alone", PodOutcome.LEFT_ALONE, " by our worker"),
    ("not yet", PodOutcome.NO_NODE, " on no node; evicted once it is on one"),
    ("tolerate", PodOutcome.TOLERATES, ""),
    ("stay", PodOutcome.KEPT, "; the taint only blocks new allocations"),
    ("leaving", PodOutcome.LEAVING, ", terminating or finished, and not counted"),
)
"""Lines of the summary for pods that are not evicted."""
_ANSWERS: Final = {
    DryRunAnswer.GRANTED: "dry run: accepted as it is",
    DryRunAnswer.CONFIRM: "dry run: refused: {}",
    DryRunAnswer.REFUSED: "dry run: refused: {}",
    DryRunAnswer.SOFTENED: f"dry run: accepted as NoSchedule with annotation {EVICT}, by the policy",
    DryRunAnswer.FAILED: "dry run: no answer: {}",
    DryRunAnswer.NOT_ASKED: "no dry run: {}",
}


def first_names(names: Sequence[str]) -> str:
    """Return the first five names, in their order, and how many more there are."""
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def taint_text(taint: DeviceTaint) -> str:
    """Return `key=value:effect`, as kubectl shows taints of nodes."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


# --- notes --------------------------------------------------------------------------------------


def notes_of(
    value: DeviceTaintRule | ResourceSlice | ResourceSlicePatch, preview: Preview, source: PreviewSource
) -> Iterator[str]:
    """Yield the notes on one preview, those on windows and on what a patch does to devices aside."""
    if isinstance(value, DeviceTaintRule):
        yield from _rule_notes(value, source)
    elif isinstance(value, ResourceSlice):
        yield from _slice_notes(value, preview, source)
    incomplete = [f"{driver}/{pool}" for driver, pool in preview.impact.incomplete_pools]
    if incomplete:
        yield f"not all slices are published for pools {first_names(incomplete)}: some of their devices are not counted"
    if source.server is None:
        yield from (f"the dump has no {text}" for kind, text in _NEEDED.items() if not source.knows(kind))
    missing = [f"{row.namespace}/{row.name}" for row in preview.pods if row.pod is None]
    if source.knows("Pod") and missing:
        yield f"claims are reserved for pods that were not found but are counted: {first_names(missing)}"
    yield from source.notes
    if source.autoscaler and any(each.none for each in preview.impact.places or ()):
        yield "the cluster has an autoscaler: it sees no device taints, so it adds no node for pods that find no device"


def _rule_notes(rule: DeviceTaintRule, source: PreviewSource) -> Iterator[str]:
    if not source.rules_served:
        yield "the cluster does not serve DeviceTaintRules (feature gate DRADeviceTaintRules): rules would do nothing"
    selector = rule.selector
    unjudged = ", ".join(not_judged(selector)) if selector is not None else ""
    if selector is not None and unjudged:
        counts = "counted as every device" if selector.unknown else "left out of the count"
        yield f"what {unjudged} of the selector selects cannot be evaluated here: {counts}, so less may be hit"
    stored = source.inventory.rules.get(rule.meta.name)
    if stored is not None:
        yield f"the rule already exists, as {taint_text(stored.taint)}: what it already does is counted, too"
    if acts(rule.taint.effect) and can_judge(selector):
        unused = unused_claims(source.inventory, DeviceNames.of(selector, source.inventory.servers))
        if unused:
            names = first_names(unused)
            yield f"no eviction frees the devices of claims that are allocated and used by no pod: {names}"


def _slice_notes(value: ResourceSlice, preview: Preview, source: PreviewSource) -> Iterator[str]:
    if outdated(source.inventory, value):
        yield f"a newer generation of the pool than {value.pool_generation} is published, so this slice is ignored"
    elif not preview.taints:
        yield "its devices have no new taints"
    elif not preview.simulated:
        taints = (*value.distinct_taints, *[entry.taint for entry in value.slice_taints])
        passive = {taint_text(taint) for taint in taints if not acts(taint.effect)}
        if passive:
            yield f"taints that do nothing are left out: {', '.join(sorted(passive))}"


def window_notes(preview: Preview, source: PreviewSource, policy: Policy, now: datetime) -> Iterator[str]:
    """Yield unknown labels that profiles ask for, and the windows of the pods that our worker would evict."""
    if not any(taint.evictor is Evictor.OURS for _, taint in preview.taints):
        return
    unknown = [name for name in preview.namespaces if source.facts_of(name) is None]
    matches = [each.namespaces for each in policy.eviction if each.namespaces is not None]
    if unknown and any(each.labels or each.expressions for each in matches):
        yield f"labels of namespaces are unknown, so profiles match none of them: {first_names(unknown)}"
    if not has_windows(policy.eviction):
        return
    matcher, pods = ProfileMatcher(policy.eviction), dict[int, Counter[int]]()
    for row in preview.pods:
        if row.seconds is None:
            continue
        facts, pod = PodFacts(row.namespace, source.facts_of(row.namespace)), row.pod
        if pod is not None:
            classes, labels = classes_of(source.inventory, pod), dict(pod.labels)
            facts = facts._replace(classes=classes, known=True, priority=pod.priority, labels=labels)
        position = matcher.profile_of(facts)
        if position is not None:
            pods.setdefault(position, Counter())[row.seconds] += 1
    for position in sorted(pods):
        profile = policy.eviction[position]
        if profile.windows and not profile.skips:
            yield f"windows of profile {position}, for pods here: {windows_text(profile)}"
    yield from fit_texts(policy.eviction, Leaving(pods, now))


def patch_notes(found: PatchResult) -> Iterator[str]:
    """Yield what is easily overlooked: devices that a patch leaves out, and a patch that does nothing."""
    if found.inapplicable:
        yield f"the patch selects no device: {found.inapplicable}"
    yield from (f"left out: {fault}" for fault in found.faults[:_FAULTS_SHOWN])
    if len(found.faults) > _FAULTS_SHOWN:
        yield f"left out: {len(found.faults) - _FAULTS_SHOWN} more devices for such reasons"
    needed = found.made.needed
    if needed > RULES_MAX:
        yield f"its taints need {needed} DeviceTaintRules, more than {RULES_MAX}: none is made, so no pod is counted"


# --- the report ---------------------------------------------------------------------------------


class TextPage(NamedTuple):
    """The look of a report: tables have at most `limit` rows, 0 for all; lines fit the width, if one is given."""

    limit: int
    width: int | None
    color: bool

    def table(
        self, rows: Sequence[Sequence[str]], headers: Sequence[str], right: Sequence[int] = (), *, of: int
    ) -> Iterator[str]:
        """Yield an empty line, the table, and how many of the rows are left out; nothing if there are none."""
        if rows:
            yield ""
            yield from table(rows, headers=headers, right=right, width=self.width, color=self.color)
        if of > len(rows):
            yield f"and {of - len(rows)} more; --limit 0 shows all"


def as_text(report: PreviewReport, page: TextPage) -> str:
    """Return the whole report."""
    lines = [line(row, entry, color=page.color) for row in report.rows for entry in row.entries]
    for item in report.objects:
        if lines:
            lines.append("")
        lines += _preview_lines(item, report.source, page)
    return "\n".join(lines) + "\n" if lines else ""


def _preview_lines(item: PreviewedObject, source: PreviewSource, page: TextPage) -> Iterator[str]:
    row, answer = item.row, item.confirmation
    where = row.file if row.position is None else f"{row.file}:{row.position.line}:{row.position.column}"
    yield visible(f"{where}: {row.reference}: {_title(item)}")
    yield from (line(row, entry, color=page.color) for entry in row.entries)
    if item.preview.simulated:
        effect = item.value.taint.effect if isinstance(item.value, DeviceTaintRule) else "None"
        acting = "effect None" if effect == "None" else f'effect "{visible(effect)}" acts as None, which'
        yield f"  {acting} does nothing; if it were NoExecute:"
    summary = table(_summary(item, source), width=page.width and page.width - 2, color=page.color)
    yield from (f"  {each}" for each in summary)
    yield from (visible(f"  note: {note}") for note in item.notes)
    if item.patch is not None:
        yield from _changes(row.name, item.patch.changes, page)
    yield from _pods(item.preview, source, page)
    if answer is not None:
        yield ""
        yield visible(_ANSWERS[answer.answer].format(answer.message))
        if answer.text:
            yield "to confirm this impact, add this annotation:"
            yield visible(f'  {CONFIRM_IMPACT}: "{answer.text}"')


# --- titles -------------------------------------------------------------------------------------


def _title(item: PreviewedObject) -> str:
    value, taints = item.value, item.preview.taints
    if isinstance(value, DeviceTaintRule):
        where = "without selector" if value.selector is None else f"on {_selector_text(value.selector)}"
        return f"{taint_text(value.taint)} {where}"
    if isinstance(value, ResourceSlicePatch):
        parts = ((value.attributes, "attribute"), (value.capacity, "capacity"), (value.taints, "taint"))
        sets = [counted(len(entries), name) for entries, name in parts if entries]
        where = "every device" if value.filter is None else _selector_text(value.filter, patched=True)
        return f"{', '.join(sets) or 'nothing'} on {where}"
    if not taints:
        return f"pool {value.driver}/{value.pool}"
    texts = sorted({taint_text(taint.taint) for _, taint in taints})
    devices = len({names.device for names, _ in taints})
    return f"{', '.join(texts)} new on {counted(devices, 'device')} of pool {value.driver}/{value.pool}"


def _selector_text(selector: DeviceSelector, *, patched: bool = False) -> str:
    """Return its names; classes and expressions select only for patches."""
    given = {"driver": selector.driver, "pool": selector.pool, "device": selector.device}
    if patched:
        given = {"class": selector.device_class_name, **given}
    parts = [f"{name} {value}" for name, value in given.items() if value is not None]
    if patched and selector.selectors:
        parts.append(counted(len(selector.selectors), "selector"))
    return ", ".join(parts) or "every device"


def toleration_text(toleration: DeviceToleration) -> str:
    """Return `key=value:effect op=Exists for 300s`, as kubectl shows tolerations of pods."""
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    exists = "op=Exists" if toleration.operator == "Exists" else ""
    seconds = "" if toleration.toleration_seconds is None else f"for {toleration.toleration_seconds}s"
    return " ".join(filter(None, (f"{toleration.key}{value}{effect}", exists, seconds)))


# --- summary ------------------------------------------------------------------------------------


def _summary(item: PreviewedObject, source: PreviewSource) -> Iterator[tuple[str, str]]:
    preview, impact, patch = item.preview, item.preview.impact, item.patch
    claims_known = source.knows("ResourceClaim")
    pools = f"{counted(impact.pools, 'pool')} of {counted(impact.drivers, 'driver')}"
    uncounted = not source.knows("ResourceSlice") and not isinstance(item.value, ResourceSlice)
    devices = _NO_SLICES if uncounted else f"{impact.devices} in {pools}"
    yield "devices", f"{devices}; {impact.allocated} allocated" if claims_known else devices
    if preview.claims:
        yield "evicted", counted(preview.count(PodOutcome.EVICTED), "pod")
        waves, later = _first(list(preview.waves.items()), _WAVES_SHOWN)
        yield from ((f"  {_when(seconds)}", counted(pods, "pod")) for seconds, pods in waves)
        if later:
            yield f"  until {duration(later[-1][0])}", counted(sum(pods for _, pods in later), "pod")
        yield from _gang_lines(item.gangs)
        if preview.extended:
            pods = counted(preview.extended, "pod")
            yield (
                "extended",
                f"{pods} of these with extended resources: {on_extended_resources(source.inventory.servers)}",
            )
        if preview.companions:
            yield "along", f"{counted(preview.companions, 'pod')} of these only with the rest of their PodGroup"
        yield from (("places" if not at else "", each) for at, each in enumerate(places_figures(impact)))
        where = f"{counted(len(preview.namespaces), 'namespace')}: {first_names(preview.namespaces)}"
        yield "claims", f"{len(preview.claims)} in {where}"
    else:  # a patch selects among what is published
        none = _NO_SLICES if uncounted and patch is not None else "no pods"
        yield "evicted", none if claims_known else "unknown: the dump has no ResourceClaims"
    for name, outcome, text in _OTHERS:
        if number := preview.count(outcome):
            yield name, f"{counted(number, 'pod')}{text}"
    for group in preview.pod_groups:
        yield "PodGroup", _group_text(group, source)
    if patch is not None and patch.made.rules:
        yield "rules", counted(len(patch.made.rules), "DeviceTaintRule")
    if impact.siblings:
        yield "hardware", siblings_text(impact.siblings)
    yield from _evictor(item)


def _first(entries: Sequence[_T], most: int) -> tuple[Sequence[_T], Sequence[_T]]:
    """Return the entries that are shown, and the rest, which takes a line, too."""
    shown = len(entries) if len(entries) <= most else most - 1
    return entries[:shown], entries[shown:]


def _gang_lines(gangs: Sequence[BrokenGang]) -> Iterator[tuple[str, str]]:
    gangs, rest = _first(gangs, _GANGS_SHOWN)
    for each in gangs:
        yield "gang", f"{each.evicted} of {counted(each.pods, 'pod')} of {each.gang}"
    if rest:
        pods = counted(sum(each.pods for each in rest), "pod")
        yield "gangs", f"{sum(each.evicted for each in rest)} of {pods} of {len(rest)} more"


def _group_text(group: GroupRow, source: PreviewSource) -> str:
    fate = _WORDS.get(group.outcome) or f"evicted {_when(group.seconds or 0)}"
    if group.outcome is PodOutcome.LEFT_ALONE:
        fate += ", as its claims stay reserved until it is deleted"
    known = f"{counted(len(group.pods), 'pod')} known" if source.knows("Pod") else "its pods are unknown"
    return f"{group.namespace}/{group.name}: {fate}; {known}, not counted above"


def _evictor(item: PreviewedObject) -> Iterator[tuple[str, str]]:
    preview, rule = item.preview, item.value
    evictors = {taint.evictor for _, taint in preview.taints} if preview.pods or preview.pod_groups else set()
    if Evictor.IN_TREE in evictors:
        yield "evictor", "the in-tree controller"
    elif Evictor.OURS in evictors:
        asked = isinstance(rule, DeviceTaintRule) and rule.meta.annotations.get(EVICT) == "true"
        reason = f"of annotation {EVICT}" if asked else "the policy has inTreeEvictor: absent"
        yield "evictor", f"{PROGRAM} evict, because {reason}"


def _when(seconds: int) -> str:
    return f"after {duration(seconds)}" if seconds else "now"


# --- tables -------------------------------------------------------------------------------------


def _pods(preview: Preview, source: PreviewSource, page: TextPage) -> Iterator[str]:
    drivers = len({device.driver for row in preview.pods for device in row.devices}) > 1
    taints = len({taint.taint for _, taint in preview.taints}) > 1
    known, headers, rows = source.knows("Pod"), ["POD", "DEVICES", "WHEN", "WHY"], []
    for row in preview.pods[: page.limit or None]:
        why = _why(row)
        cells = [
            f"{row.namespace}/{row.name}",
            _devices(row.devices, drivers=drivers),
            _fate(row),
            f"{taint_text(row.cause.taint)}: {why}" if taints else why,
        ]
        if known:
            cells[1:1] = ["?", "?"] if row.pod is None else [str(root_owner(row.pod) or "-"), str(row.pod.priority)]
        rows.append(cells)
    if known:
        headers[1:1] = ["OWNER", "PRIORITY"]
    right = (headers.index("PRIORITY"),) if known else ()
    yield from page.table(rows, headers, right, of=len(preview.pods))


def _devices(devices: Sequence[DeviceId], *, drivers: bool) -> str:
    """Return `pool/device,device`, pool by pool; with drivers if they differ."""
    pools: dict[str, list[str]] = {}
    for each in devices[:_DEVICES_SHOWN]:
        pool = f"{each.driver}/{each.pool}" if drivers else each.pool
        pools.setdefault(pool, []).append(each.device)
    text = " ".join(f"{pool}/{','.join(names)}" for pool, names in pools.items())
    rest = len(devices) - _DEVICES_SHOWN
    return f"{text} +{rest}" if rest > 0 else text


def _fate(row: PodRow) -> str:
    if row.outcome is PodOutcome.LEAVING:
        return "terminating" if row.cause.reason is OutcomeReason.TERMINATING else "finished"
    return _WORDS.get(row.outcome) or _when(row.seconds or 0)


def _why(row: PodRow) -> str:
    reason, taint, deciding = row.cause
    toleration, over, hold, pod = "", "", "", row.pod
    if deciding is not None:
        toleration = toleration_text(deciding) or "a toleration of everything"
        elapsed = not row.seconds and (deciding.toleration_seconds or 0) > 0
        over = ", already elapsed" if elapsed and reason is OutcomeReason.TOLERATED_FOR_SECONDS else ""
    if pod is not None and pod.hold is not None and row.outcome is PodOutcome.EVICTED:
        hold = f"; on hold: {pod.hold}" if pod.hold else "; on hold"
    group = "" if pod is None else pod.pod_group
    return f"{_REASONS[reason].format(toleration=toleration, effect=taint.effect, group=group)}{over}{hold}"


def _changes(patch: str, changes: Sequence[PatchChange], page: TextPage) -> Iterator[str]:
    """Yield a table of changes; `patch` is the one that was asked about."""
    drivers = len({device.driver for device, *_ in changes}) > 1
    rows = [
        [
            str(device) if drivers else f"{device.pool}/{device.device}",
            f"{kind} {name}" + (f":{effect}" if effect else ""),
            _state_text(before),
            _state_text(after) + ("" if decides == patch else f" (by patch {decides})"),
        ]
        for device, (kind, name, effect), before, after, decides in changes[: page.limit or None]
    ]
    yield from page.table(rows, ("DEVICE", "WHAT", "BEFORE", "AFTER"), of=len(changes))


def _state_text(state: JSON | tuple[DeviceTaint, ...]) -> str:
    if state is None:
        return "-"
    if isinstance(state, tuple):
        return ", ".join(taint.value or "set" for taint in state)
    values = [value for value in state.values() if not isinstance(value, dict)] if isinstance(state, dict) else [state]
    return ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
