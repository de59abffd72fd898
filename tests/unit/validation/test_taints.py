from __future__ import annotations

from typing import Any

import pytest

from tests.builders import (
    field_errors,
    make_claim,
    make_device,
    make_patch,
    make_rule,
    make_slice,
    make_taint,
    make_toleration,
)
from webhook.api.taints import DeviceTaint, TaintExtras
from webhook.validation.formats import label_key, label_value
from webhook.validation.releases import NEWEST, RELEASES
from webhook.validation.taints import taint_is_fine

THREE = '"NoExecute", "NoSchedule", "None"'
TWO = '"NoExecute", "NoSchedule"'
LONG = "x" * 64
BAD_KEY = label_key("-")[0]
BAD_VALUE = label_value("-")[0]


@pytest.mark.parametrize(
    ("taint", "errors"),
    [
        pytest.param(make_taint(), [], id="a plain one"),
        pytest.param(make_taint(value=""), [], id="an empty value (T-7)"),
        pytest.param(make_taint(effect="None"), [], id="effect None (T-8)"),
        pytest.param(make_taint(time_added="2099-01-01T00:00:00Z"), [], id="a time to come (T-9)"),
        pytest.param(
            make_taint(key="-"), [f'spec.taint.key: Invalid value: "-": {BAD_KEY}'], id="a malformed key (T-1)"
        ),
        pytest.param(
            make_taint(key=None),
            [f'spec.taint.key: Invalid value: "": {message}' for message in label_key("")],
            id="no key: twice invalid, not required (T-1, T-2)",
        ),
        pytest.param(
            make_taint(value="-"), [f'spec.taint.value: Invalid value: "-": {BAD_VALUE}'], id="a malformed value"
        ),
        pytest.param(
            make_taint(value=LONG),
            [f'spec.taint.value: Invalid value: "{LONG}": must be no more than 63 bytes'],
            id="a long value is invalid, not too long (T-7)",
        ),
        pytest.param(make_taint(effect=None), ["spec.taint.effect: Required value"], id="no effect (T-8)"),
        pytest.param(make_taint(effect=""), ["spec.taint.effect: Required value"], id="an empty effect (T-8)"),
        pytest.param(
            make_taint(effect="PreferNoSchedule"),
            [f'spec.taint.effect: Unsupported value: "PreferNoSchedule": supported values: {THREE}'],
            id="the effect that only nodes have (T-8)",
        ),
        pytest.param(
            make_taint(effect="noexecute"),
            [f'spec.taint.effect: Unsupported value: "noexecute": supported values: {THREE}'],
            id="an effect in lower case (T-8)",
        ),
        pytest.param(
            make_taint(effect=" NoExecute"),
            [f'spec.taint.effect: Unsupported value: " NoExecute": supported values: {THREE}'],
            id="an effect with a blank (T-8)",
        ),
        pytest.param(
            make_taint(key="-", value="-", effect="-"),
            [
                f'spec.taint.key: Invalid value: "-": {BAD_KEY}',
                f'spec.taint.value: Invalid value: "-": {BAD_VALUE}',
                f'spec.taint.effect: Unsupported value: "-": supported values: {THREE}',
            ],
            id="everything wrong: everything told",
        ),
        pytest.param(make_taint(data={"a": [1]}, description="", evictionsPerSecond=1), [], id="good extras"),
        pytest.param(make_taint(data=None) | {"data": None}, [], id="null data is no data"),
        pytest.param(
            make_taint(data=["a"]),
            ['spec.taint.data: Invalid value: "a list of 1 entries": must be a JSON object'],
            id="data that is no object (N-9)",
        ),
        pytest.param(make_taint(data={"a": "x" * 10_232}), [], id="10240 bytes of data (N-9)"),
        pytest.param(
            make_taint(data={"a": "x" * 10_233}),
            ["spec.taint.data: Too long: may not be more than 10240 bytes"],
            id="10241 bytes of data (N-9)",
        ),
        pytest.param(
            make_taint(data={"a": "ü" * 5_200}),
            ["spec.taint.data: Too long: may not be more than 10240 bytes"],
            id="bytes of data, not characters (N-9)",
        ),
        pytest.param(make_taint(description="x" * 1024), [], id="1024 bytes of description (N-10)"),
        pytest.param(
            make_taint(description="x" * 1023 + "ü"),
            ["spec.taint.description: Too long: may not be more than 1024 bytes"],
            id="1025 bytes of description in 1024 characters (N-10)",
        ),
        pytest.param(
            make_taint(evictionsPerSecond=0),
            ["spec.taint.evictionsPerSecond: Invalid value: 0: must be greater than zero"],
            id="a rate of zero (N-11)",
        ),
        pytest.param(
            make_taint(evictionsPerSecond=-1),
            ["spec.taint.evictionsPerSecond: Invalid value: -1: must be greater than zero"],
            id="a negative rate (N-11)",
        ),
    ],
)
def test_taint_of_a_rule(taint: Any, errors: list[str]) -> None:
    assert field_errors(make_rule(taint=taint)) == errors


AT = "spec.devices.requests[0].exactly.tolerations[0]"


@pytest.mark.parametrize(
    ("toleration", "errors"),
    [
        pytest.param(make_toleration(), [], id="a plain one"),
        pytest.param({}, [], id="an empty one (L-7)"),
        pytest.param({"value": "v"}, [], id="a value without key (L-7)"),
        pytest.param(make_toleration(key=""), [], id="an empty key (L-1)"),
        pytest.param(make_toleration(effect="None"), [], id="effect None (L-5)"),
        pytest.param(make_toleration(effect=None), [], id="no effect (L-5)"),
        pytest.param(make_toleration(seconds=-(2**63)), [], id="any number of seconds (L-6)"),
        pytest.param(make_toleration(effect=None, seconds=5), [], id="seconds without effect (L-6)"),
        pytest.param(make_toleration(operator="Equal", value=None), [], id="Equal without value"),
        pytest.param(make_toleration(operator=None, value="v"), [], id="no operator stands for Equal (D-6)"),
        pytest.param(make_toleration(key="-"), [f'{AT}.key: Invalid value: "-": {BAD_KEY}'], id="a malformed key"),
        pytest.param(
            make_toleration(operator="Gt"),
            [f'{AT}.operator: Unsupported value: "Gt": supported values: "Equal", "Exists"'],
            id="an operator that only nodes have (L-2)",
        ),
        pytest.param(
            make_toleration(operator="exists", value="-"),
            [f'{AT}.operator: Unsupported value: "exists": supported values: "Equal", "Exists"'],
            id="an unknown operator hides a malformed value (L-2)",
        ),
        pytest.param(
            make_toleration(value="v"),
            [f'{AT}.value: Invalid value: "v": must be empty for operator `Exists`'],
            id="a value beside Exists (L-3)",
        ),
        pytest.param(
            make_toleration(operator="Equal", value="-"),
            [f'{AT}.value: Invalid value: "-": {BAD_VALUE}'],
            id="a malformed value (L-4)",
        ),
        pytest.param(
            make_toleration(operator=None, value="-"),
            [f'{AT}.value: Invalid value: "-": {BAD_VALUE}'],
            id="a malformed value without operator (L-4)",
        ),
        pytest.param(
            make_toleration(effect="PreferNoSchedule"),
            [f'{AT}.effect: Unsupported value: "PreferNoSchedule": supported values: {THREE}'],
            id="the effect that only nodes have (L-5)",
        ),
        pytest.param(
            make_toleration(key="-", operator="Equal", value="-", effect="-"),
            [
                f'{AT}.key: Invalid value: "-": {BAD_KEY}',
                f'{AT}.value: Invalid value: "-": {BAD_VALUE}',
                f'{AT}.effect: Unsupported value: "-": supported values: {THREE}',
            ],
            id="everything wrong: everything told",
        ),
    ],
)
def test_toleration_of_a_claim(toleration: Any, errors: list[str]) -> None:
    assert field_errors(make_claim([toleration])) == errors


@pytest.mark.parametrize("minor", RELEASES)
@pytest.mark.parametrize(
    ("manifest", "at"),
    [(make_rule(taint=make_taint(effect="None")), "spec.taint"), (make_claim([make_toleration(effect="None")]), AT)],
    ids=["taint", "toleration"],
)
def test_releases_before_1_35_do_not_know_effect_none(manifest: Any, at: str, minor: int) -> None:
    expected = [f'{at}.effect: Unsupported value: "None": supported values: {TWO}']
    assert field_errors(manifest, minor=minor) == (expected if minor < 35 else [])


@pytest.mark.parametrize(
    ("minor", "at"),
    [
        pytest.param(37, "spec.devices.requests[0].tolerations[0]", id="as written since 1.37 (V-5)"),
        pytest.param(36, AT, id="normalized before"),
    ],
)
def test_declarative_checks_name_the_path_as_written(minor: int, at: str) -> None:
    claim = make_claim([make_toleration(key="-", operator="Gt", effect="-")], version="v1beta1")
    fields = [error.partition(": ")[0] for error in field_errors(claim, minor=minor)]
    assert fields == [f"{at}.key", f"{at}.operator", f"{at}.effect"]


def test_hand_written_checks_name_the_normalized_path() -> None:
    claim = make_claim([make_toleration(operator="Equal", value="-")], version="v1beta1")
    assert field_errors(claim) == [f'{AT}.value: Invalid value: "-": {BAD_VALUE}']


@pytest.mark.parametrize(
    ("minor", "fields"),
    [
        pytest.param(37, ["taints", "taints[16].effect"], id="1.37: the effects beside the number (S-1)"),
        pytest.param(36, ["taints"], id="1.36: nothing but the number"),
    ],
)
def test_list_that_is_too_long(minor: int, fields: list[str]) -> None:
    taints = [make_taint()] * 16 + [make_taint(key="-", effect="Evict")]
    errors = field_errors(make_slice([make_device(taints=taints)]), minor=minor)
    assert errors[0] == "spec.devices[0].taints: Too many: 17: must have at most 16 items"
    assert [error.partition(": ")[0] for error in errors] == [f"spec.devices[0].{field}" for field in fields]


def test_taints_of_a_patch_have_a_limit_of_their_own() -> None:
    errors = field_errors(make_patch(taints=[make_taint()] * 17), minor=33)
    assert errors == ["spec.devices.taints: Too many: 17: must have at most 16 items"]


@pytest.mark.parametrize(
    ("taint", "fine"),
    [
        pytest.param(DeviceTaint("a", "b", "NoSchedule"), True, id="a plain one"),
        pytest.param(DeviceTaint("a" * 63, "", "None"), True, id="one without value"),
        pytest.param(DeviceTaint("d" * 253 + "/" + "a" * 63, "v" * 63, "None"), True, id="the longest there is"),
        pytest.param(DeviceTaint("-", "", "None"), False, id="a malformed key"),
        pytest.param(DeviceTaint("a", "-", "None"), False, id="a malformed value"),
        pytest.param(DeviceTaint("a", "", "Evict"), False, id="an unknown effect"),
        pytest.param(DeviceTaint("a" * 600, "", "None"), False, id="a key too long to be remembered"),
        pytest.param(DeviceTaint("a", "", "None", None, TaintExtras()), False, id="extras need a closer look"),
    ],
)
def test_short_look_at_a_taint(taint: DeviceTaint, *, fine: bool) -> None:
    assert taint_is_fine(taint, NEWEST) is fine
