"""Decisions that simply allow a claim are remembered, unless very many rules have matched."""

from __future__ import annotations

import pytest

from tests.builders import make_admission_request, make_claim, make_context, make_request, make_toleration
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.chain import validate


@pytest.mark.parametrize(("count", "remembered"), [(1, True), (64, True), (65, False)])
def test_decision_with_up_to_64_hits_is_remembered(count: int, *, remembered: bool) -> None:
    tolerations = [make_toleration(f"x.io/k{number}") for number in range(count)]
    requests = [make_request(f"r{at}", tolerations[at : at + 16]) for at in range(0, count, 16)]
    context = make_context(judge=judge_of(make_entry("no-other", "deny", {"tolerations": {"keys": ["other"]}})))
    first, again = (validate(make_admission_request(make_claim(requests=requests)), context) for _ in range(2))
    assert first == again
    assert (len(first.hits), first.findings) == (count, ())
    assert (first is again) is remembered
