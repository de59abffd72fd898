"""Components combine (B7), in one kustomization or on top of an overlay: none takes away what another has added."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.accounts import rights_of
from tests.apiserver.manifests.installing import (
    MANIFESTS,
    REGISTRATIONS,
    ROOT,
    Json,
    environment_of,
    overlay_of,
    ports_of,
    rendered,
)
from tests.controlplane.assets import Assets
from webhook.config.serve import parse_serve

CERTIFICATES: Final = ("../certs/cert-manager", "../certs/self-managed")
MORE: Final = tuple(
    f"components/{name}"
    for name in (
        "high-availability",
        "evict-delegated",
        "default-tolerations",
        "patches",
        "slice-attributes",
        "monitoring",
        "client-certificates",
        "host-network",
        "watch-pods",
    )
)


def _ids(documents: list[Json]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in documents}


def _one(documents: list[Json], kind: str, name: str = "device-taint-webhook") -> Json:
    (found,) = [each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def _serve(documents: list[Json]) -> tuple[Json, Json]:
    deployment = _one(documents, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return deployment, container


def _entries(documents: list[Json]) -> dict[str, Json]:
    return {entry["name"]: entry for each in documents if each["kind"] in REGISTRATIONS for entry in each["webhooks"]}


def _assert_whole(documents: list[Json], certificates: str) -> None:
    """What each of the components brings is there."""
    deployment, container = _serve(documents)
    pod = deployment["spec"]["template"]["spec"]
    settings = parse_serve("x", container["args"][1:], environment_of(deployment, container))
    # high-availability
    assert deployment["spec"]["replicas"] == 3
    assert _entries(documents)["claims.validate.devicetaint.io"]["failurePolicy"] == "Fail"
    # evict-delegated
    worker = _one(documents, "Deployment", "device-taint-webhook-evict")
    assert "--mode=delegated" in worker["spec"]["template"]["spec"]["containers"][0]["args"]
    assert ("ClusterRole", "device-taint-webhook-evict-acting") in _ids(documents)
    # default-tolerations
    assert "default-tolerations.mutate.devicetaint.io" in _entries(documents)
    # patches
    assert ("CustomResourceDefinition", "resourceslicepatches.devicetaint.io") in _ids(documents)
    assert {"patches.mutate.devicetaint.io", "patches.validate.devicetaint.io"} <= _entries(documents).keys()
    assert settings.watch_patches
    assert ("ClusterRoleBinding", "device-taint-webhook-watch-patches") in _ids(documents)
    # monitoring
    assert ("ServiceMonitor", "device-taint-webhook") in _ids(documents)
    # client-certificates, and whichever certificates: each file that is asked for is mounted
    assert settings.client_names == ("kube-apiserver",)
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    files = [settings.certificates.client_ca_file, getattr(settings.certificates, "certificate_file", None)]
    assert {str(file.parent) for file in files if file is not None} == mounted
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    injected = {
        each["metadata"]["annotations"].get("cert-manager.io/inject-ca-from")
        for each in documents
        if each["kind"] in REGISTRATIONS
    }
    assert injected == {"device-taint-webhook/device-taint-webhook" if "cert-manager" in certificates else None}
    # host-network
    assert pod["hostNetwork"] is True
    ports = {each["name"]: each["hostPort"] for each in container["ports"]}
    assert ports == ports_of(settings)
    # slice-attributes
    assert settings.slice_attributes
    assert "slice-attributes.mutate.devicetaint.io" in _entries(documents)
    # watch-pods
    assert settings.watch_pods
    assert ("ClusterRoleBinding", "device-taint-webhook-watch-pods") in _ids(documents)


@pytest.mark.parametrize("certificates", [pytest.param(CERTIFICATES[0], marks=pytest.mark.whole), CERTIFICATES[1]])
def test_all_components_at_once_keep_what_each_has_added_in_any_order(
    assets: Assets, tmp_path: Path, certificates: str
) -> None:
    """Backwards, each of them comes before all that it came after; only certificates have to be the first."""
    documents = rendered(assets, overlay_of(tmp_path / "mine", components=[certificates, *MORE]))
    _assert_whole(documents, certificates)
    backwards = rendered(assets, overlay_of(tmp_path / "backwards", components=[certificates, *MORE[::-1]]))
    assert _by_id(backwards) == _by_id(documents)


@pytest.mark.whole
def test_components_on_top_of_an_overlay_are_the_same_installation(assets: Assets, tmp_path: Path) -> None:
    """So an installation grows by a line, and no overlay has to be applied over another."""
    on_top = rendered(assets, overlay_of(tmp_path / "on-top", base="overlays/cert-manager", components=MORE))
    beside = rendered(assets, overlay_of(tmp_path / "beside", components=[CERTIFICATES[0], *MORE]))
    assert on_top == beside


def _by_id(documents: list[Json]) -> dict[tuple[str, str], Any]:
    """Without the order of documents and of lists whose entries have a name, which API servers merge by it."""
    return {(each["kind"], each["metadata"]["name"]): _sorted(each) for each in documents}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    if isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value):
        return sorted((_sorted(each) for each in value), key=lambda each: str(each["name"]))
    return value


def test_without_delete_evict_has_the_eviction_api_and_no_other_way(assets: Assets, tmp_path: Path) -> None:
    """L21."""
    account = "device-taint-webhook-evict"
    whole = [CERTIFICATES[0], "components/evict-delegated"]
    before = rights_of(rendered(assets, overlay_of(tmp_path / "whole", components=whole)), account)
    less = [*whole, "components/evict-without-delete"]
    after = rights_of(rendered(assets, overlay_of(tmp_path / "less", components=less)), account)
    assert {(right.resource, right.verb) for right in before - after} == {("pods", "delete"), ("pods/status", "patch")}
    assert after < before


@pytest.fixture(scope="module")
def example(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """The kustomization of manifests/README.md with all that it says is often wanted, rendered."""
    section = (MANIFESTS / "README.md").read_text().partition("\n## An overlay of your own\n")[2].partition("\n## ")[0]
    whole, more = (
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    )
    for field in ("resources", "components", "transformers"):
        whole[field] = [str((MANIFESTS / "overlays/mine" / each).resolve().relative_to(ROOT)) for each in whole[field]]
    components = [os.path.relpath(each, "manifests") for each in whole.pop("components")]
    (base,) = whole.pop("resources")
    transformers = [os.path.relpath(each, "manifests") for each in whole.pop("transformers")]
    folder = tmp_path_factory.mktemp("documented") / "mine"
    fields = {**whole, **more, "transformers": transformers}
    return rendered(
        assets, overlay_of(folder, base=os.path.relpath(base, "manifests"), components=components, **fields)
    )


def test_the_documented_overlay_has_all_of_its_components_in_its_namespace(example: list[Json]) -> None:
    """B7, H2: cert-manager, evict-delegated and default-tolerations in a few lines."""
    found = _ids(example)
    assert {("Certificate", "device-taint-webhook"), ("ClusterRole", "device-taint-webhook-evict-acting")} <= found
    assert "default-tolerations.mutate.devicetaint.io" in _entries(example)
    assert ("Namespace", "platform-dra") in found
    assert {each["metadata"].get("namespace") for each in example} == {None, "platform-dra"}


def test_the_documented_version_is_in_the_image_and_in_every_label(example: list[Json]) -> None:
    """L16."""
    for document in example:
        assert document["metadata"]["labels"]["app.kubernetes.io/version"] == "VERSION", document["kind"]
        if document["kind"] == "Deployment":
            template = document["spec"]["template"]
            assert template["metadata"]["labels"]["app.kubernetes.io/version"] == "VERSION"
            assert template["spec"]["containers"][0]["image"].startswith("registry.example.com/device-taint-webhook:")
            assert "app.kubernetes.io/version" not in document["spec"]["selector"]["matchLabels"]


def test_the_documented_credentials_are_those_of_both_accounts(example: list[Json]) -> None:
    """L19."""
    accounts = {
        each["metadata"]["name"]: each["imagePullSecrets"] for each in example if each["kind"] == "ServiceAccount"
    }
    secrets = [{"name": "registry-credentials"}]
    assert accounts == {"device-taint-webhook": secrets, "device-taint-webhook-evict": secrets}
