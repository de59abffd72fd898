"""Which taints share a rate, and what uses it up; how fast it is: test_manners.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY, NOW
from tests.unit.eviction.objects import claim, crowd, pod, rule, slice_of, taint, tolerates, using
from tests.unit.eviction.patched import PATCH, POOL_0, fill, of_patch, part, patch
from tests.unit.eviction.world import FREE, NO_BREAKER, Budget, World, evicting
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE, DeviceTaint, TaintExtras
from webhook.eviction.modes import Mode
from webhook.policy.model import EvictionProfile, Pause

OWN_RATE = structs.replace(taint(), extras=TaintExtras(evictions_per_second=1))
PODS = 15


def cluster(*profiles: EvictionProfile) -> World:
    """Pods on devices whose taints have a rate of their own, and as many on others."""
    world = World(Mode.REPLACEMENT, *profiles, breaker=NO_BREAKER)
    for number in range(PODS):
        for name in (f"own-{number}", f"usual-{number}"):
            world.add(claim(name, devices=(name,)), pod(name, priority=number % 2))
    tainted = [(f"own-{number}", (OWN_RATE,)) for number in range(PODS)]
    world.add(slice_of(dict([*tainted, *[(f"usual-{number}", (taint(),)) for number in range(PODS)]])))
    return world


def evicted(world: World, kind: str) -> int:
    return sum(name.startswith(kind) for name in world.evicted)


@pytest.mark.parametrize("position", [0, 1])
def test_rate_that_a_driver_asks_for_is_not_shared_with_its_other_taints(position: int) -> None:
    of_others = structs.replace(FREE, priority_at_most=-1)
    world = cluster(*[of_others] * position, structs.replace(FREE, rate=2, burst=2))
    world.settle()
    assert (evicted(world, "own"), evicted(world, "usual")) == (10, 2)
    world.advance(2.0)
    assert (evicted(world, "own"), evicted(world, "usual")) == (12, 6)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([part(number) for number in range(6)], [2, 3, 4], id="of a patch"),
        pytest.param(
            [part(number, key=f"example.com/{number % 2}") for number in range(6)], [4, 6, 6], id="two taints"
        ),
        pytest.param([part(number, patch=f"p-{number % 2}") for number in range(6)], [4, 6, 6], id="of two patches"),
        pytest.param([rule(f"r-{at}", selector=part(at).selector) for at in range(6)], [6, 6, 6], id="of no patch"),
    ],
)
def test_rules_of_a_patch_share_one_rate_for_each_taint(rules: list[DeviceTaintRule], expected: list[int]) -> None:
    """Else a patch that has a rule for each device would evict from all of them at once."""
    world = evicting(rate=1, burst=2)
    fill(world, *range(6), pods=1)
    taints = [DeviceTaint(key, "", NO_EXECUTE) for key in (KEY, "example.com/0", "example.com/1")]
    for name in (PATCH, "p-0", "p-1"):
        world.set_patch(patch(name, DeviceSelector(DRIVER), *taints))
    world.add(*rules)
    for seconds, gone in enumerate(expected):
        assert len(world.after(min(seconds, 1))) == gone


@pytest.mark.parametrize("gangs", [False, True], ids=["of single pods", "of pods with others that they do not hit"])
def test_rules_seen_before_the_update_of_their_patch_share_its_rate(*, gangs: bool) -> None:
    """Their pods are queued by then, each with the rate of its own rule."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, priority_at_most=-1), structs.replace(FREE, rate=1, burst=2))
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER), DeviceTaint(KEY, "", "None")))
    for number in range(6):
        world.add(claim(f"of-patch-{number}", pool=f"node-{number}"), pod(f"of-patch-{number}", gang=f"g-{number}"))
        if gangs:
            world.add(claim(f"a-{number}", pool="other"), pod(f"a-{number}", gang=f"g-{number}", priority=-1))
    world.add(rule("other", selector=DeviceSelector(DRIVER, "other")), *[part(number) for number in range(6)])
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER)))
    for seconds, gone in enumerate([2, 3, 4]):
        world.advance(min(seconds, 1))
        assert evicted(world, "of-patch") == gone


def test_rule_that_claims_to_be_of_a_patch_has_no_fresh_burst_for_another_key() -> None:
    """N-17: whatever changes on a rule; that it names a patch proves nothing."""
    world = evicting(rate=1, burst=2)
    fill(world, 0, pods=6)
    world.set_patch(patch("another"))
    claimed = of_patch(rule("mine", selector=POOL_0, key="example.com/0"), "another")
    world.add(claimed)
    assert len(world.after(0)) == 2
    world.change(claimed, of_patch(rule("mine", selector=POOL_0, key="example.com/1"), "another"))
    assert len(world.after(0)) == 2


def own_rate(name: str, rate: str, device: str | None = None) -> DeviceTaintRule:
    """A rule for a device, or all of them; without a rate of its own if that is empty."""
    annotations = {EVICTIONS_PER_SECOND: rate} if rate else {}
    return rule(name, selector=DeviceSelector(device=device), key=f"example.com/{name}", annotations=annotations)


# --- what uses it up ----------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1])
def test_rate_that_a_rule_no_longer_has_used_up_no_token_of_the_profile(position: int) -> None:
    others = structs.replace(FREE, priority_at_most=-1)
    world = World(Mode.REPLACEMENT, *[others] * position, structs.replace(FREE, rate=0.01, burst=5))
    world.add(*crowd(20), own_rate("rule", "1"))
    assert len(world.settled()) == 10
    world.edit(world.rule(), meta=own_rate("rule", "").meta)
    assert len(world.settled()) == 15


@pytest.mark.parametrize("gang", ["", "ring"])
def test_pod_that_the_faster_of_two_rates_lets_go_uses_up_the_slower_one_and_leaves_it_no_debt(gang: str) -> None:
    """N-14: all buckets pay what they have."""
    world = evicting(*using(*[f"pod-{number:03}" for number in range(15)], on="both", gang=gang))
    world.add(claim("slow"), pod("slow", priority=1))
    world.add(own_rate("slow", "1"), own_rate("fast", "100", device="both"))
    world.advance(0.9)
    assert (len(world.evicted), "slow" in world.evicted) == (15, False)
    assert world.after(0.2)[15:] == ["slow"]


def test_rule_whose_taint_is_changed_starts_no_fresh_burst() -> None:
    """N-17, N-18: it is the same taint, changed."""
    world = evicting(*crowd(6), rule(), rate=0.1, burst=2)
    assert len(world.settled()) == 2
    world.edit(world.rule(), taint=taint(key="example.com/other", value="more"))
    assert len(world.settled()) == 2


def test_slice_whose_taint_is_changed_starts_no_fresh_burst() -> None:
    """A driver has one rate for each key, whatever else it writes into its taints."""
    world = evicting(*crowd(6), rate=0.1, burst=2, breaker=NO_BREAKER)
    devices = [f"pod-{number:03}" for number in range(6)]
    before = slice_of(dict.fromkeys(devices, (taint(),)))
    world.add(before)
    assert len(world.settled()) == 2
    world.change(before, slice_of(dict.fromkeys(devices, (structs.replace(taint(added=NOW), value="more"),))))
    assert len(world.settled()) == 2


def test_bucket_of_a_taint_that_is_gone_is_forgotten_once_it_is_full_again_and_not_before() -> None:
    """N-16: until then forgetting it would be a fresh burst."""
    world = evicting(*crowd(2), rule(), rate=10, burst=10)
    world.settle()
    world.remove(world.inventory.rules["rule"])
    world.advance(0.19)
    world.worker.forget_idle()
    assert len(world.worker._core.ledger.buckets) == 1
    world.advance(0.01)
    world.worker.forget_idle()
    assert world.worker._core.ledger.buckets == {}


def test_pods_under_the_same_taints_share_what_is_known_of_their_rates() -> None:
    """It is found out once for all of them, and other pods between them change nothing."""
    world = evicting()
    world.pause = Pause(NOW + timedelta(hours=1))
    for name, seconds in (("a", 0), ("other", 5), ("b", 0)):
        world.add(claim(name, tolerates(seconds)), pod(name))
    world.add(rule())
    world.catch_up()
    room, going = world.worker._core.room, world.worker._core.plan.going
    first, _, same, again = (room.rate_of(going[f"uid-{name}"]) for name in ("a", "other", "b", "a"))
    assert first is same
    assert first is again


def test_refused_evictions_add_no_tokens_to_an_empty_bucket() -> None:
    """M12: a refused eviction returns to each bucket only the token that it took from it."""
    slow = structs.replace(FREE, rate=1 / 60, burst=10)
    world = World(Mode.REPLACEMENT, slow)
    for number in range(30):
        # ten use the burst of the slow taint, ten are under both taints and are refused, ten wait for the slow one
        name = f"{'first' if number < 10 else 'both' if number < 20 else 'late'}-{number}"
        world.add(claim(name, devices=(name,)), pod(name, priority=number))
    world.add_budget(Budget("both"))
    for number in range(10, 20):
        fast = {EVICTIONS_PER_SECOND: "100"}
        selector = DeviceSelector(device=f"both-{number}")
        world.add(rule(f"fast-{number}", key="example.com/fast", selector=selector, annotations=fast))
    world.add(rule("slow"))
    assert len(world.after(5)) <= 10
