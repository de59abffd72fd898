"""Policies as people write them in a ConfigMap, stored by an API server that asks the webhook first."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.apiserver.policy.firmware import CLAIMS, RULE, make_firmware_claim
from tests.apiserver.policy.stage import Stage, hash_of, make_policy

CLAIM_CONTROLLER: Final = "system:serviceaccount:kube-system:resource-claim-controller"


def _with_mode(word: str) -> str:
    """The policy that refuses the claim, with a mode that has no quotes; JSON is YAML too."""
    return json.dumps(make_policy(rules=[RULE])).removesuffix("}") + f', "mode": {word}}}'


@pytest.mark.parametrize("word", ["off", "Off"])
def test_mode_off_without_quotes_is_stored_and_refuses_nothing(stage: Stage, word: str) -> None:
    """R6: YAML 1.1 reads a boolean here, and the switch is for emergencies."""
    stage.use(make_policy(rules=[RULE]))
    assert stage.client.acting_as("dana").create(CLAIMS, make_firmware_claim(), dry_run=True).code == 403
    reply = stage.write_policy(_with_mode(word))
    assert reply.ok, reply
    stage.wait_policy(hash_of(make_policy(rules=[RULE], mode="off")))
    assert stage.client.acting_as("dana").create(CLAIMS, make_firmware_claim(), dry_run=True).ok


def test_mode_that_is_another_boolean_is_not_stored(stage: Stage) -> None:
    """R6's sibling: the refusal names what YAML made of the word."""
    before = stage.policy_hash
    reply = stage.write_policy(_with_mode("on"))
    assert (reply.ok, stage.policy_hash) == (False, before), reply
    assert "data[policy.yaml].mode: Unsupported value: true" in reply.message
    assert "YAML reads an unquoted on as true" in reply.message


def test_policy_that_would_lock_out_the_claim_controller_is_not_stored(stage: Stage) -> None:
    """R9."""
    before = stage.policy_hash
    locked = make_policy(default="deny", trustedControllers=["system:serviceaccount:ci:maker"])
    reply = stage.write_policy(json.dumps(locked))
    assert not reply.ok, reply
    assert f"trustedControllers: Forbidden: must list {CLAIM_CONTROLLER}" in reply.message
    assert stage.policy_hash == before
    stage.use({**locked, "trustedControllers": [*locked["trustedControllers"], CLAIM_CONTROLLER]})
