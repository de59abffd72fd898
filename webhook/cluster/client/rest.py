"""Requests to one API server: paths and objects in, the bytes of the answer out. Every call has a timeout.

Callers decode what they need into structs of their own. All errors are those of `errors`.

A client with a rate limit pauses while the server asks for fewer requests. Watches are not counted: they are few, and
last for minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from webhook.api.names import WORKER
from webhook.cluster.client.answers import RawResponse
from webhook.cluster.client.connections import Connections, FencedBody, Proxy, always, limit_of, reason_of
from webhook.cluster.client.credentials import Access, Credentials
from webhook.cluster.client.errors import ClusterError, NoCredentials, NotSent, Silent, Unavailable, error_of, is_busy
from webhook.cluster.settings import RequestSettings
from webhook.flowcontrol.loop import Throttle

log = logging.getLogger(__name__)
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
_CONNECTIONS: Final = 0
"""No limit: callers limit themselves. With one, aiohttp hands a free connection to the next request, and one that waits
already may wait until its timeout."""
_GRACE_SECONDS: Final = 15.0
"""What a watch may last beyond the time after which the server should end it."""
FIELD_MANAGER: Final = "device-taint-webhook"
APPLY: Final = "application/apply-patch+yaml"
STRATEGIC: Final = "application/strategic-merge-patch+json"


def _abort(response: aiohttp.ClientResponse) -> None:
    """Aborts the connection, unless the response is complete: closing TLS would wait for a server that still sends."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


class _BrokenOff(aiohttp.ClientError):
    """The connection broke while a request was on it."""


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Sends a request once. A DELETE counts as idempotent, and without this one that broke off would be sent again.

    The caller has to check first whether it took effect, and whether it is still wanted.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokenOff(str(error) or type(error).__name__) from error


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str | int] | None
    headers: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    data: bytes | None = None
    wanted: Callable[[], bool] = always

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@contextlib.contextmanager
def _named(request: _Request) -> Iterator[None]:
    """Turns errors on the way to the server and back into an Unavailable that names the request."""
    try:
        yield
    except TimeoutError as error:
        raise Unavailable(f"{request}: {limit_of(error, request.timeout)}") from error
    except (aiohttp.ClientError, OSError) as error:
        if isinstance(error.__cause__, NotSent):
            raise NotSent(f"{request}: {error.__cause__}") from error
        raise Unavailable(f"{request}: {reason_of(error)}") from error


def _content(body: Any, accept: str, content_type: str) -> tuple[Mapping[str, str], bytes | None]:
    """Headers and bytes of a request; None is no body."""
    if body is None:
        return {"Accept": accept}, None
    return {"Accept": accept, "Content-Type": content_type}, msgspec.json.encode(body)


async def _check(request: _Request, response: aiohttp.ClientResponse) -> None:
    """Raises ClusterError if the request was not granted."""
    if response.status >= HTTPStatus.MULTIPLE_CHOICES:  # a redirect is no answer either
        body, retry_after = await response.read(), response.headers.get("Retry-After", "")
        raise error_of(str(request), body, code=response.status, retry_after=retry_after)


def path_of(group: str, version: str, resource: str, *, namespace: str = "", name: str = "") -> str:
    """The path of a collection or of an object. Parts are quoted, so a name cannot lead anywhere else."""
    parts = ["apis", group, version] if group else ["api", version]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (resource, name) if part]
    assert not {".", ".."} & set(parts), "no name of Kubernetes"
    return "/" + "/".join(quote(part, safe="") for part in parts)


class Cluster:
    """Requests to one API server. Raises NotFound, Conflict, Gone, Unavailable or Refused, and nothing else."""

    def __init__(
        self,
        credentials: Credentials,
        settings: RequestSettings = RequestSettings(),  # noqa: B008 -- frozen
        *,
        user_agent: str = "device-taint-webhook",
        throttle: Throttle | None = None,
        permitted: Callable[[], bool] = always,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With a `throttle` every request but a watch waits for it, and pauses it when the server is busy.

        `permitted` is asked for each request with a body at the moment when it is written; if not, nothing is sent.
        """
        self._credentials = credentials
        self._settings = settings
        self._user_agent = user_agent
        self._throttle = throttle
        self._permitted = permitted
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._connections = Connections()
        self._access: Access | None = None
        self._proxy = Proxy()
        self._loaded_at = 0.0
        self._tried_at = 0.0
        self._renewal = asyncio.Lock()

    async def open(self) -> None:
        """Loads the credentials and makes no request yet. Raises NoCredentials."""
        self._access = await self._credentials.load()
        self._proxy = Proxy.of(self._access)
        self._loaded_at = self._tried_at = self._clock()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, socket_factory=self._connections.socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._user_agent},
        )

    async def close(self) -> None:
        """Ends all connections. Fine to call again."""
        if self._session is not None:
            await self._session.close()
            await self._connections.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def server(self) -> str:
        """The API server's URL, for people."""
        assert self._access is not None, "not open"
        return self._access.server

    async def get(
        self,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        accept: str = JSON,
        timeout_seconds: float | None = None,
    ) -> bytes:
        """An object, or a small collection."""
        return await self.request("GET", path, query, accept=accept, timeout_seconds=timeout_seconds)

    async def get_page(self, path: str, query: Mapping[str, str | int], *, accept: str = JSON) -> bytes:
        """A page of a collection, or all of it. It has more time than other requests, as long as data arrives."""
        timeout = aiohttp.ClientTimeout(
            total=self._settings.page_seconds,
            sock_connect=self._settings.timeout_seconds,
            sock_read=self._settings.page_silence_seconds,
        )
        return await self._granted(_Request("GET", path, query, {"Accept": accept}, timeout))

    async def sample(self, path: str) -> bytes:
        """An object; the connection closes behind it, so that behind one address another server may get the next."""
        timeout = aiohttp.ClientTimeout(total=self._settings.timeout_seconds)
        return await self._granted(_Request("GET", path, None, {"Accept": JSON, "Connection": "close"}, timeout))

    async def create(self, collection: str, obj: Any, **options: Any) -> bytes:
        """The object as the server keeps it; `options` are those of `request`."""
        return await self.request("POST", collection, body=obj, **options)

    async def update(self, path: str, obj: Any, *, timeout_seconds: float | None = None) -> bytes:
        """The object as the server keeps it; a Conflict if it changed since the given one was read."""
        return await self.request("PUT", path, body=obj, timeout_seconds=timeout_seconds)

    async def patch(self, path: str, patch: Any, *, content_type: str = MERGE_PATCH, **options: Any) -> bytes:
        """The object as it is after the patch; `options` as for `create`."""
        return await self.request("PATCH", path, body=patch, content_type=content_type, **options)

    async def watch(
        self,
        path: str,
        query: Mapping[str, str | int],
        *,
        accept: str = JSON,
        watch_seconds: int,
        silence_seconds: float,
    ) -> AsyncGenerator[bytes, None]:
        """An empty line once the server has accepted, then each whole line of a watch, until the server ends it.

        The server ends it after `watch_seconds`. Raises Unavailable when the connection breaks, also in the middle
        of a line, and Silent when nothing came for `silence_seconds`. Close the generator when leaving it early.
        """
        query = {**query, "watch": "true", "timeoutSeconds": watch_seconds}
        timeout = aiohttp.ClientTimeout(
            total=watch_seconds + _GRACE_SECONDS,
            sock_connect=self._settings.timeout_seconds,
            sock_read=silence_seconds,
        )
        # Events are small: packing them costs the server more than it spares the network.
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        begun: list[bytes] = []
        request = _Request("GET", path, query, headers, timeout)
        async with self._answered(request) as response:
            await _check(request, response)
            try:
                yield b""
                async for chunk in response.content.iter_any():
                    *lines, rest = chunk.split(b"\n")
                    for line in lines:
                        yield b"".join([*begun, line])
                        begun.clear()
                    if rest:
                        begun.append(rest)
            except aiohttp.SocketTimeoutError as error:
                raise Silent(f"WATCH {path}: nothing for {silence_seconds:g} s") from error
            finally:
                _abort(response)
        if begun:
            raise Unavailable(f"WATCH {path}: ended in the middle of a line")

    async def request(  # noqa: PLR0913 -- all by name
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        body: Any = None,
        accept: str = JSON,
        content_type: str = JSON,
        timeout_seconds: float | None = None,
        reserved: bool = False,
        wanted: Callable[[], bool] = always,
    ) -> bytes:
        """The body of the response; NotSent if it is not `wanted` as a body is written. `reserved`: at the throttle."""
        headers, data = _content(body, accept, content_type)
        timeout = aiohttp.ClientTimeout(total=timeout_seconds or self._settings.timeout_seconds)
        return await self._granted(_Request(method, path, query, headers, timeout, data, wanted), reserved=reserved)

    async def send(
        self,
        method: str,
        path: str,
        obj: Any = None,
        query: Mapping[str, str | int] | None = None,
    ) -> RawResponse:
        """Any response of the server, including a refusal. Raises only Unavailable, if there is no response."""
        headers, data = _content(obj, JSON, JSON)
        request = _Request(method, path, query, headers, aiohttp.ClientTimeout(total=20.0), data)
        async with self._answered(request) as response:
            return RawResponse.of(response.status, response.headers, await response.read())

    async def _granted(self, request: _Request, *, reserved: bool = False) -> bytes:
        """The body of the response to a request that waits for its turn at the throttle."""
        if self._throttle is not None and not reserved:
            await self._throttle.wait()
        try:
            async with self._answered(request) as response:
                await _check(request, response)
                return await response.read()
        except ClusterError as error:
            if self._throttle is not None and is_busy(error):
                self._throttle.pause(error.retry_after_seconds)
            raise

    @contextlib.asynccontextmanager
    async def _answered(self, request: _Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Any response, its body still to be read; what the block raises while reading becomes ours.

        A 401 is retried once if new credentials are available.
        """
        access = await self._current_access()
        with _named(request):
            response = await self._send(request, access)
            if response.status == HTTPStatus.UNAUTHORIZED:
                renewed = await self._renewed(access)
                if renewed is not access:
                    response.release()
                    response = await self._send(request, renewed)
            async with response:
                yield response

    async def _send(self, request: _Request, access: Access) -> aiohttp.ClientResponse:
        assert self._session is not None, "not open"
        url = access.server + request.path + (f"?{urlencode(request.query)}" if request.query else "")
        headers = [*request.headers.items(), *access.impersonation]
        if access.authorization:
            headers.append(("Authorization", access.authorization))
        data = None if request.data is None else FencedBody(request.data, self._permitted, request.wanted)
        return await self._session.request(
            request.method,
            URL(url, encoded=True),  # else yarl would normalize what was quoted on purpose
            headers=headers,
            data=data,
            timeout=request.timeout,
            ssl=access.tls or True,
            server_hostname=access.server_name,
            proxy=self._proxy.url,
            proxy_headers=self._proxy.headers,
            allow_redirects=False,  # a token is for this server only
            middlewares=(_once,) if request.method == "DELETE" else (),
        )

    async def _current_access(self) -> Access:
        """The current access, loaded again if it may have been replaced meanwhile."""
        assert self._access is not None, "not open"
        if self._credentials.rotates and self._clock() - self._loaded_at >= self._settings.renew_seconds:
            return await self._renewed(self._access)
        return self._access

    async def _renewed(self, refused: Access) -> Access:
        """Access newer than the given one; the given one if there is none, or if it was loaded just now."""
        async with self._renewal:
            assert self._access is not None
            if self._access is not refused:
                return self._access
            if self._clock() - self._tried_at < self._settings.renew_at_most_every_seconds:
                return refused
            self._tried_at = self._clock()
            try:
                access = await self._credentials.load()
                proxy = self._proxy if access == refused else Proxy.of(access)
            except NoCredentials as error:
                log.warning("credentials not reloaded, the old ones stay in use", extra={"error": str(error)})
                return refused
            self._loaded_at = self._tried_at
            if access != refused:
                self._access, self._proxy = access, proxy
            return self._access


class ThrottledCluster(Cluster):
    """Requests that change things, beside those that read."""

    def __init__(
        self,
        credentials: Credentials,
        throttle: Throttle,
        *,
        user_agent: str = WORKER,
        permitted: Callable[[], bool] = always,
    ) -> None:
        """`permitted` is asked when the body of a request is written; if not, it is not sent."""
        super().__init__(credentials, user_agent=user_agent, throttle=throttle, permitted=permitted)
        self._throttle: Throttle = throttle

    async def reserve(self, requests: int) -> None:
        """Returns once this many requests may be made at once; make them with `reserved=True`."""
        await self._throttle.wait(requests)

    async def delete(self, path: str, options: Any = None, **more: Any) -> bytes:
        """The object as it was, or a Status; `options` are DeleteOptions without kind, `more` those of `request`."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **(options or {})}
        return await self.request("DELETE", path, body=body, **more)

    async def apply(self, path: str, obj: Any, *, manager: str = FIELD_MANAGER) -> bytes:
        """Server-side apply of our own fields, by force where another manager has them."""
        query = urlencode({"fieldManager": manager, "force": "true"})
        return await self.patch(f"{path}?{query}", obj, content_type=APPLY)


def clients_of_leader(
    credentials: Credentials, throttle: Throttle, leads: Callable[[], bool], *, user_agent: str = WORKER
) -> tuple[ThrottledCluster, ThrottledCluster]:
    """Two clients that share a rate limit: one for what any process may ask, one that writes only while it `leads`."""
    return (
        ThrottledCluster(credentials, throttle, user_agent=user_agent),
        ThrottledCluster(credentials, throttle, user_agent=user_agent, permitted=leads),
    )
