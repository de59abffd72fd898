"""When what is planned: all pods, or only those that a change concerns; and the same question as a request is written.

A plan of more than 256 pods is kept up to date pod by pod, so that a taint on one node does not wait for a look at
all. All pods are planned again if a rule may be stopped, the policy has changed, or time has come; the next such pass
then waits for twice the time that it took. Both kinds run in steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from webhook.api.pods import Pod
from webhook.api.rules import EXPIRES_AT, DeviceTaintRule
from webhook.eviction.affected import AT_ONCE_MOST
from webhook.eviction.core import Core
from webhook.eviction.events import Telling
from webhook.eviction.expiry import Expiry, expiry_of
from webhook.eviction.ledger import View, departures_of
from webhook.eviction.line import Line, dropped
from webhook.eviction.plan import plan, planning, still_goes
from webhook.eviction.pod_plan import EvictionPlan, Going, RuleFigures, Unit
from webhook.eviction.upkeep import Upkeep
from webhook.inventory.evictions import Eviction, Without, later
from webhook.inventory.gangs import goes_with_all

WHOLE_MOST = 256
"""Up to this many pods are always planned as a whole; of more, only those that have changed."""
PART_MOST: Final = 1000
"""If more pods than this have changed, the whole is planned."""
_LIFT_SECONDS: Final = 2.0
"""How long after a change of its rules a stopped patch is looked at again."""


class Planner:
    """Makes `core.plan`, and keeps it and the line up to date."""

    def __init__(self, core: Core, upkeep: Upkeep, telling: Telling) -> None:
        self._core = core
        self._deps = core.deps
        self._upkeep = upkeep
        self._telling = telling
        self.busy = 0.0
        """The seconds that planning has kept the loop in all."""
        self.old_lines: list[Line] = []
        """Those that are to be cleared in steps."""
        self._whole_at = 0.0
        """When all pods may be planned again, in monotonic seconds."""
        self.rules_seen = 0
        """The revision at which a rule or the policy has changed last: conditions are written by a later plan."""
        self.unplanned: set[str] = set()
        """Rules, by name, whose conditions wait for that plan."""
        self._lifts: dict[str, float] = {}
        """Stopped groups that are to be looked at again, and when, in monotonic seconds."""
        self._expires_at: datetime | None = None
        """When the next rule expires."""
        self.expiry_known = False
        """Whether that is known, and what has expired is left out."""

    @property
    def wait_seconds(self) -> float:
        """The time until the next plan may differ although nothing changes; infinite if it cannot."""
        now, affected = self._deps.clock, self._core.affected
        if affected.pending or (affected.changed and len(affected.changed) <= PART_MOST):
            return 0.0
        if self._wants_whole:
            return max(self._whole_seconds, 0.0)
        waits = [self._upkeep.wait_seconds, self._core.breaker.calm_seconds, self._telling.wait_seconds]
        waits += [at - now.seconds() for at in self._lifts.values()]
        wake_at = self._core.plan.wake_at
        if wake_at is not None:
            waits.append((wake_at - now.now()).total_seconds())
        if self._expires_at is not None:
            waits.append((self._expires_at - now.now()).total_seconds())
        return max(min(waits), 0.0)

    def steps(self) -> Iterator[None]:
        """Follow what has changed and what time has brought, and plan for that, in steps."""
        core = self._core
        self._expire()
        if core.planned < 0:
            yield from self._upkeep.starting()
        while core.affected.pending:
            core.affected.follow()
            yield
        if core.acts and (core.ledger.tripped or core.affected.changed or core.affected.whole):
            self.judge_breakers()
        if core.planned < 0:
            core.ledger.departures = departures_of(core.view, core.moment())
        if self._wants_whole and self._whole_seconds <= 0:
            began = self.busy
            yield from self._plan_whole()
            self._whole_at = self._deps.clock.seconds() + 2 * (self.busy - began)
        elif core.affected.changed and len(core.affected.changed) <= PART_MOST:
            changed, core.affected.changed = core.affected.changed, {}
            yield from self._plan_part(changed)
        for name in self.unplanned:
            core.rules.add(name)
        self.unplanned.clear()
        while self.old_lines:
            yield from self.old_lines.pop().cleared()

    @property
    def _wants_whole(self) -> bool:
        """Whether all pods are to be planned again, and not only those that have changed."""
        core, wake_at = self._core, self._core.plan.wake_at
        many = len(core.affected.changed) > PART_MOST or (core.affected.changed and len(core.plan.hit) <= WHOLE_MOST)
        due = wake_at is not None and wake_at <= self._deps.clock.now()
        return core.affected.whole or bool(many) or due or self._telling.wait_seconds <= 0

    @property
    def _whole_seconds(self) -> float:
        """The time until all pods may be planned again: a pass is followed by twice the time that it took."""
        return self._whole_at - self._deps.clock.seconds()

    def _plan_whole(self) -> Iterator[None]:
        core = self._core
        revision, before, line_before = core.affected.revision, core.plan, core.line
        core.affected.begin()
        core.ceilings.begin()
        core.ledger.departed = {}
        made = yield from planning(core.view, core.ledger, self._deps.pause(), core.moment())
        if core.line is not line_before:
            return  # the policy has changed since
        for uid, figures in made.rules.items():
            if figures.stopped:
                core.ceilings.stop(core.ceilings.group_of(uid))
        self.follow_ceilings()
        line = yield from core.line.filled(made.eligible if core.acts else ())
        if core.line is not line_before:
            return
        for uid in core.ledger.taken:
            line.discard(uid)  # it was taken while this was planned
        for uid in line_before.retried or ():
            line.retry(uid)
        self._occupy(made, line)
        core.adopt(made, line, revision)
        settled = core.affected.settle()
        core.ledger.departed = None
        core.ceilings.settle({core.ceilings.group_of(uid) for uid, figures in made.rules.items() if figures.pods})
        self._queue_rules(before.rules, made.rules)
        yield from self._telling.differences(before, made, whole=True)
        known: list[dict[Any, Any]] = [before.units, before.waits, before.going, before.hit, *settled]
        for each in known:
            yield from dropped(each)
        while made.chunks:
            made.chunks.pop()
            yield
        self.old_lines.append(line_before)

    def _plan_part(self, changed: Mapping[str, Iterable[str]]) -> Iterator[None]:
        """Plan for some pods again, and for those that go together with them; the rest of a long plan stands."""
        core, revision = self._core, self._core.affected.revision
        keys, pods = core.affected.linked_to([*changed, *core.part_of(changed).hit]), core.deps.inventory.pods
        before = core.part_of({key: {pods[key].meta.uid} for key in keys if key in pods} | dict(changed))
        made = plan(self._view_of(keys), core.ledger, self._deps.pause(), core.moment())
        stopped = {uid for uid, figures in core.plan.rules.items() if figures.stopped}
        core.merge(before, made, core.planned if core.affected.whole else revision)
        for key in made.hit:
            uid, own = pods[key].meta.uid, core.affected.hit.get(key)
            known = before.rules_of(key, uid).union(own.rules if own is not None else ())
            core.affected.grow(key, uid, made.rules_of(key, uid) - known)
        self._occupy(made, core.line)
        for eviction in (*before.hit.values(), *made.hit.values()):
            for _, name in eviction.rules:
                core.rules.add_after(name, self._deps.settings.condition_seconds)
        hitting = [uid for uid, each in made.rules.items() if (each.pods or each.stopped) and uid not in stopped]
        if any(map(self._exceeded, {core.ceilings.group_of(uid) for uid in hitting})):
            core.affected.touch_all()
        yield from self._telling.differences(before, made, whole=False)

    def _occupy(self, made: EvictionPlan, line: Line) -> None:
        """Take places for pods that are terminating, which the others of their gangs share."""
        self._core.room.occupy(made.terminating)
        for place in dict.fromkeys([each.gang for each in made.terminating if each.gang]):
            line.open_gang(place)

    def _expire(self) -> None:
        """Do what time has brought."""
        core, now = self._core, self._deps.clock.seconds()
        self._upkeep.expire()
        core.breaker.reset_calm()
        self._follow_expiry()
        for group in [group for group, at in self._lifts.items() if at <= now]:
            del self._lifts[group]
            core.ceilings.lift(group)
            core.affected.touch_all()
            self.rules_seen = core.affected.revision
            self.follow_ceilings()

    def note_expiry(self, rule: DeviceTaintRule) -> None:
        """Note when a rule expires."""
        now = self._deps.clock.now()
        what, seconds = expiry_of(rule, now)
        if what is Expiry.LATER:
            at = later(now, seconds)
            self._expires_at = min(self._expires_at or at, at)

    def _follow_expiry(self) -> None:
        """Act for rules that have expired no longer, and note when the next one does."""
        core, next_at = self._core, self._expires_at
        if self.expiry_known and (next_at is None or next_at > self._deps.clock.now()):
            return
        self.expiry_known, self._expires_at = True, None
        expiring = [rule for rule in self._deps.inventory.rules.values() if EXPIRES_AT in rule.meta.annotations]
        for rule in expiring:
            self.note_expiry(rule)
        siblings = [rule for rule in self._deps.inventory.rules.values() if rule.origin.rule]  # as their owners do
        core.affected.mark_claims(core.evictions.refresh(*[rule.meta.name for rule in (*expiring, *siblings)]))
        while 0 < core.affected.pending <= AT_ONCE_MOST:  # a unit that is about to go need not wait for that
            core.affected.follow()

    def _queue_rules(self, before: Mapping[str, RuleFigures], made: Mapping[str, RuleFigures]) -> None:
        """Queue rules that hit others than before: their conditions are due, at once if they are stopped now."""
        rules = {each.meta.uid: name for name, each in self._deps.inventory.rules.items()}
        for uid in made.keys() | before.keys():
            old, new = before.get(uid), made.get(uid)
            if old == new or uid not in rules:
                continue
            if (old.stopped if old else "") != (new.stopped if new else ""):
                self._core.rules.add(rules[uid])
            else:
                self._core.rules.add_after(rules[uid], self._deps.settings.condition_seconds)

    # --- the check at the write ------------------------------------------------------------------

    def goes(self, unit: Unit) -> bool:
        """Tell whether all of a unit, which was taken, would be taken by what is known at this moment."""
        if not all(map(self._has_its_profile, unit.members)):
            return False
        return self._would_go([each.key for each in unit.members], {each.uid for each in unit.members})

    def goes_alone(self, each: Going) -> bool:
        """Tell whether a pod of a unit still goes after others of that unit were evicted."""
        if not self._has_its_profile(each):
            return False
        core, pod = self._core, self._deps.inventory.pods[each.key]
        hit = self._left_of(pod)
        if each.along and (hit is None or hit.waits):
            along = core.evictions.act(each.eviction) and goes_with_all(self._deps.inventory, pod)
            hit = each.eviction if along else None
        return hit is not None and self._would_go((), {each.uid}, {each.key: hit})

    def _has_its_profile(self, each: Going) -> bool:
        """Tell whether a pod goes by the profile by which it was taken: that decides whether its budgets are asked."""
        pod = self._deps.inventory.pods.get(each.key)
        return pod is not None and self._deps.profile_of(pod) == each.profile

    def _would_go(self, keys: Sequence[str], uids: set[str], hit: dict[str, Eviction] | None = None) -> bool:
        core, deps = self._core, self._deps
        self._follow_expiry()
        if core.affected.pending or deps.paused() is not None or not deps.trusted():
            return False
        self.judge_breakers()
        view = self._view_of(core.affected.linked_to(keys)) if hit is None else replace(self._view_of(()), hit=hit)
        return still_goes(view, core.ledger, deps.pause(), core.moment(), frozenset(uids))

    def _view_of(self, keys: Iterable[str]) -> View:
        """Return what the caches show of some pods, by `namespace/name`."""
        hit = self._core.affected.hit
        return replace(self._core.view, hit={key: hit[key] for key in keys if key in hit}, exceeded=self._exceeded)

    def _exceeded(self, group: str, *_: object) -> str:
        """Say why a group is stopped, by the last plan and what its rules have come to hit since."""
        return self._core.ceilings.stopped_by(group, self._core.affected.grown_by)

    def eviction_of(self, each: Going) -> Eviction:
        """Say why a pod goes now: the rules may be others than those by which it was taken."""
        pod = self._deps.inventory.pods.get(each.key)
        hit = None if pod is None else self._left_of(pod)
        return each.eviction if hit is None or hit.waits or each.along else hit

    def _left_of(self, pod: Pod) -> Eviction | None:
        """Say why a pod goes, without what rules that are stopped say, and drivers whose breaker has tripped."""
        stopped = frozenset([uid for uid, figures in self._core.plan.rules.items() if figures.stopped])
        return self._core.evictions.eviction_of(pod, Without(self._core.ledger.tripped, stopped))

    # --- ceilings and breakers -------------------------------------------------------------------

    def follow_ceilings(self) -> None:
        """Look again in a while, as a patch changes many rules, one after the other."""
        self._core.room.forget_rates()  # their names depend on the groups of rules
        ceilings, at = self._core.ceilings, self._deps.clock.seconds() + _LIFT_SECONDS
        for name in ceilings.counted_anew:
            self._core.rules.add(name)
        for group in ceilings.to_lift:
            self._lifts.setdefault(group, at)
        ceilings.counted_anew.clear()
        ceilings.to_lift.clear()

    def judge_breakers(self) -> None:
        """Look whether breakers trip, which pods that are about to be evicted depend on, or have been reset."""
        tripped = self._core.breaker.tripped
        if tripped != self._core.ledger.tripped:
            self._core.ledger.tripped = tripped
            self._core.affected.touch_all()
