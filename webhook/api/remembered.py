"""Functions of texts that remember their last answers. Anybody may send texts, so how many and how long is bounded."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

TEXT_MAX: Final = 320
"""Characters of the texts of a call together: the key of a taint has 317 at most."""


def remembered(most: int, longest: int = TEXT_MAX) -> Callable[[Callable[..., _T]], Callable[..., _T]]:
    """Keeps the `most` answers that were used last. Calls with more than `longest` characters are always computed."""

    def decorate(compute: Callable[..., _T]) -> Callable[..., _T]:
        kept = lru_cache(maxsize=most)(compute)

        @wraps(compute)
        def look_up(*texts: str) -> _T:
            return kept(*texts) if sum(map(len, texts)) <= longest else compute(*texts)

        return look_up

    return decorate
