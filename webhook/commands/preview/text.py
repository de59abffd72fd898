"""Previews in words: notes on what is unknown or easily overlooked, and the whole report for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from msgspec import UNSET

from webhook.admission.impact_text import duration, on_extended_resources, places_figures, siblings_text
from webhook.api.field import JSON
from webhook.api.messages import counted
from webhook.api.names import PROGRAM
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, EVICT, DeviceSelector, DeviceTaintRule
from webhook.api.servers import ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceTaint
from webhook.commands.preview.report import (
    DryRunAnswer,
    PreviewedObject,
    PreviewReport,
    PreviewSource,
    ShownChange,
    ShownGang,
    ShownPod,
    ShownPodGroup,
    ShownTaint,
    ShownToleration,
    not_judged,
)
from webhook.eviction.pod_plan import StepReason
from webhook.eviction.profiles import classes_of
from webhook.files.report import Row, line, table, visible
from webhook.inventory.hardware import unused_claims
from webhook.inventory.pools import Evictor, acts
from webhook.inventory.preview import OutcomeReason, PodOutcome, Preview, outdated
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceNames, can_judge
from webhook.patches.covering import RULES_MAX
from webhook.patches.patching import PatchFault
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


def taint_text(taint: DeviceTaint | ShownTaint) -> str:
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
    yield from (f"the dump has no {text}" for kind, text in _NEEDED.items() if not source.knows(kind))
    missing = [f"{row.namespace}/{row.name}" for row in preview.pods if row.pod is None]
    if source.pods_known and missing:
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


def window_notes(preview: Preview, inventory: Inventory, policy: Policy, now: datetime) -> Iterator[str]:
    """Yield the windows of the pods that our worker would evict, and which of them the pods wait for."""
    taints = [taint for _, taint in preview.taints]
    if not any(taint.evictor is Evictor.OURS for taint in taints) or not has_windows(policy.eviction):
        return
    matcher, pods = ProfileMatcher(policy.eviction), dict[int, Counter[int]]()
    for row in preview.pods:
        if row.seconds is None:
            continue
        facts, pod = PodFacts(row.namespace), row.pod  # the labels of namespaces are not read here
        if pod is not None:
            classes, labels = classes_of(inventory, pod), dict(pod.labels)
            facts = PodFacts(row.namespace, classes=classes, known=True, priority=pod.priority, labels=labels)
        position = matcher.profile_of(facts)
        if position is not None:
            pods.setdefault(position, Counter())[row.seconds] += 1
    for position in sorted(pods):
        profile = policy.eviction[position]
        if profile.windows and not profile.skips:
            yield f"windows of profile {position}, for pods here: {windows_text(profile)}"
    yield from fit_texts(policy.eviction, Leaving(pods, now))


def patch_notes(inapplicable: str, faults: Sequence[PatchFault], needed: int) -> Iterator[str]:
    """Yield what is easily overlooked: devices that a patch leaves out, and a patch that does nothing."""
    if inapplicable:
        yield f"the patch selects no device: {inapplicable}"
    yield from (f"left out: {fault}" for fault in faults[:_FAULTS_SHOWN])
    if len(faults) > _FAULTS_SHOWN:
        yield f"left out: {len(faults) - _FAULTS_SHOWN} more devices for such reasons"
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


def as_text(
    report: PreviewReport, rows: Sequence[Row], objects: Sequence[PreviewedObject], servers: ServerFacts, page: TextPage
) -> str:
    """Return the whole report; `rows` are files and policies with something to report."""
    lines = [line(row, entry, color=page.color) for row in rows for entry in row.entries]
    for item in objects:
        if lines:
            lines.append("")
        lines += _preview_lines(item, report, servers, page)
    return "\n".join(lines) + "\n" if lines else ""


def _preview_lines(item: PreviewedObject, report: PreviewReport, servers: ServerFacts, page: TextPage) -> Iterator[str]:
    row, shown = item.row, item.shown
    where = row.file if row.position is None else f"{row.file}:{row.position.line}:{row.position.column}"
    yield visible(f"{where}: {row.reference}: {_title(item)}")
    yield from (line(row, entry, color=page.color) for entry in row.entries)
    if shown.simulated:
        effect = item.value.taint.effect if isinstance(item.value, DeviceTaintRule) else "None"
        acting = "effect None" if effect == "None" else f'effect "{visible(effect)}" acts as None, which'
        yield f"  {acting} does nothing; if it were NoExecute:"
    summary = table(_summary(item, report, servers), width=page.width and page.width - 2, color=page.color)
    yield from (f"  {each}" for each in summary)
    yield from (visible(f"  note: {note}") for note in shown.notes)
    if shown.patch is not UNSET:
        yield from _changes(row.name, shown.patch.changes, page)
    yield from _pods(item, report, page)
    if shown.confirmation is not None:
        yield ""
        yield visible(_ANSWERS[shown.confirmation.answer].format(shown.confirmation.message))
        if shown.confirmation.text:
            yield "to confirm this impact, add this annotation:"
            yield visible(f'  {CONFIRM_IMPACT}: "{shown.confirmation.text}"')


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
    texts, devices = (
        sorted({taint_text(taint.taint) for _, taint in taints}),
        len({names.device for names, _ in taints}),
    )
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


def toleration_text(toleration: ShownToleration) -> str:
    """Return `key=value:effect op=Exists for 300s`, as kubectl shows tolerations of pods."""
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    exists = "op=Exists" if toleration.operator == "Exists" else ""
    seconds = "" if toleration.toleration_seconds is None else f"for {toleration.toleration_seconds}s"
    return " ".join(filter(None, (f"{toleration.key}{value}{effect}", exists, seconds)))


# --- summary ------------------------------------------------------------------------------------


def _summary(item: PreviewedObject, report: PreviewReport, servers: ServerFacts) -> Iterator[tuple[str, str]]:
    shown, figures = item.shown, item.shown.summary
    pools = f"{counted(figures.pools, 'pool')} of {counted(figures.drivers, 'driver')}"
    uncounted = not report.slices_known and not isinstance(item.value, ResourceSlice)
    devices = _NO_SLICES if uncounted else f"{figures.devices} in {pools}"
    yield "devices", f"{devices}; {figures.allocated} allocated" if report.claims_known else devices
    if figures.claims:
        yield "evicted", counted(figures.evicted, "pod")
        waves, later = _first(figures.waves, _WAVES_SHOWN)
        yield from ((f"  {_when(each['seconds'])}", counted(each["pods"], "pod")) for each in waves)
        if later:
            yield f"  until {duration(later[-1]['seconds'])}", counted(sum(each["pods"] for each in later), "pod")
        yield from _gang_lines(shown.gangs)
        if figures.extended:
            pods = counted(figures.extended, "pod")
            yield "extended", f"{pods} of these with extended resources: {on_extended_resources(servers)}"
        if figures.companions:
            yield "along", f"{counted(figures.companions, 'pod')} of these only with the rest of their PodGroup"
        yield from (("places" if not at else "", each) for at, each in enumerate(places_figures(item.preview.impact)))
        where = f"{counted(len(figures.namespaces), 'namespace')}: {first_names(figures.namespaces)}"
        yield "claims", f"{figures.claims} in {where}"
    else:  # a patch selects among what is published
        none = _NO_SLICES if uncounted and shown.patch is not UNSET else "no pods"
        yield "evicted", none if report.claims_known else "unknown: the dump has no ResourceClaims"
    for name, number, text in (
        ("left alone", figures.left_alone, " by our worker"),
        ("not yet", figures.no_node, " on no node; evicted once it is on one"),
        ("tolerate", figures.tolerating, ""),
        ("stay", figures.kept, "; the taint only blocks new allocations"),
        ("leaving", figures.leaving, ", terminating or finished, and not counted"),
    ):
        if number:
            yield name, f"{counted(number, 'pod')}{text}"
    for group in shown.pod_groups:
        yield "PodGroup", _group_text(group, report)
    if shown.patch is not UNSET and shown.patch.rules:
        yield "rules", counted(len(shown.patch.rules), "DeviceTaintRule")
    if shown.siblings:
        yield "hardware", siblings_text(item.preview.impact.siblings)
    yield from _evictor(item)


def _first(entries: Sequence[_T], most: int) -> tuple[Sequence[_T], Sequence[_T]]:
    """Return the entries that are shown, and the rest, which takes a line, too."""
    shown = len(entries) if len(entries) <= most else most - 1
    return entries[:shown], entries[shown:]


def _gang_lines(gangs: Sequence[ShownGang]) -> Iterator[tuple[str, str]]:
    gangs, rest = _first(gangs, _GANGS_SHOWN)
    for each in gangs:
        yield "gang", f"{each.evicted} of {counted(each.pods, 'pod')} of {each.kind} {each.namespace}/{each.name}"
    if rest:
        pods = counted(sum(each.pods for each in rest), "pod")
        yield "gangs", f"{sum(each.evicted for each in rest)} of {pods} of {len(rest)} more"


def _group_text(group: ShownPodGroup, report: PreviewReport) -> str:
    fate = _WORDS.get(group.outcome) or f"evicted {_when(group.due_seconds or 0)}"
    if group.outcome is PodOutcome.LEFT_ALONE:
        fate += ", as its claims stay reserved until it is deleted"
    known = f"{counted(len(group.pods), 'pod')} known" if report.pods_known else "its pods are unknown"
    return f"{group.namespace}/{group.name}: {fate}; {known}, not counted above"


def _evictor(item: PreviewedObject) -> Iterator[tuple[str, str]]:
    shown, rule = item.shown, item.value
    evictors = {taint.evictor for _, taint in item.preview.taints} if shown.pods or shown.pod_groups else set()
    if Evictor.IN_TREE in evictors:
        yield "evictor", "the in-tree controller"
    elif Evictor.OURS in evictors:
        asked = isinstance(rule, DeviceTaintRule) and rule.meta.annotations.get(EVICT) == "true"
        reason = f"of annotation {EVICT}" if asked else "the policy has inTreeEvictor: absent"
        yield "evictor", f"{PROGRAM} evict, because {reason}"


def _when(seconds: int) -> str:
    return f"after {duration(seconds)}" if seconds else "now"


# --- tables -------------------------------------------------------------------------------------


def _pods(item: PreviewedObject, report: PreviewReport, page: TextPage) -> Iterator[str]:
    pods = item.shown.pods
    drivers = len({device["driver"] for pod in pods for device in pod.devices}) > 1
    taints = len({taint.taint for _, taint in item.preview.taints}) > 1
    headers, rows = ["POD", "DEVICES", "WHEN", "WHY"], []
    for pod, known in zip(pods[: page.limit or None], item.preview.pods, strict=False):
        group = "" if known.pod is None else known.pod.pod_group
        why = _why(pod, group)
        cells = [
            f"{pod.namespace}/{pod.name}",
            _devices(pod.devices, drivers=drivers),
            _fate(pod),
            f"{taint_text(pod.taint)}: {why}" if taints else why,
        ]
        if report.pods_known:
            owner = f"{pod.root_owner['kind']}/{pod.root_owner['name']}" if pod.root_owner else "-"
            cells[1:1] = [owner, str(pod.priority)] if pod.known else ["?", "?"]
        rows.append(cells)
    if report.pods_known:
        headers[1:1] = ["OWNER", "PRIORITY"]
    yield from page.table(rows, headers, (headers.index("PRIORITY"),) if report.pods_known else (), of=len(pods))


def _devices(devices: Sequence[dict[str, str]], *, drivers: bool) -> str:
    """Return `pool/device,device`, pool by pool; with drivers if they differ."""
    pools: dict[str, list[str]] = {}
    for each in devices[:_DEVICES_SHOWN]:
        pool = f"{each['driver']}/{each['pool']}" if drivers else each["pool"]
        pools.setdefault(pool, []).append(each["device"])
    text = " ".join(f"{pool}/{','.join(names)}" for pool, names in pools.items())
    rest = len(devices) - _DEVICES_SHOWN
    return f"{text} +{rest}" if rest > 0 else text


def _fate(pod: ShownPod) -> str:
    if pod.outcome is PodOutcome.LEAVING:
        return "terminating" if pod.reason is OutcomeReason.TERMINATING else "finished"
    return _WORDS.get(pod.outcome) or _when(pod.due_seconds or 0)


def _why(pod: ShownPod, group: str) -> str:
    """Return the reason in words; `group` is the PodGroup of the pod."""
    toleration, elapsed, hold = "", False, ""
    if pod.toleration is not None:
        toleration = toleration_text(pod.toleration) or "a toleration of everything"
        elapsed = not pod.due_seconds and (pod.toleration.toleration_seconds or 0) > 0
    if pod.hold is not None and pod.outcome is PodOutcome.EVICTED:
        hold = f"; on hold: {pod.hold}" if pod.hold else "; on hold"
    text = _REASONS[pod.reason].format(toleration=toleration, effect=pod.taint.effect, group=group)
    over = ", already elapsed" if elapsed and pod.reason is OutcomeReason.TOLERATED_FOR_SECONDS else ""
    return f"{text}{over}{hold}"


def _changes(patch: str, changes: Sequence[ShownChange], page: TextPage) -> Iterator[str]:
    """Yield a table of changes; `patch` is the one that was asked about."""
    drivers = len({each.driver for each in changes}) > 1
    rows = [
        [
            f"{each.driver}/{each.pool}/{each.device}" if drivers else f"{each.pool}/{each.device}",
            f"{each.kind} {each.name}" + (f":{each.effect}" if each.effect else ""),
            _state_text(each.kind, each.before),
            _state_text(each.kind, each.after) + ("" if each.patch == patch else f" (by patch {each.patch})"),
        ]
        for each in changes[: page.limit or None]
    ]
    yield from page.table(rows, ("DEVICE", "WHAT", "BEFORE", "AFTER"), of=len(changes))


def _state_text(kind: str, state: JSON) -> str:
    if state is None:
        return "-"
    if kind == "taint":
        return ", ".join(taint["value"] or "set" for taint in state)
    values = [value for value in state.values() if not isinstance(value, dict)] if isinstance(state, dict) else [state]
    return ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
