"""The controller of patches: rules of patches that were softened, or are no longer."""

from __future__ import annotations

from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED, FakeCluster, gpu, play
from tests.unit.patches.patched import DRIVER, slice_of
from webhook.api.patches import SOFTENED_KEYS
from webhook.api.rules import EVICT


def test_rules_follow_the_softening_of_their_patch() -> None:
    """Its taint is the same before and after."""
    cluster = FakeCluster()
    cluster.slices(slice_of(gpu("a"), pool="p"))
    cluster.patch("one", driver=DRIVER, taints=[CLOSED])
    seen: list[bool] = []

    def soften(keys: str) -> None:
        stored = cluster.patches["one"]
        annotations = {SOFTENED_KEYS: keys} if keys else {}
        meta = structs.replace(stored.meta, resource_version="90", annotations=annotations)
        patch = structs.replace(stored.patch, meta=meta)
        cluster.controller.observe_patch("one", structs.replace(stored, patch=patch))

    def look() -> None:
        seen.append(all(each.meta.annotations.get(EVICT) == "true" for each in cluster.rules.values()))

    play(cluster, look, lambda: soften(CLOSED.key), look, lambda: soften(""), look)
    assert seen == [False, True, False]
