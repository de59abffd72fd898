"""Marks of our controllers on rules of an account that may only set effect None: they close, empty and stop nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.manifests.installing import OWN_NAMESPACE
from tests.apiserver.objects import RULES, rule_for
from tests.apiserver.patches.serving import CONTROLLER, install_patches, judging
from tests.apiserver.patches.test_guard import DRIVER, GROUPS, KEY, NODES, _populate, make_patch, node, of
from tests.apiserver.patches.values import COLLECTION, VERSION
from tests.apiserver.patching import PatchProcess
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from webhook.api.rules import EXPIRES_AT, HARDWARE_LABEL, NOT_BEFORE, PATCH_LABEL, REACTION, REASONS, DeviceSelector
from webhook.api.taints import DeviceTaint
from webhook.inventory.targets import DeviceId, rule_name
from webhook.policy.limits import reaction_rule_name

pytestmark = pytest.mark.whole

Json = dict[str, Any]

SICK: Final = "gpu.example.com/sick"
POLICY: Final = make_policy(
    taintRules=[
        {
            "name": "ours",
            "action": "allow",
            "match": {"requesters": {"serviceAccounts": ["device-taint-webhook/*"], "groups": ["system:masters"]}},
        },
        {"name": "harmless", "action": "allow", "match": {"taints": {"effects": ["None"]}}},
        {"name": "others", "action": "deny"},
    ],
    impact={"limits": [{"pods": 50}]},
    reactions=[
        {
            "name": "sick",
            "when": {"driver": DRIVER, "key": SICK, "for": "1s"},
            "then": {"effect": "NoSchedule", "evict": True},
            "maxDevices": 1,
        }
    ],
)
SQUATTED: Final = rule_name("firmware", DeviceTaint(KEY, "", "NoSchedule"), DeviceSelector(DRIVER, "node-0"))


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Nodes with devices; the kind, the policy; nothing is registered yet."""
    with own_stage(request, since=37, audit=True) as found:
        install_patches(found, "Group", *GROUPS)
        _populate(found.client)
        _ = found.write_policy(yaml.safe_dump(POLICY)).object
        yield found


def harmless(name: str, **metadata: Any) -> Json:
    """What mallory may write."""
    taint = {"key": "mallory.example.com/x", "effect": "None"}
    return rule_for({"driver": "nobody.example.com"}, taint, name, **metadata)


def reasoned(number: int) -> Json:
    """The notes of a reaction about a healthy device, under the name of its rule."""
    address = DeviceId(DRIVER, f"node-{number}", "gpu-0")
    reason = {"reaction": "sick", "key": SICK, "since": "2026-06-01T12:00:00Z", "returns": 6}
    noted = {"device": str(address), "effect": "NoExecute", "reasons": [reason], "evict": True}
    return harmless(reaction_rule_name(address), annotations={REASONS: json.dumps(noted)}, labels={REACTION: "true"})


def controlled(kind: str, uid: str) -> list[Json]:
    version = VERSION if kind == "ResourceSlicePatch" else f"{GROUP}/v1"
    return [{"apiVersion": version, "kind": kind, "name": "firmware", "uid": uid, "controller": True}]


def forged(uid: str) -> dict[str, Json]:
    """Each mark on a rule of effect None, by what it is."""
    return {
        "reasons": reasoned(0),
        "label of reactions": harmless("a", labels={REACTION: "true"}),
        "label of patches": harmless("b", labels={PATCH_LABEL: uid}),
        "label of hardware": harmless("c", labels={HARDWARE_LABEL: uid}),
        "owner reference to a patch": harmless("d", ownerReferences=controlled("ResourceSlicePatch", uid)),
        "owner reference to a rule": harmless("e", ownerReferences=controlled("DeviceTaintRule", uid)),
        "all of a patch": harmless(
            "f", labels={PATCH_LABEL: uid}, ownerReferences=controlled("ResourceSlicePatch", uid)
        ),
        "the name as well": harmless(
            f"{SQUATTED}-3", labels={PATCH_LABEL: uid}, ownerReferences=controlled("ResourceSlicePatch", uid)
        ),
    }


def acting(stage: Stage) -> set[str]:
    """The rules that do something to devices, by name."""
    return {
        each["metadata"]["name"] for each in stage.client.get(RULES).items if each["spec"]["taint"]["effect"] != "None"
    }


def test_marks_that_are_made_up_close_and_stop_nothing(stage: Stage) -> None:
    """Stored before anything was registered they mean nothing; afterwards they are refused."""
    mallory = of(stage, "mallory")
    for number in range(NODES):
        _ = mallory.create(RULES, reasoned(number)).object
    kept = {"finalizers": ["mallory.example.com/never"], "annotations": {NOT_BEFORE: "2099-01-01T00:00:00Z"}}
    _ = mallory.create(RULES, harmless(SQUATTED, **kept)).object
    assert mallory.delete(f"{RULES}/{SQUATTED}").ok
    taken = harmless(
        f"{SQUATTED}-2", annotations={NOT_BEFORE: "2099-01-01T00:00:00Z", EXPIRES_AT: "2026-01-01T00:00:00Z"}
    )
    _ = mallory.create(RULES, taken).object
    kubeconfig = stage.plane.kubeconfig_of(CONTROLLER, GROUPS)
    with (
        judging(stage),
        PatchProcess(stage.plane, f"--namespace={OWN_NAMESPACE}", kubeconfig=kubeconfig) as process,
    ):
        process.wait_for("working")
        patch = stage.client.create(COLLECTION, make_patch(node(0), effect="NoSchedule")).object
        wait_until(lambda: acting(stage) == {f"{SQUATTED}-2"}, "the patch acts under the next name")
        annotations = stage.client.get(f"{RULES}/{SQUATTED}-2").object["metadata"].get("annotations", {})
        assert {NOT_BEFORE, EXPIRES_AT} & annotations.keys() == set()
        wait_until(lambda: len(stage.client.get(RULES).items) == 2, "rules that pretend to be of reactions are gone")
        uid = patch["metadata"]["uid"]
        for what, rule in forged(uid).items():
            reply = mallory.create(RULES, rule)
            assert (reply.code, "would not write this rule" in reply.message) == (403, True), what
        _ = mallory.create(RULES, harmless("ordinary")).object
        for what, rule in forged(uid).items():
            marks = {field: rule["metadata"][field] for field in rule["metadata"] if field != "name"}
            reply = mallory.patch(f"{RULES}/ordinary", {"metadata": marks})
            assert (reply.code, "would not write this rule" in reply.message) == (403, True), what
        assert mallory.patch(f"{RULES}/ordinary", {"metadata": {"labels": {"team": "a"}}}).ok
        assert acting(stage) == {f"{SQUATTED}-2"}
    assert stage.client.patch(f"{RULES}/{SQUATTED}", {"metadata": {"finalizers": None}}).ok
