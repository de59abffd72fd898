"""What `status` found, as values.

The structure of the JSON and YAML is stable: while `version` is 1, fields may be added, but none is removed or
changes its meaning. What the worker says, in conditions, is under `reported`; what is computed here under `computed`.
docs/kubectl.md explains it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import format_time
from webhook.api.rules import EVICTED_PODS, evicted_pods
from webhook.commands.status.states import PodState
from webhook.commands.status.views import current, views_of
from webhook.eviction.conditions import IN_TREE, RELEASED
from webhook.files.render import line, visible
from webhook.files.tables import table
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.matching import Evictor
from webhook.inventory.scope import is_ours

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import datetime

    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.api.taints import DeviceTaint
    from webhook.commands.status.objects import StatusObjects
    from webhook.commands.status.states import PodStatus
    from webhook.commands.status.views import InTreeView, StatusSettings, WorkerView
    from webhook.files.report import Row

VERSION: Final = 1
_WORDS: Final = {PodState.NOT_DUE: "not due", PodState.PUT_OFF: "put off"}
_EVICTORS: Final = {Evictor.OURS: "worker", Evictor.IN_TREE: "in-tree"}
_RELEASED: Final = {"True": "its devices are released", "False": "its devices are not released"}
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))
_ENOUGH: Final = 2
"""From this many of a unit on, smaller units are left out."""
_LAST_LEAST: Final = 16
"""The columns of a terminal that the last column of a table needs, which is folded there."""
_COUNTED_IN: Final = {"devices": {"ResourceSlice"}, "allocated": {"ResourceClaim"}, "pending": {"ResourceClaim", "Pod"}}
"""The kinds without which a figure of a taint is unknown."""
_LEGEND: Final = "WORKER SAYS and the pods evicted so far are from its conditions; the rest is computed here."


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
    views: Sequence[WorkerView | InTreeView],
    pods: Sequence[PodStatus],
) -> TaintLine:
    impact = impact_of(objects.inventory, rule.selector, Taint.of_rule(rule, in_tree=False), settings.now)
    evictors = tuple(view.evictor for view in views if view.acts and is_ours(rule, view.scope))
    return TaintLine(
        rule.meta.name, rule, (rule.taint,), evictors, impact.devices, impact.allocated, tuple(sorted(pods, key=_order))
    )


def _driver_lines(
    objects: StatusObjects,
    views: Sequence[WorkerView | InTreeView],
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
            **worker_values(settings),
            "paused": None
            if pause is None or not paused
            else {"until": format_time(pause.until), "why": pause.why or None},
            "breakersTripped": sorted(report.tripped),
        },
        "missing": sorted(report.missing),
        "taints": [line_values(each, report.missing) for each in report.lines],
        "pods": [pod_values(each) for each in report.pods] if report.show_pods else None,
        "notes": list(report.notes),
        "findings": [finding for row in report.rows for finding in row.findings],
    }


def worker_values(settings: StatusSettings) -> dict[str, Any]:
    """What is known of the worker. `runs`: whether there is one; if not, the mode is observe, in which none evicts."""
    return {
        "mode": settings.mode.value,
        "modeGuessed": not settings.mode_said,
        "inTree": settings.in_tree.value,
        "runs": settings.worker,
    }


def line_values(line: TaintLine, missing: Collection[str]) -> dict[str, Any]:
    """A rule or driver: what is computed here, and what the worker reports. None where a kind is missing."""
    counts, rule = line.counts, line.rule
    unknown = {name for name, kinds in _COUNTED_IN.items() if not kinds.isdisjoint(missing)}
    return {
        "kind": "DeviceTaintRule" if rule is not None else "Driver",
        "name": line.name,
        "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in line.taints],
        "timeAdded": time_value(rule.taint.time_added) if rule is not None else None,
        "evict": rule is not None and rule.taint.effect != rule.effective_effect,
        "computed": {
            "evictors": [each.value for each in line.evictors],
            "devices": None if "devices" in unknown else line.devices,
            "allocated": None if "allocated" in unknown else line.allocated,
            "pods": None if "pending" in unknown else {state.value: counts[state] for state in PodState},
            "pending": None if "pending" in unknown else line.pending,
            "nextDue": time_value(line.next_due),
            "total": None if line.evicted is None or "pending" in unknown else line.evicted + line.pending,
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
        "since": time_value(condition.last_transition_time),
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
        "due": time_value(status.due),
        "since": time_value(status.since),
        "waitsFor": {
            "kind": waits_for.kind.value,
            "message": waits_for.message,
            "name": waits_for.name or None,
            "limit": waits_for.limit,
            "count": waits_for.count,
            "pods": list(waits_for.pods),
        },
    }


def time_value(time: datetime | None) -> str | None:
    """RFC 3339, or None."""
    return None if time is None else format_time(time)


def as_text(report: StatusReport, *, limit: int, width: int | None = None, color: bool = False) -> str:
    """The whole report. The table of pods has at most `limit` rows, 0 for all; lines fit the width, if one is given."""
    lines = [line(row, entry, color=color) for row in report.rows for entry in row.entries]
    lines.append(visible(_title(report)))
    if report.lines:
        rows = [_taint_row(each, report) for each in report.lines]
        headers = ["NAME", "WORKER SAYS", "EVICTED", "PODS", "NEXT DUE", "DEVICES", "BY", "TAINT"]
        _fit(headers, rows, width, ("DEVICES", "EVICTED", "NEXT DUE"))
        lines += ["", *table(rows, headers=headers, width=width, color=color), _LEGEND]
    else:
        lines += ["", "no DeviceTaintRule, and no NoExecute taint in slices"]
    if report.show_pods:
        said = [(each.name, each.said.message) for each in report.lines if each.said is not None]
        lines += [visible(f"{name}: the worker says: {message}") for name, message in said if message]
        lines += [visible(f"{each.name}: {_released(each.released)}") for each in report.lines if each.released]
        lines += ["", *_pods(report, limit=limit, width=width, color=color)]
    lines += [visible(f"note: {note}") for note in report.notes]
    return "\n".join(lines) + "\n"


def _title(report: StatusReport) -> str:
    settings = report.settings
    worker = f"worker in mode {settings.mode.value}" if settings.worker else "no eviction worker is known"
    if settings.worker and not settings.mode_said:
        worker += ", by the conditions of rules"
    where = report.server or report.source
    title = f"{where} at {format_time(settings.now)}: {worker}; in-tree controller {settings.in_tree.value}"
    pause = settings.policy.pause
    if pause is not None and settings.now < pause.until:
        title += f"; paused until {format_time(pause.until)}{f': {pause.why}' if pause.why else ''}"
    if report.tripped:
        title += f"; breaker tripped for {', '.join(sorted(report.tripped))}"
    return title


# --- rules and drivers --------------------------------------------------------------------------


def _taint_row(row: TaintLine, report: StatusReport) -> list[str]:
    now = report.settings.now
    devices, allocated, pods = (
        "?" if kinds & report.missing else str(value)
        for kinds, value in zip(_COUNTED_IN.values(), (row.devices, row.allocated, _counts(row)), strict=True)
    )
    evict = ", evict" if row.rule is not None and row.rule.taint.effect != row.rule.effective_effect else ""
    effects = sorted({f"{each.key}:{each.effect}" for each in row.taints})
    return [
        row.name if row.rule is not None else f"{row.name} (slices)",
        _said(row, now),
        "-" if row.evicted is None else f"{row.evicted} of {row.evicted + row.pending}",
        pods,
        "-" if row.next_due is None else f"in {span((row.next_due - now).total_seconds())}",
        f"{devices}, {allocated} allocated" + (", released" if _is_released(row) else ""),
        "+".join(_EVICTORS[each] for each in row.evictors) or "-",
        f"{', '.join(effects)}{evict}",
    ]


def _is_released(row: TaintLine) -> bool:
    return row.released is not None and row.released.status == "True"


def _released(condition: Condition) -> str:
    """Whether the devices are released, as the worker says."""
    word = _RELEASED.get(condition.status, "it is not known whether its devices are released")
    return f"{word}: {condition.message}"


def _said(row: TaintLine, now: datetime) -> str:
    """The worker's reason, or else the in-tree controller's, and since when."""
    condition = row.said
    prefix = ""
    if condition is None and row.rule is not None:
        condition = next((each for each in row.rule.conditions if each.type == IN_TREE), None)
        prefix = "in-tree: "
    if condition is None:
        return "-"
    since = condition.last_transition_time
    return f"{prefix}{condition.reason}{'' if since is None else f' for {span((now - since).total_seconds())}'}"


def _counts(row: TaintLine) -> str:
    counts = row.counts
    return ", ".join(f"{counts[state]} {_word(state)}" for state in PodState if counts[state]) or "none"


def _word(state: PodState) -> str:
    return _WORDS.get(state, state.value)


# --- pods ---------------------------------------------------------------------------------------


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
            cells.insert(1, _tainted_by(each))
    _fit(headers, rows, width, ("NODE", "SINCE", "DUE"))
    yield from table(rows, headers=headers, width=width, color=color)
    if len(pods) > len(shown):
        yield f"and {len(pods) - len(shown)} more; --limit 0 shows all"


def _fit(headers: list[str], rows: list[list[str]], width: int | None, spared: Iterable[str]) -> None:
    """Drops columns in turn until there is room for the last one on a terminal of this width."""
    for name in spared:
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        if width is None or sum(widths[:-1]) + 3 * len(widths) + min(widths[-1], _LAST_LEAST) <= width:
            return
        at = headers.index(name)
        for cells in (headers, *rows):
            del cells[at]


def _pod_row(status: PodStatus, now: datetime) -> list[str]:
    meta, due = status.pod.meta, status.due
    when = "-"
    if due is not None:
        seconds = (due - now).total_seconds()
        when = f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"
    since = "-" if status.since is None else span((now - status.since).total_seconds())
    return [
        f"{meta.namespace}/{meta.name}",
        status.pod.node_name,
        when,
        _word(status.state),
        since,
        status.waits_for.message,
    ]


def _tainted_by(status: PodStatus) -> str:
    reasons = status.eviction.reasons
    rules = sorted({reason.rule for reason in reasons if reason.rule})
    return ",".join([*rules, *sorted({reason.driver for reason in reasons if not reason.rule})])


def span(seconds: float) -> str:
    """A time as kubectl shows ages: `45s`, `90s`, `5m`, `90m`, `3h`; never negative."""
    whole = max(int(seconds), 0)
    for size, unit in _UNITS:
        if whole >= _ENOUGH * size or (whole and whole % size == 0):
            return f"{whole // size}{unit}"
    return f"{whole}s"
