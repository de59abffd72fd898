"""A user in a checkout with docker, pipx and a registry, and nothing of this tree on PATH.

Manifests, webhook configurations, certificates and accounts are as they are shipped. An image is built by buildah, and
is a file once it is pushed; its contents run as processes, to which the Services lead.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from release.bases import cache_root
from tests.apiserver.pages.shell import Shell
from tests.apiserver.registration.samples import OWN_NAMESPACE
from tests.controlplane.client import path
from tests.controlplane.contents import ImageContents, unpacked
from tests.controlplane.egress import EgressProxy
from tests.controlplane.kubelet import DaemonProcess, Kubelet
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.webhook_process import ROOT
from tests.release.releasing import EPOCH, commit_all, tracked_files

Json = dict[str, Any]

SERVE: Final = "device-taint-webhook"
EVICT: Final = "device-taint-webhook-evict"
_OF_THE_TESTS: Final = ("COVERAGE_", "PYTEST_", "PYTHON", "DEVICE_TAINT_WEBHOOK_", "KUBE", "HELM_", "MAKE")
_SYSTEM: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_DOCKER: Final = """#!{python}
# build -t NAME FOLDER (once: layers are cached), or push NAME
import shutil, sys, tempfile
from pathlib import Path

sys.path.insert(0, "{root}")
from release.bases import native
from release.images import Builder, Labels

verb, *_, last = sys.argv[1:]
file = sys.argv[3] if verb == "build" else last
built, pushed = (Path("{registry}", each, file.replace(":", "/")) for each in ("built", "pushed"))
if verb == "push":
    pushed.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(built, pushed)
elif not built.exists():
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as store:
        builder = Builder(Path(store), sources=Path(last))
        builder.build("localhost/built", Labels(built.name), native())
        builder.write_archive("localhost/built", built.name, built)
        builder.buildah("rmi", "--all", "--force")
"""
_PIPX: Final = """#!/bin/bash
# install FOLDER, with the dependencies of the tests
set -eu
{python} -m pip --quiet install --no-deps --no-build-isolation --target {home}/pipx "$2"
for program in {home}/pipx/bin/*; do
  link={programs}/$(basename "$program")
  printf '#!/bin/sh\\nPYTHONPATH={home}/pipx exec {python} %s "$@"\\n' "$program" > "$link"
  chmod +x "$link"
done
"""


class Newcomer(Shell):
    """Folder and variables of the shell stay from one block to the next."""

    def __init__(self, plane: ControlPlane, egress: EgressProxy, folder: Path) -> None:
        super().__init__(plane, folder)
        self._egress = egress
        self._registry = folder / "registry"
        self._session = folder / "session"
        self._session.touch()
        self.add_program("docker", _DOCKER.format(python=sys.executable, root=ROOT, registry=self._registry))
        self.add_program("pipx", _PIPX.format(python=sys.executable, home=self.home, programs=self.programs))
        self.use("kubectl", plane.assets.program("kubectl"))
        self._check_out()

    def use(self, name: str, program: Path) -> None:
        """Has a program on PATH, in place of the one of this name before."""
        (self.programs / name).unlink(missing_ok=True)
        (self.programs / name).symlink_to(program)

    def _check_out(self) -> None:
        """This tree, as committed a while ago."""
        for name, content in tracked_files():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            os.utime(file, (EPOCH, EPOCH))
        commit_all(self.folder)

    def environment(self) -> dict[str, str]:
        """No program of this checkout is on PATH; bases of images that were made for other tests are used again."""
        inherited = {key: text for key, text in os.environ.items() if not key.startswith(_OF_THE_TESTS)}
        return {
            **inherited,
            **super().environment(),
            "PATH": f"{self.programs}:{_SYSTEM}",
            "DEVICE_TAINT_WEBHOOK_CACHE": str(cache_root().parent),
        }

    def start(self, commands: str, **environment: str) -> subprocess.Popen[str]:
        """As in the same shell as the blocks before."""
        saved = f"trap 'code=$?; {{ echo cd \"$PWD\"; export -p; }} > {self._session}; exit $code' EXIT"
        return super().start(f"source {self._session}\n{saved}\n{commands}", **environment)

    # --- pods ------------------------------------------------------------------------------------

    def deployment(self, name: str) -> Json:
        """The spec of a Deployment's pods, once it is there."""
        url = path("apps/v1", "deployments", namespace=OWN_NAMESPACE, name=name)
        wait_until(lambda: self.client.get(url).ok, "there is a Deployment", seconds=1200)
        spec: Json = self.client.get(url).object["spec"]["template"]["spec"]
        return spec

    @contextlib.contextmanager
    def image(self, name: str) -> Iterator[ImageContents]:
        """What is in the image that the pods of a Deployment run: it must be in the registry."""
        (container,) = self.deployment(name)["containers"]
        with unpacked(self._registry / "pushed" / container["image"].replace(":", "/")) as contents:
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

    def running_once(self, component: str, contents: ImageContents) -> Kubelet:
        """What runs the pods of a hook of the chart."""
        return Kubelet(self.plane, OWN_NAMESPACE, {component}, contents=contents)
