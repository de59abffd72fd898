"""The table's rows judged without a cluster, by the functions that serve has; and policies that differ in one thing."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from msgspec import structs

from tests.apiserver.policy.rows import CLUSTER, POLICY, Json, Row
from tests.builders import make_review
from webhook.admission.chain import mutate, validate
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Decision, apply_patch
from webhook.admission.review import decode_review
from webhook.api.field import Path, Severity
from webhook.expressions.drivers import drivers_of
from webhook.policy.decide import Judge
from webhook.policy.document import load
from webhook.policy.match import KnownNames

NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)
"""No exception of the policy begins or ends within centuries of it, so the cluster's clock says the same."""
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
NAMES: Final = KnownNames(
    {name: {NAMESPACE_NAME: name, **labels} for name, labels in CLUSTER["namespaces"].items()},
    {name: drivers_of(selectors) for name, selectors in CLUSTER["classes"].items()},
)

_FLIPPED: Final = {"allow": "deny", "deny": "allow", "warn": "deny", "audit": "warn"}
_SECONDS: Final = {"above": "atMost", "atMost": "above"}
_NOT_YET, _NO_MORE = ("2998-06-01T00:00:00Z", "2999-01-01T00:00:00Z"), ("1999-01-01T00:00:00Z", "2000-01-01T00:00:00Z")


class Outcome(NamedTuple):
    """What becomes of a row, as a cluster shows it."""

    verdict: str
    rules: tuple[str, ...]


NOT_ASKED: Final = Outcome("allowed", ())


def judged(row: Row, judge: Judge) -> Decision:
    """A create on the way that it takes in a cluster: completed first, then judged."""
    context = AdmissionContext(now=NOW, judge=judge, names=NAMES)
    groups = [*row.requester.groups, "system:authenticated"]
    review = make_review(row.manifest, user=row.requester.user, groups=groups)
    request = decode_review(json.dumps(review).encode())
    patch = mutate(request, context).patch
    if patch:
        request = structs.replace(request, object=apply_patch(request.object, patch))
    return validate(request, context)


def outcome(row: Row, judge: Judge) -> Outcome:
    """The verdict, and which rules matched, in the order of their names."""
    if not row.expected.asked:
        return NOT_ASKED
    decision = judged(row, judge)
    assert decision.problem is None, f"{row}: {decision.problem}"
    warned = any(finding.severity is Severity.WARN and finding.rule for finding in decision.findings)
    verdict = "denied" if not decision.allowed else "warned" if warned else "allowed"
    return Outcome(verdict, tuple(sorted({name for name, _ in decision.hits})))


def judge_of(document: Json) -> Judge:
    """The policy, compiled; it must be one that loads."""
    loaded = load(document, Path.root())
    assert loaded.policy is not None, "\n".join(map(str, loaded.errors))
    return Judge(loaded.policy)


@functools.cache
def the_judge() -> Judge:
    return judge_of(POLICY)


# --- policies that differ in one thing ------------------------------------------------------------


def _changed(change: Callable[[Json], None]) -> Json:
    document = copy.deepcopy(POLICY)
    change(document)
    return document


def _matches(document: Json) -> Iterator[Json]:
    for entry in (*document["rules"], *document["exceptions"]):
        yield entry.get("match", {})


def _without(*steps: str) -> Json:
    """The policy without that field of every match. What that leaves empty goes as well."""

    def change(document: Json) -> None:
        for match in _matches(document):
            _drop(match, steps)

    return _changed(change)


def _drop(value: Json, steps: tuple[str, ...]) -> None:
    first, *rest = steps
    if rest and isinstance(value.get(first), dict):
        _drop(value[first], tuple(rest))
        if not value[first]:
            del value[first]
    elif not rest:
        value.pop(first, None)


def _exceptions_between(not_before: str | None, expires_at: str | None) -> Json:
    """The policy with these times for all exceptions: None is no beginning, or the end that each has."""

    def change(document: Json) -> None:
        for exception in document["exceptions"]:
            if not_before is None:
                exception.pop("notBefore", None)
            else:
                exception["notBefore"] = not_before
            exception["expiresAt"] = expires_at or exception["expiresAt"]

    return _changed(change)


def _exceptions_without_end(document: Json) -> None:
    for exception in document["exceptions"]:
        exception["expiresAt"] = _NOT_YET[1]


def _default_allow(document: Json) -> None:
    document["default"] = "allow"


def _no_exception_to_the_default(document: Json) -> None:
    document["exceptions"] = [each for each in document["exceptions"] if "default" not in each["rules"]]


FIELDS: Final[dict[str, tuple[Json, ...]]] = {
    "namespaces.names": (_without("namespaces", "names"),),
    "namespaces.except": (_without("namespaces", "except"),),
    "namespaces.labels": (_without("namespaces", "labels"),),
    "requesters.users": (_without("requesters", "users"),),
    "requesters.groups": (_without("requesters", "groups"),),
    "requesters.serviceAccounts": (_without("requesters", "serviceAccounts"),),
    "deviceClasses": (_without("deviceClasses"),),
    "drivers": (_without("drivers"),),
    "tolerations.keys": (_without("tolerations", "keys"),),
    "tolerations.values": (_without("tolerations", "values"),),
    "tolerations.effects": (_without("tolerations", "effects"),),
    "tolerations.seconds": (_without("tolerations", "seconds"),),
    "adminAccess": (_without("adminAccess"),),
    "when": (_without("when"),),
    # A time does not just matter or not: it is also tried on its other side.
    "exceptions.notBefore": (_exceptions_between(None, None), _exceptions_between(*_NOT_YET)),
    "exceptions.expiresAt": (_changed(_exceptions_without_end), _exceptions_between(*_NO_MORE)),
    "default": (_changed(_default_allow), _changed(_no_exception_to_the_default)),
}
"""Each field that can decide, with the policy that does without it."""


def flipped(position: int) -> Json:
    """The policy with another action for one rule."""

    def change(document: Json) -> None:
        rule = document["rules"][position]
        rule["action"] = _FLIPPED[rule["action"]]
        seconds: dict[str, Any] = rule.get("match", {}).get("tolerations", {}).get("seconds", {})
        for name in list(seconds):
            if "allow" in (rule["action"], _FLIPPED[rule["action"]]):
                seconds[_SECONDS[name]] = seconds.pop(name)
        if rule["action"] == "allow":  # nothing to be excepted from any more
            document["exceptions"] = [each for each in document["exceptions"] if rule["name"] not in each["rules"]]

    return _changed(change)
