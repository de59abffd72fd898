"""CEL selectors as tests of published devices. `semantics.md` P-8, P-16, P-17."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.patches.patched import DRIVER, at, class_of, patch_of, pools_of, slice_of
from webhook.patches.filters import CannotCompileError, CannotMatchError, DeviceSelectors, SharedSelectors
from webhook.patches.patching import effective_devices
from webhook.patches.published import PublishedDevice

DEVICE = PublishedDevice(
    at("gpu-0"),
    {f"{DRIVER}/model": {"string": "a100"}, f"{DRIVER}/slots": {"int": 7}, "other.example/healthy": {"bool": False}},
    {f"{DRIVER}/memory": {"value": "40Gi"}},
    allow_multiple_allocations=True,
)
FACTS = f'device.attributes["{DRIVER}"]'


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        ('device.driver == "other.example"', False),
        (f'{FACTS}.model == "a100" && {FACTS}.slots > 6', True),
        (f"{FACTS}.slots > 7", False),
        ('device.attributes["other.example"].healthy', False),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("39Gi"))', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) > 0', False),
        ("device.allowMultipleAllocations", True),
        (f'"serial" in {FACTS}', False),
        (f"{FACTS}.?serial.hasValue()", False),
    ],
)
def test_selector_sees_names_attributes_and_capacity(expression: str, *, selected: bool) -> None:
    assert DeviceSelectors()(expression).selects(DEVICE) is selected


@pytest.mark.parametrize(
    ("expression", "detail"),
    [
        pytest.param(f"{FACTS}.serial == 1", "no such key: serial", id="an attribute that is missing"),
        pytest.param(f"{FACTS}.model", "no such overload", id="no truth value"),
        pytest.param(f"1 / ({FACTS}.slots - 7) > 0", "division by zero", id="an error"),
    ],
)
def test_failure_on_a_device_is_told(expression: str, detail: str) -> None:
    test = DeviceSelectors()(expression).selects
    with pytest.raises(CannotMatchError, match=detail):
        test(DEVICE)


@pytest.mark.parametrize(
    "expression", ["", "device.driver ==", "device.name == 'a'", "host == 'a'", "1 + 1", "device.driver > 1"]
)
def test_selector_that_servers_refuse_cannot_be_used(expression: str) -> None:
    with pytest.raises(CannotCompileError, match=r"."):
        DeviceSelectors()(expression)


def test_steps_of_all_evaluations_can_be_limited() -> None:
    """Each of these takes a few; natively evaluated selectors take one."""
    selectors = DeviceSelectors(steps=2)
    test = selectors(f'device.driver == "{DRIVER}"')
    assert (test.selects(DEVICE), test.selects(DEVICE)) == (True, True)
    with pytest.raises(CannotMatchError, match="cost limit exceeded"):
        test.selects(DEVICE)
    with pytest.raises(CannotMatchError, match="cost limit exceeded"):
        selectors("device.allowMultipleAllocations").selects(DEVICE)


def test_each_evaluation_has_steps_of_its_own() -> None:
    """Else a filter would select other devices after a restart, when all of them are evaluated together."""
    hundred = str(list(range(100)))
    dear, cheap = DeviceSelectors()(f"{hundred}.all(x, {hundred}.all(y, x + y >= 0))"), f"{hundred}.all(x, x >= 0)"
    for _ in range(30):
        with pytest.raises(CannotMatchError, match="cost limit exceeded"):
            dear.selects(DEVICE)
    selectors = DeviceSelectors()
    assert all(selectors(cheap).selects(DEVICE) for _ in range(100))


def test_filters_share_what_they_see() -> None:
    shared = SharedSelectors()
    first, second = [shared.make()(f"{FACTS}.slots > 5").selects for _ in range(2)]
    assert (first(DEVICE), second(DEVICE)) == (True, True)
    changed = PublishedDevice(DEVICE.address, {f"{DRIVER}/slots": {"int": 1}})
    assert first(changed), "it was seen already"
    shared.forget()
    assert (first(changed), second(changed)) == (False, False)


def test_devices_of_one_name_in_different_pools_are_told_apart() -> None:
    test = DeviceSelectors()(f"{FACTS}.slots > 5").selects
    other = PublishedDevice(at("gpu-0", "node-1"), {f"{DRIVER}/slots": {"int": 1}})
    assert (test(DEVICE), test(other), test(DEVICE)) == (True, False, True)


def test_patches_select_by_class_and_cel() -> None:
    def gpu(name: str, **attributes: Any) -> Any:
        return {"name": name, "attributes": attributes}

    pools = pools_of(
        slice_of(gpu("gpu-0", model={"string": "a100"}), gpu("gpu-1", model={"string": "h100"}), gpu("gpu-2")),
        slice_of("x", driver="other.example"),
    )
    classes = class_of("gpu", f'device.driver == "{DRIVER}"')
    patch = patch_of(device_class_name="gpu", cel=[f'{FACTS}.model == "h100"'])
    found = effective_devices(pools, [patch], classes, DeviceSelectors())
    assert found.selected == {"patch": (at("gpu-1"),)}
    assert [(fault.device, fault.where, fault.detail) for fault in found.faults] == [
        (at("gpu-2"), "selector #0", "no such key: model")
    ]
    bad = patch_of(cel=["device.name == 'a'"])
    reason = effective_devices(pools, [bad], classes, DeviceSelectors()).inapplicable["patch"]
    assert reason.startswith("selector #0 cannot be used: compilation failed")
