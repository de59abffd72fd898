"""What the windows of the policy mean for the pods that a rule evicts, as warnings beside the figures of its impact."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from webhook.api.claims import allocated_classes
from webhook.api.rules import own_rate
from webhook.inventory.matching import Evictor
from webhook.inventory.steps import in_steps
from webhook.policy.window_fit import Leaving, PodFacts, ProfileGuess, fit_texts, has_windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.context import AdmissionContext
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.impact import Impact, Taint
    from webhook.inventory.state import Inventory
    from webhook.inventory.steps import Check


def window_figures(
    impact: Impact, rule: DeviceTaintRule, taint: Taint, inventory: Inventory, context: AdmissionContext, check: Check
) -> Iterator[str]:
    """Which pods wait for a window, and whether it is too short; nothing if our worker does not evict them."""
    profiles = context.policy.eviction
    if taint.evictor is not Evictor.OURS or not has_windows(profiles):
        return
    guess, counts = ProfileGuess(profiles), Counter[int | None]()
    for namespace, classes in in_steps(_pods_of(impact, inventory), check):
        counts[guess.of(PodFacts(namespace, context.names.namespace(namespace), classes))] += 1
    more = bool(counts.pop(None, 0) or impact.pod_groups or impact.incomplete_pools)
    start = context.now if taint.not_before is None else max(context.now, taint.not_before)
    pods = {position: number for position, number in counts.items() if position is not None}
    yield from fit_texts(profiles, Leaving(pods, start, own_rate(rule), more))


def _pods_of(impact: Impact, inventory: Inventory) -> list[tuple[str, frozenset[str]]]:
    """Namespace and known device classes of each pod that is evicted."""
    pods, found = impact.pods, dict[str, tuple[str, frozenset[str]]]()
    for key in impact.claims:
        claim = inventory.claims[key]
        for consumer in claim.reserved_for or ():
            if consumer.uid in pods:
                _, known = found.get(consumer.uid, ("", frozenset[str]()))
                found[consumer.uid] = claim.meta.namespace, known | allocated_classes(claim)
    return list(found.values())
