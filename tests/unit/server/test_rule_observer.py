"""What the watch shows to begin counts in every replica, whichever admitted it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.builders import NOW, decoded
from tests.unit.admission.guarding import ask, fleet, node, tainting
from tests.unit.inventory.values import claim, inventory_of, lets_stay, on
from tests.unit.server.doubles import Clock
from webhook.admission.context import UNLIMITED
from webhook.api.taints import DeviceTaint
from webhook.inventory.state import Inventory, Sight
from webhook.policy.decide import Judge, PolicyStore
from webhook.policy.match import KnownNames
from webhook.policy.model import ImpactLimits, ImpactSettings, InTreeEvictor, Policy
from webhook.server.state import AssumedRules, ReviewState, RuleObserver

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import InventoryObject

LIMIT = 5


class Replica:
    """One of ours, with a watch that is as fast as one can be."""

    def __init__(self, *objects: InventoryObject, clock: Clock | None = None, **policy: Any) -> None:
        self.inventory = inventory_of(*objects)
        self.sight = Sight(self.inventory)
        judge = Judge(Policy(**{"impact": ImpactSettings(limits=(ImpactLimits(pods=LIMIT),)), **policy}))
        assumed_rules = AssumedRules(clock or Clock())
        self.state = ReviewState(PolicyStore(judge), sight=lambda: self.sight, assumed_rules=assumed_rules)
        self._observer = RuleObserver(self.state, self.inventory)

    def watch(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        self.inventory.apply(old, new)
        self._observer.observe(old, new)

    def allows(self, rule: Any, now: datetime) -> bool:
        context = self.state.context(now, UNLIMITED, KnownNames({}))
        given = {name: getattr(context, name) for name in ("judge", "sight", "assumed", "victims", "closed")}
        decision = ask(rule, now=now, cluster=given.pop("sight"), **given)
        if decision.assumed is not None:
            self.state.assumed_rules.add(decision.assumed, "jane")
        return decision.allowed

    @property
    def victims(self) -> list[list[str]]:
        return [sorted(each.pods) for each in self.state.assumed_rules.victims(600)]


def rule(number: int = 0, effect: str = "NoExecute", **fields: Any) -> DeviceTaintRule:
    found: DeviceTaintRule = decoded(tainting(node(number), effect, **{"name": f"rule-{number}", **fields}))[0]
    return found


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("deleted", [False, True], ids=["rules stay", "rules are deleted"])
def test_rules_one_after_the_other_hit_no_more_than_the_limit_of_one_replica(replicas: int, *, deleted: bool) -> None:
    """R7: each pod is gone before the next rule comes, and a refused rule is sent to the other replicas."""
    clock, now = Clock(), NOW
    nodes = LIMIT * 4
    every = [Replica(*fleet(nodes), clock=clock) for _ in range(replicas)]
    passed = 0
    for number in range(nodes):
        manifest = tainting(node(number), name=f"rule-{number}", added=now)
        turn = [every[(number + offset) % replicas] for offset in range(replicas)]
        if not any(each.allows(manifest, now) for each in turn):
            break
        passed += 1
        stored = decoded(manifest)[0]
        for each in every:
            each.watch(None, stored)
            each.watch(each.inventory.claims[f"ml/claim-{number}"], None)
            if deleted:
                each.watch(stored, None)
        now += timedelta(seconds=1)
        clock.seconds += 1
    assert passed == LIMIT


def test_devices_that_a_rule_closed_elsewhere_count_when_it_is_gone_or_was_set_back() -> None:
    """A4: NoSchedule with a timeAdded that is long past, which no window over the stored times would hold."""
    strict = ImpactSettings(limits=(ImpactLimits(devices=2),))
    for seconds_ago in (0, 7200):
        replica = Replica(*fleet(3), impact=strict)
        other = rule(1, "NoSchedule", added=NOW - timedelta(seconds=seconds_ago))
        replica.watch(None, other)
        assert not replica.allows(tainting(node(0), "NoSchedule"), NOW)
        replica.watch(other, None)
        assert not replica.allows(tainting(node(0), "NoSchedule"), NOW)
        assert replica.allows(tainting(node(1), "NoSchedule"), NOW)


@pytest.mark.parametrize(
    ("old", "new", "victims"),
    [
        pytest.param(None, rule(), [["u-0"]], id="created"),
        pytest.param(None, rule(evict=True, effect="NoSchedule"), [["u-0"]], id="created for our worker"),
        pytest.param(rule(effect="None"), rule(), [["u-0"]], id="raised"),
        pytest.param(rule(effect="NoSchedule"), rule(effect="NoSchedule", evict=True), [["u-0"]], id="asked for"),
        pytest.param(rule(1, name="a"), rule(0, name="a"), [["u-0"]], id="moved"),
        pytest.param(None, rule(effect="NoSchedule"), [], id="without eviction"),
        pytest.param(None, rule(effect="None"), [], id="without effect"),
        pytest.param(rule(), structs.replace(rule(), generation=2, conditions=()), [], id="status"),
        pytest.param(rule(), rule(annotations={"a": "b"}), [], id="annotated"),
        pytest.param(rule(), rule(effect="NoSchedule"), [], id="lowered"),
        pytest.param(rule(), None, [], id="deleted"),
    ],
)
def test_rule_counts_when_it_begins(old: Any, new: Any, victims: list[list[str]]) -> None:
    replica = Replica(*fleet(2), *([] if old is None else [old]))
    replica.watch(old, new)
    assert replica.victims == victims


def test_victims_are_those_of_the_moment() -> None:
    """Who is gone later still counts, and who tolerates the taint for ever never does."""
    replica = Replica(
        *fleet(1),
        claim("patient", on("gpu-1", lets_stay(30)), users=["patient"]),
        claim("friend", on("gpu-1", lets_stay(key="")), users=["friend"]),
    )
    taint = DeviceTaint("example.com/unhealthy", "", "NoExecute", NOW)
    replica.watch(None, structs.replace(rule(), taint=taint))
    for each in tuple(replica.inventory.claims.values()):
        replica.watch(each, None)
    assert replica.state.assumed_rules.victims(600)[0].pods == {"u-0", "patient"}


@pytest.mark.parametrize(("evictor", "hit"), [(InTreeEvictor.ACTIVE, [["u"]]), (InTreeEvictor.ABSENT, [])])
def test_policy_says_whose_reading_of_tolerations_counts(evictor: InTreeEvictor, hit: list[list[str]]) -> None:
    replica = Replica(claim("a", on("gpu-0", lets_stay(key="", effect="")), users=["u"]), in_tree_evictor=evictor)
    replica.watch(None, rule())
    assert replica.victims == hit


def test_rule_that_was_admitted_here_counts_once() -> None:
    replica = Replica(*fleet(2))
    manifest = tainting(node(1), name="rule-1")
    assert replica.allows(manifest, NOW)
    replica.watch(None, rule(1))
    assert replica.victims == [["u-1"]]
    moved = rule(0, name="rule-1")
    replica.watch(rule(1), moved)
    assert replica.victims == [["u-1"], ["u-0"]]


def test_first_lists_are_not_news() -> None:
    replica = Replica()
    replica.sight = Sight(None, "claims not read yet")
    for each in (*fleet(3), rule(1)):
        replica.watch(None, each)
    assert replica.victims == []
    replica.sight = Sight(replica.inventory)
    assert replica.victims == []
    replica.watch(None, rule(2))
    replica.sight = Sight(None, "resourceclaims being listed again")
    replica.watch(None, rule(0))
    assert replica.victims == [["u-2"], ["u-0"]]


def test_where_no_cluster_is_looked_at_nothing_is_remembered() -> None:
    state = ReviewState()
    RuleObserver(state, Inventory()).observe(None, rule())
    assert state.assumed_rules.closed(600) == ()
