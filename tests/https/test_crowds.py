"""R3: what one client sends does not keep the others waiting; over real TLS, with a server that has one loop."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import UID, encoded, make_claim, make_request, make_review, make_slice, make_toleration
from tests.https.conftest import QUICK_END
from tests.https.serving import SECONDS, Server, post
from tests.unit.policy.documents import judge_of, make_entry
from webhook.policy.ports import KnownNames
from webhook.server.settings import ReviewSettings

if TYPE_CHECKING:
    from tests.https.conftest import StartServer

TIMEOUT_SECONDS: Final = 3
"""As the shipped registration of claims has it."""
TARGET: Final = f"/validate?timeout={TIMEOUT_SECONDS}s"
READS_ON: Final = replace(QUICK_END, lingering_seconds=SECONDS)
"""For clients that still send when they are answered: on a slow machine their time ends in the middle of a body."""
FORBIDDEN: Final = encoded(make_review(make_claim([make_toleration(key="health.example.com/broken")])))
RULES: Final = [
    make_entry(f"team-{number}", "allow", {"tolerations": {"keys": [f"maint{number}.example.com/*"]}})
    for number in range(999)
]
MALLORY_MAY: Final = make_entry("mallory-may", "allow", {"tolerations": {"keys": ["d*.example.com/*"]}})


def _large() -> bytes:
    """A review of 2 MB: 32 requests with 8 alternatives of 110 tolerations each."""
    requests = [
        {
            "name": f"q{at}",
            "firstAvailable": [
                {
                    "name": f"s{index}",
                    "deviceClassName": f"c{at}-{index}",
                    "tolerations": [
                        make_toleration(key=f"d00x{at}x{index}x{number}.example.com/a") for number in range(110)
                    ],
                }
                for index in range(8)
            ],
        }
        for at in range(32)
    ]
    return encoded(make_review(make_claim(requests=requests)))


LARGE: Final = _large()


def large(seed: int) -> bytes:
    """Such a review, with keys of its own."""
    return LARGE.replace(b'"d00x', b'"d%02dx' % seed)


def response_in(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    response: dict[str, Any] = json.loads(body)["response"]
    return response


@pytest.fixture(params=["enforce", "warn", "off"])
def crowded(start_server: StartServer, request: pytest.FixtureRequest) -> Server:
    """A server with a thousand rules, of which the last decides."""
    server = start_server(READS_ON)
    server.state.policies.use(judge_of(*RULES, MALLORY_MAY, default="deny", documentedRules=request.param))
    return server


def test_forbidden_claim_is_refused_in_its_time_beside_sixteen_of_two_megabytes(crowded: Server) -> None:
    bodies = [large(seed) for seed in range(16)]
    with ThreadPoolExecutor(len(bodies)) as clients:
        hostile = [clients.submit(crowded.ask, post(body, TARGET)) for body in bodies]
        with crowded.connect() as client:
            for _ in range(20):
                # The time of this process, which is clients and server: what else a machine does is not counted.
                started = time.process_time()
                client.send(post(FORBIDDEN, TARGET))
                assert response_in(client.answer())["allowed"] is False
                assert time.process_time() - started < TIMEOUT_SECONDS
        answers = [response_in(each.result()) for each in hostile]
    assert [answer["uid"] for answer in answers] == [UID] * len(bodies)
    assert not any(answer["allowed"] for answer in answers), "none is judged whole"


class SlowNames(KnownNames):
    """Names that are not told before their time: who asks for one is held up."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.told = threading.Event(), threading.Event()

    def drivers(self, device_class: str) -> frozenset[str] | None:  # noqa: ARG002 -- the port's
        self.asked.set()
        assert self.told.wait(SECONDS)
        return None


def test_large_review_that_waits_past_its_deadline_is_refused_without_being_judged(start_server: StartServer) -> None:
    server = start_server(READS_ON)
    names = server.state.names = SlowNames()
    server.state.policies.use(judge_of(make_entry("told", "warn"), documentedRules="off"))
    with server.connect() as first, server.connect() as second:
        first.send(post(large(0), "/validate?timeout=30s"))
        assert names.asked.wait(SECONDS)
        second.send(post(large(1), "/validate?timeout=1s"))
        answer = response_in(second.answer())
        assert (answer["uid"], answer["allowed"], answer["status"]["code"]) == (UID, False, 504)
        assert answer["status"]["message"].startswith("time ran out in phase queue")
        assert response_in(server.ask(post(large(2), "/mutate?timeout=1s")))["allowed"] is True, "is left as it is"
        names.told.set()
        assert response_in(first.answer())["allowed"] is True
    assert server.metric("reviews_shed_total", reason="deadline") == 2
    assert (
        server.metric("reviews_total", path="/validate", resource="resourceclaims", operation="other", code="504") == 1
    )


def test_review_whose_end_does_not_come_in_time_is_refused_by_its_uid(start_server: StartServer) -> None:
    """An answer without the uid would be none, and what is not answered may pass."""
    server = start_server(replace(QUICK_END, lingering_seconds=2.0))  # for a client that still sends
    with server.connect() as client:
        client.send(post(large(0), "/validate?timeout=1s")[:-1])
        answer = response_in(client.answer())
        assert (answer["uid"], answer["allowed"], answer["status"]["code"]) == (UID, False, 504)
        assert client.closed()


def test_review_for_which_there_is_no_room_is_refused_by_its_uid(start_server: StartServer) -> None:
    server = start_server(reviews=ReviewSettings(buffered_limit_bytes=1024 * 1024))
    answer = response_in(server.ask(post(large(0))))
    assert (answer["uid"], answer["allowed"], answer["status"]["code"]) == (UID, False, 429)
    assert server.metric("reviews_shed_total", reason="crowded") == 1
    assert response_in(server.ask(post(FORBIDDEN)))["allowed"] is True, "small ones always find room"


def test_slice_passes_when_its_time_is_over_or_there_is_no_room_for_it(start_server: StartServer) -> None:
    """H4: a driver whose slice is refused loses its devices."""
    server = start_server(reviews=ReviewSettings(buffered_limit_bytes=1024 * 1024))
    small, wide = (encoded(make_review(make_slice(annotations={"n": "x" * size}))) for size in (1, 2_000_000))
    for body, target, reason in ((small, "/validate?timeout=1ns", "deadline"), (wide, "/validate", "crowded")):
        answer = response_in(server.ask(post(body, target)))
        assert (answer["uid"], answer["allowed"]) == (UID, True)
        assert answer["warnings"][0].startswith("not judged: ")
        assert server.metric("reviews_passed_unjudged_total", resource="resourceslices", reason=reason) == 1
        assert server.metric("reviews_shed_total", reason=reason) == 1


def test_large_review_is_judged_as_a_small_one_is(start_server: StartServer) -> None:
    """Whatever lane it takes: a forbidden toleration in a body of 40 KB, one of 400 KB, and one padded with blanks."""
    server = start_server()
    server.state.policies.use(judge_of(make_entry("no-k", "deny", {"tolerations": {"keys": ["k"]}})))
    for name_bytes in (10, 40_000, 400_000):
        claim = make_claim(requests=[make_request("r" * name_bytes, [make_toleration(key="k")])])
        body = encoded(make_review(claim))
        for sent in (body, body + b" " * 300_000):
            answer = response_in(server.ask(post(sent)))
            assert answer["status"]["code"] == 403
            assert "no-k" in answer["status"]["message"]
    wide = make_slice(annotations={"note": "x" * 300_000})
    assert response_in(server.ask(post(encoded(make_review(wide)))))["allowed"] is True
    assert server.ask(post(b"[" + b" " * 300_000)).startswith(b"HTTP/1.1 400 ")
