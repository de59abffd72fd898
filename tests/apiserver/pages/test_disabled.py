"""How runbooks.md and integrations.md disable the webhook, where a GitOps tool puts back what was deleted (M4)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.manifests.installing import REGISTRATIONS, WAYS, installation
from tests.apiserver.pages.following import (
    APPLICATIONS,
    INTEGRATIONS,
    KUSTOMIZATIONS,
    RUNBOOKS,
    RUNBOOKS_TOP,
    Reader,
    blocks,
)
from tests.apiserver.pages.shell import LABELLED
from tests.apiserver.policy.stage import POLICY_MAP, make_config_map
from tests.builders import make_claim, make_rule, make_toleration
from tests.controlplane.assets import Assets
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

Json = dict[str, Any]

GITOPS: Final = "Keep the webhook disabled by a commit"
CONFIGURATIONS: Final = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
RULES: Final = path("resource.k8s.io/v1", "devicetaintrules")
CLAIMS: Final = path("resource.k8s.io/v1", "resourceclaims", namespace="default")


def _rule_is_admitted(reader: Reader) -> bool:
    return reader.client.create(RULES, make_rule(meta={"name": "probe"}), dry_run=True).ok


def _configurations(reader: Reader) -> int:
    return len(reader.run(f"kubectl get {CONFIGURATIONS} {LABELLED} -o name --ignore-not-found").split())


@pytest.mark.whole
def test_m4_deleted_configurations_stay_away_once_the_commit_of_the_page_is_deployed(reader: Reader) -> None:
    """No replica answers all the while."""
    (delete,) = blocks(RUNBOOKS, RUNBOOKS_TOP)
    reader.deploy()
    wait_until(lambda: not _rule_is_admitted(reader), "rules are refused")

    reader.run(delete)
    wait_until(lambda: _rule_is_admitted(reader), "rules are admitted")
    reader.deploy()
    wait_until(lambda: not _rule_is_admitted(reader), "the tool has undone it")

    reader.deploy(GITOPS, INTEGRATIONS)
    reader.run(delete)
    wait_until(lambda: _rule_is_admitted(reader), "rules are admitted")
    reader.deploy(GITOPS, INTEGRATIONS)
    assert _configurations(reader) == 0
    assert _rule_is_admitted(reader)

    reader.deploy()
    assert _configurations(reader) == 2
    wait_until(lambda: not _rule_is_admitted(reader), "the commit is reverted")


@pytest.mark.parametrize(
    "way", [pytest.param(each, marks=() if each == "self-managed" else pytest.mark.whole) for each in WAYS]
)
def test_m4_the_component_takes_two_configurations_out_of_every_installation_and_nothing_else(
    assets: Assets, reader: Reader, way: str
) -> None:
    """Which is what a tool that prunes would delete."""
    reader.kustomize(way, GITOPS, INTEGRATIONS)
    left = list(yaml.safe_load_all(reader.run("kubectl kustomize deploy")))
    before = installation(assets, way)
    assert {each["kind"] for each in before} >= REGISTRATIONS
    kept = [each for each in before if each["kind"] not in REGISTRATIONS]
    assert [_named(each) for each in left] == [_named(each) for each in kept]


def _named(document: Json) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def test_m4_the_first_commands_suspend_argo_cd_and_flux(reader: Reader) -> None:
    """With their kinds, and none of their programs."""
    reader.serve_gitops_kinds()
    automated = {"prune": True, "selfHeal": True}
    named = {"metadata": {"name": "taints"}}
    application = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", **named}
    kustomization = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", **named}
    sync = {"automated": automated, "syncOptions": ["ServerSideApply=true"]}
    _ = reader.client.create(APPLICATIONS, {**application, "spec": {"syncPolicy": sync}}).object
    _ = reader.client.create(KUSTOMIZATIONS, {**kustomization, "spec": {"prune": True}}).object

    (suspend,) = blocks(RUNBOOKS, "Under Argo CD or Flux")
    reader.run(suspend.replace(" NAME ", " taints "))

    policy = reader.client.get(f"{APPLICATIONS}/taints").object["spec"]["syncPolicy"]
    assert policy == {"syncOptions": ["ServerSideApply=true"]}
    assert reader.client.get(f"{KUSTOMIZATIONS}/taints").object["spec"] == {"prune": True, "suspend": True}


def test_m4_mode_off_outlives_the_tool_and_refuses_nothing(reader: Reader) -> None:
    """The policy is in no overlay."""
    document = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicy", "default": "deny"}
    text = f"{yaml.safe_dump(document)}mode: enforce\n"
    claim = make_claim([make_toleration()], meta={"name": "training", "namespace": "default"})
    careless = make_rule(meta={"name": "probe", "annotations": {"devicetaint.io/data": "no JSON"}})
    reader.deploy()
    with reader.pod_of_serve():
        _ = reader.client.apply(POLICY_MAP, make_config_map(text), field_manager="test").object
        wait_until(lambda: reader.client.create(CLAIMS, claim, dry_run=True).code == 403, "the policy refuses")
        assert reader.client.create(RULES, careless, dry_run=True).code == 422

        (edit,) = blocks(RUNBOOKS, "If it refuses the wrong things")
        reader.run(edit, KUBE_EDITOR="sed -i 's/mode: enforce/mode: off/'")
        wait_until(lambda: reader.client.create(CLAIMS, claim, dry_run=True).ok, "nothing is refused")
        reader.deploy()
        assert "mode: off" in json.dumps(reader.client.get(POLICY_MAP).object["data"])
        assert reader.client.create(CLAIMS, claim, dry_run=True).ok
        assert reader.client.create(RULES, careless, dry_run=True).ok
