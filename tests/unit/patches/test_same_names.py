"""A patch and a rule with `/scope: hardware` that have one name, and want a rule of one name on the same device."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED, FakeCluster, part, play, scoped
from tests.unit.patches.patched import DRIVER, patch_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, DeviceSelector
from webhook.inventory.targets import numbered, rule_name
from webhook.patches.stored import StoredPatch

NAME: Final = rule_name("faulty", CLOSED, DeviceSelector(DRIVER, "p", "half-0"))


def add_patch(cluster: FakeCluster) -> None:
    meta = ObjectMeta("faulty", uid="uid-of-patch")
    cluster.patches["faulty"] = StoredPatch(structs.replace(patch_of("faulty"), meta=meta))
    cluster.patch("faulty", cel=["true"], taints=[structs.replace(CLOSED, value="y")])


def add_rule(cluster: FakeCluster) -> None:
    cluster.rule("faulty", scoped())


def labels(cluster: FakeCluster) -> dict[str, str]:
    """The label of each rule on the device that both want, by the rule's name."""
    return {
        name: next(iter(each.labels), "")
        for name, each in cluster.rules.items()
        if each.rule.selector == DeviceSelector(DRIVER, "p", "half-0")
    }


@pytest.mark.parametrize("first", ["patch", "rule"])
def test_neither_takes_the_rule_of_the_other(first: str) -> None:
    cluster = FakeCluster(ceiling=10)
    cluster.slices(slice_of(part("full"), part("half-0"), pool="p"))
    scenes = [lambda: add_patch(cluster), lambda: add_rule(cluster)]
    play(cluster, *(scenes if first == "patch" else scenes[::-1]), 60.0)
    kept, other = (PATCH_LABEL, HARDWARE_LABEL)[:: 1 if first == "patch" else -1]
    assert labels(cluster) == {NAME: kept, numbered(NAME, 2): other}
    assert [each for each in cluster.log if each.startswith("change ")] == []


def test_device_keeps_its_rule_when_the_other_owner_is_gone() -> None:
    cluster = FakeCluster(ceiling=10)
    cluster.slices(slice_of(part("full"), part("half-0"), pool="p"))
    gone = [lambda: add_patch(cluster), lambda: add_rule(cluster), lambda: cluster.drop_patch("faulty")]
    changed = slice_of(part("full"), part("half-0"), part("half-1"), pool="p")
    play(cluster, *gone, 60.0, lambda: cluster.slices(changed), 60.0)
    assert labels(cluster) == {NAME: HARDWARE_LABEL}
