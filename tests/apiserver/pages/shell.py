"""A shell of a user who follows a page, with the cluster's admin in ~/.kube/config."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane

Json = dict[str, Any]

LABELLED: Final = "-lapp.kubernetes.io/name=device-taint-webhook"


class Shell:
    """Runs blocks of commands, each in a shell of its own."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        """`folder`: exists, and gets all that belongs to the user."""
        self.plane = plane
        self.client = plane.client
        self.folder = folder / "work"
        """Where commands are run."""
        self.home = folder / "home"
        self.programs = folder / "bin"
        """First on PATH."""
        for empty in (self.folder, self.home / ".kube", self.programs):
            empty.mkdir(parents=True)
        shutil.copy(plane.kubeconfig, self.home / ".kube/config")

    def environment(self) -> dict[str, str]:
        """Of the commands. A subclass says what it is, beside HOME."""
        return {"HOME": str(self.home)}

    def add_program(self, name: str, text: str) -> None:
        """A script on PATH."""
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def start(self, commands: str, **environment: str) -> subprocess.Popen[str]:
        """Commands that go on while something else happens."""
        return self._started(commands, {**self.environment(), **environment})

    def _started(self, commands: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, commands: str, *, codes: Collection[int] = (0,), seconds: float = 900, **environment: str) -> str:
        """What they print, to both outputs; the first one that fails is the last, as with `bash -e`."""
        return self.finish(self.start(commands, **environment), codes=codes, seconds=seconds)

    def finish(self, running: subprocess.Popen[str], *, codes: Collection[int] = (0,), seconds: float = 900) -> str:
        """The same of what was started."""
        with running:
            try:
                printed, _ = running.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                running.kill()
                raise
        assert running.returncode in codes, f"{running.returncode} from {shlex.join(running.args)}:\n{printed}"  # type: ignore[arg-type]
        return printed

    # --- in the cluster --------------------------------------------------------------------------

    def left(self) -> str:
        """What the cluster has of ours, by kind and name."""
        kinds = (
            "namespace,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,"
            "validatingwebhookconfiguration,mutatingwebhookconfiguration,flowschema"
        )
        return self.run(f"kubectl get {kinds} {LABELLED} -o name").removesuffix("No resources found\n")

    def apply(self, *documents: Json) -> None:
        """Objects that are no business of the page."""
        done = self.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
        assert done.code == 0, done

    def uninstall(self) -> None:
        """Whatever is there, so that the next page begins with an empty cluster."""
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            self.client.delete(path("admissionregistration.k8s.io/v1", plural, name="device-taint-webhook"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            kinds = (
                "validatingadmissionpolicy,validatingadmissionpolicybinding,flowschema,clusterrole,clusterrolebinding,"
                "namespace"
            )
            self.run(f"kubectl delete {kinds} {LABELLED}")
