"""The ConfigMap of the policy; what is wrong with documents is asked in tests/unit/policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import make_context
from tests.tables import table
from webhook.admission.chain import mutate, validate
from webhook.admission.config_maps import CONFIG_MAPS
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.review import AdmissionRequest
from webhook.commands.shared.policy_files import read_policy

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

GOOD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
ADVISED = GOOD + "rules: [{name: a, action: deny}, {name: b, action: deny}]\n"
BAD = GOOD + "mode: strict\n"


def config_map(data: Any = None, **fields: Any) -> Any:
    given = {} if data is None else {"data": data}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policy"}, **given, **fields}


def judged(new: Any, old: Any = None, *, operation: str = "", context: Any = None, **fields: Any) -> Decision:
    operation = operation or ("CREATE" if old is None else "UPDATE")
    request = AdmissionRequest("uid", operation, CONFIG_MAPS, object=new, old_object=old, **fields)
    return validate(request, context or make_context(read_policy=read_policy))


def told(decision: Decision) -> list[str]:
    return [
        f"{finding.severity} {finding.code or finding.error.type.value} {finding.error.path}"
        for finding in decision.findings
    ]


@pytest.mark.parametrize("key", ["policy.yaml", "candidate.yaml"])
def test_document_with_a_fault_is_refused_at_its_path(key: str) -> None:
    decision = judged(config_map({"policy.yaml": GOOD, key: BAD}))
    assert told(decision) == [f"deny FieldValueNotSupported data[{key}].mode"]
    assert (decision.code, decision.annotations) == (422, {"decision": "denied", "rules": "field"})


@pytest.mark.parametrize("key", ["policy.yaml", "candidate.yaml"])
@pytest.mark.parametrize("switch", ["mode: off", "mode: Off", "mode: 'off'", "documentedRules: off"])
def test_unquoted_off_is_accepted_in_a_config_map(key: str, switch: str) -> None:
    """R6: the emergency switch."""
    assert judged(config_map({"policy.yaml": GOOD, key: f"{GOOD}{switch}\n"})).findings == ()


@pytest.mark.parametrize("key", ["policy.yaml", "candidate.yaml"])
def test_word_that_yaml_reads_as_a_boolean_is_named_in_the_refusal_of_a_config_map(key: str) -> None:
    """R6's siblings."""
    decision = judged(
        config_map({"policy.yaml": GOOD, key: f"{GOOD}default: no\nrules: [{{name: on, action: deny}}]\n"})
    )
    assert [error.detail.rpartition("; ")[2] for error in decision.errors] == [
        "YAML reads an unquoted no as false",
        'YAML reads an unquoted on as true: write "on" in quotes',
    ]


@table(
    "text",
    {
        "nothing": "",
        "no YAML": "a: [",
        "no object": "[]",
        "two documents": GOOD + "---\n" + GOOD,
        "a key twice": GOOD + "mode: warn\nmode: off\n",
        "an alias of itself": "a: &a [*a]",
        "very deep": "{" * 5000,
    },
)
def test_text_that_is_no_document_is_refused(text: str) -> None:
    decision = judged(config_map({"policy.yaml": text}))
    assert decision.code == 422
    assert all(str(error.path).startswith("data[policy.yaml]") for error in decision.errors)


def test_good_document_passes_and_advice_is_given() -> None:
    assert judged(config_map({"policy.yaml": GOOD})).findings == ()
    decision = judged(config_map({"policy.yaml": ADVISED}))
    assert decision.allowed
    assert "warn DT101 data[policy.yaml].rules[1]" in told(decision)
    assert decision.annotations["decision"] == "warned"


@table(
    "new, old, denied",
    {
        "nothing changed": (config_map({"policy.yaml": BAD}), config_map({"policy.yaml": BAD}), False),
        "another key did": (config_map({"policy.yaml": BAD, "notes": "x"}), config_map({"policy.yaml": BAD}), False),
        "it changed": (config_map({"policy.yaml": BAD}), config_map({"policy.yaml": GOOD}), True),
        "it came": (config_map({"policy.yaml": BAD}), config_map(), True),
        "it was a candidate": (config_map({"policy.yaml": BAD}), config_map({"candidate.yaml": BAD}), True),
        "the candidate changed": (
            config_map({"policy.yaml": GOOD, "candidate.yaml": BAD}),
            config_map({"policy.yaml": GOOD, "candidate.yaml": GOOD}),
            True,
        ),
        "binary data was there before": (
            config_map({"policy.yaml": GOOD}, binaryData={"policy.yaml": "eA=="}),
            config_map({"policy.yaml": GOOD}, binaryData={"policy.yaml": "eA=="}),
            False,
        ),
    },
)
def test_what_an_update_left_alone_is_not_judged_again(new: Any, old: Any, *, denied: bool) -> None:
    assert judged(new, old).allowed is not denied


@table(
    "manifest, expected",
    {
        "binary data": (
            config_map({"policy.yaml": GOOD}, binaryData={"candidate.yaml": "eA=="}),
            ["deny FieldValueForbidden binaryData[candidate.yaml]"],
        ),
        "a number": (config_map({"policy.yaml": 1}), ["deny FieldValueTypeInvalid data[policy.yaml]"]),
        "no policy": (config_map({"other": "x"}), ["deny FieldValueRequired data[policy.yaml]"]),
        "only a candidate": (config_map({"candidate.yaml": GOOD}), ["deny FieldValueRequired data[policy.yaml]"]),
        "no data": (config_map(), ["deny FieldValueRequired data[policy.yaml]"]),
        "data that is a list": (config_map([]), ["deny FieldValueRequired data[policy.yaml]"]),
        "nothing at all": ({}, ["deny FieldValueRequired data[policy.yaml]"]),
        "the policy as binary data": (
            config_map(binaryData={"policy.yaml": "eA=="}),
            ["deny FieldValueForbidden binaryData[policy.yaml]"],
        ),
        "a misspelt key": (config_map({"policy.yml": GOOD}), ["deny FieldValueForbidden data[policy.yml]"]),
        "a misspelt key of binary data": (
            config_map({"notes": "x"}, binaryData={"Policy.YAML": "eA=="}),
            ["deny FieldValueForbidden binaryData[Policy.YAML]"],
        ),
    },
)
def test_config_map_of_another_form(manifest: Any, expected: list[str]) -> None:
    assert told(judged(manifest)) == expected


STORED = config_map({"policy.yaml": GOOD})
BINARY = {"policy.yaml": "eA=="}


@table(
    "new, old, expected",
    {
        "renamed": (config_map({"policy.yml": GOOD}), STORED, "deny FieldValueForbidden data[policy.yml]"),
        "removed": (config_map({}), STORED, "deny FieldValueRequired data[policy.yaml]"),
        "made binary": (config_map(binaryData=BINARY), STORED, "deny FieldValueForbidden binaryData[policy.yaml]"),
        "removed from binary data": (
            *(config_map({}), config_map({}, binaryData=BINARY), "deny FieldValueRequired data[policy.yaml]"),
        ),
    },
)
def test_update_that_loses_the_policy_is_refused(new: Any, old: Any, expected: str) -> None:
    """F11: stored all the same, it would be a broken policy, or go on being one."""
    assert told(judged(new, old)) == [expected]


def test_config_map_that_had_no_policy_before_can_be_labelled_and_is_warned_of_at_other_changes() -> None:
    before = config_map({"notes": "x"})
    assert judged({**before, "metadata": {"name": "policy", "labels": {"a": "b"}}}, before).findings == ()
    decision = judged(config_map({"notes": "x", "policy.yml": GOOD}), before)
    assert (told(decision), decision.allowed) == (["warn FieldValueForbidden data[policy.yml]"], True)


def test_other_operations_are_none_of_ours() -> None:
    for operation in ("DELETE", "CONNECT"):
        assert judged(None, config_map({"policy.yaml": BAD}), operation=operation).findings == ()
    assert judged(config_map({"policy.yaml": BAD}), sub_resource="status").findings == ()


def test_request_that_makes_no_sense_is_a_bad_one() -> None:
    assert judged(None).code == 400
    assert judged(config_map(), problems=("request.kind: Invalid value",)).code == 400


def test_without_a_reader_nothing_is_judged_and_that_is_told() -> None:
    decision = judged(config_map({"policy.yaml": BAD}), context=make_context())
    assert told(decision) == ["warn FieldValueForbidden data[policy.yaml]"]


def test_reading_stops_when_time_is_out() -> None:
    ticks = iter(range(10_000))
    context = make_context(read_policy=read_policy, budget=Budget(5, lambda: float(next(ticks))))
    with pytest.raises(OutOfTime):
        judged(config_map({"policy.yaml": ADVISED}), context=context)


def test_mutate_leaves_config_maps_alone() -> None:
    request = AdmissionRequest("uid", "CREATE", CONFIG_MAPS, object=config_map({"policy.yaml": BAD}))
    decision = mutate(request, make_context(read_policy=read_policy))
    assert (decision.allowed, decision.patch) == (True, ())
