"""The gauge of what is registered: where patches are judged, it minds their entries as well."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.tables import table
from tests.unit.cluster.peer import Answer, Peer, Request, cluster_of, run, until
from tests.unit.daemons.test_certificates import ALL, SHOWN
from webhook.certificates.settings import FileSettings
from webhook.config.serve import parse_serve
from webhook.daemons.serve import Webhook

if TYPE_CHECKING:
    from pathlib import Path


@table(
    "words, shown",
    {
        "without patches": ([], {SHOWN[0]: 1.0, SHOWN[1]: 1.0}),
        "with patches": (["--watch-patches"], {SHOWN[0]: 1.0, SHOWN[1]: 0.0}),
        "with the patch controller": (["--patch-account=device-taint-patch"], {SHOWN[0]: 1.0, SHOWN[1]: 0.0}),
    },
)
def test_entry_for_patches_is_missed_only_where_patches_are_followed(
    words: list[str], shown: dict[str, float], tmp_path: Path
) -> None:
    files = FileSettings(certificate_file=tmp_path / "tls.crt", key_file=tmp_path / "tls.key")
    webhook = Webhook(replace(parse_serve("serve", ["--cert-dir=.", *words], {}), certificates=files))

    def answer(request: Request) -> Answer:
        names = ALL if SHOWN[0] in request.path else ALL[:4]
        webhooks = [{"name": f"{name}.validate.devicetaint.io", "clientConfig": {}} for name in names]
        return Answer({"metadata": {"resourceVersion": "1"}, "webhooks": webhooks})

    def registered() -> dict[str, float]:
        families = {family.name: family for family in webhook._metrics.registry.collect()}
        samples = families["device_taint_webhook_registered"].samples
        return {each.labels["configuration"]: each.value for each in samples}

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = answer
            work = asyncio.ensure_future(webhook._follow_registration(cluster))
            await until(lambda: len(registered()) == 2, "the gauge")
            work.cancel()

    run(test())
    assert registered() == shown
