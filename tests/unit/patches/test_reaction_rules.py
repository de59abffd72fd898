"""The rules of reactions as they are stored: what the policy no longer wants, what was edited, what others have."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.unit.patches.reacting import (
    GPU,
    NOW,
    Cluster,
    make_reaction,
    make_signal,
    make_slice,
    softened,
    stored,
    written,
)
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint, TaintExtras
from webhook.patches.reactions import react
from webhook.patches.reasons import noted_on
from webhook.policy.reactions import REACTION_KEY, ReactionLevel

SICK = make_slice({"gpu-0": (make_signal(),), "gpu-1": ()})
WELL = make_slice({"gpu-0": (), "gpu-1": ()})
HEAT = "gpu.example.com/heat"


# --- the policy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reactions",
    [
        pytest.param((), id="none"),
        pytest.param((make_reaction(name="other", for_seconds=10**6),), id="another name"),
        pytest.param((make_reaction(driver="other.example.com"),), id="another driver"),
        pytest.param((make_reaction(key=HEAT),), id="another key"),
        pytest.param((make_reaction(value="63"),), id="another value"),
    ],
)
@pytest.mark.parametrize("published", [True, False])
def test_a_reaction_that_the_policy_no_longer_has_ends_at_once(reactions: tuple[()], published: bool) -> None:  # noqa: FBT001
    cluster = Cluster(SICK)
    cluster.go()
    if not published:
        cluster.withdraw()
    cluster.reactions = reactions
    result = cluster.go()
    assert (len(result.delete), result.rules) == (1, ())
    assert cluster.rules == {}


def test_a_reaction_of_another_name_takes_the_rule_over_without_a_gap() -> None:
    cluster = Cluster(SICK)
    cluster.go()
    cluster.reactions = (make_reaction(name="other"),)
    result = cluster.go()
    assert result.delete == ()
    assert [each.id.reaction for each in result.rules[0].reasons] == ["other"]


def test_a_reaction_that_does_more_or_less_changes_its_rules() -> None:
    cluster = Cluster(SICK)
    for fields, level in (({"evict": True}, ReactionLevel.EMPTY), ({}, ReactionLevel.CLOSE)):
        cluster.reactions = (make_reaction(**fields),)
        assert cluster.go().rules[0].level is level
        assert cluster.look().write == ()


# --- rules as they are stored ---------------------------------------------------------------------


def test_what_is_as_it_should_be_is_not_written_again() -> None:
    cluster = Cluster(SICK)
    cluster.go()
    result = cluster.go(10**6)
    assert (result.write, result.delete) == ((), ())
    assert len(result.rules) == 1


def test_a_softened_rule_is_what_it_should_be() -> None:
    cluster = Cluster(SICK, reactions=(make_reaction(effect="NoExecute"),))
    (rule,) = written(cluster.look())
    cluster.rules[rule.name] = softened(rule)
    assert cluster.look().write == ()
    cluster.rules[rule.name] = structs.replace(stored(rule), taint=structs.replace(rule.taint, effect="NoSchedule"))
    assert written(cluster.look()) == (rule,)


@pytest.mark.parametrize("what", ["selector", "key", "value", "effect", "annotation", "no annotation"])
def test_a_rule_that_was_edited_is_written_again(what: str) -> None:
    cluster = Cluster(SICK)
    (rule,) = written(cluster.go())
    kept = stored(rule)
    edited = {
        "selector": structs.replace(kept, selector=structs.replace(rule.selector, device=None)),
        "key": structs.replace(kept, taint=structs.replace(rule.taint, key="a")),
        "value": structs.replace(kept, taint=structs.replace(rule.taint, value="a")),
        "effect": structs.replace(kept, taint=structs.replace(rule.taint, effect="None")),
        "annotation": structs.replace(
            kept, meta=structs.replace(kept.meta, annotations={"devicetaint.io/reasons": "{}"})
        ),
        "no annotation": structs.replace(kept, meta=structs.replace(kept.meta, annotations={})),
    }
    cluster.rules[rule.name] = edited[what]
    assert written(cluster.look()) == (rule,)


def test_a_rule_whose_selector_was_widened_still_goes() -> None:
    cluster = Cluster(SICK)
    (rule,) = written(cluster.go())
    cluster.rules[rule.name] = structs.replace(stored(rule), selector=None)
    cluster.reactions = ()
    assert cluster.look().delete == (rule.name,)


def annotated(rule: DeviceTaintRule, **annotations: str) -> DeviceTaintRule:
    added = {f"devicetaint.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    meta = structs.replace(rule.meta, annotations={**rule.meta.annotations, **added})
    return structs.replace(rule, meta=meta)


SOFT = {"evict": "true", "softened_from": "NoExecute"}


@pytest.mark.parametrize(
    ("fields", "annotations", "needed"),
    [
        ({}, {}, False),
        ({}, {"evict": "true"}, True),
        ({}, {"evict": "false"}, True),
        ({}, SOFT, True),
        ({}, {"owner": "me"}, False),
        ({"evict": True}, {}, False),
        ({"evict": True}, {"softened_from": "NoExecute"}, False),
        ({"evict": True}, {"evict": "false"}, True),
        ({"effect": "NoExecute"}, {}, False),
        ({"effect": "NoExecute"}, {"evict": "true"}, True),
    ],
    ids=str,
)
def test_what_evicts_is_as_the_reaction_says(fields: Any, annotations: Any, needed: object) -> None:
    cluster = Cluster(SICK, reactions=(make_reaction(**fields),))
    (rule,) = written(cluster.go())
    cluster.rules[rule.name] = annotated(cluster.rules[rule.name], **annotations)
    result = cluster.look()
    assert bool(result.write) is needed
    if needed:
        (write,) = result.write
        assert (write.rule, write.creates) == (rule, False)
        assert write.surplus is ("evict" not in fields)


def test_a_softened_rule_that_is_to_do_less_has_a_surplus() -> None:
    cluster = Cluster(SICK, reactions=(make_reaction(effect="NoExecute"),))
    (rule,) = written(cluster.look())
    cluster.rules[rule.name] = softened(rule)
    cluster.publish(make_slice({"gpu-0": (make_signal(value="63"),)}))
    assert [write.surplus for write in cluster.look().write] == [False]
    cluster.reactions = (make_reaction(),)
    assert [write.surplus for write in cluster.look().write] == [True]


@pytest.mark.parametrize(
    ("edited", "surplus"),
    [
        ({"selector": None}, False),
        ({"selector": DeviceSelector(GPU.driver)}, False),
        ({"selector": DeviceSelector(*GPU, device_class_name="gpu")}, True),
        ({"selector": DeviceSelector(*GPU, unknown=(("all", "true"),))}, True),
        ({"taint": DeviceTaint(REACTION_KEY, "v", "NoSchedule")}, True),
        ({"taint": DeviceTaint("k", "", "None")}, False),
    ],
    ids=str,
)
def test_what_apply_would_leave_alone_is_a_surplus(edited: Any, surplus: object) -> None:
    cluster = Cluster(SICK)
    (rule,) = written(cluster.go())
    cluster.rules[rule.name] = structs.replace(cluster.rules[rule.name], **edited)
    (write,) = cluster.look().write
    assert write.surplus is surplus


def test_time_of_a_taint_stays() -> None:
    cluster = Cluster(SICK)
    (write,) = cluster.go(0.5).write
    assert (write.creates, write.surplus, write.taint) == (
        True,
        False,
        structs.replace(write.rule.taint, time_added=NOW),
    )
    cluster.reactions = (make_reaction(evict=True),)
    (write,) = cluster.look(100).write
    assert (write.creates, write.taint.time_added) == (False, NOW)
    kept = cluster.rules[write.rule.name]
    cluster.rules[write.rule.name] = structs.replace(kept, taint=structs.replace(kept.taint, time_added=None))
    (write,) = cluster.look(100).write
    assert write.taint.time_added == NOW + timedelta(seconds=100)


def test_data_that_was_added_to_a_taint_is_no_reason_to_write() -> None:
    """Released servers have no such fields."""
    cluster = Cluster(SICK)
    (write,) = cluster.go().write
    taint = structs.replace(write.taint, extras=TaintExtras(data=1))
    cluster.rules[write.rule.name] = structs.replace(cluster.rules[write.rule.name], taint=taint)
    assert cluster.look().write == ()


def test_what_creates_is_written_first() -> None:
    cluster = Cluster(
        make_slice({"gpu-0": (make_signal(),), "gpu-1": (make_signal(100),), "gpu-2": (make_signal(100),)})
    )
    cluster.go()
    cluster.reactions = (make_reaction(evict=True),)
    writes = cluster.look(200).write
    assert [write.creates for write in writes] == [True, True, False]
    assert [write.rule.name for write in writes[:2]] == sorted(write.rule.name for write in writes[:2])


def test_a_rule_that_is_being_deleted_is_left_alone_and_counts() -> None:
    cluster = Cluster(SICK, reactions=(make_reaction(evict=True, max_devices=1),))
    (rule,) = written(cluster.go())
    cluster.rules[rule.name] = structs.replace(cluster.rules[rule.name], deleting=True)
    cluster.publish(make_slice({"gpu-0": (make_signal(),), "gpu-1": (make_signal(),)}))
    result = cluster.look()
    assert (result.write, result.delete) == ((), ())
    assert (result.outcomes[0].held_back, result.outcomes[0].devices) == (1, 1)
    cluster.reactions = ()
    assert cluster.look().delete == ()
    cluster.rules.clear()
    assert cluster.look().rules == ()


def test_rules_of_others_are_no_business_of_reactions() -> None:
    cluster = Cluster(SICK)
    (rule,) = written(cluster.go())
    kept = cluster.rules.pop(rule.name)
    copy = structs.replace(kept, meta=structs.replace(kept.meta, name="copy"))
    plain = structs.replace(kept, meta=structs.replace(kept.meta, name="plain", annotations={}))
    cluster.rules = {"copy": copy, "plain": plain}
    result = cluster.look()
    assert written(result) == (rule,)
    assert result.outcomes[0].devices == 1
    cluster.reactions = ()
    assert cluster.look().delete == ()


def test_a_rule_whose_reasons_cannot_be_read_stays_while_its_pool_is_not_published() -> None:
    cluster = Cluster(SICK)
    (rule,) = written(cluster.go())
    kept = cluster.rules[rule.name]
    annotations = {"devicetaint.io/reasons": "?"}
    cluster.rules[rule.name] = structs.replace(kept, meta=structs.replace(kept.meta, annotations=annotations))
    assert written(cluster.look()) == (rule,)
    cluster.withdraw()
    result = cluster.look()
    assert (result.write, result.delete, result.rules) == ((), (), ())
    assert result.outcomes[0].devices == 1
    cluster.publish(WELL)
    assert cluster.look().delete == (rule.name,)


def test_a_check_is_called_and_may_stop_the_pass() -> None:
    class Stop(Exception):  # noqa: N818 -- it is no error
        pass

    def stop() -> None:
        raise Stop

    cluster = Cluster(SICK)
    with pytest.raises(Stop):
        react(cluster.pools, (), cluster.reactions, NOW, stop)


@pytest.mark.parametrize(("pools", "calls"), [(0, 0), (10, 1), (11, 2)])
def test_a_check_is_called_between_pools(pools: int, calls: int) -> None:
    called: list[None] = []
    cluster = Cluster(*[make_slice({"gpu-0": ()}, pool=f"node-{number}") for number in range(pools)])
    react(cluster.pools, (), cluster.reactions, NOW, lambda: called.append(None))
    assert len(called) == calls


def test_noted_rule_is_the_one_that_was_written() -> None:
    (rule,) = written(Cluster(SICK).look())
    assert noted_on(stored(rule)) == rule
    assert rule.address == GPU
