"""A patch was judged as one impact, so the worker evicts no more for all of its rules than one rule may evict.

Webhook, patch controller and worker run beside each other; every pod is on a device with a name of its own, so the
patch takes a rule for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.evicting import CONDITION, DRIVER, RULES, EvictProcess, Ward, stays
from tests.apiserver.manifests.installing import OWN_NAMESPACE, installation
from tests.apiserver.objects import SLICES, slice_of
from tests.apiserver.patches.serving import CONTROLLER, install_patches, judging, text_in
from tests.apiserver.patches.values import COLLECTION, VERSION
from tests.apiserver.patching import PatchProcess
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import Stage, make_policy
from tests.controlplane.client import Client, Reply
from tests.controlplane.late_answers import LateAnswers
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.api.rules import CONFIRM_IMPACT, EVICT, PATCH_LABEL

pytestmark = pytest.mark.whole

Json = dict[str, Any]

PODS: Final = 8
LIMIT: Final = 5
KEY: Final = "gpu.example.com/unhealthy"
WORKER: Final = "device-taint-webhook-evict"
ROLES: Final = frozenset({"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
GROUPS: Final = ("system:authenticated",)
OPERATOR: Final = "operator"
PATCH: Final = "firmware"
POLICY: Final = make_policy(
    inTreeEvictor="absent",
    impact={
        "limits": [{"requesters": {"users": [OPERATOR]}, "action": "soften", "pods": LIMIT}, {"pods": LIMIT}],
        "window": "0s",
    },
    eviction=[{"rate": 10000, "burst": 100000, "perOwnerUnavailable": None}],
)
USED: Final = {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].used'}}]}


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The kind, the policy, and what accounts may do; nothing of ours runs yet."""
    with own_stage(request, since=37) as found:
        install_patches(found, "User", "dana", OPERATOR)
        _grant(found.plane)
        _ = found.write_policy(yaml.safe_dump(POLICY)).object
        yield found


def _grant(plane: ControlPlane, *, patches: bool = True) -> None:
    """The shipped roles of the worker, with the right to patches or without."""
    shipped = installation(plane.assets, "evict-replacement")
    documents = [each for each in shipped if each["kind"] in ROLES and WORKER in each["metadata"]["name"]]
    for each in documents:
        if "rules" in each and not patches:
            each["rules"] = [rule for rule in each["rules"] if "resourceslicepatches" not in rule["resources"]]
    done = plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))
    assert done.code == 0, done


@pytest.fixture(scope="module")
def serving(stage: Stage) -> Iterator[Stage]:
    """The webhook is called by the API server, and the controller expands patches."""
    kubeconfig = stage.plane.kubeconfig_of(CONTROLLER, ["system:masters"])
    with (
        judging(stage),
        PatchProcess(stage.plane, f"--namespace={OWN_NAMESPACE}", kubeconfig=kubeconfig) as controller,
    ):
        controller.wait_for("working")
        yield stage


class Fleet:
    """One patch on the devices of pods in one namespace."""

    def __init__(self, stage: Stage, ward: Ward) -> None:
        self.stage = stage
        self.client = stage.client
        self.ward = ward

    def of(self, user: str) -> Client:
        return self.stage.client.acting_as(user, GROUPS)

    def create(self, user: str, text: str = "", *, dry_run: bool = False) -> Reply:
        """A patch that closes every device with a pod, sent by a user."""
        annotations = {CONFIRM_IMPACT: text} if text else {}
        patch = {
            "apiVersion": VERSION,
            "kind": "ResourceSlicePatch",
            "metadata": {"name": PATCH, "annotations": annotations},
            "spec": {"devices": {"filter": USED, "taints": [{"key": KEY, "effect": "NoExecute"}]}},
        }
        return self.of(user).create(COLLECTION, patch, dry_run=dry_run)

    def confirm(self, user: str, text: str) -> Reply:
        return self.of(user).patch(f"{COLLECTION}/{PATCH}", {"metadata": {"annotations": {CONFIRM_IMPACT: text}}})

    def rules(self) -> list[Json]:
        return [each for each in self.client.get(RULES).items if PATCH_LABEL in each["metadata"].get("labels", {})]

    def conditions(self) -> list[tuple[str, str]]:
        """Reason and message of each rule of the patch."""
        found = [self.ward.condition(each["metadata"]["name"], CONDITION) for each in self.rules()]
        return [(each.get("reason", ""), each.get("message", "")) for each in found]

    def reasons(self) -> set[str]:
        return {reason for reason, _ in self.conditions()}

    @contextmanager
    def worker(self, late: LateAnswers | None = None) -> Iterator[EvictProcess]:
        """The worker as its own account, with the roles that it has, in mode replacement; `late`: behind this proxy."""
        kubeconfig = self.stage.plane.kubeconfig_of_account(OWN_NAMESPACE, WORKER)
        if late is not None:
            kubeconfig = late.kubeconfig(kubeconfig)
        flags = (f"--namespace={OWN_NAMESPACE}", "--in-tree=absent")
        with EvictProcess(self.stage.plane, "replacement", *flags, policy=None, kubeconfig=kubeconfig) as process:
            yield process.wait_working()


@pytest.fixture
def fleet(serving: Stage) -> Iterator[Fleet]:
    """Eight pods, each in a pool of its own, on a device that has no namesake."""
    with Ward(serving.client) as ward:
        for number in range(PODS):
            devices = [
                {"name": f"used-{number}", "attributes": {"used": {"bool": True}}},
                {"name": "spare", "attributes": {"used": {"bool": False}}},
            ]
            _ = serving.client.create(SLICES, slice_of(DRIVER, f"node-{number}", *devices)).object
            ward.admit(f"pod-{number}", pool=f"node-{number}", device=f"used-{number}")
        found = Fleet(serving, ward)
        known = f"hits {PODS} devices, {PODS} pods "
        wait_until(lambda: known in found.create("dana", dry_run=True).message, "the webhook knows devices and claims")
        yield found
        assert serving.client.delete(COLLECTION).ok
        assert serving.client.delete(RULES).ok
        assert serving.client.delete(SLICES).ok
    wait_until(lambda: not serving.client.get(RULES).items, "no rules are left")


def test_confirmed_patch_is_evicted_in_full(fleet: Fleet) -> None:
    """Its text is on the patch alone."""
    with fleet.worker() as process:
        refused = fleet.create("dana")
        assert f"hits {PODS} devices, {PODS} pods in 1 namespace: the limit is {LIMIT} pods" in refused.message
        stored = fleet.create("dana", text_in(refused))
        assert stored.ok, stored.message
        wait_until(lambda: not fleet.ward.present(), "all pods are evicted")
        assert len(fleet.rules()) == PODS
        wait_until(lambda: fleet.reasons() == {"Completed"}, "each rule says so")
        assert not process.lines("eviction stopped")
        assert all(CONFIRM_IMPACT not in each["metadata"].get("annotations", {}) for each in fleet.rules())


def test_patch_with_more_rules_than_its_limit_stops_as_one_and_goes_on_once_it_is_confirmed(fleet: Fleet) -> None:
    """Softened: closed at once, at most the limit is evicted, also by a second worker; then the patch is confirmed."""
    with fleet.worker():
        stored = fleet.create(OPERATOR)
        assert stored.ok, stored.message
        wait_until(lambda: len(fleet.rules()) == PODS, "the rules are there")
        assert {each["metadata"]["annotations"].get(EVICT) for each in fleet.rules()} == {"true"}
        wait_until(lambda: fleet.reasons() == {"Stopped"}, "they stop together")
        # Each rule is announced before it evicts, so they do not all hit their pods at the same moment.
        text = rf"ResourceSlicePatch {PATCH}, with all of its rules, hits [678] pods, the limit is {LIMIT} and nothing"
        assert [message for _, message in fleet.conditions() if not re.match(text, message)] == []
        assert len(fleet.ward.present()) >= PODS - LIMIT
    with fleet.worker():
        # It announces the rules again, and counts from what the first one has written.
        assert stays((len(fleet.ward.present()) >= PODS - LIMIT for _ in iter(int, 1)), 10.0)
        wait_until(lambda: fleet.reasons() == {"Stopped"}, "they are stopped")
        asked = fleet.confirm("dana", "renew")
        assert asked.code == 403
        confirmed = fleet.confirm("dana", text_in(asked))
        assert confirmed.ok, confirmed.message
        wait_until(lambda: not fleet.ward.present(), "the rest is evicted")


@pytest.mark.parametrize("seconds", [8.0, 30.0], ids=["late", "after the client's timeout"])
def test_pods_count_before_the_answers_to_their_evictions_come(fleet: Fleet, seconds: float) -> None:
    """Each pod is gone, and the next one comes, before the worker learns that it has evicted the first, if ever."""
    with (
        Ward(fleet.client) as ward,
        LateAnswers(fleet.stage.plane, seconds) as late,
        fleet.worker(late) as process,
    ):
        rule = ward.taint()
        for number in range(PODS):
            ward.admit(f"late-{number}", device=f"gpu-{number}")
            if number < LIMIT:
                wait_until(lambda: not ward.present(), "it is evicted")
        wait_until(lambda: ward.condition(rule).get("reason") == "Stopped", "the rule stops")
        wait_until(lambda: len(process.lines("pod evicted")) == LIMIT, "each of them is logged")
        assert len(ward.present()) == PODS - LIMIT


def test_worker_that_may_not_read_patches_works_and_stops_them_at_the_limit(fleet: Fleet) -> None:
    """As its own account, without the right to patches: other rules are evicted, and it says what it does not know."""
    text = text_in(fleet.create("dana"))
    _grant(fleet.stage.plane, patches=False)
    with fleet.worker() as process:
        assert fleet.create("dana", text).ok
        wait_until(lambda: fleet.reasons() == {"Stopped"}, "they stop together")
        why = "its confirmation does not count: the patch is not known: "
        assert all(why in text for _, text in fleet.conditions())
        failures = [each["error"] for each in process.lines("list or watch failed")]
        assert [text for text in failures if "resourceslicepatches" in text]
        pods = fleet.ward.present()
        selector = {"driver": DRIVER, "device": f"used-{min(pods).partition('-')[2]}"}
        spec = {"deviceSelector": selector, "taint": {"key": "other.example.com/x", "effect": "NoExecute"}}
        _ = fleet.client.create(RULES, {"metadata": {"name": "alone"}, "spec": spec}).object
        wait_until(lambda: len(fleet.ward.present()) == len(pods) - 1, "another rule is carried out")
