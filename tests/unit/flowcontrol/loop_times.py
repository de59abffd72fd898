"""When the seven loops of the daemons do what, under the same wakes and faults, on a loop whose time passes at once.

`python -m tests.unit.flowcontrol.loop_times` rewrites the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import textwrap
from concurrent.futures import Executor
from datetime import timedelta
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from prometheus_client import CollectorRegistry

from tests.unit.daemons.reacting_cluster import ReactingCluster
from tests.unit.eviction.hurried import HurriedLoop
from tests.unit.patches.fake_cluster import CLOSED, NOW, FakeCluster, gpu
from tests.unit.patches.patched import DRIVER, patch_of, slice_of
from tests.unit.patches.reacting import make_reaction
from webhook.api.field import Path
from webhook.cluster.cache.discovery import FixedCollection, ServerVersions
from webhook.cluster.cache.inventory import ClaimsHorizon
from webhook.cluster.client.errors import ClusterError, Unavailable
from webhook.commands.shared.policy_files import read_policy
from webhook.daemons.periodic_audit import AuditSources, PeriodicAudit
from webhook.daemons.policy_loader import PolicyLoader
from webhook.daemons.reaction_keeper import ReactionKeeper, ReactionParts
from webhook.daemons.slice_keeper import KeeperParts, SliceKeeper
from webhook.flowcontrol.workqueue import TimeSlice
from webhook.patches.reasons import FirstSights
from webhook.patches.status import REASONS
from webhook.patches.stored import StoredPatch
from webhook.policy.decide import Judge, PolicyStore
from webhook.telemetry.reviews import PolicyMetrics
from webhook.telemetry.workers import AuditMetrics, PatchMetrics, ReactionMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
    from datetime import datetime

    from webhook.cluster.client.rest import Cluster
    from webhook.cluster.patch_writer import PatchWriter, SliceToucher, WriteAnswer
    from webhook.patches.reactions import ReactionWrite
    from webhook.policy.document import Loaded

FILE: Final = FilePath(__file__).with_suffix(".txt")
LENGTH: Final = 60.0
"""Of a schedule, in units of each loop."""
REQUEST_SECONDS: Final = 0.05
THREAD_SECONDS: Final = 0.03
_DISTURBED: Final = (3, 5, 9, 10, 11, 20, 40)
"""Which looks."""
_OF_SEED: Final = 24
_FIELDS: Final = ("attempt", "sinceSeconds", "delaySeconds")
"""Of log lines."""
HEAD: Final = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
BROKEN: Final = f"{HEAD}rules: [{{name: x, action: forbid}}]\n"
JUDGES: Final = (Judge(), Judge())
MEMORY: Final = 'device.attributes["gpu.example.com"].memory > 1'

Schedule = list[tuple[float, str]]


def _random(seed: int) -> Schedule:
    rng = random.Random(seed)
    words = ("wake", "wake", "wake", "wake", "fail", "mend", "mend", "forbid", "allow", "allow")
    return sorted([(round(rng.uniform(0, LENGTH), 4), rng.choice(words)) for _ in range(_OF_SEED)])


SCHEDULES: Final[dict[str, Schedule]] = {
    "calm": [],
    "woken": [(at, "wake") for at in (0.02, 0.61, 3.01, 3.02, 3.03, 5.5, 7.01, 7.9, 20.3, 20.4, 33.3, 50.7)],
    "failing": [
        *[(0.0, "fail"), (2.1, "wake"), (2.2, "wake"), (5.3, "wake"), (9.37, "mend"), (9.4, "wake"), (20.5, "fail")],
        *[(21.3, "wake"), (44.17, "mend"), (44.18, "wake"), (47.3, "fail"), (48.9, "mend")],
    ],
    "standby": [
        *[(0.0, "forbid"), (1.53, "wake"), (10.31, "allow"), (15.7, "wake"), (30.21, "forbid"), (31.3, "wake")],
        *[(35.3, "wake"), (45.13, "allow")],
    ],
    **{f"seed {seed}": _random(seed) for seed in range(3)},
}


def _finish(future: asyncio.Future[Any], result: Any) -> None:
    if not future.cancelled():
        future.set_result(result)


class _Loop(HurriedLoop):
    """Threads take a while, and their work is done here."""

    def run_in_executor(self, _executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        result = func(*args)
        self.call_later(THREAD_SECONDS, _finish, future, result)
        return future

    def pass_time(self, seconds: float) -> None:
        """Nothing else can be done meanwhile."""
        self._waits.passed += seconds


class Subject:
    """A loop at work, and what it does when."""

    unit = 1.0
    """Seconds."""
    later = 0.02
    """After how many seconds of a look something changes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.failing = False
        self.allowed = True
        self.wakes = 0
        self._looks = 0
        self.run: Callable[[], Coroutine[Any, Any, Any]]

    def wake(self) -> None:
        raise NotImplementedError

    def note(self, word: str) -> None:
        text = f"{asyncio.get_running_loop().time():.3f}:{word.replace(' ', '_')}"
        if text not in self.notes[-1:]:
            self.notes.append(text)

    def looked(self, word: str) -> None:
        """It has begun to look; at some times something changes meanwhile."""
        self.note(word)
        self._looks += 1
        if self._looks in _DISTURBED:
            asyncio.get_running_loop().call_later(self.later, self.act, "wake")

    async def ask(self, word: str) -> None:
        self.looked(word)
        await asyncio.sleep(REQUEST_SECONDS)
        if self.failing:
            raise Unavailable("no route")

    def act(self, word: str) -> None:
        if word == "wake":
            self.wakes += 1
            self.wake()
        elif word in ("fail", "mend"):
            self.failing = word == "fail"
        else:
            self.allowed = word == "allow"


class _Toucher:
    """Writes no slice; its problems are those of the writes that failed."""

    def __init__(self, subject: Slices) -> None:
        self._subject = subject
        self.problems: dict[str, str] = {}

    async def run(self) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    def want(self, names: Collection[str]) -> None:
        self.problems = dict.fromkeys(names, "no") if self._subject.failing else {}
        self._subject.looked(f"want {len(names)}")


class Slices(Subject):
    def __init__(self) -> None:
        super().__init__()
        parts = KeeperParts(
            toucher=cast("SliceToucher", _Toucher(self)),
            current=self._current,
            report=lambda names: self.note(f"report {' '.join(sorted(names))}"),
        )
        self.keeper = SliceKeeper(parts)
        self.run = self.keeper.run
        for name in ("a", "b"):
            self.keeper.observe_slice(None, slice_of({"name": "gpu-0"}, name=name))

    def _current(self) -> bool:
        self.note("current" if self.allowed else "not current")
        return self.allowed

    def wake(self) -> None:
        """The patch changes; each fourth time there is none."""
        patch = patch_of("patch", attributes={f"{DRIVER}/n": self.wakes})
        self.keeper.observe_patch("patch", StoredPatch(patch) if self.wakes % 4 else None)


class _TimedCluster(ReactingCluster):
    """Its time is that of the loop; a pass takes a tenth of a second."""

    def __init__(self, subject: Reactions) -> None:
        self._subject = subject
        super().__init__(make_reaction(for_seconds=4.0))
        self.failing = lambda _: "no route" if subject.failing else ""

    def renew(self) -> None:
        parts = ReactionParts(
            writer=cast("PatchWriter", self),
            metrics=ReactionMetrics(self.numbers),
            writes=PatchMetrics(self.numbers, REASONS),
            reactions=lambda: self.reactions,
            leads=lambda: self._subject.allowed,
            current=lambda: self.current,
            now=self._now,
            seconds=lambda: asyncio.get_running_loop().time(),
            random=lambda: 0.999,
        )
        self.sights = FirstSights(parts.seconds)
        self.keeper = ReactionKeeper(parts, self.controller, self.sights)

    def _now(self) -> datetime:
        self._subject.looked("plan")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        loop.pass_time(0.1)
        return NOW + timedelta(seconds=loop.time())

    async def write_reaction(self, write: ReactionWrite) -> WriteAnswer:
        self._subject.note("write")
        await asyncio.sleep(REQUEST_SECONDS)
        return await super().write_reaction(write)


class Reactions(Subject):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = _TimedCluster(self)
        self.run = self.cluster.keeper.run

    def wake(self) -> None:
        """A pool changes: its device has a taint for some seconds, or none."""
        since = None if self.wakes % 5 == 0 else float(self.wakes % 7)
        self.cluster.publish(f"node-{self.wakes % 3}", since=since)


class Audit(Subject):
    """The periodic audit of an empty cluster."""

    unit = 60.0

    def __init__(self) -> None:
        super().__init__()
        self.store = PolicyStore()
        collections: Any = dict.fromkeys(("deviceclasses", "resourceclaimtemplates", "resourceclaims"), self)
        sources = AuditSources(self.store, lambda _: None, lambda: NOW)
        metrics = AuditMetrics(CollectorRegistry())
        audit = PeriodicAudit(cast("Cluster", self), sources, metrics, 600.0)
        audit._collections = collections
        self.run = audit.run

    async def path(self) -> str:
        await self.ask("path")
        return "/apis/resource.k8s.io/v1/somethings"

    def forget(self) -> None:
        self.note("forget")

    async def get_page(self, *_: Any, **__: Any) -> bytes:
        await self.ask("page")
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    def wake(self) -> None:
        self.store.use(JUDGES[self.wakes % 3 // 2])


class Loader(Subject):
    unit = 20.0

    def __init__(self) -> None:
        super().__init__()
        policies = PolicyStore()
        policies.subscribe(lambda _, new: self.note(f"failure {bool(new.failure)}"))
        clock = asyncio.get_running_loop().time
        self.loader = PolicyLoader(policies, PolicyMetrics(), self._read, clock)
        self.loader.record = lambda reason, _action, _note: self.note(f"event {reason}")
        self.run = self.loader.run

    def _read(self, text: str, path: Path) -> Loaded:
        self.looked("read")
        return read_policy(text, path)

    def wake(self) -> None:
        if not self.allowed:
            self.loader.unreadable("no such file")
            return
        text = BROKEN if self.failing else f"{HEAD}rules: []\n"
        self.loader.offer({"policy.yaml": text} if self.wakes % 4 else None)


class Index(Subject):
    later = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.cluster = FakeCluster(ceiling=9)
        self.cluster.fails = lambda _: "no route" if self.failing else ""
        self.run = self.cluster.controller.run
        self.cluster.controller._timeslice = TimeSlice(-1.0, lambda: 0.0)  # over after each step
        forget, look = self.cluster.controller.index.fleet.forget_unused, self.looked

        def forget_unused() -> None:
            look("look")
            forget()

        self.cluster.controller.index.fleet.forget_unused = forget_unused  # type: ignore[method-assign]
        self.cluster.controller._idle = idle = _Flag(self, "idle")
        assert not idle.is_set()

    def act(self, word: str) -> None:
        """As always, and whether the process leads."""
        super().act(word)
        self.cluster.leads = self.allowed
        self.note(f"after {word}: {' '.join(self.cluster.log)}")
        self.cluster.log.clear()

    def wake(self) -> None:
        self.cluster.slices(slice_of(gpu("a"), gpu("b", self.wakes % 3), pool=f"p{self.wakes % 2}"))
        if self.wakes % 3 == 1:
            self.cluster.patch("patch", cel=[MEMORY], taints=[CLOSED])


class _Flag(asyncio.Event):
    """Tells when it is set and cleared."""

    def __init__(self, subject: Subject, name: str) -> None:
        super().__init__()
        self._subject, self._name = subject, name

    def set(self) -> None:
        self._subject.note(self._name)
        super().set()

    def clear(self) -> None:
        self._subject.note(f"not {self._name}")
        super().clear()


class Claims(Subject):
    def __init__(self) -> None:
        super().__init__()
        clock = asyncio.get_running_loop().time
        claims = FixedCollection("resource.k8s.io", "v1", "resourceclaims")
        self.version = 10
        self.horizon = ClaimsHorizon(
            cast("Cluster", self), claims, lambda: str(self.version), clock=clock, random=lambda: 0.25
        )
        self.run = self.horizon.run

    async def get(self, *_: Any, **__: Any) -> bytes:
        self.looked("newest")
        await asyncio.sleep(REQUEST_SECONDS)
        if self.failing:
            raise ClusterError("429: wait", code=429, retry_after_seconds=3.0 if self.wakes % 2 else 0.0)
        return b'{"metadata": {"resourceVersion": "%d"}, "items": []}' % (10 + self.wakes)

    async def watch(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
        """A watch that has a bookmark after a second."""
        await self.ask("watch")
        yield b""
        await asyncio.sleep(1.0)
        yield b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "%d"}}}' % (10 + self.wakes)

    def act(self, word: str) -> None:
        """As always, and the inventory follows while it may."""
        super().act(word)
        if self.allowed:
            self.version = 9 + self.wakes
        self.note(f"reached {self.horizon.reached(asyncio.get_running_loop().time() - 0.5)}")

    def wake(self) -> None:
        self.horizon.reached(asyncio.get_running_loop().time())


class Versions(Subject):
    unit = 15.0

    def __init__(self) -> None:
        super().__init__()
        clock = asyncio.get_running_loop().time
        versions = ServerVersions(cast("Cluster", self), lambda _: self.note("changed"), clock)
        self.run, self.wake = versions.run, versions.ask  # type: ignore[method-assign]

    async def sample(self, _: str) -> bytes:
        await self.ask("sample")
        if not self.allowed:
            raise ClusterError("403: no", code=403)
        return b'{"gitVersion": "v1.3%d.0"}' % (4 + self.wakes % 3)


SUBJECTS: Final = (Slices, Reactions, Audit, Loader, Index, Claims, Versions)


class _Notes(logging.Handler):
    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject

    def emit(self, record: logging.LogRecord) -> None:
        fields = {
            name: getattr(record, name) for name in ("attempt", "sinceSeconds", "delaySeconds") if name in vars(record)
        }
        self._subject.note(f"{record.levelname} {record.getMessage()} {fields or ''}".strip())


def times(kind: type[Subject], schedule: Schedule) -> list[str]:

    async def play() -> list[str]:
        subject = kind()
        log, notes = logging.getLogger("webhook"), _Notes(subject)
        level = log.level
        log.addHandler(notes)
        log.setLevel(logging.INFO)
        work = asyncio.create_task(subject.run())
        try:
            passed = 0.0
            for at, word in [*schedule, (LENGTH, "")]:
                await asyncio.sleep(at * subject.unit - passed)
                passed = at * subject.unit
                if word:
                    subject.note(f"[{word}]")
                    subject.act(word)
            assert not work.done()
        finally:
            log.removeHandler(notes)
            log.setLevel(level)
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
        return subject.notes

    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(play())


def told(kind: type[Subject], name: str) -> str:
    """The same as a paragraph of the file."""
    text = textwrap.fill(
        " ".join(times(kind, SCHEDULES[name])) or "nothing", 118, break_on_hyphens=False, break_long_words=False
    )
    return f"{kind.__name__}, {name}\n{textwrap.indent(text, '  ')}"


if __name__ == "__main__":
    FILE.write_text("\n\n".join([told(kind, name) for kind in SUBJECTS for name in SCHEDULES]) + "\n")
