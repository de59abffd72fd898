"""The check of `doctor` on admission policies that API servers evaluate by themselves. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.commands.doctor.checks import Check, Status, passed
from webhook.policy.vap.drift import FallbackState, compare
from webhook.policy.vap.export import Coverage, export
from webhook.policy.vap.objects import PolicyTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.policy.model import Policy
    from webhook.policy.vap.drift import AdmissionObjectKey, StoredObject

_NAMED_MOST: Final = 5


def fallback_check(
    policy: Policy | None, stored: Mapping[AdmissionObjectKey, StoredObject], namespace: str
) -> Check | None:
    """Compare the objects in a cluster with what the policy exports; None where there are none.

    `policy` is None if it cannot be loaded.
    """
    ours = [each for each in stored.values() if each.ours]
    if not ours:
        return None
    if policy is None:
        return passed("fallback", "not compared, as the policy cannot be loaded: the last good one stays in place")
    protects = any(each.key.name.endswith(f"-{PolicyTopic.LABELS}") for each in ours)
    exported = export(policy, protect_labels=protects, namespace=namespace)
    found = compare(exported.objects, stored)
    amiss = [str(each) for each in found if each.state is not FallbackState.IN_SYNC]
    if amiss:
        more = f", and {len(amiss) - _NAMED_MOST} more" if len(amiss) > _NAMED_MOST else ""
        text = f"admission policies differ from the policy: {'; '.join(amiss[:_NAMED_MOST])}{more}"
        return Check("fallback", Status.WARN, text, "export and apply them again: docs/export-vap.md")
    parts = (*exported.rules, *exported.beyond)
    full = sum(each.coverage is Coverage.FULL for each in parts)
    return passed(
        "fallback",
        f"{len(found)} admission policies and bindings as in the policy; {full} of {len(parts)} parts in full",
    )
