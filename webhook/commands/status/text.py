"""Status as text: a table of rules and drivers, then one of pods, and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.meta import format_time
from webhook.commands.status.waits import PodState
from webhook.eviction.conditions import IN_TREE
from webhook.files.render import line, visible
from webhook.files.tables import table
from webhook.inventory.matching import Evictor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from webhook.api.rules import Condition
    from webhook.commands.status.report import StatusReport, TaintLine
    from webhook.commands.status.waits import PodStatus

_WORDS: Final = {PodState.NOT_DUE: "not due", PodState.PUT_OFF: "put off"}
_EVICTORS: Final = {Evictor.OURS: "worker", Evictor.IN_TREE: "in-tree"}
_RELEASED: Final = {"True": "its devices are released", "False": "its devices are not released"}
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))
_ENOUGH: Final = 2
"""From this many of a unit on, smaller units are left out."""
_LAST_LEAST: Final = 16
"""The columns of a terminal that the last column of a table needs, which is folded there."""
_LEGEND: Final = "WORKER SAYS and the pods evicted so far are from its conditions; the rest is computed here."


def as_text(report: StatusReport, *, limit: int, width: int | None = None, color: bool = False) -> str:
    """The whole report. The table of pods has at most `limit` rows, 0 for all; lines fit the width, if one is given."""
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


def _taint_row(row: TaintLine, now: datetime) -> list[str]:
    evict = ", evict" if row.rule is not None and row.rule.taint.effect != row.rule.effective_effect else ""
    effects = sorted({f"{each.key}:{each.effect}" for each in row.taints})
    return [
        row.name if row.rule is not None else f"{row.name} (slices)",
        _said(row, now),
        "-" if row.evicted is None else f"{row.evicted} of {row.evicted + row.pending}",
        _counts(row),
        "-" if row.next_due is None else f"in {span((row.next_due - now).total_seconds())}",
        f"{row.devices}, {row.allocated} allocated" + (", released" if _is_released(row) else ""),
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
