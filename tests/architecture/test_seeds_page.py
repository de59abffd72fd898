"""docs/development/seeds.md: each requirement of each source document has its row, and the names in it are true."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.apiserver.eviction.table import SCENARIOS as PARITY
from tests.apiserver.eviction.test_manners import NAMES as PLAYED
from tests.apiserver.test_cases import of_no_release, on_this_release, told_by_us
from tests.cases.corpus import cases
from tests.unit.test_semantics import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.cases.corpus import Case

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "development" / "seeds.md").read_text()
REQUIREMENTS: Final = {
    "KEP-5055, as released": {"V": 5, "T": 14, "L": 17, "R": 15, "S": 8, "D": 9, "M": 5, "K": 11, "E": 48, "G": 12},
    "KEP-5055, the 1.35-era revision": {"N": 26},
    "KEP-5027, and the first revision of KEP-5055": {"P": 24},
    "Taints and tolerations of nodes": {"A": 15},
}
"""By document: how many requirements there are of each letter, counted from 1."""
REAL: Final = ("apiserver/", "controlplane/")
"""Folders of tests on a real control plane."""
SCENARIOS: Final = "apiserver/eviction/buckets.py::"
ONLY_IN_FILES: Final = {
    "N-1": "released servers have no list of taints beside the devices",
    "N-2": "so there is nothing that could exclude devices",
}
"""Of designs that were never released, what cannot be seen in a cluster, and why."""
CASES_OF: Final[Mapping[str, Callable[[Case], bool]]] = {
    "apiserver/test_cases.py::test_api_server_says_of_a_case_what_its_header_says": on_this_release,
    "apiserver/test_cases.py::test_api_server_drops_fields_that_were_never_released": of_no_release,
    "apiserver/test_cases.py::test_users_are_told_what_we_decide_otherwise_or_warn_of": told_by_us,
}
"""Tests of the corpus on a real API server, by the cases that each takes."""
PARITY_TEST: Final = "apiserver/eviction/test_parity.py::test_ours_does_what_the_scenario_says"
"""What the page calls `parity`."""
NOT_OURS: Final = "not ours: "
_ROW: Final = re.compile(r"^\|([A-Z]-[0-9]+)\|([^|]+)\|([^|]+)\|([^|]*)\|$", re.MULTILINE)


class Requirement(NamedTuple):
    """A row. `tests` are the names in its last cell."""

    id: str
    text: str
    status: str
    tests: tuple[str, ...]


def rows_in(text: str) -> list[Requirement]:
    return [Requirement(id_, said, status, _names(tests)) for id_, said, status, tests in _ROW.findall(text)]


def _names(cell: str) -> tuple[str, ...]:
    return tuple(PARITY_TEST if name == "parity" else name for name in re.findall(r"`([^`]+)`", cell))


def _sections() -> dict[str, str]:
    _, *parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part for part in parts}


ROWS: Final = rows_in(PAGE)
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)


@pytest.mark.parametrize("document", REQUIREMENTS)
def test_no_requirement_of_a_document_is_missing(document: str) -> None:
    expected = [f"{letter}-{n}" for letter, count in REQUIREMENTS[document].items() for n in range(1, count + 1)]
    found = [row.id for row in rows_in(_sections()[document])]
    assert sorted(found) == sorted(expected)
    assert len(found) == len(set(found))


def test_documents_are_those_five_and_every_line_of_a_table_is_a_row() -> None:
    assert set(_sections()) == set(REQUIREMENTS)
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("|id|", "|---|"))]
    assert len(lines) == len(ROWS) == sum(sum(counts.values()) for counts in REQUIREMENTS.values())


@each_row
def test_tests_of_a_row_exist(row: Requirement) -> None:
    missing = []
    for name in row.tests:
        file, _, test = name.partition("::")
        known = _tests_in(file) if test else ({""} if (ROOT / "tests" / file).is_file() else set())
        if test not in known:
            missing.append(name)
    assert missing == []


@cache
def _tests_in(file: str) -> set[str]:
    path = ROOT / "tests" / file
    if not path.is_file():
        return set()
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("row", [row for row in ROWS if row.id[0] in "NP"], ids=lambda row: row.id)
def test_what_was_never_released_is_shown_on_a_real_control_plane_or_cannot_be(row: Requirement) -> None:
    real = [name for name in row.tests if name.startswith(REAL)]
    assert bool(real) != (row.id in ONLY_IN_FILES)
    assert row.status != "met" or real


@each_row
def test_cases_and_scenarios_of_a_row_are_run_where_it_says(row: Requirement) -> None:
    known = {f"cases/{case.path}.yaml": case for case in cases()}
    cited = [known[name] for name in row.tests if name in known]
    for name in row.tests:
        if name in CASES_OF:
            assert any(CASES_OF[name](case) for case in cited), f"{name} takes none of its cases"
        if name.startswith(SCENARIOS):
            assert name.removeprefix(SCENARIOS) in PLAYED


@each_row
def test_what_is_met_is_shown_and_what_is_not_says_why(row: Requirement) -> None:
    assert row.text.strip()
    assert re.fullmatch(rf"{NOT_OURS}\S.*|(?!not ours)\S.*", row.status)
    if not row.status.startswith(NOT_OURS):
        assert row.tests, "nothing shows it"


@each_row
def test_a_fact_that_the_code_names_is_ours(row: Requirement) -> None:
    if row.id in listed():
        assert not row.status.startswith(NOT_OURS)


def test_facts_of_the_code_have_rows() -> None:
    assert set(listed()) - {row.id for row in ROWS} == set()


def test_row_that_names_the_scenarios_is_shown_by_one() -> None:
    shown = {id_ for scenario in PARITY for id_ in scenario.shows.split()}
    citing = [row for row in ROWS if PARITY_TEST in row.tests]
    assert len(citing) > 30
    assert [row.id for row in citing if not shown.intersection(re.findall(r"E-\d+", f"{row.id} {row.status}"))] == []
    assert [row.id for row in citing if row.id[0] == "E" and row.id not in shown] == []
