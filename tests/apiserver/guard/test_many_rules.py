"""Five hundred rules of one pod each do what one large rule may not: at most the limit, replica by replica."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.apiserver.guard import crowd
from tests.apiserver.guard.crowd import COUNT, make_rule
from tests.apiserver.guard.replicas import Replicas
from tests.apiserver.objects import RULES, SLICES, slice_of
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.client import Reply
from tests.controlplane.processes import wait_until
from tests.controlplane.webhook_process import WebhookProcess

LIMIT: Final = 50
"""Pods, by the built-in policy."""
FEWER: Final = LIMIT * 4
"""More than three replicas let through at their worst."""
_REVIEWS: Final = re.compile(r'reviews_total\{[^}]*path="([^"]+)"[^}]*resource="devicetaintrules"[^}]*\} (\S+)')


def _send(stage: Stage, number: int) -> Reply:
    return stage.client.create(RULES, make_rule(number))


def _stored(stage: Stage) -> int:
    return len(stage.client.get(RULES).items)


def _judged(webhook: WebhookProcess) -> float:
    return sum(float(value) for where, value in _REVIEWS.findall(webhook.metrics()) if "validate" in where)


def _only_for_the_window(replies: list[Reply]) -> bool:
    return all("with all other taints of the last 10 min" in reply.message for reply in replies if not reply.ok)


@pytest.mark.whole
def test_rules_sent_in_parallel_hit_at_most_the_limit_of_each_replica(stage: Stage, replicas: Replicas) -> None:
    before = [_judged(each) for each in replicas.all]
    replies = stage.client.each(lambda number: _send(stage, number), range(COUNT), threads=24)
    admitted = sum(reply.ok for reply in replies)
    answered = [_judged(each) - number for each, number in zip(replicas.all, before, strict=True)]
    print(f"\n{admitted} of {COUNT} rules admitted in parallel; reviews by replica: {answered}")
    assert admitted == _stored(stage)
    assert LIMIT <= admitted <= LIMIT * len(replicas.all)
    assert _only_for_the_window(replies)
    assert min(answered) > 0  # else this would be a test of fewer replicas


@pytest.mark.whole
def test_rules_sent_one_after_the_other_hit_at_most_the_limit(stage: Stage, replicas: Replicas) -> None:
    """By one of them, as long as the API server keeps its connection; each that takes over may know a little less."""
    before = [_judged(each) for each in replicas.all]
    replies = [_send(stage, number) for number in range(COUNT)]
    by = sum(_judged(each) > number for each, number in zip(replicas.all, before, strict=True))
    admitted = sum(reply.ok for reply in replies)
    print(f"\n{admitted} of {COUNT} rules admitted by {by} replicas")
    assert admitted == _stored(stage)
    assert LIMIT <= admitted <= LIMIT * by
    assert [reply.ok for reply in replies[:LIMIT]] == [True] * LIMIT
    assert _only_for_the_window(replies)
    assert len(replicas.all) == 3


@pytest.mark.whole
def test_rules_of_one_instant_are_all_stored_where_the_policy_softens(stage: Stage, replicas: Replicas) -> None:
    """What /mutate of one replica leaves as NoExecute, /validate of another does not refuse."""
    _use(stage, replicas, {"pods": LIMIT, "action": "soften"})
    replies = stage.client.each(lambda number: _send(stage, number), range(COUNT), threads=24)
    effects = [reply.object["spec"]["taint"]["effect"] for reply in replies]
    left = effects.count("NoExecute")
    print(f"\n{left} of {COUNT} rules left as they are, and the others softened")
    assert left + effects.count("NoSchedule") == _stored(stage) == COUNT
    assert LIMIT <= left <= LIMIT * len(replicas.all)
    change = {"spec": {"taint": {"effect": "NoExecute"}}}
    again = stage.client.each(lambda at: stage.client.patch(f"{RULES}/empty-{at}", change), range(COUNT), threads=24)
    assert [reply.object["spec"] for reply in again] == [reply.object["spec"] for reply in replies]


@pytest.mark.whole
def test_replica_reckons_with_what_others_let_through(stage: Stage, replicas: Replicas) -> None:
    """It sees their rules, once they are stored."""
    for number in range(LIMIT):
        assert _send(stage, number).ok
    for webhook in replicas.all:
        stage.webhook = webhook
        wait_until(lambda: not stage.ask(make_rule(COUNT - 1))["allowed"], "the replica has seen the rules")


@pytest.fixture
def occupied_again(stage: Stage) -> Iterator[None]:
    yield
    taken = {claim["metadata"]["name"] for claim in stage.client.get(crowd.CLAIMS).items}
    for number in range(COUNT):
        if crowd.node(number) not in taken:
            crowd.occupy(stage.client, number)


@pytest.mark.usefixtures("occupied_again")
@pytest.mark.whole
def test_pods_that_are_gone_when_the_next_rule_comes_still_count(stage: Stage, replicas: Replicas) -> None:
    """An eviction takes a second, and then neither pod nor claim is there to be counted."""
    admitted = 0
    for number in range(FEWER):
        if _send(stage, number).ok:
            admitted += 1
            crowd.vacate(stage.client, number)
    assert admitted == COUNT - len(stage.client.get(crowd.CLAIMS).items)
    assert LIMIT <= admitted <= LIMIT * len(replicas.all)


@pytest.mark.usefixtures("occupied_again")
@pytest.mark.whole
def test_rules_one_after_the_other_hit_the_limit_once_however_many_replicas(stage: Stage, replicas: Replicas) -> None:
    """R7: each rule was seen by all replicas before its pod went, and is deleted before the next rule comes."""
    emptied = 0
    for number in range(FEWER):
        replicas.balancer.cut()  # so that each rule is answered by another replica than the one before
        if _send(stage, number).ok:
            emptied += 1
            _wait_shown(replicas, 1)
            crowd.vacate(stage.client, number)
            _ = stage.client.delete(f"{RULES}/empty-{number}").object
            _wait_shown(replicas, 0)
    print(f"\n{emptied} pods gone, by {len(replicas.all)} replicas")
    assert emptied == COUNT - len(stage.client.get(crowd.CLAIMS).items) == LIMIT
    for webhook in replicas.all:
        stage.webhook = webhook
        assert not stage.ask(make_rule(COUNT - 1))["allowed"]


@pytest.mark.whole
def test_devices_that_are_closed_without_eviction_stay_within_the_limit(stage: Stage, replicas: Replicas) -> None:
    """A4: NoSchedule on one device after the other."""
    _use(stage, replicas, {"devices": 10})
    admitted = 0
    for number in range(30):
        if stage.client.create(RULES, make_rule(number, effect="NoSchedule")).ok:
            admitted += 1
            _wait_shown(replicas, admitted)
    assert admitted == 10


def _use(stage: Stage, replicas: Replicas, limits: dict[str, object]) -> None:
    for webhook in replicas.all:
        stage.webhook = webhook
        stage.use(make_policy(impact={"limits": [limits]}))


@pytest.mark.whole
def test_wide_rule_that_is_deleted_does_not_let_others_close_its_devices_in_pieces(
    stage: Stage, replicas: Replicas
) -> None:
    """F8: what it closed is used up, and nothing keeps those devices closed any more."""
    _use(stage, replicas, {"devices": None})
    _ = stage.client.create(RULES, make_rule(None, "wide", effect="NoSchedule")).object
    _wait_shown(replicas, 1)
    _use(stage, replicas, {"devices": 10})
    assert stage.client.create(RULES, make_rule(0, effect="NoSchedule")).ok  # the wide rule keeps the device closed
    crowd.delete_rules(stage.client)
    _wait_shown(replicas, 0)
    replies = [stage.client.create(RULES, make_rule(number, effect="NoSchedule")) for number in range(20)]
    assert [reply.code for reply in replies] == [403] * 20
    assert f"it hits {COUNT} devices, and the limit is 10 devices" in replies[0].message


@pytest.fixture
def little_driver(stage: Stage) -> Iterator[str]:
    """Ten devices in a pool of their own."""
    name = "little.example.com"
    little = slice_of(name, "little", *[f"d-{number}" for number in range(10)])
    _ = stage.client.create(SLICES, little).object
    yield name
    _ = stage.client.delete(f"{SLICES}/little").object


@pytest.mark.whole
def test_large_driver_makes_no_room_for_all_devices_of_a_little_one(
    stage: Stage, little_driver: str, replicas: Replicas
) -> None:
    """F13: the rule names the pool alone, and all its devices are two per cent of all there are.

    A pool that is younger than the window adds nothing to a share, which then allows one device.
    """
    _use(stage, replicas, {"devices": "5%"})
    rule = make_rule(None, "little", effect="NoSchedule")
    rule["spec"]["deviceSelector"] = {"pool": "little"}
    refused = stage.client.create(RULES, rule)
    assert refused.code == 403
    assert f"hits 10 devices in 1 pool: the limit is 1 device of driver {little_driver};" in refused.message
    _use(stage, replicas, {"devices": 5})
    for number in range(10):
        rule["metadata"]["name"] = f"little-{number}"
        rule["spec"]["deviceSelector"] = {"pool": "little", "device": f"d-{number}"}
        if not stage.client.create(RULES, rule).ok:
            break
        _wait_shown(replicas, number + 1)
    assert number == 5


def _wait_shown(replicas: Replicas, rules: int) -> None:
    """Until the watch of every replica has shown that many rules."""
    line = f'inventory_objects{{resource="devicetaintrules"}} {rules}.0'
    for webhook in replicas.all:
        wait_until(lambda: line in webhook.metrics(), f"{rules} rules are known")  # noqa: B023 -- waited for


@pytest.mark.usefixtures("occupied_again")
@pytest.mark.whole
def test_rule_that_moves_from_node_to_node_hits_at_most_the_limit(stage: Stage, replicas: Replicas) -> None:
    """As often as it likes with the time of the move, so that no grace is used up."""
    assert _send(stage, 0).ok
    crowd.vacate(stage.client, 0)
    emptied = 1
    for number in range(1, FEWER):
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 -- as the server's clock has it
        spec = make_rule(number)["spec"]
        moved = {"spec": {**spec, "taint": {**spec["taint"], "timeAdded": now}}}
        if stage.client.patch(f"{RULES}/empty-0", moved).ok:
            emptied += 1
            crowd.vacate(stage.client, number)
    assert LIMIT <= emptied <= LIMIT * len(replicas.all)


@pytest.mark.whole
def test_rule_that_is_deleted_and_made_again_hits_at_most_the_limit(stage: Stage, replicas: Replicas) -> None:
    admitted = 0
    for number in range(FEWER):
        if stage.client.create(RULES, make_rule(number, "again")).ok:
            admitted += 1
            _ = stage.client.delete(f"{RULES}/again").object
    assert LIMIT <= admitted <= LIMIT * len(replicas.all)


@pytest.mark.whole
def test_rules_that_are_set_back_are_all_refused(stage: Stage, replicas: Replicas) -> None:
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 -- as above

    def send(number: int) -> Reply:
        rule = make_rule(number)
        rule["spec"]["taint"]["timeAdded"] = long_ago
        return stage.client.create(RULES, rule)

    replies = stage.client.each(send, range(COUNT), threads=24)
    assert [reply.code for reply in replies] == [403] * COUNT
    assert all(f"timeAdded {long_ago} is past" in reply.message for reply in replies)
    assert (_stored(stage), len(replicas.all)) == (0, 3)


def test_rule_that_lay_in_wait_is_refused_when_it_is_moved(stage: Stage) -> None:
    """A rule on nobody, of a time when nobody guarded: its time is past wherever it goes."""
    waiting = make_rule(None, "waiting")
    waiting["spec"]["deviceSelector"] = {"driver": "nobody.example.com"}
    waiting["spec"]["taint"]["timeAdded"] = "2026-01-01T00:00:00Z"
    assert stage.client.create(RULES, waiting).ok
    with Replicas(stage, 1):
        patch = {"spec": {"deviceSelector": make_rule(7)["spec"]["deviceSelector"]}}
        reply = stage.client.patch(f"{RULES}/waiting", patch)
    assert reply.code == 403, reply
    assert "timeAdded 2026-01-01T00:00:00Z is past" in reply.message
