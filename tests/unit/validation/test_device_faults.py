"""Whether a server would still take a slice whose device was changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_basic_device, make_device, make_slice
from webhook.validation.device_objects import device_faults

PARTITION: Any = {
    "partitionTypeAttribute": "gpu.example.com/type",
    "sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}],
}
USES: Any = {"consumesCounters": [{"counterSet": "a", "counters": {"b": {"value": "1"}}}]}


@pytest.mark.parametrize(
    ("device", "fault"),
    [
        ({"attributes": {f"a{number}": {"int": 1} for number in range(32)}}, ""),
        ({"attributes": {f"a{number}": {"int": 1} for number in range(33)}}, "must not exceed 32"),
        (
            {"allowMultipleAllocations": True, "capacity": {"m": {"value": "1Gi", "requestPolicy": {
                "default": "2Gi", "validValues": ["2Gi"]}}}},
            "capacity[m].requestPolicy",
        ),
        ({"attributes": {f"a{number}": {"ints": [1, 2, 3, 4, 5]} for number in range(10)}}, "must not exceed 48"),
    ],
)  # fmt: skip
def test_device_that_no_server_would_take(device: Any, fault: str) -> None:
    for version, made in (("v1", make_device(**device)), ("v1beta1", make_basic_device(**device))):
        found = device_faults(make_slice([], version=version)["spec"])(made)
        assert (fault in " ".join(found)) if fault else found == []


def test_attribute_that_the_slice_needs() -> None:
    faults = device_faults(make_slice([make_device()], **PARTITION)["spec"])
    assert faults(make_device(**USES, attributes={"type": {"string": "half"}})) == []
    assert "it must be set" in " ".join(faults(make_device(**USES)))
    faults = device_faults(make_slice([], version="v1beta1", **PARTITION)["spec"])
    assert "it must be set" in " ".join(faults(make_basic_device(**USES)))
    assert faults(make_basic_device(**USES, attributes={"type": {"string": "half"}})) == []


def test_other_devices_are_not_looked_at() -> None:
    manifest = make_slice([make_device("Wrong"), make_device("Wrong")])
    assert device_faults(manifest["spec"])(make_device()) == []
