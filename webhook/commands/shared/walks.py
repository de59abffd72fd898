"""Explanations as values for programs and as lines of text: which rules were evaluated, and why they did not match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from webhook.admission.policy_check import Explanation
from webhook.api.meta import format_time
from webhook.files.report import Entry, Level
from webhook.files.spots import Spot, find
from webhook.policy.explain import Considered, Unmet
from webhook.policy.model import DEFAULT_RULE, Action

_RESULTS: Final = {Action.ALLOW: "allows", Action.DENY: "refuses", Action.WARN: "warns", Action.AUDIT: "audits"}
_DECIDING: Final = frozenset({"allows", "refuses"})


def values_of(explanation: Explanation, spot: Spot) -> dict[str, Any]:
    """Return `who`, `notes` and `walks`; lines and columns are those of the toleration, request or taint, from 1."""
    walks = []
    for walk in explanation.walks:
        position = find(spot, walk.path)[0].position
        walks.append(
            {
                "path": str(walk.path),
                "line": position.line,
                "column": position.column,
                "what": walk.what,
                "decision": "denied" if walk.action is Action.DENY else "allowed",
                "rules": [_rule_values(each) for each in walk.considered],
            }
        )
    return {"who": explanation.who, "notes": list(explanation.notes), "walks": walks}


def _rule_values(considered: Considered) -> dict[str, Any]:
    """Return a rule; its `result` is one of allows, refuses, warns, audits, excused, noMatch and notReached."""
    rule, reached, hit, unmet, passed_over = considered
    exception = None if hit is None else hit.exception
    if hit is None:
        result = "noMatch" if reached else "notReached"
    else:
        result = _RESULTS[rule.action] if exception is None else "excused"
    return {
        "rule": rule.name,
        "action": rule.action.value,
        "result": result,
        "unmet": _unmet_values(unmet),
        "problem": (hit.problem if hit is not None else "") or None,
        "exception": None if exception is None else exception.name,
        "until": None if exception is None else format_time(exception.expires_at),
        "passedOver": [{"exception": over.exception.name, "unmet": _unmet_values(over.unmet)} for over in passed_over],
    }


def _unmet_values(unmet: Iterable[Unmet]) -> list[dict[str, str]]:
    return [{**each._asdict(), "text": str(each)} for each in unmet]


# --- text ---------------------------------------------------------------------------------------


def entries_of(values: Mapping[str, Any], spot: Spot) -> Iterator[Entry]:
    """Yield an entry per rule, at the position of what it was evaluated for."""
    for note in values["notes"]:
        yield Entry(Level.INFO, note, spot.position)
    for walk in values["walks"]:
        position = spot.position._replace(line=walk["line"], column=walk["column"])
        for rule in walk["rules"]:
            first, *rest = _rule_lines(rule)
            message = f"{first}: {'; '.join(rest)}" if rest else first
            yield Entry(Level.INFO, message, position, walk["path"], rule=rule["rule"])


def walk_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the notes, and each walk with its rules below it, indented by two."""
    for note in values["notes"]:
        yield f"({note})"
    for walk in values["walks"]:
        yield f"{walk['path']}: {walk['what']}"
        for rule in walk["rules"]:
            first, *rest = _rule_lines(rule)
            yield f"  {rule['rule']} ({rule['action']}): {first}"
            yield from (f"      {line}" for line in rest)
        name = next((rule["rule"] for rule in walk["rules"] if rule["result"] in _DECIDING), None)
        by = "no rule decides" if name is None else f"rule {name}"
        by = "the policy's default" if name == DEFAULT_RULE else by
        yield f"  => {walk['decision']}: {by}"


def _rule_lines(rule: Mapping[str, Any]) -> list[str]:
    """Return the result of a rule, then a line per field that kept it, or an exception to it, from matching."""
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
            passed_over = (
                f"exception {over['exception']} does not apply: {each['text']}"
                for over in rule["passedOver"]
                for each in over["unmet"]
            )
            return [f"matches, {result}{decides}{problem}", *passed_over]
