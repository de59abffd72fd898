"""The stage without a control plane: our server alone, asked as an API server would ask it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import yaml

from tests.controlplane.webhook_process import WebhookProcess
from tests.demo.chapters import REVIEW, STANDALONE
from tests.demo.telling import STORY, Outcome, Storyteller, run_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.processes import Process
    from tests.demo.terminal import Terminal

    JSON = dict[str, Any]

_USER = {"username": "demo", "groups": ["system:authenticated"]}


class Standalone:
    """Our server, running, and what a cluster would have stored by now."""

    def __init__(self, webhook: WebhookProcess) -> None:
        self.webhook = webhook
        self._context = ssl.create_default_context(cadata=webhook.ca_pem.decode())
        self.folder = webhook.folder / "reviews"
        self.folder.mkdir()
        self._stored: dict[tuple[str, str], JSON] = {}
        self._reviews = 0

    @property
    def processes(self) -> dict[str, Process]:
        """All that runs, by name."""
        return {"webhook": self.webhook.process}

    def run(self, command: str) -> Outcome:
        """A review as `POST /path OPERATION file`, or our command line."""
        if not command.startswith(REVIEW):
            return run_program(command, STORY, dict(os.environ))
        _, path, operation, file = command.split()
        obj = yaml.safe_load((STORY / file).read_text())
        old = self._stored.get(_identity(obj)) if operation == "UPDATE" else None
        if old is not None:  # what its author leaves out of an update stays as it is
            obj["spec"]["taint"] = old["spec"]["taint"] | obj["spec"]["taint"]
        review = self._review(operation, obj, old)
        (self.folder / file).with_suffix(".json").write_text(json.dumps(review, indent=2))
        http_code, answer = self._post(path, review)
        response = answer["response"]
        if response["allowed"]:
            self._stored[_identity(obj)] = _patched(obj, _patch(response))
        return Outcome(_text(http_code, path, response), response.get("status", {}).get("code", 200))

    def validations(self) -> int:
        """How many reviews of any sort."""
        return self._reviews

    def log(self) -> str:
        """All of it."""
        return self.webhook.process.log.read_text()

    def _review(self, operation: str, obj: JSON, old: JSON | None) -> JSON:
        group, version = obj["apiVersion"].split("/")
        self._reviews += 1
        resource = {"group": group, "version": version, "resource": f"{obj['kind'].lower()}s"}
        kind = {"group": group, "version": version, "kind": obj["kind"]}
        request = {
            "uid": f"demo-{self._reviews}",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": obj["metadata"]["name"],
            "operation": operation,
            "userInfo": _USER,
            "object": obj,
            "oldObject": old,
            "dryRun": False,
        }
        if obj["kind"] == "ResourceClaim":
            obj["metadata"]["namespace"] = request["namespace"] = "default"
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    def _post(self, path: str, review: JSON) -> tuple[int, JSON]:
        host = urlsplit(self.webhook.base_url).netloc
        with contextlib.closing(http.client.HTTPSConnection(host, timeout=10, context=self._context)) as connection:
            connection.request("POST", path, json.dumps(review), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.load(answer)


@contextlib.contextmanager
def started(terminal: Terminal) -> Iterator[Standalone]:
    """Starts our server, told as set-up. An exception keeps its log and names the folder."""
    with contextlib.ExitStack() as stack:
        with terminal.task("starting our webhook, with a certificate of its own"):
            webhook = stack.enter_context(WebhookProcess())
        yield Standalone(webhook)


def tell(stage: Standalone, terminal: Terminal) -> None:
    """The whole story. Raises: StoryError."""
    Storyteller(terminal, stage).tell(STANDALONE)


def _identity(obj: JSON) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


def _patch(response: JSON) -> list[JSON]:
    """The JSON Patch of a response."""
    encoded = response.get("patch")
    return [] if encoded is None else msgspec.json.decode(msgspec.convert(encoded, bytes), type=list[dict[str, Any]])


def _patched(obj: JSON, patch: list[JSON]) -> JSON:
    """The object with its patch, as far as our server patches in this story: fields set in maps."""
    for operation in patch:
        *parents, name = operation["path"].lstrip("/").split("/")
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
