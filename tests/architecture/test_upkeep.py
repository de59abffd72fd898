"""The files by which bots and a schedule keep dependencies up to date: valid, and about files that are there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest
import yaml
from check_jsonschema import main as check_jsonschema  # type: ignore[import-untyped]  # it has no types
from click.testing import CliRunner, Result

ROOT: Final = Path(__file__).parents[2]
DEPENDABOT: Final = ROOT / ".github" / "dependabot.yml"
RENOVATE: Final = ROOT / "renovate.json"
AUDIT: Final = ROOT / ".github" / "workflows" / "audit.yml"
RELEASE: Final = ROOT / ".github" / "workflows" / "release.yml"
PINNED: Final = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
LOCKS: Final = ("requirements.lock", "requirements-dev.lock")


def _check(schema: str, path: Path) -> Result:
    """By the schemas that the package has, without a network."""
    return CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{schema}", str(path)])


@pytest.mark.parametrize(
    ("schema", "path", "right", "wrong"),
    [
        ("dependabot", DEPENDABOT, "schedule:", "shedule:"),
        ("renovate", RENOVATE, '"dependencyDashboard": true', '"dependencyDashboard": "yes"'),
        ("github-workflows", AUDIT, "runs-on:", "runs:"),
        ("github-workflows", RELEASE, "runs-on:", "runs:"),
    ],
)
def test_each_file_is_valid_by_its_schema(schema: str, path: Path, right: str, wrong: str, tmp_path: Path) -> None:
    done = _check(schema, path)
    assert done.exit_code == 0, done.output
    assert right in path.read_text()
    (tmp_path / path.name).write_text(path.read_text().replace(right, wrong))
    refused = _check(schema, tmp_path / path.name)
    assert refused.exit_code == 1, refused.exception
    assert "Schema validation errors were encountered" in refused.output


def test_dependabot_looks_at_every_go_module_and_at_folders_that_are_there() -> None:
    updates = yaml.safe_load(DEPENDABOT.read_text())["updates"]
    by_ecosystem = {each["package-ecosystem"]: each for each in updates}
    modules = {
        f"/{path.parent.relative_to(ROOT)}"
        for folder in ("tests", "benchmarks")
        for path in (ROOT / folder).rglob("go.mod")
    }
    assert len(modules) > 5
    patterns = by_ecosystem["gomod"]["directories"]
    assert [each for each in modules if not any(fnmatch(each, pattern) for pattern in patterns)] == []
    assert {each["directory"] for each in updates if "directory" in each} == {"/"}
    for ecosystem, file in (("pip", "pyproject.toml"), ("docker", "Dockerfile"), ("github-actions", AUDIT)):
        assert ecosystem in by_ecosystem
        assert (ROOT / file).is_file()


def test_renovate_keeps_both_lock_files() -> None:
    (pattern,) = json.loads(RENOVATE.read_text())["pip_requirements"]["managerFilePatterns"]
    assert (pattern[0], pattern[-1]) == ("/", "/")
    for name in LOCKS:
        assert re.search(pattern[1:-1], name)
        assert (ROOT / name).is_file()


def test_actions_are_pinned_by_digest_and_name_their_release() -> None:
    """A tag can be moved to other code; the comment tells people, Renovate and Dependabot which release it is."""
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
    texts = {each.name: each.read_text() for each in [*workflows, ROOT / "action.yml", ROOT / "docs" / "ci.md"]}
    used = {
        (name, each) for name, text in texts.items() for each in re.findall(r"^[ -]*uses: *(.+)$", text, re.MULTILINE)
    }
    others = {(name, each) for name, each in used if each != "OWNER/REPOSITORY@REVISION"}
    assert {name for name, _ in others} >= {"audit.yml", "ci.md"}
    assert [pair for pair in others if not PINNED.fullmatch(pair[1])] == []
    actions = [each.partition("@")[0] for _, each in others]
    assert len({each for _, each in others}) == len(set(actions)), "one action, one release"


def test_each_job_of_a_release_may_do_what_it_has_to_and_no_more() -> None:
    """And no script has text of GitHub's in it, where a name could become a command."""
    workflow = yaml.safe_load(RELEASE.read_text())
    assert workflow["permissions"] == {}
    assert {name: job["permissions"] for name, job in workflow["jobs"].items()} == {
        "build": {"contents": "read"},
        "publish": {"contents": "read", "packages": "write", "id-token": "write"},
        "release": {"contents": "write"},
    }
    scripts = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert [script for script in scripts if "${{" in script] == []
    targets = set(re.findall(r"make (\w+)", "\n".join(scripts)))
    assert targets == {"release", "publish"}
    assert all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in targets)


def test_the_schedule_runs_a_target_that_is_there() -> None:
    steps = yaml.safe_load(AUDIT.read_text())["jobs"]["dependencies"]["steps"]
    (command,) = [each["run"] for each in steps if "run" in each]
    target = command.removeprefix("make ")
    recipe = (ROOT / "Makefile").read_text().partition(f"\n{target}:")[2].partition("\n\n")[0]
    for name in LOCKS:
        assert f"--requirement {name}" in recipe


def test_the_audit_reads_both_lock_files_with_their_hashes() -> None:
    """A dry run, which asks the index nothing."""
    command = [str(Path(sys.executable).with_name("pip-audit")), "--dry-run", "--disable-pip", "--require-hashes"]
    named = [word for name in LOCKS for word in ("--requirement", name)]
    done = subprocess.run([*command, *named], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    pins = sum(len(re.findall(r"^[a-z0-9][\w.-]*==", (ROOT / name).read_text(), re.MULTILINE)) for name in LOCKS)
    found = re.search(r"would have audited (\d+) packages", done.stderr)
    assert done.returncode == 0, done.stderr
    assert found is not None
    assert pins / 2 < int(found[1]) <= pins


def test_long_modules_that_make_check_leaves_out_are_there() -> None:
    """One that was renamed would be played again, and a minute would no longer do."""
    named = [line for line in (ROOT / "tests" / "long.txt").read_text().splitlines() if not line.startswith("#")]
    assert named == sorted(set(named))
    assert [name for name in named if not (ROOT / name).is_file()] == []
