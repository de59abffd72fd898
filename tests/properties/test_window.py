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
from webhook.admission.recent_impact import closed_together, closed_together_with_recent, hit_with_recent, victims_of
from webhook.api.rules import DeviceSelector
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.pools import acts, selects
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.inventory.targets import DeviceNames, Extent, can_judge
from webhook.policy.limits import limit_on_devices
from webhook.policy.model import ImpactLimits, ImpactSettings, InTreeEvictor, NamespaceMatch, Share

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
        if driver in (None, identity[0]) and any(acts(taint.effect) for taint in taints)
    }


@given(clusters(), st.lists(st.none() | selectors, max_size=6), drivers)
def test_extent_counts_as_a_scan_of_all_devices_does(
    objects: list[InventoryObject], chosen: list[DeviceSelector | None], driver: str | None
) -> None:
    inventory = inventory_of(objects)
    expected = set().union(*[selected(inventory, each, driver) for each in chosen])
    assert Extent(map(DeviceNames.of, chosen)).count(inventory.pools, driver) == len(expected)


@given(clusters(), selectors, st.lists(st.none() | selectors, max_size=4), drivers)
def test_extent_holds_what_a_scan_of_all_devices_finds(
    objects: list[InventoryObject], asked: DeviceSelector, chosen: list[DeviceSelector | None], driver: str | None
) -> None:
    inventory = inventory_of(objects)
    extent = Extent(map(DeviceNames.of, chosen))
    held = set().union(*[selected(inventory, each) for each in chosen])
    assert {each for each in published(inventory) if extent.holds(*each)} == held
    own = selected(inventory, asked, driver)
    assert extent.holds_all(DeviceNames.of(asked), inventory.pools, driver) is (own <= held)


@given(
    clusters(),
    recent(),
    rules(9),
    st.lists(selectors, max_size=2),
    st.sampled_from([0, 2, 5, Share(0), Share(20), Share(50), Share(100)]),
)
def test_devices_of_the_window_are_those_that_any_taint_of_it_closes(
    objects: list[InventoryObject],
    others: list[DeviceTaintRule],
    new: DeviceTaintRule,
    gone: list[DeviceSelector],
    limit: int | Share,
) -> None:
    """F8: what is gone uses up the limit, and only what is stored and acts excuses. F13: shares are by driver."""
    inventory = inventory_of([*objects, *others])
    context = make_context(now=NOW, closed=tuple(map(DeviceNames.of, gone)))
    stored = [each for each in others if in_window(each)]

    def closed(driver: str | None) -> tuple[int, int] | None:
        """Devices closed together, of how many; None if the rule closes no further one of the driver."""
        standing = tainted_in_slices(inventory, driver).union(
            *[selected(inventory, each.selector, driver) for each in stored if can_judge(each.selector)]
        )
        used = standing.union(
            *[selected(inventory, each.selector, driver) for each in stored],
            *[selected(inventory, each, driver) for each in gone],
        )
        own = selected(inventory, new.selector, driver)
        return None if own <= standing else (len(own | used), len(published(inventory, driver)))

    every = {driver: closed(driver) for driver in (DRIVERS if isinstance(limit, Share) else [None])}
    expected = {driver: numbers for driver, numbers in every.items() if numbers is not None}
    found = closed_together_with_recent(limit, (DeviceNames.of(new.selector),), (), inventory, context)
    assert (found is None) is (not expected)
    if found is None:
        return
    assert expected[found.driver] == (found.devices, found.published)
    most = limit_on_devices(limit, 0) or 0  # no pool is of one node, so of a share one device is left
    ranks = [(devices > most, devices / total) for devices, total in expected.values()]
    assert max(ranks) == (found.over, found.devices / found.published)
    alone = closed_together(limit, (DeviceNames.of(new.selector),), (), inventory, context)
    assert alone is not None
    assert alone.over is any(len(selected(inventory, new.selector, driver)) > most for driver in every)


@given(clusters(), recent(), rules(9), st.booleans())
def test_window_hits_no_less_than_the_rule_alone_and_no_more_than_all_taints_of_it(
    objects: list[InventoryObject],
    others: list[DeviceTaintRule],
    new: DeviceTaintRule,
    in_tree: bool,  # noqa: FBT001 -- drawn
) -> None:
    inventory = inventory_of([*objects, *others])
    alone = impact_of(inventory, new.selector, Taint.of_rule(new, in_tree=in_tree), NOW)
    options: dict[str, Any] = {"now": NOW, "in_tree_evictor": InTreeEvictor.ACTIVE if in_tree else InTreeEvictor.ABSENT}
    together = hit_with_recent(alone, inventory, make_context(**options))
    assert together.pods >= len(alone.pods)
    assert together.claims >= len(alone.claims)
    assert together.namespaces >= len(alone.namespaces)
    remembered = [victims_of(each, inventory, in_tree=in_tree) for each in others if in_window(each)]
    # What is remembered of stored rules as well as seen is counted once.
    assert hit_with_recent(alone, inventory, make_context(victims=tuple(remembered), **options)) == together


NODES = 6


@given(
    st.lists(
        st.tuples(st.integers(0, NODES - 1), st.sampled_from(["NoSchedule", "NoExecute", "None"]), st.booleans()),
        max_size=8,
    ),
    st.sampled_from([None, *range(7), Share(0), Share(17), Share(50), Share(100)]),
)
def test_rules_close_no_more_devices_than_the_limit_in_whatever_order(
    sent: list[tuple[int, str, bool]], limit: int | Share | None
) -> None:
    """Each is a node of two devices; what passes fits, and what is refused would not have fitted. F8: some are deleted
    at once, and the devices of those are closed again by the next."""
    impact = ImpactSettings(
        limits=(ImpactLimits(devices=limit),), protected_namespaces=NamespaceMatch(names=("other",))
    )
    most: Any = limit if not isinstance(limit, Share) else int(NODES * 2 * limit.percent / 100)
    cluster = values.inventory_of(*fleet(NODES))
    used: set[int] = set()
    standing: set[int] = set()
    remembered: list[Any] = []
    for place, (number, effect, deleted) in enumerate(sent):
        rule = tainting(node(number), effect, name=f"rule-{place}")
        decision = ask(rule, cluster=cluster, impact=impact, closed=tuple(remembered))
        fits = effect == "None" or most is None or len(used | {number}) * 2 <= most
        # A device that stays closed is not closed again, unless two devices alone are too many.
        assert decision.allowed is (fits or (number in standing and most >= 2))
        if decision.assumed is not None:
            remembered.append(DeviceNames.of(decision.assumed.rules[0].selector))
            used.add(number)
            if not deleted:
                cluster.apply(None, decision.assumed.rules[0])
                standing.add(number)
