"""Patches and rules as they are stored, with what says whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from webhook.api.meta import OWN_GROUP, ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL, Condition, DeviceTaintRule
from webhook.inventory.expansion import is_named_for

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
    deleting: bool = False
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
    """Those that a StoredRule keeps."""
    return {name: value for name, value in (labels or {}).items() if name in (PATCH_LABEL, HARDWARE_LABEL)}


PATCH_API_VERSION: Final = f"{OWN_GROUP}/{PATCH_VERSION}"
