"""What no API server sends. Each is answered with a Status that says what to do, and counted."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from tests.builders import UID, encoded, make_claim, make_review
from tests.https.conftest import StartServer
from tests.https.serving import CLOSE, Server, eventually, post, reply, status_reply
from tests.https.test_crowds import verdict
from webhook.server.settings import ReviewSettings

REVIEW = encoded(make_review(make_claim()))
NO_UID = "request.uid: Required value: must be the text that the answer has to repeat"
NO_REQUEST = "request: Required value: the body must be an AdmissionReview of admission.k8s.io/v1"
TOO_LARGE_STATUS = f"413 {HTTPStatus(413).phrase}"
"""Python 3.13 has the phrase of RFC 9110, older ones that of RFC 2616."""
TOO_LARGE = "the body must not be larger than 10 MiB"
WRONG_TYPE = "Content-Type must be application/json"
NOT_HTTP = "not an HTTP/1.1 request; with -v, the webhook logs the reason"
LIMIT = 10 * 1024 * 1024
ONE_RECORD = 16_000
"""Bytes that TLS sends at once, and twice what a line may have: the server closes while a client still sends more."""


def bad(status: str, reason: str, message: str, extra: str = "") -> bytes:
    return status_reply(status, reason, message, extra=extra)


def bad_review(message: str) -> bytes:
    return bad("400 Bad Request", "BadRequest", message, CLOSE)


NOT_JSON = bad("415 Unsupported Media Type", "UnsupportedMediaType", WRONG_TYPE)
NO_POST = bad("405 Method Not Allowed", "MethodNotAllowed", "reviews must be sent with POST", "Allow: POST\r\n")
NO_PATH = bad("404 Not Found", "NotFound", "no such path: send reviews to /validate or /mutate")
NO_HTTP = bad_review(NOT_HTTP)
TRUNCATED = bad_review("body: Invalid value: not JSON: Input data was truncated")


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        pytest.param(post(b""), TRUNCATED, id="empty body"),
        pytest.param(post(REVIEW[: len(REVIEW) // 2]), TRUNCATED, id="truncated JSON"),
        pytest.param(post(b"[" * 100_000 + b"]" * 100_000), bad_review(NO_REQUEST), id="100,000 brackets"),
        pytest.param(post(b'{"request":' * 100_000 + b"1" + b"}" * 100_000), bad_review(NO_UID), id="100,000 braces"),
        pytest.param(post(b"null"), bad_review(NO_REQUEST), id="null"),
        pytest.param(post(b'"x"'), bad_review(NO_REQUEST), id="a string"),
        pytest.param(post(b"[]"), bad_review(NO_REQUEST), id="a list"),
        pytest.param(post(b"{}"), bad_review(NO_REQUEST), id="no request"),
        pytest.param(post(b'{"request":[]}'), bad_review(NO_REQUEST), id="request of a wrong type"),
        pytest.param(post(b'{"request":{"uid":7}}'), bad_review(NO_UID), id="uid of a wrong type"),
        pytest.param(post(b'{"request":{"uid":""}}'), bad_review(NO_UID), id="empty uid"),
        pytest.param(post(REVIEW, Content_Type="text/plain"), NOT_JSON, id="wrong content type"),
        pytest.param(post(REVIEW, Content_Type=""), NOT_JSON, id="no content type"),
        pytest.param(
            post(REVIEW, Content_Type="application/json-patch+json"),
            NOT_JSON,
            id="content type that only begins like it",
        ),
        pytest.param(
            post(REVIEW, Content_Encoding="gzip"),
            bad("415 Unsupported Media Type", "UnsupportedMediaType", "reviews must be sent without Content-Encoding"),
            id="compressed body",
        ),
        pytest.param(post(REVIEW).replace(b"POST", b"PUT"), NO_POST, id="PUT"),
        pytest.param(b"GET /validate HTTP/1.1\r\nHost: x\r\n\r\n", NO_POST, id="GET"),
        pytest.param(post(REVIEW, "/"), NO_PATH, id="unknown path"),
        pytest.param(post(REVIEW, "/validate/"), NO_PATH, id="path with a slash too many"),
        pytest.param(post(REVIEW, "/../validate"), NO_PATH, id="path with dots"),
        pytest.param(
            post(b"", Content_Length=str(LIMIT + 1)),
            bad(TOO_LARGE_STATUS, "RequestEntityTooLarge", TOO_LARGE, CLOSE),
            id="announced body over the limit",
        ),
        pytest.param(
            post(b"", Content_Length="", Transfer_Encoding="chunked") + b"zz\r\n",
            NO_HTTP,
            id="chunk size that is no number",
        ),
        pytest.param(b"\x16\x03\x01\x02\x00" * 20 + b"\r\n\r\n", NO_HTTP, id="another protocol"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", NO_HTTP, id="HTTP/2"),
        pytest.param(b"POST /validate HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", NO_HTTP, id="header without a colon"),
        pytest.param(post(b"", Content_Length="-1"), NO_HTTP, id="negative length"),
        pytest.param(post(b"", Content_Length="9" * 30), NO_HTTP, id="length beyond 64 bits"),
        pytest.param(
            post(b"0\r\n\r\n", Transfer_Encoding="chunked"), NO_HTTP, id="two lengths, as request smugglers send"
        ),
        pytest.param(
            b"POST /validate HTTP/1.1\r\nHost: x\r\nX: " + b"a" * ONE_RECORD + b"\r\n\r\n", NO_HTTP, id="endless header"
        ),
        pytest.param(
            b"POST /validate HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 1000 + b"\r\n", NO_HTTP, id="endless headers"
        ),
        pytest.param(b"POST /validate HTTP/1.1\r\n\r\n", NO_HTTP, id="no host"),
        pytest.param(b"POST /" + b"a" * ONE_RECORD + b" HTTP/1.1\r\nHost: x\r\n\r\n", NO_HTTP, id="endless path"),
    ],
)
def test_request_that_is_no_review_is_told_what_to_do(server: Server, request_bytes: bytes, answer: bytes) -> None:
    code = answer[9:12].decode()
    before = server.metric("bad_requests_total", code=code)
    with server.connect() as client:
        assert client.ask(request_bytes) == answer
        if CLOSE.encode() in answer:
            assert client.closed()
    assert server.metric("bad_requests_total", code=code) == before + 1


def test_head_gets_the_header_of_its_answer_only(server: Server) -> None:
    with server.connect() as client:
        client.send(b"HEAD /validate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b""
        while data := client.socket.recv(4096):
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 405 Method Not Allowed", b"")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(REVIEW[:-1] + b"\xff\xfe", "JSON is malformed: expected", id="invalid UTF-8 outside of a text"),
        pytest.param(REVIEW + b"{}", "JSON is malformed: trailing characters", id="a second document"),
        pytest.param(REVIEW.replace(b"false", b"NaN"), "JSON is malformed: invalid character", id="NaN"),
    ],
)
def test_body_that_is_no_json_says_so(server: Server, body: bytes, message: str) -> None:
    answer = server.ask(post(body))
    status = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert status["message"].startswith(f"body: Invalid value: not JSON: {message}")
    assert (status["kind"], status["reason"], status["code"]) == ("Status", "BadRequest", 400)


@pytest.mark.parametrize(
    "number", ["9" * 30, "-9223372036854775809", "18446744073709551616", "1e400", "1" + "0" * 5000]
)
def test_number_beyond_64_bits_is_an_answer_with_the_uid(server: Server, number: str) -> None:
    review = make_review(make_claim())
    review["request"]["object"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 7_777_777
    answer = server.ask(post(encoded(review).replace(b"7777777", number.encode())))
    assert answer.startswith((b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request")), answer
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert body.get("response", {}).get("uid") == UID or body["message"].startswith("body: Invalid value: ")


def test_last_of_duplicate_keys_counts_as_in_gos_decoder(server: Server) -> None:
    twice = REVIEW.replace(b'"request":{', b'"request":{"uid":"first",', 1)
    answer = server.ask(post(twice))
    expected = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True},
    }
    assert answer == reply(json.dumps(expected, separators=(",", ":")).encode())


@pytest.mark.parametrize("announced", [True, False])
def test_body_of_just_the_limit_is_read(server: Server, announced: bool) -> None:  # noqa: FBT001 -- a table's column
    body = REVIEW + b" " * (LIMIT - len(REVIEW))
    if announced:
        answer = server.ask(post(body))
    else:
        head = post(b"", Content_Length="", Transfer_Encoding="chunked")
        answer = server.ask(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert answer.startswith(b"HTTP/1.1 200 OK")


def test_chunk_that_breaks_off_in_the_middle_of_a_body_is_no_review(server: Server) -> None:
    with server.connect() as client:
        assert (
            client.ask(post(b"", Content_Length="", Transfer_Encoding="chunked", Expect="100-continue"))
            == b"HTTP/1.1 100 Continue\r\n\r\n"
        )
        assert client.ask(b"4\r\nabcd\r\nzz\r\n") == bad_review(
            "the body does not match its header: check Transfer-Encoding"
        )
        assert client.closed()


def test_body_over_the_limit_without_a_length_is_cut_off(server: Server) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with server.connect() as client:
        client.send(post(b"", Content_Length="", Transfer_Encoding="chunked"))
        for _ in range(LIMIT // 0x10000):
            client.send(chunk)
        client.send(b"1\r\n \r\n")  # no more than is read: what a client still sends would be cut off
        assert client.answer() == bad(TOO_LARGE_STATUS, "RequestEntityTooLarge", TOO_LARGE, CLOSE)
        assert client.closed()


def test_bodies_of_many_clients_are_bounded_together(start_server: StartServer) -> None:
    server = start_server(reviews=ReviewSettings(buffered_limit_bytes=3_000_000))
    padded = REVIEW + b" " * (2_000_000 - len(REVIEW))
    with server.connect() as patient, server.connect() as late:
        patient.send(post(padded)[:-1])
        # Else the surplus might be the first one's.
        eventually(lambda: server.handler._bodies.buffered_bytes == len(padded) - 1)
        assert verdict(late.ask(post(padded))) == (UID, False, 429)
        assert server.metric("reviews_shed_total", reason="crowded") == 1
        assert server.ask(post(REVIEW)).startswith(b"HTTP/1.1 200 OK"), "small ones find room"
    eventually(lambda: server.metric("reviews_in_flight") == 0)
    assert server.ask(post(padded)).startswith(b"HTTP/1.1 200 OK"), "room is given back"


def test_client_that_leaves_in_the_middle_of_a_body_is_counted(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    before = server.metric("bad_requests_total", code="499")
    with server.connect() as client:
        client.send(post(REVIEW)[:-10])
    eventually(lambda: server.metric("bad_requests_total", code="499") == before + 1)
    assert not [record for record in caplog.records if record.exc_info]


def test_text_that_is_no_utf_8_does_not_keep_a_review_from_its_verdict(server: Server) -> None:
    answer = server.ask(post(REVIEW.replace(b"jane", b"\xff\xfe")))
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["response"]["uid"] == UID
