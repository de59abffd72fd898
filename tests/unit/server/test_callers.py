"""Which names a client's certificate must have. Certificates are in the form in which `ssl` gives them."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.server.http import WrongName, check_names

API_SERVERS = frozenset({"kube-apiserver", "api.example.com"})


def certificate(*common_names: str, dns: tuple[str, ...] = (), address: str = "") -> dict[str, Any]:
    subject = ((("organizationName", "kube-apiserver"),), *[(("commonName", name),) for name in common_names])
    alternatives = (*[("DNS", name) for name in dns], *([("IP Address", address)] if address else []))
    return {"subject": subject, "subjectAltName": alternatives, "version": 3}


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(certificate("kube-apiserver"), id="by its common name"),
        pytest.param(certificate("x", dns=("y", "api.example.com")), id="by one of its DNS names"),
        pytest.param({"subject": (), "subjectAltName": (("DNS", "kube-apiserver"),)}, id="without a subject"),
    ],
)
def test_certificate_with_an_allowed_name_is_let_in(shown: dict[str, Any]) -> None:
    check_names(shown, API_SERVERS)


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(certificate("system:node:node-1"), id="of a kubelet"),
        pytest.param(certificate("Kube-APIserver"), id="in other capitals"),
        pytest.param(certificate("kube-apiserver.example.com"), id="that begins alike"),
        pytest.param(certificate("kube-apiserver\x00.example.com"), id="with a zero byte after it"),
        pytest.param(certificate("x", dns=("*.example.com",)), id="with a wildcard"),
        pytest.param(certificate("x", address="kube-apiserver"), id="in another kind of name"),
        pytest.param(certificate(), id="in the organization only"),
        pytest.param({}, id="without names"),
        pytest.param(None, id="that is not there"),
    ],
)
def test_certificate_without_an_allowed_name_is_turned_away(shown: dict[str, Any] | None) -> None:
    """R2: with a CA of the whole cluster, every kubelet has a certificate."""
    with pytest.raises(WrongName, match="which is not in --client-names"):
        check_names(shown, API_SERVERS)


def test_refusal_names_what_the_certificate_has_and_not_too_much_of_it() -> None:
    with pytest.raises(WrongName) as refused:
        check_names(certificate("n" * 1000, "\n", "c", "d"), API_SERVERS)
    assert str(refused.value) == (
        f"the client certificate is for '{'n' * 64}', '\\n', 'c', which is not in --client-names:"
        " only API servers send reviews here"
    )
