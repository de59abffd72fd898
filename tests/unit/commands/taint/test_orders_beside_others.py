"""Several taints in one command: each has a rule of its own."""

from __future__ import annotations

import pytest

from tests.unit.commands.rule_server import ECC, VerbRunner, rule_on
from webhook.commands.shared.words import DeviceAddress, TaintSpec, WantedRule

GPU = "gpu.example.com/node-0/gpu-0"
SOFTENED = {"devicetaint.io/evict": "true", "devicetaint.io/softened-from": "NoExecute"}


@pytest.mark.parametrize("effects", [("NoSchedule", "NoExecute"), ("NoExecute", "NoSchedule")])
def test_softened_rule_serves_only_the_taint_that_was_asked_for(effects: tuple[str, ...], verb: VerbRunner) -> None:
    address = DeviceAddress(*GPU.split("/"))
    names = {effect: WantedRule(address, TaintSpec(ECC, "", effect)).name for effect in effects}
    verb.server.keep(rule_on(names["NoExecute"], annotations=SOFTENED))
    output = verb.output("taint", GPU, *[f"{ECC}:{effect}" for effect in effects], "--overwrite")
    assert {line.split()[1] for line in output.splitlines()} == {"modified", "tainted"}
    found = {name: rule["spec"]["taint"]["effect"] for name, rule in verb.server.rules.items()}
    assert found == {name: effect for effect, name in names.items()}
