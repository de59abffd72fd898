"""Where the certificate comes from: files, or a Secret and two webhook configurations of the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.peer import Answer, Peer, Request, cluster_of, run, status, until
from webhook.certificates.settings import FileSettings, SelfManagedSettings
from webhook.certificates.source import FileSource, SelfManagedSource
from webhook.config.serve import parse_serve
from webhook.daemons.serve import Webhook

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.cluster.client.rest import Cluster

SETTINGS = SelfManagedSettings(
    secret=("ns", "ca"), validating_configuration="ours", mutating_configuration="ours", names=("webhook.ns.svc",)
)


def webhook_of(certificates: FileSettings | SelfManagedSettings, cluster: Cluster | None = None) -> Webhook:
    settings = parse_serve("serve", ["--standalone", "--cert-dir=."], {})
    webhook = Webhook(replace(settings, certificates=certificates))
    webhook._cluster = cluster
    return webhook


def test_files_need_no_cluster(tmp_path: Path) -> None:
    webhook = webhook_of(FileSettings(certificate_file=tmp_path / "tls.crt", key_file=tmp_path / "tls.key"))
    assert isinstance(webhook._certificate_source(), FileSource)
    assert [name for name, _ in webhook._checks.problems()] == ["certificate"]
    assert [name for name, _ in webhook._checks.notes()] == ["certificate renewal"]


class Api:
    """One Secret and two configurations, as far as they are read and written."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] = {"metadata": {"resourceVersion": "1"}}
        self.bundles: dict[str, str] = {}
        self.refused = ""

    def __call__(self, request: Request) -> Answer:
        if self.refused and self.refused in request.path:
            return Answer(status(403, "not yours"), 403)
        if request.path == "/api/v1/namespaces/ns/secrets/ca":
            if request.method == "PUT":
                self.secret = request.json
            return Answer(self.secret)
        assert request.path.endswith("webhookconfigurations/ours")
        if request.method == "PATCH":
            [webhook] = request.json["webhooks"]
            self.bundles[request.path] = webhook["clientConfig"]["caBundle"]
        webhook = {"name": "w", "clientConfig": {"caBundle": self.bundles.get(request.path, "")}}
        return Answer({"metadata": {"resourceVersion": "1"}, "webhooks": [webhook]})


def look(api: Api) -> dict[str, str | None]:
    """What a self-managed source tells after one look at the cluster."""
    told: dict[str, str | None] = {}

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = api
            webhook = webhook_of(SETTINGS, cluster)
            source = webhook._certificate_source()
            assert isinstance(source, SelfManagedSource)
            await source.look()
            told.update({**dict(webhook._checks.problems()), **dict(webhook._checks.notes())})

    run(test())
    return told


def test_self_managed_source_keeps_its_ca_in_the_cluster() -> None:
    api = Api()
    assert look(api) == {"certificate": None, "certificate renewal": None}
    assert set(api.secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert set(api.bundles.values()) == {api.secret["data"]["ca.crt"]}
    assert len(api.bundles) == 2


def test_refusals_of_the_cluster_are_told() -> None:
    api = Api()
    api.refused = "/secrets/ca"
    assert look(api)["certificate"] == "no certificate: GET /api/v1/namespaces/ns/secrets/ca: 403: not yours"
    look(fine := Api())
    fine.refused = "mutatingwebhookconfigurations"
    told = look(fine)
    assert told["certificate"] is None
    assert (told["certificate renewal"] or "").endswith("mutatingwebhookconfigurations/ours: 403: not yours")


ALL = ("rules", "claims", "templates", "slices", "policy", "patches")
SHOWN = "validatingwebhookconfigurations", "mutatingwebhookconfigurations"


@pytest.mark.parametrize(
    ("validating", "mutating", "shown"),
    [
        pytest.param(ALL, ALL[:4], {SHOWN[0]: 1.0, SHOWN[1]: 1.0}, id="as shipped, with a component"),
        pytest.param(ALL[1:], ALL[:4], {SHOWN[0]: 0.0, SHOWN[1]: 1.0}, id="without rules"),
        pytest.param(ALL, (), {SHOWN[0]: 1.0, SHOWN[1]: 0.0}, id="without entries"),
        pytest.param(404, 404, {SHOWN[0]: 0.0, SHOWN[1]: 0.0}, id="deleted"),
        pytest.param(403, ALL, {SHOWN[1]: 1.0}, id="one cannot be read"),
    ],
)
def test_gauge_shows_which_configurations_are_registered(
    tmp_path: Path, validating: int | tuple[str, ...], mutating: int | tuple[str, ...], shown: dict[str, float]
) -> None:
    """H3: nothing else notices that API servers no longer ask."""
    files = FileSettings(certificate_file=tmp_path / "tls.crt", key_file=tmp_path / "tls.key")
    webhook = webhook_of(files)

    def answer(request: Request) -> Answer:
        assert request.path.endswith("/device-taint-webhook")
        names = validating if SHOWN[0] in request.path else mutating
        if isinstance(names, int):
            return Answer(status(names, "no"), names)
        webhooks = [{"name": f"{name}.validate.devicetaint.io", "clientConfig": {}} for name in names]
        return Answer({"metadata": {"resourceVersion": "1"}, "webhooks": webhooks})

    def registered() -> dict[str, float]:
        families = {family.name: family for family in webhook._metrics.registry.collect()}
        return {
            each.labels["configuration"]: each.value for each in families["device_taint_webhook_registered"].samples
        }

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = answer
            work = asyncio.ensure_future(webhook._follow_registration(cluster))
            await until(lambda: registered() == shown, "the gauge")
            work.cancel()

    run(test())
