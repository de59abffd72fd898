"""The pass of the eviction worker once more, naive: nested loops, no memo, one step after the other.

It was written from decisions.md 8 and 8a, design/eviction-2.md 1 and docs/eviction.md, by someone who had not read
`webhook/eviction/plan.py`. `take_oracle.py` does the same for `take`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tests.unit.eviction.plan.worlds import World
from webhook.api.pods import ALL, Pod
from webhook.eviction.pod_plan import Going, RuleFigures, StepReason, Wait, exemption
from webhook.inventory.evictions import NOTHING, Eviction, Without, later
from webhook.inventory.state import claim_keys
from webhook.policy.windows import state_of

_ROUNDS: Final = 2
"""So often the pods of one claim are evicted, and then no more."""


@dataclass(frozen=True)
class Together:
    """A unit."""

    members: tuple[Going, ...]
    key: str
    due: datetime
    order: tuple[bool, int, int, datetime, str]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What the pass should say; pods go by uid."""

    eligible: list[Together]
    waits: dict[str, Wait]
    units: dict[str, Together]
    rules: dict[str, RuleFigures]
    terminating: dict[str, Going]
    going: dict[str, Going]
    wake_at: datetime | None


@dataclass(frozen=True)
class Fate:
    """Why a pod goes: because of itself, or `along` with another one."""

    eviction: Eviction
    along: bool = False


def plan_of(world: World) -> Planned:
    """The whole pass."""
    before = _fates(world, NOTHING)
    rules, without = _stopped(world, before)
    after = _fates(world, without)
    terminating, waits, going = _sorted_out(world, before, after, rules, without)
    eligible: list[Together] = []
    times = [_stuck_at(each) for each in terminating.values()]
    units = _units(world, list(going.values()), without)
    for unit in units:
        found = _waits_in(world, unit)
        if not found:
            eligible.append(unit)
        waits.update(found)
        times += [wait.until for wait in found.values()]
        times += [_window_end(world, each) for each in unit.members]
    return Planned(
        eligible=sorted(eligible, key=lambda unit: unit.order),
        waits=waits,
        units={each.uid: unit for unit in units for each in unit.members if len(unit.members) > 1},
        rules=rules,
        terminating=terminating,
        going=going,
        wake_at=min([time for time in times if time is not None and time > world.moment.now], default=None),
    )


def _stopped(world: World, before: Mapping[str, Fate]) -> tuple[dict[str, RuleFigures], Without]:
    """What rules hit, and what is left out; those that go along may go because of another rule then, over and over."""
    rules = _figures(world, before, NOTHING)
    while True:
        without = Without(world.ledger.tripped, frozenset([uid for uid, each in rules.items() if each.stopped]))
        if without == NOTHING:
            return rules, without
        again = _figures(world, _fates(world, without), without)
        fresh = {uid: each for uid, each in again.items() if each.stopped and uid not in without.rules}
        if not fresh:
            return rules, without
        rules |= fresh


def _sorted_out(
    world: World,
    before: Mapping[str, Fate],
    after: Mapping[str, Fate],
    rules: Mapping[str, RuleFigures],
    without: Without,
) -> tuple[dict[str, Going], dict[str, Wait], dict[str, Going]]:
    """The pods that terminate, what others wait for that do not go, and those that go."""
    stopped = {uid: figures.stopped for uid, figures in rules.items() if figures.stopped}
    terminating, waits, going = dict[str, Going](), dict[str, Wait](), dict[str, Going]()
    for key in sorted(before.keys() | after.keys()):
        pod = world.view.inventory.pods[key]
        uid, own = pod.meta.uid, world.view.hit.get(key)
        if pod.finished:
            continue
        if pod.deleting:
            terminating[uid] = _going(world, key, after.get(key, before[key]))
            continue
        reason = None
        if key not in after:
            reason = _taken_out(world, [before[key].eviction, own], stopped)
            if reason is None:
                continue  # it would only have gone along
        if uid in world.ledger.taken:
            waits[uid] = Wait(StepReason.TAKEN)
        elif reason is not None:
            waits[uid] = _stay(world, pod, own or before[key].eviction, without) or reason
        elif (stay := _stay(world, pod, after[key].eviction, without)) is not None:
            waits[uid] = stay
        else:
            going[uid] = _going(world, key, after[key])
    return terminating, waits, going


def leaves(pod: Pod) -> bool:
    """Whether it is terminating or finished."""
    return pod.deleting or pod.finished


def gang_of(world: World, pod: Pod) -> str:
    """The text of its gang, by its profile."""
    return world.view.gang_of(pod, world.view.profile_of(pod))


def _going(world: World, key: str, fate: Fate) -> Going:
    pod = world.view.inventory.pods[key]
    profile = world.view.profile_of(pod)
    due = later(fate.eviction.due, profile.settings.grace_seconds)
    return Going(key, pod, fate.eviction, profile, due, gang_of(world, pod), fate.along)


# --- hit, along, stopped ---------------------------------------------------------------------------------------------


def _fates(world: World, without: Without) -> dict[str, Fate]:
    """The pods that a taint evicts, and those of PodGroups that go along with them, by `namespace/name`."""
    inventory = world.view.inventory
    own: dict[str, Eviction] = {}
    for key, hit in sorted(world.view.hit.items()):
        left = hit if without == NOTHING else world.view.evictions.eviction_of(inventory.pods[key], without)
        if left is not None:
            own[key] = left
    found = {key: Fate(eviction) for key, eviction in own.items()}
    for group, value in sorted(inventory.pod_groups.items()):
        if value.disruption_mode != ALL:
            continue
        members = {key: pod for key, pod in sorted(inventory.pods.items()) if _group_key(pod) == group}
        causes = [key for key, pod in members.items() if key in own and _stay(world, pod, own[key], without) is None]
        live = [key for key in causes if not _begun(world, members[key])]
        for key, pod in members.items():
            hit_itself = key in own and not own[key].waits
            asked_for = pod.meta.uid in world.ledger.taken or bool(_place_of(world, pod.meta.uid))
            if causes and pod.node_name and not pod.finished and not hit_itself and (live or asked_for):
                first = min(live or causes, key=lambda key: (own[key].due, key))
                found[key] = Fate(own[first], along=True)
    return found


def _group_key(pod: Pod) -> str:
    return f"{pod.meta.namespace}/{pod.pod_group}" if pod.pod_group else ""


def _begun(world: World, pod: Pod) -> bool:
    """Whether it is on its way out, or was taken: who goes along with it is settled then."""
    return leaves(pod) or pod.meta.uid in world.ledger.taken


def _place_of(world: World, uid: str) -> str:
    """The place at which the pod was asked for once, if others of its unit were evicted without it."""
    failure = world.ledger.failures.get(uid)
    return failure.place if failure is not None and failure.unit in world.ledger.begun else ""


def _figures(world: World, fates: Mapping[str, Fate], without: Without) -> dict[str, RuleFigures]:
    """What each rule hits, and why it is stopped."""
    view = world.view
    by_rule: dict[str, set[str]] = {}
    by_group: dict[str, set[str]] = {}
    for key, fate in fates.items():
        pod = view.inventory.pods[key]
        failure = world.ledger.failures.get(pod.meta.uid)
        evicted = pod.meta.uid in world.ledger.granted or (failure is not None and failure.undeleted)
        counts = not (leaves(pod) or evicted or view.evictions.holding_group(pod, without))
        for uid, _ in fate.eviction.rules:
            by_rule.setdefault(uid, set()).update([key] if counts else [])
            by_group.setdefault(view.group_of(uid), set()).update([key] if counts else [])
    there = {
        pod.meta.uid
        for pod in view.inventory.pods.values()
        if not leaves(pod) and not view.evictions.holding_group(pod, NOTHING)
    }
    for uid, taken in world.ledger.taken.items():
        for rule, _ in () if uid in world.ledger.granted or uid in there else taken.rules:
            by_rule.setdefault(rule, set()).add(f"{taken.namespace}/{uid}")
            by_group.setdefault(view.group_of(rule), set()).add(f"{taken.namespace}/{uid}")
    hitting = frozenset([uid for uid, keys in by_rule.items() if keys])
    stopped = {
        group: view.exceeded(group, len(keys), _namespaces(keys), hitting) if keys else ""
        for group, keys in by_group.items()
    }
    return {
        uid: RuleFigures(len(keys), len(_namespaces(keys)), stopped[view.group_of(uid)])
        for uid, keys in by_rule.items()
    }


def _namespaces(keys: Iterable[str]) -> frozenset[str]:
    return frozenset([key.split("/")[0] for key in keys])


def _taken_out(world: World, evictions: Sequence[Eviction | None], stopped: Mapping[str, str]) -> Wait | None:
    """Why a pod does not go of whose reasons none is left: those by which it would have gone, then its own.

    None for a companion whose reasons are left, but whose cause stays now: no taint makes it go.
    """
    for reasons in [each.reasons for each in evictions if each is not None]:
        for reason in reasons:
            if not reason.rule and reason.driver in world.ledger.tripped:
                return Wait(StepReason.BREAKER, because=reason.driver)
        texts = [stopped[reason.rule_uid] for reason in reasons if reason.rule_uid in stopped]
        if texts:
            return Wait(StepReason.STOPPED, because=texts[0])
    return None


def _stay(world: World, pod: Pod, eviction: Eviction, without: Without) -> Wait | None:
    """Why a pod stays although a taint evicts it, or None."""
    evictions = world.view.evictions
    if eviction.waits:
        return Wait(StepReason.REPUBLISHED)
    exempt = exemption(pod, world.view.profile_of(pod).settings)
    if exempt is not None:
        return Wait(exempt)
    group = evictions.holding_group(pod, without)
    if group:
        return Wait(StepReason.GROUP, because=group)
    for entry in pod.claims:
        if entry.generated or not entry.claim:
            continue
        key = f"{pod.meta.namespace}/{entry.claim}"
        rounds, claim = world.ledger.rounds.get(key), world.view.inventory.claims.get(key)
        if rounds is None or rounds.count < _ROUNDS or pod.meta.uid in rounds.pods:
            continue
        if claim is None or claim.meta.uid != rounds.claim_uid:
            continue
        if evictions.evicts_users_of(key, without):
            return Wait(StepReason.RETURNS, because=key)
    return None


# --- units -----------------------------------------------------------------------------------------------------------


def _units(world: World, going: list[Going], without: Without) -> list[Together]:
    found: list[Together] = []
    left = sorted(going, key=lambda each: each.key)
    while left:
        connected = [left.pop(0)]
        grown = True
        while grown:
            grown = False
            links = _all_links(world, connected, without)
            for each in list(left):
                if links & _all_links(world, [each], without):
                    connected.append(each)
                    left.remove(each)
                    grown = True
        claims = set[str]().union(*[_claims_of(world, each, without) for each in connected])
        tied = bool(claims) or any(_in_whole_group(world, each.pod) for each in connected)
        gangs = {each.gang for each in connected if each.gang}
        left_behind = [[each] for each in connected if _place_of(world, each.uid)]
        others = [each for each in connected if not _place_of(world, each.uid)]
        waves = [others] if tied and others else _cut(others)
        found += [_unit(world, wave, gangs, claims) for wave in [*left_behind, *waves]]
    return found


def _all_links(world: World, members: list[Going], without: Without) -> set[tuple[str, str]]:
    links: set[tuple[str, str]] = set()
    for each in members:
        links |= {("claim", key) for key in _claims_of(world, each, without)}
        links |= {("gang", each.gang)} if each.gang else set()
    return links


def _claims_of(world: World, member: Going, without: Without) -> set[str]:
    """The claims that the pod shares with others, whose users a taint evicts."""
    inventory, found = world.view.inventory, set[str]()
    for key in claim_keys(member.pod):
        users = [other for other in inventory.pods.values() if key in claim_keys(other)]
        if len(users) > 1 and world.view.evictions.evicts_users_of(key, without):
            found.add(key)
    return found


def _in_whole_group(world: World, pod: Pod) -> bool:
    group = world.view.inventory.pod_groups.get(_group_key(pod))
    return group is not None and group.disruption_mode == ALL


def _cut(members: list[Going]) -> list[list[Going]]:
    """The waves of a gang."""
    waves: list[list[Going]] = []
    for each in sorted(members, key=lambda each: (each.due, each.key)):
        if waves:
            first = waves[-1][0]
            if each.due - first.due <= timedelta(seconds=first.profile.settings.gang_window_seconds):
                waves[-1].append(each)
                continue
        waves.append([each])
    return waves


def _unit(world: World, wave: list[Going], gangs: set[str], claims: set[str]) -> Together:
    members = tuple(sorted(wave, key=lambda each: each.key))
    places = [place for each in members if (place := _place_of(world, each.uid))]
    key = max(gangs or claims, default="")
    if places:
        key = min(places)
    elif len(members) == 1:
        key = members[0].gang or members[0].uid
    due = max([each.due for each in members])
    failures = [world.ledger.failures[each.uid] for each in members if each.uid in world.ledger.failures]
    failed = not places and any(each.errors > 1 for each in failures)
    refusals = max([each.refusals for each in failures], default=0)
    priority = max([each.pod.priority for each in members])
    return Together(members, key, due, (failed, priority, refusals, due, members[0].key))


# --- when ------------------------------------------------------------------------------------------------------------


def _own_wait(world: World, member: Going) -> Wait | None:
    """What the pod would wait for if it went alone, apart from a pause."""
    now, settings, pod = world.moment.now, member.profile.settings, member.pod
    if now < member.due:
        return Wait(StepReason.EARLY, member.due)
    hold = pod.hold if pod.hold is not None else world.view.hold_of(pod.meta.namespace)
    end = later(member.due, settings.max_hold_seconds)
    if hold is not None and now < end:
        return Wait(StepReason.HELD, end, because=hold)
    end = later(member.due, settings.wait_for_completion_seconds)
    if pod.completes and now < end:
        return Wait(StepReason.COMPLETING, end)
    state = state_of(settings.windows, now)
    if not state.open:
        return Wait(StepReason.WINDOW, state.until)
    return _failed(world, member)


def _window_end(world: World, member: Going) -> datetime | None:
    """When the window closes that is open for a pod that nothing else of its own keeps before that."""
    wait = _own_wait(world, member)
    if wait is not None and wait.reason is not StepReason.FAILED:
        return None
    return state_of(member.profile.settings.windows, world.moment.now).until


def _stuck_at(member: Going) -> datetime | None:
    grace_ends = member.pod.grace_ends
    return None if grace_ends is None else later(grace_ends, member.profile.settings.stuck_after_seconds)


def _failed(world: World, member: Going) -> Wait | None:
    failure = world.ledger.failures.get(member.uid)
    if failure is None:
        return None
    if failure.outdated == member.pod.meta.resource_version != "":
        return Wait(StepReason.FAILED)
    left = failure.retry_at - world.moment.seconds
    return Wait(StepReason.FAILED, later(world.moment.now, left)) if left > 0 else None


def _waits_in(world: World, unit: Together) -> dict[str, Wait]:
    """What each pod of a unit waits for; empty if the unit may go."""
    own = {each.uid: _own_wait(world, each) for each in unit.members}
    waiting = {each.key: wait for each in unit.members if (wait := own[each.uid]) is not None}
    others = _wait_for(world, unit, waiting)
    found = {uid: wait if wait is not None else others for uid, wait in own.items()}
    return {uid: wait for uid, wait in found.items() if wait is not None}


def _wait_for(world: World, unit: Together, waiting: Mapping[str, Wait]) -> Wait | None:
    """What pods wait for that could go if they were alone; `waiting`: what others wait for, by `namespace/name`."""
    if world.moment.now < unit.due:
        last = min([each.key for each in unit.members if each.due == unit.due])
        return Wait(StepReason.GANG, unit.due, other=last, cause=StepReason.EARLY)
    if waiting:
        windows = {key: wait for key, wait in waiting.items() if wait.reason is StepReason.WINDOW}
        among = windows or waiting
        longest = max([_end_of(wait) for wait in among.values()])
        other = min([key for key, wait in among.items() if _end_of(wait) == longest])
        ends = [wait.until for wait in waiting.values()]
        until = None if None in ends else max([end for end in ends if end is not None])
        reason = StepReason.WINDOW if windows else StepReason.GANG
        on_hold = among[other].because if among[other].reason is StepReason.HELD else ""
        return Wait(reason, until, other=other, cause=among[other].reason, because=on_hold)
    if world.pause is not None and world.moment.now < world.pause.until:
        return Wait(StepReason.PAUSED, world.pause.until)
    return None


def _end_of(wait: Wait) -> tuple[bool, float]:
    """When it ends, to compare: what has no end comes last."""
    return (True, 0.0) if wait.until is None else (False, wait.until.timestamp())
