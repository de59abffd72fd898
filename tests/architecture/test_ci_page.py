"""What docs/ci.md and the hooks for pre-commit promise holds."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.architecture.test_action import ACTION, ActionRunner
from tests.unit.commands.audit_runner import HEADER, NO_BROKEN
from tests.unit.commands.check_runner import RULE
from tests.unit.commands.shared.test_reports import SUITE
from webhook import cli
from webhook.files.report import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
POLICY = {**HEADER, "rules": [NO_BROKEN]}
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


# --- every example, tried -----------------------------------------------------------------------

_INSTALLS = ("pip install ", "apt-get ")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository as the examples have it: manifests, a policy, and its tests."""
    for folder, name, content in (
        ("manifests", "rule.yaml", RULE),
        ("policies", "policy.yaml", json.dumps(POLICY)),
        ("policies", "suite.yaml", json.dumps({**SUITE, "policy": "policy.yaml"}).replace('"allowed"', '"denied"')),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return tmp_path


def scripts(example: Any) -> list[str]:
    """The commands of a pipeline of GitLab or Azure, in their order."""
    if "steps" in example:
        return [step["script"] for step in example["steps"] if "script" in step]
    return [line for job in example.values() if "script" in job for line in job["script"]]


def pipelines() -> list[Any]:
    return [each for each in snippets() if "repos" not in each and not used_action(each)]


def used_action(example: Any) -> dict[str, str]:
    """The inputs that a workflow gives our action; empty if it does not use it."""
    steps = example.get("jobs", {}).get("check", {}).get("steps", [])
    return next((step["with"] for step in steps if step.get("uses", "").startswith("OWNER/")), {})


@pytest.mark.parametrize("example", pipelines(), ids=["GitLab", "Azure"])
def test_scripts_of_a_pipeline_pass_what_is_right_and_leave_the_reports_it_names(
    example: Any, repository: Path
) -> None:
    commands = [each for each in scripts(example) if not each.startswith(_INSTALLS)]
    assert len(scripts(example)) > len(commands) >= 1
    for command in commands:
        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for name in set(re.findall(r"\b[a-z]+\.(?:json|xml)\b", json.dumps(example))):
        text = (repository / name).read_text()
        assert ET.fromstring(text.encode()).get("failures") == "0" if name.endswith("xml") else json.loads(text) == []
    (repository / "manifests" / "rule.yaml").write_text(RULE.replace("NoSchedule", "Never"))
    last = subprocess.run(["bash", "-ec", commands[-1]], capture_output=True, text=True, timeout=120, check=False)
    assert last.returncode == 1


def test_the_workflow_gives_the_action_inputs_with_which_it_passes(repository: Path, tmp_path: Path) -> None:
    (inputs,) = filter(None, map(used_action, snippets()))
    assert set(inputs) <= set(ACTION["inputs"])
    runner = ActionRunner(tmp_path / "runner", repository)
    for step in ("run policy tests", "check manifests"):
        done = runner.run(step, **inputs)
        assert done.returncode == 0, done.stdout + done.stderr
    assert runner.said("GITHUB_STEP_SUMMARY").strip() == "1 file, 1 object: 0 errors, 0 warnings"


@pytest.mark.whole
def test_a6_commands_of_the_page_run(repository: Path) -> None:
    found = re.findall(r"^(?:helm|kubectl)?.*?(device-taint-webhook (?:check|test) .*)$", _COMMANDS, re.MULTILINE)
    assert len(found) >= 6
    for command in found:
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=repository,
            input=RULE,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout + done.stderr)


_COMMANDS = "\n".join(re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


# --- pre-commit ---------------------------------------------------------------------------------


class HookUser:
    """A repository whose pre-commit has our hooks, from a repository with this tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "user"
        self._home = folder / "home"
        tree = folder / "tree"
        shutil.copytree(ROOT / "webhook", tree / "webhook", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
            shutil.copy(ROOT / name, tree)
        self._git(tree, "init", "--quiet")
        self._git(tree, "add", "--all")
        self._git(tree, "commit", "--quiet", "--message=tree")
        (example,) = (each for each in snippets() if "repos" in each)
        example["repos"][0] |= {"repo": str(tree), "rev": self._git(tree, "rev-parse", "HEAD").strip()}
        self.folder.mkdir()
        self._git(self.folder, "init", "--quiet")
        (self.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(example))

    def commit(self, **files: str) -> tuple[int, str]:
        """Has the hooks look at these files, as for a commit: exit code and output."""
        for stem, text in files.items():
            path = self.folder / f"{stem.replace('__', '/')}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self._git(self.folder, "add", "--all")
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--verbose"],
            cwd=self.folder,
            env={**os.environ, **_AUTHOR, "PRE_COMMIT_HOME": str(self._home)},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    @staticmethod
    def _git(folder: Path, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", folder, *words], env={**os.environ, **_AUTHOR}, check=True, capture_output=True, text=True
        )
        return done.stdout


_AUTHOR = {f"GIT_{who}_{what}": "test@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.mark.slow
@pytest.mark.whole
def test_pre_commit_installs_the_hooks_and_runs_them_as_the_page_has_them(tmp_path: Path) -> None:
    """The environment is made once, by pip: some 20 s of processor time."""
    user = HookUser(tmp_path)
    suite = json.dumps({**SUITE, "policy": "policy.yaml"})
    good = suite.replace('"allowed"', '"denied"')
    code, output = user.commit(
        policies__policy=json.dumps(POLICY), policies__suite=good, rule=RULE, workflow="on: push\nx: !reference [a]\n"
    )
    assert code == 0, output
    assert output.count("Passed") == 2
    code, output = user.commit(rule=RULE.replace("NoSchedule", "Never"))
    assert (code, "rule.yaml:10:13: error: spec.taint.effect: Unsupported value" in output) == (1, True), output
    code, output = user.commit(rule=RULE, policies__suite=suite)
    assert (code, "1 passed, 0 failed" in output, "0 passed, 1 failed" in output) == (1, False, True), output
