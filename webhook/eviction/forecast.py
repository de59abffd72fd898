"""What a rule of effect None would evict with effect NoExecute, counted as the in-tree controller counts it.

`impact_of` counts the consumers of claims, for processes that may not read pods. The worker knows the pods, so it
leaves out those that are terminating, have no node, or are gone while their claim is still reserved for them.
Source: `semantics.md` E-40, E-43; countPendingPods and countTaintedDevices of the in-tree controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.eviction.conditions import ImpactForecast
from webhook.eviction.pod_plan import exemption
from webhook.flowcontrol.timeslice import TimeSlice
from webhook.inventory.fates import DeviceNames
from webhook.inventory.impact import Taint, impact_of

if TYPE_CHECKING:
    from webhook.api.pods import Pod
    from webhook.api.rules import DeviceTaintRule
    from webhook.eviction.core import Core


async def forecast_of(core: Core, rule: DeviceTaintRule) -> ImpactForecast:
    """Devices, allocated devices, pods and namespaces, in time slices: the inventory may change meanwhile.

    A rule without a selector selects nothing (E-6).
    """
    if rule.selector is None:
        return ImpactForecast(0, 0, 0, 0)
    inventory = core.deps.inventory
    taint = Taint.of_rule(rule, in_tree=False).as_if_evicting(in_tree=False)
    impact = impact_of(inventory, rule.selector, taint, core.deps.clock.now())
    names = DeviceNames.of(rule.selector)
    pods, namespaces = 0, set()
    timeslice = TimeSlice(clock=core.deps.clock.seconds)
    for key in inventory.pods_using(inventory.usage.claims_on(*names)):
        await timeslice.pause()
        pod = inventory.pods.get(key)
        if pod is not None and _may_go(core, pod) and core.evictions.would_evict(pod, taint, names):
            pods += 1
            namespaces.add(pod.meta.namespace)
    return ImpactForecast(impact.devices, impact.allocated, pods, len(namespaces))


def _may_go(core: Core, pod: Pod) -> bool:
    """Whether a plan for the pod would count as pending."""
    if pod.deleting or pod.finished or pod.meta.uid in core.plans.evicted:
        return False
    return exemption(pod, core.deps.profile_of(pod).settings) is None
