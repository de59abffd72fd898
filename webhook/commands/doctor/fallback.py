"""The check of `doctor` on admission policies that API servers evaluate by themselves. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.commands.doctor.checks import Check, Status, passed
from webhook.policy.vap.drift import MUTATING, FallbackState, compare
from webhook.policy.vap.export import Coverage
from webhook.policy.vap.fallback import export_fallback
from webhook.policy.vap.objects import PolicyTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.policy.model import Policy
    from webhook.policy.vap.drift import AdmissionObjectKey, StoredObject

_NAMED_MOST: Final = 5


def fallback_check(
    policy: Policy | None,
    stored: Mapping[AdmissionObjectKey, StoredObject],
    namespace: str,
    *,
    syncs: bool,
    mutating_version: str | None = "v1",
) -> Check | None:
    """Whether the objects in a cluster are what the policy exports; None where there are none and none are wanted.

    `policy` is None if it cannot be loaded; `syncs`: whether the worker keeps or compares them; `mutating_version` is
    that of MutatingAdmissionPolicy, None if it is not served.
    """
    ours = [each for each in stored.values() if each.ours]
    if not ours and not syncs:
        return None
    if policy is None:
        return passed("fallback", "not compared, as the policy cannot be loaded: the last good one stays in place")
    adds = syncs or any(each.key.kind.startswith(MUTATING) for each in ours)
    exported = export_fallback(
        policy,
        protect_labels=any(each.key.name.endswith(f"-{PolicyTopic.LABELS}") for each in ours),
        namespace=namespace,
        mutating_version=mutating_version if adds else None,
    )
    found = compare(exported.objects, stored)
    amiss = [str(each) for each in found if each.state is not FallbackState.IN_SYNC]
    if amiss:
        more = f", and {len(amiss) - _NAMED_MOST} more" if len(amiss) > _NAMED_MOST else ""
        text = f"admission policies differ from the policy: {'; '.join(amiss[:_NAMED_MOST])}{more}"
        advice = "see the log of the leader of evict" if syncs else "export and apply them again, or keep them in sync"
        return Check("fallback", Status.WARN, text, f"{advice}: docs/fallback.md")
    parts = (*exported.rules, *exported.beyond)
    full = sum(each.coverage is Coverage.FULL for each in parts)
    return passed(
        "fallback",
        f"{len(found)} admission policies and bindings as in the policy; {full} of {len(parts)} parts in full",
    )
