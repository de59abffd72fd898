"""The plan of an owner: a patch, a rule with siblings, or one that is gone."""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED
from tests.unit.patches.patched import DRIVER, patch_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, DeviceTaintRule
from webhook.cluster.cache.known_patches import OwnedRuleWire, PatchWire
from webhook.patches.stored import PatchStatus, RuleOwner, StoredPatch, StoredRule

PATCH: Final = StoredPatch(
    structs.replace(patch_of("one", driver=DRIVER, taints=[CLOSED]), meta=ObjectMeta("one", uid="u"))
)


def manifest(**fields: Any) -> dict[str, Any]:
    return {"name": "one", "uid": "u", "resourceVersion": "7", **fields}


def test_patch_that_is_new_has_no_status() -> None:
    found = PatchWire(manifest(creationTimestamp="2026-01-01T00:00:00Z"), {"devices": {"priority": 3}}).to_value()
    assert (found.generation, found.deleting, found.status) == (0, False, PatchStatus(0, 0, 0, 0, ()))
    assert (found.patch.priority, found.meta.uid, found.owner) == (3, "u", RuleOwner("ResourceSlicePatch", "one", "u"))
    assert found.patch.created is not None
    assert structs.replace(found, patch=PATCH.patch) == PATCH


def test_patch_with_a_status() -> None:
    status = {"observedGeneration": 4, "selectedDevices": 3, "taintedDevices": 2, "rules": 1, "patchedDevices": 5}
    conditions = [{"type": "Expanded", "status": "True", "reason": "Expanded", "message": "m"}]
    found = PatchWire(
        manifest(generation=5, deletionTimestamp="2026-01-01T00:00:00Z"), {}, {**status, "conditions": conditions}
    ).to_value()
    assert (found.generation, found.deleting) == (5, True)
    assert structs.replace(found.status, conditions=()) == PatchStatus(4, 3, 2, 1, (), 5)
    assert [each.type for each in found.status.conditions] == ["Expanded"]


def test_rule_has_the_labels_and_the_owner_that_count() -> None:
    labels = {PATCH_LABEL: "u", "other": "x", HARDWARE_LABEL: 7}
    owners = [{"kind": "Node", "name": "n", "uid": "x"}, {"kind": "K", "name": "k", "uid": "w", "controller": True}]
    found = OwnedRuleWire(manifest(labels=labels, ownerReferences=owners), {"taint": {"key": "k"}}).to_value()
    assert found.labels == {PATCH_LABEL: "u"}
    assert found.controller == RuleOwner("K", "k", "w")
    assert found.owner_uids == (), "its controller is another one"
    assert found.owner == RuleOwner("DeviceTaintRule", "one", "u")
    meta, taint = ObjectMeta("one", uid="u", resource_version="7"), structs.replace(CLOSED, key="", effect="")
    assert OwnedRuleWire(manifest()).to_value() == StoredRule(DeviceTaintRule(meta, None, taint))
