"""cert-manager's own controllers, what a kubelet does with the Secret that they fill, and replicas that read it."""

from __future__ import annotations

import base64
import itertools
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import yaml
from cryptography import x509

from tests.apiserver.manifests.installing import REGISTRATIONS, rendered
from tests.apiserver.replicas import CERTS, COMMAND, NAMESPACE, Replicas
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import Process, wait_until
from tests.controlplane.registration import MOST_SECONDS
from tests.controlplane.webhook_process import WebhookProcess

Json = dict[str, Any]

OVERLAY: Final = "overlays/cert-manager"
LEAF: Final = "device-taint-webhook"
CA: Final = "device-taint-webhook-ca"
LEAF_SECRET: Final = path("v1", "secrets", namespace=NAMESPACE, name="device-taint-webhook-tls")
CA_SECRET: Final = path("v1", "secrets", namespace=NAMESPACE, name="device-taint-webhook-cert-manager-ca")
_GROUP: Final = "cert-manager.io/v1"


def certificate_url(name: str) -> str:
    """Of one of cert-manager's Certificates."""
    return path(_GROUP, "certificates", namespace=NAMESPACE, name=name)


def issuer_url(name: str) -> str:
    """Of one of its Issuers."""
    return path(_GROUP, "issuers", namespace=NAMESPACE, name=name)


def condition(obj: Json, kind: str) -> str:
    """The status of a condition; empty while there is none."""
    found = (each for each in obj.get("status", {}).get("conditions", []) if each["type"] == kind)
    return next((str(each["status"]) for each in found), "")


class CertManager:
    """The controllers and the cainjector (tests/controlplane/certmanager) while the block lasts."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._program = plane.assets.program("cert-manager")
        self._kubeconfig = plane.kubeconfig_of("cert-manager", ["system:masters"])
        self._process: Process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def install_kinds(self) -> None:
        """The CustomResourceDefinitions of its release, but those that are about ACME."""
        files = sorted((self._program.parent / "crds").glob("cert-manager.io_*.yaml"))
        assert len(files) == 4, files
        options = [f"--filename={file}" for file in files]
        done = self.plane.kubectl("apply", "--server-side", *options)
        assert done.code == 0, done
        named = [f"crd/{file.stem.partition('_')[2]}.cert-manager.io" for file in files]

        def established() -> bool:
            # kubectl ends with "conditions accessor error" for a definition without any condition yet
            return self.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *named).code == 0

        wait_until(established, "the kinds are established", seconds=240)
        for plural in ("certificates", "issuers"):
            self.plane.wait_discovered("cert-manager.io", plural)

    def start(self) -> None:
        """Does not wait: what it does is seen in the objects."""
        command: list[str | Path] = [self._program, f"-kubeconfig={self._kubeconfig}", "-v=2"]
        self._process = Process("cert-manager", command, self.plane.folder / "cert-manager.log")

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.stop()


@dataclass(slots=True)
class Mount:
    """A Secret as files in a pod: a folder that is swapped whole, by a link."""

    folder: Path
    lag_seconds: float
    """How long after a change of the Secret it gets here."""
    version: str = ""
    """resourceVersion of what is here."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def write(self, secret: Json) -> None:
        """As AtomicWriter in kubelets does it: ..data leads to the newest folder, and the files through ..data."""
        newest = self.folder / f"..{next(self._numbers)}"
        newest.mkdir()
        for name, text in secret["data"].items():
            (newest / name).write_bytes(base64.b64decode(text))
        link = self.folder / "..data"
        before = link.resolve() if link.is_symlink() else None
        (self.folder / "..data_tmp").symlink_to(newest.name)
        (self.folder / "..data_tmp").replace(link)
        for name in secret["data"]:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        if before is not None:
            shutil.rmtree(before)
        self.version = secret["metadata"]["resourceVersion"]


class Kubelet:
    """Brings the Secret to each mount, later than to the API servers, and keeps what is there if the Secret goes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._mounts: list[Mount] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for mount in self._mounts:
            shutil.rmtree(mount.folder)

    def mount(self, lag_seconds: float) -> Path:
        """A folder with what the Secret holds now; waits until there is one, as a pod does."""
        mount = Mount(Path(tempfile.mkdtemp(prefix="secret-")), lag_seconds)
        wait_until(lambda: self._client.get(LEAF_SECRET).ok, "there is a Secret to mount", seconds=240)
        mount.write(self._client.get(LEAF_SECRET).object)
        self._mounts.append(mount)
        return mount.folder

    def _run(self) -> None:
        seen: dict[str, float] = {}
        while not self._stopped.wait(0.25):
            reply = self._client.get(LEAF_SECRET)
            if not reply.ok:
                continue
            version = reply.object["metadata"]["resourceVersion"]
            since = seen.setdefault(version, time.monotonic())
            for mount in tuple(self._mounts):
                if mount.version != version and time.monotonic() - since >= mount.lag_seconds:
                    mount.write(reply.object)


class Issued(Replicas):
    """Overlay cert-manager as kubectl renders it, but that the Service leads to the balancer on this machine."""

    server_name = f"device-taint-webhook.{NAMESPACE}.svc"

    def __init__(self, plane: ControlPlane, kubelet: Kubelet) -> None:
        super().__init__(plane)
        self._kubelet = kubelet

    def install(self) -> None:
        """API servers take the way by the Service's name, and so expect that name in the certificate."""
        documents = rendered(self.plane.assets, OVERLAY)
        for document in documents:
            if document["kind"] == "Service":
                document["spec"] = {"type": "ExternalName", "externalName": self.balancer.address[0]}
            if document["kind"] in REGISTRATIONS:
                for webhook in document["webhooks"]:
                    webhook["clientConfig"]["service"]["port"] = self.balancer.address[1]
                    webhook["timeoutSeconds"] = MOST_SECONDS  # a call that a busy machine delays has not failed
        done = self.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
        assert done.code == 0, done

    def new_process(self) -> WebhookProcess:
        """One whose Secret comes a second later than that of the one before: kubelets take up to two minutes."""
        folder = self._kubelet.mount(lag_seconds=1.0 + len(self.running))
        return WebhookProcess(f"--cert-dir={folder}", *self._arguments, standalone=False, command=COMMAND)

    def stored(self, secret: str) -> x509.Certificate:
        """The certificate in a Secret."""
        return x509.load_pem_x509_certificate(base64.b64decode(self.client.get(secret).object["data"]["tls.crt"]))

    def all_serve(self, leaf: x509.Certificate) -> bool:
        """Whether each replica shows this certificate."""
        return all(served(each) == leaf for each in self.running)


def served(process: WebhookProcess) -> x509.Certificate:
    """What a replica shows whoever connects."""
    parts = urlsplit(process.base_url)
    pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 0), timeout=60)
    return x509.load_pem_x509_certificate(pem.encode())


def documented(heading: str) -> list[str]:
    """The indented blocks of certs/README.md between a heading and the next one."""
    lines = iter((CERTS / "README.md").read_text().splitlines())
    section = itertools.takewhile(
        lambda line: not line.startswith("#"),
        itertools.islice(itertools.dropwhile(lambda line: line != heading, lines), 1, None),
    )
    groups = itertools.groupby(section, lambda line: line.startswith("    "))
    return ["\n".join(line.removeprefix("    ") for line in group) for indented, group in groups if indented]


def run_documented(plane: ControlPlane, block: str) -> str:
    """What a shell prints that runs it with this plane's kubectl."""
    environment = {
        **os.environ,
        "PATH": f"{plane.assets.folder}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.kubeconfig),
        "HOME": str(plane.folder),
    }
    command = ["bash", "-euo", "pipefail", "-c", block]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done
    return done.stdout
