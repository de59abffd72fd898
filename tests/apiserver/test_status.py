"""`status` of a real cluster, beside a worker at work: what it computes agrees with what the worker says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.evicting import GENTLE, EvictProcess, Ward
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from webhook.api.pods import HOLD
from webhook.commands.status import command as status

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controlplane.plane import ControlPlane

pytestmark = pytest.mark.apiserver

AN_HOUR = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
LABELS = {"app": "guarded"}


def guard(plane: ControlPlane, ward: Ward) -> None:
    """A budget that allows nothing; here no controller computes its status."""
    budgets = path("policy/v1", "poddisruptionbudgets", namespace=ward.name)
    budget = {"metadata": {"name": "guard"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}}}
    generation = plane.client.create(budgets, budget).object["metadata"]["generation"]
    figures = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    _ = plane.client.patch(f"{budgets}/guard/status", {"status": {"observedGeneration": generation, **figures}}).object


def test_status_agrees_with_the_worker(plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if versions.minor(plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    policy = tmp_path / "policy.yaml"
    policy.write_text(GENTLE)

    def asked(rule: str) -> Any:
        words = [rule, "--kubeconfig", str(plane.kubeconfig), "--policy", str(policy), "-o", "json"]
        code = status.run(words)
        said = capsys.readouterr()
        assert (code, said.err) == (0, "")
        return json.loads(said.out)

    with Ward(plane.client) as ward, EvictProcess(plane, "replacement", policy=GENTLE) as process:
        process.wait_working()
        ward.admit("free")
        ward.admit("held", annotations={HOLD: "until noon"})
        ward.admit("guarded", labels=LABELS)
        ward.admit("later", AN_HOUR)
        guard(plane, ward)
        rule = ward.taint()
        said = "1 pod evicted; 3 pods pending in 1 namespace; 1 blocked; 1 held; next due "
        wait_until(lambda: ward.condition(rule).get("message", "").startswith(said), said, seconds=40)
        found = asked(rule)
        (line,) = found["taints"]
        assert (found["worker"]["mode"], found["missing"], found["notes"]) == ("replacement", [], [])
        assert (line["computed"]["pending"], line["computed"]["total"], line["reported"]["evicted"]) == (3, 4, 1)
        assert {each["name"]: (each["state"], each["waitsFor"]["kind"]) for each in found["pods"]} == {
            "held": ("held", "hold"),
            "guarded": ("blocked", "disruptionBudget"),
            "later": ("notDue", "time"),
        }
        ours = next(each for each in line["reported"]["conditions"] if each["type"] == "devicetaint.io/Eviction")
        assert (ours["message"], ours["current"]) == (ward.condition(rule)["message"], True)
        assert ours["message"].endswith(f"next due {line['computed']['nextDue']}")
