"""Whether a policy would lock out those that a cluster, or this program, cannot do without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.api.field import forbidden
from webhook.api.taints import NONE
from webhook.policy.coverage import covers
from webhook.policy.match import EFFECTS, Requesters, TextSet
from webhook.policy.model import ANYTHING, CLAIM_CONTROLLER, Action, Mode, Subject, TaintMatch
from webhook.policy.names import Requester
from webhook.policy.schema import PHASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from webhook.api.field import FieldError, Path
    from webhook.policy.model import Match, Policy, RequesterMatch, Rule

OWN_NAMESPACE: Final = "device-taint-webhook"
_ACCOUNT: Final = "system:serviceaccount:"
_ACCOUNTS: Final = "system:serviceaccounts"
_OWN_ACCOUNTS: Final = f"{_ACCOUNT}{OWN_NAMESPACE}:"


def service_account(namespace: str, name: str) -> Requester:
    """A service account as the API server authenticates it."""
    return Requester(f"{_ACCOUNT}{namespace}:{name}", (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}", "system:authenticated"))


EVICTOR: Final = service_account(OWN_NAMESPACE, "device-taint-webhook-evict")
"""Turns rules that expire to effect None."""
MASTERS: Final = Requester("admin", ("system:masters", "system:authenticated"))
_VITAL: Final = (
    ("system:kube-scheduler", "which makes claims for extended resources"),
    (f"{_ACCOUNT}kube-system:device-taint-eviction-controller", "which carries out NoExecute"),
    (f"{_OWN_ACCOUNTS}device-taint-webhook", "which is this webhook"),
    (EVICTOR.username, "which turns rules that expire to effect None"),
)
_EVERYBODY: Final = frozenset({"*/*", f"{_ACCOUNT}*", f"{_ACCOUNT}*:*", f"{_ACCOUNTS}:*"})
"""Patterns that mean all service accounts, and nobody by name."""


def lockouts(policy: Policy, at: Path, check: Callable[[str], None]) -> Iterator[FieldError]:
    """Rules that are refused, each with the name of whom it would lock out. `check` may raise."""
    controllers = dict.fromkeys((CLAIM_CONTROLLER, *policy.trusted_controllers), "which makes claims from templates")
    vital = {**dict(_VITAL), **controllers}
    for field, rules in (("rules", policy.rules), ("taintRules", policy.taint_rules)):
        for position, rule in enumerate(rules):
            if rule.action is Action.DENY and rule.match.requesters is not None:
                path = at.child(field).index(position).child("match", "requesters")
                yield from _naming_errors(rule.match.requesters, path, vital)
    allows = any(rule.action is Action.ALLOW and rule.subject is Subject.TOLERATION for rule in policy.rules)
    if policy.default is Action.DENY and policy.generated_claims is Mode.ENFORCE and not allows:
        text = (
            f"no rule allows a toleration, so every claim that has one and that {CLAIM_CONTROLLER} makes from a "
            "template would be denied; write a rule that allows, or set generatedClaims to warn"
        )
        yield forbidden(at.child("default"), text)
    denied = _denies_evictor(policy.taint_rules, check)
    if denied is not None:
        text = (
            f"would deny {EVICTOR.username}, which turns rules that expire to effect None; "
            "let a rule before it allow that account, or list effects NoSchedule and NoExecute"
        )
        yield forbidden(at.child("taintRules").index(denied), text)


# --- by name ------------------------------------------------------------------------------------


def _naming_errors(match: RequesterMatch, at: Path, vital: Mapping[str, str]) -> Iterator[FieldError]:
    """Patterns that pick out one of the vital users. Those that mean everybody pick out nobody."""
    lists = (
        ("users", match.users, _user),
        ("groups", match.groups, _group),
        ("serviceAccounts", match.service_accounts, _account),
    )
    for field, patterns, name_of in lists:
        for position, pattern in enumerate(patterns):
            texts = TextSet([pattern])
            if texts.everything or pattern in _EVERYBODY or (field == "groups" and texts.holds(_ACCOUNTS)):
                continue
            hit = next((user for user in vital if texts.holds(name_of(user))), None)
            if hit is not None:
                yield forbidden(at.child(field).index(position), f"would deny {hit}, {vital[hit]}")


def _user(username: str) -> str:
    return username


def _group(username: str) -> str:
    """The group of a service account's namespace; nothing for others, whose groups nobody knows."""
    account = Requester(username).service_account
    return f"{_ACCOUNTS}:{account.partition('/')[0]}" if account else ""


def _account(username: str) -> str:
    return Requester(username).service_account or ""


# --- taint rules --------------------------------------------------------------------------------


def denies_masters(rules: Sequence[Rule]) -> int | None:
    """The position of a taint rule that denies all taints even to system:masters."""
    for position, rest, allowed in _denials(rules, MASTERS):
        if rest == ANYTHING and not any(covers(each, ANYTHING) for each in allowed):
            return position
    return None


def _denies_evictor(rules: Sequence[Rule], check: Callable[[str], None]) -> int | None:
    """The position of a taint rule that denies an effect None which our worker has to set."""
    for position, rest, allowed in _denials(rules, EVICTOR):
        check(PHASE)
        taints = rest.taints or TaintMatch()
        if rest.evict is True or NONE not in (taints.effects or EFFECTS):
            continue
        harmless = structs.replace(rest, taints=structs.replace(taints, effects=(NONE,)))
        if not any(covers(each, harmless) for each in allowed):
            return position
    return None


def _denials(rules: Sequence[Rule], requester: Requester) -> Iterator[tuple[int, Match, list[Match]]]:
    """Rules that deny something to the requester, with what rules before them allow to it; both without `requesters`.

    Rules with `when` are left out: what they match is not known.
    """
    allowed: list[Match] = []
    for position, rule in enumerate(rules):
        who = rule.match.requesters
        allowing = rule.action is Action.ALLOW
        if rule.match.when is not None or (who and not Requesters(who).matches(requester, allowing=allowing)):
            continue
        rest = structs.replace(rule.match, requesters=None)
        if allowing:
            allowed.append(rest)
        elif rule.action is Action.DENY:
            yield position, rest, allowed
