"""Slices with taints, reactions, and a cluster in which what a pass wants is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import structs

from webhook.api.meta import ObjectMeta
from webhook.api.rules import EVICT, DeviceTaintRule
from webhook.api.slices import Device, ResourceSlice, SliceTaint
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Pools
from webhook.inventory.targets import DeviceId
from webhook.patches.reactions import ReactionPass, react
from webhook.patches.reasons import FirstSights
from webhook.policy.model import Reaction

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from webhook.patches.reasons import ReactionRule

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DRIVER = "gpu.example.com"
KEY = "gpu.example.com/xid"
GPU = DeviceId(DRIVER, "node-1", "gpu-0")
MINUTES_5 = 300.0


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def make_signal(
    seconds: float | None = MINUTES_5, value: str = "48", key: str = KEY, effect: str = "None"
) -> DeviceTaint:
    """A taint that was added so long before NOW; None: without a time."""
    return DeviceTaint(key, value, effect, None if seconds is None else ago(seconds))


def make_slice(
    devices: Mapping[str, tuple[DeviceTaint, ...]],
    pool: str = "node-1",
    *,
    generation: int = 1,
    slices: int = 1,
    name: str = "",
    beside: tuple[SliceTaint, ...] = (),
    driver: str = DRIVER,
    node: str = "",
    created: datetime | None = None,
) -> ResourceSlice:
    """A slice of a node, which has the name of the pool unless it is given."""
    return ResourceSlice(
        ObjectMeta(name or f"{pool}-{driver}"),
        driver,
        pool,
        generation,
        slices,
        node or pool,
        devices=tuple([Device(device, taints) for device, taints in devices.items()]),
        slice_taints=beside,
        created=created,
    )


def make_reaction(**fields: Any) -> Reaction:
    return Reaction(**{"name": "xid", "driver": DRIVER, "key": KEY, **fields})


def _taints_of(value: ResourceSlice) -> list[DeviceTaint]:
    return [taint for device in value.devices for taint in device.taints] + [each.taint for each in value.slice_taints]


def _with_only(value: ResourceSlice, taints: AbstractSet[DeviceTaint]) -> ResourceSlice:
    devices = [structs.replace(each, taints=tuple(filter(taints.__contains__, each.taints))) for each in value.devices]
    beside = [each for each in value.slice_taints if each.taint in taints]
    return structs.replace(value, devices=tuple(devices), slice_taints=tuple(beside))


def stored(rule: ReactionRule, taint: DeviceTaint | None = None) -> DeviceTaintRule:
    """The rule as the API server keeps it."""
    meta = ObjectMeta(rule.name, annotations=dict(rule.annotations))
    return DeviceTaintRule(meta, rule.selector, taint or rule.taint)


def written(result: ReactionPass) -> tuple[ReactionRule, ...]:
    return tuple([write.rule for write in result.write])


def softened(rule: ReactionRule) -> DeviceTaintRule:
    """The rule as `/mutate` stores it."""
    meta = ObjectMeta(
        rule.name, annotations={**rule.annotations, EVICT: "true", "devicetaint.io/softened-from": "NoExecute"}
    )
    return DeviceTaintRule(meta, rule.selector, structs.replace(rule.taint, effect="NoSchedule"))


class Cluster:
    """Slices by name, and the rules of reactions: each pass is carried out in full."""

    def __init__(self, *slices: ResourceSlice, reactions: tuple[Reaction, ...] = (make_reaction(),)) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.reactions = reactions
        self.clock = NOW
        self.sights = self._new_sights()
        self._seen: set[DeviceTaint] = set()
        self.publish(*slices)

    @classmethod
    def after(cls, *slices: ResourceSlice, reactions: tuple[Reaction, ...] = (make_reaction(),)) -> Cluster:
        """With these slices, after a pass at NOW."""
        cluster = cls(*slices, reactions=reactions)
        cluster.go()
        return cluster

    def publish(self, *slices: ResourceSlice) -> None:
        self.slices |= {value.meta.name: value for value in slices}

    def withdraw(self, *names: str) -> None:
        for name in names or tuple(self.slices):
            del self.slices[name]

    @property
    def pools(self) -> Pools:
        pools = Pools()
        for value in self.slices.values():
            pools.apply(None, value)
        return pools

    def look(self, seconds: float = 0.0) -> ReactionPass:
        """A pass so long after NOW, of which nothing is carried out. Each taint was seen as it was added."""
        now = NOW + timedelta(seconds=seconds)
        self._see(now)
        self.clock = now
        return react(self.pools, self.rules.values(), self.reactions, now, self.sights)

    def _new_sights(self) -> FirstSights:
        return FirstSights(lambda: (self.clock - NOW) / timedelta(seconds=1))

    def _see(self, now: datetime) -> None:
        """What passes have seen by then."""
        fresh = {taint for value in self.slices.values() for taint in _taints_of(value)} - self._seen
        for at in sorted({taint.time_added for taint in fresh if taint.time_added and taint.time_added <= now}):
            self._seen |= {taint for taint in fresh if taint.time_added == at}
            pools = Pools()
            for value in self.slices.values():
                pools.apply(None, _with_only(value, self._seen))
            self.clock = at
            self.sights.signals_in(pools, self.reactions, at)

    def restart(self) -> None:
        """Another process, which does not know since when the taints are there."""
        self.sights = self._new_sights()
        self._seen |= {taint for value in self.slices.values() for taint in _taints_of(value)}

    def go(self, seconds: float = 0.0, *slices: ResourceSlice) -> ReactionPass:
        """A pass so long after NOW, carried out, once these slices were published."""
        self.publish(*slices)
        result = self.look(seconds)
        self.carry_out(result)
        return result

    def carry_out(self, result: ReactionPass) -> None:
        for name in result.delete:
            del self.rules[name]
        self.rules |= {write.rule.name: stored(write.rule, write.taint) for write in result.write}

    @property
    def closed(self) -> set[str]:
        """The devices that rules select, as `pool/device`; every rule has to name all three."""
        selectors = [rule.selector for rule in self.rules.values()]
        assert all(each and each.driver and each.pool and each.device for each in selectors)
        return {f"{each.pool}/{each.device}" for each in selectors if each}
