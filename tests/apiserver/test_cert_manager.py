"""Component cert-manager with cert-manager's own controllers: issued, injected, renewed and replaced under load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.apiserver.issued import (
    CA,
    CA_SECRET,
    LEAF,
    LEAF_SECRET,
    CertManager,
    Issued,
    Kubelet,
    certificate_url,
    condition,
    documented,
    issuer_url,
    run_documented,
)
from tests.apiserver.planes import own_plane
from tests.apiserver.replicas import CONFIGURATIONS, NAMESPACE, bundles
from tests.apiserver.traffic import FLOOR, PER_SECOND, Load
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

pytestmark = pytest.mark.slow

REQUESTS: Final = path("cert-manager.io/v1", "certificaterequests", namespace=NAMESPACE)
SHORT: Final = {"spec": {"duration": "270s", "renewBefore": "180s"}}
"""Renewed every 90 s, and what is done in between has that time.

cert-manager's own webhook would refuse it (an hour at least), but it is not installed.
"""
TAKEN_UP_SECONDS: Final = 80
"""For each replica to show a certificate that is in the Secret: up to 3 s on the way, and looked at every 10."""


@pytest.fixture(scope="module")
def cert_manager(request: pytest.FixtureRequest) -> Iterator[CertManager]:
    """In a control plane of its own; nothing is installed there but its kinds."""
    with own_plane(request, "cert-manager") as plane, CertManager(plane) as controllers:
        controllers.install_kinds()
        yield controllers


@pytest.fixture(scope="module")
def replicas(cert_manager: CertManager) -> Iterator[Issued]:
    """Three, which start once the Secret is there."""
    plane = cert_manager.plane
    with Kubelet(plane.client) as kubelet, Issued(plane, kubelet).serving(3) as three:
        yield three
        three.keep_logs = plane.keep_logs


def all_bundles(replicas: Issued) -> set[bytes]:
    return {each for webhooks in bundles(replicas.plane) for each in webhooks}


def trusted(replicas: Issued) -> list[x509.Certificate]:
    """The caBundle, which is one and the same in every entry."""
    (found,) = all_bundles(replicas)
    return x509.load_pem_x509_certificates(found)


def names(certificate: x509.Certificate) -> list[str]:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    )


def test_an_apply_is_all_it_takes(replicas: Issued) -> None:
    """Everything issued and injected by cert-manager, and called by the API server by the Service's name."""
    wait_until(replicas.called, "the webhook is called")
    leaf, ca = replicas.stored(LEAF_SECRET), replicas.stored(CA_SECRET)
    leaf.verify_directly_issued_by(ca)
    ca.verify_directly_issued_by(ca)
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert names(leaf) == [
        f"device-taint-webhook.{NAMESPACE}.svc",
        f"device-taint-webhook.{NAMESPACE}.svc.cluster.local",
        f"device-taint-webhook.{NAMESPACE}",
        "device-taint-webhook",
    ]
    assert trusted(replicas) == [ca]
    wait_until(lambda: replicas.all_serve(leaf), "every replica has it")
    wait_until(lambda: [each.ready() for each in replicas.running] == [True, True, True], "all are ready")


@pytest.mark.parametrize(
    ("name", "life", "renewed_after"),
    [(LEAF, timedelta(days=90), timedelta(days=60)), (CA, timedelta(days=365), timedelta(days=365) * 2 / 3)],
    ids=["the serving certificate at 60 of 90 days", "the CA at two thirds of a year"],
)
def test_renewal_is_planned_as_documented(
    replicas: Issued, name: str, life: timedelta, renewed_after: timedelta
) -> None:
    url = certificate_url(name)
    wait_until(lambda: condition(replicas.client.get(url).object, "Ready") == "True", f"{name} is issued")
    status = replicas.client.get(url).object["status"]
    begin, renewal, end = (datetime.fromisoformat(status[each]) for each in ("notBefore", "renewalTime", "notAfter"))
    assert (end - begin, renewal - begin) == (life, renewed_after)


def test_a_wiped_bundle_is_put_back(replicas: Issued) -> None:
    for url in CONFIGURATIONS:
        webhooks = replicas.client.get(url).object["webhooks"]
        for webhook in webhooks:
            webhook["clientConfig"].pop("caBundle")
        _ = replicas.client.patch(url, {"webhooks": webhooks}).object
    ca = replicas.stored(CA_SECRET)
    wait_until(lambda: all_bundles(replicas) == {ca.public_bytes(Encoding.PEM)}, "caBundle is back")
    wait_until(replicas.called, "the webhook is called")


def follow(replicas: Issued, before: x509.Certificate, what: str, seconds: float) -> x509.Certificate:
    """The next serving certificate, once each replica shows it."""
    wait_until(lambda: newer(replicas, before), what, seconds=seconds)
    leaf = replicas.stored(LEAF_SECRET)
    wait_until(lambda: replicas.all_serve(leaf), f"each replica shows it: {what}", seconds=TAKEN_UP_SECONDS)
    return leaf


def newer(replicas: Issued, before: x509.Certificate) -> bool:
    return replicas.client.get(LEAF_SECRET).ok and replicas.stored(LEAF_SECRET) != before


def go_on(load: Load) -> None:
    """Twenty handshakes more, two seconds' worth."""
    enough = load.handshakes + 20
    wait_until(lambda: load.handshakes >= enough, "load goes on")


@pytest.mark.whole
def test_renewals_and_new_cas_under_load_fail_no_call(replicas: Issued) -> None:
    """Renewed by the clock, under a new CA by the clock, and at once by the documented commands."""
    new_ca, new_leaf, forget = documented("### A new CA now")
    wait_until(replicas.called, "the webhook is called")
    first_ca, shipped = replicas.stored(CA_SECRET), replicas.stored(LEAF_SECRET)
    with replicas.load(per_second=PER_SECOND) as load:
        _ = replicas.client.patch(certificate_url(LEAF), SHORT).object
        short = follow(replicas, shipped, "a short-lived certificate", 180)

        run_documented(replicas.plane, new_ca)
        second_ca = replicas.stored(CA_SECRET)
        assert second_ca != first_ca
        # The trap: nothing else has changed, nor does it until the serving certificate is renewed.
        assert (replicas.stored(LEAF_SECRET), trusted(replicas)) == (short, [first_ca])
        renewed = follow(replicas, short, "renewed by the clock", 300)
        renewed.verify_directly_issued_by(second_ca)
        assert renewed.public_key() != short.public_key()
        assert trusted(replicas) == [first_ca, second_ca]

        run_documented(replicas.plane, new_ca)
        run_documented(replicas.plane, new_leaf)
        last = follow(replicas, renewed, "renewed at once", 180)
        third_ca = replicas.stored(CA_SECRET)
        last.verify_directly_issued_by(third_ca)
        assert trusted(replicas) == [first_ca, second_ca, third_ca]
        run_documented(replicas.plane, forget)
        assert trusted(replicas) == [third_ca]
        go_on(load)
    assert load.lost == (Counter(), Counter())
    assert load.sent > FLOOR
    assert [each.ready() for each in replicas.running] == [True, True, True]
    wait_until(lambda: len(requests_for(replicas, LEAF)) == 1, "older requests are deleted: revisionHistoryLimit")
    print(f"\n{load}")


def requests_for(replicas: Issued, name: str) -> list[dict[str, Any]]:
    found = replicas.client.get(REQUESTS).items
    return [each for each in found if each["metadata"]["annotations"]["cert-manager.io/certificate-name"] == name]


@pytest.mark.whole
def test_controllers_killed_in_mid_issue_finish_it_later(replicas: Issued, cert_manager: CertManager) -> None:
    """Between key and signature: there is a request, and nobody to sign it. Replicas go on with what they have."""
    issuer = replicas.client.get(issuer_url("device-taint-webhook")).object
    # It is still renewed by the clock, perhaps just now.
    wait_until(lambda: replicas.all_serve(replicas.stored(LEAF_SECRET)), "each replica shows the newest")
    before = replicas.stored(LEAF_SECRET)
    _ = replicas.client.delete(issuer_url("device-taint-webhook")).object
    _ = replicas.client.delete(LEAF_SECRET).object
    wait_until(
        lambda: any(condition(each, "Ready") == "False" for each in requests_for(replicas, LEAF)), "a request waits"
    )
    assert condition(replicas.client.get(certificate_url(LEAF)).object, "Issuing") == "True"
    cert_manager.kill()
    assert replicas.called()
    assert replicas.all_serve(before)
    for name in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
        issuer["metadata"].pop(name)
    _ = replicas.client.create(issuer_url(""), issuer).object
    cert_manager.start()
    after = follow(replicas, before, "issued after all", 300)
    after.verify_directly_issued_by(replicas.stored(CA_SECRET))
    assert replicas.called()
    assert [each.ready() for each in replicas.running] == [True, True, True]
