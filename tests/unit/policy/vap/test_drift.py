"""Exported objects beside stored ones: what differs, what is written, and that no order leaves a gap."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.policy.documents import make_defaults, make_entry, policy_of
from webhook.policy.model import Policy
from webhook.policy.vap.drift import (
    MANAGED_LABEL,
    MUTATING,
    VALIDATING,
    AdmissionObjectKey,
    FallbackState,
    StoredObject,
    compare,
    key_of,
    managed,
    writes_for,
)
from webhook.policy.vap.fallback import MUTATING_NAMES, VALIDATING_NAMES, export_fallback
from webhook.policy.vap.objects import EXPORT_LABELS
from webhook.policy.vap.static import static_manifests

Json = dict[str, Any]
Stored = dict[AdmissionObjectKey, StoredObject]

ROLE: Final = Path(__file__).parents[4] / "manifests" / "components" / "admission-policies" / "access.yaml"
NO_XID: Final = make_entry("no-xid", "deny", {"tolerations": {"keys": ["xid"]}})
OBJECTS: Final = export_fallback(
    policy_of(rules=[NO_XID], defaultTolerations=[make_defaults("wait", key="maint", operator="Exists")])
).objects


def stored(*objects: Json, labels: Any = None) -> Stored:
    """As a cluster has them that are kept in sync."""
    found = [
        StoredObject(
            key_of(obj),
            managed(obj)["metadata"]["labels"] if labels is None else labels,
            copy.deepcopy(obj["spec"]),
            "u",
            1,
            "1",
        )
        for obj in objects
    ]
    return {each.key: each for each in found}


def states(wanted: Any, there: Stored) -> dict[str, str]:
    return {
        each.key.name: each.state.value for each in compare(wanted, there) if each.state is not FallbackState.IN_SYNC
    }


def written(wanted: Any, there: Stored) -> list[tuple[str, str]]:
    return [("delete" if each.wanted is None else "apply", str(each.key)) for each in writes_for(wanted, there)]


# --- comparing ----------------------------------------------------------------------------------


def test_what_is_equal_is_in_sync_and_nothing_is_written() -> None:
    assert {each.state for each in compare(OBJECTS, stored(*OBJECTS))} == {FallbackState.IN_SYNC}
    assert writes_for(OBJECTS, stored(*OBJECTS)) == []


def test_each_way_to_differ_has_a_name() -> None:
    first, second, third, *rest = OBJECTS
    changed = stored(first, *rest)
    changed[key_of(first)].spec["failurePolicy"] = "Ignore"  # type: ignore[index]
    foreign = stored(third, labels={"app.kubernetes.io/name": "other"})
    surplus = stored({**first, "metadata": {**first["metadata"], "name": "surplus"}})
    left = stored({**first, "metadata": {**first["metadata"], "name": "left"}}, labels=EXPORT_LABELS)
    unrelated = stored({**first, "metadata": {**first["metadata"], "name": "unrelated"}}, labels={})
    found = compare(OBJECTS, {**changed, **foreign, **surplus, **left, **unrelated})
    by_key = {(each.key.kind, each.key.name): each for each in found}
    assert by_key[first["kind"], first["metadata"]["name"]].fields == ("failurePolicy",)
    assert str(by_key[first["kind"], first["metadata"]["name"]]).endswith("is changed: spec.failurePolicy")
    assert by_key[second["kind"], second["metadata"]["name"]].state is FallbackState.MISSING
    assert by_key[third["kind"], third["metadata"]["name"]].state is FallbackState.FOREIGN
    assert by_key[first["kind"], "surplus"].state is FallbackState.SURPLUS
    assert by_key[first["kind"], "left"].state is FallbackState.LEFT_OVER
    assert (first["kind"], "unrelated") not in by_key


@pytest.mark.parametrize(
    "extra", [{"matchConditions": [{"name": "never", "expression": "false"}]}, {"paramKind": {"kind": "x"}}]
)
def test_what_somebody_has_added_is_a_difference_too(extra: Json) -> None:
    there = stored(*OBJECTS)
    there[key_of(OBJECTS[0])].spec.update(extra)  # type: ignore[attr-defined]
    assert states(OBJECTS, there) == {OBJECTS[0]["metadata"]["name"]: "changed"}


# --- writing ------------------------------------------------------------------------------------


def test_what_is_not_ours_is_never_written_and_never_deleted() -> None:
    there = stored(*OBJECTS, labels={"app.kubernetes.io/component": "fallback"})
    assert written(OBJECTS, there) == []
    assert written([], there) == []
    by_hand = stored(*OBJECTS, labels=EXPORT_LABELS)
    assert written([], by_hand) == []


def test_what_was_exported_by_hand_is_taken_over() -> None:
    there = stored(*OBJECTS, labels=EXPORT_LABELS)
    writes = writes_for(OBJECTS, there)
    assert {each.key for each in writes} == {key_of(obj) for obj in OBJECTS}
    label = managed(OBJECTS[0])["metadata"]["labels"][MANAGED_LABEL]
    assert label == "device-taint-webhook"


def test_what_adds_as_much_as_before_comes_before_what_refuses_and_is_bound_after_its_policy() -> None:
    """Nothing but a label changes here, so what refused goes on to do so."""
    kinds = [name.split()[0] for _, name in written(OBJECTS, stored(*OBJECTS, labels=EXPORT_LABELS))]
    assert kinds == [*[MUTATING] * 2, *[f"{MUTATING}Binding"] * 2, *[VALIDATING] * 3, *[f"{VALIDATING}Binding"] * 3]


def test_what_is_new_and_adds_comes_after_what_refuses() -> None:
    kinds = [name.split()[0] for _, name in written(OBJECTS, {})]
    assert kinds.index(MUTATING) > len(kinds) - 1 - kinds[::-1].index(f"{VALIDATING}Binding")


def test_bindings_come_after_their_policies_and_go_before_them() -> None:
    new = written(OBJECTS, {})
    for obj in OBJECTS:
        if obj["kind"].endswith("Binding"):
            policy = f"{obj['kind'].removesuffix('Binding')} {obj['metadata']['name']}"
            assert new.index(("apply", policy)) < new.index(("apply", str(key_of(obj))))
    gone = [name for _, name in written([], stored(*OBJECTS))]
    kinds = [name.split()[0] for name in gone]
    assert kinds.index(f"{VALIDATING}Binding") < kinds.index(VALIDATING)
    assert kinds.index(f"{MUTATING}Binding") < kinds.index(MUTATING) < kinds.index(VALIDATING)


@pytest.mark.parametrize(("before", "after", "first"), [("enforce", "warn", True), ("warn", "enforce", False)])
def test_binding_that_ceases_to_refuse_comes_first_and_one_that_begins_to_comes_last(
    before: str,
    after: str,
    first: bool,  # noqa: FBT001 -- a table's
) -> None:
    old, new = (
        export_fallback(policy_of(mode=mode, rules=[NO_XID, *more])).objects
        for mode, more in ((before, []), (after, [make_entry("b", "deny", {"tolerations": {"keys": ["b"]}})]))
    )
    order = [name for _, name in written(new, stored(*old))]
    name = "device-taint-webhook-tolerations"
    assert (order.index(f"{VALIDATING}Binding {name}") < order.index(f"{VALIDATING} {name}")) is first


@pytest.mark.parametrize(("old", "new", "adding_first"), [(2, 1, True), (1, 2, False)])
def test_fewer_defaults_come_before_stricter_rules_and_more_after_milder_ones(
    old: int,
    new: int,
    adding_first: bool,  # noqa: FBT001 -- a table's
) -> None:
    def objects(number: int) -> Any:
        entries = [make_defaults(f"e{key}", key=f"k{key}", operator="Exists") for key in range(number)]
        rule = make_entry("no", "deny", {"tolerations": {"keys": [f"x{number}"]}})
        return export_fallback(policy_of(rules=[rule], defaultTolerations=entries)).objects

    kinds = [name.split()[0] for _, name in written(objects(new), stored(*objects(old)))]
    assert (kinds.index(MUTATING) < kinds.index(VALIDATING)) is adding_first


@pytest.mark.parametrize(
    ("old", "new", "adding_first"),
    [
        pytest.param(["k1"], ["k2"], False, id="another key"),
        pytest.param(["k1", "k2"], ["k2"], True, id="the first has gone"),
        pytest.param(["k1 NoExecute"], ["k1"], False, id="every effect instead of one"),
        pytest.param(["k1"], [""], False, id="every key instead of one"),
    ],
)
def test_defaults_that_are_added_before_already_come_before_stricter_rules(
    old: list[str],
    new: list[str],
    adding_first: bool,  # noqa: FBT001 -- a table's
) -> None:
    def objects(tolerations: list[str], refused: str) -> Any:
        entries = []
        for text in tolerations:
            key, _, effect = text.partition(" ")
            given = {"key": key, "operator": "Exists", "effect": effect}
            entries.append(make_defaults(f"e{text[:2]}", **{name: value for name, value in given.items() if value}))
        rule = make_entry("no", "deny", {"deviceClasses": [refused]}, subject="request")
        return export_fallback(policy_of(rules=[rule], defaultTolerations=entries)).objects

    kinds = [name.split()[0] for _, name in written(objects(new, "b"), stored(*objects(old, "a")))]
    assert (kinds.index(MUTATING) < kinds.index(VALIDATING)) is adding_first


def _parts(*groups: tuple[str, ...]) -> list[Json]:
    """Parts of a topic, each with its binding."""
    objects = []
    for number, group in enumerate(groups):
        metadata = {"name": f"device-taint-webhook-tolerations-{number}", "labels": dict(EXPORT_LABELS)}
        spec = {"validations": [{"expression": each} for each in group]}
        objects.append({"kind": VALIDATING, "metadata": metadata, "spec": spec})
        bound = {"policyName": metadata["name"], "validationActions": ["Deny"]}
        objects.append({"kind": f"{VALIDATING}Binding", "metadata": metadata, "spec": bound})
    return objects


def _in_force(there: Stored) -> set[str]:
    return {
        each["expression"]
        for key, obj in there.items()
        if key.kind == VALIDATING and AdmissionObjectKey(f"{VALIDATING}Binding", key.name) in there
        for each in obj.spec["validations"]
    }


def _cut(rules: list[str], size: int) -> list[Json]:
    return _parts(*(tuple(rules[at : at + size]) for at in range(0, len(rules), size)))


def test_part_that_takes_a_rule_over_is_written_before_the_one_that_loses_it() -> None:
    old, new = _parts(("b", "c"), ("d",)), _parts(("a", "b"), ("c", "d"))
    assert [name[-1] for _, name in written(new, stored(*old))] == ["1", "0"]


rule_lists = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=10).map(sorted)


@given(rule_lists, rule_lists, st.integers(1, 4))
def test_what_is_refused_before_and_after_is_refused_in_between(old: list[str], new: list[str], size: int) -> None:
    """Rules in one order that come and go: parts of them shift both ways."""
    there = stored(*_cut(old, size))
    wanted = _cut(new, size)
    for write in writes_for(wanted, there):
        if write.wanted is None:
            del there[write.key]
        else:
            there |= stored(write.wanted)
        gained = {rule for rule in new if rule not in old}
        missing = set(old) & set(new) - _in_force(there)
        assert not missing or _trades(old, new, size), (missing, gained)
    assert _in_force(there) == set(new)
    assert writes_for(wanted, there) == []


def _trades(old: list[str], new: list[str], size: int) -> bool:
    """Whether parts pass rules in a circle: one gives to a later part and gets from it."""
    place = [{rule: at // size for at, rule in enumerate(rules)} for rules in (old, new)]
    moves = {(place[0][rule], place[1][rule]) for rule in set(old) & set(new)}
    return any(a < b for a, b in moves) and any(a > b for a, b in moves)


# --- names --------------------------------------------------------------------------------------


def test_names_that_roles_grant_are_those_of_an_export() -> None:
    assert {key_of(obj).name for obj in OBJECTS} <= {*VALIDATING_NAMES, *MUTATING_NAMES}
    many = [
        make_entry(f"r{number}", "deny", {"tolerations": {"keys": [f"*a{number}*b", f"?{number}"]}})
        for number in range(60)
    ]
    names = {
        key_of(obj).name
        for obj in export_fallback(policy_of(rules=many, trustedNamespaceLabels=["a/b"]), protect_labels=True).objects
    }
    assert "device-taint-webhook-tolerations-2" in names
    assert names <= {*VALIDATING_NAMES}
    unbounded = {
        key_of(obj).name
        for obj in export_fallback(
            Policy(
                documented_rules=policy_of(documentedRules="warn").documented_rules,
                rules=policy_of(rules=[NO_XID]).rules,
            )
        ).objects
    }
    assert unbounded <= {*VALIDATING_NAMES}


def test_names_are_those_that_the_role_grants() -> None:
    role = next(iter(yaml.safe_load_all(ROLE.read_text())))
    granted = {rule["resources"][0]: rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule}
    assert {resource: sorted(names) for resource, names in granted.items()} == {
        "validatingadmissionpolicies": sorted(VALIDATING_NAMES),
        "mutatingadmissionpolicies": sorted(MUTATING_NAMES),
    }


def test_files_have_names_that_the_api_does_not_give() -> None:
    made = static_manifests(OBJECTS)
    assert {folder: {each["kind"] for each in objects} for folder, objects in made.items()} == {
        "validating": {VALIDATING, f"{VALIDATING}Binding"},
        "mutating": {MUTATING, f"{MUTATING}Binding"},
    }
    for each in (*made["validating"], *made["mutating"]):
        assert each["metadata"]["name"].endswith(".static.k8s.io")
        assert each["spec"].get("policyName", each["metadata"]["name"]) == each["metadata"]["name"]
    assert static_manifests([]) == {"validating": [], "mutating": []}
    assert not any("static" in obj["metadata"]["name"] for obj in OBJECTS)
