from __future__ import annotations

import inspect
import json
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.builders import (
    NOW_TEXT,
    VALID_MANIFESTS,
    make_admission_request,
    make_claim,
    make_condition,
    make_context,
    make_device,
    make_meta,
    make_patch,
    make_result,
    make_review,
    make_rule,
    make_slice,
    make_status,
    make_taint,
    make_template,
    make_toleration,
)
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.chain import explain, mutate, policy_part, validate
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.decision import ALLOWED, Decision
from webhook.admission.policy_check import NOTHING, SILENT
from webhook.api.field import Severity
from webhook.api.taints import EXISTS
from webhook.policy.model import CLAIM_CONTROLLER, PolicyMode
from webhook.validation.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest

T = TypeVar("T")

# The documentation and earlier policies rely on these numbers, so they are written out.
MAX_FINDINGS = 1000

CONTEXT = make_context()
REQUIRED = "spec.taint.effect: Required value"
BROKEN = make_rule(taint=make_taint(effect=None))
EMPTY_KEY = make_toleration(key=None, operator="Equal", value="v")


def validated(manifest: Any, old: Any = None, context: AdmissionContext = CONTEXT, **options: Any) -> Decision:
    return validate(make_admission_request(manifest, old, **options), context)


def mutated(manifest: Any, old: Any = None, context: AdmissionContext = CONTEXT, **options: Any) -> Decision:
    return mutate(make_admission_request(manifest, old, **options), context)


def errors(decision: Decision) -> list[str]:
    return [str(error) for error in decision.errors]


@pytest.mark.parametrize("name", VALID_MANIFESTS)
def test_valid_object_is_allowed_without_a_word(name: str) -> None:
    manifest = VALID_MANIFESTS[name]
    meta = manifest["metadata"] | {"resourceVersion": "7"}
    updated = manifest | {"metadata": meta}
    assert validated(manifest) == ALLOWED
    assert validated(updated, updated) == ALLOWED


def test_field_errors_refuse() -> None:
    decision = validated(BROKEN)
    assert (errors(decision), decision.code) == ([REQUIRED], 422)
    assert decision.annotations == {"decision": "denied", "rules": "field"}


def test_wrong_types_refuse_and_nothing_else_is_told() -> None:
    decision = validated(make_rule(taint={"key": 1, "effect": []}))
    assert errors(decision) == [
        "spec.taint.key: Invalid value: 1: must be a string",
        'spec.taint.effect: Invalid value: "a list of 0 entries": must be a string',
    ]


def test_advice_is_gathered_and_allowed() -> None:
    decision = validated(make_rule(selector={}, taint=make_taint(key="x.k8s.io/y")))
    assert decision.allowed
    assert [finding.code for finding in decision.findings] == ["DT011", "DT005"]
    assert decision.annotations == {"decision": "warned", "rules": "DT005,DT011"}


# --- what is not judged -------------------------------------------------------------------------


def test_unknown_resource_is_allowed_with_a_warning() -> None:
    resource = {"group": "apps", "version": "v1", "resource": "deployments"}
    decision = validated(BROKEN, resource=resource)
    assert decision.allowed
    supported = (
        '"devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourceslicepatches", "resourceslices"'
    )
    warning = f'resource: Unsupported value: "deployments.v1.apps": not judged here; supported values: {supported}'
    assert decision.warnings == (warning,)
    assert mutated(BROKEN, resource=resource) == ALLOWED


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", "SOMETHING"])
def test_only_writes_are_judged(operation: str) -> None:
    assert validated(None, BROKEN, operation=operation) == ALLOWED
    assert validated(BROKEN, operation=operation) == ALLOWED
    assert mutated(BROKEN, operation=operation) == ALLOWED


@pytest.mark.parametrize("sub_resource", ["scale", "binding", "Status"])
def test_other_subresources_are_not_judged(sub_resource: str) -> None:
    assert validated(BROKEN, sub_resource=sub_resource) == ALLOWED
    assert mutated(BROKEN, sub_resource=sub_resource) == ALLOWED


def test_status_of_kinds_without_one_is_not_judged() -> None:
    broken = make_slice([make_device(taints=[{}])])
    assert validated(broken, broken, sub_resource="status") == ALLOWED


def test_status_of_a_rule_is_judged_by_its_conditions_only() -> None:
    rule = make_rule(taint={}, conditions=[make_condition(reason="")], resource_version="7")
    assert errors(validated(rule, rule, sub_resource="status")) == ["status.conditions[0].reason: Required value"]
    fine = make_rule(taint={}, selector=None, conditions=[make_condition()], resource_version="7")
    assert validated(fine, fine, sub_resource="status") == ALLOWED


def test_status_of_a_claim_is_judged_by_its_allocation_only() -> None:
    claim = make_claim([EMPTY_KEY], status=make_status(make_result([make_toleration(operator="Gt")])))
    at = "status.allocation.devices.results[0].tolerations[0].operator"
    assert errors(validated(claim, make_claim(), sub_resource="status")) == [
        f'{at}: Unsupported value: "Gt": supported values: "Equal", "Exists"'
    ]


def test_status_is_never_mutated() -> None:
    claim = make_claim(status=make_status(make_result([make_toleration(operator=None)])))
    assert mutated(claim, make_claim(), sub_resource="status") == ALLOWED


DELETED = make_meta("unhealthy-gpu", deletionTimestamp=NOW_TEXT, finalizers=["a/b"], resourceVersion="7")


def test_clean_up_of_an_object_that_is_being_deleted_is_let_through() -> None:
    stored = BROKEN | {"metadata": DELETED}
    without_finalizer = BROKEN | {"metadata": DELETED | {"finalizers": []}}
    assert validated(without_finalizer, stored) == ALLOWED
    assert mutated(without_finalizer, stored) == ALLOWED


def test_new_spec_of_an_object_that_is_being_deleted_is_judged() -> None:
    """A finalizer keeps a rule for long, and it acts until it is gone."""
    stored = make_rule(meta=DELETED)
    assert errors(validated(BROKEN | {"metadata": DELETED}, stored)) == [REQUIRED]


def test_only_the_stored_object_knows_whether_it_is_being_deleted() -> None:
    assert errors(validated(BROKEN | {"metadata": DELETED})) == [REQUIRED]
    stored = make_rule(resource_version="7")
    assert errors(validated(BROKEN | {"metadata": DELETED}, stored)) == [REQUIRED]


@pytest.mark.parametrize("metadata", [None, [], "x"], ids=["null", "list", "text"])
def test_stored_object_without_metadata_is_not_being_deleted(metadata: Any) -> None:
    stored = make_rule() | {"metadata": metadata}
    assert errors(validated(BROKEN | {"metadata": DELETED}, stored)) == [REQUIRED]


# --- crafted requests ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param(
            {"object": None},
            "request.object: Required value: must be the object that is created or updated",
            id="no object",
        ),
        pytest.param(
            {"object": []},
            "request.object: Required value: must be the object that is created or updated",
            id="a list for an object",
        ),
        pytest.param(
            {"object": make_claim()},
            "request.object: Invalid value: must be resource.k8s.io/v1 DeviceTaintRule, as request.resource says",
            id="an object of another kind",
        ),
        pytest.param(
            {"object": make_rule(version="v1alpha3")},
            "request.object: Invalid value: must be resource.k8s.io/v1 DeviceTaintRule, as request.resource says",
            id="an object of another version",
        ),
        pytest.param(
            {"object": {"metadata": {}}},
            "request.object: Invalid value: must be resource.k8s.io/v1 DeviceTaintRule, as request.resource says",
            id="an object of no kind",
        ),
        pytest.param(
            {"resource": 7}, "request.resource: Invalid value: must be an object", id="a fault of the envelope"
        ),
        pytest.param(
            {"operation": 7, "name": 7},
            "request.operation: Invalid value: must be a string; request.operation: Required value; "
            "request.name: Invalid value: must be a string",
            id="several faults",
        ),
    ],
)
def test_request_that_makes_no_sense_is_refused(changes: dict[str, Any], problem: str) -> None:
    decision = validated(make_rule(), **changes)
    assert (decision.code, decision.allowed, decision.problem) == (400, False, problem)
    assert mutated(make_rule(), **changes) == ALLOWED


def test_old_object_of_a_create_is_not_looked_at() -> None:
    stored = BROKEN | {"apiVersion": "resource.k8s.io/v1beta2"}
    assert errors(validated(stored, stored, operation="CREATE")) == [REQUIRED]


@pytest.mark.parametrize("old", [None, 7, []], ids=["null", "number", "list"])
def test_update_without_old_object_is_judged_as_new(old: Any) -> None:
    assert errors(validated(BROKEN, operation="UPDATE", oldObject=old)) == [REQUIRED]


def test_wrong_types_in_the_old_object_are_not_the_authors_fault() -> None:
    old = make_rule(taint=7, selector=[], version="v1beta2")
    assert validated(make_rule(version="v1beta2"), old) == ALLOWED


@pytest.mark.parametrize("depth", [300, 600, 800, 900])
def test_deep_nesting_is_refused_or_judged_but_never_a_fault(depth: int) -> None:
    """How deep is too deep depends on Python and on who calls."""

    def claim(filling: str) -> dict[str, Any]:
        return make_claim() | {"spec": {"parameters": json.loads("[" * depth + filling + "]" * depth)}}

    old = claim("1")
    old["metadata"] = old["metadata"] | {"deletionTimestamp": NOW_TEXT}
    decision = validated(claim("2"), old)
    too_deep = "request.object: Invalid value: is nested too deeply to be judged"
    assert (decision.code, decision.problem) in {(400, too_deep), (422, None)}
    assert mutated(claim("2"), old) == ALLOWED


def test_object_that_is_nested_too_deeply_to_be_judged_is_refused() -> None:
    """With ever less room on the stack: judged as with plenty of it, then refused, and never anything else."""
    request = make_admission_request(make_rule(), make_rule())
    judged = validate(request, CONTEXT).code
    answers = _with_ever_less_room(lambda: (validate(request, CONTEXT).code, mutate(request, CONTEXT)))
    codes = [code for code, _ in answers]
    assert set(codes) == {judged, 400}
    assert codes == [judged] * codes.count(judged) + [400] * codes.count(400)
    assert all(mutation == ALLOWED for _, mutation in answers)


def test_what_is_nested_too_deeply_is_neither_changed_nor_explained() -> None:
    context = make_context(judge=judge_of(make_entry("no", "deny")))
    claim = make_admission_request(make_claim([make_toleration()]))
    rule = make_admission_request(make_rule(taint=make_taint(time_added=None)))
    asked = (
        (lambda: policy_part(claim, context), SILENT),
        (lambda: explain(claim, context), NOTHING),
        (lambda: mutate(rule, context), ALLOWED),
    )
    for ask, silent in asked:
        answers = _with_ever_less_room(ask)
        assert answers[0] == ask() != silent
        assert answers[-1] == silent


def _with_ever_less_room(ask: Callable[[], T]) -> list[T]:
    """The answers with ever fewer frames left on the stack, as long as they suffice to ask."""
    answers, before, used = list[T](), sys.getrecursionlimit(), len(inspect.stack(0))
    for frames in range(100, 2, -1):
        try:
            sys.setrecursionlimit(used + frames)
            answers.append(ask())
        except RecursionError:
            pass  # what follows the answer needs more
        finally:
            sys.setrecursionlimit(before)
    return answers


def test_number_of_findings_is_bounded() -> None:
    decision = validated(make_slice([make_device(taints=[{"key": "a"}] * (MAX_FINDINGS + 5))]))
    assert len(decision.errors) == MAX_FINDINGS + 1
    assert str(decision.errors[-1]) == "Forbidden: has more than 1000 errors; only the first are listed"
    all_of_them = validated(make_slice([make_device(taints=[{"key": "a"}] * (MAX_FINDINGS - 1))]))
    assert len(all_of_them.errors) == MAX_FINDINGS  # one says that there are too many taints
    assert str(all_of_them.errors[-1]) == "spec.devices[0].taints[998].effect: Required value"
    advised = validated(make_rule(annotations={f"devicetaint.io/a{number}": "" for number in range(2 * MAX_FINDINGS)}))
    assert len(advised.findings) == MAX_FINDINGS


# --- documented rules, and who is bound by them ---------------------------------------------------

OPERATOR = (
    'spec.devices.requests[0].exactly.tolerations[0].operator: Invalid value: "Equal": must be "Exists" when key is '
    "empty, which means all keys and all values; or name a key"
)


def test_documented_rules_refuse_by_default() -> None:
    decision = validated(make_claim([EMPTY_KEY]))
    assert (errors(decision), decision.code) == ([OPERATOR], 422)


def test_documented_rules_can_be_turned_down_to_warnings() -> None:
    decision = validated(make_claim([EMPTY_KEY]), context=make_context(documented_rules=PolicyMode.WARN))
    assert decision.allowed
    assert decision.warnings == (OPERATOR,)
    assert decision.annotations == {"decision": "warned", "rules": "documented"}


def test_documented_rules_can_be_turned_off() -> None:
    assert validated(make_claim([EMPTY_KEY]), context=make_context(documented_rules=PolicyMode.OFF)) == ALLOWED


def test_advice_is_given_beside_documented_rules() -> None:
    decision = validated(make_template([EMPTY_KEY, make_toleration(effect=None)]))
    assert [(finding.severity, finding.code) for finding in decision.findings] == [
        (Severity.DENY, None),
        (Severity.WARN, "DT001"),
    ]


def test_claim_of_the_controller_is_judged_by_field_rules_only() -> None:
    """Its template was judged by the others, and a stored template must not keep pods from starting."""
    assert validated(make_claim([EMPTY_KEY, make_toleration(effect=None)]), user=CLAIM_CONTROLLER) == ALLOWED
    assert not validated(make_claim([make_toleration(operator="Gt")]), user=CLAIM_CONTROLLER).allowed


def test_trusted_controllers_are_a_setting() -> None:
    context = make_context(trusted_controllers=("system:serviceaccount:a:b",))
    assert validated(make_claim([EMPTY_KEY]), context=context, user="system:serviceaccount:a:b") == ALLOWED
    assert not validated(make_claim([EMPTY_KEY]), context=context, user=CLAIM_CONTROLLER).allowed


def test_release_is_a_setting() -> None:
    rule = make_rule(taint=make_taint(effect="None"))
    assert validated(rule, context=make_context(release=RELEASES[37])).allowed
    assert not validated(rule, context=make_context(release=RELEASES[34])).allowed


@pytest.mark.parametrize(
    ("manifest", "options", "judged"),
    [
        pytest.param(make_claim([make_toleration()]), {}, True, id="a claim"),
        pytest.param(make_claim([make_toleration()]), {"operation": "DELETE"}, False, id="an operation to let through"),
        pytest.param(make_claim([{"key": 7}, make_toleration()]), {}, False, id="wrong types"),
        pytest.param(make_claim([make_toleration()]), {"sub_resource": "status"}, False, id="a status"),
    ],
)
def test_policy_is_asked_beforehand_and_explained_about_what_it_judges(
    manifest: Any, options: Any, *, judged: bool
) -> None:
    context = make_context(judge=judge_of(make_entry("no", "deny")))
    found = policy_part(make_admission_request(manifest, **options), context)
    assert bool(found.findings) is judged
    assert (found is SILENT) is not judged
    assert (explain(make_admission_request(manifest, **options), context) is NOTHING) is not judged


# --- mutation -----------------------------------------------------------------------------------


def test_mutation_sets_what_is_missing() -> None:
    decision = mutated(make_rule(taint=make_taint(time_added=None)))
    assert decision == Decision(
        patch=({"op": "add", "path": "/spec/taint/timeAdded", "value": NOW_TEXT},),
        annotations={"decision": "defaulted"},
    )


@pytest.mark.parametrize("name", VALID_MANIFESTS)
def test_mutation_of_a_complete_object_changes_nothing(name: str) -> None:
    assert mutated(VALID_MANIFESTS[name], context=make_context(offline=True)) == ALLOWED


def test_mutation_leaves_wrong_types_to_validation() -> None:
    assert mutated(make_rule(taint={"key": 7})) == ALLOWED
    assert mutated(make_rule(taint=None, selector=7)) == ALLOWED


def test_mutation_does_not_wait_for_field_rules() -> None:
    assert mutated(make_claim([{"operator": "", "effect": "Evict"}])).patch == (
        {"op": "add", "path": "/spec/devices/requests/0/exactly/tolerations/0/operator", "value": "Equal"},
    )


# --- time ---------------------------------------------------------------------------------------


class Steps:
    """A clock that jumps ahead when it is read for the n-th time."""

    def __init__(self, jump_at: int) -> None:
        self.reads = 0
        self.jump_at = jump_at

    def __call__(self) -> float:
        self.reads += 1
        return 100.0 if self.reads > self.jump_at else 0.0


@pytest.mark.parametrize(
    ("decide", "jump_at", "phase"),
    [
        pytest.param(validate, 1, "field rules", id="validation starts with the field rules"),
        pytest.param(validate, 2, "documented rules", id="then documented rules"),
        pytest.param(validate, 3, "policy", id="then the policy"),
        pytest.param(validate, 4, "lint", id="then lint"),
        pytest.param(mutate, 1, "defaulting", id="mutation is defaulting"),
    ],
)
def test_spent_budget_names_the_step_that_was_to_come(
    decide: Callable[[AdmissionRequest, AdmissionContext], Decision], jump_at: int, phase: str
) -> None:
    context = make_context(budget=Budget(1.0, Steps(jump_at)))
    with pytest.raises(OutOfTime) as caught:
        # A claim with a lint finding: for a spec that is known to have none, some steps are skipped.
        decide(make_admission_request(make_claim([make_toleration(effect=None)])), context)
    assert caught.value.phase == phase


def test_refusal_of_field_rules_needs_no_more_time() -> None:
    assert not validated(BROKEN, context=make_context(budget=Budget(1.0, Steps(2)))).allowed


def test_our_own_kind_is_judged_in_both_groups() -> None:
    patch = make_patch(taints=[make_taint(key="-", operator=EXISTS)])
    planned = patch | {"apiVersion": "resource.k8s.io/v1alpha3"}
    assert errors(validated(patch)) == errors(validated(planned)) != []
    assert make_review(planned)["request"]["resource"]["resource"] == "resourceslicepatches"
