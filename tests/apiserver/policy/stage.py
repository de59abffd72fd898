"""A control plane with the webhook installed as the manifests do it: namespace, access, policies, registrations."""

from __future__ import annotations

import functools
import http.client
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Final

from tests.apiserver.policy.rows import CLUSTER
from tests.apiserver.registration.samples import MANIFESTS, OWN_NAMESPACE
from tests.builders import make_review
from tests.controlplane.client import Client, Reply, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import FILES, MOST_SECONDS, register, unregister
from tests.controlplane.versions import GROUP
from tests.controlplane.webhook_process import WebhookProcess, _get
from webhook.api.field import Path
from webhook.policy.document import load

Json = dict[str, Any]

ACCOUNT: Final = f"system:serviceaccount:{OWN_NAMESPACE}:device-taint-webhook"
ACCOUNT_GROUPS: Final = ("system:serviceaccounts", f"system:serviceaccounts:{OWN_NAMESPACE}", "system:authenticated")
POLICY_MAP: Final = path("v1", "configmaps", namespace=OWN_NAMESPACE, name="device-taint-webhook-policy")
REQUESTED_BY: Final = "devicetaint.io/requested-by"
BUILTIN: Final = "builtin"

_INSTALLED: Final = ("base/namespace.yaml", "base/access.yaml", "base/author-policy.yaml")
_SAMPLE = r"^device_taint_webhook_{}(?:\{{(.*)\}})? (\S+)$"


def make_policy(**fields: Any) -> Json:
    return {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicy", **fields}


def hash_of(document: Json) -> str:
    """By which a policy is known; the document must be one that loads."""
    loaded = load(document, Path.root())
    assert loaded.policy is not None, "\n".join(map(str, loaded.errors))
    return loaded.policy.hash


def make_config_map(text: str) -> Json:
    """The ConfigMap that holds the policy."""
    metadata = {"name": "device-taint-webhook-policy", "namespace": OWN_NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": text}}


class RestartablePlane(ControlPlane):
    """A control plane whose API server can be away for a while, and come back at the same address."""

    def _run(self, name: str, program_arguments: Sequence[str]) -> Any:
        self._commands = {**getattr(self, "_commands", {}), name: program_arguments}
        return super()._run(name, program_arguments)

    def stop_api_server(self) -> None:
        """Ends it; etcd keeps what is stored."""
        self.processes.pop("kube-apiserver").stop()

    def start_api_server(self) -> None:
        """Starts it with the arguments that it had."""
        process = self._run("kube-apiserver", self._commands["kube-apiserver"])
        process.wait_ready(functools.partial(answers, self.client, "/readyz"), seconds=240)

    def serve(self, versions: Mapping[str, bool]) -> None:
        """Starts it anew, with some versions or resources switched on or off."""
        self.stop_api_server()
        self._runtime_config.update(versions)
        self._set("kube-apiserver", "--runtime-config", self._runtime_config)
        self.start_api_server()

    def switch(self, gates: Mapping[str, bool]) -> None:
        """Restarts API server and controller manager with these feature gates."""
        self.processes.pop("kube-controller-manager").stop()
        self.stop_api_server()
        for name in ("kube-apiserver", "kube-controller-manager"):
            self._set(name, "--feature-gates", {**self._feature_gates, **gates})
        self.start_api_server()
        manager = self._run("kube-controller-manager", self._commands["kube-controller-manager"])
        client = self._clients["kube-controller-manager"]
        manager.wait_ready(functools.partial(answers, client, "/healthz"), seconds=240)

    def _set(self, name: str, flag: str, values: Mapping[str, bool]) -> None:
        switches = ",".join(f"{each}={str(on).lower()}" for each, on in values.items())
        before = [each for each in self._commands[name] if not each.startswith(f"{flag}=")]
        self._commands[name] = [*before, f"{flag}={switches}"]


def answers(client: Client, url_path: str) -> bool:
    """Whether a GET is granted; no if nobody listens."""
    try:
        return client.get(url_path).ok
    except (OSError, http.client.HTTPException):
        return False


def health(webhook: WebhookProcess, probe: str) -> tuple[int, str]:
    """What our server answers to a probe: 0 if it does not."""
    try:
        return _get(f"{webhook.health_url}/{probe}")
    except OSError:
        return 0, ""


def answered(webhook: WebhookProcess, probe: str) -> tuple[int, str]:
    """The same of one that runs: what it answers as soon as it does."""
    given = 0, ""

    def there() -> bool:
        nonlocal given
        given = health(webhook, probe)
        return given[0] != 0

    wait_until(there, f"an answer to {probe}")
    return given


class Stage:
    """Installs on entry; whoever made the plane ends it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.client = plane.client
        self.webhook: WebhookProcess
        self._registered: list[dict[str, Any]] = []

    def install(self) -> None:
        """Everything of the base but what calls us, and what the tests' users need."""
        for file in _INSTALLED:
            done = self.plane.kubectl("apply", "-f", MANIFESTS / file)
            assert done.code == 0, done
        self._allow_everybody()
        for name, labels in CLUSTER["namespaces"].items():
            self.create("v1", "Namespace", name, labels=labels)
        for name, selectors in CLUSTER["classes"].items():
            spec = {"selectors": [{"cel": {"expression": text}} for text in selectors]}
            self.create(f"{GROUP}/v1", "DeviceClass", name, spec=spec)

    def _allow_everybody(self) -> None:
        """What users may do here is not RBAC's affair but the policy's."""
        rbac = "rbac.authorization.k8s.io/v1"
        rules = [
            {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["*"]},
        ]
        self.create(rbac, "ClusterRole", "test-users", rules=rules)
        group = "rbac.authorization.k8s.io"
        self.create(
            rbac,
            "ClusterRoleBinding",
            "test-users",
            roleRef={"apiGroup": group, "kind": "ClusterRole", "name": "test-users"},
            subjects=[{"apiGroup": group, "kind": "Group", "name": "system:authenticated"}],
        )

    def create(self, api_version: str, kind: str, name: str, *, labels: Any = None, **fields: Any) -> Json:
        """Creates something that has no namespace."""
        plural = "deviceclasses" if kind == "DeviceClass" else f"{kind.lower()}s"
        metadata = {"name": name, "labels": labels or {}}
        obj = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
        return self.client.create(path(api_version, plural), obj).object

    # --- our server ------------------------------------------------------------------------------

    def new_webhook(self, *arguments: str) -> WebhookProcess:
        """Our server as its ServiceAccount, not started yet."""
        kubeconfig = self.plane.kubeconfig_of(ACCOUNT, ACCOUNT_GROUPS)
        return WebhookProcess(f"--kubeconfig={kubeconfig}", *arguments, standalone=False)

    def launch_webhook(self) -> WebhookProcess:
        """Another one, alive but perhaps never ready; whoever asked for it stops it."""
        webhook = self.new_webhook()
        webhook.folder = self.plane.folder / "late-webhook"
        webhook.cert_dir = webhook.folder / "certs"
        webhook.authority.server("127.0.0.1").write(webhook.cert_dir)
        webhook._start()
        webhook.process.wait_ready(lambda: health(webhook, "livez")[0] == 200)
        return webhook

    def start_webhook(self) -> None:
        """Starts our server, and waits until it is ready."""
        self.webhook = self.new_webhook().__enter__()

    def stop_webhook(self) -> None:
        """Ends it; the registrations stay and call nobody."""
        self.webhook.__exit__(None, None, None)

    def restart_webhook(self) -> None:
        """All replicas, which is one; the registrations follow to the new address."""
        files = self._files
        self.stop_webhook()
        self.start_webhook()
        self.register(files)

    def register(
        self,
        files: Iterable[str] = FILES,
        manifests: FilePath = MANIFESTS,
        *,
        timeout_seconds: int | None = MOST_SECONDS,
    ) -> None:
        """Has the API server call it.

        As shipped, which is None for timeout_seconds, most entries let through unseen what takes longer than 3 s.
        """
        self._files = tuple(files)
        webhook = self.webhook
        self._registered = register(
            self.plane,
            manifests,
            webhook.base_url,
            webhook.ca_pem,
            files=self._files,
            timeout_seconds=timeout_seconds,
        )

    def unregister(self) -> None:
        """Has it call nobody."""
        unregister(self.plane, self._registered)
        self._registered = []

    def metric(self, name: str) -> dict[str, float]:
        """The values of a metric of ours by their labels, as Prometheus writes them."""
        found = re.findall(_SAMPLE.format(name), self.webhook.metrics(), re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    @property
    def load_success(self) -> bool:
        """Whether the policy last written is the one in use."""
        return self.metric("policy_load_success") == {"": 1.0}

    @property
    def policy_hash(self) -> str:
        """Which policy is in use."""
        (labels,) = self.metric("policy_info")
        return labels.removeprefix('hash="').removesuffix('"')

    def ask(self, obj: Json, user: str = "dana") -> Json:
        """Our server's response about a new object, asked with the API server's own certificate."""
        client = Client(self.webhook.base_url, self.plane.webhook_client(self.webhook.ca_pem))
        try:
            answer = client.request("POST", "/validate", make_review(obj, user=user))
        finally:
            client.close()
        response: Json = answer.object["response"]
        return response

    def refusal(self, obj: Json) -> str:
        """Why our server refuses a new object now; empty if it does not."""
        return str(self.ask(obj).get("status", {}).get("message", ""))

    # --- what the API server remembers ------------------------------------------------------------

    def audited(self, entry: str, verb: str, url: str) -> dict[str, str]:
        """What an entry annotated when the object at that URL was created or changed, without the entry's name.

        Others see an object before the audit log has the request that made it, so this is waited for.
        """
        found: list[Json] = []

        def there() -> bool:
            found[:] = self._audit_events_of(verb, url)
            return bool(found)

        wait_until(there, f"{verb} {url} in the audit log", every=0.2)
        annotations = found[-1].get("annotations", {}).items()
        return {key.removeprefix(f"{entry}/"): text for key, text in annotations if key.startswith(entry)}

    def _audit_events_of(self, verb: str, url: str) -> Iterator[Json]:
        collection, _, name = url.rpartition("/")
        with (self.plane.folder / "audit.log").open() as log:
            for line in log:
                if f'"{name}"' not in line or f'"verb":"{verb}"' not in line or not line.endswith("\n"):
                    continue
                event = json.loads(line)
                stored = (event.get("responseObject") or {}).get("metadata", {}).get("name")
                path_asked = event["requestURI"].partition("?")[0]
                if path_asked in (url, collection) and name == stored:
                    yield event

    # --- its policy ------------------------------------------------------------------------------

    def use(self, document: Json) -> float:
        """Writes the policy and waits until it is in use; gives the seconds that took."""
        wanted = hash_of(document)
        reply = self.write_policy(json.dumps(document))
        assert reply.ok, reply
        return self.wait_policy(wanted)

    def write_policy(self, text: str) -> Reply:
        """Writes any text as the policy."""
        config_map = make_config_map(text)
        return self.client.apply(POLICY_MAP, config_map, field_manager="test-policy")

    def use_nothing(self) -> None:
        """Takes the ConfigMap away."""
        self.client.delete(POLICY_MAP)

    def policy_events(self) -> list[Json]:
        """The Events about the ConfigMap."""
        events = self.client.get(path("events.k8s.io/v1", "events", namespace=OWN_NAMESPACE)).items
        return [each for each in events if each["regarding"].get("name") == "device-taint-webhook-policy"]

    def wait_policy(self, wanted: str) -> float:
        """Waits until that policy is in use; gives the seconds that took."""
        before = time.monotonic()
        wait_until(lambda: self.policy_hash == wanted, f"policy {wanted} in use")
        return time.monotonic() - before
