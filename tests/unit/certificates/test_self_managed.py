"""One replica that looks after its own certificates: what it serves, what it tells, and what it leaves alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from tests.unit.certificates import odd
from tests.unit.certificates.world import MINUTE, SETTINGS, START, World
from webhook.api.meta import format_time
from webhook.certificates.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILURES = "reload_failures_total"


def test_first_replica_makes_a_ca_and_has_it_trusted() -> None:
    world = World()
    world.replica.look()
    signing = world.secret.authorities.signing
    assert signing is not None
    assert (signing.made, signing.ends) == (START, START + 100 * MINUTE)
    assert set(world.secret.data) == {"tls.crt", "tls.key", "ca.crt"}
    assert world.validating.bundles == world.mutating.bundles == (signing.pair.certificate,) * 2
    assert world.secret.data["ca.crt"] == signing.pair.certificate


def test_leaf_has_all_names_and_its_key_is_stored_nowhere() -> None:
    world = World.settled()
    leaf = world.replica.source._leaf
    assert leaf is not None
    certificate = x509.load_pem_x509_certificate(leaf.pair.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["webhook.ns.svc", "localhost"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(leaf.issuer))
    assert leaf.pair.key not in world.secret.data.values()
    assert "PRIVATE" not in repr(leaf)
    assert repr(leaf.pair.key) not in repr(leaf)


def test_leaf_never_outlives_its_ca() -> None:
    world = World.settled()
    world.mutating.broken = "GET: 403"  # so nothing can follow it
    for _ in range(92):
        world.pass_minutes(1)
        signing = world.secret.authorities.signing
        assert signing is not None
        assert world.replica.ends <= signing.ends
    assert (
        world.replica.source.problem
        == f"the certificate expired at {format_time(world.replica.ends)} and was not renewed: GET: 403"
    )


GARBLED = {
    "half a pair": ({"tls.crt": b"", "next.crt": b""}, "tls.crt: must come with tls.key"),
    "no PEM": ({"tls.key": b"key"}, "tls.crt and tls.key: the key cannot be read: "),
    "a time that is none": ({"old.until": b"tomorrow"}, "old.until: must be a time such as 2026-01-31T12:00:00Z"),
    "old certificates that are none": ({"old.crt": b"xyz"}, "old.crt: the certificates cannot be read: "),
}


@pytest.mark.parametrize("fault", GARBLED)
def test_garbled_secret_is_left_alone_and_told_while_service_goes_on(fault: str) -> None:
    garbage, reason = GARBLED[fault]
    world = World.settled()
    good = world.secret.data
    world.secret.put({**good, **garbage})
    context, source = world.replica.source.context, world.replica.source
    world.pass_minutes(3)
    assert world.secret.data == {**good, **garbage}
    assert (source.context, source.problem) == (context, None)
    assert (source.remark or "").startswith(f"3 failures in a row to renew the certificate: {reason}")
    world.secret.put(good)
    world.replica.look()
    assert (source.problem, source.remark) == (None, None)


@pytest.mark.parametrize("field", ["tls.crt", "old.crt"])
@pytest.mark.parametrize("fault", odd.CERTIFICATES)
def test_odd_certificate_in_the_secret_leaves_the_certificate_in_service(field: str, fault: str) -> None:
    """F6: whatever a parser raises. Of an old CA only its end is read, so some of them are no fault there."""
    change, why = odd.CERTIFICATES[fault]
    world = World.settled()
    good = world.secret.data
    world.secret.put({**good, "old.until": b"2026-06-02T00:00:00Z", field: change(good["tls.crt"])})
    context = world.replica.source.context
    world.replica.look()
    assert (world.replica.source.context, world.replica.source.problem) == (context, None)
    failed = world.replica.metric(FAILURES)
    remark = world.replica.source.remark or ""
    assert failed == (1 if field == "tls.crt" or remark else 0)
    assert not failed or why in remark
    world.secret.put(good)
    world.replica.look()
    assert world.replica.source.remark is None


@pytest.mark.parametrize("fault", odd.KEYS)
def test_odd_key_in_the_secret_leaves_the_certificate_in_service(fault: str) -> None:
    """F6."""
    change, why = odd.KEYS[fault]
    world = World.settled()
    world.secret.put({**world.secret.data, "tls.key": change(world.secret.data["tls.key"])})
    context = world.replica.source.context
    world.replica.look()
    assert (world.replica.source.context, world.replica.source.problem) == (context, None)
    assert world.replica.metric(FAILURES) == 1
    assert why in (world.replica.source.remark or "")


def test_ca_from_the_last_second_of_the_calendar_is_a_fault_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """F6: there is no time after it, so none can be added to it."""
    world = World.settled()
    with monkeypatch.context() as patch:
        patch.setattr("webhook.certificates.authority.SKEW", timedelta())
        late = Authority.create("late", now=datetime.max.replace(tzinfo=UTC), lifetime=timedelta())
    world.secret.put({**world.secret.data, "tls.crt": late.certificate, "tls.key": late.pair.key})
    world.replica.look()
    assert world.replica.source.problem is None
    assert "the dates of the certificate cannot be read" in (world.replica.source.remark or "")
    assert world.replica.metric(FAILURES) == 1


def test_pair_that_does_not_match_and_one_that_is_no_ca_are_not_used() -> None:
    world = World.settled()
    good = world.secret.data
    other = Authority.create("other", now=START, lifetime=SETTINGS.ca_lifetime)
    leaf = other.serving_pair(["localhost"], now=START, lifetime=MINUTE)
    for pair, reason in (
        ({"tls.key": other.pair.key}, "the key does not belong to the certificate"),
        ({"tls.crt": leaf.certificate, "tls.key": leaf.key}, "the certificate is not that of a CA"),
        ({"tls.crt": good["tls.crt"] * 2}, "must hold one certificate, and holds 2"),
    ):
        world.secret.put({**good, **pair})
        world.replica.look()
        assert world.replica.source.remark is not None
        assert world.replica.source.remark.endswith(f"tls.crt and tls.key: {reason}")


def test_replica_that_starts_is_not_ready_until_it_has_read_the_secret() -> None:
    assert World().replica.source.problem == "no certificate: not read yet"


def test_replica_that_one_configuration_trusts_is_ready() -> None:
    world = World()
    world.mutating.read_only = "PATCH: 403"
    world.pass_minutes(3)
    assert world.replica.source.problem is None
    assert world.replica.source.remark == "3 failures in a row to renew the certificate: PATCH: 403"


def test_configurations_that_do_not_exist_keep_nobody_from_being_ready() -> None:
    """Deleting them is the way to lift the webhook, and must not end it."""
    world = World()
    world.validating.absent = world.mutating.absent = True
    world.replica.look()
    assert (world.replica.source.problem, world.replica.source.remark) == (None, None)
    world.validating.absent = False
    world.replica.look()
    assert set(world.validating.bundles) == {world.secret.data["tls.crt"]}


@pytest.mark.parametrize("fault", odd.CERTIFICATES)
def test_bundle_with_an_odd_certificate_is_put_right(fault: str) -> None:
    """F6."""
    world = World.settled()
    good = world.validating.bundles
    world.validating.put((odd.CERTIFICATES[fault][0](good[0]), good[1]))
    world.replica.look()
    assert good[0] in world.validating.bundles[0]
    assert (world.replica.source.problem, world.replica.source.remark) == (None, None)


@pytest.mark.parametrize(
    "wiped", [b"", b"\n", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_bundle_that_somebody_overwrote_is_put_back(wiped: bytes) -> None:
    world = World.settled()
    good = world.validating.bundles
    world.validating.put((wiped, good[1]))
    world.replica.look()
    assert world.validating.bundles == good
    assert world.replica.source.problem is None


def test_other_fields_of_the_secret_stay() -> None:
    world = World()
    world.secret.put({"note": b"mine"})
    world.pass_minutes(75)
    assert world.secret.data["note"] == b"mine"


def test_emptied_secret_is_filled_with_a_new_ca_that_is_trusted_before_it_signs() -> None:
    world = World.settled()
    before = world.replica.issuer
    world.empty_secret()
    world.pass_minutes(1)
    assert set(world.secret.data) == {"next.crt", "next.key", "ca.crt", "old.crt", "old.until"}
    assert world.replica.issuer == before
    assert world.validating.bundles[0].count(b"BEGIN") == 2
    world.pass_minutes(6)
    assert world.replica.issuer == world.secret.data["tls.crt"] != before
    world.pass_minutes(30)
    assert set(world.validating.bundles) == {world.secret.data["tls.crt"]}


def test_unreadable_answer_of_one_configuration_keeps_the_other_trusted() -> None:
    world = World.settled()
    world.mutating.broken = "GET: no answer"
    world.validating.put((b"", b""))
    world.replica.look()
    assert set(world.validating.bundles) == {world.secret.data["tls.crt"]}
    assert world.replica.source.remark == "1 failures in a row to renew the certificate: GET: no answer"


def test_keys_are_never_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "webhook")
    world = World.settled()
    keys = [value.decode() for name, value in world.secret.data.items() if name.endswith(".key")]
    world.secret.put({**world.secret.data, "tls.crt": b"broken"})
    world.pass_minutes(2)
    assert keys
    assert caplog.records
    for record in caplog.records:
        told = str(vars(record))
        assert not any(line in told for key in keys for line in key.splitlines() if not line.startswith("-----"))


def test_client_ca_is_part_of_the_context_and_watched(tmp_path: Path) -> None:
    world = World()
    clients = tmp_path / "clients.crt"
    first, second = (Authority.create(name, now=START, lifetime=MINUTE).certificate for name in "ab")
    clients.write_bytes(first)
    world.replica.source._settings = replace(SETTINGS, client_ca_file=clients)
    world.replica.look()
    context = world.replica.source.context
    assert context is not None
    assert context.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(first.decode())]
    clients.write_bytes(second)
    world.replica.look()
    context = world.replica.source.context
    assert context is not None
    assert context.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(second.decode())]
    clients.write_bytes(b"nothing")
    world.replica.look()
    assert world.replica.source.context is context
    assert (world.replica.source.remark or "").startswith("1 failures in a row to renew the certificate: the client CA")


def open_files() -> Iterator[str]:
    """What this process has open; of that, connections of other tests' servers end at any time."""
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            yield str(link.readlink())


@pytest.mark.parametrize("memory", [True, False], ids=["Linux", "elsewhere"])
def test_pair_is_loaded_without_leaving_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, memory: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not memory:
        monkeypatch.delattr(os, "memfd_create")
    world = World()
    world.replica.look()
    assert world.replica.source.context is not None
    assert list(tmp_path.iterdir()) == []
    assert not [target for target in open_files() if "pair.pem" in target]


def test_source_runs_until_it_is_cancelled() -> None:
    async def scenario() -> None:
        world = World()
        source = world.replica.source
        running = asyncio.create_task(source.run())
        await source.loaded()
        first = source.context
        world.now += SETTINGS.leaf_lifetime
        async with asyncio.timeout(60):
            while source.context is first:  # noqa: ASYNC110 -- any look may bring it
                await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    settings = replace(SETTINGS, leaf_lifetime=timedelta(seconds=0.3))
    assert settings.poll_seconds == pytest.approx(0.01)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.unit.certificates.world.SETTINGS", settings)
        asyncio.run(scenario())
