"""The eviction worker as a process, and pods with devices that nothing but tests and the worker touches."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self

from tests.apiserver.daemon import Daemon
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

DRIVER: Final = "gpu.example.com"
CONDITION: Final = "devicetaint.io/Eviction"
RULES: Final = path(f"{GROUP}/v1", "devicetaintrules")
BLUNT: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
inTreeEvictor: absent
eviction:
- {rate: 10000, burst: 100000, perOwnerUnavailable: null, deadline: 0s, afterDeadline: delete, daemonSets: evict}
"""
"""No manners that bind: what is due is deleted, as the in-tree controller does it."""
GENTLE: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
inTreeEvictor: absent
eviction:
- {rate: 10000, burst: 100000, perOwnerUnavailable: null}
"""
"""The Eviction API, and nothing else that binds."""
_numbers = itertools.count()


class EvictProcess(Daemon):
    verb = "evict"

    def __init__(
        self,
        plane: ControlPlane,
        mode: str,
        *arguments: str,
        policy: str | None = BLUNT,
        kubeconfig: Path | None = None,
    ) -> None:
        """`policy`: its text in a file; None for the ConfigMap. `kubeconfig`: the admin's unless given."""
        self._kubeconfig = kubeconfig or plane.kubeconfig
        self._arguments = [f"--mode={mode}", *arguments]
        self._policy = policy

    def _flags(self) -> list[str]:
        flags = [f"--kubeconfig={self._kubeconfig}", *self._arguments]
        if self._policy is None:
            return flags
        self.set_policy(self._policy)
        return [f"--policy-file={self.folder / 'policy.yaml'}", *flags]

    def set_policy(self, text: str) -> None:
        """Puts a policy into the file that the process reads, all at once."""
        new = self.folder / "policy.new"
        new.write_text(text)
        new.replace(self.folder / "policy.yaml")

    def wait_working(self) -> Self:
        return self.wait_for("working")

    def metric(self, name: str) -> dict[str, float]:
        """Samples of a metric by their labels, as text."""
        connection = http.client.HTTPConnection(self.metrics, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        samples = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(name)]
        return {label.removeprefix(name): float(value) for label, value in samples}


class Ward:
    """A namespace of pods that have devices and run on a node that does not exist; gone at the end."""

    grace_seconds = 0

    def __init__(self, client: Client, **labels: str) -> None:
        self.client = client
        self.name = f"ward-{next(_numbers)}"
        self._labels = labels
        self._rules: list[str] = []

    def __enter__(self) -> Self:
        metadata = {"name": self.name, "labels": self._labels}
        _ = self.client.create(path("v1", "namespaces"), {"metadata": metadata}).object
        return self

    def __exit__(self, *_: object) -> None:
        for rule in self._rules:
            self.client.delete(f"{RULES}/{rule}")
        for collection in (self.pods, self.claims):
            self.client.delete(collection)

    @property
    def pods(self) -> str:
        return path("v1", "pods", namespace=self.name)

    @property
    def claims(self) -> str:
        return path(f"{GROUP}/v1", "resourceclaims", namespace=self.name)

    def admit(
        self, name: str, *tolerations: Json, device: str = "", pool: str = "", spec: Json | None = None, **metadata: Any
    ) -> Json:
        """A running pod with a device of its own, of a pool named after the ward unless it is given."""
        requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER, "tolerations": list(tolerations)}}]
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        assert (reply := self.client.create(self.claims, self.encoded(claim))).ok, reply
        pod = {
            "metadata": {"name": name, **metadata},
            "spec": {
                "nodeName": "nowhere",
                "terminationGracePeriodSeconds": self.grace_seconds,
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                **(spec or {}),
            },
        }
        created = self.client.create(self.pods, pod).object
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        _ = self.client.patch(f"{self.pods}/{name}/status", {"status": running}).object
        result = {"request": "gpu", "driver": DRIVER, "pool": pool or self.name, "device": device or name}
        status = {
            "allocation": {"devices": {"results": [{**result, "tolerations": list(tolerations)}]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": created["metadata"]["uid"]}],
        }
        _ = self.client.patch(f"{self.claims}/{name}/status", {"status": status}).object
        return created

    def encoded(self, claim: Json) -> Json | bytes:
        """A claim as it is sent."""
        return claim

    def taint(self, effect: str = "NoExecute", *, device: str | None = None, **metadata: Any) -> str:
        """A rule for the ward's pool: its name."""
        name = f"{self.name}-{len(self._rules)}"
        selector = {"driver": DRIVER, "pool": self.name, **({"device": device} if device else {})}
        spec = {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}}
        _ = self.client.create(RULES, {"metadata": {"name": name, **metadata}, "spec": spec}).object
        self._rules.append(name)
        return name

    def present(self) -> set[str]:
        """Names of the pods that are there and not on their way out."""
        pods = self.client.get(self.pods).items
        return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}

    def condition(self, rule: str, kind: str = CONDITION) -> Json:
        """A condition of a rule; empty while it has none."""
        status = self.client.get(f"{RULES}/{rule}").object.get("status", {})
        return next((each for each in status.get("conditions", []) if each["type"] == kind), {})

    def events(self) -> list[tuple[str, str, str]]:
        """(pod, reason, text) of the Events about pods here, by time."""
        events = self.client.get(path("events.k8s.io/v1", "events", namespace=self.name)).items
        events.sort(key=lambda event: event["eventTime"] or "")
        return [(event["regarding"]["name"], event["reason"], event["note"]) for event in events]


def stays(conditions: Iterable[bool], seconds: float) -> bool:
    """Whether a condition that is asked again and again holds all that time."""
    end = time.monotonic() + seconds
    for holds in conditions:
        if not holds:
            return False
        if time.monotonic() > end:
            return True
        time.sleep(0.1)
    raise AssertionError("the conditions ended")
