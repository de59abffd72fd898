"""`preview` of dumps: who is told to fare how, what is not known, and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.builders import DRIVER, KEY, make_device, make_patch, make_pod, make_rule, make_taint
from tests.tables import table
from tests.unit.commands.preview_runner import (
    CLAIMS,
    CLUSTER,
    HEADER,
    OUT_OF_TREE,
    PODS,
    SLICES,
    UNUSED,
    PreviewRunner,
    pool_slice,
    rule,
    used,
)

EVICT = {"devicetaint.io/evict": "true"}
HIT = make_taint(effect="NoExecute", time_added=None)
NO_SLICES = "  devices   unknown: the dump has no ResourceSlices"
NO_DEVICES, NO_PODS = "  devices   0 in 0 pools of 0 drivers", "  evicted   no pods"
NO_CLAIMS = "  evicted   unknown: the dump has no ResourceClaims"

# --- for programs -------------------------------------------------------------------------------


def test_pods_come_soonest_first_then_who_tolerates(run_preview: PreviewRunner) -> None:
    told = run_preview.told(rule())
    assert [(each["name"], each["outcome"], each["dueSeconds"], each["reason"]) for each in told["pods"]] == [
        ("extended", "Evicted", 0, "ExtendedResource"),
        ("train-0", "Evicted", 0, "NotTolerated"),
        ("sloppy", "Evicted", 0, "EffectNotNamed"),
        ("train-1", "Evicted", 300, "ToleratedForSeconds"),
        ("serve", "Tolerates", None, "Tolerated"),
        ("ending", "Leaving", None, "Terminating"),
    ]
    late = told["pods"][3]
    toleration = {"key": KEY, "operator": "Exists", "value": "", "effect": "NoExecute", "tolerationSeconds": 300}
    assert (late["dueAt"], late["toleration"], late["tolerates"]) == ("2026-06-01T12:05:00Z", toleration, False)
    assert told["summary"]["waves"] == [{"seconds": 0, "pods": 3}, {"seconds": 300, "pods": 1}]
    (group,) = told["podGroups"]
    assert (group["name"], group["dueSeconds"], group["pods"]) == ("crew", 0, ["crew-0", "crew-1"])


# --- readings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["None", "Melt"])
def test_an_effect_that_does_nothing_is_shown_as_if_it_was_no_execute(effect: str, run_preview: PreviewRunner) -> None:
    stored = rule(effect)  # an unknown effect can only be there already
    code, output = run_preview(rule(effect), dump=[*CLUSTER, stored])
    assert (code, "  evicted         4 pods\n" in output) == (0, True)
    known = "effect None does nothing; if it were NoExecute:"
    assert (known if effect == "None" else 'effect "Melt" acts as None, which does nothing; if it were') in output
    assert "to confirm this impact, add this annotation:\n" in output


def test_without_the_in_tree_controller_our_worker_evicts(run_preview: PreviewRunner) -> None:
    code, output = run_preview(rule(), policy=OUT_OF_TREE)
    assert (code, "device-taint-webhook evict, because the policy has inTreeEvictor: absent" in output) == (0, True)
    in_dump = run_preview.told(rule(), dump=[*CLUSTER, OUT_OF_TREE])
    assert {each["name"]: each["outcome"] for each in in_dump["pods"]} == {
        "train-0": "Evicted",
        "extended": "Evicted",
        "train-1": "Evicted",
        "serve": "Tolerates",
        "sloppy": "Tolerates",
        "ending": "Leaving",
    }


def test_rule_without_selector_evicts_no_pod(run_preview: PreviewRunner) -> None:
    told = run_preview.told(rule(selector=None))
    assert (told["selector"], told["summary"]["devices"], told["summary"]["evicted"]) == (None, 8, 0)


def test_a_grace_that_is_over_is_over(run_preview: PreviewRunner) -> None:
    """An update that leaves timeAdded out keeps it (D-2), so does the preview."""
    stored = make_rule(
        selector={"driver": DRIVER}, taint=make_taint(effect="NoExecute", time_added="2026-06-01T11:58:00Z")
    )
    told = run_preview.told(rule(), dump=[*CLUSTER, stored])
    assert told["summary"]["waves"] == [{"seconds": 0, "pods": 3}, {"seconds": 180, "pods": 1}]
    stored["spec"]["taint"]["timeAdded"] = "2026-06-01T11:00:00Z"
    _, output = run_preview(rule(), dump=[*CLUSTER, stored])
    assert "now           gpu.example.com/unhealthy:NoExecute op=Exists for 300s, already elapsed\n" in output
    assert f"note: the rule already exists, as {KEY}:NoExecute: what it already does is counted, too\n" in output


def test_a_namesake_is_not_the_pod_that_reserved_the_claim(run_preview: PreviewRunner) -> None:
    namesake = make_pod("train-0", "train-0", owner="Job/other", phase="Succeeded")
    namesake["metadata"]["uid"] = "another"
    told = run_preview.told(rule(selector={"pool": "node-0", "device": "gpu-0"}), dump=[*SLICES, *CLAIMS, namesake])
    (pod,) = told["pods"]
    assert (pod["outcome"], pod["known"], pod["owner"]) == ("Evicted", False, None)
    assert told["notes"] == ["claims are reserved for pods that were not found but are counted: ml/train-0"]


def test_a_pod_on_no_node_is_not_evicted_before_it_is_on_one(run_preview: PreviewRunner) -> None:
    unbound = [make_pod("train-0", "train-0", nodeName=None), make_pod("train-1", "train-1")]
    code, output = run_preview(rule(selector={"device": "gpu-0"}), dump=[*SLICES, *CLAIMS[:2], *unbound])
    assert (code, "  evicted         1 pod\n" in output) == (0, True)
    assert "  not yet         1 pod on no node; evicted once it is on one\n" in output
    told = run_preview.told(rule(selector={"pool": "node-0"}), dump=[*SLICES, *CLAIMS[:2], *unbound])
    assert [(each["outcome"], each["dueSeconds"]) for each in told["pods"]] == [("NoNode", None)]
    assert (told["summary"]["evicted"], told["summary"]["noNode"], told["summary"]["claims"]) == (0, 1, 0)


def test_evict_is_not_heeded_with_an_effect_that_does_nothing(run_preview: PreviewRunner) -> None:
    told = run_preview.told(rule("None", annotations=EVICT))
    assert (told["simulated"], told["taints"][0]["evictor"]) == (True, "device-taint-eviction-controller")


def test_a_hold_is_shown(run_preview: PreviewRunner) -> None:
    held = make_pod("train-0", "train-0", meta={"annotations": {"devicetaint.io/hold": "demo at noon"}})
    _, output = run_preview(rule("NoSchedule", annotations=EVICT), dump=[*SLICES, *CLAIMS, held])
    assert "no toleration; on hold: demo at noon\n" in output


# --- slices -------------------------------------------------------------------------------------


def test_taints_that_a_device_has_already_are_not_new(run_preview: PreviewRunner) -> None:
    asked = pool_slice("node-0", [make_device("gpu-0", [HIT])])
    stored = pool_slice("node-0", [make_device("gpu-0", [make_taint(effect="NoExecute")])])
    told = run_preview.told(asked, dump=[*CLAIMS, *PODS, stored])
    assert (told["pods"], told["notes"], told["confirmation"]) == ([], ["its devices have no new taints"], None)


def test_nobody_looks_at_a_slice_of_an_old_generation(run_preview: PreviewRunner) -> None:
    newer = {"name": "node-0", "generation": 3, "resourceSliceCount": 1}
    told = run_preview.told(
        pool_slice("node-0", [make_device("gpu-0", [HIT])]),
        dump=[*CLUSTER, {**SLICES[0], "spec": {**SLICES[0]["spec"], "pool": newer}}],
    )
    assert told["pods"] == []
    assert told["notes"] == ["a newer generation of the pool than 1 is published, so this slice is ignored"]


# --- what is not known --------------------------------------------------------------------------


def test_half_published_pools_are_named(run_preview: PreviewRunner) -> None:
    half = pool_slice("node-0")
    half["spec"]["pool"]["resourceSliceCount"] = 2
    told = run_preview.told(rule(), dump=[half, *CLAIMS, *PODS])
    assert told["incompletePools"] == [{"driver": DRIVER, "pool": "node-0"}]
    assert told["notes"] == [
        UNUSED,
        f"not all slices are published for pools {DRIVER}/node-0: some of their devices are not counted",
    ]


@table(
    "selector, counted",
    {
        "an unknown field": ({"all": True}, "counted as every device"),
        "an unknown field beside a name (R8)": ({"driver": "a.example.com", "all": True}, "counted as every device"),
        "a class": ({"deviceClassName": "gpu"}, "left out of the count"),
    },
)
def test_what_a_selector_selects_may_not_be_known(selector: Any, counted: str, run_preview: PreviewRunner) -> None:
    told = run_preview.told(rule(selector=selector))
    field = [*selector][-1]
    assert (told["summary"]["devices"], told["selector"]["notJudged"]) == (8, [field])
    assert told["notes"] == [
        f"what {field} of the selector selects cannot be evaluated here: {counted}, so less may be hit"
    ]


def test_an_empty_dump_says_what_it_lacks(run_preview: PreviewRunner) -> None:
    dump = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}]
    code, output = run_preview(rule(), "-o", "json", dump=dump)
    document = json.loads(output)
    (told,) = document["previews"]
    assert (code, document["claimsKnown"], told["summary"]["evicted"]) == (2, False, 0)
    assert [note.partition(",")[0] for note in told["notes"]] == [
        "the dump has no ResourceSlices",
        "the dump has no ResourceClaims",
        "the dump has no Pods",
    ]


# --- faults -------------------------------------------------------------------------------------


ODD = used("x", "node-0/gpu-0", annotations=3)


@table(
    "asked, dump, code, told",
    {
        "nothing to ask": (make_pod("x"), CLUSTER, 2, "asked.yaml: error: contains no DeviceTaintRule"),
        "version": (rule(version="v9"), CLUSTER, 2, 'apiVersion: Unsupported value: "resource.k8s.io/v9"'),
        "version of a patch": (
            make_patch() | {"apiVersion": "devicetaint.io/v1"},
            CLUSTER,
            2,
            "apiVersion: Unsupported",
        ),
        "wrong type": (rule(selector=3), CLUSTER, 2, "spec.deviceSelector: Invalid value: 3"),
        "wrong type in a patch": (make_patch(priority="high"), CLUSTER, 2, "spec.devices.priority"),
        "refused": (rule(selector={"driver": ""}), CLUSTER, 1, "spec.deviceSelector.driver: Required"),
        "a dump that no server gave": (
            *(rule(), [*CLUSTER, ODD], 2),
            "error: ResourceClaim ml/x: left out: metadata.annotations: Invalid value",
        ),
        "broken policy": (rule(), [{**HEADER, "rules": 3}, *CLUSTER], 2, "error: rules: Invalid value"),
        "two policies": (rule(), [OUT_OF_TREE, HEADER, *CLUSTER], 2, "contains 2 policies; choose one"),
    },
)
def test_what_is_wrong_is_told(asked: Any, dump: Any, code: int, told: str, run_preview: PreviewRunner) -> None:
    given, output = run_preview(asked, dump=dump)
    assert (given, told in output) == (code, True), output


def test_files_that_cannot_be_read_give_two(run_preview: PreviewRunner) -> None:
    assert run_preview(rule(), "--dump", "gone.yaml", dump=None)[0] == 2
    assert run_preview(rule(), "--policy", "gone.yaml")[0] == 2
    assert run_preview(rule(), "gone.yaml")[0] == 2
    assert run_preview(rule(), "--kubeconfig", "gone", dump=None)[0] == 2


@table(
    "dump, code, lines",
    {
        "all": (CLUSTER, 0, [f"{NO_DEVICES}; 0 allocated", NO_PODS]),
        "no slices": ([*CLAIMS, *PODS], 0, [f"{NO_SLICES}; 0 allocated", NO_PODS]),
        "no claims": ([*SLICES, *PODS], 0, [NO_DEVICES, NO_CLAIMS]),
        "neither": (PODS, 2, [NO_SLICES, NO_CLAIMS]),
        "empty": ([], 2, [NO_SLICES, NO_CLAIMS]),
    },
)
def test_what_a_dump_does_not_have_is_unknown(
    dump: Any, code: int, lines: list[str], run_preview: PreviewRunner
) -> None:
    """M8: neither that the selector matches nothing nor the figures of a confirmation are known then."""
    given, output = run_preview(rule(selector={"pool": "node-9"}), dump=dump)
    assert (given, [each for each in output.splitlines() if each[2:9] in ("devices", "evicted")]) == (code, lines)
    whole = dump is CLUSTER
    assert ("[DT201]" in output, "to confirm" in output) == (whole, whole)
    assert ("dump.yaml: error: contains no ResourceSlices and no ResourceClaims" in output) is (code == 2)


def test_a_dump_that_cannot_be_read_has_no_figures_either(run_preview: PreviewRunner) -> None:
    code, output = run_preview(rule(), "--dump", "gone.yaml", dump=None)
    assert (code, output.count(" error: "), NO_SLICES in output, "to confirm" in output) == (2, 1, True, False)


def test_devices_of_a_slice_are_in_the_file(run_preview: PreviewRunner) -> None:
    _, output = run_preview(pool_slice("node-0"), dump=CLAIMS)
    assert "  devices   unknown" not in output


@pytest.mark.parametrize("dump", [CLAIMS, PODS])
def test_what_a_patch_selects_is_unknown_without_slices(dump: Any, run_preview: PreviewRunner) -> None:
    asked = make_patch(taints=[make_taint()])
    output = " ".join(run_preview(asked, dump=dump)[1].split())
    assert ("devices unknown: the dump has no ResourceSlices" in output, "evicted no pods" in output) == (True, False)


def test_a_dump_is_previewed_without_the_loop_of_the_worker_and_without_a_client() -> None:
    code = "import sys, webhook.commands.preview.run; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unwanted = ("webhook.eviction.controller", "webhook.cluster", "aiohttp")
    assert not [name for name in modules if name.startswith(unwanted)]
