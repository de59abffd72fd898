"""The worker's own deletions of pods: condition DisruptionTarget first, then a DELETE of the pod as it is then."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.builders import NOW, NOW_TEXT
from tests.unit.cluster.acting import (
    DISRUPTION,
    OTHER_VERSION,
    PATH,
    POD,
    RULES,
    TERMINATING,
    acting_cluster,
    marked,
    now,
    writer,
)
from tests.unit.cluster.peer import Answer, Drop, Peer, status
from webhook.api.pods import HOLD
from webhook.cluster.client.errors import Unavailable
from webhook.cluster.events import EventWriter
from webhook.cluster.eviction_writer import EvictionWriter
from webhook.eviction.ports import Disruption, EvictionOutcome, EvictionResult, PodRef

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_deletion_says_why_first_and_both_name_the_very_pod() -> None:
    """E-30."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([marked(), Answer(TERMINATING)])
        assert await writer(cluster).delete(POD, 0, DISRUPTION) == EvictionOutcome(EvictionResult.EVICTED)
        patch, delete = peer.requests
        assert (patch.method, patch.path) == ("PATCH", f"{PATH}/status")
        assert patch.headers["content-type"] == "application/strategic-merge-patch+json"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintWebhook",
            "message": "because",
            "lastTransitionTime": NOW_TEXT,
        }
        assert patch.json == {"metadata": {"uid": "u1"}, "status": {"conditions": [condition]}}
        assert (delete.method, delete.path) == ("DELETE", PATH)
        assert delete.json["preconditions"] == {"uid": "u1", "resourceVersion": "8"}
        assert delete.json["gracePeriodSeconds"] == 0


async def test_pod_that_was_read_is_deleted_in_whatever_version() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([marked(), Answer(TERMINATING)])
        pod = POD._replace()
        pod.live = True
        assert await writer(cluster).delete(pod, 0, DISRUPTION) == EvictionOutcome(EvictionResult.EVICTED)
        assert peer.requests[1].json["preconditions"] == {"uid": "u1"}


@pytest.mark.parametrize(
    ("answer", "result", "text"),
    [
        pytest.param(Answer(status(404, "gone"), 404), EvictionResult.GONE, "", id="gone"),
        # A process that was stopped sends one more request when it goes on, before it can look at its lease.
        pytest.param(marked(deletionTimestamp=NOW_TEXT), EvictionResult.GONE, "", id="deleted by another process"),
        *[
            pytest.param(Answer(body), EvictionResult.FAILED, "not an answer of an API server", id=str(body))
            for body in (b"<html>welcome</html>", b"{}", b'{"metadata": {"uid": "u2"}}', b"")
        ],
    ],
)
async def test_pod_is_not_deleted_unless_the_answer_to_the_patch_shows_it(
    answer: Answer, result: EvictionResult, text: str
) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(answer)
        outcome = await writer(cluster).delete(POD, None, DISRUPTION)
        assert (outcome.result, outcome.unsure) == (result, result is EvictionResult.FAILED)
        assert text in outcome.text
        assert [each.method for each in peer.requests] == ["PATCH"]


async def test_pod_that_changed_since_its_condition_was_set_is_tried_again() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([marked(), Answer(status(409, OTHER_VERSION), 409)])
        outcome = await writer(cluster).delete(POD, None, DISRUPTION)
        assert (outcome.result, outcome.unsure) == (EvictionResult.FAILED, False)
        assert "might have been modified" in outcome.text


async def test_disruption_target_is_as_old_as_its_first_writing() -> None:
    """L10: per pod and reason; once the pod is deleted the time is forgotten, and after many others."""
    times = iter(range(10_000))
    async with Peer() as peer, acting_cluster(peer) as cluster:
        events = EventWriter(cluster, instance="evict-0", now=now)
        asking = EvictionWriter(cluster, RULES, events, lambda: NOW + timedelta(seconds=next(times)))
        other, reason = POD._replace(uid="u2"), Disruption("Another", "because")
        peer.otherwise = lambda _: Answer(b"", 500)
        for pod, why in ((POD, DISRUPTION), (other, DISRUPTION), (POD, reason), (POD, DISRUPTION)):
            await asking.delete(pod, None, why)
        peer.otherwise = lambda request: marked() if request.method == "PATCH" else Answer(TERMINATING)
        for _ in range(2):
            await asking.delete(POD, None, DISRUPTION)
        patches = [each.json for each in peer.requests if each.method == "PATCH"]
        written = [each["status"]["conditions"][0]["lastTransitionTime"][-3:-1] for each in patches]
        assert written == ["00", "01", "02", "00", "00", "03"]
        assert len(asking._targets) == 2
        for number in range(2000):
            asking._targeted_at(POD._replace(uid=f"more-{number}"), DISRUPTION)
        assert len(asking._targets) == 1024
        assert ("more-1999", DISRUPTION) in asking._targets


async def test_deletion_that_broke_off_is_not_sent_again() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([Answer({}), Drop(), Answer({})])
        await cluster.get("/x")  # a connection that is there already
        with pytest.raises(Unavailable):
            await cluster.delete("/x")
        assert [request.method for request in peer.requests] == ["GET", "DELETE"]


def seen(version: str = "7", *, held: bool = False, wanted: Callable[[], bool] = lambda: True) -> PodRef:
    pod = PodRef(*POD)
    pod.version, pod.held, pod.wanted = version, held, wanted
    return pod


async def test_both_ways_name_the_version_that_was_seen_and_a_dry_run_names_none() -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([marked(), Answer(TERMINATING), Answer(TERMINATING), Answer(TERMINATING)])
        assert (await writer(cluster).delete(seen(), None, DISRUPTION)).evicted
        assert (await writer(cluster).evict(seen(), None)).evicted
        assert (await writer(cluster).may_evict(POD)).evicted
        patch, delete, evict, dry_run = [each.json for each in peer.requests]
        assert patch["metadata"] == {"uid": "u1", "resourceVersion": "7"}
        assert delete["preconditions"] == {"uid": "u1", "resourceVersion": "8"}
        assert evict["deleteOptions"]["preconditions"] == {"uid": "u1", "resourceVersion": "7"}
        assert dry_run["deleteOptions"]["preconditions"] == {"uid": "u1"}


@pytest.mark.parametrize("held", [True, False])
async def test_pod_whose_hold_shows_in_the_answer_to_the_patch_is_not_deleted_unless_that_was_known(
    *, held: bool
) -> None:
    held_pod = Answer(
        {"kind": "Pod", "metadata": {"uid": "u1", "resourceVersion": "8", "annotations": {HOLD: "debugging"}}}
    )
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([held_pod, Answer(TERMINATING)])
        outcome = await writer(cluster).delete(seen(held=held), None, DISRUPTION)
        assert (outcome.evicted, outcome.changed, outcome.unsure) == (held, not held, False)
        assert [each.method for each in peer.requests] == (["PATCH", "DELETE"] if held else ["PATCH"])


@pytest.mark.parametrize("after", [0, 1])
async def test_pod_that_is_not_to_go_any_more_is_neither_marked_nor_deleted(after: int) -> None:
    """`after`: so many requests."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(marked())
        pod = seen(wanted=lambda: len(peer.requests) < after)
        outcome = await writer(cluster).delete(pod, None, DISRUPTION)
        assert (outcome.withdrawn, outcome.unsure, len(peer.requests)) == (True, False, after)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (OTHER_VERSION, True),
        ("Precondition failed: ResourceVersion in precondition: 7, ResourceVersion in object meta: 8", True),
        ("the object has been modified; please apply your changes to the latest version and try again", True),
        (f'admission webhook "x.example.com" denied the request: {OTHER_VERSION}', False),
        (f'Operation cannot be fulfilled on poddisruptionbudgets.policy "web": {OTHER_VERSION}', False),
        ("something else", False),
    ],
)
async def test_conflict_about_the_version_is_told_from_others(text: str, *, changed: bool) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([Answer(status(409, text), 409)] * 2)
        for outcome in (
            await writer(cluster).evict(seen(), None),
            await writer(cluster).delete(seen(), None, DISRUPTION),
        ):
            assert (outcome.result, outcome.changed, outcome.unsure) == (EvictionResult.FAILED, changed, False)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (marked(), None),
        (marked(uid="u2"), (EvictionResult.GONE, False)),
        (marked(deletionTimestamp=NOW_TEXT), (EvictionResult.GONE, False)),
        (Answer(status(404, "gone"), 404), (EvictionResult.GONE, False)),
        (Answer({"metadata": {"uid": "u1", "annotations": {HOLD: ""}}}), (EvictionResult.FAILED, True)),
        (Answer(status(503, "busy"), 503), (EvictionResult.FAILED, False)),
        (Answer(b"<html>"), (EvictionResult.FAILED, False)),
        (Drop(), (EvictionResult.FAILED, False)),
    ],
    ids=["as seen", "another", "terminating", "gone", "held", "busy", "page", "no answer"],
)
async def test_metadata_that_are_read_say_whether_a_pod_may_go(
    answer: Answer | Drop, expected: tuple[EvictionResult, bool] | None
) -> None:
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.extend([answer, answer])
        found = await writer(cluster).read(seen())
        assert (None if found is None else (found.result, found.changed)) == expected
        assert found is None or not found.unsure
        assert "PartialObjectMetadata" in peer.requests[0].headers["accept"]
