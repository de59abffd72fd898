"""explain, diff and completion against a real cluster, beside a worker at work; also as a viewer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.apiserver.draining import draining
from tests.apiserver.evicting import DRIVER, GENTLE, Ward
from tests.controlplane import versions
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.commands.diff import command as diff
from webhook.commands.explain import command as explain
from webhook.commands.shared.main import main_of
from webhook.commands.verbs import VERBS

REFUSING: Final = """
- name: short-waits
  action: deny
  match: {tolerations: {seconds: {above: 600}}}
"""
STRICT: Final = f"{GENTLE}rules:{REFUSING}"


class Drained(NamedTuple):
    """A ward in which a rule evicts: one pod is blocked by a budget, one is held, one tolerates for an hour."""

    plane: ControlPlane
    ward: Ward
    rule: str
    policy: Path


@pytest.fixture(scope="module")
def drained(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drained]:
    if versions.minor(plane.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(STRICT)
    with draining(plane) as (_, ward, rule):
        config_map = {"metadata": {"name": "policy"}, "data": {"policy.yaml": GENTLE}}
        _ = plane.client.create(path("v1", "configmaps", namespace=ward.name), config_map).object
        yield Drained(plane, ward, rule, policy)


class Verb(NamedTuple):
    """Runs a verb in this process, and reads what it prints."""

    capsys: pytest.CaptureFixture[str]

    def explained(self, drained: Drained, *words: str, kubeconfig: Path | None = None) -> Any:
        flags = ["-n", drained.ward.name, "--kubeconfig", str(kubeconfig or drained.plane.kubeconfig), "-o", "json"]
        code = main_of(explain, [*words, *flags, "--policy", str(drained.policy)])
        said = self.capsys.readouterr()
        assert (code, said.err) == (0, "")
        return json.loads(said.out)


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str]) -> Verb:
    return Verb(capsys)


def test_pod_that_waits_for_a_budget_is_explained_as_the_worker_says(drained: Drained, verb: Verb) -> None:
    found = verb.explained(drained, "pod", "guarded")
    (eviction,) = found["evictions"]
    assert (eviction["state"], eviction["waitsFor"]["name"], eviction["rules"]) == ("blocked", "guard", [drained.rule])
    said = next(each for each in found["reported"] if each["type"] == "devicetaint.io/Eviction")
    assert (said["message"], said["current"]) == (drained.ward.condition(drained.rule)["message"], True)
    assert found["unknown"] == []


def test_tolerated_pod_and_its_claim_say_until_when_and_what_the_policy_says(drained: Drained, verb: Verb) -> None:
    found = verb.explained(drained, "pod", "later")
    ((taint,),) = [device["taints"] for device in found["claims"][0]["devices"]]
    assert (taint["rule"], taint["reason"]) == (drained.rule, "ToleratedForSeconds")
    assert taint["until"] == found["evictions"][0]["due"]
    assert drained.ward.condition(drained.rule)["message"].endswith(f"next due {taint['until']}")
    claim = verb.explained(drained, "claim", "later")
    (walk,) = claim["policy"]["walks"]
    assert (walk["decision"], walk["decidedBy"]) == ("denied", "short-waits")
    assert taint["policy"]["decision"] == "denied"


def test_rule_and_device_are_explained(drained: Drained, verb: Verb) -> None:
    rule = verb.explained(drained, "rule", drained.rule)
    states = {each["name"]: each["state"] for each in rule["pods"]}
    assert states == {"held": "held", "guarded": "blocked", "later": "notDue"}
    assert (rule["evicted"], rule["confirmation"]["needed"]) == (1, False)
    device = verb.explained(drained, "device", f"{DRIVER}/{drained.ward.name}/later")
    assert [each["name"] for each in device["claims"]] == ["later"]


def test_viewer_of_a_namespace_learns_what_is_unknown(drained: Drained, verb: Verb) -> None:
    name, client = drained.ward.name, drained.plane.client
    rights = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "list"]},
    ]
    roles, bindings = (path("rbac.authorization.k8s.io/v1", each, namespace=name) for each in ("roles", "rolebindings"))
    _ = client.create(roles, {"metadata": {"name": "viewer"}, "rules": rights}).object
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mila"}
    reference = {"kind": "Role", "apiGroup": "rbac.authorization.k8s.io", "name": "viewer"}
    binding = {"metadata": {"name": "viewer"}, "subjects": [subject], "roleRef": reference}
    _ = client.create(bindings, binding).object
    kubeconfig = drained.plane.kubeconfig_of("mila")

    def readable() -> bool:
        return drained.plane.kubectl("auth", "can-i", "list", "pods", "-n", name, user="mila").code == 0

    wait_until(readable, "the role holds")
    found = verb.explained(drained, "pod", "later", kubeconfig=kubeconfig)
    assert [each["device"] for each in found["claims"][0]["devices"]] == ["later"]
    assert found["claims"][0]["devices"][0]["published"] is None
    unknown = "\n".join(found["unknown"])
    assert "taints by DeviceTaintRules, and so whether a pod is evicted for one: no permission to read" in unknown
    assert f"only those of namespace {name} are known" in unknown
    same = verb.explained(drained, "pod", "later", "--as=mila", "--as-group=system:authenticated")
    assert (same["claims"], same["unknown"]) == (found["claims"], found["unknown"])


def test_diff_compares_a_file_with_the_live_policy(
    drained: Drained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = f"{drained.ward.name}/policy"
    words = ["--kubeconfig", str(drained.plane.kubeconfig), "-n", drained.ward.name, "--policy-configmap", live]
    assert main_of(diff, ["live", str(drained.policy), *words, "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    changed = {each["name"]: each["changes"][0]["rule"] for each in found["objects"]}
    assert changed == {"later": "short-waits"}
    same = tmp_path / "same.yaml"
    same.write_text(GENTLE)
    assert main_of(diff, ["live", str(same), *words]) == 0
    assert "no difference" in capsys.readouterr().out


# --- completion ---------------------------------------------------------------------------------


def plugin_environment(drained: Drained, folder: Path) -> dict[str, str]:
    """With the plugin and its completion on PATH, as pip puts them there, but with a minute to ask for names.

    A shell waits for three seconds at most; a busy machine needs longer to begin.
    """
    patient = "from webhook.commands import cluster_names; cluster_names._SECONDS = 60"
    for name, call in (("kubectl-dtaint", "main"), ("kubectl_complete-dtaint", "complete")):
        script = folder / name
        code = f"import sys; sys.argv[0] = '{name}'; {patient}; from webhook.cli import {call}; sys.exit({call}())"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
        script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "KUBECONFIG": str(drained.plane.kubeconfig),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


def completions(drained: Drained, folder: Path, *words: str) -> list[str]:
    """What the real kubectl suggests."""
    command = [str(drained.plane.assets.program("kubectl")), "__complete", "dtaint", *words]
    environment = plugin_environment(drained, folder)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()


@pytest.mark.whole
def test_kubectl_completes_verbs_flags_and_names(drained: Drained, tmp_path: Path) -> None:
    assert completions(drained, tmp_path, "stat") == [f"status\t{VERBS['status']}", ":4"]
    assert completions(drained, tmp_path, "status", "-o", "") == ["json", "text", "yaml", ":4"]
    wait_until(lambda: drained.rule in completions(drained, tmp_path, "status", drained.rule[:4]), "names of rules")
    explain = ("explain", "-n", drained.ward.name, "pod", "g")
    wait_until(lambda: completions(drained, tmp_path, *explain) == ["guarded", ":4"], "names of pods")


@pytest.mark.whole
def test_bash_completes_names_by_asking_the_program(drained: Drained, tmp_path: Path) -> None:
    script = (
        "source <(kubectl-dtaint completion bash); COMP_WORDS=(kubectl-dtaint status ward); COMP_CWORD=2; "
        '_device_taint_webhook; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = plugin_environment(drained, tmp_path)

    def names() -> list[str]:
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout.splitlines()

    wait_until(lambda: drained.rule in names(), "names of rules")
