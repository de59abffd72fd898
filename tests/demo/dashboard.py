"""Panels of the shipped dashboard as an SVG, with what the demo made of them:  python -m tests.demo.dashboard FILE

Plays the demo against a real control plane while a real Prometheus scrapes `serve` and `evict`, asks that Prometheus
the dashboard's own queries, and draws the answers. Grafana draws them in its own way; queries, titles, legends and
figures are the same. Exit codes as for the demo; 2 without a control plane or without `prometheus` on PATH.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

import yaml

from tests.controlplane import assets
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.processes import NotReadyError, Process, free_port, wait_until
from tests.controlplane.webhook_process import ROOT
from tests.demo import cluster
from tests.demo.telling import StoryError
from tests.demo.terminal import Terminal

DASHBOARD: Final = ROOT / "manifests" / "components" / "monitoring" / "dashboard.json"
STATS: Final = (
    "Replicas that are ready",
    "Certificate ends in",
    "Policy in use",
    "Authors are proved",
    "Impact is known",
    "Leader of evict",
)
GRAPHS: Final = (
    "Reviews by resource and code",
    "Time to answer",
    "Findings that refuse, or would",
    "Objects in the inventory",
    "Pods that wait",
    "Evictions",
)
"""In this order. The others need metrics of API servers, or show nothing while all is well."""
SCRAPE_SECONDS: Final = 1
_RATE_SECONDS: Final = 4 * SCRAPE_SECONDS  # what Grafana makes of $__rate_interval
_PALETTE: Final = ("#1f6feb", "#bf8700", "#1a7f37", "#cf222e", "#8250df", "#0a7b83", "#bc4c00", "#6e7781")
_TONES: Final = {"red": "#cf222e", "orange": "#bc4c00", "green": "#1a7f37"}
_WIDTH: Final = 1000
_GAP: Final = 10
_STAT_HEIGHT: Final = 84
_GRAPH_HEIGHT: Final = 228
_LEGEND_MOST: Final = 6
_CHARACTER: Final = 6.7
_STYLE: Final = (
    "text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#1f2328}.title{font-weight:bold;font-size:11px}"
    ".value{font-size:26px;text-anchor:middle}.axis{fill:#59636e;font-size:11px}.end{text-anchor:end}"
    "polyline{fill:none;stroke-width:1.8}"
)


class Series(NamedTuple):
    """One line of a graph: its legend, and (seconds since the start, value); NaN where there is none."""

    legend: str
    points: Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """A panel and what Prometheus answered."""

    title: str
    unit: str
    steps: Sequence[Mapping[str, Any]]
    """Grafana's thresholds."""
    series: Sequence[Series]


def query_of(expression: str, range_seconds: float) -> str:
    """A query of the dashboard with its variables filled in: every cluster, namespace and job."""
    values = {
        "$cluster": ".*",
        "$namespace": ".*",
        "$job": ".*",
        "$__rate_interval": f"{_RATE_SECONDS}s",
        "$__range": f"{math.ceil(range_seconds)}s",
    }
    return re.sub(r"\$\w+", lambda found: values[found[0]], expression)


def legend_of(template: str, labels: Mapping[str, str]) -> str:
    """`{{label}}` is the label's value."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)


def number(value: float, unit: str) -> str:
    """A figure as a person reads it, in the dashboard's unit."""
    if math.isnan(value):
        return "no data"
    if unit == "s":
        for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return "0 s"
    text = f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2g}"
    return f"{text} {({'reqps': 'req/s', 'ops': 'ops/s'}).get(unit, '')}".strip()


def tone(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    """The colour of the last threshold that the value reaches."""
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return _TONES.get(reached[-1], "#1f2328") if reached else "#1f2328"


def drawn(stats: Sequence[Panel], graphs: Sequence[Panel], seconds: float) -> str:
    """The panels as an SVG: figures in one row, graphs in rows of two, all from 0 to `seconds`."""
    parts: list[str] = []
    wide = (_WIDTH - _GAP) / len(stats)
    for index, panel in enumerate(stats):
        parts += _stat(panel, _GAP + index * wide, _GAP, wide - _GAP)
    half = (_WIDTH - _GAP) / 2
    for index, panel in enumerate(graphs):
        y = 2 * _GAP + _STAT_HEIGHT + (index // 2) * (_GRAPH_HEIGHT + _GAP)
        parts += _graph(panel, _GAP + (index % 2) * half, y, half - _GAP, seconds)
    height = 2 * _GAP + _STAT_HEIGHT + -(-len(graphs) // 2) * (_GRAPH_HEIGHT + _GAP)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">'
    background = f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#f6f8fa"/>'
    title = "<title>Panels of the dashboard during the demo</title>"
    return "\n".join([opening, title, f"<style>{_STYLE}</style>", background, *parts, "</svg>\n"])


def _frame(title: str, x: float, y: float, width: float, height: float) -> Iterator[str]:
    box = f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="6"'
    yield f'{box} fill="#fff" stroke="#d1d9e0"/>'
    yield f'<text class="title" x="{x + 10:.0f}" y="{y + 20:.0f}">{escape(title)}</text>'


def _stat(panel: Panel, x: float, y: float, width: float) -> Iterator[str]:
    yield from _frame(panel.title, x, y, width, _STAT_HEIGHT)
    values = [value for series in panel.series for _, value in series.points if not math.isnan(value)]
    value = values[-1] if values else math.nan
    fill = tone(value, panel.steps)
    named = panel.series[-1].legend if panel.series else ""
    text, size = (escape(named), ";font-size:16px") if named else (number(value, panel.unit), "")
    yield f'<text class="value" x="{x + width / 2:.0f}" y="{y + 60:.0f}" style="fill:{fill}{size}">{text}</text>'


def _graph(panel: Panel, x: float, y: float, width: float, seconds: float) -> Iterator[str]:
    yield from _frame(panel.title, x, y, width, _GRAPH_HEIGHT)
    left, right, top, bottom = x + 70, x + width - 14, y + 34, y + 150
    shown = _shown(panel.series)
    values = [value for each in shown for _, value in each.points if not math.isnan(value)]
    most = max(values, default=0.0) or 1.0
    for value, at in ((0.0, bottom), (most / 2, (top + bottom) / 2), (most, top)):
        yield f'<path d="M{left:.0f} {at:.0f}H{right:.0f}" stroke="#d1d9e0"/>'
        yield f'<text class="axis end" x="{left - 6:.0f}" y="{at + 4:.0f}">{number(value, panel.unit)}</text>'
    yield f'<text class="axis" x="{left:.0f}" y="{bottom + 15:.0f}">0 s</text>'
    yield f'<text class="axis end" x="{right:.0f}" y="{bottom + 15:.0f}">{seconds:.0f} s</text>'
    for index, each in enumerate(shown):
        for run in _runs(each.points):
            places = [(left + (right - left) * t / seconds, bottom - (bottom - top) * v / most) for t, v in run]
            line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
            yield f'<polyline stroke="{_PALETTE[index % len(_PALETTE)]}" points="{line}"/>'
    yield from _legend([each.legend for each in shown] or ["no data"], x, bottom + 34, right)


def _shown(series: Sequence[Series]) -> Sequence[Series]:
    """Without series that were zero all the time, unless there are no others."""
    known = [each for each in series if any(not math.isnan(value) for _, value in each.points)]
    return [each for each in known if any(value > 0 for _, value in each.points)] or known


def _runs(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Points without a gap between them."""
    run: list[tuple[float, float]] = []
    for point in [*points, (math.nan, math.nan)]:
        if not math.isnan(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []


def _legend(names: Sequence[str], x: float, y: float, right: float) -> Iterator[str]:
    more = len(names) - _LEGEND_MOST
    at = x + 10
    for index, name in enumerate([*names[:_LEGEND_MOST], *([f"and {more} more"] if more > 0 else [])]):
        width = 24 + _CHARACTER * len(name)
        if at + width > right and at > x + 10:
            at, y = x + 10, y + 17
        fill = _PALETTE[index % len(_PALETTE)] if index < _LEGEND_MOST and name != "no data" else "#fff"
        yield f'<rect x="{at:.0f}" y="{y - 6:.0f}" width="12" height="4" fill="{fill}"/>'
        yield f'<text x="{at + 16:.0f}" y="{y:.0f}">{escape(name)}</text>'
        at += width + 8


class _Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def asked(self, path: str, **parameters: str | float) -> Any:
        """The `data` of an answer. Raises: OSError."""
        with urllib.request.urlopen(f"{self._url}{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def up(self) -> bool:
        """Whether every target was scraped."""
        with contextlib.suppress(OSError):
            found = self.asked("/api/v1/targets")["activeTargets"]
            return bool(found) and all(each["health"] == "up" for each in found)
        return False

    def panel(self, panel: Mapping[str, Any], begin: float, end: float) -> Panel:
        """The panel with its queries answered for that time."""
        series = []
        for target in panel["targets"]:
            query = query_of(target["expr"], end - begin)
            found = self.asked("/api/v1/query_range", query=query, start=begin, end=end, step=SCRAPE_SECONDS)["result"]
            for each in found:
                points = [(float(at) - begin, float(value)) for at, value in each["values"]]
                series.append(Series(legend_of(target["legendFormat"], each["metric"]), points))
        defaults = panel["fieldConfig"]["defaults"]
        return Panel(panel["title"], defaults["unit"], defaults.get("thresholds", {}).get("steps", ()), series)


@contextlib.contextmanager
def _prometheus(program: str, targets: Mapping[str, str]) -> Iterator[_Prometheus]:
    """Scrapes these, by component. Raises: NotReadyError."""
    labels = {"cluster": "demo", "namespace": "device-taint-webhook"}
    static = [
        {"targets": [address], "labels": {**labels, "component": component, "pod": component}}
        for component, address in targets.items()
    ]
    job = {"job_name": "device-taint-webhook", "scrape_interval": f"{SCRAPE_SECONDS}s", "static_configs": static}
    listen = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prometheus.yml")
        file.write_text(yaml.safe_dump({"scrape_configs": [job]}))
        command = [
            program,
            f"--config.file={file}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={listen}",
        ]
        with Process("prometheus", command, Path(folder, "log")):
            prometheus = _Prometheus(f"http://{listen}")
            wait_until(prometheus.up, "Prometheus scrapes both workloads")
            yield prometheus


def _now() -> float:
    return datetime.now(UTC).timestamp()  # noqa: TID251 -- Prometheus stores wall-clock times


def main(file: str) -> int:
    """Plays, asks and draws; see the module."""
    program = shutil.which("prometheus")
    if program is None:
        sys.stderr.write("dashboard: prometheus is not on PATH\n")
        return 2
    terminal = Terminal()
    try:
        with (
            cluster.started(assets.find(kwok=True), terminal) as stage,
            _prometheus(program, stage.metrics_addresses) as prometheus,
        ):
            begin = _now()
            cluster.tell(stage, terminal, whole=True)
            end = _now()
            panels = {each["title"]: each for each in json.loads(DASHBOARD.read_text())["panels"]}
            stats = [prometheus.panel(panels[title], begin, end) for title in STATS]
            graphs = [prometheus.panel(panels[title], begin, end) for title in GRAPHS]
    except AssetsUnavailableError as error:
        sys.stderr.write(f"dashboard: {error}\n")
        return 2
    except (StoryError, NotReadyError) as error:
        sys.stderr.write(f"dashboard: {error}\n")
        return 1
    Path(file).write_text(drawn(stats, graphs, end - begin))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
