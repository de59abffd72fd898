"""A softened rule that waits, though its limits say that no one confirms them."""

from __future__ import annotations

from tests.tables import table
from tests.unit.admission.guarding import tainting
from tests.unit.admission.softened import ACCOUNT, send
from webhook.policy.model import ImpactLimits, ImpactSettings, Softening


@table(
    "confirmable, until",
    {
        "confirmable": (True, " before devicetaint.io/confirm-impact confirms it"),
        "not confirmable": (False, ", as no one may confirm it (confirmable: false)"),
    },
)
def test_a_softened_rule_is_told_what_its_eviction_waits_for(until: str, *, confirmable: bool) -> None:
    entry = ImpactLimits(ACCOUNT, pods=3, soften=Softening.OVER, confirmable=confirmable)
    sent = send(tainting(), impact=ImpactSettings(limits=(entry, ImpactLimits(pods=3))))
    assert sent.softened
    assert f"the limit is 3 pods: no pod is evicted{until}" in [each.error.detail for each in sent.judged.findings]
