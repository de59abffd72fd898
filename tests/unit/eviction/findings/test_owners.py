"""How long the place of an evicted pod counts as empty for its owner, and which owners exempt a pod."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates, using
from tests.unit.eviction.test_units import JOB_SET
from tests.unit.eviction.world import FREE, Budget, evicting
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, PodGroup, decode_owner
from webhook.api.rules import DeviceSelector


@pytest.mark.parametrize("ready", [True, False])
def test_pods_of_other_namespaces_neither_hold_up_an_owner_nor_replace_its_pods(ready: bool) -> None:  # noqa: FBT001
    """Anybody may name the uid of an owner in another namespace."""
    world = evicting(per_owner_unavailable=1)
    stranger = owned("stranger", namespace="other", phase="Running" if ready else "Pending")
    world.add(claim("a"), owned("a"), claim("b"), owned("b"), stranger)
    world.cluster.lingering = True
    world.add(rule())
    assert len(world.after(1)) == 1
    if ready:
        world.add(owned("another", namespace="other"))
    else:
        world.advance(60)
        world.remove(world.pod(world.evicted[0]))
    assert len(world.after(30)) == (1 if ready else 2)


def test_each_evicted_pod_counts_as_missing_for_five_seconds() -> None:
    """L1: of two pods evicted at 0 s and 4 s the second one is missing until 9 s, and not until the first is not."""
    world = evicting(per_owner_unavailable=2)
    for number, seconds in enumerate((0, 4, 5, 5, 60, 60)):
        name = f"web-{number}"
        world.add(claim(name, tolerates(seconds), devices=(name,)), owned(name))
    world.add(rule())
    world.advance(30)
    times = [seconds for _, _, seconds in world.cluster.calls]
    assert times == pytest.approx([0, 4, 5, 9], abs=0.01)


@pytest.mark.parametrize(
    ("changes", "evicted"),
    [
        pytest.param({}, 0, id="the DaemonSet of apps"),
        pytest.param({"apiVersion": "example.com/v1"}, 1, id="another group"),
        pytest.param({"apiVersion": "apps/v99"}, 1, id="a version that no garbage collector finds"),
        pytest.param({"controller": False}, 1, id="no controller"),
        pytest.param({"controller": None}, 1, id="nothing said about control"),
    ],
)
def test_only_the_controller_of_a_daemon_set_of_apps_exempts(changes: dict[str, object], evicted: int) -> None:
    """S1: a user who may create pods can write any owner reference."""
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "made-up", "controller": True}
    owner = decode_owner(Reader({"metadata": {"ownerReferences": [{**reference, **changes}]}}, []))
    world = evicting(claim("agent"), pod("agent", owner=owner), rule())
    assert len(world.after(20)) == evicted


@pytest.mark.parametrize(
    ("before", "after", "evicted"), [(SINGLE, ALL, ["c"]), (ALL, SINGLE, []), (SINGLE, SINGLE, []), (ALL, ALL, ["c"])]
)
def test_places_follow_the_mode_of_a_group(before: str, after: str, evicted: list[str]) -> None:
    """Two pods of a group that are not ready take one place of their owner, or two: two may be unavailable."""
    world = evicting(per_owner_unavailable=2, lingering=True)
    group = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), before, None)
    world.add(group, claim("c"), owned("c"), *using(*"ab", on="gpu-9", make=owned, pod_group="ring", phase="Pending"))
    world.advance(30)
    world.worker._core.room.owner("ml/uid-rs")  # they are counted, as by a look at any pod of this owner
    world.edit(group, disruption_mode=after)
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    assert world.after(3600) == evicted


@pytest.mark.parametrize("labels", [(), ((JOB_SET, "js"),)], ids=["by uid", "by name"])
def test_pod_goes_once_its_budget_opens_although_it_waits_for_its_owner(labels: tuple[tuple[str, str], ...]) -> None:
    """After the deadline its DELETE, which passes the budget by, waits for the limit of the owner."""
    profile = structs.replace(FREE, per_owner_unavailable=1, deadline_seconds=20.0, delete_after_deadline=True)
    world = evicting(claim("a"), owned("a", gang="one", labels=labels), base=profile, budgets=[Budget("a", status=0)])
    world.add(claim("d", devices=("gpu-9",)), owned("d", gang="two", ready=False, labels=labels))
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    assert world.after(100) == []
    world.budgets[0].allows_at, world.budgets[0].status = 0.0, 1
    world.worker.observe_budget("ml", "0")
    assert world.after(3600) == ["a"]
