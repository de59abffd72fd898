"""Writes worlds.txt, a digest of what the worker does in each of 500 random worlds: `python -m tests.golden.worlds`.

`python -m tests.golden.worlds SEED` prints everything that it does in one, at this commit or at the one before.
"""

from __future__ import annotations

import logging
import random
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs
from prometheus_client import generate_latest

from tests.golden.digests import Digests
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import Budget, World
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, PodClaim, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling, EvictionOutcome, EvictionResult, PodRef
from webhook.policy.model import EvictionProfile, EvictionWindow, Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_STEPS: Final = 14
_UNSTEADY: Final = frozenset({363})
"""Seeds whose worlds differ from run to run: a limit is reached among what is decided at one moment, in any order."""
_USUAL: Final = {*vars(logging.makeLogRecord({})), "message"}
_NODES: Final = ("node-0", "node-1", "node-2")
_OUTCOMES: Final = (
    *[EvictionOutcome(EvictionResult.EVICTED)] * 6,
    EvictionOutcome(EvictionResult.FAILED, "the server is on fire"),
    EvictionOutcome(EvictionResult.BLOCKED, "the disruption budget says no", 2.0),
)


class History:
    """A world in which things happen at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        ceiling = rng.choice((None, None, Ceiling(pods=2), Ceiling(pods=4, confirmed=False), Ceiling(namespaces=1)))
        self.world = World(
            rng.choice((*[Mode.REPLACEMENT] * 3, Mode.DELEGATED, Mode.OBSERVE)),
            *[self._profile() for _ in range(rng.choice((1, 1, 2)))],
            ceiling_of=lambda _: ceiling,
        )
        self.world.cluster.answers.extend(rng.choices(_OUTCOMES, k=rng.choice((0, 0, 10, 30))))
        self.world.cluster.lingering = rng.random() < 0.3
        self.made = 0
        self.told: list[str] = []
        """All that the worker did."""
        self.world.add(PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL, None))
        for node in _NODES:
            self.world.add(self._slice(node))
        for _ in range(rng.randint(2, 10)):
            self.add_pod()
        if rng.random() < 0.3:
            self.world.add_budget(
                Budget(rng.choice(("", "pod-1")), every_seconds=rng.choice((2.0, 30.0)), allows_at=0.0)
            )

    def _profile(self) -> EvictionProfile:
        rng = self.rng
        return EvictionProfile(
            priority_at_most=rng.choice((None, None, 0)),
            rate=rng.choice((0.5, 10.0, 10_000.0)),
            burst=rng.choice((1, 3, 1000)),
            max_per_minute=rng.choice((None, None, 3)),
            per_namespace=rng.choice((None, None, 1)),
            per_owner_unavailable=rng.choice((None, 1, 2)),
            overall=rng.choice((None, None, 2)),
            deadline_seconds=rng.choice((0.0, 20.0, 600.0)),
            delete_after_deadline=rng.random() < 0.4,
            grace_seconds=rng.choice((0.0, 0.0, 10.0)),
            max_hold_seconds=rng.choice((30.0, 86400.0)),
            evict_daemon_sets=rng.random() < 0.3,
            skips=rng.random() < 0.05,
            windows=rng.choice(((), (), (), (EvictionWindow("2 12 * * *", 120.0),))),
            wait_for_completion_seconds=rng.choice((0.0, 0.0, 40.0)),
        )

    def _slice(self, node: str, *tainted: str) -> Any:
        devices = {f"gpu-{at}": (taint(),) if f"gpu-{at}" in tainted else () for at in range(2)}
        return slice_of(devices, name=f"slice-{node}", pool=node)

    # --- what happens ----------------------------------------------------------------------------

    def add_pod(self) -> None:
        rng, name = self.rng, f"pod-{self.made}"
        self.made += 1
        tolerations = rng.choice(((), (), (tolerates(30),), (tolerates(),), (tolerates(effect="NoSchedule"),)))
        namespace = rng.choice(("ml", "ml", "web"))
        fields: dict[str, Any] = {
            "namespace": namespace,
            "node_name": rng.choice(_NODES),
            "priority": rng.choice((-1, 0, 0, 5)),
            "hold": rng.choice((*[None] * 8, "debugging")),
            "ready": rng.random() < 0.8,
            "completes": rng.random() < 0.2,
        }
        if namespace == "ml" and rng.random() < 0.2:
            fields["pod_group"] = "ring"
        if namespace == "ml" and rng.random() < 0.15:
            fields["gang"] = "training"
        place = {"pool": fields["node_name"], "devices": (rng.choice(("gpu-0", "gpu-1")),), "namespace": namespace}
        if namespace == "ml" and rng.random() < 0.15:
            self._share(name, tolerations, place)
            fields["claims"] = (PodClaim("shared-claim"),)
        else:
            self.world.add(claim(name, *tolerations, **place))
        kind = rng.choice(("ReplicaSet", "ReplicaSet", "DaemonSet", ""))
        self.world.add(
            owned(name, by=f"{kind}-{rng.randrange(3)}", kind=kind, **fields) if kind else pod(name, **fields)
        )

    def _share(self, name: str, tolerations: Any, place: Any) -> None:
        old = self.world.inventory.claims.get("ml/shared-claim")
        new = Consumer("", "pods", name, f"uid-{name}")
        if old is None:
            self.world.add(claim("shared", *tolerations, consumers=(new,), **place))
        else:
            self.world.change(old, structs.replace(old, reserved_for=(*old.reserved_for, new)))

    def end_pod(self) -> None:
        """One of them has run to its end, or is deleted by somebody."""
        pods = sorted(self.world.inventory.pods.values(), key=lambda each: each.meta.name)
        if pods:
            chosen = self.rng.choice(pods)
            ended = structs.replace(chosen, phase="Succeeded", ready=False)
            self.world.change(chosen, self.rng.choice((None, ended, structs.replace(chosen, hold=None))))

    def vanish(self) -> None:
        for each in [each for each in self.world.inventory.pods.values() if each.deleting]:
            self.world.remove(each)

    def set_rule(self) -> None:
        rng, name = self.rng, f"rule-{self.rng.randrange(2)}"
        old = self.world.inventory.rules.get(name)
        pool, device = rng.choice(((None, None), ("node-0", None), ("node-1", None), ("node-0", "gpu-1")))
        effect = rng.choice(("NoExecute", "NoExecute", "NoSchedule", "None"))
        selector = DeviceSelector("gpu.example.com", pool, device)
        new = rule(
            name,
            effect,
            selector=selector,
            evict=effect == "NoSchedule" and rng.random() < 0.7,
            added=self.world.clock.wall,
            generation=1 if old is None else old.generation + 1,
            conditions=() if old is None else old.conditions,
            annotations=rng.choice(({}, {}, {"devicetaint.io/evictions-per-second": "2"})),
        )
        self.world.change(old, new)

    def drop_rule(self) -> None:
        rules = sorted(self.world.inventory.rules.values(), key=lambda each: each.meta.name)
        if rules:
            self.world.remove(self.rng.choice(rules))

    def publish(self) -> None:
        node = self.rng.choice(_NODES)
        old = next(each for each in self.world.inventory.slices.values() if each.pool == node)
        self.world.change(old, self._slice(node, *self.rng.choice(((), ("gpu-0",), ("gpu-0", "gpu-1")))))

    def hold(self) -> None:
        if self.world.holds:
            self.world.holds.clear()
        else:
            self.world.holds["ml"] = "release week"
        self.world.worker.requeue_waiting("ml")

    def pause(self) -> None:
        until = self.world.clock.wall + timedelta(seconds=20)
        self.world.pause = None if self.world.pause else Pause(until, "maintenance")
        self.world.worker.replan_all()

    def new_policy(self) -> None:
        self.world.change_policy(self._profile())

    def fail(self) -> None:
        self.world.cluster.condition_error = "" if self.world.cluster.condition_error else "etcd is slow"

    def play(self) -> None:
        """Some minutes, and long enough at the end."""
        steps: Sequence[Callable[[], None]] = (
            *(self.set_rule, self.set_rule, self.set_rule, self.publish, self.publish, self.add_pod, self.add_pod),
            *(self.end_pod, self.vanish, self.drop_rule, self.hold, self.pause, self.new_policy, self.fail),
        )
        self.set_rule()
        for _ in range(_STEPS):
            self._pass(self.rng.choice((0.0, 0.4, 3.0, 31.0, 130.0)))
            self.rng.choice(steps)()
        self.vanish()
        self._pass(700.0)

    # --- what came of it -------------------------------------------------------------------------

    def _pass(self, seconds: float) -> None:
        """Time passes. What happens meanwhile is told in order of its text, as no order is promised at one moment."""
        self.world.advance(seconds)
        told = list(self._told())
        self.told += sorted(told)
        cluster = self.world.cluster
        for each in (cluster.requests, cluster.dry_runs, cluster.calls, cluster.writes, cluster.disruptions):
            each.clear()
        cluster.events.clear()

    def _told(self) -> Iterator[str]:
        cluster = self.world.cluster
        yield from (f"{at:.1f} request {verb} {name}" for verb, name, at in cluster.requests)
        yield from (f"{at:.1f} dry run {name}" for name, at in cluster.dry_runs)
        yield from (f"{at:.1f} evicted {verb} {name}" for verb, name, at in cluster.calls)
        yield from (f"condition {' | '.join(write)}" for write in cluster.writes)
        yield from (f"disruption {each.reason}" for each in cluster.disruptions)
        for event in cluster.events:
            about = str(event.about) if isinstance(event.about, PodRef) else event.about.meta.name
            yield f"event {event.reason} {event.action} {about} {event.warning}: {event.text}"


class _Log(logging.Handler):
    """Keeps what is logged, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: value for name, value in vars(record).items() if name not in _USUAL}
        self.lines.append(f"log {record.levelname} {record.getMessage()} {sorted(fields.items())}")


def told(seeds: Iterable[int]) -> Iterator[str]:
    """What the worker does in each of them, its log without order, and its metrics at the end."""
    logger = logging.getLogger("webhook")
    for seed in seeds:
        if seed in _UNSTEADY:
            yield ""
            continue
        log, history = _Log(), History(seed)
        before, logger.propagate = logger.propagate, False
        logger.addHandler(log)
        try:
            history.play()
        finally:
            logger.removeHandler(log)
            logger.propagate = before
        metrics = generate_latest(history.world.registry).decode().splitlines()
        yield "\n".join([*history.told, *sorted(log.lines), *[line for line in metrics if "_created" not in line]])


WORLDS: Final = Digests(Path(__file__).with_name("worlds.txt"), 500, told)

if __name__ == "__main__":
    WORLDS.main(sys.argv[1:])
