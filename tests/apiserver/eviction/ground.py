"""Where manners are shown: a namespace with devices and rules of its own on a control plane where everything runs.

Pods either come as they are, with a device each, or from a Deployment whose pods are scheduled and replaced by the real
controllers. What the evictor did to them is taken from the API server's audit log.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from tests.apiserver.evicting import CONDITION
from tests.apiserver.eviction.bench import RULES, SLICES, SOON_SECONDS, VERSION, now
from tests.apiserver.eviction.scenario import KEY
from tests.apiserver.eviction.witness import Deletion, Witness
from tests.apiserver.objects import slice_of
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.api.meta import format_time

Json = dict[str, Any]

NODE: Final = "node-of-single-pods"
RATE: Final = "devicetaint.io/evictions-per-second"
HOLD: Final = "devicetaint.io/hold"
GANG: Final = "devicetaint.io/gang"
_FINALIZER: Final = "example.com/stays"
_THREADS: Final = 8
_LONG_SECONDS: Final = 3 * SOON_SECONDS
"""For what only has to come at all."""
CONTAINER: Final = {"name": "c", "image": "none"}


class Ground:
    """A namespace, a driver and a pool, all of the same name."""

    def __init__(self, plane: ControlPlane, witness: Witness, name: str) -> None:
        self.plane = plane
        self.client = plane.client
        self.name = name
        self.driver = f"{name}.example.com"
        self.witness = witness
        self.uids: dict[str, str] = {}
        """Of pods, by name."""
        self.asked_at = now()
        """When the last rule was sent."""
        _ = self.client.create(path("v1", "namespaces"), {"metadata": {"name": name}}).object

    @property
    def pods(self) -> str:
        return path("v1", "pods", namespace=self.name)

    # --- pods ------------------------------------------------------------------------------------

    def admit(
        self,
        name: str,
        *,
        seconds: int | None = None,
        priority_class: str = "",
        stays: bool = False,
        hold: str = "",
        gang: str = "",
    ) -> None:
        """A running pod with the device of its name, which tolerates taints for so many seconds.

        `stays`: it does not vanish before it is let go.
        """
        tolerations = [] if seconds is None else [{"operator": "Exists", "tolerationSeconds": seconds}]
        tolerations = [{**each, "effect": "NoExecute"} for each in tolerations]
        requests = [{"name": "gpu", "exactly": {"deviceClassName": self.driver, "tolerations": tolerations}}]
        claims = path(VERSION, "resourceclaims", namespace=self.name)
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        _ = self.client.create(claims, claim).object
        metadata: Json = {"name": name, "labels": {"app": self.name}}
        metadata |= {"finalizers": [_FINALIZER]} if stays else {}
        metadata["annotations"] = {name: text for name, text in ((HOLD, hold), (GANG, gang)) if text}
        spec = pod_spec_of({"resourceClaimName": name}) | {"nodeName": NODE}
        spec |= {"priorityClassName": priority_class} if priority_class else {}
        pod = self.client.create(self.pods, {"metadata": metadata, "spec": spec}).object
        uid = self.uids[name] = pod["metadata"]["uid"]
        place = {"driver": self.driver, "pool": self.name, "device": name}
        status = {
            "allocation": {"devices": {"results": [{"request": "gpu", **place, "tolerations": tolerations}]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        _ = self.client.patch(f"{claims}/{name}/status", {"status": status}).object

    def crowd(self, count: int, *, seconds: int | None = None) -> None:
        """So many of them: pod-000 and so on."""
        names = [f"pod-{number:03}" for number in range(count)]
        self.client.each(lambda name: self.admit(name, seconds=seconds), names, threads=_THREADS)

    def fail(self, *pods: str) -> None:
        """These run, and are ready no longer."""

        def ready() -> bool:
            found = [each for each in self.client.get(self.pods).items if each["metadata"]["name"] in pods]
            told = [each for pod in found for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"]
            return [each["status"] for each in told] == ["True"] * len(pods)

        wait_until(ready, "they are ready", seconds=_LONG_SECONDS, every=0.2)
        for pod in pods:
            failing = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
            _ = self.client.patch(f"{self.pods}/{pod}/status", failing).object

    def let_go(self, pod: str) -> None:
        """It stays no longer."""
        _ = self.client.patch(f"{self.pods}/{pod}", {"metadata": {"finalizers": None}}).object

    def unhold(self, pod: str) -> None:
        _ = self.client.patch(f"{self.pods}/{pod}", {"metadata": {"annotations": {HOLD: None}}}).object

    def hold_all(self, why: str | None) -> None:
        """The namespace is held, or not any more."""
        patch = {"metadata": {"annotations": {HOLD: why}}}
        _ = self.client.patch(path("v1", "namespaces", name=self.name), patch).object

    def budget(self, *, failing: int = 0, **spec: Any) -> None:
        """A PodDisruptionBudget for everybody here, which is in force when it returns; `failing`: pods not ready."""
        budgets = path("policy/v1", "poddisruptionbudgets", namespace=self.name)
        spec = {"selector": {"matchLabels": {"app": self.name}}, **spec}
        _ = self.client.create(budgets, {"metadata": {"name": "budget"}, "spec": spec}).object

        def in_force() -> bool:
            status = self.client.get(f"{budgets}/budget").object["status"]
            known = bool(status.get("observedGeneration"))
            return known and bool(0 < status["expectedPods"] == status["currentHealthy"] + failing)

        wait_until(in_force, "the budget is known", seconds=_LONG_SECONDS, every=0.2)

    def drop_budget(self) -> None:
        budgets = path("policy/v1", "poddisruptionbudgets", namespace=self.name)
        _ = self.client.delete(f"{budgets}/budget").object

    # --- taints ----------------------------------------------------------------------------------

    def taint(
        self,
        rule: str = "r",
        *,
        rate: int | None = None,
        ago_seconds: int = 0,
        effect: str = "NoExecute",
        **selects: str,
    ) -> datetime:
        """A rule for the ground's pool, or what is selected beside it: its timeAdded."""
        self.asked_at = now()
        metadata: Json = {"name": self.rule(rule)} | ({"annotations": {RATE: str(rate)}} if rate else {})
        taint = {"key": KEY, "effect": effect, "value": rule}
        taint["timeAdded"] = format_time(now() - timedelta(seconds=ago_seconds))
        selector = {"driver": self.driver, "pool": self.name} | selects
        created = self.client.create(
            RULES, {"metadata": metadata, "spec": {"deviceSelector": selector, "taint": taint}}
        )
        return datetime.fromisoformat(created.object["spec"]["taint"]["timeAdded"])

    def change(self, rule: str = "r", **spec: Any) -> None:
        _ = self.client.patch(f"{RULES}/{self.rule(rule)}", {"spec": spec}).object

    def rule(self, name: str = "r") -> str:
        """The name of a rule as it is in the cluster."""
        return f"{self.name}-{name}"

    def publish(self, pool: str, devices: Iterable[str], *taints: Json) -> None:
        """A slice of a pool, anew or for the first time."""
        name = f"{self.name}-{pool}"
        told: Json = {"taints": list(taints)} if taints else {}
        obj = slice_of(self.driver, pool, *[{"name": device, **told} for device in devices], node=None, name=name)
        _ = self.client.apply(f"{SLICES}/{name}", obj, field_manager="driver").object

    def make_class(self) -> None:
        """A class of the ground's name for all devices of its driver."""
        selectors = [{"cel": {"expression": f'device.driver == "{self.driver}"'}}]
        device_class = {"metadata": {"name": self.driver}, "spec": {"selectors": selectors}}
        _ = self.client.create(path(VERSION, "deviceclasses"), device_class).object

    def make_template(self) -> None:
        """Likewise, and a template of the ground's name for claims for one device of that class."""
        self.make_class()
        template = {"metadata": {"name": self.name}, "spec": {"spec": {"devices": {"requests": [self.request]}}}}
        _ = self.client.create(path(VERSION, "resourceclaimtemplates", namespace=self.name), template).object

    @property
    def request(self) -> Json:
        """For one device of its class."""
        return {"name": "gpu", "exactly": {"deviceClassName": self.driver}}

    # --- what comes of it ------------------------------------------------------------------------

    def asked(self) -> list[Deletion]:
        """What the evictor has tried here, by time."""
        found = [each for each in self.witness.deletions() if each.pod[0] == self.name]
        return sorted(found, key=lambda each: each.at)

    def granted(self) -> list[Deletion]:
        """What it was allowed, by time."""
        return [each for each in self.asked() if each.code < 300]

    def gone(self) -> list[str]:
        """Names of the pods that it has evicted, by time."""
        return [each.pod[1] for each in self.granted()]

    def wait_gone(self, count: int, *, seconds: float = _LONG_SECONDS) -> list[Deletion]:
        """The evictions, once there are so many. Raises NotReadyError."""
        what = f"{count} pods evicted in {self.name}"
        wait_until(lambda: len(self.granted()) >= count, what, seconds=seconds, every=0.1)
        return self.granted()

    def present(self) -> set[str]:
        """Names of the pods that are there and not on their way out."""
        pods = self.client.get(self.pods).items
        return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}

    def condition(self, rule: str = "r") -> Json:
        """Our condition of a rule; empty while it has none of its generation."""
        found = self.client.get(f"{RULES}/{self.rule(rule)}").object
        for condition in found.get("status", {}).get("conditions", ()):
            if condition["type"] == CONDITION and condition["observedGeneration"] == found["metadata"]["generation"]:
                told: Json = condition
                return told
        return {}

    def wait_forecast(self, pods: int, rule: str = "r") -> None:
        """A rule of effect None says how many pods it would evict: the worker knows them. Raises NotReadyError."""

        def said() -> bool:
            found = self.client.get(f"{RULES}/{self.rule(rule)}").object
            conditions = found.get("status", {}).get("conditions", ())
            return any(f"{pods} pods would be evicted" in each["message"] for each in conditions)

        wait_until(said, f"{rule} would evict {pods} pods", seconds=_LONG_SECONDS, every=0.5)

    def wait_message(self, reason: str, message: str, rule: str = "r") -> None:
        """Our condition says that. Raises NotReadyError."""
        seen: Json = {}

        def said() -> bool:
            nonlocal seen
            seen = self.condition(rule)
            return (seen.get("reason"), seen.get("message")) == (reason, message)

        try:
            wait_until(said, f"{rule} says {reason}: {message}", seconds=_LONG_SECONDS, every=0.5)
        except Exception as e:
            e.add_note(f"it says {seen}")
            raise

    def told(self) -> set[tuple[str, str]]:
        """Reason and text of the Events about the ground's single pods that the evictor has written."""
        uids = set(self.uids.values())
        return {(each.reason, each.text) for each in self.witness.told() if each.uid in uids}


class Fleet:
    """A Deployment on devices of pool `old`, all of it ready; then there is room for as many in pool `new`."""

    def __init__(self, ground: Ground, replicas: int, **pod_spec: Any) -> None:
        """`pod_spec` is added to that of its pods."""
        self.ground = ground
        self.replicas = replicas
        name = ground.name
        ground.publish("old", [f"device-{number}" for number in range(replicas)])
        ground.make_template()
        pod = {
            "metadata": {"labels": {"app": name}},
            "spec": pod_spec_of({"resourceClaimTemplateName": name}) | pod_spec,
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
        deployments = path("apps/v1", "deployments", namespace=name)
        _ = ground.client.create(deployments, {"metadata": {"name": name}, "spec": spec}).object

        def ready() -> bool:
            status = ground.client.get(f"{deployments}/{name}").object.get("status", {})
            return bool(status.get("readyReplicas", 0) == replicas)

        wait_until(ready, f"{replicas} pods are ready", seconds=300, every=0.5)
        ground.publish("new", [f"device-{number}" for number in range(replicas)])


def pod_spec_of(claim: Json) -> Json:
    """Of a pod with one device."""
    return {
        "terminationGracePeriodSeconds": 0,
        "containers": [CONTAINER | {"resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", **claim}],
    }
