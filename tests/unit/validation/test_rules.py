from __future__ import annotations

from typing import Any

from tests.builders import field_errors, make_condition, make_rule, make_taint
from tests.tables import table
from webhook.api.field import quoted
from webhook.expressions.selectors.selector import SelectorFault, compile_selector
from webhook.validation.formats import label_key


def problem_of(expression: str) -> str:
    fault = compile_selector(expression)
    assert isinstance(fault, SelectorFault)
    return fault.detail


AT = "spec.deviceSelector"
SYNTAX = problem_of("device.driver ==")
LATE_SYNTAX = problem_of("-" * 5_000)
TWICE = problem_of("true true")
NO_TAINT = [
    *(f'spec.taint.key: Invalid value: "": {message}' for message in label_key("")),
    "spec.taint.effect: Required value",
]


def cel(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


@table(
    "selector, errors",
    {
        "33 selectors are told and looked into (R-10)": (
            {"selectors": [cel("true")] * 32 + [{}]},
            [f"{AT}.selectors: Too many: 33: must have at most 32 items", f"{AT}.selectors[32].cel: Required value"],
        ),
        "no more than 16 KiB of expressions are parsed": (
            {"selectors": [cel("true" + " " * 10_000), cel("-" * 5_000), cel("-" * 10_000)]},
            [f"{AT}.selectors[1].cel.expression: Invalid value: {quoted('-' * 5_000)}: {LATE_SYNTAX}"],
        ),
        "16 KiB of expressions are parsed": (
            {"selectors": [cel("true".ljust(8192)), cel("true true".ljust(8192))]},
            [f"{AT}.selectors[1].cel.expression: Invalid value: {quoted('true true'.ljust(8192))}: {TWICE}"],
        ),
        "of more than 16 KiB the last are not parsed": (
            {"selectors": [cel("true".ljust(8193)), cel("true true".ljust(8192))]},
            [],
        ),
        "the selector after a wrong one is looked at too (R-10)": (
            {"selectors": [{}, cel("true" * 2561), {}, cel("device.driver ==")]},
            [
                f"{AT}.selectors[0].cel: Required value",
                f"{AT}.selectors[1].cel.expression: Too long: may not be more than 10240 bytes",
                f"{AT}.selectors[2].cel: Required value",
                f'{AT}.selectors[3].cel.expression: Invalid value: "device.driver ==": {SYNTAX}',
            ],
        ),
    },
)
def test_selector(selector: Any, errors: list[str]) -> None:
    assert field_errors(make_rule(selector=selector)) == errors


@table(
    "manifest, errors",
    {
        "no taint (R-7)": (make_rule() | {"spec": {}}, NO_TAINT),
        "no spec (R-7)": (make_rule() | {"spec": None}, NO_TAINT),
    },
)
def test_new_rule(manifest: Any, errors: list[str]) -> None:
    assert field_errors(manifest) == errors


def test_stored_empty_effect_is_kept() -> None:
    stored = make_rule(taint=make_taint(effect=""), version="v1alpha3")
    assert field_errors(stored, stored) == []


def test_unchanged_selectors_are_not_compiled_again() -> None:
    stored = make_rule(selector={"selectors": [cel("-"), cel("true")]}, version="v1alpha3")
    changed = make_rule(selector={"selectors": [cel("true"), cel("-")]}, version="v1alpha3")
    at = "spec.deviceSelector.selectors[1].cel.expression"
    assert field_errors(stored, stored) == []
    assert field_errors(changed, stored) == [f'{at}: Invalid value: "-": {problem_of("-")}']


def test_unchanged_extras_are_not_judged_again() -> None:
    stored = make_rule(taint=make_taint(evictionsPerSecond=0), version="v1alpha3")
    changed = make_rule(taint=make_taint(evictionsPerSecond=-1), version="v1alpha3")
    assert field_errors(stored, stored) == []
    assert field_errors(changed, stored) == [
        "spec.taint.evictionsPerSecond: Invalid value: -1: must be greater than zero"
    ]


CONDITION = "status.conditions[0]"


@table(
    "condition, errors",
    {
        "prefix, 32 KiB": (make_condition(type="devicetaint.io/Eviction", message="m" * 32_768), []),
        "no type, since 1.37": (make_condition(type=None), [f"{CONDITION}.type: Required value: is required"]),
        "an unknown status": (
            make_condition(status="true"),
            [f'{CONDITION}.status: Unsupported value: "true": supported values: "False", "True", "Unknown"'],
        ),
        "no generation": (make_condition(observedGeneration=None), []),
        "a negative generation": (
            make_condition(observedGeneration=-1),
            [f"{CONDITION}.observedGeneration: Invalid value: -1: must be greater than or equal to zero"],
        ),
        "a reason of 1 KiB": (make_condition(reason="R" * 1024), []),
        "a long message, in bytes": (
            make_condition(message="m" * 32_767 + "ü"),
            [f"{CONDITION}.message: Too long: may not be more than 32768 bytes"],
        ),
    },
)
def test_condition(condition: Any, errors: list[str]) -> None:
    assert field_errors(make_rule(conditions=[condition], version="v1beta2"), make_rule(), status=True) == errors


def test_conditions_are_eight_at_most_and_judged_all_the_same() -> None:
    conditions = [make_condition(type=f"Type{number}") for number in range(9)]
    conditions[8]["reason"] = ""
    rule = make_rule(conditions=conditions, version="v1beta2")
    assert sorted(field_errors(rule, make_rule(), status=True)) == [
        "status.conditions: Too many: 9: must have at most 8 items",
        "status.conditions[8].reason: Required value",
    ]
    assert field_errors(make_rule(conditions=conditions[:8], version="v1beta2"), make_rule(), status=True) == []


def test_status_update_must_say_what_it_is_based_on_in_v1() -> None:
    rule = make_rule(conditions=[{}])
    expected = ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"]
    assert field_errors(rule, rule, status=True) == expected
