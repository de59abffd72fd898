from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import (
    EARLIER_TEXT,
    NOW_TEXT,
    make_admission_request,
    make_claim,
    make_context,
    make_device,
    make_patch,
    make_result,
    make_rule,
    make_slice,
    make_status,
    make_taint,
    make_toleration,
)
from tests.tables import table
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


def rule(time: str | None = EARLIER_TEXT, effect: str = "NoSchedule", *, evict: str | None = None, **taint: Any) -> Any:
    annotations = None if evict is None else {"devicetaint.io/evict": evict}
    return make_rule(taint=make_taint(effect=effect, time_added=time, **taint), annotations=annotations)


TIME = "/spec/taint/timeAdded"


@table(
    "new, time",
    {
        "even for one that nobody knows": (rule(None, "Evict"), NOW_TEXT),
        "a given time is kept (D-3)": (rule(OLD_TEXT), None),
        "whichever way it is written": (rule("2026-06-01T12:00:00.5+00:00"), None),
        "an eviction asked for today does not start last month": (rule(OLD_TEXT, evict="true"), NOW_TEXT),
        "nor 61 seconds ago": (rule("2026-06-01T11:58:59Z", evict="true"), NOW_TEXT),
        "a minute ago is today": (rule("2026-06-01T11:59:00Z", evict="true"), None),
        "and may start later": (rule(FUTURE_TEXT, evict="true"), None),
        "no eviction, no change": (rule(OLD_TEXT, evict="false"), None),
    },
)
def test_time_of_a_new_rule(new: Any, time: str | None) -> None:
    assert edits(new) == ({} if time is None else {TIME: time})


@table(
    "old, new, time",
    {
        "nothing changed": (rule(OLD_TEXT), rule(OLD_TEXT), None),
        "not if the key changed": (rule(OLD_TEXT), rule(None, key="k"), NOW_TEXT),
        "not if the effect changed": (rule(OLD_TEXT), rule(None, "NoExecute"), NOW_TEXT),
        "not if there is none to carry over": (rule(None), rule(None), NOW_TEXT),
        "the same instant in another zone (D-4)": (rule("2026-05-01T02:00:00+02:00"), rule(OLD_TEXT, "None"), NOW_TEXT),
        "also without a new effect": (rule(OLD_TEXT), rule(FUTURE_TEXT), None),
        "eviction asked for now starts now": (rule(OLD_TEXT), rule(OLD_TEXT, evict="true"), NOW_TEXT),
        "and does not start again": (rule(OLD_TEXT, evict="true"), rule(OLD_TEXT, evict="true"), None),
        "eviction taken back": (rule(OLD_TEXT, evict="true"), rule(OLD_TEXT), None),
        "now is now already": (rule(NOW_TEXT), rule(NOW_TEXT, "NoExecute"), None),
    },
)
def test_time_of_an_updated_rule(old: Any, new: Any, time: str | None) -> None:
    assert edits(new, old) == ({} if time is None else {TIME: time})


@table(
    "spec, expected",
    {
        "an empty spec gets the parents it needs": ({}, {"/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}),
        "a null taint likewise": ({"taint": None}, {"/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}),
        "and a null spec": (None, {"/spec": {}, "/spec/taint": {}, "/spec/taint/timeAdded": NOW_TEXT}),
    },
)
def test_missing_parents_of_a_rule_are_made(spec: Any, expected: dict[str, Any]) -> None:
    assert edits(make_rule() | {"spec": spec}) == expected


def test_time_is_set_in_full_seconds() -> None:
    context = make_context(now=CONTEXT.now.replace(microsecond=999_999))
    assert edits(rule(None), context=context) == {TIME: NOW_TEXT}


MISSING = make_taint(time_added=None)


@table(
    "stored, time",
    {
        "the same taint of the device": (make_device("b", [make_taint(time_added=OLD_TEXT)]), OLD_TEXT),
        "the first of several": (make_device("b", [make_taint(time_added=OLD_TEXT), make_taint()]), OLD_TEXT),
        "another device": (make_device("a", [make_taint(time_added=OLD_TEXT)]), NOW_TEXT),
        "no taint before": (make_device("b"), NOW_TEXT),
    },
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


@table(
    "taints, stored, bumped",
    {
        "a new effect at the old time": ([make_taint(effect="NoExecute")], [make_taint()], [0]),
        "the old effect": ([make_taint()], [make_taint()], []),
        "a new effect at a new time": ([make_taint(effect="NoExecute", time_added=FUTURE_TEXT)], [make_taint()], []),
        "another value is another taint": ([make_taint(effect="NoExecute", value="v")], [make_taint()], []),
        "two stored ones: nobody knows which of them changed": (
            [make_taint(effect="NoExecute")],
            [make_taint(), make_taint(effect="None")],
            [],
        ),
        "found by key and value, not by place": (
            [make_taint(), make_taint(value="v", effect="None")],
            [make_taint(value="v"), make_taint()],
            [1],
        ),
        "now is now": ([make_taint(effect="NoExecute", time_added=NOW_TEXT)], [make_taint(time_added=NOW_TEXT)], []),
        "a missing time is set once": ([MISSING | {"effect": "NoExecute"}], [MISSING], [0]),
    },
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


def test_times_of_a_patch() -> None:
    new = make_patch(taints=[MISSING, MISSING | {"value": "v"}, make_taint(time_added=FUTURE_TEXT)])
    assert edits(new) == {"/spec/devices/taints/0/timeAdded": NOW_TEXT, "/spec/devices/taints/1/timeAdded": NOW_TEXT}
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
    assert edits(new) == {"/spec/devices/taints/1/timeAdded": NOW_TEXT, "/spec/devices/taints/3/timeAdded": NOW_TEXT}
    stored = make_patch(taints=[plain | {"timeAdded": OLD_TEXT}, acting | {"timeAdded": OLD_TEXT}]) | planned
    assert edits(new, stored) == {
        "/spec/devices/taints/1/timeAdded": OLD_TEXT,
        "/spec/devices/taints/3/timeAdded": NOW_TEXT,
    }


BARE = make_toleration(operator=None, value="v")


def test_operator_in_an_allocation() -> None:
    claim = make_claim(status=make_status(make_result(), make_result([BARE])))
    assert edits(claim) == {"/status/allocation/devices/results/1/tolerations/0/operator": "Equal"}


def test_what_is_no_object_of_ours_is_left_alone() -> None:
    assert list(edits_for(object(), None, CONTEXT)) == []
