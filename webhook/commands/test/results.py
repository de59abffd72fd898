"""The results of test suites, as values and as text, JSON, YAML and JUnit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.counts import counted
from webhook.commands.shared.walks import walk_lines
from webhook.files.render import line, visible
from webhook.files.report import UNREADABLE, Entry, Level, Report, Result, Row
from webhook.policy.defaults import rendered
from webhook.policy.suites import FIGURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.admission.impact_text import Measured
    from webhook.api.taints import DeviceToleration
    from webhook.files.spots import Position
    from webhook.policy.model import Policy
    from webhook.policy.suites import Case, Word

_NOT_MEASURED: Final = "not measured"
VERSION: Final = 1
_RED, _GREEN, _PLAIN = "\x1b[1;31m", "\x1b[32m", "\x1b[0m"


class Mismatch(NamedTuple):
    """One difference from what was expected."""

    about: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.about}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of a case. `rules` produced findings; `matched` are all that matched, including those that allow.

    `measured` is the impact that the guard measured, None if it measured none. `softened`: whether /mutate softened it.
    """

    case: Case
    word: Word
    rules: tuple[str, ...]
    matched: frozenset[str]
    messages: tuple[str, ...]
    measured: Measured | None = None
    softened: bool = False
    mismatches: tuple[Mismatch, ...] = ()
    explanation: Mapping[str, Any] | None = None
    """Why the policy decided so, for a case that failed: who, notes, walks."""


def mismatches_of(outcome: CaseResult, fields: set[str], defaulted: tuple[DeviceToleration, ...]) -> Iterator[Mismatch]:
    """The differences from what was expected. `fields` are the paths of all findings."""
    expect = outcome.case.expect
    if outcome.word is not expect.decision:
        yield Mismatch("decision", expect.decision.value, outcome.word.value)
    if expect.rules is not None and expect.rules != set(outcome.rules):
        yield Mismatch("rules", listed(sorted(expect.rules)), listed(outcome.rules))
    if expect.message is not None and not any(expect.message in message for message in outcome.messages):
        yield Mismatch("message", f'one with "{expect.message}"', listed(outcome.messages))
    if expect.field is not None and expect.field not in fields:
        yield Mismatch("field", expect.field, listed(sorted(fields)))
    if expect.impact is not None:
        yield from _unlike_impact(expect.impact, outcome.measured)
    reasons = () if outcome.measured is None else outcome.measured.over
    if expect.reasons is not None and expect.reasons != set(reasons):
        yield Mismatch("reasons", listed(sorted(expect.reasons)), listed(sorted(reasons)))
    if expect.softened is not None and expect.softened is not outcome.softened:
        yield Mismatch("softened", str(expect.softened).lower(), str(outcome.softened).lower())
    if expect.defaulted is not None and expect.defaulted != defaulted:
        yield Mismatch("defaulted", _shown(expect.defaulted), _shown(defaulted))


def _unlike_impact(expected: Mapping[str, int], measured: Measured | None) -> Iterator[Mismatch]:
    for name, number in expected.items():
        got = None if measured is None else measured.figures.get(name)
        if got != number:
            yield Mismatch(f"impact.{name}", str(number), _NOT_MEASURED if got is None else str(got))


def listed(names: Iterable[str]) -> str:
    """Texts as one list in brackets."""
    return f"[{', '.join(names)}]"


def _shown(tolerations: tuple[DeviceToleration, ...]) -> str:
    maps = (", ".join(f"{name}: {value}" for name, value in rendered(each).items()) for each in tolerations)
    return listed(f"{{{fields}}}" for fields in maps)


class Tested(NamedTuple):
    """A case that was run, and its position."""

    file: str
    suite: str
    position: Position
    outcome: CaseResult

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.outcome.mismatches


@dataclass(slots=True)
class Results:
    """The results of a run. `partial`: cases were left out on purpose, so coverage is unknown."""

    fail_uncovered: bool = False
    partial: bool = False
    suites: int = 0
    tested: list[Tested] = field(default_factory=list)
    faults: list[Row] = field(default_factory=list)
    """Suites, policies and cases that could not be used."""
    _coverage: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """By the hash of a policy its file, and its named parts that no case has hit yet."""

    def add_suite(self, policy: Policy, name: str) -> None:
        """A suite that is about to be run."""
        self.suites += 1
        self._coverage.setdefault(policy.hash, (name, dict(_named_parts(policy))))

    def add(self, tested: Tested, policy: Policy) -> None:
        """A case of it."""
        self.tested.append(tested)
        _, missing = self._coverage[policy.hash]
        for name in tested.outcome.matched:
            missing.pop(name, None)

    @property
    def uncovered(self) -> Iterator[tuple[str, str, str]]:
        """File of the policy, sort and name of everything that no case hits."""
        if not self.partial:
            for file, missing in self._coverage.values():
                for name, sort in missing.items():
                    yield file, sort, name

    @property
    def failed(self) -> int:
        """How many cases failed."""
        return sum(not tested.passed for tested in self.tested)

    @property
    def exit_code(self) -> int:
        """0 if all passed, 1 if not, 2 if something could not be run."""
        if self.faults:
            return 2
        return 1 if self.failed or (self.fail_uncovered and any(self.uncovered)) else 0


def _named_parts(policy: Policy) -> Iterator[tuple[str, str]]:
    for sort, entries in (
        ("rule", policy.rules),
        ("taint rule", policy.taint_rules),
        ("exception", policy.exceptions),
        ("default toleration", policy.default_tolerations),
    ):
        yield from ((entry.name, sort) for entry in entries if entry.name)


# --- text ---------------------------------------------------------------------------------------


def as_text(results: Results, *, color: bool = False, verbose: bool = False) -> str:
    """A line per case, below failed ones what was expected and what came instead, and a summary."""
    lines: list[str] = []
    title = None
    for tested in results.tested:
        if title != (tested.file, tested.suite):
            title = (tested.file, tested.suite)
            lines.append(visible(tested.file if tested.suite == tested.file else f"{tested.file}: {tested.suite}"))
        lines += _case_lines(tested, color=color, verbose=verbose)
    lines += [line(row, entry, color=color) for row in results.faults for entry in row.entries]
    level = "error" if results.fail_uncovered else "info"
    lines += [visible(f"{file}: {level}: no case hits {sort} {name}") for file, sort, name in results.uncovered]
    return "\n".join([*lines, _summary(results)]) + "\n"


def _case_lines(tested: Tested, *, color: bool, verbose: bool) -> Iterator[str]:
    outcome = tested.outcome
    name = visible(outcome.case.name)
    if tested.passed:
        yield f"  {_GREEN}ok{_PLAIN}    {name}" if color else f"  ok    {name}"
    else:
        word = f"{_RED}FAIL{_PLAIN}" if color else "FAIL"
        yield f"  {word}  {name} ({tested.position.line}:{tested.position.column})"
        for mismatch in outcome.mismatches:
            yield visible(f"          {mismatch}")
    if verbose:
        yield visible(f"          {outcome.word}; matched: {', '.join(sorted(outcome.matched)) or 'no rule'}")
    if verbose and outcome.measured is not None:
        yield f"          impact: {_impact_text(outcome.measured)}"
    if verbose or not tested.passed:
        for message in outcome.messages:
            yield visible(f"          message: {message}")
    if outcome.explanation is not None and not tested.passed:
        yield from (visible(f"          {text}") for text in walk_lines(outcome.explanation))


def _impact_text(measured: Measured) -> str:
    named = (name for name in FIGURES if name in measured.figures)
    figures = ", ".join(counted(measured.figures[name], name.removesuffix("s")) for name in named)
    if not measured.over:
        return figures
    of = f" of driver {measured.driver}" if measured.driver else ""
    return f"{figures}; over {', '.join(measured.over)}{of}"


def _summary(results: Results) -> str:
    counts = [f"{len(results.tested) - results.failed} passed", f"{results.failed} failed"]
    if results.faults:
        counts.append(f"{sum(len(row.entries) for row in results.faults)} unusable")
    return f"{counted(results.suites, 'suite')}, {counted(len(results.tested), 'case')}: {', '.join(counts)}"


# --- for programs -------------------------------------------------------------------------------


def as_values(results: Results) -> dict[str, Any]:
    """The structure behind JSON and YAML; fields may be added while `version` is 1."""
    return {
        "version": VERSION,
        "summary": {
            "suites": results.suites,
            "cases": len(results.tested),
            "passed": len(results.tested) - results.failed,
            "failed": results.failed,
            "unusable": sum(len(row.entries) for row in results.faults),
            "uncovered": sum(1 for _ in results.uncovered),
        },
        "cases": [_case_values(tested) for tested in results.tested],
        "faults": [
            {
                "file": row.file,
                "line": entry.position.line if entry.position else None,
                "column": entry.position.column if entry.position else None,
                "field": entry.field,
                "message": entry.message,
            }
            for row in results.faults
            for entry in row.entries
        ],
        "uncovered": [{"policy": file, "sort": sort, "name": name} for file, sort, name in results.uncovered],
    }


def _case_values(tested: Tested) -> dict[str, Any]:
    outcome = tested.outcome
    return {
        "file": tested.file,
        "suite": tested.suite,
        "name": outcome.case.name,
        "line": tested.position.line,
        "column": tested.position.column,
        "result": "passed" if tested.passed else "failed",
        "decision": outcome.word.value,
        "rules": list(outcome.rules),
        "matched": sorted(outcome.matched),
        "impact": None if outcome.measured is None else dict(outcome.measured.figures),
        "reasons": [] if outcome.measured is None else sorted(outcome.measured.over),
        "messages": list(outcome.messages),
        "explanation": None if outcome.explanation is None else dict(outcome.explanation),
        "mismatches": [mismatch._asdict() for mismatch in outcome.mismatches],
    }


def as_report(results: Results, *, messages: bool) -> Report:
    """A row for each case, whose errors are its mismatches; then faults, and rules that should be hit and are not.

    With `messages` each case has the messages of the decision as well.
    """
    report = Report(files=results.suites)
    for tested in results.tested:
        entries = tuple(
            Entry(Level.ERROR, str(mismatch), tested.position, reason="Mismatch")
            for mismatch in tested.outcome.mismatches
        )
        said = tuple(Entry(Level.INFO, text, tested.position) for text in tested.outcome.messages if messages)
        report.add(_row(tested.file, f"{tested.suite}/{tested.outcome.case.name}", tested.position, entries + said))
    for row in results.faults:
        unusable = tuple(
            Entry(Level.ERROR, each.message, each.position, each.field, UNREADABLE) for each in row.entries
        )
        report.add(Row(row.file, result=Result.DENIED, entries=unusable))
    if results.fail_uncovered:
        for file, sort, name in results.uncovered:
            entry = Entry(Level.ERROR, f"no case hits {sort} {name}", reason="Uncovered")
            report.add(_row(file, f"coverage of {name}", None, (entry,)))
    return report


def _row(file: str, name: str, position: Position | None, entries: tuple[Entry, ...]) -> Row:
    denied = any(entry.level is Level.ERROR for entry in entries)
    result = Result.DENIED if denied else Result.ALLOWED
    return Row(file, 1, position, name=name, result=result, entries=entries)
