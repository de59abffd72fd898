"""Who of several replicas acts: the packaged elector of kubernetes.aio, over our own client.

What is added: no answer is a failed attempt and not the end; the leader steps back in time and nobody takes a lease
that has not run out, whatever the wall clock does; the lease is given back on a clean stop; and who has lost it ends,
since what it knows may be out of date.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from webhook.api.meta import parse_time
from webhook.cluster.client.errors import ClusterError, Conflict, NotFound
from webhook.cluster.client.rest import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from webhook.cluster.client.rest import Cluster

log = logging.getLogger(__name__)

_RELEASES: Final = 3
_NO_CLIENT: Final[Any] = None
"""The lock is given our own calls instead."""


class LeadershipLost(Exception):  # noqa: N818 -- it says what happened
    """The lease could not be renewed in time, or somebody else has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """Which lease, and how it is kept: the figures of Kubernetes' own controllers."""

    namespace: str
    name: str
    lease_seconds: int = 15
    renew_seconds: int = 10
    """How long the leader goes on trying to renew."""
    retry_seconds: int = 2


class Leadership:
    """One candidate for a lease."""

    def __init__(
        self,
        cluster: Cluster,
        settings: LeaderSettings,
        *,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`identity` tells this process from every other, also from its own predecessor."""
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._leases = _Leases(cluster, settings)
        self._renewed_at = 0.0
        self._seen: dict[str, Any] = {}
        self._seen_at = 0.0
        self._taken = False
        self._released = False
        self.acquired = asyncio.Event()
        """Set once this process leads; never unset, as it ends when it does not any more."""

    @property
    def holds(self) -> bool:
        """Whether we lead, and nobody else can: also right after this process was held up for longer than that."""
        return self.acquired.is_set() and self._left_seconds() > 0

    async def run(self) -> NoReturn:
        """Waits for the lease, then keeps it. Raises LeadershipLost; returns only when cancelled."""
        elector = self._elector()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._guard())
            await elector.run()
            raise LeadershipLost(f"{self._identity} could not renew {self._settings.namespace}/{self._settings.name}")

    async def release(self) -> None:
        """Gives the lease back if we have it, so that nobody has to wait for it to run out."""
        self._released = True
        if not self.acquired.is_set():
            return
        for _ in range(_RELEASES):
            try:
                await self._leases.empty(self._identity)
            except Conflict:
                continue  # our own last renewal was still on its way
            except ClusterError as error:
                log.warning("lease not given back", extra={"error": str(error)})
            return

    def _elector(self) -> Any:
        # Here and not above: it brings 0.3 s of generated clients, which a process without election does not need.
        from kubernetes.aio.leaderelection.electionconfig import Config  # noqa: PLC0415
        from kubernetes.aio.leaderelection.leaderelection import LeaderElection  # noqa: PLC0415

        settings = self._settings

        async def led() -> None:
            log.info("leading", extra={"lease": f"{settings.namespace}/{settings.name}", "identity": self._identity})
            self.acquired.set()

        async def ended() -> None:
            """What `run` raises says it."""

        config = Config(
            self._lock(),
            lease_duration=settings.lease_seconds,
            renew_deadline=settings.renew_seconds,
            retry_period=settings.retry_seconds,
            onstarted_leading=led,
            onstopped_leading=ended,
        )
        return LeaderElection(config)

    def _lock(self) -> Any:
        from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock  # noqa: PLC0415

        read, write = self._read, self._write

        class Lock(LeaseLock):
            """The packaged lock, asked over our client; no answer is an answer that says no."""

            async def get(self, name: str, namespace: str) -> Any:
                return await read(super().get(name, namespace))

            async def create(self, name: str, namespace: str, election_record: Any) -> bool:
                return await write(super().create(name, namespace, election_record))

            async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
                return await write(super().update(name, namespace, updated_record))

        lock: Any = Lock(self._settings.name, self._settings.namespace, self._identity, _NO_CLIENT)
        lock.api_instance = self._leases
        return lock

    async def _read(self, work: Coroutine[Any, Any, Any]) -> Any:
        from kubernetes.aio.client.exceptions import ApiException  # noqa: PLC0415

        try:
            found, record = await work
        except ClusterError as error:
            self._failed(error)
            self._taken = self._taken and not isinstance(error, NotFound)
            exception = ApiException(status=error.code, reason=str(error))
            exception.body = msgspec.json.encode({"code": error.code}).decode()
            return False, exception
        if found:
            self._look(record)
        return found, record

    async def _write(self, work: Coroutine[Any, Any, Any]) -> bool:
        if self._taken or self._released:
            work.close()
            return False  # which the elector does not know
        began = self._clock()
        try:
            done = bool(await work)
        except ClusterError as error:
            self._failed(error)
            return False
        if done:
            self._renewed_at = began  # for others it may count from then
        return done

    def _look(self, record: Any) -> None:
        """Sees whether a lease as just read is somebody else's. One that has run out is made nobody's.

        The elector finds that out by the wall clock: set forward, it would take a lease that is kept, and set back,
        leave one that nobody keeps.
        """
        if vars(record) != self._seen:
            self._seen, self._seen_at = dict(vars(record)), self._clock()
        if self._clock() - self._seen_at >= self._settings.lease_seconds and record.holder_identity != self._identity:
            record.holder_identity = None
        self._taken = record.holder_identity not in (None, self._identity)

    def _left_seconds(self) -> float:
        return self._renewed_at + self._settings.renew_seconds + self._settings.retry_seconds - self._clock()

    def _failed(self, error: ClusterError) -> None:
        if isinstance(error, Conflict | NotFound):
            return  # somebody was faster, or there is none yet
        log.warning("lease not read or renewed", extra={"error": str(error)})

    async def _guard(self) -> NoReturn:
        """The elector asks the wall clock how long it has tried; if that is set back, the lease may be another's."""
        await self.acquired.wait()
        while True:
            left = self._left_seconds()
            if left <= 0:
                raise LeadershipLost(f"{self._identity} has not renewed the lease for too long")
            await asyncio.sleep(left)


class _Leases:
    """The three calls that the packaged lock makes of the generated client, over ours."""

    def __init__(self, cluster: Cluster, settings: LeaderSettings) -> None:
        self._cluster = cluster
        self._collection = path_of("coordination.k8s.io", "v1", "leases", namespace=settings.namespace)
        self._path = f"{self._collection}/{settings.name}"
        # twice within the time that a leader has to renew
        self._timeout_seconds = settings.renew_seconds / 2

    async def read_namespaced_lease(self, _name: str, _namespace: str) -> Any:
        lease = msgspec.json.decode(await self._cluster.get(self._path, timeout_seconds=self._timeout_seconds))
        spec = lease.get("spec") or {}
        return SimpleNamespace(
            metadata=lease["metadata"],
            spec=SimpleNamespace(
                holder_identity=spec.get("holderIdentity"),
                lease_duration_seconds=spec.get("leaseDurationSeconds"),
                acquire_time=_time(spec.get("acquireTime")),
                renew_time=_time(spec.get("renewTime")),
                lease_transitions=spec.get("leaseTransitions"),
            ),
        )

    async def create_namespaced_lease(self, _namespace: str, body: Any, **_: Any) -> None:
        lease = _lease({"name": body.metadata.name}, body.spec)
        await self._cluster.create(self._collection, lease, timeout_seconds=self._timeout_seconds)

    async def replace_namespaced_lease(self, *, body: Any, **_: Any) -> None:
        lease = _lease(body.metadata, body.spec)
        await self._cluster.update(self._path, lease, timeout_seconds=self._timeout_seconds)

    async def empty(self, identity: str) -> None:
        """Nobody's, and run out in a second, as client-go leaves it. Raises ClusterError."""
        lease = msgspec.json.decode(await self._cluster.get(self._path, timeout_seconds=self._timeout_seconds))
        if (lease.get("spec") or {}).get("holderIdentity") != identity:
            return
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        await self._cluster.update(self._path, {**lease, "spec": spec}, timeout_seconds=self._timeout_seconds)


def _lease(metadata: Any, spec: Any) -> dict[str, Any]:
    fields = {
        "holderIdentity": spec.holder_identity,
        "leaseDurationSeconds": spec.lease_duration_seconds,
        "acquireTime": spec.acquire_time,
        "renewTime": spec.renew_time,
        "leaseTransitions": getattr(spec, "lease_transitions", None),
    }
    texts = {name: _text(value) if isinstance(value, datetime) else value for name, value in fields.items()}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {name: value for name, value in texts.items() if value is not None},
    }


def _text(time_: datetime) -> str:
    """As metav1.MicroTime is written."""
    return time_.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(text: str | None) -> datetime | None:
    """With its fraction, which tells one renewal from the next; with a zone, which the lock takes off."""
    if text is None or parse_time(text) is None:
        return None
    return datetime.fromisoformat(text)
