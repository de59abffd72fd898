"""`preview` of patches: devices before and after, rules, users. `semantics.md` P-8 to P-16, P-22."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import DRIVER, KEY, NOW_TEXT, make_device, make_meta, make_patch, make_slice, make_taint
from tests.unit.commands.preview_runner import CLUSTER, OUT_OF_TREE, PreviewRunner, squeezed, used

HIGH = 'device.attributes["gpu.example.com"].num > 0'
EARLIER = "2026-01-01T00:00:00Z"
GPU = {
    "attributes": {"num": {"int": 1}, "serial": {"string": "abc"}},
    "capacity": {"memory": {"value": "40Gi", "requestPolicy": {"default": "1Gi"}}},
}
OWN = make_taint(effect="NoSchedule", value="driver")
DEVICES = [
    make_device("gpu-0", **GPU, taints=[OWN]),
    make_device("gpu-1", attributes={"num": {"int": 0}}),
    make_device("gpu-2"),
]
POOL = [make_slice(DEVICES, pool="node-0", node_name="node-0"), used("train-0", "node-0/gpu-0")]
FULL = make_patch(
    filter_={"driver": DRIVER, "pool": "node-0", "device": "gpu-0"},
    attributes={f"{DRIVER}/num": {"int": 2}, f"{DRIVER}/serial": {"null": {}}, f"{DRIVER}/new": {"bool": True}},
    capacity={f"{DRIVER}/memory": {"value": "0"}},
    taints=[make_taint(effect="NoSchedule", value="v", time_added=None)],
)


def told(run_preview: PreviewRunner, *patches: Any, dump: Any = POOL, code: int = 0, **files: Any) -> list[Any]:
    found, output = run_preview(list(patches), "-o", "json", dump=dump, **files)
    assert found == code, output
    result: list[Any] = json.loads(output)["previews"]
    return result


def changes(item: Any) -> dict[tuple[str, str], tuple[Any, Any]]:
    return {(each["device"], each["name"]): (each["before"], each["after"]) for each in item["patch"]["changes"]}


def test_devices_are_printed_before_and_after(run_preview: PreviewRunner) -> None:
    code, output = run_preview(FULL, dump=POOL)
    assert code == 0
    assert squeezed(output) == [
        (
            "asked.yaml:1:1: ResourceSlicePatch firmware: 3 attributes, 1 capacity, 1 taint on driver gpu.example.com, "
            "pool node-0, device gpu-0"
        ),
        "devices 1 in 1 pool of 1 driver; 1 allocated",
        "evicted no pods",
        "stay 1 pod; the taint only blocks new allocations",
        "rules 1 DeviceTaintRule",
        (
            "note: the dump has no Pods, so it is unknown who owns them, their priorities, and which are terminating "
            "or finished"
        ),
        "",
        "DEVICE WHAT BEFORE AFTER",
        "node-0/gpu-0 attribute gpu.example.com/num 1 2",
        "node-0/gpu-0 attribute gpu.example.com/serial abc -",
        "node-0/gpu-0 attribute gpu.example.com/new - true",
        "node-0/gpu-0 capacity gpu.example.com/memory 40Gi 0",
        f"node-0/gpu-0 taint {KEY}:NoSchedule driver v",
        "",
        "POD DEVICES WHEN WHY",
        "ml/train-0 node-0/gpu-0 stays NoSchedule evicts no pods",
    ]


def test_json_has_changes_and_rules(run_preview: PreviewRunner) -> None:
    [item] = told(run_preview, FULL)
    where = {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}
    own = {"value": "driver", "timeAdded": OWN["timeAdded"]}
    policy = {"requestPolicy": {"default": "1Gi"}}

    def change(kind: str, name: str, before: Any, after: Any, effect: str | None = None) -> Any:
        fields = {"kind": kind, "name": name, "effect": effect, "before": before, "after": after, "patch": "firmware"}
        return {**where, **fields}

    assert item["patch"]["changes"] == [
        change("attribute", f"{DRIVER}/num", {"int": 1}, {"int": 2}),
        change("attribute", f"{DRIVER}/serial", {"string": "abc"}, None),
        change("attribute", f"{DRIVER}/new", None, {"bool": True}),
        change("capacity", f"{DRIVER}/memory", {"value": "40Gi", **policy}, {"value": "0", **policy}),
        change("taint", KEY, [own], [{"value": "v", "timeAdded": NOW_TEXT}], "NoSchedule"),
    ]
    [rule] = item["patch"]["rules"]
    assert rule.pop("name").startswith("firmware-")
    assert rule == {**where, "key": KEY, "value": "v", "effect": "NoSchedule", "annotations": {}}
    assert (item["patch"]["rulesNeeded"], item["patch"]["faults"], item["patch"]["inapplicable"]) == (1, [], None)
    assert (item["kind"], item["selector"], item["confirmation"]) == ("ResourceSlicePatch", None, None)
    assert [(each["name"], each["outcome"]) for each in item["pods"]] == [("train-0", "Kept")]


def test_only_patches_have_an_outcome(run_preview: PreviewRunner) -> None:
    [item] = told(run_preview, CLUSTER[0])
    assert "patch" not in item


@pytest.mark.parametrize(
    ("policy", "evictor"), [(None, "device-taint-eviction-controller"), (OUT_OF_TREE, "device-taint-webhook")]
)
def test_users_of_devices_that_get_no_execute_are_listed(policy: Any, evictor: str, run_preview: PreviewRunner) -> None:
    patch = make_patch(taints=[make_taint(effect="NoExecute", time_added=None), make_taint(effect="None")])
    [item] = told(run_preview, patch, dump=CLUSTER, policy=policy)
    summary = item["summary"]
    assert (summary["devices"], summary["pools"], summary["drivers"], summary["allocated"]) == (8, 2, 1, 9)
    assert "train-0" in {pod["name"] for pod in item["pods"] if pod["outcome"] == "Evicted"}
    assert {taint["evictor"] for taint in item["taints"]} == {evictor}
    assert (item["simulated"], len(item["patch"]["rules"])) == (False, 2)


# --- several patches ----------------------------------------------------------------------------


def stored(name: str, priority: int = 0, created: str = EARLIER, **devices: Any) -> Any:
    return make_patch(meta=make_meta(name) | {"creationTimestamp": created}, priority=priority, **devices)


def test_patches_of_the_dump_count_with_their_precedence(run_preview: PreviewRunner) -> None:
    """P-11: a patch that is not created yet is the youngest."""
    first = stored("first", attributes={f"{DRIVER}/num": {"int": 7}})
    new = make_patch(attributes={f"{DRIVER}/num": {"int": 8}, f"{DRIVER}/m": {"int": 8}}, filter_={"device": "gpu-1"})
    [item] = told(run_preview, new, dump=[*POOL, first])
    assert changes(item) == {
        ("gpu-1", f"{DRIVER}/num"): ({"int": 0}, {"int": 7}),
        ("gpu-1", f"{DRIVER}/m"): (None, {"int": 8}),
    }
    assert [each["patch"] for each in item["patch"]["changes"]] == ["first", "firmware"]
    _, text = run_preview(new, dump=[*POOL, first])
    assert "node-0/gpu-1 attribute gpu.example.com/num 0 7 (by patch first)" in squeezed(text)


def test_patch_in_a_file_replaces_the_stored_one_and_stays_as_old(run_preview: PreviewRunner) -> None:
    """P-11: updating a patch does not change its age; D-2: nor the time of a taint that it still has."""
    taint = make_taint(effect="NoSchedule", time_added=EARLIER)
    old = stored("firmware", attributes={f"{DRIVER}/num": {"int": 1}}, taints=[taint])
    younger = stored("younger", created="2026-02-01T00:00:00Z", attributes={f"{DRIVER}/num": {"int": 5}})
    new = make_patch(
        attributes={f"{DRIVER}/num": {"int": 2}},
        taints=[make_taint(effect="NoSchedule", time_added=None)],
        filter_={"device": "gpu-1"},
    )
    [item] = told(run_preview, new, dump=[*POOL, old, younger])
    assert changes(item) == {
        ("gpu-1", f"{DRIVER}/num"): ({"int": 0}, {"int": 2}),
        ("gpu-1", KEY): (None, [{"value": "", "timeAdded": EARLIER}]),
    }


def test_patches_of_files_are_taken_together(run_preview: PreviewRunner) -> None:
    high = stored("high", 1, attributes={f"{DRIVER}/num": {"null": {}}}, filter_={"device": "gpu-1"})
    low = stored("low", attributes={f"{DRIVER}/num": {"int": 5}}, filter_={"device": "gpu-1"})
    found = told(run_preview, high, low)
    assert [changes(item) for item in found] == [{("gpu-1", f"{DRIVER}/num"): ({"int": 0}, None)}] * 2


# --- filters ------------------------------------------------------------------------------------

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": HIGH}}]},
}


def test_class_is_taken_from_the_dump(run_preview: PreviewRunner) -> None:
    patch = make_patch(filter_={"deviceClassName": "gpu"}, taints=[make_taint(effect="NoSchedule")])
    [item] = told(run_preview, patch, dump=[*POOL, CLASS])
    assert [each["device"] for each in item["patch"]["changes"]] == ["gpu-0"]
    assert [(rule["driver"], rule["device"]) for rule in item["patch"]["rules"]] == [(DRIVER, "gpu-0")]
    assert item["patch"]["faults"] == [
        {
            "driver": DRIVER,
            "pool": "node-0",
            "device": "gpu-2",
            "selector": "selector #0 of device class gpu",
            "message": "no such key: num",
        }
    ]
    assert item["notes"][0] == (
        "left out: selector #0 of device class gpu: device gpu.example.com/node-0/gpu-2: no such key: num"
    )
    _, text = run_preview(patch, dump=[*POOL, CLASS])
    assert ": ResourceSlicePatch firmware: 1 taint on class gpu\n" in text


def test_first_faults_are_shown_and_the_others_counted(run_preview: PreviewRunner) -> None:
    patch = make_patch(filter_={"selectors": [{"cel": {"expression": 'device.attributes["gpu.example.com"].m > 0'}}]})
    devices = make_slice([make_device(f"gpu-{n}") for n in range(5)], pool="node-0")
    [item] = told(run_preview, patch, dump=[devices])
    assert [note.partition(":")[0] for note in item["notes"][:4]] == ["left out"] * 4
    assert item["notes"][3] == "left out: 2 more devices for such reasons"
    [item] = told(run_preview, patch, dump=[make_slice(DEVICES, pool="node-0")])
    assert [note for note in item["notes"] if "more devices" in note] == []


def test_filter_that_cannot_be_judged_is_noted(run_preview: PreviewRunner) -> None:
    patch = make_patch(filter_={"deviceClassName": "gpu"}, taints=[make_taint(effect="NoSchedule")])
    [item] = told(run_preview, patch)
    assert item["notes"][0] == "the patch selects no device: device class gpu does not exist"
    assert (item["patch"]["inapplicable"], item["patch"]["changes"]) == ("device class gpu does not exist", [])


@pytest.mark.parametrize(
    ("filter_", "title"),
    [
        (None, "nothing on every device"),
        ({}, "nothing on every device"),
        ({"selectors": [{"cel": {"expression": HIGH}}] * 2}, "nothing on 2 selectors"),
        ({"deviceClassName": "a", "driver": "b.c", "pool": "d"}, "nothing on class a, driver b.c, pool d"),
    ],
)
def test_title_says_where(filter_: Any, title: str, run_preview: PreviewRunner) -> None:
    _, text = run_preview(make_patch(filter_=filter_), dump=POOL)
    assert text.splitlines()[0] == f"asked.yaml:1:1: ResourceSlicePatch firmware: {title}"


def test_more_rules_than_the_ceiling_are_none(run_preview: PreviewRunner) -> None:
    devices = [make_device(f"gpu-{n}", attributes={"num": {"int": n % 2}}) for n in range(128)]
    dump = [make_slice(devices, pool="a"), make_slice(devices, pool="b", meta=make_meta("other"))]
    taints = [make_taint(effect="NoSchedule"), make_taint(effect="None")]
    patch = make_patch(filter_={"pool": "a", "selectors": [{"cel": {"expression": HIGH}}]}, taints=taints)
    [item] = told(run_preview, patch, dump=dump)
    assert (item["patch"]["rules"], item["patch"]["rulesNeeded"], item["summary"]["devices"]) == ([], 128, 64)
    assert item["notes"][0] == (
        "its taints need 128 DeviceTaintRules, more than 100: none is made, so no pod is counted"
    )


def test_table_of_changes_is_limited_and_names_drivers_where_they_differ(run_preview: PreviewRunner) -> None:
    other = make_slice([make_device("x")], driver="b.example", pool="p", meta=make_meta("b"))
    patch = make_patch(filter_={}, attributes={"a.example/b": {"version": "1.2.3"}})
    _, text = run_preview(patch, "--limit", "2", dump=[*POOL, other])
    assert squeezed(text)[-3:] == [
        "b.example/p/x attribute a.example/b - 1.2.3",
        "gpu.example.com/node-0/gpu-0 attribute a.example/b - 1.2.3",
        "and 2 more; --limit 0 shows all",
    ]
    _, text = run_preview(patch, "--limit", "0", dump=[*POOL, other])
    assert "more; --limit" not in text


# --- faults in files ----------------------------------------------------------------------------


def test_field_errors_and_advice_are_those_of_admission(run_preview: PreviewRunner) -> None:
    wrong = make_patch(filter_={}, capacity={"a.example/b": {"value": "lots"}})
    [item] = told(run_preview, wrong, code=1)
    assert [(each["field"], each["severity"]) for each in item["findings"]] == [
        ("spec.devices.capacity[a.example/b].value", "error"),
        ("spec.devices.filter", "warning"),
    ]


def test_broken_patch_or_class_in_a_dump_is_left_out(run_preview: PreviewRunner) -> None:
    broken = [stored("broken", priority=0) | {"spec": []}, CLASS | {"spec": {"selectors": {}}}]
    code, output = run_preview(make_patch(), dump=[*POOL, *broken])
    assert code == 2
    assert "ResourceSlicePatch broken: left out: spec" in output
    assert "DeviceClass gpu: left out: spec.selectors" in output
