"""`audit` of a real cluster: the same as of a dump that kubectl made of it, and what a plain user may learn."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.registration.samples import MANIFESTS
from tests.builders import make_claim, make_meta, make_template, make_toleration
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.admission.claim_view import REQUESTED_BY, annotation_of
from webhook.commands import audit
from webhook.commands.shared import snapshot
from webhook.commands.shared.main import main_of
from webhook.policy.match import Requester

DUMPED = "resourceclaimtemplates,resourceclaims,namespaces,deviceclasses"
LABEL = "audited.example.com/tier"


class Cluster:
    """A namespace of the cluster, with a policy that is about nothing else."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.namespace = f"audit-{uuid.uuid4().hex[:8]}"
        self.key = f"{self.namespace}.example.com/broken"
        self.version = versions.api_versions(plane.server_version)[0]
        self.policy = {
            "apiVersion": "policy.devicetaint.io/v1alpha1",
            "kind": "DeviceTaintPolicy",
            "rules": [
                {"name": "ops-may", "action": "allow", "match": {"requesters": {"groups": ["ops"]}}},
                {
                    "name": "no-broken",
                    "action": "deny",
                    "match": {"namespaces": {"labels": {LABEL: "x"}}, "tolerations": {"keys": [self.key]}},
                },
            ],
        }

    def fill(self) -> None:
        labels = {LABEL: "x"}
        self.create("v1", "namespaces", {"metadata": {"name": self.namespace, "labels": labels}}, namespace="")
        self.create("v1", "configmaps", self.object("policy", data={"policy.yaml": json.dumps(self.policy)}))
        group = f"resource.k8s.io/{self.version}"
        for name, author in (
            ("by-ops", Requester("olga", ("ops",))),
            ("by-dana", Requester("dana")),
            ("by-nobody", None),
        ):
            self.create(group, "resourceclaimtemplates", self.template(name, author))
        claim = make_claim([make_toleration(self.key)], meta=self.object("by-hand")["metadata"], version=self.version)
        self.create(group, "resourceclaims", claim)

    def template(self, name: str, author: Requester | None) -> Any:
        meta = self.object(name)["metadata"]
        template = make_template([make_toleration(self.key)], meta=meta, version=self.version)
        if author is not None:
            template["spec"]["metadata"] = {"annotations": {REQUESTED_BY: annotation_of(author)}}
        return template

    def may_forge(self) -> bool:
        """Whether templates can name somebody else as their author."""
        collection = path(f"resource.k8s.io/{self.version}", "resourceclaimtemplates", namespace=self.namespace)
        return self.plane.client.create(collection, self.template("forged", Requester("olga")), dry_run=True).ok

    def object(self, name: str, **fields: Any) -> dict[str, Any]:
        return {"metadata": make_meta(name, namespace=self.namespace), **fields}

    def create(self, api_version: str, plural: str, obj: Any, *, namespace: str | None = None) -> None:
        collection = path(api_version, plural, namespace=self.namespace if namespace is None else namespace)
        reply = self.plane.client.create(collection, obj)
        assert reply.ok, reply.message

    def remove(self) -> None:
        self.plane.client.delete(path("v1", "namespaces", name=self.namespace))


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[Cluster]:
    found = Cluster(plane)
    found.fill()
    yield found
    found.remove()


def told(output: str, namespace: str) -> set[tuple[str, str, str]]:
    """Name, reason and message of what is told of a namespace; other tests leave things in others."""
    findings = json.loads(output)["findings"]
    return {(each["name"], each["reason"], each["message"]) for each in findings if each["namespace"] == namespace}


AS_CLAIMED = " (author as claimed, unverified)"
AUTHOR_POLICY = MANIFESTS / "base/author-policy.yaml"
REFUSED = {("by-dana", "refused"), ("by-hand", "refused"), ("by-nobody", "refused"), ("by-nobody", "unknownAuthor")}


def test_a_cluster_and_its_dump_are_audited_alike(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where authors are proved, whom a dump can only believe."""
    dump = cluster.plane.kubectl("get", DUMPED, "-A", "-o", "yaml")
    assert dump.code == 0, dump.stderr
    (tmp_path / "dump.yaml").write_text(dump.stdout)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(cluster.policy))
    flags = ["-o", "json", "--policy", str(tmp_path / "policy.yaml")]
    assert main_of(audit, [*flags, "--dump", str(tmp_path / "dump.yaml")]) == 1
    of_dump = told(capsys.readouterr().out, cluster.namespace)
    assert {(name, reason) for name, reason, _ in of_dump} == REFUSED

    def of_cluster() -> set[tuple[str, str, str]]:
        where = ["--kubeconfig", str(cluster.plane.kubeconfig), f"--policy-configmap={cluster.namespace}/policy"]
        assert main_of(audit, ["-o", "json", *where]) == 1
        return told(capsys.readouterr().out, cluster.namespace)

    unknown = {(name, reason) for name in ("by-ops", "by-dana") for reason in ("refused", "unknownAuthor")} | REFUSED
    assert {(name, reason) for name, reason, _ in of_cluster()} == unknown
    assert cluster.plane.kubectl("apply", "-f", AUTHOR_POLICY).code == 0
    try:
        assert {(name, reason) for name, reason, _ in of_cluster()} == unknown
        # as if the policy had been there before
        monkeypatch.setattr(snapshot, "_LOADED", timedelta(hours=-1))
        assert of_cluster() == {(*about, message.replace(AS_CLAIMED, "")) for *about, message in of_dump}
    finally:
        cluster.plane.kubectl("delete", "-f", AUTHOR_POLICY)
        wait_until(cluster.may_forge, "the policy is no longer in force")


def test_who_may_not_read_the_policy_is_told_that_authors_are_believed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    user = f"reader-{cluster.namespace}"
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    cluster.create(f"{rbac}/v1", "clusterroles", {"metadata": {"name": user}, "rules": rules}, namespace="")
    binding = {
        "metadata": {"name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": rbac}],
        "roleRef": {"kind": "ClusterRole", "name": user, "apiGroup": rbac},
    }
    cluster.create(f"{rbac}/v1", "clusterrolebindings", binding, namespace="")
    reader = cluster.plane.client.acting_as(user)
    readable = path("v1", "configmaps", namespace=cluster.namespace, name="policy")
    wait_until(lambda: reader.get(readable).ok, "the authorizer knows the role")
    kubeconfig = str(cluster.plane.kubeconfig_of(user))
    where = f"--policy-configmap={cluster.namespace}/policy"
    assert main_of(audit, ["-o", "json", "--kubeconfig", kubeconfig, where]) == 1
    messages = {name: message for name, reason, message in told(capsys.readouterr().out, cluster.namespace)}
    assert messages.keys() == {"by-dana", "by-hand", "by-nobody"}
    assert messages["by-dana"].endswith(AS_CLAIMED)


def test_who_may_read_nothing_gets_two(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = str(cluster.plane.kubeconfig_of(f"nobody-{cluster.namespace}"))
    assert main_of(audit, ["--kubeconfig", kubeconfig]) == 2
    assert "403" in capsys.readouterr().err
