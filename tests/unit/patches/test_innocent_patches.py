"""Of several patches for one device only those are refused that would make it invalid."""

from __future__ import annotations

from tests.unit.patches.patched import DRIVER, patch_of, slice_of
from webhook.api.patches import ResourceSlicePatch
from webhook.daemons.slice_keeper import _faults_of
from webhook.patches.filters import DeviceSelectors
from webhook.patches.slice_patches import SlicePatches, SliceWork, slice_work

PARTITION = {
    "name": "gpu-0",
    "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}],
    "attributes": {"profile": {"string": "1g"}},
    "capacity": {"memory": {"value": "2Gi"}},
}
WITHOUT_PROFILE = patch_of("strong", priority=10, driver=DRIVER, attributes={f"{DRIVER}/profile": None})


def work_with(*patches: ResourceSlicePatch) -> SliceWork:
    value = slice_of(PARTITION, partitionTypeAttribute=f"{DRIVER}/profile")
    return slice_work(value, SlicePatches.of(patches, {}), DeviceSelectors(10**6), _faults_of(value))


def test_weaker_patch_is_carried_out_beside_a_stronger_one_that_is_refused() -> None:
    innocent = patch_of("weak", driver=DRIVER, capacity={f"{DRIVER}/memory": "3Gi"})
    work = work_with(WITHOUT_PROFILE, innocent)
    assert [each.patch for each in work.refused] == ["strong"]
    assert (work.touch, work.patched) == (True, {"weak": 1})
