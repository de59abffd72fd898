"""The controller of patches and `/scope: hardware`: the rules of siblings come, and go with what they are for."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.patches.fake_cluster import FakeCluster, gpu, made, part, play, scoped
from tests.unit.patches.patched import DRIVER, slice_of
from webhook.api.rules import DATA, HARDWARE_LABEL
from webhook.patches.stored import RuleOwner


def partitioned() -> FakeCluster:
    cluster = FakeCluster()
    cluster.slices(slice_of(part("full"), part("half-0"), part("half-1"), gpu("other"), pool="p"))
    return cluster


def test_hardware_scope_adds_rules_for_the_siblings() -> None:
    cluster = partitioned()
    cluster.rule("faulty", scoped(**{DATA: "{}"}))
    play(cluster)
    added = [each for name, each in cluster.rules.items() if name != "faulty"]
    assert sorted(str(each.rule.selector and each.rule.selector.device) for each in added) == ["half-0", "half-1"]
    for each in added:
        assert each.rule.taint == scoped().taint
        assert each.labels == {HARDWARE_LABEL: "uid-faulty"}
        assert each.controller == RuleOwner("DeviceTaintRule", "faulty", "uid-faulty")
        assert dict(each.meta.annotations) == {DATA: "{}"}


@pytest.mark.parametrize("how", ["annotation", "rule", "device", "effect", "deleting"])
def test_they_go_with_what_they_are_for(how: str) -> None:
    cluster = partitioned()
    cluster.rule("faulty", scoped())

    def end() -> None:
        assert len(cluster.rules) == 3
        match how:
            case "annotation":
                meta = structs.replace(cluster.rules["faulty"].meta, annotations={})
                cluster.edit("faulty", meta=meta)
            case "rule":
                cluster.drop_rule("faulty")
            case "effect":
                cluster.edit("faulty", taint=structs.replace(scoped().taint, effect="None"))
            case "deleting":
                cluster.edit("faulty", deleting=True)
            case _:
                renewed = slice_of(part("full"), gpu("other"), pool="p", generation=2, name=f"{DRIVER}-p-1")
                cluster.slices(renewed)

    play(cluster, end)
    assert set(cluster.rules) <= {"faulty"}


def test_more_siblings_than_the_ceiling_are_an_event() -> None:
    cluster = FakeCluster(ceiling=1)
    cluster.slices(slice_of(part("full"), part("half-0"), part("half-1"), pool="p"))
    cluster.rule("faulty", scoped())
    play(cluster, lambda: cluster.edit("faulty", generation=2))
    assert set(cluster.rules) == {"faulty"}
    [(name, reason, text)] = cluster.events
    assert (name, reason) == ("faulty", "TooManyRules Expand")
    assert text == "/scope: hardware needs 2 DeviceTaintRules, more than the 1 allowed"


def test_rules_of_the_controller_never_expand_again() -> None:
    cluster = partitioned()
    sibling = made(scoped(), RuleOwner("DeviceTaintRule", "gone", "uid-gone"))
    cluster.rule(sibling.meta.name, sibling.rule, labels=sibling.labels, controller=sibling.controller)
    play(cluster)
    assert not cluster.rules, "it belongs to a rule that is gone"
