"""Pods that an inventory has, and does without if need be: `serve --watch-pods`."""

from __future__ import annotations

from tests.unit.cluster.api_peer import ALL
from tests.unit.cluster.cache.inventory_bench import GROUPS, QUICK, a_claim, a_group, a_pod, a_slice, caching
from tests.unit.cluster.peer import until
from webhook.cluster.settings import InventorySettings

BESIDE = InventorySettings(reflector=QUICK, slice_page_size=1, pods_needed=False)
OBJECTS = a_slice(), a_claim("c", "gpu-0", "p"), a_pod("p", "c"), a_group("crew")
SERVED = ALL | {"v1beta1": frozenset({GROUPS})}


async def test_inventory_is_current_while_pods_may_not_be_read() -> None:
    async with caching(*OBJECTS, served=SERVED, pods=True, settings=BESIDE) as bench:
        bench.peer.forbidden = frozenset({"pods"})
        await until(lambda: bench.cache.sight().inventory is not None, "the inventory")
        await until(lambda: "no pods for you" in (bench.cache.pods_problem or ""), "the reason")
        assert not bench.cache.pods_current
        assert bench.cache.problem is None
        bench.peer.forbidden = frozenset({GROUPS})
        await until(lambda: set(bench.cache.inventory.pods) == {"ml/p"}, "the pods")
        bench.peer.forbidden = frozenset()
        await until(lambda: bench.cache.pods_current, "pods and groups")
        assert set(bench.cache.inventory.pod_groups) == {"ml/crew"}
        assert bench.cache.pods_problem is None


async def test_pod_groups_belong_to_the_pods() -> None:
    async with caching(*OBJECTS, served=SERVED, pods=True, settings=BESIDE) as bench:
        bench.peer.forbidden = frozenset({GROUPS})
        await until(lambda: set(bench.cache.inventory.pods) == {"ml/p"}, "the pods")
        await until(lambda: f"no {GROUPS} for you" in (bench.cache.pods_problem or ""), "the reason")
        assert not bench.cache.pods_current


async def test_pods_that_are_needed_are_none_beside() -> None:
    async with caching(*OBJECTS, served=SERVED, pods=True) as bench:
        bench.peer.forbidden = frozenset({"pods"})
        await until(lambda: "no pods for you" in (bench.cache.problem or ""), "the reason")
        assert bench.cache.sight().inventory is None
        assert (bench.cache.pods_problem, bench.cache.pods_current) == (None, True)
