"""The limit on evicted pods that find no other device: when it refuses, what gets past it, and what it costs."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, make_admission_request, make_context, make_request
from tests.costs import calls_of
from tests.unit.admission.guarding import UNKNOWN, allowing, ask, node, over, refusals, tainting, text_in, told
from tests.unit.admission.patch_guarding import FIRST, ask_patch, cel, evicting, figures, known, patching, racks
from tests.unit.inventory.values import inventory_of, rule
from tests.unit.patches.patched import slice_of
from webhook.admission.chain import mutate, validate
from webhook.admission.context import Budget, OutOfTime
from webhook.api.claims import AllocationResult, Demand, ResourceClaim, Wish, demand_in
from webhook.api.rules import SCOPE, DeviceSelector
from webhook.inventory.state import Inventory, Sight
from webhook.policy.decide import Judge
from webhook.policy.model import (
    Action,
    Policy,
    Share,
    Softening,
)

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

CLASSES: Final = known(classes={"any": ("true",), "first": (FIRST,)})
OVER, NOT_KNOWN = ["limit:pendingPods"], ["unknown:pendingPods"]


def asking(device_class: str = "first", *more: Any) -> Inventory:
    """Four nodes of two devices. A pod on each has the first one, and asks for such a device or for any."""
    cluster = racks()
    demand = demand_in(json.dumps({"requests": [make_request(deviceClassName=device_class)]}).encode())
    claims = [structs.replace(each, demand=demand, controller_uid="its pod") for each in cluster.claims.values()]
    return inventory_of(*cluster.slices.values(), *claims, *more)


def sent(manifest: Any, limit: int | Share | None = 0, device_class: str = "first", **options: Any) -> Decision:
    """What /validate says of a rule under this limit on pods that find none, and no other limit."""
    given = {"impact": allowing(pending_pods=limit), "patches": CLASSES, "cluster": asking(device_class), **options}
    return ask(manifest, **given)


def closing(name: str = "spares", pool: str | None = None) -> Any:
    """A stored rule that closes the second device of each node, or of one."""
    return rule(name, DeviceSelector(DRIVER, pool, "gpu-1"), "NoSchedule")


# --- what is over the limit -----------------------------------------------------------------------


def test_refusal_says_how_many_find_none_what_they_need_and_the_way_out() -> None:
    decision = sent(tainting(node(0)))
    text = text_in(decision)
    (refused,) = refusals(decision)
    assert refused == (
        "hits 2 devices, 1 pod in 1 namespace: 1 of 1 pod finds no other device: 1 needs first, 0 free, and the limit"
        " is 0 such pods; narrow the selector, or to go ahead, set annotation devicetaint.io/confirm-impact to"
        f' "{text}"'
    )
    assert decision.annotations["impact"].endswith(" podGroups=0 pendingPods=1 over=limit:pendingPods")


@pytest.mark.parametrize(
    ("limit", "selector", "device_class", "expected", "pending"),
    [
        pytest.param(0, node(0), "any", [], 0, id="all find one"),
        pytest.param(0, node(0), "first", OVER, 1, id="one finds none"),
        pytest.param(1, node(0), "first", [], 1, id="as many as may"),
        pytest.param(3, {"driver": DRIVER}, "any", OVER, 4, id="one more than may"),
        pytest.param(4, {"driver": DRIVER}, "any", [], 4, id="all of them, and they may"),
        pytest.param(Share(75), {"driver": DRIVER}, "any", OVER, 4, id="a share is of the pods that use devices"),
        pytest.param(Share(100), {"driver": DRIVER}, "any", [], 4, id="a share of all"),
        pytest.param(Share(50), node(0), "first", [], 1, id="a share that is not used up"),
        pytest.param(0, {"driver": DRIVER, "device": "gpu-1"}, "first", [], None, id="no pod is evicted"),
        pytest.param(None, {"driver": DRIVER}, "first", [], None, id="null is no limit, and nothing is asked"),
    ],
)
def test_limit_is_on_pods_that_find_no_other_device(
    limit: int | Share | None, selector: Any, device_class: str, expected: list[str], pending: int | None
) -> None:
    decision = sent(tainting(selector), limit, device_class)
    assert (over(decision), figures(decision).get("pendingPods")) == (expected, pending)
    assert decision.allowed is not bool(expected)


def test_pods_within_the_limit_are_told_all_the_same() -> None:
    decision = sent(tainting(node(0)), 1)
    assert ("warn", "1 of 1 pod finds no other device: 1 needs first, 0 free") in told(decision)


@pytest.mark.parametrize(
    ("rule_", "expected"),
    [
        (tainting(effect="None"), None),
        (tainting(effect="NoSchedule"), None),
        (tainting(effect="NoSchedule", evict=True), 4),
        (tainting(effect="NoExecute"), 4),
    ],
    ids=["None", "NoSchedule", "our eviction", "NoExecute"],
)
def test_only_what_evicts_is_asked_where_its_pods_would_go(rule_: Any, expected: int | None) -> None:
    decision = sent(rule_)
    assert figures(decision).get("pendingPods") == expected
    assert over(decision) == ([] if expected is None else OVER)


def test_rules_that_close_the_spare_devices_count_but_for_the_one_that_is_changed() -> None:
    assert over(sent(tainting(node(0)), device_class="any")) == []
    assert over(sent(tainting(node(0)), cluster=asking("any", closing()))) == OVER
    before = tainting({"driver": DRIVER, "device": "gpu-1"}, "NoSchedule", name="spares")
    after = tainting(node(0), name="spares")
    assert over(sent(after, old=before, cluster=asking("any", closing()))) == []


def test_update_that_does_less_is_not_asked_again() -> None:
    before, after = tainting(), tainting(node(0))
    assert "impact" not in sent(after, old=before).annotations
    assert over(sent(before, old=after)) == OVER


# --- not known ------------------------------------------------------------------------------------

WITHOUT_DEMANDS = inventory_of(*racks().slices.values(), *racks().claims.values())
UNTOLD: dict[str, tuple[dict[str, Any], str]] = {
    "patches are not followed": ({"patches": known(unknown="not followed")}, "DeviceClasses are not known"),
    "no class is known": ({"patches": known()}, "DeviceClasses are not known"),
    "claims are kept without requests": (
        {"cluster": WITHOUT_DEMANDS},
        "what claims ask for is not kept (serve --watch-patches keeps it)",
    ),
}


@pytest.mark.parametrize("untold", UNTOLD)
def test_what_is_not_known_counts_as_over_the_limit_unless_the_policy_only_warns(untold: str) -> None:
    given, why = UNTOLD[untold]
    said = f"it is not known whether 4 pods would find other devices: {why}"
    refused = sent(tainting(), 3, **given)
    assert over(refused) == NOT_KNOWN
    assert f"{said}, and the limit is 3 pods that find none; narrow the selector" in refusals(refused)[0]
    milder = allowing(pending_pods=3)
    warned = sent(tainting(), **given, impact=structs.replace(milder, unknown_impact=Action.WARN))
    assert (over(warned), warned.allowed) == ([], True)
    assert ("warn", said) in told(warned)


@pytest.mark.parametrize("untold", UNTOLD)
def test_what_is_not_known_is_within_a_limit_that_all_pods_keep(untold: str) -> None:
    decision = sent(tainting(), 4, **UNTOLD[untold][0])
    assert (over(decision), decision.allowed) == ([], True)


def test_what_is_not_known_is_named_even_beside_pods_that_find_none() -> None:
    cluster = asking()
    first = next(iter(cluster.claims.values()))
    cluster.apply(first, structs.replace(first, demand=None))
    decision = sent(tainting(), 3, cluster=cluster)
    assert over(decision) == NOT_KNOWN
    assert "it is not known whether 1 pod would find other devices: what claims ask for is not kept" in str(
        refusals(decision)
    )


# --- ways past it ---------------------------------------------------------------------------------


def test_text_of_the_refusal_confirms_it() -> None:
    refused = sent(tainting())
    confirmed = sent(tainting(text=text_in(refused)))
    assert confirmed.allowed
    assert confirmed.annotations["impact"].endswith("pendingPods=4 over=limit:pendingPods confirmed")


@pytest.mark.parametrize("soften", [Softening.OVER, Softening.ALWAYS])
@pytest.mark.parametrize("sight", [None, UNKNOWN], ids=["known", "not known"])
def test_rule_over_it_is_refused_and_not_softened_as_the_worker_waits_for_no_place(
    soften: Softening, sight: Sight | None
) -> None:
    settings = allowing(pending_pods=0, soften=soften)
    context = make_context(impact=settings, patches=CLASSES, sight=sight or Sight(asking()))
    decisions = [step(make_admission_request(tainting()), context) for step in (mutate, validate)]
    assert "NoSchedule" not in str(decisions[0].patch)
    assert not decisions[1].allowed


def test_softened_rule_within_it_is_let_through() -> None:
    settings = allowing(pending_pods=0, soften=Softening.ALWAYS)
    context = make_context(impact=settings, patches=CLASSES, sight=Sight(asking("any")))
    assert "NoSchedule" in str(mutate(make_admission_request(tainting(node(0))), context).patch)
    assert validate(make_admission_request(tainting(node(0), "NoSchedule", evict=True)), context).allowed


# --- patches --------------------------------------------------------------------------------------


def patched(patch: Any, limit: int | None = 0, device_class: str = "first", **options: Any) -> Decision:
    given = {"impact": allowing(pending_pods=limit), "patches": CLASSES, "cluster": asking(device_class), **options}
    return ask_patch(patch, **given)


def test_patch_is_judged_by_what_all_of_its_taints_leave() -> None:
    assert over(patched(patching(cel(FIRST, driver=DRIVER)))) == OVER
    assert over(patched(patching(cel(FIRST, driver=DRIVER)), 4)) == []
    assert over(patched(patching(cel(FIRST, driver=DRIVER)), device_class="any")) == []
    closing_too = [evicting(), evicting(key="example.com/closed", effect="NoSchedule")]
    assert over(patched(patching({"driver": DRIVER}, *closing_too), device_class="any")) == OVER
    assert over(patched(patching({"driver": DRIVER}, closing_too[1]), device_class="any")) == []


def test_rule_with_the_name_of_a_patch_stays_while_the_patch_is_changed() -> None:
    before, after = patching(cel("false"), name="spares"), patching(cel(FIRST, driver=DRIVER), name="spares")
    change = partial(patched, after, old=before, device_class="any")
    assert over(change()) == []
    assert over(change(cluster=asking("any", closing()))) == OVER


# --- what it costs --------------------------------------------------------------------------------


def test_review_that_does_not_ask_looks_at_no_request_class_or_place() -> None:
    def review(cluster: Inventory, patches: Any, limit: int | None, candidate: Judge | None = None) -> int:
        judge = Judge(Policy(impact=allowing(pending_pods=limit)))
        context = make_context(judge=judge, candidate=candidate, patches=patches, sight=Sight(cluster))
        return calls_of(partial(validate, context=context), partial(make_admission_request, tainting()))

    bare = review(WITHOUT_DEMANDS, known(), None)
    assert review(asking(), CLASSES, None) == bare
    assert review(asking(), CLASSES, 4) > bare
    # A candidate is compared by its rules, not by its limits.
    limited, unlimited = (Judge(Policy(impact=allowing(pending_pods=limit))) for limit in (0, None))
    assert review(asking(), CLASSES, None, limited) == review(asking(), CLASSES, None, unlimited)


def test_many_pods_and_a_clock_that_has_run_out_are_not_known_and_refused() -> None:
    """Nothing of it takes longer than the review may."""
    many = inventory_of(*racks().slices.values(), *racks(pods=1300).claims.values())
    (refused,) = refusals(sent(tainting(), cluster=many))
    assert "it is not known whether 5200 pods would find other devices: more than 5000 pods are too many" in refused
    ticks = itertools.count()
    budget = Budget(1000.0, lambda: float(next(ticks)))
    (refused,) = refusals(sent(tainting(), budget=budget))
    assert "it is not known whether 4 pods would find other devices: it takes too long to look at all" in refused


def test_no_review_runs_out_of_time_over_the_claims_of_its_pods() -> None:
    phases = set[str]()
    for seconds in range(100):
        try:
            sent(tainting(), budget=Budget(float(seconds), partial(next, itertools.count())))
        except OutOfTime as spent:
            phases.add(spent.phase)
    assert phases
    assert "places" not in phases


# --- the rest of the hardware ---------------------------------------------------------------------

COUNTERS: Final = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "8Gi"}}}]


def test_rest_of_the_hardware_is_closed_with_the_device_that_a_rule_names() -> None:
    parts = [{"name": name, "consumesCounters": COUNTERS} for name in ("gpu-0", "gpu-1", "gpu-2")]
    free = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    counters = structs.replace(slice_of(name="counters", nodeName="node-0"), beside_devices={"sharedCounters": free})
    slices = [structs.replace(each, slice_count=2) for each in (slice_of(*parts, nodeName="node-0"), counters)]
    cluster = inventory_of(*slices, *asking("any").claims.values())
    one = {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}
    alone = tainting(one)
    whole = tainting(one, annotations={SCOPE: "hardware"})
    answer = partial(sent, cluster=cluster, patch_account="system:serviceaccount:a:b")
    assert over(answer(alone)) == []
    assert over(answer(whole)) == OVER


# --- pods that need another claim -----------------------------------------------------------------


ANY: Final = known(classes={"any": ("true",)})


def racks_with_a_nic(user: str) -> Inventory:
    """Four nodes of two devices; a pod of each has one, and that of node-0 has another claim, unless `user` has."""
    cluster = racks()
    first, *others = [asking_for(each, "any") for each in cluster.claims.values()]
    results = (AllocationResult("r", "nic.example.com", "node-0", "nic-0"),)
    users = [structs.replace(each, uid=user or each.uid) for each in first.reserved_for]
    meta = structs.replace(first.meta, name="nic", uid="nic")
    nic = structs.replace(asking_for(first, "nic"), meta=meta, allocation=results, reserved_for=tuple(users))
    return inventory_of(*cluster.slices.values(), first, nic, *others)


def asking_for(claim: ResourceClaim, device_class: str) -> ResourceClaim:
    return structs.replace(claim, demand=Demand(((Wish("r", device_class),),)), controller_uid="its pod")


@pytest.mark.parametrize(("user", "pending"), [("", 1), ("another", 0)], ids=["of the pod", "of another pod"])
def test_pod_whose_other_claim_finds_no_device_finds_none(user: str, pending: int) -> None:
    given: Any = {"impact": allowing(pending_pods=0), "patches": ANY, "cluster": racks_with_a_nic(user)}
    decision = ask(tainting(node(0)), **given)
    assert figures(decision)["pendingPods"] == pending
    assert over(decision) == ["limit:pendingPods"] * pending
