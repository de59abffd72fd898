from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from tests.builders import DRIVER, EARLIER_TEXT, KEY, decoded, make_condition, make_rule, make_taint
from tests.costs import calls_of
from tests.tables import table
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta, parse_time
from webhook.api.rules import (
    COUNTED_PODS,
    EVICT,
    EVICTED_PODS,
    EVICTIONS_PER_SECOND,
    HARDWARE_LABEL,
    OWN_RATE_BURST,
    PATCH_LABEL,
    SOFTENED_FROM,
    CELSelector,
    Condition,
    DeviceSelector,
    DeviceTaintRule,
    RuleOrigin,
    counted_pods,
    decode_rule,
    evicted_pods,
    own_rate,
)
from webhook.api.taints import DeviceTaint, TaintExtras

EARLIER = parse_time(EARLIER_TEXT)


def test_rule_is_read() -> None:
    manifest = make_rule(annotations={"a": "b"}, conditions=[make_condition()])
    expected = DeviceTaintRule(
        ObjectMeta("unhealthy-gpu", annotations={"a": "b"}),
        DeviceSelector(DRIVER, "node-0", "gpu-0"),
        DeviceTaint(KEY, "", "NoSchedule", EARLIER),
        (Condition("EvictionInProgress", "False", "NotStarted", "", 1, EARLIER),),
    )
    assert decoded(manifest) == (expected, [])


def test_condition_without_a_generation_is_of_none() -> None:
    rule, errors = decoded(make_rule(conditions=[{**make_condition(), "observedGeneration": None}]))
    assert ([each.observed_generation for each in rule.conditions], errors) == ([0], [])


def test_faults_come_in_the_order_in_which_fields_are_read() -> None:
    manifest = make_rule()
    manifest["metadata"]["annotations"], manifest["spec"]["taint"]["key"], manifest["status"] = [], 1, True
    _, errors = decoded(manifest)
    assert [error.field for error in errors] == ["metadata.annotations", "spec.taint.key", "status"]


def test_generation_is_read() -> None:
    assert decoded(make_rule())[0].generation == 0
    assert decoded(make_rule(meta={"name": "r", "generation": 7}))[0].generation == 7


@table(
    "raw, selector",
    {
        "a missing selector is not an empty one (R-2)": (None, None),
        "an empty selector": ({}, DeviceSelector()),
        "an empty name is not a missing one (R-6)": ({"driver": ""}, DeviceSelector(driver="")),
        "a null name is a missing one": ({"driver": None}, DeviceSelector()),
        "the retired fields": (
            {"deviceClassName": "c", "selectors": [{"cel": {"expression": "true"}}, {"cel": None}, None]},
            DeviceSelector(device_class_name="c", selectors=tuple(map(CELSelector, ("true", None, None)))),
        ),
        "unknown fields": (
            {"all": True, "b": {}, "c": None},
            DeviceSelector(unknown=(("all", "true"), ("b", "{}"))),
        ),
        "R8: unknown fields beside known ones, with their values": (
            {"driver": DRIVER, "z": 1, "a": {"y": [True], "x": "\ud800"}},
            DeviceSelector(DRIVER, unknown=(("a", '{"x":"\\ud800","y":[true]}'), ("z", "1"))),
        ),
    },
)
def test_selector_is_read(raw: Any, selector: DeviceSelector | None) -> None:
    rule, errors = decoded(make_rule(selector=raw))
    assert (rule.selector, errors) == (selector, [])


def test_rule_says_whether_it_is_being_deleted() -> None:
    """R1."""
    for time, deleting in (("2026-06-01T12:00:00Z", True), (None, False)):
        rule, errors = decoded(make_rule(meta={"name": "r", "deletionTimestamp": time}))
        assert (rule.deleting, errors) == (deleting, [])
    assert not decoded(make_rule())[0].deleting


def test_null_selector_is_a_missing_one() -> None:
    manifest = make_rule()
    manifest["spec"]["deviceSelector"] = None
    rule, errors = decoded(manifest)
    assert (rule.selector, errors) == (None, [])


@pytest.mark.parametrize(
    ("selector", "empty"),
    [
        pytest.param(DeviceSelector(), True, id="nothing set"),
        pytest.param(DeviceSelector(driver=DRIVER), False, id="a driver"),
        pytest.param(DeviceSelector(unknown=(("all", "true"),)), False, id="something unknown"),
    ],
)
def test_selector_knows_whether_it_is_empty(selector: DeviceSelector, *, empty: bool) -> None:
    assert selector.empty is empty


@pytest.mark.parametrize(
    ("effect", "evict", "effective"),
    [
        pytest.param("NoSchedule", "true", "NoExecute", id="our worker is asked to empty the devices"),
        pytest.param("NoSchedule", "false", "NoSchedule", id="it is not"),
        pytest.param("None", "True", "None", id="only the exact word asks"),
        pytest.param("NoExecute", "false", "NoExecute", id="the effect itself"),
    ],
)
def test_effective_effect_heeds_the_annotation(effect: str, evict: str, effective: str) -> None:
    rule, _ = decoded(make_rule(taint=make_taint(effect=effect), annotations={EVICT: evict}))
    assert rule.effective_effect == effective


@pytest.mark.parametrize(
    ("effect", "annotations", "softened"),
    [
        ("NoSchedule", {EVICT: "true", SOFTENED_FROM: "NoExecute"}, True),
        ("NoSchedule", {EVICT: "true", SOFTENED_FROM: "NoSchedule"}, False),
        ("NoSchedule", {EVICT: "true"}, False),
        ("NoSchedule", {SOFTENED_FROM: "NoExecute"}, False),
        ("NoExecute", {EVICT: "true", SOFTENED_FROM: "NoExecute"}, False),
        ("None", {EVICT: "true", SOFTENED_FROM: "NoExecute"}, False),
    ],
    ids=str,
)
def test_rule_was_softened_if_it_has_the_mark_and_the_form(effect: str, annotations: Any, softened: bool) -> None:  # noqa: FBT001
    rule, _ = decoded(make_rule(taint=make_taint(effect=effect), annotations=annotations))
    assert rule.softened is softened


@pytest.mark.parametrize("spec", [None, {}, {"taint": None}], ids=["null spec", "empty spec", "null taint"])
def test_rule_without_taint_is_read(spec: Any) -> None:
    rule, errors = decoded(make_rule() | {"spec": spec})
    assert (rule.selector, rule.taint, errors) == (None, DeviceTaint(), [])


def test_wrong_types_in_a_rule_are_told() -> None:
    manifest = make_rule() | {
        "metadata": {"name": 1, "annotations": {"a": 2}},
        "spec": {
            "deviceSelector": {"driver": 3, "pool": 4, "device": 5, "deviceClassName": 6, "selectors": [{"cel": 7}]},
            "taint": {"key": 8},
        },
        "status": {"conditions": [{"type": 9, "observedGeneration": "10", "lastTransitionTime": ""}]},
    }
    _, errors = decoded(manifest)
    assert sorted(error.field for error in errors) == [
        "metadata.annotations[a]",
        "metadata.name",
        "spec.deviceSelector.device",
        "spec.deviceSelector.deviceClassName",
        "spec.deviceSelector.driver",
        "spec.deviceSelector.pool",
        "spec.deviceSelector.selectors[0].cel",
        "spec.taint.key",
        "status.conditions[0].lastTransitionTime",
        "status.conditions[0].observedGeneration",
        "status.conditions[0].type",
    ]


@pytest.mark.parametrize(
    ("annotation", "field", "rate"),
    [
        pytest.param("1", None, 1.0, id="one"),
        pytest.param("9223372036854775807", None, 2.0**63, id="19 digits"),
        pytest.param("10000000000000000000", None, None, id="20 digits"),
        pytest.param("0", None, None, id="zero"),
        pytest.param("-1", None, None, id="below zero"),
        pytest.param("1.5", None, None, id="no whole number"),
        pytest.param("\u0661", None, None, id="a digit of another script"),
        pytest.param("", None, None, id="nothing"),
        pytest.param(None, 4, 4.0, id="the field of the 1.35-era revision"),
        pytest.param("2", 4, 2.0, id="the annotation before the field"),
        pytest.param("x", 4, 4.0, id="the field where the annotation is none"),
        pytest.param(None, 0, None, id="a field of zero"),
    ],
)
def test_rate_of_a_rule_is_a_whole_number_above_zero(
    annotation: str | None, field: int | None, rate: float | None
) -> None:
    annotations = {} if annotation is None else {EVICTIONS_PER_SECOND: annotation}
    taint = DeviceTaint("k", "", "NoExecute", None, TaintExtras(evictions_per_second=field))
    assert own_rate(DeviceTaintRule(ObjectMeta("r", annotations=annotations), None, taint)) == rate


def test_burst_beside_a_rate_of_its_own_is_ten() -> None:
    """N-13. The documentation names the number."""
    assert OWN_RATE_BURST == 10


def marked(label: str = "", uid: str = "u", kind: str = "ResourceSlicePatch", *, controls: bool = True) -> RuleOrigin:
    """The origin of a rule with these marks."""
    group = "devicetaint.io/v1alpha1" if kind == "ResourceSlicePatch" else "resource.k8s.io/v1"
    owner = {"apiVersion": group, "kind": kind, "name": "firmware", "uid": uid, "controller": controls}
    label_name, _, value = label.partition("=")
    meta = {"name": "r", "labels": {label_name: value}, "ownerReferences": [owner]}
    origin: RuleOrigin = decoded(make_rule(meta=meta))[0].origin
    return origin


@pytest.mark.parametrize(
    ("origin", "belongs_to"),
    [
        pytest.param(marked(f"{PATCH_LABEL}=u"), "u", id="both of a patch"),
        pytest.param(marked(f"{HARDWARE_LABEL}=u", kind="DeviceTaintRule"), "u", id="both of a rule"),
        pytest.param(marked(f"{PATCH_LABEL}=other"), "", id="label of another patch"),
        pytest.param(marked(f"{HARDWARE_LABEL}=u"), "", id="label of the other sort"),
        pytest.param(marked(f"{PATCH_LABEL}=u", kind="DeviceTaintRule"), "", id="owner of the other sort"),
        pytest.param(marked(f"{PATCH_LABEL}=u", kind="Deployment"), "", id="owner of another sort"),
        pytest.param(marked(f"{PATCH_LABEL}=u", controls=False), "", id="owner that does not control"),
        pytest.param(marked(), "", id="no label"),
        pytest.param(RuleOrigin(), "", id="no marks"),
    ],
)
def test_rule_belongs_to_what_its_label_and_its_controller_name(origin: RuleOrigin, belongs_to: str) -> None:
    assert origin.belongs_to == belongs_to


@pytest.mark.parametrize(
    ("meta", "origin"),
    [
        pytest.param({"labels": {PATCH_LABEL: "u"}}, RuleOrigin(of_patch="u"), id="a label"),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "controller": True}]},
            RuleOrigin(rule=True),
            id="a controller",
        ),
    ],
)
def test_one_mark_of_a_rule_is_read_without_the_other(meta: dict[str, Any], origin: RuleOrigin) -> None:
    assert decoded(make_rule(meta={"name": "r", **meta}))[0].origin == origin


def test_origin_has_the_name_of_the_controller() -> None:
    assert marked(f"{PATCH_LABEL}=u") == RuleOrigin("firmware", "u", patch=True, of_patch="u")
    expected = RuleOrigin("firmware", "u", rule=True, hardware_of="u")
    assert marked(f"{HARDWARE_LABEL}=u", kind="DeviceTaintRule") == expected


def test_marks_of_wrong_types_are_no_errors_of_the_rule() -> None:
    """The server has refused them, or `check` says so of the metadata."""
    rule, errors = decoded(make_rule(meta={"name": "r", "labels": {PATCH_LABEL: 1}, "ownerReferences": [{"uid": 1}]}))
    assert (rule.origin, errors) == (RuleOrigin(), [])


def selector_of(fields: Any) -> Any:
    rule, errors = decoded(make_rule(selector=fields))
    assert errors == []
    return rule.selector


def test_only_so_many_unknown_fields_are_kept() -> None:
    few, many = ({f"f{number:02}": number for number in range(most)} for most in (32, 33))
    assert selector_of(few).unknown == tuple((name, str(number)) for name, number in few.items())
    found = selector_of(many).unknown
    assert found[:31] == tuple((f"f{number:02}", str(number)) for number in range(31))
    assert [name for name, _ in found[31:]] == ["further fields"]
    others = ({**many, "f32": 0}, {**many, "f99": 1}, {**many, "f31": {"\ud800": 1}}, {**many, "driver": DRIVER})
    assert len({selector_of(each) for each in (many, *others)}) == 5


def test_unknown_fields_are_read_in_as_many_steps_however_many_there_are() -> None:
    def steps(most: int) -> int:
        manifest = make_rule(selector={f"f{number}": [number] for number in range(most)})
        return calls_of(decode_rule, lambda: Reader.of(manifest, []))

    assert steps(10_000) == steps(100)


def test_labels_of_a_rule_are_read_in_as_many_steps_however_many_there_are() -> None:
    def bytes_made(most: int) -> int:
        manifest = make_rule(meta={"name": "r", "labels": {f"l{number}": "v" for number in range(most)}})
        made = []
        for _ in range(5):  # another thread of the test runner may allocate meanwhile, which only adds
            tracemalloc.start()
            try:
                decode_rule(Reader.of(manifest, []))
                made.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
        return min(made)

    # A copy of their names alone takes 160,000 bytes.
    assert bytes_made(20_000) < bytes_made(20) + 20_000


@pytest.mark.parametrize(
    ("conditions", "evicted", "counted"),
    [
        ([], 0, 0),
        ([(EVICTED_PODS, "7")], 7, 7),
        ([(EVICTED_PODS, "7"), (COUNTED_PODS, "2")], 7, 2),
        ([(COUNTED_PODS, "2")], 0, 2),
        ([(EVICTED_PODS, "many"), (COUNTED_PODS, "-1")], 0, 0),
        ([(EVICTED_PODS, "9" * 30)], 0, 0),
    ],
)
def test_counts_are_read_from_conditions(conditions: list[tuple[str, str]], evicted: int, counted: int) -> None:
    said = [Condition(kind, "True", "Counted", text) for kind, text in conditions]
    assert (evicted_pods(said), counted_pods(said)) == (evicted, counted)
