"""Requests: what goes over the wire, how each answer ends, and what becomes of credentials that ran out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.peer import Answer, Drop, Lines, Peer, Reply, Silence, cluster_of, status, until
from webhook.cluster.client.credentials import Access
from webhook.cluster.client.errors import (
    ClusterError,
    Conflict,
    Gone,
    NoCredentials,
    NotFound,
    Refused,
    Unavailable,
    error_of,
    is_admission_refusal,
    is_budget_pending,
)
from webhook.cluster.client.rest import Cluster, path_of
from webhook.cluster.settings import RequestSettings

if TYPE_CHECKING:
    from collections.abc import Callable


PROXY = "http://proxy.test:3128"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (path_of("", "v1", "namespaces", name="ml"), "/api/v1/namespaces/ml"),
        (path_of("", "v1", "secrets", namespace="a", name="b"), "/api/v1/namespaces/a/secrets/b"),
        (path_of("resource.k8s.io", "v1", "deviceclasses"), "/apis/resource.k8s.io/v1/deviceclasses"),
        (path_of("", "v1", "namespaces", name="a/../b?c#d%2F"), "/api/v1/namespaces/a%2F..%2Fb%3Fc%23d%252F"),
    ],
)
def test_path(path: str, expected: str) -> None:
    assert path == expected


async def test_path_goes_out_as_it_was_quoted() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.append(Answer({}))
        await cluster.get(path_of("", "v1", "namespaces", name="../ä%2F"), {"fieldSelector": "a=b,c!=d/e f"})
        [request] = peer.requests
        assert request.path == "/api/v1/namespaces/../ä%2F"
        assert request.query == {"fieldSelector": "a=b,c!=d/e f"}


async def test_writes_send_json_and_give_what_the_server_answers() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda request: Answer({"got": request.method})
        assert await cluster.create("/api/v1/x", {"a": "ä"}) == b'{"got": "POST"}'
        assert await cluster.update("/api/v1/x/y", {"a": 2}) == b'{"got": "PUT"}'
        assert await cluster.patch("/api/v1/x/y", {"a": None}) == b'{"got": "PATCH"}'
        assert [request.json for request in peer.requests] == [{"a": "ä"}, {"a": 2}, {"a": None}]
        assert [request.headers["content-type"] for request in peer.requests] == [
            "application/json",
            "application/json",
            "application/merge-patch+json",
        ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (301, Refused),
        (400, Refused),
        (401, Refused),
        (403, Refused),
        (404, NotFound),
        (408, Unavailable),
        (409, Conflict),
        (410, Gone),
        (422, Refused),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
    ],
)
async def test_status_becomes_an_error_of_ours(code: int, kind: type[ClusterError]) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        body = status(code, "because", reason="Word", details={"retryAfterSeconds": 3})
        peer.answers.append(Answer(body, code, {"Location": "http://127.0.0.1:1/elsewhere"}))
        with pytest.raises(kind) as caught:
            await cluster.get("/api/v1/x")
        error = caught.value
        assert type(error) is kind
        assert str(error) == f"GET /api/v1/x: {code}: because"
        assert (error.code, error.reason, error.retry_after_seconds) == (code, "Word", 3.0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no message"),
        (b"<html>\xff</html>", "<html>\ufffd</html>"),
        (b'"text"', '"text"'),
        (b"x" * 5000, "x" * 1024),
        (b'{"message": null}', '{"message": null}'),
    ],
)
def test_body_that_is_no_status_is_shown_in_part(body: bytes, message: str) -> None:
    error = error_of("GET /x", body, code=500, retry_after="Wed, 21 Oct 2015 07:28:00 GMT")
    assert isinstance(error, Unavailable)
    assert str(error) == f"GET /x: 500: {message}"
    assert error.retry_after_seconds == 0


def test_retry_after_header_is_seconds() -> None:
    assert error_of("GET /x", b"", code=429, retry_after="7").retry_after_seconds == 7


@pytest.mark.parametrize("reply", [Drop(), Silence()])
async def test_no_answer_is_unavailable_and_the_cause_is_kept(reply: Reply) -> None:
    async with Peer() as peer, cluster_of(peer, timeout_seconds=0.2) as cluster:
        peer.answers.extend([reply, reply])  # a connection that was alive before is tried twice
        with pytest.raises(Unavailable, match=r"^GET /api/v1/x: ") as caught:
            await cluster.get("/api/v1/x")
        assert caught.value.code == 0
        assert caught.value.__cause__ is not None


async def test_own_timeout_of_a_call_comes_first() -> None:
    async with Peer() as peer, cluster_of(peer, timeout_seconds=60) as cluster:
        peer.answers.append(Silence())
        with pytest.raises(Unavailable, match=r"GET /api/v1/x: no complete answer within 0\.1 s$"):
            await cluster.get("/api/v1/x", timeout_seconds=0.1)


async def test_cancelled_request_is_cancelled_and_not_unavailable() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.append(Silence())
        task = asyncio.create_task(cluster.get("/api/v1/x"))
        await until(lambda: len(peer.requests) == 1, "the request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_watch_begins_with_an_empty_line_and_ends_with_the_answer() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.watches.append(Lines([b"one\ntw", b"o\nthree\n"], "end"))
        lines = [line async for line in cluster.watch("/x", {"a": 1}, watch_seconds=9, silence_seconds=5.0)]
        assert lines == [b"", b"one", b"two", b"three"]
        assert peer.requests[0].query == {"a": "1", "watch": "true", "timeoutSeconds": "9"}


class Rotating:
    """Credentials whose token can be replaced, or made unreadable."""

    def __init__(self, peer: Peer, *, rotates: bool) -> None:
        self.rotates = rotates
        self.token = "first"
        self.readable = True
        self.loads = 0
        self._peer = peer

    async def load(self) -> Access:
        self.loads += 1
        if not self.readable:
            raise NoCredentials("token: gone")
        return Access(self._peer.url, authorization=f"Bearer {self.token}")


def _accepting(token: str) -> Callable[..., Reply]:
    def answer(request: object) -> Reply:
        shown = getattr(request, "headers", {}).get("authorization")
        return Answer({}) if shown == f"Bearer {token}" else Answer(status(401, "Unauthorized"), 401)

    return answer


async def test_rotated_token_is_read_again_after_a_while() -> None:
    now = [100.0]
    async with Peer() as peer:
        peer.otherwise = lambda _: Answer({})
        credentials = Rotating(peer, rotates=True)
        async with Cluster(credentials, RequestSettings(), clock=lambda: now[0]) as cluster:
            credentials.token = "second"
            for seconds in (0, 59.9, 0.2, 50):
                now[0] += seconds
                await cluster.get("/x")
            shown = [request.headers["authorization"] for request in peer.requests]
            assert shown == ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]
            assert credentials.loads == 2


async def test_refused_token_is_loaded_again_and_the_request_repeated_once() -> None:
    now = [100.0]
    async with Peer() as peer:
        credentials = Rotating(peer, rotates=False)
        async with Cluster(credentials, RequestSettings(), clock=lambda: now[0]) as cluster:
            peer.otherwise = _accepting("second")
            credentials.token = "second"
            now[0] += 100
            await asyncio.gather(*(cluster.get(f"/{number}") for number in range(5)))
            assert credentials.loads == 2, "once for all of them"
            now[0] += 1
            peer.otherwise = _accepting("third")
            credentials.token = "third"
            with pytest.raises(Refused) as caught:
                await cluster.get("/x")
            assert caught.value.code == 401
            assert credentials.loads == 2, "not again so soon"
            now[0] += 10
            await cluster.get("/x")
            peer.otherwise = _accepting("fourth")
            credentials.token = "fourth"
            now[0] += 10
            answer = await cluster.send("POST", "/x", {})
            assert answer.granted, "a request goes the same way if its refusal is an answer, too"


async def test_credentials_that_cannot_be_read_again_stay(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    async with Peer() as peer:
        peer.otherwise = _accepting("first")
        credentials = Rotating(peer, rotates=True)
        async with Cluster(credentials, RequestSettings(), clock=lambda: now[0]) as cluster:
            credentials.readable = False
            now[0] += 61
            await cluster.get("/x")
            await cluster.get("/x")
            assert credentials.loads == 2
            assert [record.message for record in caplog.records] == [
                "credentials not reloaded, the old ones stay in use"
            ]


async def test_same_token_is_not_tried_twice() -> None:
    now = [100.0]
    async with Peer() as peer:
        peer.otherwise = _accepting("another")
        async with Cluster(Rotating(peer, rotates=False), clock=lambda: now[0]) as cluster:
            now[0] += 100
            with pytest.raises(Refused):
                await cluster.get("/x")
            assert len(peer.requests) == 1


async def test_token_does_not_follow_a_redirect() -> None:
    async with Peer() as peer, Peer() as other:
        credentials = Rotating(peer, rotates=False)
        peer.answers.append(Answer({}, 307, {"Location": f"{other.url}/x"}))
        async with Cluster(credentials) as cluster:
            with pytest.raises(Refused):
                await cluster.get("/x")
        assert other.requests == []


async def test_close_twice_and_without_open_is_fine() -> None:
    async with Peer() as peer:
        cluster = cluster_of(peer)
        await cluster.close()
        await cluster.open()
        assert cluster.server == peer.url
        await cluster.close()
        await cluster.close()


async def test_open_says_why_there_are_no_credentials() -> None:
    async with Peer() as peer:
        credentials = Rotating(peer, rotates=True)
        credentials.readable = False
        with pytest.raises(NoCredentials, match="token: gone"):
            async with Cluster(credentials):
                pass


async def test_server_with_a_path_keeps_it() -> None:
    async with Peer() as peer:
        credentials = Rotating(peer, rotates=False)
        access = await credentials.load()

        async def behind() -> Access:
            return replace(access, server=f"{peer.url}/k8s/clusters/c-1")

        with contextlib.ExitStack() as stack:
            stack.enter_context(pytest.MonkeyPatch.context()).setattr(credentials, "load", behind)
            peer.answers.append(Answer({}))
            async with Cluster(credentials) as cluster:
                await cluster.get("/api/v1/x")
        assert peer.requests[0].path == "/k8s/clusters/c-1/api/v1/x"


BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
REFUSAL = 'admission webhook "x.example.com" denied the request: '


async def test_busy_server_is_left_alone_by_every_request_and_a_budget_by_none() -> None:
    async with Peer() as peer, acting_cluster(peer, clock=lambda: 50.0) as cluster:
        for text, pause in ((BUDGET, 0.0), (f"{REFUSAL}slowly", 0.0), ("too many requests", 2.0)):
            peer.answers.append(Answer(status(429, text), 429, {"Retry-After": "2"}))
            with pytest.raises(ClusterError):
                await cluster.get("/x")
            assert cluster._throttle.delay_seconds() == pytest.approx(pause)


PENDING = "The disruption budget web is still being processed by the server."


def error(code: int, body: Any) -> ClusterError:
    return error_of("GET /x", json.dumps(body).encode(), code=code)


@pytest.mark.parametrize(
    ("body", "has_status"),
    [
        (json.dumps(status(404, "no")).encode(), True),
        (b'{"kind": "Status"}', True),
        (b'{"kind": "Pod"}', False),
        (b'{"message": "no such page", "code": 404}', False),
        (b"404 page not found", False),
        (b"", False),
    ],
)
def test_page_of_a_proxy_is_told_from_a_status(body: bytes, *, has_status: bool) -> None:
    assert error_of("GET /x", body, code=404).has_status is has_status
    assert not ClusterError("GET /x: no answer").has_status


@pytest.mark.parametrize(
    ("code", "causes", "pending"),
    [
        (429, [{"reason": "DisruptionBudget", "message": PENDING}], True),
        (429, [{"reason": "Other", "message": "x"}, {"reason": "DisruptionBudget", "message": PENDING}], True),
        (429, [{"reason": "DisruptionBudget", "message": "needs 3 healthy pods and has 2 currently"}], False),
        (429, [{"reason": "Other", "message": PENDING}], False),
        (429, [], False),
        (500, [{"reason": "DisruptionBudget", "message": PENDING}], False),
    ],
)
def test_budget_that_is_not_processed_yet(code: int, causes: list[dict[str, str]], *, pending: bool) -> None:
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    assert is_budget_pending(error(code, status(code, text, details={"causes": causes}))) is pending


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('admission webhook "x.example.com" denied the request: no', True),
        ("rules \"x\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no", True),
        ('rules is forbidden: User "x" cannot create resource "devicetaintrules" at the cluster scope', False),
        ("the word ValidatingAdmissionPolicy in another text", False),
    ],
)
def test_admission_is_told_from_permissions(text: str, *, refused: bool) -> None:
    assert is_admission_refusal(error(403, status(403, text))) is refused
