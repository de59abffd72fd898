"""The objects of a scenario, as they are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.apiserver.eviction.scenario import GROUP, Claim, Pod
from tests.apiserver.policy.rows import make_toleration

Json = dict[str, Any]

NODE: Final = "node-0"
POOL: Final = "pool"


class Makers:
    """Makes objects whose names, where they are seen by all, begin with the name of the scenario's bench."""

    node = NODE

    def __init__(self, bench: str) -> None:
        self._bench = bench
        self.driver = f"{bench}.example.com"
        self._resource = f"{self.driver}/gpu"

    def scoped(self, name: str) -> str:
        return f"{self._bench}-{name}"

    # --- pods ------------------------------------------------------------------------------------

    def pod(self, pod: Pod, claims: Sequence[tuple[str, Claim]]) -> Json:
        uses, resources = [], {}
        for number, (name, claim) in enumerate(claims):
            if claim.extended:
                resources = {"limits": {self._resource: "1"}, "requests": {self._resource: "1"}}
            else:
                sort = "resourceClaimTemplateName" if claim.generated else "resourceClaimName"
                uses.append({"name": f"c{number}", sort: name})
        container = {
            "name": "c",
            "image": "none",
            "resources": resources | {"claims": [{"name": u["name"]} for u in uses]},
        }
        spec: Json = {
            "terminationGracePeriodSeconds": pod.grace_seconds,
            "containers": [container],
            "resourceClaims": uses,
        }
        spec |= {"nodeName": NODE} if pod.scheduled else {}
        spec |= {"schedulingGroup": {"podGroupName": pod.group}} if pod.group else {}
        spec |= {"priorityClassName": pod.priority_class} if pod.priority_class else {}
        metadata: Json = {"name": pod.name, "labels": {"bench": self._bench}}
        if pod.owner:
            metadata["ownerReferences"] = [_owner("apps/v1", pod.owner, "owner", "owner")]
        return {"metadata": metadata, "spec": spec}

    def pod_status(self, pod: Pod, claims: Sequence[tuple[str, Claim]]) -> Json:
        status: Json = {"phase": pod.phase}
        if pod.phase == "Running":
            status["conditions"] = [{"type": "Ready", "status": "True"}]
        told = [
            {"name": f"c{number}"} | ({"resourceClaimName": name} if claim.needed else {})
            for number, (name, claim) in enumerate(claims)
            if claim.generated and claim.told
        ]
        if told:
            status["resourceClaimStatuses"] = told
        for name, claim in claims:
            if claim.extended:
                mapping = {"containerName": "c", "resourceName": self._resource, "requestName": "r0"}
                status["extendedResourceClaimStatus"] = {"resourceClaimName": name, "requestMappings": [mapping]}
        return status

    # --- claims ----------------------------------------------------------------------------------

    def claim(self, name: str, claim: Claim, maker: str) -> Json:
        """`maker` is the uid of the pod that it was made for, or GROUP or NOBODY."""
        requests = []
        for number, (_, tolerations) in enumerate(self._devices(name, claim)):
            exactly: Json = {"deviceClassName": self.driver, "tolerations": tolerations}
            requests.append({"name": f"r{number}", "exactly": exactly | ({"adminAccess": True} if claim.admin else {})})
        metadata: Json = {"name": name}
        if maker == GROUP:
            metadata["ownerReferences"] = [_owner("scheduling.k8s.io/v1beta1", "PodGroup", GROUP, GROUP)]
        elif maker:
            metadata["ownerReferences"] = [_owner("v1", "Pod", "made-for", maker)]
        if claim.extended or claim.marked:
            metadata["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        return {"metadata": metadata, "spec": {"devices": {"requests": requests}}}

    def allocation(self, name: str, claim: Claim) -> Json:
        results = []
        for number, (device, tolerations) in enumerate(self._devices(name, claim)):
            place = {"driver": self.driver, "pool": self.scoped(POOL), "device": self.scoped(device)}
            result: Json = {"request": f"r{number}", **place, "tolerations": tolerations}
            results.append(result | ({"adminAccess": True} if claim.admin else {}))
        return {"devices": {"results": results}}

    def consumer(self, text: str) -> Json:
        """From `group/resource/name`; the uid is the name."""
        group, resource, name = text.split("/")
        return {"apiGroup": group, "resource": resource, "name": name, "uid": name}

    def _devices(self, name: str, claim: Claim) -> list[tuple[str, list[Json]]]:
        devices = claim.devices or {name: claim.tolerates}
        return [(device, [_toleration(text) for text in texts]) for device, texts in devices.items()]

    # --- taints ----------------------------------------------------------------------------------

    def selector(self, selects: Mapping[str, str]) -> Json:
        """Names of pools and devices are the scenario's; those of drivers too, unless one is given."""
        made = {}
        for field, value in selects.items():
            made[field] = (value or self.driver) if field == "driver" else self.scoped(value)
        return made

    def slice(self, name: str, generation: int, devices: Mapping[str, Sequence[Json]]) -> Json:
        pool = {"name": self.scoped(POOL), "generation": generation, "resourceSliceCount": 1}
        told = [
            {"name": self.scoped(device), **({"taints": list(taints)} if taints else {})}
            for device, taints in devices.items()
        ]
        spec = {"driver": self.driver, "nodeName": NODE, "pool": pool, "devices": told}
        return {"metadata": {"name": self.scoped(name)}, "spec": spec}

    # --- an API server that says no --------------------------------------------------------------

    def refusal(self) -> tuple[Json, Json]:
        """A ValidatingAdmissionPolicy against deleting pods here, and its binding."""
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}]
        here = {"matchLabels": {"kubernetes.io/metadata.name": self._bench}}
        constraints = {"resourceRules": rules, "namespaceSelector": here}
        validations = [{"expression": "false", "message": "not now"}]
        policy = {
            "metadata": {"name": self._bench},
            "spec": {"matchConstraints": constraints, "validations": validations},
        }
        binding = {
            "metadata": {"name": self._bench},
            "spec": {"policyName": self._bench, "validationActions": ["Deny"]},
        }
        return policy, binding


def _toleration(text: str) -> Json:
    """As make_toleration; the seconds may be below zero."""
    rest, below, seconds = text.partition(":-")
    return make_toleration(rest) | ({"tolerationSeconds": -int(seconds)} if below else {})


def _owner(api_version: str, kind: str, name: str, uid: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
