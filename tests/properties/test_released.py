"""Laws of condition Released, for whatever comes and goes while every watch is late in its own way.

The model has a cluster as it is, and what the worker has heard of it: the events of a kind arrive in order, those of
different kinds in any. Schedulers that heed taints may be as late as the worker waits for them, and no later.
"""

from __future__ import annotations

from collections import deque
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import POOL, claim, pod, rule, slice_of, tolerates
from tests.unit.eviction.world import FREE, FakeCluster, World
from webhook.api.rules import DeviceSelector, condition_of
from webhook.eviction.conditions import RELEASED
from webhook.eviction.modes import Mode
from webhook.inventory.targets import DeviceNames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.api.claims import ResourceClaim
    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.eviction.ports import WriteFailure
    from webhook.inventory.state import InventoryObject

HISTORIES: Final = 2 * settings.default.max_examples if settings.default is not None else 40
"""A thousand in CI."""
SETTLE_SECONDS: Final = 5.0
DEVICES: Final = ("gpu-0", "gpu-1", "gpu-2")
SELECTORS: Final = (
    DeviceSelector(DRIVER, POOL, "gpu-0"),
    DeviceSelector(device="gpu-1"),
    DeviceSelector(DRIVER, POOL),
    DeviceSelector(DRIVER, "typo"),
    DeviceSelector(pool=POOL, device="gpu-2"),
    None,
)
EFFECTS: Final = ("NoSchedule", "NoExecute", "NoSchedule", "None")
SPECS: Final = tuple(product(EFFECTS, SELECTORS))
KINDS: Final = ("rules", "slices", "claims", "pods")
TOLERATING: Final = tolerates(effect="")


def holds(value: ResourceClaim, by: DeviceTaintRule) -> bool:
    return any(DeviceNames.of(by.selector).includes(each) for each in value.allocation or ())


class Late(FakeCluster):
    """Conditions are stored at once; the worker hears of that when it hears of the rule."""

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        assert isinstance(self.world, Model)
        self.world.write(rule, conditions)
        return None


class Model(World):
    """A cluster, with what is under way to the worker."""

    def __init__(self) -> None:
        super().__init__(Mode.DELEGATED, FREE, cluster=Late, settle_seconds=SETTLE_SECONDS)
        object.__setattr__(self.deps, "claims_known", self._claims_known)
        self.stored: dict[str, dict[str, InventoryObject]] = {kind: {} for kind in KINDS}
        self.under_way: dict[str, deque[tuple[float, str, InventoryObject | None]]] = {kind: deque() for kind in KINDS}
        self.since: dict[str, float] = {}
        """When rules got their selector and effect."""
        self.uids = 0

    def _claims_known(self, at: float) -> bool:
        return not self.under_way["claims"] or self.under_way["claims"][0][0] >= at

    # --- the cluster -----------------------------------------------------------------------------

    def put(self, kind: str, name: str, value: InventoryObject | None) -> None:
        """Created, changed or, for None, deleted."""
        if value is None and name not in self.stored[kind]:
            return
        if value is None:
            del self.stored[kind][name]
        else:
            self.stored[kind][name] = value
        self.under_way[kind].append((self.clock.elapsed, name, value))

    def write(self, about: DeviceTaintRule, conditions: Sequence[Condition]) -> None:
        name = about.meta.name
        stored = self.rules.get(name)
        if stored is not None and stored.meta.uid == about.meta.uid:
            self.put("rules", name, structs.replace(stored, conditions=tuple(conditions)))

    @property
    def rules(self) -> dict[str, DeviceTaintRule]:
        return self.stored["rules"]  # type: ignore[return-value]

    @property
    def claims(self) -> dict[str, ResourceClaim]:
        return self.stored["claims"]  # type: ignore[return-value]

    def true_of(self, value: DeviceTaintRule) -> bool:
        """Whether it says that its devices are released, as `kubectl wait` reads it."""
        known = condition_of(value.conditions, RELEASED)
        return known is not None and known.status == "True" and known.observed_generation == value.generation

    def set_rule(self, name: str, effect: str, selector: DeviceSelector | None) -> None:
        old = self.rules.get(name)
        self.uids += 1
        uid = old.meta.uid if old is not None else f"uid-{self.uids}"
        new = rule(name, effect, selector=selector, uid=uid, generation=old.generation + 1 if old is not None else 1)
        if old is not None:
            new = structs.replace(new, conditions=old.conditions)
        self.since[name] = self.clock.elapsed
        self.put("rules", name, new)

    def allocate(self, name: str, device: str, *, tolerating: bool) -> None:
        """By a scheduler that heeds taints, but may not have heard of the latest ones."""
        new = claim(name, *([TOLERATING] if tolerating else []), devices=(device,))
        late = self.clock.elapsed - SETTLE_SECONDS
        closed = any(
            each.taint.effect != "None" and holds(new, each) and self.since[rule_name] <= late
            for rule_name, each in self.rules.items()
        )
        if tolerating or not closed:
            self.put("claims", name, new)

    # --- what the worker hears -------------------------------------------------------------------

    def hear(self, kind: str, count: int) -> None:
        queue = self.under_way[kind]
        for _ in range(min(count, len(queue))):
            _, name, value = queue.popleft()
            held: Any = getattr(self.inventory, kind)
            key = f"ml/{name}-claim" if kind == "claims" else f"ml/{name}" if kind == "pods" else name
            old = held.get(key)
            if old is not None or value is not None:
                self.change(old, value)

    def hear_all(self) -> None:
        while any(self.under_way.values()):
            for kind in KINDS:
                self.hear(kind, len(self.under_way[kind]))
            self.settle()

    # --- steps -----------------------------------------------------------------------------------

    def do(self, verb: str, number: int, choice: int) -> None:
        """One step of a history."""
        kind, _, what = verb.partition(" ")
        if what == "gone":
            self.put(f"{kind}s", f"{kind[0]}{number}", None)
        else:
            STEPS[verb](self, number, choice)

    def change_claim(self, name: str, **fields: Any) -> None:
        if name in self.claims:
            self.put("claims", name, structs.replace(self.claims[name], **fields))


def make_slice(model: Model, number: int, choice: int) -> None:
    model.put("slices", f"s{number}", slice_of(dict.fromkeys(DEVICES[: choice % 4], ()), name=f"s{number}"))


STEPS: Final[dict[str, Callable[[Model, int, int], None]]] = {
    "rule": lambda model, number, choice: model.set_rule(f"r{number}", *SPECS[choice % len(SPECS)]),
    "slice": make_slice,
    "claim": lambda model, number, choice: model.allocate(f"c{number}", DEVICES[choice % 3], tolerating=False),
    "claim tolerates": lambda model, number, choice: model.allocate(f"c{number}", DEVICES[choice % 3], tolerating=True),
    "claim unused": lambda model, number, _: model.change_claim(f"c{number}", reserved_for=()),
    "claim deallocated": lambda model, number, _: model.change_claim(f"c{number}", reserved_for=(), allocation=None),
    "pod": lambda model, number, _: model.put("pods", f"p{number}", pod(f"p{number}")),
    "hear": lambda model, number, choice: model.hear(KINDS[number % 4], choice),
    "doubt": lambda model, _, choice: setattr(model, "trusted", bool(choice % 2)),
    "time": lambda model, _, choice: model.advance(choice / 4),
}
HEEDING: Final = (
    *("rule", "rule", "rule gone", "slice", "slice gone", "claim", "claim", "claim gone", "claim unused"),
    *("claim deallocated", "pod", "pod gone", "hear", "hear", "hear", "time", "time", "time", "doubt"),
)


def steps(*more: str) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    verbs = st.sampled_from((*HEEDING, *more))
    return st.lists(st.tuples(verbs, st.integers(0, 3), st.integers(0, 29)), min_size=5, max_size=50)


@settings(max_examples=HISTORIES)
@given(steps())
def test_devices_are_never_called_released_while_an_allocation_exists(history: list[tuple[str, int, int]]) -> None:
    """Where schedulers heed taints, at no moment, however late the watches are."""
    model = Model()
    model.set_rule("r0", "NoSchedule", SELECTORS[0])
    for verb, number, choice in history:
        model.do(verb, number, choice)
        model.settle()
        for each in model.rules.values():
            if model.true_of(each):
                assert each.taint.effect != "None"
                assert not any(holds(value, each) for value in model.claims.values())


@settings(max_examples=HISTORIES)
@given(steps("claim tolerates", "claim tolerates"))
def test_allocations_that_tolerate_the_taint_unset_it_as_soon_as_they_are_known(
    history: list[tuple[str, int, int]],
) -> None:
    model = Model()
    for verb, number, choice in history:
        model.do(verb, number, choice)
        model.hear("rules", 1000)
        model.settle()
        model.advance(1.01)
        for name, each in model.inventory.rules.items():
            if each.generation == model.rules[name].generation and model.true_of(model.rules[name]):
                assert not any(holds(value, each) for value in model.inventory.claims.values())


@settings(max_examples=HISTORIES)
@given(steps("claim tolerates"), st.sampled_from(("all gone", "some left")))
def test_devices_are_released_in_the_end_when_no_allocation_is_left(
    history: list[tuple[str, int, int]], left: str
) -> None:
    all_gone = left == "all gone"
    model = Model()
    model.set_rule("r0", "NoSchedule", SELECTORS[0])
    for verb, number, choice in history:
        model.do(verb, number, choice)
    if all_gone:
        for name in list(model.claims):
            model.put("claims", name, None)
    model.trusted = True
    model.hear_all()
    model.advance(20)
    model.hear_all()
    for each in model.rules.values():
        if each.taint.effect != "None":
            free = not any(holds(value, each) for value in model.claims.values())
            assert model.true_of(each) == free
            assert free or not all_gone
