"""Which version of a resource is followed, and what happens when none is, or when it changes."""

from __future__ import annotations

import pytest

from tests.unit.cluster.cache.following import PartialObject
from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, Request, cluster_of, status, until
from tests.unit.running import running
from webhook.cluster.cache.discovery import ServedCollection, served_version
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.errors import NotFound, Unavailable
from webhook.cluster.settings import ReflectorSettings

VERSIONS = ("v1", "v1beta2", "v1beta1")


class Served:
    """A peer's answers: these resources in these versions, and the collection of each of them."""

    def __init__(self, **resources: list[str]) -> None:
        self.resources = resources

    def __call__(self, request: Request) -> Reply:
        parts = request.path.strip("/").split("/")
        known = self.resources.get(parts[2])
        if known is None or (len(parts) > 3 and parts[3] not in known):
            return Answer(status(404, "the server could not find the requested resource"), 404)
        if len(parts) == 3:
            return Answer({"kind": "APIResourceList", "resources": [{"name": name, "verbs": []} for name in known]})
        return Answer({"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": parts[2]}}]})


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ({"v1": ["deviceclasses"], "v1beta2": ["deviceclasses"]}, "v1"),
        ({"v1beta1": ["deviceclasses"], "v1beta2": ["deviceclasses"]}, "v1beta2"),
        ({"v1": ["resourceclaims"], "v1beta1": ["resourceclaims", "deviceclasses"]}, "v1beta1"),
        ({"v1alpha3": ["devicetaintrules"]}, None),
        ({}, None),
    ],
)
async def test_first_version_that_has_the_resource_is_taken(served: dict[str, list[str]], expected: str | None) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = Served(**served)
        assert await served_version(cluster, "resource.k8s.io", VERSIONS, "deviceclasses") == expected


@pytest.mark.parametrize("reply", [Drop(), Answer(status(500, "no"), 500), Answer(b"<html>"), Answer([])])
async def test_nothing_is_concluded_from_a_failure(reply: Reply) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.append(reply)
        peer.otherwise = Served(v1beta1=["deviceclasses"])
        if isinstance(reply, Drop):
            peer.answers.append(reply)
        with pytest.raises(Unavailable):
            await served_version(cluster, "resource.k8s.io", VERSIONS, "deviceclasses")


async def test_path_is_asked_for_once_and_again_when_it_led_nowhere() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        classes = ServedCollection(cluster, "resource.k8s.io", VERSIONS, "deviceclasses")
        with pytest.raises(NotFound, match="not served in v1, v1beta2, v1beta1"):
            await classes.path()
        peer.otherwise = Served(v1beta1=["deviceclasses"])
        for _ in range(3):
            assert await classes.path() == "/apis/resource.k8s.io/v1beta1/deviceclasses"
        asked = len(peer.requests)
        assert asked == 6
        peer.otherwise = Served(v1=["deviceclasses"])
        classes.forget()
        assert await classes.path() == "/apis/resource.k8s.io/v1/deviceclasses"
        await until(lambda: len(peer.requests) == asked + 1, "one more request")


async def test_reflector_moves_on_when_its_version_is_not_served_any_more() -> None:
    """And keeps what it knows while nothing is served at all: servers say so, too, while they are replaced."""
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = Served(v1beta1=["deviceclasses"])
        classes = ServedCollection(cluster, "resource.k8s.io", VERSIONS, "deviceclasses")
        quick = ReflectorSettings(backoff_seconds=0.001, backoff_most_seconds=0.01)
        reflector = Reflector(cluster, classes, PartialObject, random=lambda: 0.0, settings=quick)
        async with running(reflector.run()):
            await until(lambda: [*reflector.items] == ["v1beta1"], "the first version")
            await until(lambda: len(peer.watched) == 1, "a watch")
            peer.otherwise = Served()
            peer.watches.append(Answer(status(404, "the server could not find the requested resource"), 404))
            await peer.stop()
            await peer.start()
            asked = len(peer.requests)
            await until(lambda: len(peer.requests) > asked + 10, "vain requests")
            assert [*reflector.items] == ["v1beta1"]
            assert reflector.synced.is_set()
            peer.otherwise = Served(v1=["deviceclasses"])
            await until(lambda: [*reflector.items] == ["v1"], "the next version")
