"""Clusters on one control plane: what is predicted of a taint, and where the real scheduler then puts the new pods."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.apiserver.placement.clusters import LABEL, PRIORITIES, VERSION
from tests.controlplane.client import path
from tests.controlplane.processes import NotReadyError, wait_until
from webhook.api.decode import Reader
from webhook.api.pods import DAEMON_SET
from webhook.api.rules import decode_rule
from webhook.api.servers import facts_of
from webhook.files.manifests import Stock
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.placement import PodPlacement, Seeker, freed_claims, placements
from webhook.inventory.supply import Supply
from webhook.inventory.targets import DeviceNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.apiserver.placement.clusters import Cluster
    from tests.controlplane.plane import ControlPlane

Json = dict[str, Any]
Pod = tuple[str, str]
"""Owner, and of a DaemonSet the node: pods of which it is all the same which of them runs."""

PODS: Final = path("v1", "pods")
RULES: Final = path(VERSION, "devicetaintrules")
_READ: Final = {
    PODS: ("v1", "Pod"),
    path("v1", "nodes"): ("v1", "Node"),
    RULES: (VERSION, "DeviceTaintRule"),
    path(VERSION, "resourceslices"): (VERSION, "ResourceSlice"),
    path(VERSION, "resourceclaims"): (VERSION, "ResourceClaim"),
    path(VERSION, "deviceclasses"): (VERSION, "DeviceClass"),
}
_PLURALS: Final = {"DeviceClass": "deviceclasses"}
_QUEUED: Final = re.compile(r'^scheduler_pending_pods\{queue="(?:active|backoff)"\} (\S+)$', re.MULTILINE)
_RESTLESS: Final = re.compile("evicts it again|claim outlives")
SETTLED_WITHIN_SECONDS: Final = 300.0
"""On a machine that is busy with something else."""
_QUIET_SECONDS: Final = 6.0
_RETRIED_SECONDS: Final = 25.0
_MANY: Final = 12
"""No owner has half as many pods; more of them come only if they are evicted again and again."""
_THREADS: Final = 8


@dataclass
class Group:
    """Pods that are alike, and what becomes of them. `why` is what is said of those for which it is not known."""

    owners: frozenset[Pod]
    found: int = 0
    none: int = 0
    unknown: int = 0
    why: set[str] = field(default_factory=set)
    pending: int = 0
    comes_back: bool = False
    """Whether they were evicted again and again; then all of them count as waiting."""

    @property
    def wrong(self) -> int:
        """How many pods were said to find a place, and wait."""
        return 0 if self.is_restless else max(0, self.pending - self.none - self.unknown)

    @property
    def is_exact(self) -> bool:
        """Whether the pods that wait are those predicted."""
        return not self.unknown and self.pending == self.none

    @property
    def is_right(self) -> bool:
        """Whether nothing that was said is wrong."""
        return self.is_restless or self.none <= self.pending <= self.none + self.unknown

    @property
    def is_restless(self) -> bool:
        """Whether pods may be evicted again and again, so that it is all the same who waits at one moment."""
        return bool(_RESTLESS.search(" ".join(self.why)))

    def __str__(self) -> str:
        owners = ", ".join(sorted("@".join(filter(None, each)) for each in self.owners))
        return (
            f"{owners}: said {self.found} found, {self.none} none, {self.unknown} unknown {sorted(self.why)}; "
            f"{self.pending} wait{', and are evicted again and again' if self.comes_back else ''}"
        )


@dataclass
class Outcome:
    """What was said of a cluster, and what came of it."""

    cluster: Cluster
    groups: list[Group]
    before: dict[str, list[Json]]
    after: list[Json] = field(default_factory=list)


class Trials:
    """Clusters, side by side."""

    def __init__(self, plane: ControlPlane, clusters: Iterable[Cluster]) -> None:
        self._plane, self._client = plane, plane.client
        self.clusters = list(clusters)
        self._evicted: dict[str, Counter[Pod]] = {}
        self._restless: set[Pod] = set()

    def run(self) -> list[Outcome]:
        """Bring them in, tell what a taint will do, taint, and see."""
        self._bring_in()
        self._settle(Counter())
        self._drop_owners_that_wait()
        self._settle(Counter())
        before = self._read()
        outcomes = [Outcome(each, self._predict(each, before[each.name]), before[each.name]) for each in self.clusters]
        gone = sum(self._evicted.values(), Counter[Pod]())
        self._restless.update(*[each.owners for outcome in outcomes for each in outcome.groups if each.is_restless])
        self._taint(before)
        known = {pod["metadata"]["uid"] for objects in before.values() for pod in objects["Pod"]}
        pods = self._settle(gone, frozenset(known))
        for outcome in outcomes:
            outcome.after = [each for each in pods if each["metadata"]["labels"][LABEL] == outcome.cluster.name]
            for pod in outcome.after:
                waits = not pod["spec"].get("nodeName") or _pod(pod) in self._restless
                for group in [each for each in outcome.groups if _pod(pod) in each.owners]:
                    group.pending += waits and pod["metadata"]["uid"] not in known
                    group.comes_back |= _pod(pod) in self._restless
        return outcomes

    # --- before ----------------------------------------------------------------------------------

    def _bring_in(self) -> None:
        for name, value in PRIORITIES.items():
            metadata = {"name": name}
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}
            self._client.create(path("scheduling.k8s.io/v1", "priorityclasses"), body)
        nodes = [(name, labels) for each in self.clusters for name, labels in each.nodes.items()]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda node: self._plane.add_node(*node), nodes))
        objects = [each for cluster in self.clusters for each in cluster.objects]
        for owners in (None, False, True):
            chosen = [
                each
                for each in objects
                if (None if each["kind"] == "Namespace" else "template" in each.get("spec", {})) is owners
            ]
            self._client.each(self._create, chosen, threads=_THREADS)

    def _create(self, value: Json) -> None:
        url = path(value["apiVersion"], _plural(value), namespace=value["metadata"].get("namespace", ""))
        _ = self._client.create(url, value).object

    def _drop_owners_that_wait(self) -> None:
        dropped: set[str] = set()
        waiting = {_pod(pod)[0] for pod in self._pods() if not pod["spec"].get("nodeName")}
        for cluster in [each for each in self.clusters if not each.crowded]:
            for owner in [each for each in cluster.objects if each["metadata"]["name"] in waiting]:
                if "template" in owner.get("spec", {}):
                    dropped.add(owner["metadata"]["name"])
                    namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
                    url = path(owner["apiVersion"], _plural(owner), namespace=namespace, name=name)
                    self._client.request("DELETE", url, query={"propagationPolicy": "Background"})

        def gone() -> bool:
            return not any(_pod(pod)[0] in dropped for pod in self._pods())

        wait_until(gone, "owners that wait are gone", seconds=SETTLED_WITHIN_SECONDS, every=1.0)

    def _pods(self) -> list[Json]:
        return self._client.get(PODS, labelSelector=LABEL).items

    def _settle(self, gone: Mapping[Pod, int], known: frozenset[str] = frozenset()) -> list[Json]:
        """Wait until no pod is left to schedule, nothing changes, and all pods that are gone have come back.

        Pods that are evicted again and again are not waited for.
        """
        last: list[tuple[str, str]] = []
        since = time.monotonic()
        pods: list[Json] = []
        queued = 0.0
        seen: dict[Pod, set[str]] = {}

        def settled() -> bool:
            nonlocal last, since, pods, queued
            pods = self._pods()
            for pod in pods:
                seen.setdefault(_pod(pod), set()).add(pod["metadata"]["uid"])
            self._restless |= {pod for pod, uids in seen.items() if len(uids) > _MANY}
            new = Counter(_pod(pod) for pod in pods if pod["metadata"]["uid"] not in known)
            calm = [pod for pod in pods if _pod(pod) not in self._restless]
            now = sorted((pod["metadata"]["uid"], pod["spec"].get("nodeName", "")) for pod in calm)
            queued = sum(float(each) for each in _QUEUED.findall(self._plane.metrics("kube-scheduler")))
            if now != last or any(new[pod] < count for pod, count in gone.items() if pod not in self._restless):
                last, since = now, time.monotonic()
            # A pod of which a claim cannot be judged is tried again for ever, each 10 seconds.
            return time.monotonic() - since >= (_RETRIED_SECONDS if queued else _QUIET_SECONDS)

        try:
            wait_until(settled, "clusters are settled", seconds=SETTLED_WITHIN_SECONDS, every=1.0)
        except NotReadyError as error:
            new = Counter(_pod(pod) for pod in pods if pod["metadata"]["uid"] not in known)
            error.add_note(f"not back: {[pod for pod, count in gone.items() if new[pod] < count]}; queued: {queued}")
            raise
        return pods

    # --- what is said ----------------------------------------------------------------------------

    def _read(self) -> dict[str, dict[str, list[Json]]]:
        """What the API server holds, by cluster and kind."""
        found: dict[str, dict[str, list[Json]]] = defaultdict(lambda: defaultdict(list))
        for url, (version, kind) in _READ.items():
            for item in self._client.get(url, labelSelector=LABEL).items:
                value = {"apiVersion": version, "kind": kind, **item}
                found[item["metadata"]["labels"][LABEL]][kind].append(value)
        return found

    def _predict(self, cluster: Cluster, objects: Mapping[str, list[Json]]) -> list[Group]:
        gone, results = predict(cluster, objects, self._plane.server_version)
        by_uid = {pod["metadata"]["uid"]: _pod(pod) for pod in objects["Pod"]}
        self._evicted[cluster.name] = Counter(by_uid[uid] for uid in gone)
        by_name = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): _pod(pod) for pod in objects["Pod"]}
        groups: list[Group] = []
        for result in results:
            group = Group(frozenset(by_name[each.namespace, each.name] for each in result.pods))
            for other in [each for each in groups if each.owners & group.owners]:
                groups.remove(other)
                group.owners |= other.owners
                group.why |= other.why
                group.found, group.none = group.found + other.found, group.none + other.none
                group.unknown += other.unknown
            group.found, group.none = group.found + result.found, group.none + result.none
            group.unknown += result.unknown
            if result.unknown:
                group.why.add(result.why)
            groups.append(group)
        return groups

    # --- the taint -------------------------------------------------------------------------------

    def _taint(self, before: Mapping[str, Mapping[str, list[Json]]]) -> None:
        rules = [rule for each in self.clusters for rule in each.rules]
        self._client.each(lambda rule: self._client.create(RULES, rule).object, rules, threads=_THREADS)
        for cluster in self.clusters:
            for pod in before[cluster.name]["Pod"]:
                if _leaves(pod, cluster):
                    self._client.delete(
                        path("v1", "pods", namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"])
                    )


def predict(
    cluster: Cluster, objects: Mapping[str, list[Json]], version: str
) -> tuple[frozenset[str], tuple[PodPlacement, ...]]:
    """Return which pods the cluster's taint drives out, by uid, and where they go: as `preview` does it."""
    stock = Stock(whole=True)
    stock.inventory.servers = facts_of([version])
    stock.add([Manifest("objects", 0, each, NOWHERE) for kind in objects.values() for each in kind])
    assert not stock.malformed
    inventory, now = stock.inventory, datetime.now(UTC)  # noqa: TID251 -- by which pods are evicted
    rules = [decode_rule(Reader.of(rule, [])) for rule in cluster.rules]
    gone: set[str] = {pod["metadata"]["uid"] for pod in objects["Pod"] if _leaves(pod, cluster)}
    for rule in rules if not cluster.deleted else ():
        gone |= impact_of(inventory, rule.selector, Taint.of_rule(rule, in_tree=True), now).pods
    pods = [pod for pod in inventory.pods.values() if pod.meta.uid in gone]
    seekers = [Seeker.of(pod, inventory.claims_of(pod)) for pod in pods]
    supply = Supply(
        inventory,
        classes=stock.classes,
        nodes=stock.nodes,
        freed=freed_claims(seekers, gone),
        taints=[(DeviceNames.of(rule.selector, inventory.servers), rule.taint) for rule in rules],
    )
    return frozenset(gone), placements(inventory, seekers, supply)


def _plural(value: Json) -> str:
    return _PLURALS.get(value["kind"], f"{value['kind'].lower()}s")


def _leaves(pod: Json, cluster: Cluster) -> bool:
    """Whether a pod goes by hand."""
    return _pod(pod)[0] in cluster.deleted and bool(pod["spec"].get("nodeName"))


def _pod(pod: Json) -> Pod:
    """Who a pod is: another one of the same owner is as good."""
    (owner,) = pod["metadata"]["ownerReferences"]
    if owner["kind"] != DAEMON_SET:
        return owner["name"], ""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return owner["name"], required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
