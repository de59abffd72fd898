"""What the table says without a cluster: complete, and each part of the policy decides something in it."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.apiserver.policy.offline import FIELDS, flipped, judge_of, judged, outcome, the_judge
from tests.apiserver.policy.rows import POLICY, ROWS, Row
from webhook.policy.decide import Judge

ENOUGH_ROWS: Final = 60
ENOUGH_OF_A_FIELD: Final = 3
ENOUGH_OF_AN_ACTION: Final = 5


def test_the_table_has_every_shape_version_kind_and_operation() -> None:
    assert len(ROWS) >= ENOUGH_ROWS
    assert len({row.url for row in ROWS}) == len(ROWS)
    asked = [row for row in ROWS if row.expected.asked]
    for verdict in ("allowed", "denied"):
        seen = {(row.kind, row.shape) for row in asked if row.expected.verdict == verdict}
        assert seen == {
            (kind, shape) for kind in ("claim", "template") for shape in ("exactly", "firstAvailable", "flat")
        }
        assert {row.version for row in asked if row.expected.verdict == verdict} == {"v1", "v1beta2", "v1beta1"}
    assert {(row.kind, row.operation) for row in ROWS} == {
        (kind, operation) for kind in ("claim", "template") for operation in ("create", "update")
    }


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row(row: Row) -> None:
    assert outcome(row, the_judge()) == (row.expected.verdict, row.expected.rules)
    if row.expected.told:
        told = [(str(f.error.path), f"{f.error} {f.rule}") for f in judged(row, the_judge()).findings if f.rule]
        assert row.expected.path in [path for path, _ in told], told
        assert row.expected.text in " ".join(text for _, text in told), told


def _changed_by(judge: Judge) -> list[Row]:
    """Rows with another verdict than expected."""
    return [row for row in ROWS if outcome(row, judge).verdict != row.expected.verdict]


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_decides_rows_both_ways(field: str) -> None:
    """Without it they would come out differently; and it is not always the same way that they come out with it."""
    changed = {str(row): row.expected.verdict for document in FIELDS[field] for row in _changed_by(judge_of(document))}
    verdicts = Counter(changed.values())
    print(f"\n{field}: {len(changed)} rows: {dict(verdicts)}", *sorted(changed), sep="\n  ")
    assert len(changed) >= ENOUGH_OF_A_FIELD
    assert verdicts["denied"] > 0
    assert verdicts["allowed"] + verdicts["warned"] > 0


@pytest.mark.parametrize("position", range(len(POLICY["rules"])), ids=[rule["name"] for rule in POLICY["rules"]])
def test_no_rule_could_have_another_action_unnoticed(position: int) -> None:
    changed = _changed_by(judge_of(flipped(position)))
    print(f"\n{POLICY['rules'][position]['name']}: {len(changed)} rows", *changed, sep="\n  ")
    assert changed


def test_each_action_decides_rows() -> None:
    actions = {rule["name"]: rule["action"] for rule in POLICY["rules"]}
    seen = Counter(
        action for row in ROWS for action in {actions[name] for name in row.expected.rules if name in actions}
    )
    print(f"\n{dict(seen)}")
    assert {
        action: seen[action] >= ENOUGH_OF_AN_ACTION for action in ("allow", "deny", "warn", "audit")
    } == dict.fromkeys(("allow", "deny", "warn", "audit"), True)
