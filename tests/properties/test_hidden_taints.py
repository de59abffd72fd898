"""No pod is evicted that no admission counted, whatever patches and rules come and go, and whichever hides another."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hypothesis import event, example, given
from hypothesis import strategies as st

from tests.builders import DRIVER, KEY, NOW, make_taint
from tests.unit.admission.guarding import ask, tainting
from tests.unit.admission.patch_guarding import FIRST, ask_patch, cel, known, patching
from tests.unit.inventory.values import claim, inventory_of, on
from tests.unit.patches.patched import slice_of
from webhook.api.decode import Reader
from webhook.api.meta import format_time
from webhook.api.patches import decode_patch
from webhook.api.rules import decode_rule
from webhook.api.taints import DeviceToleration
from webhook.inventory.impact import Impact, Taint, impact_on_users
from webhook.patches.patch_reach import patch_reach
from webhook.policy.model import ImpactLimits, ImpactSettings

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from webhook.api.rules import DeviceTaintRule

_TOLERATIONS: Final = (
    (),
    (DeviceToleration(KEY, "Equal", "v", "NoExecute", None),),
    (DeviceToleration(KEY, "Equal", "w", "", 60),),
    (DeviceToleration(KEY, "Exists", "", "NoExecute", 300),),
)
CLUSTER: Final = inventory_of(
    *[
        slice_of(
            *[{"name": f"gpu-{place}", "attributes": {"place": {"int": place}}} for place in range(2)],
            pool=f"node-{number}",
        )
        for number in range(2)
    ],
    *[
        claim(f"claim-{pool}-{place}", on(f"gpu-{place}", *_TOLERATIONS[number % 4], pool=f"node-{pool}"), users=[uid])
        for number, (pool, place) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1), (9, 0), (9, 1)])
        for uid in [f"u-{pool}-{place}"]
    ],
)
"""Nobody publishes the devices of node-9 any more."""
UNLIMITED: Final = ImpactSettings(limits=(ImpactLimits(pods=None, namespaces=None),), window_seconds=0)
filters: SearchStrategy[Any] = st.sampled_from(
    [
        {"driver": DRIVER},
        {"driver": DRIVER, "pool": "node-0"},
        {"driver": DRIVER, "pool": "node-9"},
        {"device": "gpu-0"},
        {"driver": DRIVER, "pool": "node-1", "device": "gpu-1"},
        cel(FIRST),
        cel("true", pool="node-1"),
    ]
)
seconds: SearchStrategy[int | None] = st.sampled_from([0, 0, 5, -5, -3600, None])
Hits = dict[tuple[str, str], int]
"""Seconds from now at which a pod goes at the earliest, by its uid and the value of the taint."""


class Change(NamedTuple):
    """A patch, or the rule, that is created or updated; without taint it is deleted."""

    name: str
    where: Any = None
    effect: str = ""
    value: str | None = None
    added: int | None = 0
    asks: bool = False
    priority: int = 0
    deleting: bool = False

    @property
    def taint(self) -> Any:
        added = None if self.added is None else format_time(NOW + timedelta(seconds=self.added))
        return make_taint(effect=self.effect, value=self.value, time_added=added)


changes: SearchStrategy[list[Change]] = st.lists(
    st.sampled_from("abcr").map(Change)
    | st.tuples(
        st.sampled_from("aabbcr"),
        filters,
        st.sampled_from(["None", "NoSchedule", "NoExecute", "NoExecute"]),
        st.sampled_from([None, None, "v", "w"]),
        seconds,
        st.booleans(),
        st.integers(-1, 1),
        st.sampled_from([False, False, False, True]),
    ).map(lambda fields: Change(*fields)),
    min_size=2,
    max_size=8,
)


class World:
    """What is stored, and whom admission has counted."""

    def __init__(self) -> None:
        self.patches: dict[str, Any] = {}
        self.rule: Any = None
        self.counted: Hits = {}
        self._clock = 0

    def apply(self, change: Change) -> None:
        """Asks the guard, and stores what it admits."""
        if change.name == "r":
            self._apply_rule(change)
        elif not change.effect:
            self.patches.pop(change.name, None)  # nobody is asked
        else:
            self._apply_patch(change)

    def _apply_patch(self, change: Change) -> None:
        self._clock += 1
        old = self.patches.get(change.name)
        softened = KEY if change.asks else None
        new = patching(change.where, change.taint, name=change.name, softened=softened, priority=change.priority)
        decision = ask_patch(new, old, cluster=CLUSTER, patches=known(self.patches.values()), impact=UNLIMITED)
        if not decision.allowed:
            return
        if decision.assumed is not None:
            self._count(decision.assumed.impact, change.value or "")
        created = format_time(NOW - timedelta(hours=2) + timedelta(seconds=self._clock // 2))
        meta = {"creationTimestamp": created} if old is None else old["metadata"]
        ended = {"deletionTimestamp": format_time(NOW)} if change.deleting else {}
        stamp = {"creationTimestamp": meta["creationTimestamp"], "uid": f"uid-{change.name}"}
        self.patches[change.name] = {**new, "metadata": {**new["metadata"], **stamp, **ended}}

    def _apply_rule(self, change: Change) -> None:
        if not change.effect or "selectors" in change.where:
            self.rule = None
            return
        added = NOW + timedelta(seconds=change.added or 0)
        new = tainting(change.where, change.effect, value=change.value, added=added, evict=change.asks)
        decision = ask(new, self.rule, cluster=CLUSTER, patches=known(self.patches.values()), impact=UNLIMITED)
        if decision.allowed:
            self.rule = new
            if decision.assumed is not None:
                self._count(decision.assumed.impact, change.value or "")

    def _count(self, impact: Impact, value: str) -> None:
        for pod, due in _hits(impact, value).items():
            self.counted[pod] = min(due, self.counted.get(pod, due))

    def evicted(self) -> Hits:
        """Whom the rules of patches, and the rule, evict now."""
        stored = known(self.patches.values())
        rules: list[DeviceTaintRule] = [] if self.rule is None else [decode_rule(Reader.of(self.rule, []))]
        for value in self.patches.values():
            patch = decode_patch(Reader.of(value, []))
            rules += () if patch.deleting else patch_reach(patch, stored, CLUSTER.pools).rules
        found: Hits = {}
        for rule in rules:
            impact = impact_on_users(CLUSTER, rule.selector, Taint.of_rule(rule, in_tree=True), NOW)
            for pod, due in _hits(impact, rule.taint.value).items():
                found[pod] = min(due, found.get(pod, due))
        return found


def _hits(impact: Impact, value: str) -> Hits:
    return {(uid, value): wave.seconds for wave in impact.waves for uid in wave.pods}


def _shield(**other: Any) -> list[Change]:
    """A patch behind a stronger one, which is deleted."""
    stronger = Change("b", {"driver": DRIVER}, "NoExecute", priority=1)._replace(**other)
    return [stronger, Change("a", {"driver": DRIVER}, "NoExecute"), Change("b")]


@given(changes)
@example(_shield(value="v"))
@example(_shield(added=5))
@example(_shield(deleting=True))
@example(_shield(where={"driver": DRIVER, "pool": "node-0"}))
@example(_shield(where=cel("true", pool="node-1")))
@example(
    [
        Change("b", {"driver": DRIVER}, "NoSchedule"),
        Change("a", {"driver": DRIVER}, "NoSchedule", asks=True),
        Change("b"),
    ]
)
def test_no_pod_is_evicted_that_no_admission_counted(given_changes: list[Change]) -> None:
    """Nor is it sooner than it was counted, nor for another value."""
    world = World()
    for change in given_changes:
        world.apply(change)
        evicted = world.evicted()
        beyond = {pod: due for pod, due in evicted.items() if due < world.counted.get(pod, due + 1)}
        assert not beyond, (change, world.counted)
        event("evicts" if evicted else "evicts nobody")
