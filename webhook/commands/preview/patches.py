"""`preview` of patches: each device before and after, the rules that a patch becomes, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from webhook.admission.context import AdmissionContext
from webhook.admission.defaulting import edits_for
from webhook.api.counts import counted
from webhook.api.meta import format_time, parse_time
from webhook.files.tables import table
from webhook.inventory.expansion import RULES_MAX, PatchExpansion, expansion
from webhook.inventory.patch_preview import PatchChange, patch_changes, patch_preview
from webhook.inventory.patching import PatchFault, effective_devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from webhook.api.device_classes import DeviceClassSelectors
    from webhook.api.field import JSON
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.taints import DeviceTaint
    from webhook.inventory.device_filter import CompilesSelectors
    from webhook.inventory.expansion import ExpandedRule
    from webhook.inventory.patching import EffectiveDevices
    from webhook.inventory.preview import Preview
    from webhook.inventory.state import Inventory

_FAULTS_SHOWN: Final = 3


class PatchOutcome(NamedTuple):
    """What becomes of one patch, beside its users. `inapplicable` says why it selects nothing, where it cannot."""

    changes: tuple[PatchChange, ...]
    expansion: PatchExpansion
    faults: tuple[PatchFault, ...]
    inapplicable: str


class PatchWorld:
    """The patches of files and those that are stored, taken together; files replace what is stored under the name."""

    def __init__(
        self,
        inventory: Inventory,
        stored: Mapping[str, ResourceSlicePatch],
        asked: Iterable[ResourceSlicePatch],
        classes: Mapping[str, DeviceClassSelectors],
        now: datetime,
    ) -> None:
        self._inventory = inventory
        self._patches = {**stored}
        for patch in asked:
            self._patches[patch.meta.name] = as_stored_patch(patch, stored.get(patch.meta.name), now)
        self._classes = classes
        self.now = now
        self._effective: EffectiveDevices | None = None
        self._expansions: Mapping[str, PatchExpansion] = {}

    def work_out(self, compiles: CompilesSelectors) -> None:
        """What all of them do together. Takes time, and is done once."""
        pools, patches = self._inventory.pools, self._patches.values()
        self._effective = effective_devices(pools, patches, self._classes, compiles)
        self._expansions = expansion(pools, patches, self._effective)

    def of(self, name: str, *, in_tree: bool) -> tuple[ResourceSlicePatch, PatchOutcome, Preview]:
        """One of them as it would be stored, its outcome, and what its rules do to users."""
        assert self._effective is not None
        effective, patch = self._effective, self._patches[name]
        outcome = PatchOutcome(
            tuple(patch_changes(effective, patch)),
            self._expansions[name],
            tuple([fault for fault in effective.faults if fault.patch == name]),
            effective.inapplicable.get(name, ""),
        )
        rules, devices = outcome.expansion.rules, effective.selected[name]
        return patch, outcome, patch_preview(self._inventory, devices, rules, in_tree=in_tree, now=self.now)


def as_stored_patch(patch: ResourceSlicePatch, old: ResourceSlicePatch | None, now: datetime) -> ResourceSlicePatch:
    """The patch with the times that it would be stored with; it stays as old as the one that it replaces (P-11)."""
    taints = list(patch.taints)
    for at, time in edits_for(patch, old, AdmissionContext(now=now)):
        position = int(at[3])
        taints[position] = structs.replace(taints[position], time_added=parse_time(str(time)))
    return structs.replace(patch, taints=tuple(taints), created=old.created if old else patch.created)


# --- notes --------------------------------------------------------------------------------------


def patch_notes(outcome: PatchOutcome) -> Iterator[str]:
    """What is easily overlooked."""
    if outcome.inapplicable:
        yield f"the patch selects no device: {outcome.inapplicable}"
    for fault in outcome.faults[:_FAULTS_SHOWN]:
        yield f"left out: {fault}"
    if len(outcome.faults) > _FAULTS_SHOWN:
        yield f"left out: {len(outcome.faults) - _FAULTS_SHOWN} more devices for such reasons"
    needed = outcome.expansion.needed
    if needed > RULES_MAX:
        yield f"its taints need {needed} DeviceTaintRules, more than {RULES_MAX}: none is made, so no pod is counted"


# --- for programs -------------------------------------------------------------------------------


def patch_values(outcome: PatchOutcome) -> dict[str, Any]:
    """An outcome in JSON and YAML."""
    return {
        "inapplicable": outcome.inapplicable or None,
        "changes": [_change_values(each) for each in outcome.changes],
        "rules": [_rule_values(each) for each in outcome.expansion.rules],
        "rulesNeeded": outcome.expansion.needed,
        "faults": [
            {**each.device._asdict(), "selector": each.where, "message": each.detail} for each in outcome.faults
        ],
    }


def _change_values(change: PatchChange) -> dict[str, Any]:
    return {
        **change.device._asdict(),
        "kind": change.origin.kind,
        "name": change.origin.name,
        "effect": change.origin.effect or None,
        "before": _state_values(change.before),
        "after": _state_values(change.after),
        "patch": change.patch,
    }


def _state_values(state: JSON | tuple[DeviceTaint, ...]) -> Any:
    return [_taint_values(taint) for taint in state] if isinstance(state, tuple) else state


def _taint_values(taint: DeviceTaint) -> dict[str, Any]:
    added = taint.time_added
    return {"value": taint.value, "timeAdded": None if added is None else format_time(added)}


def _rule_values(rule: ExpandedRule) -> dict[str, Any]:
    selector, taint = rule.selector, rule.taint
    return {
        "name": rule.name,
        "driver": selector.driver,
        "pool": selector.pool,
        "device": selector.device,
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "annotations": dict(rule.annotations),
    }


# --- for people ---------------------------------------------------------------------------------


def patch_title(patch: ResourceSlicePatch) -> str:
    """What a patch sets, and where."""
    parts = ((patch.attributes, "attribute"), (patch.capacity, "capacity"), (patch.taints, "taint"))
    sets = [counted(len(entries), name) for entries, name in parts if entries]
    return f"{', '.join(sets) or 'nothing'} on {_filter_text(patch)}"


def _filter_text(patch: ResourceSlicePatch) -> str:
    selector = patch.filter
    if selector is None:
        return "every device"
    given = {
        "class": selector.device_class_name,
        "driver": selector.driver,
        "pool": selector.pool,
        "device": selector.device,
    }
    parts = [f"{name} {value}" for name, value in given.items() if value is not None]
    if selector.selectors:
        parts.append(counted(len(selector.selectors), "selector"))
    return ", ".join(parts) or "every device"


def change_lines(
    patch: str, changes: Sequence[PatchChange], *, limit: int, width: int | None, color: bool
) -> Iterator[str]:
    """A table of at most `limit` changes, 0 for all; `patch` is the one that was asked about."""
    shown = changes[:limit] if limit else changes
    several = len({change.device.driver for change in changes}) > 1
    rows = [
        [
            str(change.device) if several else f"{change.device.pool}/{change.device.device}",
            f"{change.origin.kind} {change.origin.name}" + (f":{change.origin.effect}" if change.origin.effect else ""),
            _state_text(change.before),
            _state_text(change.after) + ("" if change.patch == patch else f" (by patch {change.patch})"),
        ]
        for change in shown
    ]
    yield from table(rows, headers=("DEVICE", "WHAT", "BEFORE", "AFTER"), width=width, color=color)
    if len(changes) > len(shown):
        yield f"and {len(changes) - len(shown)} more; --limit 0 shows all"


def _state_text(state: JSON | tuple[DeviceTaint, ...]) -> str:
    if state is None:
        return "-"
    if isinstance(state, tuple):
        return ", ".join(taint.value or "set" for taint in state)
    values = [value for value in state.values() if not isinstance(value, dict)] if isinstance(state, dict) else [state]
    return ", ".join(_value_text(value) for value in values)


def _value_text(value: JSON) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
