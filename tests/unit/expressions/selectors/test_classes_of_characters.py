"""Classes of characters that Go names and RE2 does not."""

from __future__ import annotations

import pytest

from webhook.expressions.selectors.faults import FaultKind
from webhook.expressions.selectors.selector import (
    EvaluationError,
    SelectedDevice,
    Selector,
    SelectorFault,
    compile_selector,
)
from webhook.expressions.selectors.texts import PatternFault

UNKNOWN = SelectorFault(FaultKind.UNSUPPORTED, f"not supported here: {PatternFault.UNKNOWN_CLASS.value}")


@pytest.mark.parametrize("pattern", [r"\p{Letter}", r"^\P{lu}+$", r"[^a\p{^ASCII}]", r"\p{greek}", r"\p{Cn}"])
@pytest.mark.parametrize("call", ["matches(r'{}')", "find(r'{}') == 'a'"])
def test_a_class_that_go_may_know_is_unsupported(pattern: str, call: str) -> None:
    assert compile_selector(f"device.driver.{call.format(pattern)}") == UNKNOWN


def test_a_computed_pattern_with_such_a_class_has_no_value() -> None:
    found = compile_selector(r"device.driver.matches(device.driver + r'\p{Letter}')")
    assert isinstance(found, Selector)
    with pytest.raises(EvaluationError, match="not supported here: a class of characters"):
        found.matches(SelectedDevice("gpu.example.com"))


@pytest.mark.parametrize("pattern", [r"\p{}", r"\p{Letter", r"\pX", r"[a-\p{Letter}]", r"\p{Latin}["])
def test_a_class_that_no_server_knows_is_invalid(pattern: str) -> None:
    found = compile_selector(f"device.driver.matches(r'{pattern}')")
    assert found == SelectorFault(FaultKind.INVALID, "compilation failed: invalid matches argument")
