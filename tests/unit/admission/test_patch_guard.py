"""The guard of patches: the whole expansion is one impact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import DRIVER, make_admission_request, make_taint
from tests.tables import table
from tests.unit.admission.guarding import NOWHERE, UNKNOWN, allowing, over, refusals, told
from tests.unit.admission.patch_guarding import (
    CREATED_TEXT,
    FIRST,
    SECOND,
    SlowMemo,
    ask_patch,
    cel,
    evicting,
    figures,
    known,
    patching,
    racks,
    send_patch,
    standing,
)
from tests.unit.admission.test_gangs import RING, TRAIN, context_of, job_set, ring
from tests.unit.admission.test_written_for_hardware import hardware
from tests.unit.inventory.values import claim, inventory_of, lets_stay, on, pool_slice
from webhook.admission.chain import validate
from webhook.admission.context import Budget, OutOfTime
from webhook.patches.filter_memo import FilterMemo
from webhook.policy.model import (
    Action,
    ImpactLimits,
    ImpactSettings,
    InTreeEvictor,
    Policy,
    PolicyMode,
    Share,
    Softening,
    TaintMatch,
)

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

CLASSES = {"second": (SECOND,), "all": ()}


def test_one_warning_says_what_a_patch_hits() -> None:
    decision = ask_patch(patching())
    assert decision.allowed
    assert told(decision) == [("warn", "selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, all at once")]
    assert decision.warnings[0].startswith("spec.devices.filter: selects 8 devices")
    assert decision.annotations["impact"].startswith("devices=8 pools=4 allocated=4 claims=4 pods=4 now=4 ")


@table(
    "chosen, pods, devices",
    {
        "names": ({"driver": DRIVER, "pool": "node-1"}, 1, 2),
        "CEL, first devices": (cel(FIRST), 4, 4),
        "CEL, devices without pods": (cel(SECOND), 0, 4),
        "class": ({"deviceClassName": "second"}, 0, 4),
        "class of every device": ({"deviceClassName": "all"}, 4, 8),
        "class, CEL and names": ({"deviceClassName": "all", **cel(FIRST, pool="node-2")}, 1, 1),
        "nothing in common": ({"deviceClassName": "second", **cel(FIRST)}, 0, 0),
        "a driver that publishes nothing": (NOWHERE, 0, 0),
    },
)
def test_filter_is_evaluated(chosen: Any, pods: int, devices: int) -> None:
    decision = ask_patch(patching(chosen), patches=known(classes=CLASSES))
    assert decision.allowed
    found = figures(decision) if "impact" in decision.annotations else {"pods": 0, "devices": 0}
    assert (found["pods"], found["devices"]) == (pods, devices)


def test_patch_over_the_limit_is_refused_with_the_figures_and_a_text() -> None:
    decision = ask_patch(patching(cel(FIRST)), impact=allowing(pods=3))
    [text] = refusals(decision)
    assert text.startswith(
        "hits 4 devices, 4 pods in 1 namespace: the limit is 3 pods; narrow the filter, or to go ahead, set annotation"
        ' devicetaint.io/confirm-impact to "v1 devices=4 claims=4 pods=4 namespaces=1 of='
    )
    assert over(decision) == ["limit:pods"]
    assert decision.assumed is None
    assert decision.code == 403


@pytest.mark.parametrize("chosen", ["default", cel(FIRST)])
def test_data_of_any_kind_is_no_obstacle(chosen: Any) -> None:
    taint = evicting(data={"xid": [79, {"at": 1.5}]}, description="d", evictionsPerSecond=1)
    for old in (None, patching(chosen), patching(chosen, taint)):
        assert ask_patch(patching(chosen, taint), old).allowed
    limits = ImpactSettings(limits=(ImpactLimits(pods=3, soften=Softening.ALWAYS),))
    assert send_patch(patching(chosen, taint), impact=limits)[0].softened


def test_entry_of_each_taint_is_for_the_whole_patch() -> None:
    strict = ImpactLimits(taints=TaintMatch(keys=("a.example.com/*",)), pods=3, devices=7)
    impact = ImpactSettings(limits=(strict, ImpactLimits(pods=9)))
    lax, hard = evicting(key="b.example.com/y"), evicting(key="a.example.com/x")
    assert ask_patch(patching("default", lax), impact=impact).allowed
    assert over(ask_patch(patching("default", lax, hard), impact=impact)) == ["limit:devices,pods"]
    quiet = make_taint(key="a.example.com/x")
    closing = ask_patch(patching("default", lax, quiet), impact=impact)
    assert over(closing) == ["limit:devices"], "a taint that evicts no pod is not refused for the pods of another"
    assert not closing.allowed


def test_pods_that_tolerate_one_of_two_taints_count_for_the_entry_of_each() -> None:
    keys = ("a.example.com/x", "b.example.com/y")
    claims = [
        claim(f"claim-{key[0]}", on(device, lets_stay(key=key)), users=[f"u-{key[0]}"])
        for key, device in zip(keys, ("gpu-0", "gpu-1"), strict=True)
    ]
    cluster = inventory_of(pool_slice("gpu-0", "gpu-1"), *claims)
    strict = ImpactSettings(limits=(ImpactLimits(taints=TaintMatch(keys=keys[:1]), pods=1), ImpactLimits()))
    alone, other = (evicting(key=key) for key in keys)
    assert ask_patch(patching("default", alone), cluster=cluster, impact=strict).allowed
    assert over(ask_patch(patching("default", alone, other), cluster=cluster, impact=strict)) == ["limit:pods"]


def test_patch_of_effect_none_shows_what_it_would_do() -> None:
    decision = ask_patch(patching(cel(FIRST), make_taint(effect="None")), impact=allowing(pods=0))
    assert decision.allowed
    assert decision.annotations["impact"].endswith(" simulated")
    assert decision.assumed is None
    [(_, text)] = told(decision)
    assert text == "with effect NoExecute selects 4 devices in 4 pools; evicts 4 pods in 1 namespace, all at once"


def test_patch_without_taints_hits_nothing() -> None:
    patch = patching()
    del patch["spec"]["devices"]["taints"]
    decision = ask_patch(patch, impact=allowing(pods=0))
    assert (decision.allowed, told(decision)) == (True, [])
    assert "impact" not in decision.annotations


@pytest.mark.parametrize("mode", [PolicyMode.WARN, PolicyMode.OFF])
def test_mode(mode: PolicyMode) -> None:
    decision = ask_patch(patching(), impact=allowing(pods=3), mode=mode)
    assert decision.allowed
    assert decision.turned_down is (mode is PolicyMode.WARN)
    assert bool(told(decision)) is (mode is PolicyMode.WARN)


# --- what cannot be judged -------------------------------------------------------------------------


@table(
    "options, why",
    {
        "cold inventory": ({"cluster": UNKNOWN}, "claims were not read yet"),
        "cold patches": ({"patches": known(unknown="patches not read yet")}, "patches not read yet"),
    },
)
def test_patch_is_refused_while_its_impact_is_not_known(options: Any, why: str) -> None:
    decision = ask_patch(patching(), **options)
    assert refusals(decision) == [f"its impact is not known: {why}; try again in a while"]
    assert decision.annotations["impact"] == f"unknown: {why}"
    closing = ask_patch(patching("default", make_taint()), **options)
    assert told(closing) == [("warn", f"its impact is not known: {why}")]
    assert closing.assumed is None
    assert told(ask_patch(patching("default", make_taint(effect="None")), **options)) == []
    lenient = ask_patch(patching(), impact=ImpactSettings(unknown_impact=Action.WARN), **options)
    assert told(lenient) == [("warn", f"its impact is not known: {why}")]


def test_class_that_does_not_exist_may_be_any_device() -> None:
    missing = "its impact is not known: device class gone does not exist"
    widest = "nothing in the selector can be judged, so it counts as every device"
    decision = ask_patch(patching({"deviceClassName": "gone"}, make_taint()))
    assert refusals(decision) == [f"{missing}; {widest}; try again in a while"]
    named = ask_patch(patching({"deviceClassName": "gone", "driver": DRIVER}, make_taint()))
    assert told(named) == [("warn", missing)]
    evicts = ask_patch(patching({"deviceClassName": "gone", "driver": DRIVER}))
    assert refusals(evicts) == [f"{missing}; try again in a while"]


def test_expression_that_fails_on_a_device_leaves_it_out() -> None:
    chosen = cel(f'device.attributes["{DRIVER}"].missing == 1')
    decision = ask_patch(patching(chosen), impact=allowing(pods=0))
    assert (decision.allowed, decision.assumed) == (True, None)
    assert told(decision)[0][1].startswith("taints no device now")


TOO_LONG = "its impact is not known: to evaluate its filter takes longer than a review may; try again in a while"


def test_evaluation_that_takes_too_long_is_not_known() -> None:
    decision = ask_patch(patching(cel(FIRST, driver=DRIVER)), patches=known(memo=SlowMemo()))
    assert refusals(decision) == [TOO_LONG]
    stored = other(1, cel(SECOND))
    assert refusals(ask_patch(patching(), patches=known([stored], memo=SlowMemo()))) == [TOO_LONG]


def test_evaluation_that_lasts_too_long_goes_on_where_it_ended() -> None:
    memo, cluster = FilterMemo(), racks(40)
    patch = patching(cel(FIRST, driver=DRIVER))
    seconds = [0.0]

    def clock() -> float:
        seconds[0] += 0.05
        return seconds[0]

    answers: list[Decision] = []
    while not answers or (refusals(answers[-1]) and len(answers) < 9):
        budget = Budget(40.0, clock)
        answers.append(ask_patch(patch, cluster=cluster, patches=known(memo=memo), budget=budget))
    assert refusals(answers[0]) == [TOO_LONG]
    assert 1 < len(answers) < 9
    assert figures(answers[-1])["pods"] == 40


@pytest.mark.parametrize(("budget_seconds", "stopped_at"), [(10.0, 1.5), (1.5, 1.0)])
def test_filter_is_evaluated_for_a_second_or_half_of_what_is_left(budget_seconds: float, stopped_at: float) -> None:
    now = 0.0

    class HalfSeconds(FilterMemo):
        """Asks every half second whether it may go on, and never has an answer."""

        def selected(self, _selector: Any, _classes: Any, _pools: Any, go_on: Any, _wanted: Any = None) -> None:
            nonlocal now
            while go_on() and now < budget_seconds:
                now += 0.5

    budget = Budget(budget_seconds, lambda: now)
    decision = ask_patch(patching(cel(FIRST, driver=DRIVER)), patches=known(memo=HalfSeconds()), budget=budget)
    assert refusals(decision) == [TOO_LONG]
    assert now == stopped_at


def test_time_runs_out() -> None:
    seconds = iter(range(10_000))
    with pytest.raises(OutOfTime):
        ask_patch(patching(), budget=Budget(3.0, lambda: next(seconds)))


# --- other patches ---------------------------------------------------------------------------------


def other(priority: int, chosen: Any = "default", *taints: Any, name: str = "other") -> Any:
    return patching(chosen, *(taints or [evicting()]), name=name, created=CREATED_TEXT, priority=priority)


@table(
    "stored, pods",
    {
        "an older one": (other(0), 0),
        "a higher one": (other(1), 0),
        "a lower one": (other(-1), 4),
        "on one node": (other(1, {"pool": "node-0"}), 3),
        "on devices without pods": (other(1, cel(SECOND)), 4),
        "on another driver": (other(1, {"driver": "b"}), 4),
        "with another key": (other(1, "default", evicting(key="other.example.com/k")), 4),
        "with another effect": (other(1, "default", make_taint()), 4),
        "of the same name": (other(1, name="firmware"), 4),
    },
)
def test_only_devices_count_on_which_the_patch_wins(stored: Any, pods: int) -> None:
    decision = ask_patch(patching(), patches=known([stored]))
    assert figures(decision)["pods"] == pods if pods else "impact" not in decision.annotations


def test_patch_that_loses_everywhere_hits_nothing() -> None:
    decision = ask_patch(patching(), patches=known([other(1)]), impact=allowing(pods=0))
    assert told(decision) == [
        ("warn", "taints no device now: the filter selects none, or other patches take precedence on all of them")
    ]
    assert decision.assumed is None


# --- updates ---------------------------------------------------------------------------------------

AT_NODE_0 = {"driver": DRIVER, "pool": "node-0"}


@table(
    "new, old",
    {
        "the same": (patching(), patching()),
        "a narrower filter": (patching(AT_NODE_0), patching()),
        "a lower effect": (patching("default", make_taint()), patching()),
        "a taint less": (patching("default", evicting()), patching("default", evicting(), make_taint())),
        "a lower priority": (patching(priority=1), patching(priority=2)),
        "a None": (patching("default", evicting(), make_taint(effect="None", key="o.example.com/k")), patching()),
        "a lower rate": (
            patching("default", evicting(evictionsPerSecond=1)),
            patching("default", evicting(evictionsPerSecond=2)),
        ),
        "an attribute": (patching(attributes={f"{DRIVER}/a": {"int": 1}}, priority=2), patching(priority=2)),
    },
)
def test_what_a_patch_did_before_is_not_judged_again(new: Any, old: Any) -> None:
    for options in ({}, {"cluster": UNKNOWN}, {"patches": known(unknown="not read")}):
        decision = ask_patch(new, old, impact=allowing(pods=0), **options)
        assert (told(decision), decision.assumed) == ([], None)


@pytest.mark.parametrize("written", [0, 1, -1], ids=["no rule", "one rule", "all but one"])
def test_what_a_patch_has_no_rules_for_counts_when_it_asks_for_less(written: int) -> None:
    """It was counted when no pod was there, and needed more rules than it may have."""
    old = patching(cel(FIRST), evicting(), evicting(key="o.example.com/k"), uid="uid-of-patch")
    new = patching(cel(FIRST), evicting())
    every, cluster = standing(racks(), known([old])), racks()
    for rule in list(every.rules.values())[:written]:
        cluster.apply(None, rule)
    assert over(ask_patch(new, old, cluster=cluster, written=False, impact=allowing(pods=3))) == ["limit:pods"]
    assert ask_patch(new, old, cluster=every, written=False, impact=allowing(pods=0)).allowed
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"team": "a"}}}
    assert ask_patch(labelled, old, cluster=cluster, written=False, impact=allowing(pods=0)).allowed


@table(
    "new, old, pods",
    {
        "a wider filter of names counts as a whole": (patching(), patching(AT_NODE_0), 4),
        "a higher effect": (patching(), patching("default", make_taint()), 4),
        "another value": (patching("default", evicting(value="v")), patching(), 4),
        "another key": (patching("default", evicting(key="o.example.com/k")), patching(), 4),
        "one taint more": (patching("default", evicting(), evicting(key="o.example.com/k")), patching(), 4),
        "an earlier time": (patching("default", evicting(time_added="2026-06-01T11:59:30Z")), patching(), 4),
        "a rate": (patching("default", evicting(evictionsPerSecond=1000)), patching(), 4),
        "CEL: devices that are new": (patching(cel("true")), patching(cel(f"!({FIRST})")), 4),
        "CEL: only devices that are new": (patching(cel("true")), patching(AT_NODE_0), 3),
        "CEL: wider": (patching(cel(FIRST, driver=DRIVER)), patching(cel(FIRST, pool="node-0")), 3),
        "it was not known": (patching(), patching({"deviceClassName": "gone"}), 4),
    },
)
def test_of_an_update_only_what_it_adds_counts(new: Any, old: Any, pods: int) -> None:
    decision = ask_patch(new, old, impact=allowing(pods=pods))
    assert figures(decision)["pods"] == pods
    assert decision.allowed
    assert over(ask_patch(new, old, impact=allowing(pods=pods - 1))) == ["limit:pods"]


def test_higher_priority_counts_where_it_makes_the_patch_win() -> None:
    stored = [other(1, {"pool": "node-1"}), other(5, {"pool": "node-2"}, name="highest")]
    old = patching(created=CREATED_TEXT)
    decision = ask_patch({**old, "spec": patching(priority=2)["spec"]}, old, patches=known([*stored, old]))
    assert figures(decision)["pods"] == 1


def test_update_that_adds_no_device_passes() -> None:
    decision = ask_patch(patching(cel(FIRST)), patching(), impact=allowing(pods=0))
    assert (decision.allowed, told(decision)) == (True, [])


def test_rules_of_a_value_that_another_one_replaces_are_no_part_of_the_patch() -> None:
    """The controller keeps them while the patch is over its ceiling."""
    first, both = (
        patching(cel(FIRST), *[evicting(value=value) for value in values], uid="uid-of-patch")
        for values in (["v1"], ["v1", "v2"])
    )
    narrowed = {**both, "spec": patching(cel(FIRST, driver=DRIVER), *both["spec"]["devices"]["taints"])["spec"]}
    cluster = standing(racks(), known([first]))
    decision = ask_patch(narrowed, both, cluster=cluster, written=False, impact=allowing(pods=3))
    assert over(decision) == ["limit:pods"]


# --- what is said beside the limits: gangs, companions, hardware, shares ------------------------------


def ask_with_pods(patch: Any, objects: list[Any], policy: Policy) -> Any:
    return validate(make_admission_request(patch), context_of(objects, policy))


def test_gangs_are_named_in_the_warning_and_in_the_refusal() -> None:
    decision = ask_with_pods(patching(AT_NODE_0), job_set(), Policy())
    assert ("warn", f"evicts {TRAIN}") in told(decision)
    assert " gangs=1 gangPods=4 gangSize=32 " in decision.annotations["impact"]
    refused = ask_with_pods(patching(AT_NODE_0), job_set(), Policy(impact=allowing(pods=3)))
    assert f"4 pods in 1 namespace, {TRAIN}: the limit is 3 pods" in refusals(refused)[0]


def test_companions_count_where_our_worker_evicts() -> None:
    absent = Policy(in_tree_evictor=InTreeEvictor.ABSENT, impact=allowing(pods=31))
    assert over(ask_with_pods(patching(AT_NODE_0), ring(), absent)) == ["limit:pods"]
    assert RING in refusals(ask_with_pods(patching(AT_NODE_0), ring(), absent))[0]
    assert ask_with_pods(patching(AT_NODE_0), ring(), Policy(impact=allowing(pods=31))).allowed
    several = patching(AT_NODE_0, make_taint(key="a.example.com/k"), evicting())
    assert over(ask_with_pods(several, ring(), absent)) == ["limit:pods"]


def test_other_parts_of_the_hardware_are_named() -> None:
    one = patching({**AT_NODE_0, "device": "gpu-0"}, evicting())
    bare = hardware()
    for rule in list(bare.rules.values()):
        bare.apply(rule, None)
    decision = ask_patch(one, cluster=bare)
    assert "siblings=2 siblingPods=2" in decision.annotations["impact"]
    none = ask_patch(patching({**AT_NODE_0, "device": "gpu-0"}, make_taint(effect="None")), cluster=bare)
    assert "siblings=2" in none.annotations["impact"]
    several = ask_patch(patching({**AT_NODE_0, "device": "gpu-0"}, evicting(), make_taint()), cluster=bare)
    assert "siblings=" not in several.annotations["impact"], "for one rule only"


def test_share_of_devices_is_of_each_driver() -> None:
    taint = make_taint()
    half = ImpactSettings(limits=(ImpactLimits(devices=Share(50)),))
    less = ImpactSettings(limits=(ImpactLimits(devices=Share(49)),))
    assert ask_patch(patching(cel(FIRST), taint), impact=half).allowed
    decision = ask_patch(patching(cel(FIRST), taint), impact=less)
    assert over(decision) == ["limit:devices"]
    assert decision.annotations["impact"].endswith(f"over=limit:devices driver={DRIVER}")


def test_figures_are_those_of_the_taint_that_does_most() -> None:
    decision = ask_patch(patching("default", make_taint(key="a.example.com/k"), evicting(key="b.example.com/k")))
    assert told(decision) == [("warn", "selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, all at once")]
    closing = ask_patch(patching("default", make_taint(effect="None", key="a.example.com/k"), make_taint()))
    assert told(closing) == [("warn", "keeps 8 devices in 4 pools from being allocated; no harm to 4 pods on them")]
