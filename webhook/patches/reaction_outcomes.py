"""What the policy's reactions have come to: figures, and texts for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.policy.model import Share

if TYPE_CHECKING:
    from webhook.inventory.published import DeviceId
    from webhook.policy.model import Reaction

NAMED_MAX: Final = 10
"""Devices that a text names; of more it says how many."""
ABOVE_MAX_DEVICES: Final = "AboveMaxDevices"
WITHIN_MAX_DEVICES: Final = "WithinMaxDevices"


class ReactionOutcome(msgspec.Struct, frozen=True):
    """One reaction after a pass. Counts are of reasons, of which a device usually has one.

    `active`: rules whose taint is there; `quiet`: whose taint is gone, but not for long enough; `unpublished`: whose
    pool is not published in full, so that nothing is known; `waiting`: taints that have not lasted long enough;
    `held_back`: what `maxDevices` prevents. `devices` are those of the driver that have rules of any reaction, and
    `limit` is `maxDevices` as a number; None is no limit.
    """

    name: str
    driver: str
    active: int
    quiet: int
    unpublished: int
    waiting: int
    held_back: int
    devices: int
    limit: int | None
    message: str

    @property
    def reason(self) -> str:
        """Whether `maxDevices` holds anything back, in one word: of a condition or an Event."""
        return ABOVE_MAX_DEVICES if self.held_back else WITHIN_MAX_DEVICES


class OutcomeCounts:
    """The figures of one reaction while a pass runs."""

    def __init__(self) -> None:
        self.active = 0
        self.quiet = 0
        self.unpublished = 0
        self.waiting = 0
        self._held_back: set[DeviceId] = set()

    def hold_back(self, address: DeviceId) -> None:
        """The limit keeps the device from getting a rule, or from a stricter one."""
        self._held_back.add(address)

    def outcome(self, reaction: Reaction, devices: int, limit: int | None) -> ReactionOutcome:
        """The figures, with a sentence about them."""
        return ReactionOutcome(
            *(reaction.name, reaction.driver, self.active, self.quiet, self.unpublished, self.waiting),
            *(len(self._held_back), devices, limit, self._message(reaction, devices, limit)),
        )

    def _message(self, reaction: Reaction, devices: int, limit: int | None) -> str:
        text = (
            f"{self.active} active, {self.quiet} quiet, {self.waiting} waiting, {self.unpublished} not published; "
            f"{devices} devices of {reaction.driver} have rules of reactions"
        )
        if not self._held_back:
            return text
        named = sorted(self._held_back)[:NAMED_MAX]
        more = len(self._held_back) - len(named)
        names = ", ".join(f"{address.pool}/{address.device}" for address in named)
        given = reaction.max_devices
        share = f"{given.percent:g}%, which is {limit}" if isinstance(given, Share) else str(limit)
        return (
            f"{text}; maxDevices is {share}, so nothing is done for {len(self._held_back)}: {names}"
            f"{f' and {more} more' if more else ''}"
        )
