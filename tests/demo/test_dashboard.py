"""The SVG of the dashboard asks the dashboard's queries and shows the answers."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from tests.demo.dashboard import DASHBOARD, GRAPHS, STATS, Panel, Series, drawn, legend_of, number, query_of, tone

_SVG = "{http://www.w3.org/2000/svg}"
_STEPS: Final[list[dict[str, Any]]] = [
    {"color": "red", "value": None},
    {"color": "orange", "value": 1},
    {"color": "green", "value": 2},
]


def _picture(*series: Series) -> ET.Element:
    stats = [Panel("Replicas", "short", _STEPS, [Series("", [(0, 1), (1, 2)])])]
    return ET.fromstring(drawn(stats, [Panel("Reviews", "reqps", (), series)], 10))


def _texts(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{_SVG}text")]


def test_every_panel_of_the_picture_is_in_the_dashboard_with_its_kind() -> None:
    kinds = {panel["title"]: panel["type"] for panel in json.loads(DASHBOARD.read_text())["panels"]}
    assert {kinds[title] for title in STATS} == {"stat"}
    assert {kinds[title] for title in GRAPHS} == {"timeseries"}


def test_a_stat_with_a_legend_shows_that() -> None:
    """The policy's hash."""
    policy = Panel("Policy", "short", _STEPS, [Series("3f2a", [(0, 1)])])
    assert "3f2a" in _texts(ET.fromstring(drawn([policy], [], 10)))


def test_no_variable_is_left_in_a_query_that_is_asked() -> None:
    panels = {panel["title"]: panel for panel in json.loads(DASHBOARD.read_text())["panels"]}
    asked = [query_of(target["expr"], 60) for title in (*STATS, *GRAPHS) for target in panels[title]["targets"]]
    assert not [query for query in asked if "$" in query]
    assert any("[4s]" in query for query in asked)


def test_a_legend_shows_the_labels_of_its_series() -> None:
    assert legend_of("{{resource}} {{code}}", {"resource": "resourceclaims", "code": "403"}) == "resourceclaims 403"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0042, "s", "4.2 ms"),
        (86400.0, "s", "1 d"),
        (0.0, "s", "0 s"),
        (1.25, "reqps", "1.2 req/s"),
        (3.0, "short", "3"),
        (math.nan, "short", "no data"),
    ],
)
def test_a_figure_has_the_unit_of_its_panel(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


def test_a_figure_has_the_colour_of_the_highest_threshold_that_it_reaches() -> None:
    assert len({tone(0, _STEPS), tone(1, _STEPS), tone(2, _STEPS)}) == 3
    assert tone(1.5, _STEPS) == tone(1, _STEPS)


def test_a_figure_is_the_newest_value() -> None:
    assert "2" in _texts(_picture())


def test_a_line_has_a_gap_where_there_was_no_value() -> None:
    root = _picture(Series("a", [(0, 1), (1, 1), (2, math.nan), (3, 1), (4, 1)]))
    assert len(list(root.iter(f"{_SVG}polyline"))) == 2


def test_lines_stay_in_their_panel_and_the_highest_value_is_at_the_top() -> None:
    root = _picture(Series("a", [(0, 0), (5, 8), (10, 4)]))
    [line] = root.iter(f"{_SVG}polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    assert xs == sorted(xs)
    assert min(ys) == ys[1]
    assert ys[2] == pytest.approx((ys[0] + ys[1]) / 2)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    assert all(0 < x < width and 0 < y < height for x, y in points)


def test_series_that_were_zero_all_the_time_are_left_out_beside_others() -> None:
    assert "quiet" not in _texts(_picture(Series("busy", [(0, 1)]), Series("quiet", [(0, 0)])))
    assert "quiet" in _texts(_picture(Series("quiet", [(0, 0)])))


def test_a_panel_without_an_answer_says_so() -> None:
    assert "no data" in _texts(_picture())


def test_many_series_are_counted_and_not_all_named() -> None:
    texts = _texts(_picture(*(Series(f"series-{index}", [(0, 1)]) for index in range(9))))
    assert len([text for text in texts if re.fullmatch(r"series-\d", text)]) == 6
    assert "and 3 more" in texts
