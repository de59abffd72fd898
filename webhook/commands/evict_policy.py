"""Where the worker's eviction profiles come from: the same document, read and kept in the same way as by `serve`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from webhook.commands.keeper import PolicyKeeper
from webhook.commands.sources import policy_stages, read_policy
from webhook.eviction.profiles import Profiles
from webhook.runtime import Stage
from webhook.server.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.client import Cluster
    from webhook.config.evict import EvictSettings
    from webhook.policy.decide import Judge
    from webhook.policy.model import Policy
    from webhook.telemetry.metrics import Metrics

_LOOK_SECONDS = 0.5
"""How soon a policy that was read is in use."""


class PolicyProfiles:
    """The profiles of the policy of the moment."""

    def __init__(self, metrics: Metrics, on_change: Callable[[], None]) -> None:
        self._around = Surroundings(read_policy=read_policy)
        self.keeper = PolicyKeeper(self._around, metrics.policy, read_policy)
        self._on_change = on_change
        self._judge = self._around.judge
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
        return self._around.candidate

    @property
    def problem(self) -> str | None:
        """Why it is not known yet."""
        return self.keeper.problem

    def look(self) -> None:
        """Takes what the keeper has read since."""
        if self._around.judge is not self._judge:
            self._judge = self._around.judge
            self.profiles = Profiles(self._judge.policy.eviction)
            self._on_change()

    async def run(self) -> NoReturn:
        """Keeps looking, until it is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)


def profile_stages(
    settings: EvictSettings, cluster: Cluster, profiles: PolicyProfiles, metrics: Metrics
) -> list[Stage]:
    """The document followed, read and in use."""

    async def first() -> None:
        profiles.look()

    return [
        *policy_stages(cluster, settings, profiles.keeper, metrics),
        Stage(name="profiles", work=profiles.run, start=first),
    ]
