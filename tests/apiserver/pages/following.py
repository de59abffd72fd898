"""What a reader does who follows a page: its commands in a shell, with a real API server behind kubectl.

Images are neither built nor run: the programs run as processes beside the control plane. So webhook configurations lead
to such a process, by url, wherever kubectl renders an overlay; calls have all the time that API servers give, for the
sake of a busy machine.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from tests.apiserver.manifests.installing import way_of
from tests.apiserver.pages.shell import Shell
from tests.apiserver.policy.stage import ACCOUNT, ACCOUNT_GROUPS
from tests.apiserver.registration.samples import OWN_NAMESPACE
from tests.controlplane.client import path
from tests.controlplane.pki import Authority
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import free_port, wait_until
from tests.controlplane.registration import MOST_SECONDS
from tests.controlplane.webhook_process import ROOT, WebhookProcess, our_environment

Json = dict[str, Any]

REGISTRY: Final = "registry.example.com/team"
_PLACE: Final = re.compile(r"(?<!\$)\bREGISTRY\b(?!=)")
"""Where a page has the reader write the registry; not a variable of the shell."""
INSTALL: Final = "docs/install.md"
RUNBOOKS: Final = "docs/runbooks.md"
INTEGRATIONS: Final = "docs/integrations.md"
GETTING_STARTED: Final = "docs/getting-started.md"
RUNBOOKS_TOP: Final = "Runbooks"
"""The title of the page: below it, before the first section, is how to disable the webhook."""
OWN_OVERLAY: Final = "With kustomize"
APPLICATIONS: Final = path("argoproj.io/v1alpha1", "applications", namespace="argocd")
KUSTOMIZATIONS: Final = path("kustomize.toolkit.fluxcd.io/v1", "kustomizations", namespace="flux-system")
_SERVE: Final = path("apps/v1", "deployments", namespace=OWN_NAMESPACE, name="device-taint-webhook")
_KUBECTL: Final = """#!{python}
import os, subprocess, sys
import yaml

def rendered(folder):
    done = subprocess.run(["{real}", "kustomize", folder], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    documents = list(yaml.safe_load_all(done.stdout))
    for document in documents:
        for webhook in document.get("webhooks", []):
            url = "{url}" + webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {{"url": url, "caBundle": "{bundle}"}}
            webhook["timeoutSeconds"] = {most}
    return yaml.safe_dump_all(documents)

arguments = sys.argv[1:]
if arguments[:1] == ["kustomize"]:
    print(rendered(arguments[1]))
elif arguments[:2] == ["apply", "-k"]:
    command = ["{real}", "apply", "-f", "-", *arguments[3:]]
    sys.exit(subprocess.run(command, input=rendered(arguments[2]), text=True).returncode)
else:
    os.execv("{real}", ["kubectl", *arguments])
"""


def section(page: str, heading: str) -> str:
    """What stands below a heading of a page, up to the next heading of any level."""
    text = _without_comments((ROOT / page).read_text())
    below = rf"^#+ (?:\d+\. )?{re.escape(heading)}\n(.*?)(?=^#+ |\Z)"
    found = re.search(below, text, re.MULTILINE | re.DOTALL)
    assert found is not None, (page, heading)
    return found[1].replace("\0", "#")


def _without_comments(text: str) -> str:
    """A # at the start of a line within a block is no heading."""
    return re.sub(r"^```.*?^```$", lambda block: block[0].replace("\n#", "\n\0"), text, flags=re.MULTILINE | re.DOTALL)


def blocks(page: str, heading: str, language: str = "") -> list[str]:
    """The fenced blocks of a section; those without a language are what is typed, or printed."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section(page, heading), re.MULTILINE | re.DOTALL)
    return [_PLACE.sub(REGISTRY, text) for each, text in found if each == language]


class Reader(Shell):
    """A user in a checkout of this repository."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        super().__init__(plane, folder)
        self._authority = Authority("walked-webhook-ca")
        self._port = free_port()
        for copied in ("manifests", "certs"):
            shutil.copytree(ROOT / copied, self.folder / copied, ignore=shutil.ignore_patterns("dev", "__pycache__"))
        shutil.copy(ROOT / "Makefile", self.folder)
        kubectl = _KUBECTL.format(
            python=sys.executable,
            real=plane.assets.program("kubectl"),
            url=f"https://127.0.0.1:{self._port}",
            bundle=base64.b64encode(self._authority.pem).decode(),
            most=MOST_SECONDS,
        )
        self.add_program("kubectl", kubectl)

    def environment(self) -> dict[str, str]:
        """That of a program of this checkout, without a cluster but that of ~/.kube/config."""
        ours = {key: text for key, text in our_environment().items() if key != "KUBECONFIG"}
        found = f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**ours, **super().environment(), "PATH": found}

    def deploy(self, heading: str = OWN_OVERLAY, page: str = INSTALL) -> None:
        """What a GitOps tool does again and again, with the kustomization of a section of a page."""
        self.kustomize("self-managed", heading, page)
        (install,) = blocks(INSTALL, OWN_OVERLAY)
        apply, _doctor = install.splitlines()
        self.run(apply)

    def kustomize(self, way: str, heading: str = OWN_OVERLAY, page: str = INSTALL) -> None:
        """Writes the kustomization of a section into `deploy`, with a way to install in place of its overlay.

        The way is an overlay of the checkout from then on, also where the repository has none.
        """
        if not (overlay := self.folder / "manifests" / "overlays" / way).exists():
            way_of(overlay, way)
        (text,) = blocks(page, heading, "yaml")
        assert text.count("overlays/self-managed") == 1
        self.write("deploy/kustomization.yaml", text.replace("overlays/self-managed", f"overlays/{way}"))

    # --- in the cluster --------------------------------------------------------------------------

    def pod_of_serve(self) -> WebhookProcess:
        """A replica, not started yet, to which the configurations lead; only API servers are heard."""
        wait_until(lambda: self.client.get(_SERVE).ok, "there is a Deployment", seconds=240)
        kubeconfig = self.plane.kubeconfig_of(ACCOUNT, ACCOUNT_GROUPS)
        return WebhookProcess(
            f"--kubeconfig={kubeconfig}",
            f"--port={self._port}",
            standalone=False,
            authority=self._authority,
        )

    def serve_gitops_kinds(self) -> None:
        """Argo CD's Application and Flux's Kustomization with any field, and none of their programs."""
        kinds = (
            ("argoproj.io", "v1alpha1", "Application", "argocd"),
            ("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "flux-system"),
        )
        for group, version, kind, namespace in kinds:
            plural = f"{kind.lower()}s"
            names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
            anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
            self.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
                {
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": f"{plural}.{group}"},
                    "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
                },
            )
        for collection in (APPLICATIONS, KUSTOMIZATIONS):
            wait_until(lambda url=collection: self.client.get(url).ok, f"{collection} is served")  # type: ignore[misc]
            self.client.delete(collection)
        for group, _, kind, _ in kinds:
            self.plane.wait_discovered(group, f"{kind.lower()}s")
