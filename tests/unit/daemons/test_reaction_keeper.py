"""The rules of reactions as a process keeps them: what it writes, when it looks again, and what it says."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from tests.unit.daemons.reacting_cluster import ReactingCluster, play
from tests.unit.patches.reacting import DRIVER, make_reaction
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.daemons import reaction_keeper
from webhook.inventory.targets import DeviceId
from webhook.patches.stored import StoredRule
from webhook.policy.limits import reaction_rule_name

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes follow each other without a pause."""
    monkeypatch.setattr(reaction_keeper, "PAUSE_SECONDS", 0.0)


def test_taint_that_has_lasted_becomes_a_rule_and_the_rule_goes_after_the_quiet_time() -> None:
    cluster = ReactingCluster(make_reaction())
    cluster.publish(since=300)

    def gone() -> None:
        assert cluster.closed == ["gpu-0"]
        assert cluster.number("reaction_reasons", reaction="xid", state="active") == 1
        cluster.publish(since=None)

    def quiet() -> None:
        assert cluster.closed == ["gpu-0"]
        cluster.later(299)

    def over() -> None:
        assert cluster.closed == ["gpu-0"]
        assert cluster.number("reaction_reasons", reaction="xid", state="quiet") == 1
        cluster.later(2)

    play(cluster, gone, quiet, over)
    assert cluster.closed == []
    assert cluster.tries == ["create gpu-0", "change gpu-0", "delete gpu-0"]
    for verb in ("create", "update", "delete"):
        assert cluster.number("patch_rule_writes_total", verb=verb, result="done") == 1


def test_it_looks_again_by_itself_when_a_taint_will_have_lasted() -> None:
    cluster = ReactingCluster(make_reaction(for_seconds=300.0))
    cluster.publish(since=299.9)

    def time_passes() -> None:
        assert cluster.tries == []
        cluster.now += timedelta(seconds=1)  # and nothing reports it
        cluster.seconds += 1.0

    play(cluster, time_passes)
    assert cluster.closed == ["gpu-0"]


def test_policy_decides_at_once() -> None:
    cluster = ReactingCluster()
    cluster.publish()
    play(
        cluster,
        lambda: cluster.policy(make_reaction(for_seconds=0)),
        lambda: _expect(cluster, "gpu-0"),
        lambda: cluster.policy(make_reaction(for_seconds=0, effect="NoExecute")),
        lambda: _expect(cluster, "gpu-0"),
        cluster.policy,
    )
    assert cluster.closed == []
    assert cluster.tries == ["create gpu-0", "change gpu-0", "delete gpu-0"]


def _expect(cluster: ReactingCluster, *devices: str) -> None:
    assert cluster.closed == list(devices)


def test_rules_stay_while_no_policy_is_loaded() -> None:
    """A broken policy is not one without reactions."""
    cluster = ReactingCluster(make_reaction())
    cluster.publish()

    def restarted() -> None:
        _expect(cluster, "gpu-0")
        cluster.reactions = None
        cluster.keeper.observe_policy()

    play(cluster, restarted, lambda: cluster.publish(since=None), lambda: cluster.later(4000))
    assert cluster.closed == ["gpu-0"]


@pytest.mark.parametrize("why", ["leads", "current"])
def test_process_that_may_not_write_writes_nothing_until_it_may(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaction_keeper, "_LOOK_SECONDS", 0.01)
    cluster = ReactingCluster(make_reaction())
    setattr(cluster, why, False)
    cluster.publish()

    def may() -> None:
        assert cluster.tries == []
        setattr(cluster, why, True)  # and nothing reports it

    play(cluster, may)
    assert cluster.closed == ["gpu-0"]


def test_lease_that_is_lost_ends_the_writes() -> None:
    cluster = ReactingCluster(make_reaction())
    cluster.publish(count=30)

    def lose(_: str) -> str:
        cluster.leads = False
        return ""

    cluster.refusing = lose
    play(cluster)
    assert len(cluster.tries) == 8


def test_above_max_devices_nothing_more_is_made_although_the_watch_lags_behind() -> None:
    cluster = ReactingCluster(make_reaction(max_devices=2))
    cluster.lags = True
    cluster.publish(count=3)
    play(cluster, cluster.keeper.wake, cluster.catch_up)
    assert cluster.closed == ["gpu-0", "gpu-1"]
    assert cluster.number("reaction_reasons", reaction="xid", state="held_back") == 1
    [(reason, note, warns)] = cluster.told
    assert (reason, warns) == ("AboveMaxDevices", True)
    assert note.startswith("reaction xid: 2 active, ")
    assert note.endswith("maxDevices is 2, so nothing is done for 1: node-1/gpu-2")


@pytest.mark.parametrize("finalizers", ["stay", "gone"])
def test_rule_that_finalizers_keep_counts_for_max_devices_until_it_is_gone(finalizers: str) -> None:
    cluster = ReactingCluster(make_reaction(max_devices=1))
    cluster.finalizers = finalizers
    cluster.publish()

    def other() -> None:
        cluster.publish("node-1", since=None)
        cluster.publish("node-2")

    play(cluster, other, lambda: cluster.later(1000), lambda: cluster.later(1000))
    assert ("delete gpu-0" in cluster.tries, len(cluster.rules)) == (True, 1)
    held_back = cluster.number("reaction_reasons", reaction="xid", state="held_back")
    assert held_back == (1 if finalizers == "stay" else 0)


def test_events_tell_only_of_changes() -> None:
    cluster = ReactingCluster(make_reaction(max_devices=1))
    cluster.publish(count=2)
    play(
        cluster,
        lambda: cluster.publish("node-2", 1),
        lambda: cluster.policy(make_reaction(max_devices=5)),
        lambda: cluster.publish("node-2", 2),
    )
    assert [(reason, warns) for reason, _, warns in cluster.told] == [
        ("AboveMaxDevices", True), ("WithinMaxDevices", False),
    ]  # fmt: skip
    assert cluster.told[1][1].startswith("reaction xid: 3 active")


def test_refused_rule_is_tried_soon_and_then_each_minute_and_said_once() -> None:
    cluster = ReactingCluster(make_reaction())
    cluster.refusing = lambda _: "denied: no"
    cluster.publish()
    tries: list[int] = []

    def after(seconds: float) -> Callable[[], None]:
        def scene() -> None:
            tries.append(len(cluster.tries))
            cluster.later(seconds)

        return scene

    waits = (0.9, 0.1, 1.9, 0.1, 4, 8, 16, 32, 59, 1, 59, 1)
    play(cluster, *map(after, waits), after(0))
    assert tries == [1, 1, 2, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9]
    assert cluster.number("patch_rule_writes_total", verb="create", result="refused") == 9
    assert cluster.number("reaction_rules_refused") == 1
    assert [(reason, warns) for reason, _, warns in cluster.told] == [("RuleRefused", True)]
    assert cluster.told[0][1].endswith("of a reaction was refused: denied: no")


def test_refusal_is_over_when_the_rule_is_accepted_and_another_policy_tries_at_once() -> None:
    cluster = ReactingCluster(make_reaction())
    cluster.refusing = lambda _: "denied: no"
    cluster.publish(count=2)

    def allow() -> None:
        assert cluster.number("reaction_rules_refused") == 2
        assert "(and 1 more)" in cluster.told[0][1]
        cluster.refusing = lambda _: ""
        cluster.policy(make_reaction())

    play(cluster, allow)
    assert cluster.closed == ["gpu-0", "gpu-1"]
    assert cluster.number("reaction_rules_refused") == 0


def test_refused_deletion_waits_as_well() -> None:
    cluster = ReactingCluster(make_reaction())
    cluster.publish()

    def refuse() -> None:
        cluster.refusing = lambda _: "denied: no"
        cluster.policy()

    play(cluster, refuse, cluster.keeper.wake, lambda: cluster.later(1))
    assert cluster.tries == ["create gpu-0", "delete gpu-0", "delete gpu-0"]


def test_rule_that_a_webhook_changes_each_time_is_not_written_without_end() -> None:
    cluster = ReactingCluster(make_reaction())
    cluster.mangles = True
    cluster.publish()
    play(cluster, lambda: cluster.later(1), lambda: cluster.later(1))
    assert cluster.tries == ["create gpu-0", "change gpu-0", "change gpu-0"][: len(cluster.tries)]
    assert len(cluster.tries) <= 3


def test_failures_of_all_writes_pause_and_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaction_keeper, "_FIRST_RETRY_SECONDS", 0.01)
    cluster = ReactingCluster(make_reaction())
    failures = iter(["503", "503"])
    cluster.failing = lambda _: next(failures, "")
    cluster.publish()
    play(cluster, lambda: cluster.later(1), lambda: cluster.later(2))
    assert cluster.closed == ["gpu-0"]
    assert cluster.number("patch_rule_writes_total", verb="create", result="failed") == 2
    assert cluster.number("reaction_rules_refused") == 0
    assert cluster.told == []


def test_rule_that_fails_keeps_no_other_waiting() -> None:
    cluster = ReactingCluster(make_reaction())
    cluster.publish(count=40)
    [first] = [name for name in _names() if "gpu-0-" in name]
    cluster.failing = lambda name: "409" if name == first else ""
    play(cluster)
    assert len(cluster.rules) == 39


def _names() -> list[str]:
    return [reaction_rule_name(DeviceId(DRIVER, "node-1", f"gpu-{at}")) for at in range(40)]


def test_rule_that_was_edited_or_deleted_is_put_back() -> None:
    cluster = ReactingCluster(make_reaction())
    cluster.publish()

    def edit() -> None:
        [(name, stored)] = cluster.rules.items()
        taint = structs.replace(stored.rule.taint, effect="None")
        meta = structs.replace(stored.rule.meta, resource_version=cluster._version())
        edited = structs.replace(stored, rule=structs.replace(stored.rule, taint=taint, meta=meta))
        cluster.rules[name] = edited
        cluster.seconds += 5
        cluster.seen(name, edited, stored)

    def delete() -> None:
        [(name, stored)] = cluster.rules.items()
        assert stored.rule.taint.effect == "NoSchedule"
        cluster.rules.clear()
        cluster.seconds += 5
        cluster.seen(name, None, stored)

    play(cluster, edit, delete)
    assert cluster.tries == ["create gpu-0", "change gpu-0", "create gpu-0"]


@pytest.mark.parametrize("last", ["create gpu-0", "change gpu-0"])
def test_rule_that_is_deleted_before_its_write_is_answered_is_made_again(last: str) -> None:
    """The watch shows the write and the deletion; the answer, which comes after both, says that there is a rule."""
    cluster = ReactingCluster(make_reaction())

    def delete(name: str) -> None:
        if cluster.tries[-1] == last and cluster.tries.count("create gpu-0") == 1:
            cluster.seen(name, None, cluster.rules.pop(name))

    def edit() -> None:
        [(name, stored)] = cluster.rules.items()
        meta = structs.replace(stored.meta, resource_version=cluster._version())
        edited = structs.replace(stored.rule, taint=structs.replace(stored.rule.taint, effect="None"), meta=meta)
        cluster.seconds += 5
        cluster.seen(name, structs.replace(stored, rule=edited), stored)

    cluster.after_write = delete
    cluster.publish()
    play(cluster, *([edit] if last == "change gpu-0" else []), lambda: cluster.later(10))
    assert cluster.tries == [*dict.fromkeys(["create gpu-0", last]), "create gpu-0"]
    assert cluster.closed == ["gpu-0"]


def test_rule_that_takes_the_name_of_one_that_was_deleted_is_known_although_the_answer_comes_later() -> None:
    cluster = ReactingCluster(make_reaction())

    def make_another(name: str) -> None:
        meta = ObjectMeta(name, uid="another", resource_version=cluster._version())
        cluster.seen(name, StoredRule(DeviceTaintRule(meta, None, DeviceTaint("k", "", "NoSchedule"))))

    cluster.after_delete = make_another
    cluster.publish()
    play(cluster, cluster.policy)
    [known] = cluster.controller.book.rules.values()
    assert known.meta.uid == "another"


def test_rules_of_others_are_no_reason_to_look() -> None:
    cluster = ReactingCluster()
    other = StoredRule(DeviceTaintRule(ObjectMeta("other"), None, DeviceTaint("k", "", "NoSchedule")))
    cluster.keeper.observe_rule(None, other)
    assert not cluster.keeper._loop.woken
