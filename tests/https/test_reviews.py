"""Reviews over real TLS: what an API server sends and what it gets back, whole answers compared as bytes."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import UID, encoded, make_claim, make_review, make_rule, make_taint, make_toleration
from tests.https.conftest import StartServer
from tests.https.serving import CLOSE, Server, post, reply, status_reply
from webhook.server import http

ALLOWED = reply(
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"'
    + UID.encode()
    + b'","allowed":true}}'
)
REVIEW = encoded(make_review(make_claim([make_toleration()])))


def failed(code: int, reason: str, message: str) -> bytes:
    """The answer to a review that we could not decide."""
    return reply(
        f'{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{UID}","allowed":false,'
        f'"status":{{"status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}}}}}'.encode()
    )


@pytest.mark.parametrize("path", ["/validate", "/mutate", "/validate?timeout=10s", "/mutate?timeout=1m30s"])
def test_review_of_a_sound_object_is_allowed(server: Server, path: str) -> None:
    assert server.ask(post(REVIEW, path)) == ALLOWED


def test_review_of_a_malformed_object_is_refused_with_its_causes(server: Server) -> None:
    review = make_review(make_rule(taint=make_taint(effect="Evict")))
    body = server.ask(post(encoded(review))).partition(b"\r\n\r\n")[2]
    response = json.loads(body)["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == (UID, False, 422)
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == ["spec.taint.effect"]


def test_mutation_answers_with_a_patch(server: Server) -> None:
    review = make_review(make_rule(taint=make_taint(time_added=None)))
    response = json.loads(server.ask(post(encoded(review), "/mutate")).partition(b"\r\n\r\n")[2])["response"]
    patch = json.loads(base64.b64decode(response["patch"]))
    assert (response["patchType"], [(edit["op"], edit["path"]) for edit in patch]) == (
        "JSONPatch",
        [("add", "/spec/taint/timeAdded")],
    )


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(post(REVIEW, Content_Type="application/json; charset=utf-8"), id="with a charset"),
        pytest.param(post(REVIEW, Content_Type="Application/JSON"), id="with another case"),
        pytest.param(
            post(b"", Content_Length="", Transfer_Encoding="chunked")
            + b"%x\r\n%s\r\n0\r\n\r\n" % (len(REVIEW), REVIEW),
            id="in one chunk",
        ),
        pytest.param(
            post(b"", Content_Length="", Transfer_Encoding="chunked")
            + b"".join(b"1\r\n%c\r\n" % byte for byte in REVIEW)
            + b"0\r\n\r\n",
            id="in chunks of a byte",
        ),
    ],
)
def test_body_may_come_in_any_form_that_http_knows(server: Server, request_bytes: bytes) -> None:
    assert server.ask(request_bytes) == ALLOWED


def test_body_may_come_in_pieces(server: Server) -> None:
    whole = post(REVIEW)
    with server.connect() as client:
        for start in range(0, len(whole), 100):
            client.send(whole[start : start + 100])
        assert client.answer() == ALLOWED


def test_connection_is_kept_for_the_next_request(server: Server) -> None:
    with server.connect() as client:
        for _ in range(3):
            assert client.ask(post(REVIEW)) == ALLOWED


def test_expectation_of_100_continue_is_met_before_the_body(server: Server) -> None:
    head = post(REVIEW, Expect="100-continue").removesuffix(REVIEW)
    with server.connect() as client:
        assert client.ask(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert client.ask(REVIEW) == ALLOWED


@pytest.mark.parametrize("extra", ["", "Connection: keep-alive"])
def test_client_of_http_1_0_gets_its_answer_and_the_end(server: Server, extra: str) -> None:
    whole = post(REVIEW).replace(b"HTTP/1.1", b"HTTP/1.0")
    if extra:
        whole = whole.replace(b"Host: ", extra.encode() + b"\r\nHost: ")
    with server.connect() as client:
        assert client.ask(whole) == ALLOWED.replace(b"\r\n\r\n", b"\r\n" + CLOSE.encode() + b"\r\n", 1)
        assert client.closed()


@pytest.mark.parametrize("version", ["0.9", "1.2", "2.0", "3.0"])
def test_request_of_another_version_of_http_is_not_answered_as_a_review(server: Server, version: str) -> None:
    """F12: with a body that could be judged."""
    with server.connect() as client:
        answer = client.ask(post(REVIEW).replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
        assert answer.startswith((b"HTTP/1.1 505 HTTP Version Not Supported", b"HTTP/1.1 400 Bad Request")), answer
        assert client.closed()


def test_client_that_wants_to_close_is_closed(server: Server) -> None:
    with server.connect() as client:
        assert client.ask(post(REVIEW, Connection="close")) == ALLOWED.replace(
            b"\r\n\r\n", b"\r\n" + CLOSE.encode() + b"\r\n", 1
        )
        assert client.closed()


def test_no_time_left_is_an_answer_that_names_the_phase(server: Server) -> None:
    answer = server.ask(post(REVIEW, "/validate?timeout=1ns"))
    assert answer == failed(504, "Timeout", "time ran out in phase queue, before the review was judged: try again")


def test_fault_of_ours_is_counted_logged_once_and_answered_with_the_uid(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("spec")

    decide: Callable[..., Any] = broken
    monkeypatch.setitem(http._PATHS, "/validate", decide)
    server = start_server()
    with caplog.at_level(logging.INFO, logger="webhook"):
        answer = server.ask(post(REVIEW))
    assert answer == failed(500, "InternalError", "internal error: the webhook's log has the traceback")
    assert server.metric("panics_total", resource="resourceclaims") == 1
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None
    assert (record.getMessage(), record.exc_info[0], vars(record)["requestUID"]) == ("review failed", KeyError, UID)


def test_reviews_are_counted_by_what_they_were_about(start_server: StartServer) -> None:
    server = start_server()
    labels = {"path": "/validate", "resource": "resourceclaims", "operation": "CREATE", "code": "200"}
    server.ask(post(REVIEW))
    assert server.metric("reviews_total", **labels) == 1
    assert server.metric("review_duration_seconds_count", path="/validate") == 1
    unknown = make_review(make_claim(), resource={"group": "g", "version": "v1", "resource": "secrets"})
    for operation in ("CREATE", "EXPLODE"):
        unknown["request"]["operation"] = operation
        server.ask(post(encoded(unknown)))
    assert server.metric("reviews_total", **{**labels, "resource": "other"}) == 1
    assert server.metric("reviews_total", **{**labels, "resource": "other", "operation": "other"}) == 1


def test_handler_that_fails_is_answered_all_the_same(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last net: a fault before there is a uid to answer to."""
    monkeypatch.setattr(http, "decode_review", lambda _: 1 / 0)
    server = start_server()
    with server.connect() as client:
        assert client.ask(post(REVIEW)) == status_reply(
            "500 Internal Server Error",
            "InternalError",
            "internal error: the server's log has the traceback",
            extra=CLOSE,
        )
        assert client.closed()
    assert server.metric("bad_requests_total", code="500") == 1
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["request failed"]
