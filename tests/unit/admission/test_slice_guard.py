"""New taints in slices: told, never refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import (
    NOW_TEXT,
    decoded,
    make_admission_request,
    make_claim,
    make_context,
    make_device,
    make_result,
    make_slice,
    make_status,
    make_taint,
    make_toleration,
)
from tests.tables import table
from tests.unit.admission.guarding import held
from webhook.admission.chain import validate
from webhook.inventory.state import Inventory, Sight
from webhook.policy.model import ImpactLimits, ImpactSettings, InTreeEvictor, PolicyMode

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

EVICTING = make_taint(effect="NoExecute", timeAdded=NOW_TEXT)
NOTHING_ALLOWED = ImpactSettings(limits=(ImpactLimits(pods=0, claims=0, devices=0, namespaces=0),))


def used_claim(name: str, device: str, tolerations: Any = None) -> Any:
    status = make_status(make_result(tolerations, device))
    status["reservedFor"] = [{"resource": "pods", "name": name, "uid": f"uid-{name}"}]
    return make_claim(meta={"name": name, "namespace": "ml"}, status=status)


def slice_with(*taints: Any, name: str = "node-0-gpu", generation: int = 1, **fields: Any) -> Any:
    manifest = make_slice([make_device("gpu-0", taints), make_device("gpu-1")], meta={"name": name}, **fields)
    manifest["spec"]["pool"]["generation"] = generation
    return manifest


PLAIN = slice_with()
CLAIMS = (
    used_claim("train", "gpu-0"),
    used_claim("wait", "gpu-0", [make_toleration(effect="NoExecute", seconds=300)]),
    used_claim("stay", "gpu-0", [make_toleration(effect="NoExecute")]),
    used_claim("other", "gpu-1"),
)


def answer(new: Any, old: Any, inventory: Inventory | None, **options: Any) -> Decision:
    context = make_context(sight=Sight(inventory, "resourceclaims are not read yet"), **options)
    return validate(make_admission_request(new, old), context)


def told(decision: Decision) -> list[str]:
    return [finding.error.detail for finding in decision.findings if finding.rule == "impact"]


def test_new_taint_is_told_with_whom_it_hits() -> None:
    decision = answer(slice_with(EVICTING), PLAIN, held(PLAIN, *CLAIMS), impact=NOTHING_ALLOWED)
    assert decision.allowed
    assert told(decision) == [
        "new NoExecute taints on 1 device; they evict 2 pods in 1 namespace: 1 at once, 1 after 5 min",
        "tolerated by 1 pod on such devices",
    ]
    figures = "devices=1 pools=1 allocated=3 claims=2 pods=2 now=1 later=1 tolerating=1 unseen=0 kept=0 namespaces=1"
    assert decision.annotations["impact"] == f"{figures} podGroups=0"


@table(
    "known",
    {
        "this slice has it": [slice_with(EVICTING)],
        "an older generation has it": [PLAIN, slice_with(EVICTING, name="older", generation=0)],
        "a newer generation has it": [PLAIN, slice_with(EVICTING, name="next", generation=2)],
    },
)
def test_taint_that_the_pool_has_already_is_not_told(known: list[Any]) -> None:
    assert told(answer(slice_with(EVICTING), PLAIN, held(*known, *CLAIMS))) == []


def test_taint_of_another_value_or_device_is_new() -> None:
    valued = {**EVICTING, "value": "again"}
    inventory = held(slice_with(EVICTING), *CLAIMS)
    assert len(told(answer(slice_with(EVICTING, valued), slice_with(EVICTING), inventory))) == 2
    moved = make_slice([make_device("gpu-0", [EVICTING]), make_device("gpu-1", [EVICTING])])
    assert told(answer(moved, slice_with(EVICTING), inventory)) == [
        "new NoExecute taints on 1 device; they evict 1 pod in 1 namespace, all at once"
    ]


@pytest.mark.parametrize(
    ("evictor", "pods", "more"),
    [
        (InTreeEvictor.ACTIVE, "1 pod in 1 namespace, all at once", []),
        (InTreeEvictor.ABSENT, "0 pods in 0 namespaces", ["tolerated by 1 pod on such devices"]),
    ],
)
def test_toleration_without_an_effect_counts_where_the_in_tree_controller_is_absent(
    evictor: InTreeEvictor, pods: str, more: list[str]
) -> None:
    """E-9."""
    inventory = held(PLAIN, used_claim("train", "gpu-0", [make_toleration(effect=None)]))
    decision = answer(slice_with(EVICTING), PLAIN, inventory, in_tree_evictor=evictor)
    assert told(decision) == [f"new NoExecute taints on 1 device; they evict {pods}", *more]


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
def test_taint_that_evicts_nobody_is_not_told(effect: str) -> None:
    assert told(answer(slice_with(make_taint(effect=effect)), PLAIN, held(PLAIN, *CLAIMS))) == []


def test_taint_beside_the_devices_counts() -> None:
    literal = make_slice()
    literal["spec"].pop("devices")
    literal["spec"]["taints"] = [{"device": "gpu-0", "taint": EVICTING}]
    assert told(answer(literal, None, held(PLAIN, *CLAIMS)))[0].startswith("new NoExecute taints on 1 device")


def test_unknown_impact_is_told() -> None:
    decision = answer(slice_with(EVICTING), PLAIN, None)
    assert decision.allowed
    assert told(decision) == ["the impact of its new taints is not known: resourceclaims are not read yet"]
    assert decision.annotations["impact"] == "unknown: resourceclaims are not read yet"


def test_nothing_is_told_in_mode_off_or_where_nobody_looks() -> None:
    assert told(answer(slice_with(EVICTING), PLAIN, held(PLAIN, *CLAIMS), mode=PolicyMode.OFF)) == []
    assert told(validate(make_admission_request(slice_with(EVICTING), PLAIN), make_context())) == []


def test_a_taint_that_was_there_a_moment_ago_is_not_told_again() -> None:
    value, _ = decoded(slice_with(EVICTING))
    asked = []

    def recently_had(*what: Any) -> bool:
        asked.append(what)
        return True

    context = make_context(sight=Sight(held(PLAIN, *CLAIMS)), recently_had=recently_had)
    request = make_admission_request(slice_with(EVICTING), old=PLAIN)
    assert not any("hit" in finding.error.detail for finding in validate(request, context).findings)
    assert asked == [(value.driver, value.pool, ("gpu-0", EVICTING["key"], EVICTING.get("value", "")))]
