"""The results of test suites, and how they are printed: as text, values, and reports such as JUnit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from webhook.admission.impact_text import Measured
from webhook.api.messages import counted
from webhook.api.taints import DeviceToleration
from webhook.commands.shared.walks import walk_lines
from webhook.files.report import UNREADABLE, Entry, Level, Report, Result, Row, line, painted, visible
from webhook.files.spots import Position
from webhook.policy.decide import rendered
from webhook.policy.model import Policy
from webhook.policy.suites import FIGURES, Expectation, Word

_NOT_MEASURED: Final = "not measured"
_RED, _GREEN = "\x1b[1;31m", "\x1b[32m"


class Mismatch(msgspec.Struct, frozen=True):
    """One difference from what was expected."""

    about: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.about}: expected {self.expected}, got {self.got}"


class CaseReport(msgspec.Struct, frozen=True):
    """A case that was run. `rules` produced findings; `matched` are all that matched, including those that allow."""

    file: str
    suite: str
    name: str
    line: int
    column: int
    result: str
    decision: Word
    rules: tuple[str, ...]
    matched: tuple[str, ...]
    impact: Mapping[str, int] | None
    reasons: tuple[str, ...]
    messages: tuple[str, ...]
    explanation: Any = None
    """Why the policy decided so, for a case that failed: who, notes, walks."""
    mismatches: tuple[Mismatch, ...] = ()


class Tested(NamedTuple):
    """A case that was run, and the impact that the guard measured, None if it measured none."""

    case: CaseReport
    measured: Measured | None


def mismatches_of(
    expect: Expectation, case: CaseReport, fields: set[str], defaulted: tuple[DeviceToleration, ...], *, softened: bool
) -> Iterator[Mismatch]:
    """Yield the differences from what was expected. `fields` are the paths of all findings."""
    if case.decision is not expect.decision:
        yield Mismatch("decision", expect.decision, case.decision)
    if expect.rules is not None and expect.rules != set(case.rules):
        yield Mismatch("rules", listed(sorted(expect.rules)), listed(case.rules))
    if expect.message is not None and not any(expect.message in message for message in case.messages):
        yield Mismatch("message", f'one with "{expect.message}"', listed(case.messages))
    if expect.field is not None and expect.field not in fields:
        yield Mismatch("field", expect.field, listed(sorted(fields)))
    figures = case.impact or {}
    for name, number in (expect.impact or {}).items():
        if figures.get(name) != number:
            yield Mismatch(f"impact.{name}", str(number), str(figures.get(name, _NOT_MEASURED)))
    if expect.reasons is not None and expect.reasons != set(case.reasons):
        yield Mismatch("reasons", listed(sorted(expect.reasons)), listed(case.reasons))
    if expect.softened is not None and expect.softened is not softened:
        yield Mismatch("softened", str(expect.softened).lower(), str(softened).lower())
    if expect.defaulted is not None and expect.defaulted != defaulted:
        yield Mismatch("defaulted", _shown(expect.defaulted), _shown(defaulted))


def listed(names: Iterable[str]) -> str:
    """Return texts as one list in brackets."""
    return f"[{', '.join(names)}]"


def _shown(tolerations: tuple[DeviceToleration, ...]) -> str:
    maps = (", ".join(f"{name}: {value}" for name, value in rendered(each).items()) for each in tolerations)
    return listed(f"{{{fields}}}" for fields in maps)


@dataclass(slots=True)
class Results:
    """The results of a run. `partial`: cases were left out on purpose, so coverage is unknown."""

    fail_uncovered: bool = False
    partial: bool = False
    nothing_run: str = ""
    """What to say of a run without a case, where that is an error."""
    suites: int = 0
    tested: list[Tested] = field(default_factory=list)
    faults: list[Row] = field(default_factory=list)
    """Suites, policies and cases that could not be used."""
    _coverage: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """By the hash of a policy its file, and its named parts that no case has hit yet."""

    def add_suite(self, policy: Policy, name: str) -> None:
        """Add a suite that is about to be run."""
        self.suites += 1
        missing = dict.fromkeys((each.name for each in policy.rules), "rule")
        missing |= dict.fromkeys((each.name for each in policy.taint_rules), "taint rule")
        missing |= dict.fromkeys((each.name for each in policy.exceptions), "exception")
        missing |= dict.fromkeys((each.name for each in policy.default_tolerations), "default toleration")
        missing.pop("", None)
        self._coverage.setdefault(policy.hash, (name, missing))

    def add(self, tested: Tested, policy: Policy) -> None:
        """Add a case of it."""
        self.tested.append(tested)
        for name in tested.case.matched:
            self._coverage[policy.hash][1].pop(name, None)

    def add_fault(self, file: str, entries: Iterable[Entry]) -> None:
        """Add errors in something without which nothing is tested, which is worse than a failed case."""
        self.faults.append(Row(file, result=Result.DENIED, entries=tuple(entries)))

    @property
    def uncovered(self) -> list[tuple[str, str, str]]:
        """File of the policy, sort and name of everything that no case hits."""
        covered = () if self.partial else self._coverage.values()
        return [(file, sort, name) for file, missing in covered for name, sort in missing.items()]

    @property
    def unusable(self) -> list[tuple[Row, Entry]]:
        """The entries of all faults."""
        return [(row, entry) for row in self.faults for entry in row.entries]

    @property
    def failed(self) -> int:
        """How many cases failed."""
        return sum(bool(tested.case.mismatches) for tested in self.tested)

    @property
    def exit_code(self) -> int:
        """0 if all passed, 1 if not, 2 if something could not be run."""
        if self.faults or self.nothing_run:
            return 2
        return int(self.failed > 0 or (self.fail_uncovered and bool(self.uncovered)))


# --- text ---------------------------------------------------------------------------------------


def as_text(results: Results, *, color: bool = False, verbose: bool = False) -> str:
    """Return a line per case, below failed ones what was expected and what came instead, and a summary."""
    lines: list[str] = []
    for (file, suite), cases in groupby(results.tested, lambda tested: (tested.case.file, tested.case.suite)):
        lines.append(visible(file if suite == file else f"{file}: {suite}"))
        for tested in cases:
            lines += _case_lines(tested, color=color, verbose=verbose)
    lines += [line(row, entry, color=color) for row, entry in results.unusable]
    level = "error" if results.fail_uncovered else "info"
    lines += [visible(f"{file}: {level}: no case hits {sort} {name}") for file, sort, name in results.uncovered]
    told = f"{len(results.tested) - results.failed} passed, {results.failed} failed"
    told += f", {len(results.unusable)} unusable" if results.faults else ""
    summary = f"{counted(results.suites, 'suite')}, {counted(len(results.tested), 'case')}: {told}"
    return "\n".join([*lines, summary]) + "\n"


def _case_lines(tested: Tested, *, color: bool, verbose: bool) -> Iterator[str]:
    case, measured = tested
    word, shade = ("FAIL", _RED) if case.mismatches else ("ok", _GREEN)
    padding = " " * (6 - len(word))
    where = f" ({case.line}:{case.column})" if case.mismatches else ""
    yield f"  {painted(word, shade) if color else word}{padding}{visible(case.name)}{where}"
    below = [str(mismatch) for mismatch in case.mismatches]
    if verbose:
        below.append(f"{case.decision}; matched: {', '.join(case.matched) or 'no rule'}")
    if verbose and measured is not None:
        below.append(f"impact: {_impact_text(measured)}")
    if verbose or case.mismatches:
        below += [f"message: {message}" for message in case.messages]
    if case.explanation is not None:
        below += walk_lines(case.explanation)
    yield from (visible(f"          {text}") for text in below)


def _impact_text(measured: Measured) -> str:
    named = (name for name in FIGURES if name in measured.figures)
    figures = ", ".join(counted(measured.figures[name], name.removesuffix("s")) for name in named)
    of = f" of driver {measured.driver}" if measured.driver else ""
    return f"{figures}; over {', '.join(measured.over)}{of}" if measured.over else figures


# --- for programs -------------------------------------------------------------------------------


def as_values(results: Results) -> dict[str, Any]:
    """Return the structure behind JSON and YAML; fields may be added while `version` is 1."""
    return {
        "version": 1,
        "summary": {
            "suites": results.suites,
            "cases": len(results.tested),
            "passed": len(results.tested) - results.failed,
            "failed": results.failed,
            "unusable": len(results.unusable),
            "uncovered": len(results.uncovered),
        },
        "cases": msgspec.to_builtins([tested.case for tested in results.tested]),
        "faults": [
            {
                "file": row.file,
                "line": entry.position and entry.position.line,
                "column": entry.position and entry.position.column,
                "field": entry.field,
                "message": entry.message,
            }
            for row, entry in results.unusable
        ],
        "uncovered": [{"policy": file, "sort": sort, "name": name} for file, sort, name in results.uncovered],
    }


def as_report(results: Results, *, messages: bool) -> Report:
    """Return a row for each case, whose errors are its mismatches; then faults, and rules that should be hit.

    With `messages` each case has the messages of the decision as well.
    """
    report = Report(files=results.suites, nothing_checked=results.nothing_run)
    for case, _ in results.tested:
        at = Position(case.line, case.column)
        amiss = [Entry(Level.ERROR, str(mismatch), at, reason="Mismatch") for mismatch in case.mismatches]
        said = [Entry(Level.INFO, text, at) for text in case.messages if messages]
        result = Result.DENIED if amiss else Result.ALLOWED
        name = f"{case.suite}/{case.name}"
        report.add(Row(case.file, 1, at, name=name, result=result, entries=(*amiss, *said)))
    for row in results.faults:
        entries = [Entry(Level.ERROR, each.message, each.position, each.field, UNREADABLE) for each in row.entries]
        report.add(Row(row.file, result=Result.DENIED, entries=tuple(entries)))
    for file, sort, name in results.uncovered if results.fail_uncovered else ():
        row = Row(file, 1, name=f"coverage of {name}")
        report.add(row.failed(f"no case hits {sort} {name}", "Uncovered"))
    return report
