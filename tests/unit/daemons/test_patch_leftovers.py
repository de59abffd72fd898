"""What must not be left of a patch: rules of a taint that it has no more, devices that another patch has lost."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED, FakeCluster, gpu, play
from tests.unit.patches.patched import DRIVER, class_of, slice_of
from webhook.api.taints import DeviceTaint

OLD = DeviceTaint("example.com/drain", "", "NoExecute")
NEW = DeviceTaint("example.com/watch", "", "NoSchedule")
BIG = 'device.attributes["gpu.example.com"].memory > 40'


def cluster_of_two() -> FakeCluster:
    cluster = FakeCluster()
    cluster.slices(slice_of(gpu("a"), gpu("b", 20), pool="p"))
    return cluster


def taints_in(cluster: FakeCluster) -> list[tuple[str, str]]:
    return sorted((each.rule.taint.key, each.rule.taint.effect) for each in cluster.rules.values())


@pytest.mark.parametrize(("effect", "stays"), [("NoExecute", False), ("NoSchedule", True)])
def test_rule_that_evicts_for_a_taint_that_is_gone_is_deleted_though_another_is_refused(
    effect: str, *, stays: bool
) -> None:
    cluster, old = cluster_of_two(), structs.replace(OLD, effect=effect)
    cluster.refuses = lambda write: "denied by policy keys" if write.taint.key == NEW.key else ""
    cluster.patch("one", driver=DRIVER, pool="p", taints=[old])
    play(cluster, lambda: cluster.patch("one", driver=DRIVER, pool="p", taints=[NEW]), 60.0)
    assert taints_in(cluster) == ([(OLD.key, effect)] if stays else [])
    assert cluster.conditions("one")["Expanded"][1] == "RuleRefused"


def test_device_stays_closed_while_another_effect_of_its_taint_is_refused() -> None:
    cluster = cluster_of_two()
    cluster.refuses = lambda write: "not that effect" if write.taint.effect == NEW.effect else ""
    cluster.patch("one", driver=DRIVER, pool="p", taints=[OLD])
    play(
        cluster,
        lambda: cluster.patch("one", driver=DRIVER, pool="p", taints=[structs.replace(OLD, effect="NoSchedule")]),
        60.0,
    )
    assert taints_in(cluster) == [(OLD.key, OLD.effect)]


def test_rule_of_a_taint_that_stays_is_kept_while_what_takes_its_place_is_refused() -> None:
    cluster = cluster_of_two()
    cluster.patch("one", driver=DRIVER, pool="p", taints=[OLD])

    def narrowed() -> None:
        cluster.refuses = lambda write: "no device by name" if write.selector.device else ""
        cluster.patch("one", driver=DRIVER, pool="p", device="a", taints=[OLD])

    play(cluster, narrowed, 60.0)
    assert taints_in(cluster) == [(OLD.key, OLD.effect)]


def test_patch_gets_its_devices_back_once_the_stronger_one_and_its_class_are_gone_together() -> None:
    cluster = cluster_of_two()
    cluster.classes(class_of("big", BIG))
    stronger, weaker = structs.replace(CLOSED, value="strong"), structs.replace(CLOSED, value="weak")
    cluster.patch("strong", device_class_name="big", priority=10, taints=[stronger])
    cluster.patch("weak", driver=DRIVER, pool="p", taints=[weaker])

    def both_go() -> None:
        cluster.controller.observe_class("big", None)
        cluster.drop_patch("strong")

    play(cluster, both_go)
    status = cluster.patches["weak"].status
    assert (status.selected_devices, status.tainted_devices) == (2, 2)


def test_rules_are_as_they_should_be_again_after_etcd_was_restored() -> None:
    """Versions go back with it."""
    cluster = cluster_of_two()
    cluster.patch("one", driver=DRIVER, pool="p", taints=[CLOSED])
    backup = []

    def is_edited() -> None:
        [name] = cluster.rules
        cluster.edit(name, taint=structs.replace(cluster.rules[name].rule.taint, effect="None"))
        backup.append(cluster.rules[name])

    def is_restored() -> None:
        [old], name = backup, backup[0].meta.name
        assert cluster.rules[name].rule.taint.effect == CLOSED.effect
        cluster.rules[name] = old
        cluster._seen = old.meta.resource_version
        cluster.controller.observe_rule(name, old)

    play(cluster, is_edited, is_restored, 60.0)
    assert taints_in(cluster) == [(CLOSED.key, CLOSED.effect)]


def test_status_counts_the_devices_of_the_rules_that_are_there() -> None:
    cluster = FakeCluster(ceiling=2)
    cluster.slices(slice_of(gpu("a"), gpu("b"), gpu("c", 20), pool="p"))
    cluster.refuses = lambda write: "no" if write.selector.device == "b" else ""
    cluster.patch("one", cel=[BIG], taints=[CLOSED])
    play(cluster, 1.0)
    status = cluster.patches["one"].status
    assert (status.rules, status.tainted_devices, cluster.conditions("one")["Expanded"][1]) == (1, 1, "RuleRefused")


def test_device_stays_closed_while_the_rule_that_takes_its_place_cannot_be_written() -> None:
    cluster = cluster_of_two()
    cluster.fails = lambda write: "503" if write.taint.key == NEW.key else ""
    cluster.patch("one", driver=DRIVER, pool="p", taints=[OLD])
    play(cluster, lambda: cluster.patch("one", driver=DRIVER, pool="p", taints=[NEW]), 60.0)
    assert taints_in(cluster) == [(OLD.key, OLD.effect)]
    assert cluster.conditions("one")["Expanded"][1] == "WriteFailed"
