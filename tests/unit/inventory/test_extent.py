"""How many devices several selectors reach together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.unit.inventory.values import DRIVER, inventory_of, pool_slice
from webhook.api.claims import AllocationResult
from webhook.api.rules import DeviceSelector
from webhook.inventory.targets import ANYWHERE, DeviceNames, Extent

OTHER = "other.example.com"
CLUSTER = inventory_of(
    *[pool_slice("gpu-0", "gpu-1", name=f"slice-{number}", pool=f"node-{number}") for number in range(3)],
    pool_slice("gpu-0", "nic-0", name="other", pool="node-0", driver=OTHER),
)


@pytest.mark.parametrize(
    ("names", "everywhere", "one_driver"),
    [
        ([], 0, 0),
        ([ANYWHERE], 8, 6),
        ([DeviceNames(DRIVER)], 6, 6),
        ([DeviceNames(OTHER)], 2, 0),
        ([DeviceNames(DRIVER), DeviceNames(OTHER)], 8, 6),
        ([DeviceNames(pool="node-0")], 4, 2),
        ([DeviceNames(device="gpu-0")], 4, 3),
        ([DeviceNames(DRIVER, "node-0"), DeviceNames(DRIVER, "node-0", "gpu-0")], 2, 2),
        ([DeviceNames(DRIVER, "node-0", "gpu-0"), DeviceNames(DRIVER, "node-0")], 2, 2),
        (
            [
                DeviceNames(DRIVER, "node-0", "gpu-0"),
                DeviceNames(None, "node-0", "gpu-1"),
                DeviceNames(OTHER, None, "nic-0"),
            ],
            3,
            2,
        ),
        ([DeviceNames(DRIVER, "node-0", "gpu-0"), DeviceNames(device="gpu-0")], 4, 3),
        ([DeviceNames(DRIVER, "gone"), DeviceNames("gone", "node-0"), DeviceNames(DRIVER, "node-0", "gone")], 0, 0),
        ([DeviceNames(DRIVER), DeviceNames(pool="node-0", device="nic-0")], 7, 6),
    ],
    ids=str,
)
def test_each_device_counts_once(names: list[DeviceNames], everywhere: int, one_driver: int) -> None:
    extent = Extent(names)
    assert (extent.count(CLUSTER.pools), extent.count(CLUSTER.pools, DRIVER)) == (everywhere, one_driver)


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


@pytest.mark.parametrize(
    ("named", "asked", "driver", "held"),
    [
        pytest.param([DeviceNames(device="gpu-0")], DeviceNames(device="gpu-0"), None, True, id="the same"),
        pytest.param([DeviceNames(device="gpu-0")], DeviceNames(DRIVER, "node-1", "gpu-0"), None, True, id="narrower"),
        pytest.param([DeviceNames(device="gpu-0")], DeviceNames(DRIVER, "node-1"), None, False, id="a pool"),
        pytest.param([DeviceNames(device="gpu-0")], DeviceNames(device="gpu-1"), None, False, id="another device"),
        pytest.param([DeviceNames(DRIVER, device="gpu-0")], DeviceNames(device="gpu-0"), None, False, id="one driver"),
        pytest.param(
            [DeviceNames(DRIVER, device="gpu-0")], DeviceNames(device="gpu-0"), DRIVER, True, id="asked of it"
        ),
        pytest.param([DeviceNames(DRIVER)], ANYWHERE, None, False, id="all of one driver"),
        pytest.param([DeviceNames(DRIVER)], ANYWHERE, DRIVER, True, id="all of one driver, asked of it"),
        pytest.param([DeviceNames(DRIVER)], ANYWHERE, OTHER, False, id="all of one driver, asked of another"),
        pytest.param([DeviceNames(DRIVER), DeviceNames(OTHER)], ANYWHERE, None, True, id="both drivers"),
        pytest.param([], DeviceNames(OTHER), DRIVER, True, id="it has no devices of that driver"),
        pytest.param([], DeviceNames(device="gone"), None, True, id="nothing is published by that name"),
        pytest.param([], ANYWHERE, None, False, id="nothing"),
        pytest.param(
            [DeviceNames(DRIVER, f"node-{number}") for number in range(2)],
            DeviceNames(DRIVER),
            None,
            False,
            id="2 of 3",
        ),
        pytest.param(
            [DeviceNames(DRIVER, f"node-{number}") for number in range(3)], DeviceNames(DRIVER), None, True, id="3 of 3"
        ),
    ],
)
def test_extent_holds_names_if_it_has_every_published_device_of_them(
    named: list[DeviceNames], asked: DeviceNames, driver: str | None, *, held: bool
) -> None:
    assert Extent(named).holds_all(asked, CLUSTER.pools, driver) is held


@pytest.mark.parametrize(
    ("named", "held"),
    [
        (ANYWHERE, True),
        (DeviceNames(DRIVER), True),
        (DeviceNames(OTHER), False),
        (DeviceNames(pool="node-0"), True),
        (DeviceNames(DRIVER, "node-1"), False),
        (DeviceNames(device="gpu-0"), True),
        (DeviceNames(None, "node-0", "gpu-1"), False),
        (DeviceNames(DRIVER, "node-0", "gpu-0"), True),
    ],
    ids=str,
)
def test_extent_holds_a_device_that_one_of_its_names_is_about(named: DeviceNames, *, held: bool) -> None:
    assert Extent([named]).holds(DRIVER, "node-0", "gpu-0") is held
    assert not Extent([]).holds(DRIVER, "node-0", "gpu-0")


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
