"""Laws of the window: what all taints of late hit together, by an oracle that looks at each device and each claim."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import make_context
from tests.properties.inventories import DRIVERS, NOW, clusters, inventory_of, rules, selectors
from tests.unit.admission.guarding import ask, fleet, node, tainting
from tests.unit.inventory import values
from webhook.admission.recent_impact import devices_with_recent, hit_with_recent, victims_of
from webhook.admission.rule_delta import EFFECT_RANK
from webhook.api.rules import DeviceSelector
from webhook.inventory.extent import Extent, names_of
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.matching import keeps_from_allocation, selects
from webhook.policy.model import ImpactLimits, ImpactSettings, NamespaceMatch, Share

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import Inventory, InventoryObject

Device = tuple[str, str, str]
drivers = st.none() | st.sampled_from(DRIVERS)
EVERY = DeviceSelector()


@st.composite
def recent(draw: st.DrawFn) -> list[DeviceTaintRule]:
    """Rules that were added within the window, or before it."""
    found = []
    for number in range(draw(st.integers(0, 4))):
        rule: DeviceTaintRule = draw(rules(number))
        added = NOW - timedelta(seconds=draw(st.sampled_from([0, 30, 600, 661, 3600])))
        found.append(structs.replace(rule, taint=structs.replace(rule.taint, time_added=added)))
    return found


def in_window(rule: DeviceTaintRule) -> bool:
    added = rule.taint.time_added
    return rule.effective_effect in EFFECT_RANK and added is not None and NOW - added <= timedelta(seconds=660)


def published(inventory: Inventory, driver: str | None = None) -> set[Device]:
    every = inventory.pools.items()
    return {(*identity, name) for identity, pool in every for name in pool.devices if driver in (None, identity[0])}


def selected(inventory: Inventory, selector: DeviceSelector | None, driver: str | None = None) -> set[Device]:
    """A missing selector keeps every device from being allocated."""
    return {each for each in published(inventory, driver) if selects(selector or EVERY, *each)}


def tainted_in_slices(inventory: Inventory, driver: str | None) -> set[Device]:
    """All taints of the strategy were added within the window."""
    return {
        (*identity, name)
        for identity, pool in inventory.pools.items()
        for name, taints in pool.devices.items()
        if driver in (None, identity[0]) and any(keeps_from_allocation(taint) for taint in taints)
    }


@given(clusters(), st.lists(st.none() | selectors, max_size=6), drivers)
def test_extent_counts_as_a_scan_of_all_devices_does(
    objects: list[InventoryObject], chosen: list[DeviceSelector | None], driver: str | None
) -> None:
    inventory = inventory_of(objects)
    expected = set().union(*[selected(inventory, each, driver) for each in chosen])
    assert Extent(map(names_of, chosen)).count(inventory.pools, driver) == len(expected)


@given(clusters(), recent(), rules(9), drivers, st.lists(selectors, max_size=2))
def test_devices_of_the_window_are_those_that_any_taint_of_it_closes(
    objects: list[InventoryObject],
    others: list[DeviceTaintRule],
    new: DeviceTaintRule,
    driver: str | None,
    closed: list[DeviceSelector],
) -> None:
    inventory = inventory_of([*objects, *others])
    context = make_context(now=NOW, closed=tuple(map(names_of, closed)))
    theirs = tainted_in_slices(inventory, driver).union(
        *[selected(inventory, each.selector, driver) for each in others if in_window(each)],
        *[selected(inventory, each, driver) for each in closed],
    )
    own = selected(inventory, new.selector, driver)
    found = devices_with_recent(new, inventory, context, driver)
    assert found == (0 if own <= theirs else len(own | theirs))
    assert found == 0 or found >= len(own)


@given(clusters(), recent(), rules(9), st.booleans())
def test_window_hits_no_less_than_the_rule_alone_and_no_more_than_all_taints_of_it(
    objects: list[InventoryObject],
    others: list[DeviceTaintRule],
    new: DeviceTaintRule,
    in_tree: bool,  # noqa: FBT001 -- drawn
) -> None:
    inventory = inventory_of([*objects, *others])
    alone = impact_of(inventory, new.selector, Taint.of_rule(new, in_tree=in_tree), NOW)
    together = hit_with_recent(alone, inventory, make_context(now=NOW), in_tree=in_tree)
    assert together.pods >= len(alone.pods)
    assert together.claims >= len(alone.claims)
    assert together.namespaces >= len(alone.namespaces)
    remembered = [victims_of(each, inventory, in_tree=in_tree) for each in others if in_window(each)]
    # What is remembered of stored rules as well as seen is counted once.
    context = make_context(now=NOW, victims=tuple(remembered))
    assert hit_with_recent(alone, inventory, context, in_tree=in_tree) == together


NODES = 6


@given(
    st.lists(st.tuples(st.integers(0, NODES - 1), st.sampled_from(["NoSchedule", "NoExecute", "None"])), max_size=8),
    st.sampled_from([None, *range(7), Share(0), Share(17), Share(50), Share(100)]),
)
def test_rules_close_no_more_devices_than_the_limit_in_whatever_order(
    sent: list[tuple[int, str]], limit: int | Share | None
) -> None:
    """Each is a node of two devices; what passes fits, and what is refused would not have fitted."""
    impact = ImpactSettings(
        limits=(ImpactLimits(devices=limit),), protected_namespaces=NamespaceMatch(names=("other",))
    )
    most: Any = limit if not isinstance(limit, Share) else int(NODES * 2 * limit.percent / 100)
    cluster = values.inventory_of(*fleet(NODES))
    closed: set[int] = set()
    remembered: list[Any] = []
    for place, (number, effect) in enumerate(sent):
        rule = tainting(node(number), effect, name=f"rule-{place}")
        decision = ask(rule, cluster=cluster, impact=impact, closed=tuple(remembered))
        fits = effect == "None" or most is None or len(closed | {number}) * 2 <= most
        # A device that is closed already is not closed again, unless two devices alone are too many.
        assert decision.allowed is (fits or (number in closed and most >= 2))
        if decision.assumed is not None:
            remembered.append(names_of(decision.assumed.rule.selector))
            closed.add(number)
