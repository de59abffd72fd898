"""A cluster as the controller of patches sees it: it stores rules and statuses, and its watch may lag behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import structs
from prometheus_client import CollectorRegistry

from tests.unit.eviction.hurried import hurry
from tests.unit.patches.patched import DRIVER, patch_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import SCOPE, DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.cluster.patch_writer import WriteAnswer
from webhook.daemons.patch_controller import ControllerParts, PatchController
from webhook.inventory.targets import rule_name
from webhook.patches.slice_patches import AppliedAttributes
from webhook.patches.status import REASONS
from webhook.patches.stored import StoredPatch, StoredRule
from webhook.telemetry.workers import PatchMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.slices import DeviceClassSelectors, ResourceSlice
    from webhook.cluster.patch_writer import PatchWriter
    from webhook.patches.stored import PatchStatus, RuleApply, RuleOwner

NOW: Final = datetime(2026, 7, 1, 12, 0, 0, 500_000, tzinfo=UTC)
START: Final = NOW.replace(microsecond=0)
_CALM_TURNS: Final = 60
_MOST_TURNS: Final = 100_000


class FakeCluster:
    """What is stored, and in which order it was written."""

    def __init__(self, ceiling: int = 3) -> None:
        self.rules: dict[str, StoredRule] = {}
        self.patches: dict[str, StoredPatch] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self.log: list[str] = []
        """Such as `create a-1`."""
        self.events: list[tuple[str, str, str]] = []
        self.refuses: Callable[[RuleApply], str] = lambda _: ""
        self.fails: Callable[[RuleApply], str] = lambda _: ""
        self.after_apply: Callable[[str], object] = lambda _: None
        """Called with a rule's name when it was written, before the controller has the answer."""
        self.applied: Callable[[StoredPatch], AppliedAttributes] = lambda _: AppliedAttributes()
        self.after_delete: Callable[[str], object] = lambda _: None
        self.leads = True
        self.current = True
        self.patches_served = True
        self.now = NOW
        self._numbers = count(1)
        self._seen = ""
        """Up to which version the watch of rules has shown everything."""
        self._late: deque[Callable[[], None]] = deque()
        self.lags = False
        """Whether changes of rules are reported only by `catch_up`."""
        self.registry = CollectorRegistry()
        self.controller = self._new_controller(ceiling)
        self._ceiling = ceiling

    def _new_controller(self, ceiling: int) -> PatchController:
        parts = ControllerParts(
            writer=cast("PatchWriter", self),
            metrics=PatchMetrics(self.registry, REASONS),
            ceiling=ceiling,
            leads=lambda: self.leads,
            current=lambda: self.current,
            patches_served=lambda: self.patches_served,
            rules_version=lambda: self._seen,
            now=lambda: self.now,
            seconds=lambda: asyncio.get_running_loop().time() if _in_loop() else 0.0,
            random=lambda: 0.999,
            applied=self._applied,
        )
        return PatchController(parts)

    def _applied(self, stored: StoredPatch) -> AppliedAttributes:
        return self.applied(stored)

    def restart(self) -> None:
        """Another process begins, with caches that have all that is stored."""
        self.registry = CollectorRegistry()
        self.controller = self._new_controller(self._ceiling)
        for value in self._slices.values():
            self.controller.observe_slice(None, value)
        for name, patch in self.patches.items():
            self.controller.observe_patch(name, patch)
        for name, rule in self.rules.items():
            self.controller.observe_rule(name, rule)

    def slices(self, *values: ResourceSlice) -> None:
        for each in values:
            self.controller.observe_slice(self._slices.get(each.meta.name), each)
            self._slices[each.meta.name] = each

    def classes(self, classes: dict[str, DeviceClassSelectors]) -> None:
        for name, value in classes.items():
            self.controller.observe_class(name, value)

    def patch(self, name: str, **fields: Any) -> StoredPatch:
        """A patch is created or changed."""
        known = self.patches.get(name)
        patch = patch_of(name, **fields)
        uid = known.meta.uid if known else f"uid-{name}"
        meta = ObjectMeta(name, uid=uid, resource_version=self._version())
        generation = known.generation + 1 if known else 1
        stored = StoredPatch(structs.replace(patch, meta=meta), generation)
        return self._put_patch(structs.replace(stored, status=known.status) if known else stored)

    def drop_patch(self, name: str, *, tell: bool = True) -> None:
        del self.patches[name]
        if tell:
            self.controller.observe_patch(name, None)

    def rule(self, name: str, rule: DeviceTaintRule, **fields: Any) -> StoredRule:
        """A rule is created or edited by hand."""
        known = self.rules.get(name)
        uid = known.meta.uid if known else f"uid-{name}"
        meta = ObjectMeta(name, uid=uid, resource_version=self._version(), annotations=rule.meta.annotations)
        stored = StoredRule(structs.replace(rule, meta=meta), **fields)
        self.rules[name] = stored
        self.controller.observe_rule(name, stored)
        self._shown()
        return stored

    def edit(self, name: str, **fields: Any) -> None:
        """Fields of a stored rule are changed by hand."""
        known = self.rules[name]
        self.rule(name, structs.replace(known.rule, **fields), labels=known.labels, controller=known.controller)

    def drop_rule(self, name: str) -> None:
        del self.rules[name]
        self.controller.observe_rule(name, None)
        self._shown()

    def catch_up(self) -> None:
        while self._late:
            self._late.popleft()()

    async def apply_rule(self, write: RuleApply) -> WriteAnswer:
        await asyncio.sleep(0)
        refused, failed = self.refuses(write), self.fails(write)
        if refused or failed:
            return WriteAnswer(refused=refused, failed=failed)
        self.log.append(f"{'create' if write.creates else 'change'} {write.name}")
        known = self.rules.get(write.name)
        uid = known.meta.uid if known else f"uid-{write.name}"
        meta = ObjectMeta(write.name, uid=uid, resource_version=self._version(), annotations=dict(write.annotations))
        rule = DeviceTaintRule(meta, write.selector, write.taint)
        stored = self.rules[write.name] = StoredRule(rule, write.labels, write.owner)
        self._report(lambda: self.controller.observe_rule(write.name, stored))
        self.after_apply(write.name)
        return WriteAnswer(stored)

    async def delete_rule(self, stored: StoredRule) -> WriteAnswer:
        await asyncio.sleep(0)
        name = stored.meta.name
        known = self.rules.get(name)
        if known is None:
            return WriteAnswer()
        if known.meta.uid != stored.meta.uid:
            return WriteAnswer(failed="409")
        self.log.append(f"delete {name}")
        del self.rules[name]
        self._report(lambda: self.controller.observe_rule(name, None))
        self.after_delete(name)
        return WriteAnswer()

    async def write_status(self, stored: StoredPatch, status: PatchStatus) -> WriteAnswer:
        await asyncio.sleep(0)
        self.log.append(f"status {stored.meta.name}")
        known = self.patches.get(stored.meta.name)
        if known is not None:
            meta = structs.replace(known.meta, resource_version=self._version())
            self._put_patch(structs.replace(known, patch=structs.replace(known.patch, meta=meta), status=status))
        return WriteAnswer()

    async def warn(self, owner: RuleOwner, reason: str, action: str, note: str) -> None:
        self.events.append((owner.name, f"{reason} {action}", note))

    def _put_patch(self, stored: StoredPatch) -> StoredPatch:
        self.patches[stored.meta.name] = stored
        self.controller.observe_patch(stored.meta.name, stored)
        return stored

    def _report(self, change: Callable[[], None]) -> None:
        version = self._version()

        def show() -> None:
            change()
            self._seen = version

        if self.lags:
            self._late.append(show)
        else:
            show()

    def _shown(self) -> None:
        """What was done by hand is seen at once."""
        if not self._late:
            self._seen = self._version()

    def _version(self) -> str:
        return str(next(self._numbers))

    def selectors(self) -> set[tuple[str | None, ...]]:
        """Driver, pool and device of all rules, with the taint's value."""
        found: set[tuple[str | None, ...]] = set()
        for each in self.rules.values():
            selector = each.rule.selector
            assert selector is not None
            found.add((selector.driver, selector.pool, selector.device, each.rule.taint.value))
        return found

    def conditions(self, name: str) -> dict[str, tuple[str, str, str]]:
        return {each.type: (each.status, each.reason, each.message) for each in self.patches[name].status.conditions}


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def play(cluster: FakeCluster, *scenes: Callable[[], object] | float) -> None:
    """Lets the controller work until nothing is left, after each scene; a number is seconds that pass."""

    async def run() -> None:
        work = asyncio.create_task(cluster.controller.run())
        for scene in (0.0, *scenes):
            if isinstance(scene, float):
                await asyncio.sleep(scene)
            else:
                scene()
            await _quiet(cluster)
            if work.done():
                break
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    hurry(run())


async def _quiet(cluster: FakeCluster) -> None:
    """Until nothing was written for a while."""
    calm, seen = 0, -1
    for _ in range(_MOST_TURNS):
        await asyncio.sleep(0)
        lines = len(cluster.log) + len(cluster.events) + cluster.controller.index.pending
        calm = calm + 1 if lines == seen else 0
        seen = lines
        if calm == _CALM_TURNS:
            return
    raise AssertionError("it writes without end")


def made(rule: DeviceTaintRule, owner: RuleOwner) -> StoredRule:
    """The rule as the controller writes it for a patch or another rule: marks, and the name that goes with them."""
    assert rule.selector is not None
    meta = structs.replace(rule.meta, name=rule_name(owner.name, rule.taint, rule.selector))
    return StoredRule(structs.replace(rule, meta=meta), {owner.label: owner.uid}, owner)


CLOSED: Final = DeviceTaint("example.com/closed", "", "NoSchedule")


def gpu(name: str, memory: int | None = 80) -> dict[str, Any]:
    """A device with that much memory, or without the attribute."""
    return {"name": name, "attributes": {} if memory is None else {"memory": {"int": memory}}}


def part(name: str) -> dict[str, Any]:
    """A device that draws on the counter set that all of these draw on."""
    return {"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": {}}]}


def scoped(**annotations: str) -> DeviceTaintRule:
    """A rule with /scope: hardware."""
    meta = ObjectMeta("faulty", annotations={SCOPE: "hardware", **annotations})
    taint = structs.replace(CLOSED, value="x", time_added=START - timedelta(days=1))
    return DeviceTaintRule(meta, DeviceSelector(DRIVER, "p", "full"), taint)
