"""docs/policy.md: its examples are policies, its tables are right, and it leaves nothing out."""

from __future__ import annotations

import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.api.decode import Reader
from webhook.api.taints import decode_toleration
from webhook.commands.shared.policy_files import read_policy
from webhook.policy.document import TAINT_VARIABLES, TOLERATION_VARIABLES
from webhook.policy.match import TolerationMatcher
from webhook.policy.model import TolerationMatch
from webhook.telemetry.reviews import PolicyMetrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "policy.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SCHEMA: dict[str, Any] = json.loads(pkgutil.get_data("webhook.policy", "schema.json") or b"{}")
HEADER = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
WORDS = {"yes": True, "no": False, "-": None}


@pytest.mark.parametrize("text", EXAMPLES)
def test_example_is_a_policy_without_mistakes(text: str) -> None:
    """What is no whole document is a part of one."""
    loaded = read_policy(text if text.startswith("apiVersion") else HEADER + text)
    assert loaded.policy is not None, "\n".join(map(str, loaded.errors))
    assert loaded.warnings == ()


def test_examples_are_many() -> None:
    assert len(EXAMPLES) >= 9


def _table(after: str) -> list[list[str]]:
    """The cells of the first table behind a text, without its header."""
    lines = PAGE[PAGE.index(after) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| "))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def _code(cell: str) -> Any:
    return yaml.safe_load(cell.strip("`"))


@pytest.mark.parametrize("row", _table("**A toleration is the set"), ids=lambda row: f"{row[0]} {row[1]}")
def test_row_on_sets_is_true(row: list[str]) -> None:
    fields, toleration = _code(row[0]), decode_toleration(Reader.of(_code(row[1]), []))
    seconds = fields.get("seconds", {})
    keys, values, effects = (tuple(fields.get(name, ())) for name in ("keys", "values", "effects"))
    rule = TolerationMatcher(TolerationMatch(keys, values, effects, seconds.get("above"), seconds.get("atMost")))
    denies, allows = (WORDS[word] for word in row[2:])
    assert denies in {None, rule.intersects(toleration)}
    assert allows in {None, rule.contains(toleration)}
    assert {denies, allows} != {None}


def test_every_field_of_the_document_and_of_a_match_is_told() -> None:
    definitions = SCHEMA["$defs"]
    objects = [SCHEMA, *(definitions[name] for name in definitions if name.endswith("Match"))]
    objects += [
        definitions[name] for name in ("namespaces", "requesters", "tolerations", "taints", "rule", "exception")
    ]
    fields = {field for described in objects for field in described["properties"]} - {"apiVersion", "kind"}
    assert {field for field in fields if not re.search(rf"\b{field}\b", PAGE)} == set()


def test_every_variable_is_told_with_its_fields() -> None:
    told = {
        _variable(row[0]): set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row[1]))) for row in _table("### when")
    }
    declared = {**TOLERATION_VARIABLES, **TAINT_VARIABLES}
    fields = {name: set(getattr(kind, "fields", ())) for name, kind in declared.items()}
    assert told == fields


def _variable(cell: str) -> str:
    return cell.partition(" ")[0].strip("`")


def test_table_of_resources_is_the_one_that_is_tested() -> None:
    """It leaves out what is never judged."""
    tested = yaml.safe_load((ROOT / "tests" / "apiserver" / "policy" / "subresources.yaml").read_text())
    shown = {row[0]: dict(zip(("create", "update"), row[1:], strict=True)) for row in _table("## Which requests")}
    assert shown.keys() < {row["resource"] for row in tested}
    for row in tested:
        assert row["checked"] == shown.get(row["resource"], {}).get(row["operation"], "nothing"), row


def test_metrics_of_the_policy_are_told() -> None:
    metrics = PolicyMetrics()
    metrics.candidate_load_success = True
    exposed = {f"{each.name}_total" if each.type == "counter" else each.name for each in metrics.collect()}
    told = {re.sub(r"\{.*", "", _variable(row[0])) for row in _table("All metrics have the prefix")}
    assert {f"device_taint_webhook_{name}" for name in told} == exposed
