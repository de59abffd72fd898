"""The most that a rule may hit before the worker stops: what was confirmed, else what the policy lets pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.admission.confirmation import read_code
from webhook.api.rules import CONFIRM_IMPACT
from webhook.eviction.ports import Ceiling
from webhook.policy.model import PolicyMode, Share
from webhook.policy.profiles import limits_of_anybody, most

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.admission.confirmation import Numbers
    from webhook.api.rules import DeviceTaintRule
    from webhook.policy.model import ImpactLimits, Policy

NO_KEY: Final = "it cannot be verified, as the key is not known"


def ceiling_of(
    rule: DeviceTaintRule,
    policy: Policy,
    totals: Callable[[], Numbers],
    doubt_of: Callable[[DeviceTaintRule], str] = lambda _: NO_KEY,
) -> Ceiling | None:
    """The ceiling of a rule as it stands; None is no limit. `totals`: all that could be hit, for shares.

    `doubt_of` says why the code that a rule carries is not proved, and nothing if it is: only a proved one counts. It
    holds here for as long as its rule does, as it must be used in time but not be carried out in time. Where nothing
    was confirmed it is not known any more who set the rule, so the widest of the limits that may have held for it does;
    nothing was refused where the policy does not enforce, so nothing is stopped there.
    """
    text = rule.meta.annotations.get(CONFIRM_IMPACT, "")
    code = read_code(text)
    doubt = doubt_of(rule) if text else ""
    if code is not None and not doubt:
        confirmed = code.numbers.grown(policy.impact.tolerance_percent)
        return Ceiling(confirmed.pods, confirmed.namespaces)
    if policy.mode is not PolicyMode.ENFORCE:
        return None
    limits = limits_of_anybody(policy.impact, rule.taint, rule.effective_effect)
    pods, namespaces = _widest(limits, "pods", totals), _widest(limits, "namespaces", totals)
    return None if pods is None and namespaces is None else Ceiling(pods, namespaces, confirmed=False, doubt=doubt)


def _widest(limits: tuple[ImpactLimits, ...], name: str, totals: Callable[[], Numbers]) -> int | None:
    found = []
    for entry in limits:
        limit: int | Share | None = getattr(entry, name)
        number = most(limit, getattr(totals(), name) if isinstance(limit, Share) else 0)
        if number is None:
            return None
        found.append(number)
    return max(found)
