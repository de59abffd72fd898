"""What is sent to a receiver, and what comes of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.cluster.peer import Answer, Drop, Peer, Silence, run
from webhook.notifications.poster import NotPosted, Poster
from webhook.notifications.settings import ReceiverSettings

if TYPE_CHECKING:
    from pathlib import Path


def poster(
    peer: Peer, timeout_seconds: float = 5.0, *, token_file: Path | None = None, ca_file: Path | None = None
) -> Poster:
    settings = ReceiverSettings(token_file=token_file, ca_file=ca_file)
    return Poster(f"{peer.url}/hook?key=secret", settings, timeout_seconds)


def test_a_value_is_posted_as_json_with_its_content_type() -> None:
    async def test() -> None:
        async with Peer() as peer:
            peer.answers.append(Answer({}, 202))
            await poster(peer).post({"a": 1}, "application/x+json")
            [request] = peer.requests
            assert (request.method, request.path, request.json) == ("POST", "/hook", {"a": 1})
            assert request.query == {"key": "secret"}
            assert request.headers["content-type"] == "application/x+json"
            assert "authorization" not in request.headers

    run(test())


def test_a_token_is_read_for_each_request(tmp_path: Path) -> None:
    async def test() -> None:
        token = tmp_path / "token"
        async with Peer() as peer:
            peer.answers.extend([Answer({})] * 2)
            sender = poster(peer, token_file=token)
            for text in ("one\n", "two"):
                token.write_text(text)
                await sender.post([], "application/json")
            assert [each.headers["authorization"] for each in peer.requests] == ["Bearer one", "Bearer two"]

    run(test())


@pytest.mark.parametrize("text", [None, "two\nlines", "ä"])
def test_a_token_that_cannot_be_used_is_an_error_and_nothing_is_sent(tmp_path: Path, text: str | None) -> None:
    async def test() -> None:
        token = tmp_path / "token"
        if text is not None:
            token.write_text(text)
        async with Peer() as peer:
            with pytest.raises(NotPosted, match="token"):
                await poster(peer, token_file=token).post([], "application/json")
            assert peer.requests == []

    run(test())


@pytest.mark.parametrize(
    ("code", "final"), [(400, True), (404, True), (301, True), (408, False), (429, False), (500, False), (503, False)]
)
def test_a_refusal_says_whether_it_is_final(code: int, final: bool) -> None:  # noqa: FBT001 -- a table's
    async def test() -> None:
        async with Peer() as peer:
            peer.answers.append(Answer({"why": "no"}, code, {"Retry-After": "7", "Location": "http://127.0.0.1:1/"}))
            with pytest.raises(NotPosted, match=f'/hook: {code}: {{"why": "no"}}') as caught:
                await poster(peer).post([], "application/json")
            assert (caught.value.final, caught.value.retry_after_seconds) == (final, 7.0)
            assert "secret" not in str(caught.value)

    run(test())


def test_no_answer_is_not_final() -> None:
    async def test() -> None:
        async with Peer() as peer:
            peer.answers.extend([Drop(), Silence()])
            with pytest.raises(NotPosted) as dropped:
                await poster(peer).post([], "application/json")
            with pytest.raises(NotPosted, match=r"no answer within 0\.2 s") as silent:
                await poster(peer, 0.2).post([], "application/json")
        with pytest.raises(NotPosted, match="connection refused") as refused:
            await poster(peer).post([], "application/json")
        assert not any(each.value.final for each in (dropped, silent, refused))

    run(test())


def test_a_ca_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "ca").write_text("no PEM")
        for name in ("ca", "missing"):
            async with Peer() as peer:
                with pytest.raises(NotPosted):
                    await poster(peer, ca_file=tmp_path / name).post([], "application/json")
                assert peer.requests == []

    run(test())
