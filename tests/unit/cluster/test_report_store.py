"""Reports in the cluster, by what is sent over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.peer import Answer, Peer, run, status
from webhook.cluster.client.errors import Refused, Unavailable
from webhook.cluster.report_store import ReportStore
from webhook.reports.changes import StoredReport
from webhook.reports.objects import ReportId

GROUP = "/apis/openreports.io/v1alpha1"
RESOURCES = Answer({"resources": [{"name": "reports"}, {"name": "clusterreports"}]})
HERE = ReportId("train", "device-taint-webhook")


def meta(name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    annotations = {"devicetaint.io/report-digest": "d1"}
    given = {"name": name, "uid": f"uid-{name}", "generation": 2, "annotations": annotations, **fields}
    return {"metadata": given | ({"namespace": namespace} if namespace else {})}


@pytest.mark.parametrize(
    ("answers", "served"),
    [
        ([RESOURCES, RESOURCES], True),
        ([Answer({"resources": [{"name": "reports"}]})] * 2, False),
        ([Answer(status(404, "no such group"), 404)] * 2, False),
    ],
)
def test_both_kinds_have_to_be_served(answers: list[Answer], served: bool) -> None:  # noqa: FBT001 -- a table's
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.extend(answers)
            assert await ReportStore(cluster).is_served() is served
            assert {request.path.rstrip("/") for request in peer.requests} == {GROUP}

    run(test())


def test_our_reports_are_listed_by_their_metadata_in_pages() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.extend(
                [
                    Answer({"metadata": {"continue": "more"}, "items": [meta("device-taint-webhook-0", "train")]}),
                    Answer({"metadata": {}, "items": [meta("device-taint-webhook-1", "train", annotations=None)]}),
                    Answer({"metadata": {}, "items": [meta("device-taint-webhook")]}),
                ]
            )
            assert await ReportStore(cluster).stored() == {
                ReportId("train", "device-taint-webhook-0"): StoredReport("uid-device-taint-webhook-0", 2, "d1"),
                ReportId("train", "device-taint-webhook-1"): StoredReport("uid-device-taint-webhook-1", 2, ""),
                ReportId("", "device-taint-webhook"): StoredReport("uid-device-taint-webhook", 2, "d1"),
            }
            assert [request.path for request in peer.requests] == [*[f"{GROUP}/reports"] * 2, f"{GROUP}/clusterreports"]
            for request in peer.requests:
                assert request.query["labelSelector"] == "app.kubernetes.io/managed-by=device-taint-webhook"
                assert "as=PartialObjectMetadataList" in request.headers["accept"]

    run(test())


def test_a_report_is_applied_whole_and_its_generation_read_back() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(Answer({**meta("device-taint-webhook", "train"), "results": [{"policy": "p"}]}))
            stored = await ReportStore(cluster).apply(HERE, {"kind": "Report"})
            assert stored == StoredReport("uid-device-taint-webhook", 2, "d1")
            [request] = peer.requests
            assert (request.method, request.path) == (
                "PATCH",
                f"{GROUP}/namespaces/train/reports/device-taint-webhook",
            )
            assert request.headers["content-type"] == "application/apply-patch+yaml"
            assert request.query == {"fieldManager": "device-taint-webhook", "force": "true"}

    run(test())


def test_a_namespace_that_is_gone_is_no_error() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            store = ReportStore(cluster)
            assert await store.apply(HERE, {}) is None
            await store.delete(HERE, "u")

    run(test())


def test_a_namespace_that_is_being_deleted_is_no_error() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            details = {"causes": [{"reason": "NamespaceTerminating", "message": "namespace train is being terminated"}]}
            peer.answers.append(Answer(status(403, "forbidden", reason="Forbidden", details=details), 403))
            assert await ReportStore(cluster).apply(HERE, {}) is None

    run(test())


def test_a_refusal_and_an_answer_that_cannot_be_read_are_errors() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            store = ReportStore(cluster)
            peer.answers.append(Answer(status(403, "forbidden", reason="Forbidden"), 403))
            with pytest.raises(Refused):
                await store.apply(HERE, {})
            peer.answers.append(Answer({"kind": "what?"}))
            with pytest.raises(Unavailable, match="cannot be read"):
                await store.apply(HERE, {})

    run(test())


def test_only_the_very_object_that_was_read_is_deleted() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(Answer({}))
            await ReportStore(cluster).delete(ReportId("", "device-taint-webhook"), "u7")
            [request] = peer.requests
            assert (request.method, request.path) == ("DELETE", f"{GROUP}/clusterreports/device-taint-webhook")
            assert request.json["preconditions"] == {"uid": "u7"}

    run(test())
