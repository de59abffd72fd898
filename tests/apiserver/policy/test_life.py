"""The life of a policy in a cluster: written, broken, gone, and the API server gone. No DeviceTaintRules are served."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from tests.apiserver.evicting import stays
from tests.apiserver.policy.firmware import CLAIMS, RULE, make_firmware_claim
from tests.apiserver.policy.stage import (
    BUILTIN,
    POLICY_MAP,
    RestartablePlane,
    Stage,
    answered,
    hash_of,
    make_config_map,
    make_policy,
)
from tests.controlplane.client import Reply
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

IN_USE_WITHIN_SECONDS: Final = 5.0
"""Meant is one; a machine that is busy with something else gets more."""
AWAY_SECONDS: Final = float(os.environ.get("AWAY_SECONDS", "1"))
"""How long the API server is away. AWAY_SECONDS=600 is ten minutes."""
STRICT: Final = make_policy(rules=[RULE])
BROKEN: Final = """\
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
default: maybe
rules:
- {name: no-firmware, action: refuse}
- {name: queues, action: allow, match: {tolerations: {effects: [NoEviction]}}}
"""
MEANINGLESS: Final = """\
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
rules:
- {name: no-firmware, action: deny}
- {name: no-firmware, action: allow, match: {when: 'request.count <'}}
exceptions:
- {name: for-me, rules: [no-fireware], expiresAt: "2999-01-01T00:00:00Z"}
"""
"""Each field is well formed."""


@pytest.fixture(scope="module")
def running(small: Stage) -> Iterator[Stage]:
    """Our server, called by the API server; no policy yet."""
    small.start_webhook()
    small.register()
    yield small
    small.stop_webhook()


@pytest.fixture
def stage(running: Stage) -> Stage:
    """The same with a policy that refuses one sort of toleration."""
    running.use(STRICT)
    return running


def _created(stage: Stage) -> Reply:
    return stage.client.acting_as("dana").create(CLAIMS, make_firmware_claim(), dry_run=True)


# --- before and after --------------------------------------------------------------------------------


def test_without_a_config_map_the_built_in_policy_holds(running: Stage) -> None:
    assert (running.policy_hash, running.load_success, running.webhook.ready()) == (BUILTIN, True, True)
    assert _created(running).ok


def test_without_device_taint_rules_all_else_is_judged(stage: Stage) -> None:
    served = {each["kind"] for each in stage.client.get(f"/apis/{GROUP}/v1").object["resources"]}
    assert "ResourceClaim" in served
    assert "DeviceTaintRule" not in served
    assert stage.webhook.ready()
    assert _created(stage).code == 403


def test_a_new_policy_is_in_use_within_a_second(running: Stage) -> None:
    """Measured from the API server's answer to the first refusal or admission that follows it.

    Two or three times in each direction, and the fastest counts: a machine that pauses spoils the others.
    """
    running.use(STRICT)
    taken: list[float] = []
    while len(taken) % 2 or len(taken) < 4 or (len(taken) < 6 and _slower(taken) >= IN_USE_WITHIN_SECONDS):
        action = "deny" if len(taken) % 2 else "warn"
        policy = make_policy(rules=[{**RULE, "action": action}])
        assert running.write_policy(json.dumps(policy)).ok
        before = time.monotonic()
        wait_until(lambda: _created(running).ok is (action == "warn"), f"the rule's action is {action}")  # noqa: B023
        taken.append(time.monotonic() - before)
    print("\na policy is in use after " + ", ".join(f"{seconds * 1000:.0f} ms" for seconds in taken))
    assert _slower(taken) < IN_USE_WITHIN_SECONDS


def _slower(taken: list[float]) -> float:
    """Of the fastest in either direction."""
    return max(min(taken[0::2]), min(taken[1::2]))


def test_the_mode_is_a_switch_for_all_rules(stage: Stage) -> None:
    refused = _created(stage)
    assert refused.code == 403
    stage.use({**STRICT, "mode": "warn"})
    warned = _created(stage)
    assert warned.ok
    assert ["(rule no-firmware)" in text for text in warned.warnings] == [True]
    stage.use({**STRICT, "mode": "off"})
    silent = _created(stage)
    assert (silent.ok, silent.warnings) == (True, ())
    stage.use(STRICT)
    assert _created(stage).code == 403


def test_an_exception_ends_without_anybody_doing_anything(stage: Stage) -> None:
    for seconds in (2, 10, 60):
        ends_at = _now().replace(microsecond=0) + timedelta(seconds=seconds)
        end = ends_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        exception = {"name": "for-a-moment", "rules": ["no-firmware"], "expiresAt": end}
        stage.use({**STRICT, "exceptions": [exception]})
        excused = _created(stage)
        if _now() < ends_at:
            break  # else the machine took longer than that to come here, and the answer means nothing
    assert excused.ok
    assert [end in text and "(rule for-a-moment)" in text for text in excused.warnings] == [True]
    wait_until(lambda: _created(stage).code == 403, "the exception has ended")


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 -- as the server's clock has it


# --- broken ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (BROKEN, ["default", "rules[0].action", "rules[1].match.tolerations.effects[0]"]),
        (MEANINGLESS, ["rules[1].match.when", "rules[1].name", "exceptions[0].rules[0]"]),
    ],
    ids=["form", "meaning"],
)
def test_a_broken_policy_is_refused_with_every_mistake_at_its_place(stage: Stage, text: str, places: list[str]) -> None:
    how = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    done = stage.plane.kubectl(*how, stdin=json.dumps(make_config_map(text)))
    assert done.code == 1
    assert done.stderr.startswith('The ConfigMap "device-taint-webhook-policy" is invalid: ')
    assert re.findall(r"data\[policy\.yaml\]\.([^ ]+): ", done.stderr) == places
    assert stage.load_success
    assert _created(stage).code == 403


def test_text_that_is_no_yaml_is_refused(stage: Stage) -> None:
    reply = stage.write_policy("rules: [")
    assert reply.code == 422
    assert [cause.field for cause in reply.causes] == ["data[policy.yaml]"]


@pytest.fixture
def bypassed(stage: Stage) -> Iterator[Stage]:
    """Nobody judges what is written to the ConfigMap."""
    stage.unregister()
    yield stage
    stage.register()


def test_a_broken_policy_that_gets_in_does_not_replace_the_last_good_one(bypassed: Stage) -> None:
    stage = bypassed
    assert stage.write_policy(BROKEN).ok
    wait_until(lambda: not stage.load_success, "the metric says that the policy was not loaded")
    assert stage.policy_hash == hash_of(STRICT)
    assert stage.webhook.ready()
    assert not stage.ask(make_firmware_claim())["allowed"]

    def told() -> list[Json]:
        return [event for event in stage.policy_events() if "data[policy.yaml].default" in event["note"]]

    wait_until(lambda: bool(told()), "an Event")
    assert [(event["type"], event["reason"]) for event in told()] == [("Warning", "PolicyNotLoaded")]
    wait_until(lambda: bool(_not_loaded(stage)), "a line in the log")
    logged = _not_loaded(stage)
    assert logged[-1]["level"] == "error"
    assert any("data[policy.yaml].default" in error for error in logged[-1]["errors"])

    stage.use(STRICT)
    # The policy in use is the one from before, so only the metric says that this one was read.
    wait_until(lambda: stage.load_success, "the metric says that the policy was loaded")


UNREADABLE: Final = {
    "the policy is binary": ({"binaryData": {"policy.yaml": "/////w=="}}, "binaryData[policy.yaml]"),
    "its key is misspelt": ({"data": {"policy.yml": json.dumps(STRICT)}}, "data[policy.yml]"),
    "there is no data": ({}, "data[policy.yaml]"),
}
"""What a ConfigMap holds instead of the policy, and where the mistake is."""


def _replaced(stage: Stage, content: Json) -> Reply:
    """Has nothing but this in the ConfigMap."""
    config_map = {key: value for key, value in make_config_map("").items() if key != "data"}
    return stage.client.request("PUT", POLICY_MAP, {**config_map, **content})


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_config_map_that_would_lose_its_policy_is_refused(stage: Stage, fault: str) -> None:
    """F11."""
    content, field = UNREADABLE[fault]
    reply = _replaced(stage, content)
    assert (reply.code, [cause.field for cause in reply.causes]) == (422, [field])
    assert _created(stage).code == 403


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_config_map_that_loses_its_policy_all_the_same_leaves_the_last_good_one(bypassed: Stage, fault: str) -> None:
    """F11: a policy that cannot be found in it is a broken one; only the deletion asks for the built-in one."""
    stage = bypassed
    content, field = UNREADABLE[fault]
    assert _replaced(stage, content).ok
    wait_until(lambda: not stage.load_success, "the metric says that the policy was not loaded")
    assert (stage.policy_hash, stage.webhook.ready()) == (hash_of(STRICT), True)
    assert not stage.ask(make_firmware_claim())["allowed"]
    wait_until(lambda: any(field in each["note"] for each in stage.policy_events()), "an Event")
    assert _replaced(stage, {"data": {"policy.yaml": json.dumps(STRICT)}}).ok
    wait_until(lambda: stage.load_success, "the metric says that the policy was loaded")


def _not_loaded(stage: Stage) -> list[Json]:
    """Lines of the log about that."""
    return [line for line in stage.webhook.logged() if line["msg"].startswith("policy not loaded")]


# --- gone --------------------------------------------------------------------------------------------


def test_a_deleted_policy_leaves_the_built_in_one(stage: Stage) -> None:
    stage.use_nothing()
    stage.wait_policy(BUILTIN)
    assert stage.load_success
    assert _created(stage).ok
    lost = f"policy {hash_of(STRICT)} was deleted"
    wait_until(lambda: any(lost in each["note"] for each in stage.policy_events()), "H2: an Event")
    [event] = [each for each in stage.policy_events() if lost in each["note"]]
    assert (event["type"], event["reason"]) == ("Warning", "PolicyDeleted")


@pytest.mark.whole
def test_metrics_show_what_is_no_longer_enforced(stage: Stage) -> None:
    """H3: pods are ready all the same."""
    every = {'configuration="mutatingwebhookconfigurations"', 'configuration="validatingwebhookconfigurations"'}
    wait_until(lambda: stage.metric("registered") == dict.fromkeys(every, 1.0), "both are registered")
    assert stage.metric("policy_mode") == {'mode="enforce"': 1.0}
    stage.use({**STRICT, "mode": "warn"})
    assert stage.metric("policy_mode") == {'mode="warn"': 1.0}
    stage.unregister()
    try:
        wait_until(lambda: stage.metric("registered") == dict.fromkeys(every, 0.0), "none is", seconds=240)
        assert stage.webhook.ready()
    finally:
        stage.register()


@pytest.mark.whole
def test_all_replicas_started_again_without_a_policy(running: Stage) -> None:
    running.use_nothing()
    running.restart_webhook()
    assert (running.policy_hash, running.load_success, running.webhook.ready()) == (BUILTIN, True, True)
    assert _created(running).ok


@pytest.mark.whole
def test_all_replicas_started_again_with_a_broken_policy(bypassed: Stage) -> None:
    """Nobody remembers a better one: the built-in policy, ready, and a metric that says so."""
    stage = bypassed
    assert stage.write_policy(BROKEN).ok
    stage.stop_webhook()
    stage.start_webhook()
    assert (stage.policy_hash, stage.load_success, stage.webhook.ready()) == (BUILTIN, False, True)
    assert stage.ask(make_firmware_claim())["allowed"]
    stage.use(STRICT)


def test_all_replicas_started_again_with_a_good_policy(stage: Stage) -> None:
    """It is there before the first review, or a restart would be a hole."""
    stage.restart_webhook()
    assert (stage.policy_hash, stage.load_success) == (hash_of(STRICT), True)
    assert _created(stage).code == 403


# --- without the API server --------------------------------------------------------------------------


def _refused_by_rule(stage: Stage) -> bool:
    answer = stage.ask(make_firmware_claim())
    return not answer["allowed"] and "(rule no-firmware)" in answer["status"]["message"]


@pytest.mark.whole
def test_while_the_api_server_is_away_the_last_policy_holds(stage: Stage) -> None:
    plane: RestartablePlane = stage.plane  # type: ignore[assignment]
    plane.stop_api_server()
    try:
        assert stays((_refused_by_rule(stage) and stage.webhook.ready() for _ in iter(int, 1)), AWAY_SECONDS)

        late = stage.launch_webhook()
        code, text = answered(late, "readyz")
        assert code == 503
        assert {name for name in ("names", "policy") if f"[-]{name} failed" in text} == {"names", "policy"}, text
    finally:
        plane.start_api_server()
    wait_until(late.ready, "a replica that waited for the API server")
    assert late.stop() == 0
    stage.use(make_policy(rules=[{**RULE, "action": "warn"}]))  # what is written now is heard of again
    wait_until(lambda: _created(stage).ok, "the new policy")
