"""What the report about forgotten rules costs: it blocks the event loop of the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import NOW
from tests.costs import calls_of
from tests.unit.eviction.objects import rule, slice_of
from webhook.api.rules import DeviceSelector
from webhook.eviction.expiry import Thresholds, find_stale
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from webhook.api.taints import DeviceTaint


def cluster_of(devices_each: int) -> Inventory:
    """Rules that name devices which are gone, in a cluster of ten pools with this number of devices each."""
    inventory = Inventory()
    for number in range(10):
        devices: dict[str, tuple[DeviceTaint, ...]] = {f"gpu-{device}": () for device in range(devices_each)}
        inventory.apply(None, slice_of(devices, name=f"slice-{number}", pool=f"node-{number}"))
    for number in range(5):
        inventory.apply(None, rule(f"gone-{number}", selector=DeviceSelector(device=f"gone-{number}")))
    return inventory


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="eviction.md L3")
def test_rules_that_name_a_device_do_not_look_at_all_devices() -> None:
    """L3: a rule that names a device is looked up by that name, so its cost does not grow with the cluster."""

    def look(inventory: Inventory) -> None:
        assert len(find_stale(inventory, {}, NOW, Thresholds()).rules_without_devices) == 5

    small, large = calls_of(look, lambda: cluster_of(4)), calls_of(look, lambda: cluster_of(64))
    assert large < 2 * small
