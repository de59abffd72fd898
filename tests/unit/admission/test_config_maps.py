"""The ConfigMap of the policy; what is wrong with documents is asked in tests/unit/policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import make_context
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


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("a: [", id="no YAML"),
        pytest.param("[]", id="no object"),
        pytest.param(GOOD + "---\n" + GOOD, id="two documents"),
        pytest.param(GOOD + "mode: warn\nmode: off\n", id="a key twice"),
        pytest.param("a: &a [*a]", id="an alias of itself"),
        pytest.param("{" * 5000, id="very deep"),
    ],
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


@pytest.mark.parametrize(
    ("new", "old", "denied"),
    [
        pytest.param(config_map({"policy.yaml": BAD}), config_map({"policy.yaml": BAD}), False, id="nothing changed"),
        pytest.param(
            config_map({"policy.yaml": BAD, "notes": "x"}),
            config_map({"policy.yaml": BAD}),
            False,
            id="another key did",
        ),
        pytest.param(config_map({"policy.yaml": BAD}), config_map({"policy.yaml": GOOD}), True, id="it changed"),
        pytest.param(config_map({"policy.yaml": BAD}), config_map(), True, id="it came"),
        pytest.param(
            config_map({"policy.yaml": BAD}), config_map({"candidate.yaml": BAD}), True, id="it was a candidate"
        ),
        pytest.param(
            config_map({"policy.yaml": GOOD, "candidate.yaml": BAD}),
            config_map({"policy.yaml": GOOD, "candidate.yaml": GOOD}),
            True,
            id="the candidate changed",
        ),
        pytest.param(
            config_map({"policy.yaml": GOOD}, binaryData={"policy.yaml": "eA=="}),
            config_map({"policy.yaml": GOOD}, binaryData={"policy.yaml": "eA=="}),
            False,
            id="binary data was there before",
        ),
    ],
)
def test_what_an_update_left_alone_is_not_judged_again(new: Any, old: Any, denied: bool) -> None:  # noqa: FBT001 -- a table's
    assert judged(new, old).allowed is not denied


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param(
            config_map({"policy.yaml": GOOD}, binaryData={"candidate.yaml": "eA=="}),
            ["deny FieldValueForbidden binaryData[candidate.yaml]"],
            id="binary data",
        ),
        pytest.param(config_map({"policy.yaml": 1}), ["deny FieldValueTypeInvalid data[policy.yaml]"], id="a number"),
        pytest.param(config_map({"other": "x"}), ["deny FieldValueRequired data[policy.yaml]"], id="no policy"),
        pytest.param(
            config_map({"candidate.yaml": GOOD}), ["deny FieldValueRequired data[policy.yaml]"], id="only a candidate"
        ),
        pytest.param(config_map(), ["deny FieldValueRequired data[policy.yaml]"], id="no data"),
        pytest.param(config_map([]), ["deny FieldValueRequired data[policy.yaml]"], id="data that is a list"),
        pytest.param({}, ["deny FieldValueRequired data[policy.yaml]"], id="nothing at all"),
        pytest.param(
            config_map(binaryData={"policy.yaml": "eA=="}),
            ["deny FieldValueForbidden binaryData[policy.yaml]"],
            id="the policy as binary data",
        ),
        pytest.param(
            config_map({"policy.yml": GOOD}), ["deny FieldValueForbidden data[policy.yml]"], id="a misspelt key"
        ),
        pytest.param(
            config_map({"notes": "x"}, binaryData={"Policy.YAML": "eA=="}),
            ["deny FieldValueForbidden binaryData[Policy.YAML]"],
            id="a misspelt key of binary data",
        ),
    ],
)
def test_config_map_of_another_form(manifest: Any, expected: list[str]) -> None:
    assert told(judged(manifest)) == expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(config_map({"policy.yml": GOOD}), "deny FieldValueForbidden data[policy.yml]", id="renamed"),
        pytest.param(config_map({}), "deny FieldValueRequired data[policy.yaml]", id="removed"),
        pytest.param(
            config_map(binaryData={"policy.yaml": "eA=="}),
            "deny FieldValueForbidden binaryData[policy.yaml]",
            id="made binary",
        ),
    ],
)
def test_update_that_loses_the_policy_is_refused(new: Any, expected: str) -> None:
    """F11: stored all the same, it would be a broken policy."""
    assert told(judged(new, config_map({"policy.yaml": GOOD}))) == [expected]


def test_update_that_drops_a_policy_in_binary_data_is_refused() -> None:
    """F11: it was a broken policy before, and is one still."""
    before = config_map({}, binaryData={"policy.yaml": "eA=="})
    assert told(judged(config_map({}), before)) == ["deny FieldValueRequired data[policy.yaml]"]


def test_config_map_that_had_no_policy_before_can_be_labelled_and_is_warned_of_at_other_changes() -> None:
    before = config_map({"notes": "x"})
    assert judged({**before, "metadata": {"name": "policy", "labels": {"a": "b"}}}, before).findings == ()
    decision = judged(config_map({"notes": "x", "policy.yml": GOOD}), before)
    assert (told(decision), decision.allowed) == (["warn FieldValueForbidden data[policy.yml]"], True)


def test_message_names_the_key_that_was_meant() -> None:
    decision = judged(config_map({"policy.yml": GOOD}))
    assert [str(error) for error in decision.errors] == [
        'data[policy.yml]: Forbidden: unknown key, did you mean "policy.yaml"?'
    ]


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
