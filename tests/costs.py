"""What a piece of work costs, by a measure that is the same on each machine."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


_Given = TypeVar("_Given")


def calls_of(work: Callable[[_Given], object], given: Callable[[], _Given]) -> int:
    """How many functions are called, by the work and by what it calls, in Python and in C.

    `given` makes what the work is done on, and is not counted. The work is done twice and counted the second time, so
    that imports do not count.
    """
    work(given())
    return calls_in(partial(work, given()))


def calls_in(work: Callable[[], object]) -> int:
    """The same for work that is done once."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    gc.disable()  # what others have hung on a collection would count, too
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count
