"""Which evicted pods find other devices: one behaviour a row, each as the scheduler of Kubernetes 1.37 does it."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, Final

import pytest

from tests.unit.inventory.placing import (
    ALL,
    DRIVER,
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
from webhook.inventory.targets import DeviceNames

GPU: Final = device_class()
TOLERATES: Final[Json] = {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}
ADMIN: Final[Json] = {"adminAccess": True}


def _parts(name: str, *draws: int, total: int = 4) -> list[Json]:
    """A pool of partitions, each of which draws so much of one counter."""
    counters = [{"name": "card", "counters": {"memory": {"value": str(total)}}}]
    devices = [
        device(f"{name}-{at}", consumesCounters=[{"counterSet": "card", "counters": {"memory": {"value": str(draw)}}}])
        for at, draw in enumerate(draws)
    ]
    return [pool(name, [], 0, 2, sharedCounters=counters), pool(name, devices, 1, 2)]


def _shared(name: str, count: int = 1, **policy: Any) -> Json:
    """A pool of devices that several claims can have, with 40 of a capacity."""
    memory: Json = {"value": "40", **({"requestPolicy": policy} if policy else {})}
    devices = [
        device(f"{name}-{at}", allowMultipleAllocations=True, capacity={"memory": memory}) for at in range(count)
    ]
    return pool(name, devices)


def _amount(amount: str) -> Json:
    return ask(capacity={"requests": {"memory": amount}})


def _bound(kind: str, attribute: str = f"{DRIVER}/model") -> list[Json]:
    return [{kind: attribute}]


def _n1(number: int, *requests: Json, devices: int = 1, **more: Any) -> list[Json]:
    """So many evicted pods, each with its devices of n1."""
    return [
        each
        for at in range(number)
        for each in user(f"out-{at}", [f"n1/n1-{at * devices + one}" for one in range(devices)], *requests, **more)
    ]


def _keep(*devices: str, request: Json | None = None, name: str = "keeps", **more: Any) -> list[Json]:
    """A pod that stays where it is, with its devices."""
    return user(name, devices, *([request] if request else []), node="n2", **more)


STEP: Final[Json] = {"default": "10", "validRange": {"min": "5", "step": "5", "max": "30"}}
LIST: Final[Json] = {"default": "10", "validValues": ["10", "20"]}
ROWS: Final = [
    # --- counts ---
    Row("as many as there are free devices", [pool("n1", 3), pool("n2", 2), *_n1(3)], (2, 1, 0)),
    Row("none of those that others keep", [pool("n1", 2), pool("n2", 2), *_keep("n2/n2-0"), *_n1(2)], (1, 1, 0)),
    Row("two devices are of one node", [pool("n1", 2), pool("n2", 1), pool("n3", 1), *_n1(1, ask(count=2), devices=2)],
        (0, 1, 0), never=True),
    Row("its own other device is free again", [pool("n1", 1), pool("n2", 2),
        *user("out", ["n1/n1-0", "n2/n2-0"], ask(count=2))], (1, 0, 0)),
    Row("33 devices are too many for a claim", [pool("n1", 33), pool("n2", 40), *_n1(1, ask(count=33))], (0, 1, 0),
        never=True),
    Row("32 are not", [pool("n1", 32), pool("n2", 40), *_n1(1, ask(count=32))], (1, 0, 0)),
    # --- all of a node ---
    Row("all devices of another node", [pool("n1", 1), pool("n2", 3), *_n1(1, ask(**ALL))], (1, 0, 0)),
    Row("not if one is kept", [pool("n1", 1), pool("n2", 3), *_keep("n2/n2-2"), *_n1(1, ask(**ALL))], (0, 1, 0)),
    Row("not if one has a taint", [pool("n1", 1), pool("n2", [device("x"), device("y", taints=[
        {"key": "k", "effect": "NoSchedule"}])]), *_n1(1, ask(**ALL))], (0, 1, 0), never=True),
    Row("all of a class that no node has", [pool("n1", 1), pool("n2", 1), *_n1(1, ask(
        "r", "gpu", of_model("b"), **ALL))], (0, 1, 0), never=True),
    Row("all that have enough capacity", [pool("n1", 1), pool("n2", [device("x"), device("y", capacity={"memory": {
        "value": "9"}})]), *_n1(1, ask(capacity={"requests": {"memory": "5"}}, **ALL))], (1, 0, 0)),
    # --- admin access ---
    Row("admin access to devices that others keep", [pool("n1", 1), pool("n2", 1), *_keep("n2/n2-0"),
        *_n1(1, ask(**ALL, **ADMIN))], (1, 0, 0)),
    Row("admin access leaves the device to others", [pool("n1", 2), pool("n2", 1),
        *user("out-0", ["n1/n1-0"], ask(**ADMIN)), *user("out-1", ["n1/n1-1"])], (2, 0, 0)),
    Row("admin access and use of one device by one pod", [pool("n1", 1), pool("n2", 1),
        *user("out", ["n1/n1-0"], ask("watch", **ADMIN), ask("use"))], (0, 1, 0), never=True),
    Row("admin access twice within one claim", [pool("n1", 2), pool("n2", 1),
        *user("out", ["n1/n1-0"], ask("a", **ADMIN), ask("b", **ADMIN))], (0, 1, 0), never=True),
    Row("admin access to all partitions needs their counters", [pool("n1", 1), *_parts("n2", 4, 2, 2),
        *_n1(1, ask(**ALL, **ADMIN))], (0, 1, 0), never=True),
    Row("a daemon's admin access without toleration", [pool("n1", 1), pool("n2", 1),
        *_n1(1, ask(**ALL, **ADMIN), owner="DaemonSet")], (0, 1, 0), never=True),
    Row("a daemon's admin access that tolerates", [pool("n1", 1), pool("n2", 1),
        *_n1(1, ask(**ALL, **ADMIN, **TOLERATES), owner="DaemonSet")], (1, 0, 0)),
    # --- alternatives ---
    Row("the second alternative", [pool("n1", 2), pool("n2", 1), *_n1(1, choice({"count": 2}, {}), devices=2)],
        (1, 0, 0)),
    Row("neither of the alternatives", [pool("n1", 2), pool("n2", 1), *_n1(1, choice({"count": 2}, {"count": 3}),
        devices=2)], (0, 1, 0), never=True),
    # --- constraints ---
    Row("two of one model", [pool("n1", 2), pool("n2", [device("x"), device("y", "b"), device("z")]),
        *_n1(1, ask(count=2), devices=2, constraints=_bound("matchAttribute"))], (1, 0, 0)),
    Row("no two of one model", [pool("n1", 2), pool("n2", [device("x"), device("y", "b")]),
        *_n1(1, ask(count=2), devices=2, constraints=_bound("matchAttribute"))], (0, 1, 0), never=True),
    Row("no two of different models", [pool("n1", 2), pool("n2", 3),
        *_n1(1, ask(count=2), devices=2, constraints=_bound("distinctAttribute"))], (0, 1, 0), never=True),
    Row("an attribute that no device has", [pool("n1", 1), pool("n2", 1),
        *_n1(1, constraints=_bound("matchAttribute", "other.example.com/model"))], (0, 1, 0), never=True),
    Row("an attribute that is a list", [pool("n1", 1), pool("n2", [device("x") | {"attributes": {"model": {
        "strings": ["a"]}}}]), *_n1(1, constraints=_bound("matchAttribute"))], (0, 0, 1), "which is a list"),
    Row("a constraint of other requests", [pool("n1", 1), pool("n2", [device("x"), device("y", "b")]),
        *user("out", ["n1/n1-0"], ask("a"), ask("b"), constraints=[{"matchAttribute": f"{DRIVER}/model", "requests":
        ["a"]}])], (1, 0, 0)),
    # --- partitions ---
    Row("a partition of which the counter is used", [pool("n1", 1), *_parts("n2", 4, 2, 2), *_keep("n2/n2-1"), *_n1(1)],
        (1, 0, 0)),
    Row("no partition beside the whole", [pool("n1", 1), *_parts("n2", 4, 2, 2), *_keep("n2/n2-0"), *_n1(1)],
        (0, 1, 0)),
    Row("no partition of a counter set that is not there", [pool("n1", 1), pool("n2", [device("x", consumesCounters=[{
        "counterSet": "card", "counters": {"memory": {"value": "1"}}}])]), *_n1(1)], (0, 1, 0), never=True),
    # --- consumable capacity ---
    Row("shares until the capacity is used", [pool("n1", 3), _shared("n2", **STEP), *_n1(3, _amount("11"))], (2, 1, 0)),
    Row("shares beside those that others keep", [pool("n1", 3), _shared("n2", **STEP),
        *_keep("n2/n2-0", request=_amount("18")), *_n1(3, _amount("8"))], (2, 1, 0)),
    Row("the default of the policy", [pool("n1", 5), _shared("n2", **STEP), *_n1(5)], (4, 1, 0)),
    Row("all of it without a policy", [pool("n1", 2), _shared("n2"), *_n1(2)], (1, 1, 0)),
    Row("the next value of a list", [pool("n1", 3), _shared("n2", **LIST), *_n1(3, _amount("12"))], (2, 1, 0)),
    Row("more than the policy allows", [pool("n1", 1), _shared("n2", **STEP), *_n1(1, _amount("31"))], (0, 1, 0),
        never=True),
    Row("more than the list has", [pool("n1", 1), _shared("n2", **LIST), *_n1(1, _amount("21"))], (0, 1, 0),
        never=True),
    Row("a capacity that no device has", [pool("n1", 1), pool("n2", 1), *_n1(1, _amount("1"))], (0, 1, 0), never=True),
    Row("one share of a device for each request", [pool("n1", 2), _shared("n2", **STEP), *_n1(1, ask(count=2),
        devices=2)], (0, 1, 0), never=True),
    # --- claims that are not made for one pod ---
    Row("a claim that outlives its pod", [pool("n1", 1), pool("n2", 1), *_n1(1, generated=False)], (0, 0, 1),
        "its claim outlives it"),
    Row("a claim that pods share", [pool("n1", 1), pool("n2", 1), *sharing([*user("out-0", ["n1/n1-0"],
        generated=False), *user("out-1", own=False, used=["out-0"])])], (0, 0, 2), "its claim outlives it"),
    Row("a pod whose other claim stays on a node", [pool("n1", 2), pool("n2", 1),
        *sharing([*user("stays", ["n1/n1-0"], ask(**TOLERATES)), *user("out", ["n1/n1-1"], used=["stays"])])],
        (0, 1, 0), never=True),
    # --- order ---
    Row("it depends on who comes first", [pool("n1", 3), pool("n2", 2), *user("out-0", ["n1/n1-0", "n1/n1-1"],
        ask(count=2)), *user("out-1", ["n1/n1-2"])], (0, 0, 2), "which pods come first"),
    Row("a priority is no promise", [pool("n1", 2), pool("n2", 1), *user("out-0", ["n1/n1-0"]),
        *user("out-1", ["n1/n1-1"], priority=5)], (0, 0, 2), "which pods come first"),
    Row("pods that wait may be faster", [pool("n1", 1), pool("n2", 1), *user("waits", node=""), *_n1(1)], (0, 0, 1),
        "which pods come first"),
    Row("pods that wait for something else are not", [pool("n1", 1), pool("n2", 1), *_n1(1),
        *user("waits", (), ask("r", "gpu", of_model("b")), node="")], (1, 0, 0)),
    Row("there are too many ways", [pool("n1", 1), pool("n2", [device(f"x-{at}", "ab"[at % 2]) for at in
        range(30)]), *_n1(1, ask(count=16), constraints=_bound("matchAttribute"))], (0, 0, 1), "too many ways"),
    # --- what is not known ---
    Row("a class that is not there", [pool("n1", 1), pool("n2", 1), *_n1(1, ask("r", "other"))], (0, 1, 0), never=True),
    Row("a selector that fails", [pool("n1", 1), pool("n2", 1), *_n1(1, ask("r", "gpu", "device.attributes['x.y'].z"))],
        (0, 0, 1), "selector fails"),
    Row("a selector that cannot be read", [pool("n1", 1), pool("n2", 1), *_n1(1, ask("r", "gpu", "device.driver +"))],
        (0, 0, 1), "selector cannot be evaluated"),
    Row("a pool that is being published has nothing yet", [pool("n1", 1), pool("n2", 1, 0, 2), *_n1(1)], (0, 1, 0)),
    Row("it is not known what all of it is", [pool("n1", 1), pool("n2", 1, 0, 2), *_n1(1, ask(**ALL))], (0, 0, 1),
        "being published"),
    Row("a name that two slices have", [pool("n1", 1), pool("n2", 1, 0, 2), pool("n2", 1, 1, 2), *_n1(1)], (0, 1, 0),
        never=True),
    Row("derived attributes", [pool("n1", 1), pool("n2", 1), *_n1(1, ask(derivedAttributes=[{"name": "x"}]))],
        (0, 0, 1), "derivedAttributes"),
    Row("nothing that is known here", [pool("n1", 1), *user("out", ["n1/n1-0"], {"name": "r", "later": {}})],
        (0, 0, 1), "later release"),
    Row("700 claims of a pod that waits", [pool("n1", 1), _shared("n2"), *_n1(1), *[each for at in range(700)
        for each in user(f"w-{at}", node="")[:1]], *user("w", own=False, node="", used=[f"w-{at}" for at in range(700)])
        ], (1, 0, 0)),
    Row("a claim with a tainted device that others keep", [pool("n1", 1), *sharing([*user("a", ["n1/n1-0"]),
        *user("out", own=False, used=["a"])])], (0, 0, 1), "outlives"),
    # --- taints ---
    Row("a toleration opens the device itself", [pool("n1", 1), *_n1(1, ask(**TOLERATES))], (1, 0, 0)),
    Row("a toleration that the evictor does not read", [pool("n1", 1), pool("n2", 1), *_n1(1, ask(tolerations=[{
        "operator": "Exists"}]))], (0, 0, 1), "evicts it again"),
    Row("a toleration for some time", [pool("n1", 1), pool("n2", 1), *_n1(1, ask(tolerations=[{
        "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]))], (0, 0, 1), "evicts it again"),
    Row("a taint without effect closes nothing", [pool("n1", 1), pool("n2", [device("x", taints=[{"key": "k", "effect":
        "None"}])]), *_n1(1)], (1, 0, 0)),
    Row("a rule on other devices closes them", [pool("n1", 1), pool("n2", 1), {"apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule", "metadata": {"name": "x"}, "spec": {"deviceSelector": {"pool": "n2"}, "taint": {
        "key": "k", "effect": "NoSchedule"}}}, *_n1(1)], (0, 1, 0), never=True),
    # --- nodes ---
    Row("a network device that all nodes have", [pool("n1", 1), pool("net", 1, allNodes=True), *_n1(1)], (1, 0, 0)),
    Row("a device of nodes that are not there", [pool("n1", 1), pool("net", 1, nodeSelector={"nodeSelectorTerms": [{
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["c"]}]}]}), *_n1(1)], (0, 1, 0), never=True),
    Row("devices that each name their nodes", [pool("n1", 2), pool("net", [device("x", nodeName="n2"), device("y",
        nodeName="n9")], perDeviceNodeSelection=True), *_n1(2)], (1, 1, 0)),
    Row("a network device and one of the node", [pool("n1", 2), pool("n2", 1), pool("net", 1, allNodes=True),
        *user("out", ["n1/n1-0"], ask("a"), ask("b"))], (1, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_pods_find_a_place_as_the_scheduler_would_find_it(row: Row) -> None:
    judge(row)


@pytest.mark.parametrize(
    "terms",
    ["x", [None], [{"matchExpressions": [None]}], [{"matchExpressions": [{"key": "a"}]}],
     [{"matchExpressions": [{"key": "number", "operator": "Gt", "values": ["5"]}]}]],
)  # fmt: skip
def test_node_selectors_of_a_dump_that_no_server_takes_select_nothing(terms: Any) -> None:
    cluster = [GPU, pool("n1", 1), pool("net", 1, nodeSelector={"nodeSelectorTerms": terms}), *_n1(1)]
    (result,) = told(cluster, nodes={"n1": {"number": "1_0"}})
    assert result.none == 1


@pytest.mark.parametrize("content", [{"attributes": {"m": None}}, {"capacity": {"m": None}}, {"capacity": {"m": "x"}}])
def test_there_is_an_answer_for_devices_of_a_dump_that_no_server_takes(content: Json) -> None:
    cluster = [GPU, pool("n1", 1), pool("n2", [device("x") | content]), *_n1(1, ask("r", "gpu", of_model("a")))]
    assert [len(each.pods) for each in told(cluster)] == [1]


def test_the_last_pods_by_name_are_those_that_find_none() -> None:
    (result,) = told([GPU, pool("n1", 3), pool("n2", 2), *_n1(3)])
    assert [each.name for each in result.pending] == ["out-2"]
    assert (result.shape.needs, result.free) == ("gpu", 0)


def test_a_need_names_classes_and_numbers() -> None:
    requests = ask("a", count=2), ask("b", "nic"), ask("c", "fpga", **ALL)
    (result,) = told([GPU, pool("n1", 1), *user("out", ["n1/n1-0"], *requests, {"name": "later"})])
    assert result.shape.needs == "2 gpu and nic and all fpga"


def test_wherever_time_ends_the_rest_is_not_known_and_nothing_is_wrong() -> None:
    cluster = [GPU, pool("n1", 3), pool("n2", 2), pool("n3", 1), *_n1(3), *user("stay", ["n3/n3-0"], node="n3")]
    (whole,) = told(cluster)
    looks = itertools.count()
    told(cluster, go_on=lambda: next(looks) >= 0)
    for most in range(1, next(looks)):
        (cut,) = told(cluster, go_on=partial(next, iter([1] * most), 0))
        assert (cut.found, cut.none) in [(whole.found, whole.none), (0, 0)]
        assert cut.why == ("" if cut.found else "it takes too long to look at all devices")


def test_time_may_end_while_pods_that_wait_are_looked_at() -> None:
    waiting = [each for at in range(1000) for each in user(f"w-{at}", node="")]
    looks, few, many = itertools.count(), *[[GPU, pool("n1", 1), *_n1(1), *each] for each in ([], waiting)]
    told(few, go_on=lambda: next(looks) >= 0)
    before = next(looks)
    told(many, go_on=lambda: next(looks) >= 0)
    assert next(looks) - before > 10 * len(waiting) // 64
    (cut,) = told(many, go_on=partial(next, iter([1] * 9), 0))
    assert (cut.unknown, cut.why) == (1, "it takes too long to look at all devices")


def test_pods_that_ask_for_nothing_find_it_wherever() -> None:
    claim, pod = user("out")
    (result,) = told([GPU, {**claim, "spec": {}}, pod], nodes={})
    assert (result.found, result.shape.needs) == (1, "")


@pytest.mark.parametrize(
    ("devices", "selector"),
    [
        pytest.param(100, "!(device.driver == 'x')", id="devices of one pool"),
        pytest.param(1, " || ".join(f"device.driver == 'driver-{each}'" for each in range(200)), id="a long selector"),
    ],
)
def test_the_clock_is_looked_at_within(devices: int, selector: str) -> None:
    looks = itertools.count()
    told(
        [GPU, pool("n1", devices), *user("out", ["n1/n1-0"], ask("r", "gpu", selector))], go_on=lambda: next(looks) >= 0
    )
    assert next(looks) > 90


def test_without_classes_nothing_is_known() -> None:
    (result,) = told([GPU, pool("n1", 1), pool("n2", 1), *_n1(1)], classes_known=False)
    assert (result.unknown, result.why) == (1, "DeviceClasses are not known")


@pytest.mark.parametrize(
    ("requests", "said"), [([ask()], (1, 0, 0)), ([ask("a"), ask("b")], (0, 0, 1))], ids=["one device", "two devices"]
)
def test_without_nodes_one_device_of_a_network_pool_is_known_and_two_are_not(
    requests: list[Json], said: tuple[int, int, int]
) -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
    (result,) = told(
        [
            GPU,
            pool("n1", 2),
            pool("n2", 1),
            pool("net", 1, nodeSelector=selector),
            *user("out", ["n1/n1-0"], *requests),
        ],
        nodes=None,
    )
    assert (result.found, result.none, result.unknown) == said


def test_a_taint_on_one_device_leaves_its_neighbours() -> None:
    (result,) = told([GPU, pool("n1", 2), *_n1(1)], tainted=DeviceNames(DRIVER, TAINTED, "n1-0"))
    assert result.found == 1
