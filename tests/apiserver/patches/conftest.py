"""A control plane that serves ResourceSlicePatch, without the webhook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.apiserver.manifests.installing import MANIFESTS, remove
from tests.apiserver.patches.closing import ClosingFleet
from tests.apiserver.patches.values import COLLECTION, DEFINITION
from tests.apiserver.patching import PatchProcess
from tests.conftest import FAKE_NODES
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until


@pytest.fixture(scope="module")
def defined(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shipped definition, and nothing else of ours."""
    yield from _defined(plane)


@pytest.fixture(scope="module")
def fully_defined(full_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Likewise, where everything runs."""
    yield from _defined(full_plane)


@pytest.fixture(scope="module")
def controller(fully_defined: ControlPlane) -> Iterator[PatchProcess]:
    """The only one, and it works."""
    with PatchProcess(fully_defined) as process:
        yield process.wait_for("working")


@pytest.fixture
def fleet(fully_defined: ControlPlane, request: pytest.FixtureRequest) -> Iterator[ClosingFleet]:
    """One of its own for each test."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].rstrip("-")
    found = ClosingFleet(fully_defined, name, FAKE_NODES)
    yield found
    for each in fully_defined.client.get(path("devicetaint.io/v1alpha1", "resourceslicepatches")).items:
        found.drop(each["metadata"]["name"])
    found.clear()
    found.withdraw()
    wait_until(lambda: not found.rules(), "no rules are left")


def _defined(plane: ControlPlane) -> Iterator[ControlPlane]:
    definition = yaml.safe_load((MANIFESTS / DEFINITION).read_text())
    collection = path("apiextensions.k8s.io/v1", "customresourcedefinitions")
    _ = plane.client.create(collection, definition, field_validation="Strict").object
    wait_until(lambda: plane.client.get(COLLECTION).ok, "patches are served")
    yield plane
    remove(plane, [definition])
    wait_until(lambda: not plane.client.get(COLLECTION).ok, "patches are no longer served")
