"""What the documented rules leave to a trusted controller: claims, whose templates they judged."""

from __future__ import annotations

from typing import Any, Final

from tests.builders import make_admission_request, make_claim, make_context, make_rule, make_template, make_toleration
from tests.tables import table
from tests.unit.policy.documents import judge_of
from webhook.admission.chain import validate
from webhook.api.rules import EVICT

OPERATOR: Final = "system:serviceaccount:kueue:kueue"
EMPTY_KEY: Final = make_toleration(key=None, operator="Equal", value="v")
CROWD: Final = [make_toleration(key=f"example.com/{number}") for number in range(65)]


@table(
    "manifest, allowed",
    {
        "a claim": (make_claim([EMPTY_KEY]), True),
        "a template": (make_template([EMPTY_KEY]), False),
        "a long claim": (make_claim(CROWD), True),
        "a long template": (make_template(CROWD), False),
        "a rule": (make_rule(annotations={EVICT: "yes"}), False),
    },
)
def test_documented_rules_pass_over_claims_of_a_trusted_controller_alone(manifest: Any, *, allowed: bool) -> None:
    context = make_context(judge=judge_of(trustedControllers=[OPERATOR]))
    assert validate(make_admission_request(manifest, user=OPERATOR), context).allowed is allowed
    assert not validate(make_admission_request(manifest, user="mila"), context).allowed
