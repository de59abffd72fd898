"""The result of a test suite's case, and how it differs from what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.policy.defaults import rendered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.admission.impact_text import Measured
    from webhook.api.taints import DeviceToleration
    from webhook.policy.suites import Case, Word

_NOT_MEASURED: Final = "not measured"


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
