"""The controller of patches as a process."""

from __future__ import annotations

from pathlib import Path

from tests.apiserver.daemon import Daemon
from tests.controlplane.plane import ControlPlane


class PatchProcess(Daemon):
    verb = "patch"

    def __init__(self, plane: ControlPlane, *arguments: str, kubeconfig: Path | None = None) -> None:
        """`kubeconfig`: the admin's unless given."""
        self._given = [f"--kubeconfig={kubeconfig or plane.kubeconfig}", *arguments]

    def _flags(self) -> list[str]:
        return self._given
