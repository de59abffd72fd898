"""What `preview` works with and has found, and how JSON and YAML have it.

The structure is stable: while `version` is 1, fields may be added, but none is removed or changes its meaning.
docs/kubectl.md explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from webhook.api.field import JSON
from webhook.api.meta import format_time, time_text
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.files.manifests import Stock
from webhook.files.read import Manifest
from webhook.files.report import Row
from webhook.inventory.gangs import BrokenGang, root_owner
from webhook.inventory.impact import Taint
from webhook.inventory.preview import PodOutcome, PodRow, Preview, UserRow
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceNames
from webhook.patches.expansion import PatchExpansion
from webhook.patches.patch_preview import PatchChange
from webhook.patches.patching import PatchFault
from webhook.policy.match import NamespaceFacts


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


class DryRunResult(NamedTuple):
    """An answer, the text that confirms the rule, and a message, which says why where there was no dry run."""

    answer: DryRunAnswer
    text: str | None = None
    message: str | None = None


class PreviewSource(NamedTuple):
    """A dump or a cluster, as it was read once."""

    stock: Stock
    policy: Manifest | None
    """None if there is none, it may not be read or is not asked for."""
    missing: frozenset[str] = frozenset()
    """Kinds that could not be read of a cluster."""
    server: str | None = None
    """None for a dump."""
    rules_served: bool = True
    notes: tuple[str, ...] = ()
    autoscaler: bool = False
    """Whether the cluster has one."""
    confirmations: tuple[DryRunResult, ...] = ()
    """The cluster's, for each of the rules that were given."""

    @property
    def inventory(self) -> Inventory:
        """Slices, rules, claims and pods."""
        return self.stock.inventory

    def facts_of(self, namespace: str) -> NamespaceFacts | None:
        """Return the name and labels of a namespace, if it is known."""
        labels = self.stock.namespaces.get(namespace)
        return None if labels is None else NamespaceFacts(namespace, labels)

    def knows(self, kind: str) -> bool:
        """Tell whether objects of a kind could be read: a dump without any says nothing about what they tell."""
        return kind not in self.missing if self.server is not None else bool(self.stock.kinds[kind])


class PatchResult(NamedTuple):
    """What becomes of a patch, beside its users. `inapplicable` says why it selects nothing, where it cannot."""

    changes: Sequence[PatchChange]
    made: PatchExpansion
    faults: Sequence[PatchFault]
    inapplicable: str


class PreviewedObject(NamedTuple):
    """A rule, slice or patch as it would be stored. The row has the errors for which an API server would refuse it."""

    row: Row
    value: DeviceTaintRule | ResourceSlice | ResourceSlicePatch
    preview: Preview
    notes: Sequence[str]
    gangs: Sequence[BrokenGang] = ()
    confirmation: DryRunResult | None = None
    """None for slices and patches, which need none."""
    patch: PatchResult | None = None


class PreviewReport(NamedTuple):
    """The results of a run. `rows` are files and policies with something to report."""

    source: PreviewSource
    now: datetime
    objects: Sequence[PreviewedObject]
    rows: Sequence[Row]


# --- for programs -------------------------------------------------------------------------------


def as_values(report: PreviewReport) -> dict[str, Any]:
    """Return the structure behind JSON and YAML."""
    source = report.source
    return {
        "version": 1,
        "source": "dump" if source.server is None else "cluster",
        "server": source.server,
        "time": format_time(report.now),
        "podsKnown": source.knows("Pod"),
        "claimsKnown": source.knows("ResourceClaim"),
        "slicesKnown": source.knows("ResourceSlice"),
        "previews": [_preview_values(item, report.now) for item in report.objects],
        "findings": [finding for row in report.rows for finding in row.findings],
    }


def _preview_values(item: PreviewedObject, now: datetime) -> dict[str, Any]:
    row, value, preview, answer = item.row, item.value, item.preview, item.confirmation
    values = {
        "file": row.file,
        "document": row.document,
        "line": row.position.line if row.position else None,
        "apiVersion": row.api_version,
        "kind": row.kind,
        "name": row.name,
        "selector": selector_values(value.selector) if isinstance(value, DeviceTaintRule) else None,
        "taints": [_placed_taint(names, taint) for names, taint in preview.taints],
        "simulated": preview.simulated,
        "summary": _summary(preview),
        "pods": [_pod(each, now) for each in preview.pods],
        "podGroups": [
            {**_fate(each, now), "pods": [key.rpartition("/")[2] for key in each.pods]} for each in preview.pod_groups
        ],
        "gangs": [
            {"kind": gang.kind, "namespace": gang.namespace, "name": gang.name, "evicted": evicted, "pods": pods}
            for gang, evicted, pods in item.gangs
        ],
        "places": [
            {
                "needs": each.shape.needs,
                "free": each.free,
                "pods": len(each.pods),
                "found": each.found,
                "none": each.none,
                "unknown": each.unknown,
                "why": each.why,
                "never": each.never,
                "pending": [f"{pod.namespace}/{pod.name}" for pod in each.pending],
            }
            for each in preview.impact.places or ()
        ],
        "siblings": [
            {
                "driver": each.driver,
                "pool": each.pool,
                "device": each.device,
                "claims": list(each.claims),
                "pods": list(each.pods),
                "podGroups": list(each.pod_groups),
            }
            for each in preview.impact.siblings.devices
        ],
        "incompletePools": [{"driver": driver, "pool": pool} for driver, pool in preview.impact.incomplete_pools],
        "notes": list(item.notes),
        "findings": row.findings,
        "confirmation": None if answer is None else {**answer._asdict(), "answer": answer.answer.value},
    }
    return values if item.patch is None else {**values, "patch": _patch(item.patch)}


def selector_values(selector: DeviceSelector | None) -> dict[str, Any] | None:
    """Return the names of a selector, which are judged, and the fields that are not; None if there is none."""
    if selector is None:
        return None
    return {**_names(selector), "notJudged": sorted(not_judged(selector))}


def not_judged(selector: DeviceSelector) -> list[str]:
    """Return the fields of a selector that cannot be evaluated here."""
    retired = [("deviceClassName", selector.device_class_name), ("selectors", selector.selectors)]
    return [*[name for name, given in retired if given], *[name for name, _ in selector.unknown]]


def toleration_values(toleration: DeviceToleration) -> dict[str, Any]:
    """Return its fields by their names in JSON."""
    return {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.toleration_seconds,
    }


def _taint(taint: DeviceTaint) -> dict[str, Any]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _names(names: DeviceNames | DeviceSelector) -> dict[str, Any]:
    """Return which devices are meant; None stands for all."""
    return {"driver": names.driver, "pool": names.pool, "device": names.device}


def _placed_taint(names: DeviceNames, taint: Taint) -> dict[str, Any]:
    """Return a taint as written, who evicts for it, and where it is."""
    return {
        **_taint(taint.scheduling or taint.taint),
        "timeAdded": time_text(taint.taint.time_added),
        "evictor": None if taint.evictor is None else taint.evictor.value,
        **_names(names),
    }


def _summary(preview: Preview) -> dict[str, Any]:
    impact, count = preview.impact, preview.count
    return {
        "devices": impact.devices,
        "pools": impact.pools,
        "drivers": impact.drivers,
        "allocated": impact.allocated,
        "claims": len(preview.claims),
        "namespaces": preview.namespaces,
        "evicted": count(PodOutcome.EVICTED),
        "extended": preview.extended,
        "companions": preview.companions,
        "leftAlone": count(PodOutcome.LEFT_ALONE),
        "waves": [{"seconds": seconds, "pods": pods} for seconds, pods in preview.waves.items()],
        "tolerating": count(PodOutcome.TOLERATES),
        "unseen": 0,  # no field is removed from version 1
        "noNode": count(PodOutcome.NO_NODE),
        "kept": count(PodOutcome.KEPT),
        "leaving": count(PodOutcome.LEAVING),
        "podGroups": sum(row.outcome is PodOutcome.EVICTED for row in preview.pod_groups),
    }


def _pod(row: PodRow, now: datetime) -> dict[str, Any]:
    """Return a pod; what is its own is None if it is not known."""
    pod = row.pod
    owner, root = (None, None) if pod is None else (pod.owner, root_owner(pod))
    return {
        **_fate(row, now),
        "known": pod is not None,
        "owner": None if owner is None else {"kind": owner.kind, "name": owner.name, "uid": owner.uid},
        "rootOwner": None if root is None else {"kind": root.kind, "name": root.name},
        "priority": None if pod is None else pod.priority,
        "node": None if pod is None else pod.node_name or None,
        "hold": None if pod is None else pod.hold,
    }


def _fate(row: UserRow, now: datetime) -> dict[str, Any]:
    """Return what happens to a pod or PodGroup, and why."""
    reason, taint, toleration = row.cause
    try:
        due = None if row.seconds is None else format_time(now + timedelta(seconds=row.seconds))
    except OverflowError:  # beyond the last year of the calendar
        due = None
    return {
        "namespace": row.namespace,
        "name": row.name,
        "uid": row.uid,
        "outcome": row.outcome.value,
        "dueSeconds": row.seconds,
        "dueAt": due,
        "tolerates": row.outcome is PodOutcome.TOLERATES,
        "reason": reason.value,
        "taint": _taint(taint),
        "toleration": None if toleration is None else toleration_values(toleration),
        "devices": [each._asdict() for each in row.devices],
        "claims": list(row.claims),
    }


def _patch(found: PatchResult) -> dict[str, Any]:
    return {
        "inapplicable": found.inapplicable or None,
        "changes": [
            {
                **each.device._asdict(),
                **each.origin._asdict(),
                "effect": each.origin.effect or None,
                "before": _state(each.before),
                "after": _state(each.after),
                "patch": each.patch,
            }
            for each in found.changes
        ],
        "rules": [
            {
                "name": rule.name,
                **_names(rule.selector),
                **_taint(rule.taint),
                "annotations": dict(rule.annotations),
            }
            for rule in found.made.rules
        ],
        "rulesNeeded": found.made.needed,
        "faults": [{**each.device._asdict(), "selector": each.where, "message": each.detail} for each in found.faults],
    }


def _state(state: JSON | tuple[DeviceTaint, ...]) -> JSON:
    if isinstance(state, tuple):
        return [{"value": taint.value, "timeAdded": time_text(taint.time_added)} for taint in state]
    return state
