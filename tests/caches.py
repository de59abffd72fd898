"""What a process remembers: its caches, found by a walk over everything that the modules and an object hold."""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import pkgutil
import re
import sys
from collections import OrderedDict, defaultdict, deque
from types import FunctionType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LRU: Final = type(functools.lru_cache(lambda: None))
CONTAINERS: Final = (dict, list, set, deque, OrderedDict, defaultdict)
_OPAQUE: Final = (type(sys), type(sys._getframe()), type(re))


def modules() -> list[ModuleType]:
    """All of the product's, imported."""
    found = pkgutil.walk_packages(webhook.__path__, "webhook.")
    return [importlib.import_module(each.name) for each in found if not each.name.endswith("__main__")]


def cached_functions() -> list[Any]:
    """All of the product's, wherever they are held: in modules, in classes, in objects, behind other functions."""
    modules()
    gc.collect()
    return sorted(
        (each for each in gc.get_objects() if isinstance(each, LRU) and (each.__module__ or "").startswith("webhook.")),
        key=lambda each: f"{each.__module__}.{each.__qualname__}",
    )


def held(*roots: object) -> Iterator[Any]:
    """Everything that is held by these, by the product's modules, and by any cached function but those of tests."""
    others = [each for each in gc.get_objects() if isinstance(each, LRU) and not each.__module__.startswith("tests.")]
    # The regular expressions of the standard library are cached in a dictionary of its own.
    left: list[Any] = [*roots, *[vars(each) for each in modules()], *others, vars(re)["_cache"]]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, _OPAQUE):
            continue
        seen.add(id(each))
        yield each
        left.extend(_referents(each))


def _referents(each: Any) -> list[Any]:
    if isinstance(each, FunctionType):  # not the globals: they are a module's
        return [each.__closure__, each.__defaults__, each.__kwdefaults__, each.__dict__]
    if isinstance(each, type):
        return list(vars(each).values())
    return gc.get_referents(each)


def size_bytes(root: object) -> int:
    """Of all texts and containers that a cache holds."""
    seen: set[int] = set()
    left, total = [root], 0
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, (type, FunctionType, ModuleType)):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if not isinstance(each, MappingProxyType):
            left.extend(gc.get_referents(each))
    return total


def door_of(cached: Any) -> Callable[..., Any]:
    """The function by which a cached function is called: the one that `remembered` makes, or itself."""
    computes, kept = inspect.unwrap(cached), cached.__wrapped__
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each is not kept and each.__dict__.get("__wrapped__") is computes:
            return each
    return cached  # type: ignore[no-any-return]
