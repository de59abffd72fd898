"""Laws of overrides in slices, under a driver that adopts what comes back, as the library of drivers does.

Whatever happens: what is stored is what the driver means, with the overrides on top; and in the end nothing is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.patches.patched import DRIVER
from webhook.api.decode import Reader
from webhook.api.slices import decode_slice
from webhook.inventory.pools import Pools
from webhook.patches.overriding import Arrived, Override, arrived, overridden
from webhook.patches.patching import Origin
from webhook.patches.published import (
    ATTRIBUTES,
    CAPACITY,
    ORIGINALS,
    Setting,
    published_devices,
    qualified_name,
    same,
    settings_of,
    with_settings,
    written_devices,
)

if TYPE_CHECKING:
    from webhook.api.slices import ResourceSlice
    from webhook.patches.overriding import Rewritten

Device = dict[Setting, Any]
Overrides = dict[str, dict[Origin, Override]]

DEVICES: Final = ("gpu-0", "gpu-1")
KEPT: Final = Setting(ATTRIBUTES, "kept")
"""The driver always publishes it, and it may be removed: were it gone with the driver too, that would be an echo."""
OPTIONAL: Final = Setting(ATTRIBUTES, f"{DRIVER}/optional")
ROOM: Final = Setting(CAPACITY, "room")
POLICY: Final = {"default": "1Gi"}
_CANONICAL: Final = {"1024Mi": "1Gi", "4096Mi": "4Gi"}
"""The server writes quantities in its own way."""


@st.composite
def truths(draw: st.DrawFn) -> dict[str, Device]:
    """What a driver publishes. It never publishes by itself what a patch sets: that would be taken for an echo."""
    found: dict[str, Device] = {}
    for name in draw(st.lists(st.sampled_from(DEVICES), unique=True, min_size=1)):
        found[name] = {KEPT: {"int": draw(st.integers(0, 2))}}
        if draw(st.booleans()):
            found[name][OPTIONAL] = {"bool": True}
        if draw(st.booleans()):
            found[name][ROOM] = {"value": draw(st.sampled_from(["1Gi", "2Gi"])), "requestPolicy": POLICY}
    return found


@st.composite
def overrides(draw: st.DrawFn) -> Overrides:
    found: Overrides = {}
    for name in draw(st.lists(st.sampled_from(DEVICES), unique=True)):
        device = found[name] = {}
        if draw(st.booleans()):
            value = draw(st.none() | st.integers(7, 8))
            device[Origin("attribute", f"{DRIVER}/kept")] = Override(None if value is None else {"int": value}, "p")
        if draw(st.booleans()):
            device[Origin("attribute", f"{DRIVER}/optional")] = Override({"string": draw(st.sampled_from("xy"))}, "p")
        if draw(st.booleans()):
            device[Origin("capacity", f"{DRIVER}/room")] = Override(draw(st.sampled_from(["4096Mi", "8Gi"])), "q")
    return found


@dataclass
class World:
    """A driver, a slice on a server, and a webhook before it."""

    truth: dict[str, Device]
    held: dict[str, Device] = field(default_factory=dict)
    stored: ResourceSlice | None = None
    wanted: Overrides = field(default_factory=dict)
    twice: bool = False
    """Another webhook has ours look at its own answer again."""

    def publish(self, truth: dict[str, Device]) -> None:
        """The driver says all of it afresh; so it does when it starts."""
        self.truth = truth
        self.held = truth
        self.sync()

    def sync(self, *, down: bool = False) -> None:
        """syncPool and sliceStored: sends what differs, and adopts the answer."""
        if self.stored is not None and _equal(_devices(self.stored), self.held):
            return
        annotations = dict(self.stored.meta.annotations) if self.stored else {}
        self.write(self.held, annotations, down=down)
        if self.stored is not None:
            self.held = _devices(self.stored)

    def touch(self) -> None:
        """The controller's no-op."""
        if self.stored is not None:
            self.write(_devices(self.stored), dict(self.stored.meta.annotations))

    def write(self, devices: dict[str, Device], annotations: dict[str, str], *, down: bool = False) -> None:
        sent = _slice(devices, annotations)
        if down:
            self.stored = sent
            return
        result = self.rewrite(sent, same_spec=self.stored is not None and _devices(self.stored) == devices)
        if self.twice:
            answer = _stored(sent, result)
            unchanged = self.stored is not None and _devices(self.stored) == _devices(answer)
            second = self.rewrite(answer, same_spec=unchanged)
            assert second == result
            result = second
        self.stored = _stored(sent, result)
        assert _equal(_devices(self.stored), self.expected)
        again = self.rewrite(self.stored, same_spec=True)
        assert (again.annotation, again.refused) == (result.annotation, ())
        assert _equal(dict(again.devices), self.expected)
        assert _published(self.stored) == {name: _qualified(device) for name, device in self.truth.items()}

    def rewrite(self, sent: ResourceSlice, *, same_spec: bool) -> Rewritten:
        found = arrived(sent, self.stored, same_spec=same_spec)
        assert _equal(_by_name(found), self.truth)
        return overridden(found, self.wanted, ["p", "q"])

    @property
    def expected(self) -> dict[str, Device]:
        """What the driver means, with the overrides on top."""
        found: dict[str, Device] = {}
        for name, truth in self.truth.items():
            device = found[name] = dict(truth)
            for origin, override in self.wanted.get(name, {}).items():
                setting = next(each for each in (KEPT, OPTIONAL, ROOM) if _full(each) == origin.name)
                if override.value is None:
                    device.pop(setting, None)
                elif setting is ROOM:
                    device[setting] = {**device.get(setting, {}), "value": override.value}
                    if setting not in truth:
                        device[Setting(CAPACITY, origin.name)] = device.pop(setting)
                else:
                    device[setting] = override.value
        return found


def _full(setting: Setting) -> str:
    return qualified_name(DRIVER, setting.name)


def _qualified(device: Device) -> dict[str, Any]:
    return {_full(setting): value for setting, value in device.items()}


def _published(value: ResourceSlice) -> dict[str, dict[str, Any]]:
    pools = Pools()
    pools.apply(None, value)
    ((identity, pool),) = pools.items()
    return {each.address.device: {**each.attributes, **each.capacity} for each in published_devices(identity, pool)}


def _by_name(found: Arrived) -> dict[str, Device]:
    return {device["name"]: settings_of(device) for device in found.devices}


def _slice(devices: dict[str, Device], annotations: dict[str, str]) -> ResourceSlice:
    manifest = {
        "metadata": {"name": "slice", "annotations": annotations},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
            "devices": [with_settings({"name": name}, settings) for name, settings in devices.items()],
        },
    }
    return decode_slice(Reader.of(manifest, []))


def _stored(sent: ResourceSlice, result: Rewritten) -> ResourceSlice:
    """What the server makes of it."""
    devices: dict[str, Device] = {name: dict(settings) for name, settings in result.devices.items()}
    for device in devices.values():
        for setting, value in device.items():
            if setting.kind == CAPACITY:
                device[setting] = {**value, "value": _CANONICAL.get(value["value"], value["value"])}
    annotations = {**sent.meta.annotations, ORIGINALS: result.annotation}
    return _slice(devices, {name: text for name, text in annotations.items() if text})


def _devices(value: ResourceSlice) -> dict[str, Device]:
    return {name: settings_of(device) for name, device in written_devices(value)}


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        dict(one[name]).keys() == dict(other[name]).keys()
        and all(same(setting.kind, value, other[name][setting]) for setting, value in one[name].items())
        for name in one
    )


actions: Final = st.lists(
    st.tuples(st.just("publish"), truths())
    | st.tuples(st.just("patch"), overrides())
    | st.tuples(st.sampled_from(["sync", "sync", "touch", "touch", "restart", "down"]), st.none()),
    max_size=25,
)


@given(truths(), actions, st.booleans())
def test_what_is_stored_is_what_the_driver_means_with_the_overrides_on_top(
    truth: dict[str, Device],
    history: list[tuple[str, Any]],
    twice: bool,  # noqa: FBT001 -- drawn
) -> None:
    world = World(truth, twice=twice)
    world.publish(truth)
    for action, argument in history:
        _act(world, action, argument)
    world.wanted = {}
    world.touch()
    assert world.stored is not None
    assert _equal(_devices(world.stored), world.truth)
    world.sync()
    assert _equal(_devices(world.stored), world.truth)
    assert world.held == world.truth
    if world.stored.meta.annotations:  # the driver never said that it has its own values back
        world.publish({name: {KEPT: {"int": 3}} for name in DEVICES})
    assert world.stored.meta.annotations == {}


def _act(world: World, action: str, argument: Any) -> None:
    match action:
        case "publish":
            world.publish(argument)
        case "patch":
            world.wanted = argument
        case "restart":
            world.publish(world.truth)
        case "sync":
            world.sync()
        case "down":
            world.sync(down=True)
        case _:
            world.touch()
