"""Pools of devices as their drivers publish them, and which taints on devices a toleration covers.

Of several generations of slices the newest counts. Beside it: loops over an inventory that can be stopped.
Source: `semantics.md` M-1 to M-5, E-2, E-6, E-9, E-10, K-4, K-5; KEP-5055, DeviceToleration.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Final, TypeAlias, TypeVar

from webhook.api.rules import DeviceSelector
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.api.taints import EQUAL, EXISTS, NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration

# --- loops that can be stopped -------------------------------------------------------------------

Check: TypeAlias = Callable[[], None]
"""Called now and then during long work; may raise to end it."""
BETWEEN_CHECKS: Final = 1000
"""Devices, claims, rules or groups of them that are looked at between two checks: about a millisecond."""
_T = TypeVar("_T")


def unchecked() -> None:
    """Do nothing, for callers that may take as long as they like."""


def in_steps(items: Iterable[_T], check: Check, size: int = BETWEEN_CHECKS) -> Iterator[_T]:
    """Return the items; `check` is called before the first and after every `size` of them."""
    left = 0
    for item in items:
        if left <= 0:
            check()
            left = size
        left -= 1
        yield item


# --- tolerations and selectors -------------------------------------------------------------------

_NANOSECONDS: Final = 1_000_000_000
_HALF: Final = 1 << 63
_WHOLE: Final = 1 << 64
FOR_EVER: Final = -1
"""Instead of seconds: the taint is tolerated without end."""
LONG_AGO: Final = -_HALF
"""Instead of seconds: they end before timeAdded, whenever that is (E-10)."""


class Evictor(StrEnum):
    """Who carries out an eviction; the two read tolerations differently."""

    IN_TREE = "device-taint-eviction-controller"
    OURS = "device-taint-webhook"


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Tell whether the toleration covers the taint, seconds aside (M-1 to M-3).

    An empty effect or key covers all; an empty key with `Equal` means any key with that value.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator
    if operator in ("", EQUAL):
        return toleration.value == taint.value
    return operator == EXISTS


def acts(effect: str) -> bool:
    """Tell whether a taint with that effect does anything; unknown ones act as None (T-11)."""
    return effect in (NO_SCHEDULE, NO_EXECUTE)


def counts(toleration: DeviceToleration, evictor: Evictor, servers: ServerFacts) -> bool:
    """Tell whether the evictor looks at the toleration at all: older in-tree ones want it to name NoExecute (E-9)."""
    return toleration.effect == NO_EXECUTE or evictor is Evictor.OURS or bool(servers.empty_effect_protects)


def grace_seconds(
    tolerations: Iterable[DeviceToleration], taint: DeviceTaint, evictor: Evictor, servers: ServerFacts = UNKNOWN
) -> int:
    """Return how long after timeAdded a NoExecute taint lets a pod stay: whole seconds, FOR_EVER, LONG_AGO.

    Several tolerations that match: one without seconds wins, else the smallest; negative seconds are none. The
    in-tree controller counts nanoseconds in 64 bits (E-10).
    """
    smallest: int | None = None
    for toleration in tolerations:
        if not counts(toleration, evictor, servers):
            continue
        if not tolerates(toleration, taint):
            continue
        seconds = toleration.toleration_seconds
        if seconds is None:
            return FOR_EVER
        smallest = seconds if smallest is None else min(smallest, seconds)
    if smallest is None or smallest <= 0:
        return 0
    return _as_a_duration(smallest) if evictor is Evictor.IN_TREE else smallest


def _as_a_duration(seconds: int) -> int:
    """Return the duration as Go computes it: nanoseconds that wrap around at 64 bits, and may then be in the past."""
    nanoseconds = (seconds * _NANOSECONDS + _HALF) % _WHOLE - _HALF
    return nanoseconds // _NANOSECONDS if nanoseconds >= 0 else LONG_AGO


def selects(selector: DeviceSelector | None, driver: str, pool: str, device: str) -> bool:
    """Tell whether the names match, as eviction reads the selector: a missing one matches nothing (E-6).

    Class and CEL, which only narrow a selector down, are passed over. What an unknown field does is not known, so with
    one it is every device. So the answer may be too wide and is never too narrow.
    """
    if selector is None:
        return False
    if selector.unknown:
        return True
    return selector.driver in (None, driver) and selector.pool in (None, pool) and selector.device in (None, device)


# --- pools ---------------------------------------------------------------------------------------

PoolId = tuple[str, str]
"""Driver and pool name."""
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_NO_TAINTS: Final[tuple[DeviceTaint, ...]] = ()
_SHARED: Final = b'"allowMultipleAllocations"'


def names_pool(selector: DeviceSelector | None, pool: PoolId) -> bool:
    """Tell whether a selector may select devices of a pool, by the names of driver and pool; a missing one does not.

    Unknown fields are passed over.
    """
    return selector is not None and selector.driver in (None, pool[0]) and selector.pool in (None, pool[1])


class Pool:
    """The slices of one pool. What follows from them is worked out when it is asked for, and kept until one changes."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.version = object()
        """Another one after each change."""

    def put(self, value: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        self.slices[value.meta.name] = value
        self._forget()

    def remove(self, name: str) -> None:
        """Take a slice away; the generation below may become the newest by it."""
        self.slices.pop(name, None)
        self._forget()

    def _forget(self) -> None:
        """Let go what was worked out."""
        slices = self.slices
        vars(self).clear()
        self.slices, self.version = slices, object()

    @cached_property
    def own(self) -> list[ResourceSlice]:
        """The slices that count, by name: a node says what it likes about its own devices, and nothing about others'.

        Of slices that name several nodes, those without a node, which no node may write; then those of the node that
        has the pool's name; then those of the node that was the first here.
        """
        every = [value for _, value in sorted(self.slices.items())]
        if len({value.node_name for value in every}) <= 1:
            return every
        node = min(every, key=_precedence).node_name
        return [value for value in every if value.node_name == node]

    @property
    def newest(self) -> list[ResourceSlice]:
        """The slices of the newest generation, by name."""
        return _newest(self.own)

    @cached_property
    def nodes(self) -> frozenset[str | None]:
        """The nodes of its newest devices, by name; None is in it if slices say otherwise where their devices are."""
        return frozenset([value.node_name or None for value in self.newest if value.has_devices])

    @cached_property
    def shares(self) -> bool:
        """Whether several claims may have one of its devices, or that is not kept as text."""
        texts = [value.raw_devices for value in self.newest]
        return not all(isinstance(each, bytes) and _SHARED not in each for each in texts)

    @property
    def by_node(self) -> Mapping[str | None, list[str]]:
        """The devices that each node publishes here in its newest generation. Of several nodes the first has a device.

        Only questions about a node itself go by this; all others go by the slices that count.
        """
        found: dict[str | None, list[str]] = {}
        known: set[str] = set()
        rest = sorted([*self.slices.values()], key=_precedence)
        while rest:
            node = rest[0].node_name
            own = [value for value in rest if value.node_name == node]
            listed = [each.name for value in _newest(own) for each in value.devices]
            found[node] = [name for name in listed if name not in known]
            known.update(listed)
            rest = [value for value in rest if value.node_name != node]
        return found

    @property
    def complete(self) -> bool:
        """Whether all slices of the newest generation are there, as many as each of them says."""
        newest = self.newest
        return bool(newest) and all(value.slice_count == len(newest) for value in newest)

    @cached_property
    def devices(self) -> Mapping[str, tuple[DeviceTaint, ...]]:
        """The devices of the newest generation by name, with the taints that the slices put on them (N-6, K-1)."""
        devices = {device.name: device.taints for value in self.newest for device in value.devices}
        added: dict[str, list[DeviceTaint]] = defaultdict(list)  # a tuple that grew would be copied for each taint
        for value in self.newest:
            for entry in value.slice_taints:
                added[entry.device].append(entry.taint)
        return devices | {name: (*devices[name], *taints) for name, taints in added.items() if name in devices}

    @cached_property
    def evicting(self) -> Mapping[str, tuple[DeviceTaint, ...]]:
        """The devices with NoExecute taints, and those taints only."""
        devices = self.devices if self.tainted else {}  # usually not, and then nothing need be built for it
        found = {
            name: tuple([taint for taint in taints if taint.effect == NO_EXECUTE])
            for name, taints in devices.items()
            if taints
        }
        return {name: taints for name, taints in found.items() if taints}

    @cached_property
    def closed(self) -> Mapping[str, datetime]:
        """The devices with NoSchedule or NoExecute taints, and when the last of these was added.

        A taint without a time counts as added at the end of the calendar.
        """
        devices = self.devices if self.tainted else {}
        acting = {name: [taint for taint in taints if acts(taint.effect)] for name, taints in devices.items()}
        return {name: max(taint.time_added or _LAST for taint in taints) for name, taints in acting.items() if taints}

    @property
    def tainted(self) -> bool:
        """Whether slices of the newest generation have taints at all; usually they do not."""
        for value in self.newest:
            if value.slice_taints:
                return True
            for device in value.devices:
                if device.taints:
                    return True
        return False

    @cached_property
    def taint_keys(self) -> frozenset[str]:
        """The keys of all taints on its devices."""
        return frozenset(taint.key for taints in self.devices.values() for taint in taints)

    def taints_of(self, device: str) -> tuple[DeviceTaint, ...]:
        """Return the taints of one device in the slices; none if the newest generation does not have it."""
        return self.devices.get(device, _NO_TAINTS)


def taints_of_slice(value: ResourceSlice) -> Iterator[tuple[str, DeviceTaint]]:
    """Return the taints in a slice, each with the name of its device, which may be one of another slice."""
    for device in value.devices:
        for taint in device.taints:
            yield device.name, taint
    for entry in value.slice_taints:
        yield entry.device, entry.taint


def _newest(slices: list[ResourceSlice]) -> list[ResourceSlice]:
    newest = max((value.pool_generation for value in slices), default=0)
    return [value for value in slices if value.pool_generation == newest]


def _precedence(value: ResourceSlice) -> tuple[bool, bool, datetime, int]:
    node = value.node_name
    return bool(node), node != value.pool, value.created or _FIRST, -value.pool_generation


class Pools:
    """All pools, by driver and name."""

    def __init__(self) -> None:
        self._pools: dict[PoolId, Pool] = {}
        self._names: dict[str, dict[str, Pool]] = {}
        self._device_count: dict[str | None, int] = {}
        self._counted: dict[str, dict[str, tuple[datetime, int]]] = {}
        """By driver and node, since when its oldest pool has been there, and how many devices that has."""
        self._keys: frozenset[str] | None = None
        self._changed: set[PoolId] = set()
        self._incomplete: set[PoolId] = set()

    def __len__(self) -> int:
        return len(self._pools)

    def get(self, pool: PoolId) -> Pool | None:
        """Return the pool, if any slice names it."""
        return self._pools.get(pool)

    def items(self) -> Iterator[tuple[PoolId, Pool]]:
        """Return all pools."""
        return iter(self._pools.items())

    def apply(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Apply the change of one slice."""
        if old is not None and (new is None or (old.driver, old.pool) != (new.driver, new.pool)):
            self._remove(old)
        if new is not None:
            self._changed.add((new.driver, new.pool))
            pool = self._pools.get((new.driver, new.pool))
            if pool is None:
                pool = self._pools[new.driver, new.pool] = Pool()
                self._names.setdefault(new.driver, {})[new.pool] = pool
            pool.put(new)
        self._device_count.clear()
        self._counted.clear()
        self._keys = None

    def _remove(self, old: ResourceSlice) -> None:
        identity = old.driver, old.pool
        pool = self._pools.get(identity)
        if pool is None:
            return
        pool.remove(old.meta.name)
        self._changed.add(identity)
        if not pool.slices:
            self._changed.discard(identity)
            self._incomplete.discard(identity)
            del self._pools[identity]
            named = self._names[old.driver]
            del named[old.pool]
            if not named:
                del self._names[old.driver]

    def selected(self, driver: str | None, pool: str | None) -> Iterator[tuple[PoolId, Pool]]:
        """Return the pools of that driver and name; None is any."""
        if driver is None:
            if pool is None:
                yield from self._pools.items()
                return
            for name, named in self._names.items():
                if pool in named:
                    yield (name, pool), named[pool]
            return
        named = self._names.get(driver, {})
        if pool is not None:
            if pool in named:
                yield (driver, pool), named[pool]
            return
        for name, found in named.items():
            yield (driver, name), found

    @property
    def incomplete(self) -> frozenset[PoolId]:
        """Pools whose newest generation is not published in full."""
        for identity in self._changed:
            if self._pools[identity].complete:
                self._incomplete.discard(identity)
            else:
                self._incomplete.add(identity)
        self._changed.clear()
        return frozenset(self._incomplete)

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers that publish pools, by name."""
        return tuple(sorted(self._names))

    def device_count(self, driver: str | None = None, check: Check = unchecked) -> int:
        """Count the devices that are published, in all or by one driver. `check` may raise to stop."""
        if driver not in self._device_count:
            selected = in_steps(self.selected(driver, None), check)
            self._device_count[driver] = sum(len(pool.devices) for _, pool in selected)
        return self._device_count[driver]

    def counted_devices(self, driver: str, before: datetime, check: Check = unchecked) -> int:
        """Count the devices of a driver that a share is of: no node can add many at once. `check` as by `device_count`.

        Those of pools of one node that were there before that time, and of each node the oldest pool.
        """
        counted = self._count_of_nodes(driver, check).values()
        return sum([devices for since, devices in counted if since <= before])

    def of_node(self, driver: str, pool: str) -> tuple[str, int] | None:
        """Return a pool's node, and of how many of its devices shares are; None for a pool of no node."""
        found = self._pools.get((driver, pool))
        node = found.own[0].node_name if found is not None else None
        return (node, self._count_of_nodes(driver)[node][1]) if node else None

    def _count_of_nodes(self, driver: str, check: Check = unchecked) -> Mapping[str, tuple[datetime, int]]:
        if driver not in self._counted:
            oldest: dict[str, tuple[datetime, int]] = {}
            for _, pool in in_steps(self.selected(driver, None), check):
                own = pool.own
                if node := own[0].node_name:
                    found = max([value.created or _FIRST for value in own]), len(pool.devices)
                    oldest[node] = min(found, oldest.get(node, found))
            self._counted[driver] = oldest
        return self._counted[driver]

    @property
    def taint_keys(self) -> frozenset[str]:
        """The keys of all taints in slices."""
        if self._keys is None:
            self._keys = frozenset().union(*[pool.taint_keys for pool in self._pools.values()])
        return self._keys


class ShareUse:
    """How many devices of a driver use up a share of its devices: of a node no more than shares are of."""

    def __init__(self, pools: Pools, driver: str, of_pools: Iterable[str] = ()) -> None:
        """Begin with devices, each given by its pool."""
        self._pools = pools
        self._driver = driver
        self._of_node: Counter[str] = Counter()
        self.devices = 0
        for pool in of_pools:
            self.add(pool)

    def takes(self, pool: str) -> int:
        """Return how many more there would be with one more device of that pool, 0 or 1."""
        found = self._pools.of_node(self._driver, pool)
        return int(found is None or self._of_node[found[0]] < found[1])

    def add(self, pool: str) -> int:
        """Add one more device of that pool; return the same."""
        more = self.takes(pool)
        self.devices += more
        if more and (found := self._pools.of_node(self._driver, pool)) is not None:
            self._of_node[found[0]] += 1
        return more
