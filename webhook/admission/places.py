"""Where the pods of an impact would go, as far as a review can say within its time.

Source: `inventory.placement`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from webhook.admission.context import AdmissionContext
from webhook.api.claims import ResourceClaim
from webhook.api.taints import DeviceTaint
from webhook.inventory.impact import Impact
from webhook.inventory.placement import PodPlacement, Seeker, freed_claims, placements
from webhook.inventory.pools import Check, in_steps
from webhook.inventory.state import Inventory
from webhook.inventory.supply import NotKnownError, Supply
from webhook.inventory.targets import DeviceNames

_SECONDS: Final = 0.1
_MOST_PODS: Final = 5_000
"""For more of them it takes longer to say what they ask for."""


def places_of(
    inventory: Inventory,
    impact: Impact,
    taints: Iterable[tuple[DeviceNames, DeviceTaint]],
    without: str,
    context: AdmissionContext,
) -> tuple[PodPlacement, ...]:
    """Return where the evicted pods would go under these taints and all others, but for those of the rule `without`.

    Nodes are not known here. Where pods are not followed, a pod has the claims that are hit, and no more. Raises
    OutOfTime.
    """
    if len(impact.pods) > _MOST_PODS:
        nameless = [Seeker("", "", ())] * len(impact.pods)
        return (PodPlacement.not_known(nameless, f"more than {_MOST_PODS} pods are too many to place"),)
    assumed = [(DeviceNames.of(rule.selector, inventory.servers), rule.taint) for rule in context.assumed]
    seekers = list(_seekers(inventory, impact, partial(context.budget.check, "places")))
    try:
        supply = Supply(
            inventory,
            classes=None if context.patches.unknown else context.patches.classes or None,
            nodes=None,
            freed=freed_claims(seekers, impact.pods),
            taints=[*assumed, *taints],
            without=without,
            go_on=context.budget.lasting(_SECONDS),
        )
    except NotKnownError as error:
        return (PodPlacement.not_known(seekers, str(error)),)
    return placements(inventory, seekers, supply)


def _seekers(inventory: Inventory, impact: Impact, check: Check) -> Iterable[Seeker]:
    hit: dict[str, tuple[str, str, list[ResourceClaim]]] = {}
    for key in in_steps(impact.claims, check):
        claim = inventory.claims[key]
        for consumer in claim.reserved_for:
            if consumer.uid in impact.pods:
                hit.setdefault(consumer.uid, (claim.meta.namespace, consumer.name, []))[2].append(claim)
    for uid, (namespace, name, claims) in hit.items():
        pod = inventory.pods.get(f"{namespace}/{name}")
        known = pod is not None and pod.meta.uid == uid
        yield Seeker.of(pod, inventory.claims_of(pod)) if pod and known else Seeker(namespace, name, tuple(claims))
