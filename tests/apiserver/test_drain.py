"""drain, taint --node and list --node on a real API server: no `drained` while an allocation of what was named is left.

Nothing runs but the API server and the worker. The test plays the scheduler, and the controller that frees claims once
their pods are gone.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Self

import pytest

from tests.apiserver.evicting import GENTLE, RULES, EvictProcess
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook import cli
from webhook.commands import drain

Json = dict[str, Any]
VERSION: Final = f"{versions.GROUP}/v1"
SLICES: Final = path(VERSION, "resourceslices")
CLASSES: Final = path(VERSION, "deviceclasses")
NODES: Final = path("v1", "nodes")
HOLD: Final = "devicetaint.io/hold"
ALL: Final = {"operator": "Exists"}
_numbers: Final = itertools.count()


@pytest.fixture(scope="module")
def plane_at_work(plane: ControlPlane) -> Iterator[ControlPlane]:
    if versions.minor(plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    with EvictProcess(plane, "delegated", "--in-tree=absent", policy=GENTLE) as process:
        process.wait_working()
        yield plane


def by_name(node: str) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def by_label(*values: str) -> Json:
    label = {"key": "shelf", "operator": "In", "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [label]}]}


class Ended(NamedTuple):
    code: int
    output: str
    error: str


class Shelf:
    """A namespace, two drivers and two nodes of its own; claims are freed as their pods go."""

    def __init__(self, plane: ControlPlane) -> None:
        number = next(_numbers)
        self.plane, self.client = plane, plane.client
        self.name = f"shelf-{number}"
        self.node, self.other = f"{self.name}-a", f"{self.name}-b"
        self.card, self.port = f"card-{number}.example.org", f"port-{number}.example.org"
        self.claims = path(VERSION, "resourceclaims", namespace=self.name)
        self.pods = path("v1", "pods", namespace=self.name)
        self._over = threading.Event()
        self._freeing = threading.Thread(target=self._free)

    def __enter__(self) -> Self:
        labels = {"resource.kubernetes.io/admin-access": "true"}
        metadata = {"name": self.name, "labels": labels}
        _ = self.client.create(path("v1", "namespaces"), {"metadata": metadata}).object
        for node in (self.node, self.other):
            _ = self.client.create(NODES, {"metadata": {"name": node, "labels": {"shelf": node}}}).object
        self._freeing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._freeing.join()
        for rule in self.rules():
            self.client.delete(f"{RULES}/{rule}")

    def _free(self) -> None:
        while not self._over.wait(0.3):
            claims = self.client.get(self.claims).items  # first: who reserves one is there before
            alive = {each["metadata"]["name"] for each in self.client.get(self.pods).items}
            for claim in claims:
                users = [each["name"] for each in claim.get("status", {}).get("reservedFor", [])]
                if users and not alive.intersection(users):
                    free = {"status": {"allocation": None, "reservedFor": None}}
                    self.client.patch(f"{self.claims}/{claim['metadata']['name']}/status", free)

    # --- what there is ---------------------------------------------------------------------------

    def publish(self, driver: str, *devices: str | Json, pool: str = "", generation: int = 1, **spec: Any) -> None:
        """A slice, of the node unless `spec` says otherwise; it replaces the one of that driver."""
        each = [{"name": one} if isinstance(one, str) else one for one in devices]
        count = {"name": pool or self.node, "generation": generation, "resourceSliceCount": 1}
        spec = {"driver": driver, "pool": count, "devices": each, **(spec or {"nodeName": self.node})}
        self.client.delete(f"{SLICES}/{driver}")
        _ = self.client.create(SLICES, {"metadata": {"name": driver}, "spec": spec}).object

    def withdraw(self, driver: str) -> None:
        """As the kubelet does when the driver is gone."""
        _ = self.client.delete(f"{SLICES}/{driver}").object

    def run(
        self,
        name: str,
        *places: tuple[str, str, str],
        node: str = "",
        selector: Json | None = None,
        admin: bool = False,
        tolerations: tuple[Json, ...] = (),
        **metadata: Any,
    ) -> None:
        """A pod with these devices."""
        exactly = {"deviceClassName": "any", "tolerations": list(tolerations), "adminAccess": admin}
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
        _ = self.client.create(self.claims, claim).object
        spec = {
            "nodeName": node or self.node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "r"}]}}],
            "resourceClaims": [{"name": "r", "resourceClaimName": name}],
        }
        pod = self.client.create(self.pods, {"metadata": {"name": name, **metadata}, "spec": spec}).object
        shared = {"request": "r", "adminAccess": admin, "tolerations": list(tolerations)}
        results = [{"driver": each[0], "pool": each[1], "device": each[2], **shared} for each in places]
        status = {
            "allocation": {"devices": {"results": results}, **({"nodeSelector": selector} if selector else {})},
            "reservedFor": [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}],
        }
        _ = self.client.patch(f"{self.claims}/{name}/status", {"status": status}).object

    def rules(self) -> dict[str, str]:
        """Rules for devices of this shelf, and what they select."""
        found = {}
        for rule in self.client.get(RULES).items:
            selector = rule["spec"]["deviceSelector"]
            if selector.get("driver") in (self.card, self.port):
                found[rule["metadata"]["name"]] = "/".join(
                    selector[part] for part in ("driver", "pool", "device") if part in selector
                )
        return found

    def present(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.client.get(self.pods).items}


class Verbs(NamedTuple):
    """Runs verbs in this process."""

    plane: ControlPlane
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Ended:
        flag = f"--kubeconfig={self.plane.kubeconfig}"
        code = cli.main([*words, *([] if flag in words else [flag])])
        said = self.capsys.readouterr()
        return Ended(code, said.out, said.err)

    def drain(self, *words: str) -> Ended:
        return self("drain", "--interval=1", "--timeout=300s", *words)


@pytest.fixture
def verb(plane_at_work: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Verbs:
    return Verbs(plane_at_work, capsys)


@pytest.fixture
def gives_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a claim stays allocated for good; others are freed in less, also by a machine that pauses."""
    monkeypatch.setattr(drain, "_SETTLE_SECONDS", 8.0)


@pytest.fixture
def shelf(plane_at_work: ControlPlane) -> Iterator[Shelf]:
    with Shelf(plane_at_work) as shelf:
        yield shelf


# --- what belongs to a node ---------------------------------------------------------------------


def driver_that_is_gone(shelf: Shelf) -> set[str]:
    """What the allocation says is all that is left of it."""
    shelf.publish(shelf.port, "port-0")
    shelf.run("job", (shelf.card, shelf.node, "card-0"), selector=by_name(shelf.node))
    return {f"{shelf.card}/{shelf.node}", f"{shelf.port}/{shelf.node}"}


def all_drivers_that_are_gone(shelf: Shelf) -> set[str]:
    shelf.run("job", (shelf.card, "fabric", "card-0"), selector=by_name(shelf.node))
    return {f"{shelf.card}/fabric/card-0"}


def devices_of_a_shared_pool(shelf: Shelf) -> set[str]:
    """By their own node names; the driver has dropped a broken one that is in use."""
    devices = [{"name": f"card-{node}", "nodeName": node} for node in (shelf.node, shelf.other)]
    shelf.publish(shelf.card, *devices, pool="fabric", generation=2, perDeviceNodeSelection=True)
    shelf.run("job", (shelf.card, "fabric", "card-0"), selector=by_name(shelf.node))
    shelf.run("stays", (shelf.card, "fabric", f"card-{shelf.other}"), node=shelf.other, selector=by_name(shelf.other))
    return {f"{shelf.card}/fabric/card-{shelf.node}", f"{shelf.card}/fabric/card-0"}


def devices_by_labels_of_nodes(shelf: Shelf) -> set[str]:
    devices = [{"name": f"card-{node}", "nodeSelector": by_label(node)} for node in (shelf.node, shelf.other)]
    shelf.publish(shelf.card, *devices, pool="fabric", perDeviceNodeSelection=True)
    shelf.run("job", (shelf.card, "fabric", f"card-{shelf.node}"), selector=by_label(shelf.node))
    shelf.run("stays", (shelf.card, "fabric", f"card-{shelf.other}"), node=shelf.other)
    return {f"{shelf.card}/fabric/card-{shelf.node}"}


def slice_by_labels_of_nodes(shelf: Shelf) -> set[str]:
    shelf.publish(shelf.card, "card-0", pool="fabric", nodeSelector=by_label(shelf.node))
    shelf.run("job", (shelf.card, "fabric", "card-0"))
    return {f"{shelf.card}/fabric/card-0"}


def device_that_all_nodes_share_and_a_pod_here_uses(shelf: Shelf) -> set[str]:
    """Only the pod says on which node it is."""
    shelf.publish(shelf.card, "card-0", "card-1", "card-2", pool="fabric", allNodes=True)
    shelf.run("job", (shelf.card, "fabric", "card-0"))
    shelf.run("stays", (shelf.card, "fabric", "card-1"), node=shelf.other)
    return {f"{shelf.card}/fabric/card-0"}


@pytest.mark.parametrize(
    "furnish",
    [
        driver_that_is_gone,
        pytest.param(all_drivers_that_are_gone, marks=pytest.mark.whole),
        devices_of_a_shared_pool,
        pytest.param(devices_by_labels_of_nodes, marks=pytest.mark.whole),
        pytest.param(slice_by_labels_of_nodes, marks=pytest.mark.whole),
        pytest.param(device_that_all_nodes_share_and_a_pod_here_uses, marks=pytest.mark.whole),
    ],
)
def test_node_is_drained_with_all_that_belongs_to_it(
    furnish: Callable[[Shelf], set[str]], shelf: Shelf, verb: Verbs
) -> None:
    expected = furnish(shelf)
    listed = verb("list", f"--node=node/{shelf.node}", "--all", "-o=name").output.split()
    assert {each for each in expected if each.count("/") > 1} <= set(listed)
    assert not [each for each in listed if each.endswith(("card-1", shelf.other))]
    tainted = verb("taint", f"--node={shelf.node}", "example.org/fan:NoSchedule", "--dry-run=server")
    assert {line.split()[0] for line in tainted.output.splitlines()} == expected
    ended = verb.drain(f"node/{shelf.node}")
    assert ended.code == 0, ended
    assert "drained: no allocation holds a device" in ended.output
    assert set(shelf.rules().values()) == expected
    assert shelf.present() <= {"stays"}
    undo = ended.output.splitlines()[-1].partition(" untaint ")[2].split()
    assert verb("untaint", *undo).code == 0
    assert shelf.rules() == {}


# --- while it is drained ------------------------------------------------------------------------


def test_what_comes_to_the_node_meanwhile_is_drained_too(shelf: Shelf, verb: Verbs) -> None:
    """The slice goes, and a device that the nodes share is allocated here."""
    shelf.publish(shelf.card, "card-0")
    shelf.publish(shelf.port, "port-0", "port-1", pool="fabric", allNodes=True)
    shelf.run("held", (shelf.card, shelf.node, "card-0"), selector=by_name(shelf.node), annotations={HOLD: "a while"})
    shelf.run("stays", (shelf.port, "fabric", "port-1"), node=shelf.other)

    def happen() -> None:
        wait_until(lambda: bool(shelf.rules()), "the drain is under way")
        shelf.withdraw(shelf.card)
        shelf.run("late", (shelf.port, "fabric", "port-0"))
        _ = shelf.client.patch(f"{shelf.pods}/held", {"metadata": {"annotations": {HOLD: None}}}).object

    with ThreadPoolExecutor() as pool:
        happened = pool.submit(happen)
        ended = verb.drain(shelf.node)
    happened.result()
    assert (ended.code, shelf.present()) == (0, {"stays"}), ended
    assert set(shelf.rules().values()) == {f"{shelf.card}/{shelf.node}", f"{shelf.port}/fabric/port-0"}


@pytest.mark.usefixtures("gives_up_soon")
@pytest.mark.parametrize("pool", ["", pytest.param("fabric", marks=pytest.mark.whole)])
def test_monitors_with_admin_access_count_unless_they_are_ignored(pool: str, shelf: Shelf, verb: Verbs) -> None:
    """Those of devices that other nodes can use as well are not tainted for it."""
    shelf.publish(shelf.card, "card-0", "card-1", pool=pool, **({"allNodes": True} if pool else {}))
    places = [(shelf.card, pool or shelf.node, f"card-{number}") for number in range(2)]
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "u", "controller": True}
    shelf.run("monitor", *places, admin=True, tolerations=(ALL,), ownerReferences=[reference])
    shelf.run("job", places[0])
    shelf.run("stays", places[1], node=shelf.other) if pool else None
    ended = verb.drain(shelf.node)
    assert ended.code == 1, ended
    assert f"{shelf.name}/monitor (pod monitor)" in ended.error
    assert "--ignore-daemonsets" in ended.error
    ended = verb.drain(shelf.node, "--ignore-daemonsets")
    assert (ended.code, f"{shelf.name}/monitor (pod monitor)" in ended.output) == (0, True), ended
    assert shelf.present() == ({"monitor", "stays"} if pool else {"monitor"})


@pytest.mark.usefixtures("gives_up_soon")
@pytest.mark.whole
def test_pod_of_another_owner_with_admin_access_is_not_ignored(shelf: Shelf, verb: Verbs) -> None:
    shelf.publish(shelf.card, "card-0")
    shelf.run("monitor", (shelf.card, shelf.node, "card-0"), admin=True, tolerations=(ALL,))
    ended = verb.drain(shelf.node, "--ignore-daemonsets")
    assert (ended.code, "monitor" in ended.error, "--ignore-daemonsets" in ended.error) == (1, True, False), ended


# --- until pods find another place ---------------------------------------------------------------


@pytest.fixture
def classed(shelf: Shelf) -> Iterator[Shelf]:
    """Claims may have devices of both drivers."""
    expression = f"device.driver in ['{shelf.card}', '{shelf.port}']"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    _ = shelf.client.create(CLASSES, {"metadata": {"name": "any"}, "spec": spec}).object
    yield shelf
    _ = shelf.client.delete(f"{CLASSES}/any").object


def test_pod_waits_until_there_is_a_free_device_on_another_node(classed: Shelf, verb: Verbs) -> None:
    """Nothing new can get its device meanwhile, and the drain that goes on finds what has become free."""
    shelf = classed
    shelf.publish(shelf.card, "card-0")
    shelf.publish(shelf.port, "port-0", pool=shelf.other, nodeName=shelf.other)
    shelf.run("job", (shelf.card, shelf.node, "card-0"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "job", "uid": "u", "controller": True}
    _ = shelf.client.patch(f"{shelf.claims}/job", {"metadata": {"ownerReferences": [owner]}}).object
    shelf.run("stays", (shelf.port, shelf.other, "port-0"), node=shelf.other)
    waits = (
        f"{shelf.card}/{shelf.node} waits with {shelf.name}/job: 1 of 1 pod finds no other device: 1 needs any, 0 free"
    )
    dry = verb.drain(shelf.node, "--wait-for-place", "--dry-run=server")
    assert (dry.code, f"{waits} (server dry run)" in dry.output, shelf.rules()) == (0, True, {})
    ended = verb("drain", shelf.node, "--wait-for-place", "--interval=1", "--timeout=15s")
    assert (ended.code, shelf.present()) == (1, {"job", "stays"}), ended
    assert f"error: not drained: not empty within 15 s; {waits}; to evict them all the same, " in ended.error
    (rule,) = shelf.rules()
    closed = shelf.client.get(f"{RULES}/{rule}").object
    assert (closed["spec"]["taint"]["effect"], closed["metadata"].get("annotations")) == ("NoSchedule", None)
    shelf.publish(shelf.port, "port-0", "port-1", pool=shelf.other, generation=2, nodeName=shelf.other)
    ended = verb.drain(shelf.node, "--wait-for-place")
    assert (ended.code, shelf.present()) == (0, {"stays"}), ended
    assert f"{shelf.card}/{shelf.node}: all pods find a place" in ended.output


# --- names --------------------------------------------------------------------------------------


@pytest.mark.whole
def test_name_that_matches_nothing_is_an_error_before_anything_is_written(shelf: Shelf, verb: Verbs) -> None:
    shelf.publish(shelf.card, "card-0")
    shelf.run("job", (shelf.card, shelf.node, "card-0"))
    card, node = shelf.card, shelf.node
    missing = [f"{card}x/{node}", f"{card}/{node}x", f"{card}/{node}/card-9"]
    for word in (*missing, "no-such-node", f"nodes/{node}x", shelf.other):
        for words in (["drain", word], ["drain", word, f"{card}/{node}" if word in missing else node]):
            ended = verb(*words, "--timeout=30s")
            assert (ended.code, "no driver publishes " in ended.error) == (1, True), ended
        taint = ["taint", word, "example.org/fan:NoSchedule", "--all"]
        if word not in missing:
            taint[1:2] = ["--node", word]
        ended = verb(*taint)
        assert (ended.code, "no driver publishes " in ended.error) == (1, True), ended
    assert shelf.rules() == {}
    assert verb("taint", f"{card}/{node}/card-9", "example.org/fan:NoSchedule", "--missing-ok").code == 0
    assert len(shelf.rules()) == 1


@pytest.mark.whole
def test_idle_node_that_only_shares_devices_is_told_apart_from_an_unknown_one(shelf: Shelf, verb: Verbs) -> None:
    """Nothing could be tainted without closing it for the other node, where it is in use."""
    shelf.publish(shelf.card, "card-0", pool="fabric", nodeSelector=by_label(shelf.node, shelf.other))
    shelf.run("stays", (shelf.card, "fabric", "card-0"), node=shelf.other)
    for words in (["drain", shelf.node], ["drain", "-l", f"shelf={shelf.node}"]):
        ended = verb(*words)
        assert (ended.code, f"no allocation there holds one: {shelf.card}/fabric\n" in ended.error) == (1, True), ended
    assert (shelf.rules(), shelf.present()) == ({}, {"stays"})


@pytest.mark.whole
def test_node_and_rule_are_named_as_kubectl_names_them(shelf: Shelf, verb: Verbs) -> None:
    shelf.publish(shelf.card, "card-0")
    name = verb("taint", f"nodes/{shelf.node}", "example.org/fan:NoSchedule", "-o=name").output.strip()
    for rule in (name, name.replace(".resource.k8s.io", ""), name.replace("rule.", "rules.v1.")):
        assert verb("status", rule).code == 0
        assert verb("explain", rule).code == 0
    assert verb("untaint", f"Node/{shelf.node}", "example.org/fan").code == 0
    assert shelf.rules() == {}
