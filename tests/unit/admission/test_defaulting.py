from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    EARLIER_TEXT,
    NOW_TEXT,
    make_admission_request,
    make_alternatives,
    make_basic_device,
    make_claim,
    make_context,
    make_device,
    make_flat_request,
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
from webhook.admission.chain import mutate
from webhook.admission.decision import apply_patch
from webhook.admission.defaulting import edits_for
from webhook.api.meta import GROUP

if TYPE_CHECKING:
    from webhook.admission.context import AdmissionContext

CONTEXT = make_context(offline=True)  # files get no author
OLD_TEXT = "2026-05-01T00:00:00Z"
FUTURE_TEXT = "2027-01-01T00:00:00Z"


def edits(manifest: Any, old: Any = None, context: AdmissionContext = CONTEXT) -> dict[str, Any]:
    """What mutation sets, by pointer; a second mutation must find nothing to do."""
    decision = mutate(make_admission_request(manifest, old), context)
    patched = apply_patch(manifest, decision.patch)
    assert mutate(make_admission_request(patched, old), context).patch == ()
    return {operation["path"]: operation["value"] for operation in decision.patch}


# --- rules --------------------------------------------------------------------------------------


def rule(time: str | None = EARLIER_TEXT, effect: str = "NoSchedule", *, evict: str | None = None, **taint: Any) -> Any:
    annotations = None if evict is None else {"devicetaint.io/evict": evict}
    return make_rule(taint=make_taint(effect=effect, time_added=time, **taint), annotations=annotations)


TIME = "/spec/taint/timeAdded"


@pytest.mark.parametrize(
    ("new", "time"),
    [
        pytest.param(rule(None), NOW_TEXT, id="a missing time is set (D-1)"),
        pytest.param(rule(None, "None"), NOW_TEXT, id="for every effect (D-1)"),
        pytest.param(rule(None, "Evict"), NOW_TEXT, id="even for one that nobody knows"),
        pytest.param(rule(OLD_TEXT), None, id="a given time is kept (D-3)"),
        pytest.param(rule(FUTURE_TEXT), None, id="also one to come (D-3)"),
        pytest.param(rule("2026-06-01T12:00:00.5+00:00"), None, id="whichever way it is written"),
        pytest.param(
            rule(OLD_TEXT, evict="true"), NOW_TEXT, id="an eviction asked for today does not start last month"
        ),
        pytest.param(rule("2026-06-01T11:58:59Z", evict="true"), NOW_TEXT, id="nor 61 seconds ago"),
        pytest.param(rule("2026-06-01T11:59:00Z", evict="true"), None, id="a minute ago is today"),
        pytest.param(rule(FUTURE_TEXT, evict="true"), None, id="and may start later"),
        pytest.param(rule(OLD_TEXT, evict="false"), None, id="no eviction, no change"),
    ],
)
def test_time_of_a_new_rule(new: Any, time: str | None) -> None:
    assert edits(new) == ({} if time is None else {TIME: time})


@pytest.mark.parametrize(
    ("old", "new", "time"),
    [
        pytest.param(rule(OLD_TEXT), rule(OLD_TEXT), None, id="nothing changed"),
        pytest.param(rule(OLD_TEXT), rule(None), OLD_TEXT, id="an omitted time is carried over (D-2)"),
        pytest.param(rule(OLD_TEXT), rule(None, value="v"), NOW_TEXT, id="not if the value changed"),
        pytest.param(rule(OLD_TEXT), rule(None, key="k"), NOW_TEXT, id="not if the key changed"),
        pytest.param(rule(OLD_TEXT), rule(None, "NoExecute"), NOW_TEXT, id="not if the effect changed"),
        pytest.param(rule(None), rule(None), NOW_TEXT, id="not if there is none to carry over"),
        pytest.param(rule(OLD_TEXT), rule(OLD_TEXT, "NoExecute"), NOW_TEXT, id="effect changed, time not: now (D-4)"),
        pytest.param(rule(OLD_TEXT, "NoExecute"), rule(OLD_TEXT, "None"), NOW_TEXT, id="in whichever direction (D-5)"),
        pytest.param(
            rule("2026-05-01T02:00:00+02:00"),
            rule(OLD_TEXT, "None"),
            NOW_TEXT,
            id="the same instant in another zone (D-4)",
        ),
        pytest.param(rule(OLD_TEXT), rule(FUTURE_TEXT, "NoExecute"), None, id="a new time is kept (D-4)"),
        pytest.param(rule(OLD_TEXT), rule(FUTURE_TEXT), None, id="also without a new effect"),
        pytest.param(rule(OLD_TEXT), rule(OLD_TEXT, value="v"), None, id="a new value alone restarts nothing"),
        pytest.param(rule(OLD_TEXT), rule(OLD_TEXT, evict="true"), NOW_TEXT, id="eviction asked for now starts now"),
        pytest.param(rule(OLD_TEXT, evict="true"), rule(OLD_TEXT, evict="true"), None, id="and does not start again"),
        pytest.param(rule(OLD_TEXT, evict="true"), rule(OLD_TEXT), None, id="eviction taken back"),
        pytest.param(rule(NOW_TEXT), rule(NOW_TEXT, "NoExecute"), None, id="now is now already"),
    ],
)
def test_time_of_an_updated_rule(old: Any, new: Any, time: str | None) -> None:
    assert edits(new, old) == ({} if time is None else {TIME: time})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {}, {"/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}, id="an empty spec gets the parents it needs"
        ),
        pytest.param(
            {"taint": None}, {"/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}, id="a null taint likewise"
        ),
        pytest.param(None, {"/spec": {}, "/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}, id="and a null spec"),
    ],
)
def test_missing_parents_of_a_rule_are_made(spec: Any, expected: dict[str, Any]) -> None:
    assert edits(make_rule() | {"spec": spec}) == expected


def test_time_is_set_in_full_seconds() -> None:
    context = make_context(now=CONTEXT.now.replace(microsecond=999_999))
    assert edits(rule(None), context=context) == {TIME: NOW_TEXT}


# --- slices -------------------------------------------------------------------------------------

MISSING = make_taint(time_added=None)


@pytest.mark.parametrize(
    ("devices", "version", "paths"),
    [
        pytest.param([make_device(taints=[MISSING])], "v1", ["/spec/devices/0/taints/0/timeAdded"], id="v1"),
        pytest.param(
            [make_basic_device(taints=[MISSING])],
            "v1beta1",
            ["/spec/devices/0/basic/taints/0/timeAdded"],
            id="v1beta1, where the content lies a level deeper",
        ),
        pytest.param(
            [make_device("a"), make_device("b", [make_taint(), MISSING, MISSING])],
            "v1",
            ["/spec/devices/1/taints/1/timeAdded", "/spec/devices/1/taints/2/timeAdded"],
            id="every one that is missing",
        ),
        pytest.param([make_device(taints=[]), None, {}], "v1", [], id="nothing to set"),
    ],
)
def test_times_of_a_new_slice(devices: Any, version: str, paths: list[str]) -> None:
    assert edits(make_slice(devices, version=version)) == dict.fromkeys(paths, NOW_TEXT)


def test_null_taint_is_replaced_not_pushed_aside() -> None:
    manifest = make_slice([make_device(taints=[None, make_taint()])])
    decision = mutate(make_admission_request(manifest), CONTEXT)
    assert decision.patch == (
        {"op": "replace", "path": "/spec/devices/0/taints/0", "value": {}},
        {"op": "add", "path": "/spec/devices/0/taints/0/timeAdded", "value": NOW_TEXT},
    )


@pytest.mark.parametrize(
    ("stored", "time"),
    [
        pytest.param(make_device("b", [make_taint(time_added=OLD_TEXT)]), OLD_TEXT, id="the same taint of the device"),
        pytest.param(
            make_device("b", [make_taint(time_added=OLD_TEXT), make_taint()]), OLD_TEXT, id="the first of several"
        ),
        pytest.param(make_device("b", [make_taint(time_added=OLD_TEXT, value="v")]), NOW_TEXT, id="another value"),
        pytest.param(make_device("b", [make_taint(time_added=OLD_TEXT, effect="None")]), NOW_TEXT, id="another effect"),
        pytest.param(make_device("a", [make_taint(time_added=OLD_TEXT)]), NOW_TEXT, id="another device"),
        pytest.param(make_device("b"), NOW_TEXT, id="no taint before"),
        pytest.param(make_device("b", [MISSING]), NOW_TEXT, id="no time before"),
    ],
)
def test_time_is_carried_over_within_a_device(stored: Any, time: str) -> None:
    new = make_slice([make_device("x"), make_device("b", [MISSING])])
    old = make_slice([stored, make_device("x", [make_taint(time_added="2026-01-01T00:00:00Z")])])
    assert edits(new, old) == {"/spec/devices/1/taints/0/timeAdded": time}


def test_times_of_the_first_64_stored_taints_of_a_device_are_carried_over() -> None:
    new = make_slice([make_device("b", [make_taint("k63", time_added=None), make_taint("k64", time_added=None)])])
    old = make_slice([make_device("b", [make_taint(f"k{number}", time_added=OLD_TEXT) for number in range(65)])])
    at = "/spec/devices/0/taints"
    assert edits(new, old) == {f"{at}/0/timeAdded": OLD_TEXT, f"{at}/1/timeAdded": NOW_TEXT}


@pytest.mark.parametrize(
    ("taints", "stored", "bumped"),
    [
        pytest.param([make_taint(effect="NoExecute")], [make_taint()], [0], id="a new effect at the old time"),
        pytest.param([make_taint()], [make_taint()], [], id="the old effect"),
        pytest.param(
            [make_taint(effect="NoExecute", time_added=FUTURE_TEXT)],
            [make_taint()],
            [],
            id="a new effect at a new time",
        ),
        pytest.param(
            [make_taint(effect="NoExecute", value="v")], [make_taint()], [], id="another value is another taint"
        ),
        pytest.param(
            [make_taint(effect="NoExecute")],
            [make_taint(), make_taint(effect="None")],
            [],
            id="two stored ones: nobody knows which of them changed",
        ),
        pytest.param(
            [make_taint(), make_taint(value="v", effect="None")],
            [make_taint(value="v"), make_taint()],
            [1],
            id="found by key and value, not by place",
        ),
        pytest.param(
            [make_taint(effect="NoExecute", time_added=NOW_TEXT)],
            [make_taint(time_added=NOW_TEXT)],
            [],
            id="now is now",
        ),
        pytest.param([MISSING | {"effect": "NoExecute"}], [MISSING], [0], id="a missing time is set once"),
    ],
)
def test_effect_that_changes_in_a_slice_restarts_the_clock_only_if_asked_to(
    taints: Any, stored: Any, bumped: list[int]
) -> None:
    new, old = make_slice([make_device(taints=taints)]), make_slice([make_device(taints=stored)])
    asked = make_context(bump_slice_time_added=True)
    expected = {f"/spec/devices/0/taints/{position}/timeAdded": NOW_TEXT for position in bumped}
    assert edits(new, old, asked) == expected
    missing = {path: NOW_TEXT for position, path in enumerate(expected) if "timeAdded" not in taints[position]}
    assert edits(new, old) == missing


def test_new_slice_has_no_clock_to_restart() -> None:
    asked = make_context(bump_slice_time_added=True)
    assert edits(make_slice([make_device(taints=[make_taint()])]), context=asked) == {}


def test_times_of_taints_beside_the_devices() -> None:
    def beside(device: str, **taint: Any) -> dict[str, Any]:
        return {"device": device, "taint": make_taint(**taint)}

    new = make_slice([], taints=[beside("a", time_added=None), beside("b", time_added=None), beside("c"), None])
    old = make_slice([], taints=[beside("b", time_added=OLD_TEXT), beside("a", time_added=OLD_TEXT, value="v")])
    assert edits(new, old) == {
        "/spec/taints/0/taint/timeAdded": NOW_TEXT,
        "/spec/taints/1/taint/timeAdded": OLD_TEXT,
        "/spec/taints/3": {},
        "/spec/taints/3/taint": {},
        "/spec/taints/3/taint/timeAdded": NOW_TEXT,
    }
    assert edits(make_slice([], taints=[beside("a", time_added=None)])) == {"/spec/taints/0/taint/timeAdded": NOW_TEXT}


# --- patches of ours ----------------------------------------------------------------------------


def test_times_of_a_patch() -> None:
    new = make_patch(taints=[MISSING, MISSING | {"value": "v"}, make_taint(time_added=FUTURE_TEXT)])
    assert edits(new) == {
        "/spec/devices/taints/0/timeAdded": NOW_TEXT,
        "/spec/devices/taints/1/timeAdded": NOW_TEXT,
    }
    assert edits(new, make_patch(taints=[make_taint(time_added=OLD_TEXT)])) == {
        "/spec/devices/taints/0/timeAdded": OLD_TEXT,
        "/spec/devices/taints/1/timeAdded": NOW_TEXT,
    }


def test_times_of_a_patch_of_the_first_revision_are_those_of_no_execute() -> None:
    """P-21: there is no default for other taints."""
    plain = MISSING | {"effect": "NoSchedule"}
    acting = MISSING | {"effect": "NoExecute"}
    planned = {"apiVersion": f"{GROUP}/v1alpha3"}
    new = make_patch(taints=[plain, acting, plain, acting | {"value": "v"}]) | planned
    assert edits(new) == {
        "/spec/devices/taints/1/timeAdded": NOW_TEXT,
        "/spec/devices/taints/3/timeAdded": NOW_TEXT,
    }
    stored = make_patch(taints=[plain | {"timeAdded": OLD_TEXT}, acting | {"timeAdded": OLD_TEXT}]) | planned
    assert edits(new, stored) == {
        "/spec/devices/taints/1/timeAdded": OLD_TEXT,
        "/spec/devices/taints/3/timeAdded": NOW_TEXT,
    }


# --- tolerations --------------------------------------------------------------------------------

BARE = make_toleration(operator=None, value="v")
EMPTY = make_toleration(operator="", value="v")


@pytest.mark.parametrize(
    ("requests", "version", "paths"),
    [
        pytest.param(
            [make_request(tolerations=[make_toleration(), BARE, EMPTY])],
            "v1",
            ["0/exactly/tolerations/1", "0/exactly/tolerations/2"],
            id="exactly",
        ),
        pytest.param([make_flat_request(tolerations=[BARE])], "v1beta1", ["0/tolerations/0"], id="flat"),
        pytest.param(
            [make_request(), make_alternatives([], [make_toleration(), BARE])],
            "v1beta2",
            ["1/firstAvailable/1/tolerations/1"],
            id="an alternative",
        ),
        pytest.param([make_request(tolerations=[make_toleration(operator="Gt")])], "v1", [], id="an unknown operator"),
    ],
)
def test_operator_of_a_toleration(requests: Any, version: str, paths: list[str]) -> None:
    claim = {f"/spec/devices/requests/{path}/operator": "Equal" for path in paths}
    assert edits(make_claim(requests=requests, version=version)) == claim
    template = {f"/spec/spec/devices/requests/{path}/operator": "Equal" for path in paths}
    assert edits(make_template(requests=requests, version=version)) == template


def test_operator_in_an_allocation() -> None:
    claim = make_claim(status=make_status(make_result(), make_result([BARE])))
    assert edits(claim) == {"/status/allocation/devices/results/1/tolerations/0/operator": "Equal"}


def test_nothing_else_has_a_default() -> None:
    bare = make_claim([{"operator": "Exists"}])
    assert edits(bare) == {}  # D-7: no effect, no value, no seconds
    assert json.dumps(apply_patch(make_rule(taint={"timeAdded": OLD_TEXT}), ())).count("effect") == 0
    assert edits(make_rule(taint={"timeAdded": OLD_TEXT})) == {}


def test_what_is_no_object_of_ours_is_left_alone() -> None:
    assert list(edits_for(object(), None, CONTEXT)) == []
