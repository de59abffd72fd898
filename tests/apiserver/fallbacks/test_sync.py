"""Admission policies follow the policy on a real API server, and nothing that is not ours is touched."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.apiserver.accounts import asked_for, refused
from tests.apiserver.fallbacks.syncing import (
    API,
    DEFAULT,
    FAST_SECONDS,
    FORBIDDEN,
    POLICY,
    TAINTS,
    exported,
    url_of,
)
from tests.apiserver.test_cases import MINOR
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apiserver.accounts import Token
    from tests.apiserver.evicting import EvictProcess
    from tests.apiserver.fallbacks.syncing import Syncing

Json = dict[str, Any]

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(
        MINOR < 37, reason="rules have another version, and policies that add are not served everywhere"
    ),
]

METRIC: Final = "device_taint_webhook_fallback_"


class Running:
    """The stage, and the leader on it."""

    def __init__(self, syncing: Syncing, process: EvictProcess, token: Token) -> None:
        self.syncing = syncing
        self.process = process
        self.token = token

    def state(self, name: str) -> float:
        return self.process.metric(f"{METRIC}objects")[f'{{state="{name}"}}']


@pytest.fixture(scope="module")
def running(syncing: Syncing) -> Iterator[Running]:
    syncing.write(POLICY)
    process, token = syncing.process("apply")
    with process:
        process.wait_working()
        yield Running(syncing, process, token)
    syncing.clear()


@pytest.fixture
def sync(running: Running) -> Syncing:
    running.syncing.use(POLICY)
    return running.syncing


def test_what_is_refused_and_added_follows_the_policy_without_any_webhook(sync: Syncing) -> None:
    wait_until(lambda: "(rule no-maintenance)" in sync.refusal(FORBIDDEN), "refused", seconds=FAST_SECONDS)
    wait_until(lambda: sync.given() == [DEFAULT], "added", seconds=FAST_SECONDS)
    other: Json = copy.deepcopy(POLICY)
    other["rules"][0] |= {"name": "no-xid", "match": {"tolerations": {"keys": ["xid.example.com/*"]}}}
    other["defaultTolerations"][0]["tolerations"][0]["tolerationSeconds"] = 60
    sync.use(other)
    xid = {"key": "xid.example.com/79", "operator": "Exists"}
    wait_until(lambda: "(rule no-xid)" in sync.refusal(xid), "refused", seconds=FAST_SECONDS)
    wait_until(lambda: sync.refusal(FORBIDDEN) == "", "not refused any more", seconds=FAST_SECONDS)
    wait_until(lambda: sync.given()[0]["tolerationSeconds"] == 60, "added", seconds=FAST_SECONDS)


def test_what_the_policy_no_longer_has_is_deleted_and_what_was_exported_by_hand_is_not(running: Running) -> None:
    sync = running.syncing
    sync.use(TAINTS)
    by_hand = [each for each in exported(TAINTS) if each["metadata"]["name"].endswith("-taints")]
    left = {**by_hand[0], "metadata": {**by_hand[0]["metadata"], "name": "device-taint-webhook-taints-2"}}
    assert sync.client.create(path(API, "validatingadmissionpolicies"), left).ok
    try:
        sync.write(POLICY)
        gone = url_of("ValidatingAdmissionPolicyBinding", "taints")
        wait_until(lambda: sync.client.get(gone).code == 404, "the binding is gone", seconds=FAST_SECONDS)
        gone = url_of("ValidatingAdmissionPolicy", "taints")
        wait_until(lambda: sync.client.get(gone).code == 404, "the policy is gone", seconds=FAST_SECONDS)
        assert sync.client.get(url_of("ValidatingAdmissionPolicy", "taints-2")).ok
        wait_until(lambda: running.state("left_over") == 1, "it is reported", seconds=FAST_SECONDS)
    finally:
        assert sync.client.delete(url_of("ValidatingAdmissionPolicy", "taints-2")).ok
    sync.wait_equal(POLICY)


EDITS: Final = {
    "changed": ("ValidatingAdmissionPolicyBinding", "tolerations", {"spec": {"validationActions": ["Audit"]}}),
    "added": (
        "ValidatingAdmissionPolicy",
        "tolerations",
        {"spec": {"matchConditions": [{"name": "never", "expression": "false"}]}},
    ),
    "excluded": (
        "ValidatingAdmissionPolicyBinding",
        "tolerations",
        {"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}},
    ),
    "other default": ("MutatingAdmissionPolicy", "defaults", {"spec": {"failurePolicy": "Fail"}}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_hand_edit_is_put_back_and_told_of(running: Running, sync: Syncing, edit: str) -> None:
    """Also one of which server-side apply alone would leave something."""
    kind, name, patch = EDITS[edit]
    reverts = running.process.metric(f"{METRIC}reverts_total")[""]
    told = len(sync.events("AdmissionPolicyPutBack"))
    wait_until(lambda: running.state("in_sync") == len(exported(POLICY)), "compared", seconds=FAST_SECONDS)
    content = "application/strategic-merge-patch+json"
    assert sync.client.patch(url_of(kind, name), patch, content).ok
    wait_until(lambda: sync.equals(POLICY), "put back", seconds=FAST_SECONDS)
    wait_until(
        lambda: running.process.metric(f"{METRIC}reverts_total")[""] == reverts + 1, "counted", seconds=FAST_SECONDS
    )
    wait_until(lambda: len(sync.events("AdmissionPolicyPutBack")) > told, "an Event", seconds=FAST_SECONDS)
    assert f"{kind} device-taint-webhook-{name}" in " ".join(sync.events("AdmissionPolicyPutBack"))


def test_deleted_object_comes_back(running: Running, sync: Syncing) -> None:
    wait_until(lambda: running.state("in_sync") == len(exported(POLICY)), "compared", seconds=FAST_SECONDS)
    reverts = running.process.metric(f"{METRIC}reverts_total")[""]
    assert sync.client.delete(url_of("ValidatingAdmissionPolicyBinding", "tolerations")).ok
    wait_until(
        lambda: running.process.metric(f"{METRIC}reverts_total")[""] == reverts + 1, "counted", seconds=FAST_SECONDS
    )
    sync.wait_equal(POLICY)


def test_foreign_object_with_our_name_is_left_alone_and_told_of(running: Running, sync: Syncing) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}
    url = url_of("ValidatingAdmissionPolicy", "taints")
    foreign = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": url.split("/")[-1]},
        "spec": spec,
    }
    before = sync.client.create(url.rpartition("/")[0], foreign).object
    try:
        sync.write(TAINTS)
        wait_until(lambda: running.state("foreign") == 1, "it is reported", seconds=FAST_SECONDS)
        binding = url_of("ValidatingAdmissionPolicyBinding", "taints")
        wait_until(lambda: sync.client.get(binding).ok, "the rest is written", seconds=FAST_SECONDS)
        assert sync.client.get(url).object == before
        wait_until(lambda: any("is foreign" in note for note in sync.events("AdmissionPoliciesDiffer")), "an Event")
    finally:
        assert sync.client.delete(url).ok
    sync.wait_equal(TAINTS)


def test_policy_that_cannot_be_read_leaves_the_last_good_one(running: Running, sync: Syncing) -> None:
    before = {key: each["metadata"]["resourceVersion"] for key, each in sync.stored().items()}
    assert sync.stage.write_policy("rules: [").ok
    failed = "device_taint_webhook_policy_load_success"
    wait_until(lambda: running.process.metric(failed) == {"": 0.0}, "it is looked at", seconds=FAST_SECONDS)
    assert sync.client.delete(url_of("ValidatingAdmissionPolicyBinding", "guard")).ok  # it still works
    wait_until(lambda: sync.equals(POLICY), "put back", seconds=FAST_SECONDS)
    after = {key: each["metadata"]["resourceVersion"] for key, each in sync.stored().items()}
    assert {key for key in after if after[key] != before[key]} == {
        "ValidatingAdmissionPolicyBinding device-taint-webhook-guard"
    }


def test_nothing_is_written_again_without_a_reason(running: Running, sync: Syncing) -> None:
    """One more look at the same: what is settled stays."""
    wait_until(lambda: running.state("in_sync") == len(exported(POLICY)), "compared", seconds=FAST_SECONDS)
    before = running.process.metric(f"{METRIC}writes_total")
    label = {"metadata": {"annotations": {"example.com/note": "x"}}}
    assert sync.client.patch(url_of("ValidatingAdmissionPolicy", "guard"), label).ok
    wait_until(lambda: running.state("in_sync") == len(exported(POLICY)), "compared", seconds=FAST_SECONDS)
    assert running.process.metric(f"{METRIC}writes_total") == before


def test_account_writes_what_has_our_names_and_nothing_else(running: Running, sync: Syncing) -> None:
    """Creation too: server-side apply names what it creates."""
    stranger = sync.client.acting_as("system:serviceaccount:device-taint-webhook:device-taint-webhook-evict")
    obj = copy.deepcopy(exported(POLICY)[0])
    obj["metadata"]["name"] = "someone-elses"
    collection = path(API, "validatingadmissionpolicies")
    reply = stranger.apply(f"{collection}/someone-elses", obj, field_manager="test")
    assert reply.code == 403, reply
    assert stranger.create(collection, obj).code == 403
    assert stranger.delete(path(API, "validatingadmissionpolicies", name="device-taint-webhook-authors")).code == 403
    events = running.token.events()
    assert refused(events) == []
    ours = {right for right in sync.granted if right.group == "admissionregistration.k8s.io"}
    # creation by apply is recorded as a patch
    used = {(right.resource, right.verb) for right in asked_for(events)} | {
        (right.resource, "create") for right in asked_for(events) if right.verb == "patch"
    }
    granted = {(right.resource, right.verb) for right in ours}
    tried = {("mutatingadmissionpolicies", "delete"), ("mutatingadmissionpolicybindings", "delete")}
    updates = {(resource, "update") for resource, _ in granted}
    assert granted - used - tried - updates == set(), "what for?"
