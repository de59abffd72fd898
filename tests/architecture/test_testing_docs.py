"""docs/testing-policies.md: its suite runs on its policy and says what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from webhook.commands.audit import command as audit
from webhook.commands.check import command as check
from webhook.commands.test import command as suite
from webhook.policy.suites import FIELDS

if TYPE_CHECKING:
    from types import ModuleType

PAGE = (Path(__file__).parents[2] / "docs" / "testing-policies.md").read_text()


EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("first", "suite_name", "policy_name"),
    [(0, "policy_test.yaml", "policy.yaml"), (2, "impact_test.yaml", "impact.yaml")],
)
def test_the_suites_of_the_page_say_what_the_page_says(
    first: int,
    suite_name: str,
    policy_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(EXAMPLES) == 4
    suite_text, policy = EXAMPLES[first : first + 2]
    (tmp_path / suite_name).write_text(suite_text)
    (tmp_path / policy_name).write_text(policy)
    monkeypatch.chdir(tmp_path)
    assert suite.run([suite_name]) == 0
    output = capsys.readouterr().out
    assert output in PAGE
    assert output.endswith("0 failed\n")


def test_the_page_has_every_field_of_a_case() -> None:
    named = set(re.findall(r"`(\w+)", PAGE)) | set(re.findall(r"^ *-? *(\w+):", PAGE, re.MULTILINE))
    assert FIELDS["case"] | FIELDS["expect"] | FIELDS["requester"] <= named | {"operation"}
    assert FIELDS["inventory"] | FIELDS["step"] | FIELDS["impact"] <= named | {"operation"}


@pytest.mark.parametrize(("name", "verb"), [("check", check), ("test", suite), ("audit", audit)])
def test_flags_of_the_page_are_flags(name: str, verb: ModuleType) -> None:
    """Each flag in a line that names the command is one of that command's."""
    parser = verb.command_line()
    known = {flag for action in parser._actions for flag in action.option_strings}
    used = {
        flag
        for line in PAGE.splitlines()
        if line.startswith(f"device-taint-webhook {name} ")
        for flag in re.findall(r" (--?[a-z][a-z-]*)", line.partition("#")[0])
    }
    assert used <= known
