"""Selectors cost no more than they are charged for, whatever they are made of: when they are compiled and evaluated."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.costs import calls_in
from tests.selectors import corpus
from tests.selectors.hostile import HEAVY_PATTERNS, hostile, instance, parameters, value
from webhook.expressions import values
from webhook.expressions.selectors import selector as selectors
from webhook.expressions.selectors import texts
from webhook.expressions.selectors.builder import Frame
from webhook.expressions.selectors.call_costs import Range
from webhook.expressions.selectors.checker import check
from webhook.expressions.selectors.cost import MAX_COST, worst_cost
from webhook.expressions.selectors.faults import (
    BETWEEN_LOOKS,
    CostExceededError,
    FaultKind,
    SelectorError,
    StepBudget,
)
from webhook.expressions.selectors.functions import dispatched, functions
from webhook.expressions.selectors.kinds import PARTS_MAX, CelType, list_of, map_of, named
from webhook.expressions.selectors.reader import read_selector
from webhook.expressions.selectors.selector import (
    COMPILE_STEPS,
    Compiling,
    SelectedDevice,
    Selector,
    SelectorFault,
    compile_selector,
)
from webhook.expressions.selectors.texts import _replaced, compiled_pattern, instructions
from webhook.expressions.values import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.expressions.selectors.builder import Step

SEEDS: Final = 200
STEPS: Final = 2000
CALLS_A_STEP: Final = 30
"""Functions that are called for one step: reading is dearest."""
CHARACTERS_A_STEP: Final = 40
OVERLOADS: Final = sorted(each.id for each in functions().by_id.values() if each.run is not None)
DEVICE: Final = SelectedDevice("gpu.example.com", {"model": {"string": "a100"}, "tags": {"strings": ["a", "b"]}})


def size_of(found: Any) -> int:
    """Characters and entries of a value, not of those within."""
    return len(found) if isinstance(found, str | bytes | list | dict) else 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all values that functions of the library make."""
    sizes: list[int] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            found = function(*arguments)
            sizes.append(size_of(found))
            return found

        return run

    known = functions().by_id
    for name in OVERLOADS:
        monkeypatch.setitem(known, name, known[name]._replace(run=watched(known[name].run)))
    selectors._remembered.cache_clear()
    return sizes


def compiled(text: str, budget: StepBudget) -> Selector | SelectorFault:
    return selectors._measured(text, budget)


def test_hostile_selectors_cost_no_more_than_they_are_charged_for(made: list[int]) -> None:
    """Those that are too expensive to be used are evaluated all the same."""
    evaluated = 0
    for seed in range(SEEDS):
        text, budget = hostile(seed), StepBudget(COMPILE_STEPS)
        assert len(text) <= selectors.MAX_BYTES
        runs: list[Step] = []
        calls = calls_in(lambda: built(text, budget, runs))  # noqa: B023 -- called at once
        assert calls <= CALLS_A_STEP * (COMPILE_STEPS - budget.left), text
        for run in runs:
            made.clear()
            budget = StepBudget(STEPS)
            calls = calls_in(lambda: evaluate(run, budget))  # noqa: B023 -- as above
            charged = STEPS - max(budget.left, 0) + 1
            assert calls <= CALLS_A_STEP * charged, text
            assert sum(made) <= CHARACTERS_A_STEP * charged, text
            evaluated += 1
    assert evaluated >= SEEDS / 5


@pytest.mark.parametrize(
    "text",
    [
        "lists.range(490).all(i, " + "&&".join(["true"] * 1600) + ")",
        "lists.range(490).all(i, " + "&&".join(["(true?true:true)"] * 500) + ")",
        "lists.range(490).all(i, " + "&&".join(["bool('true')"] * 700) + ")",
        "lists.range(490).all(i, " + "&&".join(["[].all(x, true)"] * 600) + ")",
        "lists.range(490).all(i, " + "&&".join(["{}=={}"] * 900) + ")",
        "lists.range(490).all(i, " + "&&".join(["!(1 in [])"] * 700) + ")",
        "lists.range(490).all(i, " + "&&".join(["has(device.attributes['x'].a)"] * 300) + ")",
        "lists.range(100).all(i, " + "||".join(["!(" * 38 + "semver('').major()==1" + ")" * 38] * 60) + ")",
        "lists.range(100).all(i, cel.bind(e, [1][i + 5], " + "||".join(["!(" * 38 + "e==1" + ")" * 38] * 60) + "))",
    ],
    ids=lambda text: text[24:50],
)
def test_what_fails_or_says_nothing_is_charged_for(text: str) -> None:
    runs: list[Step] = []
    built(text, StepBudget(10**9), runs)
    [run] = runs
    budget = StepBudget(STEPS)
    calls = calls_in(lambda: evaluate(run, budget))
    assert calls <= CALLS_A_STEP * (STEPS - max(budget.left, 0) + 1)


def built(text: str, budget: StepBudget, runs: list[Step]) -> None:
    """Adds what evaluates a selector, however much it may cost, if there is no other fault in it."""
    with contextlib.suppress(SelectorError):
        run = selectors._checked(text, lambda _: True, "", budget).run
        if not isinstance(run, SelectorError):
            runs.append(run)


def evaluate(run: Step, budget: StepBudget) -> None:
    with contextlib.suppress(EvaluationError):
        run(Frame(DEVICE.variables, budget))


def charged_for(overload: str, size: int, made: list[int]) -> tuple[int, int, int]:
    """The steps, the calls, and the size of the result, of a call with arguments of a size."""
    known = functions().by_id[overload]
    # The value of an optional value is not made again.
    stand_ins = dict.fromkeys(parameters(known), named("int" if overload == "optional_value" else "string"))
    kinds = [instance(each, stand_ins) for each in known.arguments]
    values = [value(kind, size) for kind in kinds]
    function = dispatched([known], kinds)
    frame = Frame({}, StepBudget(10**9))

    def run() -> None:
        for each in values:
            frame.charge_for(each)
        try:
            made.append(size_of(function(frame.charge, *values) if known.counted else function(*values)))
        except EvaluationError:
            made.append(0)

    calls = calls_in(run)
    return 10**9 - frame.budget.left, calls, made[-1]


@pytest.mark.parametrize("overload", OVERLOADS)
def test_no_function_is_free(overload: str) -> None:
    """What it takes grows with what it is given, and bounds what it does and makes."""
    few, many = charged_for(overload, 20, []), charged_for(overload, 400, [])
    kinds = functions().by_id[overload].arguments
    if any(kind.kind in {"list", "map", "string", "bytes", "parameter"} or "Semver" in kind.name for kind in kinds):
        # A tenth of a step a character or an entry is the least.
        assert many[0] >= few[0] + 30
    for steps, calls, size in (few, many):
        assert calls <= CALLS_A_STEP * (steps + 1)
        assert size <= CHARACTERS_A_STEP * (steps + 1)


def test_every_function_can_be_part_of_a_hostile_selector() -> None:
    texts = "".join(map(hostile, range(SEEDS)))
    names = {name for name, overloads in functions().by_name.items() if any(each.run is not None for each in overloads)}
    spelt = {name: f"{name}(" for name in names if name[0].isalpha() and "@" not in name}
    assert [name for name, start in spelt.items() if start not in texts] == []


# --- types ------------------------------------------------------------------------------------------


def bomb(levels: int) -> str:
    """Each value is of a type that is twice as large as the one before."""
    start = "".join(f"cel.bind(v{at}, {{v{at - 1}: v{at - 1}}}, " if at else "cel.bind(v0, 1, " for at in range(levels))
    return f"{start}v{levels - 1} == v{levels - 1}{')' * levels}"


def test_a_type_of_too_many_parts_is_unsupported() -> None:
    assert isinstance(compile_selector(bomb(6)), Selector)
    for levels in (8, 16, 22):
        assert compile_selector(bomb(levels)) == SelectorFault(
            FaultKind.UNSUPPORTED, "not supported here: a type of more than 128 parts; nest fewer lists and maps"
        )


def test_what_a_type_bomb_takes_does_not_double_with_each_level() -> None:
    def calls(levels: int) -> int:
        return calls_in(lambda: compiled(bomb(levels), StepBudget(COMPILE_STEPS)))

    assert calls(20) < 4 * calls(10)


def test_equal_types_are_one_object_while_they_are_used() -> None:
    one, other = (map_of(list_of(CelType("int", "int")), named("list(list(string))")) for _ in range(2))
    assert one is other
    assert hash(one) == hash(other)


def test_a_type_counts_its_parts_as_often_as_they_stand_there() -> None:
    kind = named("int")
    while 2 * kind.parts + 1 <= PARTS_MAX:
        kind = map_of(kind, kind)
    assert kind.parts == 2**7 - 1
    with pytest.raises(SelectorError, match="a type of more than 128 parts"):
        map_of(kind, kind)


@pytest.mark.untraced
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 40 + "]" * 40 + " == []", id="lists of nothing"),
        pytest.param(
            "".join(f"cel.bind(v{at}, [{f'v{at - 1}' if at else ''}, []], " for at in range(20))
            + "v19 == v19"
            + ")" * 20,
            id="lists of what was a list of nothing",
        ),
        pytest.param(
            "".join(f"cel.bind(v{at}, [], " for at in range(40))
            + " + ".join(f"v{at}" for at in range(40))
            + " == []"
            + ")" * 40,
            id="parameters that stand for each other",
        ),
        pytest.param("{" * 1 + ", ".join(f"{at}: []" for at in range(900)) + "} == {}", id="many parameters"),
        pytest.param("(" * 45 + "{1: " * 1 + "1}" + ")" * 45 + " == {}", id="parentheses"),
        pytest.param("{1:" * 40 + "1" + "}" * 40 + " == {}", id="maps"),
        pytest.param("dyn(" * 40 + "[" + ", ".join(["1"] * 3000) + "]" + ")" * 40 + " == 1", id="conversions"),
        pytest.param("1 in [" + ", ".join(["1"] * 3000) + "]", id="a long list"),
        pytest.param(" || ".join(["optional.of(1).optMap(x, x).hasValue()"] * 45), id="copies"),
        pytest.param("a." * 45 + "a" + " && a" * 900, id="names"),
        pytest.param(f"double('{'1' * 9000}x') == 1.0", id="digits"),
        pytest.param(f"double('0x{'a' * 9000}x') == 1.0", id="digits of hexadecimal numbers"),
        pytest.param(f"int('{'0' * 9000}x') == 1", id="zeros"),
        pytest.param("'" + "\\\\" * 4000 + "'.matches('a')", id="backslashes"),
        pytest.param("!" * 9000 + "true", id="exclamation marks"),
        pytest.param("-" * 9000 + "1 == 1", id="minus signs"),
    ],
)
def test_what_repeats_itself_is_checked_in_proportion_to_its_length(text: str) -> None:
    budget = StepBudget(COMPILE_STEPS)
    assert calls_in(lambda: compiled(text, budget)) <= CALLS_A_STEP * (COMPILE_STEPS - budget.left)
    assert COMPILE_STEPS - budget.left <= 40 * len(text) + 1000


def test_a_name_and_a_type_are_cut_in_messages() -> None:
    fault = compile_selector("a" * 9000)
    assert isinstance(fault, SelectorFault)
    assert len(fault.detail) == 1024 + len("...")
    found = compile_selector(f"int('{'7' * 100}' + '{'x' * 3000}') == 1")
    assert isinstance(found, Selector)
    with pytest.raises(EvaluationError) as raised:
        found.matches(DEVICE)
    assert len(str(raised.value)) == 1024 + len("...")


# --- patterns ---------------------------------------------------------------------------------------

PATTERNS: Final = (
    *("abc", "(a?){1,90}", "(?:(?:a?){30}){30}", "[a-zé]{30}", "(?i)kelvins{20}", "\\pL{9}", "[\\pL\\pN]{4}", "\\PN"),
    *("[^a]{30}", "(.{9}){9}", "\\w+\\s?\\D*", "[[:^alpha:]x]{7}", "a|b|cd|é", "x{,3}", "(((a{3}){3}){3}){3}", "^$"),
    *(
        "é{300}",
        "[\u03b1-\u03c9]{20}",
        ".{100}",
        "(?s).{100}",
        "\\p{Greek}{30}",
        "\\x{10FFFF}{9}",
        "[[:word:]]{50}",
        "a{0}",
    ),
    *("(?i)[ks]{90}", "[[:word:]ks]{9}", "[A-Z_.-]{0,63}", "[\\p{Lu}\\p{Nd}é]{9}", "\\x{4000}{9}", "(?:x{0,63}y?){9}"),
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_program_is_no_larger_than_it_was_taken_for(pattern: str) -> None:
    assert compiled_pattern(pattern).programsize <= instructions(pattern)


USUAL_PATTERNS: Final = (
    "^(nvidia|amd|intel)[.]com/(gpu|mig-[0-9]g[.][0-9]+gb)?$",
    "(?i)^(a100|h100|h200|b200)(-(sxm|pcie))?$",
    "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?){0,9}",
    "(?:[A-Za-z0-9_.-]{0,63},){9}[A-Za-z0-9_.-]{0,63}",
    "[^/]{0,63}/[^/]{0,63}",
    "x{0,1000}",
    "\\pL[\\pL\\pN_-]{0,30}",
    "^\\p{Lu}{1,20}\\p{Nd}{0,63}$",
    "\\p{Lu}{0,63}",
    "\\x{4000}",
    "|".join(f"nvidia-{at}00-(?:sxm|pcie)?" for at in range(300)),
)


@pytest.mark.parametrize("pattern", USUAL_PATTERNS)
def test_a_usual_pattern_is_compiled(pattern: str) -> None:
    assert isinstance(compile_selector(f"device.driver.matches(r'{pattern}')"), Selector)


@pytest.mark.parametrize("pattern", HEAVY_PATTERNS, ids=range(len(HEAVY_PATTERNS)))
def test_a_pattern_that_would_hold_all_threads_is_not_given_to_re2(pattern: str, programs: list[str]) -> None:
    assert compile_selector(f"device.driver.matches(r'{pattern}')") == SelectorFault(
        FaultKind.UNSUPPORTED, "not supported here: a pattern of this size; use a smaller one, or several"
    )
    computed = compile_selector(f"device.driver.matches(r'{pattern[:9000]}' + r'{pattern[9000:]}')")
    assert isinstance(computed, Selector)
    with pytest.raises(EvaluationError, match="not supported here: a pattern of this size"):
        computed.matches(DEVICE)
    assert programs == []


def test_the_name_of_a_class_has_at_most_64_characters() -> None:
    """Where no brace closes it, all that follows would be looked at for each."""
    far = "\\p{" + "a" * 65 + "}"
    assert instructions(f"{far}{{9}}") < 2 * instructions(far)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The patterns that RE2 compiles meanwhile."""
    made: list[str] = []

    def noted(pattern: str, most_bytes: int) -> Any:
        made.append(pattern)
        return texts_compiled(pattern, most_bytes)

    texts_compiled = values.compiled
    monkeypatch.setattr(texts, "compiled", noted)
    return made


def test_many_patterns_are_not_compiled(programs: list[str]) -> None:
    text = " || ".join(f"'a'.matches('(a?){{1,{at}}}')" for at in range(100, 400))
    budget = StepBudget(COMPILE_STEPS)
    assert compiled(text, budget) == SelectorFault(
        FaultKind.UNSUPPORTED, "not supported here: takes too long to check; use fewer selectors, or simpler ones"
    )
    assert 0 < len(programs) < 150


def test_a_selector_keeps_the_programs_of_its_patterns(programs: list[str]) -> None:
    """Others push them out of the cache; to compile them again is not what an evaluation is charged for."""
    found = compile_selector(" && ".join(f"!device.driver.matches('x{at}$')" for at in range(40)))
    assert isinstance(found, Selector)
    assert found.matches(DEVICE)
    assert len(programs) >= 40
    programs.clear()
    assert found.matches(DEVICE)
    assert programs == []


def test_a_search_takes_a_step_for_each_instruction_and_32_characters() -> None:
    program, charged = compiled_pattern("x$"), list[int]()
    assert functions().by_id["matches"].run(charged.append, "a" * 3200, program) is False
    assert charged == [100 * program.programsize]


def test_a_pattern_that_is_computed_is_charged_for_each_time() -> None:
    found = compile_selector("device.driver.matches('gpu' + '')")
    assert isinstance(found, Selector)
    taken = []
    for _ in range(2):
        budget = StepBudget(STEPS)
        assert found.matches(DEVICE, budget)
        taken.append(STEPS - budget.left)
    assert taken[0] == taken[1] > 100
    long = compile_selector("device.driver.matches('(a?){1,900}' + '')")
    assert isinstance(long, Selector)
    with pytest.raises(CostExceededError):
        long.matches(DEVICE, StepBudget(STEPS))


# --- looks ------------------------------------------------------------------------------------------


class Enough(Exception):  # noqa: N818 -- it says when to stop
    """Raised by a look."""


def after(looks: int) -> Callable[[], None]:
    left = iter(range(looks))

    def look() -> None:
        if next(left, None) is None:
            raise Enough

    return look


def test_a_look_at_the_clock_comes_at_least_every_256_steps() -> None:
    found = compile_selector("lists.range(200).all(x, lists.range(200).all(y, x + y >= 0))")
    assert isinstance(found, Selector)
    budget = StepBudget(10**6, after(10))
    with pytest.raises(Enough):
        found.matches(DEVICE, budget)
    assert 10**6 - budget.left <= 11 * BETWEEN_LOOKS + 400


def test_a_look_ends_the_compiling_of_a_selector() -> None:
    compiling = Compiling()
    text = " || ".join(["1 < 2"] * 900)
    with pytest.raises(Enough), compiling.turn(after(3)):
        compile_selector(text)
    assert compiling.expression == text
    with compiling.turn():
        assert isinstance(compile_selector(text), Selector)
    assert compiling.expression == ""
    with compiling.turn(after(0)):
        assert isinstance(compile_selector(text), Selector), "what was compiled before takes nothing"


@pytest.mark.untraced
def test_selectors_of_a_turn_share_its_steps() -> None:
    text = " || ".join(["1 < 2"] * 900)
    with Compiling().turn():
        found = [compile_selector(f"{text} || {at} == 0") for at in range(8)]
    faults = [each.detail for each in found if isinstance(each, SelectorFault)]
    assert 0 < len(faults) < 8
    assert set(faults) == {"not supported here: takes too long to check; use fewer selectors, or simpler ones"}


# --- what calls cost ------------------------------------------------------------------------------


COSTS = corpus.recorded_costs()


def test_no_row_of_the_table_hides_another() -> None:
    rows = [each.id for known in functions().by_name.values() for each in known]
    assert len(rows) == len(functions().by_id) > 300


@pytest.mark.parametrize(
    ("size", "old", "new", "expected"),
    [
        pytest.param(3, 0, 1, (7, 7), id="before, between and after all letters"),
        pytest.param(3, 0, 0, (3, 3), id="nothing in these places"),
        pytest.param(3, 1, 1, (3, 3), id="letter for letter"),
        pytest.param(4, 2, 3, (4, 6), id="longer"),
        pytest.param(4, 2, 1, (2, 4), id="shorter"),
        pytest.param(5, 2, 1, (3, 5), id="shorter, with a letter left"),
        pytest.param(5, 2, 2, (5, 5), id="as long, with a letter left"),
        pytest.param(0, 0, 2, (2, 2), id="nothing becomes something"),
    ],
)
def test_size_of_a_text_in_which_a_part_is_replaced(size: int, old: int, new: int, expected: tuple[int, int]) -> None:
    """From none of it being that part to all of it."""
    assert _replaced(*[Range(each, each) for each in (size, old, new)]) == Range(*expected)


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        pytest.param("'x' in device.driver.split('.', -9223372036854775808)", 2**63 + 15, id="parts of a text"),
        pytest.param("[1, 2].slice(1, 0) == []", 2**64 - 1, id="entries of a list"),
    ],
)
def test_a_negative_number_counts_as_one_without_a_sign(expression: str, cost: int) -> None:
    """The figures are the API server's."""
    node = read_selector(expression)
    _ = check(node)
    assert worst_cost(node) == cost


def test_there_are_enough_of_unsupported_ones() -> None:
    assert len(COSTS) == len(corpus.expressions("unsupported")) >= 70


@pytest.mark.parametrize("expression", COSTS)
def test_unsupported_one_costs_what_it_costs_the_api_server(expression: str) -> None:
    """Which refuses one that is too expensive, whether we can evaluate it or not."""
    node = read_selector(expression)
    _ = check(node)
    assert worst_cost(node) == COSTS[expression]
    fault = compile_selector(expression)
    assert isinstance(fault, SelectorFault)
    too_expensive = COSTS[expression] > MAX_COST
    assert fault.kind is (FaultKind.TOO_EXPENSIVE if too_expensive else FaultKind.UNSUPPORTED)
