"""The corpus, judged by the pure functions and by `check`. tests/cases/README.md says what stands in a case."""

from __future__ import annotations

import json
import re

from msgspec import structs

from tests.builders import NOW, NOW_TEXT, UID, encoded, make_context
from tests.cases.corpus import (
    FOLDER,
    Case,
    cases,
    each_case,
    is_served,
    review_of,
    rows_without_a_clean_case,
    told,
    with_sets,
)
from tests.unit.test_semantics import listed
from webhook.admission.chain import mutate, validate
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Decision, apply_patch, encode_response
from webhook.admission.review import AdmissionRequest, decode_review
from webhook.api.field import Severity
from webhook.commands.shared.manifest_review import ObjectKey, ReviewTerms, review_manifest
from webhook.files.read import parse
from webhook.files.report import Level, Row
from webhook.policy.model import PolicyMode
from webhook.validation.releases import RELEASES
from webhook.validation.strict import LINTED_AS_WELL, strict_findings


def request_of(case: Case) -> AdmissionRequest:
    return decode_review(encoded(review_of(case)))


def verdict(decision: Decision) -> tuple[bool, tuple[tuple[str, str], ...]]:
    return decision.allowed, told((error.field, error.type.value) for error in decision.errors)


def advice(decision: Decision) -> list[str]:
    return sorted(
        finding.code for finding in decision.findings if finding.severity is Severity.WARN and finding.code is not None
    )


# --- the pure functions -------------------------------------------------------------------------


def mutated(request: AdmissionRequest, context: AdmissionContext) -> AdmissionRequest:
    """The request as the validating webhook gets it."""
    return structs.replace(request, object=apply_patch(request.object, mutate(request, context).patch))


@each_case()
def test_case_is_judged_as_its_header_says(case: Case) -> None:
    request = request_of(case)
    for minor in case.minors:
        decision = validate(request, make_context(release=RELEASES[minor]))
        assert verdict(decision) == (case.allowed, case.errors), f"1.{minor}: {case.sentence}"


@each_case()
def test_case_is_judged_the_same_after_it_was_mutated_and_mutated_once(case: Case) -> None:
    for minor in case.minors:
        context = make_context(release=RELEASES[minor])
        request = mutated(request_of(case), context)
        decision = validate(request, context)
        assert verdict(decision) == (case.allowed, case.errors), f"1.{minor}: {case.sentence}"
        assert advice(decision) == list(case.warnings), f"1.{minor}: {case.sentence}"
        assert mutate(request, context).patch == (), f"1.{minor}: twice is not once"


@each_case(lambda case: case.sets is not None)
def test_case_is_mutated_as_its_header_says(case: Case) -> None:
    request = request_of(case)
    for minor in case.minors:
        patch = mutate(request, make_context(release=RELEASES[minor], offline=True)).patch
        assert apply_patch(request.object, patch) == with_sets(case.object, case.sets or {}, NOW_TEXT), f"1.{minor}"


@each_case()
def test_answer_to_a_case_repeats_its_uid_and_tells_every_error(case: Case) -> None:
    request = request_of(case)
    decision = validate(request, make_context(release=RELEASES[case.minors[-1]]))
    response = json.loads(encode_response(request, decision))["response"]
    assert (response["uid"], response["allowed"]) == (UID, case.allowed)
    causes = response["status"]["details"]["causes"] if not case.allowed else []
    assert told((cause["field"], cause["reason"]) for cause in causes) == case.errors


@each_case(lambda case: case.ours and not case.allowed)
def test_rules_that_are_ours_can_be_turned_down_and_off(case: Case) -> None:
    warning = validate(request_of(case), make_context(documented_rules=PolicyMode.WARN))
    told_softly = told(
        (each.error.field, each.error.type.value)
        for each in warning.findings
        if each.severity is Severity.WARN and each.code is None
    )
    assert (verdict(warning), told_softly) == ((True, ()), case.errors)
    assert verdict(validate(request_of(case), make_context(documented_rules=PolicyMode.OFF))) == (True, ())


# --- check --------------------------------------------------------------------------------------


def checked(case: Case, minor: int) -> Row:
    """What `check` says of the case's document, or of the whole review where no manifest can say it."""
    context = make_context(now=NOW, release=RELEASES[minor])
    based = case.operation == "CREATE" or "resourceVersion" in case.object["metadata"]
    if case.sub_resource or case.user or not based:  # else check sends what `kubectl apply` would
        content = encoded(review_of(case))
        old = {}
    else:
        content = case.manifest()
        identity = ObjectKey.of(case.old) if case.old is not None else None
        old = {identity: case.old} if identity is not None else {}
    file = parse(f"{case.path}.yaml", content)
    assert not file.unreadable
    [manifest] = file.manifests
    return review_manifest(manifest, ReviewTerms(context, old=old))


@each_case()
def test_check_says_of_a_case_what_its_header_says(case: Case) -> None:
    for minor in case.minors:
        row = checked(case, minor)
        strict = [] if case.sub_resource else list(strict_findings(case.object, case.kind, RELEASES[minor]))
        later = {each.error.field for each in strict if "servers have it from 1." in each.error.detail}
        refusing = {each.error.field for each in strict if each.severity is Severity.DENY} - later
        assert sorted(refusing) == list(case.strict), f"1.{minor}: fields that nobody has"
        errors = [entry for entry in row.entries if entry.level is Level.ERROR and entry.field not in later]
        unknown = told((entry.field, entry.reason) for entry in errors if entry.field in refusing)
        assert unknown == told((field, "FieldValueForbidden") for field in refusing)
        rest = told((entry.field, entry.reason) for entry in errors if entry.field not in refusing)
        if case.kind.kind == "ResourceSlice" and not is_served(case.kind, minor):  # as in the first revision
            assert rest == (("apiVersion", "FieldValueNotSupported"),), f"1.{minor}: {case.sentence}"
            continue
        assert rest == case.errors, f"1.{minor}: {case.sentence}"
        codes = {entry.code for entry in row.entries if entry.level is Level.WARNING} - {None}
        assert codes - LINTED_AS_WELL == set(case.warnings) - LINTED_AS_WELL, f"1.{minor}: {case.sentence}"


# --- the corpus itself --------------------------------------------------------------------------


def test_every_kind_and_version_has_a_clean_case() -> None:
    assert rows_without_a_clean_case() == set()


def test_cases_lie_in_the_folder_of_their_kind_and_rule() -> None:
    misplaced = [
        case.path
        for case in cases()
        if case.path.split("/")[0] != case.kind.kind.lower() or not re.fullmatch(r"[a-z]+(/[a-z0-9.-]+){2}", case.path)
    ]
    assert misplaced == []


def test_cases_have_sentences_of_their_own() -> None:
    sentences = [case.sentence for case in cases()]
    assert sorted({each for each in sentences if sentences.count(each) > 1}) == []


def test_facts_that_cases_name_are_listed() -> None:
    assert {each for case in cases() for each in case.ids} - set(listed()) == set()


def test_every_file_of_the_corpus_is_a_case() -> None:
    others = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    others = {each for each in others if not each.endswith((".yaml", ".pyc"))}
    assert others == {"README.md", "corpus.py"}
