"""What docs/ci.md and the hooks for pre-commit promise holds."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.unit.commands.check_runner import RULE
from webhook import cli
from webhook.files.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / ".pre-commit-hooks.yaml"
PAGE = (ROOT / "docs" / "ci.md").read_text()


def hooks() -> dict[str, Any]:
    return {hook["id"]: hook for hook in yaml.safe_load(HOOKS.read_text())}


def snippets() -> Iterator[Any]:
    for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        yield yaml.safe_load(text)


def test_a6_pre_commit_takes_the_hooks() -> None:
    command = [sys.executable, "-m", "pre_commit", "validate-manifest", str(HOOKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a6_one_process_gets_all_files() -> None:
    assert [hook["id"] for hook in hooks().values() if not hook.get("require_serial")] == []


@pytest.mark.parametrize(
    ("files", "code"),
    [
        pytest.param({"Chart.yaml": "apiVersion: v2\nname: x\n", ".github.yaml": "on: push\n"}, 0, id="none of ours"),
        pytest.param({"rule.yaml": RULE, "values.yaml": "a: 1\n"}, 0, id="a good one"),
        pytest.param({"rule.yaml": RULE.replace("NoSchedule", "No")}, 1, id="a bad one"),
    ],
)
def test_a6_the_hook_judges_what_a_commit_has_of_ours(
    files: dict[str, str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    program, *words = shlex.split(hooks()["device-taint-check"]["entry"])
    assert program == "device-taint-webhook"
    assert cli.main([*words, *files]) == code
    assert capsys.readouterr().err == ""


def test_a6_the_page_names_hooks_that_there_are() -> None:
    named = [hook["id"] for each in snippets() if "repos" in each for hook in each["repos"][0]["hooks"]]
    assert sorted(named) == sorted(hooks())


def test_a6_the_page_has_every_format_of_check() -> None:
    table = PAGE.partition("| `-o` | for |")[2].partition("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.count("|") >= 3]
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == set(FORMATS)


def test_a6_commands_of_the_page_can_be_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with a rule in place of its files: 2 would be wrong usage."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "rule.yaml").write_text(RULE)
    policy = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicy"}
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "policy.yaml").write_text(json.dumps(policy))
    lines = [
        line.partition("device-taint-webhook check ")[2].partition(" >")[0]
        for line in PAGE.splitlines()
        if "device-taint-webhook check " in line and not line.rstrip().endswith(" -")
    ]
    assert len(lines) >= 4
    for line in lines:
        assert cli.main(["check", *shlex.split(line)]) == 0, (line, capsys.readouterr().err)
