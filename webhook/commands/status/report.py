"""What `status` found, as values.

The structure of the JSON and YAML is stable: while `version` is 1, fields may be added, but none is removed or
changes its meaning. What the worker says, in conditions, is under `reported`; what is computed here under `computed`.
docs/status.md explains it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import format_time
from webhook.api.rules import EVICTED_PODS, evicted_pods
from webhook.commands.status.views import current, views_of
from webhook.commands.status.waits import PodState
from webhook.eviction.conditions import RELEASED
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.scope import is_ours

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.api.taints import DeviceTaint
    from webhook.commands.status.objects import StatusObjects
    from webhook.commands.status.views import EvictionView, StatusSettings
    from webhook.commands.status.waits import PodStatus
    from webhook.files.report import Row
    from webhook.inventory.matching import Evictor

VERSION: Final = 1


class TaintLine(NamedTuple):
    """A rule, or what a driver has tainted in slices with NoExecute; `rule` is None for a driver."""

    name: str
    rule: DeviceTaintRule | None
    taints: tuple[DeviceTaint, ...]
    evictors: tuple[Evictor, ...]
    """Who evicts pods for it; none for a taint that evicts no pod."""
    devices: int
    """Published devices that are tainted."""
    allocated: int
    pods: tuple[PodStatus, ...]

    @property
    def counts(self) -> Counter[PodState]:
        """Numbers of pods by state."""
        return Counter(status.state for status in self.pods)

    @property
    def pending(self) -> int:
        """Number of pods that are still to be evicted."""
        return sum(status.state.pending for status in self.pods)

    @property
    def next_due(self) -> datetime | None:
        """The earliest due time of the pods that are not due yet."""
        times = [each.due for each in self.pods if each.state is PodState.NOT_DUE and each.due is not None]
        return min(times, default=None)

    @property
    def evicted(self) -> int | None:
        """Pods that the worker has evicted for a rule, as it reports; None if it has reported nothing."""
        if self.rule is None or not any(each.type == EVICTED_PODS for each in self.rule.conditions):
            return 0 if self.said is not None else None
        return evicted_pods(self.rule.conditions)

    @property
    def said(self) -> Condition | None:
        """The worker's own condition for the rule as it is now."""
        return None if self.rule is None else current(self.rule)

    @property
    def released(self) -> Condition | None:
        """What the worker says of the devices of the rule as it is now: whether an allocation holds one."""
        return None if self.rule is None else current(self.rule, RELEASED)


@dataclass(slots=True)
class StatusReport:
    """The result of one look. `rows` are files and policies with something to report."""

    source: str
    settings: StatusSettings
    server: str | None = None
    missing: frozenset[str] = frozenset()
    """Kinds that could not be read, or that a dump lacks."""
    lines: list[TaintLine] = field(default_factory=list)
    tripped: frozenset[str] = frozenset()
    show_pods: bool = False
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    failed: bool = False
    """Something that is needed could not be read."""

    @property
    def exit_code(self) -> int:
        """0 fine, 2 something could not be read."""
        return 2 if self.failed else 0

    @property
    def pods(self) -> list[PodStatus]:
        """The pods of all lines, each once for an evictor, the earliest due first."""
        found = {(each.pod.meta.uid, each.evictor): each for line in self.lines for each in line.pods}
        return sorted(found.values(), key=_order)


def _order(status: PodStatus) -> tuple[bool, float, str, str]:
    meta = status.pod.meta
    at = 0.0 if status.due is None else status.due.timestamp()
    return status.due is None, at, meta.namespace, meta.name


# --- lines --------------------------------------------------------------------------------------


def lines_of(objects: StatusObjects, settings: StatusSettings) -> tuple[list[TaintLine], frozenset[str]]:
    """A line for each rule by name, then for each driver with NoExecute taints in slices; and tripped breakers."""
    views = views_of(objects, settings)
    by_rule: dict[str, list[PodStatus]] = {}
    by_driver: dict[str, list[PodStatus]] = {}
    for view in views:
        for status in view.statuses():
            reasons = status.eviction.reasons
            for uid in {reason.rule_uid for reason in reasons if reason.rule}:
                by_rule.setdefault(uid, []).append(status)
            for driver in {reason.driver for reason in reasons if not reason.rule}:
                by_driver.setdefault(driver, []).append(status)
    rules = sorted(objects.inventory.rules.values(), key=lambda rule: rule.meta.name)
    lines = [_rule_line(rule, objects, settings, views, by_rule.get(rule.meta.uid, [])) for rule in rules]
    lines += _driver_lines(objects, views, by_driver)
    return lines, frozenset[str]().union(*[view.tripped for view in views])


def _rule_line(
    rule: DeviceTaintRule,
    objects: StatusObjects,
    settings: StatusSettings,
    views: Sequence[EvictionView],
    pods: Sequence[PodStatus],
) -> TaintLine:
    impact = impact_of(objects.inventory, rule.selector, Taint.of_rule(rule, in_tree=False), settings.now)
    evictors = tuple(view.evictor for view in views if view.acts and is_ours(rule, view.scope))
    return TaintLine(
        rule.meta.name, rule, (rule.taint,), evictors, impact.devices, impact.allocated, tuple(sorted(pods, key=_order))
    )


def _driver_lines(
    objects: StatusObjects,
    views: Sequence[EvictionView],
    pods: dict[str, list[PodStatus]],
) -> list[TaintLine]:
    tainted: dict[str, list[tuple[str, str, tuple[DeviceTaint, ...]]]] = {}
    for (driver, pool), found in objects.inventory.pools.items():
        for device, taints in found.evicting.items():
            tainted.setdefault(driver, []).append((pool, device, taints))
    evictors = tuple(view.evictor for view in views if view.acts and view.scope.no_execute is not None)
    lines = []
    for driver, devices in sorted(tainted.items()):
        allocated = sum(objects.inventory.usage.in_use(driver, pool, device) for pool, device, _ in devices)
        distinct = {(each.key, each.value, each.effect): each for _, _, taints in devices for each in taints}
        taints = tuple(distinct[identity] for identity in sorted(distinct))
        statuses = tuple(sorted(pods.get(driver, ()), key=_order))
        lines.append(TaintLine(driver, None, taints, evictors, len(devices), allocated, statuses))
    return lines


# --- for programs -------------------------------------------------------------------------------


def as_values(report: StatusReport) -> dict[str, Any]:
    """The structure behind JSON and YAML."""
    settings = report.settings
    pause = settings.policy.pause
    paused = pause is not None and settings.now < pause.until
    return {
        "version": VERSION,
        "source": report.source,
        "server": report.server,
        "time": format_time(settings.now),
        "worker": {
            "mode": settings.mode.value,
            "modeGuessed": not settings.mode_said,
            "inTree": settings.in_tree.value,
            "paused": None
            if pause is None or not paused
            else {"until": format_time(pause.until), "why": pause.why or None},
            "breakersTripped": sorted(report.tripped),
        },
        "missing": sorted(report.missing),
        "taints": [line_values(each) for each in report.lines],
        "pods": [pod_values(each) for each in report.pods] if report.show_pods else None,
        "notes": list(report.notes),
        "findings": [finding for row in report.rows for finding in row.findings],
    }


def line_values(line: TaintLine) -> dict[str, Any]:
    """A rule or driver: what is computed here, and what the worker reports."""
    counts, rule = line.counts, line.rule
    return {
        "kind": "DeviceTaintRule" if rule is not None else "Driver",
        "name": line.name,
        "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in line.taints],
        "timeAdded": _time(rule.taint.time_added) if rule is not None else None,
        "evict": rule is not None and rule.taint.effect != rule.effective_effect,
        "computed": {
            "evictors": [each.value for each in line.evictors],
            "devices": line.devices,
            "allocated": line.allocated,
            "pods": {state.value: counts[state] for state in PodState},
            "pending": line.pending,
            "nextDue": _time(line.next_due),
            "total": None if line.evicted is None else line.evicted + line.pending,
        },
        "reported": None
        if rule is None
        else {
            "evicted": line.evicted,
            "conditions": [condition_values(each, rule) for each in rule.conditions],
        },
    }


def condition_values(condition: Condition, rule: DeviceTaintRule) -> dict[str, Any]:
    """A condition of a rule; `current`: it is about the rule as it is now."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "since": _time(condition.last_transition_time),
        "current": condition.observed_generation == rule.generation,
    }


def pod_values(status: PodStatus) -> dict[str, Any]:
    """A pod with its state, and what it waits for."""
    pod, waits_for = status.pod, status.waits_for
    reasons = status.eviction.reasons
    return {
        "namespace": pod.meta.namespace,
        "name": pod.meta.name,
        "uid": pod.meta.uid,
        "node": pod.node_name,
        "rules": sorted({reason.rule for reason in reasons if reason.rule}),
        "drivers": sorted({reason.driver for reason in reasons if not reason.rule}),
        "evictor": status.evictor.value,
        "state": status.state.value,
        "due": _time(status.due),
        "since": _time(status.since),
        "waitsFor": {
            "kind": waits_for.kind.value,
            "message": waits_for.message,
            "name": waits_for.name or None,
            "limit": waits_for.limit,
            "count": waits_for.count,
            "pods": list(waits_for.pods),
        },
    }


def _time(time: datetime | None) -> str | None:
    return None if time is None else format_time(time)
