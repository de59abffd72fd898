"""Claims that the scheduler makes for extended resources are its own affair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.manifests.installing import write_registrations
from tests.apiserver.objects import SLICES, claim_of, slice_of
from tests.apiserver.policy.pods import unused_name
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

RESOURCE: Final = "extended.example.com/gpu"
DRIVER: Final = "extended.example.com"
NAMESPACE: Final = "lab"
# Nothing of this would let such a claim alone, if it were asked.
STRICT: Final = make_policy(
    default="deny",
    rules=[{"name": "no-extended-resources", "action": "deny", "subject": "request", "match": {"drivers": [DRIVER]}}],
    defaultTolerations=[
        {
            "name": "for-all",
            "tolerations": [{"key": "maint.example.com/window", "operator": "Exists", "effect": "None"}],
        }
    ],
)


@pytest.fixture
def asked_about_everything(stage: Stage, tmp_path: Path) -> Iterator[Stage]:
    """With the component, and without the condition that spares us claims without tolerations."""
    if versions.minor(stage.plane.server_version) < 36:
        pytest.skip("extended resources of device classes are off")
    file = write_registrations(stage.plane.assets, "default-tolerations", tmp_path)
    registrations = list(yaml.safe_load_all((tmp_path / file).read_text()))
    conditions = [
        condition for each in registrations for entry in each["webhooks"] for condition in entry["matchConditions"]
    ]
    sparing = [condition for condition in conditions if condition["name"] == "has-tolerations"]
    assert len(sparing) == 2
    for condition in sparing:
        condition["expression"] = "true"
    (tmp_path / file).write_text(yaml.safe_dump_all(registrations))
    stage.use(STRICT)
    stage.unregister()
    stage.register([file], tmp_path)
    yield stage
    stage.unregister()
    stage.register()


@pytest.fixture
def extended_resource(stage: Stage) -> Iterator[str]:
    """A class with an extended resource, and a device on every node: the class' path."""
    version = f"{GROUP}/v1"
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    stage.create(version, "DeviceClass", DRIVER, spec={"selectors": selectors, "extendedResourceName": RESOURCE})
    _ = stage.client.create(SLICES, slice_of(DRIVER, "everywhere", "gpu-0", node=None)).object
    yield RESOURCE
    stage.client.delete(f"{SLICES}/everywhere")
    stage.client.delete(path(version, "deviceclasses", name=DRIVER))


def test_they_are_neither_touched_nor_judged(asked_about_everything: Stage, extended_resource: str) -> None:
    stage, client = asked_about_everything, asked_about_everything.client
    pods, name = path("v1", "pods", namespace=NAMESPACE), unused_name()
    resources = {"limits": {extended_resource: "1"}, "requests": {extended_resource: "1"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none", "resources": resources}],
        },
    }
    _ = client.create(pods, pod).object
    try:
        wait_until(lambda: client.get(f"{pods}/{name}").object["status"].get("phase") == "Running", "the pod runs")
        claims = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
        (claim,) = [
            each
            for each in client.get(claims).items
            if name in [owner["name"] for owner in each["metadata"].get("ownerReferences", [])]
        ]
    finally:
        client.delete(f"{pods}/{name}")
    annotations = claim["metadata"]["annotations"]
    assert annotations["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert not [key for key in annotations if "devicetaint.io" in key]
    (request,) = claim["spec"]["devices"]["requests"]
    assert "tolerations" not in request["exactly"]
    # It was asked about it, and had nothing to say.
    url = f"{claims}/{claim['metadata']['name']}"
    assert stage.audited("mutation.webhook.admission.k8s.io", "create", url)
    assert stage.audited("claims.validate.devicetaint.io", "create", url) == {}


def test_the_annotation_alone_does_not_make_one(asked_about_everything: Stage) -> None:
    claims = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    claim = claim_of(DRIVER, name=unused_name(), namespace=NAMESPACE, annotations=annotations)
    reply = asked_about_everything.client.acting_as("dana").create(claims, claim, dry_run=True)
    assert reply.code == 403, reply
    assert "(rule no-extended-resources)" in reply.message
