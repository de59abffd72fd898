"""Which taints our evictor acts on, and which pods it leaves alone on purpose; names of the rules of controllers."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.rules import DeviceSelector, DeviceTaintRule, not_before_of
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration
from webhook.inventory.fates import DeviceNames, fates_on
from webhook.inventory.pools import Evictor, tolerates

if TYPE_CHECKING:
    from webhook.inventory.state import Inventory


_NAME_MAX: Final = 200
_DIGEST_BYTES: Final = 8
_NUMBER_DIGITS: Final = 9
_NO_PODS: Final[frozenset[str]] = frozenset()


class EvictionScope(msgspec.Struct, frozen=True):
    """Which taints count.

    `no_execute`: who carries out NoExecute, and so how tolerations are read; None leaves those taints out. `asked`:
    rules of effect NoSchedule that ask for eviction with `/evict` count too.
    """

    no_execute: Evictor | None = None
    asked: bool = False


def is_ours(rule: DeviceTaintRule, scope: EvictionScope) -> bool:
    """Whether the scope has eviction for the rule in it, by its effect and `/evict`.

    A rule that is being deleted cannot ask with `/evict` any more. A taint of effect NoExecute acts until the rule is
    gone, as the in-tree controller has it, which never looks at a rule's deletionTimestamp.
    """
    if rule.taint.effect == NO_EXECUTE:
        return scope.no_execute is not None
    return (
        scope.asked and not rule.deleting and rule.effective_effect == NO_EXECUTE and rule.taint.effect == NO_SCHEDULE
    )


def start_of(rule: DeviceTaintRule, scope: EvictionScope) -> datetime | None:
    """Before when no pod is due, by `/not-before`; None if it does not say, or the in-tree controller evicts."""
    ours = rule.taint.effect != NO_EXECUTE or scope.no_execute is Evictor.OURS
    return not_before_of(rule) if ours else None


def can_judge(selector: DeviceSelector | None) -> bool:
    """Whether the selector uses names only. With anything else, evicting could hit more pods than intended.

    A missing one evicts no pod (E-6).
    """
    return selector is not None and not (selector.device_class_name or selector.selectors or selector.unknown)


def tolerating_scheduling(inventory: Inventory, rule: DeviceTaintRule) -> frozenset[str]:
    """Pods, by uid, that a rule with `/evict` leaves alone because they would come back to the same device."""
    if rule.taint.effect != NO_SCHEDULE or rule.effective_effect != NO_EXECUTE or not can_judge(rule.selector):
        return _NO_PODS
    assert rule.selector is not None

    def fate_of(tolerations: tuple[DeviceToleration, ...]) -> int:
        return int(any(tolerates(toleration, rule.taint) for toleration in tolerations))

    names = DeviceNames(rule.selector.driver, rule.selector.pool, rule.selector.device)
    return fates_on(inventory, names, fate_of).pods(1)


def rule_name(owner: str, taint: DeviceTaint, selector: DeviceSelector) -> str:
    """A name that starts with the owner's, the same wherever it puts the same taint on the same selector."""
    identity = [owner, taint.key, taint.effect, selector.driver, selector.pool, selector.device]
    digest = hashlib.blake2b(json.dumps(identity).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{owner[:_NAME_MAX].rstrip('-.')}-{digest}"


def is_named_for(owner: str, rule: DeviceTaintRule) -> bool:
    """Whether a rule has a name that the controller gives what it writes for an owner, with this taint and selector."""
    selector = rule.selector
    if selector is None or not can_judge(selector):
        return False
    return number_of(rule.meta.name, rule_name(owner, rule.taint, selector)) > 0


def numbered(first: str, number: int) -> str:
    """One of the names that a rule may have; each next one is for when the ones before are held, maybe for ever."""
    return first if number == 1 else f"{first}-{number}"


def number_of(name: str, first: str) -> int:
    """Which of these names it is, from 1 on; 0 if it is none of them."""
    last = name.rpartition("-")[2]
    number = int(last) if name != first and last.isdecimal() and len(last) <= _NUMBER_DIGITS else 1
    return number if numbered(first, number) == name else 0


def is_same_taint(one: DeviceTaint, other: DeviceTaint) -> bool:
    """Whether two taints have the same key, value and effect."""
    return (one.key, one.value, one.effect) == (other.key, other.value, other.effect)
