"""Pods that use a claim which a taint hits, and another one: they need both, whether pods are followed or not."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec import structs

from tests.unit.admission.guarding import allowing, ask, node, over, tainting
from tests.unit.admission.patch_guarding import figures, known, racks
from tests.unit.inventory.values import inventory_of
from webhook.api.claims import AllocationResult, Demand, ResourceClaim, Wish
from webhook.inventory.state import Inventory

CLASSES: Final = known(classes={"any": ("true",)})


def _racks(user: str) -> Inventory:
    """Four nodes of two devices; a pod of each has one, and that of node-0 has another claim, unless `user` has."""
    cluster = racks()
    first, *others = [_asking(each, "any") for each in cluster.claims.values()]
    results = (AllocationResult("r", "nic.example.com", "node-0", "nic-0"),)
    users = [structs.replace(each, uid=user or each.uid) for each in first.reserved_for]
    meta = structs.replace(first.meta, name="nic", uid="nic")
    nic = structs.replace(_asking(first, "nic"), meta=meta, allocation=results, reserved_for=tuple(users))
    return inventory_of(*cluster.slices.values(), first, nic, *others)


def _asking(claim: ResourceClaim, device_class: str) -> ResourceClaim:
    return structs.replace(claim, demand=Demand(((Wish("r", device_class),),)), controller_uid="its pod")


@pytest.mark.parametrize(("user", "pending"), [("", 1), ("another", 0)], ids=["of the pod", "of another pod"])
def test_pod_whose_other_claim_finds_no_device_finds_none(user: str, pending: int) -> None:
    given: Any = {"impact": allowing(pending_pods=0), "patches": CLASSES, "cluster": _racks(user)}
    decision = ask(tainting(node(0)), **given)
    assert figures(decision)["pendingPods"] == pending
    assert over(decision) == ["limit:pendingPods"] * pending
