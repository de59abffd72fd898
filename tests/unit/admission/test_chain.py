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
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.chain import explain, mutate, policy_part, validate
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.decision import ALLOWED, Decision
from webhook.admission.policy_check import NOTHING, SILENT
from webhook.api.field import Severity
from webhook.api.taints import EXISTS
from webhook.policy.model import CLAIM_CONTROLLER, PolicyMode

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


NO_METADATA: tuple[Any, ...] = (None, [], "x")
DELETED = make_meta("unhealthy-gpu", deletionTimestamp=NOW_TEXT, finalizers=["a/b"], resourceVersion="7")
UNTIMED = make_slice([make_device(taints=[{}])])


@table(
    "new, old, options",
    {
        **{f"operation {each}": (BROKEN, None, {"operation": each}) for each in ("DELETE", "CONNECT", "SOMETHING")},
        "a deletion": (None, BROKEN, {"operation": "DELETE"}),
        **{f"subresource {each}": (BROKEN, None, {"sub_resource": each}) for each in ("scale", "binding", "Status")},
        "status of a kind that has none": (UNTIMED, UNTIMED, {"sub_resource": "status"}),
        "clean-up of an object that is being deleted": (
            BROKEN | {"metadata": DELETED | {"finalizers": []}},
            BROKEN | {"metadata": DELETED},
            {},
        ),
    },
)
def test_request_that_is_not_judged_is_let_through(new: Any, old: Any, options: Any) -> None:
    assert validated(new, old, **options) == ALLOWED
    assert mutated(new, old, **options) == ALLOWED


def test_status_is_never_mutated() -> None:
    claim = make_claim(status=make_status(make_result([make_toleration(operator=None)])))
    assert mutated(claim, make_claim(), sub_resource="status") == ALLOWED


@table(
    "stored",
    {
        "it is stored in another form": make_rule(meta=DELETED),
        "it is new": None,
        "the stored one is not being deleted": make_rule(resource_version="7"),
        **{f"the stored metadata is {each!r}": make_rule() | {"metadata": each} for each in NO_METADATA},
    },
)
def test_spec_that_is_new_is_judged_though_the_object_says_that_it_is_being_deleted(stored: Any) -> None:
    """A finalizer keeps a rule for long, and it acts until it is gone; only the stored object knows that it leaves."""
    assert errors(validated(BROKEN | {"metadata": DELETED}, stored)) == [REQUIRED]


# --- crafted requests ---------------------------------------------------------------------------


NO_OBJECT = "request.object: Required value: must be the object that is created or updated"
ANOTHER = "request.object: Invalid value: must be resource.k8s.io/v1 DeviceTaintRule, as request.resource says"


@table(
    "changes, problem",
    {
        "no object": ({"object": None}, NO_OBJECT),
        "a list for an object": ({"object": []}, NO_OBJECT),
        "an object of another kind": ({"object": make_claim()}, ANOTHER),
        "an object of another version": ({"object": make_rule(version="v1alpha3")}, ANOTHER),
        "an object of no kind": ({"object": {"metadata": {}}}, ANOTHER),
        "a fault of the envelope": ({"resource": 7}, "request.resource: Invalid value: must be an object"),
        "several faults": (
            {"operation": 7, "name": 7},
            (
                "request.operation: Invalid value: must be a string; request.operation: Required value; "
                "request.name: Invalid value: must be a string"
            ),
        ),
    },
)
def test_request_that_makes_no_sense_is_refused(changes: dict[str, Any], problem: str) -> None:
    decision = validated(make_rule(), **changes)
    assert (decision.code, decision.allowed, decision.problem) == (400, False, problem)
    assert mutated(make_rule(), **changes) == ALLOWED


@pytest.mark.parametrize("old", [None, 7, []], ids=["null", "number", "list"])
def test_create_and_update_without_old_object_are_judged_as_new(old: Any) -> None:
    assert errors(validated(BROKEN, operation="UPDATE", oldObject=old)) == [REQUIRED]
    stored = BROKEN | {"apiVersion": "resource.k8s.io/v1beta2"}
    assert errors(validated(stored, stored, operation="CREATE")) == [REQUIRED]


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


def test_documented_rules_can_be_turned_down_to_warnings() -> None:
    decision = validated(make_claim([EMPTY_KEY]), context=make_context(documented_rules=PolicyMode.WARN))
    assert decision.allowed
    assert decision.warnings == (OPERATOR,)
    assert decision.annotations == {"decision": "warned", "rules": "documented"}


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


@table(
    "manifest, options, judged",
    {
        "a claim": (make_claim([make_toleration()]), {}, True),
        "an operation to let through": (make_claim([make_toleration()]), {"operation": "DELETE"}, False),
        "wrong types": (make_claim([{"key": 7}, make_toleration()]), {}, False),
        "a status": (make_claim([make_toleration()]), {"sub_resource": "status"}, False),
    },
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


@table(
    "decide, jump_at, phase",
    {
        "validation starts with the field rules": (validate, 1, "field rules"),
        "then documented rules": (validate, 2, "documented rules"),
        "then the policy": (validate, 3, "policy"),
        "then lint": (validate, 4, "lint"),
        "mutation is defaulting": (mutate, 1, "defaulting"),
    },
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
