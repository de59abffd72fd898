from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import re2

from webhook.expressions.engine import (
    MAX_BYTES,
    MAX_STEPS,
    BadExpression,
    EvaluationError,
    compile_expression,
)
from webhook.policy.document import REQUEST_VARIABLES, TAINT_VARIABLES, TOLERATION_VARIABLES

FACTS: dict[str, Any] = {
    "toleration": {"key": "maint.example.com/a", "operator": "Exists", "value": "", "effect": "NoExecute"},
    "request": {
        "name": "gpu",
        "deviceClassName": "gpu.example.com",
        "count": 3,
        "allocationMode": "ExactCount",
        "adminAccess": False,
        "alternative": False,
    },
    "claim": {
        "name": "c",
        "generateName": "",
        "namespace": "train",
        "labels": {"app": "bert", "tier": "2"},
        "annotations": {"long": "x" * 2000, "note": "café"},
        "template": False,
        "generated": True,
    },
    "requester": {"username": "alice", "groups": ["ml-a", "ml-b", "ops"], "serviceAccount": ""},
    "drivers": ["gpu.example.com", "nic.example.com"],
}
"""All but `namespace`, which is not known, and `toleration.tolerationSeconds`, which is not set."""


def value_of(source: str, facts: dict[str, Any] = FACTS) -> bool | str:
    """The expression's value, or what went wrong."""
    try:
        return compile_expression(source, TOLERATION_VARIABLES).evaluate(facts)
    except EvaluationError as error:
        return str(error)


def refusal_of(source: str) -> str | None:
    try:
        compile_expression(source, TOLERATION_VARIABLES)
    except BadExpression as error:
        return error.detail
    return None


@pytest.mark.parametrize(
    "source",
    [
        "request.count <= 4 && request.count > 2 && request.count != 4",
        "request.count * 2 - 1 == 5 && -request.count < 0",
        "-1 / 1 == -1 && 1 / -1 == -1 && -1 / -1 == 1 && 0 / -1 == 0 && -3 % 2 == -1 && 3 % -1 == 0",
        "-7 / 2 == -3 && -7 % 2 == -1 && 7 % -2 == 1 && 7 / -2 == -3",
        "0x10 == 16 && 1 + 2 * 3 == 7 && (1 + 2) * 3 == 9",
        "toleration.key.startsWith('maint.') && toleration.key.endsWith('/a') && toleration.key.contains('example')",
        "toleration.key.matches('^maint[.][a-z.]+/.$') && !toleration.key.matches('^example')",
        "'a' + 'b' == \"ab\" && 'a' < 'b' && 'caf\\u00e9' == claim.annotations.note",
        "r'\\d' == '\\\\d' && '''a'b''' == \"a'b\"",
        "size(claim.annotations.note) == 4 && drivers.size() == 2 && claim.labels.size() == 2",
        "'app' in claim.labels && !('nope' in claim.labels) && 'ops' in requester.groups && request.count in [1, 3]",
        "drivers[0] == 'gpu.example.com' && drivers[1] == 'nic.example.com' && claim.labels['app'] == claim.labels.app",
        "has(toleration.key) && !has(toleration.tolerationSeconds) && has(claim.labels.app) && !has(claim.labels.nope)",
        "!has(toleration.tolerationSeconds) || toleration.tolerationSeconds > 60",
        "drivers.all(d, d.endsWith('.example.com')) && drivers.exists(d, d.startsWith('gpu.'))",
        "requester.groups.exists_one(g, g == 'ops') && !requester.groups.exists_one(g, g.startsWith('ml-'))",
        "requester.groups.filter(g, g.startsWith('ml-')) == ['ml-a', 'ml-b']",
        "requester.groups.map(g, g.size()) == [4, 4, 3] && drivers.filter(d, false).map(d, 1) == []",
        "claim.labels.all(key, claim.labels[key] != '') && claim.labels.exists(key, key == 'tier')",
        "drivers + ['x'] != drivers && [] + [1] == [1] && [].all(x, false) && ![].exists(x, true)",
        "(claim.generated ? request.count : 0) == 3 && (true ? [] : [1]) == []",
        "request.count > 2 ? claim.generated : 1 / 0 == 1",
        "true || namespace.name == 'x'",
        "namespace.name == 'x' || true",
        "!(namespace.name == 'x' && false)",
        "drivers.exists(d, d == 'nic.example.com' || namespace.name == 'x')",
        "!!true // a comment",
        "!" * 31 + "false",
        "0" * 31 + "1 == 1",
        "9223372036854775806 + 1 == 9223372036854775807 && -9223372036854775807 - 1 == -9223372036854775808",
        "[1, 2].all(n, n > 0) && [1, 2].filter(n, n > 1) == [2]",
    ],
)
def test_expression_holds(source: str) -> None:
    assert value_of(source) is True


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("namespace.name == 'x'", "namespace is not set"),
        ("has(namespace.name)", "namespace is not set"),
        ("namespace.name == 'x' && true", "namespace is not set"),
        ("drivers.all(d, namespace.name == 'x')", "namespace is not set"),
        ("toleration.tolerationSeconds > 60", "toleration.tolerationSeconds is not set"),
        ("claim.labels.nope == ''", "claim.labels.nope is not set"),
        ("claim.labels['no' + 'pe'] == ''", "claim.labels['no' + 'pe'] is not set"),
        ("claim.annotations.long == ''", "claim.annotations.long has more than 1024 characters"),
        ("drivers[2] == ''", "drivers[2] is out of range"),
        ("drivers[-1] == ''", "drivers[-1] is out of range"),
        ("1 / (request.count - 3) == 1", "division by zero"),
        ("1 % 0 == 1", "division by zero"),
        ("9223372036854775807 + request.count > 0", "9223372036854775807 + request.count has more than 64 bits"),
        ("-(-9223372036854775808) > 0", "-(-9223372036854775808) has more than 64 bits"),
        ("-9223372036854775808 - 1 < 0", "-9223372036854775808 - 1 has more than 64 bits"),
        (f"'{'y' * 257}'.matches('y')", "matches() takes at most 256 bytes"),
    ],
)
def test_expression_without_value_says_why(source: str, problem: str) -> None:
    assert value_of(source) == problem


def test_sum_does_not_outgrow_its_parts() -> None:
    groups = {"requester": {"groups": ["g"] * 20}, "request": {"name": "n" * 600}}
    assert value_of("requester.groups + requester.groups == []", groups) == (
        "requester.groups + requester.groups has more than 32 entries"
    )
    assert value_of("request.name + request.name == ''", groups) == (
        "request.name + request.name has more than 1024 characters"
    )


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({}, "drivers is not set"),
        ({"drivers": None}, "drivers is not set"),
        ({"drivers": ["x"] * 33}, "drivers has more than 32 entries"),
        ({"drivers": "x"}, "drivers is of another type"),
        ({"drivers": ["x", 1]}, "an entry of drivers is of another type"),
        ({"drivers": ["x", "y" * 1025]}, "an entry of drivers has more than 1024 characters"),
    ],
)
def test_list_that_is_not_known_is_an_error(facts: dict[str, Any], problem: str) -> None:
    assert value_of("'gpu' in drivers", facts) == problem


def test_truth_value_is_no_number() -> None:
    assert value_of("request.count == 1", {"request": {"count": True}}) == "request.count is of another type"
    assert value_of("request.count == 1", {"request": {"count": 2**63}}) == "request.count is of another type"
    assert value_of("request.adminAccess", {"request": {"adminAccess": 1}}) == "request.adminAccess is of another type"


def test_map_with_many_keys_is_looked_up_but_not_walked() -> None:
    facts = {"claim": {"labels": {f"k{i}": "" for i in range(33)}}}
    assert value_of("'k32' in claim.labels && claim.labels.k32 == ''", facts) is True
    assert value_of("claim.labels.exists(k, k == 'k1')", facts) == "claim.labels has more than 32 entries"


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("", "the expression is empty"),
        ("request.count <", "syntax error at line 1, column 15"),
        ("reqest.count == 1", "unknown variable reqest; did you mean request?"),
        (
            "x == 1",
            "unknown variable x; known are claim, drivers, namespace, request, requester, toleration",
        ),
        ("request.cuont == 1", "unknown field request.cuont; did you mean count?"),
        ("has(requester.nope)", "unknown field requester.nope; known are groups, serviceAccount, username"),
        ("request.count.x == 1", "request.count is an int and has no fields"),
        ("drivers.all(d, d.x == '')", "d is a string and has no fields"),
        ("request.name.startWith('x')", "unknown method startWith(); did you mean startsWith?"),
        ("drivers.exist(d, d == '')", "unknown method exist(); did you mean exists?"),
        ("siez(drivers) == 1", "unknown function siez(); did you mean size?"),
        ("timestamp('x') == timestamp('y')", "unknown function timestamp(); known are has, size"),
        ("request.count == '1'", "request.count == '1': an int cannot be compared with a string"),
        ("request == claim", "request == claim: an object cannot be compared with an object"),
        ("request.count < 'a'", "request.count < 'a': there is no < of an int and a string"),
        ("drivers - drivers == []", "drivers - drivers: there is no - of a list(string) and a list(string)"),
        ("request.name == 'a' - 'b'", "'a' - 'b': there is no - of a string and a string"),
        ("1 in drivers", "1 in drivers: an int cannot be in a list(string)"),
        ("'a' in request", "'a' in request: a string cannot be in an object"),
        ("drivers['a'] == ''", "drivers['a']: a list(string) has no entry for a string"),
        ("!request.count", "request.count is an int, must be a bool"),
        ("-request.name == ''", "request.name is a string, must be an int"),
        ("request.count && true", "request.count is an int, must be a bool"),
        ("request.count ? true : false", "request.count is an int, must be a bool"),
        ("(true ? 1 : 'a') == 1", "1 is an int and 'a' a string; must be of one type"),
        ("[1, 'a'] == []", "'a' is a string, must be an int"),
        ("[[1], [2]] == []", "[1] is a list(int); lists hold only texts, numbers and truth values"),
        ("drivers.filter(d, d) == []", "d is a string, must be a bool"),
        ("request.all(r, true)", "request is an object, must be a list or a map"),
        ("drivers.all(d)", "drivers.all(d): all() takes a name and an expression"),
        ("drivers.all(d.x, true)", "drivers.all(d.x, true): all() takes a name and an expression"),
        ("drivers.all(claim, true)", "drivers.all(claim, true): claim is a variable already; choose another name"),
        ("request.size() == 1", "request.size(): an object has no size"),
        ("drivers.size(1) == 1", "drivers.size(1): size() takes no arguments"),
        ("size() == 1", "size(): size() takes one argument"),
        ("has(drivers)", "has(drivers): has() takes one field"),
        ("request.name.contains()", "request.name.contains(): contains() takes one argument"),
        (
            "request.name.matches(toleration.key)",
            "request.name.matches(toleration.key): the pattern of matches() must be a literal, not toleration.key",
        ),
        ("request.name.matches('(')", "request.name.matches('('): missing ): ("),
        (
            "request.name.matches('(a{99}){9}')",
            "request.name.matches('(a{99}){9}'): pattern too large; use a smaller one, or several",
        ),
        ("request.count == 1.5", "floating-point numbers are not supported: 1.5"),
        ("request.count == 1u", "unsigned numbers are not supported: 1u"),
        ("request.name != null", "null literals are not supported: null"),
        ("request.name == b'a'", "bytes are not supported: b'a'"),
        ("'a' in {'a': 1}", "map literals are not supported: {'a': 1}"),
        ("request{name: 1} == 1", "messages are not supported: request{name: 1}"),
        (".request.count == 1", "names with a leading dot are not supported: .request"),
        ("9223372036854775808 == 1", "9223372036854775808 has more than 64 bits"),
        ("-9223372036854775809 < 0", "-9223372036854775809 has more than 64 bits"),
        ("1" * 400 + " == 1", "1" * 32 + "... has more than 64 bits"),
        ("0" * 32 + "1 == 1", f"{'0' * 32}... has more than 64 bits"),
        ("!" * 32 + "true", "nested more than 32 deep"),
        ("'\\U00110000' == ''", "'\\U00110000' has an escape that is no character"),
        (f"[{'1,' * 32}1] == []", "a list of 33 entries; must be at most 32"),
        (
            "drivers.all(d, drivers.exists(e, e == d))",
            "drivers.exists(e, e == d): a macro (all, exists, exists_one, filter, map) must not be inside another",
        ),
    ],
)
def test_expression_is_refused(source: str, detail: str) -> None:
    assert refusal_of(source) == f"compilation failed: {detail}"


def test_value_must_be_a_truth_value() -> None:
    assert refusal_of("request.count") == "must be true or false, is int"
    assert refusal_of("claim.labels") == "must be true or false, is map(string, string)"


def test_brackets_are_counted_before_they_are_parsed() -> None:
    """R11: a hundred expressions of nothing else took seconds to read."""
    most = "(" * 128 + "true" + ")" * 128
    assert refusal_of(most) is None
    assert refusal_of(f"({most})") == "has 129 opening brackets, must have at most 128"
    assert refusal_of("[" * 500 + "{" * 500) == "has 1000 opening brackets, must have at most 128"


def test_sixty_characters_of_a_part_are_shown() -> None:
    assert refusal_of(f"'{'x' * 54}' + 1 == 2") == (
        f"compilation failed: '{'x' * 54}' + 1: there is no + of a string and an int"
    )
    assert refusal_of(f"'{'x' * 55}' + 1 == 2") == (
        f"compilation failed: '{'x' * 55}' + ...: there is no + of a string and an int"
    )


def test_source_is_counted_in_bytes() -> None:
    assert refusal_of(f"'{'é' * 500}' == ''") is None
    assert refusal_of(f"'{'é' * 512}' == ''") == f"too long: 1032 bytes, must be at most {MAX_BYTES}"
    assert refusal_of("'\ud800' == ''") is None


def test_source_has_at_most_1024_bytes() -> None:
    """The number is a promise of the documentation, so it stands here as a number."""
    assert refusal_of("true" + " " * 1020) is None
    assert refusal_of("true" + " " * 1021) == "too long: 1025 bytes, must be at most 1024"


def test_evaluation_has_at_most_2000_steps() -> None:
    """Each macro takes 194 and one to be joined, each literal one and one to be joined."""
    macros = ["drivers.all(d, true && true)"] * 10
    source = " && ".join([*macros, *["true"] * 25])
    assert compile_expression(source, TOLERATION_VARIABLES).steps == 2000
    assert refusal_of(" && ".join([*macros, *["true"] * 24, "!true"])) == (
        "too expensive: up to 2001 steps, must be at most 2000"
    )


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        ("true", 1),
        ("!true", 2),
        ("true && true", 4),
        ("true || true || true", 6),
        ("true ? true : false", 3),
        ("true ? true && true : false", 6),
        ("false ? true : true && true", 6),
        ("1 == 2", 3),
        ("1 + 2 == 3", 5),
        ("-request.count == 1", 5),
        ("request.count > 1", 4),
        ("drivers[0] == 'x'", 37),
        ("claim.labels['a'] == 'x'", 6),
        ("'a' in drivers", 67),
        ("'a' in ['a', 'b']", 37),
        ("'a' in claim.labels", 4),
        ("drivers == ['a']", 68),
        ("drivers + drivers == drivers", 165),
        ("drivers.size() > 1", 36),
        ("request.name.size() == 1", 5),
        ("request.name.startsWith('a')", 4),
        ("request.name.contains('a')", 12),
        ("request.name.matches('a')", 51),
        ("has(claim.labels)", 2),
        ("has(claim.labels.a)", 3),
        ("drivers.all(d, true)", 98),
        ("drivers.exists(d, d == 'a')", 162),
        ("drivers.exists_one(d, true)", 98),
        ("drivers.filter(d, true) == []", 132),
        ("drivers.map(d, d) == []", 132),
    ],
)
def test_each_part_of_an_expression_takes_its_steps(source: str, steps: int) -> None:
    """A policy that loads today must load tomorrow, so what counts as a step does not change by accident."""
    assert compile_expression(source, TOLERATION_VARIABLES).steps == steps


def test_steps_are_bounded() -> None:
    assert refusal_of("drivers.all(d, requester.groups.size() > 0 && d in drivers)") == (
        f"too expensive: up to 3458 steps, must be at most {MAX_STEPS}"
    )


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("drivers.all(a, " * 20 + "true" + ")" * 20, id="macros in macros"),
        pytest.param("drivers.map(a, drivers.map(b, a + b))", id="a macro that makes what grows"),
        pytest.param("!" * 1020 + "true", id="not not not"),
        pytest.param("-" * 1000 + "1 == 1", id="minus minus minus"),
        pytest.param("[" * 1024, id="brackets that open"),
        pytest.param("[" * 500 + "]" * 500 + " == []", id="lists in lists"),
        pytest.param("true ? true : " * 70 + "true", id="conditions in conditions"),
        pytest.param("request" + ".name" * 200, id="fields of fields"),
        pytest.param("'a'" + " + 'a'" * 160 + " == ''", id="a long sum"),
        pytest.param("drivers" + ".filter(a, true)" * 60 + " == []", id="macros after macros"),
        pytest.param("requester.groups.all(a, " + "a.matches('a+') && " * 8 + "true)", id="patterns in a macro"),
    ],
)
def test_bomb_is_refused(source: str) -> None:
    assert refusal_of(source) is not None


@pytest.mark.parametrize(
    "source", [" || ".join(["false"] * 113), " && ".join(["true"] * 128), "(" * 128 + "true" + ")" * 128]
)
def test_long_chains_and_parentheses_cost_no_depth(source: str) -> None:
    assert value_of(source) is ("true" in source)


def test_shallow_stack_is_no_crash() -> None:
    """A request may be judged deep in somebody else's stack."""
    expression = compile_expression("!" * 30 + "claim.template", TOLERATION_VARIABLES)

    def descend() -> str:
        try:
            return descend()
        except RecursionError:
            with pytest.raises(EvaluationError, match="nested too deep for the stack"):
                expression.evaluate(FACTS)
            return "refused"

    assert descend() == "refused"
    assert expression.evaluate(FACTS) is False


def test_expression_is_shared_between_threads() -> None:
    expression = compile_expression("drivers.exists(d, d == request.name)", REQUEST_VARIABLES)

    def ask(number: int) -> bool:
        drivers = [f"d{i}" for i in range(number % 32)]
        return expression.evaluate({"drivers": drivers, "request": {"name": "d7"}}) is (number % 32 > 7)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(400)))


def test_variables_depend_on_the_subject() -> None:
    taint = "taint.effect == 'NoExecute' && !has(rule.driver) && !rule.evict && 'ops' in requester.groups"
    compile_expression(taint, TAINT_VARIABLES)
    with pytest.raises(BadExpression, match="unknown variable toleration"):
        compile_expression("toleration.key == ''", REQUEST_VARIABLES)
    with pytest.raises(BadExpression, match="unknown variable request"):
        compile_expression("request.count == 1", TAINT_VARIABLES)


def test_facts_are_not_changed() -> None:
    facts = {"drivers": ["a"]}
    compile_expression("drivers.exists(x, x == 'a')", REQUEST_VARIABLES).evaluate(facts)
    assert facts == {"drivers": ["a"]}


def test_expression_is_a_value() -> None:
    one, same = (compile_expression("true", variables) for variables in (REQUEST_VARIABLES, TAINT_VARIABLES))
    assert (one, hash(one), repr(one)) == (same, hash(same), "Expression('true')")
    assert one != compile_expression("false", REQUEST_VARIABLES)


def test_recursion_limit_stays_as_it_was() -> None:
    program = (
        "import sys; before = sys.getrecursionlimit()\n"
        "from webhook.expressions import engine\n"
        "assert 'celpy' not in sys.modules\n"
        "engine.compile_expression('true', {})\n"
        "assert 'celpy' in sys.modules\n"
        "print(sys.getrecursionlimit() == before)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"


# --- exact sizes ----------------------------------------------------------------------------------


def test_pattern_of_624_letters_is_taken_and_of_one_more_is_not() -> None:
    """A policy that loads today must load tomorrow, so the memory of a pattern does not change by accident."""
    assert refusal_of(f"request.name.matches('{'a' * 624}')") is None
    assert str(refusal_of(f"request.name.matches('{'a' * 625}')")).endswith(
        "pattern too large; use a smaller one, or several"
    )


def test_pattern_that_cannot_be_encoded_is_refused() -> None:
    assert str(refusal_of("request.name.matches('\ud800')")).endswith(": no text")


@pytest.mark.parametrize("pattern", ["a[0-9]+", "a" * 625])
def test_program_of_a_pattern_is_kept_only_by_its_expression(pattern: str) -> None:
    """RE2's module keeps 128 of any size, so that policies that come and go would fill the memory."""
    refusal_of(f"request.name.matches('{pattern}')")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_text_of_256_bytes_is_matched_and_of_257_is_not() -> None:
    matches = "request.name.matches('a$')"
    assert value_of(matches, {"request": {"name": "a" * 256}}) is True
    assert value_of(matches, {"request": {"name": "a" * 257}}) == "matches() takes at most 256 bytes"
    assert value_of(matches, {"request": {"name": "\u00e9" * 128}}) is False
    assert value_of(matches, {"request": {"name": "\u00e9" * 128 + "a"}}) == "matches() takes at most 256 bytes"


@pytest.mark.parametrize(
    ("source", "request_facts", "value"),
    [
        pytest.param("request.name != ''", {"name": "x" * 1024}, True, id="1024 characters"),
        pytest.param(
            "request.name != ''", {"name": "x" * 1025}, "request.name has more than 1024 characters", id="1025"
        ),
        pytest.param("request.count > 0", {"count": 2**63 - 1}, True, id="the largest number"),
        pytest.param("request.count < 0", {"count": -(2**63)}, True, id="the smallest number"),
        pytest.param(
            "request.count < 0", {"count": -(2**63) - 1}, "request.count is of another type", id="a smaller number"
        ),
    ],
)
def test_largest_facts_are_read(source: str, request_facts: dict[str, Any], value: bool | str) -> None:  # noqa: FBT001 -- a table's
    assert value_of(source, {"request": request_facts}) == value


def test_lists_of_32_entries_are_taken() -> None:
    assert refusal_of(f"[{'1,' * 31}1] == []") is None
    assert value_of("drivers.exists(d, d == 'x31')", {"drivers": [f"x{number}" for number in range(32)]}) is True
    halves = {"requester": {"groups": ["g"] * 16}}
    assert value_of("requester.groups + requester.groups != []", halves) is True
    names = {"request": {"name": "n" * 512}}
    assert value_of("request.name + request.name != ''", names) is True


def test_empty_list_takes_the_type_of_the_other() -> None:
    for both in ("[] + drivers", "drivers + []"):
        assert value_of(f"'gpu.example.com' in {both}") is True
        assert refusal_of(f"1 in {both}") == f"compilation failed: 1 in {both}: an int cannot be in a list(string)"
    assert value_of("[] + [] == []") is True
    assert refusal_of("[1] + drivers == []") == (
        "compilation failed: [1] + drivers: there is no + of a list(int) and a list(string)"
    )


def test_refused_pattern_writes_nothing_to_the_log_of_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    assert refusal_of("request.name.matches('(')") is not None
    assert refusal_of("request.name.matches('(a{99}){9}')") is not None
    assert capfd.readouterr() == ("", "")
