"""`status` of dumps: the tables, the JSON, bad input and exit codes."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import DRIVER, NOW_TEXT, make_device, make_meta, make_pod, make_slice, make_taint
from tests.unit.commands.preview_runner import HEADER
from tests.unit.commands.status_runner import BUDGET, CLUSTER, LEASE, NAMESPACE, RULE, SINCE, StatusRunner
from webhook.commands.status.command import command_line
from webhook.commands.status.report import as_text, span
from webhook.commands.status.run import look

ROOT = Path(__file__).parents[4]
TABLE = """\
dump at 2026-06-01T12:00:00Z: worker in mode delegated, by the conditions of rules; in-tree controller active

NAME                       WORKER SAYS      EVICTED   PODS                                                            NEXT DUE   DEVICES          BY        TAINT
firmware                   Blocked for 5m   2 of 8    1 not due, 2 due, 1 held, 1 blocked, 1 limited, 1 terminating   in 55m     8, 7 allocated   worker    gpu.example.com/unhealthy:NoSchedule, evict
idle                       -                -         none                                                            -          0, 0 allocated   in-tree   gpu.example.com/unhealthy:NoExecute
gpu.example.com (slices)   -                -         1 due                                                           -          1, 1 allocated   in-tree   hw.example.com/ecc:NoExecute
WORKER SAYS and the pods evicted so far are from its conditions; the rest is computed here.
"""  # noqa: E501 -- as wide as a table
PODS_TABLE = """\
firmware: the worker says: 2 pods evicted; 5 pods pending in 1 namespace; 1 blocked

POD             TAINTED BY        NODE     DUE      STATE         SINCE   WAITS FOR
ml/broken       gpu.example.com   node-0   5m ago   due           5m      the in-tree controller
ml/db-0         firmware          node-0   5m ago   limited       5m      perOwnerUnavailable: 1, and 1 of StatefulSet/db unavailable: db-1
ml/db-1         firmware          node-0   5m ago   due           5m      its turn: at most 10 a second
ml/ending       firmware          node-0   5m ago   terminating   -       its end, by 2026-06-01T12:00:20Z
ml/train        firmware          node-0   5m ago   due           5m      its turn: at most 10 a second
ml/train-held   firmware          node-0   5m ago   held          5m      hold: checkpoint until noon
ml/web-0        firmware          node-0   5m ago   blocked       2m      disruption budget web: disruptionsAllowed 0 since 2026-06-01T11:58:00Z, 3 healthy of 3 needed
ml/train-late   firmware          node-0   in 55m   not due       5m      its due time
"""  # noqa: E501 -- likewise


# --- tables -------------------------------------------------------------------------------------


def test_table_has_a_line_for_each_rule_and_driver(run_status: StatusRunner) -> None:
    assert run_status() == (0, TABLE, "")


def test_pods_have_a_table_of_their_own(run_status: StatusRunner) -> None:
    assert run_status("--pods") == (0, TABLE + PODS_TABLE, "")


def test_a_named_rule_is_shown_alone_with_its_pods(run_status: StatusRunner) -> None:
    code, output, _ = run_status("firmware", "--limit", "2")
    lines = output.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines[2:5]] == ["NAME", "firmware", "WORKER"]
    assert lines[7].split()[:3] == ["POD", "NODE", "DUE"]
    assert [line.split()[0] for line in lines[8:10]] == ["ml/db-0", "ml/db-1"]
    assert lines[10:] == ["and 5 more; --limit 0 shows all"]
    assert len(run_status("firmware", "--limit", "0")[1].splitlines()) == 15


def test_a_driver_can_be_named(run_status: StatusRunner) -> None:
    assert [each["name"] for each in run_status.values(DRIVER)["pods"]] == ["broken"]


def test_nothing_tainted_and_nothing_to_evict(run_status: StatusRunner) -> None:
    assert "\nno DeviceTaintRule, and no NoExecute taint in slices\n" in run_status(dump=[NAMESPACE])[1]
    assert "\nno pod is to be evicted\n" in run_status("idle")[1]


SECOND = make_slice(
    [make_device("gpu-0", taints=[make_taint("hw.example.com/ecc", "NoExecute", time_added=SINCE)])],
    pool="node-2",
    node_name="node-2",
    meta=make_meta("node-2-gpu"),
)
TRIPPING = {**HEADER, "inTreeEvictor": "absent", "breaker": {"devices": 1, "window": "10m"}}
TRIPPED = {
    "dump": [*CLUSTER, SECOND],
    "policy": {**TRIPPING, "pause": {"until": "2026-06-01T13:00:00Z", "why": "outage"}},
}


def test_title_names_pause_and_breaker(run_status: StatusRunner) -> None:
    title = run_status("--mode", "replacement", **TRIPPED)[1].splitlines()[0]
    assert title == (
        "dump at 2026-06-01T12:00:00Z: worker in mode replacement; in-tree controller absent; paused until "
        f"2026-06-01T13:00:00Z: outage; breaker tripped for {DRIVER}"
    )
    assert run_status.values("--mode", "replacement", **TRIPPED)["worker"] == {
        "mode": "replacement",
        "modeGuessed": False,
        "inTree": "absent",
        "paused": {"until": "2026-06-01T13:00:00Z", "why": "outage"},
        "breakersTripped": [DRIVER],
        "runs": True,
    }
    assert run_status.values("--mode", "observe", **TRIPPED)["worker"]["breakersTripped"] == []


def test_lease_of_the_worker_says_its_mode_and_what_it_found(run_status: StatusRunner) -> None:
    """M2, M3: the conditions on rules are those of a worker in another mode."""
    title = run_status(dump=[*CLUSTER, LEASE])[1].splitlines()[0]
    assert title.endswith("worker in mode observe; in-tree controller absent")
    other = {**LEASE, "metadata": {**LEASE["metadata"], "name": "another"}}
    assert run_status(dump=[*CLUSTER, other])[1].splitlines()[0] == TABLE.splitlines()[0]
    released = {**LEASE, "spec": {**LEASE["spec"], "holderIdentity": ""}}
    assert "no eviction worker is known; in-tree" in run_status(dump=[*CLUSTER, released])[1].splitlines()[0]
    worker = run_status.values("--mode", "delegated", dump=[*CLUSTER, LEASE])["worker"]
    assert (worker["mode"], worker["inTree"]) == ("delegated", "absent")


def lease(**about: Any) -> dict[str, Any]:
    """The Lease with other metadata, and perhaps another spec."""
    spec = about.pop("spec", LEASE["spec"])
    return {**LEASE, "metadata": {**LEASE["metadata"], **about}, "spec": spec}


ELSEWHERE = lease(namespace="other")
AT_ANOTHER_TIME = lease(annotations={"devicetaint.io/mode": "replacement"})


def test_only_the_lease_in_the_namespace_of_the_worker_counts(run_status: StatusRunner) -> None:
    code, output, _ = run_status(dump=[*CLUSTER, ELSEWHERE])
    assert (code, output.splitlines()[0]) == (0, TABLE.splitlines()[0])
    (note,) = run_status.values(dump=[*CLUSTER, ELSEWHERE])["notes"]
    assert note.startswith("the dump has Lease other/device-taint-webhook-evict, but none in namespace device-taint-we")
    there = ("--policy-configmap", "other/device-taint-webhook-policy")
    worker = run_status.values(*there, dump=[*CLUSTER, AT_ANOTHER_TIME, ELSEWHERE])["worker"]
    assert (worker["mode"], worker["modeGuessed"]) == ("observe", False)


def test_leases_that_contradict_each_other_are_reported_and_decide_nothing(run_status: StatusRunner) -> None:
    found = run_status.values(dump=[*CLUSTER, LEASE, AT_ANOTHER_TIME])
    assert (found["worker"]["mode"], found["worker"]["modeGuessed"]) == ("delegated", True)
    assert "has 2 different Leases device-taint-webhook/device-taint-webhook-evict" in found["notes"][0]
    twice = run_status.values(dump=[*CLUSTER, LEASE, lease(labels={"a": "b"})])
    assert (twice["worker"]["mode"], twice["notes"]) == ("observe", [])


def test_worker_in_mode_replacement_rules_out_the_in_tree_controller(run_status: StatusRunner) -> None:
    """Its Lease does not say so if a flag has said it."""
    worker = run_status.values(dump=[*CLUSTER, AT_ANOTHER_TIME])["worker"]
    assert (worker["mode"], worker["inTree"]) == ("replacement", "absent")


@pytest.mark.parametrize("spec", [None, ["x"], "x", {"renewTime": 5}, {"holderIdentity": 7}], ids=str)
def test_lease_of_any_shape_that_no_one_holds_is_no_worker(run_status: StatusRunner, spec: Any) -> None:
    worker = run_status.values(dump=[*CLUSTER, {**LEASE, "spec": spec}])["worker"]
    assert (worker["mode"], worker["runs"]) == ("observe", False)


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": {**LEASE["metadata"], "annotations": None}},
        {"metadata": {**LEASE["metadata"], "annotations": ["x"]}},
        {"metadata": {**LEASE["metadata"], "annotations": {"devicetaint.io/mode": ["a"]}}},
        {"metadata": {**LEASE["metadata"], "annotations": {"devicetaint.io/in-tree": {"a": 1}}}},
    ],
    ids=str,
)
def test_lease_of_any_shape_in_a_dump_leaves_the_conditions(run_status: StatusRunner, odd: dict[str, Any]) -> None:
    assert run_status(dump=[*CLUSTER, {**LEASE, **odd}])[1].splitlines()[0] == TABLE.splitlines()[0]


def test_lease_that_is_held_counts_in_a_dump_whenever_it_was_renewed(run_status: StatusRunner) -> None:
    odd = {**LEASE, "spec": {"holderIdentity": "a", "renewTime": 5}}
    assert "worker in mode observe" in run_status(dump=[*CLUSTER, odd])[1].splitlines()[0]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_narrow_terminal_shows_what_pods_wait_for(run_status: StatusRunner, width: int) -> None:
    """M11: `--watch` cuts lines that are longer."""
    run_status()
    words = ["--dump", "dump.yaml", "--time", NOW_TEXT, "--pods"]
    lines = as_text(look(command_line().parse_args(words)), limit=0, width=width).splitlines()
    [header] = [line for line in lines if line.startswith("POD ")]
    assert "WAITS FOR" in header[:width]
    assert [line for line in lines[lines.index(header) + 1 :] if len(line) > width] == []


def test_without_a_lease_and_conditions_no_worker_is_known(run_status: StatusRunner) -> None:
    """M3: in which mode one would run is not guessed."""
    plain = [each for each in CLUSTER if each["kind"] != "DeviceTaintRule"]
    assert "no eviction worker is known; in-tree" in run_status(dump=plain)[1].splitlines()[0]


def test_flags_win_over_guess_and_policy(run_status: StatusRunner) -> None:
    worker = run_status.values("--mode", "observe", "--in-tree", "absent")["worker"]
    assert (worker["mode"], worker["modeGuessed"], worker["inTree"]) == ("observe", False, "absent")


def test_in_tree_controllers_condition_is_named_as_its_own(run_status: StatusRunner) -> None:
    condition = {"type": "EvictionInProgress", "status": "True", "reason": "PodsPendingEviction"}
    rule = {**RULE, "status": {"conditions": [{**condition, "lastTransitionTime": SINCE}]}}
    assert " in-tree: PodsPendingEviction for 5m " in run_status(dump=[rule, NAMESPACE])[1]


@pytest.mark.parametrize(
    ("status", "text", "word"),
    [
        ("True", "its devices are released", ", released "),
        ("False", "its devices are not released", " allocated "),
        ("Unknown", "it is not known whether its devices are released", " allocated "),
    ],
)
def test_worker_says_whether_devices_are_released(run_status: StatusRunner, status: str, text: str, word: str) -> None:
    condition = {"type": "devicetaint.io/Released", "status": status, "reason": "R", "message": "because"}
    rule = {**RULE, "status": {"conditions": [{**condition, "observedGeneration": 1, "lastTransitionTime": SINCE}]}}
    table = run_status(dump=[rule, NAMESPACE])[1]
    assert word in table
    assert ("released" in table) == (status == "True")
    assert f"\nfirmware: {text}: because\n" in run_status("--pods", dump=[rule, NAMESPACE])[1]
    later = {**rule, "metadata": {**RULE["metadata"], "generation": 2}}
    assert "released" not in run_status("--pods", dump=[later, NAMESPACE])[1]


def test_condition_of_an_earlier_generation_is_not_the_workers_word(run_status: StatusRunner) -> None:
    rule = {**RULE, "metadata": {**RULE["metadata"], "generation": 2}}
    (line,) = run_status.values(dump=[rule])["taints"]
    assert [each["current"] for each in line["reported"]["conditions"]] == [False, False]
    assert "Blocked for" not in run_status(dump=[rule])[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (90, "90s"),
        (120, "2m"),
        (179, "2m"),
        (7200, "2h"),
        (86400, "1d"),
    ],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text


# --- for programs -------------------------------------------------------------------------------


def test_json_has_whole_seconds_whatever_the_policy_adds(run_status: StatusRunner) -> None:
    policy = {**HEADER, "eviction": [{"grace": "500ms"}]}
    found = run_status.values("--pods", policy=policy)
    times = [each["due"] for each in found["pods"]] + [each["computed"]["nextDue"] for each in found["taints"]]
    assert {len(each) for each in times if each} == {len(SINCE)}


def test_pods_of_rules_without_uid_are_counted_for_the_rule_that_hits_them(run_status: StatusRunner) -> None:
    dump = copy.deepcopy(CLUSTER)
    for each in dump:
        if each["kind"] == "DeviceTaintRule":
            del each["metadata"]["uid"]
    found = {each["name"]: each["computed"]["pending"] for each in run_status.values(dump=dump)["taints"]}
    assert (found["firmware"], found["idle"]) == (6, 0)


@pytest.mark.parametrize(
    "words", [["devicetaintrule/firmware"], ["DeviceTaintRules", "firmware"], ["rule/firmware"], ["rules", "firmware"]]
)
def test_rule_is_named_as_kubectl_does(words: list[str], run_status: StatusRunner) -> None:
    assert run_status(*words) == run_status("firmware")
    assert run_status("devicetaintrule.resource.k8s.io/firmware") == run_status("firmware")
    code, _, error = run_status("node/node-0")
    assert (code, "list --node=node-0" in error) == (2, True)


# --- bad input ----------------------------------------------------------------------------------


def test_unknown_rule_is_wrong_usage_with_a_hint(run_status: StatusRunner) -> None:
    code, output, error = run_status("firmwar", "nothing-like-it")
    assert (code, output) == (2, "")
    assert error == (
        "device-taint-webhook status: there is no DeviceTaintRule 'firmwar', and no driver of that name taints "
        "devices; did you mean firmware?\n"
        "device-taint-webhook status: there is no DeviceTaintRule 'nothing-like-it', and no driver of that name "
        "taints devices\n"
    )


def test_notes_name_what_a_dump_lacks(run_status: StatusRunner) -> None:
    dump = [each for each in CLUSTER if each["kind"] not in {"PodDisruptionBudget", "Namespace"}]
    code, output, _ = run_status(dump=dump)
    assert (code, output.splitlines()[-2:]) == (
        0,
        [
            "note: the dump has no Namespaces, so their holds and labels are unknown",
            "note: the dump has no PodDisruptionBudgets, so pods are shown as due that one blocks",
        ],
    )
    assert run_status.values(dump=dump)["missing"] == ["Namespace", "PodDisruptionBudget"]


def test_malformed_object_is_left_out_and_reported(run_status: StatusRunner) -> None:
    broken = {**BUDGET, "metadata": {"name": "odd", "namespace": "ml"}, "spec": {"selector": 7}}
    code, output, _ = run_status(dump=[*CLUSTER, broken])
    assert code == 2
    assert "PodDisruptionBudget ml/odd: left out: spec.selector: Invalid value: 7" in output
    assert " 1 blocked, " in output


def test_policy_that_cannot_be_used_is_reported(run_status: StatusRunner) -> None:
    code, output, _ = run_status("-o", "json", policy={**HEADER, "inTreeEvictor": "perhaps"})
    assert code == 2
    (finding,) = json.loads(output)["findings"]
    assert (finding["file"], finding["severity"], finding["field"]) == ("policy.yaml", "error", "inTreeEvictor")


def config_map(policy: Any, name: str = "policy") -> Any:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "device-taint-webhook"},
        "data": {"policy.yaml": yaml.safe_dump(policy)},
    }


def test_policy_of_the_dump_is_used_unless_another_one_is_given(run_status: StatusRunner) -> None:
    dump = [*CLUSTER, config_map({**HEADER, "inTreeEvictor": "absent"})]
    assert run_status.values(dump=dump)["worker"]["inTree"] == "absent"
    assert run_status.values(dump=dump, policy=HEADER)["worker"]["inTree"] == "active"
    two = [*dump, config_map(HEADER, "second")]
    code, output, _ = run_status(dump=two)
    assert (code, "contains 2 policies; choose one with --policy" in output) == (2, True)


def test_pod_with_labels_that_are_no_text_is_left_out(run_status: StatusRunner) -> None:
    """No server has one, and which budgets select it is not known."""
    odd = make_pod("odd", "train", meta={"labels": {"app": 7}})
    code, output, error = run_status(dump=[*CLUSTER, odd])
    assert (code, "Pod ml/odd: left out: metadata.labels[app]" in output + error) == (2, True), output + error


def test_nothing_is_logged_about_a_breaker(run_status: StatusRunner) -> None:
    """The worker logs an error when its breaker trips; here the title says it."""
    run_status("--mode", "replacement", **TRIPPED)
    words = ["status", "--mode", "replacement", "--dump", "dump.yaml", "--policy", "policy.yaml", "--time", NOW_TEXT]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-m", "webhook", *words],
        cwd=run_status.folder,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("kind", ["Pod", "ResourceClaim"])
def test_pods_to_evict_are_not_counted_where_they_are_not_known(kind: str, run_status: StatusRunner) -> None:
    _, output, _ = run_status(dump=[each for each in CLUSTER if each["kind"] != kind])
    assert next(line for line in output.splitlines() if line.startswith("firmware ")).split()[4:7] == ["2", "of", "?"]
