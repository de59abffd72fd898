"""What an export leaves to a trusted controller: the claims that it makes, as the webhook does."""

from __future__ import annotations

from typing import Final

import pytest

from tests.tables import table
from tests.unit.policy.cel import evaluated
from tests.unit.policy.documents import policy_of
from webhook.policy.vap.export import export

OPERATOR: Final = "system:serviceaccount:kueue:kueue"


@pytest.mark.parametrize("generated", ["warn", "enforce"])
@table(
    "resource, user, judged",
    {
        "a claim of it": ("resourceclaims", OPERATOR, False),
        "a template of it": ("resourceclaimtemplates", OPERATOR, True),
        "a claim of another": ("resourceclaims", "mila", True),
    },
)
def test_documented_rules_pass_over_claims_of_a_trusted_controller_alone(
    resource: str, user: str, generated: str, *, judged: bool
) -> None:
    made = export(policy_of(trustedControllers=[OPERATOR], generatedClaims=generated))
    (spec,) = (
        each["spec"]
        for each in made.objects
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"].endswith("documented")
    )
    (condition,) = (each["expression"] for each in spec["matchConditions"] if OPERATOR in each["expression"])
    request = {"resource": {"resource": resource}, "userInfo": {"username": user}}
    assert evaluated(condition, request=request) is judged
