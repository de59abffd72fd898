"""`status` of a real cluster, beside a worker at work: what it computes agrees with what the worker says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.draining import draining
from tests.apiserver.evicting import GENTLE
from tests.controlplane import versions
from tests.controlplane.plane import ControlPlane
from webhook.commands.shared.main import main_of
from webhook.commands.status import command as status


def test_status_agrees_with_the_worker(plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if versions.minor(plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    policy = tmp_path / "policy.yaml"
    policy.write_text(GENTLE)

    def asked(rule: str) -> Any:
        words = [rule, "--kubeconfig", str(plane.kubeconfig), "--policy", str(policy), "-o", "json"]
        code = main_of(status, words)
        said = capsys.readouterr()
        assert (code, said.err) == (0, "")
        return json.loads(said.out)

    with draining(plane) as (_, ward, rule):
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
