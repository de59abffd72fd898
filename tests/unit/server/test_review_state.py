"""What a review sees of the state, beside what others test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import NOW
from webhook.admission.context import UNLIMITED
from webhook.inventory.impact import KnownPods
from webhook.inventory.state import Inventory, Sight
from webhook.policy.model import BUILTIN
from webhook.policy.ports import NO_NAMES
from webhook.server.state import ReviewState

if TYPE_CHECKING:
    from webhook.policy.model import Policy

WITHOUT_CLUSTER = "this webhook runs without a cluster, so it cannot see whether API servers prove authors"
KNOWN = KnownPods(lambda _: None, lambda _: None, {})


def test_pods_are_seen_under_the_policy_in_use_and_only_with_an_inventory() -> None:
    asked: list[Policy] = []

    def pods(policy: Policy) -> KnownPods:
        asked.append(policy)
        return KNOWN

    state = ReviewState(sight=lambda: Sight(Inventory()), pods=pods)
    assert state.context(NOW, UNLIMITED, NO_NAMES).pods is KNOWN
    assert asked == [BUILTIN]
    assert state.context(NOW, UNLIMITED, NO_NAMES, inventory=False).pods is None
    assert ReviewState(pods=pods).context(NOW, UNLIMITED, NO_NAMES).pods is None
    assert ReviewState(sight=lambda: Sight(Inventory())).context(NOW, UNLIMITED, NO_NAMES).pods is None


def test_without_a_cluster_no_author_is_proved_and_a_review_says_why() -> None:
    assert ReviewState().context(NOW, UNLIMITED, NO_NAMES).authors_unproved == WITHOUT_CLUSTER
