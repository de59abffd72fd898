"""The status of a patch, also of what it says about slices."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec import structs

from tests.unit.patches.fake_cluster import NOW, START
from tests.unit.patches.patched import DRIVER, by_number, patch_of
from webhook.api.rules import Condition, DeviceSelector
from webhook.patches.filter_match import FaultNotes, FilterMatch, summed_faults
from webhook.patches.filters import Found
from webhook.patches.overriding import Refusal
from webhook.patches.slice_patches import AppliedAttributes, PatchInSlices
from webhook.patches.status import ExpansionOutcome, Standing, reason_of, status_of
from webhook.patches.stored import PatchStatus, StoredPatch

STORED: Final = StoredPatch(patch_of("one"), 7)
FINE: Final = Standing((), 2, 5, 4, (), "")


def faults(count: int, where: str = "selector #0") -> Any:
    failed = {(where, f"no {number}"): [f"gpu-{number}"] for number in reversed(range(count))}
    match = FilterMatch(DeviceSelector(), by_number)
    match.put((DRIVER, "node-0"), Found(frozenset(), failed))
    return match.faults


def status(standing: Standing = FINE, *, stored: StoredPatch = STORED, ceiling: int = 2, **outcome: Any) -> Any:
    return status_of(stored, standing, ceiling, ExpansionOutcome(outcome.pop("rules", 2), **outcome), NOW)


ROWS: Final[dict[str, tuple[Any, tuple[str, str, str], int]]] = {
    "fine": (status(), ("True", "Expanded", "the patch is 2 DeviceTaintRules"), 4),
    "one": (status(rules=1), ("True", "Expanded", "the patch is 1 DeviceTaintRule"), 4),
    "unusable": (status(FINE._replace(unusable="no class", needed=9)), ("False", "FilterNotUsable", "no class"), 0),
    "too many": (
        status(ceiling=1, rules=0),
        ("False", "TooManyRules", "needs 2 DeviceTaintRules, more than the 1 that a patch may have"),
        0,
    ),
    "refused": (status(refused="no", failed="503"), ("False", "RuleRefused", "no"), 0),
    "failed": (status(failed="503"), ("False", "WriteFailed", "503"), 0),
}


@pytest.mark.parametrize(("found", "expanded", "tainted"), ROWS.values(), ids=list(ROWS))
def test_expanded(found: Any, expanded: tuple[str, str, str], tainted: int) -> None:
    condition = found.conditions[0]
    assert (condition.type, condition.observed_generation, condition.last_transition_time) == ("Expanded", 7, START)
    assert (condition.status, condition.reason, condition.message) == expanded
    assert (found.observed_generation, found.selected_devices, found.tainted_devices) == (7, 5, tainted)
    assert reason_of(found.conditions) == expanded[1]


def test_reason_of_nothing_is_empty() -> None:
    assert reason_of(()) == ""


def test_evaluated() -> None:
    standing = FINE._replace(faults=(*faults(1), *faults(4, "selector #1")))
    condition = status(standing).conditions[1]
    assert (condition.type, condition.status, condition.reason) == ("Evaluated", "False", "SelectorFailed")
    assert condition.message == (
        "selector #0 fails on 1 device: gpu.example.com/node-0/gpu-0 (no 0); "
        "selector #1 fails on 4 devices: gpu.example.com/node-0/gpu-0 (no 0), "
        "gpu.example.com/node-0/gpu-1 (no 1), gpu.example.com/node-0/gpu-2 (no 2) and 1 more"
    )
    assert status().conditions[1].status == "True"


def test_time_is_that_of_the_last_change_of_the_status() -> None:
    earlier = structs.replace(STORED, status=status())
    later = status_of(earlier, FINE._replace(selected=9), 2, ExpansionOutcome(1), NOW + timedelta(hours=1))
    assert {each.last_transition_time for each in later.conditions} == {START}
    failed = status_of(earlier, FINE, 2, ExpansionOutcome(1, "no"), NOW + timedelta(hours=1))
    assert [each.last_transition_time for each in failed.conditions] == [START + timedelta(hours=1), START]
    undated = tuple([structs.replace(each, last_transition_time=None) for each in earlier.status.conditions])
    odd = structs.replace(earlier, status=structs.replace(earlier.status, conditions=undated))
    assert {each.last_transition_time for each in status(stored=odd).conditions} == {START}


def test_attributes_are_a_third_condition_and_a_count() -> None:
    fine = Condition("AttributesApplied", "True", "AttributesApplied", "m")
    found = status(applied=AppliedAttributes(3, fine))
    assert found.patched_devices == 3
    assert [each.type for each in found.conditions] == ["Expanded", "Evaluated", "AttributesApplied"]
    dated = structs.replace(fine, observed_generation=7, last_transition_time=START)
    assert found.conditions[2] == dated
    none = status()
    assert (none.patched_devices, len(none.conditions)) == (0, 2)


def test_condition_of_attributes_that_is_not_looked_at_again_stays_that_of_its_generation() -> None:
    fine = Condition("AttributesApplied", "True", "AttributesApplied", "m", 6, START)
    earlier = structs.replace(STORED, status=PatchStatus(conditions=(fine,)))
    kept = status(stored=earlier, applied=AppliedAttributes(3, fine))
    assert kept.conditions[2] is fine
    later = status(stored=earlier, applied=AppliedAttributes(3, structs.replace(fine, last_transition_time=None)))
    assert later.conditions[2] == structs.replace(fine, observed_generation=7)


@pytest.mark.parametrize(("size", "shown"), [(2000, "x" * 2000), (2001, f"{'x' * 1997}...")])
def test_message_is_cut(size: int, shown: str) -> None:
    assert status(refused="x" * size).conditions[0].message == shown


def test_faults_of_pools_add_up_and_the_first_devices_are_named() -> None:
    one, other = faults(2), faults(5)
    [summed] = summed_faults([*one, *other])
    assert (summed.where, summed.devices) == ("selector #0", 7)
    assert [example.device.device for example in summed.examples] == ["gpu-0", "gpu-0", "gpu-1"]
    assert [each.where for each in summed_faults([*faults(1, "b"), *faults(1, "a")])] == ["a", "b"]


def test_event_is_due_once_and_when_the_text_changes() -> None:
    notes = FaultNotes()
    [text] = notes.due("u", faults(1))
    assert notes.due("u", faults(1)) == []
    assert notes.due("w", faults(1)) == [text], "of another patch"
    assert len(notes.due("u", (*faults(1), *faults(1, "selector #1")))) == 1
    assert len(notes.due("u", faults(2))) == 1
    assert notes.due("u", ()) == []
    assert len(notes.due("u", faults(2))) == 1, "it was fine in between"


FULL: Final = (Refusal("p", "gpu-0", "too many"), Refusal("p", "gpu-1", "other"))
LARGE: Final = "where the drivers' own values would take more than 65536 bytes"
NOT_2: Final = "not applied to 2 devices in 1 slice, which would be invalid: s (gpu-0: too many)"
NOT_1: Final = "not applied to 1 device in 1 slice, which would be invalid: s (gpu-1: other)"
IN_SLICES: Final = {
    "originals": (
        PatchInSlices(beyond=("d", "c", "b", "a")),
        *("TooManyOriginals", f"not applied in 4 slices, {LARGE}: a, b, c and 1 more"),
    ),
    "devices": (PatchInSlices(invalid={"s": FULL}), "DeviceInvalid", NOT_2),
    "one device": (PatchInSlices(invalid={"s": FULL[1:]}), "DeviceInvalid", NOT_1),
    "pending": (
        PatchInSlices(pending=("y", "x", "z")),
        *("SlicesPending", "3 slices still to be written: x, y (403: no), z"),
    ),
    "both": (
        PatchInSlices(beyond=("a",), invalid={"s": FULL}),
        *("TooManyOriginals", f"not applied in 1 slice, {LARGE}: a; {NOT_2}"),
    ),
    "refused and pending": (
        PatchInSlices(invalid={"s": FULL}, pending=("x",)),
        *("DeviceInvalid", f"{NOT_2}; 1 slice still to be written: x"),
    ),
}


@pytest.mark.parametrize(("found", "reason", "message"), IN_SLICES.values(), ids=list(IN_SLICES))
def test_condition_of_attributes_that_are_not_applied(found: PatchInSlices, reason: str, message: str) -> None:
    condition = found.condition({"y": "403: no", "other": "x"})
    assert condition == Condition("AttributesApplied", "False", reason, message)


def test_condition_of_attributes_that_are_applied() -> None:
    found = PatchInSlices(3).condition({"y": "403: no"})
    assert found == Condition("AttributesApplied", "True", "AttributesApplied", "the slices have what the patch sets")
