"""Patches and rules as they are stored, with what says whose they are; and what has to be written of rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.api.meta import OWN_GROUP, ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import (
    ACTING_ANNOTATIONS,
    DATA,
    DESCRIPTION,
    EVICT,
    EVICTIONS_PER_SECOND,
    HARDWARE_LABEL,
    NOT_BEFORE,
    PATCH_LABEL,
    REACTION,
    SOFTENED_FROM,
    Condition,
    DeviceSelector,
    DeviceTaintRule,
)
from webhook.api.taints import DeviceTaint
from webhook.inventory.targets import is_named_for, numbered
from webhook.patches.expansion import ExpandedRule

PATCH_VERSION: Final = "v1alpha1"
PATCH_KIND: Final = "ResourceSlicePatch"
RULE_KIND: Final = "DeviceTaintRule"


class RuleOwner(NamedTuple):
    """A patch or a rule that other rules belong to."""

    kind: str
    name: str
    uid: str

    @property
    def label(self) -> str:
        """The label that its rules have, with its uid as value."""
        return PATCH_LABEL if self.kind == PATCH_KIND else HARDWARE_LABEL


class PatchStatus(msgspec.Struct, frozen=True):
    """What the status of a patch says; `rules` are those that exist."""

    observed_generation: int = 0
    selected_devices: int = 0
    tainted_devices: int = 0
    rules: int = 0
    conditions: tuple[Condition, ...] = ()
    patched_devices: int = 0


class StoredPatch(msgspec.Struct, frozen=True):
    """A patch in the cluster."""

    patch: ResourceSlicePatch
    generation: int = 0
    status: PatchStatus = PatchStatus()

    @property
    def meta(self) -> ObjectMeta:
        """Of the patch."""
        return self.patch.meta

    @property
    def owner(self) -> RuleOwner:
        """As owner of its rules."""
        return RuleOwner(PATCH_KIND, self.meta.name, self.meta.uid)


class StoredRule(msgspec.Struct, frozen=True):
    """A rule in the cluster."""

    rule: DeviceTaintRule
    labels: Mapping[str, str] = {}
    """Only those that say to which patch or rule it belongs."""
    controller: RuleOwner | None = None
    """The owner reference that controls it."""

    @property
    def meta(self) -> ObjectMeta:
        """Of the rule."""
        return self.rule.meta

    @property
    def owner(self) -> RuleOwner:
        """As owner of the rules for its siblings."""
        return RuleOwner(RULE_KIND, self.meta.name, self.meta.uid)

    @property
    def owner_uids(self) -> tuple[str, ...]:
        """The uid of the patch or rule for which it was written, if label, name and any owner reference say the same.

        Anyone who may write rules can set labels and references; the name of a rule never changes.
        """
        owner, own = self.controller, tuple(self.labels.values())
        if owner is None:  # whoever took the reference out left the name, which begins with that of its owner
            return own if len(own) == 1 and is_named_for(self.meta.name.rpartition("-")[0], self.rule) else ()
        if self.labels.get(owner.label) != owner.uid or not is_named_for(owner.name, self.rule):
            return ()
        return (owner.uid,)


def own_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return those that a StoredRule keeps."""
    return {name: value for name, value in (labels or {}).items() if name in (PATCH_LABEL, HARDWARE_LABEL)}


PATCH_API_VERSION: Final = f"{OWN_GROUP}/{PATCH_VERSION}"


_OF_PATCHES: Final = (DATA, DESCRIPTION, EVICTIONS_PER_SECOND)
_OF_SIBLINGS: Final = (*_OF_PATCHES, NOT_BEFORE)
_OF_REACTIONS: Final = (EVICT,)
_OF_SOFTENING: Final = (EVICT, SOFTENED_FROM)


class RuleApply(NamedTuple):
    """A rule to create or to change. `owner`: None for the rule of a reaction.

    `surplus`: the stored rule has fields of the selector, a value or annotations that it should not have. Server-side
    apply leaves alone what another manager added, so such a rule is written by a patch that removes them. So is one
    that is `foreign`, of another author: finalizers and further owners, which are not read, may be on it.
    """

    owner: RuleOwner | None
    name: str
    selector: DeviceSelector
    taint: DeviceTaint
    annotations: Mapping[str, str]
    creates: bool
    surplus: bool = False
    foreign: bool = False
    retired: tuple[str, ...] = ()
    """Annotations that such a patch removes beside `own_annotations`."""

    @property
    def labels(self) -> Mapping[str, str]:
        """By which its rules are found."""
        return {REACTION: "true"} if self.owner is None else {self.owner.label: self.owner.uid}

    @property
    def own_annotations(self) -> tuple[str, ...]:
        """The annotations that are as it says; others are left alone."""
        if self.owner is None:
            return _OF_REACTIONS
        return _OF_SIBLINGS if self.owner.label == HARDWARE_LABEL else _OF_PATCHES


class RuleWrites(NamedTuple):
    """For one owner, in this order."""

    applies: tuple[RuleApply, ...]
    """Those that create first."""
    deletes: tuple[StoredRule, ...]

    def __bool__(self) -> bool:
        return bool(self.applies or self.deletes)


def writes_for(
    owner: RuleOwner,
    desired: Iterable[ExpandedRule],
    stored: Mapping[str, StoredRule],
    owned: Collection[StoredRule],
    now: datetime,
) -> RuleWrites:
    """Return what makes the rules of an owner as they should be: what is missing, what changes, what is too much.

    In that order: where other selectors cover the same devices, no device is without its taint in between. The time of
    a taint stays as long as the taint does. `stored` are all rules by name, `owned` those written for the owner.

    A rule that is being deleted, of whatever author, may keep its name for ever: then the next name is used. So it is
    where an owner of the other kind and the same name has the rule: each would take it from the other without end.
    """
    times = _times(owned)
    applies: list[RuleApply] = []
    names: set[str] = set()
    for each in desired:
        name, taint = _free_name(each.name, owner, stored), each.taint
        names.add(name)
        added = taint.time_added or times.get((taint.key, taint.value, taint.effect)) or now.replace(microsecond=0)
        wanted = RuleApply(
            owner, name, each.selector, structs.replace(taint, time_added=added), each.annotations, creates=True
        )
        known = stored.get(name)
        if known is None:
            applies.append(wanted)
            continue
        foreign = owner.uid not in known.owner_uids
        compared = _compared(known, wanted, foreign=foreign)
        if not _is_as(known, wanted, compared):
            retired = tuple([name for name in compared if name not in wanted.annotations])
            surplus = _has_surplus(known, wanted, compared)
            applies.append(wanted._replace(creates=False, surplus=surplus, foreign=foreign, retired=retired))
    applies.sort(key=lambda each: (not each.creates, each.name))
    deletes = [each for each in owned if each.meta.name not in names and not each.rule.deleting]
    return RuleWrites(tuple(applies), tuple(sorted(deletes, key=lambda each: each.meta.name)))


def _free_name(first: str, owner: RuleOwner, stored: Mapping[str, StoredRule]) -> str:
    number = 1
    while (rule := stored.get(name := numbered(first, number))) and (
        rule.rule.deleting or (rule.owner_uids and owner.label not in rule.labels)
    ):
        number += 1
    return name


def _times(owned: Collection[StoredRule]) -> dict[tuple[str, str, str], datetime]:
    """Return since when devices have each taint, by the oldest rule."""
    found: dict[tuple[str, str, str], datetime] = {}
    for each in owned:
        taint = each.rule.taint
        if taint.time_added is not None:
            key = taint.key, taint.value, taint.effect
            found[key] = min(taint.time_added, found.get(key, taint.time_added))
    return found


def _is_as(known: StoredRule, wanted: RuleApply, compared: Iterable[str]) -> bool:
    rule = known.rule
    return (
        rule.selector == wanted.selector
        and structs.replace(rule.taint, extras=None) == wanted.taint
        and known.labels == wanted.labels
        and known.controller == wanted.owner
        and all(rule.meta.annotations.get(name) == wanted.annotations.get(name) for name in compared)
    )


def _compared(known: StoredRule, wanted: RuleApply, *, foreign: bool) -> tuple[str, ...]:
    """Return the annotations that have to be as they are wanted.

    Those of softening come and go together. `/evict` alone is of a user who wants the devices of the rule emptied, but
    a rule of another author under this name keeps nothing that changes what it does.
    """
    own = wanted.own_annotations
    if foreign:
        return (*own, *ACTING_ANNOTATIONS)
    softened = SOFTENED_FROM in wanted.annotations or SOFTENED_FROM in known.meta.annotations
    return (*own, *_OF_SOFTENING) if softened and HARDWARE_LABEL not in wanted.labels else own


def _has_surplus(known: StoredRule, wanted: RuleApply, compared: Iterable[str]) -> bool:
    rule, selector = known.rule, known.rule.selector or DeviceSelector()
    fields = ("driver", "pool", "device", "device_class_name")
    return (
        any(getattr(selector, field) is not None and getattr(wanted.selector, field) is None for field in fields)
        or bool(selector.selectors or selector.unknown)
        or bool(rule.taint.value and not wanted.taint.value)
        or any(name in rule.meta.annotations and name not in wanted.annotations for name in compared)
        or known.labels.keys() - wanted.labels.keys() != set()
        or known.controller not in (None, wanted.owner)  # apply would add a second one, which no server takes
    )
