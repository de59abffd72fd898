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
from webhook.inventory.published import DeviceId
from webhook.patches.reactions import ReactionPass, react
from webhook.policy.model import Reaction

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def stored(rule: ReactionRule, taint: DeviceTaint | None = None) -> DeviceTaintRule:
    """The rule as the API server keeps it."""
    meta = ObjectMeta(rule.name, annotations=dict(rule.annotations))
    return DeviceTaintRule(meta, rule.selector, taint or rule.taint)


def written(result: ReactionPass) -> tuple[ReactionRule, ...]:
    return tuple([write.rule for write in result.write])


def softened(rule: ReactionRule) -> DeviceTaintRule:
    """The rule as `/mutate` stores it."""
    meta = ObjectMeta(
        rule.name,
        annotations={**rule.annotations, EVICT: "true", "devicetaint.io/softened-from": "NoExecute"},
    )
    return DeviceTaintRule(meta, rule.selector, structs.replace(rule.taint, effect="NoSchedule"))


class Cluster:
    """Slices by name, and the rules of reactions: each pass is carried out in full."""

    def __init__(self, *slices: ResourceSlice, reactions: tuple[Reaction, ...] = (make_reaction(),)) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.reactions = reactions
        self.publish(*slices)

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
        """A pass so long after NOW, of which nothing is carried out."""
        return react(self.pools, self.rules.values(), self.reactions, NOW + timedelta(seconds=seconds))

    def go(self, seconds: float = 0.0) -> ReactionPass:
        """A pass, carried out."""
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
