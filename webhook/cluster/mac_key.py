"""The Secret with the key of our MACs: read, and filled by the first `serve` when the manifests left it empty."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from webhook.api.keys import KEY_FIELD, KEY_LEAST_BYTES
from webhook.cluster.client.answers import decode, objects
from webhook.cluster.client.errors import ClusterError, Conflict, NotFound, Unavailable
from webhook.cluster.client.rest import path_of
from webhook.flowcontrol.backoff import Backoff
from webhook.telemetry.repeats import LastingFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.client.rest import Cluster
    from webhook.cluster.settings import KeySettings

log = logging.getLogger(__name__)

KEY_BYTES: Final = 32
"""As long as the output of HMAC-SHA256."""
_ATTEMPTS: Final = 5
"""Attempts to write the key. A Conflict means that another writer was faster, most likely with a key."""


class EmptySecret(Exception):  # noqa: N818 -- it says what the Secret is
    """The Secret has no key yet, and this process does not create one."""


class UnusableKey(Exception):  # noqa: N818 -- it says what the Secret is
    """The Secret holds something that is not a key; it is left as it is."""


class KeySecret:
    """A key that all replicas share. Of those that find it missing, resourceVersion decides who writes it.

    Without `fill` it is only read. `on_change` is called when another key is known than before.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        cluster: Cluster,
        settings: KeySettings,
        *,
        fill: bool = True,
        on_change: Callable[[], None] = lambda: None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        random: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`random` returns numbers in [0, 1), so that replicas that wait for an API server do not retry in step."""
        self._unanswered = Backoff(settings.unavailable_seconds, settings.unavailable_most_seconds, random)
        self._absent = Backoff(settings.absent_seconds, settings.absent_most_seconds, random)
        self._fill = fill
        self._on_change = on_change
        self._cluster = cluster
        self._settings = settings
        self._path = path_of("", "v1", "secrets", namespace=settings.namespace, name=settings.name)
        self._random_bytes = random_bytes
        self._fault = LastingFault(clock)
        self._unavailable = False
        self._lost = False
        self.key: bytes | None = None
        """The key; None while there is none. The last good one stays when the Secret goes away or breaks."""
        self.tried = asyncio.Event()
        """Set after the first attempt to read the key, whether it found one or not."""
        self.loaded = asyncio.Event()
        """Set once there is a key; never unset."""

    @property
    def problem(self) -> str | None:
        """The error of the last attempt to read the key, or None."""
        return self._fault.text or None

    @property
    def missing(self) -> str | None:
        """Why there is no key at all, or None."""
        return None if self.key is not None else self._fault.text or "not read yet"

    @property
    def in_place(self) -> bool:
        """Whether there is a key and, as far as is known, the Secret still holds one, which the next replica needs."""
        return self.key is not None and not self._lost

    async def run(self) -> NoReturn:
        """Reads the key at intervals; returns only when cancelled."""
        while True:
            await self.look()
            self.tried.set()
            await asyncio.sleep(self._wait_seconds())

    def _wait_seconds(self) -> float:
        if self._unavailable:
            return self._unanswered.next_seconds()
        self._unanswered.reset()
        if self._fault.text:
            return self._absent.next_seconds()
        self._absent.reset()
        return self._settings.present_seconds

    async def look(self) -> None:
        """Reads the key, writing one if the Secret has none and may be filled.

        A fault is logged when it is new and every five minutes.
        """
        where = {"secret": f"{self._settings.namespace}/{self._settings.name}"}
        try:
            key = await self._read_or_fill()
        except (ClusterError, EmptySecret, UnusableKey) as error:
            if self._fault.failed(str(error)):
                severe = not isinstance(error, NotFound | Unavailable | EmptySecret)
                level = logging.ERROR if severe else logging.WARNING
                log.log(level, "no key from the secret", extra={**where, "error": str(error), **self._fault.fields})
            self._unavailable = isinstance(error, Unavailable)
            # An API server that does not answer says nothing about the Secret.
            self._lost = self._lost or not self._unavailable
            return
        changed = key != self.key
        if changed:
            log.info("key read" if self.key is None else "key replaced", extra=where)
        self.key = key
        self._fault.ended()
        self._unavailable = self._lost = False
        self.loaded.set()
        if changed:
            self._on_change()

    async def _read_or_fill(self) -> bytes:
        for _ in range(_ATTEMPTS):
            secret = _decoded(await self._cluster.get(self._path))
            key = _key_in(secret)
            if key is not None:
                return key
            if not self._fill:
                raise EmptySecret(f"data[{KEY_FIELD}] is empty; a replica of serve fills it")
            fresh = self._random_bytes(KEY_BYTES)
            data = {**(secret.get("data") or {}), KEY_FIELD: base64.b64encode(fresh).decode()}
            try:
                await self._cluster.update(self._path, {**secret, "data": data})
            except Conflict:
                continue  # another replica was faster: its key counts
            log.info("key written", extra={"secret": f"{self._settings.namespace}/{self._settings.name}"})
            return fresh
        raise Unavailable(f"PUT {self._path}: changed each time before it could be written")


def _decoded(answer: bytes) -> dict[str, Any]:
    try:
        return decode(objects, answer)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the secret cannot be read: {error}") from None


def _key_in(secret: dict[str, Any]) -> bytes | None:
    """The key, or None if its field is missing or empty. Raises UnusableKey."""
    text = (secret.get("data") or {}).get(KEY_FIELD) or ""
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnusableKey(f"data[{KEY_FIELD}] is not base64") from None
    if not key:
        return None
    if len(key) < KEY_LEAST_BYTES:
        raise UnusableKey(f"data[{KEY_FIELD}] has {len(key)} bytes; must be empty or have at least {KEY_LEAST_BYTES}")
    return key
