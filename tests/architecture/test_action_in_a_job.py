"""The GitHub action beside other steps of a job: it leaves no file behind that is not of this run."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.test_action import ActionRunner
from tests.unit.commands.check_runner import RULE


def test_only_a_file_that_was_written_becomes_the_output(tmp_path: Path) -> None:
    """A later step would fail to upload it, or upload that of an earlier use."""
    (tmp_path / "work").mkdir()
    runner = ActionRunner(tmp_path, tmp_path / "work")
    (runner.work / "rule.yaml").write_text(RULE)
    assert runner.run("check manifests").returncode == 0
    assert runner.said("GITHUB_OUTPUT") == f"sarif={runner.temp}/device-taints.sarif\n"
    summary = runner.said("GITHUB_STEP_SUMMARY")
    assert runner.run("check manifests", args="--no-such-flag").returncode == 2
    assert runner.said("GITHUB_OUTPUT").count("\n") == 1
    assert (runner.said("GITHUB_STEP_SUMMARY"), summary != "") == (summary, True)
