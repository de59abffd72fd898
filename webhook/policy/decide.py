"""Which rule decides a toleration, a request or a taint, what `defaultTolerations` adds, and which policy is in use.

A `Judge` is a compiled policy. It caches which rules apply to a requester in a namespace, and evaluations by those
rules, class and toleration, because a cluster asks for the same few all the time. The cache changes no result. A
`PolicyStore` holds the judge in use: one loader writes it, everything else reads and follows it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import compress
from typing import Final, NamedTuple

from webhook.api.taints import EQUAL, EXISTS, DeviceTaint, DeviceToleration
from webhook.inventory.pools import Check, unchecked
from webhook.policy.evaluation import (
    AppliedRules,
    CompiledException,
    RuleHit,
    ScopedJudge,
    ScopedRule,
    Variables,
    hit_of,
    when_holds,
)
from webhook.policy.index import ScopeIndex, TaintIndex, TolerationIndex, positions
from webhook.policy.match import Matcher, Placement, Requester, Scope, Target
from webhook.policy.model import BUILTIN, DEFAULT_RULE, TOLERATIONS_MAX, Action, Policy, PolicyMode, Rule, Subject

_REMEMBERED: Final = 8192
"""Scopes, sets of rules and evaluations that a judge keeps. When there are more, the memory is emptied."""
_REMEMBERED_GROUPS: Final = 64
_REMEMBERED_CHARACTERS: Final = 2048
"""Of requesters in more groups, or with longer names, only the last is kept: names cannot fill the memory."""


class _Applying(NamedTuple):
    """Sets of rules and of exceptions, one bit each."""

    tolerations: int
    requests: int
    exceptions: int


class _Compiled:
    """The rules on one subject."""

    __slots__ = ("by_name", "matchers", "scopes", "steps")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.steps = [ScopedRule(rule, Matcher(rule.match, allowing=rule.action is Action.ALLOW), ()) for rule in rules]
        self.matchers = [step.matcher for step in self.steps]
        self.scopes = ScopeIndex(self.matchers)
        self.by_name: dict[str, list[int]] = {}
        for number, step in enumerate(self.steps):
            self.by_name.setdefault(step.rule.name, []).append(number)

    def applying(self, scope: Scope, check: Check) -> int:
        """The rules that can match in a scope, one bit each."""
        return _covering(self.matchers, self.scopes.candidates(scope), scope, check)

    def excused(self, exceptions: Iterable[CompiledException]) -> dict[int, ScopedRule]:
        """The rules that the exceptions are about, with these."""
        found: dict[int, ScopedRule] = {}
        for compiled in exceptions:
            for name in dict.fromkeys(compiled.exception.rules):
                for number in self.by_name.get(name, ()):
                    step = found.get(number) or self.steps[number]
                    found[number] = step._replace(exceptions=(*step.exceptions, compiled))
        return found


class _Era:
    """A period in which no exception begins or ends, with the evaluations kept for it.

    Replaced whole, so that two threads never combine exceptions of one period with evaluations of another.
    """

    __slots__ = ("active", "epoch", "judges", "large", "remembered", "scopes", "taint_rules")

    def __init__(self, epoch: int, active: tuple[CompiledException, ...]) -> None:
        self.epoch = epoch
        self.active = active
        self.scopes: dict[Scope, ScopedJudge] = {}
        self.judges: dict[_Applying, ScopedJudge] = {}
        """By the rules and exceptions that apply: most requesters differ in neither."""
        self.large: tuple[Scope, ScopedJudge] | None = None
        """The last requester with very many groups: one claim needs its scope hundreds of times."""
        self.remembered = 0
        self.taint_rules: tuple[Requester | None, AppliedRules] | None = None
        """The taint rules for the last requester."""

    def exceptions_in(self, scope: Scope, check: Check) -> int:
        """The exceptions that apply in a scope, one bit each."""
        return _covering([compiled.matcher for compiled in self.active], (1 << len(self.active)) - 1, scope, check)

    def exceptions(self, applying: int) -> list[CompiledException]:
        """Those of a set of exceptions, in order."""
        return [self.active[number] for number in positions(applying)]


class Judge:
    """A compiled policy. Safe to share between threads."""

    def __init__(self, policy: Policy = BUILTIN) -> None:
        self.policy = policy
        self.documented_mode = policy.documented_rules.at_most(policy.mode)
        """The mode of the documented rules."""
        self._generated_mode = policy.mode.at_most(policy.generated_claims)
        default = Rule(DEFAULT_RULE, policy.default)
        self._compiled = {
            Subject.TOLERATION: _Compiled([*_about(policy.rules, Subject.TOLERATION), default]),
            Subject.REQUEST: _Compiled(_about(policy.rules, Subject.REQUEST)),
        }
        self._index = {subject: TolerationIndex(rules.matchers) for subject, rules in self._compiled.items()}
        self._taint_rules = _Compiled(policy.taint_rules)
        self._taint_index = TaintIndex(self._taint_rules.matchers)
        self._exceptions = [
            CompiledException(entry, Matcher(entry.match, allowing=True)) for entry in policy.exceptions
        ]
        self._defaults = [(entry, Matcher(entry.match, allowing=True)) for entry in policy.default_tolerations]
        times = {entry.expires_at for entry in policy.exceptions}
        times |= {entry.not_before for entry in policy.exceptions if entry.not_before is not None}
        self._turns = sorted(times)
        """The times at which exceptions begin or end. Between two of them nothing changes."""
        self._era = self._era_of(0)

    def claim_mode(self, *, generated: bool, updating: bool) -> PolicyMode:
        """The mode for a claim. An update changes no spec, so it is only ever warned."""
        mode = self._generated_mode if generated else self.policy.mode
        return mode.at_most(PolicyMode.WARN) if updating else mode

    def mode_turns_down(self, *, generated: bool, updating: bool) -> bool:
        """Return whether `mode: warn`, and nothing else, turns refusals of claims into warnings."""
        enforced = self.policy.generated_claims is PolicyMode.ENFORCE or not generated
        return self.policy.mode is PolicyMode.WARN and enforced and not updating

    @property
    def judges_claims(self) -> bool:
        """Whether any rule, or the default, can refuse or report a toleration or request."""
        return bool(self.policy.rules) or self.policy.default is Action.DENY

    @property
    def judges_taints(self) -> bool:
        """Whether any rule looks at taints."""
        return bool(self.policy.taint_rules)

    def rules_on(self, subject: Subject) -> list[Rule]:
        """The rules with such a subject, in order; on tolerations the default is the last."""
        return [step.rule for step in self._compiled[subject].steps]

    def scoped(self, scope: Scope, now: datetime, check: Check = unchecked) -> ScopedJudge:
        """The rules for this requester in this namespace at this time.

        Use it at once, and keep no more than a weak reference. What it says about the same things never changes.
        """
        era = self._era_at(now)
        large = era.large
        scoped = large[1] if large is not None and large[0] == scope else era.scopes.get(scope)
        if scoped is None:
            applying = _Applying(
                self._compiled[Subject.TOLERATION].applying(scope, check),
                self._compiled[Subject.REQUEST].applying(scope, check),
                era.exceptions_in(scope, check),
            )
            scoped = era.judges.get(applying)
            if scoped is None:
                scoped = era.judges[applying] = self._scoped_by(applying, era)
                self._count_remembered()
            if _worth_remembering(scope):
                era.scopes[scope] = scoped
                self._count_remembered()
            else:
                era.large = scope, scoped
        return scoped

    def _scoped_by(self, applying: _Applying, era: _Era) -> ScopedJudge:
        exceptions = era.exceptions(applying.exceptions)
        rules = {Subject.TOLERATION: applying.tolerations, Subject.REQUEST: applying.requests}
        applied = {
            subject: AppliedRules(compiled.steps, compiled.excused(exceptions), rules[subject])
            for subject, compiled in self._compiled.items()
        }
        return ScopedJudge(applied, self._index, self._count_remembered)

    def _count_remembered(self) -> None:
        """Count one more remembered evaluation, and empty the memory when it is full."""
        era = self._era
        era.remembered += 1
        if era.remembered > _REMEMBERED:
            self._era = _Era(era.epoch, era.active)

    def on_toleration(
        self,
        scope: Scope,
        target: Target,
        toleration: DeviceToleration,
        now: datetime,
        variables: Variables,
        check: Check = unchecked,
    ) -> tuple[RuleHit, ...]:
        """The rules that match a toleration, up to the one that decides. The last hit denies, or it is allowed."""
        return self.scoped(scope, now, check).evaluate(target, toleration, variables).hits

    def on_taint(
        self,
        requester: Requester | None,
        place: Placement,
        taint: DeviceTaint,
        now: datetime,
        variables: Variables,
        check: Check = unchecked,
    ) -> tuple[RuleHit, ...]:
        """The taint rules that match a taint, up to the one that decides. `check` as for `scoped`."""
        hits: list[RuleHit] = []
        scoped = self._taint_rules_for(requester, now, check)
        for rule, matcher, mine in scoped.among(self._taint_index.candidates(place, taint)):
            if not matcher.covers_taint(place, taint):
                continue
            exceptions = (compiled for compiled in mine if compiled.matcher.covers_taint(place, taint))
            hit = hit_of(rule, exceptions, variables)
            if hit is not None:
                hits.append(hit)
                if hit.decides:
                    break
        return tuple(hits)

    def _taint_rules_for(self, requester: Requester | None, now: datetime, check: Check) -> AppliedRules:
        """The taint rules and exceptions for a requester. The last ones are kept: a slice has many taints."""
        era = self._era_at(now)
        kept = era.taint_rules
        if kept is not None and kept[0] is requester:
            return kept[1]
        scope, compiled = Scope(requester, "", None), self._taint_rules
        exceptions = era.exceptions(era.exceptions_in(scope, check))
        rules = AppliedRules(compiled.steps, compiled.excused(exceptions), compiled.applying(scope, check))
        era.taint_rules = requester, rules
        return rules

    def defaults(
        self, scope: Scope, target: Target, variables: Variables, check: Check = unchecked
    ) -> Iterator[DeviceToleration]:
        """The tolerations that `defaultTolerations` gives to a request, in order."""
        for entry, matcher in self._defaults:
            if not matcher.covers(target, None) or not matcher.covers_scope(scope, check):
                continue
            if when_holds(entry.match, variables, allowing=True)[0]:
                yield from entry.tolerations

    def _era_at(self, now: datetime) -> _Era:
        """The period that includes `now`."""
        epoch = bisect_right(self._turns, now) if self._turns else 0
        era = self._era
        if epoch != era.epoch:
            era = self._era = self._era_of(epoch)
        return era

    def _era_of(self, epoch: int) -> _Era:
        exceptions = [compiled.exception for compiled in self._exceptions]
        if epoch:
            # any moment of the era would do
            holds = [exception.active(self._turns[epoch - 1]) for exception in exceptions]
        else:
            holds = [exception.not_before is None for exception in exceptions]
        return _Era(epoch, tuple(compress(self._exceptions, holds)))


def _about(rules: Iterable[Rule], subject: Subject) -> list[Rule]:
    return [rule for rule in rules if rule.subject is subject]


def _covering(matchers: Sequence[Matcher], candidates: int, scope: Scope, check: Check) -> int:
    """Those of a set of matchers that cover a scope."""
    found = 0
    for number in positions(candidates):
        if matchers[number].covers_scope(scope, check):
            found |= 1 << number
    return found


def _worth_remembering(scope: Scope) -> bool:
    who = scope.requester
    names = (scope.namespace,) if who is None else (scope.namespace, who.username, *who.groups)
    return len(names) <= _REMEMBERED_GROUPS + 2 and sum(map(len, names)) <= _REMEMBERED_CHARACTERS


BUILTIN_JUDGE: Final = Judge()
"""Decides where no policy document is set."""


# --- default tolerations ------------------------------------------------------------------------


def defaults_for(  # noqa: PLR0913 -- the last by name
    judge: Judge,
    scope: Scope,
    target: Target,
    present: Iterable[DeviceToleration],
    now: datetime,
    variables: Callable[[DeviceToleration | None], Variables],
    *,
    check: Check = unchecked,
) -> tuple[DeviceToleration, ...]:
    """Return what to add to a request that has the tolerations `present`; nothing that the policy itself would refuse.

    As with Kubernetes' DefaultTolerationSeconds for nodes, an entry is left out if the request has a toleration, of its
    own or added before, for a taint that it would tolerate; so adding twice is adding once. `variables` gives those of
    `when`, for a toleration or for none.
    """
    known = list(present)
    added: list[DeviceToleration] = []
    for toleration in judge.defaults(scope, target, variables(None), check):
        if len(known) >= TOLERATIONS_MAX:
            break
        if any(overlap(toleration, other) for other in known):
            continue
        hits = judge.on_toleration(scope, target, toleration, now, variables(toleration), check)
        if any(hit.action is Action.DENY for hit in hits):
            continue
        known.append(toleration)
        added.append(toleration)
    return tuple(added)


def overlap(one: DeviceToleration, other: DeviceToleration) -> bool:
    """Return whether there is a taint that both tolerate."""
    return (
        (not one.key or not other.key or one.key == other.key)
        and (not one.effect or not other.effect or one.effect == other.effect)
        and (EXISTS in {one.operator, other.operator} or one.value == other.value)
    )


def rendered(toleration: DeviceToleration) -> dict[str, str | int]:
    """The toleration as a manifest has it, without empty fields."""
    fields: dict[str, str | int] = {}
    if toleration.key:
        fields["key"] = toleration.key
    fields["operator"] = toleration.operator or EQUAL
    if toleration.value:
        fields["value"] = toleration.value
    if toleration.effect:
        fields["effect"] = toleration.effect
    if toleration.toleration_seconds is not None:
        fields["tolerationSeconds"] = toleration.toleration_seconds
    return fields


# --- the policy in use --------------------------------------------------------------------------


class PolicyState(NamedTuple):
    """What the store holds at one moment."""

    active: Judge = BUILTIN_JUDGE
    """The policy in use; the built-in one until a document was loaded."""
    candidate: Judge | None = None
    """The policy that is compared with it; None if there is none."""
    loaded: bool = False
    """Whether the first document was looked at, whatever came of it; also true if there is no document."""
    failure: str = ""
    """Why the document last written is not in use; empty if it is."""


Subscriber = Callable[[PolicyState, PolicyState], None]
"""Called with the state before and after a change. It must not block, raise, or write to the store."""


class PolicyStore:
    """Holds one `PolicyState`, replaced whole at each change. One thread writes; any thread may read."""

    def __init__(self, active: Judge = BUILTIN_JUDGE, candidate: Judge | None = None) -> None:
        self._state = PolicyState(active, candidate)
        self._subscribers: list[Subscriber] = []

    @property
    def state(self) -> PolicyState:
        """Everything at once: fields that belong together must come from one state."""
        return self._state

    @property
    def active(self) -> Judge:
        """The policy in use."""
        return self._state.active

    @property
    def candidate(self) -> Judge | None:
        """The policy that is compared with it; None if there is none."""
        return self._state.candidate

    def use(self, judge: Judge) -> None:
        """Makes this the active policy."""
        self._replace(self._state._replace(active=judge, loaded=True, failure=""))

    def reject(self, why: str) -> None:
        """Keeps the active policy: there is a newer document, and it cannot be used."""
        self._replace(self._state._replace(loaded=True, failure=why))

    def use_candidate(self, judge: Judge | None) -> None:
        """Makes this the candidate; None ends the comparison."""
        self._replace(self._state._replace(candidate=judge))

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls this at each change from now on; subscribers are called in the order in which they came."""
        self._subscribers.append(subscriber)

    def _replace(self, new: PolicyState) -> None:
        old = self._state
        if new == old:
            return
        self._state = new
        for subscriber in self._subscribers:
            subscriber(old, new)
