"""The plan of an owner: a patch, a rule with siblings, or one that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from tests.unit.patches.fake_cluster import CLOSED, NOW, made, part, scoped
from tests.unit.patches.indexed import index_of
from tests.unit.patches.patched import DRIVER, patch_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, DeviceSelector, DeviceTaintRule
from webhook.cluster.cache.known_patches import OwnedRuleWire, PatchWire
from webhook.patches.book import OwnerPlan, RuleBook, plan_of
from webhook.patches.stored import PatchStatus, RuleOwner, StoredPatch, StoredRule

if TYPE_CHECKING:
    from webhook.patches.index import PatchIndex

PATCH: Final = StoredPatch(
    structs.replace(patch_of("one", driver=DRIVER, taints=[CLOSED]), meta=ObjectMeta("one", uid="u"))
)


def world(*patches: StoredPatch) -> tuple[RuleBook, PatchIndex]:
    book = RuleBook()
    for each in patches:
        book.put_patch(each.meta.name, each)
    index = index_of(
        [slice_of(part("full"), part("half"), pool="p")], *[each.patch for each in patches if not each.deleting]
    )
    return book, index


def owned(key: str, label: str) -> StoredRule:
    """A rule with a taint of that key, made for an owner with uid `u`."""
    kind = "ResourceSlicePatch" if label == PATCH_LABEL else "DeviceTaintRule"
    taint = structs.replace(CLOSED, key=key)
    rule = DeviceTaintRule(ObjectMeta(uid=f"u-{key}"), DeviceSelector(DRIVER), taint)
    return made(rule, RuleOwner(kind, "one" if label == PATCH_LABEL else "faulty", "u"))


def deleted(found: OwnerPlan) -> list[str]:
    """The keys of the rules that are to be deleted."""
    return sorted(each.rule.taint.key for each in found.writes.deletes)


def plan(book: RuleBook, index: PatchIndex, uid: str = "u", *, ceiling: int = 9, served: bool = True) -> OwnerPlan:
    return plan_of(uid, book, index, ceiling, NOW, patches_served=served)


def test_patch() -> None:
    book, index = world(PATCH)
    found = plan(book, index)
    assert [each.owner for each in found.writes.applies] == [RuleOwner("ResourceSlicePatch", "one", "u")]
    assert (found.patch, found.needed, found.waits) == (PATCH, 1, False)
    assert found.standing is not None
    assert found.standing.selected == 2


def test_owner_that_is_gone_needs_nothing() -> None:
    book, index = world()
    for name, label in (("a", PATCH_LABEL), ("b", HARDWARE_LABEL)):
        book.put_rule(name, owned(name, label))
    found = plan(book, index)
    assert deleted(found) == ["a", "b"]
    assert found == OwnerPlan(found.writes, None, None, 0, waits=False)
    waiting = plan(book, index, served=False)
    assert deleted(waiting) == ["b"]
    assert waiting.waits
    book.put_rule("a", None)
    assert not plan(book, index, served=False).waits


def test_patch_that_is_being_deleted_needs_nothing() -> None:
    book, index = world(structs.replace(PATCH, deleting=True))
    book.put_rule("a", owned("a", PATCH_LABEL))
    assert deleted(plan(book, index)) == ["a"]


def test_rule_with_siblings() -> None:
    book, index = world()
    rule = scoped()
    source = StoredRule(structs.replace(rule, meta=structs.replace(rule.meta, uid="u")))
    book.put_rule("faulty", source)
    book.put_rule("old", owned("old", HARDWARE_LABEL))
    found = plan(book, index)
    assert [each.selector.device for each in found.writes.applies] == ["half"]
    assert deleted(found) == ["old"]
    assert (found.needed, found.patch) == (1, None)
    over = plan(book, index, ceiling=0)
    assert (over.writes.applies, over.needed) == ((), 1)
    assert deleted(over) == ["old"], "its taint is another one"
    elsewhere = structs.replace(source.rule, selector=DeviceSelector(DRIVER, "q", "half"))
    book.put_rule("same", made(elsewhere, source.owner))
    enough = plan(book, index, ceiling=1)
    assert deleted(enough) == [CLOSED.key, "old"], "as many rules as there may be"
    assert deleted(plan(book, index, ceiling=0)) == ["old"]


def test_patch_that_needs_too_many_rules_keeps_those_whose_taints_it_still_sets() -> None:
    other = structs.replace(CLOSED, key="l")
    both = structs.replace(PATCH, patch=structs.replace(PATCH.patch, taints=(CLOSED, other)))
    book, index = world(both)
    book.put_rule("gone", owned("gone", PATCH_LABEL))
    narrow = DeviceTaintRule(ObjectMeta(), DeviceSelector(DRIVER, "q"), CLOSED)
    book.put_rule("kept", made(narrow, PATCH.owner))
    over, enough = plan(book, index, ceiling=1), plan(book, index, ceiling=2)
    assert (over.needed, over.writes.applies) == (2, ())
    assert deleted(over) == ["gone"]
    assert len(enough.writes.applies) == 2
    assert deleted(enough) == [CLOSED.key, "gone"]


def test_unusable_filter_keeps_nothing_whatever_the_ceiling() -> None:
    missing = structs.replace(PATCH.patch, filter=DeviceSelector(device_class_name="c"))
    book, index = world(structs.replace(PATCH, patch=missing))
    book.put_rule("a", owned("a", PATCH_LABEL))
    for ceiling in (9, 0):
        assert deleted(plan(book, index, ceiling=ceiling)) == ["a"]


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
