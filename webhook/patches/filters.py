"""Filters of patches: the selectors of a filter and of its class, and what they answer about devices.

Names in a filter are not among them: who has the pools by name need not look at each device for these.

Devices are of one kind if they are alike in what a filter reads of them: its selectors have the same answer for all of
them. Every device has an attribute of its own, such as its serial number, so devices are hardly ever equal as a whole.
Source: KEP-5027; `semantics.md` P-2, P-16, P-17.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from webhook.api.rules import DeviceSelector
from webhook.api.slices import DeviceClassSelectors
from webhook.expressions.drivers import drivers_of
from webhook.expressions.selectors.faults import SelectorFault, StepBudget
from webhook.expressions.selectors.selector import Reads, SelectedDevice, Selector, compile_selector
from webhook.expressions.values import EvaluationError
from webhook.inventory.targets import DeviceId
from webhook.patches.covering import DeviceNameSet
from webhook.patches.published import PublishedDevice


class CannotCompileError(Exception):
    """A CEL expression cannot be used for any device."""


class CannotMatchError(Exception):
    """A CEL expression has no answer for a device: a runtime error, or a result that is neither true nor false."""


class CannotFilterError(Exception):
    """A filter selects nothing because it cannot be judged, such as one that names a class that is missing."""


class DeviceTest(NamedTuple):
    """A CEL expression as a test of devices. `selects` raises: CannotMatchError."""

    selects: Callable[[PublishedDevice], bool]
    reads: Reads | None = None
    """As in `Selector.reads`."""


CompilesSelectors: TypeAlias = Callable[[str], DeviceTest]
"""Makes tests of devices from CEL expressions; each of a patch or class is compiled once a pass. Raises:
CannotCompileError."""


class PlacedTest(NamedTuple):
    """A selector of a filter or of its class: its expression, and what it tests.

    `where` it stands: `selector #0`, or `selector #0 of device class gpu`.
    """

    where: str
    expression: str
    test: DeviceTest


def placed_expressions(
    selector: DeviceSelector, classes: Mapping[str, DeviceClassSelectors]
) -> tuple[tuple[str, str], ...]:
    """Return where the selectors of a filter stand, its class's first, and each text. Raises: CannotFilterError."""
    wanted = selector.device_class_name
    if selector.unknown:
        fields = ", ".join(field for field, _ in selector.unknown)
        raise CannotFilterError(f"the filter has fields that are not known: {fields}")
    if wanted is not None and wanted not in classes:
        raise CannotFilterError(f"device class {wanted} does not exist")
    of_class = classes[wanted].selectors if wanted is not None else ()
    placed = [
        *[(f"selector #{at} of device class {wanted}", each.expression) for at, each in enumerate(of_class)],
        *[(f"selector #{at}", each.expression) for at, each in enumerate(selector.selectors)],
    ]
    for where, expression in placed:
        if expression is None:
            raise CannotFilterError(f"{where} cannot be used: it has no CEL expression")
    return tuple([(where, expression) for where, expression in placed if expression is not None])


def tests_of(
    selector: DeviceSelector, classes: Mapping[str, DeviceClassSelectors], compiles: CompilesSelectors
) -> tuple[PlacedTest, ...]:
    """Return the tests of a filter, those of its class first. Raises: CannotFilterError."""
    found: list[PlacedTest] = []
    for where, expression in placed_expressions(selector, classes):
        try:
            found.append(PlacedTest(where, expression, compiles(expression)))
        except CannotCompileError as error:
            raise CannotFilterError(f"{where} cannot be used: {error}") from None
    return tuple(found)


Answer: TypeAlias = bool | tuple[str, str]
"""Whether a selector or a filter selects a device. Where a selector fails, the device is left out (P-16): which one it
was, as `PlacedTest.where`, and how it failed."""


def answer_of(device: PublishedDevice, placed: PlacedTest) -> Answer:
    """Ask a selector about a device."""
    try:
        return placed.test.selects(device)
    except CannotMatchError as error:
        return placed.where, str(error)


EVALUATION_STEPS: Final = 2000
"""Of one selector for one device: a millisecond or two at most. Usual ones take ten. An API server allows 1,000,000,
but for the devices of one node. The limit is for each evaluation by itself, so that a filter selects the same devices
whatever was evaluated before."""


class DeviceSelectors:
    """Compiles the selectors of one pass over the devices. What selectors see of a device is made once a pass.

    An evaluation that takes more than EVALUATION_STEPS fails. When all of them together have taken `steps`, if that is
    given, further ones fail as well.
    """

    def __init__(self, steps: int | None = None, shared: SharedSelectors | None = None) -> None:
        self._left = math.inf if steps is None else steps
        self._budget = StepBudget(0)
        self._shared = shared or SharedSelectors()

    def __call__(self, expression: str) -> DeviceTest:
        """Make the test of devices that the expression is. Raises: CannotCompileError."""
        selector = compile_selector(expression)
        if isinstance(selector, SelectorFault):
            raise CannotCompileError(selector.detail)
        return DeviceTest(partial(self._matches, selector), selector.reads)

    def _matches(self, selector: Selector, device: PublishedDevice) -> bool:
        budget = self._budget
        allowed = budget.left = EVALUATION_STEPS if self._left > EVALUATION_STEPS else int(self._left)
        try:
            return selector.matches(self._shared.seen(device), budget)
        except EvaluationError as error:
            raise CannotMatchError(str(error)) from None
        finally:
            self._left -= allowed - budget.left


class SharedSelectors:
    """Makes the selectors of many filters that look at the same devices; these are shown to them once."""

    def __init__(self) -> None:
        self._seen: dict[DeviceId, SelectedDevice] = {}

    def make(self) -> DeviceSelectors:
        """Return those of one filter."""
        return DeviceSelectors(shared=self)

    def seen(self, device: PublishedDevice) -> SelectedDevice:
        """Return a device as the selectors see it."""
        address = device.address
        seen = self._seen.get(address)
        if seen is None:
            seen = self._seen[address] = SelectedDevice(
                address.driver,
                device.attributes,
                device.capacity,
                allow_multiple_allocations=device.allow_multiple_allocations,
            )
        return seen

    def forget(self) -> None:
        """Forget what was seen: devices of the same names may be others from now on."""
        self._seen.clear()


# --- devices that are alike ----------------------------------------------------------------------

ANSWERS_MOST: Final = 4096
"""Kinds of devices for which a filter's answers are remembered."""
SHAPES_MOST: Final = 256
"""Shapes of pools for which they are, and which pools that are alike share."""
KINDS_MOST: Final = 4096
"""Kinds that are remembered by what is read; where there are more, devices are asked one by one."""
READS_MOST: Final = 16
"""Different things to read by which devices are distinguished. Filters that read yet other things ask each device."""
_DEVICES_AT_ONCE: Final = 16
"""To find the kind of a device takes some 20 µs, most of it for the values that selectors see."""

OrderedReads: TypeAlias = tuple[tuple[str, str], ...]
"""What a filter reads, sorted: equal sets may be walked in different orders, and values are compared by position."""


class Group(NamedTuple):
    """Devices of a pool of which one is asked for all. `kind` is None if the answer cannot be used again."""

    kind: int | None
    names: tuple[str, ...]


class Shape(NamedTuple):
    """The devices of a pool by kind. Pools that are alike share one shape; `number` is None if it is not shared."""

    number: int | None
    groups: tuple[Group, ...]


def each_alone(names: Iterable[str]) -> Shape:
    """Return the shape with which every device is asked."""
    return Shape(None, tuple([Group(None, (name,)) for name in names]))


class Kinds:
    """Numbers for kinds of devices and for shapes of pools. A number is never used twice."""

    def __init__(self, selectors: SharedSelectors) -> None:
        self._selectors = selectors
        self._kinds: dict[OrderedReads, dict[tuple[object, ...], int]] = {}
        self._shapes: dict[tuple[Group, ...], Shape] = {}
        self._last = 0

    def forget(self) -> bool:
        """Let all numbers go; return whether there were any."""
        had = bool(self._kinds)
        self._kinds, self._shapes = {}, {}
        return had

    def shape_of(
        self, reads: OrderedReads | None, devices: Mapping[str, PublishedDevice]
    ) -> Generator[None, None, Shape]:
        """Find the shape of a pool; pauses after each few devices."""
        if reads is None or (reads not in self._kinds and len(self._kinds) >= READS_MOST):
            return each_alone(devices)
        kinds = self._kinds.setdefault(reads, {})
        by_kind: dict[int, list[str]] = defaultdict(list)
        for at, (name, device) in enumerate(devices.items(), 1):
            kind = self._kind_of(kinds, reads, device)
            if kind is None:
                return each_alone(devices)
            by_kind[kind].append(name)
            if not at % _DEVICES_AT_ONCE:
                yield
        groups = tuple([Group(kind, tuple(names)) for kind, names in by_kind.items()])
        shape = self._shapes.get(groups)
        if shape is None and len(self._shapes) < SHAPES_MOST:
            self._last += 1
            shape = self._shapes[groups] = Shape(self._last, groups)
        return shape or Shape(None, groups)

    def _kind_of(
        self, kinds: dict[tuple[object, ...], int], reads: OrderedReads, device: PublishedDevice
    ) -> int | None:
        """Return the number of a kind; None if it is new, and enough are remembered."""
        # Selectors fail on a device with an attribute that has no value, even if they do not read it.
        try:
            _ = self._selectors.seen(device).variables
            fault = ""
        except EvaluationError as error:
            fault = str(error)
        # `repr` tells 1, 1.0 and True apart, which are one key.
        read = [
            repr((device.attributes if field == "attributes" else device.capacity).get(name)) for field, name in reads
        ]
        key = device.address.driver, device.allow_multiple_allocations, fault, *read
        kind = kinds.get(key)
        if kind is None and len(kinds) < KINDS_MOST:
            self._last += 1
            kind = kinds[key] = self._last
        return kind


class Found(NamedTuple):
    """What a filter selects of the devices of a pool, and of all pools with that shape."""

    names: DeviceNameSet
    failed: Mapping[tuple[str, str], Sequence[str]] = {}
    """By selector and detail the devices on which it failed."""


class FilterTests:
    """The tests of one filter, and their answers about kinds of devices."""

    def __init__(self, placed: tuple[PlacedTest, ...], at_once: int) -> None:
        self.placed: Final = placed
        read = [each.test.reads for each in placed if each.test.reads is not None]
        self.reads: Final[OrderedReads | None] = (
            tuple(sorted(frozenset().union(*read))) if len(read) == len(placed) else None
        )
        """What the tests read of devices; None if each has to be asked."""
        # Where the first selector rules a driver out, it is false for its devices, and no other is asked.
        self._drivers = drivers_of([placed[0].expression]) if placed else None
        self._at_once = at_once
        self._answers: dict[int | None, Answer] = {}
        self._found: dict[int | None, Found] = {}

    def concern(self, driver: str) -> bool:
        """Return whether they may select devices of a driver."""
        return self._drivers is None or driver in self._drivers

    def forget(self) -> None:
        """Let go what was found about kinds of devices."""
        self._answers.clear()
        self._found.clear()

    def ask(self, shape: Shape, devices: Mapping[str, PublishedDevice]) -> Iterator[Found | None]:
        """Yield what the filter selects of these devices at the end, and None after each `at_once` tests."""
        found = self._found.get(shape.number)
        if found is None:
            found = yield from self._asked(shape, devices)
            if shape.number is not None and len(self._found) < SHAPES_MOST:
                self._found[shape.number] = found
        yield found

    def _asked(self, shape: Shape, devices: Mapping[str, PublishedDevice]) -> Generator[None, None, Found]:
        names: list[str] = []
        failed: dict[tuple[str, str], list[str]] = defaultdict(list)
        asked = 0
        for kind, alike in shape.groups:
            answer = self._answers.get(kind)
            if answer is None:
                answer = True
                for test in self.placed:
                    answer = answer_of(devices[alike[0]], test)
                    asked += 1
                    if not asked % self._at_once:
                        yield
                    if answer is not True:
                        break
                if kind is not None and len(self._answers) < ANSWERS_MOST:
                    self._answers[kind] = answer
            if answer is True:
                names += alike
            elif answer is not False:
                failed[answer] += alike
        return Found(frozenset(names), failed)
