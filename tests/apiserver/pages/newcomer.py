"""A user who has a checkout to build a release in, and uses nothing of it afterwards but the files of that release.

Manifests, webhook configurations, certificates and accounts are as they are shipped. An image that was copied to the
registry is a file there; its contents run as processes, to which the Services lead.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from release.bases import cache_root
from tests.apiserver.pages.shell import Shell
from tests.apiserver.registration.samples import OWN_NAMESPACE
from tests.controlplane.client import path
from tests.controlplane.contents import unpacked
from tests.controlplane.kubelet import DaemonProcess, Kubelet
from tests.controlplane.processes import wait_until
from tests.release.releasing import EPOCH, commit_all, tracked_files

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.controlplane.contents import ImageContents
    from tests.controlplane.egress import EgressProxy
    from tests.controlplane.plane import ControlPlane

Json = dict[str, Any]

SERVE: Final = "device-taint-webhook"
EVICT: Final = "device-taint-webhook-evict"
_OF_THE_TESTS: Final = ("COVERAGE_", "PYTEST_", "PYTHON", "DEVICE_TAINT_WEBHOOK_", "KUBE", "HELM_", "MAKE")
_SYSTEM: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SKOPEO: Final = """#!/bin/sh
# copy oci-archive:FILE docker://NAME:TAG
target="{registry}/$(echo "${{3#docker://}}" | tr : /)"
mkdir -p "${{target%/*}}" && cp "${{2#oci-archive:}}" "$target"
"""


class Newcomer(Shell):
    """Folder and variables of the shell stay from one block to the next."""

    def __init__(self, plane: ControlPlane, egress: EgressProxy, helm: Path, folder: Path) -> None:
        super().__init__(plane, folder)
        self._egress = egress
        self._registry = folder / "registry"
        self._session = folder / "session"
        self._session.touch()
        self.add_program("skopeo", _SKOPEO.format(registry=self._registry))
        for name, program in (("kubectl", plane.assets.program("kubectl")), ("helm", helm)):
            (self.programs / name).symlink_to(program)
        self._check_out()

    def _check_out(self) -> None:
        """This tree, as committed a while ago: `make` finds its Python packages newer than the lock."""
        for name, content in tracked_files():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            os.utime(file, (EPOCH, EPOCH))
        commit_all(self.folder)

    def environment(self) -> dict[str, str]:
        """No program of this checkout is on PATH; what was downloaded or made for other tests is used again."""
        inherited = {key: text for key, text in os.environ.items() if not key.startswith(_OF_THE_TESTS)}
        return {
            **inherited,
            **super().environment(),
            "PATH": f"{self.programs}:{Path(sys.executable).resolve().parent}:{_SYSTEM}",
            "DEVICE_TAINT_WEBHOOK_CACHE": str(cache_root().parents[1]),
            "MAKEFLAGS": f"VENV={sys.prefix}",
        }

    def start(self, commands: str, **environment: str) -> subprocess.Popen[str]:
        """As in the same shell as the blocks before."""
        saved = f"trap 'code=$?; {{ echo cd \"$PWD\"; export -p; }} > {self._session}; exit $code' EXIT"
        return super().start(f"source {self._session}\n{saved}\n{commands}", **environment)

    def write_here(self, name: str, text: str) -> None:
        """A file in the folder that the shell is in."""
        Path(self.run("pwd").strip(), name).write_text(text)

    # --- pods ------------------------------------------------------------------------------------

    def deployment(self, name: str) -> Json:
        """The spec of a Deployment's pods, once it is there."""
        url = path("apps/v1", "deployments", namespace=OWN_NAMESPACE, name=name)
        wait_until(lambda: self.client.get(url).ok, "there is a Deployment", seconds=600)
        spec: Json = self.client.get(url).object["spec"]["template"]["spec"]
        return spec

    @contextlib.contextmanager
    def image(self, name: str) -> Iterator[ImageContents]:
        """What is in the image that the pods of a Deployment run: it must be in the registry."""
        (container,) = self.deployment(name)["containers"]
        with unpacked(self._registry / container["image"].replace(":", "/")) as contents:
            yield contents

    @contextlib.contextmanager
    def serving(self, contents: ImageContents) -> Iterator[None]:
        """A replica of `serve`, behind the Service."""
        with DaemonProcess(self.plane, OWN_NAMESPACE, self.deployment(SERVE), serves=True, contents=contents) as pod:
            self._egress.port = pod.port
            try:
                yield
            finally:
                self._egress.port = 0

    def evicting(self, contents: ImageContents) -> DaemonProcess:
        """A replica of `evict`, from entry on."""
        return DaemonProcess(self.plane, OWN_NAMESPACE, self.deployment(EVICT), serves=False, contents=contents)

    def cleaning(self, contents: ImageContents) -> Kubelet:
        """What runs the pod that the chart starts before it is uninstalled."""
        return Kubelet(self.plane, OWN_NAMESPACE, {"cleanup"}, contents=contents)
