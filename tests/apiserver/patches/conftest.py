"""A control plane that serves ResourceSlicePatch, without the webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from tests.apiserver.manifests.installing import MANIFESTS, remove
from tests.apiserver.patches.values import COLLECTION, DEFINITION
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.plane import ControlPlane


@pytest.fixture(scope="module")
def defined(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shipped definition, and nothing else of ours."""
    definition = yaml.safe_load((MANIFESTS / DEFINITION).read_text())
    collection = path("apiextensions.k8s.io/v1", "customresourcedefinitions")
    _ = plane.client.create(collection, definition, field_validation="Strict").object
    wait_until(lambda: plane.client.get(COLLECTION).ok, "patches are served")
    yield plane
    remove(plane, [definition])
    wait_until(lambda: not plane.client.get(COLLECTION).ok, "patches are no longer served")
