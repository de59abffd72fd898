"""Rows of pods say the same as the figures, and each why; of a slice, those of the taints that act."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import (
    DRIVER,
    EMPTY,
    KEY,
    NOW,
    POOL,
    claim,
    group,
    in_tree,
    inventory_of,
    lets_stay,
    on,
    ours,
    pod,
    pool_slice,
    rule,
    taint,
)
from webhook.api.meta import ObjectMeta
from webhook.api.rules import EVICT, DeviceSelector, DeviceTaintRule
from webhook.api.slices import Device, ResourceSlice, SliceTaint
from webhook.api.taints import DeviceToleration
from webhook.inventory.impact import Impact, Taint
from webhook.inventory.preview import (
    OutcomeReason,
    PodOutcome,
    Preview,
    new_taints,
    rows_of,
    rule_preview,
    slice_preview,
)
from webhook.inventory.state import Inventory
from webhook.inventory.targets import ANYWHERE, DeviceId, DeviceNames

if TYPE_CHECKING:
    from webhook.inventory.state import InventoryObject


TOLERATIONS = [
    (),
    (lets_stay(),),
    (lets_stay(300),),
    (lets_stay(60), lets_stay(300)),
    (lets_stay(0),),
    (lets_stay(effect=""),),
    (lets_stay(effect="NoSchedule"),),
    (lets_stay(300), lets_stay(effect="NoSchedule")),
    (DeviceToleration("", "Exists"),),
    (DeviceToleration(KEY, "Equal", "x", "NoExecute", 30),),
]
DEVICES = [f"gpu-{number}" for number in range(6)]
SELECTORS = [
    EMPTY,
    None,
    DeviceSelector(driver=DRIVER),
    DeviceSelector(driver="other.example.com"),
    DeviceSelector(pool="node-1"),
    DeviceSelector(device="gpu-3"),
    DeviceSelector(DRIVER, POOL, "gpu-0"),
]


def stocked(*values: InventoryObject) -> Inventory:
    inventory = Inventory()
    for value in values:
        inventory.apply(None, value)
    return inventory


def some_cluster(seed: int) -> Inventory:
    """Pools, claims of all sorts, pods with several claims, and PodGroups."""
    choose = random.Random(seed)
    values: list[InventoryObject] = [
        pool_slice(*DEVICES, pool=pool, name=pool, driver=driver)
        for driver in (DRIVER, "other.example.com")
        for pool in (POOL, "node-1")
    ]
    for number in range(40):
        results = [
            on(
                choose.choice(DEVICES),
                *choose.choice(TOLERATIONS),
                pool=choose.choice((POOL, "node-1")),
                driver=choose.choice((DRIVER, "other.example.com")),
            )
            for _ in range(choose.randint(0, 3))
        ]
        users: list[Any] = [str(choose.randrange(25)) for _ in range(choose.randint(0, 3))]
        if choose.random() < 0.2:
            users.append(group(f"g{choose.randrange(3)}"))
        values.append(claim(f"c{number}", *results, users=users, extended=choose.random() < 0.2))
    return stocked(*values)


def agrees(preview: Preview) -> bool:
    """Whether rows and impact tell of the same pods, claims, times and namespaces."""
    impact, rows = preview.impact, preview.pods

    def uids(outcome: PodOutcome) -> set[str]:
        return {row.uid for row in rows if row.outcome is outcome}

    assert {outcome: uids(outcome) for outcome in PodOutcome} == {
        PodOutcome.EVICTED: impact.pods,
        PodOutcome.TOLERATES: impact.tolerating,
        PodOutcome.KEPT: impact.kept,
        PodOutcome.LEAVING: set(),
        PodOutcome.LEFT_ALONE: set(),
        PodOutcome.NO_NODE: set(),
    }
    assert preview.extended == len(impact.extended)
    assert preview.waves == {wave.seconds: len(wave.pods) for wave in impact.waves if wave.pods}
    assert set(preview.claims) == impact.claims
    assert set(preview.namespaces) == impact.namespaces
    groups = {row.uid for row in preview.pod_groups if row.outcome is PodOutcome.EVICTED}
    assert groups == impact.pod_groups
    return bool(rows)


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule", "None", "Melt"])
@pytest.mark.parametrize("evict", [False, True])
@pytest.mark.parametrize("by_in_tree", [False, True])
def test_rows_are_what_the_figures_count(effect: str, *, evict: bool, by_in_tree: bool) -> None:
    told = 0
    for seed in range(12):
        inventory = some_cluster(seed)
        for selector in SELECTORS:
            asked = rule("r", selector, effect, evict=evict)
            told += agrees(rule_preview(inventory, asked, in_tree=by_in_tree, now=NOW + timedelta(seconds=seed * 20)))
    assert told > 50


@pytest.mark.parametrize("by_in_tree", [False, True])
def test_rows_of_slices_are_what_their_figures_count(*, by_in_tree: bool) -> None:
    told = 0
    for seed in range(12):
        effects = random.Random(seed)
        devices = [
            Device(
                name,
                tuple(
                    [
                        taint(effects.choice(("NoExecute", "NoSchedule", "None")), f"example.com/{number}")
                        for number in range(effects.randint(0, 2))
                    ]
                ),
            )
            for name in DEVICES
        ]
        asked = pool_slice(*devices, name="new")
        told += agrees(slice_preview(some_cluster(seed), asked, in_tree=by_in_tree, now=NOW))
    assert told > 8


@pytest.mark.parametrize(
    ("acting", "tolerations", "reason", "decides"),
    [
        pytest.param(in_tree(), (), OutcomeReason.NOT_TOLERATED, None, id="none"),
        pytest.param(in_tree(), (lets_stay(key="a"),), OutcomeReason.NOT_TOLERATED, None, id="of another key"),
        pytest.param(
            in_tree(), (lets_stay(effect=""),), OutcomeReason.EFFECT_NOT_NAMED, 0, id="empty effect, in-tree (E-9)"
        ),
        pytest.param(ours(), (lets_stay(effect=""),), OutcomeReason.TOLERATED, 0, id="empty effect, ours"),
        pytest.param(
            in_tree(),
            (lets_stay(effect=""), lets_stay(5, "")),
            OutcomeReason.EFFECT_NOT_NAMED,
            0,
            id="the first of two",
        ),
        pytest.param(
            in_tree(), (lets_stay(9), lets_stay(5)), OutcomeReason.TOLERATED_FOR_SECONDS, 1, id="shortest (E-10)"
        ),
        pytest.param(in_tree(), (lets_stay(9), lets_stay()), OutcomeReason.TOLERATED, 1, id="for ever wins (E-10)"),
        pytest.param(in_tree(), (lets_stay(-9),), OutcomeReason.TOLERATED_FOR_SECONDS, 0, id="no time at all"),
        pytest.param(
            in_tree(),
            (lets_stay(9), lets_stay(5, "")),
            OutcomeReason.TOLERATED_FOR_SECONDS,
            0,
            id="the other does not count",
        ),
        pytest.param(in_tree("NoSchedule"), (lets_stay(),), OutcomeReason.ALLOCATION_ONLY, None, id="NoSchedule"),
        pytest.param(
            Taint.of_rule(rule(effect="NoSchedule", evict=True), in_tree=True),
            (lets_stay(), lets_stay(effect="NoSchedule")),
            OutcomeReason.TOLERATES_SCHEDULING,
            1,
            id="would come back",
        ),
    ],
)
def test_the_toleration_that_decides_is_named(
    acting: Taint, tolerations: tuple[DeviceToleration, ...], reason: OutcomeReason, decides: int | None
) -> None:
    inventory = stocked(claim("c", on("gpu-0", *tolerations), users=["1"]))
    (row,), _ = rows_of(inventory, [(ANYWHERE, acting)], NOW)
    assert row.cause.reason is reason
    assert row.cause.toleration == (None if decides is None else tolerations[decides])


@pytest.mark.parametrize(
    ("acting", "reason"), [(in_tree(), OutcomeReason.EXTENDED_RESOURCE), (ours(), OutcomeReason.NOT_TOLERATED)]
)
def test_pod_with_extended_resources_is_evicted_whoever_does_it(acting: Taint, reason: OutcomeReason) -> None:
    (row,), _ = rows_of(stocked(claim("c", on(), users=["1"], extended=True)), [(ANYWHERE, acting)], NOW)
    assert (row.outcome, row.seconds, row.cause.reason) == (PodOutcome.EVICTED, 0, reason)


def test_only_claims_that_lead_to_the_outcome_are_named() -> None:
    inventory = stocked(claim("stays", on("gpu-0", lets_stay()), users=["1"]), claim("goes", on("gpu-1"), users=["1"]))
    (row,), _ = rows_of(inventory, [(DeviceNames(DRIVER), in_tree())], NOW)
    assert (row.claims, [each.device for each in row.devices]) == (("ml/goes",), ["gpu-0", "gpu-1"])


def test_who_goes_soonest_comes_first_whatever_the_names() -> None:
    seconds = {"a": 5, "b": 1, "c": 0}
    inventory = stocked(*[claim(name, on("gpu-0", lets_stay(each)), users=[name]) for name, each in seconds.items()])
    rows, _ = rows_of(inventory, [(ANYWHERE, in_tree())], NOW)
    assert [(row.uid, row.seconds) for row in rows] == [("c", 0), ("b", 1), ("a", 5)]


@pytest.mark.parametrize(
    ("effect", "siblings"),
    [
        pytest.param("NoExecute", ["mig-0"], id="it is closed only"),
        pytest.param("NoSchedule", [], id="it is closed already"),
        pytest.param("None", ["mig-0"], id="as with NoExecute, which is simulated"),
    ],
)
def test_parts_of_the_same_hardware_that_stay_in_service_are_told(effect: str, siblings: list[str]) -> None:
    parts = [
        Device(name, own, counter_sets=("gpu-0",)) for name, own in (("gpu-0", ()), ("mig-0", (taint("NoSchedule"),)))
    ]
    inventory = stocked(pool_slice(*parts), claim("c", on("mig-0"), users=["1"]))
    preview = rule_preview(inventory, rule("r", DeviceSelector(DRIVER, POOL, "gpu-0"), effect), in_tree=True, now=NOW)
    assert [each.device for each in preview.impact.siblings.devices] == siblings


def test_pods_on_their_way_out_are_not_counted() -> None:
    inventory = stocked(claim("c", on(), users=["a", "b", "c"]))
    for uid, fields in (("a", {"deleting": True}), ("b", {"phase": "Failed"}), ("c", {"phase": "Running"})):
        value = pod(f"pod-{uid}", "c")
        inventory.apply(None, structs.replace(value, meta=structs.replace(value.meta, uid=uid), **fields))
    preview = rule_preview(inventory, rule(), in_tree=True, now=NOW)
    assert {row.name: row.cause.reason for row in preview.pods} == {
        "pod-a": OutcomeReason.TERMINATING,
        "pod-b": OutcomeReason.FINISHED,
        "pod-c": OutcomeReason.NOT_TOLERATED,
    }
    assert (preview.waves, preview.count(PodOutcome.LEAVING)) == ({0: 1}, 2)


def test_a_group_names_its_own_pods() -> None:
    inventory = stocked(claim("c", on(), users=[group("a")]))
    for name, of, deleting in (("x", "group-a", False), ("y", "group-b", False), ("z", "group-a", True)):
        inventory.apply(None, structs.replace(pod(name, "c"), pod_group=of, deleting=deleting))
    (row,) = rule_preview(inventory, rule(), in_tree=True, now=NOW).pod_groups
    assert (row.name, row.seconds, row.pods) == ("group-a", 0, ("ml/x",))


def test_what_a_device_has_is_not_new_whoever_writes_it() -> None:
    stored = pool_slice(Device("gpu-0", (taint(),)), "gpu-1", beside=[SliceTaint("gpu-1", taint())])
    asked = pool_slice(
        Device("gpu-0", (taint(added=None), taint("NoSchedule"))),
        Device("gpu-1", (taint(),)),
        Device("gpu-2", (taint(), taint())),
    )
    assert new_taints(stocked(stored), asked) == {"gpu-0": (taint("NoSchedule"),), "gpu-2": (taint(),)}


def test_a_generation_is_compared_with_the_one_before() -> None:
    stored = pool_slice(Device("gpu-0", (taint(),)), name="old")
    asked = pool_slice(Device("gpu-0", (taint(),)), name="new", generation=2)
    assert new_taints(stocked(stored), asked) == {}
    assert new_taints(stocked(asked), pool_slice(Device("gpu-1", (taint(),)))) == {}, (
        "an old one is looked at by nobody"
    )


def test_nothing_new_hits_nothing() -> None:
    assert slice_preview(
        stocked(claim("c", on(), users=["1"])), ResourceSlice(ObjectMeta("s")), in_tree=True, now=NOW
    ) == Preview(Impact())


def test_a_rule_may_ask_our_worker_to_evict() -> None:
    asked = DeviceTaintRule(ObjectMeta("r", annotations={EVICT: "true"}), EMPTY, taint("NoSchedule"))
    preview = rule_preview(stocked(claim("c", on(), users=["1"])), asked, in_tree=True, now=NOW)
    assert (preview.simulated, preview.waves) == (False, {0: 1})


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
