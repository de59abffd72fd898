"""`audit` of a cluster: what it asks an API server for, and what it does without."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest

from tests.unit.commands.api_server import ApiServer, bare, serving
from tests.unit.commands.audit_runner import BROKEN, DANA, OPS, PLAIN, POLICY, AuditRunner, claim, template
from webhook.commands import audit
from webhook.commands.shared.main import main_of
from webhook.policy.vap.drift import AUTHOR_POLICY, shipped
from webhook.policy.vap.objects import ADMISSION_RESOURCES

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PROOF = {kind: f"{ADMISSION}/{plural}/{AUTHOR_POLICY}" for kind, plural in ADMISSION_RESOURCES.items()}


def at(minute: int, second: int = 0) -> str:
    return f"2026-06-01T12:{minute:02}:{second:02}Z"


@pytest.fixture
def live(run_audit: AuditRunner) -> Iterator[AuditRunner]:
    tables = ApiServer()
    group = "/apis/resource.k8s.io/v1beta2"
    tables.collections = {
        "/api/v1/namespaces": [{"metadata": {"name": "ml"}}],
        f"{group}/deviceclasses": [],
        f"{group}/resourceclaims": [bare(claim(PLAIN, name=f"c{number}")) for number in range(4)],
        f"{group}/resourceclaimtemplates": [bare(template(BROKEN, author=DANA, creationTimestamp=at(30)))],
    }
    tables.collections[f"{group}/resourceclaims"].append(bare(claim(BROKEN, name="last")))
    namespace = "/api/v1/namespaces/device-taint-webhook"
    data = {"policy.yaml": json.dumps(POLICY)}
    tables.objects = {
        group: {"resources": [{"name": "resourceclaimtemplates"}]},
        f"{namespace}/configmaps/device-taint-webhook-policy": {"metadata": {"name": "policy"}, "data": data},
        **{
            path: {"metadata": {"name": AUTHOR_POLICY, "creationTimestamp": at(0)}, "spec": shipped()[kind]}
            for kind, path in PROOF.items()
        },
    }
    with serving(tables, run_audit.folder):
        run_audit.server = tables
        yield run_audit


def references(output: str) -> list[tuple[str, str]]:
    return sorted((each["name"], each["reason"]) for each in json.loads(output)["findings"])


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_cluster_is_read_in_pages(live: AuditRunner, *, forgetful: bool) -> None:
    live.server.forgetful = forgetful
    code, output = live("-o", "json", "--kubeconfig", "kubeconfig", "--context", "here")
    report = json.loads(output)
    assert (code, references(output)) == (1, [("last", "refused"), ("t", "refused")])
    assert report["summary"]["objects"] == 6, "a template and five claims"
    assert {(each["line"], each["column"]) for each in report["findings"]} == {(None, None)}
    assert report["objects"][0]["apiVersion"] == "resource.k8s.io/v1beta2"
    _, output = live("--kubeconfig", "kubeconfig")
    assert output.splitlines()[-1] == "1 cluster, 6 objects: 2 errors, 0 warnings"
    assert "unverified" not in output


def test_m9_with_a_namespace_audit_asks_for_nothing_outside_of_it(live: AuditRunner) -> None:
    group = "/apis/resource.k8s.io/v1beta2"
    live.server.collections = {
        f"{group}/deviceclasses": [],
        f"{group}/namespaces/ml/resourceclaims": [bare(claim(BROKEN, name="only"))],
        f"{group}/namespaces/ml/resourceclaimtemplates": [],
    }
    live.server.objects["/api/v1/namespaces/ml"] = {"metadata": {"name": "ml"}}
    code, output = live("-o", "json", "--kubeconfig", "kubeconfig", "-n", "ml")
    assert (code, references(output)) == (1, [("only", "refused")])


def told_of_template(live: AuditRunner, created: str) -> list[tuple[str, str]]:
    """What is told of a template of somebody who may, created then."""
    template_of_ops = bare(template(BROKEN, author=OPS, creationTimestamp=created))
    live.server.collections["/apis/resource.k8s.io/v1beta2/resourceclaimtemplates"] = [template_of_ops]
    _, output = live("-o", "json", "--kubeconfig", "kubeconfig")
    return [each for each in references(output) if each[0] == "t"]


UNKNOWN = [("t", "refused"), ("t", "unknownAuthor")]


@pytest.mark.parametrize("younger", PROOF.values())
def test_authors_are_known_of_templates_younger_than_policy_and_binding_by_a_minute(
    younger: str, live: AuditRunner
) -> None:
    live.server.objects[younger]["metadata"]["creationTimestamp"] = at(5)
    assert told_of_template(live, at(6, 1)) == []
    for created in (at(0), at(5), at(6)):
        assert told_of_template(live, created) == UNKNOWN


@pytest.mark.parametrize("kind", PROOF)
def test_authors_are_unknown_without_policy_or_binding_as_shipped(kind: str, live: AuditRunner) -> None:
    stored = copy.deepcopy(live.server.objects[PROOF[kind]])
    del live.server.objects[PROOF[kind]]
    assert told_of_template(live, at(30)) == UNKNOWN
    live.server.objects[PROOF[kind]] = {**stored, "spec": {**stored["spec"], "matchResources": {}}}
    assert told_of_template(live, at(30)) == UNKNOWN
    stored["metadata"]["deletionTimestamp"] = at(0)
    live.server.objects[PROOF[kind]] = stored
    assert told_of_template(live, at(30)) == UNKNOWN


@pytest.mark.parametrize("path", PROOF.values())
def test_authors_are_believed_if_the_policy_may_not_be_read(path: str, live: AuditRunner) -> None:
    live.server.objects[path] = 403
    code, output = live("--kubeconfig", "kubeconfig")
    assert (code, "(author as claimed, unverified)" in output) == (1, True)


def test_nothing_is_asked_for_that_flags_say(live: AuditRunner) -> None:
    live("--kubeconfig", "kubeconfig", policy=POLICY)
    assert [each for each in live.server.asked if "configmaps" in each] == []


def test_a_cluster_without_our_policy_is_told_so(live: AuditRunner) -> None:
    code, output = live("--kubeconfig", "kubeconfig", "--policy-configmap", "else/where")
    assert (code, "no policy: only documented rules" in output) == (0, True)


def test_a_cluster_that_cannot_be_asked_gives_two(live: AuditRunner, capsys: pytest.CaptureFixture[str]) -> None:
    del live.server.collections["/api/v1/namespaces"]
    assert main_of(audit, ["--kubeconfig", "kubeconfig"]) == 2
    assert "device-taint-webhook audit: GET /api/v1/namespaces: 404" in capsys.readouterr().err
