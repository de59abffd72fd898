from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import (
    kind_of,
    make_alternatives,
    make_basic_device,
    make_claim,
    make_device,
    make_meta,
    make_patch,
    make_request,
    make_result,
    make_rule,
    make_slice,
    make_status,
    make_taint,
    make_template,
    make_toleration,
)
from tests.tables import table
from webhook.api.field import Severity
from webhook.api.meta import GroupVersionKind
from webhook.api.schema import fields_of, held_by, served, type_of
from webhook.validation.releases import NEWEST, RELEASES
from webhook.validation.strict import strict_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.api.field import Finding

KNOWN: Final = ["v1beta1", "v1beta2", "v1"]
ENDS: Final = (min(RELEASES), max(RELEASES))
"""The releases of which `make test` tries all hints."""


def findings(manifest: Any, minor: int = 37) -> list[Finding]:
    return list(strict_findings(manifest, kind_of(manifest), RELEASES[minor]))


def told(manifest: Any, minor: int = 37) -> list[str]:
    return [f"{finding.severity.value} {finding.error}" for finding in findings(manifest, minor)]


REQUEST = "spec.devices.requests[0]"
TOLERATION = f"{REQUEST}.exactly.tolerations[0]"


@table(
    "manifest, path, suggestion",
    {
        "a letter missing": (
            *(make_claim([make_toleration(tolerationSecond=5)]), f"{TOLERATION}.tolerationSecond", "tolerationSeconds"),
        ),
        "another case": (
            *(
                make_claim([make_toleration(tolerationseconds=5)]),
                f"{TOLERATION}.tolerationseconds",
                "tolerationSeconds",
            ),
        ),
        "a level too high": (
            make_claim(requests=[make_request() | {"tolerations": []}]),
            *(f"{REQUEST}.tolerations", f"{REQUEST}.exactly.tolerations"),
        ),
        "a level too high beside what is there": (
            make_claim(requests=[make_alternatives([]) | {"tolerations": []}]),
            *(f"{REQUEST}.tolerations", f"{REQUEST}.firstAvailable[].tolerations"),
        ),
        "three levels too high": (
            make_claim() | {"spec": {"tolerations": []}},
            *("spec.tolerations", "spec.devices.requests[].exactly.tolerations"),
        ),
        "two levels too high": (make_rule() | {"effect": "NoExecute"}, "effect", "spec.taint.effect"),
        "two levels above a list": (make_slice() | {"taints": []}, "taints", "spec.devices[].taints"),
        "in a cousin": (make_rule(meta=make_meta(driver="d")), "metadata.driver", "spec.deviceSelector.driver"),
        "in a sibling": (make_rule(taint=make_taint(pool="p")), "spec.taint.pool", "spec.deviceSelector.pool"),
        "the flat request of v1beta1 in v1": (
            make_template(requests=[{"name": "gpu", "deviceClassName": "gpu"}]),
            *(f"spec.{REQUEST}.deviceClassName", f"spec.{REQUEST}.exactly.deviceClassName"),
        ),
        "levels too deep": (
            make_claim(requests=[make_alternatives([make_toleration(constraints=[])])]),
            *(f"{REQUEST}.firstAvailable[0].tolerations[0].constraints", "spec.devices.constraints"),
        ),
        "a device of v1 in v1beta1": (
            make_slice([make_device() | {"taints": []}], version="v1beta1"),
            *("spec.devices[0].taints", "spec.devices[0].basic.taints"),
        ),
        "one spec instead of two": (make_template() | {"spec": {"devices": {}}}, "spec.devices", "spec.spec.devices"),
        "a level left out": (make_claim() | {"spec": {"requests": []}}, "spec.requests", "spec.devices.requests"),
        "as in blogs": (make_rule(selector=None) | {"spec": {"selector": {}}}, "spec.selector", "deviceSelector"),
        "a name with more to it": (make_rule(selector={"poolName": "p"}), "spec.deviceSelector.poolName", "pool"),
        "a name with less to it": (
            *(make_claim([{"key": "k", "seconds": 5}]), f"{TOLERATION}.seconds", "tolerationSeconds"),
        ),
        "beside the spec": (make_rule(taint=None) | {"taint": make_taint()}, "taint", "spec.taint"),
        "in the metadata": (make_rule(meta=make_meta(lables={})), "metadata.lables", "labels"),
        "nothing like it": (make_rule(selector={"driver": "d", "node": "n"}), "spec.deviceSelector.node", None),
        "null does not hide it": (make_rule() | {"extra": None}, "extra", None),
        "in the status": (
            make_claim(status=make_status(make_result() | {"taints": []})),
            *("status.allocation.devices.results[0].taints", None),
        ),
        "in a map of ours": (
            make_patch(attributes={"example.com/a": {"integer": 1}}),
            *("spec.devices.attributes[example.com/a].integer", None),
        ),
        "in our filter": (make_patch(filter_={"devices": "a"}), "spec.devices.filter.devices", "device"),
        "in a map of theirs": (
            make_slice([make_device(attributes={"a": {"strng": "x"}})]),
            *("spec.devices[0].attributes[a].strng", "string"),
        ),
    },
)
def test_unknown_fields_are_errors_with_what_was_probably_meant(
    manifest: Any, path: str, suggestion: str | None
) -> None:
    hint = f', did you mean "{suggestion}"?' if suggestion else ""
    assert told(manifest) == [f"deny {path}: Forbidden: unknown field{hint}"]


@pytest.mark.parametrize(
    ("manifest", "field", "versions"),
    [
        (
            make_claim(requests=[make_request()]) | {"apiVersion": "resource.k8s.io/v1beta1"},
            "exactly",
            "v1beta2 and later",
        ),
        (make_slice([make_basic_device()]), "basic", "v1beta1"),
    ],
)
def test_fields_of_other_versions_are_named_as_such(manifest: Any, field: str, versions: str) -> None:
    (only,) = told(manifest)
    assert only.endswith(f".{field}: Forbidden: unknown field: {field} is a field of {versions}")


def _places(type_name: str, minor: int) -> Iterator[tuple[str, ...]]:
    """The ways to the types of a kind, field by field."""
    yield ()
    for field, held in held_by(type_name, minor).items():
        if held.has_fields and not held.type.startswith(("meta.", "core.")):
            yield from [(field, *rest) for rest in _places(held.type, minor)]


def _typed(kind: GroupVersionKind, way: Iterable[str], minor: int) -> str | None:
    """The type to which a way leads; empty for a field that holds none, None if there is no such field."""
    found: str | None = type_of(kind, minor)
    for field in way:
        if not found or field not in fields_of(found, minor):
            return None
        held = held_by(found, minor).get(field)
        found = held.type if held is not None and held.has_fields else ""
    return found


def _steps(path: str) -> list[str]:
    return re.sub(r"\[[^]]*\]", "", path).split(".")


@pytest.mark.untraced
@pytest.mark.parametrize(
    "minor", [pytest.param(each, marks=() if each in ENDS else pytest.mark.whole) for each in RELEASES]
)
def test_hints_lead_to_fields_that_are_there(minor: int) -> None:
    """At each place of each kind, all names that any other place has, and some that people write."""
    types, versions = served(minor).types, set[str]()
    names = {field for fields in types.values() for field in fields} | {"selector", "taints", "driverName", "class"}
    for kind in [GroupVersionKind.parse(*each.split(" ")) for each in served(minor).kinds if "DeviceClass" not in each]:
        for way in _places(type_of(kind, minor) or "", minor):
            holder = _typed(kind, way, minor) or ""
            value: Any = dict.fromkeys(names - set(fields_of(holder, minor)))
            for depth in reversed(range(len(way))):
                container = held_by(_typed(kind, way[:depth], minor) or "", minor)[way[depth]].container
                value = {way[depth]: [value] if container == "[" else {"a": value} if container else value}
            for finding in strict_findings(value, kind, RELEASES[minor]):
                text, written = finding.error.detail, finding.error.path.written
                if meant := re.findall(r'(?:did you mean|or) "(.*?)"( at the top)?', text):
                    for path, top in meant:
                        steps = _steps(path) if "." in path or top else [*way, path]
                        assert _typed(kind, steps, minor) is not None, (kind, written, text)
                        assert steps != _steps(written)
                elif named := re.search(r"(\w+) is a field of (\w+)(?: and (\w+))?$", text):
                    base = holder.partition(".")[2]
                    having = [each for each in KNOWN if named[1] in types.get(f"{each}.{base}", ())]
                    end = {"later": KNOWN[KNOWN.index(named[2]) :], "earlier": KNOWN[: KNOWN.index(named[2]) + 1]}
                    claimed = end.get(named[3], [named[2]])
                    assert [each for each in claimed if f"{each}.{base}" in types] == having, (kind, written, text)
                    versions.add(named[2])
    flat = any("v1beta1" in each for each in served(minor).kinds)
    assert versions or not flat


def test_a_field_that_is_there_already_is_not_suggested() -> None:
    assert told(make_rule(taint=make_taint(effects="x"))) == ["deny spec.taint.effects: Forbidden: unknown field"]


def test_free_form_content_is_left_alone() -> None:
    claim = make_claim()
    claim["metadata"]["annotations"] = {"anything": "goes"}
    claim["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": {"f:spec": {}}}]
    claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "d", "parameters": {"any": {"depth": 1}}}}]
    assert told(claim) == []


@pytest.mark.parametrize("value", [3, "x", [1], None, {"a": [3]}])
def test_wrong_types_are_left_to_the_decoder(value: Any) -> None:
    slice_ = make_slice()
    for field in ("devices", "pool", "nodeSelector"):
        slice_["spec"][field] = value if not isinstance(value, dict) else {}
    assert told(slice_) == []
    assert list(strict_findings(value, GroupVersionKind("g", "v1", "X"), NEWEST)) == []


CEL = [{"cel": {"expression": "true"}}]
EMPTY = ", which leaves an EMPTY selector: every device of every driver"


@table(
    "selector, fields, text",
    {
        "only the class": ({"deviceClassName": "gpu"}, ["deviceClassName"], EMPTY),
        "only CEL, null does not count": ({"selectors": CEL, "driver": None}, ["selectors"], EMPTY),
        "only both": ({"deviceClassName": "gpu", "selectors": CEL}, ["deviceClassName", "selectors"], EMPTY),
        "beside the driver": ({"deviceClassName": "gpu", "driver": "d"}, ["deviceClassName"], ""),
    },
)
@pytest.mark.parametrize("version", ["v1alpha3", "v1beta2", "v1"])
def test_retired_selector_fields_are_errors_from_1_35_on(
    selector: Any, fields: list[str], text: str, version: str
) -> None:
    rule = make_rule(selector=selector, version=version)
    expected = [
        f"deny spec.deviceSelector.{field}: Forbidden: servers from 1.35 on drop it{text}; use driver, pool, device"
        for field in fields
    ]
    assert told(rule) == told(rule, 35) == expected
    assert {finding.code for finding in findings(rule)} == {"DT016"}
    assert told(rule, 34) == told(rule, 33) == []


def test_what_is_in_retired_fields_is_judged_as_well() -> None:
    rule = make_rule(selector={"selectors": [{"cel": {"expresion": "true"}}]})
    assert told(rule, 34) == [
        'deny spec.deviceSelector.selectors[0].cel.expresion: Forbidden: unknown field, did you mean "expression"?'
    ]


def test_our_own_patches_still_have_those_fields() -> None:
    assert told(make_patch(filter_={"deviceClassName": "gpu", "selectors": CEL})) == []


EXTRAS: dict[str, Any] = {"data": {"any": {"thing": 1}}, "description": "d", "evictionsPerSecond": 5}
ANNOTATIONS = ("data", "description", "evictions-per-second")


def test_documented_taint_fields_name_the_annotation_to_use() -> None:
    assert told(make_rule(taint=make_taint(**EXTRAS))) == [
        f"warn spec.taint.{field}: Forbidden: no released server has it: they drop it; "
        f"use annotation devicetaint.io/{annotation}"
        for field, annotation in zip(EXTRAS, ANNOTATIONS, strict=True)
    ]


def test_in_a_slice_the_annotation_needs_a_rule() -> None:
    assert told(make_slice([make_device(taints=[make_taint(data={})])])) == [
        (
            "warn spec.devices[0].taints[0].data: Forbidden: no released server has it: they drop it; "
            "on a DeviceTaintRule use annotation devicetaint.io/data"
        )
    ]


def test_slice_level_taints_are_told_and_looked_into() -> None:
    taint = make_taint(efect="x", effect=None)
    manifest = make_slice([], taints=[{"device": "gpu-0", "taint": taint, "pool": "p"}])
    assert told(manifest) == [
        (
            "warn spec.taints: Forbidden: no released server has it: they drop the taints; "
            "set them in devices[], or make a DeviceTaintRule"
        ),
        'deny spec.taints[0].taint.efect: Forbidden: unknown field, did you mean "effect"?',
        'deny spec.taints[0].pool: Forbidden: unknown field, did you mean "spec.pool"?',
    ]
    assert [finding.code for finding in findings(manifest)] == ["DT017", None, None]


def test_our_own_patches_have_all_fields_of_a_taint() -> None:
    assert told(make_patch(taints=[make_taint(**EXTRAS)])) == []


def test_slices_of_the_first_revision_are_known() -> None:
    manifest = make_slice([make_basic_device(taints=[make_taint()])], version="v1alpha3")
    assert told(manifest) == []
    manifest["spec"]["device"] = []
    assert [finding.severity for finding in findings(manifest)] == [Severity.DENY]
