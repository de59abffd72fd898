"""What callers are given over a real connection, and which are let in where certificates are asked for (R2)."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import encoded, make_claim, make_review, make_template, make_toleration
from tests.https.conftest import StartServer
from tests.https.serving import DAY, Server, eventually, now, post, status_reply
from tests.https.test_certificates import client_context
from tests.https.test_reviews import ALLOWED
from tests.unit.admission.guarding import fleet, node, tainting
from tests.unit.inventory.values import inventory_of
from tests.unit.server.doubles import Clock
from webhook.admission.claim_view import REQUESTED_BY
from webhook.certificates.authority import Authority
from webhook.certificates.settings import TLSVersion
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge, PolicyStore
from webhook.policy.model import ImpactLimits, ImpactSettings, Policy
from webhook.server.state import AssumedRules, ReviewState

REVIEW = encoded(make_review(make_claim()))
TEXT = re.compile(r'"v1 devices=16 claims=8 pods=8 namespaces=1 of=[a-z2-7]{16}"')


def state(clock: Callable[[], float] = time.monotonic) -> ReviewState:
    """A limit of two pods, and a cluster of eight nodes that shows no rule."""
    sight = Sight(inventory_of(*fleet(8)))
    judge = Judge(Policy(impact=ImpactSettings(limits=(ImpactLimits(pods=2),))))
    return ReviewState(PolicyStore(judge), sight=lambda: sight, assumed_rules=AssumedRules(clock))


@pytest.fixture
def authority() -> Authority:
    return Authority.create("clients", now=now(), lifetime=DAY)


def asked(server: Server, context: ssl.SSLContext, path: str, review: Any) -> Any:
    with server.connect(context) as client:
        client.send(post(encoded(review), path))
        head, _, body = client.answer().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return json.loads(body)["response"]


def rules(server: Server, context: ssl.SSLContext, numbers: range) -> int:
    """How many rules are allowed, each for a node of its own."""
    reviews = [make_review(tainting(node(number), name=f"rule-{number}", added=now())) for number in numbers]
    return sum(asked(server, context, "/validate", review)["allowed"] for review in reviews)


def test_nothing_secret_is_given_out_to_whoever_asks(start_server: StartServer) -> None:
    """Two callers get the same answer, which anybody can compute."""
    server = start_server(state=state())
    first, second = (
        asked(server, server.trusting(), "/validate", make_review(tainting(added=now()), user=user))
        for user in ("alice", "mallory")
    )
    text = TEXT.search(first["status"]["message"])
    assert text is not None
    assert text[0] in second["status"]["message"]


def test_rules_that_are_never_stored_fill_the_window_for_two_seconds_and_then_not_at_all(
    start_server: StartServer,
) -> None:
    """Whoever reaches the port can send reviews in an operator's name."""
    clock = Clock()
    server = start_server(state=state(clock))
    context = server.trusting()
    assert rules(server, context, range(8)) == 2
    clock.seconds += 1.9
    assert len(server.state.assumed_rules.victims(600)) == 2
    clock.seconds += 0.1
    assert server.state.assumed_rules.victims(600) == ()
    assert rules(server, context, range(2, 4)) == 2
    clock.seconds += 2
    assert server.state.assumed_rules.not_counted() == 1
    assert rules(server, context, range(8)) == 8
    assert server.state.assumed_rules.victims(600) == ()


def test_author_of_a_template_is_no_secret(start_server: StartServer) -> None:
    """What an API server does with it is compared there with the user."""
    server = start_server(state=state())
    template = make_template([make_toleration()])
    template["spec"]["metadata"] = {"annotations": {REQUESTED_BY: '{"username":"admin"}'}}
    response = asked(server, server.trusting(), "/mutate", make_review(template, user="alice"))
    (edit, *_) = json.loads(base64.b64decode(response["patch"]))
    assert edit["value"] == '{"username":"alice","groups":["system:authenticated"]}'


def test_certificate_of_the_right_ca_in_another_name_gets_403_and_is_counted(
    start_server: StartServer, tmp_path: Path, authority: Authority
) -> None:
    server = start_server(client_ca=authority, state=state())
    context = client_context(server, tmp_path, authority, "system:node:node-1")
    with server.connect(context) as client:
        assert client.ask(post(REVIEW)) == status_reply(
            "403 Forbidden",
            "Forbidden",
            "the client certificate is for 'system:node:node-1', which is not in --client-names:"
            " only API servers send reviews here",
        )
    assert server.metric("bad_requests_total", code="403") == 1
    assert server.metric("review_duration_seconds_count", path="/validate") == 0


def test_kept_connection_keeps_its_own_certificate(
    start_server: StartServer, tmp_path: Path, authority: Authority
) -> None:
    """Two callers at the same time, and a swap of the server's certificate between their requests."""
    server = start_server(client_ca=authority)
    ours = client_context(server, tmp_path, authority)
    theirs = client_context(server, tmp_path, authority, "system:node:node-1")
    with server.connect(ours) as one, server.connect(theirs) as other:
        before = server.source.context
        (tmp_path / "clients.crt").write_bytes(authority.certificate + authority.certificate)
        eventually(lambda: server.source.context is not before)
        for _ in range(3):
            one.send(post(REVIEW))
            other.send(post(REVIEW))
            assert one.answer() == ALLOWED
            assert other.answer().startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("required", list(TLSVersion))
def test_oldest_version_is_the_one_that_was_asked_for(start_server: StartServer, required: TLSVersion) -> None:
    server = start_server(oldest_version=required)
    context = server.trusting()
    with server.connect(context) as client:
        assert client.socket.version() == "TLSv1.3"
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    if required is TLSVersion.TLS13:
        with pytest.raises((OSError, EOFError)):
            server.connect(context)
    else:
        with server.connect(context) as client:
            assert client.socket.version() == "TLSv1.2"
