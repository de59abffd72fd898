"""What the windows of the policy mean for the pods that a rule evicts, as warnings beside the figures of its impact."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from webhook.api.claims import allocated_classes
from webhook.inventory.matching import Evictor
from webhook.inventory.steps import in_steps
from webhook.policy.profile_matcher import PodFacts, ProfileMatcher
from webhook.policy.window_fit import Leaving, fit_texts, has_windows

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from webhook.admission.context import AdmissionContext
    from webhook.inventory.impact import Impact, Taint
    from webhook.inventory.state import Inventory
    from webhook.inventory.steps import Check


def window_figures(
    impact: Impact, taint: Taint, inventory: Inventory, context: AdmissionContext, check: Check
) -> Iterator[str]:
    """Which pods wait for a window; nothing if our worker does not evict them."""
    profiles = context.policy.eviction
    if taint.evictor is not Evictor.OURS or not has_windows(profiles):
        return
    matcher, counts = ProfileMatcher(profiles), dict[int | None, Counter[int]]()
    seconds = {uid: wave.seconds for wave in impact.waves for uid in wave.pods}
    for uid, (namespace, classes) in in_steps(_facts_of(seconds, impact, inventory).items(), check):
        position = matcher.profile_of(PodFacts(namespace, context.names.namespace(namespace), classes))
        counts.setdefault(position, Counter())[seconds[uid]] += 1
    pods = {position: dues for position, dues in counts.items() if position is not None}
    yield from fit_texts(profiles, Leaving(pods, context.now), check)


def _facts_of(pods: Container[str], impact: Impact, inventory: Inventory) -> Mapping[str, tuple[str, frozenset[str]]]:
    """Namespace and known device classes of each pod that is evicted, by its uid."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for key in impact.claims:
        claim = inventory.claims[key]
        for consumer in claim.reserved_for or ():
            if consumer.uid in pods:
                _, known = found.get(consumer.uid, ("", frozenset[str]()))
                found[consumer.uid] = claim.meta.namespace, known | allocated_classes(claim)
    return found
