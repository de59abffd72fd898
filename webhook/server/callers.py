"""The names that client certificates must have, where they are asked for. No decision depends on who calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN_NAMES: Final = 3
_SHOWN_CHARACTERS: Final = 64


class WrongName(Exception):  # noqa: N818 -- it says what the certificate has
    """The client has a certificate of the right CA, but it is not the certificate of an API server."""


def check_names(certificate: Mapping[str, Any] | None, names: frozenset[str]) -> None:
    """Check that a certificate, as `SSLSocket.getpeercert` gives it, has one of the names. Raises WrongName."""
    found = _names_in(certificate or {})
    if names.isdisjoint(found):
        raise WrongName(_refusal(found))


def _names_in(certificate: Mapping[str, Any]) -> list[str]:
    """Common names and DNS names. Asked for each review, so a list: a generator takes twice the time."""
    found = [text for each in certificate.get("subject", ()) for kind, text in each if kind == "commonName"]
    if "subjectAltName" in certificate:
        found += [text for kind, text in certificate["subjectAltName"] if kind == "DNS"]
    return found


def _refusal(found: list[str]) -> str:
    names = ", ".join(ascii(name[:_SHOWN_CHARACTERS]) for name in found[:_SHOWN_NAMES]) or "no name"
    return f"the client certificate is for {names}, which is not in --client-names: only API servers send reviews here"
