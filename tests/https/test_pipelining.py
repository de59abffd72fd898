"""Requests that are sent before the answers came: each gets its own, in order, although nothing more is sent."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Final

import pytest

from tests.builders import UID, encoded, make_claim, make_review, make_toleration
from tests.https.serving import CLOSE, Client, Server, eventually, post
from webhook.server.settings import ReviewSettings

QUEUED: Final = 32
"""aiohttp's: so many requests of a connection are read ahead."""
SEEDS: Final = range(12)
LIMIT: Final = ReviewSettings().body_limit_bytes
_CHUNKED: Final = post(b"", Content_Length="", Transfer_Encoding="chunked")


def review(uid: str, tolerations: int = 1, padding: int = 0) -> bytes:
    entries = [make_toleration(key=f"k{number}.example.com/a") for number in range(tolerations)]
    body = make_review(make_claim(entries))
    body["request"]["uid"] = uid
    return encoded(body) + b" " * padding


def uids(count: int) -> list[str]:
    return [f"{number:04d}-{UID}" for number in range(count)]


def answered(client: Client, count: int) -> list[str]:
    """What the next answers are about: the uid of a review, or the code of an answer that is none."""
    found = []
    for _ in range(count):
        head, _, body = client.answer().partition(b"\r\n\r\n")
        found.append(json.loads(body)["response"]["uid"] if b" 200 " in head else head.split()[1].decode())
    return found


def send_in_two(server: Server, client: Client, request: bytes, body: bytes) -> None:
    """The body only when its header has been taken up."""
    client.send(request.removesuffix(body))
    eventually(lambda: server.metric("reviews_in_flight") == 1)
    client.send(body)


def send_late_bodies(server: Server, client: Client) -> None:
    """More than are read ahead, each answered before the next one is sent."""
    for uid in uids(QUEUED + 1):
        send_in_two(server, client, post(review(uid)), review(uid))
        assert answered(client, 1) == [uid]


def test_each_request_behind_bodies_that_came_after_their_headers_is_answered(server: Server) -> None:
    wanted = uids(QUEUED * 3)
    with server.connect() as client:
        send_late_bodies(server, client)
        client.send(b"".join(post(review(uid)) for uid in wanted))
        assert answered(client, len(wanted)) == wanted


def test_each_request_that_comes_with_the_end_of_a_late_body_is_answered(server: Server) -> None:
    first, *others = uids(QUEUED * 2)
    body = review(first)
    behind = b"".join(post(review(uid)) for uid in others)
    with server.connect() as client:
        for _ in range(3):
            send_in_two(server, client, post(body) + behind, body + behind)
            assert answered(client, len(others) + 1) == [first, *others]


def asking_for(protocol: str) -> bytes:
    return post(review("first"), Connection="Upgrade", Upgrade=protocol)


def test_requests_behind_one_that_asks_for_a_web_socket_are_answered(server: Server) -> None:
    wanted = uids(QUEUED * 2)
    with server.connect() as client:
        client.send(asking_for("WebSocket") + b"".join(post(review(uid)) for uid in wanted))
        assert answered(client, len(wanted) + 1) == ["first", *wanted]


@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.3", ""])
def test_request_behind_one_that_asks_for_another_protocol_is_not_left_waiting(server: Server, protocol: str) -> None:
    with server.connect() as client:
        answer = client.ask(asking_for(protocol) + post(review("second")))
        assert answer.startswith(b"HTTP/1.1 200 ")
        if protocol:
            assert CLOSE.encode() in answer
            assert client.closed()
        else:
            assert answered(client, 1) == ["second"]


def test_what_is_no_review_is_answered_in_its_turn(server: Server) -> None:
    unfit = {
        "404": b"GET /nothing HTTP/1.1\r\nHost: webhook.test\r\n\r\n",
        "405": b"GET /validate HTTP/1.1\r\nHost: webhook.test\r\n\r\n",
        "415": post(b"", Content_Type="text/plain"),  # a body that is not there yet would end the connection
    }
    wanted = [*unfit, *uids(5)] * QUEUED
    requests = {**unfit, **{uid: post(review(uid)) for uid in uids(5)}}
    with server.connect() as client:
        send_late_bodies(server, client)
        client.send(b"".join(requests[each] for each in wanted))
        assert answered(client, len(wanted)) == wanted


def test_expectation_behind_late_bodies_is_met(server: Server) -> None:
    wanted = uids(QUEUED)
    head = post(review("last"), Expect="100-continue").removesuffix(review("last"))
    with server.connect() as client:
        send_late_bodies(server, client)
        client.send(b"".join(post(review(uid)) for uid in wanted) + head)
        assert answered(client, len(wanted)) == wanted
        assert client.answer() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(review("last"))
        assert answered(client, 1) == ["last"]


def test_connection_ends_behind_a_body_that_was_too_large(server: Server) -> None:
    wanted = uids(3)
    requests = b"".join(post(review(uid)) for uid in wanted)
    with server.connect() as client:
        client.send(requests + _CHUNKED)
        assert answered(client, len(wanted)) == wanted
        for _ in range(LIMIT // 0x10000):
            client.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        answer = client.ask(b"1\r\n \r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert CLOSE.encode() in answer
        assert client.closed()


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_of_all_sizes_in_pieces_of_all_sizes_are_answered(server: Server, seed: int) -> None:
    dice = random.Random(seed)
    wanted = uids(dice.choice([3, 17, 70]))
    data = b"".join(request_of(dice, uid) for uid in wanted)
    pieces: Sequence[int] = dice.choice([[len(data)], [10, 1_000, 20_000], [7_000, 300_000]])
    with server.connect() as client:
        while data:
            size = dice.choice(pieces)
            client.send(data[:size])
            data = data[size:]
        assert answered(client, len(wanted)) == wanted


def request_of(dice: random.Random, uid: str) -> bytes:
    body = review(uid, dice.choice([1, 40, 300]), dice.choice([0, 0, 0, 300_000]))
    if dice.random() < 0.7:
        return post(body)
    size = dice.choice([50, 5_000])
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return _CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"
