"""A real Kubernetes control plane on loopback, for as long as a test run needs it.

Always etcd and kube-apiserver; on request kube-controller-manager, kube-scheduler and kwok, which plays the
kubelets. Flags that differ from what a cluster would have stand in arguments.py, each with its reason.
"""

from __future__ import annotations

import functools
import http.client
import itertools
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.controlplane import arguments, versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import STRATEGIC_MERGE_PATCH, Client, path
from tests.controlplane.pki import Authority, token_keys
from tests.controlplane.processes import NotReadyError, Process, free_port, wait_until

ADMIN = "test-admin"
# A free port may be taken between looking and binding; thrice in a row it is not bad luck.
_ATTEMPTS = 3
_numbers = itertools.count()
_STOP_ORDER = (("kwok", "kube-scheduler", "kube-controller-manager"), ("kube-apiserver",), ("etcd",))
AUDIT_EVENT = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1"'
"""How an event begins: a server that was killed may leave half a line, and its successor goes on right behind it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a command printed, and its exit code."""

    stdout: str
    stderr: str
    code: int


class ControlPlane:
    """Starts on entry, is ready when entry returns, and leaves neither processes nor files behind.

    If the block ends in an exception, or keep_logs was set, the folder stays and is named on stderr.
    """

    def __init__(
        self,
        assets: Assets,
        *,
        controllers: Sequence[str] | None = None,
        scheduler: bool = False,
        kwok: bool = False,
        audit: bool = False,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Mapping[str, bool] | None = None,
        api_server_arguments: Iterable[str] = (),
    ) -> None:
        """Nothing starts here.

        controllers: what to add to the controller-manager's "*" (such as "-device-taint-eviction-controller");
        None for no controller-manager, an empty list for all of it. feature_gates and runtime_config are added
        to those that device taints need; api_server_arguments come last and so win.
        """
        self.assets = assets
        self.server_version = assets.version
        self.keep_logs = False
        self.processes: dict[str, Process] = {}
        self._controllers = controllers
        self._with_scheduler = scheduler
        self._with_kwok = kwok
        self._audit = audit
        self._feature_gates = {**versions.feature_gates(assets.version), **(feature_gates or {})}
        self._runtime_config = {**versions.runtime_config(assets.version), **(runtime_config or {})}
        self._api_server_arguments = tuple(api_server_arguments)
        self._authority = Authority("test-cluster-ca")
        self._clients: dict[str, Client] = {}

    # --- what a test uses ------------------------------------------------------------------------

    folder: Path
    """Everything of this control plane: logs, keys, etcd's data."""
    server: str
    """https://127.0.0.1:<port>"""
    kubeconfig: Path
    """Of a cluster admin (group system:masters)."""
    client: Client
    """As that admin."""

    @property
    def ca_pem(self) -> bytes:
        """Signs the API server's certificate and every client's."""
        return self._authority.pem

    @property
    def proof(self) -> str:
        """The flag by which a webhook hears this API server and no other client."""
        return f"--client-ca-file={self.folder / 'pki/ca.crt'}"

    def webhook_client(self, webhook_ca: bytes, user: str = "") -> ssl.SSLContext:
        """What a client needs that calls a webhook as this API server, or as another user whom its CA knows."""
        context = ssl.create_default_context(cadata=webhook_ca.decode())
        pki, name = self.folder / "pki", arguments.WEBHOOK_CLIENT
        files = pki / f"{name}.crt", pki / f"{name}.key"
        if user:
            files = self._authority.client(user).write(self.folder / "users", f"{next(_numbers)}")
        context.load_cert_chain(*files)
        return context

    def kubectl(
        self,
        *args: str | Path,
        stdin: str | None = None,
        user: str = "",
        groups: Iterable[str] = (),
        timeout_seconds: float = 300.0,
    ) -> Result:
        """kubectl of the server's own release as the admin, or as another user by impersonation."""
        command = [str(self.assets.program("kubectl")), *map(str, args)]
        if user:
            command += [f"--as={user}", *(f"--as-group={group}" for group in groups)]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
            env=self._kubectl_environment(),
        )
        return Result(done.stdout, done.stderr, done.returncode)

    def wait_discovered(self, group: str, plural: str) -> None:
        """Returns once kubectl finds a kind that was just installed: that may come later than its URL."""

        def found() -> bool:
            names = self.kubectl("api-resources", f"--api-group={group}", "-o", "name").stdout
            return f"{plural}.{group}" in names.split()

        wait_until(found, f"{plural}.{group} is discovered")

    def kubectl_lines(self, *args: str) -> Generator[str]:
        """Lines of a kubectl that goes on, such as `get --watch`, as they come; it is ended when they are closed."""
        command = [str(self.assets.program("kubectl")), *args]
        environment = self._kubectl_environment()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            try:
                yield from (line.rstrip("\n") for line in process.stdout)
            finally:
                process.terminate()

    def _kubectl_environment(self) -> dict[str, str]:
        # HOME: kubectl caches discovery there, and another server may have had this port
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}

    def kubeconfig_of(self, user: str, groups: Iterable[str] = ()) -> Path:
        """A kubeconfig with a client certificate, for programs that connect as that user by themselves."""
        name = user.replace(":", "-").replace("/", "-")
        certificate, key = self._authority.client(user, groups).write(self.folder / "users", name)
        return self._kubeconfig(name, {"client-certificate": str(certificate), "client-key": str(key)})

    def kubeconfig_of_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a token of a service account that is there, as its pods get one."""
        url = path("v1", "serviceaccounts", namespace=namespace, name=name, subresource="token")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.client.create(url, request).object["status"]["token"]
        return self._kubeconfig(f"{namespace}-{name}-{next(_numbers)}", {"token": token})

    def _kubeconfig(self, name: str, user: Mapping[str, str]) -> Path:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": self.server,
                        "certificate-authority": str(self.folder / "pki/ca.crt"),
                    },
                }
            ],
            "users": [{"name": "test", "user": dict(user)}],
        }
        return self._write(f"users/{name}.kubeconfig", json.dumps(content).encode())  # JSON is YAML

    def audit_events(self) -> Iterator[dict[str, Any]]:
        """What the API server was asked so far, completed requests only (needs audit=True)."""
        with (self.folder / "audit.log").open("rb") as log:
            for line in log:
                if not line.endswith(b"\n"):
                    return  # the server is writing it, or was killed while it did
                yield json.loads(line[line.rindex(AUDIT_EVENT) :])

    def metrics(self, component: str = "kube-apiserver") -> str:
        """A component's metrics, in Prometheus' text format."""
        reply = self._clients[component].get("/metrics")
        assert reply.ok, reply
        return str(reply.body)

    def add_node(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """A node that does not exist, with room for 110 pods; where kwok runs, its pods come to run."""
        nodes = path("v1", "nodes")
        usual = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        metadata = {"name": name, "labels": {**usual, **(labels or {})}}
        _ = self.client.create(nodes, {"apiVersion": "v1", "kind": "Node", "metadata": metadata}).object
        room = {"cpu": "32", "memory": "256Gi", "pods": "110"}
        status = {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        }
        _ = self.client.patch(f"{nodes}/{name}/status", {"status": status}, STRATEGIC_MERGE_PATCH).object

    # --- start and stop --------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="controlplane-"))
        try:
            self._start()
        except BaseException:
            self.keep_logs = True
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.keep_logs = self.keep_logs or kind is not None
        self.stop()

    def stop(self) -> None:
        """Ends everything: clients of the API server first, then it, and etcd last.

        An API server that has lost its etcd would not answer SIGTERM for minutes.
        """
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        for group in _STOP_ORDER:
            processes = [self.processes.pop(name) for name in group if name in self.processes]
            for process in processes:
                process.terminate()
            for process in processes:
                process.stop()
        if self.keep_logs and self.folder.exists():
            shutil.rmtree(self.folder / "etcd", ignore_errors=True)  # 64 MB of preallocated log, no use to a reader
            print(f"logs of the control plane: {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        self._write_pki()
        etcd = self._run("etcd", arguments.etcd(self.folder))
        etcd.wait_ready(lambda: _etcd_healthy(self.folder / arguments.ETCD_SOCKET))
        self._start_api_server()
        if self._controllers is not None:
            chosen = arguments.controller_manager(self.folder, self._controllers, self._feature_gates)
            self._start_component("kube-controller-manager", chosen)
        if self._with_scheduler:
            self._start_component("kube-scheduler", arguments.scheduler(self._feature_gates))
        if self._with_kwok:
            kubeconfig = self.kubeconfig_of("kwok", ["system:masters"])
            self._serve("kwok", "/healthz", lambda port: arguments.kwok(self.folder, port, kubeconfig))

    def _write_pki(self) -> None:
        self._authority.server("127.0.0.1", "localhost", "kubernetes.default.svc").write(self.folder / "pki")
        private, public = token_keys()
        self._write("pki/service-account.key", private)
        self._write("pki/service-account.pub", public)
        self._write("pki/ca.crt", self.ca_pem)
        self._authority.client(ADMIN, ["system:masters"]).write(self.folder / "pki", "admin")
        self._authority.client("kube-apiserver").write(self.folder / "pki", arguments.WEBHOOK_CLIENT)
        for name, content in (
            (arguments.ADMISSION_CONFIGURATION, arguments.admission_configuration(self.folder)),
            (f"{arguments.WEBHOOK_CLIENT}.kubeconfig", arguments.webhook_client(self.folder)),
        ):
            self._write(name, json.dumps(content).encode())

    def _start_api_server(self) -> None:
        self._write("audit-policy.yaml", json.dumps(arguments.AUDIT_POLICY).encode())

        def flags(port: int) -> list[str]:
            gates, served = self._feature_gates, self._runtime_config
            ours = arguments.api_server(self.folder, port, gates, served, audit=self._audit)
            return [*ours, *self._api_server_arguments]

        self.client = self._serve("kube-apiserver", "/readyz", flags)
        self.server = self.client.server
        self.kubeconfig = self.kubeconfig_of(ADMIN, ["system:masters"])
        default = path("v1", "namespaces", name="default")
        wait_until(lambda: self.client.get(default).ok, "namespace default")

    def _start_component(self, name: str, chosen: Sequence[str]) -> None:
        """Starts a client of the API server as its own user."""
        kubeconfig = self.kubeconfig_of(f"system:{name}")
        self._serve(name, "/healthz", lambda port: [*chosen, *arguments.component(self.folder, port, kubeconfig)])

    def _serve(self, name: str, ready_path: str, arguments_on: Callable[[int], Sequence[str]]) -> Client:
        """Starts a program on a free port, waits until it is ready, and gives an admin's client of it."""
        for attempt in range(1, _ATTEMPTS + 1):
            port = free_port()
            client = self._clients[name] = self._new_client(f"https://127.0.0.1:{port}")
            process = self._run(name, arguments_on(port))
            try:
                process.wait_ready(functools.partial(_answers, client, ready_path), seconds=240)
            except NotReadyError:
                client.close()
                if attempt == _ATTEMPTS or "address already in use" not in process.tail(100):
                    raise
            else:
                return client
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _run(self, name: str, program_arguments: Sequence[str]) -> Process:
        environment = {**os.environ, "HOME": str(self.folder)}
        command: list[str | Path] = [self.assets.program(name), *program_arguments]
        process = self.processes[name] = Process(name, command, self.folder / f"{name}.log", environment=environment)
        return process

    def _new_client(self, server: str) -> Client:
        context = ssl.create_default_context(cadata=self.ca_pem.decode())
        context.load_cert_chain(self.folder / "pki" / "admin.crt", self.folder / "pki" / "admin.key")
        return Client(server, context)

    def _write(self, name: str, content: bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.touch(mode=0o600)
        file.write_bytes(content)
        return file


def _answers(client: Client, url_path: str) -> bool:
    try:
        return client.get(url_path).ok
    except (OSError, http.client.HTTPException):
        return False


def _etcd_healthy(path_of_socket: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        try:
            connection.connect(str(path_of_socket))
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False
    return b'"health":"true"' in answer
