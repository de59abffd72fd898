"""Default tolerations: what `defaultTolerations` adds to a request, and what it leaves alone.

Like Kubernetes' DefaultTolerationSeconds for nodes: a request that already tolerates such a taint is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from webhook.api.taints import EQUAL, EXISTS, DeviceToleration
from webhook.inventory.pools import Check, unchecked
from webhook.policy.decide import Judge
from webhook.policy.evaluation import Variables
from webhook.policy.match import Scope, Target
from webhook.policy.model import Action

TOLERATIONS_MAX: Final = 16
"""Entries in a list of tolerations (L-8)."""


def defaults_for(  # noqa: PLR0913 -- the last by name
    judge: Judge,
    scope: Scope,
    target: Target,
    present: Iterable[DeviceToleration],
    now: datetime,
    variables: Callable[[DeviceToleration | None], Variables],
    *,
    check: Check = unchecked,
) -> tuple[DeviceToleration, ...]:
    """Return what to add to a request that has the tolerations `present`; nothing that the policy itself would refuse.

    An entry is left out if the request has a toleration, of its own or added before, for a taint that it would
    tolerate; so adding twice is adding once. `variables` gives those of `when`, for a toleration or for none.
    """
    known = list(present)
    added: list[DeviceToleration] = []
    for toleration in judge.defaults(scope, target, variables(None), check):
        if len(known) >= TOLERATIONS_MAX:
            break
        if any(overlap(toleration, other) for other in known):
            continue
        hits = judge.on_toleration(scope, target, toleration, now, variables(toleration), check)
        if any(hit.action is Action.DENY for hit in hits):
            continue
        known.append(toleration)
        added.append(toleration)
    return tuple(added)


def overlap(one: DeviceToleration, other: DeviceToleration) -> bool:
    """Return whether there is a taint that both tolerate."""
    return (
        (not one.key or not other.key or one.key == other.key)
        and (not one.effect or not other.effect or one.effect == other.effect)
        and (EXISTS in {one.operator, other.operator} or one.value == other.value)
    )


def rendered(toleration: DeviceToleration) -> dict[str, str | int]:
    """The toleration as a manifest has it, without empty fields."""
    fields: dict[str, str | int] = {}
    if toleration.key:
        fields["key"] = toleration.key
    fields["operator"] = toleration.operator or EQUAL
    if toleration.value:
        fields["value"] = toleration.value
    if toleration.effect:
        fields["effect"] = toleration.effect
    if toleration.toleration_seconds is not None:
        fields["tolerationSeconds"] = toleration.toleration_seconds
    return fields
