"""docs/callers.md, followed: what its commands and files come to with a real API server (R2)."""

from __future__ import annotations

import re
import secrets
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.apiserver.registration.samples import MANIFESTS
from tests.builders import make_template, make_toleration
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError
from tests.controlplane.registration import registered
from tests.controlplane.webhook_process import ROOT, WebhookProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controlplane.assets import Assets

pytestmark = pytest.mark.apiserver
ENDED = "EOF|.*connection reset by peer|.*broken pipe|.*certificate required"
"""How the end of its connection looks to an API server without an accepted certificate."""

PAGE: Final = (ROOT / "docs/callers.md").read_text()
FOLDER: Final = "/etc/kubernetes/webhook-client"
SERVICE: Final = "device-taint-webhook.device-taint-webhook.svc"
TEMPLATES: Final = path("resource.k8s.io/v1", "resourceclaimtemplates", namespace="default")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def of_kind(kind: str) -> str:
    """The page's file with that kind at its top."""
    (found,) = [block for block in blocks("yaml") if yaml.safe_load(block).get("kind") == kind]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the page has one put on a control plane node."""
    (commands,) = blocks("bash")
    subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "admission.yaml").write_text(of_kind("AdmissionConfiguration").replace(FOLDER, str(tmp_path)))
    return tmp_path


def serving(folder: Path) -> WebhookProcess:
    (folder / "key").write_text(secrets.token_hex())
    return WebhookProcess(f"--key-file={folder / 'key'}", f"--client-ca-file={folder / 'ca.crt'}")


def kubeconfig(folder: Path, host: str) -> None:
    """The page's, with the address of a test's webhook in the place of the Service's."""
    text = of_kind("Config")
    assert text.count(SERVICE) == 1
    (folder / "kubeconfig").write_text(text.replace(SERVICE, host).replace(FOLDER, str(folder)))


@pytest.mark.whole
def test_api_server_configured_as_the_page_says_is_heard_and_gets_authors_signed(assets: Assets, folder: Path) -> None:
    with serving(folder) as webhook:
        kubeconfig(folder, webhook.base_url.removeprefix("https://"))
        argument = f"--admission-control-config-file={folder / 'admission.yaml'}"
        with (
            ControlPlane(assets, api_server_arguments=[argument]) as plane,
            registered(plane, MANIFESTS, webhook.base_url, webhook.ca_pem),
        ):
            template: Any = make_template([make_toleration()])
            template["metadata"]["namespace"] = "default"
            stored = plane.client.create(TEMPLATES, template, dry_run=True).object
    assert "devicetaint.io/requested-by" in stored["spec"]["metadata"]["annotations"]


@pytest.mark.whole
def test_api_server_that_shows_its_certificate_to_another_host_fails_as_the_page_says(
    assets: Assets, folder: Path
) -> None:
    kubeconfig(folder, SERVICE)
    argument = f"--admission-control-config-file={folder / 'admission.yaml'}"
    with (
        serving(folder) as webhook,
        ControlPlane(assets, api_server_arguments=[argument]) as plane,
        pytest.raises(
            NotReadyError,
            match=rf"failed to call webhook: Post .*: ({ENDED})",
        ),
        registered(plane, MANIFESTS, webhook.base_url, webhook.ca_pem),
    ):
        pytest.fail("it was called")
    assert "its connection ends with `EOF`" in " ".join(PAGE.split())


def test_kubeadm_and_kind_name_the_same_files() -> None:
    kubeadm = next(block for block in map(yaml.safe_load, blocks("yaml")) if "apiServer" in block)["apiServer"]
    (node,) = yaml.safe_load(of_kind("Cluster"))["nodes"]
    kind = yaml.safe_load(node["kubeadmConfigPatches"][0])["apiServer"]
    assert kind["extraVolumes"] == kubeadm["extraVolumes"]
    assert [{"name": name, "value": text} for name, text in kind["extraArgs"].items()] == kubeadm["extraArgs"]
    assert node["extraMounts"][0]["containerPath"] == kubeadm["extraVolumes"][0]["hostPath"] == FOLDER
