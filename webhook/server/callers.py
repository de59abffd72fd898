"""Who calls: an API server that has proved itself with a client certificate, or a client of which nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SHOWN_NAMES: Final = 3
_SHOWN_CHARACTERS: Final = 64


class WrongName(Exception):  # noqa: N818 -- it says what the certificate has
    """The client has a certificate of the right CA, but it is not the certificate of an API server."""


class Callers:
    """Decides by a connection's certificate whether its client is trusted.

    What a review says about its user is only as true as its caller. A caller that is not trusted gets an answer, but
    nothing that lasts: see `AdmissionContext.caller_trusted`.
    """

    def __init__(self, names: Iterable[str] = (), *, trust_everyone: bool = False) -> None:
        """`names` are those that a client's certificate must hold one of; none where no certificate is asked for."""
        self._names = frozenset(names)
        self._trust_everyone = trust_everyone

    @property
    def authenticated(self) -> bool:
        """Whether every caller that gets an answer has proved its identity."""
        return bool(self._names)

    @property
    def problem(self) -> str | None:
        """What is wrong with that, in a sentence; None if callers are authenticated."""
        if self._names:
            return None
        if self._trust_everyone:
            return "every client that reaches the port is taken for an API server (--trust-unauthenticated-callers)"
        return "API servers do not prove who they are (--client-ca-file), so no author is signed and no code is given"

    def trusted(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client may get signatures and confirmation codes. Raises WrongName if it must not get an answer.

        `certificate` is in the form of `SSLSocket.getpeercert`.
        """
        if not self._names:
            return self._trust_everyone
        found = _names_in(certificate or {})
        if self._names.isdisjoint(found):
            raise WrongName(_refusal(found))
        return True


def _names_in(certificate: Mapping[str, Any]) -> list[str]:
    """Common names and DNS names. Asked for each review, so a list: a generator takes twice the time."""
    found = [text for each in certificate.get("subject", ()) for kind, text in each if kind == "commonName"]
    if "subjectAltName" in certificate:
        found += [text for kind, text in certificate["subjectAltName"] if kind == "DNS"]
    return found


def _refusal(found: list[str]) -> str:
    names = ", ".join(ascii(name[:_SHOWN_CHARACTERS]) for name in found[:_SHOWN_NAMES]) or "no name"
    return f"the client certificate is for {names}, which is not in --client-names: only API servers send reviews here"
