"""What `preview` found, as values.

The structure of the JSON and YAML is stable: while `version` is 1, fields may be added, but none is removed or
changes its meaning. docs/kubectl.md explains it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import format_time
from webhook.api.rules import DeviceTaintRule
from webhook.api.servers import UNKNOWN
from webhook.commands.preview.patches import patch_values
from webhook.files.report import UNREADABLE, Level
from webhook.inventory.gangs import root_owner
from webhook.inventory.preview import PodOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.rules import DeviceSelector
    from webhook.api.servers import ServerFacts
    from webhook.api.slices import ResourceSlice
    from webhook.api.taints import DeviceTaint, DeviceToleration
    from webhook.commands.preview.patches import PatchOutcome
    from webhook.files.report import Row
    from webhook.inventory.fates import DeviceNames
    from webhook.inventory.gangs import BrokenGang
    from webhook.inventory.hardware import Sibling
    from webhook.inventory.impact import Taint
    from webhook.inventory.preview import Cause, GroupRow, PodRow, Preview

VERSION: Final = 1


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
    text: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ObjectPreview:
    """One rule, slice or patch. The row says what it is and, as errors, what an API server would refuse it for."""

    row: Row
    value: DeviceTaintRule | ResourceSlice | ResourceSlicePatch
    preview: Preview
    notes: tuple[str, ...] = ()
    confirmation: DryRunResult | None = None
    """None for slices and patches, which need none."""
    gangs: tuple[BrokenGang, ...] = ()
    outcome: PatchOutcome | None = None
    """Of a patch."""


@dataclass(slots=True)
class PreviewReport:
    """The results of a run. `rows` are files and policies with something to report."""

    source: str
    now: datetime
    server: str | None = None
    servers: ServerFacts = UNKNOWN
    pods_known: bool = False
    claims_known: bool = True
    slices_known: bool = True
    objects: list[ObjectPreview] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    failed: bool = False
    """Something that is needed could not be read."""

    @property
    def exit_code(self) -> int:
        """0 fine, 1 something would be refused even if confirmed, 2 something could not be read."""
        entries = [entry for row in (*self.rows, *[item.row for item in self.objects]) for entry in row.entries]
        answers = {item.confirmation.answer for item in self.objects if item.confirmation is not None}
        if self.failed or DryRunAnswer.FAILED in answers or any(entry.reason == UNREADABLE for entry in entries):
            return 2
        refused = DryRunAnswer.REFUSED in answers or any(entry.level is Level.ERROR for entry in entries)
        return 1 if refused else 0


# --- for programs -------------------------------------------------------------------------------


def as_values(report: PreviewReport) -> dict[str, Any]:
    """The structure behind JSON and YAML."""
    return {
        "version": VERSION,
        "source": report.source,
        "server": report.server,
        "time": format_time(report.now),
        "podsKnown": report.pods_known,
        "claimsKnown": report.claims_known,
        "slicesKnown": report.slices_known,
        "previews": [_preview_values(item, report.now) for item in report.objects],
        "findings": [finding for row in report.rows for finding in row.findings],
    }


def _preview_values(item: ObjectPreview, now: datetime) -> dict[str, Any]:
    row, preview, value = item.row, item.preview, item.value
    answer = item.confirmation
    return {
        "file": row.file,
        "document": row.document,
        "line": row.position.line if row.position else None,
        "apiVersion": row.api_version,
        "kind": row.kind,
        "name": row.name,
        "selector": selector_values(value.selector) if isinstance(value, DeviceTaintRule) else None,
        "taints": [_taint_and_device_values(names, taint) for names, taint in preview.taints],
        "simulated": preview.simulated,
        "summary": _summary_values(preview),
        "pods": [_pod_values(each, now) for each in preview.pods],
        "podGroups": [{**_fate_values(each, now), "pods": names_of(each.pods)} for each in preview.pod_groups],
        "gangs": [_gang_values(each) for each in item.gangs],
        "siblings": [_sibling_values(each) for each in preview.impact.siblings.devices],
        "incompletePools": [{"driver": driver, "pool": pool} for driver, pool in preview.impact.incomplete_pools],
        "notes": list(item.notes),
        "findings": row.findings,
        "confirmation": None
        if answer is None
        else {"answer": answer.answer.value, "text": answer.text or None, "message": answer.message or None},
        **({} if item.outcome is None else {"patch": patch_values(item.outcome)}),
    }


def _summary_values(preview: Preview) -> dict[str, Any]:
    impact = preview.impact
    groups = sum(row.outcome is PodOutcome.EVICTED for row in preview.pod_groups)
    return {
        "devices": impact.devices,
        "pools": impact.pools,
        "drivers": impact.drivers,
        "allocated": impact.allocated,
        "claims": len(preview.claims),
        "namespaces": preview.namespaces,
        "evicted": preview.count(PodOutcome.EVICTED),
        "extended": preview.extended,
        "companions": preview.companions,
        "leftAlone": preview.count(PodOutcome.LEFT_ALONE),
        "waves": [{"seconds": seconds, "pods": pods} for seconds, pods in preview.waves.items()],
        "tolerating": preview.count(PodOutcome.TOLERATES),
        "unseen": 0,  # no field is removed from version 1
        "noNode": preview.count(PodOutcome.NO_NODE),
        "kept": preview.count(PodOutcome.KEPT),
        "leaving": preview.count(PodOutcome.LEAVING),
        "podGroups": groups,
    }


def _sibling_values(sibling: Sibling) -> dict[str, Any]:
    """A part of the same hardware that stays in service, and its users, by `namespace/name`."""
    return {
        "driver": sibling.driver,
        "pool": sibling.pool,
        "device": sibling.device,
        "claims": list(sibling.claims),
        "pods": list(sibling.pods),
        "podGroups": list(sibling.pod_groups),
    }


def selector_values(selector: DeviceSelector | None) -> dict[str, Any] | None:
    """What of a selector is judged; None if there is none."""
    if selector is None:
        return None
    return {
        "driver": selector.driver,
        "pool": selector.pool,
        "device": selector.device,
        "notJudged": sorted(not_judged(selector)),
    }


def not_judged(selector: DeviceSelector) -> list[str]:
    """The fields of a selector that cannot be evaluated here."""
    retired = [("deviceClassName", selector.device_class_name), ("selectors", selector.selectors)]
    return [*[name for name, given in retired if given], *[name for name, _ in selector.unknown]]


def _taint_and_device_values(names: DeviceNames, taint: Taint) -> dict[str, Any]:
    return {
        **_taint_values(taint.scheduling or taint.taint),
        "timeAdded": None if taint.taint.time_added is None else format_time(taint.taint.time_added),
        "evictor": None if taint.evictor is None else taint.evictor.value,
        "driver": names.driver,
        "pool": names.pool,
        "device": names.device,
    }


def _taint_values(taint: DeviceTaint) -> dict[str, Any]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _fate_values(row: PodRow | GroupRow, now: datetime) -> dict[str, Any]:
    """What pods and PodGroups have in common."""
    return {
        "namespace": row.namespace,
        "name": row.name,
        "uid": row.uid,
        "outcome": row.outcome.value,
        "dueSeconds": row.seconds,
        "dueAt": _due_at(row.seconds, now),
        "tolerates": row.outcome is PodOutcome.TOLERATES,
        **_cause_values(row.cause),
        "devices": [each._asdict() for each in row.devices],
        "claims": list(row.claims),
    }


def _cause_values(cause: Cause) -> dict[str, Any]:
    toleration = None if cause.toleration is None else toleration_values(cause.toleration)
    return {"reason": cause.reason.value, "taint": _taint_values(cause.taint), "toleration": toleration}


def toleration_values(toleration: DeviceToleration) -> dict[str, Any]:
    """Its fields."""
    return {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.toleration_seconds,
    }


def _due_at(seconds: int | None, now: datetime) -> str | None:
    """The time; None where the pod is not evicted, and beyond the last year of the calendar."""
    if seconds is None:
        return None
    try:
        return format_time(now + timedelta(seconds=seconds))
    except OverflowError:
        return None


def _pod_values(row: PodRow, now: datetime) -> dict[str, Any]:
    pod = row.pod
    owner = pod.owner if pod is not None else None
    root = root_owner(pod) if pod is not None else None
    return {
        **_fate_values(row, now),
        "known": pod is not None,
        "owner": None if owner is None else {"kind": owner.kind, "name": owner.name, "uid": owner.uid},
        "rootOwner": None if root is None else {"kind": root.kind, "name": root.name},
        "priority": None if pod is None else pod.priority,
        "node": pod.node_name or None if pod is not None else None,
        "hold": None if pod is None else pod.hold,
    }


def _gang_values(broken: BrokenGang) -> dict[str, Any]:
    gang = broken.gang
    return {
        "kind": gang.kind,
        "namespace": gang.namespace,
        "name": gang.name,
        "evicted": broken.evicted,
        "pods": broken.pods,
    }


def names_of(keys: Iterable[str]) -> list[str]:
    """The names in keys of one namespace."""
    return [key.rpartition("/")[2] for key in keys]
