"""Checks that a JSON Schema cannot express: unique and known names, and fields that must not be combined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from webhook.api.field import FieldError, Path, duplicate, forbidden, invalid, required
from webhook.api.messages import nearest
from webhook.api.taints import EXISTS, NO_EXECUTE, NO_SCHEDULE, NONE, DeviceToleration
from webhook.policy.model import (
    ANYTHING,
    DEFAULT_RULE,
    Action,
    EvictionWindow,
    LabelMatch,
    Match,
    NamespaceMatch,
    Policy,
    PolicyException,
    Rule,
    Subject,
)
from webhook.policy.schema import PHASE
from webhook.policy.windows import is_zone, schedule_fault

_TYPING_ERRORS: Final = 3
_COMPARED_MAX: Final = 100
_NO_PREFIX: Final = re.compile(r"[^/]*(\.[-.]|-\.)[^/]*/|[^/]{254,}/")
"""Keys that the schema's pattern takes though no API server does."""
_WITH_VALUES: Final = frozenset({"In", "NotIn"})


class _Sort(NamedTuple):
    """What a list of rules is evaluated on, and the match fields that not every such list has."""

    name: str
    fields: frozenset[str]


_REQUESTS: Final = _Sort("requests", frozenset({"namespaces", "deviceClasses", "adminAccess"}))
_TOLERATIONS: Final = _Sort("tolerations", _REQUESTS.fields | {"tolerations"})
_TAINTS: Final = _Sort("taints", frozenset({"pools", "taints", "evict"}))
_ALL: Final = _Sort("", _TOLERATIONS.fields | _TAINTS.fields)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def policy_errors(policy: Policy, at: Path, check: Callable[[str], None]) -> Iterator[FieldError]:
    """All errors of a policy whose document has passed the schema. `check` may raise."""
    yield from _name_errors(policy, at)
    for position, rule in enumerate(policy.rules):
        check(PHASE)
        yield from _rule_errors(rule, at.child("rules").index(position), policy)
    sorts = _sorts(policy)
    for position, exception in enumerate(policy.exceptions):
        check(PHASE)
        yield from _exception_errors(exception, at.child("exceptions").index(position), policy, sorts)
    for position, entry in enumerate(policy.default_tolerations):
        path = at.child("defaultTolerations").index(position)
        yield from _label_errors(entry.match.namespaces, path.child("match", "namespaces"))
        for number, toleration in enumerate(entry.tolerations):
            yield from _toleration_errors(toleration, path.child("tolerations").index(number))
    yield from _impact_errors(policy, at.child("impact"))
    yield from _eviction_errors(policy, at.child("eviction"))
    yield from _reaction_errors(policy, at.child("reactions"))
    for position, profile in enumerate(policy.eviction):
        check(PHASE)
        windows = at.child("eviction").index(position).child("windows")
        for number, window in enumerate(profile.windows):
            yield from _window_errors(window, windows.index(number))


def _name_errors(policy: Policy, at: Path) -> Iterator[FieldError]:
    seen: set[str] = set()
    for field, rules in (("rules", policy.rules), ("taintRules", policy.taint_rules)):
        yield from _duplicates(rules, at.child(field), seen)
        for position, rule in enumerate(rules):
            if rule.name == DEFAULT_RULE:
                path = at.child(field).index(position).child("name")
                yield invalid(path, rule.name, "is taken: it stands for the document's default")
    yield from _duplicates(policy.exceptions, at.child("exceptions"), set())
    yield from _duplicates(policy.default_tolerations, at.child("defaultTolerations"), set())


def _duplicates(entries: Iterable[_Named], at: Path, seen: set[str]) -> Iterator[FieldError]:
    for position, entry in enumerate(entries):
        if entry.name in seen:
            yield duplicate(at.index(position).child("name"), entry.name)
        seen.add(entry.name)


# --- rules --------------------------------------------------------------------------------------


def _rule_errors(rule: Rule, at: Path, policy: Policy) -> Iterator[FieldError]:
    if rule.match is ANYTHING:
        return
    path = at.child("match")
    allowing = rule.action is Action.ALLOW
    if rule.subject is Subject.REQUEST and rule.match.tolerations is not None:
        yield forbidden(path.child("tolerations"), 'a rule with subject "request" is not evaluated on tolerations')
    yield from _match_errors(rule.match, path, policy if allowing else None, f"a rule with action {rule.action}")


def _match_errors(match: Match, path: Path, allowing: Policy | None, what: str) -> Iterator[FieldError]:
    """Faults of a match; `allowing` is the policy if the match is for something that allows."""
    yield from _label_errors(match.namespaces, path.child("namespaces"))
    if allowing is not None and match.namespaces is not None:
        yield from _trust_errors(match.namespaces, path.child("namespaces"), allowing.trusted_namespace_labels, what)
    tolerations = match.tolerations
    if tolerations is None or (tolerations.above is None and tolerations.at_most is None):
        return
    seconds = path.child("tolerations", "seconds")
    wrong, right = ("above", "atMost") if allowing else ("atMost", "above")
    if (tolerations.above if allowing else tolerations.at_most) is not None:
        yield forbidden(seconds.child(wrong), f"{what} takes {right}")
    if tolerations.effects and NO_EXECUTE not in tolerations.effects:
        yield forbidden(seconds, f"only {NO_EXECUTE} is tolerated for a time, and effects leaves it out")


def _label_errors(match: NamespaceMatch | LabelMatch | None, path: Path) -> Iterator[FieldError]:
    for position, requirement in enumerate(match.expressions if match else ()):
        values = path.child("matchExpressions").index(position).child("values")
        if requirement.operator in _WITH_VALUES and not requirement.values:
            yield required(values, f"must have an entry for operator {requirement.operator}")
        if requirement.operator not in _WITH_VALUES and requirement.values:
            yield forbidden(values, f"must be empty for operator {requirement.operator}")


def _trust_errors(match: NamespaceMatch, path: Path, trusted: Sequence[str], what: str) -> Iterator[FieldError]:
    places = [(path.child("labels").key(key), key) for key, _ in match.labels]
    expressions = path.child("matchExpressions")
    places += [(expressions.index(at).child("key"), each.key) for at, each in enumerate(match.expressions)]
    for place, key in places:
        if key not in trusted:
            text = f"{what} may only rely on labels that namespace admins cannot set"
            yield forbidden(place, f'{text}; if that holds for this one, add "{key}" to trustedNamespaceLabels')


# --- exceptions ---------------------------------------------------------------------------------


def _sorts(policy: Policy) -> dict[str, _Sort]:
    """What each rule is evaluated on, by its name."""
    sorts = {rule.name: _REQUESTS if rule.subject is Subject.REQUEST else _TOLERATIONS for rule in policy.rules}
    return sorts | {rule.name: _TAINTS for rule in policy.taint_rules} | {DEFAULT_RULE: _TOLERATIONS}


def _exception_errors(
    exception: PolicyException, at: Path, policy: Policy, sorts: Mapping[str, _Sort]
) -> Iterator[FieldError]:
    allowing = {rule.name for rule in (*policy.rules, *policy.taint_rules) if rule.action is Action.ALLOW}
    for position, name in enumerate(exception.rules):
        path = at.child("rules").index(position)
        if name not in sorts:
            yield invalid(path, name, f"there is no such rule{_suggestion(name, sorts)}")
        elif name in allowing:
            yield invalid(path, name, "the rule allows; exceptions are to rules that deny, warn or audit")
    yield from _fit_errors(exception, at.child("match"), sorts)
    yield from _match_errors(exception.match, at.child("match"), policy, "an exception")
    if exception.not_before is not None and exception.not_before >= exception.expires_at:
        text = exception.not_before.isoformat().replace("+00:00", "Z")
        yield invalid(at.child("notBefore"), text, "must be before expiresAt")


def _fit_errors(exception: PolicyException, at: Path, sorts: Mapping[str, _Sort]) -> Iterator[FieldError]:
    """Fields of the match that do not apply to one of the listed rules."""
    match = exception.match
    given = {
        "namespaces": match.namespaces is not None,
        "deviceClasses": bool(match.device_classes),
        "adminAccess": match.admin_access is not None,
        "tolerations": match.tolerations is not None,
        "pools": bool(match.pools),
        "taints": match.taints is not None,
        "evict": match.evict is not None,
    }
    for name in (name for name, present in given.items() if present):
        misfit = next((rule for rule in exception.rules if name not in sorts.get(rule, _ALL).fields), None)
        if misfit is not None:
            yield forbidden(at.child(name), f'does not fit rule "{misfit}", which looks at {sorts[misfit].name}')


def _suggestion(name: str, known: Iterable[str]) -> str:
    # Comparing is slow, and a typo is seldom in the first letter.
    alike = (each for each in known if each[:1] == name[:1] and abs(len(each) - len(name)) <= _TYPING_ERRORS)
    meant = nearest(name, islice(alike, _COMPARED_MAX), 0.7, '"')
    return f", did you mean {meant}?" if meant else ""


# --- the rest -----------------------------------------------------------------------------------


def _toleration_errors(toleration: DeviceToleration, at: Path) -> Iterator[FieldError]:
    """What the API server (L-1 to L-6) or the documented rules would refuse in the claim that gets the toleration."""
    if _NO_PREFIX.match(toleration.key):
        text = "prefix part must be a DNS subdomain of at most 253 characters"
        yield invalid(at.child("key"), toleration.key, text)
    if toleration.operator == EXISTS and toleration.value:
        yield invalid(at.child("value"), toleration.value, "must be empty for operator `Exists`")
    if toleration.operator != EXISTS and not toleration.key:
        yield invalid(at.child("operator"), toleration.operator, 'must be "Exists" when key is empty')


def _impact_errors(policy: Policy, at: Path) -> Iterator[FieldError]:
    yield from _label_errors(policy.impact.protected_namespaces, at.child("protectedNamespaces"))
    ends = [entry.requesters is None and entry.taints is None for entry in policy.impact.limits]
    yield from _end_errors(ends, at.child("limits"), "requesters and taints")


def _eviction_errors(policy: Policy, at: Path) -> Iterator[FieldError]:
    for position, profile in enumerate(policy.eviction):
        yield from _label_errors(profile.namespaces, at.index(position).child("namespaces"))
        yield from _label_errors(profile.pod_labels, at.index(position).child("podLabels"))
    ends = [
        profile.namespaces is None
        and profile.priority_at_most is None
        and profile.pod_labels is None
        and not profile.device_classes
        for profile in policy.eviction
    ]
    yield from _end_errors(ends, at, "namespaces, priority, podLabels and deviceClasses")


def _reaction_errors(policy: Policy, at: Path) -> Iterator[FieldError]:
    yield from _duplicates(policy.reactions, at, set())
    for position, reaction in enumerate(policy.reactions):
        then = at.index(position).child("then")
        if reaction.evict and reaction.effect != NO_SCHEDULE:
            yield forbidden(then.child("evict"), f"is for effect {NO_SCHEDULE}; {reaction.effect} evicts by itself")
        if reaction.signal_effect != NONE and not reaction.evicts:
            text = f"must evict: a taint with {reaction.signal_effect} keeps pods away by itself"
            yield forbidden(then, f"{text}; set evict: true")


def _window_errors(window: EvictionWindow, at: Path) -> Iterator[FieldError]:
    fault = schedule_fault(window.schedule)
    if fault is not None:
        yield invalid(at.child("schedule"), window.schedule, fault)
    if not is_zone(window.zone):
        yield invalid(at.child("zone"), window.zone, "is not in the time zone database")


def _end_errors(ends: Sequence[bool], at: Path, fields: str) -> Iterator[FieldError]:
    """In a list where the first match wins, the last entry matches everything, and no other does."""
    for position in range(len(ends) - 1):
        if ends[position]:
            yield forbidden(at.index(position), f"only the last entry may be without {fields}: it matches everything")
    if not ends[-1]:
        yield forbidden(at.index(len(ends) - 1), f"the last entry must be without {fields}: it is for all others")
