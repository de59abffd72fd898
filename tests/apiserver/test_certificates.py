"""Self-managed certificates on a real control plane: rotation under load, a replica killed, a Secret that breaks."""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from tests.apiserver.policy.stage import ACCOUNT
from tests.apiserver.replicas import CERTS, SECRET, SelfManaged, bundles, logged
from tests.apiserver.traffic import FLOOR, PER_SECOND
from tests.conftest import _keeping_logs_of_failures
from tests.controlplane.assets import Assets
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.webhook_process import WebhookProcess

pytestmark = [pytest.mark.slow, pytest.mark.whole]

CA_SECONDS: Final = 120
LEAF_SECONDS: Final = 30
"""Renewed after 20; a caBundle settles in 6, and an old CA is trusted for 37 more: a machine may pause for seconds."""
LIMIT_SECONDS: Final = 3 * CA_SECONDS
DELAY_SECONDS: Final = 8.0
"""How long a replica that is stopping still serves new connections."""
LAG_SECONDS: Final = 1.0
"""The balancer sends it connections for that long; the rest is for a machine that pauses before the balancer hears."""


@pytest.fixture(scope="module")
def replicas(request: pytest.FixtureRequest, assets: Assets) -> Iterator[SelfManaged]:
    """Three, in a control plane of their own, whose audit log is theirs alone."""
    with ControlPlane(assets, audit=True) as plane:
        lives = (f"--ca-lifetime={CA_SECONDS}s", f"--certificate-lifetime={LEAF_SECONDS}s")
        three = SelfManaged(plane, *lives, f"--shutdown-delay={DELAY_SECONDS:g}")
        with three.serving(3):
            for _ in _keeping_logs_of_failures(request, plane):
                yield three
            three.keep_logs = plane.keep_logs


def metric(process: WebhookProcess, name: str, labels: str = "") -> float:
    found = re.search(
        rf"^device_taint_webhook_certificate_{name}{re.escape(labels)} (\S+)$", process.metrics(), re.MULTILINE
    )
    assert found, name
    return float(found[1])


def verbose(process: WebhookProcess) -> str:
    with contextlib.closing(http.client.HTTPConnection(urlsplit(process.health_url).netloc, timeout=30)) as connection:
        connection.request("GET", "/readyz?verbose")
        return connection.getresponse().read().decode()


def test_an_empty_secret_is_all_it_takes(replicas: SelfManaged) -> None:
    """Three replicas came up one after the other; the first made the CA, and the API server calls all of them."""
    wait_until(replicas.called, "the webhook is called")
    # A certificate lasts for so short a time here that a machine that pauses may let it end.
    wait_until(lambda: [each.ready() for each in replicas.running] == [True, True, True], "all are ready")
    made = [line for each in replicas.running for line in logged(each, "certificate authorities changed")]
    assert [line["step"] for line in made[:1]] == ["Make"]


def test_rolling_restart_under_load_fails_no_call(replicas: SelfManaged) -> None:
    """Each of the three is followed by a new one, as a Deployment does it with maxUnavailable 0."""
    wait_until(replicas.called, "the webhook is called")
    before = list(replicas.running)
    with replicas.load(per_second=PER_SECOND) as load:
        codes = [replicas.replace_first(lag_seconds=LAG_SECONDS) for _ in before]
    assert load.lost == (Counter(), Counter())
    assert load.sent > FLOOR
    assert codes == [0, 0, 0]
    assert not set(before) & set(replicas.running)
    assert [each.ready() for each in replicas.running] == [True, True, True]
    print(f"\n{load}")


def test_rotation_of_leaf_and_ca_under_load_fails_no_call(replicas: SelfManaged) -> None:
    wait_until(replicas.called, "the webhook is called")
    first = replicas.authorities.signing
    leaves = [metric(each, "rotations_total", '{certificate="leaf"}') for each in replicas.running]
    with replicas.load(per_second=PER_SECOND) as load:
        second = replicas.wait(
            lambda found: found.signing not in (None, first), "a new CA signs", LIMIT_SECONDS
        ).signing
        wait_until(replicas.issuers_trusted, "the old CA is gone", seconds=LIMIT_SECONDS)
    assert second != first
    assert load.lost == (Counter(), Counter())
    assert load.sent > FLOOR
    renewed = [metric(each, "rotations_total", '{certificate="leaf"}') for each in replicas.running]
    # How often depends on how long a busy machine takes for the rest of it.
    assert all(after > before for before, after in zip(leaves, renewed, strict=True))
    assert min(metric(each, "rotations_total", '{certificate="ca"}') for each in replicas.running) >= 1
    print(f"\n{load}, leaves renewed: {renewed}")


def test_a_replica_killed_in_mid_rotation_is_not_missed(replicas: SelfManaged) -> None:
    before = replicas.wait(lambda found: found.next is not None, "a successor is made", LIMIT_SECONDS)
    replicas.kill(0)
    after = replicas.wait(lambda found: found.signing == before.next, "the successor signs", LIMIT_SECONDS)
    assert before.signing is not None
    assert before.signing.pair.certificate in after.old
    replicas.start()
    wait_until(replicas.issuers_trusted, "the old CA is gone", seconds=LIMIT_SECONDS)
    assert [each.ready() for each in replicas.running] == [True, True, True]
    wait_until(replicas.called, "the webhook is called")


def test_all_replicas_killed_in_mid_rotation_are_followed_by_others(replicas: SelfManaged) -> None:
    before = replicas.wait(lambda found: found.next is not None, "a successor is made", LIMIT_SECONDS)
    for _ in range(3):
        replicas.kill(0)
    for _ in range(3):
        replicas.start()
    replicas.wait(lambda found: found.signing == before.next, "the successor signs", LIMIT_SECONDS)
    wait_until(replicas.called, "the webhook is called")


def test_a_garbled_secret_is_told_and_does_no_harm_until_the_certificate_ends(replicas: SelfManaged) -> None:
    replicas.wait(lambda found: found.next is None, "no rotation under way", LIMIT_SECONDS)
    good = replicas.data
    failures = [metric(each, "reload_failures_total") for each in replicas.running]
    replicas.write({"tls.crt": base64.b64encode(b"garbage").decode()})
    for each, before in zip(replicas.running, failures, strict=True):
        wait_until(lambda each=each, before=before: metric(each, "reload_failures_total") > before, "a failure")  # type: ignore[misc]
    assert replicas.data["tls.crt"] == b"garbage"
    told = verbose(replicas.running[0])
    assert "[!]certificate renewal not ok" in told
    assert "tls.crt and tls.key: the certificate cannot be read" in told
    served = [each.ready() for each in replicas.running]
    assert replicas.called()
    assert served == [True, True, True]
    # Nobody mends it, and certificates near their end: readiness fails, and they still serve.
    wait_until(lambda: not any(each.ready() for each in replicas.running), "no replica is ready", seconds=LIMIT_SECONDS)
    told = verbose(replicas.running[0])
    assert "[-]certificate failed: the certificate expired at " in told
    replicas.write({"tls.crt": base64.b64encode(good["tls.crt"]).decode()})
    wait_until(lambda: all(each.ready() for each in replicas.running), "all are ready again")
    wait_until(replicas.called, "the webhook is called")


def test_an_emptied_secret_gets_a_new_ca_without_a_failed_call(replicas: SelfManaged) -> None:
    wait_until(replicas.called, "the webhook is called")
    before = replicas.authorities.signing
    with replicas.load(per_second=50) as load:
        replicas.write(None)
        replicas.wait(lambda found: found.signing not in (None, before), "a new CA signs", LIMIT_SECONDS)
        leaves = [metric(each, "rotations_total", '{certificate="leaf"}') for each in replicas.running]
        wait_until(
            lambda: all(
                metric(each, "rotations_total", '{certificate="leaf"}') > count
                for each, count in zip(replicas.running, leaves, strict=True)
            ),
            "every leaf is of the new CA",
        )
    assert load.lost == (Counter(), Counter())
    assert load.sent > 50  # as long as it takes to make a CA and a leaf


def test_a_wiped_bundle_is_put_back(replicas: SelfManaged) -> None:
    """Somebody applies the configuration with an empty caBundle, or a tool reverts it."""
    url = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/device-taint-webhook"

    def wiped() -> bool:
        """False where a replica has written in between."""
        configuration = replicas.client.get(url).object
        for webhook in configuration["webhooks"]:
            webhook["clientConfig"].pop("caBundle", None)
        return replicas.client.replace(url, configuration).ok

    wait_until(wiped, "there is no caBundle")
    wait_until(lambda: all(each for webhooks in bundles(replicas.plane) for each in webhooks), "caBundle is back")
    wait_until(replicas.called, "the webhook is called")


def test_what_the_component_grants_is_what_is_asked_for(replicas: SelfManaged) -> None:
    granted = {
        (resource, verb)
        for file in (CERTS / "self-managed/access.yaml", CERTS.parent / "manifests/base/access.yaml")
        for document in yaml.safe_load_all(file.read_text())
        for rule in document.get("rules", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if file.parent.parent == CERTS or resource.endswith("webhookconfigurations")
    }
    events: list[dict[str, Any]] = [
        event
        for event in replicas.plane.audit_events()
        if event["user"]["username"] == ACCOUNT and "objectRef" in event
    ]
    assert [event["requestURI"] for event in events if event.get("responseStatus", {}).get("code") == 403] == []
    asked = {
        (event["objectRef"]["resource"], event["verb"])
        for event in events
        if event["requestURI"].startswith(SECRET) or event["objectRef"]["resource"].endswith("webhookconfigurations")
    }
    assert asked == granted
