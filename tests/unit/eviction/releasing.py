"""A small world in which devices are closed and not emptied, and what condition Released says there."""

from __future__ import annotations

from datetime import timedelta

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import POOL, rule, slice_of
from tests.unit.eviction.world import FREE, World
from webhook.api.rules import Condition, DeviceSelector, DeviceTaintRule
from webhook.eviction.conditions import RELEASED
from webhook.eviction.modes import Mode

FREED = "no allocation holds a selected device"
WAITS = ("Unknown", "Waiting", "waiting until all allocations made before the taint are known")
OUTDATED = ("Unknown", "Outdated", "it is not certain that all changes of the cluster are known")
ONE = DeviceSelector(DRIVER, POOL, "gpu-0")
SLICE = slice_of({"gpu-0": (), "gpu-1": ()})


def world_of(*objects: object, mode: Mode = Mode.DELEGATED, **settings: float) -> World:
    """With a slice, where nothing is evicted unless a rule asks for it."""
    world = World(mode, FREE, **settings)  # type: ignore[arg-type]
    world.add(SLICE, *objects)  # type: ignore[arg-type]
    return world


def closing(name: str = "rule", selector: DeviceSelector | None = ONE, **fields: object) -> DeviceTaintRule:
    return rule(name, "NoSchedule", selector=selector, **fields)  # type: ignore[arg-type]


def released(world: World, name: str = "rule") -> tuple[str, str, str]:
    return world.condition(name, RELEASED)


def statuses(world: World, name: str = "rule") -> list[str]:
    """Reasons in the order of writing."""
    return [reason for written, kind, reason, _ in world.cluster.writes if (written, kind) == (name, RELEASED)]


def known(status: str, reason: str = "Released", generation: int = 1) -> Condition:
    return Condition(RELEASED, status, reason, FREED, generation, NOW - timedelta(hours=1))
