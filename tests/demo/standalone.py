"""The stage without a control plane: our server alone, asked as an API server would ask it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import msgspec
import yaml

from tests.controlplane.pki import Authority
from tests.controlplane.webhook_process import WebhookProcess
from tests.demo.chapters import AS_CONTROLLER, STANDALONE
from tests.demo.scenes import REVIEW
from tests.demo.telling import Outcome, StoryError, Storyteller, copy_story, run_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.controlplane.processes import Process
    from tests.demo.terminal import Terminal

    JSON = dict[str, Any]
    _Identity = tuple[str, str, str]

_USER = {"username": "demo", "groups": ["system:masters", "system:authenticated"]}
_CONTROLLER = {
    "username": f"system:serviceaccount:kube-system:{AS_CONTROLLER}",
    "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
}
_NO_POLICY = "{apiVersion: policy.devicetaint.io/v1alpha1, kind: DeviceTaintPolicy}"


class Standalone:
    """Our server, running, and what a cluster would have stored by now."""

    def __init__(self, webhook: WebhookProcess, policy: Path) -> None:
        """`policy` is the file from which our server reads its policy."""
        self.webhook = webhook
        self._policy = policy
        self._context = ssl.create_default_context(cadata=webhook.ca_pem.decode())
        self.story = copy_story(webhook.folder / "story")
        self.folder = webhook.folder / "reviews"
        self.folder.mkdir()
        self._stored: dict[_Identity, JSON] = {}
        self._reviews = 0

    @property
    def processes(self) -> dict[str, Process]:
        """All that runs, by name."""
        return {"webhook": self.webhook.process}

    def run(self, command: str) -> Outcome:
        """A review as `POST /path OPERATION file [in NAMESPACE] [as CONTROLLER]`, or our command line."""
        if not command.startswith(REVIEW):
            return run_program(command, self.story, dict(os.environ))
        _, path, operation, file, *more = command.split()
        given = dict(zip(more[::2], more[1::2], strict=True))
        obj = next(yaml.safe_load_all((self.story / file).read_text()))
        namespace = given.get("in", "default")
        user = _USER
        if "as" in given:
            obj, user = _made_from(self._stored[_identity(obj, namespace)]), _CONTROLLER
        old = self._stored.get(_identity(obj, namespace)) if operation == "UPDATE" else None
        if old is not None and "spec" in old:  # what its author leaves out of an update stays as it is
            obj["spec"]["taint"] = old["spec"]["taint"] | obj["spec"]["taint"]
        review = self._review(operation, obj, old, namespace, user)
        (self.folder / file).with_suffix(".json").write_text(json.dumps(review, indent=2))
        http_code, answer = self._post(path, review)
        response = answer["response"]
        if response["allowed"]:
            self._store(_patched(obj, _patch(response)), namespace)
        return Outcome(_text(http_code, path, response), response.get("status", {}).get("code", 200))

    def _store(self, obj: JSON, namespace: str) -> None:
        """As a cluster would; a ConfigMap reaches our server as a file."""
        self._stored[_identity(obj, namespace)] = obj
        if obj["kind"] == "ConfigMap":
            self._policy.write_text(obj["data"]["policy.yaml"])

    def validations(self) -> int:
        """How many reviews of any sort."""
        return self._reviews

    def log(self) -> str:
        """All of it."""
        return self.webhook.process.log.read_text()

    def follow(self, command: str) -> NoReturn:
        """Nothing here goes on by itself. Raises: StoryError."""
        raise StoryError(f"nobody to follow: {command}")

    def _review(self, operation: str, obj: JSON, old: JSON | None, namespace: str, user: JSON) -> JSON:
        group, _, version = obj["apiVersion"].rpartition("/")
        self._reviews += 1
        resource = {"group": group, "version": version, "resource": f"{obj['kind'].lower()}s"}
        kind = {"group": group, "version": version, "kind": obj["kind"]}
        request = {
            "uid": f"demo-{self._reviews}",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": obj["metadata"].get("name", ""),
            "operation": operation,
            "userInfo": user,
            "object": obj,
            "oldObject": old,
            "dryRun": False,
        }
        if obj["kind"] != "DeviceTaintRule":
            request["namespace"] = obj["metadata"].setdefault("namespace", namespace)
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    def _post(self, path: str, review: JSON) -> tuple[int, JSON]:
        host = urlsplit(self.webhook.base_url).netloc
        with contextlib.closing(http.client.HTTPSConnection(host, timeout=60, context=self._context)) as connection:
            connection.request("POST", path, json.dumps(review), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.load(answer)


@contextlib.contextmanager
def started(terminal: Terminal) -> Iterator[Standalone]:
    """Starts our server, told as set-up. An exception keeps its log and names the folder."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-")))
        policy = folder / "policy.yaml"
        policy.write_text(_NO_POLICY)
        with terminal.task("starting our webhook, with a certificate of its own"):
            webhook = stack.enter_context(WebhookProcess(f"--policy-file={policy}", authority=Authority("demo-ca")))
        yield Standalone(webhook, policy)


def tell(stage: Standalone, terminal: Terminal, between: Callable[[], None] = lambda: None) -> int:
    """The whole story, with `between` after each chapter. How many chapters it has. Raises: StoryError."""
    Storyteller(terminal, stage).tell(STANDALONE, between=between)
    return len(STANDALONE)


def _identity(obj: JSON, namespace: str) -> _Identity:
    return obj["kind"], namespace, obj["metadata"].get("name", "")


def _made_from(template: JSON) -> JSON:
    """The claim that the controller makes from a template for a pod."""
    prefix = template["metadata"]["name"]
    metadata = {"generateName": f"{prefix}-gpu-", **template["spec"].get("metadata", {})}
    spec = template["spec"]["spec"]
    return {"apiVersion": template["apiVersion"], "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def _patch(response: JSON) -> list[JSON]:
    """The JSON Patch of a response."""
    encoded = response.get("patch")
    return [] if encoded is None else msgspec.json.decode(msgspec.convert(encoded, bytes), type=list[dict[str, Any]])


def _patched(obj: JSON, patch: list[JSON]) -> JSON:
    """The object with its patch, as far as our server patches in this story: fields set in maps."""
    for operation in patch:
        *parents, name = [step.replace("~1", "/") for step in operation["path"].lstrip("/").split("/")]
        target = obj
        for parent in parents:
            target = target[parent]
        target[name] = operation["value"]
    return obj


def _text(http_code: int, path: str, response: JSON) -> str:
    """An answer in words; every text in it is the server's."""
    lines = [f"Warning: {warning}" for warning in response.get("warnings", ())]
    if response["allowed"]:
        lines.append(f"HTTP {http_code}: allowed")
    else:
        status = response["status"]
        lines.append(f"HTTP {http_code}: refused with {status['code']} {status['reason']}")
        lines += [f"* {cause['field']}: {cause['message']}" for cause in status["details"]["causes"]]
    if path == "/mutate":
        lines.append(f"patch: {json.dumps(_patch(response))}")
    return "\n".join(lines)
