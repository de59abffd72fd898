"""POST of JSON to one receiver, with a bearer token and a CA from files. Every request has a timeout."""

from __future__ import annotations

import os
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
from yarl import URL

from webhook.cluster.client.failures import reason_of
from webhook.cluster.client.proxy import proxy_for

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.notifications.settings import ReceiverSettings

_TIMEOUT_SECONDS: Final = 10.0
_SHOWN_MOST: Final = 256
_TEMPORARY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


class NotPosted(Exception):  # noqa: N818 -- it says what happened
    """The receiver did not take it. `final`: it never will, so trying again is of no use."""

    def __init__(self, message: str, *, final: bool = False, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.final = final
        self.retry_after_seconds = retry_after_seconds


class Poster:
    """Requests to one URL; connections are not kept, since hours may lie between two requests."""

    def __init__(self, url: str, settings: ReceiverSettings, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self.url = url
        self._settings = settings
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._tls: ssl.SSLContext | None = None
        self._tls_read: tuple[int, int] = (0, 0)

    async def post(self, value: Any, content_type: str) -> None:
        """Sends a value as JSON. Raises NotPosted unless the answer is 2xx."""
        try:
            proxy = proxy_for(URL(self.url), os.environ)
            headers, tls = {"Content-Type": content_type, **self._authorization()}, self._tls_context()
        except (OSError, ValueError) as error:
            raise NotPosted(f"POST {self._shown}: {error}") from error
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.post(
                    self.url,
                    data=msgspec.json.encode(value),
                    headers={"User-Agent": "device-taint-webhook", **headers},
                    ssl=tls,
                    proxy=proxy,
                    allow_redirects=False,  # a token is for this receiver only
                ) as response,
            ):
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    raise self._refused(response, await response.content.read(_SHOWN_MOST))
        except TimeoutError as error:
            raise NotPosted(f"POST {self._shown}: no answer within {self._timeout.total:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NotPosted(f"POST {self._shown}: {reason_of(error)}") from error

    @property
    def _shown(self) -> str:
        """The URL without a password, query or fragment: they may be secret."""
        return str(URL(self.url).with_user(None).with_query(None).with_fragment(None))

    def _authorization(self) -> dict[str, str]:
        """The header, if a token is configured. Raises OSError or ValueError."""
        path = self._settings.token_file
        if path is None:
            return {}
        token = path.read_text(encoding="utf-8").strip()
        if not token.isascii() or not token.isprintable():
            raise ValueError(f"{path}: not a token")
        return {"Authorization": f"Bearer {token}"}

    def _tls_context(self) -> ssl.SSLContext | bool:
        """The context for the CA as its file is now. Raises OSError, ssl.SSLError among them."""
        path = self._settings.ca_file
        if path is None:
            return True
        read = _version_of(path)
        if self._tls is None or read != self._tls_read:
            self._tls, self._tls_read = ssl.create_default_context(cafile=path), read
        return self._tls

    def _refused(self, response: aiohttp.ClientResponse, body: bytes) -> NotPosted:
        status, wait = response.status, response.headers.get("Retry-After", "")
        text = " ".join(body.decode(errors="replace").split())
        final = status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _TEMPORARY
        seconds = float(wait) if wait.isascii() and wait.isdigit() else 0.0
        return NotPosted(f"POST {self._shown}: {status}: {text}", final=final, retry_after_seconds=seconds)


def _version_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino
