"""Names under a key, each once: few as a tuple, many as a dict, which adds and removes one in the same time.

Indexes have keys by the hundred thousand, nearly all with one name or two: for those a dict is four times the memory.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Several: TypeAlias = tuple[str, ...] | dict[str, None]
"""Names in the order in which they were added."""
_FEW: Final = 8
"""A tuple is copied with each change, which costs about as much as a dict up to this length."""
_FEW_AGAIN: Final = 4
"""A dict keeps the memory of all names that it ever had; less than _FEW, so that no key goes to and fro."""


def add_name(index: dict[str, Several], key: str, name: str) -> Several:
    """Adds a name that the key does not have; returns all names of the key."""
    known = index.get(key, ())
    if isinstance(known, dict):
        known[name] = None
    else:
        known = index[key] = (*known, name) if len(known) < _FEW else dict.fromkeys((*known, name))
    return known


def remove_name(index: dict[str, Several], key: str, name: str) -> Several:
    """Removes a name that the key has, and with the last name the key; returns the names that are left."""
    known = index[key]
    if isinstance(known, dict):
        del known[name]
        left: Several = known
        if len(known) <= _FEW_AGAIN:
            left = index[key] = tuple(known)
    else:
        left = index[key] = tuple([each for each in known if each != name])
    if not left:
        del index[key]
    return left
