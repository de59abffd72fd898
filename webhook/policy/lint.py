"""What a policy says but most likely does not mean: warnings with stable codes.

`explain/codes.md` has an entry for each code. Rules that would lock out vital clients are errors: see `lockout`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from webhook.api.field import FieldError, Finding, Path, Severity, forbidden, invalid, required
from webhook.api.meta import format_time
from webhook.api.names import OWN_NAMESPACE, PATCH_ACCOUNT
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint
from webhook.policy.coverage import EarlierRules, covers
from webhook.policy.limits import REACTION_KEY
from webhook.policy.lockout import denies_masters, untrusted
from webhook.policy.match import SERVICE_ACCOUNT, Matcher, Placement, Requester, TextSet, authenticated
from webhook.policy.model import (
    ANYTHING,
    DEFAULT_RULE,
    Action,
    EvictionProfile,
    Match,
    NamespaceMatch,
    Policy,
    Reaction,
    Rule,
    Subject,
)
from webhook.policy.schema import PHASE
from webhook.policy.windows import minutes_text

MISREAD: Final = "DT113"
"""The code of warnings that need the text of the document; `files.manifests` gives them."""
SOON: Final = timedelta(days=7)
LONG: Final = timedelta(days=366)
_APART_SECONDS: Final = 22 * 3600.0
"""Starts at one time of the day are further apart, also where clocks go forward."""
_UNBOUND: Final = "null lifts the limit: one rule may evict any number of pods; set pods, claims or devices"
_TWO_STEPS: Final = "twoStep refuses rules created with NoExecute, so they are not softened; set twoStep: false"
_FORCED: Final = "deletes by force: the device is free for others while containers still use it; set 1 or more"
_UNLIMITED: Final = "must be set for a reaction that evicts: a driver that misreports would empty all of its devices"
_NOT_CREATED: Final = "twoStep refuses rules that evict from the start, and so those of this reaction"
_ALL_BUT_NONE: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})


def warnings(
    policy: Policy, at: Path, check: Callable[[str], None], namespace: str = OWN_NAMESPACE
) -> Iterator[Finding]:
    """Advice on a policy that needs no clock. `namespace` has our own service accounts. `check` may raise."""
    excused = frozenset([name for exception in policy.exceptions for name in exception.rules])
    yield from _rule_warnings(policy.rules, at.child("rules"), excused, check)
    yield from _rule_warnings(policy.taint_rules, at.child("taintRules"), excused, check)
    error = untrusted(policy, at)
    if error is not None:
        yield _warn("DT112", error)
    masters = denies_masters(policy.taint_rules)
    if masters is not None:
        text = "denies every taint that no rule before it allows, also to system:masters; put one that allows before it"
        yield _warn("DT105", forbidden(at.child("taintRules").index(masters), text))
    for position, exception in enumerate(policy.exceptions):
        path = at.child("exceptions").index(position)
        yield from _match_warnings(exception.match, path.child("match"))
        if set(exception.rules) == {DEFAULT_RULE} and policy.default is Action.ALLOW:
            yield _warn("DT110", forbidden(path.child("rules"), "the document's default allows already"))
    for position, entry in enumerate(policy.default_tolerations):
        path = at.child("defaultTolerations").index(position)
        yield from _match_warnings(entry.match, path.child("match"))
        for number, toleration in enumerate(entry.tolerations):
            if toleration.toleration_seconds is not None and toleration.effect not in {"", NO_EXECUTE}:
                where = path.child("tolerations").index(number).child("tolerationSeconds")
                text = f"only eviction counts seconds, and effect is {toleration.effect}"
                yield _warn("DT106", forbidden(where, text))
    yield from _limit_and_profile_warnings(policy, at)
    yield from _reaction_warnings(
        policy, at.child("reactions"), authenticated(f"{SERVICE_ACCOUNT}{namespace}:{PATCH_ACCOUNT}")
    )


def _limit_and_profile_warnings(policy: Policy, at: Path) -> Iterator[Finding]:
    for position, limits in enumerate(policy.impact.limits):
        if limits.pods is None and limits.claims is None and limits.devices is None:
            where = at.child("impact", "limits").index(position).child("pods")
            yield _warn("DT111", forbidden(where, _UNBOUND))
        if limits.softens and policy.impact.two_step:
            where = at.child("impact", "limits").index(position).child("action")
            yield _warn("DT119", forbidden(where, _TWO_STEPS))
    for position, profile in enumerate(policy.eviction):
        yield from _window_warnings(profile, at.child("eviction").index(position))
        if profile.grace_period_seconds == 0:
            where = at.child("eviction").index(position).child("gracePeriodSeconds")
            yield _warn("DT114", invalid(where, 0, _FORCED))


def _window_warnings(profile: EvictionProfile, at: Path) -> Iterator[Finding]:
    """A deadline that passes in no window."""
    if len(profile.windows) != 1 or profile.skips or not profile.delete_after_deadline:
        return
    (window,) = profile.windows
    # Several windows, or starts on one day, may follow each other without a gap.
    daily = all(map(str.isdecimal, window.schedule.split()[:2])) and window.duration_seconds <= _APART_SECONDS
    if daily and profile.deadline_seconds >= window.duration_seconds:
        length = minutes_text(window.duration_seconds)
        text = f"no window is longer than {length}, and the deadline passes only while one is open: nothing is deleted"
        yield _warn("DT122", forbidden(at.child("deadline"), text))


def expiring(policy: Policy, now: datetime, at: Path | None = None) -> Iterator[Finding]:
    """Advice on exceptions that have ended, will end within a week, or hold for more than a year."""
    entries = (at or Path.root()).child("exceptions")
    for position, exception in enumerate(policy.exceptions):
        path, ends = entries.index(position).child("expiresAt"), exception.expires_at
        if ends <= now:
            yield _warn("DT107", invalid(path, format_time(ends), "has passed: the exception does nothing, remove it"))
        elif ends - now <= SOON:
            yield _warn("DT108", invalid(path, format_time(ends), "is within a week"))
        if ends - max(exception.not_before or now, now) > LONG:
            text = "is more than a year away: that is a rule, write one"
            yield _warn("DT109", invalid(path, format_time(ends), text))


def _rule_warnings(
    rules: Sequence[Rule], at: Path, excused: Container[str], check: Callable[[str], None]
) -> Iterator[Finding]:
    walks = {subject: EarlierRules() for subject in Subject}
    for position, rule in enumerate(rules):
        check(PHASE)
        path = at.index(position)
        earlier = walks[rule.subject].covering(rule)
        if earlier is not None:
            yield _warn(
                "DT101", forbidden(path, f'is never reached: rule "{earlier.name}" decides all that it matches')
            )
        if rule.name not in excused:
            walks[rule.subject].add(rule)
        yield from _match_warnings(rule.match, path.child("match"))
        tolerations = rule.match.tolerations
        if rule.action is Action.ALLOW and tolerations is not None and frozenset(tolerations.effects) == _ALL_BUT_NONE:
            text = "leaves out None, so a toleration without effect is not allowed; leave effects out if it should be"
            yield _warn("DT103", forbidden(path.child("match", "tolerations", "effects"), text))


def _match_warnings(match: Match, at: Path) -> Iterator[Finding]:
    if match.namespaces is not None and _is_nowhere(match.namespaces):
        yield _warn("DT102", forbidden(at.child("namespaces"), "no namespace can match this"))
    if match.when is not None and covers(match, ANYTHING):
        text = "is evaluated for everything; let another field, such as deviceClasses, match first"
        yield _warn("DT104", forbidden(at.child("when"), text))


def _is_nowhere(match: NamespaceMatch) -> bool:
    """Whether the match contradicts itself. Only plain cases are detected."""
    if match.except_names:
        excepted = TextSet(match.except_names)
        # a pattern that is excepted as a text, and a name that is excepted by a pattern
        names = [name for name in match.names if name not in match.except_names]
        plain = not TextSet(names).globs
        if excepted.everything or (match.names and plain and all(map(excepted.holds, names))):
            return True
    present = {key for key, _ in match.labels}
    present |= {each.key for each in match.expressions if each.operator in {"In", "Exists"}}
    return any(each.operator == "DoesNotExist" and each.key in present for each in match.expressions)


def _reaction_warnings(policy: Policy, at: Path, account: Requester) -> Iterator[Finding]:
    """Advice on the policy's reactions, which stand at the path. `account` is the one that writes their rules."""
    for position, reaction in enumerate(policy.reactions):
        path = at.index(position)
        if reaction.evicts and reaction.max_devices is None:
            yield _warn("DT123", required(path.child("maxDevices"), _UNLIMITED))
        if reaction.evicts and policy.impact.two_step:
            yield _warn("DT124", forbidden(path.child("then"), _NOT_CREATED))
        rule = _denying(policy, reaction, account)
        if rule is not None:
            text = f'taint rule "{rule.name}" denies {REACTION_KEY} to {account.username}, which writes its rules'
            yield _warn("DT125", forbidden(path, f"{text}; let a rule before it allow that"))


def _denying(policy: Policy, reaction: Reaction, account: Requester) -> Rule | None:
    """The taint rule that surely denies each rule of the reaction (no pool, expression, exception), or None."""
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


def _warn(code: str, error: FieldError) -> Finding:
    return Finding(Severity.WARN, error, code)
