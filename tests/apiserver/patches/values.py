"""Patches at the edge of every limit, with what is wrong with them."""

from __future__ import annotations

from typing import Any, Final

from tests.controlplane.client import path

Json = dict[str, Any]

VERSION: Final = "devicetaint.io/v1alpha1"
COLLECTION: Final = path(VERSION, "resourceslicepatches")
DEFINITION: Final = "components/patches/definition.yaml"
TAINT: Final = {"key": "gpu.example.com/unhealthy", "effect": "NoSchedule"}
_DOMAIN: Final = "a." * 31 + "a"
_LONG_DOMAIN: Final = "a." * 31 + "ab"
_PREFIX: Final = "a." * 126 + "a"
_LONG_PREFIX: Final = "a." * 126 + "ab"


def patch(devices: Any, name: str = "patch") -> Json:
    """One of ours."""
    return {
        "apiVersion": VERSION,
        "kind": "ResourceSlicePatch",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def _filter(**fields: Any) -> Json:
    return {"filter": fields}


def _selectors(*expressions: str) -> Json:
    return _filter(selectors=[{"cel": {"expression": expression}} for expression in expressions])


def _attribute(value: Any, name: str = "a.example/b") -> Json:
    return {"attributes": {name: value}}


def _capacity(value: Any, name: str = "a.example/b") -> Json:
    return {"capacity": {name: {"value": value}}}


def _taint(**fields: Any) -> Json:
    return {"taints": [{**TAINT, **fields}]}


def _text(size: int, letter: str = "x") -> str:
    return f"device.driver != '{letter * (size - 19)}'"


def _both(attributes: int, capacities: int) -> Json:
    return {
        "attributes": {f"a.example/a{number}": {"int": number} for number in range(attributes)},
        "capacity": {f"a.example/c{number}": {"value": number} for number in range(capacities)},
    }


GOOD: Final[dict[str, Any]] = {
    "nothing": {},
    "empty filter": _filter(),
    "all names": _filter(driver="gpu.example.com", pool="node-1/a", device="gpu-0", deviceClassName="gpu"),
    "driver of 63 bytes": _filter(driver=_DOMAIN),
    "driver in upper case": _filter(driver="GPU.example.com"),
    "pool of 253 bytes": _filter(pool=_PREFIX),
    "device of 63 bytes": _filter(device="d" * 63),
    "class of 253 bytes": _filter(deviceClassName=_PREFIX),
    "32 selectors": _selectors(*["true"] * 32),
    "10 KiB of expression": _selectors(_text(10240)),
    "lowest priority": {"priority": -(2**63)},
    "highest priority": {"priority": 2**63 - 1},
    "32 attributes": _both(32, 0),
    "32 capacities": _both(0, 32),
    "16 of each": _both(16, 16),
    "domain of 63 bytes": _attribute({"int": 1}, f"{_DOMAIN}/b"),
    "identifier of 32 bytes": _attribute({"int": 1}, f"a.example/{'b' * 32}"),
    "underscore": _attribute({"int": 1}, "a.example/_b"),
    "highest int": _attribute({"int": 2**63 - 1}),
    "false": _attribute({"bool": False}),
    "empty string": _attribute({"string": ""}),
    "string of 64 bytes": _attribute({"string": "s" * 62 + "ü"}),
    "version": _attribute({"version": "1.2.3-rc.1+build.5"}),
    "version of 64 bytes": _attribute({"version": "1.2.3+" + "b" * 58}),
    "null removes": _attribute({"null": {}}),
    "capacity with suffix": _capacity("1.5Gi"),
    "capacity as a number": _capacity(4),
    "capacity of nothing": _capacity("0"),
    "negative capacity": _capacity("-1"),
    "capacity with exponent": _capacity("1e3"),
    "16 taints": {"taints": [TAINT] * 16},
    "key of 317 bytes": _taint(key=f"{_PREFIX}/{'k' * 63}"),
    "value of 63 bytes": _taint(value="v" * 63),
    "empty value": _taint(value=""),
    "effect None": _taint(effect="None"),
    "effect NoExecute": _taint(effect="NoExecute"),
    "time with a zone": _taint(timeAdded="2026-01-31T12:00:00+01:00"),
    "no time": _taint(timeAdded=None),
    "data": _taint(data={"xid": [79, {"at": 1.5}], "none": None}),
    "description of 1 KiB": _taint(description="d" * 1022 + "ü"),
    "rate of one": _taint(evictionsPerSecond=1),
}
"""Accepted."""

BAD: Final[dict[str, tuple[Any, str]]] = {
    "no object": ([], "spec.devices"),
    "empty driver": (_filter(driver=""), "spec.devices.filter.driver"),
    "driver of 64 bytes": (_filter(driver=_LONG_DOMAIN), "spec.devices.filter.driver"),
    "driver with a line break": (_filter(driver="gpu.example.com\n"), "spec.devices.filter.driver"),
    "driver with an underscore": (_filter(driver="gpu_0"), "spec.devices.filter.driver"),
    "empty pool": (_filter(pool=""), "spec.devices.filter.pool"),
    "pool of 254 bytes": (_filter(pool=_LONG_PREFIX), "spec.devices.filter.pool"),
    "double slash": (_filter(pool="a//b"), "spec.devices.filter.pool"),
    "slash at the end": (_filter(pool="a/"), "spec.devices.filter.pool"),
    "pool in upper case": (_filter(pool="A"), "spec.devices.filter.pool"),
    "empty device": (_filter(device=""), "spec.devices.filter.device"),
    "device of 64 bytes": (_filter(device="d" * 64), "spec.devices.filter.device"),
    "device with a dot": (_filter(device="gpu.0"), "spec.devices.filter.device"),
    "empty class": (_filter(deviceClassName=""), "spec.devices.filter.deviceClassName"),
    "class of 254 bytes": (_filter(deviceClassName=_LONG_PREFIX), "spec.devices.filter.deviceClassName"),
    "class in upper case": (_filter(deviceClassName="GPU"), "spec.devices.filter.deviceClassName"),
    "33 selectors": (_selectors(*["true"] * 33), "spec.devices.filter.selectors"),
    "selector of nothing": (_filter(selectors=[{}]), "spec.devices.filter.selectors[0].cel"),
    "empty expression": (_selectors(""), "spec.devices.filter.selectors[0].cel.expression"),
    "expression of 10 KiB and a byte": (_selectors(_text(10241)), "spec.devices.filter.selectors[0].cel.expression"),
    "expression of few characters and many bytes": (
        _selectors(_text(6000, "ü")),
        "spec.devices.filter.selectors[0].cel.expression",
    ),
    "priority with a fraction": ({"priority": 1.5}, "spec.devices.priority"),
    "priority beyond 64 bits": ({"priority": 2**63}, "spec.devices.priority"),
    "33 attributes": (_both(33, 0), "spec.devices"),
    "17 and 16": (_both(17, 16), "spec.devices"),
    "16 and 17": (_both(16, 17), "spec.devices"),
    "no domain": (_attribute({"int": 1}, "b"), "spec.devices.attributes"),
    "empty domain": (_attribute({"int": 1}, "/b"), "spec.devices.attributes"),
    "domain of 64 bytes": (_attribute({"int": 1}, f"{_LONG_DOMAIN}/b"), "spec.devices.attributes"),
    "domain in upper case": (_attribute({"int": 1}, "A.example/b"), "spec.devices.attributes"),
    "no identifier": (_attribute({"int": 1}, "a.example/"), "spec.devices.attributes"),
    "identifier of 33 bytes": (_attribute({"int": 1}, f"a.example/{'b' * 33}"), "spec.devices.attributes"),
    "identifier with a dash": (_attribute({"int": 1}, "a.example/b-c"), "spec.devices.attributes"),
    "two slashes": (_attribute({"int": 1}, "a.example/b/c"), "spec.devices.attributes"),
    "no value": (_attribute({}), "spec.devices.attributes"),
    "two values": (_attribute({"int": 1, "bool": True}), "spec.devices.attributes"),
    "value and null": (_attribute({"int": 1, "null": {}}), "spec.devices.attributes"),
    "null null": (_attribute({"null": None}), "spec.devices.attributes"),
    "int as text": (_attribute({"int": "1"}), "spec.devices.attributes"),
    "string of 65 bytes": (_attribute({"string": "s" * 63 + "ü"}), "spec.devices.attributes"),
    "string of 65 characters": (_attribute({"string": "s" * 65}), "spec.devices.attributes"),
    "two numbers are no version": (_attribute({"version": "1.2"}), "spec.devices.attributes"),
    "version with a v": (_attribute({"version": "v1.2.3"}), "spec.devices.attributes"),
    "version of 65 bytes": (_attribute({"version": "1.2.3+" + "b" * 59}), "spec.devices.attributes"),
    "name of a capacity without domain": (_capacity("1", "b"), "spec.devices.capacity"),
    "domain of 64 bytes of a capacity": (_capacity("1", f"{_LONG_DOMAIN}/b"), "spec.devices.capacity"),
    "word as a capacity": (_capacity("lots"), "spec.devices.capacity"),
    "empty capacity": (_capacity(""), "spec.devices.capacity"),
    "capacity without value": ({"capacity": {"a.example/b": {}}}, "spec.devices.capacity"),
    "capacity of null": (_capacity(None), "spec.devices.capacity"),
    "capacity with a fraction as a number": (_capacity(1.5), "spec.devices.capacity"),
    "capacity as text alone": ({"capacity": {"a.example/b": "1Gi"}}, "spec.devices.capacity"),
    "17 taints": ({"taints": [TAINT] * 17}, "spec.devices.taints"),
    "taint of nothing": ({"taints": [{}]}, "spec.devices.taints[0]"),
    "empty key": (_taint(key=""), "spec.devices.taints[0].key"),
    "key with two slashes": (_taint(key="a/b/c"), "spec.devices.taints[0].key"),
    "key with a long prefix": (_taint(key=f"{_LONG_PREFIX}/k"), "spec.devices.taints[0].key"),
    "key with a long name": (_taint(key="k" * 64), "spec.devices.taints[0].key"),
    "value of 64 bytes": (_taint(value="v" * 64), "spec.devices.taints[0].value"),
    "value with a line break": (_taint(value="v\n"), "spec.devices.taints[0].value"),
    "no effect": ({"taints": [{"key": "k"}]}, "spec.devices.taints[0]"),
    "empty effect": (_taint(effect=""), "spec.devices.taints[0].effect"),
    "effect of nodes": (_taint(effect="PreferNoSchedule"), "spec.devices.taints[0].effect"),
    "no time at all": (_taint(timeAdded="yesterday"), "spec.devices.taints[0].timeAdded"),
    "empty time": (_taint(timeAdded=""), "spec.devices.taints[0].timeAdded"),
    "data as text": (_taint(data="xid 79"), "spec.devices.taints[0].data"),
    "data as a list": (_taint(data=[1]), "spec.devices.taints[0].data"),
    "description of many bytes": (_taint(description="ü" * 513), "spec.devices.taints[0].description"),
    "description of many characters": (_taint(description="d" * 1025), "spec.devices.taints[0].description"),
    "rate of zero": (_taint(evictionsPerSecond=0), "spec.devices.taints[0].evictionsPerSecond"),
    "rate with a fraction": (_taint(evictionsPerSecond=1.5), "spec.devices.taints[0].evictionsPerSecond"),
}
"""Refused by the definition alone, and a field at or above the one that is wrong."""

LEFT_TO_THE_WEBHOOK: Final[dict[str, Any]] = {
    "expression that does not compile": _selectors("device.driver =="),
    "expression with an unknown name": _selectors("host == 'a'"),
    "expression with an unknown field": _selectors("device.name == 'a'"),
    "expression of mixed types": _selectors("device.driver > 1"),
    "expression that is no truth value": _selectors("device.driver"),
    "expression that costs too much": _selectors("lists.range(10000000).all(x, x > 0)"),
    "data of more than 10 KiB": _taint(data={"text": "x" * 10240}),
}
"""What no schema can say."""
