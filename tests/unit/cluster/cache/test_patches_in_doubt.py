"""When what is known of slices, classes and patches is not to be acted on, or is out of date."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from webhook.api.meta import ObjectMeta
from webhook.api.patches import PatchedCapacity, ResourceSlicePatch
from webhook.cluster.cache.known_patches import PatchCache, PatchesInForce
from webhook.patches.patching import by_precedence


@pytest.mark.parametrize(
    ("kind", "waits"),
    [("slices", True), ("classes", True), ("patches", False), ("rules", False)],
)
def test_slices_and_classes_that_are_not_served_are_waited_for(kind: str, *, waits: bool) -> None:
    """Their rules would be deleted: another API server of the same cluster may serve them."""
    cluster: Any = SimpleNamespace()
    cache = PatchCache(cluster, random=lambda: 0.0)
    for each in (cache.slices, cache.classes, cache.patches, cache.rules):
        each.synced.set()
        each._gap.end()
        each.unserved, each._unserved_at = each is getattr(cache, kind), 0.0
    assert (f"{getattr(cache, kind).resource} are not served" in (cache.problem or "")) == waits


def patch(memory: str) -> ResourceSlicePatch:
    return ResourceSlicePatch(
        ObjectMeta("p", uid="u", resource_version=memory[0]), None, capacity=(PatchedCapacity("d/memory", memory),)
    )


def test_change_while_patches_are_put_together_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    names: Any = SimpleNamespace(
        class_reflector=SimpleNamespace(subscribe=lambda _: None, doubt=lambda _: "", problem=lambda _: ""),
        selectors={},
    )
    cluster: Any = SimpleNamespace()
    force = PatchesInForce(cluster, names, random=lambda: 0.0)
    monkeypatch.setattr(force, "_doubt", lambda: "")
    store = force.reflector._store
    store.upsert(patch("1Gi"))
    place = "webhook.patches.slice_patches.by_precedence"

    def changed_meanwhile(patches: Any) -> Any:
        monkeypatch.setattr(place, by_precedence)
        store.upsert(patch("2Gi"))
        return by_precedence(patches)

    monkeypatch.setattr(place, changed_meanwhile)
    assert force.for_slices().patches == (patch("1Gi"),)
    assert force.for_slices().patches == (patch("2Gi"),)
    assert force.for_slices() is force.for_slices()
