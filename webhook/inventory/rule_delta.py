"""Whether an update makes a rule do more. What it did before and still does is not judged again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook.api.rules import (
    CONFIRM_IMPACT,
    EVICT,
    HARDWARE,
    SCOPE,
    DeviceSelector,
    DeviceTaintRule,
    not_before_of,
    own_rate,
)
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.inventory.targets import is_same_taint

EFFECT_RANK: Final = {NO_SCHEDULE: 1, NO_EXECUTE: 2}
"""Effects that act, by how much they do."""


def is_wide(selector: DeviceSelector | None) -> bool:
    """Tell whether no known field narrows the selector; an unknown field may widen the others."""
    return selector is None or bool(selector.unknown) or selector.driver is selector.pool is selector.device is None


def begins_to_evict(new: DeviceTaintRule, old: DeviceTaintRule | None) -> bool:
    """Tell whether it evicts pods that it did not evict before, or evicts them earlier."""
    if new.effective_effect != NO_EXECUTE:
        return False
    # The effect as it is written says who evicts, and so how tolerations are read.
    if old is None or old.effective_effect != NO_EXECUTE or not is_same_taint(new.taint, old.taint):
        return True
    before, after = old.taint.time_added, new.taint.time_added
    earlier = before != after and (before is None or after is None or after < before)
    wider = is_for_hardware(new) and not is_for_hardware(old)
    return earlier or wider or not narrower(new.selector, old.selector)


def skips_a_step(new: DeviceTaintRule, old: DeviceTaintRule | None) -> bool:
    """Tell whether a rule evicts what it was never stored for with an effect that evicts no pod (`twoStep`)."""
    if old is None or new.effective_effect != NO_EXECUTE:
        return new.effective_effect == NO_EXECUTE
    same = (new.taint.key, new.taint.value) == (old.taint.key, old.taint.value)
    wider = is_for_hardware(new) and not is_for_hardware(old)
    return not same or wider or not narrower(new.selector, old.selector)


def only_less(new: DeviceTaintRule, old: DeviceTaintRule) -> bool:
    """Tell whether an update can only hit fewer pods, or later: nothing that it does is new."""
    acts = new.taint.effect in EFFECT_RANK
    if acts and old.taint.effect not in EFFECT_RANK:
        return False
    if acts and new.effective_effect == NO_EXECUTE:
        # Who else is asked to evict goes by other rules than the in-tree controller.
        newly_asked = _asks(new) and not _asks(old)
        return not newly_asked and not begins_to_evict(new, old)
    if (new.taint.key, new.taint.value) != (old.taint.key, old.taint.value):
        return False
    raised = EFFECT_RANK.get(new.effective_effect, 0) > EFFECT_RANK.get(old.effective_effect, 0)
    return not raised and narrower(new.selector, old.selector)


def asks_for_more(new: DeviceTaintRule, old: DeviceTaintRule, usual_rates: Iterable[float]) -> bool:
    """Tell whether our annotations ask for more than they did: another text, a faster or earlier eviction, or no mark.

    So does `/scope: hardware`. Without the mark of softening the worker's ceiling may be higher. `usual_rates` are
    evictions per second that the policy gives to rules without a rate of their own. No text any more is not more, and
    neither is any rate on a rule that does not evict.
    """
    text = new.meta.annotations.get(CONFIRM_IMPACT)
    if text and text != old.meta.annotations.get(CONFIRM_IMPACT):
        return True
    if new.taint.effect not in EFFECT_RANK:
        return False  # it evicts no pod, also with `/evict`; once it acts, all of it is judged
    if old.softened and new.effective_effect == NO_EXECUTE and not new.softened:
        return True
    if is_for_hardware(new) and not is_for_hardware(old):
        return True
    if new.effective_effect != NO_EXECUTE:
        return False
    return _starts_earlier(new, old) or _faster(own_rate(new), own_rate(old), tuple(usual_rates))


def is_for_hardware(rule: DeviceTaintRule) -> bool:
    """Tell whether a rule asks by `/scope` for the same taint on the parts of its devices' hardware."""
    return rule.meta.annotations.get(SCOPE) == HARDWARE


def _starts_earlier(new: DeviceTaintRule, old: DeviceTaintRule) -> bool:
    """Tell whether `/not-before` is an earlier time than before, or is gone."""
    before, after = not_before_of(old), not_before_of(new)
    return before is not None and (after is None or after < before)


def _faster(after: float | None, before: float | None, usual: tuple[float, ...]) -> bool:
    """Tell whether pods may go at a higher rate. Without one of its own the policy's hold, which any rule may have."""
    if after is None:
        return False
    return after > (min(usual, default=0.0) if before is None else before)


def _asks(rule: DeviceTaintRule) -> bool:
    return rule.meta.annotations.get(EVICT) == "true"


def narrower(new: DeviceSelector | None, old: DeviceSelector | None) -> bool:
    """Tell whether a selector selects nothing that another one does not, if that can be judged; equal ones do not."""
    if new == old:
        return True
    if new is None or old is None or new.unknown or old.unknown:
        return False  # what an unknown field makes of the others is not known
    if (old.device_class_name, old.selectors) != (new.device_class_name, new.selectors):
        return False
    pairs = ((old.driver, new.driver), (old.pool, new.pool), (old.device, new.device))
    return all(before is None or before == after for before, after in pairs)
