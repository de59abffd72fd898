"""Spellings that a server takes for the same, or for something else."""

from __future__ import annotations

from typing import Any

from tests.builders import make_claim
from tests.tables import table
from tests.unit.validation.whole_objects import reported
from webhook.validation.claims import semantic

ALL = {"allocationMode": "All"}


@table(
    "left, right, same",
    {
        "no devices, of a number": ({"count": 0}, {}, True),
        "no devices, of the number that is the default": ({"count": 0}, {"count": 1}, True),
        "no devices, of all": (ALL | {"count": 0}, ALL, True),
        "one device, of all": (ALL | {"count": 1}, ALL, False),
        "a request for a capacity that is called count": (
            {"capacity": {"requests": {"count": "1"}}},
            {"capacity": {"requests": {}}},
            False,
        ),
        "a capacity": ({"capacity": {"m": {"value": "1Gi"}}}, {"capacity": {"m": {"value": "1024Mi"}}}, True),
        "another capacity": ({"capacity": {"m": {"value": "1Gi"}}}, {"capacity": {"m": {"value": "1G"}}}, False),
        "a capacity without a value": ({"capacity": {"m": {"value": None}}}, {"capacity": {"m": {}}}, True),
        "a counter": ({"counters": {"c": {"value": "1"}}}, {"counters": {"c": {"value": "1000m"}}}, True),
        "the value of a taint": ({"taints": [{"value": "1"}]}, {"taints": [{"value": "1000m"}]}, False),
    },
)
def test_specs_are_compared_by_what_they_say(left: Any, right: Any, *, same: bool) -> None:
    assert (semantic(left) == semantic(right)) is same


def test_a_key_of_an_annotation_is_lower_cased_as_go_does_it() -> None:
    claim = make_claim()
    claim["metadata"]["annotations"] = {"x\u0130.example.com/a": ""}
    assert reported(claim) == []
