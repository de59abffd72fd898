"""What the parts of the worker share, built once: what is known, the last plan, and who is in line by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.eviction.affected import Affected
from webhook.eviction.breaker import Breaker
from webhook.eviction.ceilings import CeilingGroups
from webhook.eviction.conditions import Announcements
from webhook.eviction.events import EvictionRecorder
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.line import Line
from webhook.eviction.modes import InTree, scope_of
from webhook.eviction.pod_plan import EvictionPlan
from webhook.eviction.ports import Dependencies
from webhook.eviction.room import Room
from webhook.flowcontrol.workqueue import TimeSlice, WorkQueue
from webhook.inventory.evictions import Evictions
from webhook.inventory.targets import EvictionScope

RETRY_MOST_SECONDS: Final = 10.0
"""The longest wait between two attempts at a pod, or at the conditions of a rule."""


@dataclass(slots=True, kw_only=True)
class Core:
    """All of it; the loop replaces `plan` and `line`."""

    deps: Dependencies
    moment: Callable[[], Moment]
    """Returns this one."""
    scope: EvictionScope
    """Which taints this worker acts on."""
    acts: bool
    """False in mode observe."""
    evictions: Evictions
    affected: Affected
    ledger: Ledger
    view: View
    room: Room
    line: Line
    ceilings: CeilingGroups
    breaker: Breaker
    rules: WorkQueue[str]
    """Names of rules whose conditions are to be written."""
    recorder: EvictionRecorder
    announcements: Announcements
    plan: EvictionPlan = field(default_factory=EvictionPlan)
    planned: int = -1
    """The revision of what is known that the plan was made from."""
    _pods_of: dict[str, list[str]] | None = None
    """The pods, by `namespace/name`, that each rule hits, by the plan."""

    @classmethod
    def build(cls, deps: Dependencies, in_tree: InTree) -> Core:
        """Build the core of one worker. `in_tree`: whether the in-tree controller runs."""
        scope, seconds = scope_of(deps.mode, in_tree), deps.clock.seconds
        announcements = Announcements(acts=deps.mode.acts)
        evictions = Evictions(deps.inventory, scope, announcements.announced_at)
        affected = Affected(deps.inventory, evictions, deps.profile_of)
        ceilings, ledger = CeilingGroups(deps), Ledger()
        view = View(
            inventory=deps.inventory,
            evictions=evictions,
            hit=affected.hit,
            profile_of=deps.profile_of,
            hold_of=deps.hold_of,
            group_of=ceilings.group_of,
            exceeded=ceilings.exceeded,
        )

        def moment() -> Moment:
            return Moment(deps.clock.now(), seconds())

        room = Room(view, ledger, moment(), budgets=deps.budgets, profiles=deps.profiles())
        return cls(
            deps=deps,
            moment=moment,
            scope=scope,
            acts=deps.mode.acts,
            evictions=evictions,
            affected=affected,
            ledger=ledger,
            view=view,
            room=room,
            line=Line(room),
            ceilings=ceilings,
            breaker=Breaker(deps.inventory, evictions, moment, deps.breaker),
            rules=WorkQueue(clock=seconds, random=deps.random, most_seconds=RETRY_MOST_SECONDS),
            recorder=EvictionRecorder(deps),
            announcements=announcements,
        )

    @property
    def current(self) -> bool:
        """Whether the plan was made from all that is known."""
        return not (self.affected.pending or self.affected.changed or self.affected.whole)

    def adopt(self, made: EvictionPlan, line: Line, revision: int) -> None:
        """Use this plan from here on."""
        self.plan, self.line, self.planned, self._pods_of = made, line, revision, None

    def part_of(self, changed: Mapping[str, Iterable[str]]) -> EvictionPlan:
        """Return what the plan says of these pods, by `namespace/name` and uids, and of those of their units."""
        made, keys = self.plan, dict.fromkeys(changed)
        uids = dict.fromkeys([uid for each in changed.values() for uid in each])
        for unit in [made.units[uid] for uid in uids if uid in made.units]:
            keys.update([(each.key, None) for each in unit.members])
            uids.update([(each.uid, None) for each in unit.members])
        return EvictionPlan(
            units={uid: made.units[uid] for uid in uids if uid in made.units},
            waits={uid: made.waits[uid] for uid in uids if uid in made.waits},
            going={uid: made.going[uid] for uid in uids if uid in made.going},
            hit={key: made.hit[key] for key in keys if key in made.hit},
        )

    def merge(self, before: EvictionPlan, made: EvictionPlan, revision: int) -> None:
        """Replace what was planned of some pods; `before` is what the plan says of them."""
        plan = self.plan
        pairs: list[tuple[dict[str, Any], Mapping[str, Any], Mapping[str, Any]]] = [
            (plan.units, before.units, made.units),
            (plan.waits, before.waits, made.waits),
            (plan.going, before.going, made.going),
            (plan.hit, before.hit, made.hit),
        ]
        for known, old, new in pairs:
            for key in old:
                known.pop(key, None)
            known.update(new)
        for uid, figures in made.rules.items():
            plan.rules.setdefault(uid, figures)
        for uid in before.going:
            self.line.discard(uid)
        for unit in made.eligible if self.acts else ():
            if not any(each.uid in self.ledger.taken for each in unit.members):
                self.line.push(unit)
        ends = [at for at in (plan.wake_at, made.wake_at) if at is not None]
        self.plan = replace(plan, wake_at=min(ends, default=None))
        self.planned, self._pods_of = revision, None

    async def pods_of(self, rule_uid: str) -> list[str]:
        """Return the pods, by `namespace/name`, that a rule hits by the plan; counted once for all rules."""
        while self._pods_of is None:
            made, found, timeslice = self.plan, dict[str, list[str]](), TimeSlice(clock=self.deps.clock.seconds)
            for key, eviction in tuple(made.hit.items()):
                await timeslice.pause()
                for uid, _ in eviction.rules:
                    found.setdefault(uid, []).append(key)
            if made is self.plan:
                self._pods_of = found
        return self._pods_of.get(rule_uid, [])
