"""PodGroups in the cache of an inventory: optional, of several versions, and with members that use no device."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cluster.api_peer import ALL
from tests.unit.cluster.cache.following import waits_of
from tests.unit.cluster.cache.inventory_bench import (
    GROUPS,
    QUICK,
    RULES,
    a_claim,
    a_group,
    a_member,
    a_pod,
    a_slice,
    caching,
)
from tests.unit.cluster.peer import until
from webhook.cluster.settings import InventorySettings


@pytest.mark.parametrize(
    ("version", "mode"), [("v1beta1", {"all": {}}), ("v1alpha3", {"all": {}}), ("v1alpha2", "PodGroup")]
)
async def test_pod_groups_are_read_in_the_version_that_is_served(version: str, mode: Any) -> None:
    served = ALL | {version: frozenset({GROUPS})}
    async with caching(a_group("crew", version, mode), served=served, pods=True) as bench:
        await bench.cache.synced()
        await bench.settles()
        assert bench.cache.inventory.pod_groups["ml/crew"].disruption_mode == "all"
        await bench.happens(a_group("other", version, "Pod" if mode == "PodGroup" else {"single": {}}))
        await bench.happens(a_group("crew", version, mode), gone=True)
        await bench.settles()
        assert [group.disruption_mode for group in bench.cache.inventory.pod_groups.values()] == ["single"]


async def test_pod_groups_are_not_read_without_pods() -> None:
    async with caching(a_group("crew"), served=ALL | {"v1beta1": frozenset({GROUPS})}) as bench:
        await bench.cache.synced()
        await until(lambda: bench.cache.sight().inventory is not None, "that it knows")
        assert not bench.cache.inventory.pod_groups
        assert not [each.path for each in bench.peer.requests if "scheduling" in each.path]


async def test_members_without_claims_are_held_and_other_pods_are_not() -> None:
    served = ALL | {"v1beta1": frozenset({GROUPS})}
    async with caching(a_group("crew"), a_member("launcher", "crew"), served=served, pods=True) as bench:
        await bench.cache.synced()
        await bench.happens(a_pod("plain"))
        await bench.happens(a_member("late", "crew"))
        await bench.settles()
        assert bench.cache.inventory.members_of("ml/crew") == ("ml/late", "ml/launcher")
        assert set(bench.cache.inventory.pods) == {"ml/late", "ml/launcher"}
        await bench.happens(a_member("late", "crew"), gone=True)
        await bench.settles()


async def test_pod_groups_that_are_not_served_are_looked_for_more_rarely_than_rules(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert InventorySettings().pod_groups_seconds == 300.0
    caplog.set_level(logging.DEBUG, "webhook.cluster.cache.reflector")
    settings = InventorySettings(reflector=replace(QUICK, backoff_most_seconds=0.008), pod_groups_seconds=0.064)
    async with caching(a_slice(), served={"v1": ALL["v1"] - {RULES}}, pods=True, settings=settings) as bench:
        await bench.cache.synced()
        await until(lambda: max(waits_of(caplog, GROUPS), default=0) > 0.04, "that waits grow")
        await until(lambda: len(waits_of(caplog, RULES)) > 5, "that rules are looked for")
        assert max(waits_of(caplog, RULES)) < 0.008


BESIDE = InventorySettings(reflector=QUICK, slice_page_size=1, pods_needed=False)
OBJECTS = a_slice(), a_claim("c", "gpu-0", "p"), a_pod("p", "c"), a_group("crew")
SERVED = ALL | {"v1beta1": frozenset({GROUPS})}


async def test_inventory_is_current_while_pods_may_not_be_read() -> None:
    async with caching(*OBJECTS, served=SERVED, pods=True, settings=BESIDE) as bench:
        bench.peer.forbidden = frozenset({"pods", GROUPS})
        await until(lambda: bench.cache.sight().inventory is not None, "the inventory")
        await until(lambda: "no pods for you" in (bench.cache.pods_problem or ""), "the reason")
        assert not bench.cache.pods_current
        assert bench.cache.problem is None
        bench.peer.forbidden = frozenset({GROUPS})
        await until(lambda: set(bench.cache.inventory.pods) == {"ml/p"}, "the pods")
        await until(lambda: f"no {GROUPS} for you" in (bench.cache.pods_problem or ""), "the reason")
        assert not bench.cache.pods_current, "groups belong to the pods"
        bench.peer.forbidden = frozenset()
        await until(lambda: bench.cache.pods_current, "pods and groups")
        assert set(bench.cache.inventory.pod_groups) == {"ml/crew"}
        assert bench.cache.pods_problem is None


async def test_pods_that_are_needed_are_none_beside() -> None:
    async with caching(*OBJECTS, served=SERVED, pods=True) as bench:
        bench.peer.forbidden = frozenset({"pods"})
        await until(lambda: "no pods for you" in (bench.cache.problem or ""), "the reason")
        assert bench.cache.sight().inventory is None
        assert (bench.cache.pods_problem, bench.cache.pods_current) == (None, True)
