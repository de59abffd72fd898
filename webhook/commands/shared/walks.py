"""Explanations as values for programs and as lines of text: which rules were evaluated, and why they did not match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.api.meta import format_time
from webhook.files.report import Entry, Level
from webhook.files.spots import find
from webhook.policy.model import DEFAULT_RULE, Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.admission.explanation import Explanation, Walk
    from webhook.files.spots import Spot
    from webhook.policy.explain import Considered, Unmet

_RESULTS: Final = {Action.ALLOW: "allows", Action.DENY: "refuses", Action.WARN: "warns", Action.AUDIT: "audits"}
EXCUSED: Final = "excused"
NO_MATCH: Final = "noMatch"
NOT_REACHED: Final = "notReached"
_DECIDING: Final = frozenset({"allows", "refuses"})
_NO_DECISION: Final = "no rule decides"


def values_of(explanation: Explanation, spot: Spot) -> dict[str, Any]:
    """`who`, `notes` and `walks`; lines and columns are those of the toleration, request or taint, from 1."""
    walks = [_walk_values(walk, spot) for walk in explanation.walks]
    return {"who": explanation.who, "notes": list(explanation.notes), "walks": walks}


def _walk_values(walk: Walk, spot: Spot) -> dict[str, Any]:
    position = find(spot, walk.path)[0].position
    return {
        "path": str(walk.path),
        "line": position.line,
        "column": position.column,
        "what": walk.what,
        "decision": "denied" if walk.action is Action.DENY else "allowed",
        "rules": [_rule_values(each) for each in walk.considered],
    }


def _rule_values(considered: Considered) -> dict[str, Any]:
    """`result` is one of allows, refuses, warns, audits, excused, noMatch and notReached."""
    hit = considered.hit
    if hit is None:
        result = NO_MATCH if considered.reached else NOT_REACHED
    else:
        result = _RESULTS[considered.rule.action] if hit.exception is None else EXCUSED
    exception = None if hit is None else hit.exception
    return {
        "rule": considered.rule.name,
        "action": considered.rule.action.value,
        "result": result,
        "unmet": _unmet_values(considered.unmet),
        "problem": (hit.problem if hit is not None else "") or None,
        "exception": None if exception is None else exception.name,
        "until": None if exception is None else format_time(exception.expires_at),
        "passedOver": [
            {"exception": over.exception.name, "unmet": _unmet_values(over.unmet)} for over in considered.passed_over
        ],
    }


def _unmet_values(unmet: Iterable[Unmet]) -> list[dict[str, str]]:
    return [{**each._asdict(), "text": str(each)} for each in unmet]


# --- text ---------------------------------------------------------------------------------------


def entries_of(values: Mapping[str, Any], spot: Spot) -> Iterator[Entry]:
    """One entry per rule, at the position of what it was evaluated for."""
    for note in values["notes"]:
        yield Entry(Level.INFO, note, spot.position)
    for walk in values["walks"]:
        position = spot.position._replace(line=walk["line"], column=walk["column"])
        for rule in walk["rules"]:
            first, *rest = rule_lines(rule)
            message = f"{first}: {'; '.join(rest)}" if rest else first
            yield Entry(Level.INFO, message, position, walk["path"], rule=rule["rule"])


def walk_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """The notes, and each walk with its rules below it, indented by two."""
    for note in values["notes"]:
        yield f"({note})"
    for walk in values["walks"]:
        yield f"{walk['path']}: {walk['what']}"
        for rule in walk["rules"]:
            first, *rest = rule_lines(rule)
            yield f"  {_title(rule)}: {first}"
            yield from (f"      {line}" for line in rest)
        yield f"  => {walk['decision']}: {_decided_by(walk)}"


def _title(rule: Mapping[str, Any]) -> str:
    return f"{rule['rule']} ({rule['action']})"


def _decided_by(walk: Mapping[str, Any]) -> str:
    for rule in walk["rules"]:
        if rule["result"] in _DECIDING:
            return "the policy's default" if rule["rule"] == DEFAULT_RULE else f"rule {rule['rule']}"
    return _NO_DECISION


def rule_lines(rule: Mapping[str, Any]) -> list[str]:
    """The result of a rule, then a line per field that kept the rule, or an exception to it, from matching."""
    unmet = [each["text"] for each in rule["unmet"]]
    match rule["result"]:
        case "noMatch":
            return ["does not match", *unmet]
        case "notReached":
            return ["not reached, would not match", *unmet] if unmet else ["not reached, would match"]
        case "excused":
            return [f"matches, excused by exception {rule['exception']} until {rule['until']}"]
        case result:
            decides = " and decides" if result in _DECIDING else ", and evaluation continues"
            problem = f" (its condition could not be evaluated: {rule['problem']})" if rule["problem"] else ""
            return [f"matches, {result}{decides}{problem}", *_passed_over(rule)]


def _passed_over(rule: Mapping[str, Any]) -> Iterator[str]:
    for over in rule["passedOver"]:
        for each in over["unmet"]:
            yield f"exception {over['exception']} does not apply: {each['text']}"
