"""Which CEL faults an Event is due for: one for each patch and selector, and again when what it says has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.patches.faults import SelectorFaults


class FaultNotes:
    """What the last Event of each patch and selector said."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, str]] = {}

    def due(self, uid: str, faults: Sequence[SelectorFaults]) -> list[str]:
        """The texts of Events that are due for a patch, by its uid, now that these are all of its faults."""
        before = self._said.pop(uid, {})
        now = {each.where: str(each) for each in faults}
        if now:
            self._said[uid] = now
        return [text for where, text in now.items() if before.get(where) != text]
