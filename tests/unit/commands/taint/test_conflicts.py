"""Rules that change while a verb changes them: another status is no reason to refuse, another taint is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.commands.rule_server import ECC, GROUP, SERVED, VerbRunner, rule_on, status

POOL = "gpu.example.com/node-0"
WORDS = ("taint", POOL, "gpu.example.com/node-1", "--all", f"{ECC}=x:NoSchedule", "--overwrite")
CHANGED = status(409, "Conflict", "the object has been modified")


@pytest.fixture
def changes(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any] | None]:
    """What becomes of rule r1 right before each write of it; None leaves it alone."""
    left: list[dict[str, Any] | None] = []
    write = verb.server.write

    def changed(method: str, target: str, body: bytes) -> tuple[int, Any]:
        if method == "PUT" and "/r1?" in target and left and (change := left.pop(0)) is not None:
            verb.server.rules["r1"].update(change)
            return CHANGED
        return write(method, target, body)

    monkeypatch.setattr(verb.server, "write", changed)
    pools = [{"driver": "gpu.example.com", "pool": f"node-{number}"} for number in range(2)]
    verb.server.keep(*[rule_on(f"r{number}", selector=pool) for number, pool in enumerate(pools)])
    return left


def newer(version: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": rule_on("r1", **meta)["metadata"] | {"resourceVersion": version}}


def test_rules_are_overwritten_though_the_worker_writes_their_status_meanwhile(
    verb: VerbRunner, changes: list[dict[str, Any] | None]
) -> None:
    changes += [newer("6"), None, newer("7"), newer("8")]
    output = verb.output(*WORDS)
    assert [line.split()[1] for line in output.splitlines()] == ["modified", "modified"]
    assert {name: each["spec"]["taint"]["value"] for name, each in verb.server.rules.items()} == {"r0": "x", "r1": "x"}
    assert verb.server.rules["r1"]["metadata"]["resourceVersion"] == "8"


def test_rule_that_keeps_changing_is_refused_in_the_end(verb: VerbRunner, changes: list[dict[str, Any] | None]) -> None:
    changes += [newer(str(number)) for number in range(6, 11)]
    error = "Error from server (Conflict): the object has been modified\nNo rule was written.\n"
    assert verb(*WORDS) == (1, "", error)
    assert changes == []


def test_rule_that_a_controller_took_over_meanwhile_is_left_alone(
    verb: VerbRunner, changes: list[dict[str, Any] | None]
) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "fleet", "uid": "u", "controller": True}
    changes.append(newer("6", ownerReferences=[owner]))
    assert verb(*WORDS) == (1, "", "Error from server (Conflict): the object has been modified\nNo rule was written.\n")


@pytest.mark.parametrize(
    ("conflicts", "code", "said"), [(4, 0, "dry run: accepted as it is"), (5, 1, "dry run: refused: PUT ")]
)
def test_preview_asks_again_if_the_status_of_the_rule_changes_meanwhile(
    conflicts: int, code: int, said: str, verb: VerbRunner, alone: Path
) -> None:
    server = verb.server
    server.objects[f"{GROUP}/v1"] = {"resources": [{"name": name} for name in (*SERVED, "deviceclasses")]}
    server.collections |= {f"{GROUP}/v1/deviceclasses": [], "/api/v1/namespaces": []}
    rule = rule_on("firmware", selector={"driver": "gpu.example.com", "pool": "node-0"})
    server.keep(rule)
    (alone / "rule.yaml").write_text(yaml.safe_dump(rule))
    server.refusals = [CHANGED] * conflicts
    found, output, _ = verb("preview", "rule.yaml")
    assert (found, output.splitlines()[-1][: len(said)]) == (code, said)
