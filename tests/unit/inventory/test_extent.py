"""How many devices several selectors reach together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.inventory.values import DRIVER, inventory_of, pool_slice
from webhook.api.rules import DeviceSelector
from webhook.inventory.extent import Extent, names_of
from webhook.inventory.fates import ANYWHERE, DeviceNames

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
    assert names_of(selector) == expected
