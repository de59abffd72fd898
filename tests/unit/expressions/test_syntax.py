from __future__ import annotations

import json
import subprocess
import sys

import pytest

from webhook.expressions.parser import BadExpression, parse

BACKSLASH = "\\"


def expression_problem(expression: str) -> str | None:
    try:
        parse(expression)
    except BadExpression as error:
        return error.detail
    return None


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


JUDGE_ALL = """
import json, sys
from webhook.expressions.drivers import drivers_of
from webhook.expressions.engine import BadExpression, compile_expression
from webhook.expressions.selectors.selector import compile_selector

for text in json.load(sys.stdin):
    compile_selector(text)
    drivers_of([text])
    try:
        compile_expression(text, {})
    except BadExpression:
        pass
"""


def repeated(part: str, size: int) -> str:
    return part * (size // len(part))


def slow_texts() -> list[str]:
    """Texts and numbers in many shapes, closed or not, as long as a selector may be."""
    insides = ["\\", "\\\\", '\\"', "\\'", "\\x41", "\\u0041", "\\101", "\\n", "\r\n", '"" ', "'' "]
    numbers = ["9", "9.", "0x", "1e", "9e9.", "-", ".", "/", "//", " ", "\n", "r", "b", "_"]
    openings = [prefix + quote for prefix in ("", "r", "R", "b", "bR") for quote in ("'", '"', "'''", '"""')]
    return [
        opening + repeated(inside, size) + end
        for opening in openings
        for inside in insides
        for end in ("", "\n", opening[-1], f"\\{opening[-1]}", opening[-3:], f"{opening[-1]} + {opening}")
        for size in (45, 10_000)
    ] + [repeated(number, 10_000) for number in numbers]


@pytest.mark.untraced
def test_no_text_keeps_the_parser_busy() -> None:
    """F2: celpy's own terminals try 2**45 ways with 45 backslashes after a quote, and no thread can stop them."""
    command = [sys.executable, "-c", JUDGE_ALL]
    given = json.dumps(slow_texts())
    done = subprocess.run(command, input=given, check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(r"device.driver == 'a\\'", id="an escaped backslash"),
        pytest.param(r'device.driver == "\""', id="an escaped quote"),
        pytest.param(f"device.driver == r'{45 * BACKSLASH}'", id="a raw text of backslashes"),
        pytest.param(f"device.driver == r\"{BACKSLASH}\" || device.driver == r'{45 * BACKSLASH}'", id="two raw texts"),
        pytest.param("device.driver == '''it's \"\"\" '''", id="quotes in a long text"),
        pytest.param('device.driver == """a\n\\"""" + """c\r\nd"""', id="long texts of several lines"),
    ],
)
def test_texts_may_have_backslashes_and_quotes(expression: str) -> None:
    assert expression_problem(expression) is None


def test_parser_is_imported_only_when_needed() -> None:
    """It costs a third of a second and 30 MiB, which servers without CEL selectors need not spend."""
    program = "import sys, webhook.validation.kinds, webhook.admission.chain; print('celpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
