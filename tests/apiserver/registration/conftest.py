"""The shipped configurations, registered for a webhook that only remembers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.registration.asking import evaluation_errors
from tests.apiserver.registration.recording import RecordingWebhook
from tests.apiserver.registration.samples import MANIFESTS, NO_FINALIZERS, OWN_NAMESPACE, need_namespace
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import registered


@pytest.fixture(scope="module", autouse=True)
def _no_taints_left(plane: ControlPlane) -> Iterator[None]:
    """Rules and slices are gone at the end: a worker of the next module would evict by them."""
    yield
    rules = [(version, "devicetaintrules") for version in versions.rule_versions(plane.server_version)[:1]]
    for version, resource in (*rules, (versions.api_versions(plane.server_version)[0], "resourceslices")):
        url = path(f"{versions.GROUP}/{version}", resource)
        for each in plane.client.get(url).object["items"]:
            _ = plane.client.patch(f"{url}/{each['metadata']['name']}", NO_FINALIZERS)
        _ = plane.client.delete(url).object


@pytest.fixture(scope="module")
def registered_webhook(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordingWebhook]:
    """Registered as shipped; nothing in this control plane acts on its own, so all calls are a test's."""
    need_namespace(plane, OWN_NAMESPACE)
    kube_system = path("v1", "namespaces", name="kube-system")
    wait_until(lambda: plane.client.get(kube_system).ok, "namespace kube-system")
    with (
        RecordingWebhook(tmp_path_factory.mktemp("webhook")) as recording,
        registered(plane, MANIFESTS, recording.base_url, recording.ca_pem),
    ):
        yield recording


@pytest.fixture(scope="module")
def known_errors(plane: ControlPlane) -> list[float]:
    """How many conditions could not be evaluated so far, as the only element: metrics are slow to read."""
    return [evaluation_errors(plane)]


@pytest.fixture
def webhook(
    plane: ControlPlane, registered_webhook: RecordingWebhook, known_errors: list[float]
) -> Iterator[RecordingWebhook]:
    """The registered webhook, without calls yet; the API server must be able to evaluate every matchCondition.

    One that it cannot evaluate looks like one that is not met where failurePolicy is Ignore: only a metric tells.
    """
    registered_webhook.take()
    yield registered_webhook
    before, known_errors[0] = known_errors[0], evaluation_errors(plane)
    assert known_errors[0] == before, "a matchCondition could not be evaluated"


@pytest.fixture
def version(request: pytest.FixtureRequest, plane: ControlPlane) -> str:
    """A version of claims, templates and slices, as parametrized."""
    wanted: str = request.param
    if wanted not in versions.api_versions(plane.server_version):
        pytest.skip(f"Kubernetes {plane.server_version} does not serve {wanted}")
    return wanted


@pytest.fixture
def rule_version(request: pytest.FixtureRequest, plane: ControlPlane) -> str:
    """A version of DeviceTaintRule, as parametrized."""
    wanted: str = request.param
    if wanted not in versions.rule_versions(plane.server_version):
        pytest.skip(f"Kubernetes {plane.server_version} does not serve rules in {wanted}")
    return wanted


@pytest.fixture
def row(request: pytest.FixtureRequest) -> list[Any]:
    """As parametrized by asking.table."""
    text: str
    row: list[Any]
    text, *row = request.param
    if text.startswith("since 1.35"):
        request.getfixturevalue("since_1_35")
    return row


@pytest.fixture
def since_1_35(plane: ControlPlane) -> None:
    """Effect None, 16 taints a device and the status of rules."""
    if versions.minor(plane.server_version) < 35:
        pytest.skip(f"not yet in Kubernetes {plane.server_version}")
