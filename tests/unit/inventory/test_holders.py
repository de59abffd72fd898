"""Who holds the devices that a rule selects."""

from __future__ import annotations

import pytest

from tests.costs import calls_of
from tests.unit.inventory.values import DRIVER, POOL, claim, group, inventory_of, lets_stay, on, pool_slice
from webhook.api.claims import Consumer
from webhook.api.rules import DeviceSelector
from webhook.api.slices import Device
from webhook.inventory.hardware import (
    COUNTED_MOST,
    Holder,
    Holders,
    devices_to_look_at,
    holders_of,
    is_held,
    is_published,
    unused_claims,
)
from webhook.inventory.targets import ANYWHERE, DeviceNames

NIC = "nic.example.com"
ONE = DeviceNames(DRIVER, POOL, "gpu-0")


def test_selector_looks_at_the_devices_that_it_may_close() -> None:
    """Without a selector a taint closes every device (R-2); with a field that is not known, perhaps any."""
    assert DeviceNames.of(None) == ANYWHERE
    assert DeviceNames.of(DeviceSelector()) == ANYWHERE
    assert DeviceNames.of(DeviceSelector(DRIVER, POOL, "gpu-0")) == ONE
    assert DeviceNames.of(DeviceSelector(DRIVER, unknown=(("all", "true"),))) == ANYWHERE


def test_device_is_looked_at_itself() -> None:
    assert devices_to_look_at(inventory_of(), ONE) == (ONE,)
    assert devices_to_look_at(inventory_of(pool_slice(Device("gpu-0"), Device("gpu-1"))), ONE) == (ONE,)


def test_parts_of_the_same_hardware_are_looked_at_too() -> None:
    """Resetting a GPU resets its partitions; a partition is not free while the whole GPU is in use."""
    parts = [Device(name, (), counter_sets=(of,)) for name, of in [("gpu-0", "a"), ("mig-0", "a"), ("gpu-1", "b")]]
    inventory = inventory_of(pool_slice(*parts))
    full, partition = ONE, DeviceNames(DRIVER, POOL, "mig-0")
    assert devices_to_look_at(inventory, full) == (full, partition)
    assert devices_to_look_at(inventory, partition) == (partition, full)
    anywhere = DeviceNames(None, None, "mig-0")
    assert devices_to_look_at(inventory, anywhere) == (anywhere, full)
    whole = DeviceNames(DRIVER, POOL, None)
    assert devices_to_look_at(inventory, whole) == (whole,)
    other = DeviceNames(DRIVER, "node-9", "gpu-0")
    assert devices_to_look_at(inventory, other) == (other,)


@pytest.mark.parametrize(
    "holding",
    [
        claim("c", on("gpu-0"), users=["p"]),
        claim("c", on("gpu-0", lets_stay()), users=["p"]),
        claim("c", on("gpu-0")),
        claim("c", on("gpu-0"), users=["p"], extended=True),
        claim("c", on("nic-0", driver=NIC), on("gpu-0"), users=["p"]),
        claim("c", on("gpu-0"), users=[group("g")]),
    ],
    ids=["in use", "tolerating", "without a pod", "extended resource", "beside another device", "of a group"],
)
def test_every_allocation_holds_its_device(holding: object) -> None:
    inventory = inventory_of(holding)  # type: ignore[arg-type]
    assert is_held(inventory, [ONE])
    assert is_held(inventory, [DeviceNames(NIC, POOL, "none"), ONE])
    assert [each.claim for each in holders_of(inventory, [ONE]).first] == ["ml/c"]


def test_claim_that_is_not_allocated_or_has_another_device_holds_nothing() -> None:
    inventory = inventory_of(
        claim("waiting", users=["p"]), claim("other", on("gpu-1")), claim("nic", on("gpu-0", driver=NIC))
    )
    assert not is_held(inventory, [ONE])
    assert not is_held(inventory, [])
    assert holders_of(inventory, [ONE]) == Holders(0, more=False, first=())


def test_holders_are_named_with_their_users_in_order() -> None:
    inventory = inventory_of(
        claim("d", on("gpu-0")),
        claim("c", on("gpu-0"), on("gpu-1"), users=["q", "p"]),
        claim("a", on("gpu-0"), namespace="ops"),
        claim("b", on("gpu-0"), users=[group("g"), Consumer("example.com", "pods", "x", "uid")]),
    )
    first = (
        Holder("ml/b", ("podgroups/group-g", "pods/x")),
        Holder("ml/c", ("pod pod-q", "pod pod-p")),
        Holder("ml/d"),
    )
    assert holders_of(inventory, [ONE, DeviceNames(DRIVER)]) == Holders(4, more=False, first=first)


def test_unused_claims_are_those_that_no_eviction_frees() -> None:
    inventory = inventory_of(
        claim("d", on("gpu-0")),
        claim("c", on("gpu-0"), namespace="a"),
        claim("used", on("gpu-0"), users=["p"]),
        claim("of-group", on("gpu-0"), users=[group("g")]),
        claim("elsewhere", on("gpu-1")),
    )
    assert unused_claims(inventory, ONE) == ["a/c", "ml/d"]


def test_count_ends_where_it_says() -> None:
    inventory = inventory_of(*[claim(f"c{number}", on("gpu-0"), on("gpu-1")) for number in range(4)])
    assert holders_of(inventory, [ANYWHERE], 4)[:2] == (4, False)
    assert holders_of(inventory, [ANYWHERE], 3)[:2] == (3, True)
    assert COUNTED_MOST == 1000

    def counted(claims: int) -> int:
        inventory = inventory_of(*[claim(f"c{number}", on("gpu-0")) for number in range(claims)])
        return calls_of(lambda known: holders_of(known, [ANYWHERE], 3), lambda: inventory)

    assert counted(5) == counted(50), "the rest is not looked at"


@pytest.mark.parametrize(
    ("names", "published"),
    [
        (ANYWHERE, True),
        (DeviceNames(DRIVER), True),
        (DeviceNames(DRIVER, "empty"), False),
        (DeviceNames(NIC), False),
        (ONE, True),
        (DeviceNames(device="gpu-0"), True),
        (DeviceNames(device="gpu-7"), False),
        (DeviceNames(DRIVER, "empty", "gpu-0"), False),
    ],
)
def test_devices_that_are_published(names: DeviceNames, *, published: bool) -> None:
    inventory = inventory_of(
        pool_slice("gpu-7", name="old"),
        pool_slice("gpu-0", generation=2),
        pool_slice(name="slice-of-none", pool="empty"),
    )
    assert is_published(inventory, names) is published
