"""What all patches select and taint, kept up to date change by change: what `effective_devices` and `expansion` find.

A change of a pool is matched against the filters that concern it, a new filter against the pools; nothing else is
looked at again. The caller does the work in small steps (`step`), so that its event loop is never held for long, and
asks for the standing of a patch when nothing is left.

While a driver publishes a new generation slice by slice, its pool counts as it was before: else devices of the slices
that are still to come would lose their taints for a moment, and a rule for all that is there already would be one for
them as well. Schedulers allocate nothing from such a pool either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DeviceSelector
from webhook.api.slices import DeviceClassSelectors, ResourceSlice
from webhook.expressions.selectors.selector import Compiling
from webhook.inventory.pools import Pool, PoolId, Pools
from webhook.patches.covering import DeviceNameSet
from webhook.patches.filter_match import NO_DEVICES, FilterMatch, Fleet
from webhook.patches.filters import Found, Kinds, OrderedReads, Shape, SharedSelectors, each_alone
from webhook.patches.patching import Origin, by_precedence, taints_of_patch
from webhook.patches.published import ORIGINALS, PublishedDevice, published_by_slice

_NOTHING_LOST: Final[Mapping[PoolId, DeviceNameSet]] = {}


class Contests:
    """All patches with taints, by what they set: which counts on a device (`semantics.md` P-11, P-14, P-22).

    Looked at are only taints of the same key and effect, and only pools in which something changed. Of the result only
    what patches lose is kept, as most lose nothing.
    """

    def __init__(self) -> None:
        self._entrants: dict[Origin, dict[str, ResourceSlicePatch]] = defaultdict(dict)
        self._ranked: dict[Origin, list[str]] = {}
        self._left: dict[Origin, dict[str, dict[PoolId, DeviceNameSet]]] = defaultdict(dict)
        self._work: dict[tuple[Origin, PoolId], None] = {}

    @property
    def pending(self) -> int:
        """Pools that are to be looked at, counted for each taint."""
        return len(self._work)

    def enter(self, patch: ResourceSlicePatch) -> None:
        """Add a patch; mark the pools in which it selects devices."""
        for origin in taints_of_patch(patch):
            self._entrants[origin][patch.meta.name] = patch
            self._ranked.pop(origin, None)

    def leave(self, patch: ResourceSlicePatch) -> None:
        """Remove a patch; mark the pools in which it selected devices."""
        name = patch.meta.name
        for origin in taints_of_patch(patch):
            del self._entrants[origin][name]
            self._ranked.pop(origin, None)
            self._left[origin].pop(name, None)
            if not self._entrants[origin]:
                del self._entrants[origin]
                self._left.pop(origin, None)

    def mark(self, origins: Iterable[Origin], pools: Iterable[PoolId]) -> None:
        """Note that something that was selected in these pools, or who selects, changed."""
        pools = list(pools)
        for origin in origins:
            if len(self._entrants.get(origin, ())) > 1 or self._left.get(origin):
                for pool in pools:
                    self._work[origin, pool] = None

    def left_of(self, origin: Origin, patch: str) -> Mapping[PoolId, DeviceNameSet]:
        """Return the pools in which a patch loses devices that it selects to others, and what is left to it."""
        return self._left[origin].get(patch, _NOTHING_LOST) if origin in self._left else _NOTHING_LOST

    def step(self, selected_in: Callable[[str, PoolId], DeviceNameSet]) -> set[str]:
        """Look at one pool; return the patches to which other devices are left there than before."""
        origin, pool = next(iter(self._work))
        del self._work[origin, pool]
        taken: DeviceNameSet = NO_DEVICES
        changed: set[str] = set()
        for name in self._ranking(origin):
            own = selected_in(name, pool)
            left = own - taken
            known = self._left[origin].setdefault(name, {})
            before, after = known.pop(pool, None), None if left == own else left
            if after is not None:
                known[pool] = after
            if before != after:
                changed.add(name)
            if not known:
                del self._left[origin][name]
            taken = taken | own if taken else own
        if origin in self._left and not self._left[origin]:
            del self._left[origin]
        return changed

    def _ranking(self, origin: Origin) -> list[str]:
        if origin not in self._entrants:
            return []  # the last one has left meanwhile
        if origin not in self._ranked:
            self._ranked[origin] = [patch.meta.name for patch in by_precedence(self._entrants[origin].values())]
        return self._ranked[origin]


_NOTHING: Final = Found(NO_DEVICES)


class _Pass(NamedTuple):
    """A match of one filter against one pool, while it lasts."""

    match: FilterMatch
    version: int
    pool: PoolId
    steps: Iterator[Found | None]


class _Opened(NamedTuple):
    """The pool that is looked at, with its shape for each of what filters read."""

    pool: PoolId
    devices: dict[str, PublishedDevice]
    shapes: dict[OrderedReads | None, Shape]


class PatchIndex:
    """Slices, classes and patches in; which patches may need other rules out."""

    def __init__(self, selectors: SharedSelectors) -> None:
        self.fleet: Final = Fleet()
        self._selectors = selectors
        self._kinds = Kinds(selectors)
        self._classes: dict[str, DeviceClassSelectors] = {}
        self._patches: dict[str, ResourceSlicePatch] = {}
        self._matches: dict[DeviceSelector, FilterMatch] = {}
        self.contests: Final = Contests()
        self._pools = Pools()
        self._views: dict[PoolId, tuple[ResourceSlice, ...]] = {}
        self._to_read: dict[PoolId, None] = {}
        self._to_rematch: dict[DeviceSelector, None] = {}
        self._to_match: dict[PoolId, dict[DeviceSelector, None]] = {}
        self._current: _Pass | None = None
        self._open: _Opened | None = None
        self._changed: set[str] = set()
        self._changed_pools: set[PoolId] = set()

    @property
    def patches(self) -> Mapping[str, ResourceSlicePatch]:
        """By name."""
        return self._patches

    @property
    def pools(self) -> Pools:
        """All slices, also those of generations that are not there in full."""
        return self._pools

    @property
    def pending(self) -> int:
        """Pools to read, filters to match again, pools to match with a filter, and contests in pools."""
        matches = sum([len(filters) for filters in self._to_match.values()])
        return (
            len(self._to_read) + len(self._to_rematch) + matches + self.contests.pending + (self._current is not None)
        )

    def take_changed(self) -> set[str]:
        """Return the patches, by name, whose standing may have changed since the last time; also those gone."""
        found, self._changed = self._changed, set()
        return found

    def take_changed_pools(self) -> set[PoolId]:
        """Return the pools that have changed since the last time."""
        found, self._changed_pools = self._changed_pools, set()
        return found

    def match_of(self, patch: str) -> FilterMatch:
        """Return what the filter of a patch selects. Raises: KeyError."""
        return self._matches[self._patches[patch].selector]

    def wins_any(self, patch: str, origin: Origin, selector: DeviceSelector) -> bool:
        """Return whether a taint of a patch counts on a published device that has the names in a selector."""
        known = self._patches.get(patch)
        if known is None or origin not in taints_of_patch(known):
            return False
        match, left = self.match_of(patch), self.contests.left_of(origin, patch)
        return any(
            not names.isdisjoint(left.get(pool, match.selected_in(pool, self.fleet)))
            for pool, names in self.fleet.named(selector)
        )

    def slices_of(self, pool: PoolId) -> Sequence[ResourceSlice]:
        """Return the slices of a pool, of its newest generation that was there in full."""
        return self._views.get(pool, ())

    # --- changes ---------------------------------------------------------------------------------

    def apply_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Note that a slice came, changed or went."""
        self._pools.apply(old, new)
        for each in (old, new):
            if each is not None:
                self._to_read[each.driver, each.pool] = None

    def apply_class(self, name: str, new: DeviceClassSelectors | None) -> None:
        """Note that a DeviceClass came, changed or, if it is None, went."""
        self._classes.pop(name, None)
        if new is not None:
            self._classes[name] = new
        compiling = Compiling()
        for match in self._matches.values():
            if match.selector.device_class_name == name and match.compile(self._classes, compiling):
                self._changed |= match.patches
                self._to_rematch[match.selector] = None

    def apply_patch(self, name: str, new: ResourceSlicePatch | None) -> None:
        """Note that a patch came, changed or, if it is None, went."""
        old = self._patches.get(name)
        if old is not None and new is not None and _meaning(old) == _meaning(new):
            self._patches[name] = new
            return
        self._changed.add(name)
        match = self._acquired(new) if new is not None else None
        if old is not None:
            self.contests.leave(old)
            self._release(old, keep=match)
            del self._patches[name]
        if new is not None and match is not None:
            self._patches[name] = new
            self.contests.enter(new)
            self.contests.mark(taints_of_patch(new), [pool for pool, _ in match.selected(self.fleet)])

    def _acquired(self, patch: ResourceSlicePatch) -> FilterMatch:
        selector = patch.selector
        match = self._matches.get(selector)
        if match is None:
            match = self._matches[selector] = FilterMatch(selector, self._selectors.make())
            match.compile(self._classes)
            self._to_rematch[selector] = None
        match.patches.add(patch.meta.name)
        return match

    def _release(self, patch: ResourceSlicePatch, keep: FilterMatch | None) -> None:
        match = self._matches[patch.selector]
        # A filter that cannot be used any more selects none, and may still hold what it won when it could.
        pools = {*match.known(), *[pool for pool, _ in match.selected(self.fleet)]}
        self.contests.mark(taints_of_patch(patch), pools)
        if match is keep:
            return
        match.patches.discard(patch.meta.name)
        if not match.patches:
            del self._matches[match.selector]

    def _rematch(self, selector: DeviceSelector) -> None:
        """Match every pool again with a filter that was compiled."""
        del self._to_rematch[selector]
        match = self._matches.get(selector)
        if match is None:
            return
        for pool in match.known():
            self._queue(pool, match.selector)
        if not match.plain and not match.unusable:
            for pool in self._views:
                if match.concerns(pool):
                    self._queue(pool, match.selector)

    def _queue(self, pool: PoolId, selector: DeviceSelector) -> None:
        self._to_match.setdefault(pool, {})[selector] = None

    # --- the work --------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do a little of what is left; return whether there was anything. Usually takes far less than 1 ms."""
        if self._current is not None:
            self._go_on(self._current)
        elif self._to_read:
            self._read(next(iter(self._to_read)))
        elif self._to_rematch:
            self._rematch(next(iter(self._to_rematch)))
        elif self._to_match:
            self._match(next(iter(self._to_match)))
        elif self.contests.pending:
            self._changed |= self.contests.step(lambda patch, pool: self.match_of(patch).selected_in(pool, self.fleet))
        else:
            self._forget_kinds()
            return False
        return True

    def _forget_kinds(self) -> None:
        """Forget what is of use while many pools are matched, so that it does not pile up from day to day."""
        if self._kinds.forget():
            self._open = None
            for match in self._matches.values():
                match.tests.forget()

    def _read(self, identity: PoolId) -> None:
        """Find out what a pool has now, and who has to look at it again."""
        del self._to_read[identity]
        if self._open is not None and self._open.pool == identity:
            self._open = None
        pool, known = self._pools.get(identity), self._views.get(identity)
        if pool is not None and known is not None and not pool.complete:
            return
        view = () if pool is None else _view(pool)
        names = frozenset([device.name for each in view for device in each.devices])
        other_names = self.fleet.put(identity, None if pool is None else names)
        self._views.pop(identity, None)
        if pool is not None:
            self._views[identity] = view
        if not other_names and known is not None and _contents(known) == _contents(view):
            return
        self._changed_pools.add(identity)
        for match in self._matches.values():
            if other_names and match.selector.driver in (None, identity[0]):
                self._changed |= match.patches  # other names make other covers
                if match.plain:
                    self._mark(match, identity)
            if not match.plain and match.concerns(identity):
                self._queue(identity, match.selector)

    def _match(self, identity: PoolId) -> None:
        """Begin to match a pool with the next filter that has to be."""
        filters = self._to_match[identity]
        selector = next(iter(filters))
        del filters[selector]
        if not filters:
            del self._to_match[identity]
        match = self._matches.get(selector)
        if match is None:
            return
        wanted = not match.unusable and match.concerns(identity)
        steps = self._asked(match, identity) if wanted else iter((_NOTHING,))
        self._go_on(_Pass(match, match.version, identity, steps))

    def _go_on(self, current: _Pass) -> None:
        found = next(current.steps)
        if found is None:
            self._current = current
            return
        self._current = None
        match, identity = current.match, current.pool
        if self._matches.get(match.selector) is not match:
            return
        if match.version != current.version:
            self._queue(identity, match.selector)  # its class changed meanwhile
            return
        other, other_faults = match.put(identity, found)
        if other:
            self._mark(match, identity)
        if other or other_faults:
            self._changed |= match.patches

    def _asked(self, match: FilterMatch, identity: PoolId) -> Iterator[Found | None]:
        """Ask as `FilterTests.ask`, once the pool is open and its shape is known."""
        opened = self._open
        if opened is None or opened.pool != identity:
            opened = yield from self._opened(identity)
        tests, only, devices = match.tests, match.selector.device, opened.devices
        if only is not None:
            shape: Shape | None = each_alone([only] if only in devices else [])
        else:
            shape = opened.shapes.get(tests.reads)
        if shape is None:
            shape = opened.shapes[tests.reads] = yield from self._kinds.shape_of(tests.reads, devices)
        yield from tests.ask(shape, devices)

    def _opened(self, identity: PoolId) -> Generator[None, None, _Opened]:
        """Read the slices of a pool, one at each step."""
        self._selectors.forget()
        pool = Pool()
        for each in self._views.get(identity, ()):
            pool.put(each)
        found: dict[str, PublishedDevice] = {}
        for devices in published_by_slice(identity, pool):
            found.update({device.address.device: device for device in devices})
            if len(pool.slices) > 1:
                yield
        self._open = _Opened(identity, found, {})
        return self._open

    def _mark(self, match: FilterMatch, pool: PoolId) -> None:
        for name in match.patches:
            self.contests.mark(taints_of_patch(self._patches[name]), (pool,))


def _view(pool: Pool) -> tuple[ResourceSlice, ...]:
    """Return what counts of a pool that was not seen in full so far.

    After a start in the middle of a generation, slices of the one before are those that are still to be replaced.
    """
    newest = pool.newest
    if pool.complete:
        return tuple(newest)
    generation = newest[0].pool_generation
    older = [each for each in pool.own if each.pool_generation < generation]
    last = max([each.pool_generation for each in older], default=0)
    # Where both have a device the newer one counts, which comes later by its name.
    kept = [
        structs.replace(each, meta=structs.replace(each.meta, name=f"-{each.meta.name}"), pool_generation=generation)
        for each in older
        if each.pool_generation == last
    ]
    return (*kept, *newest)


def _contents(view: Iterable[ResourceSlice]) -> list[object]:
    """Return what filters and hardware scopes see of slices."""
    return [(each.raw_devices, each.counter_sets, each.devices, each.meta.annotations.get(ORIGINALS)) for each in view]


def _meaning(patch: ResourceSlicePatch) -> Iterable[object]:
    """Return all but its metadata, such as the version that a written status leaves."""
    return (
        patch.meta.uid,
        patch.filter,
        patch.priority,
        patch.attributes,
        patch.capacity,
        patch.taints,
        patch.softened_keys,
        patch.created,
    )
