"""`test`: cases about rules that the policy softens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.commands.impact_suites import DANA, OPERATOR, before, case, everywhere, make_suite, on, policy
from webhook.commands.shared.main import main_of
from webhook.commands.test import command as suite

SOFT = {"requesters": {"serviceAccounts": ["health/operator"]}, "action": "soften", "pods": 2}
LIMITS = [SOFT, {"pods": 2}]
ALWAYS = [{**SOFT, "soften": "always"}, {"pods": 2}]


def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, *cases: Any, limits: Any) -> Any:
    monkeypatch.chdir(tmp_path)
    document = make_suite(*cases, policy=policy(limits=limits))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    main_of(suite, ["-o", "json", "s.yaml"])
    values = json.loads(capsys.readouterr().out)
    assert values["faults"] == []
    return values["cases"]


def soft(value: Any, decision: str, requester: Any = OPERATOR, **fields: Any) -> dict[str, Any]:
    return case(value, decision, requester, **fields)


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        pytest.param(soft(everywhere(), "warned", softened=True, reasons=["limit:pods"]), LIMITS, id="over"),
        pytest.param(soft(on(0), "allowed", softened=False, reasons=[]), LIMITS, id="within"),
        pytest.param(soft(on(0), "warned", softened=True, reasons=[], message="every such rule"), ALWAYS, id="always"),
        pytest.param(soft(everywhere(), "denied", DANA, softened=False), ALWAYS, id="others"),
        pytest.param(
            soft(
                on(2),
                "warned",
                softened=True,
                reasons=["window:pods"],
                before=[before(20, on(0)), before(10, on(1))],
            ),
            LIMITS,
            id="with others",
        ),
    ],
)
def test_suite_says_what_is_softened(
    asked: Any, limits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = results(tmp_path, monkeypatch, capsys, asked, limits=limits)
    assert found["mismatches"] == []
    wrong = {**asked, "expect": {**asked["expect"], "softened": not asked["expect"]["softened"]}}
    (found,) = results(tmp_path, monkeypatch, capsys, wrong, limits=limits)
    (mismatch,) = found["mismatches"]
    expected, got = str(wrong["expect"]["softened"]).lower(), str(asked["expect"]["softened"]).lower()
    assert mismatch == {"about": "softened", "expected": expected, "got": got}


def test_softening_needs_an_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    document = make_suite(soft(on(0), "allowed", softened=False), policy=policy(limits=LIMITS))
    del document["inventory"]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    assert main_of(suite, ["s.yaml"]) == 2
    assert "cases[0].expect.softened: Forbidden: needs an inventory in the suite" in capsys.readouterr().out
