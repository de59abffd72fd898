"""When a device gets a rule by a reaction, and when it loses it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.unit.patches.reacting import (
    DRIVER,
    GPU,
    KEY,
    MINUTES_5,
    NOW,
    Cluster,
    ago,
    make_reaction,
    make_signal,
    make_slice,
    stored,
    written,
)
from webhook.api.slices import SliceTaint
from webhook.patches.reactions import quiet_seconds
from webhook.patches.reasons import RETURNS_MAX, ReactionReason, ReasonId
from webhook.policy.limits import ReactionLevel, may_come_of_reactions, reaction_rule_name

if TYPE_CHECKING:
    from webhook.api.slices import ResourceSlice

SICK = make_slice({"gpu-0": (make_signal(),), "gpu-1": ()})
WELL = make_slice({"gpu-0": (), "gpu-1": ()})
XID = ReasonId("xid", KEY)


@pytest.mark.parametrize(
    ("seconds", "lasted"), [(MINUTES_5, True), (MINUTES_5 + 1, True), (MINUTES_5 - 1, False), (0, False)], ids=str
)
def test_taint_that_lasted_gives_its_device_a_rule(seconds: float, *, lasted: bool) -> None:
    cluster = Cluster(make_slice({"gpu-0": (make_signal(seconds),), "gpu-1": ()}))
    result = cluster.go()
    assert cluster.closed == ({"node-1/gpu-0"} if lasted else set())
    assert result.next_seconds == (None if lasted else MINUTES_5 - seconds)
    (outcome,) = result.outcomes
    assert (outcome.active, outcome.waiting, outcome.devices) == ((1, 0, 1) if lasted else (0, 1, 0))


def test_the_rule_says_why_and_selects_one_device() -> None:
    (rule,) = written(Cluster(SICK).look())
    assert rule.name == reaction_rule_name(GPU)
    assert (rule.selector.driver, rule.selector.pool, rule.selector.device) == (DRIVER, "node-1", "gpu-0")
    assert (rule.taint.key, rule.taint.value, rule.taint.effect) == ("devicetaint.io/degraded", "", "NoSchedule")
    assert rule.taint.time_added is None
    assert rule.annotations == {
        "devicetaint.io/reasons": (
            '{"device":"gpu.example.com/node-1/gpu-0","effect":"NoSchedule",'
            '"reasons":[{"reaction":"xid","key":"gpu.example.com/xid","since":"2026-06-01T11:55:00Z","value":"48"}]}'
        ),
        "devicetaint.io/description": "Degraded: xid (gpu.example.com/xid=48)",
    }


@pytest.mark.parametrize(
    ("fields", "level", "effect"),
    [
        ({}, ReactionLevel.CLOSE, "NoSchedule"),
        ({"evict": True}, ReactionLevel.EMPTY, "NoSchedule"),
        ({"effect": "NoExecute"}, ReactionLevel.EXECUTE, "NoExecute"),
    ],
    ids=str,
)
def test_the_rule_does_what_the_reaction_says(fields: dict[str, object], level: ReactionLevel, effect: str) -> None:
    reaction = make_reaction(**fields)
    (rule,) = written(Cluster(SICK, reactions=(reaction,)).look())
    assert (rule.level, rule.taint.effect) == (level, effect)
    assert rule.annotations.get("devicetaint.io/evict") == ("true" if level is ReactionLevel.EMPTY else None)
    assert may_come_of_reactions(stored(rule), [reaction])


@pytest.mark.parametrize("seconds", [None, 10.0**8, -(10.0**8)], ids=["none", "years ago", "in years"])
def test_a_taint_lasts_from_when_it_was_first_seen_whatever_its_time_says(seconds: float | None) -> None:
    cluster = Cluster(make_slice({"gpu-0": (make_signal(seconds),)}))
    cluster.restart()
    result = cluster.look()
    assert (result.rules, result.next_seconds, result.outcomes[0].waiting) == ((), MINUTES_5, 1)
    assert cluster.look(MINUTES_5 - 1).rules == ()
    (rule,) = cluster.look(MINUTES_5).rules
    assert rule.reasons == (ReactionReason(XID, "48", NOW),)


def test_a_taint_that_gets_another_time_at_each_publish_lasts_all_the_same() -> None:
    cluster = Cluster()
    for seconds in range(0, int(MINUTES_5) + 1, 60):
        cluster.publish(make_slice({"gpu-0": (make_signal(-seconds),)}))
        result = cluster.look(seconds)
    assert [rule.reasons for rule in result.rules] == [(ReactionReason(XID, "48", NOW),)]


def test_a_taint_that_was_gone_has_to_last_again() -> None:
    cluster = Cluster(make_slice({"gpu-0": (make_signal(200),)}))
    assert cluster.look().next_seconds == 100
    cluster.publish(WELL)
    assert cluster.look(10).next_seconds is None
    cluster.publish(back(20))
    assert cluster.look(20).next_seconds == MINUTES_5


@pytest.mark.parametrize(("slices", "left"), [(2, 90.0), (1, MINUTES_5)], ids=["in part", "in full"])
def test_a_taint_is_remembered_while_its_pool_is_published_again(slices: int, left: float) -> None:
    """A pool of several slices is replaced slice by slice, and its newest generation shows few devices at first."""
    old = make_slice({"gpu-0": (make_signal(200),)}, name="old", slices=slices)
    cluster = Cluster(old, make_slice({"gpu-1": ()}, name="other", slices=slices))
    assert cluster.look().next_seconds == 100
    cluster.publish(make_slice({"gpu-1": ()}, name="other", slices=slices, generation=2))
    if slices == 1:
        cluster.withdraw("old")
    cluster.look(5)
    cluster.publish(make_slice({"gpu-0": (make_signal(200),)}, name="old", slices=slices, generation=2))
    assert cluster.look(10).next_seconds == left


def test_another_process_keeps_the_rules_and_waits_for_what_has_none() -> None:
    cluster = Cluster(SICK)
    (kept,) = cluster.go().rules
    cluster.publish(make_slice({"gpu-0": (make_signal(),), "gpu-1": (make_signal(299),)}))
    cluster.restart()
    result = cluster.go()
    assert (result.rules, result.write, result.delete, result.next_seconds) == ((kept,), (), (), MINUTES_5)


def test_a_taint_without_a_time_does_not_hide_one_that_lasted() -> None:
    taints = (make_signal(None), make_signal(MINUTES_5, "", HEAT))
    for reactions in ((make_reaction(), HOT), (HOT, make_reaction())):
        result = Cluster(make_slice({"gpu-0": taints}), reactions=reactions).look()
        assert [rule.level for rule in written(result)] == [ReactionLevel.EMPTY]


@pytest.mark.parametrize(
    "taint",
    [
        make_signal(effect="NoSchedule"),
        make_signal(effect="NoExecute"),
        make_signal(effect="PreferNoSchedule"),
        make_signal(key="gpu.example.com/xid2"),
        make_signal(value="79"),
        make_signal(value="148"),
    ],
    ids=lambda taint: f"{taint.key}={taint.value}:{taint.effect}",
)
def test_other_taints_are_no_signals(taint: object) -> None:
    cluster = Cluster(make_slice({"gpu-0": (taint,)}), reactions=(make_reaction(value="4?"),))  # type: ignore[dict-item]
    assert cluster.look().rules == ()
    assert cluster.look().outcomes[0].waiting == 0


BESIDE = (SliceTaint("gpu-1", make_signal()), SliceTaint("gpu-9", make_signal()), SliceTaint("", make_signal()))
MATCHING = make_reaction(key="gpu.example.com/*", value="4?", signal_effect="NoSchedule", evict=True)


@pytest.mark.parametrize(
    ("slices", "closed"),
    [
        pytest.param([make_slice({"gpu-0": (make_signal(),)}, driver="other.example.com")], set(), id="another driver"),
        pytest.param(
            [make_slice({"gpu-0": (make_signal(),) if at % 2 else ()}, f"node-{at}") for at in range(4)],
            {"node-1/gpu-0", "node-3/gpu-0"},
            id="a pool without taints hides no other",
        ),
        pytest.param(
            [make_slice({"gpu-0": (), "gpu-1": ()}, beside=BESIDE)], {"node-1/gpu-1"}, id="beside: for its device only"
        ),
        pytest.param([SICK, make_slice({"gpu-0": ()}, generation=2, name="newer")], set(), id="the newest generation"),
        pytest.param([make_slice({"gpu-0": (make_signal(),)}, slices=2)], {"node-1/gpu-0"}, id="not there in full"),
        pytest.param([make_slice({"gpu-0": (make_signal(),)}, pool="", name="a")], set(), id="a pool without a name"),
        pytest.param([make_slice({"": (make_signal(),)})], set(), id="a device without a name: it would select more"),
    ],
)
def test_signals_close_the_devices_that_they_name(slices: list[ResourceSlice], closed: set[str]) -> None:
    assert Cluster.after(*slices).closed == closed


def test_patterns_select_keys_and_values() -> None:
    sick = make_slice({"gpu-0": (make_signal(effect="NoSchedule"),), "gpu-1": (make_signal(),)})
    assert Cluster.after(sick, reactions=(MATCHING,)).closed == {"node-1/gpu-0"}


def test_of_several_taints_of_one_key_the_one_that_was_seen_first_counts() -> None:
    taints = (make_signal(None, "1"), make_signal(10, "2"), make_signal(400, "4"), make_signal(400, "3"))
    for order in (taints, taints[::-1]):
        (rule,) = written(Cluster(make_slice({"gpu-0": order})).look())
        assert rule.reasons == (ReactionReason(XID, "3", ago(400)),)


def test_the_rule_goes_when_the_taint_has_been_gone_for_as_long() -> None:
    cluster = Cluster.after(SICK)
    result = cluster.go(10, WELL)
    assert result.next_seconds == MINUTES_5
    assert result.write[0].rule.reasons == (ReactionReason(XID, "48", ago(300), clear=NOW + timedelta(seconds=10)),)
    assert (result.outcomes[0].active, result.outcomes[0].quiet) == (0, 1)
    late = cluster.go(10 + MINUTES_5 - 1)
    assert (late.write, late.delete, late.next_seconds) == ((), (), 1.0)
    gone = cluster.go(10 + MINUTES_5)
    assert gone.delete == (result.write[0].rule.name,)
    assert gone.rules == ()
    assert gone.outcomes[0].devices == 1  # until it is seen to be gone
    assert cluster.look(10 + MINUTES_5).outcomes[0].devices == 0


def test_part_of_a_second_does_not_shorten_the_quiet_time() -> None:
    cluster = Cluster.after(SICK)
    assert cluster.go(10.25, WELL).next_seconds == MINUTES_5 + 0.75
    assert cluster.look(10.25 + MINUTES_5).delete == ()
    assert len(cluster.look(11 + MINUTES_5).delete) == 1


@pytest.mark.parametrize("slices", [1, 2], ids=["complete", "incomplete"])
def test_a_device_that_no_slice_of_its_pool_lists_has_no_rule(slices: int) -> None:
    cluster = Cluster.after(SICK)
    assert cluster.go(0, make_slice({"gpu-1": ()}, slices=slices)).delete
    assert cluster.closed == set()


def test_a_pool_that_is_gone_has_no_rules() -> None:
    cluster = Cluster.after(SICK)
    cluster.withdraw()
    assert len(cluster.go().delete) == 1
    assert cluster.closed == set()


@pytest.mark.parametrize(
    "left",
    [
        pytest.param([make_slice({"gpu-0": ()}, slices=2)], id="too few slices"),
        pytest.param(
            [WELL, make_slice({"gpu-0": ()}, generation=2, slices=2, name="newer")], id="a newer generation in part"
        ),
    ],
)
def test_a_pool_that_is_not_there_in_full_keeps_its_rules(left: list[ResourceSlice]) -> None:
    result = Cluster.after(SICK).go(10**6, *left)
    assert (result.write, result.delete, result.next_seconds) == ((), (), None)
    assert len(result.rules) == 1
    assert (result.outcomes[0].unpublished, result.outcomes[0].quiet) == (1, 0)


def test_quiet_time_begins_again_when_the_pool_is_back() -> None:
    cluster = Cluster.after(SICK)
    cluster.go(0, WELL)
    cluster.go(200, make_slice({"gpu-0": ()}, slices=2))
    assert cluster.go(400, WELL).delete == ()
    assert cluster.go(400 + MINUTES_5 - 1).delete == ()
    assert len(cluster.go(400 + MINUTES_5).delete) == 1


@pytest.mark.parametrize(
    ("for_seconds", "returns", "quiet"),
    [
        (0, 0, 60),
        (59, 0, 60),
        (61, 0, 61),
        (0, 1, 120),
        (0, 2, 240),
        (0, RETURNS_MAX, 3600),
        (300, 1, 600),
        (300, 3, 2400),
        (300, 4, 3600),
        (7200, 0, 7200),
        (7200, 3, 7200),
    ],
)
def test_quiet_time_grows_with_each_return_up_to_an_hour(for_seconds: float, returns: int, quiet: float) -> None:
    assert quiet_seconds(make_reaction(for_seconds=for_seconds), returns) == quiet


def test_no_return_that_is_counted_is_beyond_the_longest_quiet_time() -> None:
    assert quiet_seconds(make_reaction(for_seconds=0), RETURNS_MAX - 1) < 3600


def back(seconds: float) -> ResourceSlice:
    """The taint added again, so long after NOW."""
    return make_slice({"gpu-0": (make_signal(-seconds),), "gpu-1": ()})


def test_a_taint_that_returns_in_the_quiet_time_keeps_the_rule_and_doubles_it() -> None:
    cluster = Cluster.after(SICK)
    cluster.go(0, WELL)
    result = cluster.go(100, back(100))
    assert result.rules[0].reasons == (ReactionReason(XID, "48", NOW + timedelta(seconds=100), returns=1),)
    assert result.outcomes[0].active == 1
    cluster.go(200, WELL)
    assert cluster.go(200 + 2 * MINUTES_5 - 1).delete == ()
    assert len(cluster.go(200 + 2 * MINUTES_5).delete) == 1


@pytest.mark.parametrize(("added", "kept"), [(299, True), (300, False)])
def test_a_taint_that_returns_after_the_quiet_time_has_to_last_again(added: float, *, kept: bool) -> None:
    cluster = Cluster.after(SICK)
    cluster.go(0, WELL)
    cluster.go(added)
    result = cluster.go(added + 200, back(added))
    assert bool(result.rules) is kept
    assert (result.outcomes[0].active, result.outcomes[0].waiting) == ((1, 0) if kept else (0, 1))
    if not kept:
        assert result.next_seconds == 100.0
        assert cluster.go(added + MINUTES_5).rules != ()


def test_a_taint_that_returned_while_no_process_was_there_keeps_the_rule() -> None:
    cluster = Cluster.after(SICK)
    cluster.go(0, WELL)
    cluster.publish(back(4000))
    cluster.restart()
    assert cluster.go(5000).rules[0].reasons == (ReactionReason(XID, "48", NOW + timedelta(seconds=5000), returns=1),)


def test_returns_are_counted_up_to_a_bound() -> None:
    cluster = Cluster.after(SICK)
    for number in range(2 * RETURNS_MAX):
        cluster.go(10 * number, WELL)
        (rule,) = cluster.go(10 * number + 5, back(10 * number + 5)).rules
        assert rule.reasons[0].returns == min(number + 1, RETURNS_MAX)


def test_a_taint_that_is_there_without_a_time_keeps_its_rule() -> None:
    cluster = Cluster.after(SICK)
    result = cluster.go(10**6, make_slice({"gpu-0": (make_signal(None),)}))
    assert result.rules[0].reasons == (ReactionReason(XID, "48", ago(300)),)
    assert result.outcomes[0].waiting == 0
    cluster.go(0, WELL)
    assert cluster.go(100, make_slice({"gpu-0": (make_signal(None),)})).rules[0].reasons[0].returns == 1


def test_another_value_of_the_key_is_no_return() -> None:
    cluster = Cluster.after(SICK)
    assert cluster.go(0, make_slice({"gpu-0": (make_signal(1, "63"),)})).rules[0].reasons == (
        ReactionReason(XID, "63", ago(1)),
    )
    assert cluster.go().write == ()


def test_a_time_from_a_clock_that_runs_ahead_does_not_hold_a_rule_for_long() -> None:
    cluster = Cluster.after(SICK)
    cluster.go(10**6, WELL)
    assert cluster.go(0).next_seconds == MINUTES_5
    assert len(cluster.go(MINUTES_5).delete) == 1


HEAT = "gpu.example.com/heat"
HOT = make_reaction(name="heat", key=HEAT, evict=True)


def test_a_device_has_one_rule_with_all_its_reasons_and_does_the_most() -> None:
    both = make_slice({"gpu-0": (make_signal(), make_signal(600, "", HEAT))})
    for reactions in ((make_reaction(), HOT), (HOT, make_reaction())):
        cluster = Cluster(both, reactions=reactions)
        (rule,) = cluster.go().rules
        assert rule.level is ReactionLevel.EMPTY
        assert [each.id for each in rule.reasons] == [ReasonId("heat", HEAT), XID]
        assert rule.annotations["devicetaint.io/description"] == (
            "Degraded: heat (gpu.example.com/heat), xid (gpu.example.com/xid=48)"
        )
        assert [each.name for each in cluster.look().outcomes] == [each.name for each in reactions]


def test_the_rule_goes_with_the_last_reason_and_gets_milder_with_the_hardest() -> None:
    cluster = Cluster(
        make_slice({"gpu-0": (make_signal(), make_signal(600, "", HEAT))}), reactions=(make_reaction(), HOT)
    )
    cluster.go()
    assert cluster.go(0, SICK).rules[0].level is ReactionLevel.EMPTY
    (rule,) = cluster.go(MINUTES_5).rules
    assert (rule.level, [each.id for each in rule.reasons]) == (ReactionLevel.CLOSE, [XID])
    cluster.go(MINUTES_5, WELL)
    assert len(cluster.go(2 * MINUTES_5).delete) == 1


def test_a_second_reason_has_to_last_as_well() -> None:
    cluster = Cluster(
        make_slice({"gpu-0": (make_signal(), make_signal(100, "", HEAT))}), reactions=(make_reaction(), HOT)
    )
    result = cluster.go()
    assert result.rules[0].level is ReactionLevel.CLOSE
    assert result.next_seconds == 200.0
    assert cluster.go(200).rules[0].level is ReactionLevel.EMPTY


def test_the_next_pass_is_for_whatever_comes_first() -> None:
    waiting = (make_signal(100), make_signal(250, "", HEAT))
    assert Cluster(make_slice({"gpu-0": waiting}), reactions=(make_reaction(), HOT)).look().next_seconds == 50.0
    assert Cluster(make_slice({"gpu-0": waiting}), reactions=(HOT, make_reaction())).look().next_seconds == 50.0
