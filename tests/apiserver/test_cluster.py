"""Our side of the API server against a real one: what it lists, watches, forgets, refuses, and how it comes back."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.apiserver.looping import run, until
from tests.controlplane import arguments, versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from webhook.api.meta import SERVED_VERSIONS
from webhook.cluster.cache.discovery import FixedCollection, served_version
from webhook.cluster.cache.names import ClusterCache, ConfigMap, ConfigMapSource
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.credentials import KubeConfig
from webhook.cluster.client.errors import Conflict, Gone, NotFound, Refused
from webhook.cluster.client.rest import Cluster
from webhook.cluster.events import EventType, EventWriter, ObjectReference
from webhook.cluster.settings import ReflectorSettings
from webhook.telemetry.metrics import Metrics

CONFIG_MAPS = path("v1", "configmaps", namespace="default")
NAMESPACES = path("v1", "namespaces")


def unused(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def cluster_of(plane: ControlPlane) -> Cluster:
    return Cluster(KubeConfig(str(plane.kubeconfig)))


@contextlib.asynccontextmanager
async def running(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Runs beside the block; what fails in it fails the test."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def device_class(plane: ControlPlane, name: str, expression: str) -> tuple[str, dict[str, Any]]:
    """A class in the newest version that is served, and its collection."""
    version = f"resource.k8s.io/{versions.api_versions(plane.server_version)[0]}"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    manifest = {"apiVersion": version, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
    return path(version, "deviceclasses"), manifest


# --- names ------------------------------------------------------------------------------------------


def test_namespaces_and_device_classes_are_known_and_followed(plane: ControlPlane) -> None:
    name = unused("cluster")
    collection, manifest = device_class(plane, name, 'device.driver == "gpu.example.com"')

    async def test() -> None:
        async with cluster_of(plane) as cluster:
            cache = ClusterCache(cluster, random=lambda: 0.5, reflector_settings=ReflectorSettings(page_size=2))
            async with running(cache.run()):
                await cache.synced()
                system = cache.namespace("kube-system")
                assert system is not None
                assert system.labels["kubernetes.io/metadata.name"] == "kube-system"
                assert (cache.namespace(name), cache.drivers(name)) == (None, None)
                labels = {"team": "ml"}
                plane.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}}).object  # noqa: B018
                plane.client.create(collection, manifest).object  # noqa: B018
                await until(lambda: cache.drivers(name) == frozenset({"gpu.example.com"}), "the class")
                await until(lambda: cache.namespace(name) is not None, "the namespace")
                facts = cache.namespace(name)
                assert facts is not None
                assert facts.labels == {"team": "ml", "kubernetes.io/metadata.name": name}
                # An annotation makes a new version of the object, and no new facts.
                change = {"metadata": {"annotations": {"a": "b"}}}
                version = plane.client.patch(f"{NAMESPACES}/{name}", change).object["metadata"]["resourceVersion"]
                items = cache.namespace_reflector.items
                await until(lambda: items[name].metadata.resource_version == version, "the annotation")
                assert cache.namespace(name) is facts
                plane.client.patch(f"{NAMESPACES}/{name}", {"metadata": {"labels": {"team": "web"}}}).object  # noqa: B018
                await until(lambda: cache.namespace(name) is not facts, "the label")
                plane.client.delete(f"{collection}/{name}").object  # noqa: B018
                await until(lambda: name not in cache.class_reflector.items, "the end of the class")

    try:
        run(test())
    finally:
        plane.client.delete(f"{collection}/{name}")
        plane.client.delete(f"{NAMESPACES}/{name}")


def test_names_are_fetched_one_by_one_without_any_watch(plane: ControlPlane) -> None:
    name = unused("fetch")
    collection, manifest = device_class(plane, name, 'device.driver in ["a.example.com", "b.example.com"]')
    plane.client.create(collection, manifest).object  # noqa: B018

    async def test() -> None:
        async with cluster_of(plane) as cluster:
            cache = ClusterCache(cluster, random=lambda: 0.5)
            await cache.fetch(["default", "nobody"], [name, "nothing"], 100)
            facts = cache.namespace("default")
            assert facts is not None
            assert facts.labels == {"kubernetes.io/metadata.name": "default"}
            assert cache.drivers(name) == frozenset({"a.example.com", "b.example.com"})
            assert (cache.namespace("nobody"), cache.drivers("nothing")) == (None, None)

    try:
        run(test())
    finally:
        plane.client.delete(f"{collection}/{name}")


def test_served_version_is_found(plane: ControlPlane) -> None:
    async def test() -> None:
        async with cluster_of(plane) as cluster:
            group = "resource.k8s.io"
            served = versions.api_versions(plane.server_version)
            assert await served_version(cluster, group, SERVED_VERSIONS, "deviceclasses") == served[0]
            assert await served_version(cluster, group, ("v2", "v1"), "nothings") is None
            assert await served_version(cluster, "nobody.example.com", ("v1",), "nothings") is None

    run(test())


# --- errors -----------------------------------------------------------------------------------------


def test_refusals_are_ours_and_keep_the_servers_words(plane: ControlPlane) -> None:
    name = unused("errors")

    async def test() -> None:
        async with cluster_of(plane) as cluster:
            with pytest.raises(NotFound, match=f'404: configmaps "{name}" not found'):
                await cluster.get(f"{CONFIG_MAPS}/{name}")
            made = json.loads(await cluster.create(CONFIG_MAPS, config_map(name, a="1")))
            with pytest.raises(Conflict) as exists:
                await cluster.create(CONFIG_MAPS, config_map(name))
            assert exists.value.reason == "AlreadyExists"
            await cluster.update(f"{CONFIG_MAPS}/{name}", {**made, "data": {"a": "2"}})
            with pytest.raises(Conflict) as changed:
                await cluster.update(f"{CONFIG_MAPS}/{name}", {**made, "data": {"a": "3"}})
            assert changed.value.reason == "Conflict"
            patched = json.loads(await cluster.patch(f"{CONFIG_MAPS}/{name}", {"data": {"a": None, "b": "4"}}))
            assert patched["data"] == {"b": "4"}
            with pytest.raises(Refused, match=r"422: ConfigMap .* is invalid"):
                await cluster.create(CONFIG_MAPS, config_map("Not A Name"))
        async with Cluster(KubeConfig(str(plane.kubeconfig_of("nobody")))) as stranger:
            with pytest.raises(Refused, match=r'403: configmaps .* is forbidden: User "nobody" cannot get'):
                await stranger.get(f"{CONFIG_MAPS}/{name}")

    try:
        run(test())
    finally:
        plane.client.delete(f"{CONFIG_MAPS}/{name}")


# --- the policy's ConfigMap -------------------------------------------------------------------------


def test_config_map_is_seen_soon_after_each_change(plane: ControlPlane) -> None:
    name, other = unused("policy"), unused("other")
    told: list[tuple[Mapping[str, str] | None, str, str]] = []

    async def test() -> None:
        async with cluster_of(plane) as cluster:
            source = ConfigMapSource(
                cluster,
                namespace="default",
                name=name,
                on_change=lambda found: told.append(
                    (None, "", "")
                    if found is None
                    else (found.data, found.metadata.resource_version, found.metadata.uid)
                ),
                random=lambda: 0.5,
            )
            async with running(source.run()):
                await until(lambda: bool(told), "the first state")
                await until(lambda: source.reflector._version != "", "the list")
                first = plane.client.create(CONFIG_MAPS, config_map(name, policy="a")).object["metadata"]
                await until(lambda: len(told) == 2, "that it was created")
                plane.client.create(CONFIG_MAPS, config_map(other)).object  # noqa: B018
                second = plane.client.patch(f"{CONFIG_MAPS}/{name}", {"data": {"policy": "b"}}).object["metadata"]
                await until(lambda: len(told) == 3, "that it was changed")
                plane.client.delete(f"{CONFIG_MAPS}/{name}").object  # noqa: B018
                await until(lambda: len(told) == 4, "that it was deleted")
            assert told == [
                (None, "", ""),
                ({"policy": "a"}, first["resourceVersion"], first["uid"]),
                ({"policy": "b"}, second["resourceVersion"], first["uid"]),
                (None, "", ""),
            ]

    try:
        run(test())
    finally:
        for each in (name, other):
            plane.client.delete(f"{CONFIG_MAPS}/{each}")


# --- Events -----------------------------------------------------------------------------------------


def test_event_arrives(plane: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    name = unused("regarded")
    regarding = ObjectReference("v1", "ConfigMap", "default", name, "1234")
    events = path("events.k8s.io/v1", "events", namespace="default")

    async def test() -> None:
        async with cluster_of(plane) as cluster:
            writer = EventWriter(cluster, instance="webhook-0", now=lambda: datetime.now(UTC))  # noqa: TID251 -- a shell
            await writer.write(
                regarding, EventType.WARNING, reason="PolicyRefused", action="Load", note="spec: Required value\n" * 99
            )

    run(test())
    assert caplog.messages == []
    [event] = [each for each in plane.client.get(events).items if each["regarding"].get("name") == name]
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "PolicyRefused", "Load")
    assert event["reportingController"] == "devicetaint.io/device-taint-webhook"
    assert event["note"].startswith("spec: Required value")
    plane.client.delete(f"{events}/{event['metadata']['name']}")


# --- an API server that goes away and forgets ----------------------------------------------------------


class RestartablePlane(ControlPlane):
    """A control plane whose API server can be away for a while. It comes back under its address."""

    def stop_api_server(self) -> None:
        self.processes.pop("kube-apiserver").stop()

    def start_api_server(self) -> None:
        """Returns before it is ready."""
        port = urlsplit(self.server).port
        assert port is not None
        gates, served = self._feature_gates, self._runtime_config
        self._run("kube-apiserver", arguments.api_server(self.folder, port, gates, served, audit=False))

    def ready(self) -> bool:
        try:
            return self.client.get("/readyz").ok and self.client.get(f"{NAMESPACES}/default").ok
        except (OSError, http.client.HTTPException):
            return False

    def compact(self) -> None:
        """Makes etcd forget everything but the present, as the API server makes it do every few minutes."""
        revision = int(self.client.get(CONFIG_MAPS).object["metadata"]["resourceVersion"])
        body = json.dumps({"revision": str(revision), "physical": True}).encode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(120)
            connection.connect(str(self.folder / arguments.ETCD_SOCKET))
            head = f"POST /v3/kv/compaction HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        assert b" 200 OK" in answer.splitlines()[0], answer


@pytest.fixture(scope="module")
def restartable(assets: Assets) -> Iterator[RestartablePlane]:
    with RestartablePlane(assets) as plane:
        yield plane


class Followed:
    """The ConfigMaps of `default` as a reflector knows them, and as it told them."""

    def __init__(self, cluster: Cluster, settings: ReflectorSettings) -> None:
        self.metrics = Metrics(version="0", resources=())
        self.reflector = Reflector(
            cluster,
            FixedCollection("", "v1", "configmaps", namespace="default"),
            ConfigMap,
            random=lambda: 0.5,
            settings=settings,
            metrics=self.metrics,
        )
        self.state: dict[str, str] = {}
        self.reflector.subscribe(self._changed)

    def _changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        if old is not None:
            assert self.state.pop(old.metadata.name) == (old.data or {}).get("n", "")
        if new is not None:
            self.state[new.metadata.name] = (new.data or {}).get("n", "")

    def count(self, name: str) -> float:
        labels = {"resource": "configmaps"}
        return self.metrics.registry.get_sample_value(f"device_taint_webhook_reflector_{name}_total", labels) or 0.0

    def matches(self, plane: ControlPlane) -> bool:
        there = {
            each["metadata"]["name"]: each.get("data", {}).get("n", "") for each in plane.client.get(CONFIG_MAPS).items
        }
        known = {item.metadata.name: (item.data or {}).get("n", "") for item in self.reflector.items.values()}
        return self.state == known == there


def _change_everything(plane: ControlPlane, prefix: str) -> None:
    """One deleted, one changed, one replaced by a namesake, one new."""
    plane.client.delete(f"{CONFIG_MAPS}/{prefix}-0").object  # noqa: B018
    plane.client.patch(f"{CONFIG_MAPS}/{prefix}-1", {"data": {"n": "changed"}}).object  # noqa: B018
    plane.client.delete(f"{CONFIG_MAPS}/{prefix}-2").object  # noqa: B018
    plane.client.create(CONFIG_MAPS, config_map(f"{prefix}-2", n="namesake")).object  # noqa: B018
    plane.client.create(CONFIG_MAPS, config_map(f"{prefix}-new", n="new")).object  # noqa: B018


@pytest.mark.whole
def test_server_that_was_away_loses_nothing(restartable: RestartablePlane) -> None:
    """Items stay while it is away; what changed meanwhile is told after one list, also what etcd has forgotten."""
    plane, prefix = restartable, unused("away")
    for number in range(7):
        plane.client.create(CONFIG_MAPS, config_map(f"{prefix}-{number}", n=str(number))).object  # noqa: B018

    async def test() -> None:
        quick = ReflectorSettings(page_size=3, backoff_seconds=0.05, backoff_most_seconds=0.2)
        async with cluster_of(plane) as cluster:
            followed = Followed(cluster, quick)
            async with running(followed.reflector.run()):
                await until(lambda: followed.matches(plane), "the first list")
                before = dict(followed.state)
                plane.stop_api_server()
                await until(lambda: followed.count("errors") >= 3, "failed attempts")
                assert followed.state == before
                assert followed.reflector.synced.is_set()
                lists = followed.count("lists")
                plane.start_api_server()
                await until(plane.ready, "the API server", seconds=240)
                began = time.monotonic()
                _change_everything(plane, prefix)
                await until(lambda: followed.matches(plane), "the present state")
                assert 1 <= followed.count("lists") - lists <= 3, "more than one if a server that starts cuts a watch"
                assert followed.reflector.staleness_seconds <= time.monotonic() - began, "it has heard of the server"

    run(test())


@pytest.mark.whole
def test_watch_from_a_forgotten_version_is_gone_and_a_list_tells_the_difference(restartable: RestartablePlane) -> None:
    plane, prefix = restartable, unused("gone")
    for number in range(7):
        plane.client.create(CONFIG_MAPS, config_map(f"{prefix}-{number}", n=str(number))).object  # noqa: B018

    async def test() -> None:
        async with cluster_of(plane) as cluster:
            followed = Followed(cluster, ReflectorSettings(page_size=3))
            async with running(followed.reflector.run()):
                await until(lambda: followed.matches(plane), "the first list")
            page = json.loads(await cluster.get(CONFIG_MAPS, {"limit": 2}))["metadata"]
            _change_everything(plane, prefix)  # while nobody watches, as if this process had been suspended
            plane.compact()
            plane.stop_api_server()  # and with it what it remembers itself
            plane.start_api_server()
            await until(plane.ready, "the API server", seconds=240)
            assert not followed.matches(plane)
            with pytest.raises(Gone):
                await followed.reflector._watch()
            with pytest.raises(Gone):
                await cluster.get(CONFIG_MAPS, {"limit": 2, "continue": page["continue"]})
            followed.reflector.synced.clear()
            async with running(followed.reflector.run()):
                await until(lambda: followed.matches(plane), "the present state")

    run(test())
