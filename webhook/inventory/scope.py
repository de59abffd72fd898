"""Which taints our evictor acts on, and which pods it leaves alone on purpose."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.rules import DeviceSelector, DeviceTaintRule, not_before_of
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceToleration
from webhook.inventory.fates import DeviceNames, fates_on
from webhook.inventory.matching import Evictor, tolerates

if TYPE_CHECKING:
    from webhook.inventory.state import Inventory


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
