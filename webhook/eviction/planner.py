"""Updates the plans after each change, and puts each planned pod into the queue where it waits.

Changes that hit few pods are planned at once, others in time slices. What is left to plan is in `core.backlog`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final

from webhook.api.claims import ResourceClaim
from webhook.api.patches import ResourceSlicePatch
from webhook.api.pod_groups import PodGroup
from webhook.api.pods import Pod
from webhook.api.rules import DeviceTaintRule, own_rate
from webhook.api.slices import ResourceSlice
from webhook.eviction.core import Core, ItemKind, WorkItem
from webhook.eviction.events import RENEW_SECONDS, PodEventKind
from webhook.eviction.evictor import record_evicted
from webhook.eviction.plans import Changes
from webhook.eviction.pod_plan import PUT_OFF, PodPlan, StepReason
from webhook.eviction.rule_status import RuleStatusUpdater
from webhook.eviction.step import Evict, NoAction, StepWait, hold_of, recheck, together_with, when_text
from webhook.inventory.scope import is_ours
from webhook.inventory.state import InventoryObject, key_of
from webhook.policy.windows import state_of

_AT_ONCE_MOST: Final = 256
"""Up to this many pods are planned before the event loop runs anything else, which takes a few milliseconds."""
_BATCH_SIZE: Final = 64
_LIFT_SECONDS: Final = 2.0
"""How long after a change of its rules a stopped patch is checked again."""


class Planner:
    """Collects work (`mark_claims`, `mark_rule`), then does it (`begin`, `catch_up`)."""

    def __init__(self, core: Core, rules: RuleStatusUpdater) -> None:
        self._core = core
        self._rules = rules
        self._backlog = core.backlog
        self._work_left = asyncio.Event()

    # --- what has changed ------------------------------------------------------------------------

    def start(self) -> bool:
        """Plans all pods in the inventory. Returns whether planning is complete, as the next two methods do."""
        for name, rule in self._core.deps.inventory.rules.items():
            self._core.queue.add(WorkItem(ItemKind.RULE, name))
            self._core.ceilings.observe(None, rule)
        self.follow_ceilings()
        self._backlog.pods.add(self._core.evictions.everything())
        self._core.breaker.start()
        return self.begin()

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> bool:
        """Plans for the change of one object, which the inventory has applied already."""
        self.mark_claims(self._core.evictions.touched(old, new))
        self._rules.released.observe(old, new)
        match new if new is not None else old:
            case Pod() as pod:
                self._backlog.pods.add((key_of(pod.meta),))
                if isinstance(old, Pod) and (old.hold, old.labels) != (pod.hold, pod.labels):
                    self._core.queue.add(WorkItem(ItemKind.POD, pod.meta.uid))
                if isinstance(old, Pod) and (old.ready, old.owner) != (pod.ready, pod.owner):
                    self._core.ready.retry(pod.meta.uid)  # its owner misses it already, its budget may not concern it
            case DeviceTaintRule():
                self._observe_rule(old, new)
            case PodGroup() as group:
                members = self._core.deps.inventory.members_of(key_of(group.meta))
                self._core.plans.regroup(members)
                self._backlog.pods.add(members)
                if not isinstance(old, PodGroup) or new is None or old.disruption_mode != group.disruption_mode:
                    self._form_again(members)  # whether they wait for the last of them may have changed
            case ResourceSlice() as changed:
                self._resume(self._core.ceilings.observe_slice(changed))
                self.follow_ceilings()
            case ResourceClaim() as claim:
                key = key_of(claim.meta)
                if self._core.returns.observe(key, new if isinstance(new, ResourceClaim) else None):
                    self._form_again(self._core.deps.inventory.pods_of(key))  # its next pods have not come back
            case _:
                pass
        return self.begin()

    def retry_left(self, pods: Iterable[str]) -> None:
        """These pods, by `namespace/name`, do not come back to a device after all."""
        self._form_again(pods)
        self.begin()

    def _form_again(self, pods: Iterable[str]) -> None:
        """The units of these pods, by `namespace/name`, are formed again, and the pods are queued."""
        core = self._core
        for key in pods:
            plan = core.plans.scheduled.get(core.deps.inventory.pods[key].meta.uid)
            if plan is not None:
                core.plans.units.dissolve(plan)
                self._backlog.to_enqueue.add((plan.uid,))

    def _observe_rule(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """A rule was created, changed or removed. Changes of its status alone are the worker's own, or are undone."""
        core = self._core
        if isinstance(old, DeviceTaintRule) and (new is None or new.meta.uid != old.meta.uid):
            self._rules.forget(old)
            core.ceilings.forget(old)
            self.follow_ceilings()
            core.evictions.forget(old)
        if not isinstance(new, DeviceTaintRule):
            if isinstance(old, DeviceTaintRule):
                core.queue.discard(WorkItem(ItemKind.RULE, old.meta.name))
            return
        known = old if isinstance(old, DeviceTaintRule) and old.meta.uid == new.meta.uid else None
        if known is not None and _without_status(known) == _without_status(new):
            if self._rules.lost_conditions(new):
                core.queue.add(WorkItem(ItemKind.RULE, new.meta.name))
            return
        self.mark_rule(new.meta.name)
        core.queue.add(WorkItem(ItemKind.RULE, new.meta.name))
        core.limiter.forget_groups()
        if known is not None and own_rate(known) != own_rate(new):
            self._follow_rates((new.meta.uid,))
        if not is_ours(new, core.scope):
            core.announcements.forget(new.meta.uid)  # if it asks again, that is announced again
        self._resume(core.ceilings.observe(known, new))
        self.follow_ceilings()

    def observe_patch(self, old: ResourceSlicePatch | None, patch: ResourceSlicePatch) -> bool:
        """A patch is known now, or has changed. Returns whether planning is complete."""
        self._resume(self._core.ceilings.observe_patch(old, patch))
        self.follow_ceilings()
        return self.begin()

    def lift_ceiling(self, group: str) -> bool:
        """Rules of a stopped group have changed: it is checked again. Returns whether planning is complete."""
        self._resume(self._core.ceilings.lift(group))
        return self.begin()

    def _resume(self, rules: Sequence[DeviceTaintRule]) -> None:
        """These rules are stopped no longer, unless they still hit too much."""
        if not rules:
            return
        for rule in rules:
            self._core.queue.add(WorkItem(ItemKind.RULE, rule.meta.name))  # what it asks for may have to be announced
        self.mark_claims(self._core.evictions.resume(*rules))

    def follow_ceilings(self) -> None:
        """Follows rules to other groups: their rates, their counts, and in a while whether those are still stopped.

        A patch changes many rules, one after the other, and each check is a look at all pods of the patch.
        """
        core, ceilings = self._core, self._core.ceilings
        for name in ceilings.counted_anew:
            core.queue.add(WorkItem(ItemKind.RULE, name))
        for group in ceilings.to_lift:
            core.queue.add_after(WorkItem(ItemKind.CEILING, group), _LIFT_SECONDS)
        if ceilings.moved:
            self._follow_rates(ceilings.moved)
        for name in ceilings.moved.values():
            self.mark_rule(name)
        for each in (ceilings.counted_anew, ceilings.to_lift, ceilings.moved):
            each.clear()

    def _follow_rates(self, rules: Iterable[str]) -> None:
        """The rates of these rules, by uid, have changed, for their pods and for those that go with them."""
        core = self._core
        plans = {plan.uid: plan for uid in rules for plan in core.plans.hits.plans_of(uid)}
        units = {id(unit): unit for unit in map(core.plans.units.of, plans.values()) if unit is not None}
        core.limiter.forget_groups()
        self._backlog.to_enqueue.add([*plans, *[each.uid for unit in units.values() for each in unit.plans]])

    def replan_all(self) -> bool:
        """Plans all pods again: the policy has changed, and profiles and limits may have changed with it."""
        for name in self._core.deps.inventory.rules:
            self.mark_rule(name)
        self._resume(self._core.ceilings.lift_all())
        self.follow_ceilings()
        self._core.breaker.refresh()
        self._core.ready.retry_all()
        self._core.plans.regroup(self._core.deps.inventory.pods)
        self._backlog.pods.add(self._core.deps.inventory.pods)
        return self.begin()

    def replan(self, key: str) -> bool:
        """Plans one pod again, by `namespace/name`."""
        self._backlog.pods.add((key,))
        return self.begin()

    def requeue_waiting(self, namespace: str | None) -> bool:
        """Queues waiting pods again: of a namespace whose hold or labels have changed, or all, for another wall clock.

        Labels may choose another profile, with other gangs, so the pods of the namespace are also planned again.
        """
        if namespace is None:
            for position, settings in self._core.deps.profiles().all:
                if settings.windows:
                    self._core.queue.add(WorkItem(ItemKind.WINDOW, str(position)))
        for uid, plan in self._core.plans.scheduled.items():
            if namespace in (None, plan.pod.meta.namespace) and uid not in self._core.ready:
                self._core.queue.add(WorkItem(ItemKind.POD, uid))
        if namespace is not None:
            pods = [key for key in self._core.deps.inventory.pods if key.startswith(f"{namespace}/")]
            self._core.plans.regroup(pods)
            self._backlog.pods.add(pods)
        return self.begin()

    def follow_windows(self, position: int) -> bool:
        """The windows of a profile, by its position, opened or closed: its pods that are due are queued again."""
        core = self._core
        self._backlog.to_enqueue.add(
            [
                uid
                for uid, plan in core.plans.scheduled.items()
                if plan.profile.position == position and (uid in core.ready or uid in core.plans.put_off)
            ]
        )
        return self.begin()

    # --- what is to be planned -------------------------------------------------------------------

    def mark_claims(self, claims: AbstractSet[str]) -> None:
        """Marks the pods of these claims, by `namespace/name`, to be planned again.

        If these are most of the claims, all pods are marked, which is faster than looking up the pods of each claim.
        """
        inventory = self._core.deps.inventory
        if len(claims) >= _AT_ONCE_MOST and 2 * len(claims) > len(inventory.claims):
            self._backlog.pods.add(inventory.pods)
        else:
            self._backlog.claims.add(claims)

    def mark_rule(self, rule: str) -> None:
        """Marks a rule, by name, to be checked against its ceiling."""
        self._backlog.unchecked[rule] = None

    # --- planning --------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Plans at once if few pods are pending, else leaves the work to `catch_up`. Returns whether all is planned."""
        done = self._backlog.pod_count <= _AT_ONCE_MOST and self.catch_up()
        if not done:
            self._work_left.set()
        return done

    def catch_up(self) -> bool:
        """Plans for one time slice; returns whether all is planned.

        No pod enters the ready queue before all pods are planned and every rule above its ceiling is stopped.
        """
        timeslice = self._backlog.timeslice
        timeslice.begin()
        while not timeslice.over:
            if len(self._backlog.claims):
                self._backlog.pods.add(self._core.deps.inventory.pods_using(self._backlog.claims.take(_BATCH_SIZE)))
            elif len(self._backlog.pods):
                self._apply(self._core.plans.replan(self._backlog.pods.take(_BATCH_SIZE)))
            elif len(self._backlog.groups):
                self._backlog.pods.add(self._core.plans.companions.others_of(self._backlog.groups.take(_BATCH_SIZE)))
            elif self._backlog.unchecked:
                self._check_ceiling(self._backlog.unchecked.popitem()[0])
            elif self._backlog.due:
                self._push_due()
            elif len(self._backlog.to_enqueue):
                self._enqueue(self._backlog.to_enqueue.take(_BATCH_SIZE))
            else:
                break
        return not self._backlog.open

    async def wait(self) -> None:
        """Returns once `begin` has left work to `catch_up`."""
        await self._work_left.wait()
        self._work_left.clear()

    def _check_ceiling(self, name: str) -> None:
        rule = self._core.deps.inventory.rules.get(name)
        if rule is None:
            return
        stopped = self._core.ceilings.check(rule)
        for other in self._core.ceilings.beside(rule):
            self._backlog.unchecked.pop(other, None)
        if not stopped:
            return
        for each in stopped:
            self._core.queue.add(WorkItem(ItemKind.RULE, each.meta.name))
        self.mark_claims(self._core.evictions.suspend(*stopped))

    def _push_due(self) -> None:
        now = self._core.deps.clock.now()
        for _ in range(min(_BATCH_SIZE, len(self._backlog.due))):
            self._push(self._backlog.due.popitem()[1], now)

    def _enqueue(self, uids: Iterable[str]) -> None:
        scheduled, now = self._core.plans.scheduled, self._core.deps.clock.now()
        for uid in uids:
            plan = scheduled.get(uid)
            if plan is not None:
                self.enqueue(plan, now)
                self._core.ready.retry(uid)  # what it is parked for may have blocked others of a unit that is no more

    def _apply(self, changes: Changes) -> None:
        """Puts changed plans into their queues, and removes dropped ones from them."""
        core, seconds = self._core, self._core.deps.settings.condition_seconds
        planned, cancelled, gone, evicted = changes
        for plan, doubt in evicted:
            core.limiter.count_foreign(plan.profile, core.deps.clock.seconds())
            core.ceilings.count_evicted(doubt.rules)
            record_evicted(core, plan, doubt.rules)
        self._backlog.groups.add(core.plans.companions.changed)
        core.plans.companions.changed.clear()
        self._backlog.to_enqueue.add(core.plans.units.dissolved)
        core.plans.units.dissolved.clear()
        hitting = {rule for plan in planned for rule in plan.eviction.rules}
        for _, name in hitting:
            self.mark_rule(name)
        for _, name in hitting.union(*[plan.eviction.rules for plan in (*cancelled, *gone)]):
            core.queue.add_after(WorkItem(ItemKind.RULE, name), seconds)
        if core.acts:
            self._record_holders(planned)
        now, in_flight = core.deps.clock.now(), core.limiter.in_flight
        for plan in planned:
            if not in_flight(plan.uid) and isinstance(recheck(core, plan, now), Evict):
                self._backlog.due[plan.uid] = plan
            else:
                self._backlog.due.pop(plan.uid, None)
                self._backlog.to_enqueue.add((plan.uid,))
        for plan in (*cancelled, *gone):
            self._backlog.due.pop(plan.uid, None)
            core.ready.discard(plan.uid)
            if not core.limiter.in_flight(plan.uid):
                core.queue.discard(WorkItem(ItemKind.POD, plan.uid))
        core.returns.forget([plan.pod for plan in cancelled])
        for plan in cancelled:
            core.deps.metrics.count_cancelled()
            core.recorder.record_pod_event(PodEventKind.CANCELLED, plan)

    def _record_holders(self, planned: list[PodPlan]) -> None:
        """Records Events about the PodGroups that keep claims of these pods reserved."""
        groups = self._core.deps.inventory.pod_groups
        # The first of these pods by name is the one that the Event of its group names.
        held = [plan for plan in planned if plan.held_by]
        for plan in sorted(held, key=lambda plan: plan.pod.meta.name):
            group = groups.get(f"{plan.pod.meta.namespace}/{plan.held_by}")
            if group is not None:
                self._core.recorder.record_group_event(group, plan)

    # --- one pod ---------------------------------------------------------------------------------

    def enqueue(self, plan: PodPlan, now: datetime) -> None:
        """Puts a pod into the ready queue, or into the work queue."""
        if self._core.limiter.in_flight(plan.uid):
            return  # queued again when its request has been answered
        step = recheck(self._core, plan, now)
        if not isinstance(step, Evict):
            self._delay(step, plan, now)
            return
        self._push(plan, now)

    def _push(self, plan: PodPlan, now: datetime) -> None:
        """Puts a pod into the ready queue."""
        self._core.plans.put_off.pop(plan.uid, None)
        self._core.ready.push(self._core.limiter.ready_pod(plan))
        if plan.profile.settings.windows:
            self._await_windows(plan, now)

    def _await_windows(self, plan: PodPlan, now: datetime) -> None:
        """All pods of a profile are queued again when its windows open or close."""
        until = state_of(plan.profile.settings.windows, now).until
        if until is not None:
            item = WorkItem(ItemKind.WINDOW, str(plan.profile.position))
            self._core.queue.add_after(item, (until - now).total_seconds())

    def _delay(self, step: NoAction | StepWait, plan: PodPlan, now: datetime) -> None:
        """Removes a pod from the ready queue and, if it has to wait, adds it to the work queue with that delay."""
        core, item = self._core, WorkItem(ItemKind.POD, plan.uid)
        core.ready.discard(plan.uid)
        if step.reason in PUT_OFF:
            core.plans.put_off[plan.uid] = step.reason
        else:
            core.plans.put_off.pop(plan.uid, None)
        if isinstance(step, NoAction):
            core.queue.forget(item)
            if step.reason is StepReason.OBSERVED:
                core.recorder.record_pod_event(PodEventKind.SCHEDULED, plan, when_text(core, plan, step, now))
            return
        if StepReason.HELD in (step.reason, step.cause):
            core.recorder.record_pod_event(PodEventKind.HELD, plan, _hold_text(core, plan, step.other))
            core.queue.add_after(item, min(step.seconds, RENEW_SECONDS))
            return
        if step.reason is StepReason.WINDOW and not state_of(plan.profile.settings.windows, now).open:
            self._await_windows(plan, now)
        else:
            core.queue.add_after(item, step.seconds)
        if step.reason is not StepReason.FAILED and step.seconds > core.deps.settings.announce_after_seconds:
            core.recorder.record_pod_event(PodEventKind.SCHEDULED, plan, when_text(core, plan, step, now))


def _hold_text(core: Core, plan: PodPlan, other: PodPlan | None) -> str:
    """The text of the hold on the pod, or on the `other` one that it waits for."""
    if other is None:
        return hold_of(core, plan) or ""
    return f"{together_with(other.key)}, is on hold: {hold_of(core, other) or ''}"


def _without_status(rule: DeviceTaintRule) -> tuple[object, ...]:
    return rule.selector, rule.taint, rule.meta.annotations, rule.deleting, rule.origin
