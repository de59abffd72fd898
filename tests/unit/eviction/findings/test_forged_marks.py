"""A rule's own text is no proof of who wrote it: marks of the controller join no ceiling of anyone else."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import rule, slice_of
from tests.unit.eviction.patched import (
    PATCH,
    POOL_0,
    POOL_1,
    TOGETHER,
    fill,
    for_hardware,
    limited,
    of_patch,
    owner_of_siblings,
    part,
    patch,
    stopped,
)
from tests.unit.eviction.world import World
from webhook.api.rules import CONFIRM_IMPACT, DeviceSelector, DeviceTaintRule, RuleOrigin
from webhook.eviction.modes import Mode
from webhook.inventory.targets import rule_name

DRAIN = rule("big", selector=POOL_0, effect="NoSchedule", evict=True, annotations={CONFIRM_IMPACT: "code"})
MALLORY = rule("mallory", selector=POOL_1, effect="NoSchedule", evict=True)
NAMED = structs.replace(MALLORY, meta=structs.replace(MALLORY.meta, name=rule_name("big", MALLORY.taint, POOL_1)))
FORGED = [
    pytest.param(MALLORY, id="no marks"),
    pytest.param(for_hardware(MALLORY, "big"), id="hardware of a rule without scope"),
    pytest.param(for_hardware(NAMED, "big"), id="a name that was computed"),
    pytest.param(
        structs.replace(MALLORY, origin=RuleOrigin("nothere", "uid-big", patch=True, of_patch="uid-big")),
        id="a patch that is not there with the uid of a rule",
    ),
    pytest.param(
        structs.replace(MALLORY, origin=RuleOrigin("nothere", "uid-big", rule=True, hardware_of="uid-big")),
        id="another name with the uid",
    ),
]


@pytest.mark.parametrize("forged", FORGED)
def test_rule_that_names_another_as_its_owner_gains_nothing(forged: DeviceTaintRule) -> None:
    world = limited(2, {"code": 20}, mode=Mode.DELEGATED)
    fill(world, 1, pods=6)
    world.add(DRAIN, forged)
    assert world.after(60) == []
    assert stopped(world, forged.meta.name).startswith("hits 6 pods, the limit is 2")


@pytest.mark.parametrize("late", [False, True], ids=["first", "late"])
@pytest.mark.parametrize("forged", FORGED)
def test_rule_that_names_another_as_its_owner_stops_nothing(forged: DeviceTaintRule, late: bool) -> None:  # noqa: FBT001
    world = limited(2, {"code": 4}, mode=Mode.DELEGATED)
    fill(world, 0, pods=4)
    fill(world, 1, pods=2)
    world.add(*([DRAIN, forged] if late else [forged, DRAIN]))
    assert len(world.after(60)) == 6


def _patched() -> World:
    world = limited(0, {"code": 4})
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER, "node-0"), text="code"))
    fill(world, 0, pods=4)
    fill(world, 1, pods=2)
    return world


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(of_patch(rule("mallory", selector=POOL_1)), id="another name"),
        pytest.param(part(1), id="beyond its filter"),
        pytest.param(part(1, key="mallory.example.com/x"), id="another key"),
        pytest.param(part(0, key="mallory.example.com/x"), id="another key within the filter"),
        pytest.param(part(0, effect="NoSchedule", evict=True), id="another effect"),
        pytest.param(
            structs.replace(part(1), origin=structs.replace(part(1).origin, name="nothere")), id="another patch's name"
        ),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["first", "late"])
def test_rule_that_a_patch_would_not_write_does_not_count_with_it(forged: DeviceTaintRule, late: bool) -> None:  # noqa: FBT001
    world = _patched()
    world.add(*([part(0), forged] if late else [forged, part(0)]))
    world.advance(60)
    assert stopped(world, part(0).meta.name) == ""
    assert len([each for each in world.evicted if "pod-0" in str(each)]) == 4
    assert not stopped(world, forged.meta.name).startswith(TOGETHER)


def test_patch_that_is_known_late_keeps_only_the_rules_that_it_would_write() -> None:
    world = limited(0, {"code": 4})
    fill(world, 0, pods=4)
    fill(world, 1, pods=2)
    world.add(part(0), part(1))
    assert world.after(60) == [], "nobody knows the patch, so both count together"
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER, "node-0"), text="code"))
    assert len(world.after(60)) == 4
    assert stopped(world, part(1).meta.name).startswith("hits 2 pods")


def test_rule_that_comes_before_the_change_of_its_patch_counts_with_it_afterwards() -> None:
    world = limited(3)
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER, "node-0")))
    world.add(part(0), part(1))
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER)))
    fill(world, 0, 1)
    assert world.after(60) == []
    assert stopped(world, part(1).meta.name).startswith(f"{TOGETHER} 4 pods, the limit is 3")


@pytest.mark.parametrize(
    ("device", "together"),
    [
        pytest.param("gpu-1", True, id="on the hardware"),
        pytest.param("gpu-7", True, id="in a pool that is not complete"),
        pytest.param("gpu-9", False, id="on other hardware"),
    ],
)
def test_only_devices_on_the_hardware_of_a_rule_count_with_it(device: str, together: bool) -> None:  # noqa: FBT001
    world = limited(1)
    pool = slice_of({"gpu-0": (), "gpu-1": (), "gpu-9": ()}, pool="node-0")
    shared = [structs.replace(each, counter_sets=("a",)) for each in pool.devices[:2]]
    published = structs.replace(pool, devices=(*shared, *pool.devices[2:]))
    world.inventory.apply(None, structs.replace(published, slice_count=2) if device == "gpu-7" else published)
    owner = structs.replace(owner_of_siblings(), selector=DeviceSelector(DRIVER, "node-0", "gpu-0"))
    selector = DeviceSelector(DRIVER, "node-0", device)
    made = for_hardware(rule(rule_name("rule", owner.taint, selector), selector=selector))
    world.add(owner, made)
    assert (world.worker._core.ceilings._known[made.meta.uid].group == owner.meta.uid) is together
