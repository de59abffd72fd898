"""Whatever the facts are, an expression has a value or says why not, in a time that was known when it was loaded."""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import celpy
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.properties.strategies import any_json
from webhook.expressions.drivers import drivers_of
from webhook.expressions.engine import MAX_STEPS, BadExpression, EvaluationError, VariableType, compile_expression
from webhook.expressions.parser import parse
from webhook.expressions.values import ListType, MapType, ObjectType, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from webhook.expressions.engine import Expression

VARIABLES: Final[dict[str, VariableType]] = {
    "o": ObjectType({"s": Scalar.STRING, "n": Scalar.INT, "b": Scalar.BOOL, "m": MapType(Scalar.STRING)}),
    "xs": ListType(Scalar.STRING),
    "ns": ListType(Scalar.INT),
}

# --- expressions that are well-typed: texts ----------------------------------------------------------


def binary(left: SearchStrategy[str], operators: str, right: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.tuples(left, st.sampled_from(operators.split()), right).map(lambda parts: f"({' '.join(parts)})")


def call(target: SearchStrategy[str], methods: str, argument: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.tuples(target, st.sampled_from(methods.split()), argument).map(lambda parts: "{}.{}({})".format(*parts))


class Grammar:
    """Expressions outside macros, or (`inside`) in one whose variable is `x`, or `n` where it walks over numbers."""

    def __init__(self, inside: str = "") -> None:
        texts = ["''", '"a"', "'ab'", "o.s", "xs[0]", "o.m.k", "o.m['k']", *inside.replace("n", "")]
        numbers = ["0", "1", "2", "-7", "o.n", "ns[0]", *inside.replace("x", "")]
        self.text = st.recursive(
            st.sampled_from(texts),
            lambda inner: binary(inner, "+", inner) | self.choice(inner),
            max_leaves=3,
        )
        self.list: SearchStrategy[str] = st.sampled_from(["xs", "['a', 'b']", "[o.s]", "(xs + ['b'])"])
        if not inside:
            self.list |= call(self.list, "filter", Grammar("x").boolean.map(lambda text: f"x, {text}"))
            self.list |= call(self.list, "map", Grammar("x").text.map(lambda text: f"x, {text}"))
        self.number = st.recursive(
            st.sampled_from(numbers) | self.text.map(lambda text: f"size({text})"),
            lambda inner: binary(inner, "+ - * / %", inner) | self.choice(inner),
            max_leaves=3,
        )
        leaves = st.sampled_from(["true", "false", "o.b", "has(o.n)", "has(o.m.k)", "('k' in o.m)", "(1 / 0 == 1)"])
        leaves |= binary(self.number, "< <= > >= == !=", self.number) | binary(self.text, "== != <", self.text)
        leaves |= binary(self.text, "in", self.list) | binary(self.list, "== !=", self.list)
        leaves |= call(self.text, "startsWith endsWith contains", self.text)
        if inside:
            about_it = {
                "x": ["(x == 'a')", "x.contains('b')", "(x in xs)"],
                "n": ["(n > 0)", "(n % 2 == 0)", "(n in ns)"],
            }
            leaves = st.sampled_from(about_it[inside]) | leaves
        else:
            over_texts = Grammar("x").boolean.map(lambda text: f"x, {text}")
            leaves |= call(self.list, "all exists exists_one", over_texts)
            leaves |= call(st.just("ns"), "all exists", Grammar("n").boolean.map(lambda text: f"n, {text}"))
        self.boolean: SearchStrategy[str] = st.recursive(
            leaves,
            lambda inner: binary(inner, "&& ||", inner) | inner.map(lambda text: f"!{text}") | self.choice(inner),
            max_leaves=2 if inside else 5,
        )

    def choice(self, of: SearchStrategy[str]) -> SearchStrategy[str]:
        return st.tuples(st.sampled_from(["o.b", "true", "(o.n > 0)"]), of, of).map(
            lambda parts: "({} ? {} : {})".format(*parts)
        )


expressions = Grammar().boolean

Facts: TypeAlias = dict[str, Any]
right_facts: SearchStrategy[Facts] = st.fixed_dictionaries(
    {
        "o": st.fixed_dictionaries(
            {
                "s": st.sampled_from(["", "a", "abc", "é"]),
                "b": st.booleans(),
                "m": st.fixed_dictionaries({"k": st.sampled_from(["", "a"])}),
            },
            optional={"n": st.sampled_from([0, 1, -3, 5, 2**62])},
        ),
        "xs": st.lists(st.sampled_from(["", "a", "ab", "b"]), min_size=1, max_size=3),
        "ns": st.lists(st.integers(-4, 4), min_size=1, max_size=3),
    },
)
wrong_facts: SearchStrategy[Facts] = st.fixed_dictionaries(
    {},
    optional={
        "o": st.fixed_dictionaries({}, optional=dict.fromkeys("snbm", any_json)) | any_json,
        "xs": any_json | st.lists(any_json, max_size=40),
        "ns": any_json,
    },
)


def compiled(source: str) -> Expression:
    """The expression; what is too long or takes too long is not what this is about."""
    try:
        return compile_expression(source, VARIABLES)
    except BadExpression as refusal:
        assume(not refusal.detail.startswith("too "))
        raise


def value_of(expression: Expression, facts: Facts) -> bool | None:
    """Its value; None if there is none."""
    try:
        return expression.evaluate(facts)
    except EvaluationError:
        return None


def accepted(source: str) -> Expression | None:
    try:
        return compile_expression(source, VARIABLES)
    except BadExpression:
        return None


@given(expressions, right_facts | wrong_facts)
def test_expression_has_a_truth_value_or_says_why_not(source: str, facts: Facts) -> None:
    expression = compiled(source)
    assert value_of(expression, facts) in {True, False, None}


@given(st.text(max_size=40) | st.text(alphabet="xso.n()[]!&|=<+-1'\" ,?:{}", max_size=40))
def test_any_text_is_compiled_or_refused(source: str) -> None:
    expression = accepted(source)
    assert expression is None or expression.steps <= MAX_STEPS


ENVIRONMENT: Final = celpy.Environment()


@given(expressions, right_facts)
def test_values_are_those_of_another_implementation(source: str, facts: Facts) -> None:
    """celpy's own evaluator is lax about errors, so only what both give a value to is compared."""
    expression = compiled(source)
    value = value_of(expression, facts)
    if value is None:
        return
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        other = ENVIRONMENT.program(ENVIRONMENT.compile(source)).evaluate(
            {name: json_to_cel(fact) for name, fact in facts.items()}
        )
    except (CELEvalError, TypeError):
        return
    finally:
        sys.setrecursionlimit(limit)
    assert value == bool(other)


# Few backslashes: celpy takes twice as long for each, if no quote ends the text.
QUOTED: Final = ("'", '"', "'''", '"""', "\\", "\n", "\r", "r", "b", "R", "B", "x", "u", "U", "0", "141", "{4-8}")
UNQUOTED: Final = (" ", "+", "==", "//", ".", "-", "e", "(", ")", ",", "\u00e9", "\u0663", "true", "in")
lexemes = st.lists(st.sampled_from(QUOTED + UNQUOTED), min_size=1, max_size=12).map("".join)


def syntax_tree(text: str) -> object:
    """The tree, or what is wrong."""
    try:
        return parse(text)
    except BadExpression as error:
        return error.detail


def syntax_tree_of_celpy(text: str) -> object:
    try:
        return ENVIRONMENT.compile(text)
    except CELParseError as error:
        return f"compilation failed: syntax error at line {error.line}, column {error.column}"


@given(lexemes | expressions)
def test_syntax_is_that_of_another_implementation(text: str) -> None:
    """F2: celpy's grammar with its own terminals, which are only safe to use on short texts."""
    assume(text.strip())
    assert syntax_tree(text) == syntax_tree_of_celpy(text)


# --- cost --------------------------------------------------------------------------------------------

LARGEST: Final[Facts] = {
    "o": {"s": "a" * 1024, "n": 2**62, "b": True, "m": {f"k{i}": "" for i in range(31)} | {"k": "a" * 1024}},
    "xs": ["a" * 1024] * 32,
    "ns": [2**62] * 32,
}


def operations(action: Callable[[], object]) -> int:
    """How many functions are called, Python's and C's."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    except EvaluationError:
        pass
    finally:
        sys.setprofile(before)
    return count


@given(expressions, st.sampled_from(["largest", "many", "none"]))
def test_steps_bound_what_is_done(source: str, size: str) -> None:
    facts = {"largest": LARGEST, "many": {**LARGEST, "xs": [""] * 32, "ns": [0] * 32}, "none": {}}[size]
    expression = compiled(source)
    assert operations(lambda: expression.evaluate(facts)) <= 8 * expression.steps + 20


def test_most_expensive_expressions_are_bounded() -> None:
    facts = {**LARGEST, "xs": ["b"] * 32}
    for body in ("x + x == 'c'", "o.m['q'] == x", "1 / 0 == 1", "x.contains(o.s)", "x == 'c'", "o.n * o.n == 0"):
        longest = [
            expression
            for count in range(1, 40)
            for expression in [accepted(f"xs.exists(x, {' || '.join([body] * count)})")]
            if expression is not None
        ][-1]
        assert longest.steps > MAX_STEPS / 2
        done = operations(partial(longest.evaluate, facts))
        assert MAX_STEPS / 4 < done <= 8 * MAX_STEPS


# --- drivers -----------------------------------------------------------------------------------------

DRIVERS: Final = ("a", "b", "c", "d")
Selector: TypeAlias = "tuple[str, Callable[[str], bool | None]]"
"""An expression, and what it is for a driver: None is an error."""


def either(values: list[bool | None], *, stop: bool) -> bool | None:
    if stop in values:
        return stop
    return None if None in values else not stop


def compound(inner: SearchStrategy[Selector]) -> SearchStrategy[Selector]:
    def logical(parts: list[Selector], operator: str) -> Selector:
        stop = operator == "||"
        text = f"({f' {operator} '.join(text for text, _ in parts)})"
        return text, lambda driver: either([value(driver) for _, value in parts], stop=stop)

    def negation(part: Selector) -> Selector:
        text, value = part
        return f"!({text})", lambda driver: None if (found := value(driver)) is None else not found

    def condition(parts: tuple[Selector, Selector, Selector]) -> Selector:
        (text, asked), (yes_text, yes), (no_text, no) = parts

        def chosen(driver: str) -> bool | None:
            found = asked(driver)
            return None if found is None else yes(driver) if found else no(driver)

        return f"({text} ? {yes_text} : {no_text})", chosen

    some = st.lists(inner, min_size=2, max_size=3)
    logicals = st.builds(logical, some, st.sampled_from(["&&", "||"]))
    others = inner.map(negation) | st.tuples(inner, inner, inner).map(condition)
    return mostly(logicals, others)


def mostly(usual: SearchStrategy[Selector], other: SearchStrategy[Selector]) -> SearchStrategy[Selector]:
    return st.integers(0, 9).flatmap(lambda number: usual if number < 8 else other)


read: SearchStrategy[Selector] = st.one_of(
    st.sampled_from(DRIVERS).map(lambda name: (f'device.driver == "{name}"', lambda driver: driver == name)),
    st.sampled_from(DRIVERS).map(lambda name: (f"'{name}' == (device.driver)", lambda driver: driver == name)),
    st.lists(st.sampled_from(DRIVERS), max_size=3).map(
        lambda names: (f"device.driver in {names}", lambda driver: driver in names)
    ),
)
unread: SearchStrategy[Selector] = st.one_of(
    st.sampled_from(DRIVERS).map(lambda name: (f"device.driver != '{name}'", lambda driver: driver != name)),
    st.just(("device.driver.startsWith('a')", lambda driver: driver == "a")),
    st.just(("true", lambda _: True)),
    st.just(("false", lambda _: False)),
    st.just(('device.attributes["a"].model == "x"', lambda _: None)),
)
selectors: SearchStrategy[Selector] = st.recursive(mostly(read, unread), compound, max_leaves=6)


@given(st.lists(selectors, max_size=3))
def test_driver_that_is_left_out_is_impossible(given_selectors: list[Selector]) -> None:
    drivers = drivers_of([text for text, _ in given_selectors])
    for driver in set(DRIVERS) - (set(DRIVERS) if drivers is None else drivers):
        assert any(value(driver) is False for _, value in given_selectors), driver


def test_driver_that_is_possible_is_not_left_out() -> None:
    """Over all pairs of what is read: exactly the drivers for which it is true."""
    known: list[Selector] = [
        ("device.driver == 'a'", lambda driver: driver == "a"),
        ("device.driver in ['a', 'b']", lambda driver: driver in "ab"),
        ("(device.driver == 'c' || 'a' == device.driver)", lambda driver: driver in "ac"),
    ]
    for (one, value), (other, also), operator in product(known, known, ("&&", "||")):
        expected = {driver for driver in DRIVERS if either([value(driver), also(driver)], stop=operator == "||")}
        assert drivers_of([f"{one} {operator} {other}"]) == frozenset(expected)
