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
    """Numbers of pods and namespaces that a taint at most could hit."""

    @property
    def pods(self) -> int:
        """Number of pods."""

    @property
    def namespaces(self) -> int:
        """Number of namespaces that have these pods."""


class Confirmed(NamedTuple):
    """What the text on a rule or patch allows to evict, or why it does not count."""

    pods: int | None = None
    """At most, those included that were evicted before; None if the text is missing or does not count."""
    namespaces: int = 0
    problem: str = ""
    """Why the text does not count; empty if it does, or if there is none."""


NOT_CONFIRMED: Final = Confirmed()


def ceiling_of(
    rule: DeviceTaintRule,
    policy: Policy,
    totals: Callable[[], Figures],
    confirmed: Confirmed = NOT_CONFIRMED,
    protected: Callable[[Collection[str]], Collection[str]] | None = None,
) -> Ceiling | None:
    """The ceiling of a rule under a policy; None is no limit. `totals` counts all that could be hit, for shares.

    A text that counts sets the ceiling, for as long as the rule has it. Without one the worker does not know who set
    the rule, so the ceiling is the highest limit that may have applied. A policy in mode warn or off refused
    nothing at admission, so there the worker stops nothing. A rule that was softened may be over the limit of its
    author, so in every mode its ceiling is the lowest limit that may have softened it, and pods in `protected`
    namespaces stay.
    """
    if confirmed.pods is not None:
        return Ceiling(confirmed.pods, confirmed.namespaces)
    limits = limits_of_anybody(policy.impact, rule.taint, rule.effective_effect)
    if rule.softened:
        limits = tuple(entry for entry in limits if entry.softens) or limits
        pods = _lowest([entry.pods for entry in limits], lambda: totals().pods)
        namespaces = _lowest([entry.namespaces for entry in limits], lambda: totals().namespaces)
        return Ceiling(
            pods,
            namespaces,
            confirmed=False,
            text_problem=confirmed.problem,
            softened=True,
            protected=protected,
        )
    if policy.mode is not PolicyMode.ENFORCE:
        return None
    pods = _widest([entry.pods for entry in limits], lambda: totals().pods)
    namespaces = _widest([entry.namespaces for entry in limits], lambda: totals().namespaces)
    if pods is None and namespaces is None:
        return None
    return Ceiling(pods, namespaces, confirmed=False, text_problem=confirmed.problem)


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
