"""Whether an eviction worker acts: its Lease, read now and then by `serve` for the warning about softened rules.

One GET every ten seconds, and none while no policy softens. The times in the record are not compared with any clock
here: as in leader election, a holder counts for as long as its record changes.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import ClusterError, NotFound, Unavailable
from webhook.cluster.client.rest import path_of
from webhook.eviction.modes import MODE_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.rest import Cluster

READ_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0
"""Until it is looked again whether it is wanted."""
_TIMEOUT_SECONDS: Final = 5.0
_LEASE_SECONDS: Final = 15
"""Of a record that does not say."""
_ACTING: Final = frozenset({"delegated", "replacement"})
"""Modes that act on `/evict`. A worker of an older version does not say its mode."""
_NO_HOLDER: Final = "no eviction worker holds its lease, so pods stay until one does"


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Record(msgspec.Struct, omit_defaults=True):
    holderIdentity: str | None = None  # noqa: N815 -- as the API names it
    leaseDurationSeconds: int | None = None  # noqa: N815 -- as above
    renewTime: str | None = None  # noqa: N815 -- as above


class _WorkerLease(msgspec.Struct):
    """coordination.k8s.io/v1 Lease, as far as it matters here."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Record = msgspec.field(default_factory=_Record)


_LEASE: Final = msgspec.json.Decoder(_WorkerLease)


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
            answer: Any = await self._cluster.get(self._path, timeout_seconds=_TIMEOUT_SECONDS)
            lease = decode(_LEASE, answer)
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
