"""The rules that `/scope: hardware` of a rule adds: one for each device beside a selected one.

Rules that the controller made never expand again, and only a rule for devices by name can select one part of a piece of
hardware and not the other. A rule that does not act has none either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from webhook.api.rules import (
    DATA,
    DESCRIPTION,
    EVICTIONS_PER_SECOND,
    HARDWARE,
    NOT_BEFORE,
    SCOPE,
    DeviceSelector,
)
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.expansion import ExpandedRule, PatchExpansion, rule_name
from webhook.inventory.hardware import siblings_in
from webhook.inventory.rule_delta import EFFECT_RANK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.inventory.pools import PoolId
    from webhook.patches.index import PatchIndex
    from webhook.patches.stored import StoredRule


def has_hardware_scope(stored: StoredRule) -> bool:
    """Whether a rule asks for its siblings, and may."""
    rule = stored.rule
    return (
        rule.meta.annotations.get(SCOPE) == HARDWARE
        and not stored.owner_uids
        and not rule.deleting
        and rule.selector is not None
        and not (rule.selector.unknown or rule.selector.selectors or rule.selector.device_class_name)
        and rule.selector.device is not None
        and rule.taint.effect in EFFECT_RANK
    )


def looks_at(stored: StoredRule, pool: PoolId) -> bool:
    """Whether the siblings of a rule depend on a pool."""
    selector = stored.rule.selector
    return selector is not None and selector.driver in (None, pool[0]) and selector.pool in (None, pool[1])


def sibling_rules(stored: StoredRule, index: PatchIndex, ceiling: int) -> PatchExpansion:
    """The rules for the siblings of what a rule selects; none if there would be more than the ceiling."""
    rules = tuple(_rules(stored, index)) if has_hardware_scope(stored) else ()
    return PatchExpansion(rules if len(rules) <= ceiling else (), len(rules))


def _rules(stored: StoredRule, index: PatchIndex) -> Iterator[ExpandedRule]:
    rule = stored.rule
    selector = rule.selector
    assert selector is not None
    assert selector.device is not None
    # A sibling that evicts does so when its rule does; without evictions the annotation says nothing.
    begins = (NOT_BEFORE,) if rule.taint.effect == NO_EXECUTE else ()
    kept = (DATA, DESCRIPTION, EVICTIONS_PER_SECOND, *begins)
    annotations = {name: text for name, text in rule.meta.annotations.items() if name in kept}
    taint = structs.replace(rule.taint, extras=None)
    for identity in sorted([pool for pool, _ in index.fleet.named(selector)]):
        for device in sorted(siblings_in(index.slices_of(identity), {selector.device: 1})):
            if device != selector.device:
                at = DeviceSelector(*identity, device)
                yield ExpandedRule(rule_name(rule.meta.name, taint, at), at, taint, annotations)
