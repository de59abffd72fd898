"""`x in [...]` where all entries are literals. Source: cel-go interpreter/decorators.go, maybeOptimizeSetMembership."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.expressions.selectors.syntax import Constant, ListOf
from webhook.expressions.selectors.values import check_hashable, is_equal, is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.expressions.selectors.syntax import Invocation
    from webhook.expressions.selectors.values import Charge

_HASHED: Final = (bool, int, float, str)


def constant_entries(node: Invocation) -> tuple[Any, ...] | None:
    """The entries, if they are all literals that the API server puts into a set; None if it does not."""
    entries = node.arguments[1]
    if not isinstance(entries, ListOf) or entries.optional:
        return None
    values = [entry.value for entry in entries.entries if isinstance(entry, Constant)]
    if len(values) < len(entries.entries) or not all(isinstance(value, _HASHED) for value in values):
        return None
    return tuple(values)


def is_member(entries: Sequence[Any], charge: Charge, value: Any) -> bool:
    """Whether the value is among them.

    Raises: AbortedError, for a version or bytes, which the API server cannot look up in a set.
    """
    charge(len(entries))
    check_hashable(value)
    if is_number(value):
        return any(is_number(entry) and _has_number(value, entry) for entry in entries)
    return any(is_equal(value, entry, charge) for entry in entries)


def _has_number(value: Any, entry: Any) -> bool:
    """Whether the set of an entry has the value: integers add their nearest double, doubles only an equal integer."""
    return value == float(entry) if isinstance(value, float) else value == entry
