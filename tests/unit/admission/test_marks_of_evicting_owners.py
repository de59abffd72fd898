"""Rules that the patch controller writes for the siblings of a rule that our worker evicts for."""

from __future__ import annotations

from typing import Final

import pytest

from tests.tables import table
from tests.unit.admission.patch_guarding import evicting
from tests.unit.admission.softened import MARKS
from tests.unit.admission.test_written_for_hardware import hardware, sibling
from tests.unit.admission.test_written_rules import faults
from webhook.api.rules import EVICT, EVICTIONS_PER_SECOND, SCOPE, SOFTENED_FROM
from webhook.policy.model import InTreeEvictor

SCOPED: Final = {SCOPE: "hardware"}


@pytest.mark.parametrize("evictor", InTreeEvictor)
@table(
    "effect, annotations",
    {
        "asked for": ("NoExecute", {EVICT: "true"}),
        "not asked for": ("NoExecute", {EVICT: "false"}),
        "softened before": ("NoExecute", MARKS),
        "softened": ("NoSchedule", MARKS),
    },
)
def test_siblings_carry_no_marks_of_an_owner_that_has_them(
    effect: str, annotations: dict[str, str], evictor: InTreeEvictor
) -> None:
    owned = {"cluster": hardware(annotations={**SCOPED, **annotations}, taint=evicting(effect=effect))}
    assert faults(sibling(taint=evicting(effect=effect)), **owned, in_tree_evictor=evictor) == []


@table(
    "annotations, mark",
    {"/evict": ({EVICT: "true"}, EVICT), "the mark of softening": ({EVICT: "false", **MARKS}, SOFTENED_FROM)},
)
def test_sibling_with_marks_is_refused_though_its_owner_has_them(annotations: dict[str, str], mark: str) -> None:
    cluster = hardware(annotations={**SCOPED, **annotations})
    found = faults(sibling(annotations=annotations), cluster=cluster)
    fault = f"metadata.annotations[{mark}]: must be as DeviceTaintRule bad-card has it, or as it was stored"
    assert fault in found


def test_rate_of_the_owner_must_still_be_that_of_its_siblings() -> None:
    rate = {EVICTIONS_PER_SECOND: "1"}
    ours = {
        "cluster": hardware(annotations={**SCOPED, **rate, EVICT: "true"}),
        "in_tree_evictor": InTreeEvictor.ABSENT,
    }
    assert faults(sibling(annotations=rate), **ours) == []
    assert len(faults(sibling(annotations={EVICTIONS_PER_SECOND: "100"}), **ours)) == 1
