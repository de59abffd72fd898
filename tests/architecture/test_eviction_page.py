"""docs/eviction.md and docs/patches.md: their examples are valid, and their tables leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from webhook.commands import check
from webhook.commands.shared.main import main_of
from webhook.commands.shared.policy_files import read_policy
from webhook.eviction.conditions import ConditionReason
from webhook.eviction.modes import Mode
from webhook.eviction.progress import WaitCause
from webhook.eviction.released import ReleasedReason

if TYPE_CHECKING:
    from enum import StrEnum

DOCS: Final = Path(__file__).parents[2] / "docs"
EVICTION: Final = (DOCS / "eviction.md").read_text()
PATCHES: Final = (DOCS / "patches.md").read_text()
EXAMPLES: Final = re.findall(r"^```yaml\n(.*?)^```$", f"{EVICTION}\n{PATCHES}", re.MULTILINE | re.DOTALL)
POLICIES: Final = [each for each in EXAMPLES if "\nspec:" not in each]
HEADER: Final = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"


@pytest.mark.parametrize("text", POLICIES)
def test_part_of_a_policy_has_no_mistakes(text: str) -> None:
    loaded = read_policy(text if text.startswith("apiVersion") else HEADER + text)
    assert loaded.policy is not None, "\n".join(map(str, loaded.errors))
    assert loaded.warnings == ()


def test_rule_and_patch_are_admitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [each for each in EXAMPLES if each not in POLICIES]
    assert len(objects) == 2
    assert len(POLICIES) >= 6
    for number, text in enumerate(objects):
        (tmp_path / f"{number}.yaml").write_text(text)
    assert main_of(check, [str(tmp_path)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("heading", "names"), [("Progress on the rule", ConditionReason), ("When is the device free?", ReleasedReason)]
)
def test_table_has_every_reason_of_the_condition(heading: str, names: type[StrEnum]) -> None:
    section = EVICTION.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?:True|False|Unknown) \| (.*?) \|", section, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(names)


def test_first_table_has_every_mode_and_the_metric_every_cause() -> None:
    assert set(re.findall(r"^\| `(\w+)`", EVICTION, re.MULTILINE)) >= set(Mode)
    causes = EVICTION.partition("`eviction_pods_waiting{why}`:")[2].partition(".\n")[0]
    assert sorted(re.findall(r"`(\w+)`", causes)) == sorted(WaitCause)
