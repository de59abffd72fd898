"""docs/policy.md, tenants.md and testing-policies.md: their commands against a cluster, by an admin and by a tenant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.apiserver.pages.following import Reader, blocks
from tests.apiserver.policy.stage import Stage, hash_of, make_policy
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

pytestmark = pytest.mark.whole

POLICY: Final = "docs/policy.md"
TENANTS: Final = "docs/tenants.md"
TESTING: Final = "docs/testing-policies.md"
NAMESPACE: Final = "research-a"
_EDITOR: Final = r"sed -i -E 's/^( *)default: deny/\1mode: warn\n\1default: deny/'"


@pytest.fixture(scope="module")
def namespaces(installed: Stage) -> Iterator[None]:
    """Those that the pages name."""
    for name in (NAMESPACE, "ml"):
        installed.create("v1", "Namespace", name)
    yield
    for name in (NAMESPACE, "ml"):
        installed.client.delete(path("v1", "namespaces", name=name))


@pytest.fixture
def reader(stage: Stage, namespaces: None, tmp_path: Path) -> Reader:
    """An admin, with the files that the pages name."""
    del namespaces
    reader = Reader(stage.plane, tmp_path)
    (claim,) = blocks(TENANTS, "Try it first", "yaml")
    (policy,) = blocks(POLICY, "A first policy", "yaml")
    for name, text in {"policy.yaml": policy, "claim.yaml": claim, "claims/claim.yaml": claim}.items():
        reader.write(name, text)
    reader.write("next.yaml", policy.replace("3600", "7200"))
    return reader


def use(stage: Stage, reader: Reader) -> None:
    """The admin checks the policy, and puts it into the cluster as the page says."""
    (commands,) = blocks(POLICY, "A first policy")
    reader.run(commands)
    stage.wait_policy(hash_of(yaml.safe_load((reader.folder / "policy.yaml").read_text())))


def test_a_tenant_reads_what_the_page_shows_and_the_admin_turns_it_into_a_warning(stage: Stage, reader: Reader) -> None:
    use(stage, reader)
    tenant = str(stage.plane.kubeconfig_of("mila", ["ml"]))
    shown, _events = blocks(TENANTS, "Read the message")
    command, _, text = shown.removeprefix("$ ").partition("\n")
    dry_run, offline = blocks(TENANTS, "Try it first")
    assert reader.run(command, codes={1}, KUBECONFIG=tenant) == text
    assert reader.run(dry_run, codes={1}, KUBECONFIG=tenant) == text
    assert "(rule default)" in reader.run(offline.partition("\n")[0], codes={1}, KUBECONFIG=tenant)
    (edit,) = blocks(POLICY, "Modes and other switches")
    reader.run(edit, KUBE_EDITOR=_EDITOR)

    def warned() -> bool:
        return reader.run(dry_run, codes={0, 1}, KUBECONFIG=tenant).startswith("Warning: spec.devices.requests[0]")

    wait_until(warned, "a warning in place of the refusal")


def test_a_pod_that_waits_for_its_claim_has_an_event_that_says_why(stage: Stage, reader: Reader) -> None:
    stage.use(make_policy())
    claim = yaml.safe_load((reader.folder / "claim.yaml").read_text())
    template = {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "namespace": NAMESPACE},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": claim["metadata"]["name"]}],
        },
    }
    tenant = str(stage.plane.kubeconfig_of("mila", ["ml"]))
    reader.write("template.yaml", yaml.safe_dump(template))
    reader.write("pod.yaml", yaml.safe_dump(pod))
    reader.run("kubectl apply -f template.yaml", KUBECONFIG=tenant)
    policy = reader.folder / "policy.yaml"
    policy.write_text(f"{policy.read_text()}generatedClaims: enforce\n")
    use(stage, reader)
    reader.run("kubectl apply -f pod.yaml", KUBECONFIG=tenant)
    _shown, events = blocks(TENANTS, "Read the message")
    wait_until(lambda: 'no rule allows "mila"' in reader.run(events), "the event of the pod")


def test_an_admin_judges_what_is_stored_as_the_page_says(stage: Stage, reader: Reader) -> None:
    stage.use(make_policy())
    reader.run("kubectl apply -f claim.yaml")
    use(stage, reader)
    check = blocks(TESTING, "check: a policy and some manifests")[0].splitlines()[-1]
    assert "1 file, 1 object: 1 error" in reader.run(check, codes={1})
    audits, dump = blocks(TESTING, "audit: what is stored")
    live, namespaced, offline = audits.splitlines()
    reader.run(dump)
    assert [f"{NAMESPACE}/training" in reader.run(each, codes={0, 1}) for each in (live, namespaced, offline)] == [
        True,
        False,
        True,
    ]
    for command in blocks(TESTING, "diff: two policies")[0].splitlines():
        assert f"allowed  ResourceClaim {NAMESPACE}/training" in reader.run(command, codes={1})
