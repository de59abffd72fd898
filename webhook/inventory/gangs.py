"""Which pods belong together: gangs, what a PodGroup means for its pods, and the objects above a pod's controller.

A gang does its work together or not at all, so one member that is evicted alone breaks it for all. Nothing here reads
a JobSet or a Deployment: what those controllers write into their pods says enough.

| what | where it is written | source |
|---|---|---|
| PodGroup | `spec.schedulingGroup.podGroupName` | Kubernetes 1.36, core/v1 PodSchedulingGroup |
| JobSet | labels `jobset-name` and `jobset-uid` (not in old releases) | jobset, labelAndAnnotateObject |
| LeaderWorkerSet | labels `name`, `group-index` and `group-key`, a hash of namespace and leader | lws, pod_webhook.go |
| Kueue | label `pod-group-name` | kueue, pkg/controller/jobs/pod/constants |
| Deployment | label `pod-template-hash`, with which its ReplicaSet's name ends | deployment/sync.go, getNewReplicaSet |

Pods of a PodGroup are disrupted together or not: scheduling.k8s.io/v1beta1 DisruptionMode; KEP-5729.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.api.claims import ResourceClaim
from webhook.api.pods import ALL, SINGLE, Pod, PodGroup
from webhook.inventory.pools import Check, in_steps, unchecked
from webhook.inventory.state import Inventory, InventoryObject, is_pod_group, key_of

# --- what a PodGroup means for its pods ----------------------------------------------------------


def group_key(pod: Pod) -> str:
    """Return `namespace/name` of the PodGroup that a pod names; empty if it names none."""
    return f"{pod.meta.namespace}/{pod.pod_group}" if pod.pod_group else ""


def group_of(inventory: Inventory, pod: Pod) -> PodGroup | None:
    """Return the PodGroup of a pod; None if it names none, or one that is not known."""
    return inventory.pod_groups.get(group_key(pod)) if pod.pod_group else None


def goes_with_all(inventory: Inventory, pod: Pod) -> bool:
    """Tell whether the pod is disrupted only together with all others of its group."""
    group = group_of(inventory, pod)
    return group is not None and goes_as_a_whole(group)


def goes_as_a_whole(group: PodGroup) -> bool:
    """Tell whether all pods of a group are disrupted together, or none."""
    return group.disruption_mode == ALL


def is_leaving(pod: Pod) -> bool:
    """Tell whether the pod is terminating or finished, so that it is not evicted and takes no other along."""
    return pod.deleting or pod.finished


def may_go_along(pod: Pod) -> bool:
    """Tell whether a pod that no taint evicts goes when its group is disrupted: it has to be on a node."""
    return bool(pod.node_name)


def keeps_all(inventory: Inventory, pod: Pod, claims: Iterable[ResourceClaim]) -> bool:
    """Tell whether all of these claims are reserved for the pod's PodGroup, and it exists.

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
    """Return the pods of a PodGroup, by `namespace/name`, that go if it is disrupted as a whole."""
    pods = inventory.pods
    for key in inventory.members_of(group):
        if may_go_along(pods[key]) and not is_leaving(pods[key]):
            yield pods[key]


# --- gangs ---------------------------------------------------------------------------------------

GangOf = Callable[[Pod], "Gang | None"]


POD_GROUP: Final = "PodGroup"
JOB_SET: Final = "JobSet"
LEADER_WORKER_SET: Final = "LeaderWorkerSet"
_DEPLOYMENT: Final = "Deployment"
_REPLICA_SET: Final = "ReplicaSet"
_ANNOTATED: Final = "gang"
_JOB_SET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
_JOB_SET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
_LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
_LWS_GROUP_KEY: Final = "leaderworkerset.sigs.k8s.io/group-key"
_LWS_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
_KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_TEMPLATE_HASH: Final = "pod-template-hash"


class Gang(NamedTuple):
    """What pods have in common that belong together.

    `kind` is that of the object that makes the gang, `gang` for the annotation, or the key of the label. `key` tells
    gangs of one name apart: the group of a LeaderWorkerSet, or the uid of an owner.
    """

    kind: str
    namespace: str
    name: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class RootOwner(NamedTuple):
    """The object at the top of the owners that a pod names. `key` is the same for all of its pods."""

    kind: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def gang_of(pod: Pod, gang_labels: Sequence[str] = (), *, by_owner: bool = False) -> Gang | None:
    """Return the gang of a pod, or None; the first that the pod names counts. A label without a value names none.

    The order: its PodGroup, annotation `/gang`, its JobSet, its group of a LeaderWorkerSet, its pod group of Kueue,
    the labels of `gang_labels`, and `by_owner` its controller. Whether a PodGroup lets its pods go one by one is
    another question: see `gang_in`.
    """
    namespace = pod.meta.namespace
    if pod.pod_group:
        return Gang(POD_GROUP, namespace, pod.pod_group)
    if pod.gang:
        return Gang(_ANNOTATED, namespace, pod.gang)
    found = _by_labels(pod, gang_labels) if pod.labels else None
    if found is None and by_owner and pod.owner is not None:
        return Gang(pod.owner.kind, namespace, pod.owner.name, pod.owner.uid)
    return found


def gang_in(inventory: Inventory, pod: Pod, gang_labels: Sequence[str] = (), *, by_owner: bool = False) -> Gang | None:
    """Return the same, but none for a pod of a PodGroup whose disruption mode is `single`: its pods may go one by one.

    Pods of a PodGroup that is not known, or says nothing, go together.
    """
    gang = gang_of(pod, gang_labels, by_owner=by_owner)
    if gang is None or gang.kind != POD_GROUP:
        return gang
    group = group_of(inventory, pod)
    return None if group is not None and group.disruption_mode == SINGLE else gang


def _by_labels(pod: Pod, gang_labels: Sequence[str]) -> Gang | None:
    namespace = pod.meta.namespace
    job_set = pod.label(_JOB_SET_NAME)
    if job_set:
        return Gang(JOB_SET, namespace, job_set)
    workers = pod.label(_LWS_NAME)
    group = pod.label(_LWS_GROUP_KEY) or pod.label(_LWS_GROUP_INDEX)
    if workers and group:
        return Gang(LEADER_WORKER_SET, namespace, workers, group)
    for label in (_KUEUE_GROUP, *gang_labels):
        name = pod.label(label)
        if name:
            return Gang(label, namespace, name)
    return None


def root_owner(pod: Pod) -> RootOwner | None:
    """Return what a pod ultimately belongs to, None for a bare pod: what limits of owners count, and what is shown.

    A JobSet or LeaderWorkerSet by label, the Deployment over a ReplicaSet, the PodGroup of a pod that no object
    controls, else its controller.
    """
    found = _labelled_root(pod) if pod.labels else None
    if found is not None:
        return found
    if pod.owner is not None:
        # Anybody may name the owner of another namespace.
        return RootOwner(pod.owner.kind, pod.owner.name, f"{pod.meta.namespace}/{pod.owner.uid}")
    return _named(pod, POD_GROUP, pod.pod_group) if pod.pod_group else None


def _labelled_root(pod: Pod) -> RootOwner | None:
    job_set = pod.label(_JOB_SET_NAME)
    if job_set:
        # A label may say anything, also the uid of another namespace's owner.
        found = _named(pod, JOB_SET, job_set)
        uid = pod.label(_JOB_SET_UID)
        return found._replace(key=f"{found.key}/{uid}") if uid else found
    workers = pod.label(_LWS_NAME)
    if workers:
        return _named(pod, LEADER_WORKER_SET, workers)
    template = pod.label(_TEMPLATE_HASH)
    if template and pod.owner is not None and pod.owner.kind == _REPLICA_SET:
        deployment = pod.owner.name.removesuffix(f"-{template}")
        if deployment and deployment != pod.owner.name:
            return _named(pod, _DEPLOYMENT, deployment)
    return None


def _named(pod: Pod, kind: str, name: str) -> RootOwner:
    """Return an owner whose uid is not known."""
    return RootOwner(kind, name, f"{kind}/{pod.meta.namespace}/{name}")


class BrokenGang(NamedTuple):
    """A gang that loses pods. `pods`: all of its pods that run, evicted or not."""

    gang: Gang
    evicted: int
    pods: int


def count_gangs(pods: Iterable[Pod], gang_of_pod: GangOf, check: Check = unchecked) -> Counter[Gang]:
    """Return how many of the pods that are not terminating or finished each gang has. `check` may raise to stop."""
    gangs = [gang_of_pod(pod) for pod in in_steps(pods, check) if not is_leaving(pod)]
    return Counter([gang for gang in gangs if gang is not None])


def broken_gangs(lost: Mapping[Gang, int], sizes: Mapping[Gang, int]) -> tuple[BrokenGang, ...]:
    """Return the gangs that have several pods, those that lose most first. `lost`: how many pods each loses."""
    found = [BrokenGang(gang, evicted, sizes[gang]) for gang, evicted in lost.items()]
    return tuple(sorted([each for each in found if each.pods > 1], key=lambda each: (-each.evicted, each.gang)))


class GangSizes:
    """How many pods each gang has, kept up to date, so that an answer about a few pods does not look at all of them.

    Which labels make gangs, and whether owners do, is up to profiles, so a pod counts for each gang that it may have.
    """

    def __init__(self, inventory: Inventory) -> None:
        """Begin to count; report changes to `observe` from the first on, once the inventory has applied them."""
        self._inventory = inventory
        self._labels: tuple[str, ...] = ()
        self._sizes = Counter[Gang]()

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """Count one object that has changed."""
        for each, step in ((old, -1), (new, 1)):
            if isinstance(each, Pod):
                self._count(each, step)

    def by_labels(self, labels: Iterable[str]) -> Mapping[Gang, int]:
        """Return the sizes, if these labels make gangs too. Other labels than before are counted in all pods."""
        wanted = tuple(sorted(set(labels)))
        if wanted != self._labels:
            self._labels = wanted
            self._sizes.clear()
            for pod in self._inventory.pods.values():
                self._count(pod, 1)
        return self._sizes

    def _count(self, pod: Pod, step: int) -> None:
        if not pod.is_held or is_leaving(pod):
            return
        for gang in self._candidates(pod):
            self._sizes[gang] += step
            if not self._sizes[gang]:
                del self._sizes[gang]

    def _candidates(self, pod: Pod) -> Iterator[Gang]:
        own = gang_of(pod)
        if own is not None:
            yield own
            return
        for label in self._labels:
            gang = gang_of(pod, (label,))
            if gang is not None:
                yield gang
        if pod.owner is not None:
            yield Gang(pod.owner.kind, pod.meta.namespace, pod.owner.name, pod.owner.uid)
