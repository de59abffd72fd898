"""What may happen in a history: to the cluster, to the worker, to requests, and to time. Each event is a value.

An event that concerns something that is not there does nothing, so that a history can be cut anywhere.
"""

from __future__ import annotations

import math
from collections import deque
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.histories.played import ALL_STEPS, NAMESPACES, UNCERTAIN, Played, Reply
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import BLOCKED, FREE, Budget
from webhook.api.claims import Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Pod, PodClaim, PodGroup
from webhook.api.rules import CONFIRM_IMPACT, EVICTIONS_PER_SECOND, DeviceSelector
from webhook.eviction.profiles import Profiles
from webhook.policy.model import EvictionProfile, Pause

SHARED: Final = "shared"
"""The name of the claim that pods of one namespace may share."""
GROUP: Final = "ring"
_LONG_SECONDS: Final = 5.0
"""The watch is never later than this."""


class Event(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One of them."""

    @property
    def rests(self) -> bool:
        """Whether all is done afterwards that can be done then."""
        return False

    async def play(self, run: Played) -> None:
        raise NotImplementedError


# --- pods ----------------------------------------------------------------------------------------


class PodComes(Event, frozen=True):
    """`seconds`: how long its claim, and the shared one if that is new, tolerates taints; for ever if negative."""

    name: str
    namespace: str = "ml"
    gang: str = ""
    group: str = ""
    own: bool = True
    shared: bool = False
    seconds: int | None = None
    device: int = 0
    priority: int = 0
    owner: str = ""
    completes: bool = False
    ready: bool = True

    async def play(self, run: Played) -> None:
        if run.find(self.name) is not None or not (self.own or self.shared or self.group):
            return
        uid, claims = run.next_uid(self.name), list[PodClaim]()
        if self.own:
            fresh = _claim(self.name, self.namespace, self.seconds, self.device)
            self._reserve(run, structs.replace(fresh, controller_uid=uid, reserved_for=()), uid)
            claims.append(PodClaim(f"{self.name}-claim", generated=True))
        if self.shared:
            fresh = _claim(SHARED, self.namespace, self.seconds, self.device)
            known = run.world.inventory.claims.get(f"{self.namespace}/{SHARED}-claim")
            known = structs.replace(fresh, reserved_for=()) if known is None else known
            self._reserve(run, structs.replace(known, allocation=known.allocation or fresh.allocation), uid)
            claims.append(PodClaim(f"{SHARED}-claim"))
        run.world.add(run.versioned(self._pod(uid, tuple(claims))))

    def _reserve(self, run: Played, known: ResourceClaim, uid: str) -> None:
        consumers = (*(known.reserved_for or ()), Consumer("", "pods", self.name, uid))
        before = run.world.inventory.claims.get(f"{self.namespace}/{known.meta.name}")
        run.put(before, structs.replace(known, reserved_for=consumers))

    def _pod(self, uid: str, claims: tuple[PodClaim, ...]) -> Pod:
        given = {
            "uid": uid,
            "namespace": self.namespace,
            "gang": self.gang,
            "pod_group": self.group,
            "claims": claims,
            "priority": self.priority,
            "completes": self.completes,
            "ready": self.ready,
        }
        if not self.owner:
            return pod(self.name, **given)
        kind = "DaemonSet" if self.owner == "daemon" else "ReplicaSet"
        return owned(self.name, by=f"{self.namespace}-{self.owner}", kind=kind, **given)


def _claim(name: str, namespace: str, seconds: int | None, device: int) -> ResourceClaim:
    tolerations = () if seconds is None else (tolerates(seconds if seconds >= 0 else None),)
    owner = "" if name == SHARED else None
    return claim(name, *tolerations, devices=(f"gpu-{device}",), namespace=namespace, owner=owner)


class PodGoes(Event, frozen=True):
    """It is gone, and so is its own claim."""

    name: str

    async def play(self, run: Played) -> None:
        gone = run.find(self.name)
        if gone is not None:
            run.world.remove(gone)
            run.put(run.world.inventory.claims.get(f"{gone.meta.namespace}/{self.name}-claim"), None)


class PodTerminates(Event, frozen=True):
    """Something else deletes it."""

    name: str

    async def play(self, run: Played) -> None:
        if (found := run.find(self.name)) is not None:
            run.terminate(found)


class PodFinishes(Event, frozen=True):
    name: str

    async def play(self, run: Played) -> None:
        if (found := run.find(self.name)) is not None:
            run.change(found, phase="Succeeded", ready=False)


class PodChanges(Event, frozen=True):
    """It is held or not, ready or not, or in a gang or not; None leaves that as it is."""

    name: str
    held: bool | None = None
    ready: bool | None = None
    ganged: bool | None = None

    async def play(self, run: Played) -> None:
        found = run.find(self.name)
        if found is None:
            return
        if self.held is not None:
            run.change(found, hold="checkpoint" if self.held else None)
        elif self.ready is not None:
            run.change(found, ready=self.ready)
        elif self.ganged is not None:
            run.change(found, gang="train" if self.ganged else "")


class GroupChanges(Event, frozen=True):
    """The PodGroup has another disruption mode, or is gone."""

    mode: str = ""

    async def play(self, run: Played) -> None:
        meta = ObjectMeta(name=GROUP, namespace="ml", uid=f"uid-{GROUP}")
        run.put(run.world.inventory.pod_groups.get(f"ml/{GROUP}"), PodGroup(meta, self.mode) if self.mode else None)


# --- claims and devices --------------------------------------------------------------------------


def _found_claim(run: Played, name: str) -> ResourceClaim | None:
    claims = run.world.inventory.claims
    return next((claims[key] for each in NAMESPACES if (key := f"{each}/{name}-claim") in claims), None)


class ClaimChanges(Event, frozen=True):
    """Its device is the first one, and is tolerated for this time."""

    name: str
    seconds: int | None = None

    async def play(self, run: Played) -> None:
        known = _found_claim(run, self.name)
        if known is not None:
            fresh = _claim(self.name, known.meta.namespace, self.seconds, 0)
            run.put(known, structs.replace(known, allocation=fresh.allocation))


class ClaimIsFreed(Event, frozen=True):
    name: str

    async def play(self, run: Played) -> None:
        known = _found_claim(run, self.name)
        if known is not None:
            run.put(known, structs.replace(known, allocation=None))


class ReservationChanges(Event, frozen=True):
    """The PodGroup keeps a claim reserved, or does so no longer."""

    name: str
    kept: bool

    async def play(self, run: Played) -> None:
        known = _found_claim(run, self.name)
        if known is not None:
            pods = tuple([each for each in known.reserved_for or () if each.resource != "podgroups"])
            group = Consumer("scheduling.k8s.io", "podgroups", GROUP, f"uid-{GROUP}")
            run.put(known, structs.replace(known, reserved_for=(*pods, group) if self.kept else pods))


class SliceChanges(Event, frozen=True):
    """The driver taints these devices in its slice; `partial`: another slice of the pool is missing."""

    tainted: tuple[int, ...]
    partial: bool = False
    generation: int = 1

    async def play(self, run: Played) -> None:
        added = taint(added=run.world.clock.wall)
        taints = {f"gpu-{each}": (added,) if each in self.tainted else () for each in range(3)}
        fresh = slice_of(taints, generation=self.generation)
        before = run.slices.get("slice")
        run.slices["slice"] = structs.replace(fresh, slice_count=2) if self.partial else fresh
        run.put(before, run.slices["slice"])


# --- rules, policy, budgets ----------------------------------------------------------------------


class RuleChanges(Event, frozen=True):
    """It is there, or says something else. `most`: its ceiling; `after`: the seconds until its taint begins."""

    number: int = 0
    most: str = ""
    rate: str = ""
    after: int = 0
    device: int | None = None
    no_schedule: bool = False

    async def play(self, run: Played) -> None:
        name = f"rule-{self.number}"
        known = run.world.inventory.rules.get(name)
        annotations = {CONFIRM_IMPACT: self.most, EVICTIONS_PER_SECOND: self.rate}
        uid = run.next_uid(name) if known is None else known.meta.uid
        device = None if self.device is None else f"gpu-{self.device}"
        fresh = rule(
            name,
            "NoSchedule" if self.no_schedule else "NoExecute",
            evict=self.no_schedule,
            selector=DeviceSelector(driver=DRIVER, device=device),
            added=run.world.clock.wall + timedelta(seconds=self.after),
            annotations={key: text for key, text in annotations.items() if text},
            uid=uid,
            generation=1 if known is None else known.generation + 1,
            conditions=() if known is None else known.conditions,
        )
        if known is not None:
            run.checks.edited.add(uid)
        run.put(known, fresh)


class RuleGoes(Event, frozen=True):
    number: int = 0

    async def play(self, run: Played) -> None:
        run.put(run.world.inventory.rules.get(f"rule-{self.number}"), None)


class BudgetChanges(Event, frozen=True):
    """A disruption budget is there, or says something else, though it selects the same pods for good."""

    number: int
    selects: str = ""
    opened: bool = True
    status: int | None = None
    every: float = 0.0
    always: bool = False

    async def play(self, run: Played) -> None:
        world, allows_at = run.world, 0.0 if self.opened else math.inf
        if self.number >= len(world.budgets):
            world.budgets.append(Budget(self.selects, self.every, allows_at, self.status, always=self.always))
            for namespace in NAMESPACES:
                world.worker.observe_budgets(namespace)
            return
        known = world.budgets[self.number]
        known.allows_at, known.status = allows_at, self.status
        for namespace in NAMESPACES:
            world.worker.observe_budget(namespace, str(self.number))


class NamespaceChanges(Event, frozen=True):
    """It is held, or is not."""

    namespace: str
    held: bool

    async def play(self, run: Played) -> None:
        if self.held:
            run.world.holds[self.namespace] = "checkpoint"
        else:
            run.world.holds.pop(self.namespace, None)
        run.world.worker.requeue_waiting(self.namespace)


class PolicyChanges(Event, frozen=True):
    """`most`: the ceiling of rules that name none."""

    profiles: tuple[EvictionProfile, ...] = (FREE,)
    most: int | None = None

    async def play(self, run: Played) -> None:
        run.checks.inexact = True
        run.most = self.most
        run.world.profiles = Profiles(self.profiles)
        run.world.worker.replan_all()


class PauseChanges(Event, frozen=True):
    """Evictions are paused for this time, or not at all."""

    seconds: float = 0.0

    async def play(self, run: Played) -> None:
        run.world.pause = Pause(run.world.clock.wall + timedelta(seconds=self.seconds)) if self.seconds else None
        run.world.worker.replan_all()


# --- time ----------------------------------------------------------------------------------------


class TimePasses(Event, frozen=True):
    """And everything happens at its time, unless it `jumps`."""

    seconds: float
    jumps: bool = False

    @property
    def rests(self) -> bool:
        return not self.jumps

    async def play(self, run: Played) -> None:
        if self.seconds > _LONG_SECONDS:
            run.catch_up()
        if self.jumps:
            run.jump(self.seconds)
        else:
            await run.advance(self.seconds)


# --- the worker and its requests -----------------------------------------------------------------


class PassGoesOn(Event, frozen=True):
    steps: int = ALL_STEPS

    async def play(self, run: Played) -> None:
        if run.wants_plan:
            run.plan(self.steps)


class UnitIsTaken(Event, frozen=True):
    async def play(self, run: Played) -> None:
        run.take()


class RequestGoesOn(Event, frozen=True):
    """That one which stands at this place goes on to its next await, and then the next one there."""

    place: int = 0
    times: int = 1

    async def play(self, run: Played) -> None:
        for _ in range(self.times):
            await run.release(self.place)


class RequestsEnd(Event, frozen=True):
    async def play(self, run: Played) -> None:
        await run.drain()


class AllSettles(Event, frozen=True):
    @property
    def rests(self) -> bool:
        return True

    async def play(self, run: Played) -> None:
        await run.settle()


class ServerWillReply(Event, frozen=True):
    """To the next requests; `refuses`: to the next dry run."""

    replies: tuple[Reply, ...]
    refuses: bool = False

    async def play(self, run: Played) -> None:
        run.replies = deque(self.replies)
        run.world.cluster.dry_answers = deque([BLOCKED] if self.refuses else [])
        run.checks.inexact |= not UNCERTAIN.isdisjoint(self.replies)


class WatchShows(Event, frozen=True):
    most: int = 1

    async def play(self, run: Played) -> None:
        run.catch_up(self.most)


class IdleIsForgotten(Event, frozen=True):
    async def play(self, run: Played) -> None:
        run.world.worker.forget_idle()


class WorkerRestarts(Event, frozen=True):
    async def play(self, run: Played) -> None:
        await run.restart()
