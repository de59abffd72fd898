"""Eviction under pressure on a real control plane: budgets that refuse, pods that are stuck, and a pause.

All scenarios are played on one control plane with one worker, each in a namespace with a driver and a profile of its
own. The disruption controller, ReplicaSets, scheduler and claims are real, kubelets are kwok's. Requests are counted
from the API server's audit log, and ready pods from a watch. Run with `-s` to see the figures.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.eviction.bench import SOON_SECONDS, now
from tests.apiserver.eviction.ground import Fleet, Ground
from tests.apiserver.eviction.readiness import GATED, ReadyWatch, SlowStart
from tests.apiserver.eviction.turns import Scenario, Stage, all_played, staged
from tests.apiserver.eviction.witness import Deletion
from tests.apiserver.policy.stage import make_policy
from tests.conftest import _assets
from tests.controlplane.processes import wait_until
from webhook.api.meta import format_time

pytestmark = [pytest.mark.slow, pytest.mark.whole]

Json = dict[str, Any]

ALL: Final = os.environ.get("EVICTION_SCALE") == "all"
"""By hand, rather than in CI."""
BLOCKED: Final = 1200
FREE: Final = 5
FREE_WITHIN: Final = timedelta(seconds=2 if ALL else 10)
"""After they are due; machines of CI are slow."""
PROBE_SECONDS: Final = 5
"""Between two requests that a budget may refuse."""
BLOCKED_SECONDS: Final = 22
FLEET: Final = 21
REQUESTS_MOST: Final = 3
"""For each pod that is evicted."""
DEADLINE: Final = timedelta(seconds=12)
SLOW: Final = 5
SLOW_SECONDS: Final = 6.0
"""Before each of their replacements starts: longer than between two requests, much shorter than the deadline."""
BYPASSED: Final = 3
STUCK_AFTER: Final = timedelta(seconds=3)
PAUSED: Final = 500
PAUSED_RATE: Final = 50
STILL: Final = timedelta(seconds=2)
"""No request begins later than this after the policy with the pause was written."""
FAST: Final = {"rate": 1000, "burst": 1000, "perOwnerUnavailable": None}
OVERDUE: Final = {"rate": 1000, "burst": 1000, "deadline": f"{DEADLINE.seconds}s", "afterDeadline": "delete"}
PROFILES: Final[Mapping[str, Json]] = {
    "fleet": OVERDUE,
    "progress": OVERDUE,
    "bypassed": OVERDUE | {"perOwnerUnavailable": 1},
    "stuck": FAST | {"overall": 1, "stuckAfter": f"{STUCK_AFTER.seconds}s"},
    "paused": FAST | {"rate": PAUSED_RATE, "burst": 1},
}
"""By namespace."""
POLICY: Final = make_policy(
    inTreeEvictor="absent",
    impact={"limits": [{"pods": None, "claims": None, "devices": None, "namespaces": None}]},
    eviction=[*[{"namespaces": {"names": [name]}, **profile} for name, profile in PROFILES.items()], FAST],
)
ALERTS: Final = Path(__file__).parents[3] / "manifests" / "components" / "monitoring" / "alerts.yaml"


# --- disruption budgets -------------------------------------------------------------------------


def pods_without_a_budget_do_not_wait_for_those_with_one(stage: Stage) -> Iterator[None]:
    blocked, free = stage.ground("blocked"), stage.ground("free")
    began = time.monotonic()
    blocked.crowd(BLOCKED)
    blocked.budget(minAvailable=BLOCKED)
    free.crowd(FREE, seconds=3)
    print(f"{BLOCKED} pods and their budget after {time.monotonic() - began:.0f} s")
    yield
    blocked.taint()
    wait_until(lambda: bool(blocked.asked()), "the budget is asked", seconds=SOON_SECONDS, every=0.1)
    due = free.taint() + timedelta(seconds=3)
    late = [each.at - due for each in free.wait_gone(FREE)]
    print(f"free pods went {late[0].total_seconds():.2f} to {late[-1].total_seconds():.2f} s after they were due")
    assert timedelta() <= late[0]
    assert late[-1] <= FREE_WITHIN
    first = blocked.asked()[0].at
    wait_until(lambda: (now() - first).total_seconds() > BLOCKED_SECONDS, "asked on", seconds=SOON_SECONDS)
    asked, elapsed = blocked.asked(), (now() - first).total_seconds()
    print(f"{len(asked)} requests in {elapsed:.1f} s for {BLOCKED} pods under a budget that allows none")
    assert {(each.code, each.by_eviction) for each in asked} == {(429, True)}
    assert BLOCKED_SECONDS // PROBE_SECONDS // 2 <= len(asked) <= elapsed // PROBE_SECONDS + 1
    assert len({each.uid for each in asked}) == len(asked), "they ask in turn"


def budget_that_lets_one_go_at_a_time_is_asked_sparingly(stage: Stage) -> Iterator[None]:
    ground = stage.ground("fleet")
    with SlowStart(ground) as start:
        Fleet(ground, FLEET, **GATED)
        ground.budget(maxUnavailable=1)
        start.seconds = 0.5
        yield
        evictions = _drain(ground, FLEET)
    took, each = evictions[-1].at - evictions[0].at, len(ground.asked()) / FLEET
    print(f"{FLEET} pods, one at a time, in {took.total_seconds():.1f} s with {each:.2f} requests each")
    assert each <= REQUESTS_MOST


def budget_that_makes_progress_is_never_bypassed(stage: Stage) -> Iterator[None]:
    """Also if it refuses once between any two evictions, for longer than the deadline in all."""
    ground = stage.ground("progress")
    with SlowStart(ground) as start:
        Fleet(ground, SLOW, **GATED)
        ground.budget(maxUnavailable=1)
        start.seconds = SLOW_SECONDS
        yield
        evictions = _drain(ground, SLOW)
    took, asked = evictions[-1].at - evictions[0].at, ground.asked()
    print(f"{SLOW} slow pods in {took.total_seconds():.1f} s, {len(asked)} requests, and the deadline is {DEADLINE}")
    refused = [each.at for each in asked if each.code == 429]
    assert refused[-1] - refused[0] > DEADLINE, "it was never past the deadline"


def _drain(ground: Ground, pods: int) -> Sequence[Deletion]:
    """Taints all devices; the Eviction API's budget allows one at a time, and nothing else is used."""
    with ReadyWatch(ground) as watch:
        ground.taint(pool="old")
        evictions = ground.wait_gone(pods, seconds=150)
    assert all(each.by_eviction for each in ground.asked())
    assert watch.fewest == pods - 1
    return evictions


def budget_that_allows_none_is_bypassed_after_the_deadline_within_the_limit_of_the_owner(
    stage: Stage,
) -> Iterator[None]:
    ground = stage.ground("bypassed")
    Fleet(ground, BYPASSED)
    ground.budget(minAvailable=BYPASSED)
    yield
    with ReadyWatch(ground) as watch:
        ground.taint(pool="old")
        deletions = ground.wait_gone(BYPASSED, seconds=150)
    after = deletions[0].at - ground.asked()[0].at
    print(f"the first of {BYPASSED} pods was deleted {after.total_seconds():.1f} s after its budget first refused")
    assert not any(each.by_eviction for each in deletions)
    assert after >= DEADLINE
    assert watch.fewest == BYPASSED - 1


# --- stuck pods ---------------------------------------------------------------------------------


def pod_that_is_stuck_takes_no_place_for_ever(stage: Stage) -> Iterator[None]:
    ground = stage.ground("stuck")
    ground.admit("first", stays=True)
    for number in range(3):
        ground.admit(f"other-{number}", seconds=1)
    yield
    ground.taint()
    evictions = ground.wait_gone(4)
    assert evictions[0].pod[1] == "first"
    waited = evictions[1].at - evictions[0].at
    print(f"the next pod went {waited.total_seconds():.1f} s after one that stays, which is stuck after {STUCK_AFTER}")
    assert waited >= STUCK_AFTER - timedelta(seconds=1), "deletionTimestamp has whole seconds"
    ground.wait_message("Completed", "4 pods evicted; 1 stuck in Terminating (stuck/first)")
    [metric, least] = _alert("DeviceTaintWebhookEvictionStuck")
    wait_until(lambda: max(stage.process.metric(metric).values()) > float(least), "the alert is true", every=0.5)
    ground.let_go("first")
    wait_until(lambda: max(stage.process.metric(metric).values()) == 0, "the alert is false", every=0.5)


def _alert(name: str) -> Sequence[str]:
    """The metric of stuck pods in an alert, and the number that it has to exceed."""
    [group] = [each for each in yaml.safe_load_all(ALERTS.read_text()) if each["kind"] == "PrometheusRule"]
    rules = [rule for each in group["spec"]["groups"] for rule in each["rules"]]
    [expression] = [rule["expr"] for rule in rules if rule.get("alert") == name]
    found = re.search(r"max\((\w+_pods_stuck)\) > (\d+)", expression)
    assert found is not None, expression
    return found.groups()


# --- pause --------------------------------------------------------------------------------------


def pause_in_the_middle_loses_no_pod_and_doubles_none(stage: Stage) -> Iterator[None]:
    ground = stage.ground("paused")
    ground.crowd(PAUSED)
    yield
    yield  # alone from here: a pause is for all
    ground.taint()
    ground.wait_gone(PAUSED // 4)
    pause = {"until": format_time(now() + timedelta(hours=1)), "why": "storage maintenance"}
    stage.process.set_policy(json.dumps(POLICY | {"pause": pause}))
    written_at = now()
    wait_until(lambda: ground.condition().get("reason") == "Paused", "it says so", seconds=SOON_SECONDS, every=0.5)
    begun = ground.asked()
    last = (begun[-1].at - written_at).total_seconds()
    print(f"{len(begun)} of {PAUSED} had begun; the last one {last:.2f} s after the policy was written")
    assert begun[-1].at - written_at <= STILL
    assert PAUSED // 4 <= len(begun) < PAUSED
    assert {each.code for each in begun} == {201}
    time.sleep(3.0)
    # The audit log may tell late of what was asked for in time.
    assert [each for each in ground.asked() if each.at - written_at > STILL] == []
    stage.process.set_policy(json.dumps(POLICY))
    ground.wait_gone(PAUSED, seconds=120)
    ground.wait_message("Completed", f"{PAUSED} pods evicted")
    assert sorted(_uids(ground.asked())) == sorted(ground.uids.values())
    assert ground.present() == set()


def _uids(deletions: Sequence[Deletion]) -> list[str]:
    return [each.uid for each in deletions]


# --- the play -----------------------------------------------------------------------------------

SCENARIOS: Final[tuple[Scenario, ...]] = (
    pods_without_a_budget_do_not_wait_for_those_with_one,
    budget_that_lets_one_go_at_a_time_is_asked_sparingly,
    budget_that_makes_progress_is_never_bypassed,
    budget_that_allows_none_is_bypassed_after_the_deadline_within_the_limit_of_the_owner,
    pod_that_is_stuck_takes_no_place_for_ever,
    pause_in_the_middle_loses_no_pod_and_doubles_none,
)
"""All get ready side by side, are played side by side from the first `yield` on, and after the second one alone."""


@pytest.fixture(scope="module")
def errors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Exception]]:
    """What went wrong, by scenario."""
    assets = _assets(request, "kube-controller-manager", "kube-scheduler", "kwok")
    with staged(assets, tmp_path_factory.mktemp("pressure")) as plane:
        yield all_played(plane, json.dumps(POLICY), SCENARIOS)


@pytest.mark.parametrize("name", [each.__name__ for each in SCENARIOS])
def test_pressure(errors: Mapping[str, Exception], name: str) -> None:
    if name in errors:
        raise errors[name]
