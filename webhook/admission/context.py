"""What a decision may look at besides the request, and how long it may take."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.field import Path
from webhook.api.rules import DeviceTaintRule
from webhook.inventory.fates import DeviceNames
from webhook.inventory.impact import Impact
from webhook.inventory.state import Sight
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.document import Loaded
from webhook.policy.ports import NO_NAMES, ClusterNames
from webhook.validation.releases import NEWEST, Release

if TYPE_CHECKING:
    from webhook.policy.model import Policy


class OutOfTime(Exception):  # noqa: N818 -- it says what happened; it is an answer, not a fault
    """The budget was spent; `phase` names the step that was about to start."""

    def __init__(self, phase: str) -> None:
        super().__init__(phase)
        self.phase = phase


class Budget:
    """How long a review may take. Nothing interrupts a step, so steps ask before they start."""

    __slots__ = ("_clock", "_deadline")

    def __init__(self, seconds: float, clock: Callable[[], float], since: float | None = None) -> None:
        """`seconds` from `since`, or from now, as `clock` counts them (any monotonic clock)."""
        self._clock = clock
        self._deadline = (clock() if since is None else since) + seconds

    @property
    def seconds_left(self) -> float:
        """Until the deadline; 0 once it is past."""
        return max(0.0, self._deadline - self._clock())

    def check(self, phase: str) -> None:
        """Go on, or raise OutOfTime with the phase's name."""
        if self._clock() > self._deadline:
            raise OutOfTime(phase)


UNLIMITED: Final = Budget(0.0, lambda: 0.0)
"""For callers that may take as long as they like, such as the command line."""


class AdmissionContext(msgspec.Struct, frozen=True, gc=False):
    """Everything that a decision may look at, besides the request. `now` is UTC.

    `candidate` is a policy that is tried beside the one that holds. `key` signs the authors of templates; without
    one nobody's authorship is written down or believed. `sight` is what is seen of the cluster, None where nobody
    looks at one: then impacts are not guarded. `assumed` are rules that were allowed here a moment ago and that the
    inventory may not have yet. `victims` is what was hit by all rules that began to evict within the policy's window,
    as most of it may be gone by now; `closed` are the devices on which rules began to act within it. `lately` says
    whether a driver's pool had a NoExecute taint (device, key, value) in the last minutes. `read_policy` reads a
    document's text for ConfigMaps: text, where it stands, and what to call between steps. `caller_trusted` says whether
    the caller is known to be an API server, whose word on the user holds: only for such a caller is an author signed, a
    confirmation code given, or a rule kept in mind. On the command line the caller is the user. `offline` is for
    files on the command line: the field rules look at all of an object that is too large to be judged whole, as there
    is time for it, and a code that there is no key for is left to those who have one.
    """

    now: datetime
    release: Release = NEWEST
    judge: Judge = BUILTIN_JUDGE
    candidate: Judge | None = None
    names: ClusterNames = NO_NAMES
    key: bytes | None = None
    sight: Sight | None = None
    assumed: tuple[DeviceTaintRule, ...] = ()
    victims: tuple[Impact, ...] = ()
    closed: tuple[DeviceNames, ...] = ()
    recently_had: Callable[[str, str, tuple[str, str, str]], bool] = lambda _driver, _pool, _taint: False
    read_policy: Callable[[str, Path, Callable[[str], None]], Loaded] | None = None
    budget: Budget = UNLIMITED
    caller_trusted: bool = True
    offline: bool = False

    @property
    def policy(self) -> Policy:
        """The policy that holds."""
        return self.judge.policy
