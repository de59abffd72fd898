"""Annotations that anybody may write: on rules and on slices, read by every process that follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec import structs

from tests.unit.patches.patched import DRIVER, patch_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import REASONS, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.daemons.slice_keeper import _faults_of
from webhook.inventory.targets import DeviceId
from webhook.patches.filters import DeviceSelectors
from webhook.patches.published import ORIGINALS
from webhook.patches.reasons import is_named_for, noted_on
from webhook.patches.slice_patches import SlicePatches, SliceWork, slice_work
from webhook.policy.limits import REACTION_KEY, reaction_rule_name

if TYPE_CHECKING:
    from webhook.patches.overriding import Faults

MEMORY: Final = f"{DRIVER}/memory"
DEEP: Final = "[" * 2000 + "]" * 2000
NESTED: Final = "[" * 600 + "]" * 600
REASONS_TEXTS: Final = {
    "nested more deeply than anything reads": f'{{"x":{DEEP}}}',
    "a number of 5,000 digits": f'{{"device":"d/p/x","effect":"NoSchedule","reasons":[],"evict":{"9" * 5000}}}',
    "half a character": '{"device":"\ud800"}',
}


@pytest.mark.parametrize("text", REASONS_TEXTS.values(), ids=REASONS_TEXTS)
def test_reasons_that_cannot_be_read_are_none(text: str) -> None:
    name = reaction_rule_name(DeviceId(DRIVER, "node-1", "gpu-0"))
    rule = DeviceTaintRule(ObjectMeta(name, annotations={REASONS: text}), None, DeviceTaint(REACTION_KEY, "", "None"))
    noted = noted_on(rule)
    assert noted is None or noted.reasons == ()
    assert not is_named_for(rule)


def work_on(was: str, *, sent: str = "", rewrites: str = "1") -> SliceWork:
    """What is to be done about a slice whose memory is said to be overridden, with these texts in its annotation."""
    entry = f'{{"was":{was},"now":{{"value":"2Gi"}}{sent}}}'
    note = f'{{"version":1,"rewrites":{rewrites},"devices":{{"gpu-0":{{"capacity":{{"{MEMORY}":{entry}}}}}}}}}'
    value = slice_of({"name": "gpu-0", "capacity": {MEMORY: {"value": "2Gi"}}})
    value = structs.replace(value, meta=structs.replace(value.meta, annotations={ORIGINALS: note}))
    patch = patch_of("p", driver=DRIVER, capacity={MEMORY: "3Gi"})
    faults: Faults = _faults_of(value)
    return slice_work(value, SlicePatches.of([patch], {}), DeviceSelectors(10**6), faults)


ORIGINALS_TEXTS: Final = {
    "a value nested 600 levels deep": (f'{{"x":{NESTED},"value":"1Gi"}}', "", "1"),
    "an answer nested 600 levels deep": ('{"value":"1Gi"}', f',"sent":{{"x":{NESTED},"value":"1Gi"}}', "1"),
    "a count of 4,300 digits": ('{"value":"1Gi"}', "", "9" * 4300),
    "a count of 64 bits": ('{"value":"1Gi"}', "", str(2**64 - 1)),
    "a count below zero": ('{"value":"1Gi"}', "", "-1"),
}


@pytest.mark.parametrize(("was", "sent", "rewrites"), ORIGINALS_TEXTS.values(), ids=ORIGINALS_TEXTS)
def test_slice_is_patched_whatever_its_annotation_says(was: str, sent: str, rewrites: str) -> None:
    work = work_on(was, sent=sent, rewrites=rewrites)
    assert (work.touch, work.patched) == (True, {"p": 1})


def test_request_policy_of_a_capacity_is_an_original() -> None:
    policy = '{"value":"1Gi","requestPolicy":{"default":"1Gi","validRange":{"min":"1Gi","step":"1Gi"}}}'
    assert work_on(policy).patched == {"p": 1}
