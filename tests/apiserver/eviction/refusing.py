"""Another validating webhook on evictions and deletions of pods, which says no for as long as a test wants it to."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.apiserver.eviction.play import OUR_USER
from tests.controlplane.client import Client, path
from tests.controlplane.pki import Authority

Json = dict[str, Any]

CONFIGURATIONS: Final = path("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")


class Refusal(NamedTuple):
    """What is answered instead of yes. `broken`: as the answer to the call itself, and not to what it is about."""

    code: int
    retry_after_seconds: int = 0
    broken: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: API servers that are killed break off in the middle of things."""


class RefusingWebhook:
    """Listens from entry to exit; asked about what the worker does, in all namespaces."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = Authority("refusing-webhook-ca")
        self._refusals: dict[str, Refusal] = {}

    def __enter__(self) -> Self:
        self._authority.server("127.0.0.1").write(self._folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "tls.crt", self._folder / "tls.key")
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, client: Client) -> None:
        """From now on, or a moment later, it is asked."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced"}
        hook = {
            "name": "refusing.example.com",
            "clientConfig": {
                "url": f"https://127.0.0.1:{self._server.server_address[1]}/",
                "caBundle": base64.b64encode(self._authority.pem).decode(),
            },
            "rules": [
                {**rule, "operations": ["CREATE"], "resources": ["pods/eviction"]},
                {**rule, "operations": ["DELETE"], "resources": ["pods"]},
            ],
            # An eviction is a deletion, too, for whoever asked for it; tests clean up as somebody else.
            "matchConditions": [{"name": "worker", "expression": f"request.userInfo.username == '{OUR_USER}'"}],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        _ = client.create(CONFIGURATIONS, {"metadata": {"name": "refusing"}, "webhooks": [hook]}).object

    def refuse(self, namespace: str, refusal: Refusal) -> None:
        """From now on, there."""
        self._refusals[namespace] = refusal

    def relent(self, namespace: str) -> None:
        del self._refusals[namespace]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        refusals = self._refusals

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(length := int(self.headers["Content-Length"]))
                if len(body) < length:
                    self.close_connection = True  # nobody waits for the answer any more
                    return
                review = json.loads(body)
                refusal = refusals.get(review["request"]["namespace"])
                answer = json.dumps(_answer(review, refusal)).encode()
                self.send_response(refusal.code if refusal is not None and refusal.broken else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name in the base class
                """Nothing: the audit log has it all."""

        return Handler


def _answer(review: Json, refusal: Refusal | None) -> Json:
    response: Json = {"uid": review["request"]["uid"], "allowed": refusal is None}
    if refusal is not None:
        details = {"retryAfterSeconds": refusal.retry_after_seconds} if refusal.retry_after_seconds else {}
        response["status"] = {"code": refusal.code, "message": "not now", "details": details}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
