"""The most that a rule may hit before the worker stops: what was confirmed, else what the policy lets pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.admission.confirmation import read_code
from webhook.api.rules import CONFIRM_IMPACT
from webhook.eviction.ports import Ceiling
from webhook.policy.model import Mode, Share
from webhook.policy.profiles import limits_of_anybody, most

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.admission.confirmation import Numbers
    from webhook.api.rules import DeviceTaintRule
    from webhook.policy.model import ImpactLimits, Policy


def ceiling_of(rule: DeviceTaintRule, policy: Policy, totals: Callable[[], Numbers]) -> Ceiling | None:
    """The ceiling of a rule as it stands; None is no limit. `totals`: all that could be hit, for shares.

    The numbers of a code are read, not proved: only admission has the key, and it has let the code pass. A code holds
    here for as long as its rule does, as it must be used in time but not be carried out in time. Where nothing was
    confirmed nobody knows any more who set the rule, so the widest of the limits that may have held for it does;
    nothing was refused where the policy does not enforce, so nothing is stopped there.
    """
    code = read_code(rule.meta.annotations.get(CONFIRM_IMPACT, ""))
    if code is not None:
        confirmed = code.numbers.grown(policy.impact.tolerance_percent)
        return Ceiling(confirmed.pods, confirmed.namespaces)
    if policy.mode is not Mode.ENFORCE:
        return None
    limits = limits_of_anybody(policy.impact, rule.taint, rule.effective_effect)
    pods, namespaces = _widest(limits, "pods", totals), _widest(limits, "namespaces", totals)
    return None if pods is None and namespaces is None else Ceiling(pods, namespaces, confirmed=False)


def _widest(limits: tuple[ImpactLimits, ...], name: str, totals: Callable[[], Numbers]) -> int | None:
    found = []
    for entry in limits:
        limit: int | Share | None = getattr(entry, name)
        number = most(limit, getattr(totals(), name) if isinstance(limit, Share) else 0)
        if number is None:
            return None
        found.append(number)
    return max(found)
