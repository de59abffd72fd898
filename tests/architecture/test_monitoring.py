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

from tests.golden.surface import metrics_text
from webhook.eviction.modes import Mode

ROOT: Final = Path(__file__).parents[2]
MONITORING: Final = ROOT / "manifests" / "components" / "monitoring"
ALERTS: Final = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    for rule in group["rules"]
]
DASHBOARD: Final = json.loads((MONITORING / "dashboard.json").read_text())
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RUNBOOKS: Final = next(
    literal.removeprefix("base=")
    for each in yaml.safe_load((MONITORING / "kustomization.yaml").read_text())["configMapGenerator"]
    for literal in each.get("literals", ())
)
PAGE: Final = (ROOT / "docs" / "runbooks.md").read_text()
PREFIX: Final = "device_taint_webhook_"
_ASKED: Final = re.compile(r"\b(?:device_taint_webhook|apiserver)_\w+")
_OURS: Final = re.compile(r"\bdevice_taint_webhook_\w+")

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


def _series() -> set[str]:
    """Every series that `serve`, `evict` or `patch` can have, as Prometheus names it."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", metrics_text(Mode.OBSERVE), re.MULTILINE):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


@every_alert
def test_alert_asks_for_series_that_there_are(alert: dict[str, Any]) -> None:
    assert set(_OURS.findall(alert["expr"])) <= _series()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_asks_for_series_that_there_are(panel: dict[str, Any]) -> None:
    asked = {name for target in panel["targets"] for name in _OURS.findall(target["expr"])}
    assert asked <= _series()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_shows_the_cluster_and_the_namespace_that_are_chosen(panel: dict[str, Any]) -> None:
    """L15: series of API servers have another namespace than ours, or none."""
    for target in panel["targets"]:
        series = re.findall(r"\b(?:device_taint_webhook|process|apiserver)_\w+(\{[^}]*\})?", target["expr"])
        ours = len(re.findall(r"\b(?:device_taint_webhook|process)_\w+", target["expr"]))
        assert series
        assert all('cluster=~"$cluster"' in labels for labels in series)
        assert sum('namespace=~"$namespace", job=~"$job"' in labels for labels in series) == ours
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource", "cluster", "namespace", "job"]


@every_alert
def test_panels_show_all_that_an_alert_asks_for(alert: dict[str, Any]) -> None:
    """L18: who is paged looks at the dashboard first."""
    shown = {name for panel in PANELS for target in panel["targets"] for name in _ASKED.findall(target["expr"])}
    assert set(_ASKED.findall(alert["expr"])) - shown == set()


@every_alert
def test_alert_is_complete(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"{RUNBOOKS}#{alert['alert'].lower()}"


def test_one_line_of_the_component_says_where_runbooks_are() -> None:
    """M14: it is what every link begins with, and what kustomize puts before the # of each."""
    component = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    [replacement] = component["replacements"]
    assert RUNBOOKS.startswith("https://")
    assert RUNBOOKS.endswith("/docs/runbooks.md")
    [target] = replacement["targets"]
    assert target["fieldPaths"] == ["spec.groups.*.rules.*.annotations.runbook_url"]
    assert target["options"] == {"delimiter": "#", "index": 0}
    [generator] = [each for each in component["configMapGenerator"] if each["name"] == replacement["source"]["name"]]
    assert generator["options"]["annotations"] == {"config.kubernetes.io/local-config": "true"}, "it is not applied"


def test_runbook_has_every_alert_and_no_other() -> None:
    assert re.findall(r"^### (DeviceTaintWebhook\w+)$", PAGE, re.MULTILINE) == [alert["alert"] for alert in ALERTS]


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
@pytest.mark.whole
def test_alerts_ring_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    """Prometheus' own promtool says so; where it is missing this is skipped. Short-lived certificates: M17."""
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
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test() -> None:
    tested = set(re.findall(r'alertname="(\w+)"', (MONITORING / "alerts_test.yaml").read_text()))
    assert tested == {alert["alert"] for alert in ALERTS}


def test_alerts_are_few_and_those_that_page_are_fewer() -> None:
    severities = [alert["labels"]["severity"] for alert in ALERTS]
    assert len(severities) <= 25
    assert severities.count("critical") <= 5


@pytest.mark.parametrize(
    "name", ["there are no series at all", "one event of every kind that is over", "the first failure of every kind"]
)
def test_case_lists_every_alert(name: str) -> None:
    """H1, H4: a sum over nothing is nothing, a window outlasts its event, a counter may be born with a value."""
    cases = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    [case] = [case for case in cases if case["name"] == name]
    silent = {each["alertname"] for each in case.get("alert_rule_test", ()) if each["exp_alerts"] == []}
    ringing = re.findall(r'alertname="(\w+)"', str(case["promql_expr_test"]))
    assert silent.union(ringing) == {alert["alert"] for alert in ALERTS}


def test_page_begins_with_the_command_that_disables_the_webhook() -> None:
    first = PAGE.partition("```\n")[2].partition("\n```")[0]
    assert first.startswith("kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration ")
    assert PAGE.index(first) < 200


def test_page_names_every_metric_and_no_other() -> None:
    """The endpoint describes them."""
    exposed = re.findall(r"^# TYPE (\S+) \w+$", metrics_text(Mode.OBSERVE), re.MULTILINE)
    named = re.findall(r"`(\w+)`", _section("Metrics").partition("\n- ")[2].partition("\n\n")[0])
    assert sorted(named) == sorted(name.removeprefix(PREFIX) for name in exposed)


def test_page_names_every_check_of_doctor_and_no_other() -> None:
    code = "\n".join(file.read_text() for file in (ROOT / "webhook" / "commands" / "doctor").glob("*.py"))
    checks = {name.strip() for name in re.findall(r'(?:\bCheck\(\s*|\bpassed\(|\bname = )f?"([a-z ]+)', code)}
    rows = re.findall(r"^\| (`.+?) \|", _section("Doctor"), re.MULTILINE)
    assert set(re.findall(r"`([a-z ]+)`", " ".join(rows))) == checks - {"probe author policy"}


def _section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
