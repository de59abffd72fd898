"""The chart as the real helm renders and installs it, and the values that stand for each overlay and component."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.manifests.installing import MANIFESTS, OWN_NAMESPACE
from tests.controlplane.assets import helm, helm_3
from tests.controlplane.gobuild import AssetsUnavailableError, GoProgram, built

Json = dict[str, Any]

CHART: Final = MANIFESTS / "helm"
HOOK: Final = "helm.sh/hook"
HELMS: Final[Mapping[str, Callable[[], GoProgram]]] = {"helm-4": helm, "helm-3": helm_3}
"""Those that users have. Helm 3 is for tests marked `whole`."""

_EVICT: Final = {"evict": {"enabled": True}}
_DELEGATED: Final = {"evict": {"enabled": True, "mode": "delegated"}}
_PATCH: Final = {"patches": {"enabled": True}, "patch": {"enabled": True}}
_MONITORING: Final = {"monitoring": {"enabled": True}}
_CERT_MANAGER: Final = {"certificates": {"provider": "cert-manager"}}
OVERLAY_VALUES: Final[Mapping[str, Json]] = {
    "cert-manager": _CERT_MANAGER,
    "production": {**_CERT_MANAGER, **_DELEGATED, **_MONITORING, "highAvailability": True},
    "self-managed": {},
}
"""The values that render what an overlay renders."""
COMPONENT_VALUES: Final[Mapping[str, tuple[tuple[str, ...], Json]]] = {
    "client-certificates": ((), {"clientCertificates": {"enabled": True}}),
    "default-tolerations": ((), {"defaultTolerations": True}),
    "evict": ((), _EVICT),
    "evict-acting": (("evict-delegated",), _DELEGATED),  # has no mode of its own
    "evict-delegated": ((), _DELEGATED),
    "evict-replacement": ((), {"evict": {"enabled": True, "mode": "replacement"}}),
    "evict-without-delete": (
        ("evict-delegated",),
        {"evict": {"enabled": True, "mode": "delegated", "allowDelete": False}},
    ),
    "high-availability": ((), {"highAvailability": True}),
    "host-network": ((), {"hostNetwork": True}),
    "lifted": ((), {"lifted": True}),
    "monitoring": ((), _MONITORING),
    "patch-controller": (("patches",), _PATCH),
    "patches": ((), {"patches": {"enabled": True}}),
    "reports": ((), {"openReports": {"enabled": True}}),
    "slice-attributes": (
        ("patches", "patch-controller"),
        {"patches": {"enabled": True, "sliceAttributes": True}, "patch": {"enabled": True}},
    ),
    "watch-pods": ((), {"watchPods": True}),
}
"""Of each component: those that come before it, and the values for all of them, beside self-managed certificates."""
EVERYTHING: Final[Json] = {
    **_DELEGATED,
    **_MONITORING,
    "patches": {"enabled": True, "sliceAttributes": True},
    "patch": {"enabled": True},
    "clientCertificates": {"enabled": True},
    "defaultTolerations": True,
    "highAvailability": True,
    "hostNetwork": True,
    "watchPods": True,
}


def helm_program(name: str = "helm-4") -> Path:
    """The real one; the test is skipped where it cannot be built, or fails in CI."""
    try:
        return built(HELMS[name](), lambda line: print(line, file=sys.stderr)) / "helm"
    except AssetsUnavailableError as e:
        if os.environ.get("CI", "").lower() not in {"", "0", "false"}:
            pytest.fail(f"in CI Helm must be there: {e}")
        pytest.skip(f"no Helm: {e}")


class Helm:
    """The program, with settings of its own; it finds a cluster only where a kubeconfig is given."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder

    @property
    def takes_over_by(self) -> tuple[str, ...]:
        """The flags with which it installs over objects that kubectl has applied."""
        _, out, _ = self.run("version", "--short")
        return ("--take-ownership",) if out.startswith("v3.") else ("--take-ownership", "--force-conflicts")

    def run(self, *arguments: str | Path, stdin: str = "", kubeconfig: Path | None = None) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)."""
        environment = {key: text for key, text in os.environ.items() if not key.startswith(("HELM_", "KUBE"))}
        environment |= {"HOME": str(self._folder), "KUBECONFIG": str(kubeconfig or os.devnull)}
        done = subprocess.run(
            [str(self._program), *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env=environment,
        )
        return done.returncode, done.stdout, done.stderr

    def template(self, values: Json, *options: str, namespace: str = OWN_NAMESPACE, chart: Path = CHART) -> list[Json]:
        """What the chart renders, its hooks too."""
        code, out, err = self.try_template(values, *options, namespace=namespace, chart=chart)
        assert (code, err) == (0, ""), err
        return [each for each in yaml.safe_load_all(out) if each is not None]

    def try_template(
        self, values: Json, *options: str, namespace: str = OWN_NAMESPACE, chart: Path = CHART
    ) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)."""
        return self.run(
            "template",
            "taints",
            chart,
            f"--namespace={namespace}",
            "--values=-",
            *options,
            stdin=yaml.safe_dump(values),
        )


def is_hook(document: Json) -> bool:
    """Whether helm runs it at a point of a release's life, and does not count it among the release's objects."""
    return HOOK in document["metadata"].get("annotations", {})
