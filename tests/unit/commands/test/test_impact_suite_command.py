"""`test`: cases about impacts. The guard that answers the server decides them, over the inventory of the suite."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import DRIVER, NOW, NOW_TEXT, make_claim, make_device, make_pod, make_rule, make_slice, make_taint
from tests.tables import table
from tests.unit.commands.impact_suites import (
    CLASS,
    CLUSTER,
    DANA,
    OPERATOR,
    before,
    case,
    everywhere,
    make_suite,
    node,
    on,
    policy,
    stored,
)
from webhook.api.meta import format_time
from webhook.commands.shared.main import main_of
from webhook.commands.test import command as suite

Cases = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs `test` over one suite; gives exit code and output."""
    monkeypatch.chdir(tmp_path)

    def ran(*words: str, **fields: Any) -> tuple[int, str]:
        document = make_suite(*fields.pop("cases"), **fields)
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        code = main_of(suite, [*words, "s.yaml"])
        return code, capsys.readouterr().out

    return ran


@pytest.fixture
def told(run: Callable[..., Any]) -> Cases:
    """What came of some cases, and that the exit code says the same."""

    def of(*cases: Any, **fields: Any) -> list[dict[str, Any]]:
        code, output = run("-o", "json", cases=cases, **fields)
        values = json.loads(output)
        assert values["faults"] == []
        assert code == (1 if values["summary"]["failed"] else 0)
        found: list[dict[str, Any]] = values["cases"]
        return found

    return of


NODE = {"devices": 2, "claims": 1, "pods": 1, "namespaces": 1}
ALL = {"devices": 8, "claims": 4, "pods": 4, "namespaces": 1}
OVER_PENDING = "limit:pendingPods"
LATER = format_time(NOW + timedelta(hours=1))

PASSING: dict[str, Any] = {
    "what is under the limits is allowed, and its figures are no warning": case(
        on(0), "allowed", impact=NODE, reasons=[], rules=[], message="selects 2 devices"
    ),
    "what is over a limit is denied": case(
        everywhere(),
        "denied",
        impact=ALL,
        reasons=["limit:pods"],
        rules=["impact"],
        field="spec.deviceSelector",
        message="the limit is 2 pods",
    ),
    "the requester's limits hold": case(on(0), "allowed", OPERATOR, reasons=[]),
    "a policy that is off measures nothing": (
        case(everywhere(), "allowed", reasons=[], rules=[]),
        {"policy": policy(mode="off")},
    ),
    "breaking the glass leaves a warning": case(
        everywhere(), "warned", {"username": "olga", "groups": ["oncall"]}, reasons=["limit:pods"]
    ),
    "a namespace that the inventory's labels protect": (
        case(on(7), "denied", reasons=["protected"]),
        {
            "policy": policy(protectedNamespaces={"labels": {"tier": "system"}}),
            "inventory": {
                "objects": [
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "labels": {"tier": "system"}}},
                    *node(7, "x"),
                ]
            },
        },
    ),
    "labels that the suite gives take the place of the inventory's": (
        case(on(7), "allowed", reasons=[]),
        {
            "policy": policy(protectedNamespaces={"labels": {"tier": "system"}}),
            "namespaces": {"x": {"labels": {"tier": "work"}}},
            "inventory": {
                "objects": [
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "labels": {"tier": "system"}}},
                    *node(7, "x"),
                ]
            },
        },
    ),
    "time is that of the case": case(on(0, time=NOW_TEXT), "denied", reasons=["backdated"], time=LATER),
    "what an update leaves as it was is not measured": case(
        stored(on(0, time=NOW_TEXT, labels={"a": "b"})), "allowed", oldObject=stored(on(0, time=NOW_TEXT)), reasons=[]
    ),
    "an update that begins to evict is": case(
        stored(on(0)), "allowed", oldObject=stored(on(0, "None", time=NOW_TEXT)), impact=NODE
    ),
    "pods of a dump do no harm, and are not what is counted": (
        case(on(0), "allowed", impact=NODE),
        {"inventory": {"objects": [*CLUSTER, make_pod("pod-0", "claim-0"), make_pod("other", "claim-0")]}},
    ),
    "a claim is judged as without an inventory": case(make_claim(), "allowed", rules=[]),
    "a slice is told and never refused": case(
        make_slice([make_device("gpu-0", [make_taint(effect="NoExecute", time_added=None)])]),
        "allowed",
        impact={"devices": 1, "pods": 1},
        reasons=[],
        rules=[],
        message="they evict 1 pod",
    ),
    "pods that find no other device": (
        case(
            everywhere(),
            "denied",
            impact={**ALL, "pendingPods": 4},
            reasons=[OVER_PENDING],
            message=f"4 of 4 pods find no other device: 4 need {DRIVER}, 0 free, and the limit is 3 such pods",
        ),
        {"policy": policy(limits=[{"pendingPods": 3}]), "inventory": {"objects": [CLASS, *CLUSTER]}},
    ),
    "without DeviceClasses it is not known whether they find one": (
        case(on(0), "denied", reasons=["unknown:pendingPods"], message="DeviceClasses are not known"),
        {"policy": policy(limits=[{"pendingPods": 0}])},
    ),
    "rules that came before close what pods would find": (
        case(
            on(0), "denied", before=[before(60, on(each, "NoSchedule")) for each in (1, 2, 3)], reasons=[OVER_PENDING]
        ),
        {"policy": policy(limits=[{"pendingPods": 0}]), "inventory": {"objects": [CLASS, *CLUSTER]}},
    ),
    # --- what came before
    "rules of the window add up": case(
        on(0),
        "denied",
        before=[before(120, on(1)), before(60, on(2))],
        impact=NODE,
        reasons=["window:pods"],
        message="of the last 10 min it hits 3 pods",
    ),
    "what is older than the window counts no more": case(
        on(0), "allowed", before=[before(3600, on(1)), before(3600, on(2))], reasons=[]
    ),
    "a stored rule of the window counts": (
        case(on(0), "denied", reasons=["window:pods"]),
        {
            "inventory": {
                "objects": [*CLUSTER, on(1, time=NOW_TEXT), on(2, time=format_time(NOW - timedelta(minutes=3)))]
            }
        },
    ),
    "a rule that moves from node to node empties one after the other": case(
        stored(on(0, name="rule-2")),
        "denied",
        before=[before(90, on(2)), before(60, stored(on(1, name="rule-2")), oldObject=stored(on(2)))],
        oldObject=stored(on(1, name="rule-2")),
        reasons=["window:pods"],
    ),
    "who came before is judged by limits of their own": case(
        on(0), "allowed", OPERATOR, before=[before(60, on(1), DANA)], reasons=[]
    ),
}


@pytest.mark.parametrize("given", PASSING.values(), ids=PASSING)
def test_what_comes_as_expected_passes(given: Any, told: Cases) -> None:
    """A case, and perhaps what its suite has beside it."""
    one, fields = given if isinstance(given, tuple) else (given, {})
    (found,) = told(one, **fields)
    assert found["mismatches"] == [], found["messages"]


@table(
    "one, mismatches",
    {
        "figures and reasons": (
            case(on(0), "denied", impact={"devices": 3, "pods": 1}, reasons=["limit:pods"]),
            [("decision", "denied", "allowed"), ("impact.devices", "3", "2"), ("reasons", "[limit:pods]", "[]")],
        ),
        "what is not measured": (
            case(stored(on(0, time=NOW_TEXT)), "allowed", oldObject=stored(on(0, time=NOW_TEXT)), impact={"pods": 1}),
            [("impact.pods", "1", "not measured")],
        ),
        "a rule before that is refused": (
            case(on(0), "allowed", before=[before(60, everywhere(), DANA)]),
            [
                (
                    "before[0]",
                    "allowed",
                    "denied [spec.deviceSelector: Forbidden: hits 8 devices, 4 pods in 1 namespace: the limit is 2",
                )
            ],
        ),
        "a rule before with a field that is none": (
            case(on(0), "allowed", before=[before(60, {**on(1), "spek": {}})]),
            [("before[0]", "allowed", "denied [spek: Forbidden: unknown field")],
        ),
    },
)
def test_what_comes_otherwise_fails(one: Any, mismatches: Any, told: Cases) -> None:
    (found,) = told(one)
    came = [(each["about"], each["expected"], each["got"]) for each in found["mismatches"]]
    assert [(about, expected) for about, expected, _ in came] == [each[:2] for each in mismatches]
    for (_, _, got), (_, _, start) in zip(came, mismatches, strict=True):
        assert got.startswith(start)


def test_a_case_leaves_nothing_for_the_next(told: Cases) -> None:
    """Its rules, and the old object of an update, are gone, and what stood in the inventory is back."""
    sequence = [before(120, on(1)), before(60, on(2))]
    known = on(3, "NoSchedule", time="2026-05-01T00:00:00Z")
    cases = (
        case(on(0), "denied", name="after others", before=sequence, reasons=["window:pods"]),
        case(on(0), "allowed", name="alone", reasons=[]),
        case(stored(on(3)), "allowed", name="raised", oldObject=stored(on(3, "None", time=NOW_TEXT)), reasons=[]),
        case(on(0), "denied", name="and again", before=sequence, reasons=["window:pods"]),
        case(on(1), "allowed", name="nobody has it", reasons=[]),
    )
    for order in (cases, cases[::-1]):
        found = told(*order, inventory={"objects": [*CLUSTER, known]})
        assert [each["mismatches"] for each in found] == [[]] * len(cases)


def test_a_dump_says_what_inline_objects_say(told: Cases, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    listed = {"apiVersion": "v1", "kind": "List", "items": [*CLUSTER, {"apiVersion": "v1", "kind": "Secret"}]}
    (tmp_path / "dump/all.yaml").write_text(yaml.safe_dump(listed))
    (tmp_path / "more.json").write_text(json.dumps(node(4)[0]))
    one = case(everywhere(), "denied", impact=ALL, reasons=["limit:pods"])
    (inline,), (dump,) = told(one), told(one, inventory={"files": ["dump"]})
    assert {**inline, "line": 0, "messages": []} == {**dump, "line": 0, "messages": []}
    (more,) = told(case(everywhere(), "denied", impact={"devices": 10}), inventory={"files": ["more.json", "dump"]})
    assert more["mismatches"] == []


def test_inline_objects_take_the_place_of_those_in_files(told: Cases, tmp_path: Path) -> None:
    (tmp_path / "dump.yaml").write_text(yaml.safe_dump_all(CLUSTER))
    larger = {
        **CLUSTER[0],
        "spec": {**CLUSTER[0]["spec"], "devices": [make_device(f"gpu-{each}") for each in range(5)]},
    }
    (found,) = told(
        case(on(0), "allowed", impact={"devices": 5}), inventory={"files": ["dump.yaml"], "objects": [larger]}
    )
    assert found["mismatches"] == []


def test_json_has_figures_and_reasons(told: Cases) -> None:
    measured, unmeasured = told(case(everywhere(), "denied"), case(make_claim(), "allowed", name="two"))
    assert {name: measured["impact"][name] for name in ALL} == ALL
    assert measured["reasons"] == ["limit:pods"]
    assert (unmeasured["impact"], unmeasured["reasons"]) == (None, [])


def test_text_tells_the_impact_when_asked(run: Callable[..., Any]) -> None:
    code, output = run("-v", cases=[case(everywhere(), "denied"), case(on(0), "allowed", name="two")])
    assert code == 0
    assert "          impact: 8 devices, 4 claims, 4 pods, 1 namespace; over limit:pods\n" in output
    assert "          impact: 2 devices, 1 claim, 1 pod, 1 namespace\n" in output


def test_junit_tells_what_came_otherwise(run: Callable[..., Any]) -> None:
    code, output = run("-o", "junit", cases=[case(on(0), "allowed", impact={"pods": 7})])
    assert code == 1
    assert "impact.pods: expected 7, got 1" in output


# --- what cannot be run -------------------------------------------------------------------------

MISTYPED = {**CLUSTER[0], "spec": {**CLUSTER[0]["spec"], "driver": 3}}
WRONG = {
    "a kind that no inventory has": (
        {"inventory": {"objects": [{"apiVersion": "v1", "kind": "Secret"}]}},
        's.yaml:\\d+:\\d+: error: inventory.objects\\[0\\].kind: Unsupported value: "Secret": supported values: "Dev',
    ),
    "an object without a version": (
        {"inventory": {"objects": [{"kind": "Pod"}]}},
        r"s.yaml:\d+:\d+: error: inventory.objects\[0\].apiVersion: Required value",
    ),
    "a kind that no inventory has, without a version": (
        {"inventory": {"objects": [{"kind": "Secret"}]}},
        r's.yaml:\d+:\d+: error: inventory.objects\[0\].kind: Unsupported value: "Secret"',
    ),
    "a namespace without a version": (
        {"inventory": {"objects": [{"kind": "Namespace", "metadata": {"name": "x"}}]}},
        r"s.yaml:\d+:\d+: error: inventory.objects\[0\].apiVersion: Required value",
    ),
    "a wrong type in an object": (
        {"inventory": {"objects": [*CLUSTER, MISTYPED]}},
        r"s.yaml:\d+:\d+: error: inventory.objects\[8\].spec.driver: Invalid value: 3",
    ),
    "a field that is none in an object": (
        {"inventory": {"objects": [{**CLUSTER[1], "statuz": {}}]}},
        r"s.yaml:\d+:\d+: error: inventory.objects\[0\].statuz: Forbidden: unknown field",
    ),
    "a file that is not there": (
        {"inventory": {"files": ["gone.yaml"]}},
        "gone.yaml: error: cannot be read: No such file",
    ),
    "a file with other things": (
        {"inventory": {"files": ["other.yaml"]}},
        "other.yaml: error: contains none of DeviceClass, DeviceTaintRule, Namespace, Pod, ResourceClaim",
    ),
    "a wrong type in a file": (
        {"inventory": {"files": ["wrong.yaml"]}},
        r"wrong.yaml:\d+:\d+: error: spec.driver: Invalid value: 3",
    ),
    "a claim before": (
        {"cases": [case(on(0), "allowed", before=[before(3, make_claim())])]},
        r"s.yaml:\d+:\d+: error: cases\[0\].before\[0\]: must be a DeviceTaintRule with a name",
    ),
    "a rule before whose name the server makes": (
        {"cases": [case(on(0), "allowed", before=[before(3, make_rule(meta={"generateName": "a-"}))])]},
        r"s.yaml:\d+:\d+: error: cases\[0\].before\[0\]: must be a DeviceTaintRule with a name",
    ),
    "a rule that is there already": (
        {"cases": [case(on(0), "allowed", before=[before(3, on(0))])]},
        r"s.yaml:\d+:\d+: error: cases\[0\].object: DeviceTaintRule rule-0 already exists; an update needs oldObject",
    ),
    "a rule twice before": (
        {"cases": [case(on(0), "allowed", before=[before(9, on(1)), before(3, on(1))])]},
        r"s.yaml:\d+:\d+: error: cases\[0\].before\[1\].object: DeviceTaintRule rule-1 already exists",
    ),
    "a class with a field of a wrong type": (
        {"inventory": {"objects": [{**CLASS, "spec": {"selectors": "all"}}, *CLUSTER]}},
        r"s.yaml:\d+:\d+: error: inventory.objects\[0\].spec.selectors: Invalid value",
    ),
}


@pytest.mark.parametrize(("fields", "line"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_run_gives_two(fields: Any, line: str, run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("a: b")
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(MISTYPED))
    code, output = run(**{"cases": [case(on(0), "allowed")], **fields})
    assert code == 2
    assert [each for each in output.splitlines() if re.match(line, each)] != [], output


@pytest.mark.parametrize("words", [("-v",), ("-o", "json"), ("-o", "yaml"), ("-o", "junit")], ids=" ".join)
def test_what_refuses_nothing_is_not_called_forbidden(words: tuple[str, ...], run: Callable[..., Any]) -> None:
    """Figures of a taint within its limits, and of one that a policy in mode warn would refuse."""
    within, over = case(on(0), "allowed"), case(everywhere(), "warned", reasons=["limit:pods"])
    for each, policies in ((within, {}), (over, {"policy": policy(mode="warn")})):
        code, output = run(*words, cases=[each], **policies)
        assert (code, "Forbidden" in output) == (0, False), output
        assert "spec.deviceSelector: " in output


def test_what_refuses_is_called_forbidden(run: Callable[..., Any]) -> None:
    _, output = run("-v", cases=[case(everywhere(), "denied")])
    assert "message: spec.deviceSelector: Forbidden: hits 8 devices" in output


def test_pending_pods_are_counted_by_classes_in_files_too(told: Cases, tmp_path: Path) -> None:
    (tmp_path / "dump.yaml").write_text(yaml.safe_dump_all([CLASS, *CLUSTER]))
    given = {"policy": policy(limits=[{"pendingPods": 0}]), "inventory": {"files": ["dump.yaml"]}}
    (found,) = told(case(everywhere(), "denied", impact={"pendingPods": 4}, reasons=[OVER_PENDING]), **given)
    assert found["mismatches"] == [], found["messages"]


# --- rules that the policy softens --------------------------------------------------------------

SOFT = {"requesters": {"serviceAccounts": ["health/operator"]}, "action": "soften", "pods": 2}
LIMITS = [SOFT, {"pods": 2}]
ALWAYS = [{**SOFT, "soften": "always"}, {"pods": 2}]


@table(
    "asked, limits",
    {
        "over": (case(everywhere(), "warned", OPERATOR, softened=True, reasons=["limit:pods"]), LIMITS),
        "within": (case(on(0), "allowed", OPERATOR, softened=False, reasons=[]), LIMITS),
        "always": (case(on(0), "warned", OPERATOR, softened=True, reasons=[], message="every such rule"), ALWAYS),
        "others": (case(everywhere(), "denied", DANA, softened=False), ALWAYS),
        "with others": (
            case(
                on(2),
                "warned",
                OPERATOR,
                softened=True,
                reasons=["window:pods"],
                before=[before(20, on(0)), before(10, on(1))],
            ),
            LIMITS,
        ),
    },
)
def test_suite_says_what_is_softened(asked: Any, limits: Any, told: Cases) -> None:
    (found,) = told(asked, policy=policy(limits=limits))
    assert found["mismatches"] == []
    softened = asked["expect"]["softened"]
    (found,) = told({**asked, "expect": {**asked["expect"], "softened": not softened}}, policy=policy(limits=limits))
    (mismatch,) = found["mismatches"]
    assert mismatch == {"about": "softened", "expected": str(not softened).lower(), "got": str(softened).lower()}
