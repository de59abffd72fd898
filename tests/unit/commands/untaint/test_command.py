"""`untaint`: which rules it deletes, and what it says of taints that it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_device, make_meta, make_slice, make_taint
from tests.unit.commands.api_server import bare
from tests.unit.commands.rule_server import ECC, GROUP, RULES, VerbRunner, rule_on, status

GPU = "gpu.example.com/node-0/gpu-0"
POOL = "gpu.example.com/node-0"
ON_POOL = {"driver": "gpu.example.com", "pool": "node-0"}
SLICES = f"{GROUP}/v1/resourceslices"


def owner(kind: str, name: str, api_version: str) -> list[dict[str, Any]]:
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": True}]


@pytest.mark.parametrize("words", [[f"{ECC}-"], [ECC], [f"{ECC}:NoSchedule-"], [f"{ECC}:NoSchedule"]])
def test_rule_of_a_device_is_deleted_if_it_has_not_changed(words: list[str], verb: VerbRunner) -> None:
    verb.server.keep(
        rule_on("firmware"),
        rule_on("other-key", key="example.com/other"),
        rule_on("other-device", selector={**ON_POOL, "device": "gpu-1"}),
    )
    output = verb.output("untaint", GPU, *words)
    assert output == f"{GPU} untainted: devicetaintrule.resource.k8s.io/firmware deleted\n"
    ((method, target, body),) = verb.server.sent
    assert (method, target) == ("DELETE", f"{RULES}/firmware")
    assert body["preconditions"] == {"uid": "uid-of-firmware", "resourceVersion": "5"}
    assert set(verb.server.rules) == {"other-key", "other-device"}


def test_key_without_a_minus_may_be_one_that_no_device_has_as_its_name(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware", key="ECC_errors"))
    assert verb.output("untaint", GPU, "ECC_errors").endswith("/firmware deleted\n")


def test_every_effect_of_the_key_goes_unless_one_is_named(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("a"), rule_on("b", effect="NoExecute"))
    assert verb.output("untaint", GPU, f"{ECC}:NoExecute-", "-o", "name") == "devicetaintrule.resource.k8s.io/b\n"
    verb.server.keep(rule_on("a"), rule_on("b", effect="NoExecute"))
    assert len(verb.output("untaint", GPU, f"{ECC}-").splitlines()) == 2


def test_devices_of_a_node(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware", selector={"driver": "gpu.example.com", "pool": "node-1"}))
    assert verb.output("untaint", "--node", "node-1", ECC).startswith("gpu.example.com/node-1 untainted: ")


@pytest.mark.parametrize(("flag", "suffix", "sent"), [("client", "dry run", 0), ("server", "server dry run", 1)])
def test_dry_run_deletes_nothing(flag: str, suffix: str, sent: int, verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    output = verb.output("untaint", GPU, ECC, f"--dry-run={flag}")
    assert output.endswith(f"/firmware deleted ({suffix})\n")
    assert (len(verb.server.sent), set(verb.server.rules)) == (sent, {"firmware"})


# --- what stays ---------------------------------------------------------------------------------


def refused(verb: VerbRunner, *words: str) -> list[str]:
    code, output, error = verb("untaint", *words)
    assert (code, output, verb.server.sent) == (1, "", [])
    return error.splitlines()


def test_taint_that_is_not_there_is_an_error_as_in_kubectl(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    assert refused(verb, GPU, "example.com/x-") == [f'error: taint "example.com/x" not found on {GPU}']
    text = f'error: taint "{ECC}:NoExecute" not found on {GPU}'
    assert refused(verb, GPU, f"{ECC}:NoExecute-") == [text]


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        (
            {"ownerReferences": owner("ResourceSlicePatch", "recall", "devicetaint.io/v1alpha1")},
            "rule r belongs to ResourceSlicePatch recall: change or delete that",
        ),
        (
            {"ownerReferences": owner("DeviceTaintRule", "gpu", "resource.k8s.io/v1")},
            "rule r belongs to rule gpu (devicetaint.io/scope: hardware): untaint that one",
        ),
        (
            {"ownerReferences": owner("Health", "probe\n\x1b[32m", "example.com/v1")},
            "rule r is controlled by probe\\n\\x1b[32m (u): change that",
        ),
        (
            {"labels": {"devicetaint.io/reaction": "true"}},
            "rule r is a reaction of the policy to another taint of the device: it goes with that taint",
        ),
    ],
)
def test_rule_of_a_controller_stays_with_a_reason(meta: dict[str, Any], why: str, verb: VerbRunner) -> None:
    verb.server.keep(rule_on("r", **meta))
    assert refused(verb, GPU, ECC) == [f'error: taint "{ECC}" not found on {GPU}', why]


@pytest.mark.parametrize(
    ("selector", "where", "why"),
    [
        (ON_POOL, GPU, "rule r also taints other devices, driver gpu.example.com, pool node-0: untaint all of these"),
        ({"driver": "nic.example.com"}, GPU, None),
        (
            {**ON_POOL, "device": "gpu-0"},
            POOL,
            "rule r taints only driver gpu.example.com, pool node-0, device gpu-0: untaint that",
        ),
        ({**ON_POOL, "device": "gpu-0"}, "gpu.example.com/node-1", None),
        ({}, GPU, "rule r taints every device of every driver: kubectl delete devicetaintrule r"),
        (None, GPU, "rule r taints every device of every driver: kubectl delete devicetaintrule r"),
        (
            {"driver": "gpu.example.com", "deviceClassName": "big"},
            GPU,
            "rule r also taints other devices, driver gpu.example.com, class big: untaint all of these",
        ),
    ],
)
def test_rule_for_other_devices_stays_with_a_hint(selector: Any, where: str, why: str | None, verb: VerbRunner) -> None:
    verb.server.keep(rule_on("r", selector=selector))
    assert refused(verb, where, ECC)[1:] == ([] if why is None else [why])


def tainted_slice() -> Any:
    devices = [make_device("gpu-0", taints=[make_taint(ECC)]), make_device("gpu-1")]
    return bare(make_slice(devices, meta=make_meta("node-0-gpu")))


def test_taint_of_a_driver_stays_with_the_slice_that_has_it(verb: VerbRunner) -> None:
    verb.server.collections[SLICES] = [tainted_slice()]
    (_, why) = refused(verb, GPU, ECC)
    assert why.startswith("driver gpu.example.com publishes that taint of gpu-0 in ResourceSlice node-0-gpu, and would")
    assert "only the driver can take it back" in why
    assert refused(verb, "gpu.example.com/node-0/gpu-1", ECC)[1:] == []


def test_what_still_taints_the_device_afterwards_is_a_note(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("mine"), rule_on("wide", selector=ON_POOL))
    verb.server.collections[SLICES] = [tainted_slice()]
    code, output, error = verb("untaint", GPU, ECC)
    assert (code, output.count("\n")) == (0, 1)
    first, second = error.splitlines()
    assert first.startswith("note: rule wide also taints other devices")
    assert second.startswith("note: driver gpu.example.com publishes that taint of gpu-0")


def test_slices_are_not_needed(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    verb.server.forbidden.add(SLICES)
    verb.output("untaint", GPU, ECC)


def test_nothing_is_deleted_if_one_of_several_is_not_found(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    assert len(refused(verb, GPU, f"{ECC}-", "example.com/x-")) == 1
    assert set(verb.server.rules) == {"firmware"}


def test_nothing_is_deleted_if_the_server_refuses_one_of_several(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("a", key="a"), rule_on("b", key="b"))
    verb.server.refusals = [(200, {"kind": "Status"}), status(403, "Forbidden", "not yours")]
    code, output, _ = verb("untaint", GPU, "a-", "b-")
    assert (code, output, set(verb.server.rules)) == (1, "", {"a", "b"})


def test_what_is_deleted_before_a_late_refusal_is_said(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("a", key="a"), rule_on("b", key="b"))
    original = verb.server.write

    def write(method: str, target: str, body: bytes) -> tuple[int, Any]:
        if "a" not in verb.server.rules:
            return status(403, "Forbidden", "no")
        return original(method, target, body)

    verb.server.write = write  # type: ignore[method-assign]
    code, output, error = verb("untaint", GPU, "a-", "b-")
    assert (code, output.count("deleted"), set(verb.server.rules)) == (1, 1, {"b"})
    assert (
        error.splitlines()[1]
        == "note: 1 rule of 2 deleted, as printed; to go on, name only devices and taints that are left"
    )


def test_node_whose_driver_publishes_nothing_any_more_is_opened(verb: VerbRunner) -> None:
    gone = {"driver": "nic.example.com", "pool": "node-1"}
    verb.server.keep(rule_on("gone", selector=gone), rule_on("other", selector={**gone, "pool": "node-0"}))
    verb.server.collections[SLICES] = []
    verb.output("untaint", "nodes", "node-1", ECC)
    assert set(verb.server.rules) == {"other"}
    assert verb("untaint", "--node", "node-1", ECC)[::2] == (1, "error: no driver publishes devices of nodes node-1\n")


def test_pool_of_a_node_that_was_not_tainted_does_not_stand_in_the_way(verb: VerbRunner) -> None:
    other = make_slice(driver="nic.example.com", pool="node-1", node_name="node-1", meta=make_meta("nic"))
    verb.server.collections[SLICES].append(bare(other))
    verb.server.keep(rule_on("firmware", selector={"driver": "gpu.example.com", "pool": "node-1"}))
    assert verb("untaint", "--node=node-1", ECC, "--dry-run=client")[0] == 0
    assert verb("untaint", "--node=node-1", f"{ECC}-", "b-")[0] == 1
    assert set(verb.server.rules) == {"firmware"}


# --- while it is deleted ------------------------------------------------------------------------


def test_rule_whose_status_was_written_meanwhile_is_deleted_all_the_same(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    verb.server.refusals = [status(409, "Conflict", "it changed")]
    verb.output("untaint", GPU, ECC)
    assert verb.server.rules == {}


def test_rule_that_was_changed_meanwhile_stays(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))

    def change(method: str, target: str, body: bytes) -> tuple[int, Any]:
        del method, target, body
        verb.server.keep(rule_on("firmware", selector=ON_POOL))
        return status(409, "Conflict", "it changed")

    verb.server.write = change  # type: ignore[method-assign]
    code, output, error = verb("untaint", GPU, ECC)
    assert (code, output, error) == (1, "", "error: rule firmware was changed meanwhile: look at it again\n")


def test_rule_that_keeps_changing_is_left(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    verb.server.refusals = [status(409, "Conflict", "it changed")] * 5
    assert verb("untaint", GPU, ECC) == (1, "", "error: rule firmware keeps changing: try again\n")


def test_rule_that_is_gone_meanwhile_is_gone(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    verb.server.refusals = [status(404, "NotFound", "gone")]
    assert verb.output("untaint", GPU, ECC).endswith("/firmware deleted\n")


def test_rule_that_is_gone_after_a_conflict_is_gone(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))

    def vanish(method: str, target: str, body: bytes) -> tuple[int, Any]:
        del method, target, body
        verb.server.keep()
        return status(409, "Conflict", "it changed")

    verb.server.write = vanish  # type: ignore[method-assign]
    assert verb.output("untaint", GPU, ECC).endswith("/firmware deleted\n")


def test_rule_with_a_finalizer_is_a_note(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    verb.server.refusals = [(200, {"kind": "DeviceTaintRule", "metadata": {"finalizers": ["example.com/f"]}})]
    code, _, error = verb("untaint", GPU, ECC)
    assert (code, error) == (0, "note: rule firmware is there until its finalizers are gone: example.com/f\n")


def test_refusal_is_shown_as_kubectl_shows_it(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("firmware"))
    verb.server.refusals = [status(403, "Forbidden", "dana cannot delete")]
    assert verb("untaint", GPU, ECC) == (1, "", "Error from server (Forbidden): dana cannot delete\n")


@pytest.mark.parametrize(("path", "kind"), [(f"{GROUP}/v1/resourceclaims", "resourceclaims"), ("/api/v1/pods", "pods")])
def test_what_may_not_be_read_is_said_where_the_devices_of_a_node_are_looked_for(
    path: str, kind: str, verb: VerbRunner
) -> None:
    verb.server.keep(rule_on("firmware", selector={"driver": "gpu.example.com", "pool": "node-1"}))
    verb.server.forbidden.add(path)
    code, output, error = verb("untaint", "--node", "node-1", ECC)
    assert (code, output.count("deleted"), error.count("\n")) == (0, 1, 1)
    assert error.startswith(f"Warning: no permission to read {kind}, so ")


def test_rules_deleted_before_the_server_was_gone_are_named(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("a", key="a"), rule_on("b", key="b"))
    verb.server.lasts = 3
    code, output, error = verb("untaint", GPU, "a-", "b-")
    assert (code, output, set(verb.server.rules)) == (2, "", {"b"})
    first, second = error.splitlines()
    assert first.endswith("; it is not known whether rule b was deleted")
    assert second == "devicetaintrule.resource.k8s.io/a deleted"
