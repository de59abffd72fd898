"""A refused rule, confirmed the ways that people send objects, and by whoever answers next."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.apiserver.guard import crowd
from tests.apiserver.guard.crowd import RULES, make_rule
from tests.apiserver.guard.replicas import Replicas, wait_synced
from tests.apiserver.policy.stage import make_policy
from tests.controlplane.processes import wait_until
from webhook.api.rules import CONFIRM_IMPACT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.apiserver.policy.stage import Stage
    from tests.controlplane.plane import Result

Json = dict[str, Any]

pytestmark = pytest.mark.apiserver

CODE: Final = re.compile(rf'{re.escape(CONFIRM_IMPACT)} to "(v1\.[^"]+)"')
FIGURES: Final = "selects 500 devices in 500 pools; evicts 500 pods in 1 namespace, all at once"
PUBLISHER: Final = "system:serviceaccount:gitops:publisher"
WARNING: Final = re.compile(r"^Warning: (.*)$", re.MULTILINE)


def _code(text: str) -> str:
    (code,) = set(CODE.findall(text))
    return str(code)


def _confirmed(rule: Json, code: str) -> Json:
    changed = copy.deepcopy(rule)
    changed["metadata"].setdefault("annotations", {})[CONFIRM_IMPACT] = code
    return changed


def _apply(stage: Stage, rule: Json, *arguments: str, user: str = "dana") -> Result:
    return stage.plane.kubectl("apply", "-f", "-", *arguments, stdin=json.dumps(rule), user=user)


def _stored(stage: Stage, name: str) -> Json | None:
    reply = stage.client.get(f"{RULES}/{name}")
    return reply.object if reply.ok else None


# --- ways to send ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("--server-side",)], ids=["apply", "server-side apply"])
def test_kubectl_apply_and_apply_again_with_the_code(guarded: Stage, arguments: tuple[str, ...]) -> None:
    rule = make_rule(None, "by-kubectl")
    refused = _apply(guarded, rule, *arguments)
    assert (refused.code, _stored(guarded, "by-kubectl")) == (1, None), refused
    assert "hits 500 devices, 500 pods in 1 namespace: the limit is 50 pods; narrow the selector" in refused.stderr
    applied = _apply(guarded, _confirmed(rule, _code(refused.stderr)), *arguments)
    assert applied.code == 0, applied
    assert FIGURES in applied.stderr
    stored = _stored(guarded, "by-kubectl")
    assert stored is not None
    assert stored["spec"]["taint"]["effect"] == "NoExecute"
    again = _apply(guarded, _confirmed(rule, _code(refused.stderr)), *arguments)
    assert (again.code, "evicts" in again.stderr) == (0, False), again  # it does nothing new


@pytest.mark.parametrize("arguments", [(), ("--server-side",)], ids=["apply", "server-side apply"])
@pytest.mark.whole
def test_effect_that_is_raised_later(guarded: Stage, arguments: tuple[str, ...]) -> None:
    """What a rule hits is looked at while it does nothing, then it is let loose."""
    rule = make_rule(None, "raised", effect="None")
    looked = _apply(guarded, rule, *arguments)
    assert looked.code == 0, looked
    assert f"with effect NoExecute {FIGURES}" in looked.stderr
    loose = make_rule(None, "raised")
    refused = _apply(guarded, loose, *arguments)
    assert refused.code == 1, refused
    assert _apply(guarded, _confirmed(loose, _code(refused.stderr)), *arguments).code == 0


@pytest.mark.whole
def test_two_commits(guarded: Stage) -> None:
    """A controller applies what is in a repository, again and again, and people change the repository."""
    repository = make_rule(None, "from-git")
    for _ in range(2):
        refused = _apply(guarded, repository, "--server-side", user=PUBLISHER)
        assert refused.code == 1, refused
    repository = _confirmed(repository, _code(refused.stderr))
    guarded.restart_webhook()  # meanwhile; a review takes days
    wait_synced(guarded.webhook)
    for _ in range(2):
        applied = _apply(guarded, repository, "--server-side", user=PUBLISHER)
        assert applied.code == 0, applied
    cleaned = _apply(guarded, make_rule(None, "from-git"), "--server-side", user=PUBLISHER)
    assert cleaned.code == 0, cleaned
    stored = _stored(guarded, "from-git")
    assert stored is not None
    assert CONFIRM_IMPACT not in stored["metadata"].get("annotations", {})


def test_second_person(guarded: Stage) -> None:
    guarded.use(make_policy(impact={"secondPerson": True}))
    rule = make_rule(None, "by-two")
    refused = _apply(guarded, rule, user="dana")
    assert "to go ahead, another user must set annotation" in refused.stderr, refused
    confirmed = _confirmed(rule, _code(refused.stderr))
    alone = _apply(guarded, confirmed, user="dana")
    assert (alone.code, "was given to the same user; another user must confirm" in alone.stderr) == (1, True), alone
    assert _apply(guarded, confirmed, user="john").code == 0


@pytest.mark.whole
def test_impact_that_has_grown_must_be_confirmed_anew(guarded: Stage) -> None:
    """Ten percent more pass, and not one pod above that."""
    guarded.use(make_policy(impact={"limits": [{"pods": 2}]}))
    taken, late = range(30), [400, 401, 402]
    rule = make_rule(None, "grown")
    everybody = range(crowd.COUNT)
    guarded.client.each(lambda number: crowd.vacate(guarded.client, number), everybody, threads=8)
    try:
        guarded.client.each(lambda number: crowd.occupy(guarded.client, number), taken, threads=8)
        guarded.restart_webhook()
        wait_synced(guarded.webhook)
        refused = _apply(guarded, rule)
        assert "hits 500 devices, 30 pods in 1 namespace" in refused.stderr, refused
        confirmed = _confirmed(rule, _code(refused.stderr))
        for number in late:
            crowd.occupy(guarded.client, number)
        wait_until(lambda: "hits 500 devices, 33 pods" in guarded.refusal(rule), "the webhook knows of 33 pods")
        assert _apply(guarded, confirmed, "--dry-run=server").code == 0
        crowd.occupy(guarded.client, 403)
        wait_until(lambda: "hits 500 devices, 34 pods" in guarded.refusal(rule), "the webhook knows of 34 pods")
        grown = _apply(guarded, confirmed)
        assert grown.code == 1, grown
        assert "was made for less: now 34 claims (at most 33), 34 pods (at most 33)" in grown.stderr
    finally:
        there = {claim["metadata"]["name"] for claim in guarded.client.get(crowd.CLAIMS).items}
        gone = [number for number in everybody if crowd.node(number) not in there]
        guarded.client.each(lambda number: crowd.occupy(guarded.client, number), gone, threads=8)


# --- whoever answers ------------------------------------------------------------------------------


@pytest.mark.whole
def test_code_of_one_replica_holds_in_another(stage: Stage) -> None:
    rule = make_rule(None, "elsewhere")
    with Replicas(stage, 2) as replicas:
        answers = []
        for webhook in replicas.all:
            stage.webhook = webhook
            answers.append(stage.ask(rule))
        codes = [_code(answer["status"]["message"]) for answer in answers]
        for webhook, code in zip(replicas.all, reversed(codes), strict=True):
            stage.webhook = webhook
            assert stage.ask(_confirmed(rule, code))["allowed"]
    with Replicas(stage, 1) as later:
        (stage.webhook,) = later.all
        assert [stage.ask(_confirmed(rule, code))["allowed"] for code in codes] == [True, True]
        forged = codes[0][:-1] + ("A" if codes[0][-1] != "A" else "B")
        assert not stage.ask(_confirmed(rule, forged))["allowed"]


# --- dry runs -------------------------------------------------------------------------------------


def test_dry_run_tells_the_same_and_promises_nothing(guarded: Stage) -> None:
    guarded.use(make_policy(impact={"limits": [{"pods": 2}]}))
    told = {}
    for number in range(4):
        done = _apply(guarded, make_rule(number), "--dry-run=server")
        assert done.code == 0, done
        told[number] = WARNING.findall(done.stderr)
        assert any("evicts 1 pod in 1 namespace, all at once" in text for text in told[number])
    for number in range(2):
        done = _apply(guarded, make_rule(number))
        assert (done.code, WARNING.findall(done.stderr)) == (0, told[number]), done
    third = [_apply(guarded, make_rule(2), *arguments) for arguments in (("--dry-run=server",), ())]
    assert [done.code for done in third] == [1, 1]
    for done in third:
        assert "it hits 3 pods, and the limit is 2 pods" in done.stderr
    assert _code(third[0].stderr).rpartition(".")[0].split(".")[2:] == ["1", "1", "1", "1"]


def test_code_from_a_dry_run_confirms(guarded: Stage) -> None:
    """`preview` gets it so."""
    rule = make_rule(None, "dry")
    refused = _apply(guarded, rule, "--dry-run=server")
    assert refused.code == 1, refused
    assert _apply(guarded, _confirmed(rule, _code(refused.stderr))).code == 0


# --- traces ---------------------------------------------------------------------------------------


def test_refusal_and_confirmation_stand_in_the_audit_log(guarded: Stage, tmp_path: Path) -> None:
    rule = make_rule(None, "audited")
    file = tmp_path / "rule.json"
    file.write_text(json.dumps(rule))
    refused = guarded.plane.kubectl("create", "-f", file, user="dana")
    file.write_text(json.dumps(_confirmed(rule, _code(refused.stderr))))
    assert guarded.plane.kubectl("create", "-f", file, user="dana").code == 0
    audited = guarded.audited("rules.validate.devicetaint.io", "create", f"{RULES}/audited")
    assert audited["decision"] == "warned"
    assert audited["impact"].startswith("devices=500 pools=500 allocated=500 claims=500 pods=500 now=500 later=0")
    assert audited["impact"].endswith(" over=limit:pods confirmed")
