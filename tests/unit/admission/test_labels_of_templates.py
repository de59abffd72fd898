"""Labels and annotations that `when` sees of a template: those that its claims will have, in spec.metadata."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_admission_request, make_claim, make_context, make_meta, make_template, make_toleration
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.chain import mutate, validate
from webhook.admission.claim_view import DEFAULTED, REQUESTED_BY
from webhook.admission.decision import apply_patch

PROD: dict[str, Any] = {"labels": {"tier": "prod"}, "annotations": {"note": "prod"}}


def template(own: dict[str, Any], given: dict[str, Any]) -> Any:
    made = make_template([make_toleration()], meta=make_meta("t", namespace="ml", **own))
    made["spec"]["metadata"] = given
    return made


def claim(own: dict[str, Any]) -> Any:
    return make_claim([make_toleration()], meta=make_meta("c", namespace="ml", **own))


def is_refused(manifest: Any, when: str) -> bool:
    context = make_context(judge=judge_of(make_entry("no", "deny", {"when": when})))
    stored = apply_patch(manifest, mutate(make_admission_request(manifest), context).patch)
    return any(each.rule == "no" for each in validate(make_admission_request(stored), context).findings)


@pytest.mark.parametrize(
    "when",
    [
        'has(claim.labels.tier) && claim.labels.tier == "prod"',
        'has(claim.annotations.note) && claim.annotations.note == "prod"',
    ],
    ids=["labels", "annotations"],
)
@table(
    "manifest, refused",
    {
        "a claim that has them": (claim(PROD), True),
        "a claim without": (claim({}), False),
        "a template whose claims will have them": (template({}, PROD), True),
        "a template that has them itself, and whose claims will not": (template(PROD, {}), False),
    },
)
def test_template_is_refused_for_what_its_claims_would_be(manifest: Any, when: str, *, refused: bool) -> None:
    assert is_refused(manifest, when) is refused


def test_names_are_those_of_the_template_as_its_claims_have_none_yet() -> None:
    assert is_refused(template({}, PROD), 'claim.name == "t" && claim.template')


@pytest.mark.parametrize("note", [REQUESTED_BY, DEFAULTED])
def test_note_of_ours_that_claims_of_a_template_get_is_not_seen(note: str) -> None:
    assert not is_refused(template({}, {"annotations": {note: "{}"}}), f'"{note}" in claim.annotations')
