"""Many small rules are one large one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW, make_context
from tests.tables import table
from tests.unit.admission.guarding import NOWHERE, ask, fleet, node, over, refusals, tainting
from tests.unit.admission.recently import NODES, hit, idle, one_of, reasons, settings, stored, tainted, value
from tests.unit.inventory.values import claim, inventory_of, lets_stay, on, pool_slice, taint
from tests.unit.policy.documents import policy_of
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.recent_impact import (
    begins_to_act,
    closed_together,
    closed_together_with_recent,
    hit_with_recent,
    totals,
    victims_of,
)
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.inventory.impact import Impact
from webhook.inventory.targets import DeviceNames
from webhook.policy.model import Share

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


# --- how many devices rules close, alone and together ---------------------------------------------


FEW: Final = Share(13)
"""Of the sixteen devices of eight nodes: those of one node."""


@pytest.mark.parametrize("unused", [False, True], ids=["busy", "idle"])
@pytest.mark.parametrize(
    ("effect", "fields"),
    [("NoSchedule", {}), ("NoExecute", {}), ("None", {"evict": True}), ("NoSchedule", {"evict": True})],
    ids=["NoSchedule", "NoExecute", "None and evict", "NoSchedule and evict"],
)
def test_devices_count_over_the_window_whatever_the_effect(effect: str, fields: Any, *, unused: bool) -> None:
    """A4: at most 13 % of the devices, and seven of eight nodes are tainted; the eighth is not."""
    limits = settings(devices=Share(13) if not unused else Share(7))
    assert reasons(rule=one_of(effect, unused=unused, **fields), impact=limits) == []
    others = [value(one_of(effect, number, unused=unused, **fields)) for number in range(1, NODES)]
    for place in ({}, {"assumed": others}, {"closed": [DeviceNames.of(each.selector) for each in others]}):
        seen = others if not place else []
        assert reasons(*seen, rule=one_of(effect, unused=unused, **fields), impact=limits, **place) == [
            "window:devices"
        ]


def test_taint_with_effect_none_neither_counts_nor_is_counted() -> None:
    limits = settings(devices=FEW)
    others = [value(one_of("None", number)) for number in range(1, NODES)]
    assert reasons(*others, rule=one_of("NoSchedule"), impact=limits) == []
    others = [value(one_of("NoSchedule", number)) for number in range(1, NODES)]
    assert reasons(*others, rule=one_of("None"), impact=limits) == []


def test_refusal_tells_how_many_devices_are_closed_together() -> None:
    cluster = inventory_of(*fleet(NODES), stored(1, effect="NoSchedule"))
    (text,) = refusals(ask(one_of("NoSchedule"), cluster=cluster, impact=settings(devices=3)))
    assert text.startswith(
        "hits 2 devices in 1 pool: with all other taints of the last 10 min it hits 4 devices, and the limit is 3"
    )


@table(
    "others, expected",
    {
        "just inside": ([stored(1, effect="NoSchedule", seconds_ago=599)], ["window:devices"]),
        "as old as clocks may differ": ([stored(1, effect="NoSchedule", seconds_ago=660)], ["window:devices"]),
        "outside": ([stored(1, effect="NoSchedule", seconds_ago=661)], []),
        "the very devices": ([stored(0, effect="NoSchedule")], []),
        "one of the very devices": ([value(tainting(idle(0), "NoSchedule", name="idle"))], []),
        "devices that are not there": ([value(tainting({**node(1), "pool": "gone"}, "NoSchedule"))], []),
    },
)
def test_device_counts_once_and_for_the_window(others: list[InventoryObject], expected: list[str]) -> None:
    assert reasons(*others, rule=one_of("NoSchedule"), impact=settings(devices=FEW)) == expected


WIDE: Final = value(tainting(effect="NoSchedule", name="wide"))


@table(
    "other",
    {
        "effect None": structs.replace(WIDE, taint=structs.replace(WIDE.taint, effect="None")),
        "being deleted": structs.replace(WIDE, deleting=True),
        "no selector": structs.replace(WIDE, selector=None),
        "unknown field": structs.replace(WIDE, selector=DeviceSelector(unknown=(("all", "true"),))),
        "class": structs.replace(WIDE, selector=DeviceSelector(DRIVER, device_class_name="none.example.com")),
    },
)
def test_stored_rule_that_may_not_keep_a_device_closed_excuses_nothing(other: DeviceTaintRule) -> None:
    """F8: it counts as wide where it uses up the limit, and as narrow where it would excuse."""
    closed = [DeviceNames.of(WIDE.selector)]
    assert reasons(other, rule=one_of("NoSchedule"), impact=settings(devices=2), closed=closed) == ["window:devices"]


LITTLE: Final = "little.example.com"
LARGE: Final = "large.example.com"


def two_drivers() -> list[InventoryObject]:
    """Ten devices of one driver in two pools, a thousand of another in ten; pool `shared` has some of both."""
    names = [f"d-{number}" for number in range(100)]
    return [
        pool_slice(*names[:5], name="little-0", pool="little", driver=LITTLE),
        pool_slice(*names[5:10], name="little-1", pool="shared", driver=LITTLE),
        pool_slice(*names, name="large-0", pool="shared", driver=LARGE),
        *[pool_slice(*names, name=f"large-{pool}", pool=f"large-{pool}", driver=LARGE) for pool in range(1, 10)],
    ]


@table(
    "selector, percent, worst",
    {
        "pool of the little driver": ({"pool": "little"}, 5, LITTLE),
        "which is named": ({"driver": LITTLE, "pool": "little"}, 5, LITTLE),
        "half of its devices": ({"pool": "little"}, 50, ""),
        "half of its devices, a little less allowed": ({"pool": "little"}, 49, LITTLE),
        "pool of the large driver": ({"pool": "large-1"}, 10, ""),
        "pool of the large driver, less allowed": ({"pool": "large-1"}, 9, LARGE),
        "pool of both": ({"pool": "shared"}, 10, LITTLE),
        "pool of both, half allowed": ({"pool": "shared"}, 50, ""),
        "too much of both, and more of the little one": ({"pool": "shared"}, 9, LITTLE),
        "device of every pool": ({"device": "d-0"}, 5, LITTLE),
        "device of every pool, more allowed": ({"device": "d-0"}, 10, ""),
        "device that the little driver lacks": ({"device": "d-99"}, 1, ""),
        "pool that is not there": ({"pool": "gone"}, 0, ""),
        "driver that is not there": ({"driver": "gone.example.com"}, 0, ""),
    },
)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_share_of_devices_holds_for_each_driver(selector: Any, percent: float, worst: str, effect: str) -> None:
    """F13: the thousand devices of one driver must not make room for all ten of another."""
    impact = settings(devices=Share(percent), pods=None)
    decision = ask(tainting(selector, effect), cluster=inventory_of(*two_drivers()), impact=impact)
    assert over(decision) == (["limit:devices"] if worst else [])
    assert decision.annotations["impact"].partition(" driver=")[2] == worst
    assert all(f" of driver {worst}" in text for text in refusals(decision))


def test_empty_selector_is_too_much_for_the_driver_that_has_least() -> None:
    """F13: every driver counts; all have the same part of their devices closed, so the first by name is named."""
    cluster = inventory_of(*two_drivers())
    (text,) = refusals(ask(tainting({}, "NoSchedule"), cluster=cluster, impact=settings(devices=Share(5))))
    assert "the limit is 50 devices of driver large.example.com; it hits 1000 devices of that driver;" in text


@table(
    "selector, limits, limit",
    {
        "one": ({"driver": LITTLE}, {"devices": Share(50)}, "5 devices of driver little.example.com"),
        "two, within the share": ({"pool": "shared"}, {"devices": Share(50), "pods": 0}, "0 pods"),
    },
)
def test_how_many_devices_of_a_driver_are_hit_is_said_only_where_a_share_of_one_of_several_is_exceeded(
    selector: Any, limits: Any, limit: str
) -> None:
    on_shared = on("d-5", pool="shared", driver=LITTLE)
    cluster = inventory_of(*two_drivers(), claim("used", on_shared, users=["u"]))
    (text,) = refusals(ask(tainting(selector), cluster=cluster, impact=settings(**limits)))
    assert f": the limit is {limit}; narrow the selector" in text


def test_each_driver_of_several_names_counts() -> None:
    little, large = (DeviceNames.of(DeviceSelector(each)) for each in (LITTLE, LARGE))
    one_of_large = DeviceNames.of(DeviceSelector(LARGE, "large-1", "d-0"))
    inventory = inventory_of(*two_drivers())
    for own in ((little, one_of_large), (one_of_large, little), (little, large, one_of_large)):
        found = closed_together(Share(50), own, (), inventory, make_context())
        assert found is not None
        assert (found.over, found.devices == found.published) == (True, True)
    equals = closed_together(Share(50), (little, large), (), inventory, make_context())
    assert equals is not None
    assert equals.driver == LARGE, "of equals the first by name"
    assert closed_together(Share(50), (one_of_large,), (little,), inventory, make_context()) == (1, 500, 1000, LARGE)


def test_share_of_devices_is_used_up_driver_by_driver() -> None:
    """F13: what others closed of a driver counts for that driver, whether the rule names it or not."""
    limits = settings(devices=Share(50))
    one = value(tainting({"pool": "shared", "device": "d-5"}, "NoSchedule", name="one"))
    cluster = inventory_of(*two_drivers(), one)
    decision = ask(tainting({"pool": "little"}, "NoSchedule"), cluster=cluster, impact=limits)
    assert over(decision) == ["window:devices"]
    assert refusals(decision)[0].startswith(
        "hits 5 devices in 1 pool: with all other taints of the last 10 min it hits 6 devices of driver "
        "little.example.com, and the limit is 5 devices of driver little.example.com; narrow"
    )
    assert ask(tainting({"pool": "large-1"}, "NoSchedule"), cluster=cluster, impact=limits).allowed


@table(
    "others, expected",
    {
        "NoSchedule": ([tainted(1, effect="NoSchedule")], ["window:devices"]),
        "NoExecute, and idle": ([tainted(1, device="gpu-1")], ["window:devices"]),
        "None": ([tainted(1, effect="None")], []),
        "as old as clocks may differ": ([tainted(1, effect="NoSchedule", seconds_ago=660)], ["window:devices"]),
        "an old one": ([tainted(1, effect="NoSchedule", seconds_ago=661)], []),
        "without a time": ([tainted(1, effect="NoSchedule", seconds_ago=None)], ["window:devices"]),
        "on the very device": ([tainted(0, effect="NoSchedule")], []),
    },
)
def test_devices_that_their_drivers_closed_count(others: list[InventoryObject], expected: list[str]) -> None:
    assert reasons(*others, rule=one_of("NoSchedule"), impact=settings(devices=2)) == expected


def test_health_operator_taints_at_most_its_share() -> None:
    """A4: the example of the documentation, as a policy document; pods and namespaces keep their defaults."""
    operator = "system:serviceaccount:health:operator"
    entry = {"requesters": {"serviceAccounts": ["health/operator"]}, "devices": "5%"}
    impact = policy_of(impact={"limits": [entry, {}]}).impact
    cluster = inventory_of(*fleet(40))
    passed = 0
    for number in range(40):
        rule = one_of("NoSchedule", number)
        if ask(rule, cluster=cluster, impact=impact, user=operator).allowed:
            cluster.apply(None, value(rule))
            passed += 1
    assert passed == 2
    assert ask(one_of("NoSchedule", 3), cluster=cluster, impact=impact).allowed
    assert over(ask(tainting(), cluster=inventory_of(*fleet(60)), impact=impact, user=operator)) == [
        "limit:devices,pods"
    ]


def test_count_of_devices_asks_the_budget_for_every_thousand() -> None:
    """R10: three thousand pools, and a budget that is spent while they are counted."""
    pools = [pool_slice("d", name=f"s-{number}", pool=f"node-{number}") for number in range(3000)]
    cluster = inventory_of(*pools)
    rule = value(tainting({"driver": DRIVER, "device": "d"}, "NoSchedule"))

    def count(ticks: int) -> Any:
        times = iter(range(1000))
        context = make_context(budget=Budget(ticks, lambda: next(times)), assumed=(rule,))
        return closed_together_with_recent(0, (DeviceNames.of(rule.selector),), (), cluster, context)

    taints = 3000 // 16 + 1  # times that it asks while it looks for taints in slices
    assert count(taints + 50).devices == 3000
    for ticks in (5, taints + 4):
        with pytest.raises(OutOfTime) as raised:
            count(ticks)
        assert raised.value.phase == "impact of the last taints"
