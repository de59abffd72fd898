"""The unavailable places of an owner by themselves, without a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.eviction.plans import Owners
from webhook.eviction.ports import OwnerFreed

if TYPE_CHECKING:
    from webhook.eviction.ports import Freed

OWNER = "uid-job"


def owner_of(*pods: str, gang: str = "") -> Owners:
    """An owner all of whose pods are available."""
    owners = Owners(set())
    for uid in pods:
        owners.observe(OWNER, uid, gang, missing=False)
    return owners


def test_pod_that_goes_leaves_the_others_of_its_owner() -> None:
    owners = owner_of(*"abc")
    owners.remove(OWNER, "a")
    assert owners.place_count(OWNER) == 2
    owners.remove(OWNER, "a")
    owners.remove("uid-of-nothing", "a")
    assert owners.place_count(OWNER) == 2
    owners.remove(OWNER, "b")
    owners.remove(OWNER, "c")
    assert owners.place_count(OWNER) == 0


def test_pods_that_are_evicted_together_keep_their_one_place_when_one_of_them_joins_a_gang() -> None:
    owners = owner_of(*"ab")
    for uid in "ab":
        owners.mark_unavailable(OWNER, uid, "ml/shared-claim")
    owners.observe(OWNER, "a", "ring", missing=True)
    assert owners.unavailable(OWNER) == 1
    assert owners.place_count(OWNER) == 2


def test_pod_that_is_missing_by_itself_is_missing_in_its_gang_once_it_joins_one() -> None:
    owners = owner_of("b", gang="ring")
    for uid in ("a", "c"):
        owners.observe(OWNER, uid, "", missing=True)
    assert (owners.place_count(OWNER), owners.unavailable(OWNER)) == (3, 2)
    for uid in ("a", "c"):
        owners.observe(OWNER, uid, "ring", missing=True)
    assert (owners.place_count(OWNER), owners.unavailable(OWNER)) == (1, 1)


def test_owner_has_room_again_only_once_something_has_changed_for_it() -> None:
    freed: set[Freed] = set()
    owners = Owners(freed)
    owners.observe(OWNER, "a", "", missing=False)
    owners.observe(OWNER, "b", "", missing=True)
    owners.observe(OWNER, "a", "", missing=False)
    owners.mark_available(OWNER, "a")
    assert freed == set()
    owners.observe(OWNER, "c", "", missing=False)
    assert freed == {OwnerFreed(OWNER)}, "a share of more pods may be more"
    freed.clear()
    owners.observe(OWNER, "b", "", missing=False)
    assert freed == {OwnerFreed(OWNER)}
