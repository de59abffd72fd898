"""Leader election over a Lease, with the algorithm of client-go's tools/leaderelection.

Each candidate reads the lease every few seconds and watches by its own monotonic clock whether the record changes. The
times in the record are written for people and never compared, so clocks of different machines need not agree.

`serve` reads the Lease of the eviction workers for the warning about softened rules: one GET every ten seconds, and
none while no policy softens. There, too, a holder counts for as long as its record changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import msgspec

from webhook.api.meta import NamespacedName
from webhook.cluster.client.answers import decode, read_answer
from webhook.cluster.client.errors import ClusterError, Conflict, NotFound, Unavailable
from webhook.cluster.client.rest import Cluster, path_of
from webhook.eviction.modes import MODE_ANNOTATION
from webhook.flowcontrol.rates import boottime_seconds

log = logging.getLogger(__name__)
JITTER_FACTOR: Final = 1.2
"""Candidates wait for up to this many retry periods on top of one, so that they do not read in step."""
_RELEASE_ATTEMPTS: Final = 3
RELEASE_SECONDS: Final = 5.0
"""How long releasing the lease may take: it ends by itself a few seconds later."""
READ_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0
"""Until it is looked again whether it is wanted."""
_TIMEOUT_SECONDS: Final = 5.0
_LEASE_SECONDS: Final = 15
"""Of a record that does not say."""
_ACTING: Final = frozenset({"delegated", "replacement"})
"""Modes that act on `/evict`. A worker of an older version does not say its mode."""
_NO_HOLDER: Final = "no eviction worker holds its lease, so pods stay until one does"


class LeadershipLost(Exception):  # noqa: N818 -- it says what happened
    """The lease was not renewed in time, or another candidate holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """Which lease, and how it is kept; the defaults are those of Kubernetes' own controllers."""

    namespace: str
    name: str
    lease_seconds: int = 15
    """How long a record must stay unchanged before another candidate may take the lease over."""
    renew_seconds: int = 10
    """How long the leader retries a failed renewal before it gives up; less than the lease, so it stops first."""
    retry_seconds: int = 2
    """Between two attempts, and between two renewals."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Written to the lease by its holder."""


class _Lease(msgspec.Struct):
    """coordination.k8s.io/v1 Lease, kept whole so that an update drops nothing."""

    metadata: dict[str, Any]
    spec: dict[str, Any] = {}

    @property
    def holder(self) -> str:
        """The identity of the leader; empty if the lease is free."""
        return str(self.spec.get("holderIdentity") or "")


_LEASE: Final = msgspec.json.Decoder(_Lease)


class Leadership:
    """One candidate for a lease."""

    def __init__(
        self,
        cluster: Cluster,
        settings: LeaderSettings,
        *,
        identity: str,
        now: Callable[[], datetime],
        random: Callable[[], float],
        clock: Callable[[], float] = boottime_seconds,
    ) -> None:
        """`identity` is unique to this process and not reused after a restart.

        `now` is wall-clock time in UTC, which is only written; `random` returns numbers in [0, 1); `clock` returns
        seconds that only go forward, also while the machine is suspended.
        """
        self._cluster = cluster
        self._settings = settings
        self._identity = identity
        self._now = now
        self._random = random
        self._clock = clock
        self._collection = path_of("coordination.k8s.io", "v1", "leases", namespace=settings.namespace)
        self._path = f"{self._collection}/{settings.name}"
        self._timeout_seconds = settings.renew_seconds / 2  # two attempts fit into the time that a leader has to renew
        self._observed: dict[str, Any] | None = None
        self._observed_at = 0.0
        self._renewed_at = 0.0
        self._taken = False
        self._released = False
        self._lost = False
        self.acquired = asyncio.Event()
        """Set once this process leads; never unset, because `run` raises when it leads no longer."""

    @property
    def holds(self) -> bool:
        """Whether this process leads and no other candidate can; correct even right after it was suspended."""
        return self.acquired.is_set() and not self._taken and not self._lost and self._left_seconds() > 0

    async def run(self) -> NoReturn:
        """Acquires the lease, then renews it. Raises LeadershipLost; returns only when cancelled."""
        await self._acquire()
        log.info("leading", extra={"lease": self._name, "identity": self._identity})
        self.acquired.set()
        await self._renew()

    async def release(self) -> None:
        """Gives the lease back if this process has it, so that the next leader need not wait for it to expire."""
        self._released = True
        if not self.acquired.is_set():
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._give_back()
        except (ClusterError, TimeoutError) as error:
            log.warning("lease not released", extra={"error": str(error) or f"not within {RELEASE_SECONDS:g} s"})

    async def _give_back(self) -> None:
        for _ in range(_RELEASE_ATTEMPTS):
            try:
                lease = await self._read()
                if lease.holder == self._identity:
                    # as client-go leaves it
                    await self._update(lease, {**lease.spec, "holderIdentity": "", "leaseDurationSeconds": 1})
            except Conflict:
                continue  # our own last renewal was still under way
            return

    # --- the loops -------------------------------------------------------------------------------

    async def _acquire(self) -> None:
        while not await self._try_acquire_or_renew():
            wait = self._settings.retry_seconds * (1 + JITTER_FACTOR * self._random())
            expires_in = self._expires_in_seconds() if self._taken else 0.0
            await asyncio.sleep(min(wait, expires_in) if expires_in > 0 else wait)

    async def _renew(self) -> NoReturn:
        """Renews until that fails for too long. No request is made after the deadline, even after a stall."""
        while self.holds:
            await asyncio.sleep(min(self._settings.retry_seconds, self._left_seconds()))
            if self.holds:
                try:
                    async with asyncio.timeout(self._left_seconds()):
                        await self._try_acquire_or_renew()
                except TimeoutError:
                    break
        self._lost = True  # timers of the loop may end a fraction of a millisecond before the clock
        raise LeadershipLost(f"{self._identity} could not renew {self._name}")

    def _left_seconds(self) -> float:
        """Until the leader has to stop: its next renewal would be due after one retry period."""
        return self._renewed_at + self._settings.retry_seconds + self._settings.renew_seconds - self._clock()

    # --- one attempt -----------------------------------------------------------------------------

    async def _try_acquire_or_renew(self) -> bool:
        """Return whether this process holds the lease now."""
        began = self._clock()  # the others count from when they see the record, which is later
        try:
            await self._write()
        except ClusterError as error:
            # A Conflict means that another candidate was faster, NotFound that the lease was deleted meanwhile.
            if not isinstance(error, Conflict | NotFound):
                log.warning("lease not read or renewed", extra={"error": str(error)})
            return False
        if self._taken or self._released:
            return False
        self._renewed_at = began
        return True

    async def _write(self) -> None:
        """Creates, takes or renews the lease, unless another candidate holds it. Raises ClusterError."""
        written = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # as metav1.MicroTime
        record = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._settings.lease_seconds,
            "acquireTime": written,
            "renewTime": written,
            "leaseTransitions": 0,
        }
        try:
            lease = await self._read()
        except NotFound:
            self._taken = False
            if not self._released:
                obj = _object(self._annotated({"name": self._settings.name}), record)
                await self._cluster.create(self._collection, obj, timeout_seconds=self._timeout_seconds)
            return
        if lease.spec != self._observed:
            self._observed, self._observed_at = lease.spec, self._clock()
        self._taken = lease.holder not in ("", self._identity) and self._expires_in_seconds() > 0
        if self._taken or self._released:
            return
        transitions = lease.spec.get("leaseTransitions") or 0
        if lease.holder == self._identity:
            record["acquireTime"] = lease.spec.get("acquireTime") or written
        else:
            transitions += 1
        held = _Lease(self._annotated(lease.metadata), lease.spec)
        await self._update(held, {**lease.spec, **record, "leaseTransitions": transitions})

    def _annotated(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Metadata with the holder's annotations beside those of others."""
        return {**metadata, "annotations": {**(metadata.get("annotations") or {}), **self._settings.annotations}}

    def _expires_in_seconds(self) -> float:
        duration = (self._observed or {}).get("leaseDurationSeconds") or self._settings.lease_seconds
        return self._observed_at + float(duration) - self._clock()

    async def _read(self) -> _Lease:
        answer = await self._cluster.get(self._path, timeout_seconds=self._timeout_seconds)
        return read_answer(_LEASE, self._path, answer)

    async def _update(self, lease: _Lease, spec: dict[str, Any]) -> None:
        """Raises Conflict if the lease has changed since it was read: its metadata names the version."""
        await self._cluster.update(self._path, _object(lease.metadata, spec), timeout_seconds=self._timeout_seconds)

    @property
    def _name(self) -> str:
        return f"{self._settings.namespace}/{self._settings.name}"


def _object(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Record(msgspec.Struct, omit_defaults=True):
    holderIdentity: str | None = None  # noqa: N815 -- as the API names it
    leaseDurationSeconds: int | None = None  # noqa: N815 -- as above
    renewTime: str | None = None  # noqa: N815 -- as above


class _WorkerLease(msgspec.Struct):
    """The fields of a coordination.k8s.io/v1 Lease that matter here."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Record = msgspec.field(default_factory=_Record)


_WORKER_LEASE: Final = msgspec.json.Decoder(_WorkerLease)


class EvictionLease:
    """Follows the lease of the eviction workers by reading it."""

    def __init__(
        self,
        cluster: Cluster,
        lease: NamespacedName,
        *,
        wanted: Callable[[], bool] = lambda: True,
        random: Callable[[], float] = lambda: 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wanted`: whether anything depends on it now. `random` returns numbers in [0, 1); `clock` counts seconds."""
        self._cluster = cluster
        self._path = path_of("coordination.k8s.io", "v1", "leases", namespace=lease.namespace, name=lease.name)
        self._wanted = wanted
        self._random = random
        self._clock = clock
        self._record: _Record | None = None
        self._changed_at = 0.0
        self._read_at = 0.0
        self._mode = ""
        self._unknown = ""

    @property
    def problem(self) -> str:
        """Why no worker acts on `/evict`, or why that is not known; empty if one does, and before the first read."""
        if self._unknown:
            return f"it is not known whether an eviction worker acts: {self._unknown}"
        record = self._record
        if record is None:
            return ""
        duration = record.leaseDurationSeconds or _LEASE_SECONDS
        # A change is seen up to one interval late. What could not be read proves nothing.
        expired = self._read_at - self._changed_at > duration + READ_SECONDS
        if not record.holderIdentity or expired:
            return _NO_HOLDER
        if self._mode and self._mode not in _ACTING:
            return f"the eviction worker runs in mode {self._mode}, so pods stay"
        return ""

    async def run(self) -> NoReturn:
        """Reads the lease every ten seconds while that is wanted."""
        while True:
            wanted = self._wanted()
            if wanted:
                await self.read()
            await asyncio.sleep((READ_SECONDS if wanted else _LOOK_SECONDS) * (0.9 + 0.2 * self._random()))

    async def read(self) -> None:
        """Reads it once; never raises. A failure that may pass leaves what was known."""
        try:
            lease = decode(_WORKER_LEASE, await self._cluster.get(self._path, timeout_seconds=_TIMEOUT_SECONDS))
        except NotFound:
            lease = _WorkerLease()
        except Unavailable:
            return
        except (ClusterError, msgspec.DecodeError) as error:
            self._unknown = str(error)
            return
        self._unknown = ""
        self._read_at = self._clock()
        if lease.spec != self._record:
            self._record, self._changed_at = lease.spec, self._read_at
        self._mode = (lease.metadata.annotations or {}).get(MODE_ANNOTATION, "")
