"""The impact of a taint in processes that follow pods: who goes along, and which gangs it breaks.

Pods of an impact are the consumers that claims are reserved for; here their pods are looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.inventory.gang_losses import broken_gangs, count_gangs
from webhook.inventory.matching import Evictor
from webhook.inventory.pod_groups import companions_in, goes_with_all, group_key, is_leaving
from webhook.inventory.steps import in_steps, unchecked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from webhook.api.pods import Pod
    from webhook.inventory.gangs import Gang
    from webhook.inventory.impact import Impact
    from webhook.inventory.preview import OutcomeReason
    from webhook.inventory.state import Inventory
    from webhook.inventory.steps import Check

PODS_MOST: Final = 10_000
"""Of more pods neither companions nor gangs are looked for, which would take more than some 30 ms."""


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
    waves, along = list(impact.waves), set[str]()
    seen: set[str] = set()
    for position, pod in in_steps(_evicted(inventory, impact), check):
        group = group_key(pod)
        if group in seen or is_leaving(pod) or not goes_with_all(inventory, pod) or pods.exemption_of(pod) is not None:
            continue
        seen.add(group)
        fresh = [
            each.meta.uid for each in in_steps(companions_in(inventory, group), check) if not pods.exemption_of(each)
        ]
        going = frozenset(fresh) - impact.pods
        waves[position] = structs.replace(waves[position], pods=waves[position].pods | going)
        along |= going
    if not along:
        return impact
    return structs.replace(
        impact,
        waves=tuple(waves),
        companions=frozenset(along),
        tolerating=impact.tolerating - along,
        unseen=impact.unseen - along,
        kept=impact.kept - along,
    )


def with_gangs(inventory: Inventory, impact: Impact, pods: KnownPods | None, check: Check = unchecked) -> Impact:
    """The impact with the gangs that it breaks; as it is without `pods`. `check` may raise to stop."""
    if pods is None:
        return impact
    going = [pod for _, pod in in_steps(_evicted(inventory, impact), check)]
    groups = {group_key(pod) for pod in going if goes_with_all(inventory, pod)} if impact.companions else set[str]()
    for group in sorted(groups):
        going += [each for each in companions_in(inventory, group) if each.meta.uid in impact.companions]
    lost = count_gangs(going, pods.gang_of, check)
    return structs.replace(impact, gangs=broken_gangs(lost, pods.sizes))


def _evicted(inventory: Inventory, impact: Impact) -> Iterator[tuple[int, Pod]]:
    """The pods that a taint evicts itself, soonest first, each once, with the position of its wave.

    A pod first goes in the wave of one of its claims, which is in no earlier wave: else the pod would be, too.
    """
    if len(impact.pods) - len(impact.companions) > PODS_MOST:
        return
    for position, wave in enumerate(impact.waves):
        for key in inventory.pods_using(wave.claims):
            pod = inventory.pods[key]
            if pod.meta.uid in wave.pods and pod.meta.uid not in impact.companions:
                yield position, pod
