from __future__ import annotations

from typing import Any

import pytest

from tests.builders import field_errors, make_condition, make_meta, make_rule, make_taint
from webhook.api.field import quoted
from webhook.expressions.selectors.selector import SelectorFault, compile_selector
from webhook.validation.formats import condition_reason, dns1123_label, dns1123_subdomain, label_key


def problem_of(expression: str) -> str:
    fault = compile_selector(expression)
    assert isinstance(fault, SelectorFault)
    return fault.detail


BAD_SUBDOMAIN = dns1123_subdomain("-")[0]
BAD_LABEL = dns1123_label("-")[0]
BAD_KEY = label_key("-")[0]
AT = "spec.deviceSelector"
EVICT = 'Unsupported value: "Evict": supported values: "NoExecute", "NoSchedule", "None"'
SYNTAX = problem_of("device.driver ==")
LATE_SYNTAX = problem_of("-" * 5_000)
TWICE = problem_of("true true")
NO_TAINT = [
    *(f'spec.taint.key: Invalid value: "": {message}' for message in label_key("")),
    "spec.taint.effect: Required value",
]


def cel(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


@pytest.mark.parametrize(
    ("selector", "errors"),
    [
        pytest.param(None, [], id="a missing selector (R-2)"),
        pytest.param({}, [], id="an empty selector (R-2)"),
        pytest.param({"driver": "GPU.example.com"}, [], id="upper case in the driver (R-3)"),
        pytest.param({"driver": ""}, [f"{AT}.driver: Required value"], id="an empty driver (R-3, R-6)"),
        pytest.param({"driver": "-"}, [f'{AT}.driver: Invalid value: "-": {BAD_SUBDOMAIN}'], id="a malformed driver"),
        pytest.param(
            {"driver": "d" * 64}, [f"{AT}.driver: Too long: may not be more than 63 bytes"], id="a long driver"
        ),
        pytest.param({"pool": "a/b.c"}, [], id="a pool of parts (R-4)"),
        pytest.param({"pool": ""}, [f"{AT}.pool: Required value"], id="an empty pool (R-4, R-6)"),
        pytest.param({"pool": "a//b"}, [f'{AT}.pool: Invalid value: "": {BAD_SUBDOMAIN}'], id="a malformed pool"),
        pytest.param({"device": "gpu-0"}, [], id="a device (R-5)"),
        pytest.param({"device": ""}, [f'{AT}.device: Invalid value: "": {BAD_LABEL}'], id="an empty device (R-5)"),
        pytest.param(
            {"device": "gpu.0"}, [f'{AT}.device: Invalid value: "gpu.0": must not contain dots'], id="a dot (R-5)"
        ),
        pytest.param(
            {"device": "d" * 64},
            [f'{AT}.device: Invalid value: "{"d" * 64}": must be no more than 63 bytes'],
            id="a long device is invalid, not too long (R-5)",
        ),
        pytest.param({"deviceClassName": "gpu.example.com"}, [], id="a class (R-9)"),
        pytest.param(
            {"deviceClassName": ""},
            [f'{AT}.deviceClassName: Invalid value: "": {BAD_SUBDOMAIN}'],
            id="an empty class (R-9)",
        ),
        pytest.param({"selectors": [cel("device.driver == 'a'")] * 32}, [], id="32 selectors (R-10)"),
        pytest.param(
            {"selectors": [cel("true")] * 32 + [{}]},
            [
                f"{AT}.selectors: Too many: 33: must have at most 32 items",
                f"{AT}.selectors[32].cel: Required value",
            ],
            id="33 selectors are told and looked into (R-10)",
        ),
        pytest.param(
            {"selectors": [cel("true" + " " * 10_000), cel("-" * 5_000), cel("-" * 10_000)]},
            [f"{AT}.selectors[1].cel.expression: Invalid value: {quoted('-' * 5_000)}: {LATE_SYNTAX}"],
            id="no more than 16 KiB of expressions are parsed",
        ),
        pytest.param(
            {"selectors": [cel("true".ljust(8192)), cel("true true".ljust(8192))]},
            [f"{AT}.selectors[1].cel.expression: Invalid value: {quoted('true true'.ljust(8192))}: {TWICE}"],
            id="16 KiB of expressions are parsed",
        ),
        pytest.param(
            {"selectors": [cel("true".ljust(8193)), cel("true true".ljust(8192))]},
            [],
            id="of more than 16 KiB the last are not parsed",
        ),
        pytest.param(
            {"selectors": [{}, {"cel": None}]},
            [f"{AT}.selectors[0].cel: Required value", f"{AT}.selectors[1].cel: Required value"],
            id="selectors without cel (R-10)",
        ),
        pytest.param(
            {"selectors": [{}, cel("true" * 2561), {}, cel("device.driver ==")]},
            [
                f"{AT}.selectors[0].cel: Required value",
                f"{AT}.selectors[1].cel.expression: Too long: may not be more than 10240 bytes",
                f"{AT}.selectors[2].cel: Required value",
                f'{AT}.selectors[3].cel.expression: Invalid value: "device.driver ==": {SYNTAX}',
            ],
            id="the selector after a wrong one is looked at too (R-10)",
        ),
        pytest.param(
            {"selectors": [{"cel": {}}]},
            [f'{AT}.selectors[0].cel.expression: Invalid value: "": {problem_of("")}'],
            id="an empty expression (R-10)",
        ),
        pytest.param(
            {"selectors": [cel("true"), cel("device.driver ==")]},
            [f'{AT}.selectors[1].cel.expression: Invalid value: "device.driver ==": {SYNTAX}'],
            id="a broken expression (R-10)",
        ),
        pytest.param(
            {"selectors": [cel("(" * 10_241)]},
            [f"{AT}.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
            id="a long expression is not compiled (R-10)",
        ),
        pytest.param({"all": True}, [], id="an unknown field is no field error"),
    ],
)
def test_selector(selector: Any, errors: list[str]) -> None:
    assert field_errors(make_rule(selector=selector)) == errors


@pytest.mark.parametrize(
    ("manifest", "errors"),
    [
        pytest.param(make_rule(meta=make_meta("a.b-c")), [], id="a subdomain (R-1)"),
        pytest.param(
            make_rule(meta=make_meta("A")), [f'metadata.name: Invalid value: "A": {BAD_SUBDOMAIN}'], id="upper case"
        ),
        pytest.param(
            make_rule(meta={}), ["metadata.name: Required value: name or generateName is required"], id="no name (R-1)"
        ),
        pytest.param(make_rule(meta={"generateName": "gpu-"}), [], id="a prefix (R-1)"),
        pytest.param(make_rule() | {"spec": {}}, NO_TAINT, id="no taint (R-7)"),
        pytest.param(make_rule() | {"spec": None}, NO_TAINT, id="no spec (R-7)"),
    ],
)
def test_new_rule(manifest: Any, errors: list[str]) -> None:
    assert field_errors(manifest) == errors


STORED = make_rule(taint=make_taint(effect="Evict"), version="v1beta2")


@pytest.mark.parametrize(
    ("new", "errors"),
    [
        pytest.param(STORED, [], id="an unknown effect is kept (T-12)"),
        pytest.param(
            make_rule(taint=make_taint(effect="Evict2"), version="v1beta2"),
            [f"spec.taint.effect: {EVICT.replace('Evict', 'Evict2')}"],
            id="a changed effect is judged (T-12)",
        ),
        pytest.param(
            make_rule(taint=make_taint(effect="Evict", key="-"), version="v1beta2"),
            [f'spec.taint.key: Invalid value: "-": {BAD_KEY}'],
            id="key and value are always judged (T-12)",
        ),
        pytest.param(make_rule(selector={}, version="v1beta2"), [], id="everything may change (R-8)"),
    ],
)
@pytest.mark.parametrize("minor", [35, 36, 37])
def test_update_of_a_rule(new: Any, errors: list[str], minor: int) -> None:
    assert field_errors(new, STORED, minor=minor) == errors


@pytest.mark.parametrize("minor", [33, 34])
def test_old_releases_judge_a_kept_effect(minor: int) -> None:
    expected = 'spec.taint.effect: Unsupported value: "Evict": supported values: "NoExecute", "NoSchedule"'
    assert field_errors(STORED, STORED, minor=minor) == [expected]


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


@pytest.mark.parametrize(
    ("version", "errors"),
    [
        pytest.param(
            "v1", ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"], id="v1 (R-15)"
        ),
        pytest.param("v1beta2", [], id="v1beta2"),
        pytest.param("v1alpha3", [], id="v1alpha3"),
    ],
)
def test_update_must_say_what_it_is_based_on_in_v1(version: str, errors: list[str]) -> None:
    rule = make_rule(version=version)
    assert field_errors(rule, rule) == errors
    based = make_rule(version=version, resource_version="7")
    assert field_errors(based, rule) == []


# --- conditions ---------------------------------------------------------------------------------

CONDITION = "status.conditions[0]"


@pytest.mark.parametrize(
    ("condition", "errors"),
    [
        pytest.param(make_condition(), [], id="a good one"),
        pytest.param(make_condition(type="devicetaint.io/Eviction", message="m" * 32_768), [], id="prefix, 32 KiB"),
        pytest.param(
            make_condition(type=None), [f"{CONDITION}.type: Required value: is required"], id="no type, since 1.37"
        ),
        pytest.param(
            make_condition(type="-"), [f'{CONDITION}.type: Invalid value: "-": {BAD_KEY}'], id="a malformed type"
        ),
        pytest.param(make_condition(status=""), [f"{CONDITION}.status: Required value"], id="no status, since 1.37"),
        pytest.param(
            make_condition(status="true"),
            [f'{CONDITION}.status: Unsupported value: "true": supported values: "False", "True", "Unknown"'],
            id="an unknown status",
        ),
        pytest.param(
            make_condition(observedGeneration=-1),
            [f"{CONDITION}.observedGeneration: Invalid value: -1: must be greater than or equal to zero"],
            id="a negative generation",
        ),
        pytest.param(make_condition(observedGeneration=None), [], id="no generation"),
        pytest.param(
            make_condition(lastTransitionTime=None), [f"{CONDITION}.lastTransitionTime: Required value"], id="no time"
        ),
        pytest.param(make_condition(reason=None), [f"{CONDITION}.reason: Required value"], id="no reason"),
        pytest.param(
            make_condition(reason="not-started"),
            [f'{CONDITION}.reason: Invalid value: "not-started": {condition_reason("-")[0]}'],
            id="a malformed reason",
        ),
        pytest.param(make_condition(reason="R" * 1024), [], id="a reason of 1 KiB"),
        pytest.param(
            make_condition(reason="R" * 1025),
            [f"{CONDITION}.reason: Too long: may not be more than 1024 bytes"],
            id="a long reason",
        ),
        pytest.param(
            make_condition(message="m" * 32_767 + "ü"),
            [f"{CONDITION}.message: Too long: may not be more than 32768 bytes"],
            id="a long message, in bytes",
        ),
    ],
)
def test_condition(condition: Any, errors: list[str]) -> None:
    assert field_errors(make_rule(conditions=[condition], version="v1beta2"), make_rule(), status=True) == errors


@pytest.mark.parametrize(
    ("condition", "errors"),
    [
        pytest.param(
            make_condition(type=None),
            [f'{CONDITION}.type: Invalid value: "": {message}' for message in label_key("")],
            id="no type",
        ),
        pytest.param(
            make_condition(status=None),
            [f'{CONDITION}.status: Unsupported value: "": supported values: "False", "True", "Unknown"'],
            id="no status",
        ),
    ],
)
def test_condition_before_1_37(condition: Any, errors: list[str]) -> None:
    rule = make_rule(conditions=[condition], version="v1beta2")
    assert field_errors(rule, make_rule(), status=True, minor=36) == errors


@pytest.mark.parametrize(("minor", "at"), [(37, "status.conditions[2]"), (36, "status.conditions[2].type")])
def test_types_of_conditions_are_unique(minor: int, at: str) -> None:
    conditions = [make_condition(), make_condition(type="A"), make_condition(reason="B")]
    rule = make_rule(conditions=conditions, version="v1beta2")
    (error,) = field_errors(rule, make_rule(), status=True, minor=minor)
    assert error.startswith(f"{at}: Duplicate value")


def test_conditions_are_eight_at_most_and_judged_all_the_same() -> None:
    conditions = [make_condition(type=f"Type{number}") for number in range(9)]
    conditions[8]["reason"] = ""
    rule = make_rule(conditions=conditions, version="v1beta2")
    assert sorted(field_errors(rule, make_rule(), status=True)) == [
        "status.conditions: Too many: 9: must have at most 8 items",
        "status.conditions[8].reason: Required value",
    ]
    assert field_errors(make_rule(conditions=conditions[:8], version="v1beta2"), make_rule(), status=True) == []


def test_update_of_the_main_resource_does_not_look_at_the_status() -> None:
    rule = make_rule(conditions=[{}], version="v1beta2")
    assert field_errors(rule, make_rule(version="v1beta2")) == []
    assert field_errors(rule) == []


def test_status_update_must_say_what_it_is_based_on_in_v1() -> None:
    rule = make_rule(conditions=[{}])
    expected = ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"]
    assert field_errors(rule, rule, status=True) == expected
