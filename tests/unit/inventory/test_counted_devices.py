"""The devices that shares are of: what a node publishes must not raise the limits of others."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.builders import DRIVER, NOW
from tests.unit.admission.guarding import allowing, ask, fleet, refusals, tainting
from tests.unit.inventory.values import inventory_of, pool_slice
from tests.unit.patches.reacting import Cluster, make_reaction, make_signal, make_slice
from webhook.api.decode import Reader
from webhook.api.slices import decode_slice
from webhook.cluster.cache.decoders import SliceWire, WholeSliceWire
from webhook.inventory.pools import Pools
from webhook.policy.model import Share

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.api.slices import ResourceSlice

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
