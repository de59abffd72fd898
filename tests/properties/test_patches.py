"""Laws of patches: what a patch does depends on nothing but the devices and the patches that outrank it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.patches.patched import CREATED, by_number, class_of, expansions, patch_of, pools_of, slice_of
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Pools, selects
from webhook.patches.patching import EffectiveDevices, Origin, by_precedence, effective_devices

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import ResourceSlice
    from webhook.inventory.targets import DeviceId

DRIVERS: Final = ("a", "b")
POOLS: Final = ("p", "q", "r")
DEVICES: Final = ("d0", "d1", "d2")
VALUES: Final = ("x.example/s", "x.example/t", "a/n")
TAINTS: Final = tuple(DeviceTaint(*each, CREATED) for each in product(("k", "l"), ("", "v"), ("None", "NoExecute")))
CLASSES: Final = class_of("any") | class_of("low", "n > -1") | class_of("high", "n > 0")
EXPRESSIONS: Final = ("n > -1", "n > 0", "n > 1", "m > 0")


class World(NamedTuple):
    """Slices of distinct names, and patches of distinct names."""

    slices: list[ResourceSlice]
    patches: list[ResourceSlicePatch]


@st.composite
def _devices(draw: st.DrawFn) -> list[Any]:
    names = draw(st.lists(st.sampled_from(DEVICES), unique=True, min_size=1))
    found: list[Any] = []
    for name in names:
        number = draw(st.none() | st.integers(0, 2))
        taints = [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in draw(st.lists(st.sampled_from(TAINTS), max_size=2))
        ]
        found.append({"name": name, "attributes": {} if number is None else {"n": {"int": number}}, "taints": taints})
    return found


@st.composite
def slices(draw: st.DrawFn) -> list[ResourceSlice]:
    pools = draw(st.lists(st.sampled_from(list(product(DRIVERS, POOLS, (1, 2)))), unique=True, max_size=6))
    return [
        slice_of(*draw(_devices()), driver=driver, pool=pool, generation=generation)
        for driver, pool, generation in pools
    ]


def _maybe(*values: str) -> st.SearchStrategy[str | None]:
    return st.none() | st.none() | st.sampled_from(values)


_created: st.SearchStrategy[datetime | None] = st.sampled_from(
    [None, CREATED, CREATED, CREATED.replace(year=2025), CREATED.replace(year=2027)]
)


@st.composite
def patches(draw: st.DrawFn, name: str) -> ResourceSlicePatch:
    return patch_of(
        name,
        priority=draw(st.integers(-1, 1)),
        created=draw(_created),
        driver=draw(_maybe(*DRIVERS)),
        pool=draw(_maybe(*POOLS)),
        device=draw(_maybe(*DEVICES)),
        device_class_name=draw(_maybe("any", "low", "high", "missing")),
        cel=draw(st.lists(st.sampled_from(EXPRESSIONS), max_size=1)),
        attributes=draw(st.dictionaries(st.sampled_from(VALUES), st.none() | st.integers(0, 9), max_size=2)),
        capacity=draw(st.dictionaries(st.sampled_from(VALUES), st.sampled_from(("0", "1Gi")), max_size=1)),
        taints=draw(st.lists(st.sampled_from(TAINTS), max_size=2)),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    names = draw(st.lists(st.sampled_from("vwxyz"), unique=True, min_size=1, max_size=4))
    return World(draw(slices()), [draw(patches(name)) for name in names])


def effective(pools: Pools, found: list[ResourceSlicePatch]) -> EffectiveDevices:
    return effective_devices(pools, found, CLASSES, by_number)


@given(worlds(), st.randoms())
def test_order_of_patches_and_events_is_irrelevant(world: World, chance: Any) -> None:
    expected = effective(pools_of(*world.slices), world.patches)
    pools = Pools()
    events: list[tuple[ResourceSlice | None, ResourceSlice | None]] = [(None, each) for each in world.slices]
    chance.shuffle(events)
    for _, value in events:  # each comes, and some go and come again
        assert value is not None
        pools.apply(None, value)
        if chance.random() < 0.5:
            pools.apply(value, None)
            pools.apply(None, value)
    shuffled = chance.sample(world.patches, len(world.patches))
    found = effective(pools, shuffled)
    assert found == expected
    assert list(found.devices) == list(expected.devices) == sorted(expected.devices)
    assert expansions(pools, shuffled, found) == expansions(pools_of(*world.slices), world.patches, expected)


@given(worlds(), patches("new"))
def test_new_patch_takes_over_only_what_it_outranks(world: World, new: ResourceSlicePatch) -> None:
    """P-11, P-12, P-15: and only on devices that it selects."""
    pools = pools_of(*world.slices)
    before, after = effective(pools, world.patches), effective(pools, [*world.patches, new])
    rank = [patch.meta.name for patch in by_precedence([*world.patches, new])]
    assert {name: where for name, where in after.selected.items() if name != "new"} == before.selected
    for address, device in after.devices.items():
        origins = before.devices[address].origins if address in before.devices else {}
        assert set(origins) <= set(device.origins)
        for origin, patch in device.origins.items():
            if origin not in origins:
                assert patch == "new"
            elif patch != origins[origin]:
                assert patch == "new"
                assert rank.index("new") < rank.index(origins[origin])
            else:
                assert _value(device, origin) == _value(before.devices[address], origin)


def _value(device: Any, origin: Origin) -> Any:
    match origin.kind:
        case "attribute":
            return device.attributes.get(origin.name)
        case "capacity":
            return device.capacity[origin.name]["value"]
        case _:
            return next(each for each in device.taints if (each.key, each.effect) == (origin.name, origin.effect))


@given(worlds(), patches("new"))
def test_removed_patch_restores_what_was(world: World, new: ResourceSlicePatch) -> None:
    pools = pools_of(*world.slices)
    before = effective(pools, world.patches)
    rules = expansions(pools, world.patches, before)
    both = [*world.patches, new]
    expansions(pools, both, effective(pools, both))
    assert effective(pools, world.patches) == before
    assert expansions(pools, world.patches, before) == rules
    without = effective(pools, [])
    assert (without.devices, without.selected, without.faults) == ({}, {}, ())


@given(worlds())
def test_expansion_then_selection_is_what_the_patches_say(world: World) -> None:
    """Every device, selected or not, has from the rules the taints that it has from the patches, and no other.

    Two rules of a patch may select the same device: a row and a column of the table of pools and devices cross.
    """
    pools = pools_of(*world.slices)
    found = effective(pools, world.patches)
    rules = [rule for each in expansions(pools, world.patches, found, 10_000).values() for rule in each.rules]
    assert len({rule.name for rule in rules}) == len(rules)
    for (driver, pool), each in pools.items():
        for device in each.devices:
            names = (driver, pool, device)
            from_rules = {rule.taint for rule in rules if selects(rule.selector, *names)}
            assert from_rules == _from_patches(found, names), names


def _from_patches(found: EffectiveDevices, names: tuple[str, str, str]) -> set[DeviceTaint]:
    by_address: dict[Any, Any] = dict(found.devices)
    device = by_address.get(names)
    if device is None:
        return set()
    return {each for each in device.taints if Origin("taint", each.key, each.effect) in device.origins}


@given(worlds())
def test_counts_agree_with_the_devices(world: World) -> None:
    """Whatever a patch wins is on a device that it selects; faults are of devices that it does not select."""
    found = effective(pools_of(*world.slices), world.patches)
    winners: dict[str, set[DeviceId]] = {}
    for address, device in found.devices.items():
        for patch in device.origins.values():
            winners.setdefault(patch, set()).add(address)
    assert all(where <= set(found.selected[patch]) for patch, where in winners.items())
    assert all(fault.device not in found.selected[fault.patch] for fault in found.faults)
    assert all(found.selected[patch] == () for patch in found.inapplicable)
