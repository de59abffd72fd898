"""The policy as the eviction worker uses it: compiled profiles, and whether evictions are allowed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from webhook.eviction.profiles import Profiles
from webhook.policy.decide import BUILTIN_JUDGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.policy.model import Policy
    from webhook.policy.store import PolicyState, PolicyStore

log = logging.getLogger(__name__)


class EvictionPolicy:
    """Follows the policy store; profiles are compiled once for each policy."""

    def __init__(self, policies: PolicyStore, on_change: Callable[[], None]) -> None:
        """`on_change` is called after another policy has become the active one."""
        self._policies = policies
        self._on_change = on_change
        self._logged = ""
        """The problem that the log names; empty if there is none."""
        self.usable = asyncio.Event()
        """Set while a policy is loaded, so that evictions may run."""
        self.profiles = Profiles(policies.active.policy.eviction)
        """The profiles of the policy in use."""
        policies.subscribe(self._changed)

    @property
    def policy(self) -> Policy:
        """The policy in use."""
        return self._policies.active.policy

    @property
    def problem(self) -> str | None:
        """Why nothing is evicted, or None.

        The built-in policy has no limits of its own, so it applies only where a cluster has no policy at all.
        """
        state = self._policies.state
        if not state.loaded:
            return "the policy has not been read yet"
        if state.failure and state.active is BUILTIN_JUDGE:
            return f"no policy could be loaded, so nothing is evicted: {state.failure}"
        return None

    async def acquired(self) -> None:
        """Returns once a policy is loaded, so that evictions may run."""
        await self.usable.wait()

    def _changed(self, old: PolicyState, new: PolicyState) -> None:
        problem = self.problem or ""
        if problem:
            self.usable.clear()
            if problem != self._logged:
                log.error("waiting for a policy that can be loaded", extra={"error": problem})
        else:
            self.usable.set()
            if self._logged:
                log.info("policy loaded: evictions may resume", extra={"policyHash": new.active.policy.hash})
        self._logged = problem
        if new.active is not old.active:
            self.profiles = Profiles(new.active.policy.eviction)
            self._on_change()
