"""Taints that slices put on devices: how often they are copied."""

from __future__ import annotations

from tests.unit.inventory.values import pool_slice, taint
from webhook.api.slices import Device, SliceTaint
from webhook.api.taints import DeviceTaint
from webhook.inventory.pools import Pool

MANY = 2000


class Copied(tuple[DeviceTaint, ...]):
    """Taints that count how many of them were copied to add one."""

    __slots__ = ()
    copied = 0

    def __add__(self, more: object) -> Copied:
        assert isinstance(more, tuple)
        Copied.copied += len(self)
        return Copied([*self, *more])


def test_taint_of_a_slice_is_added_without_a_copy_of_those_before() -> None:
    """One thread at a time works out devices of any pool, and the loop of the webhook waits for it."""
    first, beside = taint(key="first"), [taint(key=f"k-{number}") for number in range(MANY)]
    pool = Pool()
    pool.put(pool_slice(Device("g", Copied([first])), beside=[SliceTaint("g", each) for each in beside]))
    assert pool.devices == {"g": (first, *beside)}
    assert Copied.copied == 0
