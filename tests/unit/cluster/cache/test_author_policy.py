"""The policy that proves authors, watched: when authors are known. Fields that differ: tests/unit/policy/vap."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.unit.cluster.cache.following import event, page
from tests.unit.cluster.peer import Answer, Peer, cluster_of, status, until
from tests.unit.running import running
from webhook.api.rules import NEVER
from webhook.cluster import installation
from webhook.cluster.installation import AuthorPolicyWatch, read_author_policy
from webhook.policy.vap.drift import AUTHOR_POLICY, shipped
from webhook.policy.vap.objects import ADMISSION_RESOURCES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.cluster.peer import Reply

PATHS: Final = {kind: f"/apis/admissionregistration.k8s.io/v1/{plural}" for kind, plural in ADMISSION_RESOURCES.items()}
KINDS: Final = {path: kind for kind, path in PATHS.items()}


def stored(kind: str, version: int = 3, *, spec: Any = None, **meta: Any) -> dict[str, Any]:
    metadata = {"name": AUTHOR_POLICY, "uid": kind, "resourceVersion": str(version), **meta}
    return {"metadata": metadata, "spec": {**shipped()[kind], **(spec or {})}}


@contextlib.asynccontextmanager
async def watching(peer: Peer, **lists: Reply) -> AsyncIterator[AuthorPolicyWatch]:
    """Both are there, if not said otherwise."""
    peer.otherwise = lambda asked: lists.get(KINDS[asked.path], page(10, stored(KINDS[asked.path])))
    async with peer, cluster_of(peer) as cluster:
        watch = AuthorPolicyWatch(cluster, random=lambda: 0.0)
        async with running(watch.run()):
            yield watch


async def test_authors_are_proved_while_both_are_as_shipped() -> None:
    peer = Peer()
    async with watching(peer) as watch:
        await until(lambda: watch.problem == "", "authors are proved")
        assert {each.path for each in peer.lists} == {*PATHS.values()}
        assert {each.query["fieldSelector"] for each in peer.lists} == {f"metadata.name={AUTHOR_POLICY}"}


def _says(watch: AuthorPolicyWatch, problem: str) -> bool:
    return problem in watch.problem


@pytest.mark.parametrize("kind", PATHS)
async def test_each_change_is_noticed(kind: str) -> None:
    peer, path = Peer(), PATHS[kind]
    async with watching(peer) as watch:
        await until(lambda: watch.problem == "", "authors are proved")
        at, about = 11, f"{kind} {AUTHOR_POLICY}"
        for spec, meta, problem in (
            ({"validationActions": ["Warn"]}, {}, f"{about} is not as shipped: spec.validationActions"),
            ({"matchResources": {}}, {}, f"{about} is not as shipped: spec.matchResources"),
            ({}, {"deletionTimestamp": "2026-06-01T12:00:00Z"}, f"{about} is missing"),
        ):
            await peer.say_on(path, event("MODIFIED", stored(kind, at, spec=spec, **meta)))
            await until(partial(_says, watch, problem), problem)
            await peer.say_on(path, event("MODIFIED", stored(kind, at + 1)))
            await until(lambda: watch.problem == "", "authors are proved again")
            at += 2
        await peer.say_on(path, event("DELETED", stored(kind, at)))
        await until(lambda: watch.problem == f"{about} is missing", "it is gone")
        await peer.say_on(path, event("ADDED", stored(kind, at + 1)))
        await until(lambda: watch.problem == "", "authors are proved again")


@pytest.mark.parametrize("kind", PATHS)
async def test_absent_object_is_named(kind: str) -> None:
    async with watching(Peer(), **{kind: page(10)}) as watch:
        await until(lambda: watch.problem == f"{kind} {AUTHOR_POLICY} is missing", "that it is missing")


@pytest.mark.parametrize("kind", PATHS)
async def test_authors_are_unknown_until_both_were_read(kind: str) -> None:
    peer = Peer()
    async with watching(peer, **{kind: Answer(status(403, "may not list"), 403)}) as watch:
        assert watch.problem == "the policy that proves authors was not read yet"
        await until(lambda: "may not list" in watch.problem, "why it was not read")
        await until(lambda: len(peer.watched) == 1, "a watch of the other one")
        assert watch.problem.startswith("the policy that proves authors was not read yet: ")


async def test_authors_are_unknown_once_the_policy_is_no_longer_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights were taken away, or no API server answers: meanwhile the policy may be deleted."""
    peer = Peer()
    async with watching(peer) as watch:
        await until(lambda: watch.problem == "", "authors are proved")
        await until(lambda: len(peer.watched) == len(PATHS), "both are watched")
        await peer.stop()
        await until(lambda: bool([each for each in watch._reflectors.values() if each.error]), "it is lost")
        assert watch.problem == "", "for a moment"
        monkeypatch.setattr(installation, "_STALE_SECONDS", 0.0)
        await until(partial(_says, watch, "not watched for 0 s: "), "that it is not watched")


async def test_neither_is_there_to_be_read() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: Answer(status(404, "no such thing"), 404)
        problem, since = await read_author_policy(cluster)
        assert (problem.count("is missing"), since) == (2, NEVER)
