"""Many small rules are one large one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW, make_context
from tests.tables import table
from tests.unit.admission.guarding import NOWHERE, ask, fleet, node, refusals, tainting
from tests.unit.admission.recently import NODES, hit, one_of, reasons, settings, stored, tainted, value
from tests.unit.inventory.values import claim, inventory_of, lets_stay, on, pool_slice, taint
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.recent_impact import (
    begins_to_act,
    closed_together_with_recent,
    hit_with_recent,
    totals,
    victims_of,
)
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.inventory.impact import Impact
from webhook.inventory.targets import DeviceNames

if TYPE_CHECKING:
    from webhook.inventory.state import InventoryObject


WINDOW = ["window:pods"]


def test_refusal_tells_what_all_of_them_hit() -> None:
    cluster = inventory_of(*fleet(NODES), stored(1), stored(2))
    (text,) = refusals(ask(tainting(node(0)), cluster=cluster, impact=settings(pods=2, claims=2)))
    assert text.startswith(
        "hits 2 devices, 1 pod in 1 namespace: with all other taints of the last 10 min it hits 3 claims and 3 pods,"
        " and the limit is 2 claims and 2 pods; narrow the selector, or to go ahead, set annotation"
    )


@table(
    "others, expected",
    {
        "two": ([stored(1)], []),
        "three": ([stored(1), stored(2)], WINDOW),
        "just inside": ([stored(1), stored(2, seconds_ago=599)], WINDOW),
        "as old as clocks may differ": ([stored(1), stored(2, seconds_ago=660)], WINDOW),
        "outside": ([stored(1), stored(2, seconds_ago=661)], []),
        "without a time": (
            [stored(1), structs.replace(stored(2), taint=structs.replace(stored(2).taint, time_added=None))],
            WINDOW,
        ),
        "in the future": ([stored(1), stored(2, seconds_ago=-3600)], WINDOW),
        "one that evicts nobody": ([stored(1), stored(2, effect="NoSchedule")], []),
        "one that asks us to evict": ([stored(1), stored(2, effect="NoSchedule", evict=True)], WINDOW),
        "one and the same pod": ([stored(1), structs.replace(stored(1), meta=stored(2).meta)], []),
        "the very pod": ([stored(0), structs.replace(stored(0), meta=stored(2).meta)], []),
    },
)
def test_stored_rules_of_the_window_count(others: list[InventoryObject], expected: list[str]) -> None:
    assert reasons(*others) == expected
    assert reasons(assumed=others) == expected


def test_window_can_be_switched_off() -> None:
    assert reasons(stored(1), stored(2), impact=settings(window_seconds=0)) == []
    assert reasons(stored(1), stored(2), stored(3), impact=settings(window_seconds=0)) == []


def test_short_window_holds_for_times_that_lie_back_a_little() -> None:
    """A minute is not refused as set back, so it must not be a way out of the window."""
    others = [stored(number, seconds_ago=59) for number in (1, 2)]
    assert reasons(*others, impact=settings(window_seconds=5)) == WINDOW


def test_rule_that_is_stored_and_assumed_counts_once() -> None:
    assert reasons(stored(1), assumed=[stored(1)]) == []
    assert reasons(stored(1), assumed=[stored(1), stored(2)]) == WINDOW


def test_newer_form_of_an_assumed_rule_is_not_hidden_by_the_assumed_one() -> None:
    newer = structs.replace(stored(2), meta=stored(1).meta)
    assert reasons(newer, assumed=[stored(1)]) == WINDOW


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"pods": 3}, []),
        ({"pods": 2}, ["window:pods"]),
        ({"claims": 2}, ["window:claims"]),
        ({"namespaces": 2}, ["window:namespaces"]),
        ({"devices": 6}, []),
        ({"devices": 5}, ["window:devices"]),
        ({"pods": 1, "claims": 3, "namespaces": 1}, ["window:pods,namespaces"]),
    ],
    ids=str,
)
def test_every_limit_holds_for_all_together(numbers: Any, expected: list[str]) -> None:
    assert reasons(stored(1), stored(2), impact=settings(**numbers)) == expected


def test_rule_that_evicts_nobody_is_not_refused_for_its_neighbours() -> None:
    others = [stored(number) for number in range(1, 5)]
    assert reasons(*others, rule=tainting(NOWHERE)) == []
    assert reasons(*others, rule=tainting(node(0), "NoSchedule")) == []
    assert reasons(*others, rule=tainting(node(0), "None")) == []


def test_rule_that_evicts_no_pod_passes_where_none_may_be_evicted() -> None:
    limits = settings(pods=0, claims=0, namespaces=0)
    assert reasons(stored(1), rule=tainting(node(0), "NoSchedule"), impact=limits) == []
    assert reasons(stored(1), rule=tainting(NOWHERE), impact=limits) == []


def test_own_limit_is_told_rather_than_that_of_the_window() -> None:
    assert reasons(stored(1), stored(2), rule=tainting()) == ["limit:pods"]


def test_rule_that_moves_on_counts_where_it_was() -> None:
    """Else one rule could empty a cluster, node by node."""
    at = NOW - timedelta(seconds=30)
    old = tainting({"driver": DRIVER, "pool": "node-1"}, name="mover", added=at)
    new = tainting(node(0), name="mover")
    assert reasons(value(old), rule=new, old=old, impact=settings(pods=1)) == WINDOW
    assert reasons(value(old), rule=new, old=old) == []
    assert reasons(assumed=[value(old)], rule=new, old=old, impact=settings(pods=1)) == WINDOW


def test_rule_that_changes_its_value_counts_its_pods_once() -> None:
    old = tainting(node(0), name="same", added=NOW)
    new = tainting(node(0), name="same", value="fan")
    assert reasons(value(old), rule=new, old=old, impact=settings(pods=1)) == []


def test_pods_that_a_rule_hit_already_excuse_no_other_rule() -> None:
    """F8: neither a rule that is gone nor one that is stored makes room for others on its pods."""
    gone = [hit("u-0", "u-1", "u-2", namespace="ns-0")]
    assert reasons(victims=gone) == WINDOW
    assert reasons(stored(0), stored(1), stored(2)) == WINDOW
    assert reasons(victims=gone, impact=settings(claims=2)) == ["window:claims"]


def test_who_is_gone_still_counts() -> None:
    assert reasons(victims=[hit("a")]) == []
    assert reasons(victims=[hit("a"), hit("b")]) == WINDOW
    assert reasons(victims=[hit("a"), hit("a")]) == []
    assert reasons(victims=[hit("a", "b")]) == WINDOW
    assert reasons(stored(1), victims=[hit("u-1")]) == []
    assert reasons(victims=[hit("a", "b")], impact=settings(namespaces=1)) == ["window:namespaces"]


@table(
    "others, expected",
    {
        "taints of drivers": ([tainted(1), tainted(2)], WINDOW),
        "one of each": ([tainted(1), stored(2)], WINDOW),
        "one as old as clocks may differ": ([tainted(1), tainted(2, seconds_ago=660)], WINDOW),
        "an old one": ([tainted(1), tainted(2, seconds_ago=661)], []),
        "one without a time": ([tainted(1), tainted(2, seconds_ago=None)], WINDOW),
        "one that evicts nobody": ([tainted(1), tainted(2, effect="NoSchedule")], []),
        "one on a device that nobody uses": ([tainted(1), tainted(2, device="gpu-1")], []),
        "one on the very device": ([tainted(1), tainted(0)], []),
    },
)
def test_taints_in_slices_count(others: list[InventoryObject], expected: list[str]) -> None:
    assert reasons(*others) == expected


def test_update_from_none_and_a_wider_selector_count_as_new() -> None:
    others = [stored(1, effect="NoSchedule")]
    for old in (one_of("None"), one_of("NoSchedule", 0, unused=True)):
        assert reasons(*others, rule=one_of("NoSchedule"), old=old, impact=settings(devices=3)) == ["window:devices"]
    assert reasons(*others, rule=one_of("NoSchedule"), old=one_of("NoSchedule"), impact=settings(devices=3)) == []


@pytest.mark.parametrize(
    ("new", "old", "begins"),
    [
        (one_of("NoSchedule"), None, True),
        (one_of("NoExecute"), None, True),
        (one_of("None"), None, False),
        (one_of("None", evict=True), None, True),
        (one_of("NoSchedule"), one_of("None"), True),
        (one_of("NoExecute"), one_of("NoSchedule"), True),
        (one_of("NoSchedule", evict=True), one_of("NoSchedule"), True),
        (one_of("NoSchedule"), one_of("NoExecute"), False),
        (one_of("None"), one_of("NoExecute"), False),
        (one_of("NoSchedule", annotations={"a": "b"}), one_of("NoSchedule"), False),
        (one_of("NoExecute", annotations={"a": "b"}), one_of("NoExecute"), False),
        (one_of("NoSchedule"), one_of("NoSchedule", unused=True), True),
        (one_of("NoSchedule", unused=True), one_of("NoSchedule"), False),
        (one_of("NoExecute"), one_of("NoExecute", 1), True),
        (one_of("None"), one_of("None", 1), False),
    ],
)
def test_rule_begins_where_it_does_more_than_before(new: Any, old: Any, *, begins: bool) -> None:
    assert begins_to_act(value(new), None if old is None else value(old)) is begins


def test_rule_that_begins_hits_all_whom_it_does_not_spare_for_ever() -> None:
    cluster = inventory_of(
        *fleet(2),
        claim("later", on("gpu-1", lets_stay(60), pool="node-0"), users=["later"]),
        claim("never", on("gpu-1", lets_stay(), pool="node-0"), users=["never"]),
    )
    selector = DeviceSelector(DRIVER, "node-0")
    for added in (NOW, None):
        rule = DeviceTaintRule(ObjectMeta("a"), selector, taint("NoExecute", added=added))
        assert victims_of(rule, cluster, in_tree=True).pods == {"u-0", "later"}
    rule = DeviceTaintRule(ObjectMeta("a"), selector, taint("NoSchedule"))
    assert victims_of(rule, cluster, in_tree=True) == Impact()


def test_totals_are_all_that_could_be_hit() -> None:
    cluster = inventory_of(
        pool_slice("gpu-0", "gpu-1", "gpu-2"),
        claim("a", on("gpu-0"), on("gpu-1"), users=["u", "v"], namespace="one"),
        claim("b", on("gpu-2"), users=["u"], namespace="two"),
        claim("idle", on("gpu-9"), namespace="three"),
        claim("pending", users=[], namespace="four"),
    )
    assert totals(cluster) == (3, 2, 2, 2)


def test_count_of_tainted_slices_asks_the_budget_too() -> None:
    """R10."""
    cluster = inventory_of(*[tainted(number) for number in range(20)])
    for count in (
        lambda context: closed_together_with_recent(1, (DeviceNames.of(stored(0).selector),), (), cluster, context),
        lambda context: hit_with_recent(Impact(), cluster, context),
    ):
        ticks = iter(range(100))
        with pytest.raises(OutOfTime):
            count(make_context(budget=Budget(9, lambda: next(ticks))))  # noqa: B023 -- used at once


def test_out_of_time_is_raised_between_rules() -> None:
    ticks = iter(range(1000))
    with pytest.raises(OutOfTime) as raised:
        reasons(*[stored(number) for number in range(1, 8)], budget=Budget(9, lambda: next(ticks)))
    assert raised.value.phase == "impact of the last taints"
