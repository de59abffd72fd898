"""Alerts and dashboard: each asks for series that there are, and each alert has its place in the runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from webhook.telemetry.eviction import EvictionMetrics
from webhook.telemetry.metrics import Metrics

ROOT: Final = Path(__file__).parents[2]
MONITORING: Final = ROOT / "manifests" / "components" / "monitoring"
ALERTS: Final = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    for rule in group["rules"]
]
DASHBOARD: Final = json.loads((MONITORING / "dashboard.json").read_text())
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
_OURS: Final = re.compile(r"\bdevice_taint_webhook_\w+")

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


def _series() -> set[str]:
    """Every series that `serve` or `evict` can have, as Prometheus names it."""
    metrics = Metrics(version="0", resources=())
    metrics.watch_inventory(lambda: True, {"resourceslices": lambda: 0})
    eviction = EvictionMetrics(metrics.registry, in_tree_names=False)
    composed = (ROOT / "webhook" / "commands" / "evict.py").read_text()
    eviction.watch({name: lambda: 0.0 for name in re.findall(r'"(pods_\w+)": lambda', composed)})
    # As text: families without a sample yet have their names there too.
    exposition = metrics.exposition("")[0].decode()
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", exposition, re.MULTILINE):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


@every_alert
def test_alert_asks_for_series_that_there_are(alert: dict[str, Any]) -> None:
    assert set(_OURS.findall(alert["expr"])) <= _series()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_asks_for_series_that_there_are(panel: dict[str, Any]) -> None:
    asked = {name for target in panel["targets"] for name in _OURS.findall(target["expr"])}
    assert asked <= _series()


@every_alert
def test_alert_is_complete(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    assert alert["annotations"]["runbook"] == f"docs/operations.md#{alert['alert'].lower()}"


def test_runbook_has_every_alert_and_no_other() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert re.findall(r"^### (DeviceTaintWebhook\w+)$", page, re.MULTILINE) == [alert["alert"] for alert in ALERTS]


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.slow
def test_alerts_ring_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    """Prometheus' own promtool says so; where it is missing this is skipped."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (Debian: apt-get install prometheus)")
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]
    (tmp_path / "alerts.json").write_text(json.dumps(rules))
    shutil.copy(MONITORING / "alerts_test.yaml", tmp_path)
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "alerts_test.yaml")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test() -> None:
    tested = set(re.findall(r'alertname="(\w+)"', (MONITORING / "alerts_test.yaml").read_text()))
    assert tested == {alert["alert"] for alert in ALERTS}
