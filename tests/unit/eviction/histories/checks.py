"""What must hold at each request that leaves, as a unit is taken, and at the end of a history.

At every request, by what the caches show at that moment: a taint hits the pod (or it goes along with one that is hit),
it is due, not held, not paused, in its window, no breaker or ceiling stops it; its unit is whole, or was begun. No two
requests are under way for a pod at once, and none is evicted twice. All limits were open when its unit was taken, by
counts that are made afresh, and the places in all and in a namespace also by counts without the product's gates.

At rest: the plan equals one that is made afresh, so does the line, and so do the places of pods and of owners; no unit
that may go finds room and stays. Once all that holds pods has ended, all have gone that could. Once the cluster is
empty, memory equals that of a fresh process. And never does one pass follow another without a reason, see `Played`.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.builders import NOW
from tests.unit.eviction.findings.test_memory import left_in
from tests.unit.eviction.plan.taking import room_of
from webhook.api.rules import CONFIRM_IMPACT
from webhook.eviction.affected import alike
from webhook.eviction.ledger import Ledger
from webhook.eviction.plan import _Pass, _result_of
from webhook.eviction.pod_plan import EvictionPlan, StepReason
from webhook.inventory.evictions import Without
from webhook.inventory.gangs import goes_with_all, is_leaving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from tests.unit.eviction.histories.played import Played
    from webhook.eviction.pod_plan import Going, Unit, Wait
    from webhook.eviction.ports import PodRef
    from webhook.eviction.room import Room
    from webhook.inventory.evictions import Eviction, RuleRef
    from webhook.policy.model import EvictionProfile

STAYS: Final = frozenset(
    {
        StepReason.DAEMON,
        StepReason.SKIPPED,
        StepReason.MIRROR,
        StepReason.GROUP,
        StepReason.RETURNS,
        StepReason.STOPPED,
        StepReason.BREAKER,
        StepReason.REPUBLISHED,
    }
)
"""Why pods may be left although nothing else holds them."""
_STAYING: Final = frozenset({each.name for each in STAYS})
_REPUBLISHED: Final = StepReason.REPUBLISHED.name
"""Where a rule is stopped, it depends on the slices how the pod stays; but a slice that is published again, with other
taints, makes no other eviction of one by a rule, so the pod is not planned again for that."""
_IN_PARTS: Final = tuple([{each.name, StepReason.GROUP.name} for each in (StepReason.STOPPED, StepReason.BREAKER)])
"""A part of a plan that has no other pod of a rule counts none, and so does not see that the rule is stopped."""
_AN_HOUR: Final = "worker._core.recorder._groups"
"""When the last Event about each PodGroup was queued: that is dropped by the next one that is an hour later."""


class BrokenError(Exception):
    """What must not be; the message says what."""


class Checks:
    """What has happened so far, counted apart from the worker."""

    def __init__(self, run: Played) -> None:
        self.run = run
        self.inexact = False
        """Whether what counts within a minute is not known for sure: the policy has changed, or answers were lost."""
        self.edited: set[str] = set()
        """Rules, by uid, whose count for their ceiling may have begun again."""
        self._writing: set[str] = set()
        self._evicted: set[str] = set()
        self._units: dict[str, Unit] = {}
        """The unit that each pod was last taken with, by uid."""
        self._over: dict[str, Wait | None] = {}
        """The limit that was closed as each pod was taken, by uid."""
        self._settings: dict[str, EvictionProfile] = {}
        """How each pod goes, by uid."""
        self._reasons: dict[str, tuple[RuleRef, ...]] = {}
        """The rules that each pod goes for, by uid."""
        self._by_rule: dict[str, set[str]] = defaultdict(set)
        self._went_at: dict[EvictionProfile, list[float]] = defaultdict(list)

    def forget(self) -> None:
        """The worker is a new process."""
        self.inexact = True
        self.edited |= {each.meta.uid for each in self.run.world.inventory.rules.values()}

    # --- requests --------------------------------------------------------------------------------

    @contextmanager
    def in_flight(self, uid: str) -> Iterator[None]:
        """A request is under way, from here on."""
        if uid in self._writing:
            raise BrokenError(f"request: two at once for {uid}")
        self._writing.add(uid)
        try:
            yield
        finally:
            self._writing.discard(uid)

    def at_write(self, verb: str, ref: PodRef) -> None:
        """A request leaves."""
        world, core, ledger = self.run.world, self.run.core, self.run.core.ledger
        taken, pod = ledger.taken.get(ref.uid), world.inventory.pods[str(ref)]
        if not world.worker.may_take:
            raise BrokenError(f"request: {ref.uid} while evictions are paused")
        if core.breaker.tripped != ledger.tripped:
            raise BrokenError(f"request: {ref.uid} before it is known which breakers have tripped")
        if taken is None:
            raise BrokenError(f"request: {ref.uid} was not taken")
        over, settings = self._over[ref.uid], world.deps.profile_of(pod).settings
        if over is not None:  # else the plan was made before, and it does not go
            raise BrokenError(f"limit: {ref.uid} goes, though it was over {over.limit} as it was taken")
        if verb == "delete" and not settings.delete_after_deadline:
            raise BrokenError(f"request: {ref.uid} is deleted, which its profile forbids")
        self._settings[ref.uid], self._reasons[ref.uid] = settings, ()
        going = self._goes(ref, begun=taken.unit in ledger.begun)
        if going is None:
            return
        self._reasons[ref.uid] = going.eviction.rules
        held_until = going.due + timedelta(seconds=settings.max_hold_seconds)
        if pod.hold is not None and world.clock.wall < held_until:
            raise BrokenError(f"request: {ref.uid} is held")

    def _goes(self, ref: PodRef, *, begun: bool) -> Going | None:
        """How the pod goes by a pass of now, with its unit unless that has begun; None if only a count differs."""
        unit = self._units[ref.uid]
        pods = frozenset({ref.uid} if begun else {each.uid for each in unit.members})
        asked, made = self.fresh(pods, self._along(unit, ref) if begun else None)
        going = made.going.get(ref.uid)
        wait = made.waits.get(ref.uid) if going is None else asked._alone(going)
        if wait is not None and wait.reason is StepReason.STOPPED and not self._is_stopped(ref):
            return None  # asked about again, it takes others along, which count, though it was taken without them
        if going is None or wait is not None:
            raise BrokenError(f"request: {ref.uid} waits, begun {begun}: {wait and wait.reason.name}")
        if not begun and pods not in [{each.uid for each in unit.members} for unit in made.eligible]:
            waits = {uid: wait.reason.name for uid, wait in made.waits.items()}
            raise BrokenError(f"request: {ref.uid} without its unit, {sorted(pods)} of {waits}")
        return going

    def _is_stopped(self, ref: PodRef) -> bool:
        """Whether a rule that hits a pod is stopped, by a pass to which that is under way."""
        figures, hit = self.fresh()[1].rules, self.run.core.evictions.hits().get(str(ref))
        return hit is None or any(figures[uid].stopped for uid, _ in hit.rules if uid in figures)

    def _along(self, unit: Unit, ref: PodRef) -> dict[str, Eviction]:
        """Why a pod goes that no taint evicts, if others of its unit have gone, for as long as they would go."""
        core, inventory = self.run.core, self.run.world.inventory
        each = next(each for each in unit.members if each.uid == ref.uid)
        stopped = frozenset([uid for uid, figures in self.fresh()[1].rules.items() if figures.stopped])
        hit = core.evictions.eviction_of(inventory.pods[each.key], Without(core.ledger.tripped, stopped))
        acts = core.evictions.act(each.eviction) and goes_with_all(inventory, inventory.pods[each.key])
        return {each.key: each.eviction} if each.along and (hit is None or hit.waits) and acts else {}

    def at_eviction(self, ref: PodRef) -> None:
        """The server evicts a pod."""
        if ref.uid in self._evicted:
            raise BrokenError(f"evicted twice: {ref.uid}")
        self._evicted.add(ref.uid)
        for uid, name in self._reasons[ref.uid]:
            rule = self.run.world.inventory.rules.get(name)
            if rule is None or rule.meta.uid != uid:
                continue
            went, most = self._by_rule[uid], rule.meta.annotations.get(CONFIRM_IMPACT)
            went.add(ref.uid)
            if most is not None and uid not in self.edited and len(went) > int(most):
                raise BrokenError(f"ceiling of {name}: {sorted(went)} went, at most {most}")
        settings = self._settings[ref.uid]
        most_per_minute, times = settings.max_per_minute, self._went_at[settings]
        times.append(self.run.now)
        recent = [at for at in times if at > self.run.now - 60 + 1e-6]
        alone = len(self._units[ref.uid].members) == 1  # a unit may go over it, as it goes as a whole
        if most_per_minute is not None and not self.inexact and alone and len(recent) > most_per_minute:
            raise BrokenError(f"minute: {ref.uid}, {recent}")

    # --- taking ----------------------------------------------------------------------------------

    def before_take(self) -> Ledger:
        """What limits count before a unit is taken."""
        known = self.run.core.ledger
        return Ledger(
            taken=dict(known.taken),
            failures=dict(known.failures),
            unreplaced={owner: dict(places) for owner, places in known.unreplaced.items()},
            budgets=dict(known.budgets),
            buckets=copy.deepcopy(known.buckets),
            departures={settings: dict(times) for settings, times in known.departures.items()},
        )

    def at_take(self, unit: Unit, before: Ledger) -> None:
        """A unit was taken."""
        self._units.update([(each.uid, unit) for each in unit.members])
        taken = [each.uid for each in unit.members if each.uid in before.taken]
        if taken:
            raise BrokenError(f"taken twice: {taken}")
        missing = [each.uid for each in unit.members if each.uid not in self.run.core.ledger.taken]
        if missing:
            raise BrokenError(f"taken: {missing} goes without being counted")
        self._keeps_places(unit)
        closed = self.room(before, self.fresh()[1], without=unit).closed(unit)
        self._over.update([(each.uid, closed) for each in unit.members])

    def _keeps_places(self, unit: Unit) -> None:
        """Not by the gates: no more places are taken than one profile allows, in all and in each namespace."""
        core, members = self.run.core, {each.uid for each in unit.members}
        profiles = core.deps.profiles()
        shared = any(key == unit.key and uid not in members for uid, key in core.room.everywhere._place_of.items())
        # A pod that terminates in line has its place, however full all is, and takes no other: its unit is given back.
        if len(profiles) > 1 or shared or any(map(self._ends_in_line, unit.members)):
            return
        others = [(uid, each) for uid, each in core.ledger.taken.items() if each.place != unit.key]
        counted = [each for uid, each in others if self._takes_place(each.key, uid)]
        namespaces, settings = {each.pod.meta.namespace for each in unit.members}, profiles[0].settings
        if settings.overall is not None and len({each.place for each in counted}) >= settings.overall:
            raise BrokenError(f"limit: more than {settings.overall} places, with {sorted(members)}")
        for namespace in namespaces if settings.per_namespace is not None else ():
            if len({each.place for each in counted if each.namespace == namespace}) >= (settings.per_namespace or 0):
                raise BrokenError(f"limit: more than {settings.per_namespace} places of {namespace}")

    def _ends_in_line(self, each: Going) -> bool:
        """Whether a pod terminates, and takes a place for that."""
        return self._takes_place(each.key, each.uid) and self.run.world.inventory.pods[each.key].deleting

    def _takes_place(self, key: str, uid: str) -> bool:
        """Whether a pod that was taken is there, and is not stuck."""
        pod = self.run.world.inventory.pods.get(key)
        return pod is not None and pod.meta.uid == uid and not self.run.core.room.stuck(pod)

    # --- made afresh -----------------------------------------------------------------------------

    def fresh(
        self, again: frozenset[str] = frozenset(), also: Mapping[str, Eviction] | None = None
    ) -> tuple[_Pass, EvictionPlan]:
        """A pass of now over all pods, which leaves no trace, and its plan; `also`: hit although no taint says so."""
        core, pause = self.run.core, self.run.world.pause
        counted, begun = dict(core.ceilings._counted), core.ceilings._begun
        core.ceilings._begun = {}
        try:
            view = replace(core.view, hit={**core.evictions.hits(), **(also or {})})
            asked = _Pass(view, core.ledger, pause, core.moment(), again=again)
            return asked, _result_of(asked.run())
        finally:
            core.ceilings._counted, core.ceilings._begun = counted, begun

    def room(self, ledger: Ledger, made: EvictionPlan, *, without: Unit | None = None) -> Room:
        """The room that all pods leave. Where a pod that terminates has its place only the worker knows."""
        world, known, core = self.run.world, self.run.core.room, self.run.core
        left_out = frozenset[str]() if without is None else {each.uid for each in without.members}
        room = room_of(core.view, ledger, core.moment(), made.terminating, budgets=world, profiles=world.profiles.all)
        for uid, key in known.given_up.items():
            room.given_up[uid] = key
            room.vacate(uid, key.partition("/")[0])
        pods = {each.meta.uid: each for each in world.inventory.pods.values()}
        for uid, taken in ledger.taken.items():
            if uid not in pods:  # the watch is faster than the answer
                room.vacate(uid, taken.namespace)
        for uid, place in known.everywhere._place_of.items():
            if uid in pods and pods[uid].deleting and uid not in left_out:
                room.vacate(uid, pods[uid].meta.namespace)
                room.place(uid, pods[uid].meta.namespace, place)
        # Pods that something else has deleted take places from the next pass on only, and a unit may be taken before.
        for uid in [uid for uid in room.everywhere._place_of if without is not None and uid not in known.everywhere]:
            room.vacate(uid, pods[uid].meta.namespace)
        return room

    # --- at rest ---------------------------------------------------------------------------------

    def at_rest(self) -> str:
        """What differs from what is made afresh, once all is done that can be done now; empty if nothing does."""
        core, (_, fresh) = self.run.core, self.fresh()
        if self.run.steps is not None or not core.current:
            return "at rest: the plan is not made from all that is known"
        line, eligible = set(core.line._at), {each.uid for unit in fresh.eligible for each in unit.members}
        if line != eligible:
            return f"line: {sorted(line)}, afresh {sorted(eligible)}"
        if core.ledger.taken.keys() != core.ledger.granted:
            return f"taken: {sorted(core.ledger.taken)}, granted {sorted(core.ledger.granted)}"
        if stopped := self._stopped_by_no_limit():
            return f"stopped: {stopped}, by a ceiling that it does not have"
        return self._other_plan(core.plan, fresh) or (self._other_room(fresh) if self.run.world.worker.may_take else "")

    def _stopped_by_no_limit(self) -> list[str]:
        """Rules that are stopped by another ceiling than they have; they stay so if they hit less by now."""
        core, rules = self.run.core, self.run.world.inventory.rules
        said = {name: (core.ceilings.stopped(each), core.deps.ceiling_of(each)) for name, each in rules.items()}
        return [name for name, (why, most) in said.items() if why and (most is None or f"most {most.pods} " not in why)]

    def _other_plan(self, made: EvictionPlan, fresh: EvictionPlan) -> str:
        known, expected = _said(made), _said(fresh)
        for at in sorted(known.keys() | expected.keys()):
            if known.get(at) != expected.get(at) and not _stays_either_way(known.get(at), expected.get(at)):
                return f"plan: {at} {known.get(at)}, afresh {expected.get(at)}"
        pods = self.run.world.inventory.pods
        old = [each.key for each in made.going.values() if each.key not in pods or not alike(pods[each.key], each.pod)]
        return f"plan: pods as they were, {old}" if old else ""

    def _other_room(self, fresh: EvictionPlan) -> str:
        core = self.run.core
        room = self.room(core.ledger, fresh)
        free = [unit.members[0].uid for unit in fresh.eligible if room.closed(unit) is None]
        if free:
            return f"stalled: {free}, line {[(uid, wait and wait.limit) for uid, wait in core.line.pods()]}"
        known, expected = core.room.everywhere._place_of, room.everywhere._place_of
        if expected.keys() - known.keys():
            return f"places: {known}, afresh {expected}"
        for owner, places in list(core.room._owners.items()):
            for mine, other in zip(places, room.owner(owner), strict=True):
                if mine._shared.keys() != other._shared.keys():
                    return f"places of {owner}: {mine._place_of}, afresh {other._place_of}"
        return ""

    # --- at the end ------------------------------------------------------------------------------

    async def at_end(self, rounds: int = 14) -> str:
        """Once nothing holds pods any longer: which of them are left that could have gone; empty for none."""
        run, world = self.run, self.run.world
        await self._end_holds()
        for _ in range(rounds):
            run.catch_up()
            for pod in list(world.inventory.pods.values()):
                if pod.deleting:
                    world.remove(pod)
                elif (not pod.ready and not pod.finished) or pod.hold is not None:
                    run.change(pod, ready=not pod.finished, hold=None)
            await run.advance(600)
        run.catch_up()
        for pod in [each for each in world.inventory.pods.values() if each.deleting]:
            world.remove(pod)
        await run.settle()
        return self.at_rest() or self._left_behind()

    async def _end_holds(self) -> None:
        run, world = self.run, self.run.world
        await run.drain()
        run.replies.clear()
        world.cluster.dry_answers.clear()
        for namespace in list(world.holds):
            del world.holds[namespace]
            world.worker.requeue_waiting(namespace)
        world.pause = None
        world.worker.replan_all()
        for at, budget in enumerate(world.budgets):
            budget.allows_at, budget.every_seconds, budget.status = 0.0, 0.0, None
            for namespace in ("ml", "b"):
                world.worker.observe_budget(namespace, str(at))

    def _left_behind(self) -> str:
        made, pods = self.fresh()[1], self.run.world.inventory.pods
        for key in self.run.core.evictions.hits():
            wait = made.waits.get(pods[key].meta.uid)
            if not is_leaving(pods[key]) and (wait is None or wait.reason not in STAYS):
                return f"left: {key}, which waits for {wait}, {self.run.core.line.wait_of(pods[key].meta.uid)}"
        return ""

    async def leftovers(self) -> str:
        """What is remembered of a cluster that is empty; nothing if it is what a fresh process knows."""
        run, inventory = self.run, self.run.world.inventory
        for known in (inventory.rules, inventory.pods, inventory.claims, inventory.pod_groups, run.slices):
            run.world.remove(*known.values())
        run.slices.clear()
        run.world.worker.replan_all()  # figures of rules that are gone stay until all is planned
        await run.advance(700)
        run.world.worker.forget_idle()
        left = sorted(left_in(run.world).keys() - {_AN_HOUR})
        return f"memory: {left}" if left else ""


def _said(made: EvictionPlan) -> dict[tuple[str, str], Any]:
    """What a plan says of each pod."""
    found = dict[tuple[str, str], Any]()
    for uid, each in made.going.items():
        reasons = [str(reason) for reason in each.eviction.reasons]
        found["going", uid] = _seconds(each.due), each.gang, each.along, reasons, each.eviction.rules
    for uid, wait in made.waits.items():
        found["wait", uid] = wait.reason.name, _seconds(wait.until), wait.other, wait.cause, wait.because
    for uid, unit in made.units.items():
        found["unit", uid] = unit.key, _seconds(unit.due), [each.uid for each in unit.members]
    for key, eviction in made.hit.items():
        found["hit", key] = _seconds(eviction.due), [str(reason) for reason in eviction.reasons], eviction.waits
    return found


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else round((at - NOW).total_seconds(), 3)


def _stays_either_way(known: tuple[Any, ...] | None, expected: tuple[Any, ...] | None) -> bool:
    """Whether a pod stays by both plans, and only the word for it differs until the next plan of all pods."""
    said = {each[0] for each in (known, expected) if each is not None}
    return said in _IN_PARTS or (_REPUBLISHED in said and len(said) > 1 and said <= _STAYING)
