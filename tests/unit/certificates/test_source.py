"""The file source: which pairs it takes, which it keeps out, and when it says that something is wrong."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.unit.certificates import odd
from webhook.certificates.authority import Authority, Pair
from webhook.certificates.contexts import serving_context
from webhook.certificates.settings import FileSettings
from webhook.certificates.source import FileSource
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

START = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
FAILURES = "device_taint_webhook_certificate_reload_failures_total"
NOT_BEFORE = "device_taint_webhook_certificate_not_before_timestamp_seconds"
EXPIRY = "device_taint_webhook_certificate_expiry_timestamp_seconds"


@dataclass
class Bench:
    """A source over two files, with a clock that stands still until it is moved."""

    folder: Path
    now: datetime = START
    client_ca: bool = False

    def __post_init__(self) -> None:
        self.authority = Authority.create("test CA", now=START, lifetime=30 * DAY)
        self.metrics = Metrics(version="0", resources=())
        settings = FileSettings(
            certificate_file=self.folder / "tls.crt",
            key_file=self.folder / "tls.key",
            client_ca_file=self.folder / "ca.crt" if self.client_ca else None,
            poll_seconds=0.001,
            first_poll_seconds=0.001,
        )
        self.source = FileSource(settings, now=lambda: self.now, metrics=self.metrics, clock=self.seconds)

    def seconds(self) -> float:
        return self.now.timestamp()

    def pair(self, *, lifetime: timedelta = 10 * DAY, made: datetime = START) -> Pair:
        return self.authority.serving_pair(["localhost"], now=made, lifetime=lifetime)

    def write(self, pair: Pair) -> Pair:
        (self.folder / "tls.crt").write_bytes(pair.certificate)
        (self.folder / "tls.key").write_bytes(pair.key)
        return pair

    def poll(self) -> None:
        """One look, which waits for nothing."""
        with pytest.raises(StopIteration):
            self.source.look().send(None)

    def loaded(self) -> ssl.SSLContext:
        """The context after a first good pair."""
        self.write(self.pair())
        self.poll()
        assert self.source.context is not None
        return self.source.context

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_good_pair_is_served_and_its_end_is_told(bench: Bench) -> None:
    bench.loaded()
    assert bench.source.problem is None
    assert bench.metric(EXPIRY) == (START + 10 * DAY).timestamp()
    leaf = x509.load_pem_x509_certificate((bench.folder / "tls.crt").read_bytes())
    assert bench.metric(NOT_BEFORE) == leaf.not_valid_before_utc.timestamp()


def test_unchanged_files_need_no_new_context(bench: Bench) -> None:
    context = bench.loaded()
    bench.poll()
    assert bench.source.context is context


def test_changed_pair_gets_a_context_of_its_own(bench: Bench) -> None:
    context = bench.loaded()
    bench.write(bench.pair())
    bench.poll()
    assert bench.source.context not in (None, context)


def with_password(pair: Pair) -> Pair:
    key = load_pem_private_key(pair.key, None)
    return Pair(
        pair.certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )


UNFIT: dict[str, tuple[Callable[[Bench, Pair], Pair], str]] = {
    "only the certificate is new": (
        lambda bench, old: Pair(bench.pair().certificate, old.key),
        "the key does not belong to the certificate",
    ),
    "only the key is new": (
        lambda bench, old: Pair(old.certificate, bench.pair().key),
        "the key does not belong to the certificate",
    ),
    "half a certificate": (
        lambda bench, _: Pair((new := bench.pair()).certificate[:300], new.key),
        "the certificate cannot be read: ",
    ),
    "empty certificate": (lambda bench, _: Pair(b"", bench.pair().key), "the certificate cannot be read: "),
    "half a key": (
        lambda bench, _: Pair((new := bench.pair()).certificate, new.key[:100]),
        "the key cannot be read: ",
    ),
    "key with a password": (
        lambda bench, _: with_password(bench.pair()),
        "the key cannot be read: Password was not given but private key is encrypted",
    ),
    "not valid yet": (
        lambda bench, _: bench.pair(made=START + DAY),
        "the certificate is valid only from 2026-06-02T11:55:00Z on",
    ),
    "ended": (
        lambda bench, _: bench.pair(made=START - 9 * DAY, lifetime=9 * DAY),
        "the certificate expired at 2026-06-01T12:00:00Z",
    ),
    "broken intermediate": (
        lambda bench, _: Pair(
            (new := bench.pair()).certificate + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            new.key,
        ),
        "the certificate cannot be read: ",
    ),
}


def with_certificate(change: Callable[[bytes], bytes]) -> Callable[[Bench, Pair], Pair]:
    return lambda bench, _: Pair(change((new := bench.pair()).certificate), new.key)


def with_key(change: Callable[[bytes], bytes]) -> Callable[[Bench, Pair], Pair]:
    return lambda bench, _: Pair((new := bench.pair()).certificate, change(new.key))


UNFIT |= {f"certificate: {name}": (with_certificate(change), why) for name, (change, why) in odd.CERTIFICATES.items()}
UNFIT |= {f"key: {name}": (with_key(change), why) for name, (change, why) in odd.KEYS.items()}


@pytest.mark.parametrize("fault", UNFIT)
def test_unfit_pair_is_kept_out_and_the_old_one_served_until_it_is_mended(
    bench: Bench, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F6: whatever a parser raises."""
    make, reason = UNFIT[fault]
    context = bench.loaded()
    old = Pair((bench.folder / "tls.crt").read_bytes(), (bench.folder / "tls.key").read_bytes())
    bench.write(make(bench, old))
    for _ in range(12):
        assert bench.source.remark is None
        bench.poll()
    assert (bench.source.context, bench.source.problem) == (context, None)
    assert bench.metric(FAILURES) == 12
    told = bench.source.remark or ""
    assert told.startswith("12 failures in a row to load the changed certificate: ")
    assert reason in told
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage() == "certificate not loaded"
    assert reason in vars(record)["error"]
    bench.write(bench.pair())
    bench.poll()
    assert bench.source.context is not context
    assert (bench.source.problem, bench.source.remark) == (None, None)


def test_fault_that_lasts_is_logged_every_five_minutes(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """M7: the runbook looks at the log of the last hour."""
    bench.loaded()
    (bench.folder / "tls.key").unlink()
    for _ in range(61):
        bench.poll()
        bench.now += timedelta(seconds=10)
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    told = [(vars(record)["attempt"], vars(record)["sinceSeconds"]) for record in records]
    assert told == [(1, 0.0), (31, 300.0), (61, 600.0)]


def test_missing_file_is_named(bench: Bench) -> None:
    bench.poll()
    path = bench.folder / "tls.crt"
    assert bench.source.problem == f"no certificate: [Errno 2] No such file or directory: '{path}'"
    assert bench.source.context is None


def test_files_that_change_while_they_are_read_are_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair that was checked must be the pair that is served, and OpenSSL reads the files itself."""
    context = bench.loaded()

    def build_and_change(certificate_file: Path, key_file: Path, client_ca: bytes | None, *_: object) -> ssl.SSLContext:
        built = serving_context(certificate_file, key_file, client_ca)
        bench.write(bench.pair())
        return built

    with monkeypatch.context() as patch:
        patch.setattr("webhook.certificates.source.serving_context", build_and_change)
        bench.write(bench.pair())
        bench.poll()
        assert bench.source.context is context
    bench.poll()
    assert bench.source.context is not context


def test_twelve_failures_in_a_row_are_told_and_keep_a_good_certificate_in_service(bench: Bench) -> None:
    """M8: all replicas read the same Secret, so all of them would leave at once."""
    bench.loaded()
    old = (bench.folder / "tls.key").read_bytes()
    (bench.folder / "tls.key").unlink()
    remarks = []
    for _ in range(12):
        bench.poll()
        remarks.append(bench.source.remark or "")
        assert bench.source.problem is None
    assert remarks[:11] == [""] * 11
    assert remarks[11].startswith("12 failures in a row to load the changed certificate: [Errno 2]")
    (bench.folder / "tls.key").write_bytes(old)
    bench.poll()
    assert bench.source.remark is None


@pytest.mark.parametrize(
    ("lifetime", "before_end", "remark"),
    [
        pytest.param(10 * DAY, timedelta(minutes=61), None, id="an hour and a minute left"),
        pytest.param(10 * DAY, timedelta(minutes=60), "expires", id="an hour left"),
        pytest.param(timedelta(hours=2), timedelta(minutes=13), None, id="short life, more than a tenth left"),
        pytest.param(timedelta(hours=2), timedelta(minutes=12), "expires", id="short life, a tenth left"),
        pytest.param(10 * DAY, timedelta(), "expired", id="at its end"),
    ],
)
def test_certificate_that_nears_its_end_is_told_and_only_its_end_is_a_problem(
    bench: Bench, lifetime: timedelta, before_end: timedelta, remark: str | None
) -> None:
    """M8: an hour before the end it still serves."""
    bench.write(bench.pair(lifetime=lifetime))
    bench.poll()
    bench.now = START + lifetime - before_end
    bench.poll()
    end = (START + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    expected = remark and f"the certificate {remark} at {end} and was not replaced: files unchanged"
    assert bench.source.remark == expected
    assert bench.source.problem == (expected if remark == "expired" else None)


def test_client_ca_is_part_of_the_context(tmp_path: Path) -> None:
    bench = Bench(tmp_path, client_ca=True)
    (tmp_path / "ca.crt").write_bytes("# café, übrigens\n".encode() + bench.authority.certificate)
    context = bench.loaded()
    [ca] = context.get_ca_certs(binary_form=True)
    assert ca == x509.load_pem_x509_certificate(bench.authority.certificate).public_bytes(Encoding.DER)
    (tmp_path / "ca.crt").write_bytes(b"nothing")
    bench.poll()
    assert bench.source.context is context
    assert bench.metric(FAILURES) == 1


@pytest.mark.parametrize("fault", odd.CERTIFICATES)
def test_odd_client_ca_never_replaces_the_one_in_use(tmp_path: Path, fault: str) -> None:
    """F6: it is refused, or it is one that no client can present; either way the source goes on."""
    bench = Bench(tmp_path, client_ca=True)
    change, _ = odd.CERTIFICATES[fault]
    (tmp_path / "ca.crt").write_bytes(bench.authority.certificate)
    context = bench.loaded()
    (tmp_path / "ca.crt").write_bytes(change(bench.authority.certificate))
    bench.poll()
    refused = bench.source.context is context
    assert bench.metric(FAILURES) == (1 if refused else 0)
    assert bench.source.problem is None


def test_source_waits_for_files_and_then_goes_on_polling(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: asyncio.Queue[ssl.SSLContext | None] = asyncio.Queue()
    look = bench.source.look

    async def look_and_tell() -> None:
        await look()
        seen.put_nowait(bench.source.context)

    async def scenario() -> None:
        running = asyncio.create_task(bench.source.run())
        assert await seen.get() is None
        bench.write(bench.pair())
        await bench.source.loaded()
        first = bench.source.context
        bench.write(bench.pair())
        while await seen.get() in (None, first):
            pass
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    monkeypatch.setattr(bench.source, "look", look_and_tell)
    asyncio.run(asyncio.wait_for(scenario(), 60))
