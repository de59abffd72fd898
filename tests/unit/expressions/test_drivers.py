from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from webhook.expressions.drivers import READ_MAX_CHARACTERS, drivers_in_manifest, drivers_of

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from typing import Any

X, Y = "x.example.com", "y.example.com"


@pytest.mark.parametrize(
    ("expression", "drivers"),
    [
        pytest.param(f'device.driver == "{X}"', {X}, id="one driver"),
        pytest.param(f"'{X}' == device.driver", {X}, id="the other way round"),
        pytest.param(f'((device.driver) == ("{X}"))', {X}, id="in parentheses"),
        pytest.param(f'device.driver in ["{X}", "{Y}"]', {X, Y}, id="one of a list"),
        pytest.param("device.driver in []", set(), id="one of none"),
        pytest.param(f'device.driver == "{X}" && device.attributes["{X}"].model == "a"', {X}, id="and something else"),
        pytest.param(f'device.attributes["{X}"].n > 1 && device.driver == "{X}" && true', {X}, id="in the middle"),
        pytest.param(f'device.driver == "{X}" && device.driver == "{Y}"', set(), id="two at once"),
        pytest.param(f'device.driver == "{X}" && device.driver in ["{X}", "{Y}"]', {X}, id="both read"),
        pytest.param(f'device.driver == "{X}" || device.driver == "{Y}"', {X, Y}, id="one or the other"),
        pytest.param(
            f'device.driver == "{X}" && a.b || (device.driver == "{Y}" && !c)', {X, Y}, id="and binds closer than or"
        ),
        pytest.param(f'device.driver == "{X}" || device.attributes["{X}"].n == 1', None, id="or something else"),
        pytest.param(f'!(device.driver != "{X}")', None, id="negation"),
        pytest.param(f'device.driver != "{X}"', None, id="inequality"),
        pytest.param(f'a ? device.driver == "{X}" : device.driver == "{Y}"', None, id="condition"),
        pytest.param(f'[1].all(device, device.driver == "{X}")', None, id="a device of a macro's"),
        pytest.param(f'device["driver"] == "{X}"', None, id="an index"),
        pytest.param(f'devices.driver == "{X}"', None, id="something else's driver"),
        pytest.param(f'device.driver.lowerAscii() == "{X}"', None, id="a method of the driver"),
        pytest.param("device.driver == device.driver", None, id="no text"),
        pytest.param("device.driver == 1", None, id="a number"),
        pytest.param(f'device.driver in ["{X}", name]', None, id="a list that is not only texts"),
        pytest.param(f'device.driver == "{X}" + ""', None, id="a sum"),
        pytest.param("true", None, id="no driver at all"),
        pytest.param("", None, id="nothing"),
        pytest.param("device.driver ==", None, id="no expression"),
        pytest.param('device.driver == "a\\u002eb"', {"a.b"}, id="an escape"),
        pytest.param(f'device.driver == "{X}" // || true', {X}, id="a comment"),
        pytest.param(f'// a comment\ndevice.driver == "{X}"', {X}, id="a comment before"),
        pytest.param(
            f'device.driver == "{X}" && a.matches(r"\\") || b.matches(" && device.driver == ")', None, id="a raw text"
        ),
        pytest.param(f'device.driver == r"{X}"', {X}, id="a raw text without a backslash"),
    ],
)
def test_expression_is_read(expression: str, drivers: AbstractSet[str] | None) -> None:
    assert drivers_of([expression]) == drivers


@pytest.mark.parametrize(
    ("expressions", "drivers"),
    [
        pytest.param([], None, id="none"),
        pytest.param([f'device.driver == "{X}"', "device.attributes.a"], {X}, id="one is read"),
        pytest.param([f'device.driver == "{X}"', f'device.driver in ["{X}", "{Y}"]'], {X}, id="both are"),
        pytest.param([f'device.driver == "{X}"', f'device.driver == "{Y}"'], set(), id="no driver is left"),
        pytest.param(["a", "b"], None, id="none is read"),
    ],
)
def test_all_expressions_must_hold(expressions: list[str], drivers: AbstractSet[str] | None) -> None:
    assert drivers_of(expressions) == drivers


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(" " * READ_MAX_CHARACTERS + "true", id="too long"),
        pytest.param("!" * 4000 + "a", id="deep"),
        pytest.param("[" * 2000 + "]" * 2000, id="lists in lists"),
        pytest.param("[" * 4000, id="brackets that open"),
        pytest.param("9" * 4000, id="a long number"),
        pytest.param("a" + ".a" * 1900, id="fields of fields"),
        pytest.param("'\\U00110000' == device.driver", id="no character"),
        pytest.param("\ud800", id="no text"),
        pytest.param("\x00", id="a control character"),
    ],
)
def test_hostile_expression_leaves_any_driver(expression: str) -> None:
    assert drivers_of([expression]) is None


def test_chains_are_read_whatever_their_length_and_parentheses_up_to_a_depth() -> None:
    alternatives = [f"d{number}" for number in range(150)]
    assert drivers_of([" || ".join(f"device.driver=='{name}'" for name in alternatives)]) == frozenset(alternatives)
    assert drivers_of(["(" * 40 + f"device.driver == '{X}'" + ")" * 40]) == frozenset({X})
    assert drivers_of(["(" * 500 + f"device.driver == '{X}'" + ")" * 500]) is None


def test_selectors_of_4096_characters_are_read_and_longer_ones_are_not() -> None:
    """The number is written out, since parsing takes as long as the text is."""
    selector = f'device.driver == "{X}"'
    assert drivers_of([selector.ljust(4096)]) == frozenset({X})
    assert drivers_of([selector.ljust(4097)]) is None


def test_length_is_that_of_all_expressions() -> None:
    short = f'device.driver == "{X}"'
    assert drivers_of([short, " " * (READ_MAX_CHARACTERS - len(short) - 4) + "true"]) == frozenset({X})
    assert drivers_of([short, " " * (READ_MAX_CHARACTERS - len(short) - 3) + "true"]) is None


@pytest.mark.parametrize(
    ("manifest", "drivers"),
    [
        pytest.param({"spec": {"selectors": [{"cel": {"expression": f'device.driver == "{X}"'}}]}}, {X}, id="one"),
        pytest.param(
            {"spec": {"selectors": [1, {"cel": 2}, {"cel": {"expression": 3}}, {"cel": {"expression": "false"}}]}},
            None,
            id="wrong types are skipped",
        ),
        pytest.param({"spec": {"selectors": []}}, None, id="no selector"),
        pytest.param({"spec": {"selectors": {}}}, None, id="no list"),
        pytest.param({"spec": []}, None, id="no spec"),
        pytest.param({}, None, id="nothing"),
        pytest.param("class", None, id="no object"),
    ],
)
def test_drivers_of_a_device_class(manifest: Any, drivers: AbstractSet[str] | None) -> None:
    assert drivers_in_manifest(manifest) == drivers
