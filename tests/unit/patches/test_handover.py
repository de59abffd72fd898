"""Rules stay while the patch that wins their devices lacks rules for them."""

from __future__ import annotations

from typing import Final

import pytest

from tests.unit.patches.indexed import index_of
from tests.unit.patches.patched import CREATED, DRIVER, patch_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.patches.book import Handover
from webhook.patches.stored import RuleApply, RuleOwner, StoredRule

TAINT: Final = DeviceTaint("k", "", "NoSchedule", CREATED)
OTHER: Final = DeviceTaint("l", "", "NoSchedule", CREATED)
ON_A: Final = DeviceSelector(driver=DRIVER, pool="node-0", device="a")
ON_B: Final = DeviceSelector(driver=DRIVER, pool="node-0", device="b")


def stored(taint: DeviceTaint = TAINT, selector: DeviceSelector | None = ON_A) -> StoredRule:
    """Of a patch that is no longer there."""
    return StoredRule(DeviceTaintRule(ObjectMeta("old", uid="rule"), selector, taint))


def missing(taint: DeviceTaint = TAINT, selector: DeviceSelector = ON_A) -> RuleApply:
    return RuleApply(RuleOwner("ResourceSlicePatch", "new", "uid-new"), "new-1", selector, taint, {}, creates=True)


@pytest.fixture
def handover() -> Handover:
    """Patch `new` taints device `a` of two, and with a higher priority than `late`."""
    new = patch_of("new", priority=2, device="a", taints=[TAINT])
    late = patch_of("late", priority=1, device="a", taints=[TAINT])
    return Handover(index_of([slice_of("a", "b")], new, late))


def test_rule_stays_until_the_patch_that_wins_its_device_has_its_own(handover: Handover) -> None:
    assert handover.heir_of("uid-old", stored()) == ""
    assert handover.lacks("uid-new", "new", [missing()]) == []
    assert handover.heir_of("uid-old", stored()) == "new"
    assert handover.has_all("uid-new") == ["uid-old"]
    assert handover.heir_of("uid-old", stored()) == ""
    assert handover.has_all("uid-new") == []


@pytest.mark.parametrize(
    ("lacking", "owner", "heir"),
    [
        pytest.param(["new"], "old", "new", id="a patch that gets no rule lacks all of them"),
        pytest.param(["new"], "new", "", id="it does not wait for itself"),
        pytest.param(["late", "new"], "late", "new", id="one that lacks rules itself waits as well"),
        pytest.param(["late"], "old", "", id="a patch that does not win its device"),
    ],
)
def test_owner_waits_for_the_patch_that_wins_its_device(
    handover: Handover, lacking: list[str], owner: str, heir: str
) -> None:
    for name in lacking:
        handover.lacks(f"uid-{name}", name, None)
    assert handover.heir_of(f"uid-{owner}", stored()) == heir


def test_owners_go_on_waiting_when_another_patch_begins_to_lack_rules(handover: Handover) -> None:
    handover.lacks("uid-new", "new", [missing()])
    assert handover.heir_of("uid-old", stored()) == "new"
    assert handover.lacks("uid-late", "late", None) == []
    assert handover.has_all("uid-new") == ["uid-old"]


@pytest.mark.parametrize(
    ("rule", "lacking"),
    [
        (stored(selector=ON_B), missing()),
        (stored(), missing(selector=ON_B)),
        (stored(OTHER), missing()),
        (stored(), missing(OTHER)),
        (stored(selector=None), missing()),
    ],
    ids=["rule for another device", "lacks one for another device", "rule for another taint", "lacks another", "none"],
)
def test_rule_does_not_wait_for_what_is_lacking_elsewhere(
    handover: Handover, rule: StoredRule, lacking: RuleApply
) -> None:
    handover.lacks("uid-new", "new", [lacking])
    assert handover.heir_of("uid-old", rule) == ""


@pytest.mark.parametrize(
    ("rule", "patch"),
    [(stored(OTHER), "new"), (stored(selector=ON_B), "new"), (stored(), "gone")],
    ids=["a taint that it does not set", "a device that it does not select", "it is gone"],
)
def test_rule_does_not_wait_for_a_patch_that_needs_none(handover: Handover, rule: StoredRule, patch: str) -> None:
    handover.lacks("uid-new", patch, None)
    assert handover.heir_of("uid-old", rule) == ""


def test_owners_that_wait_look_again_when_less_is_lacking_and_not_when_nothing_changed(handover: Handover) -> None:
    handover.lacks("uid-new", "new", [missing(), missing(OTHER)])
    assert handover.heir_of("uid-old", stored()) == "new"
    assert handover.lacks("uid-new", "new", [missing(OTHER), missing()]) == []
    assert handover.lacks("uid-new", "new", [missing()]) == ["uid-old"]
