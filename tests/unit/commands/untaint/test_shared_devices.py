"""`untaint --node`: devices that other nodes can use, too, which are the node's only while an allocation holds them."""

from __future__ import annotations

from typing import Any

from tests.builders import make_claim, make_device, make_meta, make_pod, make_slice
from tests.tables import table
from tests.unit.commands.api_server import bare
from tests.unit.commands.rule_server import ECC, GROUP, VerbRunner, rule_on

NIC = {"driver": "nic.example.com", "pool": "fabric", "device": "nic-0"}
SHOWN = "nic.example.com/fabric/nic-0"
SAID = f"note: rule shared taints {SHOWN}, which other nodes can use, too: name that\n"
CLAIMS = f"{GROUP}/v1/resourceclaims"


def share(verb: VerbRunner, holder: str = "") -> None:
    """Publish a device for all nodes, with a rule on it; an allocation may hold it. node-1 has others of its own."""
    nic = make_slice([make_device("nic-0")], driver="nic.example.com", pool="fabric", node_name=None, allNodes=True)
    verb.server.collections[f"{GROUP}/v1/resourceslices"].append(bare(nic))
    if holder:
        result: Any = {"request": "gpu", **NIC}
        status = {
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-of-p"}],
            "allocation": {"devices": {"results": [result]}},
        }
        claim = make_claim(meta=make_meta("c", namespace="ml", uid="uid-of-c"), status=status)
        verb.server.collections[CLAIMS] = [bare(claim)]
        verb.server.collections["/api/v1/pods"] = [bare(make_pod("p", "c", nodeName=holder))]
    verb.server.keep(
        rule_on("own", selector={"driver": "gpu.example.com", "pool": "node-1"}), rule_on("shared", selector=NIC)
    )


@table(
    "holder, deleted, said",
    {
        "a pod of the node": ("node-1", {"own", "shared"}, ""),
        "a pod of another node": ("node-0", {"own"}, ""),
        "no pod any more": ("", {"own"}, SAID),
    },
)
def test_rule_on_a_device_that_nothing_holds_any_more_is_named(
    holder: str, deleted: set[str], said: str, verb: VerbRunner
) -> None:
    share(verb, holder)
    code, _, error = verb("untaint", "--node", "node-1", ECC)
    assert (code, {"own", "shared"} - set(verb.server.rules), error) == (0, deleted, said)


def test_rule_on_a_device_is_named_where_claims_may_not_be_read(verb: VerbRunner) -> None:
    share(verb, "node-1")
    verb.server.forbidden.add(CLAIMS)
    code, _, error = verb("untaint", "--node", "node-1", ECC)
    assert (code, set(verb.server.rules)) == (0, {"shared"})
    assert SAID in error


def test_other_taints_of_such_a_device_are_not_named(verb: VerbRunner) -> None:
    share(verb)
    verb.server.keep(
        rule_on("own", selector={"driver": "gpu.example.com", "pool": "node-1"}),
        rule_on("shared", selector=NIC, key="example.com/other"),
    )
    assert verb("untaint", "--node", "node-1", ECC)[2] == ""
