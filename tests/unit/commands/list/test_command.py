"""`list`: its rows, its columns, what it does without permissions, and `--watch`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from tests.builders import (
    DRIVER,
    make_condition,
    make_consumer,
    make_device,
    make_meta,
    make_rule,
    make_slice,
    make_taint,
    make_toleration,
)
from tests.unit.commands.api_server import bare
from tests.unit.commands.preview_runner import used
from tests.unit.commands.rule_server import ECC, GROUP, NODES, RULES, SERVED, RuleServer, VerbRunner, rule_on
from tests.unit.commands.standing_clock import Then
from webhook.commands import list as listing

CLAIMS = f"{GROUP}/v1/resourceclaims"
SLICES = f"{GROUP}/v1/resourceslices"
HW = make_taint("hw.io/link", "NoExecute", "down", "2026-06-01T11:00:00Z")
OWNED = {"apiVersion": "devicetaint.io/v1alpha1", "kind": "ResourceSlicePatch", "name": "recall", "controller": True}
PATCHED = rule_on(
    "recall-1",
    key="example.com/recall",
    effect="None",
    selector={"driver": DRIVER, "pool": "node-1"},
    ownerReferences=[{**OWNED, "uid": "u"}],
)
DATA = json.dumps({"temperatures": list(range(90, 110))}, separators=(",", ":"))
EVICTING = make_rule(
    taint=make_taint(ECC, "NoSchedule"),
    meta=make_meta(
        "firmware",
        uid="u",
        generation=1,
        annotations={
            "devicetaint.io/evict": "true",
            "devicetaint.io/expires-at": "2026-06-01T14:00:00Z",
            "devicetaint.io/description": "OPS-7",
            "devicetaint.io/data": DATA,
        },
    ),
    conditions=[make_condition(type="devicetaint.io/Eviction", reason="Blocked", status="True")],
)
FOR_EVER = make_toleration(ECC, effect="NoExecute")
AN_HOUR = make_toleration(ECC, effect="NoExecute", seconds=3600)


@pytest.fixture(autouse=True)
def crowd(rule_server: RuleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "datetime", Then)
    tainted = make_slice(
        [make_device("gpu-0", taints=[HW]), make_device("gpu-1")],
        pool="node-1",
        node_name="node-1",
        meta=make_meta("node-1-gpu"),
    )
    rule_server.collections[SLICES][1] = bare(tainted)
    users = [make_consumer(f"{number}") for number in range(5)]
    crew = [make_consumer("crew", apiGroup="scheduling.k8s.io", resource="podgroups")]
    rule_server.collections[CLAIMS] = [
        bare(each)
        for each in (
            used("train", "node-0/gpu-0"),
            used("serve", "node-0/gpu-0", tolerations=[FOR_EVER], namespace="web"),
            used("late", "node-0/gpu-0", tolerations=[AN_HOUR]),
            used("many", "node-1/gpu-0", users=users, namespace="a"),
            used("gang", "node-1/gpu-1", users=crew),
        )
    ]
    rule_server.keep(EVICTING, PATCHED)


TABLE = """\
NAME                           TAINT                EFFECT             SOURCE             AGE   PODS
gpu.example.com/node-0/gpu-0   example.com/ecc      NoSchedule,evict   rule/firmware      30s   ml/late,ml/train
gpu.example.com/node-1/gpu-0   hw.io/link=down      NoExecute          slice/node-1-gpu   60m   a/0,a/1,a/2 + 2 more...
gpu.example.com/node-1/gpu-0   example.com/recall   None               patch/recall       30s   a/0,a/1,a/2 + 2 more...
gpu.example.com/node-1/gpu-1   example.com/recall   None               patch/recall       30s   podgroups/ml/crew
"""


def test_table_is_laid_out_as_kubectls(verb: VerbRunner) -> None:
    assert verb.output("list") == TABLE
    assert verb.output("list", "--no-headers").splitlines()[0].split() == TABLE.splitlines()[1].split()


def test_wide_table_has_nodes_rules_and_what_acts_on_them(verb: VerbRunner) -> None:
    header, first, second, third, _ = verb.output("list", "-o", "wide").splitlines()
    assert header.split()[-6:] == ["NODE", "RULE", "EVICTION", "EXPIRES", "REASON", "DATA"]
    shown = f"{DATA[:61]}..."
    assert first.split()[-6:] == ["node-0", "firmware", "Blocked", "2026-06-01T14:00:00Z", "OPS-7", shown]
    assert second.split()[-7:] == ["a/0,a/1,a/2,a/3,a/4", "node-1", *["<none>"] * 5]
    assert third.split()[-5:] == ["recall-1", *["<none>"] * 4]


def test_devices_without_taints_are_listed_with_all(verb: VerbRunner) -> None:
    lines = verb.output("list", "--all").splitlines()
    assert len(lines) == 6
    assert lines[2].split() == ["gpu.example.com/node-0/gpu-1", *["<none>"] * 5]


def test_names_are_devices_as_other_verbs_take_them(verb: VerbRunner) -> None:
    names = verb.output("list", "-o", "name").split()
    assert names == [f"{DRIVER}/node-0/gpu-0", f"{DRIVER}/node-1/gpu-0", f"{DRIVER}/node-1/gpu-1"]
    verb.output("taint", *names, "example.com/x:None")
    assert len(verb.server.rules) == 5


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["gpu.example.com"], [0, 1, 2, 3]),
        (["gpu.example.com/node-1"], [1, 2, 3]),
        (["gpu.example.com/node-1/gpu-1", "gpu.example.com/node-0"], [0, 3]),
        (["--node", "node-0"], [0]),
        (["-l", "pool=a100"], [1, 2, 3]),
        (["-n", "ml"], [0, 3]),
        (["-n", "web"], []),
        (["--node", "node-1", "gpu.example.com", "-n", "a"], [1, 2]),
    ],
)
def test_devices_nodes_and_namespaces_choose_rows(words: list[str], lines: list[int], verb: VerbRunner) -> None:
    code, found, error = verb("list", "--no-headers", *words)
    assert [line.split()[:2] for line in found.splitlines()] == [TABLE.splitlines()[1 + at].split()[:2] for at in lines]
    assert (code, error) == (0, "" if lines else "No tainted devices found.\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nic.example.com"], "error: no driver publishes nic.example.com, and no allocation holds it\n"),
        (
            ["--all", "gpu.example.com/nod-0", "gpu.example.com"],
            "error: no driver publishes gpu.example.com/nod-0, and",
        ),
        (["node/node-9", "node/node-0"], 'Error from server (NotFound): nodes "node-9" not found\n'),
        (["--node=node-9", "--watch"], 'Error from server (NotFound): nodes "node-9" not found\n'),
    ],
)
def test_name_that_is_not_there_is_an_error(words: list[str], error: str, verb: VerbRunner) -> None:
    code, found, said = verb("list", *words)
    assert (code, found, said[: len(error)]) == (1, "", error)


def test_node_without_devices_is_none(verb: VerbRunner) -> None:
    verb.server.objects[f"{NODES}/node-5"] = {"kind": "Node", "metadata": {"name": "node-5"}}
    assert verb("list", "--node=node-5") == (0, "", "No tainted devices found.\n")
    verb.server.forbidden.add(f"{NODES}/node-9")
    assert verb("list", "no/node-9") == (1, "", "Error from server (Forbidden): node-9 is forbidden\n")


@pytest.mark.parametrize(
    "words",
    [
        ["device/gpu.example.com/node-1"],
        ["devices", "gpu.example.com/node-1"],
        ["Device", "gpu.example.com/node-1/"],
        ["nodes.v1./node-1"],
        ["no", "node-1"],
    ],
)
def test_device_and_node_are_named_with_their_kind(words: list[str], verb: VerbRunner) -> None:
    assert verb.output("list", *words) == verb.output("list", "gpu.example.com/node-1")


def test_values_for_programs(verb: VerbRunner) -> None:
    found = json.loads(verb.output("list", "-o", "json"))
    assert yaml.safe_load(verb.output("list", "-o", "yaml")) == found
    assert (found["version"], found["time"], found["notes"]) == (1, "2026-06-01T12:00:00Z", [])
    first, second, _ = found["devices"]
    assert (first["driver"], first["pool"], first["device"], first["node"]) == (DRIVER, "node-0", "gpu-0", "node-0")
    (taint,) = first["taints"]
    assert {each["name"]: each["tolerates"] for each in taint.pop("users")} == {
        "train": False,
        "late": False,
        "serve": True,
    }
    shown = {"evict": True, "eviction": "Blocked", "expiresAt": "2026-06-01T14:00:00Z", "reason": "OPS-7", "data": DATA}
    assert taint.items() >= shown.items()
    assert taint["source"] == {"kind": "rule", "name": "firmware", "rule": "firmware"}
    assert [each["source"] for each in second["taints"]] == [
        {"kind": "slice", "name": "node-1-gpu", "rule": None},
        {"kind": "patch", "name": "recall", "rule": "recall-1"},
    ]


# --- rules that are not what they seem ----------------------------------------------------------


def test_rule_without_selector_is_on_every_device_and_concerns_no_pod(verb: VerbRunner) -> None:
    verb.server.keep(rule_on("everywhere", effect="NoExecute", selector=None))
    lines = verb.output("list", "--no-headers").splitlines()
    assert [line.split()[-1] for line in lines if "rule/everywhere" in line] == ["<none>"] * 4


def test_rules_without_devices_or_with_more_than_names_are_notes(verb: VerbRunner) -> None:
    verb.server.keep(
        rule_on("typo", selector={"driver": DRIVER, "pool": "node-O"}),
        rule_on("class", selector={"driver": DRIVER, "pool": "node-0", "deviceClassName": "big"}),
    )
    code, found, error = verb("list", "--no-headers")
    assert (code, found.count("rule/class")) == (0, 2)
    assert error.splitlines() == [
        "note: rule typo selects no published device",
        "note: class selects by class, CEL or unknown fields, so their taints may be on fewer devices than listed",
    ]


def test_many_rules_without_devices_are_one_note(verb: VerbRunner) -> None:
    """M12: retired nodes leave them behind."""
    rules = [rule_on(f"r{number}", selector={"driver": DRIVER, "pool": "gone"}) for number in range(7)]
    verb.server.keep(*rules)
    assert verb("list", "--no-headers")[2].splitlines() == [
        "note: 7 rules select no published device: r0, r1, r2 and 4 more"
    ]


def test_old_condition_says_nothing(verb: VerbRunner) -> None:
    verb.server.keep({**EVICTING, "metadata": {**EVICTING["metadata"], "generation": 2}})
    assert verb.output("list", f"{DRIVER}/node-0", "-o", "wide", "--no-headers").split()[-4] == "<none>"


# --- permissions --------------------------------------------------------------------------------


def test_without_claims_pods_are_unknown(verb: VerbRunner) -> None:
    verb.server.forbidden.add(CLAIMS)
    verb.server.forbids = "is forbidden:\nnote: all is well"
    code, found, error = verb("list", "--no-headers")
    assert (code, {line.split()[-1] for line in found.splitlines()}) == (0, {"<none>"})
    assert error.count("\n") == 1
    assert error.startswith("note: no permission to read resourceclaims, so it is unknown which pods use a device: ")


@pytest.mark.parametrize("served", [True, False])
def test_without_rules_those_of_slices_are_listed(verb: VerbRunner, *, served: bool) -> None:
    if served:
        verb.server.forbidden.add(RULES)
    else:
        verb.server.objects[f"{GROUP}/v1"] = {"resources": [{"name": name} for name in SERVED[:2]]}
    code, found, error = verb("list", "--no-headers")
    assert (code, found.count("slice/"), found.count("\n")) == (0, 1, 1)
    assert "so only taints in slices are known" in error


def test_without_slices_there_is_no_list(verb: VerbRunner) -> None:
    verb.server.forbidden.add(SLICES)
    assert verb("list") == (1, "", "Error from server (Forbidden): resourceslices is forbidden\n")


def test_who_is_not_logged_in_gets_kubectls_words(verb: VerbRunner) -> None:
    unauthorized = {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}
    verb.server.answer = lambda target: (401, unauthorized)  # type: ignore[method-assign]  # noqa: ARG005
    assert verb("list") == (1, "", "error: You must be logged in to the server (Unauthorized)\n")


def test_slices_that_are_not_served_are_an_error(verb: VerbRunner) -> None:
    verb.server.objects[f"{GROUP}/v1"] = {"resources": []}
    code, _, error = verb("list")
    assert (code, "resourceslices.resource.k8s.io is not served in v1, v1beta2, v1beta1" in error) == (1, True)


def test_object_that_cannot_be_read_is_named(verb: VerbRunner) -> None:
    verb.server.collections[SLICES] = [{"metadata": {"name": "odd"}, "spec": {"devices": 7}}]
    code, _, error = verb("list")
    assert (code, "odd cannot be read: spec.devices" in error) == (2, True)


# --- watching -----------------------------------------------------------------------------------


def watched(verb: VerbRunner, *words: str) -> tuple[str, str]:
    code, found, error = verb("list", "--watch", "--interval", "7", *words)
    assert code == 130
    return found, error


def test_watch_prints_what_is_new_changed_and_removed(verb: VerbRunner, rounds: list[Callable[[], None]]) -> None:
    more = rule_on("more", key="example.com/more")
    rounds += [
        lambda: None,
        lambda: verb.server.keep(EVICTING, PATCHED, more),
        lambda: verb.server.keep(PATCHED, more),
        lambda: verb.server.keep(
            PATCHED, rule_on("more", key="example.com/more", annotations={"devicetaint.io/evict": "true"})
        ),
    ]
    found, error = watched(verb)
    assert (found.startswith(TABLE), error) == (True, "")
    assert [line.split()[1:4] for line in found.removeprefix(TABLE).splitlines()] == [
        ["example.com/more", "NoSchedule", "rule/more"],
        [ECC, "<removed>", "rule/firmware"],
        ["example.com/more", "NoSchedule,evict", "rule/more"],
    ]


def test_watched_values_are_documents_of_the_devices_that_changed(
    verb: VerbRunner, rounds: list[Callable[[], None]]
) -> None:
    rounds += [lambda: None, lambda: verb.server.keep(PATCHED)]
    found, _ = watched(verb, "-o", "json")
    first, second = map(json.loads, found.splitlines())
    assert len(first["devices"]) == 3
    assert [(each["pool"], each["device"], each["taints"]) for each in second["devices"]] == [("node-0", "gpu-0", [])]
    rounds += [lambda: verb.server.keep(EVICTING, PATCHED)]
    documents = list(yaml.safe_load_all(watched(verb, "-o", "yaml")[0]))
    assert [len(each["devices"]) for each in documents] == [2, 1]


def test_watch_goes_on_after_an_error_that_is_reported_once(verb: VerbRunner, rounds: list[Callable[[], None]]) -> None:
    def recover() -> None:
        verb.server.forbidden.clear()
        verb.server.keep(PATCHED)

    rounds += [lambda: verb.server.forbidden.add(SLICES), lambda: None, recover]
    found, error = watched(verb)
    assert "<removed>" in found
    assert error == (
        "kubectl dtaint list: the cluster cannot be read now: "
        "Error from server (Forbidden): resourceslices is forbidden\n"
    )


def test_watch_ends_when_the_reader_does(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "write_more", lambda _: 0)
    assert verb("list", "--watch")[0] == 0


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["b"], [["hw.io/link=a", "<removed>"]]),
        (["b", "c"], [["hw.io/link=c", "NoSchedule"]]),
        (["c"], [["hw.io/link=a", "<removed>"], ["hw.io/link=b", "<removed>"], ["hw.io/link=c", "NoSchedule"]]),
        ([], [["hw.io/link=a", "<removed>"], ["hw.io/link=b", "<removed>"]]),
    ],
)
def test_of_slice_taints_that_differ_in_their_values_those_that_are_gone_are_removed(
    values: list[str], shown: list[list[str]], verb: VerbRunner, rounds: list[Callable[[], None]]
) -> None:
    def publish(*values: str) -> None:
        taints = [make_taint("hw.io/link", "NoSchedule", value, "2026-06-01T11:00:00Z") for value in values]
        verb.server.collections[SLICES] = [bare(make_slice([make_device("gpu-0", taints=taints)]))]

    verb.server.keep()
    publish("a", "b")
    rounds += [lambda: publish(*values)]
    found, _ = watched(verb, "--no-headers")
    assert [line.split()[1:3] for line in found.splitlines()[2:]] == shown
