from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from tests.architecture.policy_reference import PUBLISHED, REFERENCE, SHIPPED, reference
from tests.tables import table
from tests.unit.policy.documents import AT, errors_in, errors_of, make_document, make_entry, make_exception
from webhook.files.yaml_documents import _WORDS
from webhook.policy.document import duration_seconds, share
from webhook.policy.model import Action, InTreeEvictor, Policy, PolicyMode, Subject, UnknownAuthor
from webhook.policy.schema import _PLAIN, schema, schema_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

# The documentation and earlier policies rely on these numbers, so they are written out.
MAX_DEPTH = 16
MAX_VALUES = 100_000


def subschemas(value: Any) -> Iterator[dict[str, Any]]:
    """Every schema in the schema, the whole one included."""
    if not isinstance(value, dict):
        return
    yield value
    for key in ("items", "additionalProperties", "propertyNames"):
        yield from subschemas(value.get(key))
    for key in ("properties", "$defs"):
        for below in value.get(key, {}).values():
            yield from subschemas(below)


# --- the schema itself --------------------------------------------------------------------------


def test_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())


def test_every_object_is_closed() -> None:
    objects = [each for each in subschemas(schema()) if each.get("type") == "object"]
    assert len(objects) > 20
    assert all(each["additionalProperties"] is False or "propertyNames" in each for each in objects)


def test_everything_has_a_bound() -> None:
    bounds = {"string": "maxLength", "array": "maxItems", "integer": "maximum", "number": "maximum"}
    unbounded = [
        each
        for each in subschemas(schema())
        for kind in ([each["type"]] if isinstance(each.get("type"), str) else each.get("type", []))
        if kind in bounds and bounds[kind] not in each and "enum" not in each
    ]
    assert unbounded == []


def test_every_field_is_described() -> None:
    for each in subschemas(schema()):
        for name, field in each.get("properties", {}).items():
            assert field.get("description") or "$ref" in field, name
    assert all(each["title"] and each["description"] for each in schema()["$defs"].values())


def test_every_keyword_has_its_words() -> None:
    structure = {"$schema", "$defs", "$ref", "title", "description", "properties", "items", "propertyNames", "default"}
    structure |= {"examples", "format", "x-must", "x-misplaced"}
    told_apart = {"type", "required", "additionalProperties", "pattern", "enum"}
    keywords = {keyword for each in subschemas(schema()) for keyword in each} - structure - told_apart
    assert keywords <= set(_PLAIN)
    assert all("x-must" in each for each in subschemas(schema()) if "pattern" in each)


def test_published_schema_is_the_one_that_ships() -> None:
    assert PUBLISHED.read_bytes() == SHIPPED.read_bytes()


def test_reference_is_up_to_date() -> None:
    """Otherwise: python -m tests.architecture.policy_reference."""
    assert REFERENCE.read_text() == reference()


def test_defaults_that_the_schema_tells_are_those_of_the_model() -> None:
    told = {name: field["default"] for name, field in schema()["properties"].items() if "default" in field}
    built_in = Policy()
    assert told == {
        "mode": built_in.mode,
        "documentedRules": built_in.documented_rules,
        "bumpSliceTimeAdded": built_in.bump_slice_time_added,
        "inTreeEvictor": built_in.in_tree_evictor,
        "generatedClaims": built_in.generated_claims,
        "unknownAuthor": built_in.unknown_author,
        "trustedNamespaceLabels": list(built_in.trusted_namespace_labels),
        "trustedControllers": list(built_in.trusted_controllers),
        "default": built_in.default,
        "rules": [],
        "taintRules": [],
        "taintRulesOnSlices": built_in.taint_rules_on_slices,
        "exceptions": [],
        "defaultTolerations": [],
        "reactions": [],
    }


@pytest.mark.parametrize(
    ("definition", "field", "words"),
    [
        ("DeviceTaintPolicy", "mode", {*PolicyMode, False}),
        ("DeviceTaintPolicy", "documentedRules", {*PolicyMode, False}),
        ("DeviceTaintPolicy", "generatedClaims", set(PolicyMode) - {PolicyMode.OFF}),
        ("DeviceTaintPolicy", "inTreeEvictor", set(InTreeEvictor)),
        ("DeviceTaintPolicy", "unknownAuthor", set(UnknownAuthor)),
        ("rule", "action", set(Action)),
        ("taintRule", "action", set(Action)),
        ("rule", "subject", set(Subject)),
    ],
)
def test_words_of_the_schema_are_those_of_the_model(definition: str, field: str, words: set[str | bool]) -> None:
    place = schema()["$defs"].get(definition, schema())
    assert set(place["properties"][field]["enum"]) == words


def test_word_that_yaml_1_1_reads_as_a_boolean_is_also_accepted_as_one() -> None:
    """R6: an editor that reads YAML 1.1 sees false where `off` stands without quotes, one that reads 1.2 the text."""
    misread = {word: read for word, read in _WORDS.items() if read is True or read is False}
    enums = [each["enum"] for each in subschemas(schema()) if "enum" in each]
    assert sum("off" in words for words in enums) == 2
    assert all(misread[word] in words for words in enums for word in words if word in misread)
    for word in ("off", False):
        assert Draft202012Validator(schema()).is_valid(make_document(mode=word, documentedRules=word))
    assert not Draft202012Validator(schema()).is_valid(make_document(mode=True))


# --- its verdicts -------------------------------------------------------------------------------


@table(
    "fields, errors",
    {
        "null is no mode": (
            {"mode": None},
            ['mode: Unsupported value: null: supported values: "enforce", "off", "warn"'],
        ),
        "an unknown word": (
            {"mode": "on"},
            ['mode: Unsupported value: "on": supported values: "enforce", "off", "warn"'],
        ),
        "a field that is nearly right": ({"rule": []}, ['rule: Forbidden: unknown field, did you mean "rules"?']),
        "a field that is nearly one that is there": ({"rules": [], "rule": []}, ["rule: Forbidden: unknown field"]),
        "a field that other objects have": (
            {"metadata": {}},
            ["metadata: Forbidden: unknown field: a policy has no name besides that of its ConfigMap or file"],
        ),
        "no list": ({"rules": {}}, ['rules: Invalid value: "an object of 0 fields": must be a list']),
        "an entry that is no object": ({"rules": ["x"]}, ['rules[0]: Invalid value: "x": must be an object']),
        "a missing field and a wrong one": (
            {"rules": [{"name": "A"}]},
            [
                "rules[0].action: Required value",
                "rules[0].name: Invalid value: \"A\": must be like a DNS label, such as 'my-rule-1'",
            ],
        ),
        "a line break at the end": (
            {"rules": [make_entry("a\n")]},
            ["rules[0].name: Invalid value: \"a\\n\": must be like a DNS label, such as 'my-rule-1'"],
        ),
        "a field one level too high": (
            {"rules": [make_entry(match={"keys": ["a"]})]},
            ['rules[0].match.keys: Forbidden: unknown field, did you mean "tolerations.keys"?'],
        ),
        "a field one level too high, which two others have": (
            {"exceptions": [make_exception(match={"keys": ["a"]})]},
            ['exceptions[0].match.keys: Forbidden: unknown field, did you mean "tolerations.keys"?'],
        ),
        "a taint rule's field in a rule": (
            {"rules": [make_entry(match={"taints": {}})]},
            ["rules[0].match.taints: Forbidden: unknown field: only taintRules have it; rules look at tolerations"],
        ),
        "a rule's fields in a taint rule": (
            {"taintRules": [make_entry(match={"evicts": True, "namespaces": {}})]},
            [
                'taintRules[0].match.evicts: Forbidden: unknown field, did you mean "evict"?',
                "taintRules[0].match.namespaces: Forbidden: unknown field: only rules have it; taints are on devices",
            ],
        ),
        "nine stars": (
            {"rules": [make_entry(match={"deviceClasses": ["*a*b*c*d*e*f*g*h*"]})]},
            ["rules[0].match.deviceClasses[0]: Invalid value: \"*a*b*c*d*e*f*g*h*\": must have at most 8 '*'"],
        ),
        "a long pattern": (
            {"rules": [make_entry(match={"deviceClasses": ["a" * 254]})]},
            ["rules[0].match.deviceClasses[0]: Too long: may not be more than 253 characters"],
        ),
        "an empty pattern": (
            {"rules": [make_entry(match={"drivers": [""]})]},
            ["rules[0].match.drivers[0]: Required value: must not be empty"],
        ),
        "a long list": (
            {"rules": [make_entry(match={"deviceClasses": ["a"] * 257})]},
            ["rules[0].match.deviceClasses: Too many: 257: must have at most 256 items"],
        ),
        "a service account without namespace": (
            {"rules": [make_entry(match={"requesters": {"serviceAccounts": ["abc"]}})]},
            [
                (
                    'rules[0].match.requesters.serviceAccounts[0]: Invalid value: "abc": '
                    "must be namespace/name, each with at most 4 '*'"
                )
            ],
        ),
        "labels": (
            {"rules": [make_entry(match={"namespaces": {"labels": {"a b": "x", "c": 1}}})]},
            [
                'rules[0].match.namespaces.labels: Invalid value: "a b": must be a key such as "example.com/name"',
                "rules[0].match.namespaces.labels[c]: Invalid value: 1: must be a string",
            ],
        ),
        "seconds of neither sort": (
            {"rules": [make_entry(match={"tolerations": {"seconds": {}}})]},
            ["rules[0].match.tolerations.seconds: Required value: must not be empty"],
        ),
        "a number with a point": (
            {"rules": [make_entry(match={"tolerations": {"seconds": {"above": 1.0}}})]},
            ["rules[0].match.tolerations.seconds.above: Invalid value: 1.0: must be a whole number"],
        ),
        "limits": (
            {"impact": {"limits": [{"pods": True}, {"pods": "5"}, {"pods": -1}, {"pods": "101%"}, {"pods": ""}]}},
            [
                'impact.limits[0].pods: Invalid value: true: must be a number or a percentage such as "5%"',
                'impact.limits[1].pods: Invalid value: "5": must be a number or a percentage such as "5%"',
                "impact.limits[2].pods: Invalid value: -1: must be at least 0",
                'impact.limits[3].pods: Invalid value: "101%": must be a number or a percentage such as "5%"',
                'impact.limits[4].pods: Invalid value: "": must be a number or a percentage such as "5%"',
            ],
        ),
        "durations": (
            {"impact": {"window": 10}, "breaker": {"window": "3d"}},
            [
                'impact.window: Invalid value: 10: must be a duration such as "10m", "72h" or "1h30m"',
                'breaker.window: Invalid value: "3d": must be a duration such as "10m", "72h" or "1h30m"',
            ],
        ),
        "rates": (
            {"eviction": [{"rate": 0, "burst": 0, "maxPerMinute": 10**7, "overall": float("nan")}]},
            [
                "eviction[0].rate: Invalid value: 0: must be greater than 0",
                "eviction[0].burst: Invalid value: 0: must be at least 1",
                "eviction[0].maxPerMinute: Invalid value: 10000000: must be at most 1000000",
                "eviction[0].overall: Invalid value: NaN: must be a whole number",
            ],
        ),
        "rates that are no numbers": (
            {"eviction": [{"rate": each} for each in (float("nan"), float("inf"), True, "1", 0.5)]},
            [
                "eviction[0].rate: Invalid value: NaN: must be a number",
                "eviction[1].rate: Invalid value: Infinity: must be a number",
                "eviction[2].rate: Invalid value: true: must be a number",
                'eviction[3].rate: Invalid value: "1": must be a number',
            ],
        ),
        "an empty list": ({"eviction": []}, ["eviction: Required value: must have at least one entry"]),
        "many labels": (
            {"rules": [make_entry(match={"namespaces": {"labels": {f"l{i}": "" for i in range(65)}}})]},
            ["rules[0].match.namespaces.labels: Too many: 65: must have at most 64 items"],
        ),
    },
)
def test_mistakes_are_told_where_they_are(fields: dict[str, Any], errors: list[str]) -> None:
    assert sorted(errors_in(**fields)) == sorted(errors)


def test_document_says_what_it_is() -> None:
    assert errors_of({}) == ["apiVersion: Required value", "kind: Required value"]
    assert errors_of({"apiVersion": "v1", "kind": "DeviceTaintPolicy"}) == [
        'apiVersion: Unsupported value: "v1": supported values: "policy.devicetaint.io/v1alpha1"'
    ]


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_document_is_an_object(value: Any) -> None:
    (error,) = errors_of(value)
    assert error.endswith("must be an object")


def test_lists_at_the_top_may_be_left_empty() -> None:
    """A list whose entries are all commented out reads as null."""
    assert errors_in(rules=None, taintRules=None, exceptions=None, defaultTolerations=None, reactions=None) == []


# --- bounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "maximum"),
    [("rules", 2000), ("taintRules", 500), ("exceptions", 500), ("defaultTolerations", 100), ("reactions", 32)],
)
def test_long_lists_are_refused_before_their_entries_are_looked_at(name: str, maximum: int) -> None:
    asked: list[str] = []
    errors = schema_errors(make_document(**{name: [{}] * (maximum + 1)}), AT, asked.append)
    assert [str(error) for error in errors] == [f"{name}: Too many: {maximum + 1}: must have at most {maximum} items"]
    assert asked == []


def test_documents_with_too_many_values_are_refused_as_a_whole() -> None:
    rules = [make_entry(match={"deviceClasses": ["a"] * 200}) for _ in range(MAX_VALUES // 200)]
    assert errors_in(rules=rules) == [
        f"Forbidden: must have at most {MAX_VALUES} values, nested at most {MAX_DEPTH} deep"
    ]


def test_documents_with_as_many_values_as_may_be_are_looked_at() -> None:
    """Fields and entries count, at any depth; here three fields, their lists' entries, and what is left."""

    def refused_as_too_many(values: int) -> bool:
        document = {"x": [0] * (values // 2), "y": [0] * (values - values // 2 - 3), "z": 1}
        return any("must have at most" in str(error) for error in schema_errors(document, AT, lambda _: None))

    assert [refused_as_too_many(MAX_VALUES + more) for more in (-1, 0, 1)] == [False, False, True]


def test_sixteen_levels_are_looked_at() -> None:
    """The document, its list and the entry are levels as well."""

    def told_as_deep(lists: int) -> bool:
        deep: Any = "x"
        for _ in range(lists):
            deep = [deep]
        return any("nested at most 16 deep" in error for error in errors_in(rules=[deep]))

    assert [told_as_deep(lists) for lists in (12, 13, 14)] == [False, False, True]


def test_deep_documents_are_refused_as_a_whole() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    (error,) = errors_in(rules=[deep])
    assert "nested at most" in error
    while isinstance(deep, list):  # or its destructor recurses
        deep = deep.pop()


def test_a_hundred_errors_are_enough() -> None:
    assert len(errors_in(rules=[{}] * 2000)) == 100
    assert len(errors_of({f"field-{number}": 0 for number in range(5000)})) == 100


def test_entries_are_asked_about_one_by_one() -> None:
    class Stop(Exception):  # noqa: N818 -- it is no error
        pass

    left = [3]

    def check(phase: str) -> None:
        assert phase == "policy"
        left[0] -= 1
        if not left[0]:
            raise Stop

    with pytest.raises(Stop):
        schema_errors(make_document(rules=[make_entry()] * 5), AT, check)


# --- quantities ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("72h", 259200), ("1h30m", 5400), ("0s", 0), ("1.5s", 1.5), ("250ms", 0.25), ("1m30s500ms", 90.5)],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert errors_in(impact={"window": text}) == []
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1d", "10 m", "1h 30m", "10m\n", "1..5s"])
def test_other_texts_are_no_durations(text: str) -> None:
    assert len(errors_in(impact={"window": text})) == 1


@pytest.mark.parametrize(("text", "percent"), [("5%", 5), ("0%", 0), ("100%", 100), ("0.25%", 0.25)])
def test_shares_are_percentages(text: str, percent: float) -> None:
    assert errors_in(impact={"limits": [{"pods": text}]}) == []
    assert share(text).percent == percent
