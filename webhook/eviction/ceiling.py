"""The most that a rule may hit before the worker stops it: the confirmed impact, else the policy's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from webhook.eviction.ports import Ceiling
from webhook.policy.impact_limits import limits_of_anybody, resolve_limit
from webhook.policy.model import PolicyMode, Share

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from webhook.api.rules import DeviceTaintRule
    from webhook.policy.model import Policy


class Figures(Protocol):
    """Numbers of pods and namespaces that a taint hits, or at most could hit."""

    @property
    def pods(self) -> int:
        """Number of pods."""

    @property
    def namespaces(self) -> int:
        """Number of namespaces that have these pods."""

    def grown(self, percent: float) -> Figures:
        """The numbers increased by `percent`, rounded down."""


class Confirmation(NamedTuple):
    """The confirmation code of a rule: the impact it confirms, and whether it counts."""

    figures: Figures | None = None
    """The confirmed impact; None if the annotation is missing or is not a code."""
    code_problem: str = ""
    """Why the annotation does not count; empty if it does, or if there is none."""


NOT_CONFIRMED: Final = Confirmation()


def ceiling_of(
    rule: DeviceTaintRule,
    policy: Policy,
    totals: Callable[[], Figures],
    confirmation: Confirmation = NOT_CONFIRMED,
    protected: Callable[[Collection[str]], Collection[str]] | None = None,
) -> Ceiling | None:
    """The ceiling of a rule under a policy; None is no limit. `totals` counts all that could be hit, for shares.

    A code that counts sets the ceiling to the confirmed numbers plus the policy's tolerance, for as long as the rule
    exists: it must be used before it expires, but the eviction may take longer. Without one the worker does not know
    who set the rule, so the ceiling is the highest limit that may have applied. A policy in mode warn or off refused
    nothing at admission, so there the worker stops nothing. A rule that was softened may be over the limit of its
    author, so in every mode its ceiling is the lowest limit that may have softened it, and pods in `protected`
    namespaces stay.
    """
    if confirmation.figures is not None and not confirmation.code_problem:
        most_confirmed = confirmation.figures.grown(policy.impact.tolerance_percent)
        return Ceiling(most_confirmed.pods, most_confirmed.namespaces)
    limits = limits_of_anybody(policy.impact, rule.taint, rule.effective_effect)
    if rule.softened:
        limits = tuple(entry for entry in limits if entry.softens) or limits
        pods = _lowest([entry.pods for entry in limits], lambda: totals().pods)
        namespaces = _lowest([entry.namespaces for entry in limits], lambda: totals().namespaces)
        return Ceiling(
            pods,
            namespaces,
            confirmed=False,
            code_problem=confirmation.code_problem,
            softened=True,
            protected=protected,
        )
    if policy.mode is not PolicyMode.ENFORCE:
        return None
    pods = _widest([entry.pods for entry in limits], lambda: totals().pods)
    namespaces = _widest([entry.namespaces for entry in limits], lambda: totals().namespaces)
    if pods is None and namespaces is None:
        return None
    return Ceiling(pods, namespaces, confirmed=False, code_problem=confirmation.code_problem)


def _lowest(limits: Iterable[int | Share | None], total: Callable[[], int]) -> int | None:
    """The smallest of the limits as a number; None if none of them is a limit."""
    return min((number for number in _numbers(limits, total) if number is not None), default=None)


def _widest(limits: Iterable[int | Share | None], total: Callable[[], int]) -> int | None:
    """The largest of the limits as a number; None if one of them is no limit."""
    numbers = _numbers(limits, total)
    known = [number for number in numbers if number is not None]
    return max(known) if len(known) == len(numbers) else None


def _numbers(limits: Iterable[int | Share | None], total: Callable[[], int]) -> list[int | None]:
    return [resolve_limit(limit, total() if isinstance(limit, Share) else 0) for limit in limits]
