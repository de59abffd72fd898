"""Bytes of good certificates and keys, changed in any place: no parser ends a process with an error of its own."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.certificates.odd import der_of, pem_of
from webhook.certificates.authority import Authority
from webhook.certificates.contexts import client_ca_text
from webhook.certificates.parsing import Unusable
from webhook.certificates.rotation import Garbled, authorities_in, certificates_in
from webhook.certificates.settings import FileSettings
from webhook.certificates.source import FileSource, usable_leaf
from webhook.cluster.client.connections import NoHandshake, Untrusted, certificate_end
from webhook.cluster.client.credentials import InCluster
from webhook.cluster.client.errors import NoCredentials
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

NOW: Final = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
DAY: Final = timedelta(days=1)
CA: Final = Authority.create("test CA", now=NOW, lifetime=30 * DAY)
LEAF: Final = CA.serving_pair(["localhost", "127.0.0.1"], now=NOW, lifetime=DAY)


@st.composite
def changed(draw: st.DrawFn, der: bytes) -> bytes:
    """Some bytes replaced, removed or added."""
    found = bytearray(der)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(found) - 1))
        found[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(found)


CA_CERTIFICATES: Final = changed(der_of(CA.certificate)).map(pem_of)
CERTIFICATES: Final = changed(der_of(LEAF.certificate)).map(pem_of) | CA_CERTIFICATES
LEAF_KEYS: Final = changed(der_of(LEAF.key)).map(lambda der: pem_of(der, "PRIVATE KEY"))
CA_KEYS: Final = changed(der_of(CA.pair.key)).map(lambda der: pem_of(der, "PRIVATE KEY"))


def refusal_of(use: Callable[[], object]) -> str | None:
    """The text of our own error, or None if there is none; any other error is the test's failure."""
    try:
        use()
    except (Unusable, Garbled, NoCredentials) as error:
        return str(error)
    return None


@given(CERTIFICATES | st.just(LEAF.certificate), LEAF_KEYS | st.just(LEAF.key))
def test_pair_is_used_or_refused_with_a_reason(certificate: bytes, key: bytes) -> None:
    refusal = refusal_of(lambda: usable_leaf(certificate, key, NOW))
    assert refusal is None or refusal.startswith(("the certificate ", "the key "))


@given(CERTIFICATES)
def test_bundle_is_read_or_refused(certificate: bytes) -> None:
    for parse in (certificates_in, client_ca_text):
        refusal = refusal_of(functools.partial(parse, certificate))
        assert refusal is None or "cannot be read: " in refusal


@given(CA_CERTIFICATES | st.just(CA.certificate), CA_KEYS | st.just(CA.pair.key), CERTIFICATES)
def test_secret_is_read_or_refused_and_a_ca_that_was_read_can_sign(certificate: bytes, key: bytes, old: bytes) -> None:
    data = {"next.crt": certificate, "next.key": key, "old.crt": old}
    refusal = refusal_of(lambda: authorities_in(data))
    assert refusal is None or refusal.startswith(("next.crt and next.key: ", "old.crt: "))
    signer = authorities_in(data).next if refusal is None else None
    if signer is not None:
        assert Authority.load(signer.pair).serving_pair(["localhost"], now=NOW, lifetime=DAY).certificate


@given(CERTIFICATES, LEAF_KEYS | st.just(LEAF.key))
def test_running_source_keeps_the_last_good_pair(certificate: bytes, key: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = FileSettings(
            certificate_file=folder / "tls.crt", key_file=folder / "tls.key", client_ca_file=folder / "ca.crt"
        )
        metrics = Metrics(version="0", resources=())
        source = FileSource(settings, now=lambda: NOW, metrics=metrics)
        for good in ((LEAF.certificate, LEAF.key, CA.certificate), (certificate, key, certificate)):
            for file, content in zip(("tls.crt", "tls.key", "ca.crt"), good, strict=True):
                (folder / file).write_bytes(content)
            before = source.context
            asyncio.run(source.look())
    failures = metrics.registry.get_sample_value("device_taint_webhook_certificate_reload_failures_total")
    assert source.problem is None
    assert failures == (1 if source.context is before else 0)


@given(CERTIFICATES)
def test_ca_of_a_service_account_is_used_or_refused(certificate: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "token").write_text("token")
        (Path(name) / "ca.crt").write_bytes(certificate)
        pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        refusal = refusal_of(lambda: asyncio.run(InCluster(pod, Path(name)).load()))
    assert refusal is None or refusal.startswith(f"{name}/ca.crt: cannot be read: ")


@given(CERTIFICATES | st.binary(max_size=40))
def test_bundle_of_a_configuration_is_used_or_refused_by_doctor(bundle: bytes) -> None:
    """Nothing listens at port 0, so a bundle that can be read leads to no handshake."""
    with pytest.raises((Untrusted, NoHandshake)):
        asyncio.run(certificate_end("127.0.0.1", 0, "localhost", bundle, 5.0))
