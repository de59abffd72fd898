"""What becomes of a slice that its driver, or the controller, writes. `semantics.md` P-8 to P-10, P-15, P-18."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import taint
from tests.unit.patches.patched import DRIVER, at, effective, patch_of, pools_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.patches.overriding import (
    ORIGINALS_MAX_BYTES,
    Override,
    Refusal,
    Rewritten,
    arrived,
    changed_settings,
    overridden,
    overrides_of,
)
from webhook.patches.patching import Origin
from webhook.patches.published import (
    ATTRIBUTES,
    CAPACITY,
    ORIGINALS,
    Overridden,
    Setting,
    annotation_of,
    kept_in,
    rewrites_in,
    settings_of,
    with_settings,
    written_devices,
)

if TYPE_CHECKING:
    from webhook.api.slices import ResourceSlice

MODEL = Setting(ATTRIBUTES, "model")
FULL = Setting(ATTRIBUTES, f"{DRIVER}/model")
ROOM = Setting(CAPACITY, "room")
MODEL_ORIGIN = Origin("attribute", f"{DRIVER}/model")
ROOM_ORIGIN = Origin("capacity", f"{DRIVER}/room")
A, B, C = ({"string": letter} for letter in "abc")
ORIGINAL, PATCHED = {"int": 1}, {"int": 7}


def sliced(settings: dict[Setting, Any], annotation: str = "", name: str = "gpu-0") -> ResourceSlice:
    value = slice_of(with_settings({"name": name}, settings))
    return structs.replace(value, meta=ObjectMeta("s", annotations={ORIGINALS: annotation} if annotation else {}))


def overrides(value: Any, patch: str = "p") -> dict[str, dict[Origin, Override]]:
    return {"gpu-0": {MODEL_ORIGIN: Override(value, patch)}}


def stored_of(result: Rewritten) -> ResourceSlice:
    devices = {name: with_settings({"name": name}, settings) for name, settings in result.devices.items()}
    meta = ObjectMeta("s", annotations={ORIGINALS: result.annotation} if result.annotation else {})
    return structs.replace(slice_of(*devices.values()), meta=meta)


class Stage:
    """A slice that is written again and again."""

    def __init__(self) -> None:
        self.stored: ResourceSlice | None = None

    def send(self, value: Any, wanted: Any = None, *, touch: bool = False) -> tuple[Any, Overridden | None]:
        """A write of the driver with this model, and what is stored of it: the model, and what is kept."""
        annotation = self.stored.meta.annotations.get(ORIGINALS, "") if self.stored else ""
        sent = sliced({} if value is None else {MODEL: value}, annotation)
        found = arrived(sent, self.stored, same_spec=touch)
        result = overridden(found, wanted or {}, ["p"])
        self.stored = stored_of(result)
        kept = kept_in(result.annotation)
        return result.devices["gpu-0"].get(MODEL), kept.get("gpu-0", {}).get(MODEL)


def write(value: Any, *wanted: Any, stored: Any, was: Any = None, touch: bool = False) -> tuple[Any, ...]:
    """What is sent, what the patch sets if there is one, and what is stored and kept of it."""
    return value, overrides(*wanted) if wanted else None, touch, stored, was


WRITES = {
    "the driver's write is overridden and its value kept": [write(A, B, stored=B, was=Overridden(A, B, B))],
    "an echo is not the driver's own": [
        write(A, B, stored=B, was=Overridden(A, B, B)),
        write(B, B, stored=B, was=Overridden(A, B, B)),
        write(C, B, stored=B, was=Overridden(C, B, B)),
    ],
    "P-8: a removed attribute is kept, and its absence an echo": [
        write(A, None, stored=None, was=Overridden(A, None, None)),
        write(None, None, stored=None, was=Overridden(A, None, None)),
        write(None, stored=A),
    ],
    "a touch applies a new patch and knows that the driver has its own": [
        write(A, stored=A),
        write(A, B, touch=True, stored=B, was=Overridden(A, B)),
        write(B, touch=True, stored=A),
    ],
    "the driver may send the override before the last": [
        write(A, B, stored=B, was=Overridden(A, B, B)),
        write(B, C, touch=True, stored=C, was=Overridden(A, C, B)),
        write(B, C, stored=C, was=Overridden(A, C, C)),
        write(C, C, stored=C, was=Overridden(A, C, C)),
        write(C, B, touch=True, stored=B, was=Overridden(A, B, C)),
        write(B, B, stored=B, was=Overridden(A, B, B)),
    ],
    "a tombstone stays until the driver has its own value again; what it sends then is its own (ADR 33)": [
        write(A, B, stored=B, was=Overridden(A, B, B)),
        write(B, touch=True, stored=A, was=Overridden(A, sent=B)),
        write(A, touch=True, stored=A, was=Overridden(A, sent=B)),
        write(B, stored=A),
        write(B, stored=B),
    ],
    "the driver's fresh value ends a tombstone": [
        write(A, B, stored=B, was=Overridden(A, B, B)),
        write(B, touch=True, stored=A, was=Overridden(A, sent=B)),
        write(C, stored=C),
    ],
    "an override by the driver's own value needs no annotation": [
        write(A, A, stored=A),
        write(B, A, stored=A, was=Overridden(B, A, A)),
        write(A, B, touch=True, stored=B, was=Overridden(B, B, A)),
    ],
}


@pytest.mark.parametrize("writes", WRITES.values(), ids=WRITES)
def test_writes_are_overridden(writes: list[tuple[Any, ...]]) -> None:
    stage = Stage()
    for value, wanted, touch, *expected in writes:
        assert [*stage.send(value, wanted, touch=touch)] == expected


def test_value_that_came_while_the_webhook_was_down_is_fresh() -> None:
    stage = Stage()
    stage.send(A, overrides(B))
    assert stage.stored is not None
    stage.stored = sliced({MODEL: C}, stage.stored.meta.annotations[ORIGINALS])
    assert stage.send(C, overrides(B), touch=True) == (B, Overridden(C, B, B))


def test_device_that_its_driver_took_away_is_forgotten() -> None:
    stage = Stage()
    stage.send(A, overrides(B))
    sent = sliced({MODEL: A}, stage.stored.meta.annotations[ORIGINALS] if stage.stored else "", name="gpu-1")
    result = overridden(arrived(sent, stage.stored), overrides(B), ["p"])
    assert result == Rewritten({"gpu-1": {MODEL: A}}, "", ())


KEPT = annotation_of({"gpu-0": {MODEL: Overridden(A, B, B)}})
OTHER = annotation_of({"gpu-0": {MODEL: Overridden(C, B, B)}})


@pytest.mark.parametrize(
    ("sent", "stored", "original", "touched"),
    [
        pytest.param(KEPT, KEPT, A, False, id="as stored"),
        pytest.param("", KEPT, A, False, id="taken away"),
        pytest.param("nonsense", KEPT, A, False, id="overwritten"),
        pytest.param(OTHER, KEPT, C, True, id="rewritten a moment ago"),
        pytest.param(KEPT, None, A, True, id="a copy is created"),
        pytest.param("", None, B, False, id="the driver creates it"),
        pytest.param("nonsense", None, B, False, id="with something else in the annotation"),
    ],
)
def test_annotation_is_that_of_what_is_sent_if_there_is_one(
    sent: str, stored: str | None, original: Any, *, touched: bool
) -> None:
    before = None if stored is None else sliced({MODEL: B}, stored)
    found = arrived(sliced({MODEL: B}, sent), before)
    assert (found.published, found.touched) == ({"gpu-0": {MODEL: original}}, touched)


def test_rewriting_twice_in_one_review_is_rewriting_once() -> None:
    for first in (sliced({MODEL: A}), sliced({MODEL: B}, KEPT)):
        stored = first if first.meta.annotations else None
        once = overridden(arrived(first, stored), overrides(C), ["p"])
        again = overridden(arrived(stored_of(once), stored), overrides(C), ["p"])
        assert again == once
        assert once.devices == {"gpu-0": {MODEL: C}}


def test_second_look_in_a_request_learns_nothing_of_the_driver() -> None:
    """Though what is kept is the same: the first look has put back what the driver sent while we were down."""
    stored = sliced({MODEL: B}, annotation_of({"gpu-0": {MODEL: Overridden(A, sent=B)}}))
    once = overridden(arrived(stored, stored, same_spec=True), {}, [])
    twice = overridden(arrived(stored_of(once), stored), {}, [])
    assert (twice, kept_in(twice.annotation)) == (once, {"gpu-0": {MODEL: Overridden(A, sent=B)}})


def answered(stored: ResourceSlice, value: Any, *looks: Any) -> ResourceSlice:
    """What is stored once the driver has sent a value and each look in this request has carried out its overrides."""
    annotations = dict(stored.meta.annotations)
    for wanted in looks:
        sent = structs.replace(sliced({MODEL: value}), meta=ObjectMeta("s", annotations=annotations))
        same = settings_of(written_devices(stored)[0][1]) == {MODEL: value}
        answer = stored_of(overridden(arrived(sent, stored, same_spec=same), wanted, ["p"]))
        value, annotations = settings_of(written_devices(answer)[0][1])[MODEL], dict(answer.meta.annotations)
    return answer


@pytest.mark.parametrize("looks", [1, 2])
def test_echo_ends_a_tombstone_however_often_it_is_looked_at(looks: int) -> None:
    """Also where a patch sets what is the driver's own by now."""
    stage = Stage()
    stage.send(A, overrides(B))
    stage.send(B, overrides(A), touch=True)
    assert stage.stored is not None
    answer = answered(stage.stored, B, *[overrides(A)] * looks)
    assert answer.meta.annotations == {}
    assert overridden(arrived(sliced({MODEL: B}), answer), {}, []).devices == {"gpu-0": {MODEL: B}}


def test_second_look_that_knows_one_more_patch_remembers_what_the_driver_is_answered() -> None:
    stage = Stage()
    stage.send(A, overrides(B))
    stage.send(B, touch=True)
    assert stage.stored is not None
    answer = answered(stage.stored, B, {}, overrides(B))
    assert kept_in(answer.meta.annotations[ORIGINALS]) == {"gpu-0": {MODEL: Overridden(A, B, B)}}


def test_rewriting_is_counted_only_if_something_is_changed() -> None:
    stage = Stage()
    for value, wanted, count in [(A, B, 1), (B, B, 1), (A, B, 2), (B, C, 3), (C, C, 3), (C, C, 3)]:
        stage.send(value, overrides(wanted))
        assert stage.stored is not None
        assert rewrites_in(stage.stored.meta.annotations[ORIGINALS]) == count


def test_count_goes_on_where_a_driver_leaves_the_annotation_out() -> None:
    stored = sliced({MODEL: B}, annotation_of({"gpu-0": {MODEL: Overridden(A, B, B)}}, 7))
    result = overridden(arrived(sliced({MODEL: B}), stored), overrides(B), ["p"])
    assert rewrites_in(result.annotation) == 8


def test_same_specification_is_a_touch() -> None:
    value = sliced({MODEL: B}, KEPT)
    assert [arrived(value, value, same_spec=same).touched for same in (True, False)] == [True, False]


def test_devices_as_the_driver_publishes_them() -> None:
    found = arrived(sliced({MODEL: B, ROOM: {"value": "1"}}, KEPT), None)
    assert found.devices == ({"name": "gpu-0", "attributes": {"model": A}, "capacity": {"room": {"value": "1"}}},)


def test_overrides_in_force_are_kept_while_those_of_today_are_not_known() -> None:
    kept = {
        MODEL: Overridden(A, None),
        ROOM: Overridden(None, {"value": "1Gi", "requestPolicy": {}}),
        Setting(ATTRIBUTES, "x.example/gone"): Overridden(A, sent=B),
        Setting(ATTRIBUTES, "x.example/there"): Overridden(A, B),
    }
    found = arrived(sliced({}, annotation_of({"gpu-0": kept})), None)
    assert found.unchanged == {
        "gpu-0": {
            MODEL_ORIGIN: Override(None, ""),
            ROOM_ORIGIN: Override("1Gi", ""),
            Origin("attribute", "x.example/there"): Override(B, ""),
        }
    }


def settings_after(
    settings: dict[Setting, Any], device: dict[Origin, Override], annotation: str = ""
) -> dict[Setting, Any]:
    found = arrived(sliced(settings, annotation), None)
    return dict(overridden(found, {"gpu-0": device}, ["p"]).devices["gpu-0"])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({MODEL: A}, {MODEL: B}, id="without a domain"),
        pytest.param({FULL: A}, {FULL: B}, id="with a domain"),
        pytest.param({MODEL: A, FULL: C}, {MODEL: B, FULL: B}, id="both"),
        pytest.param({}, {FULL: B}, id="new"),
        pytest.param(
            {Setting(ATTRIBUTES, "other.example/model"): A},
            {Setting(ATTRIBUTES, "other.example/model"): A, FULL: B},
            id="of another domain",
        ),
        pytest.param({Setting(CAPACITY, "model"): {"value": "1"}},
                     {Setting(CAPACITY, "model"): {"value": "1"}, FULL: B}, id="a capacity of that name"),
    ],
)  # fmt: skip
def test_override_has_the_name_that_the_driver_writes(
    settings: dict[Setting, Any], expected: dict[Setting, Any]
) -> None:
    assert settings_after(settings, {MODEL_ORIGIN: Override(B, "p")}) == expected


def test_both_names_are_removed() -> None:
    assert settings_after({MODEL: A, FULL: C}, {MODEL_ORIGIN: Override(None, "p")}) == {}


def test_driver_that_begins_to_write_the_name_itself_has_it_once() -> None:
    kept = annotation_of({"gpu-0": {FULL: Overridden(None, B, B)}})
    assert settings_after({FULL: B, MODEL: A}, {MODEL_ORIGIN: Override(C, "p")}, kept) == {MODEL: C}


def test_removing_what_is_not_there_leaves_no_trace() -> None:
    found = arrived(sliced({}), None)
    assert overridden(found, overrides(None), ["p"]) == Rewritten({"gpu-0": {}}, "", ())


def test_capacity_keeps_what_else_the_driver_says_about_it() -> None:
    """P-9."""
    policy = {"requestPolicy": {"default": "1Gi"}}
    room = {ROOM_ORIGIN: Override("8Gi", "p")}
    assert settings_after({ROOM: {"value": "4Gi", **policy}}, room) == {ROOM: {"value": "8Gi", **policy}}
    assert settings_after({}, room) == {Setting(CAPACITY, f"{DRIVER}/room"): {"value": "8Gi"}}


def test_quantity_that_the_server_spells_otherwise_is_an_echo() -> None:
    kept = annotation_of({"gpu-0": {ROOM: Overridden({"value": "4Gi"}, {"value": "1024Mi"}, {"value": "1024Mi"})}})
    assert settings_after({ROOM: {"value": "1Gi"}}, {}, kept) == {ROOM: {"value": "4Gi"}}


def test_overrides_of_a_patched_device() -> None:
    patch = patch_of(
        attributes={f"{DRIVER}/n": None, f"{DRIVER}/m": 5}, capacity={f"{DRIVER}/room": "8Gi"}, taints=[taint()]
    )
    value = slice_of({"name": "gpu-0", "attributes": {"n": ORIGINAL}, "capacity": {"room": {"value": "1", "x": {}}}})
    device = effective(pools_of(value), patch).devices[at("gpu-0")]
    assert overrides_of(device) == {
        Origin("attribute", f"{DRIVER}/n"): Override(None, "patch"),
        Origin("attribute", f"{DRIVER}/m"): Override({"int": 5}, "patch"),
        ROOM_ORIGIN: Override("8Gi", "patch"),
    }


def refusing(*values: Any) -> Any:
    """Devices whose model is one of these are wrong."""
    return lambda device: ["no such model"] if device.get("attributes", {}).get("model") in values else []


def test_patch_that_makes_a_device_invalid_is_refused_there() -> None:
    value = slice_of({"name": "gpu-0", "attributes": {"model": A}}, {"name": "gpu-1", "attributes": {"model": C}})
    wanted = {name: {MODEL_ORIGIN: Override(B, "p")} for name in ("gpu-0", "gpu-1")}

    def faults(device: dict[str, Any]) -> list[str]:
        return ["second", "first"] if device["name"] == "gpu-0" and device["attributes"]["model"] == B else []

    result = overridden(arrived(value, None), wanted, ["p"], faults)
    assert result.devices == {"gpu-0": {MODEL: A}, "gpu-1": {MODEL: B}}
    assert result.refused == (Refusal("p", "gpu-0", "first"),)
    assert kept_in(result.annotation) == {"gpu-1": {MODEL: Overridden(C, B, B)}}


def test_patches_of_low_precedence_are_refused_first() -> None:
    wanted = {"gpu-0": {MODEL_ORIGIN: Override(B, "high"), ROOM_ORIGIN: Override("8Gi", "low")}}

    def faults(device: dict[str, Any]) -> list[str]:
        return ["too much"] if "capacity" in device else []

    found = arrived(sliced({MODEL: A}), None)
    result = overridden(found, wanted, ["high", "low", "unrelated"], faults)
    assert (result.devices, result.refused) == ({"gpu-0": {MODEL: B}}, (Refusal("low", "gpu-0", "too much"),))
    result = overridden(found, wanted, ["high", "low"], refusing(B))
    assert result.devices["gpu-0"][MODEL] == A
    assert [each.patch for each in result.refused] == ["high"]
    result = overridden(found, wanted, ["high", "low"], lambda device: [*refusing(B)(device), *faults(device)])
    assert {each.patch: each.reason for each in result.refused} == {"high": "no such model", "low": "too much"}


def test_fault_of_the_driver_s_own_is_no_reason() -> None:
    found = arrived(sliced({MODEL: A}), None)
    result = overridden(found, overrides(B), ["p"], lambda _: ["wrong from the start"])
    assert (result.devices, result.refused) == ({"gpu-0": {MODEL: B}}, ())


def test_originals_that_do_not_fit_refuse_the_last_patch() -> None:
    wanted = {"gpu-0": {MODEL_ORIGIN: Override(B, "high"), ROOM_ORIGIN: Override("8Gi", "low")}}
    sent = sliced({MODEL: A, ROOM: {"value": "1Gi"}})
    model = len('{"string":"a"}') + 2 * len('{"string":"b"}') + len("gpu-0") + len("model") + 64
    room = len('{"value":"1Gi"}') + 2 * len('{"value":"8Gi"}') + len("gpu-0") + len("room") + 64

    def result(limit: int) -> Rewritten:
        return overridden(arrived(sent, None), wanted, ["high", "low"], limit_bytes=limit)

    assert result(model + room).refused == ()
    refused = result(model + room - 1)
    assert refused.refused == (Refusal("low", None, f"the originals would take more than {model + room - 1} bytes"),)
    assert refused.devices == {"gpu-0": {MODEL: B, ROOM: {"value": "1Gi"}}}
    assert len(result(model).refused) == 1
    assert [each.patch for each in result(model - 1).refused] == ["low", "high"]
    assert result(model - 1).devices == {"gpu-0": {MODEL: A, ROOM: {"value": "1Gi"}}}


def test_value_that_stays_takes_no_room() -> None:
    found = arrived(sliced({MODEL: A}), None)
    assert overridden(found, overrides(A), ["p"], limit_bytes=1).refused == ()


def test_tombstones_give_way_where_there_is_no_room() -> None:
    tombstones = {Setting(ATTRIBUTES, f"x{number}"): Overridden(A, sent=B) for number in range(10)}
    annotation = annotation_of({"gpu-0": {**tombstones, MODEL: Overridden(A, B, C)}})
    value = sliced({MODEL: C, **dict.fromkeys(tombstones, A)}, annotation)
    found = arrived(value, value, same_spec=True)

    def kept(limit: int) -> Any:
        return kept_in(overridden(found, overrides(B), ["p"], limit_bytes=limit).annotation)["gpu-0"]

    assert len(annotation) % 2 == 0
    assert len(kept(len(annotation) // 2)) == 11, "twice as much is just enough"
    assert kept(len(annotation) // 2 - 1) == {MODEL: Overridden(A, B, C)}


def test_what_is_to_be_changed_in_a_slice_as_it_was_sent() -> None:
    value = slice_of(
        {"name": "gpu-0", "attributes": {"model": A, "gone": A}, "capacity": {"room": {"value": "1024Mi"}}},
        {"name": "gpu-1", "attributes": {"model": A}},
    )
    gone, new = Setting(ATTRIBUTES, "gone"), Setting(ATTRIBUTES, "new")
    devices = {"gpu-0": {MODEL: A, ROOM: {"value": "1Gi"}}, "gpu-1": {MODEL: B, new: C}}
    assert list(changed_settings(value, Rewritten(devices, "", ()))) == [(0, gone, None), (1, MODEL, B), (1, new, C)]


def test_originals_may_take_64_kibibytes() -> None:
    assert ORIGINALS_MAX_BYTES == 65536
    names = [f"n{number}" for number in range(32)]
    devices: list[dict[str, Any]] = [
        {"name": f"gpu-{number}", "attributes": {name: {"string": "x" * 64} for name in names}} for number in range(128)
    ]
    device = {Origin("attribute", f"{DRIVER}/{name}"): Override(None, name) for name in names}
    wanted = {each["name"]: device for each in devices}
    result = overridden(arrived(slice_of(*devices), None), wanted, names)
    size = len(result.annotation)
    assert 32 * 1024 < size <= 64 * 1024
    assert {each.patch for each in result.refused} == set(names[-len(result.refused) :])
    assert 0 < len(result.refused) < len(names)
