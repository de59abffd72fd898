"""The format of test suites: what is read, what is refused, and the schema that says the same."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.builders import NOW, NOW_TEXT
from tests.tables import table
from webhook.api.taints import DeviceToleration
from webhook.policy.match import Requester
from webhook.policy.suites import FIELDS, Expectation, InventorySource, Suite, Word, read_suite

ROOT = Path(__file__).parents[3]
SCHEMA: dict[str, Any] = json.loads((ROOT / "webhook/policy/suite.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
OBJECT = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
DANA = {"username": "dana", "groups": ["a"]}


def make_case(**fields: Any) -> dict[str, Any]:
    case = {"name": "one", "object": OBJECT, "requester": DANA, "expect": {"decision": "allowed"}, **fields}
    return {name: value for name, value in case.items() if value is not None}


def make_suite(*cases: Any, **fields: Any) -> dict[str, Any]:
    suite = {
        "apiVersion": "policy.devicetaint.io/v1alpha1",
        "kind": "DeviceTaintPolicyTest",
        "metadata": {"name": "ours"},
        "policy": "policy.yaml",
        "cases": list(cases) or [make_case()],
        **fields,
    }
    return {name: value for name, value in suite.items() if value is not None}


def suite_of(document: Any) -> Suite:
    suite, errors = read_suite(document)
    assert [str(error) for error in errors] == []
    assert suite is not None
    return suite


def errors_of(document: Any) -> list[str]:
    suite, errors = read_suite(document)
    assert (suite is None) == bool(errors)
    return [str(error) for error in errors]


def make_step(**fields: Any) -> dict[str, Any]:
    step = {"secondsAgo": 60, "object": OBJECT, "requester": DANA, **fields}
    return {name: value for name, value in step.items() if value is not None}


def with_steps(*steps: Any, **fields: Any) -> dict[str, Any]:
    return make_suite(make_case(before=list(steps), time=NOW_TEXT), inventory={"files": ["dump"]}, **fields)


FULL = make_suite(
    make_case(
        name="full",
        oldObject=OBJECT,
        operation="UPDATE",
        time=NOW_TEXT,
        expect={
            "decision": "warned",
            "rules": ["a", "b"],
            "message": "text",
            "field": "spec",
            "defaulted": [{"key": "x/y", "effect": "NoExecute", "tolerationSeconds": 3}],
            "impact": {"devices": 4, "pods": 0},
            "reasons": ["limit:devices"],
        },
        before=[
            {"secondsAgo": 60, "object": OBJECT, "requester": DANA},
            {"secondsAgo": 0, "file": "r.yaml", "oldObject": OBJECT, "operation": "UPDATE"},
        ],
    ),
    make_case(name="generated", requester=None, author={"serviceAccount": "ci/runner"}, object=None, file="c.yaml"),
    make_case(name="by default", requester=None, expect={"decision": "denied", "rules": [], "defaulted": []}),
    namespaces={"ml": {"labels": {"tier": "batch"}}, "bare": {}, "null": None},
    deviceClasses={"gpu": ["gpu.example.com"], "any": None, "none": []},
    defaults={"requester": {"serviceAccount": "ns/default"}, "namespace": "ml", "time": "2026-01-01T00:00:00Z"},
    inventory={"objects": [OBJECT], "files": ["dump"]},
)


def test_every_field_is_read() -> None:
    suite = suite_of(FULL)
    assert (suite.name, suite.policy, suite.namespace) == ("ours", "policy.yaml", "ml")
    assert suite.namespaces == {"ml": {"tier": "batch"}, "bare": {}, "null": {}}
    assert suite.device_classes == {"gpu": frozenset({"gpu.example.com"}), "any": None, "none": frozenset()}
    full, generated, default = suite.cases
    assert (full.operation, full.old_object, full.time, str(full.path)) == ("UPDATE", OBJECT, NOW, "cases[0]")
    assert full.expect == Expectation(
        Word.WARNED,
        frozenset({"a", "b"}),
        "text",
        "spec",
        (DeviceToleration("x/y", "Equal", effect="NoExecute", toleration_seconds=3),),
        {"devices": 4, "pods": 0},
        frozenset({"limit:devices"}),
    )
    created, updated = full.before
    assert (str(created.path), created.seconds_ago, created.object) == ("cases[0].before[0]", 60, OBJECT)
    assert created.requester == full.requester
    assert (updated.seconds_ago, updated.file, updated.old_object, updated.operation) == (0, "r.yaml", OBJECT, "UPDATE")
    assert updated.requester == default.requester
    assert suite.inventory == InventorySource((OBJECT,), ("dump",))
    assert (generated.file, generated.requester) == ("c.yaml", None)
    assert default.requester is not None
    assert default.requester.service_account == "ns/default"
    assert default.expect == Expectation(Word.DENIED, frozenset(), defaulted=())
    assert default.time is not None
    assert default.time.year == 2026


def test_step_may_be_a_week_before_the_case_and_as_old_as_the_one_before() -> None:
    week = make_step(secondsAgo=604800)
    assert errors_of(with_steps(week, week, make_step(secondsAgo=0))) == []


def test_requesters_are_in_the_groups_that_an_api_server_adds() -> None:
    suite = suite_of(
        make_suite(
            make_case(name="user"),
            make_case(name="account", requester={"serviceAccount": "ci/runner", "groups": ["x"]}),
            make_case(name="nobody", requester={"username": "system:anonymous"}),
            make_case(name="account by its name", requester={"username": "system:serviceaccount:ci:runner"}),
        )
    )
    accounts = ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated")
    assert [case.requester for case in suite.cases] == [
        Requester("dana", ("a", "system:authenticated")),
        Requester("system:serviceaccount:ci:runner", ("x", *accounts)),
        Requester("system:anonymous", ("system:unauthenticated",)),
        Requester("system:serviceaccount:ci:runner", accounts),
    ]


def test_a_policy_may_stand_in_the_suite() -> None:
    assert suite_of(make_suite(policy={"kind": "x"})).policy == {"kind": "x"}


OF_A_CASE: dict[str, tuple[Any, str]] = {
    "unknown field of a case": ({"user": "x"}, "user: Forbidden: unknown field"),
    "unknown field of expect": (
        {"expect": {"decision": "denied", "rule": "a"}},
        "expect.rule: Forbidden: unknown field",
    ),
    "unknown field of a toleration": (
        {"expect": {"decision": "denied", "defaulted": [{"seconds": 3}]}},
        "expect.defaulted[0].seconds: Forbidden: unknown field",
    ),
    "a case without name": ({"name": None}, "name: Required value"),
    "neither object nor file": ({"object": None}, "object: Required value: either object"),
    "object and file": ({"file": "x"}, "object: Required value: either object or file"),
    "an object of another type": ({"object": [1]}, "object: Invalid value"),
    "an update without old object": ({"operation": "UPDATE"}, "oldObject: Required value: must be given for UPDATE"),
    "a creation with old object": (
        {"operation": "CREATE", "oldObject": OBJECT},
        "oldObject: Required value: has a meaning for UPDATE only",
    ),
    "another operation": ({"operation": "DELETE"}, 'operation: Unsupported value: "DELETE"'),
    "nobody asks": ({"requester": None}, "requester: Required value: must be given here or"),
    "a requester without name": (
        {"requester": {"groups": []}},
        "requester.username: Required value: either username or serviceAccount",
    ),
    "a requester with two names": (
        {"requester": {"username": "a", "serviceAccount": "a/b"}},
        "requester.username: Required value: either username or serviceAccount",
    ),
    "an account without namespace": (
        {"requester": {"serviceAccount": "runner"}},
        'requester.serviceAccount: Invalid value: "runner": must be namespace/name',
    ),
    "an account with an empty namespace": (
        {"requester": {"serviceAccount": "/runner"}},
        'requester.serviceAccount: Invalid value: "/runner": must be namespace/name',
    ),
    "an account without name": (
        {"requester": {"serviceAccount": "ci/"}},
        'requester.serviceAccount: Invalid value: "ci/": must be namespace/name',
    ),
    "an account of three parts": (
        {"requester": {"serviceAccount": "ci/runner/x"}},
        'requester.serviceAccount: Invalid value: "ci/runner/x": must be namespace/name',
    ),
    "no expectation": ({"expect": None}, "expect: Required value"),
    "no decision": ({"expect": {}}, 'expect.decision: Unsupported value: ""'),
    "another decision": (
        {"expect": {"decision": "no"}},
        'expect.decision: Unsupported value: "no": supported values: "allowed", "denied", "warned"',
    ),
    "a time that is none": ({"time": "noon"}, 'time: Invalid value: "noon"'),
    "an impact of nothing": (
        {"expect": {"decision": "denied", "impact": {"pods": 1}}},
        "expect.impact: Forbidden: needs an inventory in the suite",
    ),
    "reasons without inventory": (
        {"expect": {"decision": "denied", "reasons": []}},
        "expect.reasons: Forbidden: needs an inventory in the suite",
    ),
    "softening without inventory": (
        {"expect": {"decision": "warned", "softened": False}},
        "expect.softened: Forbidden: needs an inventory in the suite",
    ),
    "rules before without inventory": ({"before": [make_step()]}, "before: Forbidden: needs an inventory in the suite"),
    "a figure that is none": (
        {"expect": {"decision": "denied", "impact": {"nodes": 1}}},
        "expect.impact.nodes: Forbidden: unknown field; known are claims, devices, namespaces, pendingPods, pods",
    ),
    "a figure below nothing": (
        {"expect": {"decision": "denied", "impact": {"pods": -1}}},
        "expect.impact.pods: Invalid value: -1: must be 0 or more",
    ),
}
OF_A_STEP: dict[str, tuple[Any, str]] = {
    "a rule before at no time": (
        {"secondsAgo": None},
        "secondsAgo: Required value: seconds before the time of the case",
    ),
    "a rule before that comes after": (
        {"secondsAgo": -1},
        "secondsAgo: Invalid value: -1: must be between 0 and 604800 (a week)",
    ),
    "a rule before of another age": ({"secondsAgo": 604801}, "secondsAgo: Invalid value: 604801: must be between"),
    "a rule before without object": ({"object": None}, "object: Required value: either object or file must be given"),
    "a rule before that nobody sends": (
        {"requester": None},
        "requester: Required value: must be given here or in defaults",
    ),
    "an unknown field of a rule before": ({"expect": {}}, "expect: Forbidden: unknown field"),
}
WRONG: dict[str, tuple[Any, str]] = {
    "no object": ([], "Invalid value"),
    "another version": (make_suite(apiVersion="v1"), 'apiVersion: Unsupported value: "v1"'),
    "no policy": (make_suite(policy=None), "policy: Required value: the name of a file, or the policy itself"),
    "a policy without name": (make_suite(policy=""), "policy: Required value"),
    "a policy of another type": (make_suite(policy=3), "policy: Required value"),
    "no cases": (make_suite(cases=[]), "cases: Required value: must have at least one entry"),
    "unknown field": (make_suite(defaultz={}), "defaultz: Forbidden: unknown field; known are apiVersion"),
    "unknown field of a namespace": (make_suite(namespaces={"a": {"label": {}}}), "namespaces[a].label: Forbidden"),
    "a name twice": (make_suite(make_case(), make_case()), 'cases[1].name: Duplicate value: "one"'),
    "an inventory of nothing": (
        make_suite(inventory={"objects": []}, defaults={"time": NOW_TEXT}),
        "inventory.objects: Required value: objects or files must be given",
    ),
    "an unknown field of an inventory": (
        make_suite(inventory={"files": ["a"], "dump": "b"}),
        "inventory.dump: Forbidden: unknown field; known are files, objects",
    ),
    "an object that is none": (make_suite(inventory={"objects": ["a"]}), "inventory.objects[0]: Invalid value"),
    "a file without name": (make_suite(inventory={"files": ["a", ""]}), "inventory.files[1]: Required value"),
    "an impact at no time": (
        make_suite(inventory={"files": ["dump"]}),
        "cases[0].time: Required value: must be given here or in defaults: an impact depends on it",
    ),
    "rules before out of order": (
        with_steps(make_step(secondsAgo=1), make_step(secondsAgo=2)),
        "cases[0].before[1].secondsAgo: Invalid value: 2: must not be more than that of the entry before",
    ),
    "drivers of another type": (make_suite(deviceClasses={"a": "b"}), 'deviceClasses.a: Invalid value: "b"'),
    **{name: (make_suite(make_case(**fields)), f"cases[0].{error}") for name, (fields, error) in OF_A_CASE.items()},
    **{
        name: (with_steps(make_step(**fields)), f"cases[0].before[0].{error}")
        for name, (fields, error) in OF_A_STEP.items()
    },
}


@pytest.mark.parametrize(("document", "error"), WRONG.values(), ids=WRONG)
def test_mistakes_are_told_at_their_paths(document: Any, error: str) -> None:
    assert [each for each in errors_of(document) if each.startswith(error)] != [], errors_of(document)


@table(
    "seconds, wrong",
    {
        "more than the one before, and less than the first": ([9, 5, 7], [2]),
        "behind one that does not say": ([None, 60, 60], [0]),
        "behind one that says nonsense": ([60, -1, 60], [1]),
        "more than the last that says it": ([60, None, 61], [1, 2]),
        "less than one that is out of order": ([5, 7, 6], [1]),
    },
)
def test_step_is_compared_with_the_last_one_that_says_its_time(seconds: list[int | None], wrong: list[int]) -> None:
    errors = errors_of(with_steps(*[make_step(secondsAgo=each) for each in seconds]))
    assert [error.partition(":")[0] for error in errors] == [f"cases[0].before[{at}].secondsAgo" for at in wrong]


@table(
    "requester, text",
    {
        "left empty": ({"requester": None}, "Required value: must be given here or in defaults"),
        "of another type": ({"requester": "dana"}, 'Invalid value: "dana": must be an object'),
    },
)
def test_requester_is_told_once_whatever_stands_in_its_place(requester: Any, text: str) -> None:
    """Without a requester a case would be judged as a request of the resource-claim controller."""
    case = make_case(requester=None) | requester
    errors = errors_of(make_suite(case))
    assert [error.startswith(f"cases[0].requester: {text}") for error in errors] == [True]
    errors = errors_of(with_steps(make_step(requester=None) | requester))
    assert [error.startswith(f"cases[0].before[0].requester: {text}") for error in errors] == [True]


def test_requester_that_is_left_empty_is_that_of_the_defaults() -> None:
    (case,) = suite_of(make_suite(make_case(requester=None) | {"requester": None}, defaults={"requester": DANA})).cases
    assert case.requester == Requester("dana", ("a", "system:authenticated"))


def test_inventory_is_missed_by_each_case_that_needs_one() -> None:
    needs = {"decision": "denied", "impact": {"pods": 1}}
    suite = make_suite(make_case(expect=needs), make_case(name="two"), make_case(name="three", expect=needs))
    text = "expect.impact: Forbidden: needs an inventory in the suite"
    assert errors_of(suite) == [f"cases[0].{text}", f"cases[2].{text}"]
    suite["inventory"] = {"files": ["dump"]}
    text = "time: Required value: must be given here or in defaults: an impact depends on it"
    assert errors_of(suite) == [f"cases[{position}].{text}" for position in range(3)]


# --- the schema ---------------------------------------------------------------------------------

NOT_IN_SCHEMA = {
    "a name twice",
    "an update without old object",
    "a creation with old object",
    "nobody asks",
    "a time that is none",
    "an impact at no time",
    "an impact of nothing",
    "reasons without inventory",
    "softening without inventory",
    "rules before without inventory",
    "rules before out of order",
    "a rule before that nobody sends",
}
"""What a schema cannot say, or (formats) does not have to."""


def test_the_published_schema_is_that_of_the_package() -> None:
    assert (ROOT / "docs/suite.schema.json").read_bytes() == (ROOT / "webhook/policy/suite.schema.json").read_bytes()


def test_the_schema_is_one_and_takes_what_is_read() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert list(VALIDATOR.iter_errors(FULL)) == []
    assert list(VALIDATOR.iter_errors(make_suite())) == []


@pytest.mark.parametrize("name", sorted(WRONG.keys() - NOT_IN_SCHEMA))
def test_the_schema_refuses_what_is_refused(name: str) -> None:
    assert list(VALIDATOR.iter_errors(WRONG[name][0])) != []


def test_the_schema_has_the_fields_that_are_read() -> None:
    definitions = SCHEMA["$defs"]
    properties = {
        "suite": SCHEMA,
        "defaults": SCHEMA["properties"]["defaults"],
        "namespace": SCHEMA["properties"]["namespaces"]["additionalProperties"],
        "inventory": SCHEMA["properties"]["inventory"],
        "case": definitions["case"],
        "step": definitions["step"],
        "requester": definitions["requester"],
        "expect": definitions["expect"],
        "impact": definitions["expect"]["properties"]["impact"],
        "toleration": definitions["expect"]["properties"]["defaulted"]["items"],
    }
    assert {name: frozenset(each["properties"]) for name, each in properties.items()} == FIELDS


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [way]
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for step, below in entries:
            found += places(below, (*way, step))
    return found


@given(way=st.sampled_from(places(FULL)[1:]), value=st.sampled_from([None, 3, "x", [], {}, [3], {"x": 1}, True, ""]))
def test_whatever_stands_anywhere_is_read_or_told(way: tuple[Any, ...], value: Any) -> None:
    """And what is read, the schema takes: nulls apart, which Kubernetes' objects may have anywhere."""
    document = deepcopy(FULL)
    at: Any = document
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = value
    suite, errors = read_suite(document)
    assert (suite is None) == bool(errors)
    if suite is not None and value is not None and value != "":
        assert [error.message for error in VALIDATOR.iter_errors(document)] == []


@pytest.mark.parametrize(
    ("year", "good"), [("0001", False), ("1969", False), ("1970", True), ("9000", True), ("9001", False)]
)
def test_times_leave_room_for_the_steps_before_and_what_comes_after(year: str, good: bool) -> None:  # noqa: FBT001
    time = f"{year}-06-01T12:00:00Z"
    for at, suite in {
        "defaults": make_suite(defaults={"time": time}),
        "cases[0]": make_suite(make_case(time=time)),
    }.items():
        told = f'{at}.time: Invalid value: "{time}": must be a time between 1970 and 9000'
        assert errors_of(suite) == ([] if good else [told])
