"""A cluster in which a process keeps the rules of reactions."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs
from prometheus_client import CollectorRegistry

from tests.unit.eviction.hurried import hurry
from tests.unit.patches.fake_cluster import NOW, FakeCluster
from tests.unit.patches.reacting import KEY, make_slice
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DESCRIPTION, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.cluster.patch_writer import WriteAnswer
from webhook.daemons.reaction_keeper import ReactionKeeper, ReactionParts
from webhook.patches.reasons import FirstSights
from webhook.patches.status import REASONS
from webhook.patches.stored import StoredRule
from webhook.telemetry.workers import PatchMetrics, ReactionMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.cluster.patch_writer import PatchWriter
    from webhook.patches.reactions import ReactionWrite
    from webhook.policy.model import Reaction


NOTHING_SECONDS = 0.15
"""No write for that long: nothing is left that is not waiting."""


class ReactingCluster(FakeCluster):
    """Stores what reactions write as well. The time stands still unless a scene moves it."""

    def __init__(self, *reactions: Reaction) -> None:
        super().__init__()
        self.reactions: Sequence[Reaction] | None = reactions
        self.refusing: Callable[[str], str] = lambda _: ""
        self.failing: Callable[[str], str] = lambda _: ""
        self.mangles = False
        """Whether a webhook changes what is written."""
        self.finalizers = ""
        """`stay`: rules that are deleted stay; `gone`: not any more once that is answered."""
        self.after_write: Callable[[str], object] = lambda _: None
        """Called with a rule's name when it was written, before the keeper has the answer."""
        self.tries: list[str] = []
        self.told: list[tuple[str, str, bool]] = []
        self.seconds = 0.0
        self.numbers = CollectorRegistry()
        self.renew()

    def renew(self) -> None:
        """The keeper of another process."""
        self.numbers = CollectorRegistry()
        parts = ReactionParts(
            writer=cast("PatchWriter", self),
            metrics=ReactionMetrics(self.numbers),
            writes=PatchMetrics(self.numbers, REASONS),
            reactions=lambda: self.reactions,
            leads=lambda: self.leads,
            current=lambda: self.current,
            now=lambda: self.now,
            seconds=lambda: self.seconds,
            random=lambda: 0.999,
        )
        self.sights = FirstSights(lambda: self.seconds)
        self.keeper = ReactionKeeper(parts, self.controller, self.sights)

    async def write_reaction(self, write: ReactionWrite) -> WriteAnswer:
        await asyncio.sleep(0)
        name = write.rule.name
        self.tries.append(f"{'create' if write.creates else 'change'} {write.rule.address.device}")
        refused, failed = self.refusing(name), self.failing(name)
        if refused or failed:
            return WriteAnswer(refused=refused, failed=failed)
        annotations = dict(write.rule.annotations) | ({DESCRIPTION: "mine"} if self.mangles else {})
        meta = ObjectMeta(name, uid=f"uid-{name}", resource_version=self._version(), annotations=annotations)
        stored = self.rules[name] = StoredRule(DeviceTaintRule(meta, write.rule.selector, write.taint))
        self._report(lambda: self.seen(name, stored))
        self.after_write(name)
        return WriteAnswer(stored)

    async def delete_rule(self, stored: StoredRule) -> WriteAnswer:
        self.tries.append(f"delete {stored.rule.selector.device if stored.rule.selector else ''}")
        name = stored.meta.name
        if refused := self.refusing(name):
            return WriteAnswer(refused=refused)
        if self.finalizers:
            meta = structs.replace(stored.meta, resource_version=self._version())
            left = self.rules[name] = StoredRule(structs.replace(stored.rule, meta=meta, deleting=True))
            if self.finalizers == "gone":
                self.seen(name, None, self.rules.pop(name))
            return WriteAnswer(left)
        known = self.rules.pop(name)
        self._report(lambda: self.seen(name, None, known))
        self.after_delete(name)
        return WriteAnswer()

    async def report(self, reason: str, note: str, *, warns: bool) -> None:
        self.told.append((reason, note, warns))

    def seen(self, name: str, new: StoredRule | None, old: StoredRule | None = None) -> None:
        self.controller.observe_rule(name, new)
        self.keeper.observe_rule(old, new)
        self._shown()

    def withdraw(self) -> None:
        """No slice is left."""
        while self._slices:
            self.controller.observe_slice(self._slices.popitem()[1], None)
        self.keeper.wake()

    def publish(self, pool: str = "node-1", count: int = 1, *, since: float | None = 300.0, **fields: Any) -> None:
        """Devices, with a taint that was first seen so many seconds before NOW; None: without one."""
        taint = () if since is None else (DeviceTaint(KEY, "48", "None", NOW),)
        self.slices(make_slice({f"gpu-{at}": taint for at in range(count)}, pool, **fields))
        if since is not None:
            clock, self.sights._seconds = self.sights._seconds, lambda: -since
            self.sights.signals_in(self.controller.index.pools, self.reactions or (), NOW - _seconds(since))
            self.sights._seconds = clock
        self.keeper.wake()

    def policy(self, *reactions: Reaction) -> None:
        self.reactions = reactions
        self.keeper.observe_policy()

    def later(self, seconds: float) -> None:
        self.now += _seconds(seconds)
        self.seconds += seconds
        self.keeper.wake()

    @property
    def closed(self) -> list[str]:
        return sorted(str(each.rule.selector and each.rule.selector.device) for each in self.rules.values())

    def number(self, series: str, **labels: str) -> float | None:
        return self.numbers.get_sample_value(f"device_taint_webhook_{series}", labels)


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def play(cluster: ReactingCluster, *scenes: Callable[[], object]) -> None:
    """Lets the keeper work until nothing is tried any more, after each scene."""

    async def run() -> None:
        work = asyncio.create_task(cluster.keeper.run())
        for scene in (lambda: None, *scenes):
            scene()
            seen = -1
            while seen != len(cluster.tries):
                seen = len(cluster.tries)
                await asyncio.sleep(NOTHING_SECONDS)
            assert not work.done()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    hurry(asyncio.wait_for(run(), 20))
