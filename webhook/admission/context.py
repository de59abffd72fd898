"""What a decision may depend on besides the request, and how long it may take."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from webhook.api.field import Path
from webhook.api.rules import DeviceTaintRule
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.expressions.selectors.selector import Compiling
from webhook.inventory.impact import Impact, KnownPods
from webhook.inventory.state import Sight
from webhook.inventory.targets import DeviceNames
from webhook.patches.patch_reach import KnownPatches
from webhook.patches.slice_patches import SlicePatches
from webhook.policy.decide import BUILTIN_JUDGE, Judge
from webhook.policy.document import Loaded
from webhook.policy.match import NO_NAMES, ClusterNames
from webhook.policy.model import InTreeEvictor, Policy
from webhook.validation.releases import NEWEST, Release

HURRY_SECONDS: Final = 0.002
"""How long a review compiles selectors, and asks them, where others wait for it."""


class OutOfTime(Exception):  # noqa: N818 -- it says what happened; it is an answer, not a fault
    """The budget was spent; `phase` names the step that was about to start."""

    def __init__(self, phase: str) -> None:
        super().__init__(phase)
        self.phase = phase


class OutOfTurn(Exception):  # noqa: N818 -- it says what happened; the review is decided elsewhere
    """The review takes longer than it may where others wait for it. Nothing was decided."""


class Budget:
    """How long a review may take. Nothing interrupts a step, so steps ask before they start.

    A review that others wait for has a turn as well, which is much shorter: see `take_turn`.
    """

    __slots__ = (
        "_clock",
        "_deadline",
        "_stop",
        "_turn_seconds",
        "_work",
        "_worked",
        "hurried",
        "selectors",
        "stretch_seconds",
    )

    def __init__(self, seconds: float, clock: Callable[[], float], since: float | None = None) -> None:
        """`seconds` from `since`, or from now, as `clock` counts them (any monotonic clock)."""
        self._clock = clock
        self._deadline = self._stop = (clock() if since is None else since) + seconds
        self._turn_seconds = 0.0
        self._work = clock
        self._worked: float | None = None
        self.hurried = False
        """Whether to begin what can be done beside the loop is to end with OutOfTurn: see `lasting`."""
        self.stretch_seconds = math.inf
        """How long the loop may be held by that, however long it may take."""
        self.selectors: Compiling | None = None
        """What was compiled for this review."""

    @property
    def spent(self) -> bool:
        """Whether no seconds are left."""
        return self._clock() >= self._deadline

    @property
    def seconds_left(self) -> float:
        """Until the deadline; 0 once it is past."""
        return max(0.0, self._deadline - self._clock())

    def take_turn(self, seconds: float, work: Callable[[], float]) -> None:
        """Have `check` raise OutOfTurn from now on, after at most twice `seconds`.

        `work` counts the seconds that this thread has worked. It is asked only when `seconds` have passed by the clock:
        a review during which the machine did something else keeps its turn.
        """
        self._turn_seconds = seconds
        self._work = work
        self._worked = None
        stop = self._clock() + seconds
        deadline = self._deadline
        self._stop = stop if stop < deadline else deadline  # noqa: FURB136 -- a call of min takes as long as the rest

    def lasting(self, seconds: float) -> Callable[[], bool]:
        """Make a check that it is within `seconds` from now, and within half of what is left until the deadline.

        In a hurry that raises OutOfTurn instead of saying no, after HURRY_SECONDS.
        """
        hurried = self.hurried
        seconds = min(seconds, HURRY_SECONDS if hurried else self.stretch_seconds)
        until = self._clock() + min(seconds, self.seconds_left / 2)

        def go_on() -> bool:
            if self._clock() <= until:
                return True
            if hurried:
                raise OutOfTurn
            return False

        return go_on

    def end_turn(self) -> None:
        """Let only the deadline count from now on."""
        self._turn_seconds = 0.0
        self._stop = self._deadline

    def check(self, phase: str) -> None:
        """Go on, or raise OutOfTime with the phase's name, or OutOfTurn."""
        now = self._clock()
        if now > self._stop:
            self._go_on(phase, now)

    def _go_on(self, phase: str, now: float) -> None:
        """Start another stretch of the turn, unless it is over."""
        if now > self._deadline:
            raise OutOfTime(phase)
        worked = self._work()
        if self._worked is None:
            self._worked = worked
        elif worked - self._worked >= self._turn_seconds:
            raise OutOfTurn
        self._stop = min(self._deadline, now + self._turn_seconds)


UNLIMITED: Final = Budget(0.0, lambda: 0.0)
"""For callers that may take as long as they like, such as the command line."""


class AdmissionContext(msgspec.Struct, frozen=True, gc=False):
    """Everything that a decision may depend on besides the request: one snapshot for each review."""

    now: datetime
    """Wall-clock time in UTC."""
    release: Release = NEWEST
    """The Kubernetes release whose field rules apply."""
    judge: Judge = BUILTIN_JUDGE
    """The policy in use."""
    candidate: Judge | None = None
    """A policy that is compared with it: only differences are reported. None if there is none."""
    servers: ServerFacts = UNKNOWN
    """What the API servers and the in-tree controller do here."""
    names: ClusterNames = NO_NAMES
    """Labels of namespaces, and drivers behind device classes."""
    authors_unproved: str = ""
    """Why API servers do not prove the authors of templates now, so that none is known; empty if they do, or if
    objects come from files on the command line."""
    sight: Sight | None = None
    """The inventory, or why it is not complete. None where there is no cluster: then the impact is not guarded."""
    patches: KnownPatches = KnownPatches()
    """The patches and device classes that there are, or why they are not known."""
    patch_account: str = ""
    """The user name under which the patch controller writes rules; empty if there is none."""
    pods: KnownPods | None = None
    """What is known of pods, for gangs. None where pods are not followed, or not known (yet): nothing depends on it."""
    assumed: tuple[DeviceTaintRule, ...] = ()
    """Rules that were allowed here a moment ago and that the inventory may not show yet."""
    victims: tuple[Impact, ...] = ()
    """What each rule hit that began to evict within the policy's window, counted when it began: most of those pods
    may be gone by now."""
    closed: tuple[DeviceNames, ...] = ()
    """The devices on which rules began to act within that window."""
    victims_at_once: tuple[Impact, ...] = ()
    """Those of `victims` whose rule has effect NoExecute, which the in-tree controller carries out at once."""
    slice_patches: SlicePatches | None = None
    """The patches that change attributes and capacity in slices; None where that was not asked for."""
    recently_had: Callable[[str, str, tuple[str, str, str]], bool] = lambda _driver, _pool, _taint: False
    """Whether a pool of a driver had a NoExecute taint (device, key, value) in the last ten minutes."""
    read_policy: Callable[[str, Path, Callable[[str], None]], Loaded] | None = None
    """Reads the policy document in a ConfigMap: its text, its path, and a function to call between steps. None where
    ConfigMaps are not reviewed."""
    budget: Budget = UNLIMITED
    """How long the decision may take."""
    worker_problem: str = ""
    """Why no eviction worker acts on `/evict` now; empty if one does, or if that is not known."""
    offline: bool = False
    """Whether objects come from files on the command line. Then all fields of an object that is too large for a review
    are checked, since there is time, no one asks whether the requester may confirm, and a rule that is refused whatever
    it hits is refused here."""

    @property
    def policy(self) -> Policy:
        """The document in use."""
        return self.judge.policy

    @property
    def in_tree(self) -> bool:
        """Whether the in-tree controller carries out NoExecute."""
        return self.policy.in_tree_evictor is InTreeEvictor.ACTIVE
