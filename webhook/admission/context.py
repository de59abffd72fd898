"""What a decision may look at besides the request, and how long it may take."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.validation.releases import NEWEST, Release

if TYPE_CHECKING:
    from collections.abc import Callable

CLAIM_CONTROLLER: Final = "system:serviceaccount:kube-system:resource-claim-controller"


class DocumentedRules(StrEnum):
    """What becomes of rules that only the source documents have."""

    ENFORCE = "enforce"
    WARN = "warn"
    OFF = "off"


class OutOfTime(Exception):  # noqa: N818 -- it says what happened; it is an answer, not a fault
    """The budget was spent; `phase` names the step that was about to start."""

    def __init__(self, phase: str) -> None:
        super().__init__(phase)
        self.phase = phase


class Budget:
    """How long a review may take. Nothing interrupts a step, so steps ask before they start."""

    __slots__ = ("_clock", "_deadline")

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        """`seconds` from now, as `clock` counts them (any monotonic clock)."""
        self._clock = clock
        self._deadline = clock() + seconds

    def check(self, phase: str) -> None:
        """Go on, or raise OutOfTime with the phase's name."""
        if self._clock() > self._deadline:
            raise OutOfTime(phase)


UNLIMITED: Final = Budget(0.0, lambda: 0.0)
"""For callers that may take as long as they like, such as the command line."""


class AdmissionContext(msgspec.Struct, frozen=True, gc=False):
    """Everything that a decision may look at, besides the request. `now` is UTC."""

    now: datetime
    release: Release = NEWEST
    documented_rules: DocumentedRules = DocumentedRules.ENFORCE
    bump_slice_time_added: bool = False
    trusted_controllers: frozenset[str] = frozenset({CLAIM_CONTROLLER})
    budget: Budget = UNLIMITED
