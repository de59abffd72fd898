from __future__ import annotations

from typing import Any

from tests.builders import field_errors, make_patch, make_taint
from tests.costs import calls_of
from tests.tables import table
from webhook.api.meta import GROUP
from webhook.validation.formats import c_identifier, dns1123_label, dns1123_subdomain, label_key

BAD_SUBDOMAIN = dns1123_subdomain("-")[0]
BAD_LABEL = dns1123_label("-")[0]
BAD_IDENTIFIER = c_identifier("-")[0]
AT = "spec.devices.attributes"
EVICT = 'Unsupported value: "Evict": supported values: "NoExecute", "NoSchedule", "None"'
NOTHING_SET = "Required value: exactly one value must be specified"


@table(
    "patch, errors",
    {
        "no name": (make_patch(meta={}), ["metadata.name: Required value: name or generateName is required"]),
        "a filter of which everything is wrong (P-3)": (
            make_patch(filter_={"driver": "", "pool": "", "device": "", "deviceClassName": "", "selectors": [{}]}),
            [
                "spec.devices.filter.driver: Required value",
                "spec.devices.filter.pool: Required value",
                f'spec.devices.filter.device: Invalid value: "": {BAD_LABEL}',
                f'spec.devices.filter.deviceClassName: Invalid value: "": {BAD_SUBDOMAIN}',
                "spec.devices.filter.selectors[0].cel: Required value",
            ],
        ),
        "a malformed taint (P-20)": (
            make_patch(taints=[make_taint(key="-", effect="Evict")]),
            [
                f'spec.devices.taints[0].key: Invalid value: "-": {label_key("-")[0]}',
                f"spec.devices.taints[0].effect: {EVICT}",
            ],
        ),
    },
)
def test_new_patch(patch: Any, errors: list[str]) -> None:
    assert field_errors(patch) == errors


@table(
    "name, errors",
    {
        "domain and identifier (P-4)": ("d.example/name", []),
        "63 and 32 bytes (P-5)": ("d" * 63 + "/" + "n" * 32, []),
        "no domain (P-5)": (
            "name",
            ['Invalid value: "name": must include a domain, such as `driver.example.com/name`'],
        ),
        "an empty domain (P-5)": ("/name", ["Required value: the domain must not be empty"]),
        "an empty identifier (P-5)": ("d.example/", ["Required value: the name must not be empty"]),
        "nothing": (
            "",
            [
                'Invalid value: "": must include a domain, such as `driver.example.com/name`',
                "Required value: the name must not be empty",
            ],
        ),
        "64 bytes of domain (P-5)": ("d" * 64 + "/n", ["Too long: may not be more than 63 bytes"]),
        "a malformed domain (P-5)": ("D/n", [f'Invalid value: "D": {BAD_SUBDOMAIN}']),
        "33 bytes of identifier (P-5)": ("d.example/" + "n" * 33, ["Too long: may not be more than 32 bytes"]),
        "a malformed identifier (P-5)": ("d/a-b", [f'Invalid value: "a-b": {BAD_IDENTIFIER}']),
        "two slashes (P-5)": ("d/a/b", [f'Invalid value: "a/b": {BAD_IDENTIFIER}']),
    },
)
def test_names_of_attributes_and_capacities(name: str, errors: list[str]) -> None:
    assert field_errors(make_patch(attributes={name: {"int": 1}})) == [f"{AT}[{name}]: {error}" for error in errors]
    assert field_errors(make_patch(capacity={name: {"value": "1"}})) == [
        f"spec.devices.capacity[{name}]: {error}" for error in errors
    ]


def test_long_name_is_shortened_in_the_path() -> None:
    name = "d" * 60 + ".example/" + "n" * 40
    shown = name[:47] + "..." + name[-46:]
    assert field_errors(make_patch(attributes={name: {"int": 1}})) == [
        f"{AT}[{shown}]: Too long: may not be more than 63 bytes",
        f"{AT}[{shown}]: Too long: may not be more than 32 bytes",
    ]


@table(
    "value, errors",
    {
        "zero": ({"int": 0}, []),
        "false": ({"bool": False}, []),
        "64 bytes of text (P-7)": ({"string": "s" * 64}, []),
        "65 bytes": ({"string": "s" * 63 + "ü"}, [".string: Too long: may not be more than 64 bytes"]),
        "a long version": ({"version": "1.2.3+" + "b" * 59}, [".version: Too long: may not be more than 64 bytes"]),
        "nothing (P-7)": ({}, [f": {NOTHING_SET}"]),
        "two values (P-7)": (
            {"int": 1, "null": {}},
            [': Invalid value: ["int","null"]: exactly one value must be specified'],
        ),
    },
)
def test_values_of_attributes(value: Any, errors: list[str]) -> None:
    patch = make_patch(attributes={"d/n": value})
    assert field_errors(patch) == [f"{AT}[d/n]{error}" for error in errors]


FRACTION = 'a number with a fraction must be text, such as "1.5"'
NO_QUANTITY = 'must be a quantity like "500m", "16Gi" or 4'
NOT_REMOVED = "Required value: a capacity cannot be removed; it can be set to 0"


@table(
    "value, errors",
    {
        "less than nothing, which no server refuses either": ("-1Gi", []),
        "a fraction as text": ("1.5", []),
        "a number": (4, []),
        "a fraction as a number": (1.5, [f"Invalid value: 1.5: {FRACTION}"]),
        "a blank within": ("1 Gi", [f'Invalid value: "1 Gi": {NO_QUANTITY}']),
        "nothing (P-9)": (None, [NOT_REMOVED]),
    },
)
def test_values_of_capacities(value: Any, errors: list[str]) -> None:
    patch = make_patch(capacity={"d/n": {"value": value}})
    assert field_errors(patch) == [f"spec.devices.capacity[d/n].value: {error}" for error in errors]


def test_fraction_of_a_quantity_is_fine_where_the_document_has_it() -> None:
    patch = make_patch(capacity={"d/n": {"value": 1.5}})
    assert field_errors(patch | {"apiVersion": f"{GROUP}/v1alpha3"}) == []
    assert len(field_errors(make_patch(capacity={"d/n": {"value": "x"}}) | {"apiVersion": f"{GROUP}/v1alpha3"})) == 1


def test_unchanged_taints_and_selectors_are_not_judged_again() -> None:
    stored = make_patch(taints=[make_taint(effect="Evict")], filter_={"selectors": [{}]})
    assert field_errors(stored, stored) == []
    assert len(field_errors(make_patch(taints=[make_taint(effect="Evict2")], filter_={}), stored)) == 1
    assert len(field_errors(make_patch(filter_={"selectors": [{}, {}]}), make_patch(filter_=None))) == 2


def test_unchanged_attributes_and_capacities_are_not_judged_again() -> None:
    stored = make_patch(attributes={"a": {}}, capacity={"b": {"value": "1"}})
    assert len(field_errors(stored)) == 3
    assert field_errors(stored, stored) == []
    assert len(field_errors(make_patch(attributes={"a": {"int": 1}}, capacity={"c": {"value": "1"}}), stored)) == 2


def test_what_is_new_is_judged_also_behind_what_is_not() -> None:
    """By its name, or by its value."""
    attributes: dict[str, Any] = {"a.example.com/x": {"int": 1}, "a.example.com/y": {"int": 1}}
    capacity = {"a.example.com/x": {"value": "1"}, "a.example.com/y": {"value": "1"}}
    old = make_patch(attributes=attributes, capacity=capacity)
    assert field_errors(old, old) == []
    new = make_patch(
        attributes={**attributes, "a.example.com/y": {}}, capacity={**capacity, "a.example.com/y": {"value": "x"}}
    )
    assert [error.partition(": ")[0] for error in field_errors(new, old)] == [
        "spec.devices.attributes[a.example.com/y]",
        "spec.devices.capacity[a.example.com/y].value",
    ]


def test_patch_that_sets_far_too_much_is_read_in_as_many_steps_however_much_it_is() -> None:
    def manifest(attributes: int, capacity: int) -> Any:
        return make_patch(
            attributes={f"a.example/a{number}": {"int": number} for number in range(attributes)},
            capacity={f"a.example/c{number}": {"value": "1"} for number in range(capacity)},
        )

    def steps(most: int) -> int:
        return calls_of(field_errors, lambda: manifest(most, most))

    for attributes, capacity in ((33, 0), (34, 0), (0, 34), (20_000, 5), (5, 20_000), (20_000, 20_000)):
        [error] = field_errors(manifest(attributes, capacity))
        total, text = attributes + capacity, "the total number of attributes and capacities must not exceed 32"
        assert error == f"spec.devices: Invalid value: {total}: {text}"
    assert steps(10_000) == steps(100)
