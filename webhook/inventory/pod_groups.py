"""What a PodGroup means for its pods: whether they are disrupted together, and whether it keeps their claims reserved.

Source: scheduling.k8s.io/v1beta1 DisruptionMode, "all children can only be disrupted together"; KEP-5729.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from webhook.api.claims import ResourceClaim
from webhook.api.pod_groups import ALL, PodGroup
from webhook.api.pods import Pod
from webhook.inventory.state import Inventory, is_pod_group, key_of


def group_key(pod: Pod) -> str:
    """`namespace/name` of the PodGroup that a pod names; empty if it names none."""
    return f"{pod.meta.namespace}/{pod.pod_group}" if pod.pod_group else ""


def group_of(inventory: Inventory, pod: Pod) -> PodGroup | None:
    """The PodGroup of a pod; None if it names none, or one that is not known."""
    return inventory.pod_groups.get(group_key(pod)) if pod.pod_group else None


def goes_with_all(inventory: Inventory, pod: Pod) -> bool:
    """Whether the pod is disrupted only together with all others of its group."""
    group = group_of(inventory, pod)
    return group is not None and goes_as_a_whole(group)


def goes_as_a_whole(group: PodGroup) -> bool:
    """Whether all pods of a group are disrupted together, or none."""
    return group.disruption_mode == ALL


def is_leaving(pod: Pod) -> bool:
    """Whether the pod is terminating or finished, so that it is not evicted and takes no other along."""
    return pod.deleting or pod.finished


def may_go_along(pod: Pod) -> bool:
    """Whether a pod that no taint evicts goes when its group is disrupted: without a node it has nothing to leave."""
    return bool(pod.node_name)


def keeps_all(inventory: Inventory, pod: Pod, claims: Iterable[ResourceClaim]) -> bool:
    """Whether all of these claims are reserved for the pod's PodGroup, and it exists.

    Such a claim is deallocated only once the PodGroup is deleted, whatever becomes of the pods. Where PodGroups are not
    served or one is gone, the reservation is left over, and no deletion would end it.
    """
    group = group_of(inventory, pod)
    return group is not None and all(
        any(is_pod_group(each) and each.uid == group.meta.uid for each in claim.reserved_for or ()) for claim in claims
    )


def is_held(inventory: Inventory, pod: Pod, hit: Container[str]) -> bool:
    """Tell whether the pod uses claims that a taint `hit`, and its PodGroup keeps all of them reserved.

    Such a pod stays, also if others of the PodGroup go.
    """
    claims = [claim for claim in inventory.claims_of(pod) if key_of(claim.meta) in hit]
    return bool(claims) and keeps_all(inventory, pod, claims)


def companions_in(inventory: Inventory, group: str) -> Iterator[Pod]:
    """The pods of a PodGroup, by `namespace/name`, that go if it is disrupted as a whole."""
    pods = inventory.pods
    for key in inventory.members_of(group):
        if may_go_along(pods[key]) and not is_leaving(pods[key]):
            yield pods[key]
