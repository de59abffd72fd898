"""A Secret and two webhook configurations in memory, with the API server's rule for versions, and who uses them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from webhook.certificates.rotation import authorities_in, certificates_in
from webhook.certificates.settings import SelfManagedSettings, StoredBundles, StoredSecret, StoreError
from webhook.certificates.source import SelfManagedSource
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Mapping

    from webhook.certificates.rotation import Authorities

START = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SETTINGS = SelfManagedSettings(
    secret=("ns", "ca"),
    validating_configuration="v",
    mutating_configuration="m",
    names=("webhook.ns.svc", "localhost"),
    ca_lifetime=100 * MINUTE,
    leaf_lifetime=20 * MINUTE,
)
"""A caBundle settles in five minutes."""


_certificates_in = functools.cache(lambda bundle: certificates_in(bundle))  # noqa: PLW0108 -- a cache of the tests, not of the product


class Turn:
    """Where a replica waits for its API server, and others may act."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass
class FakeSecret:
    """The SecretStore of all replicas."""

    data: dict[str, bytes] = field(default_factory=dict)
    version: int = 1
    broken: str = ""
    """Why it cannot be read."""
    read_only: str = ""

    async def read(self) -> StoredSecret:
        await Turn()
        if self.broken:
            raise StoreError(self.broken)
        return StoredSecret(dict(self.data), str(self.version))

    async def write(self, data: Mapping[str, bytes], version: str) -> bool:
        await Turn()
        if self.read_only:
            raise StoreError(self.read_only)
        if version != str(self.version):
            return False
        self.put(data)
        return True

    def put(self, data: Mapping[str, bytes]) -> None:
        self.data, self.version = dict(data), self.version + 1

    @property
    def authorities(self) -> Authorities:
        return authorities_in(self.data)


@dataclass
class FakeBundles:
    """One BundleStore, with all that API servers have ever seen there."""

    name: str
    world: World
    bundles: tuple[bytes, ...] = (b"", b"")
    version: int = 1
    absent: bool = False
    broken: str = ""
    read_only: str = ""
    history: list[tuple[datetime, tuple[bytes, ...]]] = field(default_factory=list)

    async def read(self) -> StoredBundles | None:
        await Turn()
        if self.broken:
            raise StoreError(self.broken)
        return None if self.absent else StoredBundles(self.bundles, str(self.version))

    async def write(self, bundle: bytes, version: str) -> bool:
        await Turn()
        if self.read_only:
            raise StoreError(self.read_only)
        if version != str(self.version):
            return False
        self.put((bundle,) * len(self.bundles))
        return True

    def put(self, bundles: tuple[bytes, ...]) -> None:
        self.bundles, self.version = bundles, self.version + 1
        self.history.append((self.world.now, bundles))

    def trusts(self, certificate: bytes, *, lag: timedelta) -> bool:
        """Whether every API server does, if the slowest hears of a change so much later."""
        since = self.world.now - lag
        seen = [bundles for time, bundles in self.history if time > since]
        before = [bundles for time, bundles in self.history if time <= since]
        return all(certificate in _certificates_in(each) for bundles in [*before[-1:], *seen] for each in bundles)


class Replica:
    """One process: at any time it is somewhere in a look, or between two."""

    def __init__(self, world: World, behind: timedelta = timedelta()) -> None:
        """Its clock is so much behind everyone else's."""
        self.metrics = Metrics(version="0", resources=())
        stores = [world.validating, world.mutating]
        self.source = SelfManagedSource(
            SETTINGS, world.secret, stores, now=lambda: world.now - behind, metrics=self.metrics, clock=world.seconds
        )
        self._looking: Coroutine[Any, Any, None] | None = None

    def step(self) -> bool:
        """Goes on until the next request to the API server; false if a look has come to its end."""
        if self._looking is None:
            self._looking = self.source.look()
        try:
            self._looking.send(None)
        except StopIteration:
            self._looking = None
            return False
        return True

    def look(self) -> None:
        """A whole look, or the rest of one."""
        while self.step():
            pass

    def die(self) -> None:
        if self._looking is not None:
            self._looking.close()

    @property
    def issuer(self) -> bytes | None:
        """Who signed what it serves."""
        leaf = self.source._leaf
        return leaf.issuer if leaf is not None else None

    @property
    def ends(self) -> datetime:
        leaf = self.source._leaf
        assert leaf is not None
        return leaf.ends

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"device_taint_webhook_certificate_{name}", labels)


class World:
    """Everything, with a clock that stands still until it is moved."""

    def __init__(self, replicas: int = 1) -> None:
        self.now = self.looked = START
        self.secret = FakeSecret()
        self.validating = FakeBundles("v", self)
        self.mutating = FakeBundles("m", self)
        self.replicas = [Replica(self) for _ in range(replicas)]

    @classmethod
    def settled(cls, replicas: int = 1) -> World:
        """After the first installation, a while ago."""
        world = cls(replicas)
        world.pass_minutes(10)
        return world

    @property
    def replica(self) -> Replica:
        [only] = self.replicas
        return only

    def seconds(self) -> float:
        return self.now.timestamp()

    def pass_minutes(self, minutes: int) -> None:
        """Everybody looks each minute."""
        for _ in range(minutes):
            self.now += MINUTE
            for replica in self.replicas:
                replica.look()
            self.looked = self.now

    def restart(self, number: int) -> None:
        self.replicas[number].die()
        self.replicas[number] = Replica(self)

    def empty_secret(self) -> None:
        self.secret.put({})

    def check(self) -> None:
        """No API server, however slow within bounds, fails a call to a replica whose certificate has not ended."""
        lag = SETTINGS.settle - MINUTE
        for replica in self.replicas:
            if replica.issuer is not None and self.now < replica.ends:
                assert self.validating.trusts(replica.issuer, lag=lag)
                assert self.mutating.trusts(replica.issuer, lag=lag)
