"""How often a failed request is retried, and how often an Event repeats that a pod is blocked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, Budget, FakeCluster, World, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, Condition, DeviceTaintRule
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef, WriteFailure


class Refusing(FakeCluster):
    """No rule may be changed."""

    patches = 0

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure:  # noqa: ARG002 -- any
        self.patches += 1
        return WriteFailure("403: admission webhook denied the request")

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure:  # noqa: ARG002 -- any
        self.patches += 1
        return WriteFailure("422: status.conditions: Too many: 9: must have at most 8 items")


def refused(*, expires: bool) -> int:
    """Requests in ten minutes about a rule that may not be changed."""
    world = World(Mode.DELEGATED, FREE, cluster=Refusing)
    annotations = {EXPIRES_AT: format_time(NOW + timedelta(seconds=1))} if expires else {}
    world.add(rule(effect="NoSchedule", evict=not expires, annotations=annotations))
    world.advance(600)
    assert isinstance(world.cluster, Refusing)
    return world.cluster.patches


@pytest.mark.parametrize("expires", [True, False], ids=["expired rule", "conditions"])
def test_change_of_a_rule_that_is_refused_is_retried_with_backoff(*, expires: bool) -> None:
    """M13: a change that is refused is retried with backoff up to ten seconds, as evictions are."""
    assert refused(expires=expires) <= 600 / 10 + 20


class Forbidding(FakeCluster):
    """No pod may be evicted."""

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG002 -- any
        return EvictionOutcome(EvictionResult.FAILED, "POST /api/v1/...: 403: not now")


def test_lasting_refusal_is_not_logged_at_each_retry(caplog: pytest.LogCaptureFixture) -> None:
    """M13: an eviction that keeps failing is logged once, and then every five minutes."""
    world = evicting(claim("pod"), pod("pod"), rule(), cluster=Forbidding)
    world.advance(600)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) <= 3


@pytest.mark.untraced
def test_event_about_a_blocked_pod_is_renewed_each_hour() -> None:
    """L7: Events live for an hour, so a pod that is blocked for longer gets another one."""
    world = evicting()
    world.add_budget(Budget())
    world.add(claim("pod"), pod("pod"), rule())
    world.advance(2.5 * 3600)
    assert world.told("EvictionBlocked").count("pod") >= 3


@pytest.mark.parametrize("asked", [0.0, 60.0])
def test_pod_that_cannot_be_evicted_is_tried_every_ten_seconds_in_the_end(asked: float) -> None:
    """Whatever the server asks for."""
    world = evicting()
    world.cluster.answers.extend([EvictionOutcome(EvictionResult.FAILED, "500", asked)] * 100)
    world.add(claim(), pod(), rule())
    world.advance(60)
    times = [seconds for _, _, seconds in world.cluster.requests]
    assert times[-1] - times[-2] == pytest.approx(10.0, abs=0.01)
