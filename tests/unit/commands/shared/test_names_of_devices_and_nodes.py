"""Names as people and shells write them: of drivers with upper case, of nodes that are empty, and suggestions."""

from __future__ import annotations

import pytest

from tests.builders import make_device, make_meta, make_slice
from tests.unit.commands.api_server import bare
from tests.unit.commands.rule_server import ECC, GROUP, VerbRunner

UPPER = "GPU.Example.com/node-9/gpu-0"


def test_devices_are_taken_as_list_prints_them_though_their_driver_has_upper_case(verb: VerbRunner) -> None:
    found = make_slice([make_device("gpu-0")], pool="node-9", node_name="node-9", meta=make_meta("node-9-gpu"))
    found["spec"]["driver"] = "GPU.Example.com"
    verb.server.collections[f"{GROUP}/v1/resourceslices"].append(bare(found))
    assert UPPER in verb.output("list", "--all", "-o", "name").splitlines()
    assert verb.output("taint", UPPER, f"{ECC}:NoSchedule").startswith(f"{UPPER} tainted by ")
    ((_, _, rule),) = verb.server.sent
    assert rule["spec"]["deviceSelector"] == {"driver": "GPU.Example.com", "pool": "node-9", "device": "gpu-0"}


@pytest.mark.parametrize("word", ["gpu_x.example.com/a/b", "GPU.Example.com/Node/b", "/a/b", "-gpu.example.com"])
def test_other_names_of_devices_are_wrong_usage(word: str, verb: VerbRunner) -> None:
    assert (verb("taint", "--all", word, f"{ECC}:NoSchedule")[0], verb.server.asked) == (2, [])


@pytest.mark.parametrize("name", ["taint", "untaint", "list"])
def test_empty_name_of_a_node_is_wrong_usage(name: str, verb: VerbRunner) -> None:
    """As a variable that is not set."""
    words = [] if name == "list" else [f"{ECC}:NoSchedule"]
    code, _, error = verb(name, "--node", "", *words)
    assert (code, verb.server.asked) == (2, [])
    assert "--node must be the name of a node, and not empty" in error


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["list", ""], "gpu.example.com/node-0/gpu-0"),
        (["list", "--node", ""], "node-1"),
        (["taint", "--node=n"], "--node=node-1"),
        (["untaint", "--node", "node"], "node-1"),
    ],
)
def test_devices_and_nodes_are_suggested(words: list[str], found: str, verb: VerbRunner) -> None:
    *suggested, directive = verb.output("__complete", *words).splitlines()
    assert (found in suggested, directive) == (True, ":4")
