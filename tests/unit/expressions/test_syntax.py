from __future__ import annotations

import subprocess
import sys

import pytest

from webhook.expressions.parser import expression_problem


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        pytest.param("true", None, id="a constant"),
        pytest.param('device.driver == "gpu.example.com"', None, id="a comparison"),
        pytest.param('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0', None, id="a method"),
        pytest.param("device.attributes.exists(a, a == 'x') ? 1 : [2, {3: 4}]", None, id="macros, lists, maps"),
        pytest.param("unknown.to(us)", None, id="what names mean is the API server's to judge"),
        pytest.param("", "compilation failed: the expression is empty", id="nothing"),
        pytest.param(" \n", "compilation failed: the expression is empty", id="blanks"),
        pytest.param(
            "device.driver ==", "compilation failed: syntax error at line 1, column 15", id="something missing"
        ),
        pytest.param("a\n&& && b", "compilation failed: syntax error at line 2, column 4", id="on the second line"),
        pytest.param("a # b", "compilation failed: syntax error at line 1, column 3", id="a character that is none"),
        pytest.param("'a", "compilation failed: syntax error at line 1, column 1", id="a text without end"),
    ],
)
def test_syntax_is_judged(expression: str, problem: str | None) -> None:
    assert expression_problem(expression) == problem


@pytest.mark.parametrize(
    "text", ["(" * 5_000, "!" * 10_000 + "a", "[" * 3_000 + "]" * 3_000, "\x00", "\ud800", "1e999"]
)
def test_no_text_makes_the_parser_raise(text: str) -> None:
    assert expression_problem(text) is None or "compilation failed" in str(expression_problem(text))


def test_parser_is_imported_only_when_needed() -> None:
    """It costs a third of a second and 30 MiB, which servers without CEL selectors need not spend."""
    program = "import sys, webhook.validation.kinds, webhook.admission.chain; print('celpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
