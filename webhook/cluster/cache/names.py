"""What a policy goes by: namespaces and DeviceClasses by name (its port `ClusterNames`), and the ConfigMap it is in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, NoReturn, Self, TypeVar
from urllib.parse import quote

import msgspec

from webhook.api.meta import SERVED_VERSIONS
from webhook.api.pods import HOLD
from webhook.api.slices import DeviceClassSelectors
from webhook.cluster.cache.decoders import DeviceClassWire, StoredClass
from webhook.cluster.cache.discovery import Collection, FixedCollection, ServedCollection
from webhook.cluster.cache.listwatch import METADATA, Meta, WireValue
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.answers import read_answer
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.rest import JSON, Cluster
from webhook.cluster.settings import NameSettings, ReflectorSettings
from webhook.expressions.drivers import drivers_of
from webhook.flowcontrol.loop import together
from webhook.policy.match import NamespaceFacts
from webhook.telemetry.metrics import Metrics
from webhook.validation.formats import dns1123_subdomain

NAMESPACES: Final = FixedCollection("", "v1", "namespaces")


class _NamespaceMeta(Meta, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class Namespace(WireValue, frozen=True):
    """A namespace's metadata."""

    metadata: _NamespaceMeta

    @property
    def hold(self) -> str | None:
        """The text of annotation `/hold`; None without one."""
        return (self.metadata.annotations or {}).get(HOLD)

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels; empty without any."""
        return self.metadata.labels or {}

    def to_value(self) -> Namespace:
        """With `/hold` as its only annotation."""
        annotations = None if self.hold is None else {HOLD: self.hold}
        return Namespace(msgspec.structs.replace(self.metadata, annotations=annotations))

    def facts(self, known: NamespaceFacts | None) -> NamespaceFacts:
        """Its name and labels: the known facts themselves while labels are the same, since memories go by them."""
        if known is not None and known.labels == self.labels:
            return known
        return NamespaceFacts(self.metadata.name, self.labels)


class NamespaceCache:
    """Labels and holds by the name of the namespace."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        cluster: Cluster,
        *,
        random: Callable[[], float],
        on_change: Callable[[str], None] = lambda _: None,
        looked_up: Callable[[str], NamespaceFacts | None] = lambda _: None,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 -- frozen
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` is called with the name of each namespace that is new, gone, or has another hold or other labels.

        `looked_up` returns the facts of a namespace that was read before the watch brought it, if any.
        """
        self.reflector = Reflector[Namespace](
            cluster,
            NAMESPACES,
            Namespace,
            metadata_only=True,
            random=random,
            settings=settings,
            metrics=metrics,
            clock=clock,
        )
        self.reflector.subscribe(self._changed)
        self._facts: dict[str, NamespaceFacts] = {}
        self._on_change = on_change
        self._looked_up = looked_up

    def facts_of(self, name: str) -> NamespaceFacts | None:
        """Its name and labels; None while the namespace is not known."""
        return self._facts.get(name)

    def hold_of(self, namespace: str) -> str | None:
        """The text of annotation `/hold`; None without one."""
        known = self.reflector.items.get(namespace)
        return None if known is None else known.hold

    def _changed(self, old: Namespace | None, new: Namespace | None) -> None:
        either = new or old
        assert either is not None
        name = either.key
        if new is None:
            self._facts.pop(name, None)
        else:
            self._facts[name] = new.facts(self._facts.get(name) or self._looked_up(name))
        if old is None or new is None or (old.hold, old.labels) != (new.hold, new.labels):
            self._on_change(name)


class ConfigMap(WireValue, frozen=True, rename="camel"):
    """Of binaryData only the keys are of use: a policy there is a mistake that must be reported."""

    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class ConfigMapSource:
    """One ConfigMap by name, watched through the API: a mounted file would change up to two minutes later."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        on_change: Callable[[ConfigMap | None], None],
        random: Callable[[], float],
        metrics: Metrics | None = None,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 -- frozen
    ) -> None:
        """`on_change` gets the ConfigMap; None if there is none, which is not the same as one without data.

        It is called once at the start, and then at each change. What it raises ends `run`.
        """
        self.reflector = Reflector(
            cluster,
            FixedCollection("", "v1", "configmaps", namespace=namespace),
            ConfigMap,
            field_selector=f"metadata.name={name}",
            random=random,
            settings=settings,
            metrics=metrics,
        )
        self.reflector.subscribe(self._changed)
        self._on_change = on_change

    async def run(self) -> NoReturn:
        """Follows it; returns only when cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run())
            await self.reflector.synced.wait()
            if not self.reflector.items:
                self._on_change(None)
        raise AssertionError("the reflector does not return")

    def _changed(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        self._on_change(new)


T = TypeVar("T")
V = TypeVar("V")


class CachedAnswer(NamedTuple, Generic[V]):
    """What the server answered for a name: `value` is None where it has no such object, or gave no answer."""

    value: V | None
    until: float
    """On the clock of the lookups."""


class Lookups(Generic[V]):
    """Answers by name. At most one request for a name at a time, however many callers wait for it."""

    def __init__(self, get: Callable[[str], Awaitable[V]], settings: NameSettings, clock: Callable[[], float]) -> None:
        """`get` makes one request and raises ClusterError; `clock` returns seconds."""
        self._get = get
        self._settings = settings
        self._clock = clock
        self._answers: dict[str, CachedAnswer[V]] = {}
        self._in_flight: dict[str, asyncio.Task[None]] = {}

    def value(self, name: str) -> V | None:
        """The answer, if it is recent enough."""
        answer = self._answers.get(name)
        return answer.value if answer is not None and answer.until > self._clock() else None

    def forget(self, name: str) -> None:
        """The watch has brought the object, or its deletion."""
        self._answers.pop(name, None)

    async def fetch(self, names: Iterable[str], timeout_seconds: float) -> None:
        """Fetches those that have no answer, and waits for at most the given time. Never raises.

        Names that no object can have are skipped, and so are those beyond a few in one call or while many requests are
        in flight: the names come from users, who must not be able to make us send requests without end.
        """
        wanted: set[asyncio.Task[None]] = set()
        for name in dict.fromkeys(names):
            if len(wanted) >= self._settings.names_most:
                break
            task = self._in_flight.get(name) or self._start(name)
            if task is not None:
                wanted.add(task)
        if wanted:
            await asyncio.wait(wanted, timeout=timeout_seconds)

    def close(self) -> None:
        """Cancels the requests in flight."""
        for task in self._in_flight.values():
            task.cancel()

    def _start(self, name: str) -> asyncio.Task[None] | None:
        answer = self._answers.get(name)
        answered = answer is not None and answer.until > self._clock()
        full = len(self._in_flight) >= self._settings.in_flight_most
        if answered or full or not name or dns1123_subdomain(name):
            return None
        task = self._in_flight[name] = asyncio.create_task(self._fetch_one(name))
        task.add_done_callback(lambda _: self._in_flight.pop(name))
        return task

    async def _fetch_one(self, name: str) -> None:
        value, seconds = None, self._settings.absent_seconds
        try:
            value = await self._get(name)
            seconds = self._settings.present_seconds
        except ClusterError:
            pass  # the reflector logs it; the policy decides what an unknown name means
        self._answers.pop(name, None)  # so that the newest stands last
        self._answers[name] = CachedAnswer(value, self._clock() + seconds)
        if len(self._answers) > self._settings.remembered_most:
            del self._answers[next(iter(self._answers))]


class ClassDrivers(msgspec.Struct, frozen=True, gc=False):
    """The drivers of a known class; None where they cannot be read from its selectors."""

    names: frozenset[str] | None

    @classmethod
    def of(cls, stored: StoredClass) -> Self:
        """A selector of another sort than CEL is one that we cannot read; others still narrow the class down."""
        expressions = [each.expression for each in stored.selectors.selectors]
        return cls(drivers_of([each for each in expressions if each is not None]))


class ClusterCache:
    """Namespaces and device classes by name, kept current by two watches; gaps are filled by single requests."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        random: Callable[[], float],
        metrics: Metrics | None = None,
        settings: NameSettings = NameSettings(),  # noqa: B008 -- frozen
        reflector_settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 -- frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`random` returns numbers in [0, 1), `clock` seconds that only go forward."""
        self._cluster = cluster
        self._settings = settings
        self._class_collection = ServedCollection(cluster, "resource.k8s.io", SERVED_VERSIONS, "deviceclasses")
        self._classes: dict[str, ClassDrivers] = {}
        self._selectors: dict[str, DeviceClassSelectors] = {}
        self.selectors: Mapping[str, DeviceClassSelectors] = MappingProxyType(self._selectors)
        """The selectors of each device class, by its name."""
        self._namespace_lookups = Lookups(self._get_namespace, settings, clock)
        self._class_lookups = Lookups(self._get_class, settings, clock)
        self._namespaces = NamespaceCache(
            cluster,
            random=random,
            on_change=self._namespace_lookups.forget,
            looked_up=self._namespace_lookups.value,
            settings=reflector_settings,
            metrics=metrics,
            clock=clock,
        )
        self.namespace_reflector = self._namespaces.reflector
        self.class_reflector = Reflector(
            cluster,
            self._class_collection,
            DeviceClassWire,
            random=random,
            settings=reflector_settings,
            metrics=metrics,
            clock=clock,
        )
        self.class_reflector.subscribe(self._class_changed)

    # --- the port ClusterNames -------------------------------------------------------------------

    def namespace(self, name: str) -> NamespaceFacts | None:
        """The namespace, or None if it is not known."""
        return self._namespaces.facts_of(name) or self._namespace_lookups.value(name)

    def drivers(self, device_class: str) -> frozenset[str] | None:
        """The drivers whose devices the class can select; None if the class is not known or may select any."""
        known = self._classes.get(device_class) or self._class_lookups.value(device_class)
        return known.names if known else None

    # --- the shell's side ------------------------------------------------------------------------

    async def fetch(self, namespaces: Iterable[str], device_classes: Iterable[str], timeout_seconds: float) -> None:
        """One request for each name that is not known; what is still unknown after that time stays so. Never raises.

        Answers are remembered, also that there is no such object, so a name is requested once in a few seconds.
        """
        await asyncio.gather(
            self._namespace_lookups.fetch(
                (name for name in namespaces if self._namespaces.facts_of(name) is None), timeout_seconds
            ),
            self._class_lookups.fetch((name for name in device_classes if name not in self._classes), timeout_seconds),
        )

    def unreadable_classes(self) -> list[str]:
        """The DeviceClasses whose drivers cannot be read, so that they count as giving any device."""
        return sorted(name for name, drivers in self._classes.items() if drivers.names is None)

    @property
    def problem(self) -> str | None:
        """Why the process should not count as ready, or None."""
        reflectors = (self.namespace_reflector, self.class_reflector)
        missing = [each for each in reflectors if not each.synced.is_set()]
        listed = (f"{each.resource} ({each.error})" if each.error else each.resource for each in missing)
        return f"not read yet: {', '.join(listed)}" if missing else None

    async def synced(self) -> None:
        """Returns once both were read in full; waits for ever if they never are."""
        await self.namespace_reflector.synced.wait()
        await self.class_reflector.synced.wait()

    async def run(self) -> NoReturn:
        """Follow both until it is cancelled."""
        try:
            await together(self.namespace_reflector.run(), self.class_reflector.run())
        finally:
            self._namespace_lookups.close()
            self._class_lookups.close()

    # --- how it is filled ------------------------------------------------------------------------

    def _class_changed(self, old: StoredClass | None, new: StoredClass | None) -> None:
        either = new or old
        assert either is not None
        name = either.meta.name
        self._class_lookups.forget(name)
        if new is None:
            self._classes.pop(name, None)
            self._selectors.pop(name, None)
        elif old is None or old.selectors != new.selectors:
            self._classes[name] = ClassDrivers.of(new)
            self._selectors[name] = new.selectors

    async def _get_namespace(self, name: str) -> NamespaceFacts:
        return (await self._get(NAMESPACES, name, Namespace, METADATA)).facts(None)

    async def _get_class(self, name: str) -> ClassDrivers:
        return ClassDrivers.of((await self._get(self._class_collection, name, DeviceClassWire, JSON)).to_value())

    async def _get(self, collection: Collection, name: str, wire: type[T], accept: str) -> T:
        path = f"{await collection.path()}/{quote(name, safe='')}"
        answer = await self._cluster.get(path, accept=accept, timeout_seconds=self._settings.request_seconds)
        return read_answer(msgspec.json.Decoder(wire), path, answer)
