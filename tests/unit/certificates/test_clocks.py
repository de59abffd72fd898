"""F6: clocks that were wrong, or that differ: what is replaced, what is reported, and when it ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from tests.unit.certificates.world import MINUTE, SETTINGS, START, Replica, World

if TYPE_CHECKING:
    from datetime import datetime, timedelta

HOUR = 60 * MINUTE
FAILURES = "reload_failures_total"


def valid_from(pem: bytes) -> datetime:
    return x509.load_pem_x509_certificate(pem).not_valid_before_utc


def put_back(ahead: timedelta, replicas: int = 1) -> World:
    """Everything was made while the clock was ahead, and then it was put right."""
    world = World.settled(replicas)
    world.now -= ahead
    return world


@pytest.mark.parametrize("ahead", [HOUR, 12 * HOUR, 2 * 365 * 24 * HOUR], ids=["an hour", "half a day", "two years"])
def test_ca_and_leaf_from_the_future_are_reported_and_replaced(
    ahead: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    world = put_back(ahead)
    source, early = world.replica.source, world.secret.data["tls.crt"]
    world.replica.look()
    leaf = source._leaf
    assert leaf is not None
    assert valid_from(leaf.pair.certificate) <= world.now, "the leaf is renewed at once"
    told = f"the CA is valid only from {valid_from(early):%Y-%m-%dT%H:%M:%SZ} on: another one signs"
    assert told in (source.remark or "")
    assert world.replica.metric(FAILURES) == 1
    assert [vars(record)["error"].startswith(told) for record in caplog.records if record.levelno >= logging.ERROR] == [
        True
    ]
    world.pass_minutes(7)
    signing = world.secret.authorities.signing
    assert signing is not None
    assert valid_from(signing.pair.certificate) <= world.now
    assert world.replica.issuer == signing.pair.certificate != early
    assert (source.problem, source.remark) == (None, None)
    world.pass_minutes(30)
    assert set(world.validating.bundles) == {signing.pair.certificate}, "nothing of the other CA is left"


def test_replica_that_starts_with_a_ca_from_the_future_serves_and_replaces_it() -> None:
    world = put_back(12 * HOUR)
    world.restart(0)
    world.replica.look()
    assert world.replica.source.context is not None
    assert world.replica.source.problem is None, "API servers accept it if only this clock is wrong"
    world.pass_minutes(7)
    assert valid_from(world.secret.data["tls.crt"]) <= world.now
    assert world.replica.source.remark is None


def test_leaf_from_the_future_that_cannot_be_renewed_is_a_problem() -> None:
    world = put_back(HOUR)
    world.secret.broken = "GET: no answer"
    world.replica.look()
    leaf = world.replica.source._leaf
    assert leaf is not None
    begins = f"{valid_from(leaf.pair.certificate):%Y-%m-%dT%H:%M:%SZ}"
    assert (
        world.replica.source.problem == f"the certificate is valid only from {begins} on, not renewed: GET: no answer"
    )


@pytest.mark.parametrize("ahead", [4 * MINUTE, 5 * MINUTE])
def test_clock_that_was_ahead_by_no_more_than_certificates_are_backdated_changes_nothing(ahead: timedelta) -> None:
    world = World()
    world.replica.look()
    world.now = START - ahead
    version, context = world.secret.version, world.replica.source.context
    world.replica.look()
    assert (world.secret.version, world.replica.source.context) == (version, context)
    assert world.replica.source.remark is None


def signing_cas(world: World, minutes: int) -> list[bytes]:
    """Those that sign in that time, in their order."""
    seen: list[bytes] = []
    for _ in range(minutes):
        world.pass_minutes(1)
        found = world.secret.data["tls.crt"]
        if not seen or seen[-1] != found:
            seen.append(found)
    return seen


def with_clocks(*behind: timedelta) -> World:
    """Settled by one whose clock is right; then the others start."""
    world = World.settled(1)
    world.replicas += [Replica(world, each) for each in behind]
    return world


def test_replica_a_little_behind_waits_until_the_ca_is_valid_for_it_too() -> None:
    world = World()
    world.replica.look()
    world.replicas.append(Replica(world, 8 * MINUTE))
    world.replicas[1].look()
    assert "compare the clocks of the nodes" in (world.replicas[1].source.remark or "")
    assert len(signing_cas(world, 20)) == 1
    assert world.replicas[1].source.remark is None


def test_replica_behind_makes_one_ca_that_all_accept_and_no_call_fails() -> None:
    world = World()
    world.replica.look()
    world.replicas.append(Replica(world, 18 * MINUTE))
    before = world.secret.data["tls.crt"]
    for _ in range(25):
        world.pass_minutes(1)
        world.check()
    after = world.secret.data["tls.crt"]
    assert signing_cas(world, 15) == [after] != [before]
    assert [replica.source.remark for replica in world.replicas] == [None, None]


@pytest.mark.parametrize("behind", [80 * MINUTE, 24 * HOUR, 10 * 365 * 24 * HOUR], ids=["80 min", "a day", "ten years"])
def test_replica_behind_by_the_life_of_a_ca_does_not_replace_each_one(behind: timedelta) -> None:
    """What it makes is due, or has ended, in the eyes of the other, which makes one that is early in its eyes."""
    world = with_clocks(behind)
    assert len(signing_cas(world, 40)) <= 3
    versions = world.secret.version, world.validating.version, world.mutating.version
    remark = world.replicas[1].source.remark or ""
    assert remark.endswith("so its own clock may be behind: compare the clocks of the nodes")
    world.pass_minutes(5)
    assert (world.secret.version, world.validating.version, world.mutating.version) == versions, "nothing is written"
    right = world.replicas[0]
    assert (right.source.problem, right.source.remark) == (None, None)
    world.replicas.pop()
    for _ in range(60):
        world.pass_minutes(1)
        world.check()


def test_two_replicas_behind_by_different_times_agree() -> None:
    world = with_clocks(20 * MINUTE, 40 * MINUTE)
    signing_cas(world, 40)
    assert len(signing_cas(world, 5)) == 1
    assert SETTINGS.ca_lifetime > 85 * MINUTE, "no CA was due meanwhile"
