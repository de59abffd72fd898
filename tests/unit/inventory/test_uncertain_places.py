"""Evicted pods of which too much was said: they find no place, or that is not known, where the scheduler may say no."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from msgspec import structs

from tests.unit.inventory.placing import (
    ALL,
    DRIVER,
    NODES,
    TAINT,
    TAINTED,
    Json,
    Row,
    ask,
    choice,
    device,
    device_class,
    judge,
    of_model,
    pool,
    sharing,
    told,
    user,
)
from webhook.files.manifests import Stock
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE
from webhook.inventory.placement import Seeker, freed_claims, placements
from webhook.inventory.state import claim_keys
from webhook.inventory.supply import Supply
from webhook.inventory.targets import DeviceNames

GPU: Final = device_class()
N1: Final = pool("n1", 1)
N1_ALL: Final = DeviceNames(DRIVER, TAINTED, None)
_CLOSED: Final[list[Json]] = [{"key": "k", "effect": "NoSchedule"}]
_SAME_MODEL: Final[list[Json]] = [{"matchAttribute": f"{DRIVER}/model"}]


CLASSES: Final = [
    Row("a later alternative of a class that is gone", [N1, pool("n2", 1), *user("out", ["n1/n1-0"], choice({}, {
        "deviceClassName": "gone"}))], (0, 1, 0), never=True),
    Row("a waiting pod of a class that is gone takes nothing", [N1, pool("n2", 1), *user("w", (), choice({}, {
        "deviceClassName": "gone"}), node=""), *user("out", ["n1/n1-0"])], (1, 0, 0)),
    Row("another request of a class that is gone", [N1, pool("n2", 1), *user("out", ["n1/n1-0"], ask("a"),
        ask("b", "gone"))], (0, 1, 0), never=True),
]  # fmt: skip


@pytest.mark.parametrize("row", CLASSES, ids=lambda row: row.name)
def test_a_pod_one_of_whose_classes_is_gone_finds_none(row: Row) -> None:
    judge(row)


def _found(cluster: list[Json], *names: str, nodes: Any = NODES, as_text: bool = False) -> list[tuple[int, int, int]]:
    """What becomes of these pods with all claims that they name; `as_text`: slices are kept as `serve` keeps them."""
    stock = Stock(whole=True)
    stock.add([Manifest("here", number, each, NOWHERE) for number, each in enumerate([GPU, *cluster])])
    inventory = stock.inventory
    for value in list(inventory.slices.values()) if as_text else ():
        raw = {"raw_devices": json.dumps(value.raw_devices).encode(), "beside_devices": b"{}"}
        inventory.apply(value, structs.replace(value, **raw))
    pods = [inventory.pods[f"ns/{name}"] for name in names]
    seekers = [Seeker.of(pod, [inventory.claims[key] for key in claim_keys(pod)]) for pod in pods]
    freed = freed_claims(seekers, set(names))
    supply = Supply(inventory, classes=stock.classes, nodes=nodes, freed=freed, taints=[(N1_ALL, TAINT)])
    return [(each.found, each.none, each.unknown) for each in placements(inventory, seekers, supply)]


def test_a_pod_that_waits_and_is_asked_about_does_not_compete_with_itself() -> None:
    cluster = [N1, pool("n2", 2), *user("waits", node=""), *user("out", ["n1/n1-0"])]
    assert _found(cluster, "out", "waits") == [(2, 0, 0)]
    assert _found([*cluster, *user("other", node="")], "out", "waits") == [(1, 0, 1)]


@pytest.mark.parametrize("many", [0, 2100], ids=["2 pools", "2102 pools"])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param(user("out-b", ["n1/n1-1"], priority=5), id="a pod of another priority"),
        *[pytest.param(user(each, node=""), id=f"pod {each}, which waits") for each in ("waits", "w1", "w2", "w3")],
    ],
)
def test_however_large_the_cluster_is_it_depends_on_who_comes_first(more: list[Json], many: int) -> None:
    others = [pool(f"p{at}", [device("d", taints=_CLOSED)]) for at in range(many)]
    nodes = {**NODES, **{f"p{at}": {} for at in range(many)}}
    pods = [*more, *user("out-a", ["n1/n1-0"], ask())]
    results = told([GPU, pool("n1", 2), pool("n2", 1), *others, *pods], nodes=nodes)
    assert [(each.found, each.none, each.unknown) for each in results] == [(0, 0, 1)] * len(results)


def test_a_search_that_is_given_up_leaves_the_devices_to_others() -> None:
    devices = [device(f"x-{at}", "ab"[at % 2]) for at in range(30)]
    hard = user("out-a", ["n1/n1-0"], ask(count=16), constraints=_SAME_MODEL, priority=9)
    first = user("out-b", ["n1/n1-1"], ask("r", "gpu", f'device.attributes["{DRIVER}"].?first.orValue(false)'))
    devices[0]["attributes"]["first"] = {"bool": True}
    judge(Row("", [pool("n1", 2), pool("n2", devices), *hard, *first], (1, 0, 1), "too many ways"))


def test_a_pool_is_not_full_because_claims_have_devices_that_it_has_no_more() -> None:
    cluster = [N1, pool("n2", 1), *user("keeps", ["n2/old"], node="n2"), *user("out", ["n1/n1-0"])]
    assert _found(cluster, "out", nodes=None, as_text=True) == [(1, 0, 0)]


# --- claims that others keep ------------------------------------------------------------------------

ZONE_A: Final[Json] = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
}


@pytest.mark.parametrize(
    ("network", "said"),
    [
        pytest.param([pool("net", [device("x")], nodeName="n1")], (0, 1, 0), id="of a pool of a node"),
        pytest.param(
            [pool("net", [device("x", nodeName="n1")], perDeviceNodeSelection=True)], (0, 1, 0), id="of a node"
        ),
        pytest.param([pool("net", [device("x")], allNodes=True)], (1, 0, 0), id="of all nodes"),
        pytest.param(
            [pool("net", [device("x", allNodes=True)], perDeviceNodeSelection=True)], (1, 0, 0), id="of all, by itself"
        ),
        pytest.param([pool("net", [device("x")], nodeSelector=ZONE_A)], (0, 0, 1), id="of some nodes"),
        pytest.param(
            [pool("net", [device("x", nodeSelector=ZONE_A)], perDeviceNodeSelection=True)], (0, 0, 1), id="of some too"
        ),
        pytest.param([pool("net", [device("y")], allNodes=True)], (0, 0, 1), id="that is gone"),
        pytest.param([], (0, 0, 1), id="of a pool that is gone"),
    ],
)
def test_a_claim_that_others_keep_holds_the_pod_on_the_nodes_of_its_device(
    network: list[Json], said: tuple[int, int, int]
) -> None:
    pods = sharing([*user("stays", ["net/x"]), *user("out", ["n1/n1-0"], used=["stays"])])
    assert _found([N1, pool("n2", 1), *network, *pods], "out") == [said]


def test_a_daemon_comes_back_to_its_node_with_the_claim_that_others_keep() -> None:
    pods = sharing([*user("stays", ["net/x"]), *user("out", ["n1/n1-0"], used=["stays"], owner="DaemonSet")])
    assert _found([N1, pool("net", [device("x")], nodeSelector=ZONE_A), *pods], "out") == [(0, 1, 0)]


# --- nodes that are not known -----------------------------------------------------------------------

NOT_SURE: Final = "which nodes have which devices"
RACK: Final = pool("rack", [device("a", nodeName="n3"), device("b", nodeName="n2")], perDeviceNodeSelection=True)
SOME: Final = pool("net", 1, nodeSelector=ZONE_A)
_FAR: Final = [pool("net", [device("x", "b")], nodeSelector=ZONE_A), *user("out-b", ["n1/n1-1"], ask("r", "gpu",
    of_model("b")))]  # fmt: skip
WITHOUT_NODES: Final = [
    Row("a device that names a node without a pool", [N1, RACK, *user("out", ["n1/n1-0"])], (1, 0, 0)),
    Row("two such devices of two nodes", [N1, RACK, *user("out", ["n1/n1-0"], ask(count=2))], (0, 1, 0), never=True),
    Row("one device of a node or of others", [N1, pool("n2", 1), SOME, *user("out", ["n1/n1-0"])], (1, 0, 0)),
    Row("two devices of a node or of others", [N1, pool("n2", 1), SOME, *user("out", ["n1/n1-0"], ask(count=2))],
        (0, 0, 1), NOT_SURE),
    Row("two of different others", [N1, SOME, pool("far", 1, nodeSelector={"nodeSelectorTerms": []}),
        *user("out", ["n1/n1-0"], ask(count=2))], (0, 0, 1), NOT_SURE),
    Row("two that a node has itself", [N1, pool("n2", 2), SOME, *user("out", ["n1/n1-0"], ask(count=2))], (1, 0, 0)),
    Row("all of a node, perhaps with others", [N1, pool("n2", 1), SOME, *user("keeps", ["net/net-0"], node="n2"),
        *user("out", ["n1/n1-0"], ask(**ALL))], (0, 0, 1), NOT_SURE),
    Row("all of a node without others", [N1, pool("n2", 1), *user("out", ["n1/n1-0"], ask(**ALL))],
        (1, 0, 0)),
    Row("two beside a pod that wants another device", [pool("n1", 2), pool("n2", 1), *_FAR, *user("out-a", [
        "n1/n1-0"], ask("r", "gpu", of_model("a"), count=2))], (1, 1, 0), never=True),
    Row("all beside a pod that wants another device", [pool("n1", 2), pool("n2", 2), *_FAR, *user("out-a", [
        "n1/n1-0"], ask("r", "gpu", of_model("a"), **ALL))], (2, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("row", WITHOUT_NODES, ids=lambda row: row.name)
def test_where_nodes_are_not_known_a_pod_has_what_is_certainly_on_one_of_them(row: Row) -> None:
    judge(row, nodes=None)


# --- pools that are being published -----------------------------------------------------------------

UNFINISHED: Final = pool("n2", 1, 0, 2)
BEING_PUBLISHED: Final = [
    Row("one that would have a device", [N1, UNFINISHED, *user("out", ["n1/n1-0"])], (0, 1, 0)),
    Row("one that has no device yet", [N1, pool("n2", [], 0, 2), *user("out", ["n1/n1-0"])], (0, 1, 0)),
    Row("one of all nodes that has none yet", [N1, pool("net", [], 0, 2, allNodes=True), *user("out", ["n1/n1-0"])],
        (0, 1, 0)),
    Row("beside a device for one of two", [pool("n1", 2), UNFINISHED, pool("n3", 1, nodeName="n2"), *user("out-a", [
        "n1/n1-0"]), *user("out-b", ["n1/n1-1"])], (1, 1, 0)),
    Row("beside devices for all", [N1, UNFINISHED, pool("n3", 1, nodeName="n2"), *user("out", ["n1/n1-0"])],
        (1, 0, 0)),
    Row("one with other devices", [N1, UNFINISHED, *user("out", ["n1/n1-0"], ask("r", "gpu", "false"))], (0, 1, 0)),
    Row("one whose devices are closed", [N1, pool("n2", [device("x", taints=_CLOSED)], 0, 2), *user("out", [
        "n1/n1-0"])], (0, 1, 0)),
    Row("one of another node than the pod's", [N1, UNFINISHED, *user("out", ["n1/n1-0"], owner="DaemonSet")],
        (0, 1, 0), never=True),
]  # fmt: skip


@pytest.mark.parametrize("row", BEING_PUBLISHED, ids=lambda row: row.name)
def test_a_pool_that_is_being_published_may_have_devices_later(row: Row) -> None:
    judge(row)


@pytest.mark.parametrize("nodes", [NODES, None], ids=["nodes are known", "they are not"])
def test_a_pool_of_another_node_lets_no_pod_of_a_daemon_come_back(nodes: Any) -> None:
    pods = [*user("out-d", ["n1/n1-0"], owner="DaemonSet"), *user("out-r", ["n1/n1-1"])]
    results = told([GPU, pool("n1", 2), UNFINISHED, *pods], nodes=nodes)
    assert {each.shape.node: (each.none, each.never) for each in results} == {"n1": (1, True), "": (1, False)}


# --- pods of which nothing is known -----------------------------------------------------------------

MIXED: Final = pool("n2", [device("x"), device("y", "b")])
DEPENDS: Final = "which pods come first"
TWO: Final = pool("n1", 2)
STAYS: Final = user("out-a", ["n1/n1-0"], generated=False)
DERIVED: Final = user("waits", (), ask(derivedAttributes=[{"name": "x"}]), node="")
BESIDE_UNKNOWN: Final = [
    Row("one that is evicted, too", [TWO, pool("n2", 1), *STAYS, *user("out-b", ["n1/n1-1"])], (0, 0, 2), DEPENDS),
    Row("one that waits", [N1, pool("n2", 1), *DERIVED, *user("out", ["n1/n1-0"])], (0, 0, 1), DEPENDS),
    Row("a place for both", [TWO, pool("n2", 2), *STAYS, *user("out-b", ["n1/n1-1"])], (1, 0, 1), "outlives"),
    Row("one that stands in the way of what is in the way of another", [pool("n1", 3), MIXED, *user("out-1", [
        "n1/n1-0"], ask(**ALL)), *user("out-0", ["n1/n1-1"], ask("r", "gpu", of_model("b"))), *user("out-2", [
        "n1/n1-2"], ask("r", "gpu", of_model("a")), generated=False)], (0, 0, 3), DEPENDS),
    Row("a place for neither", [TWO, *STAYS, *user("out-b", ["n1/n1-1"])], (0, 1, 1), "outlives", never=True),
]  # fmt: skip


@pytest.mark.parametrize("row", BESIDE_UNKNOWN, ids=lambda row: row.name)
def test_a_pod_of_which_nothing_is_known_may_take_the_place_of_another(row: Row) -> None:
    judge(row)


# --- all devices of a node --------------------------------------------------------------------------


def _all(*alternatives: Json, **more: Any) -> list[Json]:
    return user("out", ["n1/n1-0"], choice(*alternatives) if alternatives else ask(**ALL), **more)


OF_N3: Final = pool("n3", 2, nodeName="n3")
REFUSED: Final = [
    Row("a constraint that one node breaks", [N1, MIXED, OF_N3, *_all(constraints=_SAME_MODEL)], (0, 0, 1),
        "constraint"),
    Row("33 devices on one node", [N1, pool("n2", 33), OF_N3, *_all()], (0, 0, 1), "more than 32"),
    Row("a later alternative beside a pool that is not valid", [N1, pool("n2", 1), pool("bad", 1, 0, 2, nodeName="n2"),
        pool("bad", 1, 1, 2, nodeName="n2"), OF_N3, *_all({}, ALL)], (0, 0, 1), "is not valid"),
    Row("a constraint that all nodes keep", [N1, pool("n2", 2), OF_N3, *_all(constraints=_SAME_MODEL)], (1, 0, 0)),
    Row("a later alternative", [N1, pool("n2", 1), *_all({}, ALL)], (1, 0, 0)),
    Row("a constraint of one device", [N1, MIXED, *user("out", ["n1/n1-0"], constraints=_SAME_MODEL)], (1, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_where_all_devices_of_a_node_end_the_attempt_for_a_pod_nothing_is_known_of_it(row: Row) -> None:
    judge(row, nodes={name: {} for name in ("n1", "n2", "n3")})


def test_a_pool_with_a_counter_set_in_two_slices_is_not_valid() -> None:
    counters = {"sharedCounters": [{"name": "card", "counters": {"memory": {"value": "4"}}}]}
    draws = [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]
    for copies, said in ((1, (1, 0, 0)), (2, (0, 1, 0))):
        count = copies + 1
        slices = [pool("n2", [], number, count, **counters) for number in range(copies)]
        slices.append(pool("n2", [device("x", consumesCounters=draws)], copies, count))
        judge(Row("", [N1, *slices, *user("out", ["n1/n1-0"])], said, never=copies > 1))
