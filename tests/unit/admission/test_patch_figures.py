"""What the answer to a patch says beside its limits: gangs, companions, hardware, shares."""

from __future__ import annotations

from typing import Any

from tests.builders import DRIVER, make_admission_request, make_taint
from tests.unit.admission.guarding import allowing, over, refusals, told
from tests.unit.admission.patch_guarding import FIRST, ask_patch, cel, evicting, patching
from tests.unit.admission.test_gangs import RING, TRAIN, context_of, job_set, ring
from tests.unit.admission.test_written_for_hardware import hardware
from webhook.admission.chain import validate
from webhook.policy.model import ImpactLimits, ImpactSettings, InTreeEvictor, Policy, Share

NODE_0 = {"driver": DRIVER, "pool": "node-0"}


def ask_with_pods(patch: Any, objects: list[Any], policy: Policy) -> Any:
    return validate(make_admission_request(patch), context_of(objects, policy))


def test_gangs_are_named_in_the_warning_and_in_the_refusal() -> None:
    decision = ask_with_pods(patching(NODE_0), job_set(), Policy())
    assert ("warn", f"evicts {TRAIN}") in told(decision)
    assert " gangs=1 gangPods=4 gangSize=32 " in decision.annotations["impact"]
    refused = ask_with_pods(patching(NODE_0), job_set(), Policy(impact=allowing(pods=3)))
    assert f"4 pods in 1 namespace, {TRAIN}: the limit is 3 pods" in refusals(refused)[0]


def test_companions_count_where_our_worker_evicts() -> None:
    absent = Policy(in_tree_evictor=InTreeEvictor.ABSENT, impact=allowing(pods=31))
    assert over(ask_with_pods(patching(NODE_0), ring(), absent)) == ["limit:pods"]
    assert RING in refusals(ask_with_pods(patching(NODE_0), ring(), absent))[0]
    assert ask_with_pods(patching(NODE_0), ring(), Policy(impact=allowing(pods=31))).allowed
    several = patching(NODE_0, make_taint(key="a.example.com/k"), evicting())
    assert over(ask_with_pods(several, ring(), absent)) == ["limit:pods"]


def test_other_parts_of_the_hardware_are_named() -> None:
    one = patching({**NODE_0, "device": "gpu-0"}, evicting())
    bare = hardware()
    for rule in list(bare.rules.values()):
        bare.apply(rule, None)
    decision = ask_patch(one, cluster=bare)
    assert "siblings=2 siblingPods=2" in decision.annotations["impact"]
    none = ask_patch(patching({**NODE_0, "device": "gpu-0"}, make_taint(effect="None")), cluster=bare)
    assert "siblings=2" in none.annotations["impact"]
    several = ask_patch(patching({**NODE_0, "device": "gpu-0"}, evicting(), make_taint()), cluster=bare)
    assert "siblings=" not in several.annotations["impact"], "for one rule only"


def test_share_of_devices_is_of_each_driver() -> None:
    taint = make_taint()
    half = ImpactSettings(limits=(ImpactLimits(devices=Share(50)),))
    less = ImpactSettings(limits=(ImpactLimits(devices=Share(49)),))
    assert ask_patch(patching(cel(FIRST), taint), impact=half).allowed
    decision = ask_patch(patching(cel(FIRST), taint), impact=less)
    assert over(decision) == ["limit:devices"]
    assert decision.annotations["impact"].endswith(f"over=limit:devices driver={DRIVER}")


def test_figures_are_those_of_the_taint_that_does_most() -> None:
    decision = ask_patch(patching("default", make_taint(key="a.example.com/k"), evicting(key="b.example.com/k")))
    assert told(decision) == [("warn", "selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, all at once")]
    closing = ask_patch(patching("default", make_taint(effect="None", key="a.example.com/k"), make_taint()))
    assert told(closing) == [("warn", "keeps 8 devices in 4 pools from being allocated; no harm to 4 pods on them")]
