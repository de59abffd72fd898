"""The guard counts pods with extended resources, and those of claims that only say so of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_scheduler_claim
from tests.unit.admission.guarding import allowing, ask, node, over, refusals, tainting, told
from tests.unit.cluster.held import held
from tests.unit.inventory.values import inventory_of
from webhook.api.claims import EXTENDED_RESOURCE, FROM_TEMPLATE
from webhook.api.decode import Reader
from webhook.api.rules import decode_rule


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
def test_forged_annotation_hides_no_pod(*, template: bool) -> None:
    decision = ask(tainting(), cluster=inventory_of(*map(held, annotated(template=template))), impact=allowing(pods=50))
    assert over(decision) == ["limit:pods"]
    assert "hits 0 devices, 60 pods in 1 namespace" in refusals(decision)[0]


BY_RELEASE = "the in-tree controller evicts such pods from 1.37.2 on; before, it leaves them alone"


def test_pods_whose_claims_the_scheduler_made_count_and_the_text_says_who_evicts_them() -> None:
    claims = [make_scheduler_claim(f"train-{number}", f"node-0/gpu-{number}") for number in range(60)]
    cluster = inventory_of(*map(held, claims))
    refused = ask(tainting(), cluster=cluster, impact=allowing(pods=50))
    assert over(refused) == ["limit:pods"]
    text = f"60 pods in 1 namespace (of these 60 pods with extended resources: {BY_RELEASE}): the limit is 50 pods"
    assert text in refusals(refused)[0]
    admitted = told(ask(tainting(), cluster=cluster, impact=allowing(pods=60)))
    assert ("warn", f"of these 60 pods with extended resources: {BY_RELEASE}") in admitted
    ours = told(ask(tainting(effect="NoSchedule", evict=True), cluster=cluster, impact=allowing(pods=60)))
    assert not any("extended" in text for _, text in ours)


def test_pods_with_extended_resources_count_in_the_window() -> None:
    """Of a rule of a moment ago, whose pods are others."""
    claims = [make_scheduler_claim(f"train-{number}", f"node-{number % 2}/gpu-{number}") for number in range(60)]
    first = decode_rule(Reader.of(tainting(node(0), name="first"), []))
    cluster = inventory_of(*map(held, claims), first)
    assert over(ask(tainting(node(1)), cluster=cluster, impact=allowing(pods=50))) == ["window:pods"]
