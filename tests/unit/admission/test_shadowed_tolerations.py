"""Tolerations that another one covers, each step on its own; the law is in tests/properties."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.admission.lint import shadows, tolerations_lint
from webhook.api.field import Path
from webhook.api.taints import DeviceToleration

EXISTS, NO_EXECUTE = "Exists", "NoExecute"


def toleration(key: str, operator: str, value: str, effect: str, seconds: int | None = None) -> DeviceToleration:
    return DeviceToleration(key, operator, value, effect, seconds)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        pytest.param(("", EXISTS, "", ""), ("a", EXISTS, "", "NoSchedule"), True, id="everything"),
        pytest.param(("a", EXISTS, "", ""), ("", EXISTS, "", ""), False, id="a key does not cover all keys"),
        pytest.param(("a", EXISTS, "", ""), ("b", EXISTS, "", ""), False, id="another key"),
        pytest.param(("a", EXISTS, "", "None"), ("a", "Equal", "v", "None"), True, id="all values cover one"),
        pytest.param(("a", "Equal", "v", "None"), ("a", EXISTS, "", "None"), False, id="one value does not cover all"),
        pytest.param(("a", "Equal", "v", "None"), ("a", "", "v", "None"), True, id="Equal spelt out or not"),
        pytest.param(("a", "", "v", "None"), ("a", "", "w", "None"), False, id="another value"),
        pytest.param(
            ("a", EXISTS, "", ""), ("a", EXISTS, "", NO_EXECUTE), False, id="no effect does not stop eviction (E-9)"
        ),
        pytest.param(("a", EXISTS, "", NO_EXECUTE), ("a", EXISTS, "", ""), False, id="one effect does not cover all"),
        pytest.param(("a", EXISTS, "", NO_EXECUTE), ("a", EXISTS, "", NO_EXECUTE, 5), True, id="for ever wins (E-10)"),
        pytest.param(("a", EXISTS, "", NO_EXECUTE, 5), ("a", EXISTS, "", NO_EXECUTE), False, id="and is not covered"),
        pytest.param(
            ("a", EXISTS, "", NO_EXECUTE, 5), ("a", EXISTS, "", NO_EXECUTE, 9), True, id="the least wins (E-10)"
        ),
        pytest.param(
            ("a", EXISTS, "", NO_EXECUTE, 9), ("a", EXISTS, "", NO_EXECUTE, 5), False, id="and is not covered"
        ),
        pytest.param(("a", EXISTS, "", NO_EXECUTE, 0), ("a", EXISTS, "", NO_EXECUTE, -5), True, id="negative is none"),
        pytest.param(("a", EXISTS, "", NO_EXECUTE, 1), ("a", EXISTS, "", NO_EXECUTE, 0), False, id="a second is some"),
        pytest.param(("a", EXISTS, "", "", 5), ("a", EXISTS, "", "NoSchedule", 9), True, id="seconds do not matter"),
    ],
)
def test_entry_that_adds_nothing(wide: Any, narrow: Any, *, expected: bool) -> None:
    assert shadows(toleration(*wide), toleration(*narrow)) is expected


def test_list_is_linted_by_itself() -> None:
    findings = list(tolerations_lint(Path.root().child("t"), [toleration("x.io/a", EXISTS, "", "")]))
    assert [(finding.code, finding.error.field) for finding in findings] == [("DT001", "t[0].effect")]
