"""The policy's ConfigMap: what is told, and when it counts as known."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.cache.following import event, page
from tests.unit.cluster.peer import Peer, Silence, cluster_of, until
from tests.unit.running import running
from webhook.cluster.cache.names import ConfigMapSource
from webhook.cluster.settings import ReflectorSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from webhook.cluster.cache.names import ConfigMap


def config_map(version: int, data: dict[str, str] | None, uid: str = "u1") -> dict[str, Any]:
    metadata = {"name": "policy", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata} | ({} if data is None else {"data": data})


def summaries(told: list[ConfigMap | None]) -> list[tuple[Mapping[str, str] | None, str, str]]:
    """Data, version and uid."""
    return [
        (None, "", "") if each is None else (each.data, each.metadata.resource_version, each.metadata.uid)
        for each in told
    ]


@contextlib.asynccontextmanager
async def source(peer: Peer, *first: dict[str, Any]) -> AsyncIterator[list[ConfigMap | None]]:
    async with peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: page(10, *first)
        told: list[ConfigMap | None] = []
        found = ConfigMapSource(
            cluster,
            namespace="ns",
            name="policy",
            on_change=told.append,
            random=lambda: 0.0,
            settings=ReflectorSettings(backoff_seconds=0.001),
        )
        async with running(found.run()):
            yield told


async def test_first_state_is_passed_on_with_the_keys_of_binary_data() -> None:
    """F11: without these a policy that kubectl took for binary would look like none."""
    peer = Peer()
    async with source(peer, {**config_map(3, {"notes": "x"}), "binaryData": {"policy.yaml": "/////w=="}}) as told:
        await until(lambda: len(peer.watched) == 1, "a watch")
        assert summaries(told) == [({"notes": "x"}, "3", "u1")]
        assert told[0] is not None
        assert list(told[0].binary_data or {}) == ["policy.yaml"]
        assert peer.lists[0].path == "/api/v1/namespaces/ns/configmaps"
        assert peer.lists[0].query["fieldSelector"] == "metadata.name=policy"


async def test_absent_config_map_is_passed_on_and_each_change() -> None:
    peer = Peer()
    async with source(peer) as told:
        await until(lambda: bool(told), "the first state")
        await peer.say(
            event("ADDED", config_map(11, {"policy.yaml": "a"})),
            event("MODIFIED", config_map(12, None)),
            event("DELETED", config_map(13, {"policy.yaml": "a"})),
            event("ADDED", config_map(14, {"policy.yaml": "b"}, uid="u2")),
        )
        await until(lambda: len(told) == 5, "all changes")
        assert summaries(told) == [
            (None, "", ""),
            ({"policy.yaml": "a"}, "11", "u1"),
            (None, "12", "u1"),
            (None, "", ""),
            ({"policy.yaml": "b"}, "14", "u2"),
        ]


async def test_nothing_is_known_without_an_answer() -> None:
    peer = Peer()
    peer.answers.append(Silence())
    async with source(peer) as told:
        await until(lambda: len(peer.requests) == 1, "the request")
        assert told == []


async def test_listener_that_fails_ends_the_run() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: page(10)

        def fail(*_: object) -> None:
            raise RuntimeError("a fault of ours")

        found = ConfigMapSource(cluster, namespace="a", name="b", on_change=fail, random=lambda: 0.0)
        with pytest.raises(ExceptionGroup) as caught:
            await found.run()
        assert [str(cause) for cause in caught.value.exceptions] == ["a fault of ours"]
