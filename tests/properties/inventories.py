"""Small clusters to try laws of the inventory on, and the order in which their objects come and change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from typing import TYPE_CHECKING, Final, NamedTuple

from hypothesis import strategies as st
from msgspec import structs

from webhook.api.claims import AllocationResult, Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Pod, PodClaim, PodGroup
from webhook.api.rules import EVICT, DeviceSelector, DeviceTaintRule
from webhook.api.slices import Device, ResourceSlice, SliceTaint
from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.inventory.impact import Taint
from webhook.inventory.pools import Evictor
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypothesis.strategies import SearchStrategy

    from webhook.inventory.state import InventoryObject

NOW: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
DRIVERS: Final = ("a", "b")
POOLS: Final = ("p", "q")
DEVICES: Final = ("d0", "d1", "d2", "d3")
NAMESPACES: Final = ("m", "n")
KEYS: Final = ("k", "l")
EFFECTS: Final = ("NoExecute", "NoSchedule", "NoExecute", "None")  # those that evict are most of the story
# The last two are more than 2**63 nanoseconds: one is in the past then, the other a minute away.
SECONDS: Final = (None, -1, 0, 5, 60, 9223372037, 18446744134)

# One choice among all there are, instead of one a field: a cluster takes a hundred of them.
any_tolerations: SearchStrategy[DeviceToleration] = st.sampled_from(
    [
        DeviceToleration(*fields)
        for fields in product(
            ("", *KEYS), ("Exists", "Equal", "", "Gt"), ("", "v"), ("", "NoExecute", "NoSchedule"), SECONDS
        )
    ]
)
telling_tolerations: SearchStrategy[DeviceToleration] = st.sampled_from(
    [DeviceToleration(*fields) for fields in product(("", "k"), ("Exists",), ("",), ("NoExecute",), SECONDS)]
)
tolerations = telling_tolerations | telling_tolerations | any_tolerations
taints: SearchStrategy[DeviceTaint] = st.sampled_from(
    [
        DeviceTaint(*fields)
        for fields in product(
            KEYS, ("", "v"), EFFECTS, (NOW, NOW - timedelta(seconds=30), NOW + timedelta(seconds=1.5))
        )
    ]
)
WIDTHS: Final = (
    DeviceSelector(),
    DeviceSelector("a"),
    DeviceSelector(pool="p"),
    DeviceSelector(device="d1"),
    DeviceSelector("a", "p", "d1"),
)
any_selectors: SearchStrategy[DeviceSelector] = st.sampled_from(
    [DeviceSelector(*names) for names in product((None, *DRIVERS), (None, *POOLS), (None, *DEVICES))]
)
selectors = st.sampled_from(WIDTHS[:2]) | st.sampled_from(WIDTHS) | any_selectors


asking: SearchStrategy[dict[str, str]] = st.sampled_from(({}, {EVICT: "true"}))


def _acting(taint: DeviceTaint, annotated: dict[str, str], kind: int) -> Taint:
    """Of a rule with or without `/evict`, or of a slice; or one that evicts anyway."""
    rule = DeviceTaintRule(ObjectMeta(annotations=annotated), None, taint)
    evicting = structs.replace(taint, effect="NoExecute")
    return (
        Taint(evicting, Evictor.IN_TREE),
        Taint(evicting, Evictor.OURS),
        Taint.of_rule(rule, in_tree=False),
        Taint.of_rule(rule, in_tree=True),
        Taint.of_slice(taint, in_tree=True),
    )[kind]


acting_taints: SearchStrategy[Taint] = st.builds(_acting, taints, asking, st.integers(0, 4))
EVICTING: Final = Taint(DeviceTaint("k", "", "NoExecute", NOW), Evictor.IN_TREE)


# --- objects --------------------------------------------------------------------------------------


few_taints: SearchStrategy[tuple[DeviceTaint, ...]] = st.one_of(
    st.just(()), st.tuples(taints), st.just(()), st.tuples(taints, taints)
)
few_tolerations: SearchStrategy[tuple[DeviceToleration, ...]] = st.one_of(
    st.tuples(tolerations), st.just(()), st.tuples(tolerations), st.tuples(tolerations, tolerations)
)
results: SearchStrategy[AllocationResult] = st.builds(
    lambda names, tolerated: AllocationResult("r", names[0], names[1], names[2], tolerated),
    st.sampled_from([*product(DRIVERS, POOLS, DEVICES)]),
    few_tolerations,
)
few_results: SearchStrategy[tuple[AllocationResult, ...] | None] = st.one_of(
    st.tuples(results), st.none(), st.tuples(results), st.tuples(results, results)
)


@st.composite
def slices(draw: st.DrawFn, number: int) -> ResourceSlice:
    """The slice of that number. Slices of one generation have no devices in common, those of different ones may."""
    generation = draw(st.integers(1, 2))
    name = (number + generation) % 4
    devices = [Device(f"d{each}", draw(few_taints)) for each in (name, name + 4)]
    return ResourceSlice(
        ObjectMeta(f"s{number}"),
        *draw(st.sampled_from([*product(DRIVERS, POOLS)])),
        generation,
        draw(st.integers(1, 2)),
        devices=tuple(devices[: draw(st.integers(0, 2))]),
        slice_taints=tuple([SliceTaint(draw(st.sampled_from(DEVICES)), each) for each in draw(few_taints)]),
    )


@st.composite
def rules(draw: st.DrawFn, number: int) -> DeviceTaintRule:
    return DeviceTaintRule(
        ObjectMeta(f"r{number}", annotations=draw(asking)), draw(st.none() | selectors), draw(taints)
    )


@st.composite
def claims(draw: st.DrawFn, number: int) -> ResourceClaim:
    """The claim of that number, used by some of the pods and PodGroups of its namespace."""
    namespace = NAMESPACES[number % 2]
    users = [Consumer("", "pods", f"p{each}", f"{namespace}-p{each}") for each in range(4)]
    users.append(Consumer("scheduling.k8s.io", "podgroups", "g", f"{namespace}-g"))
    return ResourceClaim(
        ObjectMeta(f"c{number}", "", namespace),
        allocation=draw(few_results),
        reserved_for=tuple(draw(st.lists(st.sampled_from(users), min_size=draw(st.integers(0, 1)), max_size=3))),
        extended_resource=draw(st.sampled_from((False, True, False))),
    )


@st.composite
def pods(draw: st.DrawFn, number: int) -> Pod:
    named = st.sampled_from([PodClaim(*each) for each in product((None, "c0", "c1", "c2"), (False, True))])
    return Pod(
        ObjectMeta(f"p{number}", "", NAMESPACES[number % 2]),
        claims=tuple(draw(st.lists(named, max_size=2))),
        extended_claim=draw(st.sampled_from(("", "", "c0", "c3"))),
        pod_group=draw(st.sampled_from(("", "g", "h"))),
    )


@st.composite
def pod_groups(draw: st.DrawFn, number: int) -> PodGroup:
    """Of either namespace, with the names that pods have for theirs."""
    return PodGroup(ObjectMeta("gh"[number // 2], "", NAMESPACES[number % 2]), draw(st.sampled_from(("", ALL, SINGLE))))


# --- histories ------------------------------------------------------------------------------------


class Event(NamedTuple):
    """One change as a watch tells it."""

    old: InventoryObject | None
    new: InventoryObject | None


History = list[Event]
"""All that happens to one object."""


@st.composite
def histories(draw: st.DrawFn) -> list[History]:
    """Of several objects: each is added, then perhaps changed and deleted, and perhaps added again."""
    of_one: list[History] = []
    for strategy, least, most in ((claims, 1, 6), (slices, 0, 4), (rules, 0, 2), (pods, 0, 2), (pod_groups, 0, 2)):
        for number in range(draw(st.integers(least, most))):
            version: SearchStrategy[InventoryObject] = strategy(number)
            # Three of four objects are there in the end.
            known: list[InventoryObject | None] = [
                None,
                *draw(st.lists(version | st.none(), max_size=2)),
                draw(version | version | version | st.none()),
            ]
            of_one.append([Event(old, new) for old, new in pairwise(known) if old is not None or new is not None])
    return of_one


@st.composite
def clusters(draw: st.DrawFn) -> list[InventoryObject]:
    """Objects that nothing happens to."""
    made: list[InventoryObject] = []
    made += [draw(slices(number)) for number in range(draw(st.integers(0, 4)))]
    made += [draw(claims(number)) for number in range(draw(st.integers(3, 6)))]
    return made


@st.composite
def interleaved(draw: st.DrawFn, of_each: list[History]) -> list[Event]:
    """In some order that keeps the one of each object."""
    turns = draw(st.permutations([index for index, history in enumerate(of_each) for _ in history]))
    rest = [iter(history) for history in of_each]
    return [next(rest[index]) for index in turns]


def left_by(of_each: list[History]) -> list[InventoryObject]:
    """The objects that are there in the end."""
    return [history[-1].new for history in of_each if history and history[-1].new is not None]


def after(events: Iterable[Event]) -> Inventory:
    inventory = Inventory()
    for event in events:
        inventory.apply(event.old, event.new)
    return inventory


def inventory_of(objects: Iterable[InventoryObject]) -> Inventory:
    return after(Event(None, each) for each in objects)


def tolerating(claim: ResourceClaim, toleration: DeviceToleration) -> ResourceClaim:
    """The same claim, with a toleration more for each of its devices."""
    results = [structs.replace(each, tolerations=(*each.tolerations, toleration)) for each in claim.allocation or ()]
    return structs.replace(claim, allocation=tuple(results) or None)
