from __future__ import annotations

from typing import Any

from tests.builders import field_errors, make_claim, make_rule, make_taint, make_toleration
from tests.tables import table
from webhook.api.taints import DeviceTaint, TaintExtras
from webhook.validation.formats import label_key, label_value
from webhook.validation.releases import NEWEST
from webhook.validation.taints import taint_is_fine

THREE = '"NoExecute", "NoSchedule", "None"'
BAD_KEY = label_key("-")[0]
BAD_VALUE = label_value("-")[0]


DATA_TOO_LONG = ["data: Too long: may not be more than 10240 bytes"]
EVERYTHING = [
    f'key: Invalid value: "-": {BAD_KEY}',
    f'value: Invalid value: "-": {BAD_VALUE}',
    f'effect: Unsupported value: "-": supported values: {THREE}',
]


@table(
    "fields, errors",
    {
        "a plain one": ({}, []),
        "everything wrong: everything told": ({"key": "-", "value": "-", "effect": "-"}, EVERYTHING),
        "good extras": ({"data": {"a": [1]}, "description": "", "evictionsPerSecond": 1}, []),
        "null data is no data": ({"data": None}, []),
        "10240 bytes of data (N-9)": ({"data": {"a": "x" * 10_232}}, []),
        "10241 bytes of data (N-9)": ({"data": {"a": "x" * 10_233}}, DATA_TOO_LONG),
        "bytes of data, not characters (N-9)": ({"data": {"a": "ü" * 5_200}}, DATA_TOO_LONG),
        "1024 bytes of description (N-10)": ({"description": "x" * 1024}, []),
        "1025 bytes of description in 1024 characters (N-10)": (
            {"description": "x" * 1023 + "ü"},
            ["description: Too long: may not be more than 1024 bytes"],
        ),
        "a negative rate (N-11)": (
            {"evictionsPerSecond": -1},
            ["evictionsPerSecond: Invalid value: -1: must be greater than zero"],
        ),
    },
)
def test_taint_of_a_rule(fields: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(make_rule(taint=make_taint() | fields)) == [f"spec.taint.{error}" for error in errors]


AT = "spec.devices.requests[0].exactly.tolerations[0]"


@table(
    "toleration, errors",
    {
        "any number of seconds (L-6)": (make_toleration(seconds=-(2**63)), []),
        "seconds without effect (L-6)": (make_toleration(effect=None, seconds=5), []),
        "a value beside Exists (L-3)": (
            make_toleration(value="v"),
            ['value: Invalid value: "v": must be empty for operator `Exists`'],
        ),
        "everything wrong: everything told": (
            make_toleration(key="-", operator="Equal", value="-", effect="-"),
            EVERYTHING,
        ),
    },
)
def test_toleration_of_a_claim(toleration: Any, errors: list[str]) -> None:
    assert field_errors(make_claim([toleration])) == [f"{AT}.{error}" for error in errors]


def test_hand_written_checks_name_the_normalized_path() -> None:
    claim = make_claim([make_toleration(operator="Equal", value="-")], version="v1beta1")
    assert field_errors(claim) == [f'{AT}.value: Invalid value: "-": {BAD_VALUE}']


@table(
    "taint, fine",
    {
        "a plain one": (DeviceTaint("a", "b", "NoSchedule"), True),
        "one without value": (DeviceTaint("a" * 63, "", "None"), True),
        "the longest there is": (DeviceTaint("d" * 253 + "/" + "a" * 63, "v" * 63, "None"), True),
        "a malformed key": (DeviceTaint("-", "", "None"), False),
        "a malformed value": (DeviceTaint("a", "-", "None"), False),
        "an unknown effect": (DeviceTaint("a", "", "Evict"), False),
        "a key too long to be remembered": (DeviceTaint("a" * 600, "", "None"), False),
        "extras need a closer look": (DeviceTaint("a", "", "None", None, TaintExtras()), False),
    },
)
def test_short_look_at_a_taint(taint: DeviceTaint, *, fine: bool) -> None:
    assert taint_is_fine(taint, NEWEST) is fine
