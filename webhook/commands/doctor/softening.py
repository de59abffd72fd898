"""Whether what the policy softens is carried out: the lease of the eviction worker. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.commands.doctor.checks import Check, Status, passed

if TYPE_CHECKING:
    from webhook.policy.model import Policy

_ADVICE: Final = "run evict in mode delegated or replacement, with --leader-elect: docs/eviction.md"


def softens(policy: Policy | None) -> bool:
    """Whether the policy in use softens rules."""
    return policy is not None and policy.impact.softens


def softening_check(problem: str) -> Check:
    """Whether an eviction worker acts on softened rules; `problem` is why none does, or empty."""
    if problem:
        return Check("softening", Status.WARN, f"the policy softens rules, but {problem}", _ADVICE)
    return passed("softening", "the policy softens rules, and an eviction worker acts on them")
