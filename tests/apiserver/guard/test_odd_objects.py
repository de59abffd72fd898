"""Objects that an API server stores and a fast decoder does not take: everything that follows them goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.evicting import GENTLE, EvictProcess, Ward
from tests.apiserver.guard import crowd
from tests.apiserver.guard.crowd import CLAIMS, DRIVER, make_rule, node
from tests.apiserver.guard.replicas import called
from tests.apiserver.objects import RULES, allocate, claim_of
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.processes import wait_until
from webhook.commands import audit
from webhook.commands.preview import command as preview
from webhook.commands.shared.main import main_of

Json = dict[str, Any]

PLACE: Final = b'"ODD"'
PARAMETERS: Final = {
    "deep": b'{"a":' + b"[" * 4_000 + b"]" * 4_000 + b"}",
    "surrogate": b'{"a":"\\ud800"}',
}
"""As a tenant may write them: up to 10 KiB, which no API server looks into."""
KEY: Final = "broken.example.com/gpu"
POLICY: Final = make_policy(
    rules=[{"name": "none", "action": "deny", "match": {"tolerations": {"keys": [KEY]}}, "message": "repairs first"}]
)
EVERYTHING: Final = "hits 500 devices, 500 pods in 1 namespace: the limit is 50 pods"


def odd(claim: Json, parameters: bytes) -> bytes:
    """The claim with these parameters for its driver."""
    config = [{"opaque": {"driver": DRIVER, "parameters": "ODD"}}]
    spec = {"devices": {**claim["spec"]["devices"], "config": config}}
    return json.dumps({**claim, "spec": spec}).encode().replace(PLACE, parameters)


class OddWard(Ward):
    """Its claims have the parameters of `parameters`."""

    parameters = b"{}"

    def encoded(self, claim: Json) -> bytes:
        return odd(claim, self.parameters)


def occupy(stage: Stage, number: int, parameters: bytes) -> None:
    """A tenant replaces the claim of a node by an odd one, which is then allocated as the other was."""
    tenant, name = stage.client.acting_as("alice", ["system:authenticated"]), node(number)
    assert stage.client.delete(f"{CLAIMS}/{name}").ok
    claim = odd(claim_of(DRIVER, name=name, namespace=crowd.NAMESPACE), parameters)
    assert (reply := tenant.create(CLAIMS, claim)).ok, reply
    allocate(stage.client, CLAIMS, name, driver=DRIVER, pool=name, device="gpu")


@pytest.fixture
def refilled(stage: Stage) -> Iterator[Stage]:
    """Ends with the crowd as it was."""
    yield stage
    for number in range(len(PARAMETERS)):
        stage.client.delete(f"{CLAIMS}/{node(number)}")
        crowd.occupy(stage.client, number)


def refusal_of_everything(stage: Stage) -> str:
    return stage.client.create(RULES, make_rule(None, "everything"), dry_run=True).message


@pytest.mark.whole
def test_claims_are_followed_and_read_again_whatever_their_parameters_hold(refilled: Stage) -> None:
    with called(refilled):
        assert EVERYTHING in refusal_of_everything(refilled)
        for number, parameters in enumerate(PARAMETERS.values()):
            occupy(refilled, number, parameters)
            wait_until(lambda: EVERYTHING in refusal_of_everything(refilled), "the odd claim counts as the other did")
    with called(refilled):
        assert EVERYTHING in refusal_of_everything(refilled)
        assert refilled.metric("reflector_errors_total").values()
        assert not any(refilled.metric("reflector_errors_total").values())


@pytest.mark.parametrize("kind", ["deep", pytest.param("surrogate", marks=pytest.mark.whole)])
def test_toleration_beside_odd_parameters_is_refused_like_any_other(guarded: Stage, kind: str) -> None:
    guarded.use(POLICY)
    claim = claim_of(DRIVER, {"key": KEY, "operator": "Exists"}, name=f"odd-{kind}", namespace=crowd.NAMESPACE)
    reply = guarded.client.create(CLAIMS, odd(claim, PARAMETERS[kind]))
    assert (reply.code, "repairs first" in reply.message) == (403, True), reply


@pytest.mark.parametrize("kind", ["deep", pytest.param("surrogate", marks=pytest.mark.whole)])
def test_worker_audit_and_preview_go_on(
    stage: Stage, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = f"--kubeconfig={stage.plane.kubeconfig}"
    with OddWard(stage.client) as ward:
        ward.parameters = PARAMETERS[kind]
        ward.admit("one", {"key": KEY, "operator": "Exists"})
        rule = ward.taint()
        with EvictProcess(stage.plane, "observe", policy=GENTLE) as process:
            process.wait_working()
            expected = "0 pods evicted; 1 pod would be evicted in 1 namespace"
            wait_until(lambda: ward.condition(rule).get("message") == expected, "the pod of the odd claim is seen")
        (tmp_path / "rule.json").write_text(json.dumps(stage.client.get(f"{RULES}/{rule}").object))
        (tmp_path / "policy.json").write_text(json.dumps(POLICY))
        assert main_of(preview, [str(tmp_path / "rule.json"), kubeconfig]) == 0
        assert re.search(rf"^{ward.name}/one .* now +no toleration$", capsys.readouterr().out, re.MULTILINE)
        assert main_of(audit, ["-o", "json", "--policy", str(tmp_path / "policy.json"), kubeconfig]) == 1
        found = json.loads(capsys.readouterr().out)["findings"]
        assert [(each["name"], each["reason"]) for each in found if each["namespace"] == ward.name] == [
            ("one", "refused")
        ]
