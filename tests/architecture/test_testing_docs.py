"""docs/policy.md, tenants.md and testing-policies.md: their commands print what the pages say, on the pages' files.

tests/apiserver/policy/test_policy_pages.py runs those that need a cluster.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from webhook import cli
from webhook.policy.suites import FIELDS

DOCS = Path(__file__).parents[2] / "docs"
POLICY, TENANTS, TESTING = ((DOCS / f"{name}.md").read_text() for name in ("policy", "tenants", "testing-policies"))
NEEDS_CLUSTER = re.compile(r" live | --policy-configmap |^audit(?!.* --dump )")


def blocks(page: str, language: str = "") -> list[str]:
    """The fenced blocks of a page; those without a language are what is typed, or printed."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [text for each, text in found if each == language]


def commands(page: str) -> dict[str, str]:
    """The commands of ours on a page, each with the output that the page shows; empty if it shows none."""
    shown = re.findall(r"^\$ device-taint-webhook (.+)\n((?:.+\n)+)\n?", "\n".join(blocks(page)), re.MULTILINE)
    plain = re.findall(r"(?:^|`)device-taint-webhook ([^`\n]+)", page, re.MULTILINE)
    return {**dict.fromkeys(plain, ""), **dict(shown)}


COMMANDS = {command: text for page in (POLICY, TENANTS, TESTING) for command, text in commands(page).items()}
OFFLINE = {command: text for command, text in COMMANDS.items() if not NEEDS_CLUSTER.search(command)}
REFUSED = {command for command in OFFLINE if command.startswith(("explain claim", "explain --policy", "audit", "diff"))}
REFUSED |= {command for command in OFFLINE if re.match("check .*claim", command)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the pages name: the first policy, the claim, and the suite for both."""
    policy, (claim,), (suite,) = blocks(POLICY, "yaml")[0], blocks(TENANTS, "yaml"), blocks(TESTING, "yaml")
    files = {"policy.yaml": policy, "policy_test.yaml": suite, "next.yaml": policy.replace("3600", "7200")}
    (tmp_path / "claims").mkdir()
    for name, text in {**files, "claim.yaml": claim, "claims/claim.yaml": claim, "dump.json": claim}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "shown"), OFFLINE.items(), ids=list(OFFLINE))
def test_command_of_a_page_does_what_the_page_says(
    command: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that judge the claim refuse it, or report the difference."""
    assert cli.main(shlex.split(command)) == (command in REFUSED)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out == shown or not shown


def test_pages_show_output_and_have_commands_for_a_cluster() -> None:
    assert sum(map(bool, OFFLINE.values())) == 2
    assert len(OFFLINE) >= 9
    assert len(REFUSED) >= 6
    assert {command.partition(" ")[0] for command in COMMANDS.keys() - OFFLINE.keys()} == {"check", "audit", "diff"}


def test_the_page_has_every_field_of_a_case() -> None:
    named = set(re.findall(r"`(\w+)", TESTING)) | set(re.findall(r"^ *-? *(\w+):", TESTING, re.MULTILINE))
    assert FIELDS["case"] | FIELDS["expect"] | FIELDS["requester"] <= named | {"operation"}
    assert FIELDS["inventory"] | FIELDS["step"] | FIELDS["impact"] <= named | {"operation"}
