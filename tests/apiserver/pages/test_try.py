"""manifests/try: from an empty cluster to a rule that is refused in five commands; a policy that warns; a drain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.apiserver.evicting import EvictProcess
from tests.apiserver.pages.fleet import DRIVER, NODE, RULES
from tests.apiserver.pages.following import REGISTRY
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apiserver.pages.following import Reader

pytestmark = pytest.mark.apiserver

Json = dict[str, Any]

IMAGE: Final = f"{REGISTRY}/device-taint-webhook:1.2.3"
NAMESPACE: Final = "device-taint-try"
PODS: Final = path("v1", "pods", namespace=NAMESPACE)
_SOON_SECONDS: Final = 240
_RULE: Final = "kubectl apply -f manifests/try/rule.yaml"
_HITS: Final = "hits 8 devices, 2 pods in 1 namespace"


@pytest.fixture
def devices(reader: Reader) -> Iterator[None]:
    """What the example driver's chart leaves in a cluster of one node: a class of devices, and eight of them."""
    api = "resource.k8s.io/v1"
    selectors = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    published = {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}"} for number in range(8)],
    }
    reader.apply(
        {"apiVersion": api, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": selectors},
        {"apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": NODE}, "spec": published},
    )
    yield
    reader.client.delete(path(api, "resourceslices", name=NODE))


def _running(reader: Reader) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in reader.client.get(PODS).items)


def _claim(namespace: str) -> str:
    toleration = {
        "key": "maint.example.com/firmware",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 600,
    }
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "tolerations": [toleration]}}
    return yaml.safe_dump(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "patient", "namespace": namespace},
            "spec": {"devices": {"requests": [request]}},
        }
    )


@pytest.mark.usefixtures("devices")
def test_five_commands_lead_to_a_rule_that_is_refused_with_what_it_would_hit(reader: Reader) -> None:
    """With the policy, the same rule and a toleration get a warning. A drain ends, although there is one node only."""
    reader.run(f"make install.yaml IMAGE={IMAGE}\nkubectl apply -f install.yaml")
    with reader.pod_of_serve():
        reader.run("kubectl -n device-taint-webhook rollout status deployment device-taint-webhook --timeout=600s")
        reader.run("kubectl apply -f manifests/try/pods.yaml")
        wait_until(lambda: _running(reader) == 2, "the pods run", seconds=_SOON_SECONDS)
        said: list[str] = []

        def told() -> bool:
            said.append(reader.run(_RULE, codes={1}))
            return _HITS in said[-1]

        wait_until(told, "it is refused with what it would hit", seconds=_SOON_SECONDS)
        assert "spec.deviceSelector: Forbidden: " in said[-1]
        assert "an empty selector is every device of every driver" in said[-1]
        assert (reader.client.get(RULES).items, _running(reader)) == ([], 2)

        assert "0 errors, 0 warnings" in reader.run("device-taint-webhook check manifests/try/policy.yaml")
        reader.run("kubectl apply -f manifests/try/policy.yaml")
        reader.write("elsewhere.yaml", _claim("default"))
        reader.write("here.yaml", _claim(NAMESPACE))
        wait_until(
            lambda: "no rule allows" in reader.run("kubectl apply --dry-run=server -f elsewhere.yaml"),
            "the policy is in use",
            seconds=_SOON_SECONDS,
        )
        assert "Warning" not in reader.run("kubectl apply --dry-run=server -f here.yaml")
        assert _HITS in reader.run(f"{_RULE} --dry-run=server"), "mode: warn goes for rules too"
        with EvictProcess(reader.plane, "delegated", policy=None) as worker:
            worker.wait_working()
            assert "drained" in reader.run(f"kubectl dtaint drain {NODE} --timeout=300s")
        assert _running(reader) == 0
        reader.run(f"kubectl dtaint untaint --node={NODE} devicetaint.io/drain:NoSchedule-")
        wait_until(lambda: _running(reader) == 2, "the pods run again", seconds=_SOON_SECONDS)
        reader.run("kubectl delete -f manifests/try/pods.yaml")
        assert reader.client.get(PODS).items == []
