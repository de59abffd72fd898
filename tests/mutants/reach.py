"""Which tests reach which lines of the product.

A mutant is noticed only by tests that run the changed line; beginning with them finds it out in seconds.
"""

from __future__ import annotations

import ast
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

_ROOM_OF_TESTS: Final = "tests/unit/"


class MeasuredTest(NamedTuple):
    """A test function: all its cases together. Seconds are those of the measurement, which is slower than the test."""

    id: str
    seconds: float
    lines: int
    """How many lines of the product it runs: the fewer, the more it says about each."""


class Reach:
    """What one run of the tests has reached."""

    def __init__(
        self,
        tests: Mapping[str, MeasuredTest],
        reached: Mapping[str, Mapping[int, tuple[str, ...]]],
        failed: tuple[str, ...] = (),
    ) -> None:
        self._tests = tests
        self._reached = reached
        self.failed = failed
        """Tests that failed while they were measured."""
        self.seconds = sum(test.seconds for test in tests.values())
        """What all of them took."""

    @classmethod
    def read(cls, path: Path) -> Reach:
        """What `main` has written."""
        document = json.loads(path.read_text())
        names = [each["id"] for each in document["tests"]]
        reached = {
            file: {int(line): tuple(names[number] for number in numbers) for line, numbers in lines.items()}
            for file, lines in document["reached"].items()
        }
        tests = {each["id"]: MeasuredTest(**each) for each in document["tests"]}
        return cls(tests, reached, tuple(document["failed"]))

    def tests_of(self, path: str, source: str, line: int) -> list[MeasuredTest]:
        """The tests that run the statement at a line, the most telling first.

        Of a statement that runs when the module is imported they are those that run anything in the module, since no
        test is seen to reach it.
        """
        lines = self._reached.get(path, {})
        names = {name for each in _statement_at(source, line) for name in lines.get(each, ())}
        names = names or {name for reached in lines.values() for name in reached}
        stem = Path(path).stem
        return sorted(
            (self._tests[name] for name in names),
            key=lambda test: (not _named_after(test.id, stem), test.lines, test.seconds, test.id),
        )


def _named_after(test: str, module: str) -> bool:
    named = Path(test.partition("::")[0]).stem.removeprefix("test_")
    return test.startswith(_ROOM_OF_TESTS) and (
        named == module or named.startswith(f"{module}_") or module.startswith(f"{named}_")
    )


def _statement_at(source: str, line: int) -> range:
    """The lines of the innermost statement around a line; of one with a body, those of its head."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue  # its head runs at import
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        if node.lineno <= line <= max(last, node.lineno):
            found = range(node.lineno, max(last, node.lineno) + 1)  # ast.walk comes to the inner ones later
    return found


class _Measuring:
    """The plugin of pytest that notes under which test a line runs: its fixtures count as the test."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(function_of(report.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        name = function_of(item.nodeid)
        self._measured.switch_context(name)
        before = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[name] += time.perf_counter() - before
            self._measured.switch_context("")


def function_of(node: str) -> str:
    """A test without its parameters."""
    path, _, rest = node.partition("::")
    return f"{path}::{rest.partition('[')[0]}"


def main(arguments: Sequence[str]) -> int:
    """Runs pytest and writes what its tests reach into a file, which is named first. Returns the status of pytest."""
    into, *others = arguments
    measured = coverage.Coverage(data_file=None, source=["webhook"], config_file=False, messages=False)
    measured.start()
    plugin = _Measuring(measured)
    status = int(pytest.main(others, plugins=[plugin]))
    measured.stop()
    data = measured.get_data()
    numbers = {name: number for number, name in enumerate(plugin.seconds)}
    counts: dict[str, int] = defaultdict(int)
    reached: dict[str, dict[int, list[int]]] = {}
    for file in data.measured_files():
        lines: dict[int, list[int]] = {}
        for line, contexts in data.contexts_by_lineno(file).items():
            here = [name for name in contexts if name in numbers]
            for name in here:
                counts[name] += 1
            if here:
                lines[line] = [numbers[name] for name in here]
        reached[str(Path(file).relative_to(Path.cwd()))] = lines
    tests: list[dict[str, Any]] = [
        {"id": name, "seconds": seconds, "lines": counts[name]} for name, seconds in plugin.seconds.items()
    ]
    failed = list(dict.fromkeys(plugin.failed))
    Path(into).write_text(json.dumps({"tests": tests, "reached": reached, "failed": failed}))
    return status
