"""How many devices several selectors reach together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.unit.inventory.values import DRIVER, inventory_of, pool_slice
from webhook.api.claims import AllocationResult
from webhook.api.rules import DeviceSelector
from webhook.inventory.targets import ANYWHERE, DeviceNames, Extent


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, ANYWHERE),
        (DeviceSelector(), ANYWHERE),
        (DeviceSelector("a", "b", "c"), DeviceNames("a", "b", "c")),
        (DeviceSelector("a", device_class_name="c"), DeviceNames("a")),
        (DeviceSelector("a", unknown=(("orDriver", '"b"'),)), ANYWHERE),
    ],
    ids=str,
)
def test_what_cannot_be_judged_is_every_device(selector: Any, expected: DeviceNames) -> None:
    assert DeviceNames.of(selector) == expected


def test_nothing_holds_what_another_driver_alone_could_have() -> None:
    other = DeviceNames("other.example.com")
    pools = inventory_of(pool_slice("gpu-0"), pool_slice("nic-0", name="nic", driver="other.example.com")).pools
    assert [Extent([]).holds_all(each, pools, DRIVER) for each in (other, ANYWHERE)] == [True, False]
    assert [Extent([DeviceNames(DRIVER)]).holds_all(ANYWHERE, pools, each) for each in (None, DRIVER)] == [False, True]


def test_check_comes_before_the_first_pool() -> None:
    pools, extent = inventory_of(pool_slice("gpu-0")).pools, Extent([DeviceNames(device="gpu-0")])

    def out_of_time() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        extent.count(pools, DRIVER, out_of_time)
    with pytest.raises(TimeoutError):
        extent.holds_all(ANYWHERE, pools, None, out_of_time)


RESULT = AllocationResult("request", "driver", "pool", "device", ())


@pytest.mark.parametrize(
    "names", list(itertools.product((None, "driver", "x"), (None, "pool", "x"), (None, "device", "x"))), ids=str
)
def test_device_is_included_if_every_name_that_is_given_is_its_own(names: tuple[str | None, ...]) -> None:
    assert DeviceNames(*names).includes(RESULT) is ("x" not in names)
