"""The rules of reactions as they are stored: what the policy no longer wants, what was edited, what others have."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.unit.patches.reacting import (
    DRIVER,
    GPU,
    KEY,
    NOW,
    Cluster,
    make_reaction,
    make_signal,
    make_slice,
    softened,
    stored,
    written,
)
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint, TaintExtras
from webhook.inventory.targets import DeviceId
from webhook.patches.reasons import ReactionReason, ReactionRule, ReasonId
from webhook.policy.limits import REACTION_KEY, ReactionLevel, reaction_rule_name

SICK = make_slice({"gpu-0": (make_signal(),), "gpu-1": ()})
WELL = make_slice({"gpu-0": (), "gpu-1": ()})
HEAT = "gpu.example.com/heat"


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
def test_a_reaction_that_the_policy_no_longer_has_ends_at_once(reactions: tuple[()], *, published: bool) -> None:
    cluster = Cluster.after(SICK)
    if not published:
        cluster.withdraw()
    cluster.reactions = reactions
    result = cluster.go()
    assert (len(result.delete), result.rules) == (1, ())
    assert cluster.rules == {}


def test_a_reaction_of_another_name_takes_the_rule_over_without_a_gap() -> None:
    cluster = Cluster.after(SICK)
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


def test_what_is_as_it_should_be_is_not_written_again() -> None:
    cluster = Cluster.after(SICK)
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
    assert [(write.surplus, write.foreign) for write in cluster.look().write] == [(True, False)]


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


def test_a_rule_that_is_being_deleted_is_left_alone_and_its_device_counts_once() -> None:
    """A finalizer may keep it for ever, so another name takes its place."""
    cluster = Cluster(SICK, reactions=(make_reaction(evict=True, max_devices=1),))
    (rule,) = written(cluster.go())
    cluster.rules[rule.name] = structs.replace(cluster.rules[rule.name], deleting=True)
    result = cluster.go(0, make_slice({"gpu-0": (make_signal(),), "gpu-1": (make_signal(301),)}))
    (write,) = result.write
    assert (write.rule.name, write.creates, result.delete) == (f"{rule.name}-2", True, ())
    assert (write.rule.reasons, write.rule.level) == (rule.reasons, rule.level)
    assert (result.outcomes[0].held_back, result.outcomes[0].devices) == (1, 1)
    assert (cluster.look().write, cluster.look().delete) == ((), ())
    del cluster.rules[rule.name]
    assert (cluster.look().write, cluster.look().delete) == ((), ()), "it keeps its name"
    cluster.reactions = ()
    assert cluster.go().delete == (write.rule.name,)
    assert cluster.look().rules == ()


def test_of_two_rules_of_a_device_one_goes() -> None:
    cluster = Cluster(SICK)
    (rule,) = written(cluster.go())
    second = structs.replace(rule, number=2)
    cluster.rules[second.name] = stored(second)
    result = cluster.go()
    assert (result.delete, result.rules) == ((second.name,), (rule,))
    assert result.outcomes[0].devices == 1


def forged(number: int = 0, pool: str = "node-1", reaction: str = "xid", *, reasons: bool = True) -> DeviceTaintRule:
    """What an author may write who is only trusted with effect None: the name and the notes of a reaction's rule."""
    at = DeviceId(DRIVER, pool, f"gpu-{number}")
    reason = ReactionReason(ReasonId(reaction, KEY), "48", NOW, returns=6)
    real = ReactionRule(at, ReactionLevel.EXECUTE, (reason,) if reasons else ())
    meta = ObjectMeta(reaction_rule_name(at), annotations=dict(real.annotations))
    return DeviceTaintRule(meta, DeviceSelector("nobody.example.com"), DeviceTaint("mallory.example.com/x", "", "None"))


def test_notes_on_rules_of_other_authors_close_no_device() -> None:
    cluster = Cluster(
        make_slice({f"gpu-{number}": () for number in range(9)}), reactions=(make_reaction(evict=True, max_devices=1),)
    )
    cluster.rules = {rule.meta.name: rule for rule in map(forged, range(9))}
    result = cluster.go()
    assert (result.write, result.rules, result.outcomes[0].devices) == ((), (), 0)
    assert cluster.rules == {}, "what pretends to be a rule of a reaction goes"


def test_rules_of_other_authors_take_no_place_of_real_ones() -> None:
    for rule in (forged(7), forged(pool="nowhere"), forged(pool="nowhere", reasons=False)):
        for deleting in (False, True):
            cluster = Cluster(SICK, reactions=(make_reaction(max_devices=1),))
            cluster.rules = {rule.meta.name: structs.replace(rule, deleting=deleting)}
            assert written(cluster.go()) == written(Cluster(SICK, reactions=cluster.reactions).look())


def test_rule_that_has_the_name_of_a_real_one_is_taken_over_or_worked_around() -> None:
    squatter = annotated(forged(), not_before="2099-01-01T00:00:00Z", expires_at="2026-01-01T00:00:00Z", owner="me")
    (wanted,) = written(Cluster(SICK).look())
    for rule in (squatter, structs.replace(squatter, meta=structs.replace(squatter.meta, annotations={}))):
        cluster = Cluster(SICK)
        cluster.rules = {rule.meta.name: rule}
        (write,) = cluster.look().write
        assert (write.rule, write.creates, write.taint.time_added) == (wanted, False, NOW)
        assert write.foreign, "its finalizers and owners go as well"
        assert {"devicetaint.io/not-before", "devicetaint.io/expires-at"} & rule.meta.annotations.keys() <= set(
            write.retired
        )
        cluster.rules = {rule.meta.name: structs.replace(rule, deleting=True)}
        (write,) = cluster.look().write
        assert (write.rule, write.creates) == (structs.replace(wanted, number=2), True)


@pytest.mark.parametrize("there", [True, False], ids=["taint", "no taint"])
def test_notes_on_a_real_rule_make_it_no_harder_than_the_taint_that_is_there(*, there: bool) -> None:
    """Who may change a rule could name a reaction that evicts."""
    cluster = Cluster(SICK, reactions=(make_reaction(), make_reaction(name="heat", key=HEAT, evict=True)))
    (rule,) = written(cluster.go())
    claimed = structs.replace(rule, reasons=(ReactionReason(ReasonId("heat", HEAT), "", NOW), *rule.reasons))
    cluster.rules[rule.name] = stored(claimed)
    young = (make_signal(10, "", HEAT),) if there else ()
    result = cluster.go(0, make_slice({"gpu-0": (make_signal(), *young), "gpu-1": ()}))
    assert [each.level for each in result.rules] == [ReactionLevel.CLOSE]
    assert result.next_seconds == (290.0 if there else 300.0)
    assert [each.level for each in cluster.go(290).rules] == [ReactionLevel.EMPTY if there else ReactionLevel.CLOSE]


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


def test_a_rule_whose_reasons_cannot_be_read_stays_while_its_pool_is_not_complete() -> None:
    cluster = Cluster(SICK)
    (rule,) = written(cluster.go())
    kept = cluster.rules[rule.name]
    annotations = {"devicetaint.io/reasons": "?"}
    cluster.rules[rule.name] = structs.replace(kept, meta=structs.replace(kept.meta, annotations=annotations))
    assert written(cluster.look()) == (rule,)
    cluster.publish(make_slice({"gpu-0": ()}, slices=2))
    result = cluster.look()
    assert (result.write, result.delete, result.rules) == ((), (), ())
    assert result.outcomes[0].devices == 1
    cluster.publish(WELL)
    assert cluster.look().delete == (rule.name,)
