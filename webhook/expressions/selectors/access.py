"""Fields and entries of values. Source: cel-go interpreter/attributes.go, refQualify."""

from __future__ import annotations

from typing import Any

from webhook.expressions.selectors.values import ABSENT, DomainMap, Optional, is_number, map_key
from webhook.expressions.values import EvaluationError


def entry_of(value: Any, key: Any) -> Any:
    """`value[key]` or `value.key`; of an optional value that is optional too.

    Raises: EvaluationError.
    """
    if isinstance(value, dict):
        try:
            return value[key if isinstance(key, str) else map_key(key)]
        except KeyError:
            raise EvaluationError(f"no such key: {key}") from None
    if isinstance(value, Optional):
        return optional_entry_of(value, key)
    if isinstance(value, list):
        position = _position(key)
        if 0 <= position < len(value):
            return value[position]
        raise EvaluationError(f"index out of bounds: {key}")
    raise EvaluationError(f"no such key: {key}")


def optional_entry_of(value: Any, key: Any) -> Optional:
    """`value[?key]` or `value.?key`: absent where there is no such entry.

    Raises: EvaluationError, for a key that no map can have, or a position in a list that is no number.
    """
    if isinstance(value, Optional):
        if not value.present:
            return ABSENT
        value = value.value
    at = key if isinstance(key, str) else map_key(key)
    if isinstance(value, DomainMap):
        return Optional(present=True, value=value[at])
    if isinstance(value, dict):
        return Optional(present=True, value=value[at]) if at in value else ABSENT
    if isinstance(value, list):
        position = _position(key)
        return Optional(present=True, value=value[position]) if 0 <= position < len(value) else ABSENT
    return ABSENT


def present(value: Any, name: str) -> bool:
    """`has(value.name)`."""
    return optional_entry_of(value, name).present


def _position(key: Any) -> int:
    if is_number(key) and (not isinstance(key, float) or key.is_integer()):
        return int(key)
    raise EvaluationError(f"unsupported index value: {key}")
