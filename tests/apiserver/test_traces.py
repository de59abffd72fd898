"""The trace id in our log lines is that of the API server, which traces every request here."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.planes import own_plane
from tests.builders import make_claim, make_meta, make_toleration
from tests.controlplane import versions
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import registered
from tests.controlplane.webhook_process import WebhookProcess

pytestmark = pytest.mark.whole

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
TRACING: Final = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "TracingConfiguration",
    "endpoint": "127.0.0.1:1",
    "samplingRatePerMillion": 1_000_000,
}
"""Spans are sent to a port on which there is no collector; ids are made and passed on all the same."""


@pytest.fixture(scope="module")
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    file = tmp_path_factory.mktemp("tracing") / "tracing.json"
    file.write_text(json.dumps(TRACING))
    with own_plane(request, since=34, api_server_arguments=[f"--tracing-config-file={file}"]) as plane:
        yield plane


@pytest.fixture(scope="module")
def webhook(traced: ControlPlane) -> Iterator[WebhookProcess]:
    with WebhookProcess("-v") as process, registered(traced, MANIFESTS, process.base_url, process.ca_pem):
        yield process


def traces(webhook: WebhookProcess, claim: str) -> dict[str, dict[str, Any]]:
    """The log line of each review of a claim, by path."""
    return {line["path"]: line for line in webhook.logged() if line.get("object") == f"default/{claim}"}


def create(plane: ControlPlane, name: str, client: Client | None = None) -> None:
    version = versions.api_versions(plane.server_version)[0]
    collection = path(f"{versions.GROUP}/{version}", "resourceclaims", namespace="default")
    claim = make_claim([make_toleration(effect="")], meta=make_meta(name, namespace="default"), version=version)
    reply = (client or plane.client).create(collection, claim, dry_run=True)
    assert reply.ok, reply


def test_the_trace_of_a_request_is_in_the_line_of_its_review(traced: ControlPlane, webhook: WebhookProcess) -> None:
    """A cluster admin's trace is continued by the API server, so its id is known here."""
    trace = secrets.token_hex(16)
    client = Client(
        traced.server, traced.client._connections._context, headers={"traceparent": f"00-{trace}-{'b7' * 8}-01"}
    )
    create(traced, "with-a-trace", client)
    client.close()
    wait_until(lambda: "/validate" in traces(webhook, "with-a-trace"), "the review is logged")
    line = traces(webhook, "with-a-trace")["/validate"]
    assert line["trace_id"] == trace
    assert line["span_id"] != "b7" * 8, "the span of the call to us, and not that of the client"
    assert line["trace_flags"] == "01"


def test_a_request_without_a_trace_gets_one_from_the_api_server(traced: ControlPlane, webhook: WebhookProcess) -> None:
    for name in ("first", "second"):
        create(traced, name)
        wait_until(lambda name=name: "/validate" in traces(webhook, name), "the review is logged")  # type: ignore[misc]
    lines = [traces(webhook, name)["/validate"] for name in ("first", "second")]
    for line in lines:
        assert re.fullmatch("[0-9a-f]{32}", line["trace_id"])
        assert re.fullmatch("[0-9a-f]{16}", line["span_id"])
        assert line["requestUID"]
    assert lines[0]["trace_id"] != lines[1]["trace_id"]
