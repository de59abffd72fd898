"""Patches and rules as the controller knows them, by name and by owner: the cache's changes and its own writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from webhook.patches.siblings import has_hardware_scope, looks_at
from webhook.patches.stored import StoredPatch, StoredRule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from webhook.inventory.pools import PoolId

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
        """A patch or a rule by its uid."""
        return self._uids.get(uid)

    def owned(self, uid: str) -> Collection[StoredRule]:
        """The rules that have the uid in their label."""
        return self._owned.get(uid, {}).values()

    def put_patch(self, name: str, new: StoredPatch | None) -> list[str]:
        """A patch came, changed or, if it is None, went; returns the owners that this concerns, by uid."""
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
        """Likewise for a rule: the owners that it has or had, and itself if it has siblings."""
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
        """The uids of rules with `/scope: hardware` that look at one of these pools."""
        pools = list(pools)
        for name in sorted(self._scoped):
            stored = self._rules[name]
            if any(looks_at(stored, pool) for pool in pools):
                yield stored.meta.uid
