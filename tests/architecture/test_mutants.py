"""What `make mutants` changes and what it runs, without running it: that takes an hour."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.mutants.__main__ import ACCEPTED, accepted_in
from tests.mutants.forks import Forks
from tests.mutants.places import OPERATORS, ROOMS, diff_of, functions_of, sample_of
from tests.mutants.reach import MeasuredTest, Reach
from tests.mutants.trials import MORE, PROPERTIES, laws_of, unit_tests_of

ROOT = Path(__file__).parents[2]
MODULE = '''\
"""A module."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from x import Y

LIMIT: int | None = 7


def over(number: int | None, *, strict: bool) -> bool | None:
    """Whether it is."""
    return strict and number is not None and number > LIMIT


@dataclass(frozen=True)
class Thing:
    """A thing."""

    name: str | None = None
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for room in ROOMS:
        (tmp_path / "webhook" / room).mkdir(parents=True)
    (tmp_path / "webhook/api/module.py").write_text(MODULE)
    return tmp_path


def changes(tree: Path, seed: int) -> set[tuple[str, ...]]:
    mutants, _ = sample_of(tree, 100, random.Random(seed))
    return {tuple(line.strip() for line in diff_of(mutant)) for mutant in mutants}


def test_only_what_runs_is_changed(tree: Path) -> None:
    found = set().union(*(changes(tree, seed) for seed in range(20)))
    limit, line = "-LIMIT: int | None = 7", "-    return strict and number is not None and number > LIMIT"
    assert {(old, new.replace(" ", "")) for old, new in found if old == limit} == {
        (limit, "+LIMIT:int|None=8"),
        (limit, "+LIMIT:int|None=6"),
    }
    assert {new.strip("+ ") for old, new in found if old == line} >= {
        "return strict or number is not None and number > LIMIT",
        "return strict and number is None and number > LIMIT",
        "return strict and number is not None and number >= LIMIT",
    }
    assert {old for old, _ in found} == {limit, line}, "neither types nor frozen classes"


def test_a_seed_gives_the_same_sample(tree: Path) -> None:
    one, other = (sample_of(tree, 3, random.Random(5)) for _ in range(2))
    assert one == other
    assert {mutant.room for mutant in one[0]} == {"api"}


def test_each_operator_is_named_once() -> None:
    assert len(set(OPERATORS)) == len(OPERATORS)


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_tests(room: str) -> None:
    assert (ROOT / "webhook" / room / "__init__.py").is_file()
    assert PROPERTIES[room]
    assert MORE[room]
    assert [test for test in (*unit_tests_of(room), *laws_of(room)) if not (ROOT / test).exists()] == []


def test_accepted_mutants_are_few_and_of_functions_that_are_there() -> None:
    accepted = accepted_in(ACCEPTED)
    assert all(accepted.values())
    functions = {function for function, _ in accepted}
    assert len(functions) <= 50, "each may hide a change that a test should notice"
    for path, _, name in (each.partition(": ") for each in functions):
        assert name in {"<module>", *functions_of((ROOT / path).read_text())}, f"{path}: {name}"
    kinds = {operator.removeprefix("core/").partition("_")[0] for operator in OPERATORS}
    assert {kind for _, kind in accepted} <= kinds


def test_a_mutant_says_what_it_changes_in_which_function(tree: Path) -> None:
    mutants = [mutant for seed in range(20) for mutant in sample_of(tree, 100, random.Random(seed))[0]]
    assert {(mutant.function, mutant.kind) for mutant in mutants} >= {
        ("webhook/api/module.py: <module>", "NumberReplacer"),
        ("webhook/api/module.py: over", "ReplaceAndWithOr"),
        ("webhook/api/module.py: over", "ReplaceComparisonOperator"),
    }


def test_exceptions_that_cannot_be_replaced_are_passed_over(tree: Path) -> None:
    text = "try:\n    read()\nexcept (json.JSONDecodeError, ValueError):\n    give_up()\n"
    (tree / "webhook/api/module.py").write_text(text)
    replaced = [mutant.added for seed in range(10) for mutant in sample_of(tree, 100, random.Random(seed))[0]]
    assert replaced
    assert all("json.JSONDecodeError" in line for added in replaced for line in added)


REACHED = """\
MOST = 3


def first(number: int) -> int:
    if (
        number > MOST
    ):
        return min(
            number,
            7,
        )
    return number
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(1, ["module", "other"], id="at import no test is seen, so all that are in the module count"),
        pytest.param(6, ["module", "other"], id="the head of a statement with a body, however many lines it has"),
        pytest.param(9, ["other"], id="a statement of several lines"),
        pytest.param(12, ["module"], id="a statement of one line"),
    ],
)
def test_tests_of_a_line_are_those_that_run_its_statement(line: int, expected: list[str]) -> None:
    tests = {name: MeasuredTest(f"tests/unit/api/test_{name}.py::test_it", 0.1, 2) for name in ("other", "module")}
    other, module = (test.id for test in tests.values())
    reached = {5: (other, module), 8: (other,), 12: (module,)}
    reach = Reach({test.id: test for test in tests.values()}, {"webhook/api/module.py": reached})
    found = reach.tests_of("webhook/api/module.py", REACHED, line)
    assert found == [tests[name] for name in expected], "with the module of that name first"
    assert reach.tests_of("webhook/api/nowhere.py", REACHED, line) == []


@pytest.mark.slow
def test_tests_that_never_end_are_distinguished_from_tests_that_wait(tmp_path: Path) -> None:
    """By the processor time they take, which a busy machine does not change."""
    (tmp_path / "test_loops.py").write_text("def test_a():\n    while True:\n        pass\n")
    (tmp_path / "test_waits.py").write_text("import time\n\ndef test_a():\n    time.sleep(3.5)\n")
    (tmp_path / "test_fails.py").write_text("def test_a():\n    assert False\n")
    forks = Forks("import sys\n", tmp_path, os.environ)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            forks.run(["-q", "test_loops.py"], 1.0)
        assert forks.run(["-q", "test_waits.py"], 3.0)[0] == 0
        assert forks.run(["-q", "test_fails.py"], 30.0)[0] == 1
    finally:
        forks.close()
