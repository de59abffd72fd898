"""Webhooks are registered as they are shipped, and "registered" means called."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import make_claim, make_meta, make_toleration
from tests.controlplane import registration
from tests.controlplane.client import path
from tests.controlplane.pki import Authority
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError
from tests.controlplane.webhook_process import ROOT, WebhookProcess

pytestmark = pytest.mark.apiserver

CLAIMS = path("resource.k8s.io/v1", "resourceclaims", namespace="default")
CLAIM = make_claim(meta=make_meta("claim"))
ENTRY = {
    "name": "claims.example.com",
    "clientConfig": {"service": {"namespace": "there", "name": "webhook", "path": "/validate"}},
    "rules": [
        {
            "apiGroups": ["resource.k8s.io"],
            "apiVersions": ["*"],
            "operations": ["CREATE"],
            "resources": ["resourceclaims"],
        }
    ],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


@contextmanager
def _stand_in(authority: Authority, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """An admission webhook that allows everything: (base URL, paths it was called on)."""
    called: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            called.append(self.path.partition("?")[0])
            response = {"uid": review["request"]["uid"], "allowed": True}
            body = json.dumps(
                {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Silence."""

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.server("127.0.0.1").write(folder / "stand-in"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}", called
        finally:
            server.shutdown()
            thread.join()


def _manifests(folder: Path, **changes: Any) -> Path:
    (folder / "base").mkdir()
    for kind, file in zip(
        ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"), registration.FILES, strict=True
    ):
        document = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "stand-in"},
            "webhooks": [ENTRY | changes],
        }
        (folder / file).write_text(yaml.safe_dump(document))
    return folder


def test_registered_webhooks_are_called_until_they_are_unregistered(plane: ControlPlane, tmp_path: Path) -> None:
    authority = Authority()
    manifests = _manifests(tmp_path)
    with _stand_in(authority, tmp_path) as (base_url, called):
        with registration.registered(plane, manifests, base_url, authority.pem):
            called.clear()
            assert plane.client.create(CLAIMS, CLAIM, dry_run=True).ok
            assert called == ["/validate", "/validate"]  # mutating and validating, both by this path
        called.clear()
        assert plane.client.create(CLAIMS, CLAIM, dry_run=True).ok
        assert called == []


def test_registration_replaces_nothing_but_where_to_call(plane: ControlPlane, tmp_path: Path) -> None:
    authority = Authority()
    conditions = [{"name": "named", "expression": "has(object.metadata.name)"}]
    manifests = _manifests(tmp_path, matchConditions=conditions, failurePolicy="Ignore", timeoutSeconds=7)
    with _stand_in(authority, tmp_path) as (base_url, _):
        sent = registration.register(plane, manifests, base_url, authority.pem)
        registration.unregister(plane, sent)
    for original, registered in zip(registration.configurations(manifests), sent, strict=True):
        assert registered["webhooks"][0].pop("clientConfig").keys() == {"url", "caBundle"}
        assert original["webhooks"][0].pop("clientConfig") == ENTRY["clientConfig"]
        assert registered == original


def test_registration_gives_every_call_the_time_that_is_asked_for(plane: ControlPlane, tmp_path: Path) -> None:
    authority = Authority()
    manifests = _manifests(tmp_path, timeoutSeconds=7)
    with _stand_in(authority, tmp_path) as (base_url, _):
        sent = registration.register(plane, manifests, base_url, authority.pem, timeout_seconds=30)
        registration.unregister(plane, sent)
    assert [entry["timeoutSeconds"] for configuration in sent for entry in configuration["webhooks"]] == [30, 30]


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_webhook_that_cannot_be_reached_is_not_registered(plane: ControlPlane, tmp_path: Path, policy: str) -> None:
    """Also with Ignore, where every request would be granted as if nothing were wrong."""
    manifests = _manifests(tmp_path, failurePolicy=policy)
    with (
        _stand_in(Authority(), tmp_path) as (base_url, _),
        pytest.raises(NotReadyError, match="unknown authority"),
    ):
        registration.register(plane, manifests, base_url, Authority().pem)
    kinds = path("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")
    assert plane.client.get(f"{kinds}/stand-in").code == 404


def test_our_server_answers_through_the_shipped_configurations(
    plane: ControlPlane, webhook_server: WebhookProcess
) -> None:
    """L-7: the API server accepts a toleration with neither key nor Exists, so who refuses it is us."""
    accepted_upstream = make_claim([make_toleration(key=None, operator="Equal", value="any")], meta=make_meta("claim"))
    assert plane.client.create(CLAIMS, accepted_upstream, dry_run=True).ok
    with registration.registered(plane, ROOT / "manifests", webhook_server.base_url, webhook_server.ca_pem):
        refused = plane.client.create(CLAIMS, accepted_upstream, dry_run=True)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert [cause.field.rpartition(".")[2] for cause in refused.causes] == ["operator"]
    assert plane.client.create(CLAIMS, accepted_upstream, dry_run=True).ok


def test_our_server_stops_with_code_0_on_sigterm() -> None:
    with WebhookProcess("--log-format=text") as server:
        assert server.ready()
        assert "device_taint_webhook_" in server.metrics()
        assert server.stop() == 0
        assert not server.ready()
