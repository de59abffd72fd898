"""The file source: which pairs it takes and which it keeps out; `faults.txt` has what it tells, and when."""

from __future__ import annotations

import asyncio
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
from tests.unit.certificates.faults import Files
from webhook.certificates.authority import Pair
from webhook.certificates.contexts import serving_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

FAILURES = "device_taint_webhook_certificate_reload_failures_total"


class Bench(Files):
    """With a good pair in service, unless it is to wait for one."""

    def __init__(self, folder: Path, *, client_ca: bool = False) -> None:
        super().__init__(folder, client_ca=client_ca)
        self.renew()
        self.poll()

    def poll(self) -> None:
        """One look, which waits for nothing."""
        with pytest.raises(StopIteration):
            self.source.look().send(None)

    @property
    def context(self) -> ssl.SSLContext:
        assert self.source.context is not None
        return self.source.context

    @property
    def failures(self) -> float | None:
        return self.metrics.registry.get_sample_value(FAILURES)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def with_password(pem: bytes) -> bytes:
    key = load_pem_private_key(pem, None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


EMPTY_BLOCK = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
CERTIFICATES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "broken intermediate": (lambda pem: pem + EMPTY_BLOCK, "the certificate cannot be read: "),
    **odd.CERTIFICATES,
}
KEYS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "half a key": (lambda pem: pem[:100], "the key cannot be read: "),
    "key with a password": (
        with_password,
        "the key cannot be read: Password was not given but private key is encrypted",
    ),
    **odd.KEYS,
}
UNFIT = [
    *[pytest.param(change, None, why, id=f"certificate: {name}") for name, (change, why) in CERTIFICATES.items()],
    *[pytest.param(None, change, why, id=f"key: {name}") for name, (change, why) in KEYS.items()],
]


@pytest.mark.parametrize(("certificate", "key", "reason"), UNFIT)
def test_pair_that_a_parser_refuses_is_kept_out_and_the_old_one_served_until_it_is_mended(
    bench: Bench, certificate: Callable[[bytes], bytes] | None, key: Callable[[bytes], bytes] | None, reason: str
) -> None:
    """F6: whatever a parser raises."""
    context, new = bench.context, bench.pair()
    bench.put(Pair(certificate(new.certificate) if certificate else new.certificate, key(new.key) if key else new.key))
    for _ in range(12):
        assert bench.source.remark is None
        bench.poll()
    assert (bench.context, bench.source.problem, bench.failures) == (context, None, 12)
    told = bench.source.remark or ""
    assert told.startswith("12 failures in a row to load the changed certificate: ")
    assert reason in told
    bench.renew()
    bench.poll()
    assert bench.context is not context
    assert (bench.source.problem, bench.source.remark) == (None, None)


def test_files_that_change_while_they_are_read_are_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair that was checked must be the pair that is served, and OpenSSL reads the files itself."""
    context = bench.context

    def build_and_change(certificate_file: Path, key_file: Path, client_ca: bytes | None, *_: object) -> ssl.SSLContext:
        built = serving_context(certificate_file, key_file, client_ca)
        bench.renew()
        return built

    with monkeypatch.context() as patch:
        patch.setattr("webhook.certificates.source.serving_context", build_and_change)
        bench.renew()
        bench.poll()
        assert bench.context is context
    bench.poll()
    assert bench.context is not context


def test_client_ca_is_part_of_the_context(tmp_path: Path) -> None:
    bench = Bench(tmp_path, client_ca=True)
    bench.write(ca="# café, übrigens\n".encode() + bench.authority.certificate)
    bench.poll()
    [ca] = bench.context.get_ca_certs(binary_form=True)
    assert ca == x509.load_pem_x509_certificate(bench.authority.certificate).public_bytes(Encoding.DER)


@pytest.mark.parametrize("fault", odd.CERTIFICATES)
def test_odd_client_ca_never_replaces_the_one_in_use(tmp_path: Path, fault: str) -> None:
    """F6: it is refused, or it is one that no client can present; either way the source goes on."""
    bench = Bench(tmp_path, client_ca=True)
    context = bench.context
    bench.write(ca=odd.CERTIFICATES[fault][0](bench.authority.certificate))
    bench.poll()
    assert bench.failures == (1 if bench.context is context else 0)
    assert bench.source.problem is None


def test_who_waits_for_the_first_pair_goes_on_once_it_is_there(tmp_path: Path) -> None:
    files = Files(tmp_path)

    async def scenario() -> None:
        waiting = asyncio.create_task(files.source.loaded())
        await files.source.look()
        assert not waiting.done()
        files.renew()
        await files.source.look()
        await waiting

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert files.source.context is not None
