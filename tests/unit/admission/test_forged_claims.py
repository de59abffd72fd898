"""The guard counts the pods of claims that only say of themselves that they are for extended resources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_scheduler_claim
from tests.unit.admission.guarding import allowing, ask, over, refusals, tainting, told
from tests.unit.cluster.held import held
from tests.unit.inventory.values import inventory_of
from webhook.api.claims import EXTENDED_RESOURCE, FROM_TEMPLATE


def annotated(*, template: bool) -> list[Any]:
    """Sixty claims of pods that in-tree eviction does evict, with the annotation of the scheduler's own claims."""
    marks = {EXTENDED_RESOURCE: "true", **({FROM_TEMPLATE: "gpu"} if template else {})}
    return [
        make_scheduler_claim(
            f"train-{number}",
            f"node-0/gpu-{number}",
            name=f"train-{number}-gpu-x7k2p",
            request="gpu",
            annotations=marks,
        )
        for number in range(60)
    ]


@pytest.mark.parametrize("template", [True, False], ids=["put into the template", "and the template's removed"])
def test_forged_annotation_hides_no_pod(template: bool) -> None:  # noqa: FBT001 -- an id says which
    decision = ask(tainting(), cluster=inventory_of(*map(held, annotated(template=template))), impact=allowing(pods=50))
    assert over(decision) == ["limit:pods"]
    assert "hits 0 devices, 60 pods in 1 namespace" in refusals(decision)[0]


def test_pods_whose_claims_the_scheduler_made_are_left_alone() -> None:
    claims = [make_scheduler_claim(f"train-{number}", f"node-0/gpu-{number}") for number in range(60)]
    decision = ask(tainting(), cluster=inventory_of(*map(held, claims)), impact=allowing(pods=50))
    assert refusals(decision) == []
    assert any("left alone: 60 pods with extended resources" in text for _, text in told(decision))
