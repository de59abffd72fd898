"""`taint`: the rules that it sends, what it prints, and what it does with refusals."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml

from tests.unit.commands.api_server import bare
from tests.unit.commands.preview_runner import used
from tests.unit.commands.rule_server import ECC, GROUP, NODES, RULES, SERVED, VerbRunner, rule_on, status
from tests.unit.commands.standing_clock import Then
from webhook.commands import taint

GPU = "gpu.example.com/node-0/gpu-0"
SPEC = f"{ECC}=double-bit:NoSchedule"
NAME = "node-0-gpu-0-ecc-noschedule-407580ce"
FULL_NAME = f"devicetaintrule.resource.k8s.io/{NAME}"
TEXT = "v1 devices=2 claims=2 pods=2 namespaces=1 of=abcdefgh234567yz"
REFUSAL = 'hits 2 pods; narrow the selector, or to go ahead, set annotation devicetaint.io/confirm-impact to "{}"'


def sent(verb: VerbRunner) -> list[tuple[str, str, Any]]:
    found, verb.server.sent = verb.server.sent, []
    return found


def test_rule_for_a_device(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taint, "datetime", Then)
    verb.server.warnings = ['keeps 1 device from \\"being\\" allocated']
    words = ["taint", GPU, "--for", "2h", SPEC, "--evict", "--reason", "OPS-7"]
    assert verb(*words) == (
        0,
        f"{GPU} tainted by {FULL_NAME}\n",
        'Warning: keeps 1 device from "being" allocated\n',
    )
    ((method, target, rule),) = sent(verb)
    assert (method, target) == ("POST", f"{RULES}?fieldManager=kubectl-dtaint")
    assert rule == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": NAME,
            "annotations": {
                "devicetaint.io/expires-at": "2026-06-01T14:00:00Z",
                "devicetaint.io/evict": "true",
                "devicetaint.io/description": "OPS-7",
            },
        },
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"},
            "taint": {"key": ECC, "value": "double-bit", "effect": "NoSchedule"},
        },
    }


@pytest.mark.parametrize("version", ["v1beta2", "v1alpha3"])
def test_rule_is_of_the_newest_version_that_is_served(version: str, verb: VerbRunner) -> None:
    verb.server.objects = {
        f"{GROUP}/v1": {"resources": [{"name": name} for name in SERVED[:2]]},
        f"{GROUP}/{version}": {"resources": [{"name": "devicetaintrules"}]},
    }
    verb.server.collections[f"{GROUP}/{version}/devicetaintrules"] = []
    verb.output("taint", GPU, SPEC)
    ((_, target, rule),) = sent(verb)
    assert (target.partition("?")[0], rule["apiVersion"]) == (
        f"{GROUP}/{version}/devicetaintrules",
        f"resource.k8s.io/{version}",
    )


def test_rules_that_are_not_served_are_an_error(verb: VerbRunner) -> None:
    verb.server.objects = {f"{GROUP}/v1": {"resources": []}}
    text = 'error: the server doesn\'t have a resource type "devicetaintrules" (feature gate DRADeviceTaints)\n'
    assert verb("taint", GPU, SPEC) == (1, "", text)


def test_several_devices_and_taints_are_several_rules_after_a_dry_run_of_all(verb: VerbRunner) -> None:
    output = verb.output("taint", GPU, "gpu.example.com/node-0/gpu-1", "a:None", "b:None")
    assert len(output.splitlines()) == len(verb.server.rules) == 4
    assert ["dryRun" in target for _, target, _ in sent(verb)] == [True] * 4 + [False] * 4


def test_none_of_several_rules_is_written_if_one_is_refused(verb: VerbRunner) -> None:
    verb.server.refusals = [status(403, "Forbidden", "the first is not yours")]
    code, output, error = verb("taint", GPU, "a:None", "b:None")
    assert (code, output, verb.server.rules) == (1, "", {})
    assert error == "Error from server (Forbidden): the first is not yours\nNo rule was written.\n"


@pytest.mark.parametrize("where", ["gpu.example.com", "gpu.example.com/node-0"])
def test_more_than_a_device_is_tainted_with_all_only(where: str, verb: VerbRunner) -> None:
    code, _, error = verb("taint", where, SPEC)
    assert (code, verb.server.sent) == (2, [])
    assert f"{where} is more than one device: pass --all to taint every device of it" in error
    verb.output("taint", where, SPEC, "--all")
    ((_, _, rule),) = sent(verb)
    assert "/".join(rule["spec"]["deviceSelector"].values()) == where


@pytest.mark.parametrize("words", [["--node", "node-1"], ["-l", "pool=a100"], ["--node=node-1", "gpu.example.com"]])
def test_devices_of_a_node_are_its_pools(words: list[str], verb: VerbRunner) -> None:
    assert verb.output("taint", *words, SPEC).startswith("gpu.example.com/node-1 tainted by ")
    ((_, _, rule),) = sent(verb)
    assert rule["spec"]["deviceSelector"] == {"driver": "gpu.example.com", "pool": "node-1"}
    asked = [each for each in verb.server.asked if each.startswith(NODES)]
    assert ["labelSelector=pool%3Da100" in each for each in asked] == ([True] if words[0] == "-l" else [])


NONE_OF_ITS_OWN = "no device there that other nodes cannot use, and none in use"


def test_node_without_devices_is_an_error(verb: VerbRunner) -> None:
    assert verb("taint", "--node", "node-9", SPEC)[::2] == (1, "error: no driver publishes devices of nodes node-9\n")
    words = ("taint", "--node", "node-1", "nic.example.com", SPEC)
    assert verb(*words)[::2] == (1, f"error: nic.example.com has {NONE_OF_ITS_OWN}\n")


def test_pool_that_other_nodes_have_too_is_tainted_device_by_device(verb: VerbRunner) -> None:
    slices = verb.server.collections[f"{GROUP}/v1/resourceslices"]
    for number, each in enumerate(slices):
        each["spec"]["pool"] = {"name": "shared", "generation": 1, "resourceSliceCount": 2}
        each["spec"]["devices"] = [{"name": f"gpu-{number}"}]
    assert verb.output("taint", "--node", "node-1", SPEC).startswith("gpu.example.com/shared/gpu-1 tainted by ")


SHARED = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0", "node-1"]}]}]
}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["--node=node-1"],
            "other nodes can use all devices there, and no allocation there holds one: gpu.example.com/fabric",
        ),
        (
            ["-l", "pool=a100"],
            "other nodes can use all devices there, and no allocation there holds one: gpu.example.com/fabric",
        ),
        (["--node=node-1", "gpu.example.com"], f"gpu.example.com has {NONE_OF_ITS_OWN}"),
        (["--node=node-1", "--node=node-9"], "no driver publishes devices of nodes node-9"),
    ],
)
def test_idle_node_that_only_shares_devices_is_not_called_unknown(
    words: list[str], error: str, verb: VerbRunner
) -> None:
    """Nothing could be tainted without closing it for the other nodes."""
    (first, _) = verb.server.collections[f"{GROUP}/v1/resourceslices"]
    del first["spec"]["nodeName"]
    first["spec"] |= {"pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1}, "nodeSelector": SHARED}
    verb.server.collections[f"{GROUP}/v1/resourceslices"] = [first]
    for name in ("taint", "untaint"):
        assert verb(name, *words, SPEC) == (1, "", f"error: {error}\n")
    assert verb.server.sent == []


def test_node_is_not_called_unknown_where_all_nodes_can_use_a_device(verb: VerbRunner) -> None:
    (first, _) = verb.server.collections[f"{GROUP}/v1/resourceslices"]
    del first["spec"]["nodeName"]
    first["spec"]["allNodes"] = True
    error = "error: no driver publishes devices of nodes node-9 alone\n"
    assert verb("taint", "--node=node-9", SPEC) == (1, "", error)


@pytest.mark.parametrize(
    "where", ["gpu.exmaple.com", "gpu.example.com/nod-0", "gpu.example.com/node-0/gpu-7", "nic.io/x/y"]
)
def test_device_that_is_not_there_is_an_error_unless_it_is_expected(where: str, verb: VerbRunner) -> None:
    words = ["taint", where, GPU, SPEC, "--all"]
    text = f"error: no driver publishes {where}, and no allocation holds it\n"
    assert verb(*words) == (1, "", text)
    assert verb.server.sent == []
    verb.output(*words, "--missing-ok")
    assert len(verb.server.rules) == 2


def test_device_that_only_an_allocation_has_can_be_tainted(verb: VerbRunner) -> None:
    verb.server.collections[f"{GROUP}/v1/resourceclaims"] = [bare(used("a", "gone/gpu-7"))]
    verb.output("taint", "gpu.example.com/gone/gpu-7", SPEC)
    assert verb("taint", "gpu.example.com/gone/gpu-8", SPEC)[0] == 1


# --- a taint that is there already --------------------------------------------------------------


def test_same_key_and_effect_is_an_error_as_in_kubectl(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    text = f"error: {GPU} already has {ECC} taint(s) with same effect(s) and --overwrite is false (rule firmware)\n"
    assert verb("taint", GPU, SPEC) == (1, "", text)
    assert verb.server.sent == []
    verb.output("taint", GPU, f"{ECC}:None")


def test_overwrite_changes_the_value_and_the_annotations_that_are_given(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware", annotations={"example.com/own": "stays", "devicetaint.io/description": "old"}))
    output = verb.output("taint", GPU, SPEC, "--overwrite", "--reason", "new")
    assert output == f"{GPU} modified by devicetaintrule.resource.k8s.io/firmware\n"
    ((method, target, rule),) = sent(verb)
    assert (method, target) == ("PUT", f"{RULES}/firmware?fieldManager=kubectl-dtaint")
    assert rule["metadata"]["annotations"] == {"example.com/own": "stays", "devicetaint.io/description": "new"}
    assert rule["metadata"]["resourceVersion"] == "5"
    assert rule["spec"]["taint"] == {"key": ECC, "value": "double-bit", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("words", "stored", "kept"),
    [
        ((f"{ECC}=double-bit:NoSchedule",), {}, []),
        ((f"{ECC}:NoSchedule", "--reason", "new"), {}, ["timeAdded"]),
        ((f"{ECC}:NoSchedule", "--evict"), {}, []),
        ((f"{ECC}:NoSchedule", "--evict"), {"devicetaint.io/evict": "false"}, []),
        ((f"{ECC}:NoSchedule", "--evict"), {"devicetaint.io/evict": "true"}, ["timeAdded"]),
    ],
)
def test_overwrite_keeps_the_time_unless_the_value_is_another_or_an_eviction_begins(
    words: tuple[str, ...], stored: dict[str, str], kept: list[str], verb: VerbRunner
) -> None:
    """The server sets another: what a pod tolerates for a while must not be over at once."""
    verb.server.keep(rule_on("firmware", annotations=stored))
    verb.output("taint", GPU, *words, "--overwrite")
    ((_, _, rule),) = sent(verb)
    assert [each for each in rule["spec"]["taint"] if each == "timeAdded"] == kept


OWNED = {
    "apiVersion": "devicetaint.io/v1alpha1",
    "kind": "ResourceSlicePatch",
    "name": "recall",
    "uid": "u",
    "controller": True,
}


def test_rule_of_a_controller_is_not_overwritten(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("recall-1", ownerReferences=[{**OWNED, "name": "recall\n"}]))
    code, _, error = verb("taint", GPU, SPEC, "--overwrite")
    assert (code, verb.server.sent) == (1, [])
    text = "rule recall-1 belongs to ResourceSlicePatch recall\\n: change or delete that"
    assert error == f"error: {GPU} has {ECC}: {text}\n"


# --- confirmation -------------------------------------------------------------------------------


def test_refusal_with_a_code_says_what_to_run(verb: VerbRunner) -> None:
    verb.server.refusals = [status(403, "Forbidden", REFUSAL.format(TEXT))]
    code, output, error = verb("taint", GPU, SPEC, "--dry-run=server")
    assert (code, output) == (1, "")
    command = f"kubectl dtaint taint {GPU} {SPEC} '--confirm={TEXT}'"
    assert error.endswith(f"To confirm exactly this impact, run:\n\n  {command}\n")
    assert error.startswith("Error from server (Forbidden): hits 2 pods; narrow the selector")
    verb.output(*shlex.split(command)[2:])
    *_, (_, _, rule) = sent(verb)
    assert rule["metadata"]["annotations"] == {"devicetaint.io/confirm-impact": TEXT}


def test_rules_that_were_written_before_another_was_refused_do_not_stand_in_the_way(verb: VerbRunner) -> None:
    """The window of the guard counts what is written, and no dry runs."""
    fine = (200, {"kind": "DeviceTaintRule"})
    verb.server.refusals = [fine, fine]
    verb.server.refusals.append(status(403, "Forbidden", REFUSAL.format(TEXT)))
    code, output, error = verb("taint", GPU, "a:None", "b:None")
    assert (code, len(output.splitlines()), len(verb.server.rules)) == (1, 1, 1)
    assert "No rule was written" not in error
    command = shlex.split(error.splitlines()[-1])
    assert command[:-1] == ["kubectl", "dtaint", "taint", GPU, "a:None", "b:None"]
    output = verb.output(*command[2:])
    assert [line.split()[1] for line in output.splitlines()] == ["tainted", "already"]
    assert len(verb.server.rules) == 2


def test_text_for_a_rule_that_is_not_written_is_wrong_usage(verb: VerbRunner) -> None:
    code, _, error = verb("taint", GPU, SPEC, "--confirm", "other=v1 devices=1")
    assert (code, "this command writes no such rule" in error) == (2, True)


# --- dry runs and output ------------------------------------------------------------------------


def test_client_dry_run_sends_nothing(verb: VerbRunner) -> None:
    assert verb.output("taint", GPU, SPEC, "--dry-run=client") == f"{GPU} tainted by {FULL_NAME} (dry run)\n"
    assert verb.server.sent == []


def test_client_dry_run_needs_no_cluster(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    code, output, error = verb("taint", GPU, SPEC, "--dry-run=client", "-o", "yaml")
    assert (code, yaml.safe_load(output)["metadata"]["name"]) == (0, NAME)
    assert "no cluster was asked, so this is of version v1: no cluster: $KUBECONFIG names nowhere" in error
    code, _, error = verb("taint", "--node", "node-0", SPEC, "--dry-run=client")
    assert (code, error.startswith("kubectl dtaint taint: no cluster: ")) == (2, True)


def test_server_dry_run_is_judged_and_not_kept(verb: VerbRunner) -> None:
    assert verb.output("taint", GPU, SPEC, "--dry-run=server") == f"{GPU} tainted by {FULL_NAME} (server dry run)\n"
    ((_, target, _),) = sent(verb)
    assert (target.endswith("dryRun=All"), verb.server.rules) == (True, {})


def test_rules_are_printed_as_kubectl_prints_objects(verb: VerbRunner) -> None:
    found = json.loads(verb.output("taint", GPU, SPEC, "-o", "json"))
    assert (found["kind"], found["metadata"]["name"]) == ("DeviceTaintRule", NAME)
    found = yaml.safe_load(verb.output("taint", GPU, "a:None", "b:None", "-o", "yaml"))
    assert (found["kind"], [each["kind"] for each in found["items"]]) == ("List", ["DeviceTaintRule"] * 2)
    assert verb.output("taint", GPU, SPEC, "--overwrite", "-o", "name") == f"{FULL_NAME}\n"


# --- mistakes -----------------------------------------------------------------------------------


def test_without_permission_kubectls_words_are_used(verb: VerbRunner) -> None:
    verb.server.forbidden.add(RULES)
    assert verb("taint", GPU, SPEC) == (1, "", "Error from server (Forbidden): devicetaintrules is forbidden\n")


def test_a_refusal_cannot_steer_the_terminal(verb: VerbRunner) -> None:
    verb.server.refusals = [status(403, "Forbidden", "no:\n\x1b[2J is not for you")]
    assert verb("taint", GPU, SPEC)[2] == "Error from server (Forbidden): no:\n\\x1b[2J is not for you\n"


@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
def test_rule_that_is_being_deleted_is_not_taken_for_one_that_stays(verb: VerbRunner, flags: tuple[str, ...]) -> None:
    """The device is open once its finalizers are gone."""
    verb.output("taint", GPU, SPEC)
    [rule] = verb.server.rules.values()
    rule["metadata"] |= {"deletionTimestamp": "2026-06-01T11:00:00Z", "finalizers": ["example.com/audit"]}
    sent(verb)
    error = f"error: {GPU} has {ECC} by rule {NAME}, which is being deleted\n"
    assert verb("taint", GPU, SPEC, *flags) == (1, "", error)
    assert sent(verb) == []


# --- no answer ----------------------------------------------------------------------------------


def test_rules_written_before_the_server_was_gone_are_named(verb: VerbRunner) -> None:
    """Of the last one it is not known."""
    verb.server.lasts = 3
    code, output, error = verb("taint", "--node", "node-0", "--node", "node-1", SPEC)
    (name,) = verb.server.rules
    first, second = error.splitlines()
    assert (code, output, name.partition("-ecc")[0]) == (2, "", "node-0")
    assert re.search(r"it is not known whether rule node-1-ecc-noschedule-\w+ was written$", first)
    assert second == f"gpu.example.com/node-0 tainted by devicetaintrule.resource.k8s.io/{name}"


def test_nothing_is_said_to_be_written_before_the_first_write(verb: VerbRunner) -> None:
    for lasts, words in ((1, []), (0, ["--dry-run=server"])):
        verb.server.lasts = lasts
        code, _, error = verb("taint", "--node", "node-0", "--node", "node-1", SPEC, *words)
        assert (code, "not known" in error, error.count("\n"), verb.server.rules) == (2, False, 1, {})


def test_device_is_tainted_though_another_rule_of_that_taint_is_being_deleted(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("by-hand", deletionTimestamp="2026-06-01T11:00:00Z", finalizers=["example.com/audit"]))
    assert verb.output("taint", GPU, SPEC) == f"{GPU} tainted by {FULL_NAME}\n"
