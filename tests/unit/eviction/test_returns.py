"""How rounds of evictions of a claim's pods are counted."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, pod
from webhook.api.claims import Consumer
from webhook.api.pods import Pod, PodClaim
from webhook.eviction.returns import Returns
from webhook.inventory.state import Inventory

SHARED = "ml/shared-claim"


def user(name: str, *, generated: bool = False) -> Pod:
    return pod(name, claims=(PodClaim("shared-claim", generated=generated),))


def world(*pods: Pod) -> tuple[Inventory, Returns]:
    inventory = Inventory()
    consumers = tuple(Consumer("", "pods", each.meta.name, each.meta.uid) for each in pods)
    inventory.apply(None, claim("shared", consumers=consumers))
    for each in pods:
        inventory.apply(None, each)

    def evicts_users_of(key: str) -> bool:
        claim = inventory.claims.get(key)
        return claim is not None and bool(claim.allocation)

    return inventory, Returns(inventory, evicts_users_of)


def evict(returns: Returns, *pods: Pod, evicted: bool = True) -> None:
    for each in pods:
        returns.begin(each)
    for each in pods:
        returns.end(each, evicted=evicted)


def test_pods_that_are_there_when_a_round_begins_belong_to_it() -> None:
    a, b, c, d = map(user, "abcd")
    inventory, returns = world(a, b)
    evict(returns, a)
    evict(returns, b)
    inventory.apply(None, c)
    assert returns.claim_of(c) == ""
    evict(returns, c)
    assert returns.claim_of(c) == ""
    inventory.apply(None, d)
    assert returns.claim_of(d) == SHARED


def test_round_counts_from_its_first_request_on() -> None:
    a, b, c = map(user, "abc")
    inventory, returns = world(a)
    returns.begin(a)
    inventory.apply(None, b)
    returns.begin(b)
    inventory.apply(None, c)
    assert returns.claim_of(c) == SHARED
    returns.end(a, evicted=True)
    returns.end(b, evicted=True)
    assert returns.claim_of(c) == SHARED


def test_round_that_evicts_no_pod_is_taken_back() -> None:
    a, b, c = map(user, "abc")
    inventory, returns = world(a)
    evict(returns, a)
    inventory.apply(None, b)
    for _ in range(5):
        evict(returns, b, evicted=False)
    inventory.apply(None, c)
    assert returns.claim_of(c) == ""
    evict(returns, b)
    assert returns.claim_of(c) == ""  # it was there when that round began
    assert len(returns._rounds) == 1


def test_first_round_that_evicts_no_pod_leaves_nothing() -> None:
    a = user("a")
    _, returns = world(a)
    evict(returns, a, evicted=False)
    assert len(returns._rounds) == 0


@pytest.mark.parametrize("evicted", [(True, False), (False, True)])
def test_round_that_evicts_one_of_its_pods_counts(evicted: tuple[bool, bool]) -> None:
    a, b = map(user, "ab")
    inventory, returns = world(a, b)
    returns.begin(a)
    returns.begin(b)
    returns.end(a, evicted=evicted[0])
    assert len(returns._rounds) == 1
    returns.end(b, evicted=evicted[1])
    c, d = map(user, "cd")
    inventory.apply(None, c)
    evict(returns, c)
    inventory.apply(None, d)
    assert returns.claim_of(d) == SHARED


def test_claims_made_for_their_pod_are_not_counted() -> None:
    a, b, c = [user(name, generated=True) for name in "abc"]
    inventory, returns = world(a)
    for each in (a, b):
        evict(returns, each)
    inventory.apply(None, c)
    assert returns.claim_of(c) == ""
    assert len(returns._rounds) == 0


def test_claim_that_is_not_allocated_is_not_counted() -> None:
    a = user("a")
    inventory, returns = world(a)
    known = inventory.claims[SHARED]
    inventory.apply(known, structs.replace(known, allocation=()))
    evict(returns, a)
    assert len(returns._rounds) == 0


def test_claim_that_is_deallocated_starts_over() -> None:
    a, b, c = map(user, "abc")
    inventory, returns = world(a)
    evict(returns, a)
    inventory.apply(None, b)
    known = inventory.claims[SHARED]
    assert not returns.observe(SHARED, known)
    assert not returns.observe(SHARED, structs.replace(known, allocation=()))
    evict(returns, b)
    inventory.apply(None, c)
    assert returns.claim_of(c) == ""
    evict(returns, c)
    assert returns.observe(SHARED, None)
    assert len(returns._rounds) == 0


def test_claim_made_anew_under_the_same_name_starts_over() -> None:
    a, b, c = map(user, "abc")
    inventory, returns = world(a)
    evict(returns, a)
    known = inventory.claims[SHARED]
    inventory.apply(known, None)
    inventory.apply(None, structs.replace(known, meta=structs.replace(known.meta, uid="another")))
    inventory.apply(None, b)
    evict(returns, b)
    inventory.apply(None, c)
    assert returns.claim_of(c) == ""


def test_pods_that_no_taint_evicts_any_longer_start_over() -> None:
    a, b = map(user, "ab")
    inventory, returns = world(a)
    evict(returns, a)
    inventory.apply(None, b)
    evict(returns, b)
    returns.forget([b])
    assert len(returns._rounds) == 0


def test_claim_that_is_gone_by_the_time_of_the_response_leaves_the_rounds_of_others_as_they_are() -> None:
    a = pod("a", claims=(PodClaim("shared-claim"), PodClaim("other-claim")))
    inventory, returns = world(a)
    inventory.apply(None, claim("other", consumers=(Consumer("", "pods", "a", "uid-a"),)))
    returns.begin(a)
    assert len(returns._rounds) == 2
    returns.observe(SHARED, None)
    returns.end(a, evicted=False)
    assert len(returns._rounds) == 0
