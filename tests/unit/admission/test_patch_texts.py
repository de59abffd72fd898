"""Texts that confirm a patch, and what is remembered of a patch that was admitted."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY, decoded, make_rule, make_taint
from tests.tables import table
from tests.unit.admission.guarding import OTHER, UNKNOWN, UNREADABLE, allowing, over, refusals, text_in
from tests.unit.admission.patch_guarding import (
    CREATED_TEXT,
    FIRST,
    SlowMemo,
    ask_patch,
    cel,
    evicting,
    known,
    patching,
    racks,
)
from webhook.api.rules import EVICTED_PODS, PATCH_LABEL
from webhook.inventory.impact import Impact
from webhook.inventory.targets import DeviceNames
from webhook.policy.model import ImpactLimits, ImpactSettings, PolicyMode, TaintMatch

FOUR_PODS = "hits 8 devices, 4 pods in 1 namespace"


@table(
    "changed",
    {
        "name": {"name": "another"},
        "filter": {"filter_": cel(f"{FIRST} && true")},
        "value": {"taints": [evicting(value="v")]},
        "key": {"taints": [evicting(key="o.example.com/k")]},
        "a taint more": {"taints": [evicting(), make_taint()]},
        "an old time": {"taints": [evicting(time_added="2026-06-01T11:58:59Z")]},
    },
)
def test_text_is_for_this_patch_alone(changed: Any) -> None:
    limits = allowing(pods=3)
    text = text_in(ask_patch(patching(cel(FIRST)), impact=limits))
    taints = changed.pop("taints", [evicting()])
    patch = patching(changed.pop("filter_", cel(FIRST)), *taints, text=text, **changed)
    assert any(found.startswith(OTHER) for found in refusals(ask_patch(patch, impact=limits)))


@pytest.mark.parametrize("time", ["2026-06-01T11:59:00Z", "2026-06-01T12:00:30Z"])
def test_text_holds_whatever_the_time_as_long_as_it_is_not_back_dated(time: str) -> None:
    """Clocks may differ by a minute."""
    limits = allowing(pods=3)
    text = text_in(ask_patch(patching(cel(FIRST)), impact=limits))
    assert ask_patch(patching(cel(FIRST), evicting(time_added=time), text=text), impact=limits).allowed


def test_text_for_far_more_is_refused_also_where_none_is_needed() -> None:
    text = text_in(ask_patch(patching(), impact=allowing(pods=0), cluster=racks(100)))
    for old in (None, patching()):
        assert "says more than is hit: 200 devices (today 8)" in refusals(ask_patch(patching(text=text), old))[0]
    hidden = ask_patch(
        patching(text=text),
        patching(),
        patches=known([patching(name="other", created=CREATED_TEXT, priority=1), patching()]),
    )
    assert "says more than is hit" in refusals(hidden)[0]
    assert ask_patch(patching(text="renew"), patching(text="renew")).allowed, "it is there already"


def test_new_text_on_a_stored_patch_is_judged_as_a_whole() -> None:
    limits = allowing(pods=3)
    refused = ask_patch(patching(text="renew"), patching(), impact=limits)
    assert refusals(refused)[0].startswith(f"{FOUR_PODS}: the limit is 3 pods")
    assert ask_patch(patching(text=text_in(refused)), patching(), impact=limits).allowed


def test_patch_that_does_nothing_yet_is_confirmed_for_what_it_will_do() -> None:
    limits, still = allowing(pods=3), evicting(effect="None")
    text = text_in(ask_patch(patching(), impact=limits))
    assert ask_patch(patching("default", still, text=text), impact=limits).allowed
    assert ask_patch(patching(text=text), patching("default", still, text=text), impact=limits).allowed
    assert text_in(ask_patch(patching("default", still, text="renew"), impact=limits)) == text


def test_limit_that_nobody_confirms_of_one_taint_holds_for_the_patch() -> None:
    other = evicting(key="o.example.com/k")
    fixed = ImpactLimits(taints=TaintMatch(keys=("o.example.com/*",)), pods=3, confirmable=False)
    settings = ImpactSettings(limits=(fixed, ImpactLimits(pods=3)))
    text = text_in(ask_patch(patching("default", evicting(), other), impact=allowing(pods=3)))
    found = refusals(ask_patch(patching("default", evicting(), other, text=text), impact=settings))
    assert any(each.endswith("no one may confirm it (confirmable: false); narrow the filter") for each in found)
    assert ask_patch(patching(text=text_in(ask_patch(patching(), impact=settings))), impact=settings).allowed


FIXED = ImpactSettings(limits=(ImpactLimits(pods=3, confirmable=False),))
NOBODY = "confirms nothing: by the policy no one may confirm this (confirmable: false)"


@pytest.mark.parametrize("chosen", ["default", cel(FIRST)], ids=["None", "CEL"])
@pytest.mark.parametrize(
    "settings",
    [
        FIXED,
        ImpactSettings(
            limits=(structs.replace(FIXED.limits[0], taints=TaintMatch(effects=("NoExecute",))), ImpactLimits())
        ),
    ],
    ids=["every effect", "NoExecute"],
)
def test_no_text_is_planted_in_a_patch_that_does_nothing_yet(settings: ImpactSettings, chosen: Any) -> None:
    still = evicting(effect="None") if chosen == "default" else evicting()
    cluster = racks() if chosen == "default" else racks(0)
    text = text_in(ask_patch(patching(chosen, still, text="renew"), cluster=cluster, impact=allowing()))
    found = refusals(ask_patch(patching(chosen, still, text=text), cluster=cluster, impact=settings))
    assert NOBODY in found


def test_new_text_is_for_all_of_a_patch_and_not_for_what_is_added() -> None:
    every, first = cel(FIRST), {**cel(FIRST), "pool": "node-0"}
    text = text_in(ask_patch(patching(every), impact=allowing(pods=2)))
    assert text_in(ask_patch(patching(every, text="renew"), patching(first), impact=allowing(pods=2))) == text
    assert ask_patch(patching(every, text=text), patching(first), impact=allowing(pods=2)).allowed


def test_what_was_evicted_for_a_patch_stands_in_its_text_even_if_it_hits_nothing_now() -> None:
    uid, chosen = "uid-of-patch", {"driver": DRIVER, "pool": "gone"}
    reference = {"apiVersion": "devicetaint.io/v1alpha1", "kind": "ResourceSlicePatch", "name": "firmware", "uid": uid}
    owned = {"name": "r", "labels": {PATCH_LABEL: uid}, "ownerReferences": [{**reference, "controller": True}]}
    rule = {
        **make_rule(selector=chosen, taint=evicting(), meta=owned),
        "status": {"conditions": [{"type": EVICTED_PODS, "status": "True", "message": "120"}]},
    }
    cluster, old = racks(1), patching(chosen, uid=uid)
    cluster.apply(None, decoded(rule)[0])
    text = text_in(ask_patch(patching(chosen, uid=uid, text="renew"), old, cluster=cluster, impact=allowing()))
    assert text.startswith("v1 devices=0 claims=0 pods=0 namespaces=0 done=120 of=")
    assert ask_patch(patching(chosen, uid=uid, text=text), old, cluster=cluster, impact=allowing()).allowed


def test_text_in_a_file_must_be_of_its_patch() -> None:
    text = text_in(ask_patch(patching(), impact=allowing(pods=3)))
    assert ask_patch(patching(text=text), sight=None, offline=True).allowed
    assert refusals(ask_patch(patching(text=text, name="another"), sight=None, offline=True)) == [OTHER]
    assert refusals(ask_patch(patching(text="renew"), sight=None, offline=True)) == [UNREADABLE]


def test_patch_is_remembered_as_one() -> None:
    decision = ask_patch(patching(cel(FIRST)))
    assumed = decision.assumed
    assert assumed is not None
    assert assumed.impact.pods == {f"u-{number}" for number in range(4)}
    assert assumed.names == tuple([DeviceNames(DRIVER, f"node-{number}", "gpu-0") for number in range(4)])
    assert [DeviceNames.of(rule.selector) for rule in assumed.rules] == [*assumed.names]
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


# --- while the impact is not known ----------------------------------------------------------------


CLASS: Final[dict[str, tuple[str, ...]]] = {"gpu": ("true",)}
FILTER: Final = {"deviceClassName": "gpu"}
NOT_FOLLOWED: Final = "this webhook does not follow patches"


def text() -> str:
    asked = ask_patch(patching(FILTER), patches=known(classes=CLASS), impact=allowing(pods=3))
    found = re.search(r'"(v1 [^"]+)"', str(asked.errors[0]))
    assert found is not None
    return found.group(1)


@table(
    "effect, options, why",
    {
        "no such class": ("NoExecute", {}, "gpu"),
        "too slow": ("NoExecute", {"patches": known(classes=CLASS, memo=SlowMemo())}, "longer than a review"),
        "not followed": ("NoExecute", {"patches": known(unknown=NOT_FOLLOWED)}, NOT_FOLLOWED),
        "no cluster": ("NoExecute", {"cluster": UNKNOWN}, "claims were not read yet"),
        "does not act": ("None", {}, "gpu"),
        "mode off": ("NoExecute", {"mode": PolicyMode.OFF}, "gpu"),
    },
)
def test_refused_text_says_why_the_impact_is_not_known(effect: str, options: dict[str, Any], why: str) -> None:
    decision = ask_patch(
        patching(FILTER, evicting(effect=effect), text=text()), **{"impact": allowing(pods=3), **options}
    )
    (said,) = re.findall("cannot be compared with the impact: (.*); try again in a while", str(decision.errors[-1]))
    assert why in said
