"""A pod explained: its devices and their taints, when it is evicted and by whom, and what holds that back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.commands.explain.claims import claim_values
from webhook.commands.status.report import condition_values, pod_values
from webhook.commands.status.views import views_of
from webhook.inventory.state import claim_keys, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.pods import Pod
    from webhook.commands.explain.facts import ExplainFacts
    from webhook.commands.status.waits import PodStatus


def pod_explanation(facts: ExplainFacts, pod: Pod) -> dict[str, Any]:
    """A pod that is known. `evictions` has an entry for each evictor that would evict it; empty if none would."""
    inventory = facts.objects.inventory
    names = claim_keys(pod)
    known = [name for name in names if name in inventory.claims]
    statuses = statuses_of(facts, {pod.meta.uid})
    claims = [claim_values(facts, key) for key in known]
    rules = {taint["rule"] for claim in claims for device in claim["devices"] for taint in device["taints"]}
    own = {key_of(claim.meta) for claim in inventory.claims_of(pod)}
    return {
        "namespace": pod.meta.namespace,
        "name": pod.meta.name,
        "node": pod.node_name,
        "phase": pod.phase,
        "terminating": pod.deleting,
        "hold": facts.objects.hold_of(pod),
        "claims": claims,
        "claimsNotFound": [name for name in names if name not in inventory.claims],
        "claimsNotReserved": [key for key in known if key not in own],
        "evictions": [pod_values(status) for status in statuses],
        "reported": reported_values(facts, {name for name in rules if name}),
    }


def statuses_of(facts: ExplainFacts, uids: set[str] | None = None) -> list[PodStatus]:
    """The states of the pods that a taint evicts, of these or of all; none if pods or claims are not known."""
    found = [status for view in views_of(facts.objects, facts.settings) for status in view.statuses()]
    return [status for status in found if uids is None or status.pod.meta.uid in uids]


def reported_values(facts: ExplainFacts, names: Iterable[str]) -> list[dict[str, Any]]:
    """What is in the status of these rules, by the worker or the in-tree controller."""
    rules = facts.objects.inventory.rules
    return [
        {"rule": name, **condition_values(condition, rules[name])}
        for name in sorted(names)
        for condition in rules[name].conditions
    ]
