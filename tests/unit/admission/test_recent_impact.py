"""Many small rules are one large one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW, decoded, make_context
from tests.unit.admission.guarding import NOWHERE, ask, fleet, node, over, refusals, tainting
from tests.unit.inventory.values import claim, inventory_of, lets_stay, on, pool_slice, taint
from tests.unit.policy.documents import policy_of
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.recent_impact import begins_to_act, devices_with_recent, hit_with_recent, totals, victims_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.slices import Device
from webhook.inventory.extent import names_of
from webhook.inventory.impact import Impact, Wave
from webhook.policy.model import ImpactLimits, ImpactSettings, Share

if TYPE_CHECKING:
    from webhook.inventory.state import InventoryObject

NODES = 8


def value(rule: Any) -> DeviceTaintRule:
    found: DeviceTaintRule = decoded(rule)[0]
    return found


def stored(number: int, *, seconds_ago: float = 60, effect: str = "NoExecute", **fields: Any) -> DeviceTaintRule:
    """A rule on one node."""
    added = NOW - timedelta(seconds=seconds_ago)
    return value(tainting(node(number), effect, name=f"stored-{number}", added=added, **fields))


def settings(window_seconds: float = 600, **numbers: Any) -> ImpactSettings:
    return ImpactSettings(limits=(ImpactLimits(**(numbers or {"pods": 2})),), window_seconds=window_seconds)


def reasons(
    *others: InventoryObject,
    rule: Any = None,
    old: Any = None,
    assumed: Any = (),
    victims: Any = (),
    closed: Any = (),
    **options: Any,
) -> list[str]:
    """Why a rule on node 0 is too much, with these rules and slices in the cluster."""
    cluster = inventory_of(*fleet(NODES, lambda number: f"ns-{number}"), *others)
    decision = ask(
        rule or tainting(node(0)),
        old,
        cluster=cluster,
        **{
            "assumed": tuple(assumed),
            "victims": tuple(victims),
            "closed": tuple(closed),
            "impact": settings(),
            **options,
        },
    )
    return over(decision)


WINDOW = ["window:pods"]


def test_refusal_tells_what_all_of_them_hit() -> None:
    cluster = inventory_of(*fleet(NODES), stored(1), stored(2))
    (text,) = refusals(ask(tainting(node(0)), cluster=cluster, impact=settings(pods=2, claims=2)))
    assert text.startswith(
        "hits 2 devices, 1 pod in 1 namespace: with all other taints of the last 10 min it hits 3 claims and 3 pods,"
        " and the limit is 2 claims and 2 pods; narrow the selector, or to go ahead, set annotation"
    )


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param([stored(1)], [], id="two"),
        pytest.param([stored(1), stored(2)], WINDOW, id="three"),
        pytest.param([stored(1), stored(2, seconds_ago=599)], WINDOW, id="just inside"),
        pytest.param([stored(1), stored(2, seconds_ago=661)], [], id="outside"),
        pytest.param([stored(1), stored(2, seconds_ago=-3600)], WINDOW, id="in the future"),
        pytest.param([stored(1), stored(2, effect="NoSchedule")], [], id="one that evicts nobody"),
        pytest.param([stored(1), stored(2, effect="NoSchedule", evict=True)], WINDOW, id="one that asks us to evict"),
        pytest.param([stored(1), structs.replace(stored(1), meta=stored(2).meta)], [], id="one and the same pod"),
        pytest.param([stored(0), structs.replace(stored(0), meta=stored(2).meta)], [], id="the very pod"),
    ],
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


def test_own_limit_is_told_rather_than_that_of_the_window() -> None:
    assert reasons(stored(1), stored(2), rule=tainting()) == ["limit:pods"]


# --- what moves, and what is gone ------------------------------------------------------------------


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


def hit(*uids: str, namespace: str = "gone") -> Impact:
    everybody = frozenset(uids)
    return Impact(waves=(Wave(0, everybody, everybody),), namespaces=frozenset({namespace}))


def test_who_is_gone_still_counts() -> None:
    assert reasons(victims=[hit("a")]) == []
    assert reasons(victims=[hit("a"), hit("b")]) == WINDOW
    assert reasons(victims=[hit("a"), hit("a")]) == []
    assert reasons(victims=[hit("a", "b")]) == WINDOW
    assert reasons(stored(1), victims=[hit("u-1")]) == []
    assert reasons(victims=[hit("a", "b")], impact=settings(namespaces=1)) == ["window:namespaces"]


# --- slices ---------------------------------------------------------------------------------------


def tainted(
    number: int, *, seconds_ago: float = 60, effect: str = "NoExecute", device: str = "gpu-0"
) -> InventoryObject:
    """A node's slice with a taint on one device."""
    added = taint(effect, added=NOW - timedelta(seconds=seconds_ago))
    devices = [Device(name, (added,) if name == device else ()) for name in ("gpu-0", "gpu-1")]
    return pool_slice(*devices, name=f"slice-{number}", pool=f"node-{number}")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param([tainted(1), tainted(2)], WINDOW, id="taints of drivers"),
        pytest.param([tainted(1), stored(2)], WINDOW, id="one of each"),
        pytest.param([tainted(1), tainted(2, seconds_ago=700)], [], id="an old one"),
        pytest.param([tainted(1), tainted(2, effect="NoSchedule")], [], id="one that evicts nobody"),
        pytest.param([tainted(1), tainted(2, device="gpu-1")], [], id="one on a device that nobody uses"),
        pytest.param([tainted(1), tainted(0)], [], id="one on the very device"),
    ],
)
def test_taints_in_slices_count(others: list[InventoryObject], expected: list[str]) -> None:
    assert reasons(*others) == expected


def test_devices_of_slices_are_counted_one_by_one() -> None:
    assert reasons(tainted(1), tainted(2), impact=settings(devices=4)) == []
    assert reasons(tainted(1), tainted(2), impact=settings(devices=3)) == ["window:devices"]


# --- devices --------------------------------------------------------------------------------------

FEW: Final = Share(13)
"""Of the sixteen devices of eight nodes: those of one node."""
OTHER: Final = "other.example.com"


def idle(number: int) -> dict[str, str]:
    """A selector of the unused device of a node."""
    return {**node(number), "device": "gpu-1"}


def one_of(effect: str, number: int = 0, *, unused: bool = False, **fields: Any) -> Any:
    name = f"rule-{number}"
    return tainting(idle(number) if unused else node(number), effect, name=name, **fields)


@pytest.mark.parametrize("unused", [False, True], ids=["busy", "idle"])
@pytest.mark.parametrize(
    ("effect", "fields"),
    [("NoSchedule", {}), ("NoExecute", {}), ("None", {"evict": True}), ("NoSchedule", {"evict": True})],
    ids=["NoSchedule", "NoExecute", "None and evict", "NoSchedule and evict"],
)
def test_devices_count_over_the_window_whatever_the_effect(effect: str, fields: Any, unused: bool) -> None:  # noqa: FBT001 -- a table's
    """A4: at most 13 % of the devices, and seven of eight nodes are tainted; the eighth is not."""
    limits = settings(devices=Share(13) if not unused else Share(7))
    assert reasons(rule=one_of(effect, unused=unused, **fields), impact=limits) == []
    others = [value(one_of(effect, number, unused=unused, **fields)) for number in range(1, NODES)]
    for place in ({}, {"assumed": others}, {"closed": [names_of(each.selector) for each in others]}):
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


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param([stored(1, effect="NoSchedule", seconds_ago=599)], ["window:devices"], id="just inside"),
        pytest.param([stored(1, effect="NoSchedule", seconds_ago=661)], [], id="outside"),
        pytest.param([stored(0, effect="NoSchedule")], [], id="the very devices"),
        pytest.param([value(tainting(idle(0), "NoSchedule", name="idle"))], [], id="one of the very devices"),
        pytest.param([value(tainting({**node(1), "pool": "gone"}, "NoSchedule"))], [], id="devices that are not there"),
    ],
)
def test_device_counts_once_and_for_the_window(others: list[InventoryObject], expected: list[str]) -> None:
    assert reasons(*others, rule=one_of("NoSchedule"), impact=settings(devices=FEW)) == expected


def test_rule_that_closes_no_further_device_is_not_refused_for_its_neighbours() -> None:
    """All devices were closed, as was confirmed; the health operator may still say so of one of them."""
    everything = value(tainting(effect="NoSchedule", name="maintenance"))
    assert reasons(everything, rule=one_of("NoSchedule"), impact=settings(devices=FEW)) == []
    assert reasons(everything, rule=one_of("NoSchedule"), impact=settings(devices=1)) == ["limit:devices"]


def test_share_of_devices_is_of_the_drivers_own_and_used_up_by_them_alone() -> None:
    """A4: sixteen devices of one driver beside four hundred of another, with half of those tainted."""
    crowd = pool_slice(*[f"d-{number}" for number in range(400)], name="crowd", pool="crowd", driver=OTHER)
    half = [
        value(tainting({"driver": OTHER, "device": f"d-{number}"}, "NoSchedule", name=f"o-{number}"))
        for number in range(200)
    ]
    limits = settings(devices=Share(20))
    assert reasons(crowd, *half, rule=one_of("NoSchedule"), impact=limits) == []
    assert reasons(crowd, *half, stored(1, effect="NoSchedule"), rule=one_of("NoSchedule"), impact=limits) == [
        "window:devices"
    ]
    everywhere = tainting({"pool": "node-0"}, "NoSchedule")
    assert reasons(crowd, rule=everywhere, impact=limits) == []
    assert reasons(crowd, *half, rule=everywhere, impact=limits) == ["window:devices"]


def test_number_of_devices_is_of_all_drivers() -> None:
    crowd = pool_slice("d-0", "d-1", name="crowd", pool="crowd", driver=OTHER)
    other = value(tainting({"driver": OTHER}, "NoSchedule", name="other"))
    assert reasons(crowd, other, rule=one_of("NoSchedule"), impact=settings(devices=3)) == ["window:devices"]
    assert reasons(crowd, other, rule=one_of("NoSchedule"), impact=settings(devices=4)) == []


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param([tainted(1, effect="NoSchedule")], ["window:devices"], id="NoSchedule"),
        pytest.param([tainted(1, device="gpu-1")], ["window:devices"], id="NoExecute, and idle"),
        pytest.param([tainted(1, effect="None")], [], id="None"),
        pytest.param([tainted(1, effect="NoSchedule", seconds_ago=700)], [], id="an old one"),
        pytest.param([tainted(0, effect="NoSchedule")], [], id="on the very device"),
    ],
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
def test_rule_begins_where_it_does_more_than_before(new: Any, old: Any, begins: bool) -> None:  # noqa: FBT001 -- a table's
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


# --- totals and time ------------------------------------------------------------------------------


def test_totals_are_all_that_could_be_hit() -> None:
    cluster = inventory_of(
        pool_slice("gpu-0", "gpu-1", "gpu-2"),
        claim("a", on("gpu-0"), on("gpu-1"), users=["u", "v"], namespace="one"),
        claim("b", on("gpu-2"), users=["u"], namespace="two"),
        claim("idle", on("gpu-9"), namespace="three"),
        claim("pending", users=[], namespace="four"),
    )
    assert totals(cluster) == (3, 2, 2, 2)


def test_count_of_devices_asks_the_budget_for_every_thousand() -> None:
    """R10: three thousand pools, and a budget that is spent while they are counted."""
    pools = [pool_slice("d", name=f"s-{number}", pool=f"node-{number}") for number in range(3000)]
    cluster = inventory_of(*pools, value(tainting({"driver": DRIVER, "device": "d"}, "NoSchedule")))

    def count(ticks: int) -> int:
        times = iter(range(1000))
        context = make_context(budget=Budget(ticks, lambda: next(times)))
        return devices_with_recent(stored(5000), cluster, context, None)

    taints = 3000 // 16 + 1  # times that it asks while it looks for taints in slices
    assert count(taints + 50) == 0
    for ticks in (5, taints + 4):
        with pytest.raises(OutOfTime) as raised:
            count(ticks)
        assert raised.value.phase == "impact of the last taints"


def test_count_of_tainted_slices_asks_the_budget_too() -> None:
    """R10."""
    cluster = inventory_of(*[tainted(number) for number in range(20)])
    for count in (
        lambda context: devices_with_recent(stored(0), cluster, context, None),
        lambda context: hit_with_recent(Impact(), cluster, context, in_tree=True),
    ):
        ticks = iter(range(100))
        with pytest.raises(OutOfTime):
            count(make_context(budget=Budget(9, lambda: next(ticks))))  # noqa: B023 -- used at once


def test_out_of_time_is_raised_between_rules() -> None:
    ticks = iter(range(1000))
    with pytest.raises(OutOfTime) as raised:
        reasons(*[stored(number) for number in range(1, 8)], budget=Budget(9, lambda: next(ticks)))
    assert raised.value.phase == "impact of the last taints"
