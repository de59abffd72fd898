"""An object with parts that the fast decoder does not take is followed like any other, and harms no collection.

A tenant can store all of them: in a claim's opaque parameters, in managedFields of anything.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Final

import msgspec
import pytest

from tests.builders import make_request
from tests.unit.cluster.cache.following import QUICK, event, following, page, thing
from tests.unit.cluster.peer import Answer, Peer, cluster_of
from webhook.api.decode import salvaged
from webhook.api.meta import NamespacedName
from webhook.cluster.cache.decoders import AskingClaimWire
from webhook.cluster.cache.names import ClusterCache
from webhook.cluster.client.answers import decode
from webhook.cluster.client.list_pages import config_map_of, listed

PLACE: Final = b'"ODD"'
ODD: Final = [
    pytest.param(b"[" * 40_000 + b"]" * 40_000, id="40,000 levels of lists"),
    pytest.param(b'{"a":' * 30_000 + b"1" + b"}" * 30_000, id="30,000 levels of objects"),
    pytest.param(b'{"a":"\\ud800"}', id="half of a surrogate pair"),
    pytest.param(b'{"\\udc00":1}', id="the other half, in a key"),
    pytest.param(b'{"a":"\xff"}', id="a byte that is no UTF-8"),
    pytest.param(b"[" * 4_000 + b'"\\ud800\xff"' + b"]" * 4_000, id="all of it"),
]


def odd(name: str, version: int) -> dict[str, Any]:
    return {**thing(name, version, colour="red"), "spec": "ODD"}


def with_part(text: bytes, part: bytes) -> bytes:
    return text.replace(PLACE, part)


def answer(body: Answer, part: bytes) -> Answer:
    return Answer(with_part(json.dumps(body.body).encode(), part))


@pytest.mark.parametrize("part", ODD)
async def test_list_with_one_is_read_whole(part: bytes) -> None:
    async with following(answer(page(7, thing("a", 1), odd("b", 2), thing("c", 3)), part)) as bench:
        await bench.settles("a@1", "b@2", "c@3")
        assert bench.reflector.items["b"].metadata.labels == {"colour": "red"}
        assert bench.reflector.error == ""


@pytest.mark.parametrize("part", ODD)
@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
async def test_event_about_one_is_an_event(kind: str, part: bytes) -> None:
    async with following(page(5, thing("a", 1), thing("b", 2))) as bench:
        line = with_part(event(kind, odd("b", 6)), part)
        await bench.peer.say(line, event("MODIFIED", thing("a", 7)))
        await bench.settles("a@7", *(() if kind == "DELETED" else ("b@6",)))
        assert len(bench.peer.lists) == 1


async def test_second_look_at_a_large_page_leaves_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def seen(text: bytes | bytearray) -> bytes | None:
        threads.append(threading.current_thread().name)
        return salvaged(text)

    monkeypatch.setattr("webhook.cluster.client.answers.salvaged", seen)

    many = [thing(f"a{number:03}", number + 1) for number in range(900)]
    async with following(answer(page(2_000, odd("b", 1_000), *many), b"[" * 40_000 + b"]" * 40_000)) as bench:
        await bench.settles("b@1000", *(f"a{number:03}@{number + 1}" for number in range(900)))
    assert threads
    assert threading.main_thread().name not in threads


@pytest.mark.parametrize("part", ODD)
async def test_commands_read_lists_and_objects_with_one(part: bytes) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.append(answer(page(7, thing("a", 1), odd("b", 2)), part))
        found = await listed(cluster, "/apis/example.com/v1/things", "example.com/v1", "Thing")
        assert [each["metadata"]["name"] for each in found] == ["a", "b"]
        peer.answers.append(Answer(with_part(json.dumps({**odd("m", 1), "data": {"k": "v"}}).encode(), part)))
        config_map = await config_map_of(cluster, NamespacedName("ns", "m"))
        assert (config_map or {})["data"] == {"k": "v"}


@pytest.mark.parametrize("part", ODD)
async def test_namespace_that_is_asked_for_by_name_is_known(part: bytes) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        cache = ClusterCache(cluster, random=lambda: 0.5, reflector_settings=QUICK)
        body = {"metadata": {"name": "ml", "uid": "u", "labels": {"tier": "batch"}, "managedFields": "ODD"}}
        peer.answers.append(Answer(with_part(json.dumps(body).encode(), part)))
        await cache.fetch(["ml"], [], 5.0)
        facts = cache.namespace("ml")
        assert facts is not None
        assert facts.labels == {"tier": "batch"}


@pytest.mark.parametrize("part", [*ODD, pytest.param(b"9" * 5000, id="a number of 5,000 digits")])
def test_parameters_of_a_claim_are_not_read_and_claims_that_differ_in_them_ask_for_the_same(part: bytes) -> None:
    def demand(parameters: Any) -> Any:
        devices = {"requests": [make_request()], "config": [{"opaque": {"driver": "d", "parameters": parameters}}]}
        text = json.dumps({"metadata": {"name": "c"}, "spec": {"devices": devices}}).encode()
        return decode(msgspec.json.Decoder(AskingClaimWire), with_part(text, part)).to_value().demand

    assert demand("ODD") is demand({}) is not None


async def test_what_is_no_json_is_still_an_error_of_the_list() -> None:
    async with following(Answer(b'{"metadata":{},"items":[{]}'), page(7, thing("a", 1))) as bench:
        await bench.settles("a@1")
        assert (bench.count("reflector_errors_total") or 0) >= 1
