"""A node says what it likes about its own devices, and nothing about those of others, nor raises their limits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW, make_context
from tests.unit.admission.guarding import allowing, ask, fleet, refusals, tainting
from tests.unit.eviction.objects import claim, pod, slice_of, taint
from tests.unit.eviction.world import FREE, World
from tests.unit.inventory.values import inventory_of, pool_slice
from tests.unit.patches.reacting import Cluster, ago, make_reaction, make_signal, make_slice
from webhook.admission.recent_impact import closed_together_with_recent
from webhook.api.decode import Reader
from webhook.api.rules import DeviceSelector
from webhook.api.slices import decode_slice
from webhook.api.taints import DeviceTaint
from webhook.cluster.cache.decoders import SliceWire, WholeSliceWire
from webhook.commands.shared.node_devices import NodeDevices, NodePlacement
from webhook.eviction.modes import Mode
from webhook.inventory.pools import Pools
from webhook.inventory.targets import DeviceNames
from webhook.policy.model import BreakerSettings, Share

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.api.slices import ResourceSlice


BROKEN = DeviceTaint("example.com/broken", "", "NoExecute", NOW)
POOL = "node-1"
HONEST = pool_slice("gpu-0", "gpu-1", pool=POOL, name="honest", created=ago(9999))
FORGED = {
    "empty, of the same generation": pool_slice(pool=POOL, name="x", node="mallory"),
    "empty, of a newer generation": pool_slice(pool=POOL, name="x", node="mallory", generation=9),
    "other devices": pool_slice("gpu-9", pool=POOL, name="a", node="mallory", generation=9),
    "not complete": pool_slice("gpu-0", pool=POOL, name="x", node="mallory", count=9),
    "older": pool_slice("gpu-0", pool=POOL, name="a", node="mallory", created=ago(99999), generation=2),
}


def tainted(value: ResourceSlice) -> ResourceSlice:
    return structs.replace(value, devices=tuple([structs.replace(each, taints=(BROKEN,)) for each in value.devices]))


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("honest", [HONEST, tainted(HONEST)], ids=["sound", "tainted"])
def test_pool_is_read_as_without_what_another_node_publishes_in_it(name: str, honest: ResourceSlice) -> None:
    for forged in (FORGED[name], tainted(FORGED[name])):
        for slices in ((honest, forged), (forged, honest)):
            pools, alone = inventory_of(*slices).pools, inventory_of(honest).pools
            found, expected = pools.get((DRIVER, POOL)), alone.get((DRIVER, POOL))
            assert found is not None
            assert expected is not None
            for fact in ("own", "newest", "complete", "devices", "evicting", "closed", "taint_keys"):
                assert getattr(found, fact) == getattr(expected, fact)
            assert pools.incomplete == alone.incomplete == frozenset()
            assert pools.device_count(DRIVER) == 2
            assert pools.counted_devices(DRIVER, NOW) == 2


def test_of_two_nodes_whose_name_the_pool_does_not_have_the_first_speaks_for_it() -> None:
    first = pool_slice("gpu-0", pool="rack", name="b", node="node-1", created=ago(99))
    second = pool_slice("gpu-0", pool="rack", name="a", node="node-2", created=ago(9), generation=2)
    for slices in ((first, second), (second, first)):
        [(_, pool)] = inventory_of(*slices).pools.items()
        assert pool.newest == [first]


def test_slices_of_no_node_come_before_those_of_any() -> None:
    shared = pool_slice("gpu-0", pool="mallory", name="b", node="", created=ago(9))
    forged = pool_slice("gpu-0", pool="mallory", name="a", node="mallory", created=ago(99), generation=2)
    [(_, pool)] = inventory_of(forged, shared).pools.items()
    assert pool.newest == [shared]


def test_slices_of_a_node_count_once_those_of_the_other_are_gone() -> None:
    inventory = inventory_of(HONEST, FORGED["other devices"])
    inventory.apply(HONEST, None)
    [(_, pool)] = inventory.pools.items()
    assert [*pool.devices] == ["gpu-9"]


def test_signal_of_another_node_brings_no_rule_and_its_silence_ends_none() -> None:
    sick, sound = {"gpu-0": (make_signal(seconds=7200),)}, {"gpu-0": ()}
    quiet = Cluster(make_slice(sound, "node-2", created=ago(99999)))
    quiet.publish(make_slice(sick, "node-2", node="node-1", name="x", generation=2, created=ago(1)))
    assert quiet.go().write == ()
    ill = Cluster(make_slice(sick, "node-2", created=ago(99999)))
    assert len(ill.go().write) == 1
    ill.publish(make_slice(sound, "node-2", node="node-1", name="x", generation=2, created=ago(1)))
    for seconds in (0, 9999):
        assert ill.go(seconds).delete == ()


def invented(count: int, devices: int, *, node: str = "node-0") -> list[ResourceSlice]:
    """Pools that one node publishes under names of its choice, all tainted."""
    names = [f"gpu-{number}" for number in range(devices)]
    each = [pool_slice(*names, pool=f"m-{number}", name=f"m-{number}", node=node) for number in range(count)]
    return [tainted(value) for value in each]


def test_pools_that_one_node_invents_use_up_no_more_of_the_window_than_its_devices() -> None:
    cluster, rule = fleet(nodes=20), DeviceNames.of(DeviceSelector(DRIVER, "node-5"))
    for limit, expected in ((Share(50), 2 + 2), (40, 20 * 9 + 2)):
        found = closed_together_with_recent(
            limit, (rule,), (), inventory_of(*cluster, *invented(20, 9)), make_context(now=NOW)
        )
        assert found is not None
        assert found.devices == expected


def test_pools_that_one_node_invents_trip_no_breaker_and_devices_of_many_nodes_do() -> None:
    for node, trips in (("node-0", 0), ("", 1)):
        world = World(Mode.REPLACEMENT, FREE, breaker=BreakerSettings())
        world.add(*[slice_of({"gpu-0": ()}, pool=f"node-{number}", name=f"node-{number}") for number in range(10)])
        world.add(claim("victim", devices=("gpu-0",), pool="node-0"), pod("victim"))
        bad = (taint(added=world.clock.wall),)
        for number in range(20):
            made = slice_of({"gpu-0": bad}, pool=f"m-{number}", name=f"m-{number}")
            world.add(structs.replace(made, node_name=node or made.node_name))
        world.change(world.inventory.slices["node-0"], slice_of({"gpu-0": bad}, pool="node-0", name="node-0"))
        world.advance(60)
        assert world.sample("breakers_tripped") == trips


def test_share_of_reactions_is_not_used_up_by_pools_that_one_node_invents() -> None:
    reaction = make_reaction(max_devices=Share(50))
    sound = [make_slice({"gpu-0": ()}, f"node-{number}") for number in range(9)]
    fake = [make_slice({"gpu-0": (make_signal(seconds=9999),)}, f"m-{number}", node="node-0") for number in range(9)]
    sick = make_slice({"gpu-0": (make_signal(),)}, "node-9")
    cluster = Cluster(*sound, *fake, sick, reactions=(reaction,))
    cluster.go()
    assert "node-9" in str(cluster.closed)


def test_each_node_is_named_with_the_devices_that_are_not_of_another_one() -> None:
    forged = pool_slice("gpu-1", "gpu-9", pool=POOL, name="a", node="mallory", generation=9)
    for slices in ((HONEST, forged), (forged, HONEST)):
        inventory = inventory_of(*slices)
        devices = NodeDevices(inventory, NodePlacement())
        found = [(str(address), devices.node_of(address)) for address in devices.reach]
        assert sorted(found) == [
            (f"{DRIVER}/{POOL}/gpu-0", POOL),
            (f"{DRIVER}/{POOL}/gpu-1", POOL),
            (f"{DRIVER}/{POOL}/gpu-9", "mallory"),
        ]
        for nodes, expected in (
            ({"mallory"}, ["gpu-9"]),
            ({POOL}, ["gpu-0", "gpu-1"]),
            ({POOL, "mallory"}, [""]),
            ({"node-2"}, []),
        ):
            assert [each.device for each in devices.on(nodes)] == expected


OLD: datetime = NOW - timedelta(hours=1)


def counted(*slices: ResourceSlice, before: datetime = NOW) -> int:
    pools = Pools()
    for each in slices:
        pools.apply(None, each)
    return pools.counted_devices(DRIVER, before)


def node(name: str, devices: int = 2, **fields: Any) -> ResourceSlice:
    given = {"name": fields.pop("slice", f"slice-{name}"), "pool": name, "created": OLD, **fields}
    return pool_slice(*[f"gpu-{number}" for number in range(devices)], **given)


@pytest.mark.parametrize(
    ("slices", "devices"),
    [
        pytest.param([node("a"), node("b")], 4, id="two nodes"),
        pytest.param([node("a"), node("b", node="")], 2, id="a pool of no node"),
        pytest.param([node("a"), node("a", slice="x", node="b", count=2)], 2, id="a pool of two nodes"),
        pytest.param([node("a"), node("a", slice="x", node="", count=2)], 0, id="a pool in part of no node"),
        pytest.param([node("a"), node("b", 128, node="a", created=NOW)], 2, id="a younger pool of the same node"),
        pytest.param([node("b", 128, node="a", created=NOW), node("a")], 2, id="the same in another order"),
        pytest.param([node("a"), node("z", 9, node="a")], 2, id="of equals the smallest"),
        pytest.param([node("a"), node("b", created=NOW + timedelta(seconds=1))], 2, id="a pool that is too young"),
        pytest.param([node("a"), node("b", created=None)], 4, id="a pool of unknown age"),
        pytest.param([node("a"), node("a", 9, slice="x", created=NOW + timedelta(1), generation=2)], 0, id="grown"),
        pytest.param([node("a"), node("b", driver="other.example.com")], 2, id="another driver"),
        pytest.param([], 0, id="no slices"),
    ],
)
def test_devices_count_for_shares(slices: list[ResourceSlice], devices: int) -> None:
    assert counted(*slices) == devices


def test_count_follows_slices() -> None:
    pools = Pools()
    first, second = node("a"), node("b")
    for old, new, devices in ((None, first, 2), (None, second, 4), (first, None, 2)):
        pools.apply(old, new)
        assert pools.counted_devices(DRIVER, NOW) == devices


def test_share_of_the_guard_is_not_raised_by_pools_that_one_node_invents() -> None:
    rule = tainting({"driver": DRIVER, "device": "gpu-1"}, "NoSchedule")
    limits = allowing(devices=Share(5), pods=None, namespaces=None, claims=None)
    fake = [node(f"mallory-{number}", 128, node="node-0") for number in range(20)]
    young = [node(f"new-{number}", 128, created=NOW) for number in range(20)]
    for extra in ((), fake, young):
        [text] = refusals(ask(rule, cluster=inventory_of(*fleet(nodes=20), *extra), impact=limits))
        assert "the limit is 2 devices" in text


def test_share_where_no_device_counts_allows_one_device() -> None:
    shared = pool_slice(*[f"gpu-{number}" for number in range(20)], node="")
    limits = allowing(devices=Share(5), pods=None, namespaces=None, claims=None)
    one, two = ({"driver": DRIVER, "device": "gpu-1"}, {"driver": DRIVER})
    assert ask(tainting(one, "NoSchedule"), cluster=inventory_of(shared), impact=limits).allowed
    [text] = refusals(ask(tainting(two, "NoSchedule"), cluster=inventory_of(shared), impact=limits))
    assert "the limit is 1 device" in text
    none = allowing(devices=Share(0), pods=None, namespaces=None, claims=None)
    assert not ask(tainting(one, "NoSchedule"), cluster=inventory_of(shared), impact=none).allowed


def test_share_of_reactions_is_not_raised_by_pools_that_one_node_invents() -> None:
    sick = make_slice({f"gpu-{number}": (make_signal(),) for number in range(20)})
    fake = [make_slice({f"g{each}": () for each in range(128)}, f"m-{number}", node="node-1") for number in range(4)]
    for extra in ((), fake):
        cluster = Cluster(sick, *extra, reactions=(make_reaction(max_devices=Share(5)),))
        assert cluster.go().outcomes[0].limit == 1
        assert len(cluster.closed) == 1


def test_time_of_creation_is_read() -> None:
    metadata: dict[str, Any] = {"name": "s", "creationTimestamp": OLD.isoformat().replace("+00:00", "Z")}
    assert decode_slice(Reader.of({"metadata": metadata}, [])).created == OLD
    for wrong in (None, "yesterday", 7):
        errors: list[Any] = []
        assert decode_slice(Reader.of({"metadata": {"name": "s", "creationTimestamp": wrong}}, errors)).created is None
        assert errors == []


@pytest.mark.parametrize("wire", [SliceWire, WholeSliceWire])
def test_time_of_creation_comes_off_the_wire(wire: Any) -> None:
    text = b'{"metadata":{"name":"s","creationTimestamp":"2026-06-01T11:00:00Z"},"spec":{"driver":"d"}}'
    assert msgspec.json.decode(text, type=wire).to_value().created == OLD
    assert msgspec.json.decode(b'{"metadata":{"creationTimestamp":null}}', type=wire).to_value().created is None
