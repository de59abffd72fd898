"""Events: their shape and limits, and that failing to write one harms nobody."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, cluster_of, status, until
from webhook.cluster.events import EventRecorder, EventType, EventWriter, ObjectReference, truncate_utf8

if TYPE_CHECKING:
    from webhook.cluster.client.rest import Cluster

POLICY = ObjectReference("v1", "ConfigMap", "ns", "policy", "u1")
NOW = datetime(2026, 6, 1, 14, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))


def writer(cluster: Cluster, instance: str = "webhook-0") -> EventWriter:
    return EventWriter(cluster, instance=instance, now=lambda: NOW, random_hex=lambda size: "0f" * size)


async def test_event_names_the_object_and_us() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.append(Answer({}, 201))
        await writer(cluster).write(POLICY, EventType.WARNING, reason="PolicyRefused", action="Load", note="why")
        [request] = peer.requests
        assert (request.method, request.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events")
        assert request.json == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "ns", "name": "policy.0f0f0f0f0f0f0f0f"},
            "eventTime": "2026-06-01T12:00:00.000005Z",
            "type": "Warning",
            "reason": "PolicyRefused",
            "action": "Load",
            "note": "why",
            "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "ns", "name": "policy", "uid": "u1"},
            "reportingController": "devicetaint.io/device-taint-webhook",
            "reportingInstance": "webhook-0",
        }


async def test_event_about_an_object_without_namespace_is_in_default() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.append(Answer({}, 201))
        rule = ObjectReference("resource.k8s.io/v1beta2", "DeviceTaintRule", "", "r" * 253)
        await writer(cluster, "").write(rule, EventType.NORMAL, reason="R" * 200, action="A" * 200, note="ä" * 1000)
        sent = peer.requests[0].json
        assert peer.requests[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"
        assert sent["regarding"] == {"apiVersion": rule.api_version, "kind": rule.kind, "name": rule.name}
        assert len(sent["metadata"]["name"]) == 253
        assert (len(sent["reason"]), len(sent["action"]), len(sent["note"].encode())) == (128, 128, 1023)
        assert sent["reportingInstance"] == "unknown"


@pytest.mark.parametrize("reply", [Drop(), Answer(status(403, "cannot create events"), 403), Answer(b"", 500)])
async def test_event_that_cannot_be_written_is_logged(reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.extend([reply, reply])
        await writer(cluster).write(POLICY, EventType.NORMAL, reason="R", action="A", note="n")
        [record] = caplog.records
        assert record.message == "event not written"
        assert record.__dict__["object"] == "ConfigMap ns/policy"


async def test_recorder_writes_warnings_in_order_though_the_first_fails() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.extend([Answer(b"", 500), Answer({}, 201)])
        recorder = EventRecorder(writer(cluster), POLICY)
        recorder.warn("PolicyNotLoaded", "LoadPolicy", "first")
        recorder.warn("ExceptionEndsSoon", "RemindOfException", "second")
        running = asyncio.create_task(recorder.run())
        await until(lambda: len(peer.requests) == 2, "both are written")
        running.cancel()
        await asyncio.wait([running])
        sent = [request.json for request in peer.requests]
        assert [(each["type"], each["reason"], each["note"]) for each in sent] == [
            ("Warning", "PolicyNotLoaded", "first"),
            ("Warning", "ExceptionEndsSoon", "second"),
        ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("12345678", "12345678"),
        ("123456789", "12345..."),
        ("ääää", "ääää"),
        ("äääää", "ää..."),
        ("\ud800", "?"),
    ],
)
def test_text_is_cut_in_bytes_between_characters(text: str, expected: str) -> None:
    assert truncate_utf8(text, 8) == expected
