"""Reviews of rules that the policy softens: what is counted, and what the next reviews know."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.builders import make_review
from tests.unit.admission.guarding import fleet, node, tainting
from tests.unit.inventory.values import inventory_of
from tests.unit.server.test_http import reviewed
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.model import ImpactLimits, ImpactSettings, Policy, Softening
from webhook.policy.store import PolicyStore
from webhook.server.state import ReviewState

SOFTENING = ImpactSettings(limits=(ImpactLimits(pods=1, soften=Softening.OVER),))


def test_rule_that_is_softened_is_counted_once() -> None:
    """Not when it is sent again, nor in a dry run."""
    sight = Sight(inventory_of(*fleet()))
    state = ReviewState(PolicyStore(Judge(Policy(impact=SOFTENING))), sight=lambda: sight)
    state.worker_problem = lambda: "no worker evicts"
    first = reviewed(state, make_review(tainting()), path="/mutate")
    assert first["metrics"]["softened_rules_total",] == 1
    assert "no worker evicts" in first["warnings"][0]
    marks = {"devicetaint.io/evict": "true", "devicetaint.io/softened-from": "NoExecute"}
    stored = tainting(effect="NoSchedule", annotations=marks)
    assert reviewed(state, make_review(tainting(), stored), path="/mutate")["metrics"]["softened_rules_total",] == 0
    tried = reviewed(state, make_review(tainting(), dryRun=True), path="/mutate")
    assert tried["metrics"]["softened_rules_total",] == 0


def test_rule_that_mutate_leaves_counts_for_the_next_one() -> None:
    """Of rules that come at once, /mutate answers several before /validate sees the first."""
    sight = Sight(inventory_of(*fleet()))
    state = ReviewState(PolicyStore(Judge(Policy(impact=SOFTENING))), sight=lambda: sight)
    now = datetime.now(UTC)  # noqa: TID251 -- as the server under test does
    first, second = (make_review(tainting(node(number), name=f"r-{number}", added=now)) for number in range(2))
    assert "patch" not in reviewed(state, first, path="/mutate")
    assert "patch" in reviewed(state, second, path="/mutate")
