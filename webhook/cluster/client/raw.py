"""Whole answers of an API server, refusals too, and the certificate behind an address: what `doctor` looks at."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import msgspec
from multidict import CIMultiDictProxy

from webhook.certificates.parsing import Unusable, parsing, trusting_context
from webhook.cluster.client.answers import decode, objects
from webhook.cluster.client.connections import reason_of_connecting

_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class RawResponse(NamedTuple):
    """An API server's answer, granted or not."""

    code: int
    body: Mapping[str, Any]
    """The object, or a Status; empty if the body is not JSON."""
    warnings: tuple[str, ...]
    date: datetime | None
    """The server's clock."""

    @classmethod
    def of(cls, code: int, headers: CIMultiDictProxy[str], body: bytes) -> RawResponse:
        """From an HTTP response; a body that is not JSON becomes the message of a Status."""
        texts = [text for header in headers.getall("Warning", []) for text in _WARNING.findall(header)]
        warnings = tuple([re.sub(r"\\(.)", r"\1", text) for text in texts])
        return cls(code, _object_in(body), warnings, _time_in(headers.get("Date", "")))

    @property
    def granted(self) -> bool:
        """Whether the request was granted."""
        return 200 <= self.code < 300

    @property
    def message(self) -> str:
        """The message of a Status; empty if the request was granted."""
        return str(self.body.get("message") or "") if not self.granted else ""


class NoHandshake(Exception):  # noqa: N818 -- it says what there is
    """Nothing listens there, or it cannot be reached from here."""


class Untrusted(Exception):  # noqa: N818 -- it says what is wrong
    """The caBundle does not verify the served certificate; the text says why."""


async def certificate_end(host: str, port: int, name: str, bundle: bytes, timeout_seconds: float) -> datetime:
    """The end of the served certificate's validity, if the bundle verifies it for that name.

    Raises NoHandshake and Untrusted.
    """
    try:
        with parsing("the caBundle cannot be read"):
            context = trusting_context(bundle.decode("ascii"))
    except Unusable as error:
        raise Untrusted(str(error)) from None
    try:
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(error.verify_message or str(error)) from None
    except OSError as error:
        late = isinstance(error, TimeoutError) and not error.errno  # the system's own has a number
        raise NoHandshake(f"no answer within {timeout_seconds:g} s" if late else reason_of_connecting(error)) from None
    except ValueError as error:  # a name that no certificate can have
        raise NoHandshake(str(error)) from None
    try:
        peer = writer.get_extra_info("peercert")
        with parsing("the end of the served certificate cannot be read"):
            return datetime.fromtimestamp(ssl.cert_time_to_seconds(peer["notAfter"]), UTC)
    except Unusable as error:
        raise Untrusted(str(error)) from None
    finally:
        writer.transport.abort()  # closing TLS would wait up to 30 s for a server that does not answer
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _object_in(body: bytes) -> dict[str, Any]:
    try:
        return decode(objects, body)
    except msgspec.DecodeError:
        return {"message": body[:1024].decode(errors="replace").strip()}


def _time_in(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None
