"""Which taints of a slice a preview is about: those that act, and only if none does, what they would do."""

from __future__ import annotations

import pytest

from tests.unit.inventory.values import NOW, claim, inventory_of, on, pool_slice, taint
from webhook.api.slices import Device, SliceTaint
from webhook.inventory.preview import PodOutcome, Preview, slice_preview
from webhook.inventory.targets import DeviceId

USED = (pool_slice("gpu-0", "gpu-1"), claim("a", on("gpu-0"), users=["p"]), claim("b", on("gpu-1"), users=["q"]))


def preview(*effects: str, in_tree: bool = True) -> Preview:
    """Of a slice in which each device has one taint with the effect; an empty one is none."""
    devices = [Device(f"gpu-{at}", (taint(effect),) if effect else ()) for at, effect in enumerate(effects)]
    return slice_preview(inventory_of(*USED), pool_slice(*devices), in_tree=in_tree, now=NOW)


@pytest.mark.parametrize(
    ("effects", "simulated", "devices", "evicted"),
    [
        pytest.param(("NoExecute", ""), False, ["gpu-0"], ["p"], id="one that evicts"),
        pytest.param(("NoSchedule", ""), False, ["gpu-0"], [], id="one that keeps from allocation"),
        pytest.param(("None", ""), True, ["gpu-0"], ["p"], id="one that does nothing is simulated"),
        pytest.param(("None", "None"), True, ["gpu-0", "gpu-1"], ["p", "q"], id="two that do nothing"),
        pytest.param(("None", "NoExecute"), False, ["gpu-1"], ["q"], id="one that does nothing beside one that acts"),
        pytest.param(("NoSchedule", "None"), False, ["gpu-0"], [], id="and beside one that does not evict"),
        pytest.param(("Evict", ""), True, ["gpu-0"], ["p"], id="an unknown effect acts as None"),
    ],
)
def test_taints_that_do_nothing_are_simulated_only_if_all_do_nothing(
    effects: tuple[str, ...], devices: list[str], evicted: list[str], *, simulated: bool
) -> None:
    found = preview(*effects)
    assert found.simulated is simulated
    assert [names.device for names, _ in found.taints] == devices
    assert sorted(row.uid for row in found.pods if row.outcome is PodOutcome.EVICTED) == evicted


def test_slice_without_taints_hits_nothing() -> None:
    found = preview("", "")
    assert (found.simulated, found.taints, found.pods) == (False, (), ())


def test_taint_beside_the_devices_is_previewed_on_the_device_that_it_names() -> None:
    added = pool_slice("gpu-0", "gpu-1", beside=[SliceTaint("gpu-1", taint())])
    found = slice_preview(inventory_of(*USED), added, in_tree=True, now=NOW)
    assert [(names.device, row.uid) for (names, _), row in zip(found.taints, found.pods, strict=True)] == [
        ("gpu-1", "q")
    ]


def test_taint_is_previewed_on_its_own_device_alone() -> None:
    (row,) = preview("NoExecute", "").pods
    assert (row.uid, row.devices) == ("p", (DeviceId("gpu.example.com", "node-0", "gpu-0"),))
