"""Whether a rule does more than it did: what it goes on doing is not judged again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.rules import EVICT
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE

if TYPE_CHECKING:
    from webhook.api.rules import DeviceSelector, DeviceTaintRule

EFFECT_RANK: Final = {NO_SCHEDULE: 1, NO_EXECUTE: 2}
"""Effects that act, by how much they do."""


def is_wide(selector: DeviceSelector | None) -> bool:
    """Whether nothing that can be judged here narrows it down."""
    return selector is None or (selector.driver is None and selector.pool is None and selector.device is None)


def only_less(new: DeviceTaintRule, old: DeviceTaintRule) -> bool:
    """Whether an update can only hit fewer, later: nothing that it does is new."""
    if (new.taint.key, new.taint.value) != (old.taint.key, old.taint.value):
        return False
    if EFFECT_RANK.get(new.effective_effect, 0) > EFFECT_RANK.get(old.effective_effect, 0):
        return False
    evict = new.meta.annotations.get(EVICT) == "true"
    if new.effective_effect == NO_EXECUTE and evict and old.meta.annotations.get(EVICT) != "true":
        return False  # another evictor reads tolerations differently
    if new.effective_effect == NO_EXECUTE and not evict and old.taint.effect != NO_EXECUTE:
        return False
    before, after = old.taint.time_added, new.taint.time_added
    if new.effective_effect == NO_EXECUTE and before is not None and (after is None or after < before):
        return False
    return _narrower(new.selector, old.selector)


def _narrower(new: DeviceSelector | None, old: DeviceSelector | None) -> bool:
    if new == old:
        return True
    if new is None or old is None:
        return False
    if (old.device_class_name, old.selectors, old.unknown) != (new.device_class_name, new.selectors, new.unknown):
        return False
    pairs = ((old.driver, new.driver), (old.pool, new.pool), (old.device, new.device))
    return all(before is None or before == after for before, after in pairs)
