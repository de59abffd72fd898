"""The pass: who may go now, in which order, and what every other pod waits for. Pure, and without memory.

The same view, ledger, policy and moment give the same plan. In this order:

1. *Stopped*: reasons, not pods, are taken out. Those of rules over their ceiling, counted with their whole group, and
   those in slices of drivers whose breaker has tripped. A pod that has no reason left waits for that, exempt or not.
2. *Along*: in a PodGroup with disruption mode `all`, pods that no taint evicts go with a member that goes. A member
   that stays takes no pod along. Ceilings count them, so this comes before 1, and again after it.
3. *Stay*: exempt pods, those whose eviction would free no device, and those whose pool is being published again.
4. *Together*: units. All users of one tainted claim, and the members of a gang that are due within `gangWindow` of the
   first; if claims or a PodGroup with mode `all` tie them, all of them, however late the last is due.
5. *When*: what each pod waits for by itself. One that could go waits for the others of its unit.
6. *Order*: pods whose last requests failed come last, but not the rest of a gang; lowest priority first, then those
   refused least often, then the longest due, then by name.

`Line.take` decides which of the pods that may go find room. Source: `docs/eviction.md`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from webhook.api.pods import Pod
from webhook.eviction.ledger import ROUNDS_MOST, Failure, Ledger, Moment, View, lasting_claims
from webhook.eviction.pod_plan import (
    EvictionPlan,
    Going,
    RuleFigures,
    StepReason,
    Unit,
    Wait,
    exemption,
    stuck_at,
    wait_of_others,
    wait_without,
    waves_of,
)
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import NOTHING, Eviction, RuleRef, Without, later
from webhook.inventory.gangs import goes_with_all, group_key, is_leaving, may_go_along
from webhook.inventory.state import claim_keys
from webhook.policy.model import Pause
from webhook.policy.windows import state_of

_STEP: Final = 128
"""Pods between two pauses of the pass: less than a millisecond."""
_ORDER, _KEY, _DUE = attrgetter("order"), attrgetter("key"), attrgetter("due")
_CHUNK: Final = 2048
"""Units that are sorted in one piece; the pieces are merged as they are read."""

_T = TypeVar("_T")
Steps: TypeAlias = Generator[None, None, _T]
"""Work that may be interrupted at each step."""
_Counts: TypeAlias = "Counter[str]"
"""Pods by namespace."""
_Asked: TypeAlias = tuple[str, tuple[RuleRef, ...]]
"""A pod that was asked for, by `namespace/name`, and the rules that hit it then."""


def plan(view: View, ledger: Ledger, pause: Pause | None, moment: Moment) -> EvictionPlan:
    """Make the plan in one piece."""
    return _result_of(planning(view, ledger, pause, moment))


def _result_of(steps: Steps[_T]) -> _T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: _T = done.value
            return made


def planning(view: View, ledger: Ledger, pause: Pause | None, moment: Moment) -> Steps[EvictionPlan]:
    """Make the plan in small steps. Pods that change between two of them may be planned as they were."""
    return (yield from _Pass(view, ledger, pause, moment).run())


def still_goes(view: View, ledger: Ledger, pause: Pause | None, moment: Moment, pods: AbstractSet[str]) -> bool:
    """Tell whether just these pods, by uid, would go now, although they were taken. `view`: what is linked to them."""
    made = _result_of(_Pass(view, ledger, pause, moment, again=pods).run())
    return any(pods == {each.uid for each in unit.members} for chunk in made.chunks for unit in chunk)


@dataclass(slots=True)
class _Pass:
    view: View
    ledger: Ledger
    pause: Pause | None
    moment: Moment
    again: AbstractSet[str] = frozenset()
    """Pods, by uid, that were taken, and are asked about all the same."""
    pods: dict[str, Pod] = field(default_factory=dict)
    """By `namespace/name`, as they were when it began."""
    granted: AbstractSet[str] = frozenset()
    """Those that were evicted by then."""
    asked: Mapping[str, _Asked] = field(default_factory=dict)
    """Those that were in flight when it began."""
    waits: dict[str, Wait] = field(default_factory=dict)
    going: dict[str, Going] = field(default_factory=dict)
    without: Without = NOTHING
    """The reasons that were taken out."""
    wake_at: datetime | None = None

    def run(self) -> Steps[EvictionPlan]:
        own = yield from self._look()
        along = yield from self._along(own)
        hit = every = {**own, **along} if along else own
        rules = yield from self._count(every)
        stopped = frozenset([uid for uid, figures in rules.items() if figures.stopped])
        while self.without != (self.ledger.tripped, stopped):
            self.without = Without(self.ledger.tripped, stopped)
            self.waits.clear()
            left = yield from self._stop(every, rules)
            along = yield from self._along(left)
            hit = {**left, **along}
            for key in along:
                self.waits.pop(self.pods[key].meta.uid, None)
            again = yield from self._count(hit)  # who goes along may do so for another rule now
            over = {uid: figures for uid, figures in again.items() if figures.stopped and uid not in stopped}
            rules |= over
            stopped = stopped.union(over)
        terminating = yield from self._terminating(every)
        yield from self._sort_out(hit, along)
        linked = yield from self._index()
        units, ready, pods = dict[str, Unit](), list[Unit](), 0
        for unit in self._together(linked):
            if len(unit.members) > 1:
                units.update([(each.uid, unit) for each in unit.members])
            if self._may_go(unit):
                ready.append(unit)
            pods += len(unit.members)
            if pods >= _STEP:
                pods = 0
                yield
        chunks = list[tuple[Unit, ...]]()
        for first in range(0, len(ready), _CHUNK):
            chunks.append(tuple(sorted(ready[first : first + _CHUNK], key=_ORDER)))
            yield
        return EvictionPlan(chunks, units, self.waits, self.going, terminating, every, rules, self.wake_at)

    def _look(self) -> Steps[dict[str, Eviction]]:
        """Find the pods that a taint hits, and that are there."""
        hit, known = dict[str, Eviction](), self.view.inventory.pods
        if self.again:
            self.granted = self.ledger.granted  # in one piece, so nothing changes meanwhile
        else:
            self.granted, self.asked = frozenset(self.ledger.granted), self._in_flight()
        for number, key in enumerate(list(self.view.hit)):
            if not number % _STEP:
                yield
            pod, eviction = known.get(key), self.view.hit.get(key)
            if pod is not None and eviction is not None:
                self.pods[key], hit[key] = pod, eviction
        return hit

    def _in_flight(self) -> dict[str, _Asked]:
        taken = self.ledger.taken
        return {uid: (taken[uid].key, taken[uid].rules) for uid in self.ledger.in_flight if uid not in self.again}

    # --- reasons that are taken out --------------------------------------------------------------

    def _count(self, hit: Mapping[str, Eviction]) -> Steps[dict[str, RuleFigures]]:
        """Count what each rule hits, and note whether that is over the ceiling of its group."""
        by_rule, by_group = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
        counters, standing = dict[int, list[Counter[str]]](), set[str]()
        for number, (key, eviction) in enumerate(hit.items()):
            if not number % _STEP:
                yield
            counted = counters.get(id(eviction))
            if counted is None:
                counted = counters[id(eviction)] = self._counters_of(eviction.rules, by_rule, by_group)
            pod = self.pods[key]
            if not counted or self._was_counted(pod) or (pod.pod_group and self._held_by(pod)):
                continue
            standing.add(pod.meta.uid)
            for each in counted:
                each[pod.meta.namespace] += 1
        for key, refs in self._left(standing):
            for each in self._counters_of(refs, by_rule, by_group):
                each[key.partition("/")[0]] += 1
        hitting = frozenset([uid for uid, found in by_rule.items() if found])
        stopped = {
            group: self.view.exceeded(group, found.total(), found.keys(), hitting) if found else ""
            for group, found in by_group.items()
        }
        return {
            uid: RuleFigures(found.total(), len(found), stopped[self.view.group_of(uid)])
            for uid, found in by_rule.items()
        }

    def _counters_of(
        self, rules: Iterable[RuleRef], by_rule: Mapping[str, _Counts], by_group: Mapping[str, _Counts]
    ) -> list[_Counts]:
        groups = {self.view.group_of(uid) for uid, _ in rules}
        return [*[by_rule[uid] for uid, _ in rules], *[by_group[group] for group in groups]]

    def _left(self, standing: Container[str]) -> Iterator[_Asked]:
        """Yield those in flight that do not count as standing: a watch may be ahead of an answer, or a pass slow."""
        for uid, asked in {**self.asked, **self._in_flight(), **(self.ledger.departed or {})}.items():
            pod = self.view.pod(asked[0], uid)
            if uid not in standing and (pod is None or is_leaving(pod) or (pod.pod_group and self._held_by(pod))):
                yield asked

    def _stop(self, hit: Mapping[str, Eviction], rules: Mapping[str, RuleFigures]) -> Steps[dict[str, Eviction]]:
        """Leave what is left of the pods' own evictions; pods that have none left wait."""
        left, pods, without = dict[str, Eviction](), self.pods, self.without
        taken_out: dict[int, Wait | None] = {}
        for number, (key, eviction) in enumerate(hit.items()):
            if not number % _STEP:
                yield
            own = self.view.hit.get(key)  # None: it only goes along
            judged = eviction if own is None else own
            for each in (eviction, judged):
                if id(each) not in taken_out:
                    taken_out[id(each)] = wait_without(each, without, rules)
            wait, uid = taken_out[id(eviction)] or taken_out[id(judged)], pods[key].meta.uid
            if own is not None and taken_out[id(own)] is not None:
                own = self.view.evictions.eviction_of(pods[key], without)
            if own is not None:
                left[key] = own
            elif wait is not None and not is_leaving(pods[key]):
                stay = self._stay(pods[key], judged, self.view.profile_of(pods[key]))
                self.waits[uid] = Wait(StepReason.TAKEN) if self._is_taken(uid) else stay or wait
        return left

    # --- along, stay -----------------------------------------------------------------------------

    def _along(self, hit: Mapping[str, Eviction]) -> Steps[dict[str, Eviction]]:
        """Find the pods that go because others of their PodGroup do, with the first eviction of those."""
        inventory, along = self.view.inventory, dict[str, Eviction]()
        groups: dict[str, list[str]] = {}
        for number, key in enumerate(hit):
            if not number % _STEP:
                yield
            pod = self.pods[key]
            if pod.pod_group and goes_with_all(inventory, pod):
                groups.setdefault(group_key(pod), []).append(key)
        for group, keys in groups.items():
            yield
            stays = {key: self._stay(self.pods[key], hit[key], self.view.profile_of(self.pods[key])) for key in keys}
            causes = [key for key in keys if stays[key] is None]
            live = [key for key in causes if not self._has_gone(self.pods[key])]
            first = min(live or causes, key=lambda key: (hit[key].due, key), default="")
            for key in inventory.members_of(group) if first else ():
                pod = self.pods.setdefault(key, inventory.pods[key])
                if (key in hit and not hit[key].waits) or pod.finished or not may_go_along(pod):
                    continue
                if live or self._is_taken(pod.meta.uid) or self._place_of(pod.meta.uid):
                    along[key] = hit[first]  # a pod that is new stays once its unit was taken
        return along

    def _leaves(self, pod: Pod) -> bool:
        return is_leaving(pod) or pod.meta.uid in self.granted

    def _was_counted(self, pod: Pod) -> bool:
        """Return whether a pod counts as evicted for good, also if it stands undeleted and is evicted once more."""
        failure = self.ledger.failures.get(pod.meta.uid)
        return self._leaves(pod) or (failure is not None and failure.undeleted)

    def _is_taken(self, uid: str) -> bool:
        return uid in self.ledger.taken and uid not in self.again

    def _has_gone(self, pod: Pod) -> bool:
        """Tell whether a pod takes no new one along: it leaves, or was taken, alone or with the others of its unit."""
        taken = self.ledger.taken.get(pod.meta.uid)
        begun = taken is not None and (pod.meta.uid not in self.again or taken.unit in self.ledger.begun)
        return begun or self._leaves(pod)

    def _place_of(self, uid: str) -> str:
        """Return the place that a pod was taken at, if others have gone that it was to go with; else empty."""
        failure = self.ledger.failures.get(uid)
        return failure.place if failure is not None and failure.unit in self.ledger.begun else ""

    def _stay(self, pod: Pod, eviction: Eviction, profile: Profile) -> Wait | None:
        if eviction.waits:
            return Wait(StepReason.REPUBLISHED)
        reason = exemption(pod, profile.settings)
        if reason is not None:
            return Wait(reason)
        if pod.pod_group and (group := self._held_by(pod)):
            return Wait(StepReason.GROUP, because=group)
        claim = self._returns(pod) if self.ledger.rounds else ""
        return Wait(StepReason.RETURNS, because=claim) if claim else None

    def _held_by(self, pod: Pod) -> str:
        return self.view.evictions.holding_group(pod, self.without)

    def _returns(self, pod: Pod) -> str:
        """Return the claim through which the pod has come back too often; empty if there is none."""
        for key in lasting_claims(pod):
            rounds = self.ledger.rounds.get(key)
            claim = self.view.inventory.claims.get(key)
            if rounds is None or claim is None or claim.meta.uid != rounds.claim_uid or pod.meta.uid in rounds.pods:
                continue
            if rounds.count >= ROUNDS_MOST and self.view.evictions.evicts_users_of(key, self.without):
                return key
        return ""

    def _terminating(self, hit: Mapping[str, Eviction]) -> Steps[tuple[Going, ...]]:
        """Return the pods that are terminating. They take places whatever becomes of the reasons why they go."""
        found = list[Going]()
        for number, (key, eviction) in enumerate(hit.items()):
            if not number % _STEP:
                yield
            pod = self.pods[key]
            if pod.deleting and not pod.finished:
                profile = self.view.profile_of(pod)
                found.append(self._going(key, eviction, profile, along=key not in self.view.hit))
                self._wake(stuck_at(pod, profile.settings))
        return tuple(found)

    def _wake(self, at: datetime | None) -> None:
        if at is not None and at > self.moment.now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def _sort_out(self, hit: Mapping[str, Eviction], along: Container[str]) -> Steps[None]:
        """Sort out who goes, now or later, and who stays."""
        for number, (key, eviction) in enumerate(hit.items()):
            if not number % _STEP:
                yield
            pod = self.pods[key]
            uid, profile = pod.meta.uid, self.view.profile_of(pod)
            if is_leaving(pod):
                continue
            wait = Wait(StepReason.TAKEN) if self._is_taken(uid) else self._stay(pod, eviction, profile)
            if wait is not None:
                self.waits[uid] = wait
            else:
                self.going[uid] = self._going(key, eviction, profile, along=key in along)

    def _going(self, key: str, eviction: Eviction, profile: Profile, *, along: bool) -> Going:
        pod, grace = self.pods[key], profile.settings.grace_seconds
        due = later(eviction.due, grace) if grace else eviction.due
        return Going(key, pod, eviction, profile, due, self.view.gang_of(pod, profile), along)

    # --- together --------------------------------------------------------------------------------

    def _index(self) -> Steps[dict[str, list[Going]]]:
        """Index the pods that go by each of their links: their gang, and the claims that they share with others."""
        linked: dict[str, list[Going]] = {}
        for number, each in enumerate(self.going.values()):
            if not number % _STEP:
                yield
            for link in self._links_of(each):
                linked.setdefault(link, []).append(each)
        return linked

    def _links_of(self, each: Going) -> list[str]:
        links = [each.gang] if each.gang else []
        inventory, evicts = self.view.inventory, self.view.evictions.evicts_users_of
        if inventory.shares(each.key):
            links += [key for key in claim_keys(each.pod) if inventory.is_shared(key) and evicts(key, self.without)]
        return links

    def _together(self, linked: Mapping[str, list[Going]]) -> Iterator[Unit]:
        seen: set[str] = set()
        for uid, each in self.going.items():
            if uid in seen:
                continue
            links = self._links_of(each)
            if links:
                seen.add(uid)
                yield from self._units_of([each], links, linked, seen)
            else:
                yield self._unit((each,), uid)

    def _units_of(
        self, found: list[Going], links: list[str], linked: Mapping[str, list[Going]], seen: set[str]
    ) -> Iterator[Unit]:
        """Yield the units of all pods that are linked to the one found, directly or through others."""
        followed, left = dict[str, None](), links
        while left:
            link = left.pop()
            if link in followed:
                continue
            followed[link] = None
            fresh = [each for each in linked.get(link, ()) if each.uid not in seen]
            seen.update([each.uid for each in fresh])
            found += fresh
            left += [other for each in fresh for other in self._links_of(each)]
        gangs = {each.gang for each in found}
        key = max(followed, key=lambda link: (link in gangs, link))
        by_claim = any(link not in gangs for link in followed)
        tied = by_claim or any(goes_with_all(self.view.inventory, each.pod) for each in found)
        waves = [[each] for each in found if self._place_of(each.uid)]  # the others have gone: each follows by itself
        rest = [each for each in found if not self._place_of(each.uid)] if waves else found
        for wave in (*waves, *([rest] if tied and rest else waves_of(rest))):
            members = tuple(sorted(wave, key=_KEY))
            yield self._unit(members, key if len(members) > 1 else members[0].gang or members[0].uid)

    def _unit(self, members: tuple[Going, ...], key: str) -> Unit:
        failures = [self.ledger.failures[each.uid] for each in members if each.uid in self.ledger.failures]
        places = [place for each in members if (place := self._place_of(each.uid))]  # of a gang that has begun to go
        failed = not places and any(each.errors > 1 for each in failures)  # one passes, as when an API server starts
        refusals = max([each.refusals for each in failures], default=0)
        due = max([each.due for each in members])
        key = min(places, default=key)
        priority = max([each.pod.priority for each in members])
        return Unit(members, key, due, (failed, priority, refusals, due, members[0].key))

    # --- when ------------------------------------------------------------------------------------

    def _may_go(self, unit: Unit) -> bool:
        """Return whether all of a unit may go now; notes what its pods wait for."""
        now, waits = self.moment.now, dict[str, Wait]()
        for each in unit.members:
            wait = self._alone(each)
            if wait is not None:
                waits[each.uid] = wait
        # Not due comes first, then what others wait for, then the pause.
        if not waits and now >= unit.due and (self.pause is None or now >= self.pause.until):
            return True
        if now < unit.due:
            last = max(unit.members, key=_DUE)
            rest = Wait(StepReason.GANG, unit.due, last.key, StepReason.EARLY)
        elif waits:
            rest = wait_of_others([(waits[each.uid], each.key) for each in unit.members if each.uid in waits])
        else:
            rest = Wait(StepReason.PAUSED, self.pause.until if self.pause is not None else None)
        for each in unit.members:
            wait = self.waits[each.uid] = waits.get(each.uid, rest)
            self._wake(wait.until)
        return False

    def _alone(self, each: Going) -> Wait | None:
        """Return what a pod waits for by itself."""
        now, settings, pod = self.moment.now, each.profile.settings, each.pod
        if now < each.due:
            return Wait(StepReason.EARLY, each.due)
        hold = pod.hold if pod.hold is not None else self.view.hold_of(pod.meta.namespace)
        if hold is not None and now < (end := later(each.due, settings.max_hold_seconds)):
            return Wait(StepReason.HELD, end, because=hold)
        completes = settings.wait_for_completion_seconds if pod.completes else 0.0
        if completes and now < (end := later(each.due, completes)):
            return Wait(StepReason.COMPLETING, end)
        if settings.windows:
            state = state_of(settings.windows, now)
            if not state.open:
                return Wait(StepReason.WINDOW, state.until)
            self._wake(state.until)
        failure = self.ledger.failures.get(each.uid)
        return None if failure is None else self._failed(failure, pod)

    def _failed(self, failure: Failure, pod: Pod) -> Wait | None:
        if failure.outdated and failure.outdated == pod.meta.resource_version:
            return Wait(StepReason.FAILED)
        seconds = failure.retry_at - self.moment.seconds
        return Wait(StepReason.FAILED, self.moment.now + timedelta(seconds=seconds)) if seconds > 0 else None
