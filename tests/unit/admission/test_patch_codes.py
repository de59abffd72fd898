"""Codes that confirm a patch, and what is remembered of a patch that was admitted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import DRIVER, KEY, NOW, make_taint
from tests.unit.admission.guarding import UNKNOWN, allowing, code_in, over, refusals
from tests.unit.admission.patch_guarding import CREATED_TEXT, FIRST, ask_patch, cel, evicting, known, patching, racks
from webhook.api.field import Severity
from webhook.inventory.extent import names_of
from webhook.inventory.fates import DeviceNames
from webhook.inventory.impact import Impact
from webhook.policy.model import ImpactLimits, ImpactSettings, RequesterMatch

SHORT = ImpactSettings(limits=(ImpactLimits(pods=0),), confirm_for_seconds=10)
LATER = NOW + timedelta(seconds=30)
FOUR_PODS = "hits 8 devices, 4 pods in 1 namespace"


def test_code_confirms_the_patch() -> None:
    limits = allowing(pods=3)
    code = code_in(ask_patch(patching(cel(FIRST)), impact=limits))
    confirmed = ask_patch(patching(cel(FIRST), code=code), impact=limits)
    assert confirmed.allowed
    assert confirmed.annotations["impact"].endswith(" over=limit:pods confirmed")
    assert confirmed.assumed is not None


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"name": "another"}, id="name"),
        pytest.param({"filter_": cel(f"{FIRST} && true")}, id="filter"),
        pytest.param({"taints": [evicting(value="v")]}, id="value"),
        pytest.param({"taints": [evicting(key="o.example.com/k")]}, id="key"),
        pytest.param({"taints": [evicting(), make_taint()]}, id="a taint more"),
        pytest.param({"taints": [evicting(time_added="2026-06-01T11:58:59Z")]}, id="an old time"),
    ],
)
def test_code_is_for_this_patch_alone(changed: Any) -> None:
    limits = allowing(pods=3)
    code = code_in(ask_patch(patching(cel(FIRST)), impact=limits))
    taints = changed.pop("taints", [evicting()])
    patch = patching(changed.pop("filter_", cel(FIRST)), *taints, code=code, **changed)
    decision = ask_patch(patch, impact=limits)
    assert "was made for another rule, selector, taint or effect, or with another key" in refusals(decision)


@pytest.mark.parametrize("time", ["2026-06-01T11:59:00Z", "2026-06-01T12:00:30Z"])
def test_code_holds_whatever_the_time_as_long_as_it_is_not_back_dated(time: str) -> None:
    """Clocks may differ by a minute."""
    limits = allowing(pods=3)
    code = code_in(ask_patch(patching(cel(FIRST)), impact=limits))
    assert ask_patch(patching(cel(FIRST), evicting(time_added=time), code=code), impact=limits).allowed


def test_code_for_less_is_refused() -> None:
    limits = allowing(pods=1)
    code = code_in(ask_patch(patching(cel(FIRST)), impact=limits, cluster=racks(2)))
    decision = ask_patch(patching(cel(FIRST), code=code), impact=limits)
    assert any(text.startswith("was made for less: now 4 devices (at most 2)") for text in refusals(decision))


def test_code_that_is_not_needed_is_judged_as_well() -> None:
    code = code_in(ask_patch(patching(), impact=SHORT))
    assert ask_patch(patching(code=code)).allowed
    late = ask_patch(patching(code=code), now=LATER)
    assert [text.split(";")[1:] for text in refusals(late)] == [
        [" the patch needs no code, so leave the annotation out"]
    ]
    assert refusals(late)[0].startswith("expired at 2026-06-01T12:00:10Z")
    nothing = ask_patch(
        patching(code=code),
        patching(),
        patches=known([patching(name="other", created=CREATED_TEXT, priority=1), patching()]),
        now=LATER,
    )
    assert refusals(nothing) == refusals(late)
    assert "is not a code as this webhook makes them" in refusals(ask_patch(patching(code="renew")))
    stored = patching(code="renew")
    assert ask_patch(stored, stored).allowed, "it is there already"


def test_new_code_on_a_stored_patch_is_judged_as_a_whole() -> None:
    limits = allowing(pods=3)
    refused = ask_patch(patching(code="renew"), patching(), impact=limits)
    assert refusals(refused)[0].startswith(f"{FOUR_PODS}: the limit is 3 pods")
    code = next(text.split('"')[1] for text in refusals(refused) if '"v1.' in text)
    assert ask_patch(patching(code=code), patching(), impact=limits).allowed


def test_code_while_the_impact_is_unknown() -> None:
    code = code_in(ask_patch(patching(), impact=SHORT))
    expired = ask_patch(patching(code=code), cluster=UNKNOWN, now=LATER)
    assert refusals(expired)[0].startswith("expired at")
    assert len(refusals(expired)) == 2


def test_nothing_is_confirmed_without_a_key_or_a_known_caller() -> None:
    keyless = ask_patch(patching(), impact=allowing(pods=3), key=None)
    assert "cannot be confirmed while the webhook has no key; narrow the filter" in refusals(keyless)[0]
    untrusted = ask_patch(patching(), impact=allowing(pods=3), caller_trusted=False)
    assert "API servers do not prove" in refusals(untrusted)[0]
    assert ask_patch(patching(), caller_trusted=False).assumed is None


def test_code_in_a_file_is_left_to_the_webhook() -> None:
    decision = ask_patch(patching(code="renew"), sight=None, key=None, offline=True)
    assert decision.allowed
    assert [each for each in decision.findings if each.severity is Severity.DENY] == []


# --- the window ------------------------------------------------------------------------------------


def test_patch_is_remembered_as_one() -> None:
    decision = ask_patch(patching(cel(FIRST)))
    assumed = decision.assumed
    assert assumed is not None
    assert assumed.impact.pods == {f"u-{number}" for number in range(4)}
    assert assumed.names == tuple([DeviceNames(DRIVER, f"node-{number}", "gpu-0") for number in range(4)])
    assert [names_of(rule.selector) for rule in assumed.rules] == [*assumed.names]
    assert {(rule.taint.key, rule.meta.name.rpartition("-")[0]) for rule in assumed.rules} == {(KEY, "firmware")}


def test_rules_that_are_there_already_are_not_remembered_again() -> None:
    decision = ask_patch(patching("default", evicting(), evicting(key="o.example.com/k")), patching())
    assert decision.assumed is not None
    assert [rule.taint.key for rule in decision.assumed.rules] == ["o.example.com/k"]


def test_patch_counts_with_what_began_a_moment_ago() -> None:
    recent = Impact(waves=ask_patch(patching({"driver": DRIVER, "pool": "node-0"})).assumed.impact.waves)  # type: ignore[union-attr]
    chosen = {"driver": DRIVER, "pool": "node-1"}
    decision = ask_patch(patching(chosen), impact=allowing(pods=1), victims=(recent,))
    assert over(decision) == ["window:pods"]
    assert ask_patch(patching(chosen), impact=allowing(pods=2), victims=(recent,)).allowed
    closed = (DeviceNames(DRIVER, "node-0"),)
    crowded = ask_patch(patching(chosen, make_taint()), impact=allowing(devices=3), closed=closed)
    assert over(crowded) == ["window:devices"]


def test_entry_of_the_requester_counts() -> None:
    impact = ImpactSettings(limits=(ImpactLimits(RequesterMatch(users=("ops",)), pods=9), ImpactLimits(pods=3)))
    assert ask_patch(patching(), impact=impact, user="ops").allowed
    assert not ask_patch(patching(), impact=impact, user="dev").allowed


def test_code_in_a_file_is_refused_where_there_is_a_key_that_did_not_make_it() -> None:
    for code in ("v1.1", "renew"):
        decision = ask_patch(patching(code=code), sight=None, offline=True)
        assert refusals(decision) == ["is not a code as this webhook makes them"]
    assert ask_patch(patching(code="v1.1"), sight=None, offline=True, key=None).allowed
