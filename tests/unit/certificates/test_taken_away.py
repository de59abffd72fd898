"""What operators take away on purpose or by mistake: a CA, the Secret and every caBundle at once, the clients' CA."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.unit.certificates.world import MINUTE, SETTINGS, START, Replica, World
from webhook.certificates.authority import Authority
from webhook.certificates.rotation import certificates_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def bundles(world: World) -> list[bytes]:
    return [*world.validating.bundles, *world.mutating.bundles]


def emptied(world: World) -> None:
    """`kubectl replace` of the file that was applied."""
    world.empty_secret()
    for each in (world.validating, world.mutating):
        each.put((b"", b""))


def of_another_time(world: World) -> None:
    """A backup of all of them."""
    backup = World.settled()
    world.secret.put(backup.secret.data)
    world.validating.put(backup.validating.bundles)
    world.mutating.put(backup.mutating.bundles)


@pytest.mark.parametrize("change", [emptied, of_another_time])
def test_replicas_that_no_bundle_trusts_do_not_wait_to_be_signed_by_the_ca_that_all_trust(
    change: Callable[[World], None],
) -> None:
    """Else no call succeeds until that CA has settled: ten minutes."""
    world = World.settled(3)
    change(world)
    world.pass_minutes(2)
    assert {replica.source.problem for replica in world.replicas} == {None}
    for replica in world.replicas:
        assert all(replica.issuer in certificates_in(each) for each in bundles(world))


def test_ca_is_trusted_nowhere_once_it_is_taken_away_while_no_replica_runs() -> None:
    """The urgent way of certs/README.md: replicas that run put the CA back, as others may serve what it signed."""
    world = World.settled(3)
    signing = world.secret.authorities.signing
    assert signing is not None
    world.replicas.clear()
    emptied(world)
    world.replicas.extend(Replica(world) for _ in range(3))
    for _ in range(30):
        world.pass_minutes(1)
        assert signing.pair.certificate not in world.secret.authorities.known()
        assert not any(signing.pair.certificate in certificates_in(each) for each in bundles(world))
    assert {replica.source.problem for replica in world.replicas} == {None}


@pytest.mark.parametrize("left", [b"half a certificate", None])
def test_bad_client_ca_keeps_neither_leaf_nor_bundles_from_being_looked_after(
    tmp_path: Path, left: bytes | None
) -> None:
    world, clients = World(), tmp_path / "clients.crt"
    good = Authority.create("clients", now=START, lifetime=MINUTE).certificate
    clients.write_bytes(good)
    world.replica.source._settings = replace(SETTINGS, client_ca_file=clients)
    world.pass_minutes(10)
    if left is None:
        clients.unlink()
    else:
        clients.write_bytes(left)
    world.mutating.put((b"", b""))
    world.pass_minutes(1)
    assert set(world.mutating.bundles) == {world.replica.issuer}
    world.pass_minutes(30)
    assert world.replica.source.problem is None
    context = world.replica.source.context
    assert context is not None
    assert context.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(good.decode())]
    assert (world.replica.source.remark or "").startswith("31 failures in a row to renew the certificate: ")
    clients.write_bytes(good)
    world.pass_minutes(1)
    assert world.replica.source.remark is None


def test_replica_serves_nothing_before_it_has_read_a_client_ca(tmp_path: Path) -> None:
    world = World()
    world.replica.source._settings = replace(SETTINGS, client_ca_file=tmp_path / "none.crt")
    world.pass_minutes(2)
    assert world.replica.source.context is None
