"""A reflector at work against a scripted peer, and what it told."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from tests.unit.cluster.peer import Answer, Peer, Reply, cluster_of, status, until
from tests.unit.running import running
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.listwatch import WireValue
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.settings import ReflectorSettings
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

QUICK = ReflectorSettings(backoff_seconds=0.004, backoff_most_seconds=0.02, short_watch_seconds=0.0)


def thing(name: str, version: int, *, uid: str = "", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "labels": labels}
    return {"metadata": metadata, "somethingElse": {"that": ["is", "not", "read"]}}


def page(version: int, *items: dict[str, Any], more: str = "") -> Answer:
    return Answer({"kind": "List", "metadata": {"resourceVersion": str(version), "continue": more}, "items": [*items]})


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return event(
        "BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": str(version), "creationTimestamp": None}}
    )


EXPIRED = event("ERROR", status(410, "too old resource version: 1 (9)", reason="Expired"))


class PartialObject(WireValue, frozen=True):
    """An object requested as PartialObjectMetadata: metadata and nothing else."""


class Bench:
    """A reflector at work, and what it told."""

    def __init__(self, peer: Peer, reflector: Reflector[PartialObject], metrics: Metrics) -> None:
        self.peer = peer
        self.reflector = reflector
        self.metrics = metrics
        self.told: list[tuple[str, str]] = []
        """(old, new) as name@version; "-" for None."""
        self.state: dict[str, str] = {}
        """The items as far as the changes say."""
        reflector.subscribe(self._changed)

    def _changed(self, old: PartialObject | None, new: PartialObject | None) -> None:
        self.told.append((_short(old), _short(new)))
        if old is not None:
            assert self.state.pop(old.key) == old.metadata.resource_version
        if new is not None:
            assert new.key not in self.state
            self.state[new.key] = new.metadata.resource_version
        assert self.state == self.items, "the items have changed when it is told"

    @property
    def items(self) -> dict[str, str]:
        return {key: item.metadata.resource_version for key, item in self.reflector.items.items()}

    def count(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"device_taint_webhook_{name}", {"resource": "things"})

    async def settles(self, *expected: str) -> None:
        wanted = dict(each.split("@") for each in expected)
        await until(lambda: self.items == wanted and self.reflector.synced.is_set(), f"{wanted}, is {self.items}")
        assert self.state == wanted


def _short(obj: PartialObject | None) -> str:
    return f"{obj.key}@{obj.metadata.resource_version}" if obj else "-"


@contextlib.asynccontextmanager
async def following(
    *answers: Reply, watches: tuple[Reply, ...] = (), settings: ReflectorSettings = QUICK, **options: Any
) -> AsyncIterator[Bench]:
    metrics = Metrics(version="0", resources=())
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.extend(answers)
        peer.watches.extend(watches)
        things = FixedCollection("example.com", "v1", "things")
        reflector = Reflector(
            cluster, things, PartialObject, random=lambda: 0.5, settings=settings, metrics=metrics, **options
        )
        bench = Bench(peer, reflector, metrics)
        async with running(reflector.run()):
            yield bench


def waits_of(caplog: pytest.LogCaptureFixture, resource: str) -> list[float]:
    """The waits after vain attempts to list a resource, as they are logged."""
    found = [vars(record) for record in caplog.records if record.message == "list or watch failed"]
    return [each["delaySeconds"] for each in found if each["resource"] == resource]


def no_chance() -> float:
    return 0.0


@contextlib.asynccontextmanager
async def synced(reflector: Reflector[Any]) -> AsyncIterator[None]:
    """From its first list to the end of the block."""
    async with running(reflector.run()):
        await reflector.synced.wait()
        yield
