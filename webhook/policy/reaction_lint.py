"""Warnings about reactions that do too much, or can never do anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.api.field import Finding, Severity, forbidden, required
from webhook.api.taints import DeviceTaint
from webhook.policy.match import Matcher, Placement
from webhook.policy.model import Action
from webhook.policy.reactions import REACTION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.api.field import Path
    from webhook.policy.model import Policy, Reaction, Rule
    from webhook.policy.ports import Requester

_UNLIMITED: Final = "must be set for a reaction that evicts: a driver that misreports would empty all of its devices"
_NOT_CREATED: Final = "twoStep refuses rules that evict from the start, and so those of this reaction"


def reaction_warnings(policy: Policy, at: Path, account: Requester) -> Iterator[Finding]:
    """Advice on the policy's reactions, which stand at the path. `account` is the one that writes their rules."""
    for position, reaction in enumerate(policy.reactions):
        path = at.index(position)
        if reaction.evicts and reaction.max_devices is None:
            yield Finding(Severity.WARN, required(path.child("maxDevices"), _UNLIMITED), "DT123")
        if reaction.evicts and policy.impact.two_step:
            yield Finding(Severity.WARN, forbidden(path.child("then"), _NOT_CREATED), "DT124")
        rule = _denying(policy, reaction, account)
        if rule is not None:
            text = f'taint rule "{rule.name}" denies {REACTION_KEY} to {account.username}, which writes its rules'
            yield Finding(Severity.WARN, forbidden(path, f"{text}; let a rule before it allow that"), "DT125")


def _denying(policy: Policy, reaction: Reaction, account: Requester) -> Rule | None:
    """The taint rule that denies every rule of the reaction; None where that is not certain.

    It is not if pools, an expression or an exception have a say.
    """
    place = Placement(reaction.driver, None, evict=reaction.evict)
    taint = DeviceTaint(REACTION_KEY, "", reaction.effect)
    excused = {name for exception in policy.exceptions for name in exception.rules}
    for rule in policy.taint_rules:
        allowing = rule.action is Action.ALLOW
        if not allowing and rule.action is not Action.DENY:
            continue
        matcher = Matcher(structs.replace(rule.match, pools=(), when=None), allowing=allowing)
        theirs = matcher.requesters is None or matcher.requesters.matches(account, allowing=allowing)
        if not theirs or not matcher.covers_taint(place, taint):
            continue
        if allowing:
            return None
        if not rule.match.pools and rule.match.when is None and rule.name not in excused:
            return rule
    return None
