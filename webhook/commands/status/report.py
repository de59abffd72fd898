"""What `status` found, for programs and as tables.

The structure of the JSON and YAML is stable: while `version` is 1, fields may be added, but none is removed or
changes its meaning. What the worker says, in conditions, is under `reported`; what is computed here under `computed`.
docs/kubectl.md explains it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from webhook.api.meta import format_time, time_text
from webhook.api.rules import EVICTED_PODS, Condition, DeviceTaintRule, evicted_pods
from webhook.api.taints import DeviceTaint
from webhook.commands.shared.objects import StatusObjects
from webhook.commands.status.views import PodState, PodStatus, StatusSettings, current, views_of
from webhook.eviction.conditions import IN_TREE, RELEASED
from webhook.files.report import Row, line, table, visible
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.pools import Evictor
from webhook.inventory.targets import is_ours

WORDS: Final = {PodState.NOT_DUE: "not due", PodState.PUT_OFF: "put off"}
"""For states whose values are no words."""
_EVICTORS: Final = {Evictor.OURS: "worker", Evictor.IN_TREE: "in-tree"}
_RELEASED: Final = {"True": "its devices are released", "False": "its devices are not released"}
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))
_ENOUGH: Final = 2
"""From this many of a unit on, smaller units are left out."""
_LAST_LEAST: Final = 16
"""The columns of a terminal that the last column of a table needs, which is folded there."""
_LEGEND: Final = "WORKER SAYS and the pods evicted so far are from its conditions; the rest is computed here."


class TaintCounts(msgspec.Struct, frozen=True, rename="camel"):
    """What a rule or driver taints, and the pods that are evicted for it. None: it is not known."""

    evictors: list[Evictor]
    """Who evicts pods for it; none for a taint that evicts no pod."""
    devices: int | None
    """Published devices that are tainted."""
    allocated: int | None
    pods: dict[PodState, int] | None
    pending: int | None
    """Pods that are still to be evicted."""
    next_due: datetime | None
    """The earliest due time of the pods that are not due yet."""
    total: int | None
    """Pods that are evicted or still to be."""


class TaintLine(NamedTuple):
    """A rule, or what a driver has tainted in slices with NoExecute; `rule` is None for a driver."""

    name: str
    rule: DeviceTaintRule | None
    taints: tuple[DeviceTaint, ...]
    computed: TaintCounts
    evicted: int | None
    """Pods that the worker has evicted for a rule, as it reports; None if it has reported nothing."""
    pods: tuple[PodStatus, ...]

    @property
    def pending(self) -> int:
        """Return the number of pods that are still to be evicted, as far as is known."""
        return self.computed.pending or 0

    @property
    def said(self) -> Condition | None:
        """Return the worker's own condition for the rule as it is now."""
        return None if self.rule is None else current(self.rule)

    @property
    def released(self) -> Condition | None:
        """Return what the worker says of the devices of the rule as it is now: whether an allocation holds one."""
        return None if self.rule is None else current(self.rule, RELEASED)

    @property
    def evict(self) -> bool:
        """Tell whether the rule has `/evict`, and an effect that this changes."""
        return self.rule is not None and self.rule.taint.effect != self.rule.effective_effect


@dataclass(slots=True)
class StatusReport:
    """The result of one look. `rows` are files and policies with an error."""

    settings: StatusSettings
    server: str | None = None
    """None for a dump."""
    missing: frozenset[str] = frozenset()
    """Kinds that could not be read, or that a dump lacks."""
    lines: list[TaintLine] = field(default_factory=list)
    tripped: frozenset[str] = frozenset()
    show_pods: bool = False
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def pods(self) -> list[PodStatus]:
        """Return the pods of all lines, each once for an evictor, the earliest due first."""
        return sorted(
            {(each.uid, each.evictor): each for line in self.lines for each in line.pods}.values(), key=_order
        )


def _order(status: PodStatus) -> tuple[bool, float, str, str]:
    at = 0.0 if status.due is None else status.due.timestamp()
    return status.due is None, at, status.namespace, status.name


# --- lines --------------------------------------------------------------------------------------


def lines_of(
    objects: StatusObjects, settings: StatusSettings, missing: Collection[str] = ()
) -> tuple[list[TaintLine], frozenset[str]]:
    """Return a line for each rule by name, then for each driver with NoExecute taints in slices; tripped breakers."""
    views = views_of(objects, settings)
    by_rule: defaultdict[str, list[PodStatus]] = defaultdict(list)
    by_driver: defaultdict[str, list[PodStatus]] = defaultdict(list)
    for status in sorted([status for view in views for status in view.statuses], key=_order):
        for name in status.rules:
            by_rule[name].append(status)
        for name in status.drivers:
            by_driver[name].append(status)
    lines = []
    for name, rule in sorted(objects.inventory.rules.items()):
        impact = impact_of(objects.inventory, rule.selector, Taint.of_rule(rule, in_tree=False), settings.now)
        evictors = [view.evictor for view in views if view.acts and is_ours(rule, view.scope)]
        pods = by_rule[name]
        evicted = None if current(rule) is None else 0
        if any(each.type == EVICTED_PODS for each in rule.conditions):
            evicted = evicted_pods(rule.conditions)
        counts = _counted(evictors, impact.devices, impact.allocated, pods, evicted, missing)
        lines.append(TaintLine(name, rule, (rule.taint,), counts, evicted, tuple(pods)))
    evictors = [view.evictor for view in views if view.acts and view.scope.no_execute is not None]
    tainted: dict[str, list[tuple[str, str, tuple[DeviceTaint, ...]]]] = {}
    for (driver, pool), published in objects.inventory.pools.items():
        for device, taints in published.evicting.items():
            tainted.setdefault(driver, []).append((pool, device, taints))
    for driver, devices in sorted(tainted.items()):
        allocated = sum(objects.inventory.usage.in_use(driver, pool, device) for pool, device, _ in devices)
        distinct = {(each.key, each.value, each.effect): each for _, _, taints in devices for each in taints}
        pods = by_driver[driver]
        counts = _counted(evictors, len(devices), allocated, pods, None, missing)
        kinds = tuple(distinct[each] for each in sorted(distinct))
        lines.append(TaintLine(driver, None, kinds, counts, None, tuple(pods)))
    return lines, frozenset[str]().union(*[view.tripped for view in views])


def _counted(
    evictors: list[Evictor],
    devices: int,
    allocated: int,
    pods: list[PodStatus],
    evicted: int | None,
    missing: Collection[str],
) -> TaintCounts:
    states = Counter(each.state for each in pods)
    pending = sum(states[state] for state in states if state.pending)
    known = "ResourceClaim" not in missing and "Pod" not in missing
    return TaintCounts(
        evictors,
        None if "ResourceSlice" in missing else devices,
        None if "ResourceClaim" in missing else allocated,
        {state: states[state] for state in PodState} if known else None,
        pending if known else None,
        min([each.due for each in pods if each.state is PodState.NOT_DUE and each.due is not None], default=None),
        None if evicted is None or not known else evicted + pending,
    )


# --- for programs -------------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """Return structs as JSON has them, with times in whole seconds."""
    return _whole_seconds(msgspec.to_builtins(value, builtin_types=(datetime,)))


def _whole_seconds(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, dict):
        return {name: _whole_seconds(each) for name, each in value.items()}
    return [_whole_seconds(each) for each in value] if isinstance(value, list | tuple) else value


def as_values(report: StatusReport) -> dict[str, Any]:
    """Return the structure behind JSON and YAML."""
    pause, now = report.settings.policy.pause, report.settings.now
    paused = None if pause is None or now >= pause.until else {"until": pause.until, "why": pause.why or None}
    values: dict[str, Any] = encoded(
        {
            "version": 1,
            "source": "dump" if report.server is None else "cluster",
            "server": report.server,
            "time": now,
            "worker": {**worker_values(report.settings), "paused": paused, "breakersTripped": sorted(report.tripped)},
            "missing": sorted(report.missing),
            "taints": [_line_values(each) for each in report.lines],
            "pods": report.pods if report.show_pods else None,
            "notes": report.notes,
            "findings": [finding for row in report.rows for finding in row.findings],
        }
    )
    return values


def _line_values(row: TaintLine) -> dict[str, Any]:
    rule = row.rule
    return {
        "kind": "Driver" if rule is None else "DeviceTaintRule",
        "name": row.name,
        "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in row.taints],
        "timeAdded": None if rule is None else rule.taint.time_added,
        "evict": row.evict,
        "computed": row.computed,
        "reported": None if rule is None else {"evicted": row.evicted, "conditions": conditions_of(rule)},
    }


def worker_values(settings: StatusSettings) -> dict[str, Any]:
    """Return what is known of the worker. `runs`: whether there is one; if not, the mode is observe, which is idle."""
    return {
        "mode": settings.mode.value,
        "modeGuessed": not settings.mode_said,
        "inTree": settings.in_tree.value,
        "runs": settings.worker,
    }


def conditions_of(rule: DeviceTaintRule) -> list[dict[str, Any]]:
    """Return what is in its status, by the worker or the in-tree controller; `current`: about the rule as it is now."""
    return [
        {
            "type": each.type,
            "status": each.status,
            "reason": each.reason,
            "message": each.message,
            "since": time_text(each.last_transition_time),
            "current": each.observed_generation == rule.generation,
        }
        for each in rule.conditions
    ]


# --- text ---------------------------------------------------------------------------------------


def as_text(report: StatusReport, *, limit: int, width: int | None = None, color: bool = False) -> str:
    """Return the whole report. The table of pods has at most `limit` rows, 0 for all; lines fit the width, if given."""
    lines = [line(row, entry, color=color) for row in report.rows for entry in row.entries]
    lines.append(visible(_title(report)))
    if report.lines:
        rows = [_taint_row(each, report.settings.now) for each in report.lines]
        headers = ["NAME", "WORKER SAYS", "EVICTED", "PODS", "NEXT DUE", "DEVICES", "BY", "TAINT"]
        _fit(headers, rows, width, ("DEVICES", "EVICTED", "NEXT DUE"))
        lines += ["", *table(rows, headers=headers, width=width, color=color), _LEGEND]
    else:
        lines += ["", "no DeviceTaintRule, and no NoExecute taint in slices"]
    if report.show_pods:
        said = [(each.name, each.said.message) for each in report.lines if each.said is not None]
        lines += [visible(f"{name}: the worker says: {message}") for name, message in said if message]
        for each in report.lines:
            if each.released:
                word = _RELEASED.get(each.released.status, "it is not known whether its devices are released")
                lines.append(visible(f"{each.name}: {word}: {each.released.message}"))
        lines += ["", *_pods(report, limit=limit, width=width, color=color)]
    lines += [visible(f"note: {note}") for note in report.notes]
    return "\n".join(lines) + "\n"


def _title(report: StatusReport) -> str:
    settings = report.settings
    worker = f"worker in mode {settings.mode.value}" if settings.worker else "no eviction worker is known"
    if settings.worker and not settings.mode_said:
        worker += ", by the conditions of rules"
    where = report.server or "dump"
    title = f"{where} at {format_time(settings.now)}: {worker}; in-tree controller {settings.in_tree.value}"
    pause = settings.policy.pause
    if pause is not None and settings.now < pause.until:
        title += f"; paused until {format_time(pause.until)}{f': {pause.why}' if pause.why else ''}"
    if report.tripped:
        title += f"; breaker tripped for {', '.join(sorted(report.tripped))}"
    return title


def _taint_row(row: TaintLine, now: datetime) -> list[str]:
    found, released = row.computed, row.released
    devices, allocated = ("?" if each is None else each for each in (found.devices, found.allocated))
    pods = "?"
    if found.pods is not None:
        counts = [f"{count} {WORDS.get(state, state.value)}" for state, count in found.pods.items() if count]
        pods = ", ".join(counts) or "none"
    effects = sorted({f"{each.key}:{each.effect}" for each in row.taints})
    return [
        row.name if row.rule is not None else f"{row.name} (slices)",
        _said(row, now),
        "-" if row.evicted is None else f"{row.evicted} of {'?' if found.total is None else found.total}",
        pods,
        "-" if found.next_due is None else f"in {span((found.next_due - now).total_seconds())}",
        f"{devices}, {allocated} allocated{', released' if released and released.status == 'True' else ''}",
        "+".join(_EVICTORS[each] for each in found.evictors) or "-",
        f"{', '.join(effects)}{', evict' if row.evict else ''}",
    ]


def _said(row: TaintLine, now: datetime) -> str:
    """Return the worker's reason, or else the in-tree controller's, and since when."""
    condition, prefix = row.said, ""
    if condition is None and row.rule is not None:
        condition = next((each for each in row.rule.conditions if each.type == IN_TREE), None)
        prefix = "in-tree: "
    if condition is None:
        return "-"
    since = condition.last_transition_time
    return f"{prefix}{condition.reason}{'' if since is None else f' for {span((now - since).total_seconds())}'}"


def _pods(report: StatusReport, *, limit: int, width: int | None, color: bool) -> Iterator[str]:
    pods, now = report.pods, report.settings.now
    if not pods:
        yield "no pod is to be evicted"
        return
    shown = pods[:limit] if limit else pods
    headers = ["POD", "NODE", "DUE", "STATE", "SINCE", "WAITS FOR"]
    rows = [_pod_row(each, now) for each in shown]
    if len(report.lines) > 1:
        headers.insert(1, "TAINTED BY")
        for cells, each in zip(rows, shown, strict=True):
            cells.insert(1, ",".join([*each.rules, *each.drivers]))
    _fit(headers, rows, width, ("NODE", "SINCE", "DUE"))
    yield from table(rows, headers=headers, width=width, color=color)
    if len(pods) > len(shown):
        yield f"and {len(pods) - len(shown)} more; --limit 0 shows all"


def _fit(headers: list[str], rows: list[list[str]], width: int | None, spared: Iterable[str]) -> None:
    """Drop columns in turn until there is room for the last one on a terminal of this width."""
    for name in spared:
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        if width is None or sum(widths[:-1]) + 3 * len(widths) + min(widths[-1], _LAST_LEAST) <= width:
            return
        at = headers.index(name)
        for cells in (headers, *rows):
            del cells[at]


def _pod_row(each: PodStatus, now: datetime) -> list[str]:
    when = "-"
    if each.due is not None:
        seconds = (each.due - now).total_seconds()
        when = f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"
    since = "-" if each.since is None else span((now - each.since).total_seconds())
    state = WORDS.get(each.state, each.state.value)
    return [f"{each.namespace}/{each.name}", each.node, when, state, since, each.waits_for.message]


def span(seconds: float) -> str:
    """Return a time as kubectl shows ages: `45s`, `90s`, `5m`, `90m`, `3h`; never negative."""
    whole = max(int(seconds), 0)
    for size, unit in _UNITS:
        if whole >= _ENOUGH * size or (whole and whole % size == 0):
            return f"{whole // size}{unit}"
    return f"{whole}s"
