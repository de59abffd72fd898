from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.builders import make_claim, make_toleration
from tests.unit.policy.documents import make_document

if TYPE_CHECKING:
    from tests.unit.commands.check_runner import CheckRunner


def test_claim_that_a_broken_policy_did_not_judge_is_not_allowed(run: CheckRunner) -> None:
    policy = run.write("policy", make_document(default="Deny"))
    claim = make_claim([make_toleration()])
    code, output = run("--policy", policy, "-o", "json", claim=claim)
    told = json.loads(output)
    assert (code, [each["result"] for each in told["objects"]]) == (1, ["skipped"])
    assert told["notes"] == ["objects were not judged: the policy could not be used"]
    code, output = run("--policy", policy, claim=claim)
    assert (code, "note: objects were not judged: the policy could not be used\n" in output) == (1, True), output
    assert "<skipped" in run("--policy", policy, "-o", "junit", claim=claim)[1]


def test_candidate_that_is_broken_leaves_the_verdict_of_the_policy_in_force(run: CheckRunner) -> None:
    candidate = run.write("candidate", make_document(default="Deny"))
    code, output = run("--candidate", candidate, "-o", "json", claim=make_claim([make_toleration()]))
    assert (code, [each["result"] for each in json.loads(output)["objects"]]) == (1, ["allowed"])
