"""An expired rule that was never taken back is not taken for one that was restored, however its expiry was changed."""

from __future__ import annotations

import pytest

from tests.unit.eviction.test_changed_expiry import annotate
from tests.unit.eviction.test_expired_rules import expiring, pods
from tests.unit.eviction.world import FakeCluster, World, evicting
from webhook.api.rules import EXPIRES_AT, DeviceTaintRule
from webhook.eviction.expiry import CONTESTED
from webhook.eviction.ports import WriteFailure
from webhook.inventory.state import InventoryObject


class RefusesFirst(FakeCluster):
    refuses = True

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:
        return WriteFailure("forbidden") if self.refuses else await super().downgrade(rule)


def changed_and_back(*, restarts: bool, edits: bool) -> World:
    """GitOps removes the expiry of a rule that could not be taken back, and sets the same one again."""
    world = evicting(*pods(hold="checkpoint"), expiring(-60), cluster=RefusesFirst)
    past = world.rule().meta.annotations[EXPIRES_AT]
    world.advance(30)
    annotate(world, "")
    world.advance(15)
    if edits:
        world.edit(world.rule(), generation=2)
    if restarts:
        again = evicting(cluster=RefusesFirst)
        again.clock.wall = world.clock.wall
        stored: list[InventoryObject] = [*world.inventory.claims.values(), *world.inventory.pods.values(), world.rule()]
        for each in stored:
            again.inventory.apply(None, each)
        again.worker.start()
        world = again
        world.settle()
    annotate(world, past)
    assert isinstance(world.cluster, RefusesFirst)
    world.cluster.refuses = False
    for pod in list(world.inventory.pods.values()):
        world.edit(pod, hold=None)
    world.advance(120)
    return world


@pytest.mark.parametrize("edits", [False, True], ids=["only the expiry", "other fields, too"])
@pytest.mark.parametrize("restarts", [False, True], ids=["one leader", "new leader"])
def test_rule_whose_expiry_was_changed_and_set_again_is_taken_back(*, restarts: bool, edits: bool) -> None:
    world = changed_and_back(restarts=restarts, edits=edits)
    assert world.evicted == []
    assert world.rule().taint.effect == "None"
    assert world.condition("rule", CONTESTED)[:2] == ("False", "TakenBack")
