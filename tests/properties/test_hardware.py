"""Laws of shared hardware, on a thousand generated pools: what the definition says pair by pair is what is found."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.api.meta import ObjectMeta
from webhook.api.slices import Device, ResourceSlice
from webhook.inventory.hardware import siblings_in

POOLS: Final = 1_000
_sets: Final = st.lists(st.sampled_from([f"set-{number}" for number in range(12)]), max_size=2, unique=True)
_single: Final = st.lists(st.sampled_from([f"set-{number}" for number in range(12)]), max_size=1)


def _pool(drawn: list[list[str]], slices: int) -> list[ResourceSlice]:
    devices = [Device(f"d{number}", counter_sets=tuple(names)) for number, names in enumerate(drawn)]
    return [
        ResourceSlice(ObjectMeta(f"s{number}"), "a", "p", 1, slices, devices=tuple(devices[number::slices]))
        for number in range(slices)
    ]


def _devices(slices: list[ResourceSlice]) -> list[Device]:
    return [device for value in slices for device in value.devices]


def _by_pairs(slices: list[ResourceSlice], name: str) -> set[str]:
    """The definition: a common counter set."""
    sets = {device.name: set(device.counter_sets) for device in _devices(slices)}
    return {other for other in sets if sets[other] & sets[name]}


def _components(slices: list[ResourceSlice]) -> list[set[str]]:
    """Connected components, by brute force: two are joined as long as any device of one is beside one of another."""
    parts = [{device.name} for device in _devices(slices)]
    pairs = {(one, other) for one in _names(slices) for other in _by_pairs(slices, one)}
    while True:
        joined = next(
            ((a, b) for a, b in combinations(parts, 2) if any((one, other) in pairs for one in a for other in b)), None
        )
        if joined is None:
            return parts
        parts = [part for part in parts if part not in joined] + [joined[0] | joined[1]]


def _names(slices: list[ResourceSlice]) -> list[str]:
    return [device.name for device in _devices(slices)]


pools = st.builds(_pool, st.lists(_sets, max_size=14), st.integers(1, 3))
single_pools = st.builds(_pool, st.lists(_single, max_size=14), st.integers(1, 3))


@settings(max_examples=POOLS)
@given(pools)
def test_siblings_are_what_has_a_counter_set_in_common(slices: list[ResourceSlice]) -> None:
    for name in _names(slices):
        assert siblings_in(slices, {name: 1}).keys() == _by_pairs(slices, name)


@settings(max_examples=POOLS)
@given(pools)
def test_following_siblings_to_the_end_gives_the_connected_components(slices: list[ResourceSlice]) -> None:
    for component in _components(slices):
        reached: set[str] = {min(component)}
        while (wider := reached | siblings_in(slices, dict.fromkeys(reached, 1)).keys()) != reached:
            reached = wider
        assert reached == component


@settings(max_examples=POOLS)
@given(single_pools)
def test_where_each_device_has_one_set_siblings_are_the_connected_component(slices: list[ResourceSlice]) -> None:
    for component in _components(slices):
        for name in component:
            assert siblings_in(slices, {name: 1}).keys() | {name} == component


@settings(max_examples=POOLS)
@given(pools, st.dictionaries(st.sampled_from([f"d{number}" for number in range(14)]), st.integers(1, 2), max_size=4))
def test_a_sibling_has_the_highest_rank_of_those_beside_it(slices: list[ResourceSlice], ranks: dict[str, int]) -> None:
    given_ranks = {name: rank for name, rank in ranks.items() if name in _names(slices)}
    expected: dict[str, int] = {}
    for name, rank in given_ranks.items():
        for other in _by_pairs(slices, name):
            expected[other] = max(rank, expected.get(other, 0))
    assert siblings_in(slices, given_ranks) == expected
