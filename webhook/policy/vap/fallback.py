"""Everything of a policy that API servers can do by themselves: what they refuse, and what they add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.names import OWN_NAMESPACE, PROGRAM
from webhook.policy.vap.default_tolerations import DEFAULTS_NAME, KEPT_NAME, export_defaults
from webhook.policy.vap.export import export
from webhook.policy.vap.objects import PolicyTopic

if TYPE_CHECKING:
    from webhook.policy.model import Policy
    from webhook.policy.vap.export import Export

PARTS_MOST: Final = 9
"""Policies of one topic that the roles in the manifests name; it takes hundreds of rules to need more."""
_SPLIT: Final = (PolicyTopic.TOLERATIONS, PolicyTopic.REQUESTS)
MUTATING_NAMES: Final = (DEFAULTS_NAME, KEPT_NAME)
"""Of MutatingAdmissionPolicies and their bindings."""
VALIDATING_NAMES: Final = tuple(
    f"{PROGRAM}-{topic}{suffix}"
    for topic in PolicyTopic
    for suffix in (
        "",
        *([f"-{part}" for part in range(2, PARTS_MOST + 1)] if topic in _SPLIT else []),
        *(["-unbounded"] if topic in (*_SPLIT, PolicyTopic.DOCUMENTED) else []),
    )
)
"""Of ValidatingAdmissionPolicies and their bindings: the names that the roles in the manifests grant."""


def export_fallback(
    policy: Policy,
    *,
    protect_labels: bool = False,
    namespace: str = OWN_NAMESPACE,
    mutating_version: str | None = "v1",
) -> Export:
    """`export`, and default tolerations if there is a version of MutatingAdmissionPolicy to write them in."""
    exported = export(policy, protect_labels=protect_labels, namespace=namespace)
    if mutating_version is None:
        return exported
    defaults = export_defaults(policy, namespace=namespace, version=mutating_version)
    return exported._replace(
        objects=(*exported.objects, *defaults.objects), beyond=(*exported.beyond, *defaults.entries)
    )
