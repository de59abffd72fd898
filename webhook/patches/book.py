"""Patches and rules as the controller knows them, by name and by owner, and what the rules of each should be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from msgspec import structs

from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DATA, DESCRIPTION, EVICTIONS_PER_SECOND, NOT_BEFORE, PATCH_LABEL, DeviceSelector
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.inventory.hardware import siblings_in
from webhook.inventory.pools import PoolId, names_pool
from webhook.inventory.rule_delta import EFFECT_RANK, is_for_hardware
from webhook.inventory.targets import DeviceNames, can_judge, is_same_taint, rule_name
from webhook.patches.expansion import ExpandedRule, PatchExpansion
from webhook.patches.index import PatchIndex
from webhook.patches.patch_reach import may_meet
from webhook.patches.patching import Origin, origin_of
from webhook.patches.status import Standing, standing_of
from webhook.patches.stored import PATCH_KIND, RuleApply, RuleOwner, RuleWrites, StoredPatch, StoredRule, writes_for


def has_hardware_scope(stored: StoredRule) -> bool:
    """Return whether a rule asks for its siblings, and may.

    Rules that the controller made never expand again, and only a rule for devices by name can select one part of a
    piece of hardware and not the other. A rule that does not act has none either.
    """
    rule = stored.rule
    return (
        is_for_hardware(rule)
        and not stored.owner_uids
        and not rule.deleting
        and can_judge(rule.selector)
        and DeviceNames.of(rule.selector).device is not None
        and rule.taint.effect in EFFECT_RANK
    )


def sibling_rules(stored: StoredRule, index: PatchIndex, ceiling: int) -> PatchExpansion:
    """Return the rules for the siblings of what a rule selects; none if there would be more than the ceiling."""
    rules = tuple(_rules(stored, index)) if has_hardware_scope(stored) else ()
    return PatchExpansion(rules if len(rules) <= ceiling else (), len(rules))


def _rules(stored: StoredRule, index: PatchIndex) -> Iterator[ExpandedRule]:
    rule = stored.rule
    selector = rule.selector
    assert selector is not None
    assert selector.device is not None
    # A sibling that evicts does so when its rule does; without evictions the annotation says nothing.
    begins = (NOT_BEFORE,) if rule.taint.effect == NO_EXECUTE else ()
    kept = (DATA, DESCRIPTION, EVICTIONS_PER_SECOND, *begins)
    annotations = {name: text for name, text in rule.meta.annotations.items() if name in kept}
    taint = structs.replace(rule.taint, extras=None)
    for identity in sorted([pool for pool, _ in index.fleet.named(selector)]):
        for device in sorted(siblings_in(index.slices_of(identity), {selector.device: 1})):
            if device != selector.device:
                at = DeviceSelector(*identity, device)
                yield ExpandedRule(rule_name(rule.meta.name, taint, at), at, taint, annotations)


OwningObject: TypeAlias = StoredPatch | StoredRule


class RuleBook:
    """Who owns which rules. An owner is known by its uid, also when it is gone and only its rules are left."""

    def __init__(self) -> None:
        self._patches: dict[str, StoredPatch] = {}
        self._rules: dict[str, StoredRule] = {}
        self._uids: dict[str, OwningObject] = {}
        self._owned: dict[str, dict[str, StoredRule]] = {}
        self._scoped: set[str] = set()
        """Names of rules with `/scope: hardware`."""

    @property
    def rules(self) -> Mapping[str, StoredRule]:
        """By name."""
        return self._rules

    @property
    def patches(self) -> Mapping[str, StoredPatch]:
        """By name."""
        return self._patches

    def owner(self, uid: str) -> OwningObject | None:
        """Return a patch or a rule by its uid."""
        return self._uids.get(uid)

    def owned(self, uid: str) -> Collection[StoredRule]:
        """Return the rules that have the uid in their label."""
        return self._owned.get(uid, {}).values()

    def put_patch(self, name: str, new: StoredPatch | None) -> list[str]:
        """Note that a patch came, changed or, if it is None, went; return the owners that this concerns, by uid."""
        concerned: list[str] = []
        old = self._patches.pop(name, None)
        if old is not None:
            del self._uids[old.meta.uid]
            concerned.append(old.meta.uid)
        if new is not None:
            self._patches[name] = new
            self._uids[new.meta.uid] = new
            concerned.append(new.meta.uid)
        return concerned

    def put_rule(self, name: str, new: StoredRule | None) -> list[str]:
        """Do the same for a rule: return the owners that it has or had, and itself if it has siblings."""
        concerned: list[str] = []
        old = self._rules.pop(name, None)
        if old is not None:
            for uid in old.owner_uids:
                self._owned[uid].pop(name, None)
                if not self._owned[uid]:
                    del self._owned[uid]
            concerned += old.owner_uids
            self._uids.pop(old.meta.uid, None)
            if name in self._scoped:
                self._scoped.discard(name)
                concerned.append(old.meta.uid)
        if new is not None:
            self._rules[name] = new
            for uid in new.owner_uids:
                self._owned.setdefault(uid, {})[name] = new
            concerned += new.owner_uids
            if has_hardware_scope(new):
                self._scoped.add(name)
                self._uids[new.meta.uid] = new
                concerned.append(new.meta.uid)
        return concerned

    def scoped_in(self, pools: Iterable[PoolId]) -> Iterator[str]:
        """Yield the uids of rules with `/scope: hardware` that look at one of these pools."""
        pools = list(pools)
        for name in sorted(self._scoped):
            stored = self._rules[name]
            if any(names_pool(stored.rule.selector, pool) for pool in pools):
                yield stored.meta.uid


class OwnerPlan(NamedTuple):
    """For one owner: what is to be written, and, if it is a patch, its standing."""

    writes: RuleWrites
    patch: StoredPatch | None = None
    standing: Standing | None = None
    needed: int = 0
    waits: bool = False
    """There is more to delete, once the server serves patches."""
    taints: Sequence[DeviceTaint] = ()
    """Those that its rules are for."""

    @property
    def unwanted(self) -> list[StoredRule]:
        """Return the deletes that evict, of none of these keys; what only closes devices stays until another does."""
        keys = {taint.key for taint in self.taints}
        evicting = [each for each in self.writes.deletes if each.rule.effective_effect == NO_EXECUTE]
        return [each for each in evicting if each.rule.taint.key not in keys]


def plan_of(
    uid: str, book: RuleBook, index: PatchIndex, ceiling: int, now: datetime, *, patches_served: bool
) -> OwnerPlan:
    """Plan for an owner, once the index has nothing left to do.

    Where the server does not serve patches, for the moment or any more, it is not known which are gone, and their rules
    stay: an API server that is starting has no kinds of ours for a few seconds.
    """
    match book.owner(uid):
        case StoredPatch(patch=ResourceSlicePatch(deleting=False)) as stored:
            return _of_patch(stored, book, index, ceiling, now)
        case StoredRule() as stored:
            found = sibling_rules(stored, index, ceiling)
            writes = _writes(stored.owner, found.rules, book, now)
            taints = [stored.rule.taint]
            return OwnerPlan(limited(writes, taints, found.needed, ceiling), needed=found.needed, taints=taints)
        case _:
            writes = _writes(RuleOwner(PATCH_KIND, "", uid), (), book, now)
            if patches_served:
                return OwnerPlan(writes)
            left = tuple([each for each in writes.deletes if PATCH_LABEL not in each.labels])
            return OwnerPlan(writes._replace(deletes=left), waits=left != writes.deletes)


def _of_patch(stored: StoredPatch, book: RuleBook, index: PatchIndex, ceiling: int, now: datetime) -> OwnerPlan:
    standing = standing_of(index, stored.meta.name, ceiling)
    writes = _writes(stored.owner, standing.rules, book, now)
    taints = stored.patch.taints
    writes = limited(writes, taints, standing.needed, ceiling)
    return OwnerPlan(writes, stored, standing, standing.needed, taints=taints)


def _writes(owner: RuleOwner, rules: Sequence[ExpandedRule], book: RuleBook, now: datetime) -> RuleWrites:
    return writes_for(owner, rules, book.rules, book.owned(owner.uid), now)


def limited(writes: RuleWrites, taints: Sequence[DeviceTaint], needed: int, ceiling: int) -> RuleWrites:
    """Leave out, where more rules are needed than there may be, the deletion of those whose taint is still wanted.

    It would open all devices of a patch because a few have been added to them.
    """
    if needed <= ceiling:
        return writes
    deletes = [each for each in writes.deletes if not any(is_same_taint(each.rule.taint, taint) for taint in taints)]
    return writes._replace(deletes=tuple(deletes))


class Handover:
    """Patches that lack rules, and the owners of rules that stay because of it; owners by uid."""

    def __init__(self, index: PatchIndex) -> None:
        self._index = index
        self._lacking: dict[str, tuple[str, frozenset[tuple[Origin, DeviceSelector]] | None]] = {}
        """The patch, and its rules by what they would taint, as times change with each attempt; None is all of them."""
        self._waiting: set[str] = set()

    def lacks(self, uid: str, patch: str, missing: Sequence[RuleApply] | None) -> list[str]:
        """Note which rules a patch lacks from now on (None: all); return the owners that need wait no longer."""
        known = self._lacking.pop(uid, None)
        if missing is None or missing:
            named = None if missing is None else frozenset([(origin_of(each.taint), each.selector) for each in missing])
            self._lacking[uid] = patch, named
        if known is None or known == self._lacking.get(uid):
            return []
        found, self._waiting = self._waiting, set()
        return sorted(found)

    def has_all(self, uid: str) -> list[str]:
        """Note that an owner lacks nothing, or is gone; return as `lacks` does."""
        return self.lacks(uid, "", ())

    def heir_of(self, uid: str, stored: StoredRule) -> str:
        """Return the patch that lacks a rule for devices of an owner's rule, by name; empty if there is none."""
        origin, selector = origin_of(stored.rule.taint), stored.rule.selector
        for other, (patch, missing) in self._lacking.items():
            if other == uid or selector is None:
                continue
            near = missing is None or any(taints == origin and may_meet(where, selector) for taints, where in missing)
            if near and self._index.wins_any(patch, origin, selector):
                self._waiting.add(uid)
                return patch
        return ""
