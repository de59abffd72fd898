"""The pods of a soak and their claims, which several pods may share. No controller runs: all of it is written here."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from tests.apiserver.eviction.bench import VERSION, now
from tests.apiserver.eviction.ground import HOLD
from tests.apiserver.eviction.soak_model import Held, make_pod, tolerations_for
from tests.controlplane.client import Client, path

Json = dict[str, Any]


class Crowd:
    """All pods that are there, by namespace and name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.pods: dict[tuple[str, str], Held] = {}
        self.all_pods: dict[str, Held] = {}
        """By uid, also those that are gone."""

    def admit(self, pod: Held, owner: str, *, ready: bool) -> None:
        """A running pod; its claim is there already, or is created and allocated."""
        if not self.users(pod):
            self._create_claim(pod)
        pods = path("v1", "pods", namespace=pod.namespace)
        pod.uid = self._client.create(pods, make_pod(pod, owner)).object["metadata"]["uid"]
        self.pods[pod.namespace, pod.name] = self.all_pods[pod.uid] = pod
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
        reply = self._client.patch(f"{pods}/{pod.name}/status", {"status": running})
        # one that goes along with its PodGroup may be gone already
        assert reply.ok or reply.code == HTTPStatus.NOT_FOUND, reply
        self._reserve(pod)

    def _create_claim(self, pod: Held) -> None:
        driver, pool, device = pod.place
        tolerations = tolerations_for(pod.seconds)
        exactly = {"deviceClassName": driver, "tolerations": tolerations}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        claims = path(VERSION, "resourceclaims", namespace=pod.namespace)
        _ = self._client.create(claims, {"metadata": {"name": pod.claim}, "spec": spec}).object
        result = {"request": "r", "driver": driver, "pool": pool, "device": device, "tolerations": tolerations}
        status = {"allocation": {"devices": {"results": [result]}}}
        _ = self._client.patch(f"{_claim(pod)}/status", {"status": status}).object

    def _reserve(self, pod: Held) -> None:
        """For all pods that use its claim."""
        users = [{"resource": "pods", "name": each.name, "uid": each.uid} for each in self.users(pod)]
        _ = self._client.patch(f"{_claim(pod)}/status", {"status": {"reservedFor": users}}).object

    def users(self, pod: Held) -> list[Held]:
        return [each for each in self.pods.values() if (each.namespace, each.claim) == (pod.namespace, pod.claim)]

    def end(self, namespaces: Iterable[str]) -> None:
        """As kubelets do it, and the claim controller: terminating pods end, and claims of those that are gone go."""
        present: dict[str, Json] = {}
        for namespace in namespaces:
            found = self._client.get(path("v1", "pods", namespace=namespace)).items
            present |= {each["metadata"]["uid"]: each for each in found}
        for pod in list(self.pods.values()):
            if "deletionTimestamp" in present.get(pod.uid, {"metadata": {"deletionTimestamp": ""}})["metadata"]:
                self.remove(pod)

    def remove(self, pod: Held) -> None:
        """At once; its claim goes with the last pod that uses it."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        self._client.request("DELETE", path("v1", "pods", namespace=pod.namespace, name=pod.name), options)
        del self.pods[pod.namespace, pod.name]
        pod.follow(None, now(), now(), free=False)
        if not self.users(pod):
            self._client.delete(_claim(pod))
        elif pod.allocated:
            self._reserve(pod)

    def deallocate(self, pod: Held) -> None:
        status = {"status": {"allocation": None, "reservedFor": None}}
        _ = self._client.patch(f"{_claim(pod)}/status", status).object
        for each in self.users(pod):
            each.allocated = False

    def hold(self, pod: Held, *, held: bool) -> None:
        patch = {"metadata": {"annotations": {HOLD: "soak" if held else None}, "uid": pod.uid}}
        if self._client.patch(path("v1", "pods", namespace=pod.namespace, name=pod.name), patch).ok:
            pod.hold = held


def _claim(pod: Held) -> str:
    return path(VERSION, "resourceclaims", namespace=pod.namespace, name=pod.claim)
