"""Reviews with a very long text in a field: the process neither keeps them nor writes them to its log."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.builders import (
    encoded,
    make_claim,
    make_meta,
    make_patch,
    make_request,
    make_review,
    make_rule,
    make_taint,
    make_toleration,
)
from tests.controlplane.webhook_process import WebhookProcess

LONG: Final = 2 * 1024 * 1024
REVIEWS: Final = 8
"""For each field."""
KEPT_MIB: Final = 80
"""What allocators keep of a few large reviews; all of them together are more than 200 MiB."""
LOGGED_BYTES: Final = 16 * 1024
"""For a review."""


def text(number: int, letter: str = "a") -> str:
    return f"{number:06d}" + letter * LONG


FIELDS: Final[dict[str, Callable[[int], Any]]] = {
    "quantity": lambda n: make_review(make_patch(capacity={"a.example/b": {"value": f"1.{text(n, '0')}"}})),
    "time": lambda n: make_review(make_patch(taints=[make_taint(time_added=text(n))])),
    "key": lambda n: make_review(make_claim([make_toleration(key=text(n))])),
    "class": lambda n: make_review(make_claim(requests=[make_request(deviceClassName=text(n))])),
    "driver": lambda n: make_review(make_rule(selector={"driver": text(n)})),
    "annotation": lambda n: make_review(make_rule(meta=make_meta("x", annotations={"example.com/a": text(n)}))),
    "name": lambda n: make_review(make_rule(meta=make_meta(text(n)))),
    "user": lambda n: make_review(make_rule(taint=make_taint(effect="Evict")), user=text(n)),
    "group": lambda n: make_review(make_rule(taint=make_taint(effect="Evict")), groups=[text(n)] * 2),
    "uid": lambda n: make_review(make_rule(taint=make_taint(effect="Evict")), uid=text(n)),
    "resource": lambda n: make_review(make_rule(), resource={"group": "g", "version": "v1", "resource": text(n)}),
    "namespace": lambda n: make_review(make_claim([make_toleration(operator="x")]), namespace=text(n)),
    "operation": lambda n: make_review(make_rule(taint=make_taint(effect="Evict")), operation=text(n)),
}


@pytest.fixture(scope="module")
def webhook() -> Iterator[WebhookProcess]:
    with WebhookProcess() as process:
        yield process


def resident_mib(process: WebhookProcess) -> int:
    found = re.search(r"VmRSS:\s+([0-9]+)", Path(f"/proc/{process.process.pid}/status").read_text())
    assert found
    return int(found[1]) // 1024


@pytest.mark.slow
def test_long_texts_stay_neither_in_memory_nor_in_the_log(webhook: WebhookProcess) -> None:
    url = urlsplit(webhook.base_url)
    context = ssl.create_default_context(cadata=webhook.authority.pem.decode())
    log = webhook.folder / "webhook.log"
    before, sizes = resident_mib(webhook), {}
    for field, make in FIELDS.items():
        logged = log.stat().st_size
        for number in range(REVIEWS):
            connection = http.client.HTTPSConnection(url.netloc, context=context, timeout=60)
            connection.request("POST", "/validate", encoded(make(number)), {"Content-Type": "application/json"})
            assert connection.getresponse().read()
            connection.close()
        sizes[field] = (log.stat().st_size - logged) // REVIEWS
    assert resident_mib(webhook) - before < KEPT_MIB
    assert {field: size for field, size in sizes.items() if size > LOGGED_BYTES} == {}
