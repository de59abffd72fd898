"""What `preview` found, as JSON and YAML have it, and what it works with.

The structure is stable: while `version` is 1, fields may be added, but none is removed or changes its meaning.
docs/kubectl.md explains it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType, structs

from webhook.api.field import JSON
from webhook.api.meta import format_time, time_text
from webhook.api.patches import ResourceSlicePatch
from webhook.api.pods import Owner
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.slices import DeviceClassSelectors, ResourceSlice
from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.files.report import Row
from webhook.inventory.gangs import root_owner
from webhook.inventory.impact import Taint
from webhook.inventory.preview import GroupRow, OutcomeReason, PodOutcome, PodRow, Preview
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceNames
from webhook.patches.expansion import PatchExpansion
from webhook.patches.patch_preview import PatchChange
from webhook.patches.patching import PatchFault

VERSION: Final = 1


class PreviewSource(NamedTuple):
    """Where an inventory comes from. `kinds` counts the objects of a dump, by kind; None for a cluster."""

    inventory: Inventory
    pods_known: bool
    kinds: Mapping[str, int] | None = None
    rules_served: bool = True
    notes: tuple[str, ...] = ()
    patches: Mapping[str, ResourceSlicePatch] = {}
    classes: Mapping[str, DeviceClassSelectors] = {}
    autoscaler: bool = False
    """Whether the cluster has one."""
    nodes: Mapping[str, Mapping[str, str]] | None = None
    """Labels by name; None if nodes are not known."""

    def knows(self, kind: str) -> bool:
        """Tell whether there are objects of a kind: a dump without any says nothing about what they tell."""
        return self.kinds is None or bool(self.kinds.get(kind))


class _Shown(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the report: its fields are those of JSON."""


class DryRunAnswer(StrEnum):
    """The cluster's answer to a dry run of a rule."""

    GRANTED = "granted"
    CONFIRM = "needsConfirmation"
    SOFTENED = "softened"
    """Accepted as NoSchedule with `/evict`. The text confirms the rule as it was sent."""
    REFUSED = "refused"
    FAILED = "failed"
    """No answer came."""
    NOT_ASKED = "notAsked"


class DryRunResult(_Shown, frozen=True):
    """An answer, the text that confirms the rule, and a message, which says why where there was no dry run."""

    answer: DryRunAnswer
    text: str | None = None
    message: str | None = None


class ShownTaint(_Shown, frozen=True):
    """A taint that decides."""

    key: str
    value: str
    effect: str


class TaintOnDevices(ShownTaint, frozen=True):
    """A taint as written, who evicts for it, and where it is; None stands for all."""

    time_added: str | None
    evictor: str | None
    driver: str | None
    pool: str | None
    device: str | None


class ShownToleration(_Shown, frozen=True):
    """A toleration that decides."""

    key: str
    operator: str
    value: str
    effect: str
    toleration_seconds: int | None


class ShownFate(_Shown, frozen=True):
    """What happens to a pod or PodGroup, and why."""

    namespace: str
    name: str
    uid: str
    outcome: PodOutcome
    due_seconds: int | None
    due_at: str | None
    tolerates: bool
    reason: OutcomeReason
    taint: ShownTaint
    toleration: ShownToleration | None
    devices: list[dict[str, str]]
    claims: list[str]


class ShownPod(ShownFate, frozen=True):
    """A pod; what is its own is None if it is not known."""

    known: bool
    owner: Owner | None
    root_owner: dict[str, str] | None
    priority: int | None
    node: str | None
    hold: str | None


class ShownPodGroup(ShownFate, frozen=True):
    """A PodGroup that reserved a claim, and the names of its pods."""

    pods: list[str]


class ShownGang(_Shown, frozen=True):
    """A gang that loses pods, and how many of how many."""

    kind: str
    namespace: str
    name: str
    evicted: int
    pods: int


class ShownPlaces(_Shown, frozen=True):
    """Evicted pods that are alike: how many find other devices and how many none, and who is `pending` then.

    `why` says why it is not known for the rest; `never`: those that find none would find none in an empty cluster.
    """

    needs: str
    free: int | None
    pods: int
    found: int
    none: int
    unknown: int
    why: str
    never: bool
    pending: list[str]


class ShownSibling(_Shown, frozen=True):
    """A part of the same hardware that stays in service, and its users, by `namespace/name`."""

    driver: str
    pool: str
    device: str
    claims: list[str]
    pods: list[str]
    pod_groups: list[str]


class ShownChange(_Shown, frozen=True):
    """An attribute, capacity or taint of a device before and after patches, and the patch that decides."""

    driver: str
    pool: str
    device: str
    kind: str
    name: str
    effect: str | None
    before: JSON
    after: JSON
    patch: str


class PatchRule(_Shown, frozen=True):
    """A DeviceTaintRule that a patch becomes."""

    name: str
    driver: str | None
    pool: str | None
    device: str | None
    key: str
    value: str
    effect: str
    annotations: dict[str, str]


class PatchResult(_Shown, frozen=True):
    """What becomes of a patch, beside its users. `inapplicable` says why it selects nothing, where it cannot."""

    inapplicable: str | None
    changes: list[ShownChange]
    rules: list[PatchRule]
    rules_needed: int
    faults: list[dict[str, str]]


class PreviewSummary(_Shown, frozen=True):
    """The figures of one preview."""

    devices: int
    pools: int
    drivers: int
    allocated: int
    claims: int
    namespaces: list[str]
    evicted: int
    extended: int
    companions: int
    left_alone: int
    waves: list[dict[str, int]]
    tolerating: int
    unseen: int
    """Always 0: no field is removed from version 1."""
    no_node: int
    kept: int
    leaving: int
    pod_groups: int


class ShownPreview(_Shown, frozen=True, kw_only=True):
    """One rule, slice or patch. `confirmation` is None for slices and patches, which need none."""

    file: str
    document: int
    line: int | None
    api_version: str
    kind: str
    name: str
    selector: dict[str, Any] | None
    taints: list[TaintOnDevices]
    simulated: bool
    summary: PreviewSummary
    pods: list[ShownPod]
    pod_groups: list[ShownPodGroup]
    gangs: list[ShownGang] = []
    places: list[ShownPlaces]
    siblings: list[ShownSibling]
    incomplete_pools: list[dict[str, str]]
    notes: list[str]
    findings: list[dict[str, Any]]
    confirmation: DryRunResult | None = None
    patch: PatchResult | UnsetType = UNSET


class PreviewReport(_Shown, frozen=True):
    """The results of a run. `findings` are those about files and policies."""

    version: int
    source: str
    server: str | None
    time: str
    pods_known: bool
    claims_known: bool
    slices_known: bool
    previews: list[ShownPreview]
    findings: list[dict[str, Any]]


class PreviewedObject(NamedTuple):
    """A rule, slice or patch as it would be stored. The row has the errors for which an API server would refuse it."""

    row: Row
    value: DeviceTaintRule | ResourceSlice | ResourceSlicePatch
    preview: Preview
    shown: ShownPreview


# --- parts of it --------------------------------------------------------------------------------


def shown_preview(
    row: Row, value: DeviceTaintRule | ResourceSlice | ResourceSlicePatch, preview: Preview, now: datetime, **said: Any
) -> ShownPreview:
    """Return a preview as it is shown; `said` are its notes, and those of the last three fields that it has."""
    return ShownPreview(
        file=row.file,
        document=row.document,
        line=row.position.line if row.position else None,
        api_version=row.api_version,
        kind=row.kind,
        name=row.name,
        selector=selector_values(value.selector) if isinstance(value, DeviceTaintRule) else None,
        taints=[_taint_on_devices(names, taint) for names, taint in preview.taints],
        simulated=preview.simulated,
        summary=_summary_of(preview),
        pods=[_pod(each, now) for each in preview.pods],
        pod_groups=[
            ShownPodGroup(**_fate(each, now), pods=[key.rpartition("/")[2] for key in each.pods])
            for each in preview.pod_groups
        ],
        places=[
            ShownPlaces(
                each.shape.needs,
                each.free,
                len(each.pods),
                each.found,
                each.none,
                each.unknown,
                each.why,
                each.never,
                [f"{pod.namespace}/{pod.name}" for pod in each.pending],
            )
            for each in preview.impact.places or ()
        ],
        siblings=[ShownSibling(*each[:3], *map(list, each[3:])) for each in preview.impact.siblings.devices],
        incomplete_pools=[{"driver": driver, "pool": pool} for driver, pool in preview.impact.incomplete_pools],
        findings=row.findings,
        **said,
    )


def selector_values(selector: DeviceSelector | None) -> dict[str, Any] | None:
    """Return the names of a selector, which are judged, and the fields that are not; None if there is none."""
    if selector is None:
        return None
    names = {"driver": selector.driver, "pool": selector.pool, "device": selector.device}
    return {**names, "notJudged": sorted(not_judged(selector))}


def toleration_values(toleration: DeviceToleration) -> dict[str, Any]:
    """Return its fields by their names in JSON."""
    values: dict[str, Any] = msgspec.to_builtins(ShownToleration(*structs.astuple(toleration)))
    return values


def not_judged(selector: DeviceSelector) -> list[str]:
    """Return the fields of a selector that cannot be evaluated here."""
    retired = [("deviceClassName", selector.device_class_name), ("selectors", selector.selectors)]
    return [*[name for name, given in retired if given], *[name for name, _ in selector.unknown]]


def _taint_on_devices(names: DeviceNames, taint: Taint) -> TaintOnDevices:
    written, evictor = taint.scheduling or taint.taint, taint.evictor
    fields = (written.key, written.value, written.effect, time_text(taint.taint.time_added))
    return TaintOnDevices(*fields, None if evictor is None else evictor.value, *names)


def _summary_of(preview: Preview) -> PreviewSummary:
    impact, count = preview.impact, preview.count
    return PreviewSummary(
        impact.devices,
        impact.pools,
        impact.drivers,
        impact.allocated,
        claims=len(preview.claims),
        namespaces=preview.namespaces,
        evicted=count(PodOutcome.EVICTED),
        extended=preview.extended,
        companions=preview.companions,
        left_alone=count(PodOutcome.LEFT_ALONE),
        waves=[{"seconds": seconds, "pods": pods} for seconds, pods in preview.waves.items()],
        tolerating=count(PodOutcome.TOLERATES),
        unseen=0,
        no_node=count(PodOutcome.NO_NODE),
        kept=count(PodOutcome.KEPT),
        leaving=count(PodOutcome.LEAVING),
        pod_groups=sum(row.outcome is PodOutcome.EVICTED for row in preview.pod_groups),
    )


def _pod(row: PodRow, now: datetime) -> ShownPod:
    pod = row.pod
    root = None if pod is None else root_owner(pod)
    return ShownPod(
        **_fate(row, now),
        known=pod is not None,
        owner=None if pod is None else pod.owner,
        root_owner=None if root is None else {"kind": root.kind, "name": root.name},
        priority=None if pod is None else pod.priority,
        node=pod.node_name or None if pod is not None else None,
        hold=None if pod is None else pod.hold,
    )


def _fate(row: PodRow | GroupRow, now: datetime) -> dict[str, Any]:
    """Return the fields that pods and PodGroups have in common."""
    reason, taint, toleration = row.cause
    try:
        due = None if row.seconds is None else format_time(now + timedelta(seconds=row.seconds))
    except OverflowError:  # beyond the last year of the calendar
        due = None
    fate = ShownFate(
        row.namespace,
        row.name,
        row.uid,
        row.outcome,
        row.seconds,
        due,
        row.outcome is PodOutcome.TOLERATES,
        reason,
        ShownTaint(taint.key, taint.value, taint.effect),
        None if toleration is None else ShownToleration(*structs.astuple(toleration)),
        [each._asdict() for each in row.devices],
        list(row.claims),
    )
    return structs.asdict(fate)


def patch_result(
    changes: Iterable[PatchChange], made: PatchExpansion, faults: Iterable[PatchFault], inapplicable: str
) -> PatchResult:
    """Return what becomes of a patch as it is shown."""
    shown = []
    for device, (kind, name, effect), before, after, patch in changes:
        shown.append(ShownChange(*device, kind, name, effect or None, _state(before), _state(after), patch))
    rules = []
    for rule in made.rules:
        names, taint = rule.selector, rule.taint
        where, what = (names.driver, names.pool, names.device), (taint.key, taint.value, taint.effect)
        rules.append(PatchRule(rule.name, *where, *what, dict(rule.annotations)))
    left_out = [{**each.device._asdict(), "selector": each.where, "message": each.detail} for each in faults]
    return PatchResult(inapplicable or None, shown, rules, made.needed, left_out)


def _state(state: JSON | tuple[DeviceTaint, ...]) -> JSON:
    if isinstance(state, tuple):
        return [{"value": taint.value, "timeAdded": time_text(taint.time_added)} for taint in state]
    return state
