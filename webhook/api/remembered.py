"""Functions of texts that remember their last answers. Anybody may send texts, so how many and how long is bounded."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

_T = TypeVar("_T")

TEXT_MAX: Final = 320
"""Characters of the texts of a call together: the key of a taint has 317 at most."""


class _TooLongError(Exception):
    """An exception is no answer, so it is not kept."""


def remembered(most: int, longest: int = TEXT_MAX) -> Callable[[Callable[..., _T]], Callable[..., _T]]:
    """Keeps the `most` answers that were used last. Calls with more than `longest` characters are always computed."""

    def decorate(compute: Callable[..., _T]) -> Callable[..., _T]:
        @lru_cache(maxsize=most)
        @wraps(compute)
        def kept(*texts: str) -> _T:
            if sum(map(len, texts)) > longest:  # asked of new texts alone: it takes longer than to look one up
                raise _TooLongError
            return compute(*texts)

        @wraps(compute)
        def look_up(*texts: str) -> _T:
            try:
                return kept(*texts)
            except _TooLongError:
                return compute(*texts)

        return look_up

    return decorate
