"""The devices that claims could have: which match, on which nodes, and what is left of each while others take theirs.

It is as the scheduler sees them: with the taints of rules, with partitions and their counters, and with devices that
several claims share.
Source: GatherPools, isSelectable and CmpRequestOverCapacity of k8s.io/dynamic-resource-allocation 1.37,
structured/internal/incubating; `semantics.md` K-1, K-5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from itertools import product
from typing import Any, Final, NamedTuple

import msgspec

from webhook.api.claims import AllocationResult, Wish
from webhook.api.decode import Reader
from webhook.api.offers import Offer, decode_offers, reaches
from webhook.api.quantities import parse_quantity
from webhook.api.slices import DeviceClassSelectors
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.expressions.selectors.faults import SelectorFault, StepBudget
from webhook.expressions.selectors.selector import Compiling, SelectedDevice, Selector, compile_selector
from webhook.expressions.values import EvaluationError
from webhook.inventory.pools import FOR_EVER, Evictor, Pool, PoolId, acts, grace_seconds, in_steps, tolerates
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceId, DeviceNames

_POOLS_BETWEEN_LOOKS: Final = 64
_STEPS: Final = 2000
"""Of one selector for one device, as `patches.filters.EVALUATION_STEPS`."""
_WHOLE: Final = Wish("", "")
"""Stands for what a claim asked for where that is not known: all of a device."""


Amount = tuple[str, Fraction, Fraction]
"""A capacity, how much is taken of it, and how much there is."""


class NotKnownError(Exception):
    """It cannot be known here whether there is a device; the text says why."""


class NodePlace(NamedTuple):
    """Where a pod could be: on a node, or on some node that the node selector of a slice selects, given as JSON.

    The latter where nodes are not known.
    """

    node: str = ""
    selector: str = ""


class StockDevice(NamedTuple):
    """A published device; `taints` are all that act on it."""

    id: DeviceId
    offer: Offer
    taints: tuple[DeviceTaint, ...]

    def is_closed_to(self, ask: Wish) -> bool:
        """Tell whether a taint keeps it from a request."""
        return any(not any(tolerates(entry, taint) for entry in ask.tolerations) for taint in self.taints)

    def attribute(self, name: str) -> tuple[str, Any] | None:
        """Return the type and value of an attribute by its qualified name. Raises NotKnownError for a list."""
        domain, _, short = name.rpartition("/")
        own = self.offer.attributes
        found = own.get(name) or (own.get(short) if domain == self.id.driver else None)
        for kind in ("string", "int", "bool", "version"):
            if isinstance(found, dict) and found.get(kind) is not None:
                return kind, found[kind]
        if found:
            raise NotKnownError(f"a constraint on attribute {name}, which is a list")
        return None


class _Published(NamedTuple):
    """A pool as it is read once."""

    devices: tuple[StockDevice, ...]
    counters: Mapping[tuple[str, str], Fraction]
    complete: bool
    """Whether all slices are there, and make sense together: the scheduler takes nothing of other pools."""


class Supply:
    """All devices, with the taints in slices and of rules, and `taints` beside them.

    `freed` are claims that will be gone, `without` is a rule that is about to change. `classes` None: not known;
    `nodes`: labels by name, None if nodes are not known. Once `go_on` says no, questions raise NotKnownError, and so
    does making it.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        inventory: Inventory,
        *,
        classes: Mapping[str, DeviceClassSelectors] | None,
        nodes: Mapping[str, Mapping[str, str]] | None,
        freed: AbstractSet[str],
        taints: Iterable[tuple[DeviceNames, DeviceTaint]] = (),
        without: str = "",
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._inventory, self._classes, self._nodes, self.freed = inventory, classes, nodes, freed
        self._go_on = go_on
        self._taints: dict[tuple[str | None, ...], list[DeviceTaint]] = {}
        rules = [
            (DeviceNames.of(rule.selector, inventory.servers), rule.taint)
            for name, rule in inventory.rules.items()
            if name != without
        ]
        for names, taint in (*rules, *taints):
            if acts(taint.effect):
                self._taints.setdefault(names, []).append(taint)
        self._kept: dict[PoolId, list[tuple[str, Wish]]] = {}
        self._places: dict[bool, Sequence[NodePlace]] = {}
        self._local: dict[str, list[PoolId]] = {}
        self._wide: list[PoolId] = []
        self._full: set[PoolId] = set()
        """Pools that certainly have no free device."""
        self._freed_pools = {
            (each.driver, each.pool) for key in freed for each in inventory.claims[key].allocation or ()
        }
        for identity, pool in in_steps(inventory.pools.items(), self.look, _POOLS_BETWEEN_LOOKS):
            if self._is_full(identity, pool):
                self._full.add(identity)
            for node in pool.nodes or [pool.own[0].node_name or None] * (not pool.complete):
                if node is None:
                    self._wide.append(identity)
                else:
                    self._local.setdefault(node, []).append(identity)
        self._published: dict[PoolId, _Published] = {}
        self._tests: dict[Wish, tuple[Selector, ...]] = {}
        self._matching: dict[tuple[Wish, PoolId], tuple[StockDevice, ...]] = {}
        self.unsure: set[Wish] = set()
        """What matches devices that were left out because it is not known which nodes have them."""

    # --- places ----------------------------------------------------------------------------------

    def places(self, *, even_full: bool) -> Sequence[NodePlace]:
        """Return where devices can be used, by name; `even_full`: also where claims keep all of them."""
        if even_full not in self._places:
            roomy = {node for node, pools in self._local.items() if not self._full.issuperset(pools)}
            self._places[even_full] = self._places_by_name(self._local.keys() if even_full or self._wide else roomy)
        return self._places[even_full]

    def _places_by_name(self, named: AbstractSet[str]) -> Sequence[NodePlace]:
        if self._nodes is not None:
            return [NodePlace(each) for each in sorted(self._nodes if self._wide else named & self._nodes.keys())]
        offers = [device.offer for each in self._wide for device in self.published(each).devices]
        selectors = {_selector_of(each) for each in offers}
        named = {*named, *[str(each.nodes["nodeName"]) for each in offers if each.nodes.get("nodeName")]}
        found = [NodePlace(node) for node in sorted(named)] + [NodePlace("", each) for each in sorted(selectors - {""})]
        return found or [NodePlace()]

    def _is_at(self, ask: Wish, offer: Offer, place: NodePlace) -> bool:
        if self._nodes is not None:
            return reaches(offer.nodes, place.node, self._nodes.get(place.node, {}))
        if offer.nodes.get("nodeName") or offer.nodes.get("allNodes"):
            return reaches(offer.nodes, place.node, {})
        is_there = bool(place.selector) and _selector_of(offer) == place.selector
        if not is_there:
            self.unsure.add(ask)
        return is_there

    def node_of(self, device: AllocationResult) -> str | None:
        """Return the only node that can use a device; empty if all can, None if it is not known which."""
        identity = device.driver, device.pool
        pool = self._inventory.pools.get(identity)
        if pool is None or pool.own[0].node_name:
            return None if pool is None else pool.own[0].node_name
        offer = next((each.offer for each in self.published(identity).devices if each.id.device == device.device), None)
        return None if offer is None or _selector_of(offer) else str(offer.nodes.get("nodeName") or "")

    # --- what there is ---------------------------------------------------------------------------

    def published(self, identity: PoolId) -> _Published:
        """Return the devices of a pool. Raises NotKnownError where slices are kept without them."""
        if identity not in self._published:
            self.look()
            pool = self._inventory.pools.get(identity)
            assert pool is not None
            self._published[identity] = self._read(identity, pool)
        return self._published[identity]

    def _read(self, identity: PoolId, pool: Pool) -> _Published:
        devices: dict[str, StockDevice] = {}
        counters: dict[tuple[str, str], Fraction] = {}
        number, sets = 0, list[str]()
        for value in pool.newest:
            if value.raw_devices is None and value.devices:
                raise NotKnownError("slices are kept without attributes (serve --watch-patches keeps them)")
            raw, beside = [
                msgspec.json.decode(each) if isinstance(each, bytes) else each
                for each in (value.raw_devices, value.beside_devices)
            ]
            spec = {**beside, "nodeName": value.node_name, "devices": raw}
            offers, shared = decode_offers(Reader(spec, []))
            counters |= shared
            sets += {name for name, _ in shared}
            number += len(offers)
            for each in offers:
                address = DeviceId(*identity, each.name)
                devices[each.name] = StockDevice(address, each, self._taints_on(address, pool))
        drawn = {counter for device in devices.values() for counter, _ in device.offer.draws}
        once = number == len(devices) and len(sets) == len({*sets})
        valid = pool.complete and once and drawn <= counters.keys()
        return _Published(tuple(devices.values()), counters, valid)

    def _taints_on(self, device: DeviceId, pool: Pool) -> tuple[DeviceTaint, ...]:
        found = [taint for taint in pool.taints_of(device.device) if acts(taint.effect)]
        if self._taints:
            for names in product(*[(None, name) for name in device]):
                found += self._taints.get(names, ())
        return tuple(found)

    def kept(self, identity: PoolId) -> Sequence[tuple[str, Wish]]:
        """Return which devices of a pool claims have and keep, and what they were asked for by; admin access aside."""
        if identity not in self._kept:
            self._kept[identity] = [
                (name, ask)
                for name, keys in self._inventory.usage.used_in(identity).items()
                for key in keys
                if key not in self.freed
                for ask in self._asks_for(key, DeviceId(*identity, name))
            ]
        return self._kept[identity]

    def _asks_for(self, key: str, device: DeviceId) -> Iterator[Wish]:
        claim = self._inventory.claims[key]
        for result in claim.allocation or ():
            if (result.driver, result.pool, result.device) == device:
                ask = (None if claim.demand is None else claim.demand.ask_of(result.request)) or _WHOLE
                if not ask.admin:
                    yield ask

    # --- what matches ----------------------------------------------------------------------------

    def candidates(self, ask: Wish, place: NodePlace, *, even_full: bool = False) -> list[StockDevice]:
        """Return the devices at a place that a request selects; closed ones only if it wants them all.

        Pools without a free device are left out, unless `even_full`: then all slices must be there.
        Raises NotKnownError.
        """
        self.look()
        found: list[StockDevice] = []
        for identity in sorted([*self._local.get(place.node, ()), *self._wide]):
            pool = self._inventory.pools.get(identity)
            assert pool is not None
            if even_full and not pool.complete:
                raise NotKnownError(f"pool {identity[0]}/{identity[1]} is being published")
            if even_full or ask.every or ask.admin or identity not in self._full:
                found += [each for each in self._matches(ask, identity) if self._is_at(ask, each.offer, place)]
        return found

    def _matches(self, ask: Wish, identity: PoolId) -> tuple[StockDevice, ...]:
        if (ask, identity) not in self._matching:
            self._matching[ask, identity] = tuple(self._matching_in(ask, identity))
        return self._matching[ask, identity]

    def _matching_in(self, ask: Wish, identity: PoolId) -> Iterator[StockDevice]:
        tests, pool = self._tests_of(ask), self.published(identity)
        if not pool.complete:
            if ask.every:  # here and where a selector fails, the scheduler gives up the pod, not the node
                raise NotKnownError(f"pool {identity[0]}/{identity[1]} is being published, or is not valid")
            return
        for device in pool.devices:
            self.look()
            offer = device.offer
            seen = SelectedDevice(
                device.id.driver, offer.attributes, offer.capacity, allow_multiple_allocations=offer.shared
            )
            try:
                matches = all(test.matches(seen, StepBudget(_STEPS)) for test in tests)
            except EvaluationError as error:
                raise NotKnownError(f"a selector fails on {device.id}: {error}") from None
            closed = device.is_closed_to(ask)
            if matches and not closed and self._evicts(device, ask):
                raise NotKnownError(f"it may go to {device.id}, which evicts it again")
            if matches and (consumed(ask, device) is not None if ask.every else not closed):
                yield device

    def look(self) -> None:
        """Raise NotKnownError if there is no time left."""
        if not self._go_on():
            raise NotKnownError("it takes too long to look at all devices")

    def _evicts(self, device: StockDevice, ask: Wish) -> bool:
        """Tell whether a taint that lets pods come does not let them stay: for some time only, or not at all (E-9)."""
        evicting = [taint for taint in device.taints if taint.effect == NO_EXECUTE]
        graces = [grace_seconds(ask.tolerations, taint, Evictor.IN_TREE, self._inventory.servers) for taint in evicting]
        return any(grace != FOR_EVER for grace in graces)

    def _is_full(self, identity: PoolId, pool: Pool) -> bool:
        """Tell, without reading its devices, whether claims keep all of them. False if that is not certain."""
        usage = self._inventory.usage
        used = usage.used_in(identity)
        if len(used) < len(pool.devices) or pool.shares or not pool.devices.keys() <= used.keys():
            return False
        if identity not in self._freed_pools and not usage.monitors:
            return True
        return pool.devices.keys() <= {name for name, _ in self.kept(identity)}

    def has_class(self, ask: Wish) -> bool:
        """Tell whether its DeviceClass is there, or that is not known."""
        return self._classes is None or ask.device_class in self._classes

    def _tests_of(self, ask: Wish) -> tuple[Selector, ...]:
        known = self._tests.get(ask)
        if known is None:
            if self._classes is None:
                raise NotKnownError("DeviceClasses are not known")
            of_class = [each.expression for each in self._classes[ask.device_class].selectors]
            texts = [*of_class, *ask.selectors]
            with Compiling().turn(self.look):
                tests = [compile_selector(text) if text is not None else None for text in texts]
            faults = [each for each in tests if not isinstance(each, Selector)]
            if faults:
                why = faults[0].detail if isinstance(faults[0], SelectorFault) else "it is not CEL"
                raise NotKnownError(f"a selector cannot be evaluated: {why}")
            known = self._tests[ask] = tuple([each for each in tests if isinstance(each, Selector)])
        return known


def _selector_of(offer: Offer) -> str:
    """Return the node selector as text, the same for equal ones; empty if the device has none, or names a node."""
    selector = None if offer.nodes.get("nodeName") or offer.nodes.get("allNodes") else offer.nodes.get("nodeSelector")
    return "" if selector is None else msgspec.json.encode(selector, order="sorted").decode()


# --- capacity -----------------------------------------------------------------------------------


def consumed(ask: Wish, device: StockDevice) -> list[Amount] | None:
    """Return how much of each capacity a request takes of a device; None if the device cannot give it to anyone."""
    wanted, found = dict(ask.capacity), []
    for name, capacity in device.offer.capacity.items():
        most = _number(capacity.get("value"))
        amount = _taken(wanted.pop(name, None), most, Reader(capacity, []).child_or_empty("requestPolicy"))
        if amount is None or amount > most:
            return None
        found.append((name, amount, most))
    return None if wanted else found


def _taken(wanted: Fraction | None, all_of_it: Fraction, policy: Reader) -> Fraction | None:
    """Return the default or all of it if nothing is asked, else the next amount that is offered; None if none is."""
    if wanted is None:
        return _number(policy.raw["default"]) if policy.has("default") else all_of_it
    if values := policy.list("validValues"):
        return min([each for value in values if (each := _number(value)) >= wanted], default=None)
    limits = policy.child_or_empty("validRange").raw
    least, step, most = _number(limits.get("min")), _number(limits.get("step")), limits.get("max")
    amount = max(wanted, least)
    if step > 0:
        amount = least + -(-(amount - least) // step) * step
    return None if most is not None and amount > _number(most) else amount


def _number(value: Any) -> Fraction:
    return parse_quantity(value) or Fraction(0)
