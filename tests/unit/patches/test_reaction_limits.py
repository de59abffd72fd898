"""`maxDevices`: how many devices reactions may touch, and what is said of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.patches.reacting import DRIVER, KEY, MINUTES_5, Cluster, make_reaction, make_signal, make_slice
from webhook.patches.reactions import NAMED_MAX
from webhook.policy.limits import ReactionLevel
from webhook.policy.model import Share

if TYPE_CHECKING:
    from webhook.api.slices import ResourceSlice
    from webhook.policy.model import Reaction

HEAT = "gpu.example.com/heat"


def row(*seconds: float | None, wells: int = 0, key: str = KEY) -> ResourceSlice:
    """Devices whose taints were added so long ago, and some without; None: no taint either."""
    devices = {
        f"gpu-{number}": () if each is None else (make_signal(each, key=key),) for number, each in enumerate(seconds)
    }
    return make_slice(devices | {f"well-{number}": () for number in range(wells)})


def limited(limit: int | Share, name: str = "xid", **fields: object) -> Reaction:
    return make_reaction(name=name, max_devices=limit, **fields)


def test_those_whose_taints_lasted_longest_come_first() -> None:
    cluster = Cluster(row(400, 600, 500, 600), reactions=(limited(3),))
    result = cluster.go()
    assert cluster.closed == {"node-1/gpu-1", "node-1/gpu-3", "node-1/gpu-2"}
    (outcome,) = result.outcomes
    assert (outcome.active, outcome.held_back, outcome.devices, outcome.limit) == (3, 1, 3, 3)
    assert outcome.reason == "AboveMaxDevices"
    assert outcome.message == (
        "3 active, 0 quiet, 0 waiting, 0 not published; 3 devices of gpu.example.com have rules of reactions; "
        "maxDevices is 3, so nothing is done for 1: node-1/gpu-0"
    )


def test_of_taints_that_lasted_as_long_the_names_decide() -> None:
    sick = make_slice({f"gpu-{number}": (make_signal(),) for number in (2, 0, 1)})
    cluster = Cluster.after(sick, reactions=(limited(1),))
    assert cluster.closed == {"node-1/gpu-0"}


def test_what_is_left_over_is_done_when_there_is_room_again() -> None:
    cluster = Cluster.after(row(600, 500), reactions=(limited(1),))
    assert cluster.go().write == ()
    cluster.go(0, row(None, 500))
    gone = cluster.go(MINUTES_5)
    assert (len(gone.delete), gone.write) == (1, ())  # the first is there until it is seen to be gone
    assert len(cluster.go(MINUTES_5).write) == 1
    assert cluster.closed == {"node-1/gpu-1"}


@pytest.mark.parametrize(("wells", "closed"), [(17, 0), (18, 1), (37, 1), (38, 2)])
def test_a_share_is_of_the_devices_of_the_driver_and_rounded_down(wells: int, closed: int) -> None:
    other = make_slice({f"other-{number}": () for number in range(100)}, driver="other.example.com")
    cluster = Cluster(row(600, 500, wells=wells), other, reactions=(limited(Share(5.0)),))
    result = cluster.go()
    assert len(cluster.closed) == closed
    assert result.outcomes[0].limit == closed
    if closed < 2:
        assert (
            f"maxDevices is 5%, which is {closed}, so nothing is done for {2 - closed}: " in result.outcomes[0].message
        )


def test_without_a_limit_nothing_is_held_back() -> None:
    cluster = Cluster(row(*[600.0] * 20))
    (outcome,) = cluster.go().outcomes
    assert len(cluster.closed) == 20
    assert (outcome.limit, outcome.held_back, outcome.reason) == (None, 0, "WithinMaxDevices")
    assert outcome.message == (
        "20 active, 0 quiet, 0 waiting, 0 not published; 20 devices of gpu.example.com have rules of reactions"
    )


def test_rules_of_other_reactions_count() -> None:
    sick = make_slice(
        {"gpu-0": (make_signal(900),), "gpu-1": (make_signal(800),), "gpu-2": (make_signal(700, "", HEAT),)}
    )
    heat = limited(2, "heat", key=HEAT)
    cluster = Cluster(sick, reactions=(make_reaction(), heat))
    result = cluster.go()
    assert cluster.closed == {"node-1/gpu-0", "node-1/gpu-1"}
    assert [outcome.held_back for outcome in result.outcomes] == [0, 1]
    assert [outcome.devices for outcome in result.outcomes] == [2, 2]


def test_a_limit_that_is_lowered_takes_nothing_back() -> None:
    cluster = Cluster.after(row(600, 500), reactions=(limited(2),))
    cluster.reactions = (limited(1),)
    result = cluster.go()
    assert (result.write, result.delete) == ((), ())
    assert result.outcomes[0].held_back == 0


def test_rules_of_pools_that_are_not_published_in_full_count() -> None:
    cluster = Cluster.after(row(600), reactions=(limited(1),))
    cluster.publish(make_slice({"gpu-0": ()}, slices=2))
    (outcome,) = cluster.go(0, make_slice({"gpu-0": (make_signal(),)}, pool="node-2")).outcomes
    assert (outcome.held_back, outcome.unpublished, outcome.devices) == (1, 1, 1)
    assert cluster.closed == {"node-1/gpu-0"}


def test_rule_for_a_device_that_no_slice_shows_takes_no_place() -> None:
    cluster = Cluster.after(row(600), reactions=(limited(1),))
    cluster.withdraw()
    result = cluster.go(0, make_slice({"gpu-0": (make_signal(),)}, pool="node-2"))
    assert (len(result.delete), result.outcomes[0].held_back) == (1, 0)
    assert cluster.closed == {"node-2/gpu-0"}


BOTH = make_slice({"gpu-0": (make_signal(900), make_signal(600, "", HEAT)), "gpu-1": (make_signal(800),)})


@pytest.mark.parametrize(("limit", "level"), [(1, ReactionLevel.CLOSE), (2, ReactionLevel.EMPTY)])
def test_a_reaction_above_its_limit_tightens_no_rule(limit: int, level: ReactionLevel) -> None:
    cluster = Cluster.after(BOTH, reactions=(make_reaction(),))
    cluster.reactions = (make_reaction(), limited(limit, "heat", key=HEAT, evict=True))
    cluster.go()
    result = cluster.go(MINUTES_5)
    (rule,) = (rule for rule in result.rules if rule.address.device == "gpu-0")
    assert rule.level is level
    held = level is ReactionLevel.CLOSE
    assert result.outcomes[1].held_back == held
    assert {each.id.reaction for each in rule.reasons} == ({"xid"} if held else {"xid", "heat"})


def test_a_reason_that_tightens_nothing_needs_no_room() -> None:
    cluster = Cluster.after(BOTH, reactions=(make_reaction(evict=True),))
    cluster.reactions = (make_reaction(evict=True), limited(1, "heat", key=HEAT, evict=True))
    cluster.go()
    result = cluster.go(MINUTES_5)
    assert result.outcomes[1].held_back == 0
    assert result.outcomes[1].active == 1


def test_a_new_reason_has_room_only_for_what_the_others_still_do() -> None:
    """The hard reason ends in the pass in which another hard one is due, above its limit."""
    hard, late = make_reaction(evict=True), limited(1, "heat", key=HEAT, evict=True, for_seconds=1200)
    cluster = Cluster.after(BOTH, reactions=(hard, late))
    cluster.go(0, make_slice({"gpu-0": (make_signal(600, "", HEAT),), "gpu-1": (make_signal(800),)}))
    result = cluster.go(600)
    assert len(result.delete) == 1
    assert result.outcomes[1].held_back == 1


def test_a_policy_that_asks_for_more_is_limited_as_well() -> None:
    cluster = Cluster.after(row(600, 500), reactions=(limited(2),))
    cluster.reactions = (limited(1, evict=True),)
    result = cluster.go()
    assert (result.write, result.delete) == ((), ())
    assert {rule.level for rule in result.rules} == {ReactionLevel.CLOSE}
    assert (result.outcomes[0].held_back, result.outcomes[0].active) == (2, 2)
    cluster.reactions = (limited(2, evict=True),)
    assert {rule.level for rule in cluster.go().rules} == {ReactionLevel.EMPTY}


def test_a_rule_does_no_less_than_before_while_more_is_forbidden() -> None:
    """One reason is noted for more than the other asks for, and the policy now asks even more of it."""
    mild, hard = make_reaction(), make_reaction(name="heat", key=HEAT, evict=True)
    cluster = Cluster.after(BOTH, reactions=(mild, hard))
    cluster.reactions = (mild, limited(1, "heat", key=HEAT, effect="NoExecute"))
    assert cluster.go().write == ()


@pytest.mark.parametrize("more", [0, 1])
def test_devices_are_named_up_to_a_number(more: int) -> None:
    cluster = Cluster(row(*[600.0] * (1 + NAMED_MAX + more)), reactions=(limited(1),))
    message = cluster.go().outcomes[0].message
    assert message.count("node-1/") == NAMED_MAX == 10
    assert message.endswith(" and 1 more") is bool(more)


def test_share_reads_as_it_is_written() -> None:
    cluster = Cluster(row(600), reactions=(limited(Share(2.5)),))
    assert "maxDevices is 2.5%, which is 0, so nothing is done for 1: " in cluster.go().outcomes[0].message


def test_a_reaction_without_anything_to_do_says_so() -> None:
    (outcome,) = Cluster().look().outcomes
    assert (outcome.name, outcome.driver) == ("xid", DRIVER)
    assert (outcome.active, outcome.quiet, outcome.unpublished, outcome.waiting, outcome.held_back) == (0,) * 5
    assert (outcome.devices, outcome.limit) == (0, None)
