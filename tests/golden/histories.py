"""Writes histories.txt, a digest of what the patch controller writes in each of 2,000 random histories.

`python -m tests.golden.histories SEED` prints what is written in one, at this commit or at the one before.
"""

from __future__ import annotations

import random
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from tests.golden.digests import Digests
from tests.unit.patches.fake_cluster import FakeCluster, gpu, part, play, scoped
from tests.unit.patches.patched import CREATED, DRIVER, class_of, slice_of
from webhook.api.rules import DeviceSelector
from webhook.api.taints import DeviceTaint, TaintExtras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from webhook.patches.stored import RuleApply

_STEPS: Final = 6
_POOLS: Final = ("p", "q", "r")
_NAMES: Final = ("one", "two", "three")
_CEL: Final = (
    f'device.attributes["{DRIVER}"].memory > 40',
    f'device.attributes["{DRIVER}"].memory <= 40',
    f'device.driver == "{DRIVER}"',
    "nonsense(",
)


class History:
    """Slices, classes, patches and rules that come, change and go at random, and a controller that follows."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = FakeCluster(self.rng.choice((2, 3, 10)))
        self.told: list[str] = []
        """Writes, Events and statuses, in order."""
        if self.rng.random() < 0.2:
            self.cluster.refuses = self._refusal
        for pool in _POOLS[:2]:
            self.cluster.slices(self._slice(pool))

    def _refusal(self, write: RuleApply) -> str:
        return "the guard says no" if write.selector.pool == "q" else ""

    def _slice(self, pool: str) -> Any:
        rng = self.rng
        devices = [gpu(name, rng.choice((80, 80, 20, None))) for name in rng.sample("abcd", rng.randint(1, 4))]
        devices += [part("full"), part("half")] if rng.random() < 0.2 else []
        generation = rng.choice((1, 1, 2))
        return slice_of(*devices, pool=pool, generation=generation, name=f"{DRIVER}-{pool}")

    def _taint(self) -> DeviceTaint:
        rng = self.rng
        extras = TaintExtras({"at": 1}, "why", 5) if rng.random() < 0.1 else TaintExtras()
        key, value = rng.choice(("example.com/closed", "example.com/b")), rng.choice(("", "", "x"))
        return DeviceTaint(key, value, rng.choice(("NoSchedule", "NoExecute", "None")), extras=extras)

    # --- what happens ----------------------------------------------------------------------------

    def publish(self) -> None:
        self.cluster.slices(self._slice(self.rng.choice(_POOLS)))

    def define_class(self) -> None:
        self.cluster.classes(class_of("big", self.rng.choice(_CEL)))

    def set_patch(self) -> None:
        rng, names = self.rng, {}
        if rng.random() < 0.5:
            names["driver"] = DRIVER
        if rng.random() < 0.4:
            names["pool"] = rng.choice(_POOLS)
        if rng.random() < 0.3:
            names["device"] = rng.choice("abcd")
        if rng.random() < 0.2:
            names["device_class_name"] = rng.choice(("big", "unknown"))
        self.cluster.patch(
            rng.choice(_NAMES),
            priority=rng.choice((0, 0, 1)),
            created=CREATED + timedelta(days=rng.randrange(3)),
            cel=rng.choice(((), (), (rng.choice(_CEL),))),
            taints=[self._taint() for _ in range(rng.choice((1, 1, 2)))],
            **names,
        )

    def drop_patch(self) -> None:
        if self.cluster.patches:
            self.cluster.drop_patch(self.rng.choice(sorted(self.cluster.patches)))

    def drop_rule(self) -> None:
        if self.cluster.rules:
            self.cluster.drop_rule(self.rng.choice(sorted(self.cluster.rules)))

    def edit_rule(self) -> None:
        if self.cluster.rules:
            selector = self.rng.choice((DeviceSelector(DRIVER, "p", "a"), DeviceSelector(), None))
            self.cluster.edit(self.rng.choice(sorted(self.cluster.rules)), selector=selector)

    def set_rule(self) -> None:
        rule = scoped()
        pool = self.rng.choice(_POOLS)
        self.cluster.rule("faulty", structs.replace(rule, selector=DeviceSelector(DRIVER, pool, "full")))

    def later(self) -> None:
        self.cluster.now += timedelta(hours=1)

    def play(self) -> None:
        steps: Sequence[Callable[[], None]] = (
            *(self.publish, self.publish, self.set_patch, self.set_patch, self.set_patch, self.define_class),
            *(self.drop_patch, self.drop_rule, self.edit_rule, self.set_rule, self.later),
        )
        self.set_patch()
        scenes = [each for _ in range(_STEPS) for each in (self.note, partial(self.rng.choice(steps)))]
        play(self.cluster, *scenes, self.note)

    # --- what came of it -------------------------------------------------------------------------

    def note(self) -> None:
        """What was written since the last time. Requests are sent at the same time where none has to come first."""
        cluster = self.cluster
        log, cluster.log[:] = list(cluster.log), []
        events, cluster.events[:] = list(cluster.events), []
        self.told += [f"{at} {line}" for at, line in _by_verb(log)]
        self.told += sorted(" | ".join(each) for each in events)
        for name, stored in sorted(cluster.rules.items()):
            rule, annotations = stored.rule, sorted(stored.rule.meta.annotations.items())
            where = rule.selector and (rule.selector.driver, rule.selector.pool, rule.selector.device)
            taint = rule.taint.key, rule.taint.value, rule.taint.effect, str(rule.taint.time_added)
            self.told.append(f"rule {name} {where} {taint} {annotations}")
        for name, patch in sorted(cluster.patches.items()):
            status = patch.status
            conditions = [(each.type, each.status, each.reason, each.message) for each in status.conditions]
            figures = status.observed_generation, status.selected_devices, status.tainted_devices, status.rules
            self.told.append(f"patch {name} {figures} {conditions}")


def _by_verb(log: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines with a number that grows with the verb; those of one verb in a row are sorted."""
    at, row = 0, list[str]()
    for line in [*log, ""]:
        if row and line.split(" ")[0] != row[0].split(" ")[0]:
            yield from ((at, each) for each in sorted(row))
            at, row = at + 1, []
        row.append(line)


def told(seeds: Iterable[int]) -> Iterator[str]:
    """What is written in each of them, and what is stored then."""
    for seed in seeds:
        history = History(seed)
        history.play()
        yield "\n".join(history.told)


HISTORIES: Final = Digests(Path(__file__).with_name("histories.txt"), 2000, told)

if __name__ == "__main__":
    HISTORIES.main(sys.argv[1:])
