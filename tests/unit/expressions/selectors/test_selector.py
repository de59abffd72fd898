from __future__ import annotations

import sys
import time
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from tests.selectors import corpus
from webhook.expressions.selectors.cost import MAX_COST
from webhook.expressions.selectors.faults import FaultKind
from webhook.expressions.selectors.kinds import DYN, INT, STRING, CelType, list_of, most_general
from webhook.expressions.selectors.macros import COPIED_MAX
from webhook.expressions.selectors.reader import MAX_DEPTH
from webhook.expressions.selectors.selector import (
    MAX_BYTES,
    CostExceededError,
    EvaluationError,
    SelectedDevice,
    Selector,
    SelectorFault,
    StepBudget,
    compile_selector,
)
from webhook.expressions.selectors.values import Quantity, Semver

DRIVER = "gpu.example.com"
DEVICE = SelectedDevice(
    DRIVER,
    {"model": {"string": "a100"}, "index": {"int": 3}, "healthy": {"bool": True}, "firmware": {"version": "1.2.3"}},
    {"memory": {"value": "40Gi"}},
)


def selector(expression: str) -> Selector:
    found = compile_selector(expression)
    assert isinstance(found, Selector), found
    return found


def fault(expression: str) -> SelectorFault:
    found = compile_selector(expression)
    assert isinstance(found, SelectorFault), found
    return found


# --- what is compiled ---------------------------------------------------------------------------


def test_a_selector_knows_its_source_and_its_cost() -> None:
    found = selector(f'device.driver == "{DRIVER}"')
    assert found.source == f'device.driver == "{DRIVER}"'
    assert found.cost == 4
    assert repr(found) == f"Selector({found.source!r})"


def test_a_selector_is_compiled_once() -> None:
    assert selector("device.driver == 'once'") is selector("device.driver == 'once'")
    assert fault("device.drivr == 'once'") is fault("device.drivr == 'once'")


@pytest.mark.parametrize(
    ("expression", "kind", "detail"),
    [
        ("device.driver ==", FaultKind.INVALID, "Syntax error"),
        ("device.vendor == 'x'", FaultKind.INVALID, "undefined field 'vendor'"),
        ("gpu == 'x'", FaultKind.INVALID, "undeclared reference to 'gpu'"),
        ("device.driver == 1", FaultKind.INVALID, "found no matching overload for '_==_' applied to '(string, int)'"),
        ("{'a': [1]} + 1 == 2", FaultKind.INVALID, "applied to '(map(string, list(int)), int)'"),
        ("[1].all(x, [])", FaultKind.INVALID, "expected type 'bool' but found 'list(dyn)'"),
        ("device.driver", FaultKind.INVALID, "must evaluate to bool or the unknown type, not string"),
        ("int('x') == 1", FaultKind.INTERNAL, "program instantiation failed: cannot convert 'x' to int"),
        ("device.driver.find('[') == ''", FaultKind.INTERNAL, "program instantiation failed"),
        ("device.driver.matches('[')", FaultKind.INVALID, "invalid matches argument"),
        ("lists.range(10000000).all(x, x > 0)", FaultKind.TOO_EXPENSIVE, "too complex, exceeds cost limit"),
        ("isIP('10.0.0.1')", FaultKind.UNSUPPORTED, "not supported here: isIP()"),
        ("kubernetes.DRADevice{} == device", FaultKind.UNSUPPORTED, "messages (kubernetes.DRADevice)"),
    ],
)
def test_a_fault_says_what_is_wrong(expression: str, kind: FaultKind, detail: str) -> None:
    found = fault(expression)
    assert found.kind is kind
    assert detail in found.detail


def test_a_syntax_error_says_where() -> None:
    assert "at line 2, column 3" in fault("true &&\n  )").detail
    assert "mismatched input '[' expecting IDENTIFIER at line 1, column 8" in fault("device.[0]").detail
    assert "mismatched input '<EOF>' expecting IDENTIFIER at line 1, column 8" in fault("device.").detail


def test_a_selector_may_cost_a_million() -> None:
    """These two cost the API server 1,000,000 and 1,000,001."""
    assert selector("lists.range(249997).all(x, true)").cost == MAX_COST
    assert fault("lists.range(249997).all(x, true) && 1 > 0").kind is FaultKind.TOO_EXPENSIVE


def test_what_is_unsupported_and_too_expensive_is_too_expensive() -> None:
    assert fault("lists.range(10000000).all(x, isIP('1'))").kind is FaultKind.TOO_EXPENSIVE


def test_a_pattern_that_only_this_evaluator_finds_too_large_is_unsupported() -> None:
    """Go takes it: a class of characters is one instruction there, and hundreds in RE2."""
    assert selector(r"device.driver.matches('\\pL{50}')").matches(DEVICE) is False
    assert fault(r"device.driver.matches('\\pL{60}')") == SelectorFault(
        FaultKind.UNSUPPORTED, "not supported here: a pattern of this size; use a smaller one, or several"
    )
    assert fault(r"device.driver.matches('\\pL{100}') && 1").kind is FaultKind.INVALID
    assert fault("device.driver.matches('a{1001}')").kind is FaultKind.INVALID
    computed = selector(r"device.driver.matches('\\pL{100}' + '')")
    with pytest.raises(EvaluationError, match=r"^not supported here: a pattern of this size; use a"):
        computed.matches(DEVICE)


def test_a_macro_that_copies_what_is_before_it_copies_100_parts() -> None:
    def chained(numbers: int) -> str:
        return f"optional.of([{', '.join(['1'] * numbers)}]).optMap(list, size(list) > 1).orValue(false)"

    parts_beside = len(("optional", "of()", "[]"))
    assert selector(chained(COPIED_MAX - parts_beside)).matches(DEVICE, StepBudget(1000))
    assert fault(chained(COPIED_MAX - parts_beside + 1)) == SelectorFault(
        FaultKind.UNSUPPORTED, "not supported here: optMap() after more than 100 parts"
    )


def test_length_is_bounded_in_bytes() -> None:
    text = "é" * ((MAX_BYTES - len("device.driver != ''")) // 2)
    longest = f"device.driver != '{text}'"
    longest += " " * (MAX_BYTES - len(longest.encode()))
    assert selector(longest).matches(DEVICE)
    assert "too long: 10241 bytes, must be at most 10240" in fault(longest + " ").detail


@pytest.mark.parametrize("make", ["({})", "[{}][0]", "!({})", "[true].all(x, {})", "true && ({})"])
def test_deep_nesting_is_unsupported_and_never_a_crash(make: str) -> None:
    expression = "true"
    for _ in range(400):
        expression = make.replace("{}", expression)
    assert fault(expression).kind in {FaultKind.UNSUPPORTED, FaultKind.INVALID}


def test_the_deepest_nesting_still_works_near_the_stack_limit() -> None:
    expression = "(" * (MAX_DEPTH - 1) + "true" + ")" * (MAX_DEPTH - 1)
    assert selector(expression).matches(DEVICE)
    assert fault(f"({expression})").kind is FaultKind.UNSUPPORTED


def test_deep_chains_after_deep_parts_are_unsupported() -> None:
    expression = "device.attributes['a']"
    for _ in range(20):
        expression = f"({expression}.b.c.d.e.f)"
    found = fault(f"{expression} == 1")
    assert found.kind is FaultKind.UNSUPPORTED
    assert "levels" in found.detail


@pytest.mark.parametrize(
    "text", ["'", '"', "'''", "`", "r'", "b'", "\\", "'\\" * 400, "[" * 9000, "a." * 5000, "!" * 9000]
)
def test_hostile_texts_take_no_time(text: str) -> None:
    started = time.process_time()
    compile_selector((text * 9000)[: MAX_BYTES - 1])
    assert time.process_time() - started < 10


def test_a_long_chain_of_alternatives_is_no_deep_tree() -> None:
    expression = " || ".join(["device.driver == 'no'"] * 400)
    assert not selector(expression).matches(DEVICE)


# --- devices ------------------------------------------------------------------------------------


def test_allow_multiple_allocations_is_read() -> None:
    device = SelectedDevice(DRIVER, allow_multiple_allocations=True)
    assert selector("device.allowMultipleAllocations").matches(device)
    assert not selector("device.allowMultipleAllocations").matches(DEVICE)


@pytest.mark.parametrize(
    ("attributes", "capacity", "message"),
    [
        ({"a": {"version": "x"}}, {}, "attribute a: parse semantic version"),
        ({"a": {"version": 5}}, {}, "attribute a: parse semantic version"),
        ({"a": {}}, {}, "attribute a: unsupported attribute value"),
        ({"a": {"string": None}}, {}, "attribute a: unsupported attribute value"),
        ({"a": {"ints": 5}}, {}, "attribute a: unsupported attribute value"),
        ({"a": {"versions": "1.0.0"}}, {}, "attribute a: unsupported attribute value"),
        ({}, {"a": {"value": "x"}}, "capacity a: not a quantity"),
    ],
)
def test_a_device_that_cannot_be_read_has_no_answer(attributes: Any, capacity: Any, message: str) -> None:
    device = SelectedDevice(DRIVER, attributes, capacity)
    for expression in ("true", "device.attributes['a'].b == 'x'"):
        with pytest.raises(EvaluationError, match=message):
            selector(expression).interpreted(device)


def test_names_without_a_domain_belong_to_the_driver() -> None:
    device = SelectedDevice(DRIVER, {"a": {"int": 1}, "other.example.com/a": {"int": 2}})
    assert selector(f"device.attributes['{DRIVER}'].a == 1").matches(device)
    assert selector("device.attributes['other.example.com'].a == 2").matches(device)


# --- evaluation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        f"device.driver == '{DRIVER}'",
        f"'{DRIVER}' == device.driver",
        f"device.driver in ['{DRIVER}', 'x']",
        f"device.attributes['{DRIVER}'].model == 'a100'",
        f"device.attributes['{DRIVER}']['model'] != 'b100'",
        f"device.attributes['{DRIVER}'].index in [1, 3]",
        f"device.attributes['{DRIVER}'].healthy",
        f"!(device.attributes['{DRIVER}'].index == 4)",
        f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].index == 3 && !device.allowMultipleAllocations",
    ],
)
def test_common_shapes_have_short_cuts(expression: str) -> None:
    found = selector(expression)
    assert found._native
    assert found.matches(DEVICE)
    assert found.interpreted(DEVICE)


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "device.driver.startsWith('gpu')",
        f"device.attributes['{DRIVER}'].index > 2",
        f"device.driver == '{DRIVER}' || device.driver == 'x'",
        f"has(device.attributes['{DRIVER}'].model)",
        "device.driver in []",
    ],
)
def test_other_shapes_have_none(expression: str) -> None:
    assert not selector(expression)._native


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"device.attributes['{DRIVER}'].missing == 1", "no such key: missing"),
        (f"device.attributes['{DRIVER}'].firmware == '1.2.3'", "no such overload: kubernetes.Semver, string"),
        (f"device.attributes['{DRIVER}'].model", "no such overload: string"),
        (f"!(device.attributes['{DRIVER}'].missing == 1)", "no such key: missing"),
        (f"device.attributes['{DRIVER}'].missing == 1 && device.driver == '{DRIVER}'", "no such key: missing"),
    ],
)
def test_short_cuts_fail_as_the_rest_does(expression: str, message: str) -> None:
    found = selector(expression)
    assert found._native
    for run in (found.matches, found.interpreted):
        with pytest.raises(EvaluationError, match=message):
            run(DEVICE)


def test_the_steps_of_a_pass_are_shared() -> None:
    found = selector(f"device.attributes['{DRIVER}'].model.startsWith('a')")
    budget = StepBudget(40)
    passed = 0
    while budget.left > 5:
        assert found.matches(DEVICE, budget)
        passed += 1
    assert 4 <= passed <= 20
    with pytest.raises(CostExceededError, match="actual cost limit exceeded"):
        found.matches(DEVICE, budget)
    assert budget.left < 0


def test_short_cuts_take_a_step() -> None:
    found = selector(f"device.driver == '{DRIVER}'")
    budget = StepBudget(2)
    assert found.matches(DEVICE, budget)
    assert found.matches(DEVICE, budget)
    with pytest.raises(CostExceededError):
        found.matches(DEVICE, budget)


def test_numbers_and_lists_as_far_as_they_go() -> None:
    for expression in (
        "uint(1e19) == 10000000000000000000u",
        "uint(18446744073709549568.0) == 18446744073709549568u",
        "[1, 2].lastIndexOf(1) == 0",
        "[1, 2, 2, 3].lastIndexOf(2) == 2",
        "[2, 1, 3].lastIndexOf(1) == 1",
        "[1, 2].lastIndexOf(3) == -1",
        "int(-9223372036854774784.0) == -9223372036854774784",
        "int(9223372036854774784.0) == 9223372036854774784",
        r"'\U0010ffff'.size() == 1",
    ):
        assert selector(expression).interpreted(DEVICE), expression
    assert "unsigned integer overflow" in fault("uint(18446744073709551616.0) == 0u").detail
    for expression in ("int(-9223372036854775808.0) == 0", "int(9223372036854775808.0) == 0"):
        assert "integer overflow" in fault(expression).detail
    for escape in (r"\U00110000", r"\ud800", r"\udfff"):
        assert "invalid unicode code point" in fault(f"'{escape}' == ''").detail


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("'a'.findAll('$')", "['']"),
        ("'aa'.findAll('a$|$')", "['a']"),
        ("'a b'.findAll('x*')", "['', '', '', '']"),
        ("'ab'.findAll('b|$')", "['b']"),
        ("'aba'.findAll('a', 1)", "['a']"),
    ],
)
def test_nothing_is_found_anywhere_but_right_after_something(expression: str, found: str) -> None:
    """As Go's regexp.FindAllString, whose leftmost matches do not overlap."""
    assert selector(f"{expression} == {found}").matches(DEVICE)


@pytest.mark.parametrize("call", ["matches('^a.b$')", "find('a.') == 'a?'", "findAll('.') == ['a', '?', 'b']"])
def test_what_cannot_be_encoded_is_searched_as_a_question_mark(call: str) -> None:
    device = SelectedDevice(DRIVER, {"model": {"string": "a\ud800b"}})
    assert selector(f"device.attributes['{DRIVER}'].model.{call}").matches(device)


@pytest.mark.parametrize(
    ("expression", "steps"),
    [
        (f"device.driver == '{DRIVER}'", 4),
        ("optional.of(1).orValue(2) == 1", 4),
        ("optional.none().orValue(2) == 2", 3),
        ("optional.of(1).or(optional.of(2)).value() == 1", 6),
        ("{'a': 1}['a'] == 1", 4),
        ("[1, 2, 3].size() == 3", 3),
        ("[?optional.of(1), 2].size() == 2", 8),
        ("{'a': 1}[?'a'].orValue(2) == 1", 5),
        ("{'a': 1}.?a.orValue(2) == 1", 5),
        (f"device.attributes[?'{DRIVER}'].hasValue()", 5),
        ("quantity('1').isInteger()", 3),
        ("1 + 2 == 3", 4),
        ("'0123456789' + '012345678' != ''", 6),
        ("b'0123456789' + b'' != b''", 6),
        ("[2, 1].sort() == [1, 2]", 9),
        ("{'a': 1, 'b': 2}.size() == 2", 6),
        ("[1, 2, 3].map(x, x) == [1, 2, 3]", 24),
        ("[1, 2, 3].exists(x, x == 1)", 15),
        ("[1, 2, 3].exists(x, x == 3)", 29),
    ],
)
def test_steps_of_an_evaluation_are_counted(expression: str, steps: int) -> None:
    """As many are enough, and one less is not."""
    budget = StepBudget(1000)
    assert selector(expression).interpreted(DEVICE, budget)
    assert 1000 - budget.left == steps
    assert selector(expression).interpreted(DEVICE, StepBudget(steps))
    with pytest.raises(CostExceededError):
        selector(expression).interpreted(DEVICE, StepBudget(steps - 1))


def test_a_name_that_is_added_to_stays_as_it_was() -> None:
    assert selector("cel.bind(x, [1], (x + [2]).size() == 2 && x == [1])").matches(DEVICE)


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(3000).all(x, x >= 0)",
        "lists.range(3000).all(x, x >= 0) || true",
        "[1].exists(y, lists.range(3000).all(x, x >= 0))",
        "lists.range(3000).map(x, x).size() == 3000",
    ],
)
def test_no_operator_hides_that_the_steps_are_used_up(expression: str) -> None:
    found = selector(expression)
    assert found.matches(DEVICE)
    with pytest.raises(CostExceededError):
        found.matches(DEVICE, StepBudget(500))


def test_what_is_accepted_stays_below_the_limit_of_one_evaluation() -> None:
    found = selector("device.attributes.all(a, device.attributes.all(b, a != b || true))")
    device = SelectedDevice(DRIVER, {f"d{number}.example.com/a": {"int": number} for number in range(32)})
    budget = StepBudget(MAX_COST)
    assert found.matches(device, budget)
    assert MAX_COST - budget.left < found.cost * 2


def test_a_stack_that_is_nearly_used_up_is_no_crash() -> None:
    """With ever less room: a verdict, then an error. Versions of Python count frames differently."""
    found = selector("[1].all(a, [2].all(b, [3].all(c, a + b + c == 6)))")

    def deeper(left: int) -> bool:
        return deeper(left - 1) if left else found.matches(DEVICE)

    def within(frames: int) -> bool | str | None:
        try:
            return deeper(sys.getrecursionlimit() - used - frames)
        except EvaluationError as error:
            return str(error)
        except RecursionError:
            return None  # too few to ask

    used = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        frame, used = frame.f_back, used + 1
    answers = [answer for frames in range(80, 12, -1) if (answer := within(frames)) is not None]
    verdicts = answers.count(True)
    assert 0 < verdicts < len(answers)
    assert all("nested too deep" in str(answer) for answer in answers[verdicts:])


def test_values_do_not_change_between_evaluations() -> None:
    found = selector(f"[1, 2].map(x, x + 1) == [2, 3] && ['a'].all(x, x != device.attributes['{DRIVER}'].model)")
    assert [found.matches(DEVICE) for _ in range(3)] == [True] * 3


def test_quantities_and_versions_are_exact() -> None:
    variables = DEVICE.variables["device"]
    assert variables["capacity"][DRIVER]["memory"] == Quantity(Fraction(40 * 2**30))
    assert variables["attributes"][DRIVER]["firmware"] == Semver(1, 2, 3)


# --- types that fit each other --------------------------------------------------------------------


PARAMETER = CelType("parameter", "T")


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType("map", "map", (key, value))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (INT, INT, INT),
        (INT, STRING, STRING),
        (DYN, INT, DYN),
        (INT, DYN, DYN),
        (PARAMETER, INT, PARAMETER),
        (INT, PARAMETER, PARAMETER),
        (list_of(INT), list_of(DYN), list_of(DYN)),
        (list_of(DYN), list_of(INT), list_of(DYN)),
        (list_of(INT), list_of(STRING), list_of(STRING)),
        (list_of(list_of(DYN)), list_of(list_of(INT)), list_of(list_of(DYN))),
        (map_of(STRING, DYN), map_of(STRING, INT), map_of(STRING, DYN)),
        (map_of(STRING, INT), map_of(STRING, DYN), map_of(STRING, DYN)),
        (map_of(DYN, INT), map_of(STRING, DYN), map_of(STRING, DYN)),
        (CelType("opaque", "a", (DYN,)), CelType("opaque", "a", (INT, INT)), CelType("opaque", "a", (INT, INT))),
        (CelType("opaque", "a", (DYN,)), CelType("opaque", "b", (INT,)), CelType("opaque", "b", (INT,))),
    ],
)
def test_the_more_general_of_two_types_is_the_one_that_says_less(
    one: CelType, other: CelType, expected: CelType
) -> None:
    """The other one, if neither does."""
    assert most_general(one, other) == expected


# --- every answer is the one that Kubernetes gave -------------------------------------------------


EXPRESSIONS = corpus.expressions()
RECORDED = dict(zip(EXPRESSIONS, corpus.recorded(), strict=True))
DEVICES = corpus.devices()
UNSUPPORTED_REASONS = {
    "'%s'.format(), which writes any value as a text": ("format()",),
    "messages of protobuf": ("messages",),
    "durations and timestamps": ("duration()", "timestamp()"),
    "IP addresses, URLs and named formats": ("ip()", "isIP()", "cidr()", "url()", "isURL()", "format."),
}
"""Why the API server may take what we do not, with the beginnings of what our fault names."""


def unsupported_reason(detail: str) -> str | None:
    named = detail.removeprefix("not supported here: ")
    return next((reason for reason, starts in UNSUPPORTED_REASONS.items() if named.startswith(starts)), None)


def test_there_are_enough_of_both() -> None:
    assert len(RECORDED) == len(EXPRESSIONS) >= 400
    assert len(DEVICES) == 50
    sorts = Counter("refused" if "refused" in answer else "taken" for answer in RECORDED.values())
    assert min(sorts.values()) >= 150
    assert {letter for answer in RECORDED.values() for letter in answer.get("outcomes", "")} == set("TFE")


@pytest.mark.untraced
@pytest.mark.parametrize("native", [True, False], ids=["short cuts", "interpreted"])
def test_every_answer_is_the_one_that_kubernetes_gave(native: bool) -> None:  # noqa: FBT001 -- a parameter
    differ = {}
    unsupported = Counter[str]()
    for expression, theirs in RECORDED.items():
        answer = corpus.ours(expression, DEVICES, native=native)
        if answer == {"refused": FaultKind.UNSUPPORTED}:
            fault = compile_selector(expression)
            assert isinstance(fault, SelectorFault)
            reason = unsupported_reason(fault.detail)
            assert reason is not None, (expression, fault)
            unsupported[reason] += 1
        elif answer != theirs:
            differ[expression] = (answer, theirs)
    assert differ == {}
    assert set(unsupported) == set(UNSUPPORTED_REASONS)
    assert sum(unsupported.values()) <= len(RECORDED) / 40
