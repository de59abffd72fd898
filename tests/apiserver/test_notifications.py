"""Notices of a worker on a real API server, sent to a real Alertmanager over TLS and to a receiver of CloudEvents."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import ssl
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from jsonschema import Draft7Validator

from tests.apiserver.evicting import DRIVER, GENTLE, RULES, EvictProcess, Ward
from tests.controlplane import versions
from tests.controlplane.assets import alertmanager
from tests.controlplane.client import path
from tests.controlplane.gobuild import AssetsUnavailableError, built
from tests.controlplane.pki import Authority
from tests.controlplane.processes import Process, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.plane import ControlPlane

pytestmark = pytest.mark.apiserver

SCHEMA: Final = Draft7Validator(
    json.loads((Path(__file__).parents[1] / "unit" / "notifications" / "cloudevents-1.0.2.json").read_text())
)
CONFIGURATION: Final = {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}
ASKED: Final = {"devicetaint.io/evict": "true"}
BLOCKED_SECONDS: Final = 240


class Alertmanager:
    """A running Alertmanager that serves TLS with a certificate of an authority of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        authority = Authority("alertmanager-ca")
        authority.server("127.0.0.1").write(folder)
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(authority.pem)
        (folder / "alertmanager.yml").write_text(json.dumps(CONFIGURATION))
        files = {"cert_file": str(folder / "tls.crt"), "key_file": str(folder / "tls.key")}
        (folder / "web.yml").write_text(json.dumps({"tls_server_config": files}))
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.command = [
            str(program),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--web.config.file={folder / 'web.yml'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            f"--storage.path={folder / 'data'}",
            "--cluster.listen-address=",
        ]

    def get(self, target: str) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=self.ca_file)
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", self._port, context=context)) as connection:
            connection.request("GET", target)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def ready(self) -> bool:
        try:
            return self.get("/-/ready")[0] == 200
        except OSError:
            return False

    def alerts(self) -> dict[tuple[str, str], Any]:
        """The alerts that hold, by name and rule."""
        code, body = self.get("/api/v2/alerts")
        assert code == 200, body
        return {(each["labels"]["alertname"], each["labels"]["rule"]): each for each in json.loads(body)}


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory, plane: ControlPlane) -> Iterator[Alertmanager]:
    assert plane.server
    try:
        program = built(alertmanager(), lambda line: print(line, file=sys.stderr)) / "alertmanager"
    except AssetsUnavailableError as error:
        if os.environ.get("CI", "").lower() not in {"", "0", "false"}:
            pytest.fail(f"in CI there must be an Alertmanager: {error}")
        pytest.skip(f"no Alertmanager: {error}")
    folder = tmp_path_factory.mktemp("alertmanager")
    running = Alertmanager(program, folder)
    with Process("alertmanager", running.command, folder / "log") as process:
        process.wait_ready(running.ready)
        yield running


@pytest.fixture
def received() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The URL of a receiver of CloudEvents, and what it has received; the first request is turned away."""
    events: list[dict[str, Any]] = []
    turned_away = threading.Event()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if turned_away.is_set():
                assert self.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
                events.append(json.loads(body))
            self.send_response(204 if turned_away.is_set() else 503)
            turned_away.set()
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- its name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/events", events
        server.shutdown()
        thread.join()


@pytest.fixture
def ward(plane: ControlPlane) -> Iterator[Ward]:
    if versions.minor(plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    with Ward(plane.client) as ward:
        yield ward


def guarded(plane: ControlPlane, ward: Ward, name: str) -> None:
    """A pod that a budget protects, as the disruption controller would say."""
    ward.admit(name, labels={"guarded": name})
    budgets = path("policy/v1", "poddisruptionbudgets", namespace=ward.name)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"guarded": name}}}
    generation = plane.client.create(budgets, {"metadata": {"name": name}, "spec": spec}).object["metadata"][
        "generation"
    ]
    counts = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status = {"observedGeneration": generation, **counts}
    _ = plane.client.patch(f"{budgets}/{name}/status", {"status": status}).object


@contextlib.contextmanager
def published(plane: ControlPlane, ward: Ward, device: str) -> Iterator[None]:
    """A slice with that device of the ward's pool: what is not published is not released either."""
    slices = path(f"{versions.GROUP}/v1", "resourceslices")
    pool = {"name": ward.name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "allNodes": True, "devices": [{"name": device}]}
    _ = plane.client.create(slices, {"metadata": {"name": ward.name}, "spec": spec}).object
    yield
    plane.client.delete(f"{slices}/{ward.name}")


def kinds(events: list[dict[str, Any]], rule: str) -> list[str]:
    """What was received about a rule, in order."""
    return [
        each["type"].removeprefix("io.devicetaint.rule.") for each in events if each["data"]["rule"]["name"] == rule
    ]


def test_alerts_and_events_say_what_happens_to_rules(
    plane: ControlPlane, ward: Ward, manager: Alertmanager, received: tuple[str, list[dict[str, Any]]]
) -> None:
    url, events = received
    guarded(plane, ward, "guarded")
    ward.admit("one")
    flags = [
        f"--notify-alertmanager={manager.url}/",
        f"--notify-alertmanager-ca-file={manager.ca_file}",
        f"--notify-cloudevents={url}",
        "--notify-cluster=test",
    ]
    worker = EvictProcess(plane, "delegated", *flags, policy=GENTLE)
    with published(plane, ward, "one"), worker as process:
        process.wait_working()
        blocked = ward.taint("NoSchedule", device="guarded", annotations=ASKED)
        stopped = ward.taint("NoSchedule", device="one", annotations={**ASKED, "devicetaint.io/not-before": "soon"})
        # What /mutate stores of a rule that the policy softens.
        soft = {**ASKED, "devicetaint.io/softened-from": "NoExecute"}
        softened = ward.taint("NoSchedule", device="none", annotations=soft)
        names = {("DeviceTaintRuleStopped", stopped), ("DeviceTaintRuleSoftened", softened)}
        wait_until(lambda: names <= manager.alerts().keys(), "two alerts")
        alert = manager.alerts()["DeviceTaintRuleStopped", stopped]
        assert alert["labels"]["cluster"] == "test"
        assert alert["labels"]["severity"] == "warning"
        assert alert["status"]["state"] == "active"
        assert "is no time like" in alert["annotations"]["description"]
        assert ("DeviceTaintRuleBlocked", blocked) not in manager.alerts()
        # Corrected, it is no longer stopped; its pod goes, and so its device is released.
        corrected = {"metadata": {"annotations": {"devicetaint.io/not-before": None}}}
        _ = plane.client.patch(f"{RULES}/{stopped}", corrected).object
        wait_until(lambda: ("DeviceTaintRuleStopped", stopped) not in manager.alerts(), "the alert has resolved")
        wait_until(lambda: ward.present() == {"guarded"}, "its pod is evicted")
        _ = plane.client.delete(f"{ward.claims}/one").object  # no controller here ends the allocation
        released = ("DeviceTaintRuleReleased", stopped)
        wait_until(lambda: released in manager.alerts(), "released")
        wait_until(lambda: ("DeviceTaintRuleBlocked", blocked) in manager.alerts(), "blocked", seconds=BLOCKED_SECONDS)
        wait_until(lambda: kinds(events, blocked) == ["blocked"], "the same as an event")
        dropped = process.metric("device_taint_webhook_notifications_dropped_total")
        assert set(dropped.values()) == {0.0}
    assert kinds(events, stopped) == ["stopped", "stopped.ended", "released"]
    assert kinds(events, softened)[0] == "softened"
    assert [error.message for event in events for error in SCHEMA.iter_errors(event)] == []
    assert {event["source"] for event in events} == {"device-taint-webhook/test"}
