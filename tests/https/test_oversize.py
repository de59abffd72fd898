"""Reviews over the body limit are refused by the uid in their first bytes, over real TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.builders import UID
from tests.https.conftest import StartServer
from tests.https.serving import Server, post
from tests.https.test_crowds import FORBIDDEN, READS_ON, response_in, verdict
from webhook.server.settings import ReviewSettings

LIMIT: Final = ReviewSettings().body_limit_bytes
END: Final = b"0\r\n\r\n"
"""Of a body without a length."""


def chunked(body: bytes, size: int = 64 * 1024) -> bytes:
    """The body as a client sends one whose length it does not give."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return post(b"", Content_Length="", Transfer_Encoding="chunked") + framed + END


def without_end(body: bytes, more_bytes: int) -> bytes:
    """A body that goes on with blanks and does not end."""
    head = post(b"", Content_Length="", Transfer_Encoding="chunked")
    return head + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in (body, b" " * more_bytes))


@pytest.mark.parametrize("send", [post, chunked])
def test_review_over_the_body_limit_is_refused_by_its_uid(send: Callable[[bytes], bytes], server: Server) -> None:
    """Answered with 413 alone it would be let in where the registration says `Ignore`."""
    before = server.metric("reviews_shed_total", reason="oversize")
    with server.connect() as client:
        answer = client.ask(send(FORBIDDEN + b" " * LIMIT))
        assert verdict(answer) == (UID, False, 413)
        assert b'"reason":"RequestEntityTooLarge"' in answer
        assert verdict(client.ask(post(FORBIDDEN))) == (UID, True, 200), "the connection may be used again"
    assert server.metric("reviews_shed_total", reason="oversize") == before + 1


def test_oversize_review_is_left_as_it_is_by_mutate(server: Server) -> None:
    answer = response_in(server.ask(post(FORBIDDEN + b" " * LIMIT, "/mutate")))
    assert (answer["uid"], answer["allowed"], "patch" in answer) == (UID, True, False)


def test_limit_holds_for_a_body_that_came_with_its_header(start_server: StartServer) -> None:
    server = start_server(reviews=ReviewSettings(body_limit_bytes=len(FORBIDDEN)))
    assert verdict(server.ask(post(FORBIDDEN))) == (UID, True, 200)
    assert verdict(server.ask(post(FORBIDDEN + b" "))) == (UID, False, 413)
    assert server.ask(post(b" " * len(FORBIDDEN) + b" ")).startswith(b"HTTP/1.1 413 ")


ANNOUNCED: Final = post(FORBIDDEN + b" " * 8192, Content_Length=str(LIMIT + 1))
REST: Final = b" " * (LIMIT + 1 - len(FORBIDDEN) - 8192)
SMALL: Final = ReviewSettings(body_limit_bytes=100_000, body_seconds=0.5)
CROWDED: Final = ReviewSettings(buffered_limit_bytes=100_000, body_seconds=0.5)


@pytest.mark.parametrize(
    ("settings", "sent", "rest", "code"),
    [
        pytest.param(ReviewSettings(body_seconds=0.5), ANNOUNCED, REST, 413, id="announced, and not waited for"),
        pytest.param(SMALL, without_end(FORBIDDEN, 250_000), END, 413, id="waited for"),
        pytest.param(SMALL, without_end(FORBIDDEN, 600_000), END, 413, id="cut off"),
        pytest.param(CROWDED, without_end(FORBIDDEN, 250_000), END, 429, id="without room"),
    ],
)
def test_review_without_end_is_answered_in_its_time(
    start_server: StartServer, settings: ReviewSettings, sent: bytes, rest: bytes, code: int
) -> None:
    """Also when time ran out while its rest was read: a client that tries again, as 504 has it, would not help."""
    with start_server(READS_ON, reviews=settings).connect() as client:
        assert verdict(client.ask(sent)) == (UID, False, code)
        client.send(rest)
        assert client.closed()


def test_oversize_review_whose_uid_comes_late_is_no_review(server: Server) -> None:
    body = b'{"x":1,' + FORBIDDEN.lstrip()[1:]
    assert server.ask(post(body + b" " * LIMIT)).startswith(b"HTTP/1.1 413 ")


def test_review_of_too_many_values_is_refused_by_its_uid_whatever_else_is_odd_in_it(server: Server) -> None:
    """F4: it is not read, so what is odd is not looked for."""
    for odd, code in ((b"", 400), (b'"odd":"\\ud800",', 413)):
        many = b'%b"many":[%b0],"metadata"' % (odd, b"[]," * 500_000)
        assert verdict(server.ask(post(FORBIDDEN.replace(b'"metadata"', many, 1)))) == (UID, False, code)
