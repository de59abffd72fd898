"""The most that a rule may hit before `evict` stops; it goes on once somebody has confirmed more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import KEY, NOW
from tests.unit.eviction.objects import claim, crowd, pod, rule, tolerates
from tests.unit.eviction.world import FREE, World, delegated, evicting
from tests.unit.policy.documents import policy_of
from webhook.admission.confirmation import Numbers
from webhook.api.claims import Consumer
from webhook.api.rules import (
    CONFIRM_IMPACT,
    EVICT,
    EVICTED_PODS,
    SOFTENED_FROM,
    Condition,
    DeviceSelector,
    DeviceTaintRule,
)
from webhook.eviction import affected, controller, planner
from webhook.eviction.ceilings import NOT_CONFIRMED, Confirmed, ceiling_of
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling, JudgedWhole
from webhook.policy.model import (
    ImpactLimits,
    ImpactSettings,
    Policy,
    PolicyMode,
    RequesterMatch,
    Share,
    Softening,
    TaintMatch,
)


def test_rule_that_hits_more_than_was_confirmed_stops_before_anybody_goes() -> None:
    world = evicting(*crowd(3), rule(), ceiling_of=lambda _: Ceiling(pods=2))
    assert world.after(60) == []
    stopped = "hits 3 pods, at most 2 were confirmed; 0 pods evicted"
    assert world.condition("rule") == ("False", "Stopped", stopped)
    assert world.told("EvictionStopped") == ["rule"]


@pytest.mark.parametrize("mode", [Mode.DELEGATED, Mode.REPLACEMENT])
@pytest.mark.parametrize("confirmed", [2, 3])
def test_pods_with_extended_resources_count_for_the_ceiling_as_they_were_confirmed(mode: Mode, confirmed: int) -> None:
    world = World(mode, FREE, ceiling_of=lambda _: Ceiling(pods=confirmed))
    names = [f"pod-{number}" for number in range(3)]
    for name in names:
        world.add(claim(name, extended=True), pod(name, claims=(), extended_claim=f"{name}-claim"))
    world.add(rule(effect="NoSchedule", evict=True) if mode is Mode.DELEGATED else rule())
    assert sorted(world.after(60)) == (names if confirmed == 3 else [])


def test_rule_with_a_pod_in_a_protected_namespace_stops_and_names_it() -> None:
    ceiling = Ceiling(pods=9, confirmed=False, softened=True, protected={"ml"}.intersection)
    world = delegated(*crowd(2), rule(effect="NoSchedule", evict=True), ceiling_of=lambda _: ceiling)
    assert world.after(60) == []
    status, reason, message = world.condition("rule")
    assert (status, reason) == ("False", "Stopped")
    assert message.startswith("hits pods in protected namespace ml, and nothing was confirmed; its devices stay closed")
    assert message.endswith("; 0 pods evicted")


def test_pod_under_another_rule_goes_although_one_is_stopped() -> None:
    world = evicting(ceiling_of=lambda rule: Ceiling(pods=0) if rule.meta.name == "wide" else None)
    world.add(*crowd(2), rule("wide"), rule("narrow", selector=DeviceSelector(device="pod-000")))
    assert world.after(1) == ["pod-000"]


def test_new_text_counts_the_pods_that_were_evicted_before() -> None:
    ceilings = {"": 3, "again": 4}
    world = World(
        Mode.REPLACEMENT,
        FREE,
        ceiling_of=lambda rule: Ceiling(pods=ceilings[rule.meta.annotations.get(CONFIRM_IMPACT, "")]),
    )
    world.add(*crowd(3), rule())
    world.settle()
    world.add(claim("more"), pod("more"))
    assert len(world.after(30)) == 3
    assert world.condition("rule")[1] == "Stopped"
    known = world.inventory.rules["rule"]
    labelled = structs.replace(known, meta=structs.replace(known.meta, annotations={"devicetaint.io/owner": "me"}))
    world.change(known, labelled)
    assert len(world.after(30)) == 3
    annotations = {CONFIRM_IMPACT: "again"}
    world.change(labelled, structs.replace(known, meta=structs.replace(known.meta, annotations=annotations)))
    assert world.after(30)[3:] == ["more"]
    assert world.condition("rule")[2] == "4 pods evicted"


def test_pods_evicted_before_a_restart_count() -> None:
    before = Condition(EVICTED_PODS, "True", "PodsEvicted", "7", 1, NOW)
    world = evicting(*crowd(2), rule(conditions=(before,)), ceiling_of=lambda _: Ceiling(pods=8))
    assert world.after(30) == []
    assert world.condition("rule")[2] == "hits 9 pods, at most 8 were confirmed; 7 pods evicted"


def test_limit_that_the_policy_raises_or_lowers_holds_at_once() -> None:
    most = [1]
    world = evicting(ceiling_of=lambda _: Ceiling(pods=most[0], confirmed=False))
    world.add(claim("later", tolerates(60)), pod("later"), claim("last", tolerates(90)), pod("last"), rule())
    world.advance(30)
    assert world.condition("rule")[1] == "Stopped"
    most[0] = 2
    world.worker.replan_all()
    assert world.after(35) == ["later"]
    most[0] = 0
    world.worker.replan_all()
    assert world.after(60) == ["later"]
    told = "hits 2 pods, the limit is 0 and nothing was confirmed; 1 pod evicted"
    assert world.condition("rule") == ("False", "Stopped", told)


def test_rule_that_is_narrowed_is_not_stopped_for_what_it_hit_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of its pods was looked at first, and whoever is in line by then."""
    world = evicting(*crowd(6), ceiling_of=lambda rule: Ceiling(pods=1) if rule.generation > 1 else None)
    before = rule()
    world.add(before)
    world.catch_up()
    monkeypatch.setattr(controller, "AT_ONCE_MOST", 0)
    monkeypatch.setattr(affected, "_STEP", 1)
    world.change(before, rule(selector=DeviceSelector(device="pod-003"), generation=2))
    for _ in world.worker.planner.steps():
        taken = world.worker.take()
        if taken is not None:
            asyncio.run(world.worker.evict(taken))
    assert world.after(1) == ["pod-003"]


def test_namespaces_are_limited_as_well() -> None:
    world = evicting(ceiling_of=lambda _: Ceiling(namespaces=1))
    world.add(claim("a"), pod("a"), claim("b", namespace="web"), pod("b", namespace="web"), rule())
    assert world.after(1) == []


def confirmed(world: World, text: str, **fields: object) -> None:
    """The rule has this text now; `fields` of its taint change as well."""
    known = world.inventory.rules["rule"]
    annotations = {CONFIRM_IMPACT: text} if text else {}
    meta = structs.replace(known.meta, annotations=annotations)
    world.edit(known, meta=meta, taint=structs.replace(known.taint, **fields))
    world.advance(30)


def confirming(texts: dict[str, int], limit: int = 0) -> World:
    """A world in which texts allow the given numbers of pods in all, and other texts, or none, the limit."""

    def ceiling_of(rule: DeviceTaintRule) -> Ceiling:
        text = rule.meta.annotations.get(CONFIRM_IMPACT, "")
        return Ceiling(texts[text]) if text in texts else Ceiling(limit, confirmed=False)

    return World(Mode.REPLACEMENT, FREE, ceiling_of=ceiling_of)


def more(world: World, number: int) -> None:
    """Further pods come, one after the other."""
    for _ in range(number):
        name = f"later-{len(world.evicted)}-{len(world.inventory.pods)}"
        world.add(claim(name), pod(name))
        world.advance(30)


@pytest.mark.parametrize("part", [True, False], ids=["a part is planned again", "all are"])
@pytest.mark.parametrize("names", ["abcde", "aaaaa"], ids=["other names", "the same name"])
def test_pods_that_come_one_by_one_count_also_once_they_have_gone(
    monkeypatch: pytest.MonkeyPatch, names: str, *, part: bool
) -> None:
    if part:
        monkeypatch.setattr(planner, "WHOLE_MOST", -1)
    world = confirming({}, limit=3)
    world.add(rule())
    for number, name in enumerate(names):
        uid = f"uid-{number}"
        world.add(claim(name, consumers=(Consumer("", "pods", name, uid),), owner=uid), pod(name, uid=uid))
        world.advance(30)
        if f"ml/{name}" in world.inventory.pods:
            break
        world.remove(world.inventory.claims[f"ml/{name}-claim"])
    assert len(world.evicted) == 3
    assert world.condition("rule")[2] == "hits 4 pods, the limit is 3 and nothing was confirmed; 3 pods evicted"


Step = tuple[str, dict[str, Any], int, int]
"""A text, other fields of the taint, how many pods come, and how many have been evicted after that."""
ONE: Step = ("one", {}, 3, 3)
LATER = {"time_added": NOW + timedelta(seconds=1)}
TEXTS: dict[str, tuple[list[Step], str]] = {
    "texts that take turns": (
        [ONE, ("two", {}, 2, 5), ("one", {}, 1, 5), ("two", {}, 1, 5), ("one", {}, 1, 5)],
        "Stopped",
    ),
    "text that is taken away": ([ONE, ("", {}, 1, 3), ("one", {}, 0, 3)], "Stopped"),
    "text of something else": ([ONE, ("made up", {}, 1, 3), ("one", {}, 0, 3)], "Stopped"),
    "other taint, and a text that says how many went": ([ONE, ("two", {"key": "example.com/more"}, 3, 5)], "Stopped"),
    "timeAdded that admission lets pass without a look (R4)": ([ONE, ("", LATER, 1, 3)], "Stopped"),
    "text of a rule that is done": ([ONE, ("", {}, 0, 3)], "Completed"),
}


@pytest.mark.parametrize(("steps", "reason"), TEXTS.values(), ids=TEXTS)
def test_pods_beyond_the_largest_text_stay_whatever_changes(steps: list[Step], reason: str) -> None:
    world = confirming({"one": 3, "two": 5}, limit=2)
    world.add(rule(annotations={CONFIRM_IMPACT: "one"}))
    for text, fields, pods, evicted in steps:
        confirmed(world, text, **fields)
        more(world, pods)
        assert len(world.evicted) == evicted
    assert world.condition("rule")[1] == reason


def test_text_that_does_not_count_is_named_where_the_rule_stops() -> None:
    problem = "it was printed for another object"
    world = evicting(*crowd(2), rule(), ceiling_of=lambda _: Ceiling(pods=1, confirmed=False, text_problem=problem))
    world.advance(30)
    told = f"hits 2 pods, the limit is 1 and its confirmation does not count: {problem}; 0 pods evicted"
    assert world.condition("rule") == ("False", "Stopped", told)


def test_rule_that_hits_too_much_says_so_at_once_however_long_it_was_below() -> None:
    world = evicting(claim("later", tolerates(3600)), pod("later"), rule(), ceiling_of=lambda _: Ceiling(pods=1))
    world.advance(95)
    world.add(claim("more", tolerates(3600)), pod("more"))
    world.settle()
    assert world.condition("rule")[:2] == ("False", "Stopped")


# --- the most that a rule may hit -----------------------------------------------------------------


TOTALS = Numbers(devices=1000, claims=800, pods=400, namespaces=20)
OPERATOR = RequesterMatch(service_accounts=("health/operator",))


def totals() -> tuple[int, int]:
    return TOTALS.pods, TOTALS.namespaces


def no_totals() -> tuple[int, int]:
    raise AssertionError("nobody gave a share")


def policy(*limits: ImpactLimits, tolerance: float = 10.0, mode: PolicyMode = PolicyMode.ENFORCE) -> Policy:
    return Policy(mode=mode, impact=ImpactSettings(limits=limits, tolerance_percent=tolerance))


@pytest.mark.parametrize(
    ("limits", "pods"),
    [
        pytest.param((ImpactLimits(requesters=OPERATOR, pods=200), ImpactLimits(pods=50)), 200, id="whoever may most"),
        pytest.param((ImpactLimits(requesters=OPERATOR, pods=20), ImpactLimits(pods=50)), 50, id="or everybody"),
        pytest.param(
            (ImpactLimits(OPERATOR, TaintMatch(keys=("other/*",)), pods=200), ImpactLimits(pods=50)),
            50,
            id="limits for other taints do not count",
        ),
        pytest.param(
            (ImpactLimits(taints=TaintMatch(keys=(KEY,)), pods=5), ImpactLimits(pods=50)),
            5,
            id="the first that holds for everybody is the last that may hold",
        ),
        pytest.param(
            (ImpactLimits(taints=TaintMatch(effects=("NoSchedule",)), pods=5), ImpactLimits(pods=50)),
            50,
            id="the effect counts",
        ),
        pytest.param((ImpactLimits(pods=Share(5)),), 20, id="a share"),
        pytest.param((ImpactLimits(requesters=OPERATOR), ImpactLimits(pods=50)), None, id="one without limits"),
        pytest.param((), None, id="no limits at all"),
    ],
)
def test_without_confirmation_the_widest_limit_that_may_hold_does(
    limits: tuple[ImpactLimits, ...], pods: int | None
) -> None:
    found = ceiling_of(rule(), policy(*limits), totals)
    assert found == (None if pods is None else Ceiling(pods, None, confirmed=False))


def test_limits_that_a_document_does_not_name_stop_the_worker_too() -> None:
    limited = policy_of(impact={"limits": [{"devices": "5%"}]})
    assert ceiling_of(rule(), limited, no_totals) == Ceiling(50, 10, confirmed=False)
    lifted = policy_of(impact={"limits": [{"pods": None, "devices": "5%"}]})
    assert ceiling_of(rule(), lifted, no_totals) == Ceiling(None, 10, confirmed=False)


def test_rule_that_asks_for_eviction_is_limited_as_one_that_evicts() -> None:
    limits = (ImpactLimits(taints=TaintMatch(effects=("NoExecute",)), pods=5), ImpactLimits(pods=50))
    found = ceiling_of(rule(effect="NoSchedule", evict=True), policy(*limits), no_totals)
    assert found == Ceiling(5, None, confirmed=False)


SOFT = ImpactLimits(OPERATOR, pods=20, namespaces=5, soften=Softening.OVER)
ADMINS = ImpactLimits(RequesterMatch(groups=("admins",)))
OTHER_SOFT = ImpactLimits(RequesterMatch(users=("u",)), pods=Share(10), soften=Softening.ALWAYS)


def softened(**fields: Any) -> DeviceTaintRule:
    return rule(effect="NoSchedule", annotations={EVICT: "true", SOFTENED_FROM: "NoExecute"}, **fields)


@pytest.mark.parametrize(
    ("limits", "pods", "namespaces"),
    [
        pytest.param((ADMINS, SOFT, ImpactLimits(pods=50)), 20, 5, id="its own, though others may more"),
        pytest.param((SOFT, ImpactLimits(pods=7, namespaces=1)), 20, 5, id="and those who are refused may less"),
        pytest.param((SOFT, OTHER_SOFT, ADMINS), 20, 5, id="the lowest of those that soften"),
        pytest.param((ImpactLimits(OPERATOR, soften=Softening.OVER), OTHER_SOFT), 40, None, id="a share"),
        pytest.param((ADMINS, ImpactLimits(pods=50)), 50, None, id="of all, where the policy softens no longer"),
        pytest.param((ADMINS,), None, None, id="none at all"),
    ],
)
def test_softened_rule_has_the_lowest_limit_that_may_have_softened_it(
    limits: tuple[ImpactLimits, ...], pods: int | None, namespaces: int | None
) -> None:
    found = ceiling_of(softened(), policy(*limits), totals, protected=sorted)
    assert found == Ceiling(pods, namespaces, confirmed=False, softened=True, protected=sorted)
    found = ceiling_of(softened(), policy(*limits), totals, Confirmed(problem="made up"))
    assert found == Ceiling(pods, namespaces, confirmed=False, softened=True, text_problem="made up")


def test_softened_rule_that_is_confirmed_has_what_was_confirmed() -> None:
    assert ceiling_of(softened(), policy(SOFT), no_totals, Confirmed(110, 2), sorted) == Ceiling(110, 2)


LIMITED = Ceiling(7, None, confirmed=False)
FORGED = Confirmed(problem="it was made up")


@pytest.mark.parametrize("mode", PolicyMode)
@pytest.mark.parametrize(
    ("given", "confirmed", "ceiling", "always"),
    [
        pytest.param(rule(), Confirmed(110, 3), Ceiling(110, 3), True, id="what was confirmed"),
        pytest.param(rule(), FORGED, LIMITED._replace(text_problem="it was made up"), False, id="a text is none (R5)"),
        pytest.param(rule(), NOT_CONFIRMED, LIMITED, False, id="where nothing was refused nothing is stopped"),
        # Else the switch that is for emergencies would evict what waits for a confirmation.
        pytest.param(softened(), NOT_CONFIRMED, LIMITED._replace(softened=True), True, id="a softened rule waits"),
    ],
)
def test_ceiling_in_each_mode_of_the_policy(
    given: DeviceTaintRule, confirmed: Confirmed, ceiling: Ceiling, mode: PolicyMode, *, always: bool
) -> None:
    found = ceiling_of(given, policy(ImpactLimits(pods=7, soften=Softening.OVER), mode=mode), no_totals, confirmed)
    assert found == (ceiling if always or mode is PolicyMode.ENFORCE else None)


TO_CONFIRM = (
    "its devices stay closed, and its pods stay until devicetaint.io/confirm-impact confirms them: set to any text,"
    " such as renew, it is refused, and the refusal contains the right one"
)


def test_what_is_above_for_a_softened_rule_names_the_way_to_confirm() -> None:
    ceiling = Ceiling(3, None, confirmed=False, softened=True, protected=lambda names: [n for n in names if "sys" in n])
    assert ceiling.exceeded_by(3, 2, ["a", "b"]) == ""
    assert ceiling.exceeded_by(4, 2) == f"hits 4 pods, the limit is 3 and nothing was confirmed; {TO_CONFIRM}"
    found = ceiling.exceeded_by(1, 3, ["x-sys", "b", "a-sys"])
    assert found == f"hits pods in protected namespace a-sys, and nothing was confirmed; {TO_CONFIRM}"
    forged = ceiling._replace(text_problem="made up").exceeded_by(1, 1, ["sys"])
    assert forged.startswith("hits pods in protected namespace sys, and its confirmation does not count: made up; ")


def test_what_is_above_is_said_in_words() -> None:
    assert Ceiling(3, None).exceeded_by(3, 9) == ""
    assert Ceiling(3, None).exceeded_by(4, 9) == "hits 4 pods, at most 3 were confirmed"
    told = "hits pods in 9 namespaces, the limit is 8 and nothing was confirmed"
    assert Ceiling(None, 8, confirmed=False).exceeded_by(4, 9) == told


WHOLE = JudgedWhole("ResourceSlicePatch firmware", "all of its rules")


def test_ceiling_of_several_rules_names_what_was_judged() -> None:
    ceiling = Ceiling(3, None, whole=WHOLE)
    assert ceiling.exceeded_by(3, 9) == ""
    expected = "ResourceSlicePatch firmware, with all of its rules, hits 4 pods, at most 3 were confirmed"
    assert ceiling.exceeded_by(4, 9) == expected
    soft = ceiling._replace(confirmed=False, softened=True, protected=frozenset({"sys"}).intersection)
    where = f"its pods stay until {CONFIRM_IMPACT} on ResourceSlicePatch firmware confirms them: set to any text"
    assert where in soft.exceeded_by(4, 9)
    protected = "ResourceSlicePatch firmware, with all of its rules, hits pods in protected namespace sys, and nothing"
    assert soft.exceeded_by(1, 1, ["sys"]).startswith(protected)
