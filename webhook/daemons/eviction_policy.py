"""Where the worker's eviction profiles come from: the same document, read and kept in the same way as by `serve`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from webhook.daemons.policy_loader import PolicyLoader
from webhook.daemons.wiring import policy_stages, read_policy
from webhook.eviction.profiles import Profiles
from webhook.policy.decide import BUILTIN_JUDGE
from webhook.runtime import Stage
from webhook.server.review_state import ReviewState

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.client.rest import Cluster
    from webhook.config.evict import EvictSettings
    from webhook.policy.decide import Judge
    from webhook.policy.model import Policy
    from webhook.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
"""How soon a policy that was read is in use."""


class PolicyProfiles:
    """The profiles of the policy of the moment."""

    def __init__(self, metrics: Metrics, on_change: Callable[[], None]) -> None:
        self._state = ReviewState(read_policy=read_policy)
        self.loader = PolicyLoader(self._state, metrics.policy, read_policy)
        self._on_change = on_change
        self._judge = self._state.judge
        self._told = ""
        self.usable = asyncio.Event()
        """Set while there is a policy to act by."""
        self.profiles = Profiles(self._judge.policy.eviction)

    @property
    def policy(self) -> Policy:
        """The document in use."""
        return self._judge.policy

    @property
    def judge(self) -> Judge:
        """That document, fit for deciding."""
        return self._judge

    @property
    def candidate(self) -> Judge | None:
        """The one that is tried beside it."""
        return self._state.candidate

    @property
    def problem(self) -> str | None:
        """Why nothing is evicted: the policy is not known yet, or could not be loaded and there is no last good one.

        The built-in policy has no limits of its own, so it holds only where a cluster has no policy at all.
        """
        if self.loader.problem is None and self.loader.failure and self._state.judge is BUILTIN_JUDGE:
            return f"no policy could be loaded, so nothing is evicted: {self.loader.failure}"
        return self.loader.problem

    def look(self) -> None:
        """Takes what the loader has read since."""
        self._tell()
        if self._state.judge is not self._judge:
            self._judge = self._state.judge
            self.profiles = Profiles(self._judge.policy.eviction)
            self._on_change()

    def _tell(self) -> None:
        """Logs once when acting has to wait for a policy, and when it may go on."""
        problem = self.problem
        if problem is None:
            self.usable.set()
            if self._told:
                log.info("there is a policy to act by", extra={"policyHash": self._state.judge.policy.hash})
        else:
            self.usable.clear()
            if self.loader.loaded.is_set() and problem != self._told:
                log.error("waiting for a policy that can be loaded", extra={"error": problem})
        self._told = problem if problem is not None and self.loader.loaded.is_set() else ""

    async def run(self) -> NoReturn:
        """Keeps looking, until it is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)


def profile_stages(
    settings: EvictSettings, cluster: Cluster, profiles: PolicyProfiles, metrics: Metrics
) -> list[Stage]:
    """The document followed, read and in use; the last stage has started once there is one to act by."""

    async def first() -> None:
        profiles.look()
        await profiles.usable.wait()

    return [
        *policy_stages(cluster, settings, profiles.loader, metrics),
        Stage(name="profiles", work=profiles.run, start=first),
    ]
