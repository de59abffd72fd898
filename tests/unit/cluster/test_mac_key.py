"""The key: read, written once by one of many, and never over something that another writer put there."""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, Request, cluster_of, run, status, until
from webhook.cluster.mac_key import KEY_BYTES, KeySecret
from webhook.cluster.settings import KeySettings

PATH = "/api/v1/namespaces/ns/secrets/key"
SETTINGS = KeySettings(namespace="ns", name="key", absent_seconds=0.002, present_seconds=0.002)
KEY = bytes(range(32))


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


class Store:
    """A peer's answers: one Secret, with the server's rule for resource versions."""

    def __init__(self, data: dict[str, str] | None = None, *, exists: bool = True) -> None:
        metadata: dict[str, Any] = {"name": "key", "namespace": "ns", "resourceVersion": "1", "labels": {"a": "b"}}
        self.secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        if data is not None:
            self.secret["data"] = data
        self.exists = exists
        self.interfere = 0
        """How often another writer changes it between a read and a write."""

    @property
    def data(self) -> dict[str, str]:
        return dict(self.secret.get("data", {}))

    def put(self, data: dict[str, str]) -> None:
        version = str(int(self.secret["metadata"]["resourceVersion"]) + 1)
        metadata = {**self.secret["metadata"], "resourceVersion": version}
        self.secret = {**self.secret, "metadata": metadata, "data": data}

    def __call__(self, request: Request) -> Reply:
        assert request.path == PATH
        if not self.exists:
            return Answer(status(404, 'secrets "key" not found'), 404)
        if request.method == "GET":
            answer = Answer(self.secret)
            if self.interfere:
                self.interfere -= 1
                self.put(self.data)
            return answer
        assert request.method == "PUT"
        if request.json["metadata"]["resourceVersion"] != self.secret["metadata"]["resourceVersion"]:
            return Answer(status(409, "the object has been modified"), 409)
        self.put(request.json["data"])
        return Answer(self.secret)


def looked(store: Store, times: int = 1) -> tuple[KeySecret, Peer]:
    """A KeySecret after it looked."""
    peer = Peer()
    found: list[KeySecret] = []

    async def test() -> None:
        async with peer, cluster_of(peer) as cluster:
            peer.otherwise = store
            found.append(KeySecret(cluster, SETTINGS, random_bytes=lambda size: b"r" * size))
            for _ in range(times):
                await found[0].look()

    run(test())
    return found[0], peer


@pytest.mark.parametrize("data", [None, {}, {"key": ""}, {"other": "eA=="}])
def test_empty_secret_is_filled_and_keeps_what_it_has(data: dict[str, str] | None) -> None:
    store = Store(data)
    key, peer = looked(store)
    assert key.key == b"r" * KEY_BYTES
    assert key.problem is None
    assert store.data == {**(data or {}), "key": encoded(b"r" * KEY_BYTES)}
    written = peer.requests[-1].json
    assert (written["type"], written["metadata"]["labels"]) == ("Opaque", {"a": "b"})


@pytest.mark.parametrize("data", [None, {}, {"key": ""}])
def test_who_only_reads_leaves_an_empty_secret_to_others(
    data: dict[str, str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    store, seen = Store(data), list[bytes | None]()

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = store
            key = KeySecret(cluster, SETTINGS, fill=False, on_change=lambda: seen.append(key.key))
            await key.look()
            assert (key.key, key.problem) == (None, "data[key] is empty; a replica of serve fills it")
            assert store.data == (data or {})
            for content in (b"a" * 32, b"a" * 32, b"b" * 32):
                store.put({"key": encoded(content)})
                await key.look()

    run(test())
    assert seen == [b"a" * 32, b"b" * 32]
    assert [record.levelname for record in caplog.records if record.message == "no key from the secret"] == ["WARNING"]


@pytest.mark.parametrize("size", [16, 32, 1000])
def test_key_that_is_there_is_read_and_left_alone(size: int) -> None:
    key, peer = looked(Store({"key": encoded(b"k" * size)}))
    assert key.key == b"k" * size
    assert [request.method for request in peer.requests] == ["GET"]


def test_of_two_that_write_the_first_one_wins_and_the_other_reads_it() -> None:
    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = store = Store()
            keys = [
                KeySecret(cluster, SETTINGS, random_bytes=lambda size, n=n: bytes([n]) * size)  # type: ignore[misc]
                for n in range(3)
            ]
            await asyncio.gather(*(key.look() for key in keys))
            assert len({key.key for key in keys}) == 1
            assert store.data["key"] == encoded(keys[0].key or b"")

    run(test())


def test_change_of_something_else_in_between_is_tried_again() -> None:
    store = Store({"other": "eA=="})
    store.interfere = 3
    key, _ = looked(store)
    assert key.key == b"r" * KEY_BYTES
    assert store.data["other"] == "eA=="


def test_change_each_time_is_given_up_for_now() -> None:
    store = Store()
    store.interfere = 1000
    key, _ = looked(store)
    assert key.key is None
    assert key.problem == f"PUT {PATH}: changed each time before it could be written"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (encoded(b"short"), "data[key] has 5 bytes; must be empty or have at least 16"),
        (encoded(b"x" * 15), "data[key] has 15 bytes; must be empty or have at least 16"),
        ("not base64!", "data[key] is not base64"),
        ("ä", "data[key] is not base64"),
        (encoded(KEY) + "!", "data[key] is not base64"),
    ],
)
def test_what_is_no_key_is_refused_and_not_overwritten(
    text: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store({"key": text})
    key, peer = looked(store, times=3)
    assert key.key is None
    assert key.problem == problem
    assert store.data == {"key": text}
    assert {request.method for request in peer.requests} == {"GET"}
    [record] = caplog.records
    assert (record.levelno, record.message) == (logging.ERROR, "no key from the secret")
    assert record.__dict__["error"] == problem


def test_absent_secret_is_told_once_and_found_later(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = store = Store({"key": encoded(KEY)}, exists=False)
            key = KeySecret(cluster, SETTINGS)
            task = asyncio.create_task(key.run())
            await key.tried.wait()
            await until(lambda: len(peer.requests) > 5, "more looks")
            assert key.key is None
            assert key.problem == f'GET {PATH}: 404: secrets "key" not found'
            assert [record.levelno for record in caplog.records] == [logging.WARNING]
            store.exists = True
            await until(lambda: (key.key, key.problem) == (KEY, None), "the key")
            task.cancel()
            await asyncio.wait([task])

    run(test())


def test_secret_that_stays_away_is_told_every_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """M7. A minute passes between two looks here."""

    async def test() -> None:
        minutes = 0
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = Store({"key": encoded(KEY)}, exists=False)
            key = KeySecret(cluster, SETTINGS, clock=lambda: 60.0 * minutes)
            for minutes in range(12):  # noqa: B007 -- the clock reads it
                await key.look()
        told = [(vars(record)["attempt"], vars(record)["sinceSeconds"]) for record in caplog.records]
        assert told == [(1, 0), (6, 300), (11, 600)]

    run(test())


def test_last_good_key_stays_and_a_new_one_is_taken() -> None:
    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            store = Store({"key": encoded(KEY)})
            peer.otherwise = store
            key = KeySecret(cluster, SETTINGS)
            await key.look()
            store.exists = False
            await key.look()
            assert (key.key, key.problem is None) == (KEY, False)
            peer.answers.extend([Drop(), Drop()])
            await key.look()
            assert key.key == KEY
            store.exists = True
            store.put({"key": encoded(b"n" * 32)})
            await key.look()
            assert (key.key, key.problem) == (b"n" * 32, None)

    run(test())


def states(key: KeySecret) -> tuple[bool, str | None]:
    return key.in_place, key.missing


def test_secret_that_is_gone_or_unreadable_is_told_and_an_api_server_that_is_away_is_not() -> None:
    """M1: the key in hand goes on being used, but the next replica would find none."""

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = store = Store({"key": encoded(KEY)})
            key = KeySecret(cluster, SETTINGS)
            assert states(key) == (False, "not read yet")
            await key.look()
            assert states(key) == (True, None)
            peer.answers.append(Drop())
            await key.look()
            assert states(key)[0], "an API server that is away says nothing about the Secret"
            store.exists = False
            await key.look()
            assert (states(key), key.key) == ((False, None), KEY)
            peer.answers.append(Drop())
            await key.look()
            assert not states(key)[0], "nor does it say that the Secret is back"
            store.exists = True
            await key.look()
            assert states(key)[0]

    run(test())


def test_waits_for_an_api_server_grow_and_end_with_the_first_answer() -> None:
    """M1."""
    settings = replace(
        SETTINGS, unavailable_seconds=1.0, unavailable_most_seconds=5.0, absent_seconds=7.0, absent_most_seconds=9.0
    )

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = lambda _: Drop()
            key = KeySecret(cluster, settings)
            waits = []
            for _ in range(5):
                await key.look()
                waits.append(key._wait_seconds())
            assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]
            peer.otherwise = Store(exists=False)
            await key.look()
            assert [key._wait_seconds() for _ in range(3)] == [7.0, 9.0, 9.0]
            peer.otherwise = lambda _: Drop()
            await key.look()
            assert key._wait_seconds() == 1.0

    run(test())


def test_waits_for_a_missing_key_begin_again_once_there_was_one() -> None:
    settings = replace(SETTINGS, absent_seconds=2.0, absent_most_seconds=9.0, present_seconds=300.0)

    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            key = KeySecret(cluster, settings, fill=False)
            waits = []
            for there in (False, False, True, False):
                peer.otherwise = Store({"key": encoded(KEY)}) if there else Store(exists=False)
                await key.look()
                waits.append(key._wait_seconds())
            assert waits == [2.0, 4.0, 300.0, 2.0]

    run(test())


def test_refused_write_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.answers.extend([Answer(Store().secret), Answer(status(403, "cannot update secrets"), 403)])
            key = KeySecret(cluster, SETTINGS)
            await key.look()
            assert key.key is None
            assert [(r.levelno, r.__dict__["error"]) for r in caplog.records] == [
                (logging.ERROR, f"PUT {PATH}: 403: cannot update secrets")
            ]

    run(test())


@pytest.mark.parametrize("body", [b"<html>", []])
def test_answer_that_is_no_secret_brings_no_key(body: object) -> None:
    async def test() -> None:
        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.answers.append(Answer(body))
            key = KeySecret(cluster, SETTINGS)
            await key.look()
            assert key.key is None
            assert (key.problem or "").startswith("the secret cannot be read")
            assert len(peer.requests) == 1

    run(test())


def test_key_is_never_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "webhook")
    looked(Store(), times=2)
    looked(Store({"key": encoded(b"shortsecret")}))
    assert caplog.records
    for secret in ("shortsecret", encoded(b"shortsecret"), "r" * KEY_BYTES, encoded(b"r" * KEY_BYTES)):
        assert not any(secret in str(record.__dict__) for record in caplog.records)
