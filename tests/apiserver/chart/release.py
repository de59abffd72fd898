"""A release of the chart in a real cluster: installed and changed by helm, its pods run as processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.apiserver.chart.helming import CHART, Helm
from tests.apiserver.manifests.installing import REGISTRATIONS, url
from tests.apiserver.registration.samples import collection, exactly, make_claim
from tests.controlplane import versions
from tests.controlplane.client import Reply, path
from tests.controlplane.egress import EgressProxy
from tests.controlplane.kubelet import DaemonProcess
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

Json = dict[str, Any]

NAMESPACE: Final = "platform-dra"
NAME: Final = "taints"
LABEL: Final = "app.kubernetes.io/name=device-taint-webhook"
SERVE: Final = "device-taint-webhook"
FORBIDDEN: Final = {"key": "forbidden.example.com/key", "operator": "Exists", "effect": "NoSchedule"}
POLICY: Final = {
    "apiVersion": "policy.devicetaint.io/v1alpha1",
    "kind": "DeviceTaintPolicy",
    "rules": [
        {
            "name": "none-of-these",
            "action": "deny",
            "match": {"tolerations": {"keys": [FORBIDDEN["key"]]}},
        }
    ],
}


class Release:
    """What helm has installed under one name."""

    def __init__(self, helm: Helm, plane: ControlPlane, egress: EgressProxy) -> None:
        self._helm = helm
        self.plane = plane
        self._egress = egress
        self.version = versions.api_versions(plane.server_version)[0]

    def try_helm(self, verb: str, *arguments: str | Path, values: Json | None = None) -> tuple[int, str, str]:
        """Runs helm for this release: (exit code, stdout, stderr)."""
        more = ["--values=-"] if values is not None else []
        return self.run(verb, NAME, *arguments, f"--namespace={NAMESPACE}", *more, stdin=yaml.safe_dump(values))

    def run(self, *arguments: str | Path, stdin: str = "") -> tuple[int, str, str]:
        """Runs helm in this cluster: (exit code, stdout, stderr)."""
        return self._helm.run(*arguments, stdin=stdin, kubeconfig=self.plane.kubeconfig)

    def helm(self, verb: str, *arguments: str | Path, values: Json | None = None) -> str:
        """The same, which must succeed; its standard output."""
        code, out, err = self.try_helm(verb, *arguments, values=values)
        assert code == 0, (out, err)
        return out

    def install(self, values: Json) -> None:
        self.helm("install", CHART, values=values)

    def upgrade(self, values: Json) -> None:
        self.helm("upgrade", CHART, "--reset-values", values=values)

    def documents(self) -> list[Json]:
        code, out, err = self.run("get", "manifest", NAME, f"--namespace={NAMESPACE}")
        assert code == 0, err
        return [each for each in yaml.load_all(out, yaml.CSafeLoader) if each]

    def pod(self, name: str) -> Json:
        """The spec of a Deployment's pods, as the API server has it."""
        deployment = path("apps/v1", "deployments", namespace=NAMESPACE, name=name)
        spec: Json = self.plane.client.get(deployment).object["spec"]["template"]["spec"]
        return spec

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """A replica of `serve` behind the Service; returns once API servers trust it."""
        pod = self.pod(SERVE)
        for volume in pod.get("volumes", ()):
            if "secret" in volume:
                self._wait_issued(volume["secret"]["secretName"])
        with DaemonProcess(self.plane, NAMESPACE, pod, serves=True) as process:
            self._egress.port = process.port
            try:
                wait_until(self.judges, "claims are judged", seconds=240, every=0.5)
                yield
            finally:
                self._egress.port = 0

    def _wait_issued(self, name: str) -> None:
        secret = path("v1", "secrets", namespace=NAMESPACE, name=name)
        wait_until(lambda: "tls.crt" in (self.plane.client.get(secret).body or {}).get("data", {}), name, seconds=240)

    def claim(self) -> Reply:
        """The answer to a claim that the policy forbids, as a dry run."""
        claim = make_claim(self.version, exactly(self.version, [dict(FORBIDDEN)]))
        return self.plane.client.create(collection(claim), claim, dry_run=True)

    def judges(self) -> bool:
        """Whether that claim is refused by the policy's rule."""
        reply = self.claim()
        return not reply.ok and "none-of-these" in reply.message

    def stored(self) -> dict[str, Json]:
        """The release's objects as they are in the cluster, by URL."""
        return {url(each): self.plane.client.get(url(each)).object for each in self.documents()}

    def registrations(self) -> list[Json]:
        """The webhook configurations that are there."""
        urls = [url({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": SERVE}})
                for kind in sorted(REGISTRATIONS)]  # fmt: skip
        return [reply.object for reply in map(self.plane.client.get, urls) if reply.ok]

    def left(self) -> set[str]:
        """Kind/name of all objects with our label, and of what else is in the namespace that not each one has."""
        found = set()
        for scope, options in {"true": ("-n", NAMESPACE), "false": ("-l", LABEL)}.items():
            listed = self.plane.kubectl("api-resources", "--verbs=list", f"--namespaced={scope}", "-o", "name")
            kinds = ",".join(each for each in listed.stdout.split() if not each.startswith(("events", "componentst")))
            done = self.plane.kubectl("get", kinds, *options, "-o", "json")
            assert done.code == 0, done
            found |= {f"{each['kind']}/{each['metadata']['name']}" for each in json.loads(done.stdout)["items"]}
        return found - {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}
