"""What takes a place in `overall` and `perNamespace`, and what counts for `maxPerMinute`; units: test_unit_places."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import POOL, claim, crowd, owned, pod, rule, taint, tolerates, using
from tests.unit.eviction.slow import SlowAnswers, slow
from tests.unit.eviction.world import FAILED, FREE, World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction.conditions import Progress
from webhook.eviction.modes import Mode
from webhook.policy.model import EvictionProfile, LabelMatch, NamespaceMatch

# --- places -------------------------------------------------------------------------------------


def test_pods_that_were_terminating_at_the_start_count_if_a_taint_evicts_them() -> None:
    world = evicting(rule(selector=DeviceSelector(driver=DRIVER, pool=POOL)), overall=1)
    world.add(claim("other", pool="clean"), pod("other", deleting=True))
    world.add(claim("going"), pod("going", deleting=True))
    world.add(claim("waits", devices=("gpu-1",)), pod("waits"))
    world.advance(10)
    assert (world.evicted, world.sample("pods_under_way")) == ([], 1)
    world.remove(world.pod("going"))
    assert world.after(1) == ["waits"]


@pytest.mark.parametrize("grace", [None, 30])
def test_terminating_pod_takes_its_place_until_its_grace_and_the_time_for_stuck_pods_are_over(
    grace: int | None,
) -> None:
    world = evicting(overall=1)
    grace_ends = None if grace is None else NOW + timedelta(seconds=grace)
    world.add(claim("going"), pod("going", deleting=True, grace_ends=grace_ends))
    world.add(claim("waits", devices=("gpu-1",)), pod("waits"), rule())
    assert world.after(FREE.stuck_after_seconds + (grace or 0) - 0.5) == []
    assert world.after(1) == ["waits"]


NARROW: list[dict[str, Any]] = [
    *[{limit: 1} for limit in ("overall", "per_namespace", "per_owner_unavailable", "max_per_minute")],
    {"rate": 0.001, "burst": 1},
]


@pytest.mark.parametrize("limit", NARROW, ids=str)
@pytest.mark.parametrize("how", ["labels of the namespace", "its own labels", "policy"])
def test_pod_that_gets_another_profile_waits_for_the_limits_of_that_one_alone(limit: dict[str, Any], how: str) -> None:
    """It waited for the limit of its first profile, which stays full."""
    slow = LabelMatch((("speed", "slow"),))
    batch = structs.replace(FREE, namespaces=NamespaceMatch(labels=(("tier", "batch"),)), pod_labels=slow, **limit)
    world = World(Mode.REPLACEMENT, batch, FREE)
    world.cluster.lingering = True
    world.relabel("ml", tier="batch")
    world.add(*using("a", "b", make=owned, labels=(("speed", "slow"),)), rule())
    assert world.after(5) == ["a"]
    if how == "labels of the namespace":
        world.relabel("ml", tier="production")
    elif how == "policy":
        world.change_policy(structs.replace(batch, namespaces=NamespaceMatch(names=("web",))), FREE)
    else:
        world.edit(world.pod("b"), labels=())
    assert world.settled() == ["a", "b"]


def test_pod_that_gets_another_owner_waits_for_the_first_one_no_longer() -> None:
    """Its labels name it as well."""
    world = evicting(per_owner_unavailable=1)
    of_deployment: dict[str, Any] = {"by": "web-5f9", "labels": (("pod-template-hash", "5f9"),)}
    world.add(claim("a"), owned("a", **of_deployment), owned("broken", ready=False, **of_deployment), rule())
    assert world.after(5) == []
    world.edit(world.pod("a"), labels=())
    assert world.settled() == ["a"]


@pytest.mark.parametrize(("uid", "evicted"), [("uid-a", []), ("uid-of-another", ["b"])], ids=["it", "its namesake"])
def test_place_of_a_refused_pod_is_free_unless_the_very_pod_is_terminating_by_now(uid: str, evicted: list[str]) -> None:
    world = evicting(claim("a"), pod("a"), claim("b"), pod("b"), overall=1, cluster=SlowAnswers, answers=[FAILED])
    slow(world).before_answer = lambda: world.change(world.pod("a"), pod("a", uid=uid, deleting=True))
    world.add(rule())
    world.catch_up()
    for _ in range(2):  # before it is planned again
        taken = world.worker.take()
        if taken is not None:
            asyncio.run(world.worker.evict(taken))
    assert world.evicted == evicted
    assert world.settled() == evicted
    world.remove(world.pod("a"))
    assert world.settled() == ["b"]


@pytest.mark.parametrize("became", ["gone", "replaced by a namesake", "held, and so not evicted"])
def test_pod_that_does_not_stand_in_terminating_is_not_reported_as_stuck(
    caplog: pytest.LogCaptureFixture, became: str
) -> None:
    hold = "later" if became.startswith("held") else None
    world = evicting(claim("pod"), owned("pod", hold=hold), rule(), lingering=True)
    if world.settled():
        world.remove(world.pod("pod"))
    if became.startswith("replaced"):
        world.add(owned("pod", uid="uid-namesake", claims=()))
    world.advance(FREE.stuck_after_seconds + 100)
    assert "pod stuck in terminating" not in caplog.messages
    assert world.sample("pods_stuck") == 0


# --- the minute ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "evicted"), [(59, []), (60, ["waits"])])
def test_eviction_of_the_last_leader_counts_for_the_minute_unless_it_is_older(seconds: int, evicted: list[str]) -> None:
    world = evicting(max_per_minute=1)
    world.add(rule(), claim("going"), pod("going", deleting=True, grace_ends=NOW - timedelta(seconds=seconds)))
    world.add(claim("waits", devices=("gpu-1",)), pod("waits"))
    assert world.settled() == evicted


@pytest.mark.parametrize(("mode", "evicted"), [(ALL, []), (SINGLE, ["waits"])], ids=["went along", "went by itself"])
def test_companions_that_the_last_leader_evicted_count_for_the_minute(mode: str, evicted: list[str]) -> None:
    world = evicting(rule(), max_per_minute=2)
    world.add(PodGroup(ObjectMeta("ring", namespace="ml", uid="uid-ring"), mode, None))
    world.add(claim("hit"), pod("hit", pod_group="ring", deleting=True))
    world.add(pod("along", pod_group="ring", claims=(), deleting=True))
    world.add(claim("waits", devices=("gpu-1",)), pod("waits"))
    assert world.settled() == evicted


def test_pod_that_a_person_deletes_does_not_count_for_the_minute() -> None:
    """It was to be evicted later."""
    world = evicting(claim("later", tolerates(30)), pod("later"), rule(), max_per_minute=1)
    world.catch_up()
    world.change(world.pod("later"), pod("later", deleting=True))
    world.add(claim("due"), pod("due"))
    assert world.settled() == ["due"]


def test_evicted_pod_that_changes_while_it_terminates_counts_once_for_the_minute() -> None:
    world = evicting(claim("first"), pod("first"), rule(), max_per_minute=2, lingering=True)
    world.settle()
    world.edit(world.pod("first"), labels=(("app", "web"),))
    world.add(claim("second"), pod("second"))
    assert world.settled() == ["first", "second"]


@pytest.mark.untraced
def test_request_in_flight_counts_for_the_minute_however_long_it_takes_and_others_ask_again_soon() -> None:
    world = evicting(*crowd(2), rule(), max_per_minute=1)
    world.catch_up()
    taken = world.worker.take()
    assert taken is not None
    assert world.worker.take() is None
    assert world.worker.take_seconds == pytest.approx(0.1)
    world.advance(1000)
    world.worker.forget_idle()
    world.settle()
    assert world.cluster.requests == []
    world.cluster.answers.append(FAILED)
    asyncio.run(world.worker.evict(taken))
    assert world.settled() == ["pod-001"]


@pytest.mark.parametrize(("limit", "seconds"), [(4, 0), (3, 30), (2, 40), (1, 50)])
def test_minute_waits_until_enough_of_its_evictions_are_over(limit: int, seconds: int) -> None:
    """They were 30, 20 and 10 seconds ago."""
    world = evicting(max_per_minute=limit)
    now = world.clock.seconds()
    world.add(claim(), pod(), rule())
    world.catch_up()
    world.worker._core.ledger.departures[world.profiles.all[0].settings] = {
        f"uid-{ago}": now - ago for ago in (30, 20, 10)
    }
    world.advance(100)
    [(_, _, at)] = world.cluster.calls
    assert at == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize("before", [None, 2])
def test_limit_per_minute_that_a_policy_sets_or_raises_counts_what_went_before(before: int | None) -> None:
    world = evicting(*crowd(2), rule(), max_per_minute=before)
    assert len(world.settled()) == 2
    world.change_policy(structs.replace(FREE, max_per_minute=3))
    world.add(*[each for name in "abc" for each in (claim(name), pod(name))])
    assert len(world.after(59)) == 3
    assert len(world.after(2)) == 5


# --- pods that do not go away, or do not come up --------------------------------------------------


LIMITS = {
    "overall": structs.replace(FREE, overall=2),
    "perNamespace": structs.replace(FREE, per_namespace=2),
    "perOwnerUnavailable": structs.replace(FREE, per_owner_unavailable=2),
}


def stuck(profile: EvictionProfile, count: int = 10) -> World:
    """A Deployment on tainted devices, whose pods stay Terminating."""
    world = evicting(base=profile, lingering=True)
    world.add(*using(*[f"web-{number}" for number in range(count)], on="gpu-{}", make=owned), rule())
    return world


@pytest.mark.parametrize("limit", LIMITS)
def test_pod_stuck_in_terminating_stops_counting_against_limits(limit: str) -> None:
    world = stuck(LIMITS[limit])
    assert len(world.after(3600)) == 10


@pytest.mark.parametrize(
    ("limit", "why"), [("overall", "overall"), ("perNamespace", "namespace"), ("perOwnerUnavailable", "owner")]
)
def test_limit_that_holds_pods_back_is_told_and_counted(limit: str, why: str) -> None:
    """H4: in reason `Limited`, with the limit and the first of the pods, in an Event, and in `pods_waiting{why}`."""
    world = stuck(LIMITS[limit])
    world.advance(25)
    assert world.condition("rule")[:2] == ("True", "Evicting")
    world.advance(35)
    status, reason, message = world.condition("rule")
    assert (status, reason) == ("True", "Limited")
    assert limit in message
    assert "web-2" in message
    assert world.told("EvictionLimited") == ["rule"]
    assert world.sample("pods_waiting", why=why) == 8


def test_rule_that_is_limited_when_it_is_first_looked_at_has_not_been_for_long() -> None:
    """H4: a new leader knows pods that wait before it first looks at their rule."""
    world = stuck(LIMITS["overall"])
    status = world.worker.rules
    limited = Progress(pending=8, due=8, limited={"overall": [f"ml/web-{number}" for number in range(8)]})
    state = status._state_of(rule("new"))
    assert not status._stalled(state, limited, 0)
    world.advance(29)
    assert not status._stalled(state, limited, 0)
    world.advance(1)
    assert status._stalled(state, limited, 0)


def test_rule_that_was_idle_for_long_is_limited_only_after_the_same_time() -> None:
    """H4: what it waited for before it was to evict does not count."""
    world = stuck(LIMITS["overall"])
    idle = rule("other", effect="None", selector=DeviceSelector(device="other-0"))
    status = world.worker.rules
    limited = Progress(pending=1, due=1, limited={"overall": ["ml/other"]})
    world.advance(25)
    world.add(claim("other", devices=("other-0",)), pod("other"), idle)
    world.advance(120)
    known = world.inventory.rules["other"]
    world.edit(known, taint=taint(), generation=known.generation + 1)
    asyncio.run(status.sync("other"))
    assert not status._stalled(status._state_of(idle), limited, 0)
    world.advance(25)
    assert world.condition("other")[1] == "Evicting"
    world.advance(15)
    assert world.condition("other")[1] == "Limited"


def test_condition_names_the_owner_whose_replacement_does_not_come_up() -> None:
    world = stuck(EvictionProfile(), count=4)
    world.add(claim("new", devices=()), owned("new", node_name="", phase="Pending", ready=False))
    world.advance(3600)
    _, reason, message = world.condition("rule")
    assert reason == "Limited"
    assert "perOwnerUnavailable" in message
