"""An object under a cursor, for rules that look at all of it: raw values, each with its path.

What it holds has passed `decoding`, so types are right; what is missing or null reads as Go's zero value.

Request policies say how much of a capacity one request may take. Source: pkg/apis/resource/validation
(validateRequestPolicy). The feature gate DRAFractionalCapacityRange is as by default: off up to 1.37, where fractions
are rounded up wherever numbers are counted rather than compared; on in 1.38, where a range with fractions is counted in
thousandths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from webhook.api.field import JSON, FieldError, Path, duplicate, forbidden, invalid, required, too_many
from webhook.api.quantities import parse_quantity
from webhook.validation.releases import Release

_NOTHING: Final[dict[str, Any]] = {}
OPTIONS_MAX: Final = 10
_LARGEST: Final = 2**63 - 1
_EXCLUSIVE: Final = (
    'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
)


class Node(NamedTuple):
    """An object of the manifest, and where it stands."""

    value: dict[str, JSON]
    path: Path

    @classmethod
    def of(cls, value: JSON) -> Node:
        """The whole of an object."""
        return cls(value if isinstance(value, dict) else _NOTHING, Path.root())

    def at(self, name: str) -> Path:
        """Where a field stands."""
        return self.path.child(name)

    def get(self, name: str) -> JSON:
        """A field's value; None where it is missing."""
        return self.value.get(name)

    def has(self, name: str) -> bool:
        """Whether it is there with a value other than null."""
        return self.value.get(name) is not None

    def text(self, name: str) -> str:
        """A text; missing reads as empty."""
        return self.value.get(name) or ""

    def number(self, name: str) -> int:
        """A number; missing reads as zero."""
        return self.value.get(name) or 0

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        return [entry or "" for entry in self.value.get(name) or ()]

    def child(self, name: str) -> Node:
        """An object below; missing reads as empty."""
        return Node(self.value.get(name) or _NOTHING, self.path.child(name))

    def entries(self, name: str) -> list[Node]:
        """The objects of a list."""
        path = self.path.child(name)
        return [Node(entry or _NOTHING, path.index(at)) for at, entry in enumerate(self.value.get(name) or ())]

    def items(self, name: str) -> list[tuple[str, Node]]:
        """The keys and objects of a map."""
        path = self.path.child(name)
        return [(key, Node(entry or _NOTHING, path.key(key))) for key, entry in (self.value.get(name) or {}).items()]


def list_errors(
    node: Node,
    name: str,
    maximum: int | None,
    judge: Callable[[Node], Iterator[FieldError]],
    release: Release,
    key: str | None = None,
) -> Iterator[FieldError]:
    """A list of objects: how many, each of them, and that no two have the same text in the field `key`.

    The entries of a list that is too long are not looked at from 1.35 on, which also reports a duplicate at the entry
    and no more at its key (validateSet, validateSlice).
    """
    entries = node.entries(name)
    if maximum is not None and len(entries) > maximum:
        yield too_many(node.at(name), len(entries), maximum, declarative=release.declarative)
        if release.long_lists_end_the_look:
            return
    for entry in entries:
        yield from judge(entry)
    if key is not None:
        keys = [entry.text(key) for entry in entries]
        for position in _repeated(keys):
            path = entries[position].path
            at = path if release.long_lists_end_the_look else path.child(key)
            yield duplicate(at, keys[position], declarative=release.declarative)


def text_list_errors(
    node: Node,
    name: str,
    maximum: int,
    judge: Callable[[Path, str], Iterable[FieldError]],
    release: Release,
) -> Iterator[FieldError]:
    """The same for a list of texts, which are their own keys."""
    texts, path = node.texts(name), node.at(name)
    if len(texts) > maximum:
        yield too_many(path, len(texts), maximum, declarative=release.declarative)
        if release.long_lists_end_the_look:
            return
    for position, text in enumerate(texts):
        yield from judge(path.index(position), text)
    for position in _repeated(texts):
        yield duplicate(path.index(position), texts[position], declarative=release.declarative)


def key_path(path: Path, key: str, release: Release) -> Path:
    """Where a wrong key of a map is reported: from 1.36 on at the map."""
    return path if release.as_since_1_36 else path.key(key)


def _repeated(keys: list[str]) -> Iterator[int]:
    """The positions of what has been there before."""
    seen: set[str] = set()
    for position, key in enumerate(keys):
        if key in seen:
            yield position
        seen.add(key)


def request_policy_errors(policy: Node, capacity: JSON, release: Release) -> Iterator[FieldError]:
    """The policy of a capacity of that size."""
    maximum = _number(capacity)
    options = policy.get("validValues") or []
    if options and policy.has("validRange"):
        yield forbidden(policy.path, _EXCLUSIVE)
        return
    for name, given in (("validValues", bool(options)), ("validRange", policy.has("validRange"))):
        if given and not policy.has("default"):
            yield required(policy.at("default"), f"required when {name} is defined")
            return
    if options:
        yield from _option_errors(policy, options, maximum, capacity, release)
    elif policy.has("validRange"):
        yield from _range_errors(policy.child("validRange"), policy.get("default"), maximum, capacity, release)


def _option_errors(
    policy: Node, options: list[JSON], maximum: Fraction, capacity: JSON, release: Release
) -> Iterator[FieldError]:
    path = policy.at("validValues")
    numbers = [_number(option) for option in options]
    for position in range(1, len(numbers)):
        if numbers[position - 1] > numbers[position]:
            yield invalid(path.index(position), options[position], "values must be sorted in ascending order")
    crowded = len(numbers) > OPTIONS_MAX
    if crowded:
        yield too_many(path, len(numbers), OPTIONS_MAX)
    else:
        counted = [number if release.exact_fractions else ceil(number) for number in numbers]
        for position, number in enumerate(numbers):
            if number > maximum:
                detail = f"option is larger than capacity value: {capacity}"
                yield invalid(path.index(position), options[position], detail)
            if counted[position] in counted[:position]:
                yield duplicate(path.index(position), options[position])
    if crowded or _number(policy.get("default")) not in numbers:  # of what is too long nothing is found
        yield invalid(path, policy.get("default"), "default value is not valid according to the requestPolicy")


def _range_errors(
    limits: Node, default: JSON, maximum: Fraction, capacity: JSON, release: Release
) -> Iterator[FieldError]:
    if not limits.has("min"):
        yield required(limits.at("min"), "required when validRange is defined")
        return
    given = {"default": default, **{name: limits.get(name) for name in ("min", "max", "step") if limits.has(name)}}
    numbers = {name: _number(value) for name, value in given.items()}
    bounds = {**numbers, "capacity": maximum}
    texts = {**given, "capacity": capacity}
    # Reported at the first name, with the value of the second, if the third is larger than the fourth.
    for at, value, larger, smaller, detail in (
        ("min", "min", "min", "capacity", "min is larger than capacity value"),
        ("default", "default", "min", "default", "default is less than min"),
        ("max", "min", "min", "max", "min is larger than max"),
        ("max", "max", "max", "capacity", "max is larger than capacity value"),
        ("default", "default", "default", "max", "default is more than max"),
    ):
        if larger in bounds and smaller in bounds and bounds[larger] > bounds[smaller]:
            limit = larger if at == "default" and larger == "min" else smaller
            yield invalid(limits.at(at), texts[value], f"{detail}: {texts[limit]}")
    exact = release.exact_fractions and any(number.denominator != 1 for number in numbers.values())
    if exact:
        numbers, maximum = {name: number * 1000 for name, number in numbers.items()}, maximum * 1000
        unsafe = [name for name, each in numbers.items() if each.denominator != 1 or abs(each) > _LARGEST]
        for name in unsafe:
            yield invalid(limits.at(name), given[name], "value cannot be represented as a milli value")
        if unsafe:
            return
    if "step" in numbers:
        yield from _step_errors(limits, given, numbers, maximum, capacity, exact=exact)


def _step_errors(
    limits: Node,
    given: dict[str, JSON],
    numbers: dict[str, Fraction],
    maximum: Fraction,
    capacity: JSON,
    *,
    exact: bool,
) -> Iterator[FieldError]:
    path, step = limits.at("step"), numbers["step"]
    if step <= 0:
        yield invalid(path, given["step"], "must be greater than zero")
        return
    if numbers["min"] + step > maximum:
        yield invalid(path, given["step"], f"one step is larger than capacity value: {capacity}")
    unsafe = [] if exact else list(_unsafe_errors(limits, given, numbers))
    if unsafe:
        yield from unsafe
        return
    for name in ("default", "max"):
        if name in numbers and (ceil(numbers[name]) - ceil(numbers["min"])) % ceil(step):
            detail = f"value is not a multiple of a given step ({given['step']}) from ({given['min']})"
            yield invalid(path, given[name], detail)


def _unsafe_errors(limits: Node, given: dict[str, JSON], numbers: dict[str, Fraction]) -> Iterator[FieldError]:
    for name, number in numbers.items():
        if number < 0:
            yield invalid(limits.at(name), given[name], "must be greater than or equal to 0")
        elif number > _LARGEST:
            yield invalid(limits.at(name), given[name], f"must not be larger than {_LARGEST}")


def _number(value: JSON) -> Fraction:
    return parse_quantity(value) or Fraction(0)
