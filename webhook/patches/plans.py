"""What the rules of one owner should be: of a patch, of a rule with `/scope: hardware`, or of one that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.api.rules import PATCH_LABEL
from webhook.patches.siblings import sibling_rules
from webhook.patches.status import Standing, standing_of
from webhook.patches.stored import PATCH_KIND, RuleOwner, StoredPatch, StoredRule
from webhook.patches.writes import RuleWrites, kept_over_ceiling, writes_for

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
    waits: bool = False
    """There is more to delete, once the server serves patches."""


def plan_of(
    uid: str, book: RuleBook, index: PatchIndex, ceiling: int, now: datetime, *, patches_served: bool
) -> OwnerPlan:
    """The plan of an owner, once the index has nothing left to do.

    Where the server does not serve patches, for the moment or any more, it is not known which are gone, and their rules
    stay: an API server that is starting has no kinds of ours for a few seconds.
    """
    match book.owner(uid):
        case StoredPatch(deleting=False) as stored:
            return _of_patch(stored, book, index, ceiling, now)
        case StoredRule() as stored:
            found = sibling_rules(stored, index, ceiling)
            writes = _writes(stored.owner, found.rules, book, now)
            return OwnerPlan(_limited(writes, [stored.rule.taint], found.needed, ceiling), needed=found.needed)
        case _:
            writes = _writes(RuleOwner(PATCH_KIND, "", uid), (), book, now)
            if patches_served:
                return OwnerPlan(writes)
            left = tuple([each for each in writes.deletes if PATCH_LABEL not in each.labels])
            return OwnerPlan(writes._replace(deletes=left), waits=left != writes.deletes)


def _of_patch(stored: StoredPatch, book: RuleBook, index: PatchIndex, ceiling: int, now: datetime) -> OwnerPlan:
    standing = standing_of(index, stored.meta.name, ceiling)
    writes = _writes(stored.owner, standing.rules, book, now)
    return OwnerPlan(_limited(writes, stored.patch.taints, standing.needed, ceiling), stored, standing, standing.needed)


def _writes(owner: RuleOwner, rules: Sequence[ExpandedRule], book: RuleBook, now: datetime) -> RuleWrites:
    return writes_for(owner, rules, book.rules, book.owned(owner.uid), now)


def _limited(writes: RuleWrites, taints: Sequence[DeviceTaint], needed: int, ceiling: int) -> RuleWrites:
    """Without those deletions that would open devices because there are too many of them."""
    if needed <= ceiling:
        return writes
    kept = {each.meta.name for each in kept_over_ceiling(writes.deletes, taints)}
    return writes._replace(deletes=tuple([each for each in writes.deletes if each.meta.name not in kept]))
