"""A lean synchronous client for an API server: JSON in, (code, body, warnings) out, connections kept alive.

Made for sending tens of thousands of objects whose verdict is the result: an answer is never an exception,
bodies may be anything at all, and threads share one client.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from webhook.api.decode import salvaged

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_T = TypeVar("_T")
_R = TypeVar("_R")

# Warning: 299 - "text, in which \" and \\ are escaped" (RFC 9110, quoted-string)
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class Cause(NamedTuple):
    """One entry of status.details.causes."""

    reason: str
    field: str
    message: str


class RefusedError(AssertionError):
    """An answer other than success, where the test needed success."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the API server answered."""

    code: int
    """HTTP status."""
    body: Any
    """Decoded JSON, without what is nested too deeply for Python; text if it was none."""
    warnings: tuple[str, ...] = ()
    """Texts of the Warning headers, in order."""

    @property
    def ok(self) -> bool:
        """The request was granted."""
        return 200 <= self.code < 300

    @property
    def object(self) -> dict[str, Any]:
        """The object answered.

        Raises: RefusedError if the request was not granted.
        """
        if not self.ok or not isinstance(self.body, dict):
            raise RefusedError(f"{self.code}: {self.message}")
        return self.body

    @property
    def items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.object["items"]
        return items

    @property
    def reason(self) -> str:
        """Of a Status: "Invalid", "Forbidden", ...; empty for anything else."""
        return str(self.body.get("reason", "")) if self._is_status else ""

    @property
    def message(self) -> str:
        """Of a Status; else the body itself."""
        return str(self.body.get("message", "")) if self._is_status else str(self.body)

    @property
    def causes(self) -> list[Cause]:
        """Of a Status, in order; empty if it has none."""
        details = self.body.get("details") if self._is_status else None
        causes = (details or {}).get("causes") or []
        return [Cause(c.get("reason", ""), c.get("field", ""), c.get("message", "")) for c in causes]

    @property
    def _is_status(self) -> bool:
        return isinstance(self.body, dict) and self.body.get("kind") == "Status"


def path(api_version: str, plural: str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The URL path of a collection, an object or a subresource: path("v1", "pods", namespace="default")."""
    parts = ["apis" if "/" in api_version else "api", *api_version.split("/")]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, subresource) if part]
    return "/" + "/".join(quote(part, safe="") for part in parts)


class Client:
    """Requests to one server as one user."""

    def __init__(
        self,
        server: str,
        context: ssl.SSLContext,
        *,
        headers: Mapping[str, str | list[str]] | None = None,
        timeout_seconds: float = 120.0,
    ) -> None:
        self.server = server
        self._connections = _Connections(server, context, timeout_seconds)
        self._headers = dict(headers or {})

    def close(self) -> None:
        """Closes all connections, also those of clients made by acting_as."""
        self._connections.close()

    def acting_as(self, user: str, groups: Iterable[str] = ()) -> Client:
        """The same server for another user, by impersonation, on the same connections."""
        other = Client.__new__(Client)
        other.server = self.server
        other._connections = self._connections
        other._headers = {**self._headers, "Impersonate-User": user, "Impersonate-Group": [*groups]}
        return other

    def request(
        self,
        method: str,
        url_path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Reply:
        """Sends one request; bytes go as they are, anything else but None as JSON.

        Raises: OSError or http.client.HTTPException if the server cannot be reached or breaks off.
        """
        target = f"{url_path}?{urlencode(query)}" if query else url_path
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", **self._headers}
        if data is not None:
            headers["Content-Type"] = content_type
        code, answer_type, warnings, answer = self._connections.exchange(method, target, data, headers)
        decoded = _decoded(answer) if answer_type.startswith("application/json") else answer.decode()
        texts = [m[1] for header in warnings for m in _WARNING.finditer(header)]
        return Reply(code, decoded, tuple(re.sub(r"\\(.)", r"\1", text) for text in texts))

    def get(self, url_path: str, **query: str) -> Reply:
        """Reads an object, or a collection as a list."""
        return self.request("GET", url_path, query=query)

    def create(self, collection: str, obj: Any, *, dry_run: bool = False, field_validation: str = "") -> Reply:
        """Posts an object (or raw bytes) to a collection; field_validation is Ignore, Warn or Strict."""
        return self.request("POST", collection, obj, query=_options(dry_run, field_validation))

    def replace(self, url_path: str, obj: Any, *, dry_run: bool = False, field_validation: str = "") -> Reply:
        """Puts an object."""
        return self.request("PUT", url_path, obj, query=_options(dry_run, field_validation))

    def patch(self, url_path: str, patch: Any, content_type: str = MERGE_PATCH, *, dry_run: bool = False) -> Reply:
        """Patches an object, by default with a merge patch."""
        return self.request("PATCH", url_path, patch, query=_options(dry_run, ""), content_type=content_type)

    def apply(self, url_path: str, obj: Any, *, field_manager: str, dry_run: bool = False) -> Reply:
        """Server-side apply, taking over fields of other managers; unknown fields are refused."""
        query = {**_options(dry_run, "Strict"), "fieldManager": field_manager, "force": "true"}
        return self.request("PATCH", url_path, obj, query=query, content_type=APPLY_PATCH)

    def delete(self, url_path: str, *, dry_run: bool = False) -> Reply:
        """Deletes an object, or everything in a collection."""
        return self.request("DELETE", url_path, query=_options(dry_run, ""))

    def each(self, function: Callable[[_T], _R], items: Iterable[_T], *, threads: int = 4) -> list[_R]:
        """function over items in a few threads, results in the order of the items.

        Measured on two cores, dry-run creates of a claim a second: 700 with one thread, 1500 with four, 1900 with
        eight.
        """
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(function, items))


def _decoded(answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except RecursionError:
        return json.loads(salvaged(answer) or b"null")


def _options(dry_run: bool, field_validation: str) -> dict[str, str]:  # noqa: FBT001 - private, called with names
    options = {"dryRun": "All"} if dry_run else {}
    return {**options, "fieldValidation": field_validation} if field_validation else options


class _Connections:
    """Keep-alive connections, as many as there are requests at the same time."""

    def __init__(self, server: str, context: ssl.SSLContext, timeout_seconds: float) -> None:
        address = urlsplit(server)
        assert address.hostname is not None
        self._host, self._port = address.hostname, address.port
        self._context = context
        self._timeout_seconds = timeout_seconds
        self._idle: deque[http.client.HTTPSConnection] = deque()  # append and pop are atomic

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str | list[str]]
    ) -> tuple[int, str, list[str], bytes]:
        """(status, content type, Warning headers, body)."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._send(self._new(), method, target, data, headers)
        try:
            return self._send(connection, method, target, data, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            # The server closed it while it was idle: it has not seen this request.
            return self._send(self._new(), method, target, data, headers)

    def _new(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_seconds, context=self._context)

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        target: str,
        data: bytes | None,
        headers: Mapping[str, str | list[str]],
    ) -> tuple[int, str, list[str], bytes]:
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in headers.items():
                for one in [value] if isinstance(value, str) else value:
                    connection.putheader(name, one)
            connection.putheader("Content-Length", str(len(data or b"")))
            connection.endheaders(data)  # headers and body in one packet
            response = connection.getresponse()
            body = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return (
            response.status,
            response.headers.get("Content-Type", ""),
            response.headers.get_all("Warning") or [],
            body,
        )
