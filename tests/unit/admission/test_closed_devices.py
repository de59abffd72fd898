"""How many devices rules close, alone and together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, make_context
from tests.tables import table
from tests.unit.admission.guarding import ask, fleet, node, over, refusals, tainting
from tests.unit.admission.recently import NODES, idle, one_of, reasons, settings, stored, tainted, value
from tests.unit.inventory.values import claim, inventory_of, on, pool_slice
from tests.unit.policy.documents import policy_of
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.recent_impact import closed_together, closed_together_with_recent
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.inventory.targets import DeviceNames
from webhook.policy.model import Share

if TYPE_CHECKING:
    from webhook.inventory.state import InventoryObject


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
