"""The managers of JobSet and of LeaderWorkerSet as processes, installed from what their modules ship."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.controlplane import assets
from tests.controlplane.client import path
from tests.controlplane.pki import Authority
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import Process, free_port, wait_until
from tests.controlplane.registration import MOST_SECONDS, register

Json = dict[str, Any]

_HOST: Final = "127.0.0.1"
_CONFIGURATIONS: Final = "configurations.yaml"
_PATCHES: Final = {
    "MutatingWebhookConfiguration": "mutating-patch.yaml",
    "ValidatingWebhookConfiguration": "validating-patch.yaml",
}
"""What their kustomizations do to the generated configurations: webhooks for pods ask for a label."""


@dataclass(frozen=True)
class Made:
    """What to run, and what it makes pods of."""

    program: str
    """As `Assets.program` calls it; its kinds and webhook configurations are beside it."""
    configuration: str
    """apiVersion of its configuration file."""
    api_version: str
    plural: str


JOB_SETS: Final = Made(assets.JOB_SET, "config.jobset.x-k8s.io/v1alpha1", "jobset.x-k8s.io/v1alpha2", "jobsets")
LEADER_WORKER_SETS: Final = Made(
    assets.LEADER_WORKER_SET,
    "config.lws.x-k8s.io/v1alpha1",
    "leaderworkerset.x-k8s.io/v1",
    "leaderworkersets",
)


class GangManager:
    """One of them, from entry, when it works and its webhooks are called, to exit."""

    def __init__(self, plane: ControlPlane, made: Made, probe: Json) -> None:
        """`probe` is one of its objects, valid in namespace default."""
        self._plane = plane
        self._made = made
        self._probe = probe
        self._program = plane.assets.program(made.program)
        self._folder = plane.folder / made.program
        self._authority = Authority(f"{made.program}-ca")
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir()
        self._install_kinds()
        port = free_port()
        process = self._ends.enter_context(self._process(port))
        try:
            process.wait_ready(lambda: _listens(port))
            self._register(port)
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _install_kinds(self) -> None:
        files = sorted((self._program.parent / "bases").glob("*.yaml"))
        assert files
        done = self._plane.kubectl("apply", "--server-side", *[f"--filename={file}" for file in files])
        assert done.code == 0, done
        # Not with `kubectl wait`, which fails while there are no conditions at all.
        names = [_kind_of(file) for file in files]
        wait_until(lambda: all(map(self._is_established, names)), f"{names} are established", every=0.2)

    def _is_established(self, name: str) -> bool:
        kinds = path("apiextensions.k8s.io/v1", "customresourcedefinitions", name=name)
        conditions = self._plane.client.get(kinds).object.get("status", {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def _process(self, port: int) -> Process:
        certificates = self._folder / "certificates"
        self._authority.server(_HOST).write(certificates)
        configuration = {
            "apiVersion": self._made.configuration,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": _HOST, "port": port, "certDir": str(certificates)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": "0"},
        }
        file = self._folder / "configuration.yaml"
        file.write_text(json.dumps(configuration))  # JSON is YAML
        kubeconfig = self._plane.kubeconfig_of(self._made.program, ["system:masters"])
        command: list[str | Path] = [self._program, f"--config={file}", f"--kubeconfig={kubeconfig}"]
        return Process(self._made.program, command, self._plane.folder / f"{self._made.program}.log")

    def _register(self, port: int) -> None:
        """Its webhook configurations, as its kustomization makes them, but with names of their own."""
        documents = list(yaml.safe_load_all((self._program.parent / "webhook/manifests.yaml").read_text()))
        for document in documents:
            for operation in self._patch(_PATCHES[document["kind"]]):
                assert (operation["op"], operation["path"]) == ("replace", "/webhooks/1"), operation
                document["webhooks"][1] = operation["value"]
            document["metadata"]["name"] = self._made.program
        (self._folder / _CONFIGURATIONS).write_text(yaml.safe_dump_all(documents))
        url = path(self._made.api_version, self._made.plural, namespace="default")
        _ = self._plane.client.create(url, self._probe, dry_run=True).object
        address, files = f"https://{_HOST}:{port}", [_CONFIGURATIONS]
        pem = self._authority.pem
        register(
            self._plane,
            self._folder,
            address,
            pem,
            files=files,
            probes=[(url, self._probe)],
            timeout_seconds=MOST_SECONDS,
        )

    def _patch(self, name: str) -> list[Json]:
        """They lie beside the manifests or in a folder of their own."""
        [file] = self._program.parent.glob(f"*/{name}")
        operations: list[Json] = yaml.safe_load(file.read_text())
        return operations


def _kind_of(file: Path) -> str:
    """The name of the CustomResourceDefinition in a file that controller-gen has named: GROUP_PLURAL.yaml."""
    group, _, plural = file.stem.partition("_")
    return f"{plural}.{group}"


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((_HOST, port)) == 0
