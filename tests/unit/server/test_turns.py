"""F5: what a review costs decides where it is judged, not its size alone."""

from __future__ import annotations

import threading

import pytest

from tests.builders import (
    encoded,
    make_claim,
    make_device,
    make_meta,
    make_request,
    make_review,
    make_slice,
    make_taint,
    make_toleration,
)
from tests.unit.inventory.values import inventory_of
from tests.unit.policy.documents import judge_of, make_defaults, make_entry, policy_of
from tests.unit.server.asking import DRIVERS, NO_TEAM, ONLY_GPUS, Cluster, reviewed
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.match import KnownNames
from webhook.server.settings import ReviewSettings
from webhook.server.state import ReviewState


class NamesByThread(KnownNames):
    """Names that remember which thread asked for a class last."""

    thread = ""

    def drivers(self, device_class: str) -> frozenset[str] | None:
        self.thread = threading.current_thread().name
        return super().drivers(device_class)


LONG = ReviewSettings(turn_seconds=60.0)
"""For what is to stay on the loop, however slow the machine is."""
ASKING = [
    make_entry(f"asks-{number}", "deny", {"when": f"toleration.key == 'k{number}' && request.count > 1"})
    for number in range(100)
]


@pytest.mark.parametrize(("lists", "each", "in_lane"), [(1, 1, False), (25, 15, True)])
@pytest.mark.parametrize("path", ["/validate", "/mutate"])
def test_small_claim_that_costs_much_is_decided_in_the_lane(path: str, lists: int, each: int, *, in_lane: bool) -> None:
    """F5: below 16 KiB, 400 tolerations against 100 expressions take as long as a claim of megabytes."""
    state = ReviewState()
    names = state.names = NamesByThread()
    added = [make_defaults(f"adds-{number}", key=f"a{number}", operator="Exists") for number in range(3)]
    state.policies.use(judge_of(*ASKING, make_entry("rest", "deny"), defaultTolerations=added))
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(each)]
    requests = [make_request(f"q{at}", tolerations, deviceClassName=f"c{at}") for at in range(lists)]
    review = make_review(make_claim(requests=requests))
    assert len(encoded(review)) < ReviewSettings().large_claim_bytes
    answer = reviewed(state, review, path=path, settings=ReviewSettings() if in_lane else LONG)
    assert answer["allowed"] is (path == "/mutate")
    assert names.thread.startswith("large-reviews") is in_lane


@pytest.mark.untraced
@pytest.mark.parametrize("look_up", [False, True], ids=["standalone", "in a cluster"])
@pytest.mark.parametrize(("refused", "devices"), [(False, 1), (False, 60), (True, 60)])
def test_slice_that_meets_many_rules_on_taints_is_ruled_on_in_the_lane(
    devices: int, *, refused: bool, look_up: bool
) -> None:
    """F5: 60 devices with 16 taints each against 100 expressions; the rest of the judgement needs the inventory."""
    asking = [make_entry(f"asks-{number}", "deny", {"when": f"taint.key == 'k{number}'"}) for number in range(100)]
    last = make_entry("no-bad", "deny", {"taints": {"keys": ["bad"], "effects": ["NoSchedule", "NoExecute"]}})
    state = Cluster().state if look_up else ReviewState()
    sights: list[str] = []
    contexts: list[str] = []

    def worker_problem() -> str:
        contexts.append(threading.current_thread().name)
        return ""

    def sight() -> Sight:
        sights.append(threading.current_thread().name)
        return Sight(inventory_of())

    state.sight, state.worker_problem = sight, worker_problem
    state.policies.use(Judge(policy_of(taintRules=[*asking, last], taintRulesOnSlices=True)))
    keys = [*(f"a{number}" for number in range(15)), "bad" if refused else "good"]
    published = [make_device(f"d{at}", [make_taint(key) for key in keys[:devices]]) for at in range(devices)]
    settings = ReviewSettings() if devices == 60 else LONG
    answer = reviewed(state, make_review(make_slice(devices=published)), settings=settings)
    assert answer["allowed"] is not refused
    if refused:
        assert "no-bad" in answer["status"]["message"]
    assert set(sights) == {"MainThread"}
    assert any(name.startswith("large-reviews") for name in contexts) is (devices == 60)


def test_unknown_names_in_a_large_claim_are_asked_for_as_in_a_small_one() -> None:
    """F9: a record of misses that is still empty is a record all the same."""
    cluster = Cluster({"ml": {}}, DRIVERS)
    cluster.state.policies.use(judge_of(NO_TEAM, ONLY_GPUS, default="deny"))
    wide = make_review(
        make_claim([make_toleration()], meta=make_meta(namespace="ml", annotations={"note": "x" * 20_000}))
    )
    answer = reviewed(cluster.state, wide)
    assert [(namespaces, classes) for namespaces, classes, _ in cluster.asked] == [({"ml"}, {"gpu.example.com"})]
    assert answer["allowed"] is True
