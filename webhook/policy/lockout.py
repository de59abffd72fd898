"""Whether a policy would lock out clients that the cluster, or this program, depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from webhook.api.field import FieldError, Path, forbidden
from webhook.api.names import OWN_NAMESPACE, PROGRAM, WORKER
from webhook.api.taints import NONE
from webhook.policy.coverage import covers
from webhook.policy.match import (
    EFFECTS,
    SERVICE_ACCOUNT,
    SERVICE_ACCOUNTS,
    Requester,
    RequesterMatcher,
    TextSet,
    authenticated,
)
from webhook.policy.model import (
    ANYTHING,
    CLAIM_CONTROLLER,
    DEFAULT_RULE,
    Action,
    Match,
    Policy,
    PolicyMode,
    RequesterMatch,
    Rule,
    Subject,
    TaintMatch,
)
from webhook.policy.schema import PHASE

_CONTROLLER: Final = authenticated(CLAIM_CONTROLLER)
MASTERS: Final = Requester("admin", ("system:masters", "system:authenticated"))
_ALIKE: Final = 0.9
"""Other controllers of kube-system have names that are up to 0.85 alike."""
_VITAL: Final = (
    ("system:kube-scheduler", "which makes claims for extended resources"),
    (f"{SERVICE_ACCOUNT}kube-system:device-taint-eviction-controller", "which carries out NoExecute"),
)
_EVERYBODY: Final = frozenset({"*/*", f"{SERVICE_ACCOUNT}*", f"{SERVICE_ACCOUNT}*:*", f"{SERVICE_ACCOUNTS}:*"})
"""Patterns that mean all service accounts rather than one by name."""


def lockouts(
    policy: Policy, at: Path, check: Callable[[str], None], namespace: str = OWN_NAMESPACE
) -> Iterator[FieldError]:
    """Errors for rules that would lock out a vital client. `namespace` has our own service accounts."""
    evictor = authenticated(f"{SERVICE_ACCOUNT}{namespace}:{WORKER}")
    ours = {
        f"{SERVICE_ACCOUNT}{namespace}:{PROGRAM}": "which is this webhook",
        evictor.username: "which turns rules that expire to effect None",
    }
    controllers = dict.fromkeys((CLAIM_CONTROLLER, *policy.trusted_controllers), "which makes claims from templates")
    vital = {**dict(_VITAL), **ours, **controllers}
    for field, rules in (("rules", policy.rules), ("taintRules", policy.taint_rules)):
        for position, rule in enumerate(rules):
            if rule.action is Action.DENY and rule.match.requesters is not None:
                path = at.child(field).index(position).child("match", "requesters")
                yield from _naming_errors(rule.match.requesters, path, vital)
    allows = any(rule.action is Action.ALLOW and rule.subject is Subject.TOLERATION for rule in policy.rules)
    if policy.default is Action.DENY and policy.generated_claims is PolicyMode.ENFORCE and not allows:
        text = (
            f"no rule allows a toleration, so every claim that has one and that {CLAIM_CONTROLLER} makes from a "
            "template would be denied; write a rule that allows, or set generatedClaims to warn"
        )
        yield forbidden(at.child("default"), text)
    if policy.mode is PolicyMode.ENFORCE and CLAIM_CONTROLLER not in policy.trusted_controllers:
        by = _denies_controller(policy, check)
        if by is not None:
            yield _untrusted(
                policy, at, f"{by} would deny claims that it makes from templates, whatever their author may"
            )
    denied = _denies_evictor(policy.taint_rules, evictor, check)
    if denied is not None:
        text = (
            f"would deny {evictor.username}, which turns rules that expire to effect None; "
            "let a rule before it allow that account, without drivers and pools, or list effects NoSchedule and "
            "NoExecute"
        )
        yield forbidden(at.child("taintRules").index(denied), text)


def untrusted(policy: Policy, at: Path) -> FieldError | None:
    """The error for a policy that does not trust the resource-claim controller, even if it denies it nothing."""
    if CLAIM_CONTROLLER in policy.trusted_controllers:
        return None
    return _untrusted(policy, at, "claims that it makes from templates are judged as its own, not as their author's")


def _untrusted(policy: Policy, at: Path, why: str) -> FieldError:
    """The missing name, at the entry that was probably meant to be it."""
    path = at.child("trustedControllers")
    position = next((place for place, each in enumerate(policy.trusted_controllers) if _is_meant(each)), None)
    if position is None:
        return forbidden(path, f"must list {CLAIM_CONTROLLER}: {why}")
    return forbidden(path.index(position), f'did you mean "{CLAIM_CONTROLLER}"? {why}')


def _is_meant(username: str) -> bool:
    """Whether a name is almost that of the resource-claim controller, or a pattern or a short form of it."""
    from difflib import SequenceMatcher  # noqa: PLC0415 -- only for mistakes

    if TextSet([username]).holds(CLAIM_CONTROLLER) or username.endswith("resource-claim-controller"):
        return True
    return SequenceMatcher(None, username.lower(), CLAIM_CONTROLLER).ratio() > _ALIKE


def _denies_controller(policy: Policy, check: Callable[[str], None]) -> str | None:
    """What denies something to the resource-claim controller under its own name; rules with `when` are left out."""
    for subject in Subject:
        rules = [rule for rule in policy.rules if rule.subject is subject]
        for position, rest, allowed in _denials(rules, _CONTROLLER):
            check(PHASE)
            if not any(covers(each, rest) for each in allowed):
                return f'rule "{rules[position].name}"'
    allowing = [rule for rule in policy.rules if rule.subject is Subject.TOLERATION and rule.action is Action.ALLOW]
    everything = Rule(DEFAULT_RULE, Action.DENY)
    if policy.default is not Action.DENY:
        return None
    for _, rest, allowed in _denials([*allowing, everything], _CONTROLLER):
        if not any(covers(each, rest) for each in allowed):
            return "the default"
    return None


# --- by name ------------------------------------------------------------------------------------


def _naming_errors(match: RequesterMatch, at: Path, vital: Mapping[str, str]) -> Iterator[FieldError]:
    """Patterns that name one of the vital users. Patterns for all users do not count."""
    lists = (
        ("users", match.users, lambda username: username),
        ("groups", match.groups, _group),
        ("serviceAccounts", match.service_accounts, lambda username: Requester(username).service_account or ""),
    )
    for field, patterns, name_of in lists:
        for position, pattern in enumerate(patterns):
            texts = TextSet([pattern])
            if texts.everything or pattern in _EVERYBODY or (field == "groups" and texts.holds(SERVICE_ACCOUNTS)):
                continue
            hit = next((user for user in vital if texts.holds(name_of(user))), None)
            if hit is not None:
                yield forbidden(at.child(field).index(position), f"would deny {hit}, {vital[hit]}")


def _group(username: str) -> str:
    """The group of a service account's namespace; empty for other users, whose groups are not known."""
    account = Requester(username).service_account
    return f"{SERVICE_ACCOUNTS}:{account.partition('/')[0]}" if account else ""


# --- taint rules --------------------------------------------------------------------------------


def denies_masters(rules: Sequence[Rule]) -> int | None:
    """The position of a taint rule that denies all taints even to system:masters."""
    for position, rest, allowed in _denials(rules, MASTERS):
        if rest == ANYTHING and not any(covers(each, ANYTHING) for each in allowed):
            return position
    return None


def _denies_evictor(rules: Sequence[Rule], evictor: Requester, check: Callable[[str], None]) -> int | None:
    """The position of a taint rule that denies an effect None which our worker has to set."""
    for position, rest, allowed in _denials(rules, evictor):
        check(PHASE)
        taints = rest.taints or TaintMatch()
        if rest.evict is True or NONE not in (taints.effects or EFFECTS):
            continue
        # A rule that names no driver or pool is denied by each of them, and allowed by none. Our worker unsets evict.
        taints = structs.replace(taints, effects=(NONE,))
        harmless = structs.replace(rest, drivers=(), pools=(), evict=False, taints=taints)
        if not any(covers(each, harmless) for each in allowed):
            return position
    return None


def _denials(rules: Sequence[Rule], requester: Requester) -> Iterator[tuple[int, Match, list[Match]]]:
    """Rules without `when` that deny something to the requester, with what rules before them allow to it.

    Both are given without `requesters`.
    """
    allowed: list[Match] = []
    for position, rule in enumerate(rules):
        who = rule.match.requesters
        allowing = rule.action is Action.ALLOW
        if rule.match.when is not None or (who and not RequesterMatcher(who).matches(requester, allowing=allowing)):
            continue
        rest = structs.replace(rule.match, requesters=None)
        if allowing:
            allowed.append(rest)
        elif rule.action is Action.DENY:
            yield position, rest, allowed
