"""Reviews in sequence, each at its own time, as one replica of the server would answer them.

The server's own state remembers what was admitted; nothing here reads a clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from webhook.admission.chain import explain
from webhook.admission.context import UNLIMITED
from webhook.api.decode import Reader
from webhook.api.rules import decode_rule
from webhook.commands.shared.manifest_review import verdict_on
from webhook.commands.shared.policy_files import read_policy
from webhook.inventory.patch_reach import KnownPatches
from webhook.inventory.state import Sight
from webhook.policy.store import PolicyStore
from webhook.server.assumed_rules import AssumedRules, RecentTaints
from webhook.server.review_state import ReviewState

if TYPE_CHECKING:
    from webhook.admission.explanation import Explanation
    from webhook.admission.review import AdmissionRequest
    from webhook.api.field import JSON
    from webhook.api.rules import DeviceTaintRule
    from webhook.commands.shared.manifest_review import Verdict
    from webhook.inventory.state import Inventory
    from webhook.policy.decide import Judge
    from webhook.policy.ports import ClusterNames


class Trial:
    """A replica for one case. Rules that it admits stay in the inventory until `undo`."""

    def __init__(self, judge: Judge, names: ClusterNames, inventory: Inventory | None) -> None:
        self._now = datetime.min.replace(tzinfo=UTC)
        self._names = names
        self._inventory = inventory
        self._state = ReviewState(
            policies=PolicyStore(judge),
            authors_unproved=str,
            sight=None if inventory is None else lambda: Sight(inventory),
            patches=KnownPatches,
            read_policy=read_policy,
            assumed_rules=AssumedRules(self._seconds),
            recent_taints=RecentTaints(self._seconds),
        )
        self._before: dict[str, DeviceTaintRule | None] = {}

    def _seconds(self) -> float:
        return self._now.timestamp()

    def verdict_on(self, request: AdmissionRequest, now: datetime) -> Verdict:
        """The verdict at that time, which must not be earlier than that of the previous one."""
        self._now = now
        return verdict_on(request, self._state.context(now, UNLIMITED, self._names))

    def explanation_of(self, verdict: Verdict) -> Explanation:
        """Why the policy decided as it did in the last verdict."""
        return explain(verdict.request, self._state.context(self._now, UNLIMITED, self._names))

    def admit(self, verdict: Verdict) -> None:
        """Stores a rule that was allowed, and remembers its victims as the server does."""
        assumed = self._state.assumed_rules
        if verdict.decision.assumed is not None:
            assumed.add(verdict.decision.assumed, verdict.request.username)
        self.store(verdict.request.object)
        assumed.stored(decode_rule(Reader.of(verdict.request.object, [])))

    def store(self, value: JSON) -> None:
        """Stores a rule as a server does; fields of a wrong type count as missing."""
        rule = decode_rule(Reader.of(value, []))
        if self._inventory is not None:
            self._before.setdefault(rule.meta.name, self._inventory.rules.get(rule.meta.name))
            self._inventory.apply(None, rule)

    def undo(self) -> None:
        """Leaves the inventory as it was."""
        if self._inventory is None:
            return
        for name, rule in self._before.items():
            stored = self._inventory.rules.get(name)
            if rule is not None or stored is not None:
                self._inventory.apply(stored, rule)
        self._before.clear()
