"""The impact of a taint in processes that follow pods: who goes along, and which gangs it breaks.

Pods of an impact are the consumers that claims are reserved for; here their pods are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.api.pods import Pod
from webhook.inventory.gangs import Gang, broken_gangs, companions_in, count_gangs, goes_as_a_whole, group_key, is_held
from webhook.inventory.impact import Impact
from webhook.inventory.pools import Check, Evictor, in_steps, unchecked
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from webhook.inventory.preview import OutcomeReason


PODS_MOST: Final = 2000
"""If more pods are evicted, no gangs are looked for: that takes some 10 microseconds for each, on the event loop."""


class KnownPods(NamedTuple):
    """What a process that follows pods can say of them: `sizes` of all gangs, and by pod its gang.

    `exemption_of`: why our worker never evicts a pod, or None.
    """

    gang_of: Callable[[Pod], Gang | None]
    exemption_of: Callable[[Pod], OutcomeReason | None]
    sizes: Mapping[Gang, int]


def with_companions(
    inventory: Inventory, impact: Impact, evictor: Evictor | None, pods: KnownPods | None, check: Check = unchecked
) -> Impact:
    """The impact with the pods that our worker evicts along with others of their PodGroup, each when the first goes.

    The in-tree controller takes no pod along. Without `pods` the impact is left as it is. `check` may raise to stop.
    """
    if pods is None or evictor is not Evictor.OURS:
        return impact
    hit, waves, along = impact.pods, list(impact.waves), set[str]()
    for key, group in in_steps(inventory.pod_groups.items(), check):
        if not goes_as_a_whole(group) or group.meta.namespace not in impact.namespaces:
            continue
        going = {
            pod.meta.uid
            for pod in in_steps(companions_in(inventory, key), check)
            if pods.exemption_of(pod) is None and not is_held(inventory, pod, impact.claims)
        }
        causes = going & hit
        if causes:
            first = next(number for number, wave in enumerate(waves) if not causes.isdisjoint(wave.pods))
            waves[first] = structs.replace(waves[first], pods=waves[first].pods | (going - hit))
            along |= going - hit
    if not along:
        return impact
    return structs.replace(
        impact,
        waves=tuple(waves),
        companions=frozenset(along),
        tolerating=impact.tolerating - along,
        kept=impact.kept - along,
    )


def with_gangs(inventory: Inventory, impact: Impact, pods: KnownPods | None, check: Check = unchecked) -> Impact:
    """The impact with the gangs that it breaks; as it is without `pods`. `check` may raise to stop."""
    evicted = impact.pods
    if pods is None or len(evicted) > PODS_MOST:
        return impact
    keys = set(inventory.pods_using(impact.claims))
    if impact.companions:
        for group in {group_key(inventory.pods[key]) for key in keys}:
            keys.update(inventory.members_of(group))
    going = [pod for pod in map(inventory.pods.__getitem__, keys) if pod.meta.uid in evicted]
    lost = count_gangs(going, pods.gang_of, check)
    return structs.replace(impact, gangs=broken_gangs(lost, pods.sizes))
