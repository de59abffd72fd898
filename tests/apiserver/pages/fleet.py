"""The cluster that the pages speak of: a driver with two devices on node-7, and two pods that use them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, Self

from tests.apiserver.objects import slice_of
from tests.apiserver.pages.shell import Shell
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

Json = dict[str, Any]

NODE: Final = "node-7"
DRIVER: Final = "gpu.example.com"
NAMESPACE: Final = "ml"
NAMES: Final = frozenset({"train-0", "train-1"})
RULES: Final = path("resource.k8s.io/v1", "devicetaintrules")
_PODS: Final = path("v1", "pods", namespace=NAMESPACE)
_API: Final = "resource.k8s.io/v1"


class Fleet:
    """There while the block lasts; a rule named `firmware` goes with it."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def __enter__(self) -> Self:
        self._shell.apply(*_documents())
        wait_until(lambda: self.running() == NAMES, "the pods run", seconds=240)
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.client.delete(f"{RULES}/firmware")
        self._shell.client.delete(_PODS)
        wait_until(lambda: not self._shell.client.get(_PODS).items, "the pods are gone", seconds=240)

    def running(self) -> set[str]:
        """Names of the pods that run."""
        pods = self._shell.client.get(_PODS).items
        return {pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"}


@contextlib.contextmanager
def example_driver(shell: Shell) -> Iterator[None]:
    """What the example driver's chart leaves in a cluster of one node: a class of devices, and eight of them."""
    shell.apply(*_published(8))
    try:
        yield
    finally:
        shell.client.delete(path(_API, "resourceslices", name=NODE))


def _published(devices: int) -> list[Json]:
    """The class, and devices of the node."""
    selectors = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    return [
        {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": selectors},
        slice_of(DRIVER, NODE, *[f"gpu-{number}" for number in range(devices)]),
    ]


def _documents() -> list[Json]:
    template = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}}
    pod = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    }
    there = {"namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *_published(2),
        {"apiVersion": _API, "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu", **there}, "spec": template},
        *(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **there}, "spec": pod}
            for name in sorted(NAMES)
        ),
    ]
