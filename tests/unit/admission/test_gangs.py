"""Gangs and companions in the answer to a rule or a slice, and in the audit log, where pods are known."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, make_admission_request, make_context, make_device, make_slice, make_taint
from tests.unit.admission.guarding import allowing, node, refusals, tainting, text_in, told
from tests.unit.inventory.values import claim, inventory_of, on, pod, pool_slice
from webhook.admission.chain import mutate, validate
from webhook.admission.impact_text import annotation_of, gangs_text, measured_in
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, PodGroup
from webhook.eviction.followed_pods import FollowedPods
from webhook.inventory.gangs import BrokenGang, Gang
from webhook.inventory.impact import Impact
from webhook.inventory.state import Inventory, Sight
from webhook.policy.decide import Judge
from webhook.policy.model import ImpactLimits, ImpactSettings, InTreeEvictor, Policy, Softening

JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
TRAIN: Final = "4 pods of 1 gang of 32 (JobSet ml/train)"
RING: Final = "32 pods of 1 gang of 32 (PodGroup ml/ring), 28 of them only with the rest of their PodGroup"
EVICTED: Final = "selects 4 devices in 1 pool; evicts 4 pods in 1 namespace, all at once"


def cluster(**fields: Any) -> list[Any]:
    """32 ranks, four to a node."""
    found: list[Any] = []
    for number in range(32):
        place = f"node-{number // 4}"
        if number % 4 == 0:
            found.append(pool_slice(*[f"gpu-{each}" for each in range(4)], name=place, pool=place))
        name = f"rank-{number}"
        found.append(claim(name, on(f"gpu-{number % 4}", pool=place), users=[f"uid-of-{name}"]))
        found.append(structs.replace(pod(name, name), **fields))
    return found


def job_set() -> list[Any]:
    return cluster(labels=((JOB_SET, "train"),))


def ring() -> list[Any]:
    return [*cluster(pod_group="ring"), PodGroup(ObjectMeta("ring", namespace="ml", uid="uid-ring"), ALL)]


def context_of(objects: list[Any], policy: Policy, *, blind: bool = False, **options: Any) -> Any:
    inventory = Inventory()
    followed = FollowedPods(inventory, lambda _: None)
    for each in objects:
        inventory.apply(None, each)
        followed.observe(None, each)
    pods = None if blind else followed.under(policy)
    return make_context(judge=Judge(policy), sight=Sight(inventory), pods=pods, **options)


def ask(rule: Any, objects: list[Any], policy: Policy | None = None, **options: Any) -> Any:
    return validate(make_admission_request(rule), context_of(objects, policy or Policy(), **options))


def test_warning_and_audit_log_name_the_gang() -> None:
    decision = ask(tainting(node(0)), job_set())
    assert told(decision) == [("warn", EVICTED), ("warn", f"evicts {TRAIN}")]
    assert decision.annotations["impact"].endswith(" podGroups=0 gangs=1 gangPods=4 gangSize=32 companions=0")
    assert measured_in(decision.annotations["impact"]).figures["gangSize"] == 32


def test_without_pods_nothing_is_said() -> None:
    decision = ask(tainting(node(0)), job_set(), blind=True)
    assert told(decision) == [("warn", EVICTED)]
    assert "gang" not in decision.annotations["impact"]
    refused = ask(tainting(node(0)), job_set(), Policy(impact=allowing(pods=3)), blind=True)
    assert refusals(refused)[0].startswith("hits 4 devices, 4 pods in 1 namespace: the limit")


@pytest.mark.parametrize(
    ("rule", "policy"),
    [
        (tainting(node(0), "NoSchedule", evict=True), Policy()),
        (tainting(node(0)), Policy(in_tree_evictor=InTreeEvictor.ABSENT)),
    ],
    ids=["/evict", "inTreeEvictor: absent"],
)
def test_companions_count_where_our_worker_evicts(rule: Any, policy: Policy) -> None:
    decision = ask(rule, ring(), policy)
    texts = [text for _, text in told(decision)]
    assert texts == ["selects 4 devices in 1 pool; evicts 32 pods in 1 namespace, all at once", f"evicts {RING}"]
    assert " pods=32 " in decision.annotations["impact"]
    assert decision.annotations["impact"].endswith(" gangs=1 gangPods=32 gangSize=32 companions=28")


def test_pod_whose_claim_its_group_keeps_is_no_companion() -> None:
    objects = ring()
    held = next(each for each in objects if each.meta.name == "rank-1")
    kept = structs.replace(held, reserved_for=(Consumer("scheduling.k8s.io", "podgroups", "ring", "uid-ring"),))
    decision = ask(tainting(node(0), "NoSchedule", evict=True), [kept if each is held else each for each in objects])
    assert " gangPods=31 gangSize=32 companions=28 " in decision.annotations["impact"]


def test_in_tree_controller_takes_no_pod_along() -> None:
    texts = [text for _, text in told(ask(tainting(node(0)), ring()))]
    assert texts == [EVICTED, "evicts 4 pods of 1 gang of 32 (PodGroup ml/ring)"]


def test_limit_and_text_count_companions() -> None:
    """The worker counts them as well, so a text for fewer would stop it."""
    rule, policy = tainting(node(0), "NoSchedule", evict=True), Policy(impact=allowing(pods=31))
    refused = ask(rule, ring(), policy)
    assert refusals(refused)[0].startswith(f"hits 4 devices, 32 pods in 1 namespace, {RING}: the limit is 31 pods; ")
    text = text_in(refused)
    assert " pods=32 " in text
    confirmed = ask(tainting(node(0), "NoSchedule", evict=True, text=text), ring(), policy)
    assert confirmed.allowed
    assert ask(rule, ring(), policy, blind=True).allowed


def test_rule_without_effect_shows_what_it_would_break() -> None:
    decision = ask(tainting(node(0), "None"), job_set())
    assert ("warn", f"with effect NoExecute evicts {TRAIN}") in told(decision)
    assert decision.annotations["impact"].endswith(" companions=0 simulated")


def test_rule_that_evicts_no_pod_names_no_gang() -> None:
    assert "gang" not in str(ask(tainting(node(0), "NoSchedule"), job_set()).annotations)
    assert "gang" not in str(told(ask(tainting({"driver": DRIVER, "pool": "node-99"}), job_set())))


@pytest.mark.parametrize(("in_tree", "says"), [(InTreeEvictor.ACTIVE, "4 pods"), (InTreeEvictor.ABSENT, "32 pods")])
def test_slice_with_new_taints_names_the_gang(in_tree: InTreeEvictor, says: str) -> None:
    taints = [make_taint(effect="NoExecute")]
    new = make_slice([make_device(f"gpu-{each}", taints) for each in range(4)], pool="node-0", meta={"name": "node-0"})
    decision = ask(new, ring(), Policy(in_tree_evictor=in_tree))
    texts = [text for _, text in told(decision)]
    assert texts[0] == f"new NoExecute taints on 4 devices; they evict {says} in 1 namespace, all at once"
    assert texts[1].startswith(f"evicts {says} of 1 gang of 32 (PodGroup ml/ring)")
    assert " gangs=1 " in decision.annotations["impact"]


def test_softened_rule_has_the_gangs_in_the_audit_log() -> None:
    softens = ImpactLimits(pods=3, soften=Softening.OVER)
    policy = Policy(impact=ImpactSettings(limits=(softens,)))
    decision = mutate(make_admission_request(tainting(node(0))), context_of(job_set(), policy))
    assert " gangs=1 gangPods=4 gangSize=32 " in decision.annotations["impact"]


def breaking(*gangs: tuple[str, int, int], companions: int = 0) -> Impact:
    found = tuple(BrokenGang(Gang("JobSet", "ml", name), evicted, pods) for name, evicted, pods in gangs)
    return Impact(gangs=found, companions=frozenset(map(str, range(companions))))


@pytest.mark.parametrize(
    ("impact", "text"),
    [
        (breaking(), ""),
        (breaking(("a", 1, 2)), "1 pod of 1 gang of 2 (JobSet ml/a)"),
        (breaking(("a", 4, 32), ("b", 1, 8)), "5 pods of 2 gangs of 40 in all (JobSet ml/a, JobSet ml/b)"),
        (
            breaking(("a", 2, 2), ("b", 2, 2), ("c", 2, 2)),
            "6 pods of 3 gangs of 6 in all (JobSet ml/a, JobSet ml/b, JobSet ml/c)",
        ),
        (
            breaking(("a", 2, 2), ("b", 2, 2), ("c", 2, 2), ("d", 1, 2), ("e", 1, 2)),
            "8 pods of 5 gangs of 10 in all (JobSet ml/a, JobSet ml/b, JobSet ml/c and 2 more)",
        ),
        (breaking(("a", 2, 2), companions=1), "2 pods of 1 gang of 2 (JobSet ml/a), 1 of them only with the rest of"),
    ],
)
def test_gangs_are_told_with_the_first_names(impact: Impact, text: str) -> None:
    if impact.companions:
        assert gangs_text(impact) == f"{text} their PodGroup"
    else:
        assert gangs_text(impact) == text


def test_name_from_an_annotation_is_cut_and_cleaned() -> None:
    whole = Gang("gang", "ml", "x" * 72)
    assert len(str(whole)) == 80
    assert gangs_text(Impact(gangs=(BrokenGang(whole, 1, 2),))) == f"1 pod of 1 gang of 2 ({whole})"
    longer = Gang("gang", "ml", "x" * 73)
    assert gangs_text(Impact(gangs=(BrokenGang(longer, 1, 2),))) == f"1 pod of 1 gang of 2 ({whole}...)"
    wild = Gang("gang", "ml", "a\x1b[31m\nb")
    assert gangs_text(Impact(gangs=(BrokenGang(wild, 1, 2),))) == "1 pod of 1 gang of 2 (gang ml/a?[31m?b)"


def test_audit_annotation_adds_up_the_gangs() -> None:
    text = annotation_of(breaking(("a", 4, 32), ("b", 1, 8), companions=2), acts=True, over=())
    assert text.endswith(" podGroups=0 gangs=2 gangPods=5 gangSize=40 companions=2")
    assert "gang" not in annotation_of(breaking(), acts=True, over=())


def test_gangs_are_those_of_the_policy_in_use() -> None:
    objects = inventory_of(*job_set())
    followed = FollowedPods(objects, lambda _: None)
    policy = Policy()
    assert followed.under(policy) is followed.under(policy)
    assert followed.under(Policy(hash="other")) is not followed.under(policy)
