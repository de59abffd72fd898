"""A refused rule, confirmed the ways that people send objects, and by whoever answers next."""

from __future__ import annotations

import copy
import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.guard import crowd
from tests.apiserver.guard.crowd import make_rule
from tests.apiserver.guard.replicas import Replicas, wait_synced
from tests.apiserver.objects import RULES
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.plane import Result
from tests.controlplane.processes import wait_until
from webhook import cli
from webhook.api.rules import CONFIRM_IMPACT

Json = dict[str, Any]

TEXT: Final = re.compile(rf'{re.escape(CONFIRM_IMPACT)} to "(v1 [^"]+)"')
FIGURES: Final = "selects 500 devices in 500 pools; evicts 500 pods in 1 namespace, all at once"
PUBLISHER: Final = "system:serviceaccount:gitops:publisher"
WARNING: Final = re.compile(r"^Warning: (.*)$", re.MULTILINE)


def _text(said: str) -> str:
    (text,) = set(TEXT.findall(said))
    return str(text)


def _confirmed(rule: Json, text: str) -> Json:
    changed = copy.deepcopy(rule)
    changed["metadata"].setdefault("annotations", {})[CONFIRM_IMPACT] = text
    return changed


def _apply(stage: Stage, rule: Json, *arguments: str, user: str = "dana") -> Result:
    return stage.plane.kubectl("apply", "-f", "-", *arguments, stdin=json.dumps(rule), user=user)


def _stored(stage: Stage, name: str) -> Json | None:
    reply = stage.client.get(f"{RULES}/{name}")
    return reply.object if reply.ok else None


# --- ways to send ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), marks=pytest.mark.whole), ("--server-side",)],
    ids=["apply", "server-side apply"],
)
def test_kubectl_apply_and_apply_again_with_the_text(guarded: Stage, arguments: tuple[str, ...]) -> None:
    rule = make_rule(None, "by-kubectl")
    refused = _apply(guarded, rule, *arguments)
    assert (refused.code, _stored(guarded, "by-kubectl")) == (1, None), refused
    assert "hits 500 devices, 500 pods in 1 namespace: the limit is 50 pods; narrow the selector" in refused.stderr
    applied = _apply(guarded, _confirmed(rule, _text(refused.stderr)), *arguments)
    assert applied.code == 0, applied
    assert FIGURES in applied.stderr
    stored = _stored(guarded, "by-kubectl")
    assert stored is not None
    assert stored["spec"]["taint"]["effect"] == "NoExecute"
    again = _apply(guarded, _confirmed(rule, _text(refused.stderr)), *arguments)
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
    assert _apply(guarded, _confirmed(loose, _text(refused.stderr)), *arguments).code == 0


@pytest.mark.whole
def test_two_commits(guarded: Stage) -> None:
    """A controller applies what is in a repository, again and again, and people change the repository."""
    repository = make_rule(None, "from-git")
    for _ in range(2):
        refused = _apply(guarded, repository, "--server-side", user=PUBLISHER)
        assert refused.code == 1, refused
    repository = _confirmed(repository, _text(refused.stderr))
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


@pytest.mark.whole
def test_rule_in_git_that_is_applied_again_after_a_deletion_goes_in(guarded: Stage) -> None:
    rule = make_rule(None, "again")
    confirmed = _confirmed(rule, _text(_apply(guarded, rule, user=PUBLISHER).stderr))
    for _ in range(2):
        assert _apply(guarded, confirmed, "--server-side", user=PUBLISHER).code == 0
        assert guarded.client.delete(f"{RULES}/again").ok


# --- what a text does not do ----------------------------------------------------------------------


def _evicting(rule: Json) -> Json:
    """The same devices, closed and emptied by our worker."""
    changed = copy.deepcopy(rule)
    changed["metadata"].setdefault("annotations", {})["devicetaint.io/evict"] = "true"
    changed["spec"]["taint"]["effect"] = "NoSchedule"
    return changed


def test_text_is_for_one_rule_and_what_it_hits(guarded: Stage) -> None:
    rule, empty = make_rule(None, "one"), make_rule(None, "one")
    empty["spec"]["deviceSelector"] = {}
    refused = _apply(guarded, empty)
    assert "an empty selector is every device of every driver" in refused.stderr, refused
    text = _text(refused.stderr)
    other = "was printed for another object"
    for changed in (rule, {**empty, "metadata": {**empty["metadata"], "name": "two"}}, _evicting(empty)):
        answer = _apply(guarded, _confirmed(changed, text), "--dry-run=server")
        assert (answer.code, other in answer.stderr) == (1, True), answer
    gentle = _text(_apply(guarded, _evicting(empty)).stderr)
    blunt = _apply(guarded, _confirmed(empty, gentle), "--dry-run=server")
    assert (blunt.code, other in blunt.stderr) == (1, True), blunt
    for figure in ("devices", "claims", "pods", "namespaces"):
        more = re.sub(rf" {figure}=([0-9]+)", f" {figure}=999999", text)
        overstated = _apply(guarded, _confirmed(empty, more), "--dry-run=server")
        assert (overstated.code, f"says more than is hit: 999999 {figure}" in overstated.stderr) == (1, True), (
            overstated
        )
    fewer = _apply(guarded, _confirmed(empty, text.replace("pods=500", "pods=454")), "--dry-run=server")
    assert (fewer.code, "now 500 pods (at most 500)" in fewer.stderr) == (0, False), fewer
    fewer = _apply(guarded, _confirmed(empty, text.replace("pods=500", "pods=453")), "--dry-run=server")
    assert (fewer.code, "was printed for less: now 500 pods (at most 499)" in fewer.stderr) == (1, True), fewer
    old = _apply(guarded, _confirmed(empty, "v1.1780574400.500.500.500.1." + "A" * 38), "--dry-run=server")
    assert (old.code, _text(old.stderr)) == (1, text), old
    assert _apply(guarded, _confirmed(empty, text)).code == 0


def test_only_confirmers_confirm_and_nobody_where_the_policy_says_so(guarded: Stage) -> None:
    limits = [{"requesters": {"users": ["bot"]}, "pods": 1, "confirmable": False}, {"pods": 1}]
    guarded.use(make_policy(impact={"confirmers": {"users": ["john", "bot"]}, "limits": limits}))
    rule = make_rule(None, "by-two")
    refused = _apply(guarded, rule, user="dana")
    assert "to go ahead, one of the policy's confirmers must set annotation" in refused.stderr, refused
    confirmed = _confirmed(rule, _text(refused.stderr))
    alone = _apply(guarded, confirmed, user="dana")
    assert (alone.code, "may be set by the policy's confirmers alone" in alone.stderr) == (1, True), alone
    bot = _apply(guarded, confirmed, user="bot")
    assert (bot.code, "no one may confirm it (confirmable: false)" in bot.stderr) == (1, True), bot
    assert _apply(guarded, confirmed, user="john").code == 0


@pytest.mark.parametrize("mode", ["enforce", "warn", "off"])
@pytest.mark.whole
def test_no_text_is_planted_while_no_limit_asks_for_it(guarded: Stage, mode: str) -> None:
    """It would be there when a limit does."""
    rule = make_rule(1, "planted", effect="None")
    text = _text(_apply(guarded, _confirmed(rule, "renew")).stderr)
    guarded.use(make_policy(mode=mode, impact={"confirmers": {"users": ["john"]}}))
    planted = _apply(guarded, _confirmed(rule, text), user="dana")
    assert (planted.code, "may be set by the policy's confirmers alone" in planted.stderr) == (1, True), planted
    larger = _apply(guarded, _confirmed(rule, text.replace("pods=1", "pods=500")), user="john")
    assert (larger.code, "says more than is hit: 500 pods (today 1)" in larger.stderr) == (1, True), larger
    fixed = {"taints": {"effects": ["NoExecute"]}, "pods": 1, "confirmable": False}
    guarded.use(make_policy(mode=mode, impact={"limits": [fixed, {}]}))
    unconfirmable = _apply(guarded, _confirmed(rule, text), user="john")
    assert (unconfirmable.code, "no one may confirm this" in unconfirmable.stderr) == (1, True), unconfirmable
    guarded.use(make_policy(mode=mode, impact={"confirmers": {"users": ["john"]}}))
    assert _apply(guarded, _confirmed(rule, text), user="john").code == 0


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
        confirmed = _confirmed(rule, _text(refused.stderr))
        for number in late:
            crowd.occupy(guarded.client, number)
        wait_until(lambda: "hits 500 devices, 33 pods" in guarded.refusal(rule), "the webhook knows of 33 pods")
        assert _apply(guarded, confirmed, "--dry-run=server").code == 0
        crowd.occupy(guarded.client, 403)
        wait_until(lambda: "hits 500 devices, 34 pods" in guarded.refusal(rule), "the webhook knows of 34 pods")
        grown = _apply(guarded, confirmed)
        assert grown.code == 1, grown
        assert "was printed for less: now 34 claims (at most 33), 34 pods (at most 33)" in grown.stderr
    finally:
        there = {claim["metadata"]["name"] for claim in guarded.client.get(crowd.CLAIMS).items}
        gone = [number for number in everybody if crowd.node(number) not in there]
        guarded.client.each(lambda number: crowd.occupy(guarded.client, number), gone, threads=8)


# --- whoever answers ------------------------------------------------------------------------------


@pytest.mark.whole
def test_every_replica_prints_the_same_text_and_takes_it(stage: Stage) -> None:
    rule = make_rule(None, "elsewhere")
    with Replicas(stage, 2) as replicas:
        texts = set()
        for webhook in replicas.all:
            stage.webhook = webhook
            texts.add(_text(stage.ask(rule)["status"]["message"]))
    (text,) = texts
    with Replicas(stage, 1) as later:
        (stage.webhook,) = later.all
        assert stage.ask(_confirmed(rule, text))["allowed"]
        forged = text[:-1] + ("a" if text[-1] != "a" else "b")
        assert not stage.ask(_confirmed(rule, forged))["allowed"]


# --- dry runs -------------------------------------------------------------------------------------


@pytest.mark.whole
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
    _wait_shown(guarded, 2)
    third = [_apply(guarded, make_rule(2), *arguments) for arguments in (("--dry-run=server",), ())]
    assert [done.code for done in third] == [1, 1]
    for done in third:
        assert "it hits 3 pods, and the limit is 2 pods" in done.stderr
    assert _text(third[0].stderr).startswith("v1 devices=1 claims=1 pods=1 namespaces=1 of=")


@pytest.mark.whole
def test_text_from_a_dry_run_confirms(guarded: Stage) -> None:
    """`preview` gets it so."""
    rule = make_rule(None, "dry")
    refused = _apply(guarded, rule, "--dry-run=server")
    assert refused.code == 1, refused
    assert _apply(guarded, _confirmed(rule, _text(refused.stderr))).code == 0


# --- traces ---------------------------------------------------------------------------------------


def test_refusal_and_confirmation_stand_in_the_audit_log(guarded: Stage, tmp_path: Path) -> None:
    rule = make_rule(None, "audited")
    file = tmp_path / "rule.json"
    file.write_text(json.dumps(rule))
    refused = guarded.plane.kubectl("create", "-f", file, user="dana")
    file.write_text(json.dumps(_confirmed(rule, _text(refused.stderr))))
    assert guarded.plane.kubectl("create", "-f", file, user="dana").code == 0
    audited = guarded.audited("rules.validate.devicetaint.io", "create", f"{RULES}/audited")
    assert audited["decision"] == "warned"
    assert audited["impact"].startswith("devices=500 pools=500 allocated=500 claims=500 pods=500 now=500 later=0")
    assert audited["impact"].endswith(" over=limit:pods confirmed")


def _wait_shown(stage: Stage, rules: int) -> None:
    """Until its watch has shown that many rules to our server: before that they count for two seconds only."""
    line = f'inventory_objects{{resource="devicetaintrules"}} {rules}.0'
    wait_until(lambda: line in stage.webhook.metrics(), f"{rules} rules are known")


# --- several rules of one command -----------------------------------------------------------------


def test_command_whose_second_rule_the_window_refuses_goes_on_once_confirmed(
    guarded: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is within the limit, as its dry run says, and together with the window they are not."""
    for number in range(49):
        _ = guarded.client.create(RULES, make_rule(number)).object
    _wait_shown(guarded, 49)
    words = [*(f"{crowd.DRIVER}/{crowd.node(number)}" for number in (100, 101)), f"{crowd.KEY}:NoExecute", "--all"]
    where = f"--kubeconfig={guarded.plane.kubeconfig}"
    assert cli.main(["taint", *words, where]) == 1
    said = capsys.readouterr()
    assert (len(said.out.splitlines()), len(guarded.client.get(RULES).items)) == (1, 50)
    (command,) = re.findall(r"^  device-taint-webhook (taint .*)$", said.err, re.MULTILINE)
    assert cli.main(shlex.split(command)) == 0, capsys.readouterr().err
    assert len(guarded.client.get(RULES).items) == 51
