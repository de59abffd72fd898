"""Patches before they are applied: changes of devices, and what happens to their users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from tests.unit.inventory.values import NOW, claim, lets_stay, on, pool_slice, taint
from tests.unit.patches.patched import DRIVER, at, effective, patch_of, pools_of, slice_of
from webhook.inventory.pools import Evictor
from webhook.inventory.preview import PodOutcome, Preview
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceNames
from webhook.patches.expansion import expansion
from webhook.patches.patch_preview import PatchChange, patch_changes, patch_preview
from webhook.patches.patching import Origin

if TYPE_CHECKING:
    from webhook.api.patches import ResourceSlicePatch

N = f"{DRIVER}/n"
OWN = taint("NoSchedule", "a", "own")
FLEET = pools_of(
    slice_of(
        {
            "name": "gpu-0",
            "attributes": {"n": {"int": 1}},
            "capacity": {"n": {"value": "1"}},
            "taints": [{"key": "a", "value": "own", "effect": "NoSchedule", "timeAdded": "2026-06-01T12:00:00Z"}],
        },
        "gpu-1",
    )
)


def changes(patch: ResourceSlicePatch, *others: ResourceSlicePatch) -> list[PatchChange]:
    return list(patch_changes(effective(FLEET, patch, *others), patch))


def test_changes_are_listed_device_by_device_in_the_order_of_the_patch() -> None:
    new = taint("NoSchedule", "a", "new")
    patch = patch_of(attributes={N: None, "a.example/x": 2}, capacity={N: "0"}, taints=[new, taint("None", "b")])
    attribute, other, capacity = Origin("attribute", N), Origin("attribute", "a.example/x"), Origin("capacity", N)
    first, second = Origin("taint", "a", "NoSchedule"), Origin("taint", "b", "None")
    assert changes(patch) == [
        PatchChange(at("gpu-0"), attribute, {"int": 1}, None, "patch"),
        PatchChange(at("gpu-0"), other, None, {"int": 2}, "patch"),
        PatchChange(at("gpu-0"), capacity, {"value": "1"}, {"value": "0"}, "patch"),
        PatchChange(at("gpu-0"), first, (OWN,), (new,), "patch"),
        PatchChange(at("gpu-0"), second, None, (taint("None", "b"),), "patch"),
        PatchChange(at("gpu-1"), attribute, None, None, "patch"),
        PatchChange(at("gpu-1"), other, None, {"int": 2}, "patch"),
        PatchChange(at("gpu-1"), capacity, None, {"value": "0"}, "patch"),
        PatchChange(at("gpu-1"), first, None, (new,), "patch"),
        PatchChange(at("gpu-1"), second, None, (taint("None", "b"),), "patch"),
    ]


def test_taint_that_is_listed_twice_is_one_change() -> None:
    patch = patch_of(taints=[taint(value="one"), taint(value="two")], device="gpu-1")
    assert [change.after for change in changes(patch)] == [(taint(value="two"),)]


def test_attribute_without_one_value_is_no_change() -> None:
    """Validation refuses it."""
    odd = structs.replace(
        patch_of(), attributes=(structs.replace(patch_of(attributes={N: 1}).attributes[0], kinds=()),)
    )
    assert changes(odd) == []


def inventory() -> Inventory:
    found = Inventory()
    for each in (
        pool_slice("gpu-0", "gpu-1"),
        pool_slice("gpu-0", name="slice-1", pool="node-1"),
        pool_slice("gpu-0", name="slice-2", pool="node-2", count=2),
        pool_slice("x", name="slice-3", driver="b.example"),
        claim("plain", on("gpu-0"), users=["plain"]),
        claim("waits", on("gpu-1", lets_stay(60)), on("gpu-0", pool="node-1"), users=["waits"]),
        claim("stays", on("gpu-1", lets_stay()), users=["stays"]),
        claim("idle", on("gpu-0", pool="node-2")),
        claim("other", on("x", driver="b.example"), users=["other"]),
    ):
        found.apply(None, each)
    return found


def preview_of(*patches: ResourceSlicePatch, in_tree: bool = True) -> Preview:
    cluster = inventory()
    found = effective(cluster.pools, *patches)
    name = patches[0].meta.name
    rules = expansion(cluster.pools, patches[0], found).rules
    return patch_preview(cluster, found.selected[name], rules, in_tree=in_tree, now=NOW)


def outcomes(preview: Preview) -> dict[str, tuple[PodOutcome, int | None]]:
    return {row.name: (row.outcome, row.seconds) for row in preview.pods}


def test_users_of_all_devices_fare_as_with_a_rule() -> None:
    found = preview_of(patch_of(driver=DRIVER, taints=[taint("NoExecute")]))
    assert outcomes(found) == {
        "pod-plain": (PodOutcome.EVICTED, 0),
        "pod-waits": (PodOutcome.EVICTED, 0),
        "pod-stays": (PodOutcome.TOLERATES, None),
    }
    impact = found.impact
    assert (impact.devices, impact.pools, impact.drivers, impact.allocated) == (4, 3, 1, 5)
    assert (sorted(impact.pods), sorted(impact.tolerating)) == (["plain", "waits"], ["stays"])
    assert impact.incomplete_pools == ((DRIVER, "node-2"),)
    assert [(names, taint.evictor) for names, taint in found.taints] == [(DeviceNames(DRIVER), Evictor.IN_TREE)]
    assert not found.simulated


def test_taints_that_do_nothing_count_only_among_their_like() -> None:
    acting = preview_of(patch_of(driver=DRIVER, taints=[taint("None"), taint("NoSchedule")]), in_tree=False)
    assert ([taint.taint.effect for _, taint in acting.taints], acting.simulated) == (["NoSchedule"], False)
    assert outcomes(acting)["pod-plain"] == (PodOutcome.KEPT, None)
    assert sorted(acting.impact.kept) == ["plain", "stays", "waits"]
    passive = preview_of(patch_of(device="gpu-1", taints=[taint("None")]), in_tree=False)
    assert (passive.simulated, passive.taints[0][1].evictor) == (True, Evictor.OURS)
    assert outcomes(passive) == {"pod-waits": (PodOutcome.EVICTED, 60), "pod-stays": (PodOutcome.TOLERATES, None)}


def test_entry_that_two_rules_select_is_counted_once() -> None:
    """A pool and a name that cross, and two taints."""
    high = patch_of("high", priority=1, device="gpu-1", taints=[taint("NoExecute", value="high")])
    found = preview_of(patch_of(driver=DRIVER, taints=[taint("NoExecute"), taint("NoSchedule")]), high)
    assert (found.impact.devices, found.impact.allocated) == (4, 5)
    assert len(found.taints) == 2
    assert outcomes(found)["pod-waits"] == (PodOutcome.EVICTED, 0)


def test_incomplete_pool_of_another_driver_is_not_named() -> None:
    assert preview_of(patch_of(driver="b.example", taints=[taint()])).impact.incomplete_pools == ()
