"""docs/getting-started.md, followed from the image to the removal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.apiserver.pages.conftest import NODE
from tests.apiserver.pages.following import GETTING_STARTED, blocks
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from tests.apiserver.pages.following import Reader

pytestmark = pytest.mark.apiserver

Json = dict[str, Any]

DRIVER: Final = "gpu.example.com"
NAMESPACE: Final = "ml"
PODS: Final = path("v1", "pods", namespace=NAMESPACE)
_AMISS: Final = re.compile(r"^(?:warn|fail) +([^:]+):", re.MULTILINE)


def _cluster() -> list[Json]:
    """A driver with two devices on the page's node, and two pods that use them."""
    template = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}}
    pod = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    }
    there = {"namespace": NAMESPACE}
    resource_slice = {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }
    api = "resource.k8s.io/v1"
    classes = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": api, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": classes},
        {"apiVersion": api, "kind": "ResourceSlice", "metadata": {"name": NODE}, "spec": resource_slice},
        {"apiVersion": api, "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu", **there}, "spec": template},
        *(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"train-{n}", **there}, "spec": pod}
            for n in range(2)
        ),
    ]


def _running(reader: Reader) -> set[str]:
    pods = reader.client.get(PODS).items
    return {pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"}


def test_who_follows_the_page_gets_what_it_says_at_each_step(reader: Reader) -> None:
    reader.apply(*_cluster())
    wait_until(lambda: _running(reader) == {"train-0", "train-1"}, "the pods run", seconds=60)
    (install,) = blocks(GETTING_STARTED, "Install")
    installing = reader.start(install)
    with reader.pod_of_serve():
        printed = reader.finish(installing, codes={1})
        assert _AMISS.findall(printed) == ["callers"], printed

        _first_policy(reader)

        (rule,) = blocks(GETTING_STARTED, "A first preview", "yaml")
        reader.write("rule.yaml", rule)
        (preview,) = blocks(GETTING_STARTED, "A first preview")
        printed = reader.run(preview)
        assert "2 pods" in printed
        assert {"ml/train-0", "ml/train-1"} <= set(printed.split())

        with reader.pod_of_evict() as worker:
            worker.wait_working()
            (observe,) = blocks(GETTING_STARTED, "Observe")
            printed = reader.run(observe)
        assert "ObserveOnly" in printed.splitlines()
        assert "2 pods" in printed
        assert _running(reader) == {"train-0", "train-1"}

        which, evict, done = blocks(GETTING_STARTED, "Evict")
        assert re.search(r"^firmware +true$", reader.run(which), re.MULTILINE)
        before = reader.worker_arguments()
        evicting = reader.start(evict)
        wait_until(lambda: reader.worker_arguments() != before, "the mode is another", seconds=60)
        with reader.pod_of_evict():
            printed = reader.finish(evicting)
            assert printed.splitlines()[-1].endswith("condition met")
            assert _running(reader) == set()
            reader.run(done)

        (remove,) = blocks(GETTING_STARTED, "Remove it again")
        reader.run(remove)
        assert reader.left() == ""


def _first_policy(reader: Reader) -> None:
    """It warns, and refuses nothing."""
    policy, claim = blocks(GETTING_STARTED, "A first policy, in mode `warn`", "yaml")
    reader.write("policy.yaml", policy)
    reader.write("claim.yaml", claim)
    create, try_it, shown, audit = blocks(GETTING_STARTED, "A first policy, in mode `warn`")
    reader.run(create)
    printed = ""

    def warned() -> bool:
        nonlocal printed
        printed = reader.run(try_it)
        return "Warning" in printed

    wait_until(warned, "the policy holds")
    first, last = shown.splitlines()
    for part in first.split("..."):
        assert part.strip() in printed
    assert last in printed.splitlines()
    reader.run(audit)
