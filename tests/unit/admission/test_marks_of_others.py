"""Marks of our controllers on rules of other accounts."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.builders import DRIVER, KEY, make_admission_request, make_context, make_taint
from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, allowing, told
from tests.unit.admission.patch_guarding import evicting
from tests.unit.admission.test_written_rules import (
    ACCOUNT,
    GPU_0,
    LEFT_OUT,
    REACTIONS,
    UID,
    degraded,
    faults,
    genuine,
    judged,
    owner,
    written,
)
from webhook.admission.chain import validate
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, REACTION, REASONS
from webhook.inventory.targets import DeviceId
from webhook.policy.limits import reaction_rule_name
from webhook.policy.model import PolicyMode

LEAVE_OUT: Final = (
    "; leave out labels devicetaint.io/patch and devicetaint.io/hardware-of, and the owner reference that controls it"
)
WOULD_NOT: Final = "metadata.ownerReferences: the patch controller would not write this rule: "
NOT_NAMED: Final = "its name is none for this taint and selector of firmware"
NOT_ONE: Final = "its label and its controller do not name the same patch or rule"


@table(
    "rule, fault",
    {
        "a name of its own": (written(), NOT_NAMED),
        "another effect": (genuine(taint=make_taint(effect="None"), of=evicting()), NOT_NAMED),
        "more devices": (genuine({"driver": DRIVER}, of_selector=GPU_0), NOT_NAMED),
        "a label alone": (genuine(ownerReferences=[]), NOT_ONE),
        "an owner reference alone": (genuine(labels={}), NOT_ONE),
        "a label of another sort": (genuine(labels={HARDWARE_LABEL: UID}), NOT_ONE),
        "no such patch": (
            genuine(ownerReferences=[owner("other")], labels={PATCH_LABEL: "other"}),
            "there is no ResourceSlicePatch firmware with that UID",
        ),
        "a taint that the patch does not have": (
            genuine(taint=make_taint(effect="None")),
            f"patch firmware has no taint {KEY}:None",
        ),
        "devices that the patch does not select": (
            genuine({"driver": DRIVER, "device": "gpu-1"}),
            f"device {DRIVER}/node-0/gpu-1 {LEFT_OUT}",
        ),
        "no such rule": (
            genuine(kind="DeviceTaintRule", labels={HARDWARE_LABEL: UID}),
            "there is no DeviceTaintRule firmware with that UID",
        ),
    },
)
@pytest.mark.parametrize("account", [ACCOUNT, ""])
def test_marks_on_a_rule_that_the_controller_would_not_write_are_refused(rule: Any, fault: str, account: str) -> None:
    options: dict[str, Any] = {"user": "mallory", "patch_account": account, "impact": allowing()}
    assert faults(rule, **options) == [f"{WOULD_NOT}{fault}{LEAVE_OUT}"]
    assert faults(rule, rule, **options) == [], "they are not judged again"
    plain = {**rule, "metadata": {"name": rule["metadata"]["name"]}}
    assert faults(plain, rule, **options) == [], "they may be taken away"
    assert faults(rule, plain, **options) == [f"{WOULD_NOT}{fault}{LEAVE_OUT}"]
    assert judged(rule, **options, mode=PolicyMode.WARN).turned_down
    assert told(judged(rule, **options, mode=PolicyMode.OFF)) == []


def test_rule_of_the_controller_that_somebody_restores_is_admitted() -> None:
    assert faults(genuine(), user="velero", impact=allowing()) == []
    assert faults(genuine(), user="velero", patch_account="", impact=allowing()) == []


def test_owner_of_another_kind_is_no_mark() -> None:
    assert faults(genuine(labels={}, ownerReferences=[owner(kind="Pod")]), user="ml", impact=allowing()) == []


def test_marks_that_cannot_be_checked_are_refused() -> None:
    unknown = {"user": "mallory", "impact": allowing(), "cluster": UNKNOWN}
    assert f"{WOULD_NOT}that cannot be checked: claims were not read yet{LEAVE_OUT}" in faults(genuine(), **unknown)


def test_names_are_compared_without_a_cluster() -> None:
    context = make_context(offline=True)
    assert not validate(make_admission_request(written(), user="mallory"), context).allowed
    assert validate(make_admission_request(genuine(), user="mallory"), context).allowed


FORGED_REASONS: Final = (
    "metadata.annotations[devicetaint.io/reasons]: a reaction would not write this rule: its name, taint or selector is"
    " another one; leave out this annotation and label devicetaint.io/reaction"
)
DEGRADED: Final = reaction_rule_name(DeviceId(DRIVER, "node-0", "gpu-0"))


@table(
    "meta, effect, refused",
    {
        "reasons": ({"name": "a", "annotations": {REASONS: "{}"}}, "NoSchedule", True),
        "a label": ({"name": "a"}, "NoSchedule", True),
        "another label": ({"name": "a", "labels": {REACTION: "no"}}, "NoSchedule", False),
        "the name and effect None": ({"name": DEGRADED, "annotations": {REASONS: "{}"}}, "None", True),
        "as a reaction does": ({"name": DEGRADED, "annotations": {REASONS: "{}"}}, "NoSchedule", False),
    },
)
def test_marks_of_reactions_on_rules_that_no_reaction_would_write_are_refused(
    meta: dict[str, Any], effect: str, *, refused: bool
) -> None:
    rule = degraded(effect, **meta)
    for options in ({"patch_account": ACCOUNT}, {"patch_account": ""}):
        given: dict[str, Any] = {"user": "mallory", "impact": allowing(), "reactions": REACTIONS, **options}
        assert faults(rule, **given) == ([FORGED_REASONS] if refused else [])
        assert faults(rule, rule, **given) == []
