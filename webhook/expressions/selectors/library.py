"""Every function that can be evaluated, by overload; what `declarations` has beyond it is only checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from webhook.expressions.selectors.arithmetic import ARITHMETIC
from webhook.expressions.selectors.kinds import CelType, functions
from webhook.expressions.selectors.lists import COUNTED_LISTS, LISTS
from webhook.expressions.selectors.measures import MEASURES
from webhook.expressions.selectors.texts import COUNTED_TEXTS, TEXTS
from webhook.expressions.selectors.values import (
    Charge,
    Optional,
    Quantity,
    Semver,
    TypeName,
    UInt,
    key_value,
    no_overload,
)

COUNTED: Final[Mapping[str, Callable[..., Any]]] = {**COUNTED_TEXTS, **COUNTED_LISTS}
"""Functions that take steps for each part of what they look at and make; what they are given first takes them."""
LIBRARY: Final[Mapping[str, Callable[..., Any]]] = {**ARITHMETIC, **TEXTS, **LISTS, **MEASURES, **COUNTED}

_CLASSES: Final[Mapping[str, type]] = {
    "bool": bool,
    "int": int,
    "uint": UInt,
    "double": float,
    "string": str,
    "bytes": bytes,
    "null_type": type(None),
    "type": TypeName,
    "kubernetes.Quantity": Quantity,
    "kubernetes.Semver": Semver,
    "optional_type": Optional,
}


def takes(kind: CelType, value: Any) -> bool:
    """Whether a value is of a type; of lists and maps the first entry counts, as in cel-go."""
    match kind.kind:
        case "dyn" | "any" | "parameter":
            return True
        case "list":
            return isinstance(value, list) and (not value or takes(kind.of[0], value[0]))
        case "map":
            if not isinstance(value, dict):
                return False
            return not value or all(map(takes, kind.of, next((key_value(key), item) for key, item in value.items())))
        case _:
            return type(value) is _CLASSES.get(kind.name)


def is_counted(overloads: Sequence[str]) -> bool:
    """Whether one of them is in COUNTED, so that the function for them is given what takes steps first."""
    return not COUNTED.keys().isdisjoint(overloads)


def dispatched(overloads: Sequence[str], given: Sequence[CelType] = ()) -> Callable[..., Any]:
    """The function that calls the overload which takes the arguments it gets.

    `given` are the types of the arguments that the checker knows: those that fit need no look at the values.
    Raises, when it is called: EvaluationError.
    """
    known = functions().by_id
    choices = [_Choice(known[name].arguments, name) for name in overloads if name in LIBRARY]
    if len(choices) == 1 and (choices[0].takes_anything or choices[0].kinds == tuple(given)):
        return choices[0].function

    def run(*values: Any) -> Any:
        for choice in choices:
            if choice.takes(values):
                return choice.function(*values)
        raise no_overload(*values)

    def run_counted(charge: Charge, *values: Any) -> Any:
        for choice in choices:
            if choice.takes(values):
                return choice.function(charge, *values) if choice.counted else choice.function(*values)
        raise no_overload(*values)

    return run_counted if is_counted(overloads) else run


class _Choice:
    """An overload with its function; `classes` tell most values apart without a look at their types."""

    __slots__ = ("classes", "counted", "function", "kinds", "looks_inside", "takes_anything")

    def __init__(self, kinds: tuple[CelType, ...], name: str) -> None:
        self.kinds = kinds
        self.function = LIBRARY[name]
        self.counted = name in COUNTED
        self.classes = tuple([_CLASSES.get(kind.name) for kind in kinds])
        self.takes_anything = all(kind.kind in {"dyn", "parameter"} for kind in kinds)
        self.looks_inside = any(kind.kind in {"list", "map"} for kind in kinds)

    def takes(self, values: tuple[Any, ...]) -> bool:
        if len(values) != len(self.classes):
            return False
        for wanted, value in zip(self.classes, values, strict=True):
            if wanted is not None and value.__class__ is not wanted:
                return False
        return not self.looks_inside or all(map(takes, self.kinds, values))
