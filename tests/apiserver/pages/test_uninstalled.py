"""docs/install.md, "Uninstall" and "Install again", followed: what stays, what comes back, what is lost (M5)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.apiserver.pages.following import INSTALL, INTEGRATIONS, Reader, blocks
from tests.apiserver.policy.stage import POLICY_MAP, REQUESTED_BY, make_config_map, make_policy
from tests.builders import make_rule, make_template, make_toleration
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

pytestmark = pytest.mark.whole

Json = dict[str, Any]

AGAIN: Final = "Install again"
TEAM: Final = "uninstalled"
CLAIMS: Final = path("resource.k8s.io/v1", "resourceclaims", namespace=TEAM)
TEMPLATES: Final = path("resource.k8s.io/v1", "resourceclaimtemplates", namespace=TEAM)
PODS: Final = path("v1", "pods", namespace=TEAM)
RULES: Final = path("resource.k8s.io/v1", "devicetaintrules")
VAPS: Final = path("admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
_WITH_EVICT: Final = "evict-observe"
"""What is installed, from an overlay of one's own in the checkout."""
_FALLBACK: Final = "app.kubernetes.io/component=fallback"
_MILA_ONLY: Final = {
    "name": "mila-is-patient",
    "action": "allow",
    "match": {"requesters": {"users": ["mila"]}, "tolerations": {"keys": ["*"]}},
}
POLICY: Final = make_policy(default="deny", generatedClaims="enforce", unknownAuthor="deny", rules=[_MILA_ONLY])
"""Only the author mila gets a toleration, by a template or otherwise."""


@pytest.fixture
def team(reader: Reader) -> Iterator[str]:
    """A namespace in which mila may do what she likes, RBAC-wise."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    group = "rbac.authorization.k8s.io"
    reader.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        {
            **rbac,
            "kind": "RoleBinding",
            "metadata": {"name": "mila", "namespace": TEAM},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "test-mila"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "mila"}],
        },
        {
            **rbac,
            "kind": "ClusterRole",
            "metadata": {"name": "test-mila"},
            "rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]}],
        },
    )
    yield TEAM
    reader.client.delete(f"{RULES}/emptied")
    reader.run(f"kubectl delete namespace {TEAM} --ignore-not-found")


def _install(reader: Reader, *, first: str = "") -> None:
    """From the one file, with `evict`, without waiting for what `doctor` says; `first` is run before."""
    reader.kustomize(_WITH_EVICT)
    (text,) = blocks(INSTALL, "From one file")
    commands = [line for line in text.splitlines() if not line.startswith("device-taint-webhook doctor")]
    reader.run("\n".join([first, *commands]), OVERLAY=_WITH_EVICT)


@contextlib.contextmanager
def _answering(reader: Reader) -> Iterator[None]:
    """With a replica, and called."""
    with reader.pod_of_serve():
        spec = make_rule(meta={"name": "probe"})
        wait_until(lambda: reader.client.create(RULES, spec, dry_run=True).ok, "rules are judged", seconds=240)
        yield


def _use_policy(reader: Reader) -> None:
    _ = reader.client.apply(POLICY_MAP, make_config_map(json.dumps(POLICY)), field_manager="admin").object


def _policy_holds(reader: Reader) -> bool:
    """It refuses the admin's own template."""
    template = make_template([make_toleration()], meta={"name": "probe", "namespace": TEAM})
    return reader.client.create(TEMPLATES, template, dry_run=True).code == 403


def _template_by_mila(reader: Reader, name: str) -> None:
    template = make_template([make_toleration()], meta={"name": name, "namespace": TEAM})
    stored = reader.client.acting_as("mila", []).create(TEMPLATES, template).object
    assert '"username":"mila"' in stored["spec"]["metadata"]["annotations"][REQUESTED_BY]


def _author_of_a_claim_from(reader: Reader, template: str) -> str:
    """A pod uses the template; who the author is, or why there is no claim."""
    pod = {
        "metadata": {"generateName": "user-of-", "namespace": TEAM},
        "spec": {
            "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
        },
    }
    name = reader.client.create(PODS, pod).object["metadata"]["name"]
    said: list[str] = []

    def decided() -> bool:
        events = path("v1", "events", namespace=TEAM)
        refused = reader.client.get(events, fieldSelector=f"involvedObject.name={name}").items
        said[:] = [
            *(
                json.loads(claim["metadata"]["annotations"][REQUESTED_BY])["username"]
                for claim in _claims(reader, name)
            ),
            *(event["message"] for event in refused if event["reason"] == "FailedResourceClaimCreation"),
        ]
        return bool(said)

    wait_until(decided, "a claim is made or refused", seconds=240)
    return str(said[0])


def _claims(reader: Reader, pod: str) -> list[Json]:
    return [
        claim
        for claim in reader.client.get(CLAIMS).items
        if pod in [owner["name"] for owner in claim["metadata"].get("ownerReferences", [])]
    ]


def _export(reader: Reader) -> None:
    """What docs/integrations.md has one apply, of the policy in the cluster."""
    reader.write("policy.yaml", json.dumps(POLICY))
    export, *_ = blocks(INTEGRATIONS, "Enforce a policy without the webhook")
    reader.run(export)


_WAYS: Final = {"from the overlay": 0, "from the one file": 1, "by label": 2}


@pytest.mark.parametrize("way", _WAYS)
def test_m5_five_steps_leave_nothing_and_what_they_saved_brings_authors_back(
    reader: Reader, team: str, way: str
) -> None:
    rules, save, registrations, *ways, rest = blocks(INSTALL, "Uninstall")
    with contextlib.ExitStack() as pods:
        _install(reader)
        pods.enter_context(_answering(reader))
        _use_policy(reader)
        wait_until(lambda: _policy_holds(reader), "the policy holds")
        _template_by_mila(reader, "before")
        _export(reader)
        emptied = make_rule(meta={"name": "emptied", "annotations": {"devicetaint.io/evict": "true"}})
        _ = reader.client.create(RULES, emptied).object
        assert _author_of_a_claim_from(reader, "before") == "mila"

        listed = [line.split() for line in reader.run(rules).splitlines()]
        assert listed == [["NAME", "EFFECT", "EVICT", "EXPIRES"], ["emptied", "NoSchedule", "true", "<none>"]]
        reader.run(save)
        reader.run(registrations)
        assert len(ways) == len(_WAYS)
        reader.run(ways[_WAYS[way]])
    # The label of ours is on those that were exported as well.
    exported = [each["metadata"]["name"] for each in reader.client.get(VAPS, labelSelector=_FALLBACK).items]
    assert bool(exported) == (way != "by label")
    assert reader.run(rest).splitlines()[-1] == "No resources found"
    assert reader.left() == ""
    assert reader.client.get(VAPS, labelSelector=_FALLBACK).items == []

    (again,) = blocks(INSTALL, AGAIN)
    _install(reader, first=again)
    with _answering(reader):
        wait_until(lambda: _policy_holds(reader), "the policy is there again")
        assert _author_of_a_claim_from(reader, "before") == "mila"
    assert team == TEAM


def test_m5_authors_of_older_templates_need_nothing_that_was_saved(reader: Reader, team: str) -> None:
    _rules, _save, registrations, overlay, *_ = blocks(INSTALL, "Uninstall")
    _install(reader)
    with _answering(reader):
        _use_policy(reader)
        wait_until(lambda: _policy_holds(reader), "the policy holds")
        _template_by_mila(reader, "before")
        reader.run(registrations)
        reader.run(overlay)
    _install(reader)
    with _answering(reader):
        _use_policy(reader)
        wait_until(lambda: _policy_holds(reader), "the policy holds")
        assert _author_of_a_claim_from(reader, "before") == "mila"
    assert team == TEAM
