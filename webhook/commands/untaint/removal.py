"""Deletes rules that were chosen, unless they have changed since."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.commands.shared.server_errors import refusal_text

if TYPE_CHECKING:
    from webhook.commands.shared.rule_objects import StoredTaintRule
    from webhook.commands.shared.rule_store import RuleStore

_ATTEMPTS: Final = 5
"""The worker writes the status of a rule every few seconds, which is no reason not to delete it."""


class RemovedRule(NamedTuple):
    """What became of a rule. `refusal`: why it is still there."""

    stored: StoredTaintRule
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    """What it waits for, if it is not gone yet."""


async def remove(store: RuleStore, stored: StoredTaintRule, *, dry_run: bool) -> RemovedRule:
    """Deletes the rule with its uid and resource version as preconditions. Raises ClusterError."""
    for _ in range(_ATTEMPTS):
        response = await store.delete(stored, dry_run=dry_run)
        if response.granted:
            left = response.body.get("metadata") or {}
            # A Status has no finalizers; the object is in the answer while some are left.
            return RemovedRule(stored, "", response.warnings, tuple(left.get("finalizers") or ()))
        if response.code == HTTPStatus.NOT_FOUND:
            return RemovedRule(stored)
        if response.code != HTTPStatus.CONFLICT:
            return RemovedRule(stored, refusal_text(str(response.body.get("reason") or ""), response.message))
        found = await store.get(stored.rule.meta.name)
        if found is None:
            return RemovedRule(stored)
        if _matters(found) != _matters(stored):
            return RemovedRule(stored, f"error: rule {stored.rule.meta.name} was changed meanwhile: look at it again")
        stored = found
    return RemovedRule(stored, f"error: rule {stored.rule.meta.name} keeps changing: try again")


def _matters(stored: StoredTaintRule) -> tuple[object, ...]:
    """What the decision to delete it was made by."""
    rule = stored.rule
    return rule.meta.uid, rule.selector, rule.taint, stored.maker
