"""Marks of the rules that the patch controller writes: for patches, and for the hardware of other rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind
from webhook.api.rules import HARDWARE_LABEL, PATCH_LABEL

if TYPE_CHECKING:
    from webhook.api.decode import Reader


class RuleOrigin(msgspec.Struct, frozen=True):
    """What a rule was written for, as it says itself: its controller by name and UID, and its labels.

    `patch` and `rule` say of which sort the controller is; neither if it is something else, or there is none.
    """

    name: str = ""
    uid: str = ""
    patch: bool = False
    rule: bool = False
    of_patch: str = ""
    hardware_of: str = ""


def decode_origin(reader: Reader) -> RuleOrigin:
    """The origin of a DeviceTaintRule of any version."""
    metadata = reader.child_or_empty("metadata")
    labels = metadata.text_map("labels")
    found = RuleOrigin(of_patch=labels.get(PATCH_LABEL, ""), hardware_of=labels.get(HARDWARE_LABEL, ""))
    owner = next((each for each in metadata.each("ownerReferences") if each.boolean("controller")), None)
    if owner is None:
        return found
    group, _, kind = GroupVersionKind.parse(owner.text("apiVersion"), owner.text("kind"))
    return msgspec.structs.replace(
        found,
        name=owner.text("name"),
        uid=owner.text("uid"),
        patch=(group, kind) == (OWN_GROUP, "ResourceSlicePatch"),
        rule=(group, kind) == (GROUP, "DeviceTaintRule"),
    )
