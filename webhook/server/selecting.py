"""Reviews with CEL selectors: what takes long is compiled in the lane, and asked about devices in small steps."""

from __future__ import annotations

import contextlib
import math
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from webhook.admission.context import OutOfTime, OutOfTurn
from webhook.expressions.selectors.selector import COMPILE_STEPS, Compiling, compile_selector
from webhook.flowcontrol.timeslice import REVIEW_SECONDS, TimeSlice
from webhook.inventory.patch_reach import REACH_SECONDS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from webhook.admission.context import Budget
    from webhook.server.review_state import ReviewState

_LOOKS_MOST: Final = 4
"""A thousand steps, or about a millisecond: what takes more is compiled in the lane, since many may come at a time."""
SLICES: Final = "resourceslices"
SELECTING: Final = frozenset({"devicetaintrules", "resourceslicepatches", SLICES})
"""Resources whose reviews compile selectors, and ask them about devices."""
STRETCH_SECONDS: Final = 0.02
"""How long such a review may hold the loop by that in the end. Nothing else is answered meanwhile."""


def turn_of(budget: Budget, resource: str, *, on_loop: bool) -> Compiling:
    """In which a review compiles. Ends with OutOfTime or OutOfTurn when it is time for that."""
    selectors = budget.selectors = budget.selectors or Compiling()
    if not on_loop:
        # Those of a slice are of all patches that are stored.
        steps = math.inf if resource == SLICES else COMPILE_STEPS
        return selectors.turn(partial(budget.check, "selectors"), steps)
    go_on, looks = budget.lasting(STRETCH_SECONDS), count(1)

    def look() -> None:
        if budget.hurried and next(looks) > _LOOKS_MOST:
            raise OutOfTurn
        if not go_on():
            raise OutOfTime("selectors")

    return selectors.turn(look)


async def work_ahead(
    budget: Budget,
    state: ReviewState,
    matching: asyncio.Lock,
    in_lane: Callable[[Callable[[], None]], Awaitable[None]],
) -> bool:
    """Does what has ended a turn, beside the loop or in small steps; returns whether another turn may come further.

    `matching` is held by who goes on with filters.
    """
    expression = "" if budget.selectors is None else budget.selectors.expression
    if expression:

        def work() -> None:
            with contextlib.suppress(OutOfTime), turn_of(budget, "", on_loop=False):
                compile_selector(expression)

        await in_lane(work)
        return True
    budget.hurried = False
    patient = budget.lasting(REACH_SECONDS)
    timeslice, more = TimeSlice(REVIEW_SECONDS), matching.locked()
    # What is found is for all who ask, so one of them at a time is enough.
    async with matching:
        while patient() and state.match_filters():
            more = True
            await timeslice.pause()
    return more and patient()
