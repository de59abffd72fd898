"""The plan beside the worker of today: what both say of the same caches at the same moment."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.eviction.ledger import Failure, Ledger, Moment, Round, Taken, View
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import StepReason, Wait
from webhook.eviction.step import NoAction, StepWait, recheck
from webhook.eviction.units import Grouping

if TYPE_CHECKING:
    from datetime import datetime

    from tests.unit.eviction.world import World
    from webhook.eviction.core import Core
    from webhook.eviction.plan import EvictionPlan
    from webhook.eviction.pod_plan import PodPlan
    from webhook.eviction.step import Evict
    from webhook.eviction.units import FormedUnit

_HAIR: Final = timedelta(milliseconds=1)
_ONLY_NOW: Final = frozenset({StepReason.BREAKER, StepReason.PAUSED})
"""What kept a pod later, when the worker took it."""


class Difference(NamedTuple):
    """A pod, and what both say of it; None: it does not go. An empty text: it goes now."""

    pod: str
    worker: str | None
    plan: str | None


def view_of(core: Core) -> View:
    """The worker's caches."""
    deps = core.deps
    return View(
        inventory=deps.inventory,
        evictions=core.evictions,
        hit=core.evictions.hits(),
        profile_of=deps.profile_of,
        gang_of=Grouping(deps.inventory, deps.profile_of).gang_of,
        hold_of=deps.namespaces.hold_of,
        group_of=core.ceilings.group_of,
        exceeded=lambda _group, _pods, _namespaces: "",  # the rules that it stopped are not in `hit`
    )


def ledger_of(core: Core) -> Ledger:
    """What the worker knows, as far as the plan asks."""
    plans, under_way = core.plans, core.plans.under_way
    keys = {pod.meta.uid: key for key, pod in core.deps.inventory.pods.items()}
    ledger = Ledger(tripped=core.breaker.tripped)
    for uid in sorted(plans.evicted | plans._requested):
        place = under_way._everywhere.place_of(uid) if uid in under_way else uid
        granted = uid in plans.evicted
        ledger.taken[uid] = Taken(keys.get(uid, ""), "", place, granted=granted)
    for uid, each in plans.scheduled.items():
        unit = _unit_of(core, each)
        retry_at = unit.retry_at if unit is not None and unit.failed is each else 0.0
        ledger.failures[uid] = Failure(each.refusals, retry_at, each.outdated)
    for key, rounds in core.returns._rounds.items():
        ledger.rounds[key] = Round(rounds.claim_uid, rounds.count, rounds.pods)
    return ledger


def _unit_of(core: Core, each: PodPlan) -> FormedUnit | None:
    """The unit of a pod; a pod that stays is not asked for, as the worker would form one around it, and keep that."""
    return None if core.plans._never(each) else core.plans.units.of(each)


def compare(world: World) -> list[Difference]:
    """Differences for the pods that neither has taken yet."""
    core = world.worker._core
    if core.backlog.behind:
        return []
    now = core.deps.clock.now()
    ledger = ledger_of(core)
    made = plan(view_of(core), ledger, None, Moment(now, core.deps.clock.seconds()))
    said = {each.key: _of_worker(core, uid, now) for uid, each in core.plans.scheduled.items()}
    differences = []
    for key, pod in core.deps.inventory.pods.items():
        if pod.meta.uid in ledger.taken:
            continue
        ours, theirs = _of_plan(made, pod.meta.uid, now), said.get(key)
        if ours != theirs and not _excused(core, made, pod.meta.uid):
            differences.append(Difference(key, theirs, ours))
    return differences


def _excused(core: Core, made: EvictionPlan, uid: str) -> bool:
    """Whether only one of them looks at this: a breaker is asked by the worker as it takes a pod."""
    wait, each = made.waits.get(uid), core.plans.scheduled.get(uid)
    if wait is not None and wait.reason in _ONLY_NOW:
        return True
    if not core.acts and each is not None and uid in made.going:
        return True  # in mode observe it does not say what a pod would wait for
    tripped, unit = core.breaker.tripped, None if each is None else _unit_of(core, each)
    together = () if each is None else (each,) if unit is None else unit.plans
    return any(not why.rule and why.driver in tripped for each in together for why in each.eviction.reasons)


def _of_worker(core: Core, uid: str, now: datetime) -> str:
    step: Evict | NoAction | StepWait = recheck(core, core.plans.scheduled[uid], now)
    if isinstance(step, NoAction):
        return "" if step.reason is StepReason.OBSERVED else step.reason.name
    if not isinstance(step, StepWait):
        return ""
    other = "" if step.other is None else step.other.key
    return _text(step.reason, other, step.cause, now + timedelta(seconds=step.seconds))


def _of_plan(made: EvictionPlan, uid: str, now: datetime) -> str | None:
    wait = made.waits.get(uid)
    if wait is None:
        return "" if uid in made.going else None
    if uid not in made.going:
        return wait.reason.name
    return _text(wait.reason, wait.other, wait.cause, _end(wait, now))


def _end(wait: Wait, now: datetime) -> datetime:
    return now + timedelta(days=1) if wait.until is None else wait.until  # it looks again after a day


def _text(reason: StepReason, other: str, cause: StepReason | None, until: datetime) -> str:
    rounded = (until + _HAIR / 2).isoformat(timespec="seconds")
    return f"{reason.name} until {rounded}" + (f" for {other} {cause.name}" if cause is not None else "")
