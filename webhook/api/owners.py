"""Who controls an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from webhook.api.decode import Reader


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller of an object."""

    kind: str
    name: str
    uid: str


def decode_owner(reader: Reader) -> Owner | None:
    """The controller among an object's ownerReferences."""
    for each in reader.child_or_empty("metadata").each("ownerReferences"):
        if each.boolean("controller"):
            return Owner(each.text("kind"), each.text("name"), each.text("uid"))
    return None
