"""R3: what one client sends does not keep the others waiting; over real TLS, with a server that has one loop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.builders import UID, encoded, make_claim, make_request, make_review, make_slice, make_toleration
from tests.https.conftest import QUICK_END, StartServer
from tests.https.serving import SECONDS, Server, post
from tests.unit.policy.documents import judge_of, make_entry
from webhook.api.field import Path
from webhook.policy.document import Loaded
from webhook.policy.match import KnownNames
from webhook.server.settings import ReviewSettings

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


def verdict(answer: bytes) -> tuple[str, bool, int]:
    """The uid, whether it is allowed, and the code of its status; 200 without one."""
    response = response_in(answer)
    return response["uid"], response["allowed"], response.get("status", {}).get("code", 200)


@pytest.fixture(params=["enforce", "warn", "off"])
def crowded(start_server: StartServer, request: pytest.FixtureRequest) -> Server:
    """A server with a thousand rules, of which the last decides."""
    server = start_server(READS_ON)
    server.state.policies.use(judge_of(*RULES, MALLORY_MAY, default="deny", documentedRules=request.param))
    return server


def refusing_beside(server: Server, bodies: list[bytes]) -> list[dict[str, Any]]:
    """The responses to a crowd; meanwhile a forbidden claim is refused in its time, again and again."""
    with ThreadPoolExecutor(len(bodies)) as clients:
        hostile = [clients.submit(server.ask, post(body, TARGET)) for body in bodies]
        with server.connect() as client:
            for _ in range(20):
                # The time of this process, which is clients and server: what else a machine does is not counted.
                started = time.process_time()
                assert response_in(client.ask(post(FORBIDDEN, TARGET)))["allowed"] is False
                assert time.process_time() - started < TIMEOUT_SECONDS
        return [response_in(each.result()) for each in hostile]


def test_forbidden_claim_is_refused_in_its_time_beside_sixteen_of_two_megabytes(crowded: Server) -> None:
    bodies = [large(seed) for seed in range(16)]
    answers = refusing_beside(crowded, bodies)
    assert [answer["uid"] for answer in answers] == [UID] * len(bodies)
    assert not any(answer["allowed"] for answer in answers), "none is judged whole"


def costly(seed: int) -> bytes:
    """A review of less than 16 KiB: 24 requests with 15 tolerations each, of which the last is forbidden."""
    keys = [[f"{seed}x{at}x{number}" for number in range(15)] for at in range(24)]
    keys[-1][-1] = "health.example.com/broken"
    requests = [make_request(f"q{at}", [{"key": key, "operator": "Exists"} for key in keys[at]]) for at in range(24)]
    return encoded(make_review(make_claim(requests=requests)))


@pytest.mark.parametrize("crowd", [16, pytest.param(60, marks=pytest.mark.whole)])
def test_forbidden_claim_is_refused_in_its_time_beside_small_ones_that_cost_much(
    start_server: StartServer, crowd: int
) -> None:
    """F5: what a claim costs is tolerations times rules, which its size does not say."""
    server = start_server(READS_ON)
    asking = [make_entry(f"asks-{at}", "deny", {"when": f'toleration.key == "x{at}"'}) for at in range(100)]
    broken = make_entry("broken", "deny", {"tolerations": {"keys": ["health.example.com/*"]}})
    server.state.policies.use(judge_of(*asking, broken))
    bodies = [costly(seed) for seed in range(crowd)]
    assert max(map(len, bodies)) < ReviewSettings().large_claim_bytes
    answers = refusing_beside(server, bodies)
    assert [answer["uid"] for answer in answers] == [UID] * crowd
    assert not any(answer["allowed"] for answer in answers), "those that are not judged in time are refused too"


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
        answer = second.ask(post(large(1), "/validate?timeout=1s"))
        assert verdict(answer) == (UID, False, 504)
        assert b"time ran out in phase queue" in answer
        assert response_in(server.ask(post(large(2), "/mutate?timeout=1s")))["allowed"] is True, "is left as it is"
        names.told.set()
        assert response_in(first.answer())["allowed"] is True
    assert server.metric("reviews_shed_total", reason="deadline") == 2
    assert (
        server.metric("reviews_total", path="/validate", resource="resourceclaims", operation="other", code="504") == 1
    )


def document_review(content: str) -> bytes:
    review = make_review(make_claim())
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policy", "namespace": "ns"}}
    review["request"] |= {
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "object": {**manifest, "data": {"policy.yaml": content}},
    }
    return encoded(review)


def test_policy_documents_wait_for_each_other_and_nothing_waits_for_them(start_server: StartServer) -> None:
    """F12: each had a thread of its own, and a claim waited for all of them."""
    started, goes_on = threading.Event(), threading.Event()

    def read(_text: str, _at: Path, _check: Callable[[str], None]) -> Loaded:
        started.set()
        assert goes_on.wait(SECONDS)
        return Loaded(None, ())

    server = start_server(READS_ON, ReviewSettings(documents_limit_bytes=20_000))
    server.state.read_policy = read
    with server.connect() as first, server.connect() as second:
        first.send(post(document_review("x"), "/validate?timeout=30s"))
        assert started.wait(SECONDS)
        late = second.ask(post(document_review("x"), "/validate?timeout=1s"))
        assert verdict(late) == (UID, False, 504)
        assert b"time ran out in phase queue" in late
        assert verdict(server.ask(post(document_review("x" * 20_000)))) == (UID, False, 429)
        for body in (FORBIDDEN, large(0)):  # claims are judged all the while, large ones too
            assert response_in(server.ask(post(body, "/validate?timeout=30s")))["uid"] == UID
        goes_on.set()
        assert response_in(first.answer())["allowed"] is True
    for reason in ("deadline", "crowded"):
        assert server.metric("reviews_shed_total", reason=reason) == 1


def test_review_whose_end_does_not_come_in_time_is_refused_by_its_uid(start_server: StartServer) -> None:
    """An answer without the uid would be none, and what is not answered may pass."""
    server = start_server(READS_ON)
    whole = post(large(0), "/validate?timeout=1s")
    with server.connect() as client:
        assert verdict(client.ask(whole[:-1])) == (UID, False, 504)
        client.send(whole[-1:])
        assert client.closed()


def test_review_for_which_there_is_no_room_is_refused_by_its_uid(start_server: StartServer) -> None:
    server = start_server(reviews=ReviewSettings(buffered_limit_bytes=1024 * 1024))
    assert verdict(server.ask(post(large(0)))) == (UID, False, 429)
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
