"""Rules that `taint` wrote and that have ended or were softened since: set again, kept, and taken back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.commands.rule_server import ECC, GROUP, RULES, VerbRunner, rule_on
from webhook.commands.shared.words import DeviceAddress, TaintSpec, WantedRule

GPU = "gpu.example.com/node-0/gpu-0"
ADDRESS = DeviceAddress("gpu.example.com", "node-0", "gpu-0")
DRAIN = "devicetaint.io/drain"
OWN = {"example.com/own": "stays", "devicetaint.io/ticket": "OPS-7"}
EXPIRED = {**OWN, "devicetaint.io/expires-at": "2020-06-01T11:00:00Z"}
RETIRED = ("evict", "softened-from", "evictions-per-second", "not-before", "confirm-impact", "scope")
SOFTENED = {"devicetaint.io/evict": "true", "devicetaint.io/softened-from": "NoExecute"}


def name_of(effect: str, *, key: str = ECC, address: DeviceAddress = ADDRESS) -> str:
    return WantedRule(address, TaintSpec(key, "", effect)).name


def written(verb: VerbRunner) -> list[tuple[str, Any]]:
    found, verb.server.sent = verb.server.sent, []
    return [(method, sent) for method, target, sent in found if "dryRun" not in target]


@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_taint_that_has_ended_is_set_again_by_its_rule(effect: str, flags: tuple[str, ...], verb: VerbRunner) -> None:
    acted = {f"devicetaint.io/{name}": "1" for name in (*RETIRED, "description")}
    meta: dict[str, Any] = {
        "annotations": {**acted, **EXPIRED},
        "labels": {"team": "a"},
        "finalizers": ["example.com/audit"],
    }
    verb.server.keep(rule_on(name_of(effect), effect="None", **meta))
    output = verb.output("taint", GPU, f"{ECC}=double-bit:{effect}", *flags)
    assert output == f"{GPU} modified by devicetaintrule.resource.k8s.io/{name_of(effect)}\n"
    [(method, rule)] = written(verb)
    assert (method, rule["spec"]["taint"]) == ("PUT", {"key": ECC, "value": "double-bit", "effect": effect})
    # What others have set stays; what the ended taint asked for does not act again.
    assert {name: rule["metadata"][name] for name in meta} == {**meta, "annotations": OWN}


def test_taint_that_is_set_again_has_the_flags_of_its_command(verb: VerbRunner) -> None:
    verb.server.keep(rule_on(name_of("NoSchedule"), effect="None", annotations=EXPIRED))
    verb.output("taint", GPU, f"{ECC}:NoSchedule", "--for", "2h", "--evict", "--reason", "again")
    [(_, rule)] = written(verb)
    annotations = rule["metadata"]["annotations"]
    assert annotations.pop("devicetaint.io/expires-at") > EXPIRED["devicetaint.io/expires-at"]
    assert annotations == {**OWN, "devicetaint.io/evict": "true", "devicetaint.io/description": "again"}


def test_rule_that_acts_counts_before_one_that_has_ended(verb: VerbRunner) -> None:
    verb.server.keep(rule_on(name_of("NoSchedule"), effect="None", annotations=EXPIRED), rule_on("z-by-hand"))
    code, _, error = verb("taint", GPU, f"{ECC}:NoSchedule")
    assert (code, "--overwrite is false (rule z-by-hand)" in error, written(verb)) == (1, True, [])


def test_one_rule_that_has_ended_does_not_refuse_the_others_of_a_node(verb: VerbRunner) -> None:
    pools = [DeviceAddress("gpu.example.com", node) for node in ("node-0", "node-1")]
    name = name_of("NoSchedule", address=pools[0])
    selector = {"driver": "gpu.example.com", "pool": "node-0"}
    verb.server.keep(rule_on(name, effect="None", selector=selector, annotations=EXPIRED))
    output = verb.output("taint", "--node=node-0", "--node=node-1", f"{ECC}:NoSchedule")
    assert [line.split()[1] for line in output.splitlines()] == ["modified", "tainted"]
    assert [method for method, _ in written(verb)] == ["PUT", "POST"]


@pytest.mark.parametrize(
    ("words", "evict"), [(("drain", "node-0"), "true"), (("drain", "node-0", "--wait-for-place"), None)]
)
def test_drain_that_has_ended_can_be_made_again(words: tuple[str, ...], evict: str | None, verb: VerbRunner) -> None:
    """Also one that waits for places, whose pods must not go by what the earlier drain asked for."""
    verb.server.collections |= {"/api/v1/namespaces": [], f"{GROUP}/v1/deviceclasses": []}
    verb.server.objects[f"{GROUP}/v1"]["resources"].append({"name": "deviceclasses"})
    pool = DeviceAddress("gpu.example.com", "node-0")
    name, selector = name_of("NoSchedule", key=DRAIN, address=pool), {"driver": "gpu.example.com", "pool": "node-0"}
    annotations = {**EXPIRED, "devicetaint.io/evict": "true"}
    verb.server.keep(rule_on(name, key=DRAIN, effect="None", selector=selector, annotations=annotations))
    output = verb.output(*words, "--dry-run=server")
    assert output.startswith(f"{pool} modified by devicetaintrule.resource.k8s.io/{name} ")
    [(_, target, rule)] = verb.server.sent
    assert (target.partition("?")[0], rule["spec"]["taint"]["effect"]) == (f"{RULES}/{name}", "NoSchedule")
    assert rule["metadata"]["annotations"] == {**OWN, **({"devicetaint.io/evict": evict} if evict else {})}


def test_softened_taint_is_there_already_unless_it_is_overwritten(verb: VerbRunner) -> None:
    expiring = {**OWN, "devicetaint.io/expires-at": "2099-06-01T11:00:00Z"}
    verb.server.keep(rule_on(name_of("NoExecute"), annotations={**expiring, **SOFTENED}))
    text = "already has example.com/ecc taint(s) with same effect(s), softened to NoSchedule, and --overwrite is false"
    error = f"error: {GPU} {text} (rule {name_of('NoExecute')})\n"
    assert verb("taint", GPU, f"{ECC}:NoExecute") == (1, "", error)
    assert verb("taint", GPU, f"{ECC}:NoSchedule")[0] == 1
    assert written(verb) == []
    verb.output("taint", GPU, f"{ECC}:NoExecute", "--overwrite")
    [(method, rule)] = written(verb)
    assert (method, rule["spec"]["taint"]) == ("PUT", {"key": ECC, "effect": "NoExecute"})
    assert rule["metadata"]["annotations"] == expiring


def test_softened_rule_stays_beside_another_that_is_confirmed(verb: VerbRunner) -> None:
    verb.server.keep(rule_on(name_of("NoExecute"), annotations=SOFTENED))
    other = name_of("NoExecute", address=ADDRESS._replace(device="gpu-1"))
    confirm = f"--confirm={other}=v1 devices=1 of=abcdefgh"
    output = verb.output("taint", GPU, "gpu.example.com/node-0/gpu-1", f"{ECC}:NoExecute", confirm)
    kept, written = output.splitlines()
    assert kept.startswith(f"{GPU} already tainted, softened to NoSchedule, by ")
    assert written.split()[1] == "tainted"


@pytest.mark.parametrize(
    "meta",
    [
        {"effect": "NoExecute"},
        {"effect": "None", "key": "example.com/other", "annotations": EXPIRED},
        {"effect": "NoSchedule", "selector": {"driver": "gpu.example.com", "pool": "node-1"}},
        {"effect": "None", "selector": {}, "annotations": EXPIRED},
        {"effect": "None", "annotations": OWN},
        {"effect": "None", "annotations": {"devicetaint.io/expires-at": "soon"}},
        {"effect": "None", "annotations": {"devicetaint.io/expires-at": "2099-06-01T11:00:00Z"}},
    ],
)
@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
def test_rule_that_people_stopped_or_made_another_of_is_left_alone(
    flags: tuple[str, ...], meta: dict[str, Any], verb: VerbRunner
) -> None:
    name = name_of("NoSchedule")
    verb.server.keep(rule_on(name, **meta))
    error = f'Error from server (AlreadyExists): devicetaintrules.resource.k8s.io "{name}" already exists\n'
    assert verb("taint", GPU, f"{ECC}:NoSchedule", *flags) == (1, "", error)


@pytest.mark.parametrize(
    ("effect", "stored"),
    [
        ("NoSchedule", {"effect": "None", "annotations": EXPIRED}),
        ("NoExecute", {"effect": "None", "annotations": EXPIRED}),
        ("NoExecute", {"annotations": SOFTENED}),
    ],
)
def test_untaint_takes_back_what_was_set_though_its_effect_is_another_by_now(
    effect: str, stored: dict[str, Any], verb: VerbRunner
) -> None:
    verb.server.keep(rule_on(name_of(effect), **stored), rule_on("by-hand", effect="None"))
    output = verb.output("untaint", GPU, f"{ECC}:{effect}-")
    assert output == f"{GPU} untainted: devicetaintrule.resource.k8s.io/{name_of(effect)} deleted\n"
    assert list(verb.server.rules) == ["by-hand"]


def test_untaint_leaves_a_rule_whose_effect_was_raised_by_hand(verb: VerbRunner) -> None:
    verb.server.keep(rule_on(name_of("NoSchedule"), effect="NoExecute"))
    error = f'error: taint "{ECC}:NoSchedule" not found on {GPU}\n'
    assert verb("untaint", GPU, f"{ECC}:NoSchedule-") == (1, "", error)
