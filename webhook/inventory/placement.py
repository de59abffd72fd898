"""Where pods would go that a taint evicts: which of them find other devices, and why the others find none.

Devices are given out one pod after the other, as the scheduler does, in several orders that it might take. What does
not depend on the order is certain; the rest is not known. Only devices are looked at: not processors, memory, affinity
or taints of nodes.
Source: Allocate of k8s.io/dynamic-resource-allocation 1.37, structured/internal/incubating.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import msgspec

from webhook.api.claims import Demand, ResourceClaim, Wish
from webhook.api.pods import DAEMON_SET, Pod
from webhook.inventory.pools import in_steps
from webhook.inventory.state import Inventory, claim_keys, key_of
from webhook.inventory.supply import Amount, NodePlace, NotKnownError, StockDevice, Supply, consumed

_RESULTS_MOST: Final = 32
"""Devices of a claim (resource/v1.AllocationResultsMaxSize)."""
_GIVEN_UP: Final = "and then the scheduler gives up the pod, not the node"
_TRIES: Final = 2000
"""Devices that are tried at one place for one pod, before it is given up as not known."""
_MOST_WORK: Final = 2_000
"""Pools for each shape, and pods, that are gone through in all orders but the first ones."""
_PODS_BETWEEN_LOOKS: Final = 16
_REVERSED: Final = 1
_BY_PRIORITY: Final = 3
"""This number of orders goes by priority, one backwards, the others do not: pods are not all gone at one moment."""
_ROUNDS: Final = 8
"""In this number of orders each shape comes last."""


class Seeker(msgspec.Struct, frozen=True):
    """A pod that needs devices again. `claims` are all that it uses, `node` the only one that it may run on."""

    namespace: str
    name: str
    claims: tuple[ResourceClaim, ...]
    node: str = ""
    priority: int = 0

    @classmethod
    def of(cls, pod: Pod, claims: Iterable[ResourceClaim]) -> Seeker:
        """Make it of a pod; one of a DaemonSet comes back on its node."""
        pinned = pod.owner is not None and pod.owner.kind == DAEMON_SET
        node = pod.node_name if pinned else ""
        return cls(pod.meta.namespace, pod.meta.name, tuple(claims), node, pod.priority)


class PodShape(NamedTuple):
    """What pods have in common that are alike to the scheduler."""

    demands: tuple[Demand, ...]
    node: str
    priority: int

    @property
    def requests(self) -> list[tuple[Wish, ...]]:
        """All requests, each with its alternatives."""
        return [asks for demand in self.demands for asks in demand.requests]

    @property
    def needs(self) -> str:
        """What it asks for, in words; of alternatives the first."""
        firsts = [asks[0] for asks in self.requests if asks]  # one of a later release has none
        counts = Counter({each.device_class: 0 for each in firsts})
        for each in firsts:
            counts[each.device_class] += each.count
        every = {each.device_class for each in firsts if each.every}
        return " and ".join(
            f"all {name}" if name in every else f"{count} {name}" if count > 1 else name
            for name, count in counts.items()
        )


class PodPlacement(msgspec.Struct, frozen=True):
    """What becomes of the pods of one shape: how many find devices, and how many none; for the rest it is not known.

    Pods of a shape are alike, so which of them find none is a choice: it is the last of `pods`.
    `never`: those that find none would find none if no one else used devices. `free`: how many devices are left for
    the first request; None unless some find none.
    """

    shape: PodShape
    pods: tuple[Seeker, ...]
    found: int
    none: int
    why: str = ""
    never: bool = False
    free: int | None = None

    @classmethod
    def not_known(cls, pods: Iterable[Seeker], why: str) -> PodPlacement:
        """Make one of pods of any shapes, of which nothing is known."""
        return cls(PodShape((), "", 0), tuple(pods), 0, 0, why)

    @property
    def unknown(self) -> int:
        """For how many it is not known; `why` says why."""
        return len(self.pods) - self.found - self.none

    @property
    def pending(self) -> tuple[Seeker, ...]:
        """The pods that find none."""
        return self.pods[len(self.pods) - self.none :]


def freed_claims(seekers: Iterable[Seeker], uids: AbstractSet[str]) -> frozenset[str]:
    """Return the claims of pods, by `namespace/name`, that no one uses once the pods with these uids are gone."""
    claims = [claim for each in seekers for claim in each.claims]
    return frozenset(key_of(each.meta) for each in claims if all(user.uid in uids for user in each.reserved_for))


def placements(inventory: Inventory, seekers: Iterable[Seeker], supply: Supply) -> tuple[PodPlacement, ...]:
    """Return what becomes of pods, shape by shape; those with most pods that find none come first.

    Claims that others keep using stay where they are, so they are not looked for. Pods that wait already may come
    first or last, and those of which nothing is known also never.
    """
    seekers = sorted(seekers, key=lambda each: (-each.priority, each.namespace, each.name))
    try:
        return _placements(inventory, seekers, supply)
    except NotKnownError as error:
        return (PodPlacement.not_known(seekers, str(error)),)


def _placements(inventory: Inventory, seekers: Sequence[Seeker], supply: Supply) -> tuple[PodPlacement, ...]:
    """Do the same. Raises NotKnownError if there is no time left."""
    shapes, results = _shapes(seekers, supply)
    if not shapes:
        return tuple(results)
    names = {(each.namespace, each.name) for each in seekers}
    waiting = [each for each in _waiting(inventory, supply.look) if (each.namespace, each.name) not in names]
    rivals, others = _shapes(waiting, supply)
    perhaps = {shape: [*pods] for shape, pods in rivals.items()}
    for each in (*results, *others):
        perhaps.setdefault(each.shape, []).extend(each.pods)
    work = len(shapes) * len(inventory.pools) + len(seekers)
    more = min(_ROUNDS * len(shapes), _MOST_WORK // work)
    searches = [_Search(supply) for _ in range(_BY_PRIORITY + more)]
    half = _ROUNDS // 2 * len(shapes)
    found = [search.run(shapes, rivals if at // half % 2 else perhaps, at) for at, search in enumerate(searches)]
    for shape, pods in shapes.items():
        supply.look()
        results.append(_agreed(shape, pods, [each[shape] for each in found], searches[0]))
    return tuple(sorted(results, key=lambda each: (-each.none, -each.unknown)))


Shapes = dict[PodShape, list[Seeker]]


def _shapes(seekers: Iterable[Seeker], supply: Supply) -> tuple[Shapes, list[PodPlacement]]:
    """Return the pods by shape, and what is not known of others."""
    shapes: Shapes = {}
    results = []
    for seeker in in_steps(seekers, supply.look, _PODS_BETWEEN_LOOKS):
        sought = [each for each in seeker.claims if not each.allocation or key_of(each.meta) in supply.freed]
        demands = tuple([claim.demand for claim in sought if claim.demand is not None])
        held = [each for each in seeker.claims if key_of(each.meta) not in supply.freed]
        kept = [result for each in held for result in each.allocation or ()]
        nodes = {supply.node_of(result) for result in kept}
        shape = PodShape(demands, seeker.node or next(filter(None, nodes), ""), seeker.priority)
        unknown = (
            "what claims ask for is not kept (serve --watch-patches keeps it)" if len(demands) < len(sought) else ""
        )
        unknown = unknown or next((each.unknown for each in demands if each.unknown), "")
        outlives = any(claim.allocation and not claim.controller_uid for claim in sought)
        if not unknown and (outlives or (kept and not any(each.requests for each in demands))):
            unknown = "its claim outlives it, and may stay with its device"
        if not shape.node and None in nodes:
            unknown = unknown or "others keep a claim that it uses, and it is not known on which nodes that can be used"
        if unknown:
            results.append(PodPlacement(shape, (seeker,), 0, 0, unknown))
        else:
            shapes.setdefault(shape, []).append(seeker)
    return shapes, results


def _waiting(inventory: Inventory, look: Callable[[], None]) -> Iterable[Seeker]:
    """Return the pods that have no node yet, with those of their claims that are there."""
    pods = [pod for pod in in_steps(inventory.pods.values(), look) if not pod.node_name]
    return (
        Seeker.of(pod, [claim for key in claim_keys(pod) if (claim := inventory.claims.get(key)) is not None])
        for pod in pods
    )


def _agreed(shape: PodShape, pods: Sequence[Seeker], results: Sequence[int | str], search: _Search) -> PodPlacement:
    """Return what the searches agree on; each result is how many find devices, or why that is not known."""
    numbers = [each for each in results if isinstance(each, int)]
    if len(numbers) < len(results):
        return PodPlacement(shape, tuple(pods), 0, 0, next(each for each in results if isinstance(each, str)))
    least, most = min(numbers), max(numbers)
    why = "it depends on which pods come first" if least < most else ""
    asks = [ask for each in shape.requests for ask in each]
    unsure = search.supply.unsure.intersection(asks)
    every = any(ask.every for ask in unsure)
    if most == len(pods) and not every:
        return PodPlacement(shape, tuple(pods), least, 0, why)
    if every or (unsure and (len(shape.requests) > 1 or any(ask.count > 1 for ask in unsure))):
        least = 0 if every else least
        return PodPlacement(shape, tuple(pods), least, 0, "it is not known which nodes have which devices")
    try:
        free = search.count_free(shape)
    except NotKnownError as error:  # there was no time left for it, nor to look at an empty cluster
        return PodPlacement(shape, tuple(pods), 0, 0, str(error))
    never = not _Search(search.supply, empty=True).finds(shape)
    return PodPlacement(shape, tuple(pods), least, len(pods) - most, why, never, free)


# --- the search ---------------------------------------------------------------------------------


class _Want(NamedTuple):
    """A request of a claim, with its alternatives; `claim` is the claim's position."""

    claim: int
    demand: Demand
    asks: tuple[Wish, ...]


class _Search:
    """One way to give out devices. `empty`: as if no claim had any."""

    def __init__(self, supply: Supply, *, empty: bool = False) -> None:
        self.supply, self._empty = supply, empty
        self._state: dict[tuple[Any, ...], Any] = {}
        """What is taken; the first part of a key says of what. With the pod's number at the end: until it has all."""
        self._trail: list[tuple[tuple[Any, ...], Any]] = []
        """What stood there before, for steps that are taken back."""
        self._loaded: set[tuple[str, str]] = set()
        self._pod = self._tries = 0

    def run(self, shapes: Shapes, rivals: Shapes, order: int) -> dict[PodShape, int | str]:
        """Return how many pods of each shape find devices, or why that is not known. `order` is the number of one.

        0: by priority and name; 1: the other way round, after rivals; 2: as 0, spread over the places; others:
        shuffled, among rivals, one shape last.
        """
        results: dict[PodShape, int | str] = dict.fromkeys([*shapes, *rivals], 0)
        pods = [(seeker, shape, 1) for shape, each in shapes.items() for seeker in each]
        backwards = order == _REVERSED
        if backwards or order >= _BY_PRIORITY:
            pods += [(seeker, shape, 0) for shape, each in rivals.items() for seeker in each]
        pods.sort(key=lambda pod: (pod[0].namespace, pod[0].name), reverse=backwards)
        if order < _BY_PRIORITY:
            pods.sort(key=lambda pod: (pod[2], pod[0].priority if backwards else -pod[0].priority))
        else:
            last = list(shapes)[order % len(shapes)]
            pods.sort(key=lambda pod: (pod[1] == last, _shuffled(f"{pod[0].namespace}/{pod[0].name}", order)))
        turn = (order - _BY_PRIORITY) // len(shapes) % 4
        spread = order == _BY_PRIORITY - 1 or turn == 3
        places: dict[PodShape, deque[NodePlace]] = {}
        for _, shape, counted in in_steps(pods, self.supply.look, _PODS_BETWEEN_LOOKS):
            known = results[shape]
            if isinstance(known, str):
                continue
            try:
                if shape not in places:
                    places[shape] = self._places(shape, order, len(places) * (turn % 2))
                results[shape] = known + counted * self._finds(shape, places[shape], spread=spread)
            except NotKnownError as error:
                results[shape] = str(error)
        return results

    def finds(self, shape: PodShape) -> bool:
        """Tell whether one pod finds devices, or that is not known."""
        try:
            return self._finds(shape, self._places(shape), spread=False)
        except NotKnownError:
            return True

    def count_free(self, shape: PodShape) -> int:
        """Count the devices that are left for the first request of a pod, wherever it may go."""
        ask, free = shape.requests[0][0], set()
        for place in self._places(shape):
            for device in self.supply.candidates(ask, place):
                mark, self._pod = len(self._trail), self._pod + 1
                if self._take(_Want(0, shape.demands[0], ()), ask, device):
                    free.add(device.id)
                self._undo(mark)
        return len(free)

    def _places(self, shape: PodShape, order: int = 0, number: int = 0) -> deque[NodePlace]:
        wishes = [ask for asks in shape.requests for ask in asks]
        if not all(self.supply.has_class(ask) for ask in wishes):  # the scheduler gives up the pod
            return deque()
        whole = self._empty or any(ask.every or ask.admin for ask in wishes)
        places = [NodePlace(shape.node)] if shape.node else self.supply.places(even_full=whole)
        if order < _BY_PRIORITY:
            return deque(reversed(places) if order == _REVERSED else places)
        return deque(sorted(places, key=lambda place: _shuffled(f"{number} {place.node}{place.selector}", order)))

    def _finds(self, shape: PodShape, places: deque[NodePlace], *, spread: bool) -> bool:
        """Give a pod devices at the first place that has them; forget places that do not: there will be no more."""
        while places and shape.requests:
            if self._fits(shape, places[0]):
                if spread:
                    places.rotate(-1)
                return True
            places.popleft()
        return not shape.requests

    def _fits(self, shape: PodShape, place: NodePlace) -> bool:
        """Take devices for all that a pod asks for, or nothing."""
        self._pod, self._tries = self._pod + 1, _TRIES
        wants = [_Want(at, demand, asks) for at, demand in enumerate(shape.demands) for asks in demand.requests]
        mark, served = len(self._trail), False
        try:
            for ask in [ask for want in wants for ask in want.asks if ask.every]:
                self.supply.candidates(ask, place)  # alternatives after the one that fits are looked at, too
            served = self._serve(wants, place)
        except RecursionError:
            raise NotKnownError("it asks for too many devices") from None
        finally:
            if not served:
                self._undo(mark)
        return served

    def _serve(self, wants: Sequence[_Want], place: NodePlace) -> bool:
        if not wants:
            return True
        claim, mark = ("number", self._pod, wants[0].claim), len(self._trail)
        for ask in wants[0].asks:
            devices = self.supply.candidates(ask, place, even_full=self._empty)
            number = len(devices) if ask.every else ask.count
            has = self._state.get(claim, 0) + number
            if ask.every and has > _RESULTS_MOST:
                raise NotKnownError(f"all devices of a node may be more than {_RESULTS_MOST}, {_GIVEN_UP}")
            if not 0 < number <= len(devices) or has > _RESULTS_MOST:
                continue
            self._set(claim, has)
            if self._choose(wants, ask, devices, number, place):
                return True
            self._undo(mark)
        return False

    def _choose(
        self, wants: Sequence[_Want], ask: Wish, devices: Sequence[StockDevice], number: int, place: NodePlace
    ) -> bool:
        """Take a number of these devices, in their order, and what else is wanted."""
        if not number:
            return self._serve(wants[1:], place)
        for at in range(len(devices) - number + 1):
            self.supply.look()
            self._tries -= 1
            if self._tries < 0:
                raise NotKnownError("there are too many ways to choose devices")
            mark = len(self._trail)
            if self._take(wants[0], ask, devices[at]) and self._choose(
                wants, ask, devices[at + 1 :], number - 1, place
            ):
                return True
            self._undo(mark)
            if ask.every:
                break
        return False

    # --- one device ------------------------------------------------------------------------------

    def _take(self, want: _Want, ask: Wish, device: StockDevice) -> bool:
        """Take a device, in part if that failed: the caller takes it back."""
        self._load(device)
        amounts, mine = consumed(ask, device), ("mine", self._pod, want.claim, device.id)
        if amounts is None or device.is_closed_to(ask):
            return False
        if self._state.get(mine) if ask.admin else self._sum("held", device.id):
            return False
        if not device.offer.shared:
            self._set(mine, value=True)
        return self._use(device, amounts, admin=ask.admin) and self._constrain(want, ask, device)

    def _use(
        self, device: StockDevice, amounts: Sequence[Amount], *, admin: bool = False, forced: bool = False
    ) -> bool:
        """Take counters and capacity of a device; `forced`: there need be none. Admin access keeps them from no pod."""
        offer, pool = device.offer, device.id[:2]
        once = (("shares" if offer.shared else "held", device.id), 1, None)
        limits: list[tuple[tuple[Any, ...], Any, Any]] = [
            once,
            *[(("capacity", device.id, name), amount, most) for name, amount, most in amounts],
        ]
        if not self._sum("shares", device.id):
            counters = self.supply.published(pool).counters
            limits += [(("drawn", pool, counter), amount, counters[counter]) for counter, amount in offer.draws]
        for key, amount, most in limits:
            if not forced and most is not None and self._sum(*key) + amount > most:
                return False
            if offer.shared or key[0] != "capacity":
                own = (*key, self._pod) if admin else key
                self._set(own, self._state.get(own, 0) + amount)
        return True

    def _sum(self, *key: Any) -> Any:
        return self._state.get(key, 0) + self._state.get((*key, self._pod), 0)

    def _constrain(self, want: _Want, ask: Wish, device: StockDevice) -> bool:
        for at, constraint in enumerate(want.demand.constraints):
            if not constraint.concerns(ask):
                continue
            key = ("bound", self._pod, want.claim, at)
            value, known = device.attribute(constraint.attribute), self._state.get(key, ())
            if value is None or (known and (value in known) is constraint.distinct):
                if ask.every:
                    raise NotKnownError(f"a constraint does not hold for all devices of a node, {_GIVEN_UP}")
                return False
            self._set(key, (*known, value))
        return True

    def _load(self, device: StockDevice) -> None:
        """Take what claims have of the device's pool and keep; that is never taken back."""
        pool = device.id[:2]
        if pool in self._loaded or self._empty:
            return
        self._loaded.add(pool)
        trail, self._trail = self._trail, []
        devices = {each.id.device: each for each in self.supply.published(pool).devices}
        for name, ask in self.supply.kept(pool):
            if name in devices:
                self._use(devices[name], consumed(ask, devices[name]) or (), forced=True)
        self._trail = trail

    def _set(self, key: tuple[Any, ...], value: Any) -> None:
        self._trail.append((key, self._state.get(key)))
        self._state[key] = value

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            key, before = self._trail.pop()
            self._state[key] = before
            if before is None:
                del self._state[key]


def _shuffled(name: str, order: int) -> int:
    return zlib.crc32(f"{order} {name}".encode())
