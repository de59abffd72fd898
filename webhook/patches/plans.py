"""What the rules of one owner should be: of a patch, of a rule with `/scope: hardware`, or of one that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.patches.siblings import sibling_rules
from webhook.patches.standing import Standing, standing_of
from webhook.patches.stored import PATCH_KIND, Owner, StoredPatch, StoredRule
from webhook.patches.writes import RuleWrites, held_deletes, kept_over_ceiling, writes_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from webhook.api.taints import DeviceTaint
    from webhook.inventory.expansion import ExpandedRule
    from webhook.patches.book import RuleBook
    from webhook.patches.index import PatchIndex

NO_WRITES = RuleWrites((), ())


class OwnerPlan(NamedTuple):
    """For one owner: what is to be written, and, if it is a patch, its standing."""

    writes: RuleWrites
    patch: StoredPatch | None = None
    standing: Standing | None = None
    needed: int = 0
    held: int = 0
    """Rules that are too much, but stay until their pool is published in full."""


def plan_of(uid: str, book: RuleBook, index: PatchIndex, ceiling: int, now: datetime) -> OwnerPlan:
    """The plan of an owner, once the index has nothing left to do."""
    match book.owner(uid):
        case StoredPatch(deleting=False) as stored:
            return _of_patch(stored, book, index, ceiling, now)
        case StoredRule() as stored:
            found = sibling_rules(stored, index.pools, ceiling)
            writes = _writes(stored.owner, found.rules, book, now)
            return _limited(writes, [stored.rule.taint], index, found.needed, ceiling, by_names=False)
        case _:
            return OwnerPlan(_writes(Owner(PATCH_KIND, "", uid), (), book, now))


def _of_patch(stored: StoredPatch, book: RuleBook, index: PatchIndex, ceiling: int, now: datetime) -> OwnerPlan:
    standing = standing_of(index, stored.meta.name, ceiling)
    writes = _writes(stored.owner, standing.rules, book, now)
    taints = () if standing.unusable else stored.patch.taints
    plan = _limited(writes, taints, index, standing.needed, ceiling, by_names=standing.by_names)
    return plan._replace(patch=stored, standing=standing)


def _writes(owner: Owner, rules: Sequence[ExpandedRule], book: RuleBook, now: datetime) -> RuleWrites:
    return writes_for(owner, rules, book.rules, book.owned(owner.uid), now)


def _limited(
    writes: RuleWrites, taints: Sequence[DeviceTaint], index: PatchIndex, needed: int, ceiling: int, *, by_names: bool
) -> OwnerPlan:
    """Without those deletions that would open devices for no good reason."""
    if needed > ceiling:
        kept = kept_over_ceiling(writes.deletes, taints)
    else:
        kept = () if by_names else held_deletes(writes, taints, index.pools.incomplete)
    if not kept:
        return OwnerPlan(writes, needed=needed)
    names = {each.meta.name for each in kept}
    left = tuple([each for each in writes.deletes if each.meta.name not in names])
    return OwnerPlan(writes._replace(deletes=left), needed=needed, held=len(kept))
