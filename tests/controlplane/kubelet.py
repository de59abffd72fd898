"""Pods of this product, run as processes of this machine with the arguments, environment and files of their containers.

No containers are started here. What ends by itself (Jobs, helm's tests) gets the status that a kubelet would report.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self

from tests.controlplane.client import MERGE_PATCH, path
from tests.controlplane.contents import ImageContents
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import Process, free_port
from tests.controlplane.webhook_process import our_environment

Json = dict[str, Any]
_SECONDS: Final = 0.3


class PodProcess:
    """The only container of a pod as a process from entry to exit, with its account's token and its mounted files."""

    def __init__(
        self, plane: ControlPlane, namespace: str, pod: Json, *arguments: str, contents: ImageContents | None = None
    ) -> None:
        """`pod` is a pod's spec; `arguments` are added to those of the container.

        contents: what the container's image holds; without it, the program of this tree runs.
        """
        self._contents = contents
        self._plane = plane
        self._namespace = namespace
        self._pod = pod
        self._arguments = arguments

    process: Process

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="pod-")
        folder = Path(self._folder.name)
        (container,) = self._pod["containers"]
        account = self._plane.kubeconfig_of_account(self._namespace, self._pod["serviceAccountName"])
        mounts = {each["mountPath"]: self._mounted(each["name"], folder) for each in container.get("volumeMounts", ())}
        environment = {}
        for variable in container.get("env", ()):
            value = variable.get("value", self._namespace)  # the only field that a pod of ours asks for
            for place, files in mounts.items():
                value = value.replace(place, str(files))
            environment[variable["name"]] = value
        command = [*container["args"], f"--kubeconfig={account}", *self._arguments]
        if self._contents is None:
            command = [sys.executable, "-m", "webhook", *command]
            environment = {**our_environment(), **environment}
        else:
            command = self._contents.command(environment, *command)
        self.process = Process(container["name"], command, folder / "log", environment=environment, grace_seconds=180)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.process.stop()
        if kind is not None:
            print(self.process.tail(60), file=sys.stderr)
        self._folder.cleanup()

    def _mounted(self, name: str, folder: Path) -> Path:
        (volume,) = [each for each in self._pod["volumes"] if each["name"] == name]
        files = folder / name
        files.mkdir()
        if "secret" in volume:
            url = path("v1", "secrets", namespace=self._namespace, name=volume["secret"]["secretName"])
            data = self._plane.client.get(url).object["data"]
            contents = {file: base64.b64decode(text) for file, text in data.items()}
        else:
            url = path("v1", "configmaps", namespace=self._namespace, name=volume["configMap"]["name"])
            contents = {file: text.encode() for file, text in self._plane.client.get(url).object["data"].items()}
        for file, content in contents.items():
            (files / file).write_bytes(content)
        return files


class DaemonProcess(PodProcess):
    """One that goes on, on free ports; ready when entry returns."""

    def __init__(
        self, plane: ControlPlane, namespace: str, pod: Json, *, serves: bool, contents: ImageContents | None = None
    ) -> None:
        """`serves`: whether it answers reviews, on `port`. `contents`: as of PodProcess."""
        self.port, self._probes, metrics = free_port(), free_port(), free_port()
        addresses = [
            f"--health-probe-bind-address=127.0.0.1:{self._probes}",
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            *(["--bind-address=127.0.0.1", f"--port={self.port}"] if serves else []),
        ]
        super().__init__(plane, namespace, pod, *addresses, contents=contents)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.process.wait_ready(self._ready, seconds=240)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._probes, timeout=30)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False


class Kubelet:
    """Reports pods of one namespace as ready; those of the given components it runs to their end.

    `output` has what these printed, by component.
    """

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        components: Iterable[str],
        *,
        contents: ImageContents | None = None,
    ) -> None:
        """`contents`: as of PodProcess."""
        self._contents = contents
        self._plane = plane
        self._namespace = namespace
        self._components = frozenset(components)
        self._seen: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.output: dict[str, str] = {}
        self.faults: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        pods = path("v1", "pods", namespace=self._namespace)
        while not self._stopped.wait(_SECONDS):
            for pod in self._plane.client.get(pods).items:
                if pod["metadata"]["uid"] not in self._seen:
                    self._seen.add(pod["metadata"]["uid"])
                    try:
                        self._run(f"{pods}/{pod['metadata']['name']}/status", pod)
                    except BaseException as fault:  # noqa: BLE001 -- shown by the test
                        self.faults.append(fault)

    def _run(self, status: str, pod: Json) -> None:
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        if component not in self._components:
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": pod["metadata"]["creationTimestamp"]}
            self._plane.client.patch(status, {"status": {"phase": "Running", "conditions": [ready]}}, MERGE_PATCH)
            return
        with PodProcess(self._plane, self._namespace, pod["spec"], contents=self._contents) as running:
            code = running.process.wait()
            self.output[component] = running.process.log.read_text()
        phase = "Failed" if code else "Succeeded"
        self._plane.client.patch(status, {"status": {"phase": phase}}, MERGE_PATCH)
