"""A random sequence of things that happen to a cluster, the same for each seed."""

from __future__ import annotations

import math
import random
from collections import deque
from datetime import timedelta
from itertools import product
from typing import Any

from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates
from tests.unit.eviction.plan.taking import room_of
from tests.unit.eviction.world import BLOCKED, FREE, Budget, World
from webhook.api.claims import Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, PodClaim, PodGroup
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.plan import plan
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.policy.model import EvictionProfile, Share

FAILED = EvictionOutcome(EvictionResult.FAILED, "500")
STEPS = 60
QUIET_SECONDS = 600.0


class Turmoil:
    """One world under limits that are drawn as well; pods stay Terminating until they are removed."""

    def __init__(
        self, seed: int, *, shares: bool, readiness: bool, budgets: bool = False, together: bool = False
    ) -> None:
        """`together`: some pods are in gangs and PodGroups, or share a claim."""
        self._together = together
        self._draw = random.Random(seed)
        self._serial = 0
        happens = [self._pod_comes] * 3 + [self._pod_goes] * 2
        happens += [self._rule_comes, self._rule_goes, self._time_passes, self._requests_fail]
        happens += [self._readiness_changes] * 2 if readiness else []
        self._happens = [*happens, self._budget_comes, self._budget_changes] if budgets else happens
        self.world = World(Mode.REPLACEMENT, self._profile(shares=shares))
        self.world.cluster.lingering = True
        if together:
            for namespace, mode in product(["a", "b"], [ALL, SINGLE]):
                meta = ObjectMeta(name=mode, namespace=namespace, uid=f"uid-{namespace}-{mode}")
                self.world.add(PodGroup(meta, mode))

    def stalled(self) -> str:
        """The pod that may be evicted and is not, in ten minutes in which nothing else happens; empty for none."""
        for step in range(STEPS):
            self._draw.choice(self._happens)()
            self.world.settle()
            if self._free_to_go():
                self.world.cluster.answers.clear()
                self.world.cluster.dry_answers.clear()
                self.world.advance(QUIET_SECONDS)
                free = self._free_to_go()
                return f"step {step}: {free[0]}" if free else ""
        return ""

    def _free_to_go(self) -> list[str]:
        """Pods that may go, and that find room by counts made again, although all is done that can be done now."""
        core, profiles = self.world.worker._core, self.world.profiles.all
        made = plan(core.view, core.ledger, self.world.pause, core.moment())
        room = room_of(core.view, core.ledger, core.moment(), made.terminating, budgets=self.world, profiles=profiles)
        for uid, key in core.room.given_up.items():
            room.given_up[uid] = key
            room.vacate(uid, key.partition("/")[0])
        return [unit.members[0].uid for unit in made.eligible if room.closed(unit) is None]

    def _profile(self, *, shares: bool) -> EvictionProfile:
        draw = self._draw
        return structs.replace(
            FREE,
            overall=draw.choice([None, 1, 2, 3]),
            per_namespace=draw.choice([None, 1, 2]),
            per_owner_unavailable=draw.choice([None, 1, 2, Share(50) if shares else None]),
            rate=draw.choice([0.5, 10_000]),
            burst=draw.choice([1, 3, 1000]),
            max_per_minute=draw.choice([None, 2, 5]),
        )

    # --- what happens ----------------------------------------------------------------------------

    def _pod_comes(self) -> None:
        draw = self._draw
        self._serial += 1
        name, namespace, owner = f"pod-{self._serial}", draw.choice(["a", "b"]), draw.choice(["", "x", "y"])
        tolerations = [tolerates(draw.choice([1, 5]))] if draw.random() < 0.3 else []
        links, shared = self._links(namespace)
        if owner:
            fresh = owned(name, by=f"{namespace}-{owner}", namespace=namespace, ready=draw.random() < 0.8, **links)
        else:
            fresh = pod(name, namespace=namespace, priority=draw.choice([0, 0, 5]), **links)
        if shared is not None:
            consumer = Consumer("", "pods", name, fresh.meta.uid)
            self.world.edit(shared, reserved_for=(*(shared.reserved_for or ()), consumer))
            self.world.add(fresh)
            return
        self.world.add(claim(name, *tolerations, devices=(f"gpu-{self._serial % 4}",), namespace=namespace), fresh)

    def _links(self, namespace: str) -> tuple[dict[str, Any], ResourceClaim | None]:
        """What links a new pod to others: fields of it, and the claim that it shares."""
        draw = self._draw
        if not self._together:
            return {}, None
        links: dict[str, Any] = draw.choice(
            [{}, {"gang": "g"}, {"gang": "h"}, {"pod_group": ALL}, {"pod_group": SINGLE}]
        )
        claims = [each for each in self.world.inventory.claims.values() if each.meta.namespace == namespace]
        if not claims or draw.random() < 0.7:
            return links, None
        shared = draw.choice(claims)
        return links | {"claims": (PodClaim(shared.meta.name),)}, shared

    def _some_pod(self) -> str | None:
        pods = sorted(self.world.inventory.pods)
        return self._draw.choice(pods) if pods else None

    def _pod_goes(self) -> None:
        key = self._some_pod()
        if key is not None:
            self.world.remove(self.world.inventory.pods[key])

    def _readiness_changes(self) -> None:
        key = self._some_pod()
        if key is not None:
            known = self.world.inventory.pods[key]
            self.world.edit(known, ready=not known.ready)

    def _rule_comes(self) -> None:
        draw = self._draw
        self._serial += 1
        added = self.world.clock.wall + timedelta(seconds=draw.choice([-5, 0, 3]))
        selector = DeviceSelector(driver=DRIVER, device=draw.choice([None, "gpu-0", "gpu-1"]))
        annotations = draw.choice([{}, {EVICTIONS_PER_SECOND: "1"}])
        self.world.add(rule(f"rule-{self._serial}", selector=selector, added=added, annotations=annotations))

    def _rule_goes(self) -> None:
        rules = sorted(self.world.inventory.rules)
        if rules:
            self.world.remove(self.world.inventory.rules[self._draw.choice(rules)])

    def _budget_comes(self) -> None:
        draw = self._draw
        selects = f"pod-{draw.randrange(5)}"
        allows_at = draw.choice([0.0, math.inf])
        self.world.add_budget(Budget(selects, every_seconds=draw.choice([0.0, 3.0]), allows_at=allows_at))

    def _budget_changes(self) -> None:
        """One allows evictions, or none any longer, and its status says so, is silent, or is late."""
        budgets = self.world.budgets
        if not budgets:
            return
        at = self._draw.randrange(len(budgets))
        budgets[at].allows_at = self._draw.choice([0.0, math.inf])
        budgets[at].status = self._draw.choice([None, 0, 1, 5])
        for namespace in ("a", "b"):
            self.world.worker.observe_budget(namespace, str(at))

    def _time_passes(self) -> None:
        self.world.advance(self._draw.choice([0.3, 2, 7, 61]))

    def _requests_fail(self) -> None:
        answers = [self._draw.choice([BLOCKED, FAILED])] * self._draw.randint(1, 3)
        self.world.cluster.answers, self.world.cluster.dry_answers = deque(answers), deque(answers)
