"""Matches as CEL of a ValidatingAdmissionPolicy, with exactly the meaning that `match` gives them.

Two readings, as there: what refuses matches a set of taints that it intersects, what allows a set that it contains.
A field that CEL cannot see (`drivers` behind a class, `when`) is left out and reported; what allows then allows more,
and what refuses must not be exported at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from webhook.api.meta import LabelRequirement, format_time
from webhook.api.taints import EXISTS, NO_EXECUTE, NO_SCHEDULE
from webhook.policy.match import EFFECTS, TextSet
from webhook.policy.model import Match, NamespaceMatch, PolicyException, RequesterMatch, TaintMatch, TolerationMatch

_WORD: Final = re.compile(r'"(?:[^"\\]|\\.)*"|&&|\|\||\S')
TRUE: Final = "true"
FALSE: Final = "false"
_USER: Final = "request.userInfo.username"
_GROUPS: Final = "request.userInfo.groups"
_ACCOUNT: Final = "variables.account"
_LABELS: Final = "variables.labels"


class CelMatch(NamedTuple):
    """A match in CEL, in two parts: who asks and where, and for what. `lacks` are fields that are not in it."""

    scope: str = TRUE
    ask: str = TRUE
    """About one exact request or alternative, `asked`."""
    taints: str = TRUE
    """About one toleration, `t`; or about the taint of a DeviceTaintRule."""
    lacks: tuple[str, ...] = ()
    of_requester: bool = False
    """Whether it looks at the requester of a claim, who is unknown here for claims made from templates."""

    @property
    def whole(self) -> str:
        """All of it."""
        return all_of([self.scope, self.ask, self.taints])


# --- words --------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """A text as CEL writes it. JSON's escapes are CEL's, as long as no letter is written as two halves."""
    return json.dumps(text, ensure_ascii=False)


def all_of(parts: Iterable[str]) -> str:
    """`a && b`, without what always holds."""
    kept = [part for part in parts if part != TRUE]
    if FALSE in kept:
        return FALSE
    return kept[0] if len(kept) == 1 else " && ".join(grouped(part, "||", "?") for part in kept) or TRUE


def any_of(parts: Iterable[str]) -> str:
    """`a || b`, without what never holds."""
    kept = [part for part in parts if part != FALSE]
    if TRUE in kept:
        return TRUE
    return kept[0] if len(kept) == 1 else " || ".join(grouped(part, "&&", "?") for part in kept) or FALSE


def grouped(part: str, *operators: str) -> str:
    """The part, in brackets if one of these operators stands in it outside of brackets."""
    depth = 0
    for word in _WORD.findall(part):
        depth += (word in "([{") - (word in ")]}")
        if not depth and word in operators:
            return f"({part})"
    return part


def not_(part: str) -> str:
    """That it does not hold."""
    if part in (TRUE, FALSE):
        return FALSE if part == TRUE else TRUE
    if re.fullmatch(r"!?[\w.]+", part):
        return part[1:] if part.startswith("!") else f"!{part}"
    return f"!({part})"


def texts(value: str, patterns: Sequence[str]) -> str:
    """Whether a text is one that the patterns describe; an empty list describes every one."""
    compiled = TextSet(patterns)
    if compiled.everything:
        return TRUE
    exact = [pattern for pattern in patterns if pattern in compiled.exact]
    globs = [_glob(value, pattern) for pattern in patterns if pattern not in compiled.exact]
    if len(exact) == 1:
        return any_of([f"{value} == {literal(exact[0])}", *globs])
    return any_of([f"{value} in {listed(exact)}", *globs] if exact else globs)


def _glob(value: str, pattern: str) -> str:
    """One pattern with a wildcard: by its ends where they say it all, else as a regular expression (RE2)."""
    pieces = re.sub(r"\*+", "*", pattern).split("*")
    first, middle, last = pieces[0], pieces[1:-1], pieces[-1]
    if "?" in pattern or (middle and (first or last or len(middle) > 1)):
        expression = ".*".join("".join("." if each == "?" else re.escape(each) for each in piece) for piece in pieces)
        return f"{value}.matches({literal(f'(?s)^{expression}$')})"
    if middle:
        return f"{value}.contains({literal(middle[0])})"
    starts, ends = f"{value}.startsWith({literal(first)})", f"{value}.endsWith({literal(last)})"
    if first and last:  # the two must not share a letter
        return f"{starts} && {ends} && size({value}) >= {len(first) + len(last)}"
    return starts if first else ends


def listed(names: Iterable[str]) -> str:
    """Texts as a list."""
    return f"[{', '.join(literal(name) for name in names)}]"


def no_request(scope: str, asked: str) -> str:
    """True if `asked` holds for no request or alternative, or if the scope does not hold."""
    every = f"!variables.asked.exists(options, options.exists(asked,\n    {asked}))"
    return every if scope == TRUE else f"{not_(scope)}\n|| {every}"


# --- who and where ------------------------------------------------------------------------------


def _namespaces(match: NamespaceMatch) -> list[str]:
    parts = [texts("request.namespace", match.names)]
    if match.except_names:
        parts.append(not_(texts("request.namespace", match.except_names)))
    parts += [
        all_of([f"{literal(key)} in {_LABELS}", texts(f"{_LABELS}[{literal(key)}]", [value])])
        for key, value in match.labels
    ]
    return parts + [_requirement(each) for each in match.expressions]


def _requirement(requirement: LabelRequirement) -> str:
    key = literal(requirement.key)
    there = f"{key} in {_LABELS}"
    among = f"{_LABELS}[{key}] in {listed(requirement.values)}"
    match requirement.operator:
        case "In":
            return f"{there} && {among}"
        case "NotIn":
            return f"!({there} && {among})"
        case "Exists":
            return there
        case _:
            return f"!({there})"


def _requesters(match: RequesterMatch) -> str:
    parts = []
    if match.users:
        parts.append(texts(_USER, match.users))
    if match.service_accounts:
        parts.append(all_of([f'{_ACCOUNT} != ""', texts(_ACCOUNT, match.service_accounts)]))
    if match.groups:
        parts.append(f"has({_GROUPS}) && {_GROUPS}.exists(group, {texts('group', match.groups)})")
    return any_of(parts) if parts else TRUE


def _scope(match: Match, *, allowing: bool, with_generated: bool) -> str:
    """`with_generated`: claims from templates are judged too; their author is unknown, which counts against them."""
    parts = [] if match.namespaces is None else _namespaces(match.namespaces)
    if match.requesters is not None:
        who = _requesters(match.requesters)
        if with_generated:  # to be on the safe side: what allows allows them, what refuses does not
            who = any_of(["variables.generated", who]) if allowing else all_of(["!variables.generated", who])
        parts.append(who)
    return all_of(parts)


# --- tolerations --------------------------------------------------------------------------------


def toleration_condition(match: Match, *, allowing: bool, with_generated: bool) -> CelMatch:
    """Of a rule on tolerations or requests, or an exception to one."""
    lacks = _lacks(match)
    if match.drivers and not TextSet(match.drivers).everything:
        lacks = ("drivers", *lacks)
    ask = [texts("asked.deviceClassName", match.device_classes)]
    if match.admin_access is not None:
        admin = "has(asked.adminAccess) && asked.adminAccess"
        ask.append(admin if match.admin_access else f"!({admin})")
    taints = TRUE
    if match.tolerations is not None:
        taints = all_of((_contains if allowing else _meets)(match.tolerations))
    return CelMatch(
        _scope(match, allowing=allowing, with_generated=with_generated),
        all_of(ask),
        taints,
        lacks,
        match.requesters is not None,
    )


def _meets(match: TolerationMatch) -> list[str]:
    """`Tolerations.intersects`."""
    effects = frozenset(match.effects) or EFFECTS
    keys, values = texts("t.key", match.keys), texts("t.value", match.values)
    parts = [
        TRUE if keys == TRUE else any_of(["!has(t.key)", 't.key == ""', keys]),
        TRUE if values == TRUE else any_of([_EXISTS, _value(match.values)]),
    ]
    if match.above is None:
        return [*parts, TRUE if effects >= EFFECTS else _covers(effects)]
    if NO_EXECUTE not in effects:
        return [FALSE]
    return [*parts, _covers(frozenset({NO_EXECUTE})), _longer(match.above)]


def _contains(match: TolerationMatch) -> list[str]:
    """`Tolerations.contains`."""
    effects = frozenset(match.effects) or EFFECTS
    keys, values = texts("t.key", match.keys), texts("t.value", match.values)
    parts = [
        TRUE if keys == TRUE else all_of(["has(t.key)", 't.key != ""', keys]),
        TRUE if values == TRUE else all_of([f"!({_EXISTS})", _value(match.values)]),
        TRUE if effects >= EFFECTS else f"has(t.effect) && t.effect in {listed(sorted(effects))}",
    ]
    if match.at_most is not None:
        endless = f'has(t.effect) && t.effect != "" && t.effect != {literal(NO_EXECUTE)}'
        parts.append(any_of([endless, f"!({_longer(match.at_most)})"]))
    return parts


_EXISTS: Final = f"has(t.operator) && t.operator == {literal(EXISTS)}"


def _value(patterns: Sequence[str]) -> str:
    """A value that is left out is empty."""
    return any_of([all_of(["has(t.value)", texts("t.value", patterns)]), _absent(patterns, "t.value")])


def _absent(patterns: Sequence[str], value: str) -> str:
    return f"!has({value})" if TextSet(patterns).holds("") else FALSE


def _covers(effects: frozenset[str]) -> str:
    """Whether a toleration is one of one of the effects; without effect it is of all."""
    return f'!has(t.effect) || t.effect == "" || t.effect in {listed(sorted(effects))}'


def _longer(seconds: int) -> str:
    """Missing seconds are for ever; zero and less are none, and so never above anything."""
    return f"!has(t.tolerationSeconds) || t.tolerationSeconds > {seconds}"


# --- taints -------------------------------------------------------------------------------------


def taint_condition(match: Match, *, allowing: bool) -> CelMatch:
    """Of a rule in `taintRules`, or an exception to one."""
    parts = []
    if match.evict is not None:
        parts.append("variables.evict" if match.evict else "!variables.evict")
    parts += [_place("driver", match.drivers, allowing=allowing), _place("pool", match.pools, allowing=allowing)]
    if match.taints is not None:
        parts += _taint(match.taints, allowing=allowing)
    scope = TRUE if match.requesters is None else _requesters(match.requesters)
    return CelMatch(scope, TRUE, all_of(parts), _lacks(match))


def _place(field: str, patterns: Sequence[str], *, allowing: bool) -> str:
    """A selector that does not name it may be for any: what refuses matches it, what allows does not."""
    named = texts(f"variables.selector.{field}", patterns)
    if named == TRUE:
        return TRUE
    there = f"has(variables.selector.{field})"
    return all_of([there, named]) if allowing else any_of([f"!{there}", named])


def _taint(match: TaintMatch, *, allowing: bool) -> list[str]:
    taint = "object.spec.taint"
    value = texts(f"{taint}.value", match.values)
    if value != TRUE:
        value = any_of([all_of([f"has({taint}.value)", value]), _absent(match.values, f"{taint}.value")])
    return [texts(f"{taint}.key", match.keys), value, _effects(match.effects, f"{taint}.effect", allowing=allowing)]


def _effects(effects: Sequence[str], field: str, *, allowing: bool) -> str:
    """A taint whose devices our worker is asked to empty has NoExecute beside NoSchedule."""
    if not effects:
        return TRUE
    literally = f"{field} in {listed(effects)}"
    emptied = f'variables.evict && {field} == "{NO_SCHEDULE}"'
    if allowing is (NO_EXECUTE in effects):
        return literally
    return all_of([literally, f"!({emptied})"]) if allowing else any_of([literally, f"({emptied})"])


# --- when it holds ------------------------------------------------------------------------------


def time_condition(exception: PolicyException) -> str:
    """Whether an exception holds when a CREATE has just set creationTimestamp, which is in full seconds."""
    now = "timestamp(object.metadata.creationTimestamp)"
    end = exception.expires_at.isoformat().replace("+00:00", "Z")
    before = f'{now} < timestamp("{end}")'
    if exception.not_before is None:
        return before
    return f'{now} >= timestamp("{format_time(exception.not_before)}") && {before}'


def _lacks(match: Match) -> tuple[str, ...]:
    return () if match.when is None else ("when",)
